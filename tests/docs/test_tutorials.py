"""The pages under docs/ that are read from start to end run, block by block, as one program.

Python blocks share their names, `sh` blocks are commands in the same folder. Commands of `console` blocks
need other machines or install something; they are not run.
"""

import os
import re
import sys
from pathlib import Path

import pytest
from page_blocks import BLOCK, COMMANDS

import forked

DOCS = Path(__file__).parents[2] / "docs"
PAGES = [DOCS / "getting-started.md", *sorted((DOCS / "tutorials").glob("*.md"))]
# torchrun and Ray start many processes; tests/runtime has quick tests of both.
SLOW = {"several-machines"}
# Sizes on a page, and those of the test, which checks that everything runs, not that it learns.
SMALLER = {
    "getting-started.md": {
        "--total-steps 50k": "--total-steps 1k --evaluation-episodes 2",
        "total_steps=50_000": "total_steps=1_000, evaluation_episodes=2, quiet=True",
        "episodes=20": "episodes=2",
        "parl eval": "parl eval --episodes 2",
    },
    "train-and-watch.md": {
        "--total-steps 40k": "--total-steps 2k --evaluation-episodes 2",
        "--total-steps 60k": "--total-steps 3k",
        "total_steps=80_000": "total_steps=4_000",
        "--episodes 20": "--episodes 2",
    },
    "own-environment.md": {
        "5_000": "1_000",
        "4_000": "512",
        "evaluation_episodes=10": "evaluation_episodes=2",
    },
    "replay-in-your-loop.md": {
        "steps = 5_000": "steps = 400",
        "range(200)": "range(20)",
        "range(10)": "range(2)",
    },
    "atari.md": {
        "--stop-at-return 18": "--total-steps 512 --num-envs 4 --rollout-steps 16 --minibatch-size 32"
        " --evaluation-episodes 1 --evaluation-env-options max_num_frames_per_episode=400",
    },
    "several-machines.md": {
        "--total-steps 50k": "--total-steps 2k --evaluation-episodes 2",
        "--total-steps 20k": "--total-steps 1k --evaluation-episodes 2 --learners 1 --num-envs 4",
        "--episodes 10": "--episodes 2",
    },
}


def program(page):
    """Returns the Python program of a page with the sizes of the test."""
    text = page.read_text(encoding="utf-8")
    blocks = [
        code if language == "python" else f"_commands({code!r})\n" for language, code in BLOCK.findall(text)
    ]
    code = "\n".join(blocks)
    for size, small in SMALLER[page.name].items():
        assert size in code, f"{page.name} does not have {size!r}"
        code = code.replace(size, small)
    return f"{COMMANDS}\nif __name__ == '__main__':\n" + re.sub(r"^(?=.)", "    ", code, flags=re.M)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.name, marks=[pytest.mark.slow(minutes=2)] if page.stem in SLOW else [])
        for page in PAGES
    ],
)
def test_page_runs(page, tmp_path):
    (tmp_path / "page.py").write_text(program(page))
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = forked.run(["page.py"], tmp_path, os.environ | {"PATH": path})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
