"""Measures the figures on which the design of the kernels rests.

1. Frames in several forms, with one warp on the device, then with 1 to 32 warps on each multiprocessor: the
   cost of a jump, and the utilization of the device.
2. Grouped frames again with counters: how many lanes start a frame together, and how many share a turn.
3. The minimum over a warp: latency and throughput.
4. Loops over 3 to 270 KB of code: the cost of instruction cache misses.
5. Observations: steps of one frame with pictures, compared with steps of one frame with RAM.
"""

from __future__ import annotations

import functools
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from common import Record, Session, arguments, machine
from device import KERNELS, ROOT, Kernels, compiled
from speed import frames_per_second, start_envs

import parl
from parl.atari import Console

GAMES = ("pong", "ms_pacman", "solaris")
# Forms, with their numbers in crates/cule/src/env/warp_schedule.rs, and windows of the key as powers of two.
FORMS = {
    "plain": (0, 0),
    "grouped, rows": (1, 0),
    "grouped, 16 rows": (1, 4),
    "grouped, picture": (1, 9),
}
# Length of the header of a saved state (crates/cule/src/console/states.rs).
HEADER_BYTES = 24
WARP = 32
# Warps on each multiprocessor; 0: one on the whole device.
WARPS = (0, 1, 2, 4, 8, 16, 20, 32)
# Rounds of minima over a warp, and minimum number of operations of straight-line code, per measurement.
MINIMA = 4096
OPERATIONS = 200_000


def machines(game: str, count: int, offset: int, size: int) -> np.ndarray[Any, Any]:
    """Machines of a game after different numbers of frames, one row of bytes each."""
    rows = []
    console = Console(game, seed=0)
    draws = np.random.default_rng(0)
    for _ in range(min(count, 64)):
        for _ in range(7):
            if console.game_over:
                console.reset()
            console.act(int(draws.integers(0, 18)))
        begin = HEADER_BYTES + offset
        rows.append(np.frombuffer(console.save()[begin : begin + size], np.uint8))
    return np.stack([rows[i % len(rows)] for i in range(count)])


def decoded(kernels: Kernels, game: str, sizes: list[int]) -> tuple[Any, int, Any]:
    """The ROM of a game on the device, its length, and its records for the jump-table interpreter."""
    machine_bytes, _, offset, cart_at = sizes
    rom = np.frombuffer(Console(game)._rom.__getnewargs__()[0], np.uint8).copy()
    image = torch.from_numpy(rom).to(kernels.device)
    records = torch.zeros(len(rom), dtype=torch.int64, device=kernels.device)
    cart = torch.from_numpy(machines(game, 1, offset, machine_bytes)[0, cart_at:].copy()).to(kernels.device)
    kernels.launch("decode", -(-len(rom) // 256), 256, image, len(rom), cart, records)
    return image, len(rom), records


def environments(kernels: Kernels, game: str, count: int, sizes: list[int]) -> tuple[Any, Any]:
    """Machines of a game on the device, and empty boards for them."""
    machine_bytes, board_bytes, offset, _ = sizes
    state = torch.from_numpy(machines(game, count, offset, machine_bytes)).to(kernels.device)
    return state, torch.zeros((count, board_bytes), dtype=torch.uint8, device=kernels.device)


def lanes(kernels: Kernels, record: Record, game: str, sizes: list[int]) -> None:
    """Lanes that start a frame together, and that share a turn, of two warps in each window."""
    count = 2 * WARP
    rom = decoded(kernels, game, sizes)
    state, boards = environments(kernels, game, count, sizes)
    found = torch.zeros(4, dtype=torch.int64, device=kernels.device)
    for name, (form, window) in FORMS.items():
        if not name.startswith("grouped"):
            continue
        kernels.launch("counts", 1, 4, found)
        kernels.launch("frame", 2, WARP, state.clone(), boards, *rom, count, form, window)
        kernels.launch("counts", 1, 4, found)
        starts, starting, turns, taking = found.cpu().tolist()
        record.add(
            "lanes together",
            game=game,
            form=name,
            lanes_at_the_start_of_a_frame=round(starting / starts, 2),
            turns_of_a_frame=round(turns / 2),
            lanes_of_a_turn=round(taking / turns, 2),
        )


def frames(kernels: Kernels, record: Record, game: str, sizes: list[int], counts: tuple[int, ...]) -> None:
    """Frames in every form: one warp on the device, then more on every multiprocessor."""
    properties = torch.cuda.get_device_properties(kernels.device)
    rom = decoded(kernels, game, sizes)
    for per_processor in counts:
        warps = per_processor * properties.multi_processor_count or 1
        count = warps * WARP
        state, boards = environments(kernels, game, count, sizes)
        for name, (form, window) in FORMS.items():
            run = (state.clone(), boards, *rom, count, form, window)
            took = kernels.milliseconds("frame", warps, WARP, *run)
            record.add(
                "frames alone",
                game=game,
                form=name,
                warps=warps,
                warps_per_multiprocessor=per_processor,
                milliseconds=round(took, 3),
                frames_per_second=round(count / took * 1000),
            )


def minima(kernels: Kernels, record: Record) -> None:
    rounds = MINIMA
    device = kernels.device
    for warps in (1, 4, 8, 16):
        blocks = warps * torch.cuda.get_device_properties(device).multi_processor_count if warps > 1 else 1
        cycles = torch.zeros(2 * blocks, dtype=torch.int64, device=device)
        sink = torch.zeros(WARP, dtype=torch.int32, device=device)
        for _ in range(2):
            kernels.launch("redux", blocks, WARP, cycles, sink, rounds)
        found = cycles.cpu().reshape(-1, 2).double().mean(0) / rounds
        record.add(
            "minimum over a warp",
            warps_per_multiprocessor=warps,
            cycles_when_dependent=round(float(found[0]), 2),
            cycles_when_not=round(float(found[1]), 2),
        )


def code_sizes(kernels: Kernels, record: Record) -> None:
    device = kernels.device
    blocks = torch.cuda.get_device_properties(device).multi_processor_count * 8
    for size, operations in enumerate((64, 576, 2624, 5696)):
        rounds = max(1, OPERATIONS // operations)
        cycles = torch.zeros(blocks, dtype=torch.int64, device=device)
        sink = torch.zeros(blocks * WARP, dtype=torch.int32, device=device)
        for _ in range(2):
            kernels.launch(f"straight_{size}", blocks, WARP, cycles, sink, rounds)
        each = float(cycles.cpu().double().mean()) / (rounds * operations)
        record.add("straight code", operations=operations, warps_per_multiprocessor=8, cycles=round(each, 3))


def observations(record: Record, game: str, envs: int, device: str) -> None:
    rates = {}
    for kind in ("gray", "ram"):
        env = start_envs(game, envs, device, obs_type=kind, frameskip=1, stack_num=1)
        rates[kind] = statistics.median(frames_per_second(env, device, 5)) / 4
        env.close()
    seconds = {kind: 1 / rate for kind, rate in rates.items()}
    share = 1 - seconds["ram"] / seconds["gray"]
    record.add("observations", game=game, envs=envs, steps_per_second=rates, share_of_a_step=round(share, 3))


def main(command: list[str] | None = None) -> int:
    given = arguments(command, envs=32_768)
    session = Session(given, "micro", machine(given.device))
    record = session.record
    device = parl.cuda.torch_device(parl.cuda.ordinal(given.device))
    torch.zeros(1, device=device)
    major, minor = torch.cuda.get_device_capability(device)
    folders = [KERNELS, ROOT / "tests" / "cuda"]
    here = ROOT / "benches" / "gpu"

    @functools.cache
    def kernels(file: str) -> Kernels:
        return Kernels(compiled(here / file, folders, 10 * major + minor), device)

    @functools.cache
    def sizes() -> list[int]:
        out = torch.zeros(4, dtype=torch.int32, device=device)
        kernels("micro.cu").launch("sizes", 1, 1, out)
        return out.tolist()

    games = [game for game in given.games or GAMES if game in GAMES]
    games, counts = (games[:1], WARPS[:3]) if given.quick else (games, WARPS)
    pieces: list[tuple[str, Callable[[], None]]] = [
        (f"frames of {game}", lambda game=game: frames(kernels("micro.cu"), record, game, sizes(), counts))
        for game in games
    ]
    pieces += [
        (f"lanes of {game}", lambda game=game: lanes(kernels("lanes.cu"), record, game, sizes()))
        for game in games
    ]
    pieces += [
        ("minima", lambda: minima(kernels("micro.cu"), record)),
        ("code sizes", lambda: code_sizes(kernels("micro.cu"), record)),
    ]
    pieces += [
        (f"observations of {game}", functools.partial(observations, record, game, given.envs, given.device))
        for game in games
    ]

    def one(name: str, work: Callable[[], None]) -> None:
        work()
        record.add("piece", piece=name)

    for name, work in pieces:
        if session.earlier_finding("piece", piece=name) is None:
            session.piece(name, functools.partial(one, name, work))
    return session.status(0)


if __name__ == "__main__":
    sys.exit(main())
