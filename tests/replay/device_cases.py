"""The same calls on a replay of the CPU and on one of a device.

For the tests, which have the device's kernels as host C++, and for `benches/gpu`, which has a device.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import parl
from parl.errors import NotSampleableError


@dataclass
class Case:
    """What one comparison is made of."""

    capacity: int = 150
    num_envs: int = 4
    n_step: int = 1
    frame_stack: int = 1
    autoreset: str = "next_step"
    stack_padding: str = "zero"
    weight_norm: str = "batch"
    shuffled: bool = False
    explicit: bool = False
    discounts: bool = False
    reward: str = "float32"
    uniform: bool = False
    alpha: float = 0.6
    backwards: bool = False

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            # 48 bytes, 5, 8, 4: pieces of all widths.
            "obs": ((12,), "int32"),
            "pixel": ((5,), "uint8"),
            "action": ((), "int64"),
            "reward": ((), self.reward),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        }
        if self.explicit:
            found["next_obs"] = ((12,), "int32")
        if self.discounts:
            found["discount"] = ((), "float64")
        return found

    def pair(
        self, seed: int, device: str, prioritized: Any, uniform: Any
    ) -> tuple[parl.PrioritizedReplay, Any]:
        options: dict[str, Any] = {
            "n_step": self.n_step,
            "frame_stack": self.frame_stack,
            "autoreset": self.autoreset,
            "stack_padding": self.stack_padding,
            "num_envs": self.num_envs,
            "gamma": 0.9,
            "seed": seed,
        }
        cpu, mine = (parl.UniformReplay, uniform) if self.uniform else (parl.PrioritizedReplay, prioritized)
        if not self.uniform:
            options |= {"weight_norm": self.weight_norm, "alpha": self.alpha}
        found = mine(self.capacity, self.fields(), device=device, **options)
        return cpu(self.capacity, self.fields(), fan_out=32, **options), found


class Rows:
    """Rows of random episodes, each of which says which it is."""

    def __init__(self, case: Case, seed: int) -> None:
        self.case, self.rng, self.number = case, np.random.default_rng(seed), 0

    def take(self) -> dict[str, Any]:
        case, rng = self.case, self.rng
        count = int(rng.integers(1, 3 * case.num_envs)) if case.shuffled else case.num_envs
        number = np.arange(self.number, self.number + count)
        self.number += count
        rows: dict[str, Any] = {
            "obs": (number[:, None] * 16 + np.arange(12)).astype(np.int32),
            "pixel": rng.integers(0, 256, (count, 5), np.uint8),
            "action": number,
            "reward": rng.normal(size=count).astype(case.reward),
            "terminated": rng.random(count) < 0.1,
            "truncated": rng.random(count) < 0.15,
        }
        if case.explicit:
            rows["next_obs"] = rows["obs"] + 7
        if case.discounts:
            rows["discount"] = rng.random(count)
        if case.autoreset != "next_step" and not case.explicit:
            rows["final_obs"] = rows["obs"] + 5
        if case.shuffled:
            rows["env_id"] = rng.integers(0, case.num_envs, count)
        if not case.uniform and rng.random() < 0.3:
            rows["priorities"] = rng.exponential(size=count).astype(np.float32)
        return rows


def tensors(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: torch.from_numpy(value) for name, value in rows.items()}


def host(tensor: Any) -> np.ndarray:
    return tensor.cpu().numpy()


def assert_same(cpu: parl.PrioritizedReplay, mine: Any, count: int, mode: str, exact: bool) -> Any:
    """Draws from both; the device's batch, if there is anything."""
    options = {"rank": 1, "learners": 2} if mode == "split" else {}
    try:
        expected = cpu.sample(count, mode=mode, beta=0.6, **options)
    except NotSampleableError:
        mine.rng_state = cpu.rng_state
        return None
    found = mine.sample(count, mode=mode, beta=0.6, **options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        here = host(found[name]).view(value.dtype)
        if name == "weights" and not exact:
            # The device's own powers, rounded to single precision.
            np.testing.assert_allclose(here, value, rtol=2e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(here, value, err_msg=name)
    return found


def compare(
    cpu: parl.PrioritizedReplay, mine: Any, case: Case, seed: int, *, calls: int = 90, exact: bool = True
) -> int:
    """The same calls on both, which must give the same; batches that were drawn.

    ``exact``: importance weights are equal to the last bit too.
    """
    rows, rng, drawn = Rows(case, seed), np.random.default_rng(seed + 1), 0
    given: list[np.ndarray] = []
    for call in range(calls):
        more = rows.take()
        tickets = host(mine.add(**tensors(more))).view(np.uint64)
        np.testing.assert_array_equal(tickets, cpu.add(**more))
        given.append(tickets)
        if call % 20 == 11:
            ended = rng.integers(0, case.num_envs, 2)
            cpu.end_episodes(ended)
            mine.end_episodes(ended)
        if call % 3 == 0:
            mode = ("stratified", "independent", "systematic", "split")[call // 3 % 4]
            found = assert_same(cpu, mine, (1, 40, 33)[call % 7 % 3], mode, exact)
            drawn += found is not None
        if call % 4 == 1:
            # Of rows that are there, that wait, that are gone; the last of equal ones wins.
            some = rng.choice(np.concatenate(given[-60:]), 50)
            errors = rng.normal(size=50).astype(np.float32)
            assert int(mine.update_priorities(some.view(np.int64), errors)) == cpu.update_priorities(
                some, errors
            )
    mine.verify()
    mine.check()
    assert (len(mine), mine.sampleable, mine.total_priority) == (len(cpu), cpu.sampleable, cpu.total_priority)
    assert (mine.counters, mine.rng_state) == ({**cpu.counters, "restarts": 0}, cpu.rng_state)
    assert mine.max_priority == cpu.max_priority
    np.testing.assert_array_equal(mine.histogram(), cpu.histogram())
    return drawn


CASES = [
    Case(),
    Case(n_step=3, backwards=True),
    Case(n_step=3, autoreset="same_step"),
    Case(n_step=2, autoreset="disabled", shuffled=True, weight_norm="global"),
    Case(n_step=3, frame_stack=4, reward="float64"),
    Case(frame_stack=3, stack_padding="first", autoreset="same_step", shuffled=True, backwards=True),
    # Environments that send rarely, in a ring so small that their frames go.
    Case(capacity=40, num_envs=12, n_step=2, frame_stack=4, shuffled=True),
    Case(n_step=2, explicit=True, discounts=True, shuffled=True),
    Case(explicit=True, autoreset="same_step"),
    Case(capacity=9, num_envs=3, n_step=4),
    Case(capacity=500, uniform=True, n_step=2, frame_stack=2),
]
