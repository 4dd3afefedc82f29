"""Settings of runs in presets for classic control that SAC, TD3 and DDPG share."""

from __future__ import annotations

from typing import Any

PENDULUM_RUN: dict[str, Any] = {
    "env": "Pendulum-v1",
    "num_envs": 4,
    "replay_ratio": 128.0,
    "batch_size": 256,
    "learning_starts": 1_000,
    "replay_capacity": 50_000,
    "total_steps": 40_000,
}
MOUNTAIN_CAR_RUN = {**PENDULUM_RUN, "env": "MountainCarContinuous-v0", "total_steps": 30_000}
