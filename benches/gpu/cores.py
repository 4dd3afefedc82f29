"""Scaling over CPU cores: vector environments, and a replay that several threads sample from and update.

Each figure is measured with 1, 2, 4, ... threads in turn, in every round; the ratio to one thread is taken
within a round.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import Record, Session, arguments, machine

import parl

ROUNDS, SECONDS = 5, 0.5
ROWS, BATCH = 1 << 20, 256


def thread_counts() -> list[int]:
    """1, 2, 4, ... up to the number of cores that this process may use."""
    cores = len(os.sched_getaffinity(0))
    return [count for count in (1, 2, 4, 8, 16, 32, 64) if count <= cores]


def rates_of(measures: dict[int, Callable[[float], float]], seconds: float) -> dict[int, list[float]]:
    """Rates by number of threads, one per round; each measure runs for ``seconds`` and returns its rate."""
    rates: dict[int, list[float]] = {count: [] for count in measures}
    for _ in range(ROUNDS):
        for count, measure in measures.items():
            rates[count].append(measure(seconds))
    return rates


def add_rates(record: Record, what: str, unit: str, rates: dict[int, list[float]], **facts: Any) -> None:
    for count, values in rates.items():
        speedup = statistics.median(one / base for one, base in zip(values, rates[1], strict=True))
        record.add(
            what,
            **facts,
            threads=count,
            unit=unit,
            median=round(statistics.median(values)),
            low=round(min(values)),
            high=round(max(values)),
            speedup=round(speedup, 2),
        )


def vector_envs(record: Record, game: str, envs: int, seconds: float) -> None:
    """Emulated frames per second of ``envs`` environments, with pictures, frame skip 4 and random actions."""
    draws = np.random.default_rng(0)

    def measure(env: Any) -> Callable[[float], float]:
        actions = draws.integers(0, env.single_action_space.n, (64, envs))
        env.reset(seed=0)

        def run(seconds: float) -> float:
            steps, start = 0, time.perf_counter()
            while time.perf_counter() - start < seconds:
                env.step(actions[steps % 64])
                steps += 1
            return 4 * envs * steps / (time.perf_counter() - start)

        return run

    made = {count: parl.AtariVectorEnv(game, envs, num_threads=count) for count in thread_counts()}
    rates = rates_of({count: measure(env) for count, env in made.items()}, seconds)
    add_rates(record, "vector environment", "frames per second", rates, game=game, envs=envs)
    for env in made.values():
        env.close()


def replay(record: Record, seconds: float) -> None:
    """Pairs of ``sample`` and ``update_priorities`` per second, of all threads together."""
    fields = {"obs": ((64,), "uint8"), "reward": ((), "float32")}
    held = parl.PrioritizedReplay(ROWS, fields, alpha=0.6, seed=0)
    rows = np.random.default_rng(0).integers(0, 255, (1 << 14, 64), dtype=np.uint8)
    for _ in range(ROWS >> 14):
        held.add(obs=rows, reward=np.zeros(1 << 14, np.float32))

    def measure(count: int) -> Callable[[float], float]:
        def run(seconds: float) -> float:
            pairs = [0] * count
            end = time.perf_counter() + seconds

            def work(thread: int) -> None:
                priorities = np.random.default_rng(thread).random(BATCH)
                while time.perf_counter() < end:
                    held.update_priorities(held.sample(BATCH, beta=0.4).tickets, priorities)
                    pairs[thread] += 1

            threads = [threading.Thread(target=work, args=(thread,)) for thread in range(count)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sum(pairs) / seconds

        return run

    rates = rates_of({count: measure(count) for count in thread_counts()}, seconds)
    add_rates(record, "replay", "pairs per second", rates, rows=ROWS, batch=BATCH)


def main(command: list[str] | None = None) -> int:
    given = arguments(command, envs=1024)
    session = Session(given, "cores", machine(given.device))
    seconds = 0.05 if given.quick else SECONDS
    for game in given.games or ["breakout", "ms_pacman"]:
        session.piece(game, lambda game=game: vector_envs(session.record, game, given.envs, seconds))
    session.piece("replay", lambda: replay(session.record, seconds))
    return session.status(0)


if __name__ == "__main__":
    sys.exit(main())
