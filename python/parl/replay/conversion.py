"""Conversion of a replay to one that stores its observations in another form, row by row.

A run that freezes the convolutions of its network stores their outputs in place of images from then on, and
converts the rows that it has already. Other threads may add rows and sample while rows are converted. Both
replays have the same ring: rows keep their priorities and tickets, and incomplete n-step windows continue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from parl._native import Conversion as _Conversion
from parl.replay.fields import column

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parl.replay.prioritized import PrioritizedReplay


class Conversion:
    """Converts one field of a replay in private memory.

    Args:
        replay: the replay; close it after :meth:`finish`.
        field: name of the field.
        shape: of a converted row.
        dtype: of a converted row.
        convert: from (n, ...), the field as in a batch, with whole stacks, to (n, *shape) of ``dtype``.
        rows: largest n.

    Raises:
        ValueError: the replay is in shared memory or a file, or has no such field.
        MemoryError: there is not enough memory.
    """

    def __init__(
        self,
        replay: PrioritizedReplay,
        field: str,
        shape: tuple[int, ...],
        dtype: str,
        convert: Callable[[NDArray[Any]], NDArray[Any]],
        rows: int = 64,
    ) -> None:
        outputs = {name: (own_shape, own_dtype) for name, own_dtype, own_shape, _ in replay._outputs}
        self._replay, self._convert, self.rows = replay, convert, rows
        self._native = _Conversion(replay._native, column(field, (shape, dtype), 1))
        self._dtype = np.dtype(dtype)
        self._stacks = np.empty((rows, *outputs[field][0]), outputs[field][1])
        self._numbers = np.empty(rows, np.uint64)

    @property
    def left(self) -> int:
        """Number of rows that :meth:`step` has not passed yet; rows that are added increase it."""
        return self._native.left

    def step(self) -> int:
        """Converts the next rows, at most ``rows``; returns their number, 0 once the newest was passed."""
        count = self._native.read(self._stacks, self._numbers)
        if count:
            converted = np.ascontiguousarray(self._convert(self._stacks[:count]), self._dtype)
            self._native.write(self._numbers[:count], converted)
        return count

    def finish(self) -> PrioritizedReplay:
        """Converts the rest and returns the new replay; no other thread may add rows or set priorities."""
        self._native.restart()
        while self.step():
            pass
        kind, hindsight = type(self._replay), self._replay._hindsight
        return kind._from_native(self._native.finish(), hindsight)
