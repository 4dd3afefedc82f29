"""Base class of loops on a CUDA device: reads episodes on request; nothing can be saved after an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parl.errors import ConfigError, RunDirectoryError
from parl.ops.finite import check_state
from parl.runtime.env_actor import Counts
from parl.runtime.loop import L, LocalLoop


class CudaLoop(LocalLoop[L]):
    """A loop with one actor on a CUDA device, which synchronizes with the device only where documented."""

    @property
    def _actor(self) -> Any:
        return self._actors[0]

    def _read_episodes(self) -> None:
        """Counts the episodes and rewards since the last call; synchronizes."""
        finished, count, reward = self._actor.episodes.take()
        self.count(Counts(0, finished, reward))
        self._finished_episodes += count - len(finished)

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call; synchronizes."""
        self._read_episodes()
        return super().take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of rewards and number of episodes ended since this loop was made; synchronizes."""
        self._read_episodes()
        return super().rewards_and_episodes()

    def _check(self) -> None:
        """Synchronizes, and raises errors of the device."""
        self._actor.check()

    def report(self) -> dict[str, Any]:
        """Metrics of the time since the last call; synchronizes, and raises errors of the device."""
        self._check()
        check_state({"weights": self._learner.weights}, "the learner")
        return super().report()

    def _actor_states(self) -> list[bytes | None]:
        self._check()
        return super()._actor_states()

    def save_after_failure(self, folder: Path) -> None:
        """Raises an error: after an error on a device its memory cannot be read."""
        raise RunDirectoryError(f"cannot write {folder}: the device failed; resume the last checkpoint")


def require_cuda_policy(algorithm: Any, able: str) -> None:
    """Checks that an algorithm can act on the device it learns on.

    Args:
        algorithm: algorithm of the run.
        able: names of algorithms that can, for the message.

    Raises:
        ConfigError: it has no ``make_device_policy``.
    """
    if not hasattr(algorithm, "make_device_policy"):
        config = getattr(algorithm, "config", None)
        name = getattr(config, "algorithm_name", type(algorithm).__name__)
        raise ConfigError(f"{name} cannot act on a device, as {able} can: leave device out of env_options")
