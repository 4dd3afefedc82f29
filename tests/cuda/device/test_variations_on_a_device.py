"""Environments of a batch on a device, each with its own mode, difficulty, frame skip, ROM and RAM."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from env_pairs import pair, run, same

import parl
from parl.errors import AtariError

DIFFERENT: dict[str, Any] = {
    "mode": [0, 4, 24, 0],
    "difficulty": [0, 1, 0, None],
    "frameskip": [4, (2, 5), 1, 4],
    "repeat_action_probability": [0.25, 0.0, 0.9, 0.25],
    "ram": [None, None, {57: 2}, None],
    "patches": [None, None, None, {0xF07D: 0x10}],
}


@pytest.mark.parametrize("batch_size", [0, 2])
def test_every_environment_plays_its_own_variation(batch_size: int) -> None:
    cpu, gpu = pair("breakout", 4, max_num_frames_per_episode=60, **DIFFERENT)
    assert run(cpu, gpu, 20) > 0
    if not batch_size:
        return
    groups = parl.AtariVectorEnv("breakout", 4, batch_size=2, device="cuda", **DIFFERENT)
    groups.reset(seed=3)
    assert groups.recv()[-1]["env_id"].tolist() == [2, 3]


def test_a_reset_changes_what_environments_play() -> None:
    cpu, gpu = pair("breakout", 4)
    run(cpu, gpu, 3)
    mask = np.array([True, False, True, False])
    options: dict[str, Any] = {"mode": [4, 0, 8, 0], "frameskip": 2, "ram": {57: 3}}
    right = gpu.reset(options={**options, "reset_mask": torch.from_numpy(mask)})
    same(cpu.reset(options={**options, "reset_mask": mask}), right)
    for _ in range(5):
        actions = np.array([1, 2, 3, 0])
        same(cpu.step(actions), gpu.step(torch.from_numpy(actions)))
    # To variations that the batch has, and in a copy.
    for envs in (cpu, gpu):
        envs.reset(seed=2, options={"mode": [0, 4, 0, 4], "frameskip": 4, "ram": None})
    copy = pickle.loads(pickle.dumps(gpu))
    assert copy.variations == cpu.variations
    same(cpu.step(np.ones(4, int)), copy.step(torch.ones(4, dtype=torch.int64)))


def test_what_a_device_cannot_do_is_refused() -> None:
    for options, message in (
        ({"hold": {57: 5}}, 'hold is given for environments on a CUDA device, expected device="cpu"'),
        ({"modifications": "infinite_lives"}, "hold is given"),
        ({"ram": {57: 5}, "boot": "exact"}, "ram is given for breakout on a CUDA device"),
    ):
        with pytest.raises(AtariError, match=message):
            parl.AtariVectorEnv("breakout", 2, device="cuda", **options)
    envs = parl.AtariVectorEnv("breakout", 2, device="cuda")
    obs, _ = envs.reset(seed=0)
    with pytest.raises(AtariError, match="hold is given"):
        envs.reset(options={"hold": {57: 5}})
    with pytest.raises(AtariError, match=r"mode 5 is not one of breakout's modes"):
        envs.reset(options={"mode": [0, 5]})
    with pytest.raises(AtariError, match=r"options has the key 'reset_masks': did you mean 'reset_mask'\?"):
        envs.reset(options={"reset_masks": np.array([True, False])})
    before = envs.variations
    with pytest.raises(AtariError, match=r"out is torch\.uint8 of shape \(3,\)"):
        envs.reset(options={"mode": 4}, out=torch.zeros(3, dtype=torch.uint8))
    assert envs.variations == before
    assert (envs.reset(seed=0)[0] == obs).all()


@pytest.mark.parametrize("batch_size", [0, 2])
def test_a_chosen_form_is_kept(batch_size: int) -> None:
    """A variation that the batch has not had makes it load the game anew."""
    envs: Any = parl.AtariVectorEnv("breakout", 4, batch_size=batch_size, device="cuda")
    envs.choose("plain")
    envs.reset(seed=0, options={"mode": 4})
    assert envs.forms == {"breakout": "plain"}
    assert {form for group in envs._native.all for _, form, _ in group.core.choices()} == {"plain"}
    envs.close()
