"""What loops on a CUDA device share: episodes are read when they are asked for, and no error can be saved."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from parl.errors import ConfigError, RunDirectoryError
from parl.ops.finite import check_state
from parl.runtime.env_actor import Counts
from parl.runtime.loop import L, LocalLoop


class CudaLoop(LocalLoop[L]):
    """A loop with one actor, on a device that nothing waits for between two reports."""

    @property
    def _actor(self) -> Any:
        return self._actors[0]

    def _read_episodes(self) -> None:
        """Counts the episodes and rewards since the last call; waits."""
        finished, reward = self._actor.episodes.take()
        self.count(Counts(0, finished, reward))

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call; waits."""
        self._read_episodes()
        return super().take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made; waits."""
        self._read_episodes()
        return super().rewards_and_episodes()

    def _check(self) -> None:
        """Waits, and raises what went wrong on the device."""
        self._actor.check()

    def report(self) -> dict[str, Any]:
        """Metrics of the time since the last call; waits, and raises what went wrong on the device."""
        self._check()
        check_state({"weights": self._learner.weights}, "the learner")
        return super().report()

    def _actor_states(self) -> list[bytes | None]:
        self._check()
        return super()._actor_states()

    def rescue(self, folder: Path) -> None:
        """Refuses: after an error on a device its memory cannot be read."""
        raise RunDirectoryError(f"nothing is written into {folder}: the device failed; resume goes on before")


def require_cuda_policy(algorithm: Any, able: str) -> None:
    """Refuses an algorithm that cannot act on the device it learns on.

    Args:
        algorithm: of the run.
        able: names of algorithms that can.

    Raises:
        ConfigError: it has no ``make_device_policy``.
    """
    if not hasattr(algorithm, "make_device_policy"):
        raise ConfigError(
            f"{type(algorithm).__name__.lower()} cannot act on a device, as {able} can: leave device out of "
            "env_options"
        )
