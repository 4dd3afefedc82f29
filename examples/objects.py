"""Plays Pong by rule, on named fields of its objects: the paddle follows the ball.

python examples/objects.py [num_envs] [steps]
"""

from __future__ import annotations

import os
import sys

import numpy as np

import parl

QUICK = "PARL_EXAMPLE_QUICK" in os.environ
# Pixels between paddle and ball that are left as they are.
NEAR = 4


def main(num_envs: int, steps: int) -> None:
    """Prints the points of the rule and those of random actions."""
    envs = parl.AtariVectorEnv("pong", num_envs, obs_type="objects", stack_num=None)
    column = {name: i for i, name in enumerate(envs.object_names)}
    for field in parl.atari.objects("pong"):
        print(f"{field.name:15} {field.type:8} byte {field.address}")
    codes = [parl.atari.Action(code).name for code in envs.action_codes]
    noop, up, down = (codes.index(name) for name in ("NOOP", "RIGHT", "LEFT"))
    random = np.random.default_rng(0)
    for rule in (True, False):
        obs, _ = envs.reset(seed=0)
        points = np.zeros(num_envs)
        for _ in range(steps):
            distance = obs[:, column["ball_y"]].astype(int) - obs[:, column["player_y"]]
            distance[obs[:, column["ball_in_play"]] == 0] = 0
            actions = np.where(distance > NEAR, down, np.where(distance < -NEAR, up, noop))
            if not rule:
                actions = random.integers(len(codes), size=num_envs)
            obs, reward, *_ = envs.step(actions)
            points += reward
        print(f"{'the rule' if rule else 'random actions'}: {points.mean():+.1f} points in {steps} steps")
    envs.close()


if __name__ == "__main__":
    defaults = ["2", "100"] if QUICK else ["8", "2000"]
    numbers = sys.argv[1:] + defaults[len(sys.argv) - 1 :]
    main(int(numbers[0]), int(numbers[1]))
