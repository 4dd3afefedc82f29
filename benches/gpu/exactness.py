"""All games on the device beside the CPU: observation, reward, flags, figures and states, byte for byte."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np
import torch
from common import Record, arguments, here, machine

import parl
from parl.atari.roms import rom_folder


def difference(left: tuple[Any, ...], right: tuple[Any, ...]) -> str | None:
    """Where the results of a call differ: CPU's first, the device's second."""
    for name, a, b in zip(
        ("observation", "reward", "terminated", "truncated"), left, right[:-1], strict=False
    ):
        found = b.cpu().numpy()
        if not np.array_equal(a, found):
            at = tuple(int(i) for i in np.argwhere(a != found)[0])
            return f"{name} at {at} is {found[at]}, expected {a[at]}"
    infos = right[-1]
    for key, expected in left[-1].items():
        if isinstance(expected, dict):
            continue
        found = infos[key].cpu().numpy()
        if not np.array_equal(expected, found):
            at = tuple(int(i) for i in np.argwhere(expected != found)[0])
            return f"info[{key!r}] at {at} is {found[at]}, expected {expected[at]}"
    return None


def compare(games: list[str], envs: int, steps: int, device: str, **options: Any) -> str | None:
    """Runs both; the first difference, or None."""
    given: dict[str, Any] = {"boot": "snapshot", "repeat_action_probability": 0.25, **options}
    cpu = parl.AtariVectorEnv(games, envs, **given)
    gpu = parl.AtariVectorEnv(games, envs, device=device, **given)
    draws = np.random.default_rng(1)
    try:
        found = difference(cpu.reset(seed=7), gpu.reset(seed=7))
        for step in range(steps):
            if found is not None:
                return f"before step {step}: {found}"
            actions = draws.integers(0, cpu.single_action_space.n, envs)
            found = difference(cpu.step(actions), gpu.step(torch.as_tensor(actions, device=device)))
            if found is None and step % 500 == 499:
                here, there = cpu.get_state(), gpu.get_state()
                if not np.array_equal(here, there):
                    found = (
                        f"states differ in environments {np.nonzero((here != there).any(1))[0][:8].tolist()}"
                    )
                # And on from each other's.
                cpu.set_state(there)
                gpu.set_state(here)
        gpu.check()
        return found
    finally:
        cpu.close()
        gpu.close()


def main() -> int:
    given = arguments()
    folder, reason = rom_folder()
    if folder is None:
        print(f"no ROMs: {reason}")
        return 1
    ids = given.games or here(folder)
    if given.quick:
        ids, given.steps = ids[::10], 100
    record = Record(given.out, "exactness", machine(given.device))
    failed = 0
    runs: list[tuple[str, list[str], dict[str, Any]]] = [(game, [game], {}) for game in ids]
    runs += [(f"{game}, SameStep", [game], {"autoreset_mode": "SameStep"}) for game in ids[::5]]
    runs += [(f"{game}, exact boot", [game], {"boot": "exact"}) for game in ids[::10]]
    runs += [("eight games mixed", (ids * 8)[:8], {"autoreset_mode": "SameStep"})]
    runs += [
        (f"{ids[0]}, {kind}", [ids[0]], {"obs_type": kind, "img_height": None, "img_width": None})
        for kind in ("rgb", "index", "ram")
    ]
    for name, games, options in runs:
        start = time.perf_counter()
        found = compare(games, given.envs, given.steps, given.device, **options)
        failed += found is not None
        record.add(
            "exactness",
            run=name,
            envs=given.envs,
            steps=given.steps,
            difference=found,
            seconds=round(time.perf_counter() - start, 1),
        )
    print(f"{len(runs) - failed} of {len(runs)} runs equal; {record.path}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
