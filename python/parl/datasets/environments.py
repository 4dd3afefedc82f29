"""Environments that recordings and replays step: calls that vector environments for users do not need."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from parl.envs import AtariVectorEnv
from parl.envs.atari.states import Arrays


class EpisodeVectorEnv(AtariVectorEnv):
    """Atari environments on the CPU whose episodes begin and end each at its own time."""

    def step_and_reset(
        self, envs: list[int], actions: Arrays, seeds: list[int] | None
    ) -> tuple[Arrays, Arrays, Arrays, Arrays, Arrays | None]:
        """Steps some environments and begins new episodes in some of these.

        Args:
            envs: numbers of the environments, ascending, which have one row each of the results.
            actions: (n,) int64.
            seeds: of the environments that are reset after their step; -1 for one that is reset only if its
                episode has ended; None for -1 everywhere.

        Returns:
            Observations (n, ...) after the resets and before them, which may be the same array; int32
            (12, n) and bool (4, n) of ``_native.AtariBatch``, and memory (n, 128) or None, before the resets.
        """
        self._check_open()
        count = len(envs)
        obs = self._target(None)[:count]
        resets = seeds is not None or self.life_loss == "continues"
        final_obs = self._target(None)[:count] if resets else None
        ram = np.empty((count, 128), np.uint8) if self._ram_info else None
        numbers, flags, _ = self._native.step_and_reset(envs, actions, seeds, obs, final_obs, ram)
        return obs, obs if final_obs is None else final_obs, numbers, flags, ram

    def play(self, env: int, actions: Arrays) -> tuple[int, bool]:
        """Steps one environment by one action after the other in one call.

        Args:
            env: its number.
            actions: (n,) integers.

        Returns:
            The number of steps until its episode ended, at most n, and whether it has ended.
        """
        self._check_open()
        return self._native.play(env, self._actions(actions, len(actions)))

    def get_core(self, env: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Core and generator of an environment without pictures and stack.

        Returns:
            (size,) uint8, what its next step depends on, and (2496,) uint8, the words of its generator of
            sticky actions.
        """
        self._check_open()
        return self._native.get_core(env)

    def set_core(self, env: int, core: NDArray[np.uint8], words: NDArray[np.uint8]) -> None:
        """Restores what :meth:`get_core` returned; the environment has no observation until its next step.

        Raises:
            AtariError: the core is damaged, or of another game or version.
        """
        self._check_open()
        self._native.set_core(env, core, words)
