"""Prioritized replay buffers for Tianshou, with the names and arguments of its own.

``PrioritizedReplayBuffer`` and ``PrioritizedVectorReplayBuffer`` are subclasses of Tianshou's classes of
these names, so that collectors, trainers and algorithms accept them. Rows are stored in Tianshou's ``Batch``;
this module replaces sampling, gathering and priorities.

Differences to Tianshou 2.0: ``set_beta`` of the vector buffer takes effect; importance weights are
normalized by the smallest weight of a stored row, to which the exponent alpha is applied as to the others;
``reset`` also removes priorities; a priority for a row that was overwritten after it had been sampled is
dropped.

Source: Schaul et al. (2016), "Prioritized Experience Replay".
"""

# pyright: reportUntypedBaseClass=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from tianshou.data import Batch, ReplayBuffer, ReplayBufferManager
from tianshou.data import PrioritizedReplayBuffer as _TianshouPrioritized
from tianshou.data import PrioritizedVectorReplayBuffer as _TianshouVector

from parl.adapters._slots import Slots
from parl.replay.fields import array_of, exponent

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PrioritizedReplayBuffer", "PrioritizedVectorReplayBuffer"]

# Entries of a row that Tianshou stacks.
_STACKED = frozenset(("obs", "obs_next", "info", "policy"))
_EPSILON = float(np.finfo(np.float32).eps)


class _Weights:
    """Stands in for the tree ``buffer.weight`` of Tianshou: weights by index, and their sum."""

    def __init__(self, slots: Slots) -> None:
        self._slots = slots

    def __len__(self) -> int:
        return self._slots.capacity

    def __getitem__(self, index: Any) -> Any:
        return self._slots.weights(index)

    def reduce(self) -> float:
        """The sum of all weights."""
        return self._slots.total


class _Prioritized(ReplayBuffer):
    """Sampling, gathering and priorities for any of Tianshou's buffers."""

    def _prioritize(self, alpha: float, beta: float, weight_norm: bool) -> None:
        if not alpha > 0.0:
            raise ValueError(f"alpha {alpha} is not positive; for uniform draws take a ReplayBuffer")
        beta = exponent("beta", beta)
        self._alpha, self._beta, self._weight_norm = alpha, beta, weight_norm
        self._slots = Slots(self.maxsize, alpha=alpha, epsilon=_EPSILON)
        self.options.update(alpha=alpha, beta=beta)

    @property
    def weight(self) -> _Weights:
        """Weights by index, ``(|priority| + epsilon) ** alpha``."""
        return _Weights(self._slots)

    @property
    def stale_updates(self) -> int:
        """Number of priorities that were dropped because their row had been overwritten."""
        return self._slots.stale

    def init_weight(self, index: Any) -> None:
        """Gives new rows the largest priority so far."""
        self._slots.write(np.atleast_1d(np.asarray(index, np.int64)))

    def update_weight(self, index: Any, new_weight: Any) -> None:
        """Sets the priorities of rows.

        Args:
            index: (B,) integers, from ``sample``.
            new_weight: (B,) float, numpy or torch, such as TD errors; their absolute values are used.

        Raises:
            IndexError: an index is outside the buffer.
            ValueError: a priority is not finite.
        """
        if hasattr(new_weight, "detach"):
            new_weight = array_of(new_weight)
        slots = np.atleast_1d(np.asarray(index, np.int64))
        priorities = np.asarray(new_weight)
        if priorities.ndim > 1:
            priorities = priorities.reshape(len(slots))
        self._slots.update(slots, priorities)

    def sample_indices(self, batch_size: int | None) -> NDArray[np.int64]:
        """Samples indices by priority; 0 and None return all indices, as in Tianshou."""
        if batch_size is not None and batch_size > 0 and len(self) > 0:
            return self._slots.draw(batch_size)[0]
        return super().sample_indices(batch_size)

    def get_weight(self, index: Any) -> Any:
        """Importance weights ``(weight / smallest weight) ** -beta``, at most 1."""
        return (self._slots.weights(index) / self._slots.smallest) ** -self._beta

    def set_beta(self, beta: float) -> None:
        """Sets the exponent of the importance weights.

        Raises:
            ValueError: it is negative or not finite.
        """
        self._beta = exponent("beta", beta)

    def reset(self, keep_statistics: bool = False) -> None:
        """Removes all rows and their priorities."""
        super().reset(keep_statistics=keep_statistics)
        self._slots.clear()

    def sample(self, batch_size: int | None) -> tuple[Any, NDArray[np.int64]]:
        """Samples rows by priority.

        Returns:
            A Batch with ``weight`` (B,) float64, and its (B,) int64 indices.
        """
        indices = self.sample_indices(batch_size)
        return self[indices], indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, np.ndarray) and index.ndim == 1 and index.dtype.kind in "iu":
            batch, indices = self._gather(index), index
        elif isinstance(index, slice):
            indices = self.sample_indices(0) if index == slice(None) else self._indices[: len(self)][index]
            batch = ReplayBuffer.__getitem__(self, indices)
        else:
            batch, indices = ReplayBuffer.__getitem__(self, index), index
        weight = self.get_weight(indices)
        largest = np.max(weight, initial=0.0)
        batch.__dict__["weight"] = weight / largest if self._weight_norm and largest > 0.0 else weight
        return batch

    def _gather(self, indices: NDArray[np.int64]) -> Batch:
        """The rows of ``indices``, each array gathered by one call."""
        rows = self._meta.__dict__
        batch = Batch()
        found = batch.__dict__
        # (B, stack) indices, the oldest first, for the entries that Tianshou stacks; (B,) without a stack.
        stacks = self._stacks(indices)
        for key, value in rows.items():
            found[key] = _take(value, stacks if key in _STACKED else indices)
        if not self._save_obs_next:
            after = self.next(indices)
            if self.stack_num > 1:
                # The next row's stack is this row's, shifted by one; the same at the end of an episode.
                shifted = np.concatenate([stacks[:, 1:], after[:, None]], 1)
                after = np.where((after == indices)[:, None], stacks, shifted)
            found["obs_next"] = _take(rows["obs"], after)
        for key in ("obs_next", "info", "policy"):
            if key not in found:
                found[key] = Batch()
        return batch

    def _stacks(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.stack_num == 1:
            return indices
        stacks = np.empty((len(indices), self.stack_num), np.int64)
        stacks[:, -1] = indices
        for at in range(self.stack_num - 2, -1, -1):
            indices = stacks[:, at] = self.prev(indices)
        return stacks


class PrioritizedReplayBuffer(_Prioritized, _TianshouPrioritized):
    """Tianshou's buffer of this name on parl's sum tree.

    Args:
        size: number of rows kept; then the oldest are overwritten.
        alpha: exponent of the priority, > 0.
        beta: exponent of the importance weights.
        weight_norm: whether weights are divided by the largest of the batch.
        **kwargs: of ``tianshou.data.ReplayBuffer``: ``stack_num``, ``ignore_obs_next``, ...

    Raises:
        ValueError: alpha or beta is out of its bounds.
    """

    def __init__(self, size: int, alpha: float, beta: float, weight_norm: bool = True, **kwargs: Any) -> None:
        ReplayBuffer.__init__(self, size, **kwargs)
        self._prioritize(alpha, beta, weight_norm)


class PrioritizedVectorReplayBuffer(_Prioritized, _TianshouVector):
    """Tianshou's buffer of this name on parl's sum tree: one ring of rows for each environment.

    Args:
        total_size: number of rows kept, of all environments together.
        buffer_num: number of environments.
        alpha: exponent of the priority, > 0.
        beta: exponent of the importance weights.
        weight_norm: whether weights are divided by the largest of the batch.
        **kwargs: of ``tianshou.data.ReplayBuffer``: ``stack_num``, ``ignore_obs_next``, ...

    Raises:
        ValueError: ``buffer_num``, alpha or beta is out of its bounds.
    """

    def __init__(
        self,
        total_size: int,
        buffer_num: int,
        alpha: float,
        beta: float,
        weight_norm: bool = True,
        **kwargs: Any,
    ) -> None:
        if buffer_num < 1:
            raise ValueError(f"buffer_num {buffer_num} is below 1")
        size = -(-int(total_size) // buffer_num)
        ReplayBufferManager.__init__(self, [ReplayBuffer(size, **kwargs) for _ in range(buffer_num)])
        self._prioritize(alpha, beta, weight_norm)

    def unfinished_index(self) -> NDArray[np.int64]:
        """Indices of the newest rows of running episodes, which Tianshou reads for every batch."""
        newest = self.last_index[self._lengths > 0]
        return newest[~self.done[newest]] if len(newest) else newest


def _take(value: Any, indices: NDArray[np.int64]) -> Any:
    if isinstance(value, np.ndarray):
        return value.take(indices, 0)
    if isinstance(value, Batch):
        taken = Batch()
        for key, inner in value.__dict__.items():
            taken.__dict__[key] = _take(inner, indices)
        return taken
    return value[indices]
