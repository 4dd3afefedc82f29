"""Emulated frames per second on the device, as calls and as a graph; start-up, compile time, memory, states.

Frame skip 4, stacks of four 84 x 84 gray observations with the maximum of two frames, random actions,
environments at different points of their episodes, autoreset on.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from common import TWENTY_GAMES, Record, Session, arguments, chosen, machine

import parl
from parl import cuda
from parl.atari.roms import rom_folder

REPEATS = 3
SKIP = 4
# Steps before a measurement, after which environments are at different points of their episodes, and the
# seconds after which a measurement begins anyway. With fewer steps environments are alike and rates too high.
WARMUP_STEPS = 100
WARMUP_SECONDS = 5.0
# Longest run of a measurement in seconds; at least three steps, at most those of `--steps`.
RUN_SECONDS = 0.15
# The generator of sticky actions: 624 words, its position and its seed.
GENERATOR_BYTES = 2500
# Places for saved pictures, an average of one in fifteen environments.
SAVED_BYTES = 3 * 210 * 160 / 15


def wait(device: str) -> None:
    torch.cuda.synchronize(device)


def start_envs(games: Any, envs: int, device: str, **options: Any) -> Any:
    """Environments that are at different points of their episodes."""
    env = parl.AtariVectorEnv(games, envs, device=device, **options)
    env.reset(seed=0)
    start = time.perf_counter()
    for step in range(WARMUP_STEPS):
        env.step(torch.randint(env.single_action_space.n, (envs,), device=env.device))
        if step % 10 == 9:
            env.check()
            if time.perf_counter() - start > WARMUP_SECONDS:
                break
    return env


def run_steps(work: Callable[[], Any], device: str, most: int) -> int:
    """The number of steps of a run, so that it takes at most `RUN_SECONDS`."""
    return max(3, min(most, int(RUN_SECONDS / max(seconds(work, device), 1e-6))))


def output_buffer(env: Any) -> torch.Tensor | None:
    """A buffer for observations, reused in every step; None if they slide over the environments' buffer."""
    if env._sliding:
        return None
    return torch.empty(
        (env.num_envs, *env.single_observation_space.shape), dtype=torch.uint8, device=env.device
    )


def frames_per_second(env: Any, device: str, steps: int) -> list[float]:
    """Frames per second of each of `REPEATS` runs, over random actions that were drawn before."""
    envs = env.num_envs
    actions = torch.randint(env.single_action_space.n, (steps, envs), device=env.device)
    out, rates = output_buffer(env), []
    actions = actions[: run_steps(lambda: env.step(actions[0], out=out), device, steps)]
    steps = len(actions)
    for _ in range(REPEATS):
        wait(device)
        start = time.perf_counter()
        for row in actions:
            env.step(row, out=out)
        wait(device)
        rates.append(SKIP * envs * steps / (time.perf_counter() - start))
    env.check()
    return rates


def graph_rate(env: Any, device: str, steps: int) -> list[float]:
    """Frames per second of a captured step that is replayed. Its actions are drawn within the graph."""
    actions = torch.zeros(env.num_envs, dtype=torch.int64, device=env.device)
    out, rates = output_buffer(env), []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        actions.random_(0, int(env.single_action_space.n))
        # Every replay writes to these tensors, so they must stay alive.
        kept = env.step(actions, out=out)
    steps = run_steps(graph.replay, device, steps)
    for _ in range(REPEATS):
        wait(device)
        start = time.perf_counter()
        for _ in range(steps):
            graph.replay()
        wait(device)
        rates.append(SKIP * env.num_envs * steps / (time.perf_counter() - start))
    env.check()
    del kept
    return rates


def summary(rates: list[float]) -> dict[str, Any]:
    return {
        "frames_per_second": round(statistics.median(rates)),
        "spread": round((max(rates) - min(rates)) / statistics.median(rates), 3),
        "all": [round(rate) for rate in rates],
    }


def seconds(work: Callable[[], Any], device: str) -> float:
    wait(device)
    start = time.perf_counter()
    work()
    wait(device)
    return time.perf_counter() - start


def compile_times(record: Record, device: str) -> None:
    """Measures compiling the kernels of environments at first use, and loading them from the cache."""
    with tempfile.TemporaryDirectory() as cache, patch.dict(os.environ, {"PARL_CACHE_DIR": cache}):
        for when in ("first use", "from the cache"):
            target, took, files = cuda.prepare(device)
            record.add("compile", when=when, target=target, seconds=took, files=files)


def forms(record: Record, games: list[str], envs: int, device: str) -> None:
    """Measures the steps of each game in every form and window. The fastest is saved on disk."""
    for game in games:
        env = start_envs(game, envs, device)
        found = env.calibrate()
        env.close()
        rates = {f"{form} {window}": round(SKIP * envs / seconds) for form, window, seconds in found}
        best = max(rates, key=rates.__getitem__)
        record.add("forms", game=game, envs=envs, best=best, rates=rates)


def start_up(record: Record, sizes: list[int], device: str) -> None:
    for envs in sizes:
        made: list[Any] = []

        def make(envs: int = envs, made: list[Any] = made) -> None:
            made.append(parl.AtariVectorEnv("breakout", envs, device=device))
            made[0].reset(seed=0)

        took = seconds(make, device)
        per_env = (made[0].device_bytes - made[0].stack_bytes) / envs
        record.add(
            "start",
            game="breakout",
            envs=envs,
            seconds=round(took, 4),
            bytes_per_env=round(per_env),
            bytes_per_env_without_generator=round(per_env - GENERATOR_BYTES),
        )
        made[0].close()


def state_bytes(record: Record, device: str) -> None:
    """Measures the bytes of one more environment, once all lanes exist, without saved pictures."""
    lanes = 256 * torch.cuda.get_device_properties(device).multi_processor_count
    least, more = max(lanes, 1024) + 96, 480
    held: list[int] = []
    for envs in (least, least + more):
        env = parl.AtariVectorEnv("breakout", envs, device=device)
        shown = int(np.prod(env.single_observation_space.shape))
        held.append(env.device_bytes)
        env.close()
    # One environment in fifteen has a place for three saved pictures.
    each = (held[1] - held[0]) / more - shown - GENERATOR_BYTES
    record.add(
        "state", game="breakout", envs=least, bytes=round(each - SAVED_BYTES), saved_pictures=SAVED_BYTES
    )


def state_transfers(record: Record, envs: int, device: str) -> None:
    """Measures saving and loading states, loading one state into all environments, and a reset of half."""
    env = start_envs("breakout", envs, device)
    rows: list[Any] = []
    figures = {"get_state": seconds(lambda: rows.append(env.get_state()), device)}
    figures["set_state"] = seconds(lambda: env.set_state(rows[0]), device)
    figures["seed_states"] = seconds(lambda: env.seed_states(rows[0][0]), device)
    figures["reset of half"] = seconds(
        lambda: env.reset(seed=1, options={"reset_mask": np.arange(envs) % 2 == 0}), device
    )
    env.check()
    facts = {name: round(value, 5) for name, value in figures.items()}
    record.add("states", game="breakout", envs=envs, row_bytes=rows[0].shape[1], seconds=facts)
    env.close()


SECTIONS = ("compile", "grid", "forms", "start", "sizes", "settings", "memory", "games")


def main(command: list[str] | None = None) -> int:
    given = arguments(command, envs=32_768, steps=20, sections=SECTIONS)
    folder, reason = rom_folder()
    if folder is None:
        print(f"no ROMs: {reason}")
        return 1
    device, games = given.device, chosen(given, folder)
    session = Session(given, "speed", machine(device))
    record = session.record
    steps = min(given.steps, 5) if given.quick else given.steps
    medians: dict[str, float] = {}

    def rates(what: str, games: Any, envs: int, facts: dict[str, Any], **options: Any) -> float:
        """Measures and records frames per second unless an earlier call has; 0 if there was no time."""
        earlier = session.earlier_finding(what, envs=envs, **facts)
        if earlier is not None:
            return earlier["frames_per_second"]

        def measure() -> float:
            env = start_envs(games, envs, device, **options)
            rate = graph_rate if what == "frames, graph" else frames_per_second
            found = summary(rate(env, device, steps))
            env.close()
            record.add(what, envs=envs, **facts, **found)
            return found["frames_per_second"]

        return session.piece(f"{what}, {facts}, {envs}", measure) or 0.0

    def once(what: str, piece: str, work: Callable[[], Any], **facts: Any) -> None:
        if session.earlier_finding(what, **facts) is None:
            session.piece(piece, work)

    def compiling() -> None:
        once("compile", "compile times", lambda: compile_times(record, device), when="from the cache")

    def grid() -> None:
        """The twenty games of the bar at each size, the size of the bar first."""
        twenty = TWENTY_GAMES[::10] if given.quick else TWENTY_GAMES
        sizes = sorted(given.grid, key=lambda size: (size != given.envs, size))
        for what, options in (("frames", {}), ("frames, ram", {"obs_type": "ram"})):
            for size in sizes:
                for game in twenty:
                    found = rates(what, game, size, {"game": game}, **options)
                    if what == "frames" and size == given.envs:
                        medians[game] = found

    def measure_forms() -> None:
        for game in games:
            once("forms", f"forms of {game}", partial(forms, record, [game], given.envs, device), game=game)

    def starting() -> None:
        for size in given.sizes:
            once("start", f"start of {size}", partial(start_up, record, [size], device), envs=size)

    def sizes() -> None:
        for size in given.sizes:
            for what in ("frames", "frames, graph"):
                rates(what, "breakout", size, {"game": "breakout"})

    def settings() -> None:
        mixes: list[tuple[str, Any, dict[str, Any]]] = [
            ("SameStep", "breakout", {"autoreset_mode": "SameStep"}),
            ("exact boot", "breakout", {"boot": "exact"}),
            ("sticky actions", "breakout", {"repeat_action_probability": 0.25}),
            ("eight games mixed", (games * 8)[:8], {}),
            ("rgb", "breakout", {"obs_type": "rgb"}),
            ("ram", "breakout", {"obs_type": "ram"}),
            ("sliding observations", "breakout", {"sliding_buffer_planes": 64}),
        ]
        for name, mixed, options in mixes:
            rates("frames, other settings", mixed, given.envs, {"run": name, "games": mixed}, **options)

    def memory() -> None:
        once("state", "state", lambda: state_bytes(record, device))
        once("states", "states", lambda: state_transfers(record, given.envs, device))

    def all_games() -> None:
        # The twenty games of the bar come first.
        for game in sorted(games, key=lambda game: game not in TWENTY_GAMES):
            medians[game] = rates("frames", game, given.envs, {"game": game})

    work = dict(
        zip(
            SECTIONS,
            (compiling, grid, measure_forms, starting, sizes, settings, memory, all_games),
            strict=True,
        )
    )
    # Afterwards the kernels are in the cache and torch is initialized.
    cuda.prepare(device)
    start_envs("breakout", 32, device).close()
    for section in given.sections:
        work[section]()
    medians = {game: rate for game, rate in medians.items() if rate}
    twenty = [medians[game] for game in TWENTY_GAMES if game in medians]
    if twenty:
        middle = statistics.median(twenty)
        record.add("median of the twenty", games=len(twenty), envs=given.envs, frames_per_second=middle)
    if medians:
        worst = min(medians, key=medians.__getitem__)
        record.add(
            "worst game", game=worst, envs=given.envs, frames_per_second=medians[worst], of=len(medians)
        )
    session.bars(bars(session, medians, given.envs))
    return session.status(0)


def bars(
    session: Session, medians: dict[str, float], envs: int
) -> dict[str, tuple[float | None, float, float]]:
    """The figures promised for an H200, with the values that this call and earlier ones measured."""
    lines = session.earlier + session.record.lines

    def best(what: str, figure: str, **values: Any) -> float | None:
        wanted = {"what": what, **values}
        found = [line[figure] for line in lines if all(line.get(key) == wanted[key] for key in wanted)]
        return (max if "frames" in what else min)(found, default=None)

    def rate(envs: int) -> float | None:
        plain = [
            best(what, "frames_per_second", game="breakout", envs=envs)
            for what in ("frames", "frames, graph")
        ]
        return max((one for one in plain if one is not None), default=None)

    twenty = [medians[game] for game in TWENTY_GAMES if game in medians]
    games = {f"frames per second, median of {len(twenty)} of 20 games, {envs} envs": (2e6, 20e6)}
    found: dict[str, tuple[float | None, float, float]] = {
        name: (statistics.median(twenty) if twenty else None, *pair) for name, pair in games.items()
    }
    worst = min(medians.values()) if medians else None
    found[f"frames per second, worst of {len(medians)} of 104 games, {envs} envs"] = (worst, 0.5e6, 5e6)
    for size, first, goal in ((256, 0.2e6, 0.4e6), (1024, 0.8e6, 1.6e6), (4096, 2.5e6, 6e6)):
        found[f"frames per second, breakout, {size} envs"] = (rate(size), first, goal)
    held = "bytes of state per env beyond observations and the generator, at most"
    found[held] = (best("state", "bytes"), 1024, 512)
    for when, first, goal in (("first use", 20.0, 5.0), ("from the cache", 0.3, 0.1)):
        found[f"seconds to compile, {when}, at most"] = (best("compile", "seconds", when=when), first, goal)
    found["seconds to start 32768 envs, at most"] = (best("start", "seconds", envs=32_768), 2.0, 0.2)
    return found


if __name__ == "__main__":
    sys.exit(main())
