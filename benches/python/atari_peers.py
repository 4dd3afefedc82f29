"""Atari vector environments of four libraries with one small interface, and measurement of their speed.

All use the full preprocessing: frame skip 4, maximum of the last two frames, 84 x 84 gray, a stack of 4; and
random actions. Processor time includes the worker processes of environments.
"""

from __future__ import annotations

import statistics
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

FRAME_SKIP = 4
# One game, or those of a mixed batch, which are played with all actions.
Game = str | tuple[str, ...]


def camel(game: str) -> str:
    return "".join(word.capitalize() for word in game.split("_"))


class Library(ABC):
    """Environments of one library; several games are divided among vector environments by :meth:`batches`."""

    def __init__(self, game: Game, envs: int, threads: int) -> None:
        games = self.batches(game)
        full = not isinstance(game, str)
        self.parts = [self.make(name, envs // len(games), threads, full) for name in games]
        self.pids: list[int] = []

    def batches(self, game: Game) -> Sequence[Game]:
        """The games of each vector environment: one each."""
        return (game,) if isinstance(game, str) else game

    @abstractmethod
    def make(self, game: Any, envs: int, threads: int, full: bool) -> tuple[Any, int, np.dtype]:
        """Makes and resets a vector environment; returns it, its number of actions and their dtype."""

    def close(self) -> None:
        for env, _, _ in self.parts:
            env.close()


class Parl(Library):
    def batches(self, game: Game) -> Sequence[Game]:
        """One vector environment for all games."""
        return (game,)

    def make(self, game: Game, envs: int, threads: int, full: bool) -> tuple[Any, int, np.dtype]:
        import parl

        # parl plays several games with all actions by default.
        env = parl.AtariVectorEnv(game, envs, num_threads=threads)
        env.reset(seed=0)
        return env, env.single_action_space.n, np.dtype(np.int64)


class AlePy(Library):
    def make(self, game: str, envs: int, threads: int, full: bool) -> tuple[Any, int, np.dtype]:
        import ale_py

        env = ale_py.AtariVectorEnv(game, envs, num_threads=threads, full_action_space=full)
        env.reset()
        return env, env.single_action_space.n, np.dtype(np.int64)


class EnvPool(Library):
    def make(self, game: str, envs: int, threads: int, full: bool) -> tuple[Any, int, np.dtype]:
        import envpool

        env = envpool.make_gymnasium(
            f"{camel(game)}-v5", num_envs=envs, num_threads=threads, full_action_space=full
        )
        env.reset()
        return env, env.action_space.n, np.dtype(np.int32)


class GymnasiumAsync(Library):
    """A process per environment; ``threads`` has no effect."""

    def make(self, game: str, envs: int, threads: int, full: bool) -> tuple[Any, int, np.dtype]:
        import ale_py
        import gymnasium
        from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

        del threads
        gymnasium.register_envs(ale_py)

        def one() -> gymnasium.Env:
            env = gymnasium.make(
                f"ALE/{camel(game)}-v5", frameskip=1, full_action_space=full, repeat_action_probability=0.0
            )
            return FrameStackObservation(AtariPreprocessing(env), 4)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Forks despite idle threads, which children do not need.
            env = gymnasium.vector.AsyncVectorEnv([one] * envs, context="fork")
        env.reset(seed=0)
        return env, int(env.single_action_space.n), np.dtype(np.int64)

    def __init__(self, game: Game, envs: int, threads: int) -> None:
        super().__init__(game, envs, threads)
        self.pids = [process.pid for env, _, _ in self.parts for process in env.processes]


LIBRARIES: dict[str, type[Library]] = {
    "parl": Parl,
    "ale_py": AlePy,
    "envpool": EnvPool,
    "gym_async": GymnasiumAsync,
}
# Ratios are taken to the faster of these two.
RIVALS = ("ale_py", "envpool")


def children_s(pids: Sequence[int]) -> float:
    """Processor time of running processes in seconds, with nanosecond resolution (Linux)."""
    total = 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


class Runner:
    """One library's environments, with actions drawn in advance."""

    def __init__(self, name: str, game: Game, envs: int, threads: int) -> None:
        self.library = LIBRARIES[name](game, envs, threads)
        rng = np.random.default_rng(0)
        self.steps: list[tuple[Callable[[Any], Any], np.ndarray]] = [
            (env.step, rng.integers(0, actions, (256, envs // len(self.library.parts))).astype(dtype))
            for env, actions, dtype in self.library.parts
        ]
        self.frames = envs * FRAME_SKIP
        self.at = 0

    def run(self, seconds: float) -> tuple[float, float]:
        """Frames per second of processor time and of wall-clock."""
        pids = self.library.pids
        steps = 0
        cpu, wall = time.process_time() + children_s(pids), time.perf_counter()
        while time.perf_counter() - wall < seconds:
            for step, actions in self.steps:
                step(actions[self.at % len(actions)])
            self.at += 1
            steps += 1
        wall = time.perf_counter() - wall
        cpu = time.process_time() + children_s(pids) - cpu
        return steps * self.frames / cpu, steps * self.frames / wall

    def close(self) -> None:
        self.library.close()


class Ratios:
    """Ratios of the rates of two libraries within each round."""

    def __init__(self, ours: Sequence[float], theirs: Sequence[float]) -> None:
        self.sorted = sorted(a / b for a, b in zip(ours, theirs, strict=True))

    @property
    def median(self) -> float:
        return statistics.median(self.sorted)

    def __str__(self) -> str:
        low, high = self.sorted[len(self.sorted) // 4], self.sorted[-1 - len(self.sorted) // 4]
        return f"x{self.median:.2f} [{low:.2f}, {high:.2f}]"


def in_turns(
    runners: dict[Any, Runner], rounds: int, seconds: float
) -> dict[Any, tuple[list[float], list[float]]]:
    """Runs all runners equally long in every round; returns rates per core-second and per second."""
    names = list(runners)
    for runner in runners.values():
        runner.run(seconds)  # Warms caches and passes the first screens.
    rates: dict[Any, tuple[list[float], list[float]]] = {name: ([], []) for name in names}
    for i in range(rounds):
        for name in names[i % len(names) :] + names[: i % len(names)]:
            for rate, values in zip(runners[name].run(seconds), rates[name], strict=True):
                values.append(rate)
    return rates
