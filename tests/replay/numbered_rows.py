"""Rows of small pictures that say in which step they were added."""

from __future__ import annotations

import numpy as np
from model import fields

SPEC = {**fields(), "obs": ((20, 20), "uint8")}


def step(replay, number: int, num_envs: int = 4) -> np.ndarray:
    rng = np.random.default_rng(number)
    return replay.add(
        obs=np.broadcast_to(np.uint8(number % 250 + 1), (num_envs, 20, 20)),
        action=number * num_envs + np.arange(num_envs),
        reward=rng.random(num_envs, np.float32),
        terminated=rng.random(num_envs) < 0.1,
        truncated=rng.random(num_envs) < 0.1,
    )
