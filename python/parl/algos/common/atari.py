"""Settings of runs on Pong that tuned presets of several algorithms share."""

from __future__ import annotations

from typing import Any

PONG: dict[str, Any] = {
    "env": "parl/Pong-v0",
    # A game between two good players could last forever.
    "evaluation_env_options": ("max_num_frames_per_episode=30_000",),
    "evaluation_episodes": 30,
}
RAM = ("obs_type=ram", "stack_num=2", "padding=reset")
"""Options of environments whose observations are the console's memory of two steps."""
PONG_RAM: dict[str, Any] = {**PONG, "env_options": RAM}
PONG_RAM_NOTE = "Uses the console's 128 bytes and their changes since the last step; tuned on Pong."
