"""The code blocks of docs/adapters.md run unchanged, in this process, which has loaded the libraries."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "adapters.md"
BLOCKS = re.findall(r"^```py\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def test_every_library_has_a_block():
    text = "".join(BLOCKS)
    assert all(f"parl.adapters.{name}" in text for name in ("sb3", "torchrl", "tianshou", "cpprb"))


# What holds after each block.
RESULTS = [
    "model.num_timesteps >= 300 and model.replay_buffer.size() > 0",
    "AtariVecEnv('breakout', n_envs=2).num_envs == 2",
    "len(buffer) == 100 and len(batch) == 32",
    "len(buffer) == 2 and len(batch) == 32",
    "buffer.get_stored_size() == 10 and len(batch['obs']) == 4",
]


@pytest.mark.parametrize(("code", "result"), list(zip(BLOCKS, RESULTS, strict=True)), ids=range(len(BLOCKS)))
def test_block_runs(code, result):
    names = {}
    exec(compile(code, str(PAGE), "exec"), names)
    assert eval(result, names)
