"""Batches of Atari environments on the CPU and on a device whose results are compared byte for byte."""

from typing import Any

import numpy as np
import torch

import parl


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(entry) for key, entry in value.items()}
    return value.cpu().numpy() if hasattr(value, "cpu") else value


def same(left: tuple[Any, ...], right: tuple[Any, ...]) -> None:
    """Compares the results of a call: `left` of the CPU, `right` of the device."""
    for a, b in zip(left[:-1], right[:-1], strict=True):
        found = plain(b)
        np.testing.assert_array_equal(a, found)
        assert found.dtype == a.dtype
    infos = plain(right[-1])
    for key, value in left[-1].items():
        np.testing.assert_equal(infos[key], value, err_msg=key)


def pair(games: Any, num_envs: int, **options: Any) -> tuple[Any, Any]:
    given = {"boot": "snapshot", **options}
    return parl.AtariVectorEnv(games, num_envs, **given), parl.AtariVectorEnv(
        games, num_envs, device="cuda", **given
    )


def run(cpu: Any, gpu: Any, steps: int, seed: int = 3) -> int:
    """Resets and steps both, and compares. Returns the number of steps in which episodes ended."""
    same(cpu.reset(seed=seed), gpu.reset(seed=seed))
    draws = np.random.default_rng(seed)
    ended = 0
    for step in range(steps):
        actions = draws.integers(0, cpu.single_action_space.n, cpu.num_envs)
        given = torch.tensor(actions, dtype=torch.int64 if step % 2 else torch.int32)
        left, right = cpu.step(actions), gpu.step(given)
        same(left, right)
        ended += "episode_return" in left[-1]
    np.testing.assert_array_equal(cpu.get_state(), gpu.get_state())
    return ended
