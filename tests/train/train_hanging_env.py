"""Trains with an environment that hangs at step STEPS and makes the file RUNS/hangs. Run by a test.

usage: train_hanging_env.py ALGORITHM RUNS STEPS
"""

import sys
import time
from pathlib import Path

import gymnasium

from parl.train import TrainingInterrupted, train, trainer

OPTIONS = {
    "dqn": {"learners": 1, "learning_starts": 100, "batch_size": 32, "schedule": "async"},
    "impala": {},
    "a3c": {},
    "es": {"actors": 2},
    "ppo": {},  # its environments are stepped by the process that learns
    "evaluation": {},
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
    if name in ("es", "ppo", "evaluation"):
        del options["actor_kind"]
    if name in ("ppo", "evaluation"):
        del options["actors"]
    if name == "evaluation":
        trainer._ANSWER_S = 1.0
        # Evaluations take more steps of an environment than the rollouts between them, and so hang first.
        every = {"rollout_steps": 8, "evaluation_every": 64, "evaluation_episodes": 100}
        name, options = "ppo", options | {"num_envs": 64} | every
    env = lambda: Hangs(gymnasium.make("CartPole-v1"))  # noqa: E731
    try:
        run = train(name, env=env, total_steps="100M", runs=runs, name="run", quiet=False, **options)
    except TrainingInterrupted as error:
        run = error.run
    sys.stdout.write(run.stopped)
