"""Compares a CPU replay with a device replay by making the same calls on both.

Used by the tests, whose kernels are compiled as host C++, and by `benches/gpu`, which runs on a device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import parl
from parl.errors import NotSampleableError
from tickets import same_tickets


@dataclass
class Case:
    """Settings of one comparison."""

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
    # Number of steps of a sequence; 0 for single rows.
    length: int = 0
    overlap: int = 0
    burn_in: int = 0
    # Strategy of hindsight; empty for none.
    goals: str = ""

    def fields(self) -> dict[str, Any]:
        goal = ((2,), "float64")
        # Fields of 48, 5, 8 and 4 bytes, so that pieces of all widths are copied.
        obs: Any = ((12,), "int32")
        if self.goals:
            obs = {"observation": obs, "achieved_goal": goal, "desired_goal": goal}
        found: dict[str, Any] = {
            "obs": obs,
            "pixel": ((5,), "uint8"),
            "action": ((), "int64"),
            "reward": ((), self.reward),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        }
        if self.explicit:
            found["next_obs"] = obs
        if self.discounts:
            found["discount"] = ((), "float64")
        if self.length:
            found["state"] = ((3,), "float32")
        if self.goals:
            found["info"] = {"scale": ((), "float64")}
        return found

    def kind(self) -> type[parl.PrioritizedReplay]:
        """The class of the CPU replay."""
        if self.length:
            return parl.SequenceReplay
        return parl.UniformReplay if self.uniform else parl.PrioritizedReplay

    def hindsight(self) -> parl.Hindsight | None:
        if not self.goals:
            return None
        return parl.Hindsight(goal_reward, strategy=self.goals, terminated_fn=is_close)  # type: ignore[arg-type]

    def pair(
        self, seed: int, device: str, device_class: Callable[[Any], Any] = lambda kind: kind
    ) -> tuple[parl.PrioritizedReplay, Any]:
        """The CPU and the device replay; ``device_class`` maps the CPU's class to the device's."""
        options: dict[str, Any] = {
            "frame_stack": self.frame_stack,
            "autoreset": self.autoreset,
            "stack_padding": self.stack_padding,
            "num_envs": self.num_envs,
            "gamma": 0.9,
            "seed": seed,
        }
        if self.length:
            options |= {"length": self.length, "overlap": self.overlap, "burn_in": self.burn_in}
        else:
            options |= {"n_step": self.n_step, "hindsight": self.hindsight()}
        if not self.uniform:
            options |= {"weight_norm": self.weight_norm, "alpha": self.alpha}
        found = device_class(self.kind())(self.capacity, self.fields(), device=device, **options)
        cpu = self.kind()(self.capacity, self.fields(), fan_out=32, **options)
        same_tickets(cpu, found)
        return cpu, found


def goal_reward(achieved: Any, desired: Any, info: Any) -> Any:
    """The distance, scaled by a number of the row so that mixed-up rows differ. Takes arrays or tensors."""
    return -abs(achieved - desired).sum(1) * info["scale"]


def is_close(achieved: Any, desired: Any, info: Any) -> Any:
    return abs(achieved - desired).sum(1) < 40


class Rows:
    """Generates rows of random episodes; each row contains its number."""

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
        if case.goals:
            rows["obs"] = goals_around(rows["obs"], number)
            rows["info"] = {"scale": number % 5 + 1.0}
        if case.length:
            rows["state"] = rng.normal(size=(count, 3)).astype(np.float32)
        if case.explicit:
            rows["next_obs"] = shifted(rows["obs"], 7)
        if case.discounts:
            rows["discount"] = rng.random(count)
        if case.autoreset != "next_step" and not case.explicit:
            rows["final_obs"] = shifted(rows["obs"], 5)
        if case.shuffled:
            rows["env_id"] = rng.integers(0, case.num_envs, count)
        if not case.uniform and rng.random() < 0.3:
            rows["priorities"] = rng.exponential(size=count).astype(np.float32)
        return rows


def goals_around(observation: np.ndarray, number: np.ndarray) -> dict[str, Any]:
    achieved = np.stack([number, -3.0 * number], 1)
    return {"observation": observation, "achieved_goal": achieved, "desired_goal": achieved * 0 + 1e6}


def shifted(rows: Any, by: int) -> Any:
    return {name: shifted(value, by) for name, value in rows.items()} if isinstance(rows, dict) else rows + by


def tensors(rows: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tensors(value) if isinstance(value, dict) else torch.from_numpy(value)
        for name, value in rows.items()
    }


def host(tensor: Any) -> np.ndarray:
    return tensor.cpu().numpy()


def assert_same(cpu: parl.PrioritizedReplay, mine: Any, count: int, mode: str, exact: bool) -> Any:
    """Samples from both and compares. Returns the device's batch, or None if nothing can be sampled."""
    options = {"rank": 1, "learners": 2} if mode == "split" else {}
    try:
        expected = cpu.sample(count, mode=mode, beta=0.6, **options)
    except NotSampleableError:
        mine.rng_state = cpu.rng_state
        return None
    found = mine.sample(count, mode=mode, beta=0.6, **options)
    assert_equal(found, expected, exact)
    return found


def assert_equal(found: Any, expected: Any, exact: bool) -> None:
    """Compares a batch of the device with that of the CPU."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, dict):
            assert_equal(found[name], value, exact)
            continue
        here = host(found[name])
        assert here.shape == value.shape, name
        here = here.view(value.dtype)
        if name == "weights" and not exact:
            # The device computes powers itself; the results are rounded to single precision.
            np.testing.assert_allclose(here, value, rtol=2e-7, err_msg=name)
        else:
            np.testing.assert_array_equal(here, value, err_msg=name)


def compare(
    cpu: parl.PrioritizedReplay, mine: Any, case: Case, seed: int, *, calls: int = 90, exact: bool = True
) -> int:
    """Makes the same calls on both and compares the results. Returns the number of batches sampled.

    ``exact``: whether importance weights must be equal bit for bit.
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
            if found is not None and case.length:
                # Multiples of 1/8, whose sums are exact in every order.
                errors = rng.integers(-80, 80, tuple(found.mask.shape)).astype(np.float32) / 8
                dropped = mine.update_priorities(found.tickets, errors, found.mask)
                given_back = host(found.tickets).view(np.uint64), errors, host(found.mask)
                assert int(dropped) == cpu.update_priorities(*given_back)
        if call % 4 == 1:
            # Tickets of stored, incomplete and overwritten rows; of equal tickets the last one counts.
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
    # Environments that add rarely, in a ring so small that their frames are overwritten.
    Case(capacity=40, num_envs=12, n_step=2, frame_stack=4, shuffled=True),
    Case(n_step=2, explicit=True, discounts=True, shuffled=True),
    Case(explicit=True, autoreset="same_step"),
    Case(capacity=9, num_envs=3, n_step=4),
    Case(capacity=500, uniform=True, n_step=2, frame_stack=2),
]

SEQUENCES = [
    Case(length=5),
    Case(length=6, overlap=3, burn_in=2, backwards=True),
    Case(length=4, overlap=1, burn_in=1, frame_stack=3, autoreset="same_step", shuffled=True),
    Case(length=1, discounts=True, reward="float64"),
    Case(length=7, overlap=6, explicit=True, discounts=True, autoreset="disabled", weight_norm="global"),
    Case(capacity=40, num_envs=12, length=3, overlap=2, frame_stack=4, stack_padding="first", shuffled=True),
]
GOALS = [
    Case(goals="future"),
    Case(goals="final", autoreset="same_step", backwards=True),
    Case(goals="episode", shuffled=True, discounts=True),
    Case(goals="episode", explicit=True, capacity=40, num_envs=12, shuffled=True),
    Case(goals="future", explicit=True, uniform=True, autoreset="disabled"),
]
