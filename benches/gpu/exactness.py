"""Compares all games on the device with the CPU: observations, rewards, flags, figures, states; all bytes."""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np
import torch
from common import Session, arguments, chosen, machine

import parl
from parl import cuda
from parl.atari.roms import rom_folder

STATES_EVERY = 500
# Steps after one state was loaded into many consoles.
SEEDED_STEPS = 50
# Environments of each game in the batch of all games.
MIXED_ENVS = 32


def value_difference(name: str, expected: Any, found: Any) -> str | None:
    """Describes the first difference of two results, ``expected`` (CPU) and ``found`` (device); or None."""
    if isinstance(expected, dict):
        parts = (value_difference(f"{name}[{key!r}]", expected[key], found[key]) for key in expected)
        return next((part for part in parts if part is not None), None)
    # Compares on the device: copying there is faster than copying and comparing here.
    if expected.shape == tuple(found.shape) and torch.equal(
        torch.as_tensor(expected, device=found.device), found
    ):
        return None
    found = found.cpu().numpy()
    if expected.shape != found.shape:
        return f"{name} has shape {found.shape}, expected {expected.shape}"
    at = tuple(int(i) for i in np.argwhere(expected != found)[0])
    return f"{name} at {at} is {found[at]}, expected {expected[at]}"


def result_difference(left: tuple[Any, ...], right: tuple[Any, ...]) -> str | None:
    """Describes the first difference of the results of a call, or None."""
    names = ("observation", "reward", "terminated", "truncated") if len(left) == 5 else ("observation",)
    parts = (value_difference(name, a, b) for name, a, b in zip((*names, "info"), left, right, strict=True))
    return next((part for part in parts if part is not None), None)


def exchange(cpu: Any, gpu: Any) -> str | None:
    """Compares states, and loads each side with the states of the other."""
    here, there = cpu.get_state(), gpu.get_state()
    if not np.array_equal(here, there):
        envs = np.nonzero((here != there).any(1))[0][:8].tolist()
        return f"states differ in environments {envs}"
    cpu.set_state(there)
    gpu.set_state(here)
    return None


def compare(
    games: list[str], envs: int, steps: int, device: str, end: float, **options: Any
) -> tuple[str | None, int, int]:
    """Runs both for ``steps`` steps, or until the time ``end`` (``time.monotonic``).

    Returns:
        The first difference, or None; the number of steps that were compared, and of episodes that ended.
    """
    given: dict[str, Any] = {"boot": "snapshot", "repeat_action_probability": 0.25, **options}
    cpu = parl.AtariVectorEnv(games, envs, **given)
    gpu = parl.AtariVectorEnv(games, envs, device=device, **given)
    draws = np.random.default_rng(1)
    ended = 0
    try:
        found = result_difference(cpu.reset(seed=7), gpu.reset(seed=7))
        for step in range(steps):
            if found is not None:
                return f"before step {step}: {found}", step, ended
            if time.monotonic() > end:
                steps = step
                break
            actions = draws.integers(0, cpu.single_action_space.n, envs)
            there = torch.as_tensor(actions, device=gpu.device)
            # Steps on the device and on the CPU at the same time.
            right = gpu.step(there)
            left = cpu.step(actions)
            found = result_difference(left, right)
            ended += int((left[2] | left[3]).sum())
            if found is None and (step + 1) % STATES_EVERY == 0:
                found = exchange(cpu, gpu)
        gpu.check()
        return found or exchange(cpu, gpu), steps, ended
    finally:
        cpu.close()
        gpu.close()


def seeded(game: str, device: str, copies: int) -> str | None:
    """Loads one state of the CPU into many consoles of the device, and compares the steps that follow."""
    cpu = parl.AtariVectorEnv(game, 1, boot="snapshot")
    gpu = parl.AtariVectorEnv(game, copies, device=device)
    try:
        cpu.reset(seed=3)
        for _ in range(50):
            cpu.step(np.array([1]))
        gpu.reset(seed=8)
        gpu.seed_states(cpu.get_state()[0])
        for step in range(SEEDED_STEPS):
            action = step % cpu.single_action_space.n
            obs = cpu.step(np.array([action]))[0]
            found = gpu.step(np.full(copies, action))[0].cpu().numpy()
            if not (found == obs).all():
                return f"step {step}: {int((found != obs).any((1, 2, 3)).sum())} of {copies} consoles differ"
        gpu.check()
        return None
    finally:
        cpu.close()
        gpu.close()


def main(command: list[str] | None = None) -> int:
    given = arguments(command)
    folder, reason = rom_folder()
    if folder is None:
        print(f"no ROMs: {reason}")
        return 1
    ids = chosen(given, folder)
    if given.quick:
        given.steps = min(given.steps, 100)
    session = Session(given, "exactness", machine(given.device))
    record = session.record
    # Compiles the kernels while the first games are loaded.
    cuda.prefetch(given.device)
    # All games in one batch come first: they show most in the least time.
    each = min(MIXED_ENVS, given.envs)
    runs: list[tuple[str, list[str], dict[str, Any]]] = [(f"{len(ids)} games mixed, {each} each", ids, {})]
    runs += [(game, [game], {}) for game in ids]
    runs += [(f"{game}, SameStep", [game], {"autoreset_mode": "SameStep"}) for game in ids[::5]]
    runs += [(f"{game}, exact boot", [game], {"boot": "exact"}) for game in ids[::10]]
    runs += [
        (f"eight games mixed, {mode}", (ids * 8)[:8], {"autoreset_mode": mode})
        for mode in ("NextStep", "SameStep")
    ]
    native = {"img_height": None, "img_width": None}
    runs += [
        (f"{ids[0]}, {kind}", [ids[0]], {"obs_type": kind, **native}) for kind in ("rgb", "index", "ram")
    ]

    if given.mixed:
        del runs[1:]

    def run(name: str, games: list[str], options: dict[str, Any]) -> bool | None:
        start = time.perf_counter()
        envs = each * len(ids) if name == runs[0][0] else given.envs
        found, steps, ended = compare(games, envs, given.steps, given.device, session.end, **options)
        seconds = round(time.perf_counter() - start, 1)
        facts = {"envs": envs, "steps": steps, "episodes": ended, "seconds": seconds}
        complete = found is not None or steps == given.steps
        record.add("exactness" if complete else "cut off", run=name, difference=found, **facts)
        if not complete:
            # Equal as far as it came, but the work is left.
            session.left.append(name)
            return None
        return found is None

    def seed() -> bool:
        found = seeded(ids[0], given.device, 100)
        record.add("exactness", run=copies, difference=found, envs=100, steps=SEEDED_STEPS)
        return found is None

    copies = f"{ids[0]}, one state of the CPU in 100 consoles"
    equal = failed = 0
    work = [(name, partial(run, name, games, options)) for name, games, options in runs]
    work += [] if given.mixed else [(copies, seed)]
    for name, piece in work:
        found = (
            True
            if session.earlier_finding("exactness", run=name, difference=None)
            else session.piece(name, piece)
        )
        equal += found is True
        failed += found is False
    record.add("equal", runs=len(work), equal=equal, failed=failed, left=len(session.left))
    return session.status(failed)


if __name__ == "__main__":
    sys.exit(main())
