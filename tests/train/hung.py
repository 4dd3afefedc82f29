"""Trains with an environment that hangs after some steps; says so by making a file. Run by a test.

usage: hung.py ALGORITHM RUNS STEPS
"""

import sys
import time
from pathlib import Path

import gymnasium

from parl.train import train

OPTIONS = {
    "dqn": {"learners": 1, "learning_starts": 100, "batch_size": 32, "schedule": "free"},
    "impala": {},
    "a3c": {},
    "es": {"actors": 2},
}


class Hangs(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == int(sys.argv[3]):
            (Path(sys.argv[2]) / "hangs").touch()
            time.sleep(3600)
        return super().step(action)


if __name__ == "__main__":
    name, runs = sys.argv[1], sys.argv[2]
    options = {"num_envs": 4, "actors": 2, "actor_kind": "process", "hidden": (16,)} | OPTIONS[name]
    if name == "es":
        del options["actor_kind"]
    env = lambda: Hangs(gymnasium.make("CartPole-v1"))  # noqa: E731
    run = train(name, env=env, total_frames="100M", runs=runs, name="run", quiet=True, **options)
    sys.stdout.write(run.stopped)
