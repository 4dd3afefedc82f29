"""Logs the episodes that environments play: seeds, actions, hashes and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets import hashes
from parl.datasets.checkpoints import SPACING, StickyGenerator, row_of
from parl.datasets.format import ENDS, INTERVAL, Episode, Writer
from parl.datasets.options import console_options, make_envs

TERMINATED, TRUNCATED, CUT = range(len(ENDS))


class _Log:
    """The episode of one environment so far."""

    def __init__(self, seed: int, numpy_seeds: bool) -> None:
        self.seed = seed
        self.actions = bytearray()
        self.total = 0
        self.hashes: list[int] = []
        self.cores: list[NDArray[np.uint8]] = []
        self.generator = StickyGenerator(seed, numpy_seeds)

    def add_core(self, core: NDArray[np.uint8], words: NDArray[np.uint8]) -> None:
        refills = self.generator.find(words)
        if refills is None:
            raise RuntimeError(f"the generator of the episode with seed {self.seed} is not that of its seed")
        self.cores.append(row_of(core, refills))


def reference_row(game: str, options: Mapping[str, Any]) -> NDArray[np.uint8]:
    """The row that checkpoints of a game are compared with: that of a reset with seed 0.

    Args:
        game: id of the game.
        options: of :func:`parl.datasets.options.resolve`.
    """
    envs = make_envs(game, 1, console_options(options), {"num_threads": 1})
    try:
        envs.reset(seed=np.array([0]))
        return row_of(envs.get_core(0)[0], 0)
    finally:
        envs.close()


class LoggedConsoles:
    """Consoles that are reset and stepped, one log each.

    They draw no pictures. A policy that needs pictures acts on environments of its own, which are reset with
    the same seeds and stepped with the same actions.

    Args:
        game: id of the game.
        num_envs: number of consoles N.
        options: of :func:`parl.datasets.options.resolve`.
        threads: keywords ``num_threads`` and ``thread_affinity_offset``.

    Attributes:
        envs: the environments.
        interval: steps between two hashes of an episode.
    """

    def __init__(
        self, game: str, num_envs: int, options: Mapping[str, Any], threads: Mapping[str, Any] | None = None
    ) -> None:
        self.envs = make_envs(game, num_envs, console_options(options), threads)
        self.num_envs = num_envs
        self.interval = INTERVAL
        self._spacing = SPACING
        self._reference = reference_row(game, options)
        self._numpy_seeds = options["noops"] == "numpy"
        self._logs = [_Log(0, False) for _ in range(num_envs)]
        self._hashes = np.zeros(num_envs, np.uint64)
        self._terminated = np.zeros(num_envs, bool)
        # Consoles whose state before their next step may become a checkpoint.
        self._due: list[int] = []

    def reset(self, seeds: NDArray[np.int64], mask: NDArray[np.bool_]) -> None:
        """Starts new episodes in the consoles of ``mask``.

        Args:
            seeds: (N,) seeds; -1 where a new life continues the same game, and so the same log.
            mask: (N,) bool.
        """
        self.envs.reset(seed=seeds[mask], options={"reset_mask": mask})
        for i in np.nonzero(mask & (seeds >= 0))[0].tolist():
            self._logs[i] = _Log(int(seeds[i]), self._numpy_seeds)
            self._hashes[i] = 0
            self._due = [env for env in self._due if env != i]

    def step(
        self, actions: NDArray[Any], count: int
    ) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[Any]]:
        """Steps all consoles and logs the step of the first ``count``.

        Args:
            actions: (N,) integers.
            count: number of consoles whose step is logged.

        Returns:
            (N,) bool, where an episode of the environment ended, and where the game of its log has ended;
            (N, 128) uint8, the memory.
        """
        for i in self._due:
            if i < count:
                self._logs[i].add_core(*self.envs.get_core(i))
        ram, reward, terminated, truncated, infos = self.envs.step(actions)
        ended = terminated | truncated
        over = infos.get("game_over", ended)
        lives, frames = infos["lives"], infos["episode_frame_number"]
        self._hashes[:count] = hashes.updated(self._hashes, ram, lives, frames, reward)[:count]
        self._due = []
        logged = zip(self._logs, actions[:count].tolist(), reward[:count].tolist(), strict=False)
        for i, (log, action, points) in enumerate(logged):
            log.actions.append(action)
            log.total += points
            if len(log.actions) % self.interval == 0:
                log.hashes.append(int(self._hashes[i]))
            if len(log.actions) % self._spacing == 0:
                self._due.append(i)
        self._terminated = terminated
        return ended, over, ram

    def write(self, env: int, writer: Writer, cut: bool) -> None:
        """Writes the episode of a console, if it has a step.

        Args:
            env: number of the console.
            writer: writes the file.
            cut: whether the recording ends before the episode.
        """
        log = self._logs[env]
        if not log.actions:
            return
        if len(log.actions) % self.interval:
            log.hashes.append(int(self._hashes[env]))
        end = CUT if cut else TERMINATED if self._terminated[env] else TRUNCATED
        actions = np.frombuffer(bytes(log.actions), np.uint8)
        writer.add(Episode(log.seed, actions, end, log.total, log.hashes), log.cores, self._reference)

    def close(self) -> None:
        """Frees the environments."""
        self.envs.close()


def draw_seeds(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Seeds of ``count`` episodes."""
    return rng.integers(2**31, size=count)


def masked(num_envs: int, envs: Sequence[int]) -> NDArray[np.bool_]:
    """(N,) bool, true at the positions of ``envs``."""
    mask = np.zeros(num_envs, bool)
    mask[list(envs)] = True
    return mask
