"""A random agent in many Atari environments: emulated frames per second of parl and of ale_py.

python examples/random_atari.py [game] [number of environments] [seconds]
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import parl


def frames_per_second(envs: Any, seconds: float) -> float:
    envs.reset(seed=0)
    envs.action_space.seed(0)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        envs.step(envs.action_space.sample())
        steps += 1
    rate = 4 * envs.num_envs * steps / (time.perf_counter() - start)
    envs.close()
    return rate


def main() -> None:
    game = sys.argv[1] if len(sys.argv) > 1 else "breakout"
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    num_envs = int(sys.argv[2]) if len(sys.argv) > 2 else 2 if quick else 64
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.1 if quick else 3.0
    ours = frames_per_second(parl.AtariVectorEnv(game, num_envs), seconds)
    print(f"parl    {ours:>10,.0f} frames/s")
    try:
        import ale_py
    except ImportError:
        print("ale_py  is not installed")
        return
    theirs = frames_per_second(ale_py.AtariVectorEnv(game, num_envs), seconds)
    print(f"ale_py  {theirs:>10,.0f} frames/s   parl is {ours / theirs:.1f} times as fast")


if __name__ == "__main__":
    main()
