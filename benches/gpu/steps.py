"""Steps environments with random actions, for a profiler such as Nsight Compute; prints nothing."""

from __future__ import annotations

import sys

import torch
from common import arguments

import parl


def main(command: list[str] | None = None) -> int:
    given = arguments(command, envs=32_768, steps=40)
    for game in given.games or ["breakout"]:
        env = parl.AtariVectorEnv(game, given.envs, device=given.device)
        env.reset(seed=0)
        for _ in range(given.steps):
            env.step(torch.randint(env.single_action_space.n, (given.envs,), device=env.device))
        env.check()
        env.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
