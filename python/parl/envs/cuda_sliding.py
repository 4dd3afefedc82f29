"""Observations of a device as views that slide over a buffer: only the newest plane of a stack is written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Sliding:
    """A buffer of planes per environment, and where in it the last observation begins.

    An observation is a view of ``stack`` planes in a row; the next one begins a plane further on, so that its
    older planes lie there already. Behind the last plane it goes back to the first ones, where all planes are
    written again from the device's own ring: once in ``planes - stack`` steps.

    Args:
        shape: of the observations, (N, stack x channels or stack, ...).
        stack: planes of an observation, at least 2.
        planes: of the buffer, more than ``stack``.
        device: torch's device.
    """

    def __init__(self, shape: tuple[int, ...], stack: int, planes: int, device: Any) -> None:
        import torch

        self._stack, self._planes = stack, planes
        # Channels that come first stand within the stack's dimension.
        self._rows = shape[1] // stack
        self._buffer = torch.zeros(
            (shape[0], planes * self._rows, *shape[2:]), dtype=torch.uint8, device=device
        )
        self._at, self._known = 0, False

    @property
    def stride(self) -> int:
        """Bytes from the observation of one environment to that of the next."""
        return self._buffer.stride(0)

    def next(self, *, whole: bool) -> tuple[Tensor, bool]:
        """Where the next observation goes, and whether its older planes lie there.

        Args:
            whole: all planes are to be written.
        """
        slides = self._known and not whole
        self._at += 1 if slides else self._stack
        if self._at + self._stack > self._planes:
            self._at, slides = 0, False
        self._known = True
        first = self._at * self._rows
        return self._buffer[:, first : first + self._stack * self._rows], slides

    def forget(self) -> None:
        """The next observation is written whole: the last one lies elsewhere, or others play now."""
        self._known = False
