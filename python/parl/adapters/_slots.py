"""Priorities of numbered slots, for libraries that store rows themselves and refer to them by index.

:class:`Slots` combines a :class:`parl.SumTree` with two values that such libraries need: the largest
priority, which new rows get, and the smallest weight of the stored rows, by which importance weights are
normalized.

Source: Schaul et al. (2016), "Prioritized Experience Replay".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from parl._native import SumTree
from parl.replay.fields import exponent

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

# Units per weight 1 of a new tree: weights from 2e-7 to 64 can be represented; larger ones enlarge the unit
# to at most 2**-24 of theirs. It never shrinks, since new rows get the largest priority so far.
_SCALE = 2.0**22


class Slots:
    """Weights ``(|priority| + epsilon) ** alpha`` of ``capacity`` slots, sampled in proportion to them.

    A priority that arrives after the sampled row of its slot has been overwritten is dropped, and the slot
    keeps the weight of its new row; :attr:`stale` counts such priorities. Indices do not tell the rows of a
    slot apart: once the new row was sampled too, all priorities are taken for its own.

    Args:
        capacity: number of slots.
        alpha: exponent of the priority; 0 samples uniformly.
        epsilon: added to the absolute priority, > 0 so that every row can be sampled.
        seed: seed of the sampling; None draws one from ``numpy.random``, which ``numpy.random.seed`` seeds.
        guard: whether to detect priorities of rows that were overwritten after they had been sampled.
        floor: lower bound of :attr:`max_priority` after the first priority.

    Raises:
        ValueError: a setting is out of its bounds.
    """

    def __init__(
        self,
        capacity: int,
        *,
        alpha: float,
        epsilon: float,
        seed: int | None = None,
        guard: bool = True,
        floor: float = 1.0,
    ) -> None:
        alpha, epsilon = exponent("alpha", alpha), exponent("epsilon", epsilon)
        if seed is None:
            # The generator that these libraries and their users seed.
            seed = int(np.random.randint(2**31))
        self.capacity, self.alpha, self.epsilon = int(capacity), alpha, epsilon
        self.tree = SumTree(self.capacity, scale=_SCALE, seed=seed)
        self.stale = 0
        self._guard = guard
        self._floor = floor
        self._clock = 0
        self.clear()

    def clear(self) -> None:
        """Empties every slot; the state of the random generator stays."""
        self._reset_tree(_SCALE)
        # Infinite in empty slots, so that the minimum is that of the stored rows.
        self._weights = np.full(self.capacity, np.inf)
        # The index -1 means that the smallest weight is unknown and has to be searched.
        self._smallest, self._smallest_at = float("inf"), -1
        self._largest: float | None = None
        if self._guard:
            # The number of a slot's last write, that of the last write before its last draw, and how many
            # calls of `draw` got the same row as that draw and have not set its priority.
            self._written = np.zeros(self.capacity, np.int64)
            self._drawn = np.zeros(self.capacity, np.int64)
            self._pending = np.zeros(self.capacity, np.int64)

    @property
    def max_priority(self) -> float:
        """The largest priority set so far, the default of new rows; 1 at first."""
        return 1.0 if self._largest is None else max(self._largest, self._floor)

    @property
    def max_priority_given(self) -> float | None:
        """The largest priority set so far; None before the first."""
        return self._largest

    def raise_max(self, priority: float) -> None:
        """Makes :attr:`max_priority` at least ``priority``."""
        self._largest = priority if self._largest is None else max(self._largest, priority)

    def restore(
        self, slots: NDArray[np.int64], weights: NDArray[np.float64], max_priority: float | None
    ) -> None:
        """Replaces all weights.

        Args:
            slots: (n,) int64, the slots with a row.
            weights: (n,) float64, their weights, as :meth:`weights` returned them.
            max_priority: the largest priority so far; None if there was none.
        """
        self.clear()
        self._weights[slots] = weights
        self._enlarge_unit(float(weights.max(initial=0.0)))
        self._reload_weights()
        self._largest = max_priority

    def write(self, slots: NDArray[np.int64], priorities: ArrayLike | None = None) -> None:
        """Sets the priorities of slots to which new rows were written.

        Args:
            slots: (n,) int64.
            priorities: (n,) float, or one number for all; by default :attr:`max_priority`.

        Raises:
            IndexError: a slot is outside ``0..capacity``; then nothing was stored.
            ValueError: a priority is not finite; then nothing was stored.
        """
        if priorities is None:
            weight = (self.max_priority + self.epsilon) ** self.alpha
            self._enlarge_unit(weight)
            self.tree.update(slots, weight)
            self._store_weights(slots, weight)
        else:
            self._store(slots, priorities)
        if self._guard:
            self._clock += 1
            self._written[slots] = self._clock

    def update(self, slots: NDArray[np.int64], priorities: ArrayLike) -> int:
        """Sets priorities; for equal slots the last one counts.

        Args:
            slots: (n,) int64.
            priorities: (n,) float, or one number for all; their absolute values are used.

        Returns:
            The number of priorities dropped because their row had been overwritten after it was sampled, or
            because their slot is empty.

        Raises:
            IndexError: a slot is outside ``0..capacity``; then nothing was stored.
            ValueError: a priority is not finite; then nothing was stored.
        """
        if not self._guard:
            self._store(slots, priorities)
            return 0
        pending = self._pending[slots]
        late = (pending > 0) & (self._written[slots] > self._drawn[slots])
        # Negative slots are left to the tree, which refuses them.
        late |= (self._weights[slots] == np.inf) & (slots >= 0)
        dropped = int(np.count_nonzero(late))
        if dropped:
            keep, given = ~late, np.asarray(priorities)
            self._store(slots[keep], given[keep] if given.ndim else given)
        else:
            self._store(slots, priorities)
        self._pending[slots] = np.maximum(pending - 1, 0)
        self.stale += dropped
        return dropped

    def draw(self, n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Samples n slots, stratified, with probability proportional to their weights.

        Returns:
            (n,) int64 slots and (n,) float64 weights.

        Raises:
            NotSampleableError: no slot has a weight.
        """
        slots, _ = self.tree.sample(n)
        if self._guard:
            is_first = self._drawn[slots] < self._written[slots]
            self._pending[slots] = np.where(is_first, 1, self._pending[slots] + 1)
            self._drawn[slots] = self._clock
        # The exact weights instead of the tree's rounded ones, so that equal priorities give importance
        # weights of exactly 1.
        return slots, self._weights.take(slots)

    def weights(self, slots: Any) -> Any:
        """The weights of slots; 0 for empty ones."""
        found = self._weights[slots]
        return np.where(np.isfinite(found), found, 0.0)

    @property
    def smallest(self) -> float:
        """The smallest weight of a stored row; infinity if there is none.

        The whole array is searched only after the smallest weight has grown. This is rare, because its row is
        the least likely to be sampled.
        """
        if self._smallest_at < 0:
            at = int(self._weights.argmin())
            if not np.isfinite(self._weights[at]):
                return float("inf")
            self._smallest, self._smallest_at = float(self._weights[at]), at
        return self._smallest

    @property
    def total(self) -> float:
        """Sum of all weights."""
        return self.tree.total

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["tree"] = self.tree.scale, self.tree.rng_state
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.tree = SumTree(self.capacity)
        scale, self.tree.rng_state = state["tree"]
        self._reset_tree(scale)
        self._reload_weights()

    def _store(self, slots: NDArray[np.int64], priorities: ArrayLike) -> None:
        given = np.abs(np.asarray(priorities, np.float64))
        if slots.size == 0 or given.size == 0:
            return
        largest = float(given.max())
        if not np.isfinite(largest):
            raise ValueError(f"priority {largest} is not finite")
        weights = (given + self.epsilon) ** self.alpha
        self._enlarge_unit((largest + self.epsilon) ** self.alpha)
        self.tree.update(slots, weights)
        self.raise_max(largest)
        self._store_weights(slots, weights)

    def _enlarge_unit(self, weight: float) -> None:
        """Enlarges the tree's unit until this weight can be stored; rare, takes O(capacity)."""
        most = self.tree.max_priority
        if weight > most:
            self._reset_tree(self.tree.scale * 2.0 ** (math.floor(math.log2(most / weight)) - 3))
            self._reload_weights()

    def _reset_tree(self, scale: float) -> None:
        """Replaces the tree by an empty one with the same state of the random generator."""
        state = self.tree.rng_state
        self.tree = SumTree(self.capacity, scale=scale)
        self.tree.rng_state = state

    def _reload_weights(self) -> None:
        there = np.flatnonzero(np.isfinite(self._weights))
        if len(there):
            self.tree.update(there, self._weights[there])

    def _store_weights(self, slots: NDArray[np.int64], weights: Any) -> None:
        self._weights[slots] = weights
        if self._smallest_at < 0 or slots.size == 0:
            return
        # For equal slots the last weight was stored, so the array is read again.
        stored = self._weights.take(slots)
        at = int(stored.argmin())
        if stored[at] <= self._smallest:
            self._smallest, self._smallest_at = float(stored[at]), int(slots[at])
        elif self._weights[self._smallest_at] > self._smallest:
            self._smallest_at = -1
