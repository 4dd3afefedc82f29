"""Observations as views of a larger buffer, so that a step writes only the newest plane of each stack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


class Sliding:
    """A buffer of image planes per environment, in which observations are overlapping views.

    An observation is a view of ``stack`` consecutive planes. The next one starts one plane later, so that its
    older planes are already in the buffer. At the end of the buffer the view moves back to the start and all
    its planes are written, once in ``planes - stack`` steps.

    Args:
        shape: shape of the observations, (N, stack * channels or stack, ...).
        stack: number of planes of an observation, at least 2.
        planes: number of planes of the buffer, more than ``stack``.
        device: the torch device of the buffer.
    """

    def __init__(self, shape: tuple[int, ...], stack: int, planes: int, device: Any) -> None:
        import torch

        self._stack, self._planes = stack, planes
        # With channels first, channels and stack share one dimension.
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
        """The view for the next observation.

        Args:
            whole: whether all planes must be written.

        Returns:
            The view, and whether its older planes are already in place.
        """
        slides = self._known and not whole
        self._at += 1 if slides else self._stack
        if self._at + self._stack > self._planes:
            self._at, slides = 0, False
        self._known = True
        first = self._at * self._rows
        return self._buffer[:, first : first + self._stack * self._rows], slides

    def forget(self) -> None:
        """Makes the next observation be written with all its planes.

        Needed after an observation was written elsewhere, or after states were loaded.
        """
        self._known = False
