"""Logs the episodes that environments play: seeds, actions, hashes and checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl.datasets import hashes
from parl.datasets.checkpoints import Checkpoint, StickyGenerator, pack, rest_of
from parl.datasets.format import ENDS, Episode, interval_for
from parl.datasets.options import console_options, make_envs

TERMINATED, TRUNCATED, CUT = range(len(ENDS))


class _Log:
    """The episode of one environment so far."""

    def __init__(self, seed: int, numpy_seeds: bool) -> None:
        self.seed = seed
        self.actions = bytearray()
        self.total = 0
        self.hashes: list[int] = []
        self.checkpoints: list[Checkpoint] = []
        self.generator = StickyGenerator(seed, numpy_seeds)
        self.first = b""

    def add_state(self, state: bytes) -> None:
        one = pack(state, self.generator, self.first)
        self.checkpoints.append(one)
        self.first = self.first or rest_of(one, b"")


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
        interval: steps between two hashes, and between two checkpoints, of an episode.
    """

    def __init__(
        self, game: str, num_envs: int, options: Mapping[str, Any], threads: Mapping[str, Any] | None = None
    ) -> None:
        self.envs = make_envs(game, num_envs, console_options(options), threads)
        self.num_envs = num_envs
        self.interval = interval_for(len(self.envs.action_codes))
        self._numpy_seeds = options["noops"] == "numpy"
        self._logs = [_Log(0, False) for _ in range(num_envs)]
        self._hashes = np.zeros(num_envs, np.uint64)
        self._terminated = np.zeros(num_envs, bool)
        # Consoles whose state before their next step becomes a checkpoint.
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
        self._add_states([i for i in self._due if i < count])
        ram, reward, terminated, truncated, infos = self.envs.step(actions)
        ended = terminated | truncated
        over = infos.get("game_over", ended)
        self._hashes[:count] = hashes.updated(self._hashes, infos, reward)[:count]
        self._due = []
        logged = zip(self._logs, actions[:count].tolist(), reward[:count].tolist(), strict=False)
        for i, (log, action, points) in enumerate(logged):
            log.actions.append(action)
            log.total += points
            if len(log.actions) % self.interval == 0:
                log.hashes.append(int(self._hashes[i]))
                self._due.append(i)
        self._terminated = terminated
        return ended, over, ram

    def _add_states(self, due: list[int]) -> None:
        if due:
            states = self.envs.get_state(masked(self.num_envs, due))
            for i, state in zip(due, states, strict=True):
                self._logs[i].add_state(state.tobytes())

    def take(self, env: int, cut: bool) -> Episode | None:
        """The episode of a console; None without a step. ``cut``: the recording ends before the episode."""
        log = self._logs[env]
        if not log.actions:
            return None
        if len(log.actions) % self.interval:
            log.hashes.append(int(self._hashes[env]))
        end = CUT if cut else TERMINATED if self._terminated[env] else TRUNCATED
        actions = np.frombuffer(bytes(log.actions), np.uint8)
        return Episode(log.seed, actions, end, log.total, log.hashes, log.checkpoints)

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
