"""Prioritized replay for TorchRL, with the names and arguments of its own.

``PrioritizedSampler`` replaces TorchRL's sampler in any of its buffers; storages, writers, transforms and
collectors are unchanged. ``TensorDictPrioritizedReplayBuffer`` is TorchRL's buffer of that name with this
sampler. For plain buffers (a one-dimensional tensor storage on the CPU, no transform, no prefetch) it has
fast paths for ``extend``, ``sample`` and ``update_tensordict_priority``; all others use TorchRL's code.

Sampling is stratified. Sums are exact integers, so that a row without weight is never sampled and no sample
has to be moved to a neighboring row.

Source: Schaul et al. (2016), "Prioritized Experience Replay".
"""

# pyright: reportUntypedBaseClass=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from tensordict import TensorDict
from torchrl.data import PrioritizedSampler as _TorchRLSampler
from torchrl.data import TensorDictPrioritizedReplayBuffer as _TorchRLBuffer
from torchrl.data import TensorDictRoundRobinWriter, TensorStorage
from torchrl.data.replay_buffers.utils import unravel_index

from parl.adapters._slots import Slots
from parl.replay.fields import array_of, exponent

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PrioritizedSampler", "TensorDictPrioritizedReplayBuffer"]

_STATE = "sampler_metadata.json"
_PRIORITIES = "priorities.npz"


class PrioritizedSampler(_TorchRLSampler):
    """TorchRL's sampler of this name on parl's sum tree.

    Args:
        max_capacity: number of rows of the storage.
        alpha: exponent of the priority, a number or a tensor with one element; 0 samples uniformly.
        beta: exponent of the importance weights, a number or a tensor with one element.
        eps: added to the absolute priority.
        dtype: dtype of the importance weights: ``torch.float32`` or ``torch.float64``.
        reduction: how a buffer reduces several priorities to one: ``"max"``, ``"min"``, ``"median"``,
            ``"mean"``.
        max_priority_within_buffer: whether new rows get the largest priority of the stored rows instead of
            the largest one so far.
        device: None or the CPU, where the priorities are stored.

    Raises:
        ValueError: alpha, beta or eps is out of its bounds, or the device or dtype is not supported.
    """

    def __init__(
        self,
        max_capacity: int,
        alpha: float,
        beta: float,
        eps: float = 1e-8,
        dtype: torch.dtype = torch.float32,
        reduction: str = "max",
        max_priority_within_buffer: bool = False,
        device: torch.device | str | None = None,
    ) -> None:
        if device is not None and torch.device(device).type != "cpu":
            raise ValueError(f"device is {device}, expected the CPU, where the priorities are stored")
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype {dtype} is neither torch.float32 nor torch.float64")
        for name, value in (("alpha", alpha), ("beta", beta), ("eps", eps)):
            exponent(name, value)
        super().__init__(
            max_capacity, alpha, beta, eps, dtype, reduction, max_priority_within_buffer, torch.device("cpu")
        )

    def _init(self) -> None:
        self._slots = Slots(self._max_capacity, alpha=self._alpha, epsilon=self._eps, guard=False, floor=0.0)

    @property
    def device(self) -> torch.device:
        """Device of indices and weights: the CPU."""
        return torch.device("cpu")

    @property
    def alpha(self) -> Any:
        """Exponent of the priority as given: a number, or a tensor as TorchRL's schedulers set it.

        Setting it converts all weights to the new exponent, which takes O(capacity).
        """
        return self._alpha

    @alpha.setter
    def alpha(self, value: Any) -> None:
        old, new = self._slots.alpha, exponent("alpha", value)
        self._alpha = value
        if new == old:
            return
        slots, weights = self._written()
        self._slots.alpha = new
        if len(slots) == 0:
            return
        if old == 0.0:
            warnings.warn("alpha was 0: rows keep weight 1 until their next priority comes", stacklevel=2)
            return
        largest = self._slots.max_priority
        self._slots.update(slots, np.maximum(weights ** (1.0 / old) - self._eps, 0.0))
        self._slots.raise_max(largest)

    @property
    def beta(self) -> Any:
        """Exponent of the importance weights as given: a number, or a tensor with one element."""
        return self._beta

    @beta.setter
    def beta(self, value: Any) -> None:
        exponent("beta", value)
        self._beta = value

    def _written(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        weights = self._slots.weights(np.arange(self._max_capacity))
        slots = np.flatnonzero(weights)
        return slots, weights[slots]

    @property
    def default_priority(self) -> float:
        """The priority of rows that are added without one."""
        alpha = self._slots.alpha
        if self._max_priority_within_buffer and alpha > 0.0:
            _, weights = self._written()
            if len(weights):
                return max(float(weights.max()) ** (1.0 / alpha) - self._eps, 0.0)
        return self._slots.max_priority

    def sample(self, storage: Any, batch_size: int) -> tuple[Any, dict[str, Any]]:
        """Samples indices by priority.

        Returns:
            (B,) int64 indices, or a tuple of them for a storage with several dimensions; and a dict with
            ``priority_weight`` (B,), ``(smallest weight / weight) ** beta``.

        Raises:
            RuntimeError: the storage is empty, or a stored row has priority 0 while ``eps`` is 0.
            NotSampleableError: no row has a weight.
        """
        if len(storage) == 0:
            raise RuntimeError("Cannot sample from an empty storage.")
        if self._rng is not None:
            # For each call, so that restoring the generator's state repeats the draws.
            self._slots.tree.seed(int(torch.randint(2**62, (), generator=self._rng)))
        slots, weights = self._slots.draw(batch_size)
        index = torch.from_numpy(slots)
        # A float was checked when it was set; the value of a tensor can change later.
        beta = self._beta if type(self._beta) is float else exponent("beta", self._beta)
        if (smallest := self._slots.smallest) == 0:
            raise RuntimeError(
                "a row has priority 0, from which no importance weight follows: set eps above 0"
            )
        importance = (weights / smallest) ** -beta
        # In numpy: one torch operation between numpy operations takes as long as several of these.
        importance = torch.from_numpy(importance if self.dtype == torch.float64 else np.float32(importance))
        if storage.ndim > 1:
            index = unravel_index(index, storage.shape)
        return index, {"priority_weight": importance}

    def add(self, index: Any) -> None:
        """Nothing to do: the storage marks what it writes."""

    def extend(self, index: Any) -> None:
        """Nothing to do: the storage marks what it writes."""

    def mark_update(self, index: Any, *, storage: Any = None) -> None:
        """Sets the priority of newly written rows to :attr:`default_priority`.

        Raises:
            IndexError: a row is outside the sampler, because the sampler is smaller than its storage.
        """
        slots = self._flat(index, storage)
        self._mark(slots[slots >= 0], storage)

    def _mark(self, slots: NDArray[np.int64], storage: Any) -> None:
        within = self._max_priority_within_buffer
        priority = self.default_priority if within else self._slots.max_priority
        try:
            self._slots.write(slots, priority if within else None)
        except IndexError as error:
            raise self._index_error(slots, storage) from error
        # As in TorchRL, new rows stay at least as likely as the first ones when all priorities become small.
        self._slots.raise_max(priority)

    def update_priority(self, index: Any, priority: Any, *, storage: Any = None) -> None:
        """Sets the priorities of rows; for equal indices the last one counts.

        Args:
            index: int64 (B,), or (B, D) or a tuple for a storage with D dimensions; -1 is skipped.
            priority: (B,) float, or one number for all; their absolute values are used.
            storage: the storage, required if it has several dimensions. Priorities of its rows that were not
                written are dropped.

        Raises:
            IndexError: an index is outside the buffer.
            RuntimeError: the shapes of index and priority do not match.
            ValueError: a priority is not finite.
        """
        slots = self._flat(index, storage)
        values = array_of(priority) if isinstance(priority, torch.Tensor) else np.asarray(priority)
        if slots.size == values.size == 0:
            return  # as in TorchRL
        if values.size > 1:
            if values.size != slots.size:
                raise RuntimeError(
                    f"priority has shape {values.shape}, expected one number or ({slots.size},)"
                )
            values = values.reshape(slots.size)
        else:
            values = values.reshape(())
        # As in TorchRL, rows of the storage that were not written are not drawn.
        written = self._max_capacity if storage is None else len(storage)
        if slots.size and (slots.min() < 0 or slots.max() >= written):
            there = (slots >= 0) & ((slots < written) | (slots >= self._max_capacity))
            values = values[there] if values.ndim else values
            slots = slots[there]
        try:
            self._slots.update(slots, values)
        except IndexError as error:
            raise self._index_error(slots, storage) from error

    def _index_error(self, slots: NDArray[np.int64], storage: Any) -> IndexError:
        """The error for rows outside this sampler."""
        text = f"row {slots.max()} is outside this sampler, whose max_capacity is {self._max_capacity}"
        size = getattr(storage, "max_size", None)
        if size is not None and size > self._max_capacity:
            text += f"; its storage has max_size {size}, and max_capacity must not be smaller"
        return IndexError(text)

    def _flat(self, index: Any, storage: Any) -> NDArray[np.int64]:
        """Converts an index of any form to (B,) int64 slots."""
        if isinstance(index, tuple):
            index = torch.stack([torch.as_tensor(part) for part in index], -1)
        if isinstance(index, range | slice):
            index = np.arange(self._max_capacity)[index] if isinstance(index, slice) else np.asarray(index)
        if isinstance(index, torch.Tensor):
            index = index.numpy(force=True)
        found = np.asarray(index, np.int64)
        if found.ndim == 0:
            return found.reshape(1)
        if found.ndim == 1:
            return found
        if found.shape[-1] == 1:
            return found.reshape(-1)
        if storage is None:
            raise RuntimeError("the storage is needed to find the rows of an index with several dimensions")
        parts = tuple(found.reshape(-1, found.shape[-1]).T)
        return np.ravel_multi_index(parts, tuple(storage.shape)).astype(np.int64)

    def _empty(self) -> None:
        self._slots.clear()

    def state_dict(self) -> dict[str, Any]:
        """The state that determines later samples."""
        slots, weights = self._written()
        return {
            "_alpha": self._slots.alpha,
            "_beta": float(self._beta),
            "_eps": self._eps,
            "max_priority": self._slots.max_priority_given,
            "slots": torch.from_numpy(slots),
            "weights": torch.from_numpy(weights),
            "rng": self._slots.tree.rng_state,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned.

        Raises:
            ValueError: the state is of a larger buffer, or alpha, beta or eps is out of its bounds.
        """
        slots, weights = np.asarray(state_dict["slots"]), np.asarray(state_dict["weights"])
        if len(slots) and slots[-1] >= self._max_capacity:
            raise ValueError(f"row {slots[-1]} of the state is outside 0 to {self._max_capacity - 1}")
        alpha, beta, eps = (exponent(name, state_dict["_" + name]) for name in ("alpha", "beta", "eps"))
        self._alpha, self._beta, self._eps = alpha, beta, eps
        self._slots.alpha, self._slots.epsilon = self._alpha, self._eps
        self._slots.restore(slots, weights, state_dict["max_priority"])
        self._slots.tree.rng_state = int(state_dict["rng"])

    def dumps(self, path: Any) -> None:
        """Writes :meth:`state_dict` to the folder ``path``."""
        folder = Path(path).absolute()
        folder.mkdir(exist_ok=True)
        state = self.state_dict()
        np.savez(folder / _PRIORITIES, slots=state.pop("slots").numpy(), weights=state.pop("weights").numpy())
        (folder / _STATE).write_text(json.dumps(state))

    def loads(self, path: Any) -> None:
        """Restores the state that :meth:`dumps` wrote."""
        folder = Path(path).absolute()
        state: dict[str, Any] = json.loads((folder / _STATE).read_text())
        with np.load(folder / _PRIORITIES) as arrays:
            self.load_state_dict({**state, "slots": arrays["slots"], "weights": arrays["weights"]})


class TensorDictPrioritizedReplayBuffer(_TorchRLBuffer):
    """TorchRL's buffer of this name on parl's sum tree.

    Args:
        **kwargs: keywords of ``torchrl.data.TensorDictPrioritizedReplayBuffer``: ``alpha``, ``beta``,
            ``priority_key``, ``eps``, ``storage``, ``batch_size``, ``transform``, ``prefetch``, ...

    Raises:
        ValueError: a setting is out of its bounds.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        theirs = self.prioritized_sampler
        ours = PrioritizedSampler(
            self._storage.max_size,
            theirs._alpha,
            theirs._beta,
            theirs._eps,
            reduction=theirs.reduction,
            device=kwargs.get("sampler_device"),
        )
        if self._sync:
            self.set_sampler(ours)
            # As TorchRL's constructor does for its own sampler.
            storage: Any = self._storage
            if len(storage):
                ours.mark_update(np.arange(len(storage)), storage=storage)
        else:
            self._prioritized_sampler = ours
        ours._rng = theirs._rng
        self._has_collate_fn = bool(kwargs.get("collate_fn"))
        wants = ("sample_unit", "prefetch", "pin_memory", "shared", "compilable", "dim_extend")
        self._allows_fast_path = self._sync and not any(kwargs.get(name) for name in wants)
        self._rows: _NumpyColumns | None = None

    def set_storage(self, storage: Any, collate_fn: Any = None) -> Any:
        """Sets the storage and the function that makes batches, or the default; returns the old storage."""
        previous = super().set_storage(storage, collate_fn)
        self._has_collate_fn = collate_fn is not None
        return previous

    def _fast_path_rows(self) -> _NumpyColumns | None:
        """The arrays of the storage if the buffer is plain, so that the fast paths apply; otherwise None."""
        if not self._allows_fast_path or self._has_collate_fn or _transforms(self._transform):
            return None
        storage, writer = self._storage, self._writer
        if not isinstance(storage, TensorStorage) or not storage.initialized or storage.ndim != 1:
            return None
        if type(writer) is not TensorDictRoundRobinWriter or writer.tracks_generations:
            return None
        if type(self._sampler) is not PrioritizedSampler or self._service_shutdown:
            return None
        if self._rows is None or self._rows.table is not storage._storage or not self._rows.is_current():
            self._rows = _NumpyColumns(storage._storage)
        return self._rows if self._rows.is_supported else None

    def extend(self, tensordicts: Any, *, update_priority: bool | None = None) -> torch.Tensor:
        """Adds rows.

        Args:
            tensordicts: a TensorDict of n rows.
            update_priority: whether to use its priority key if it has one; True by default.

        Returns:
            (n,) int64 indices of the rows.
        """
        rows = self._fast_path_rows()
        if rows is None or type(tensordicts) is not TensorDict or tensordicts.ndim != 1:
            return super().extend(tensordicts, update_priority=update_priority)
        storage, writer, n = self._storage, self._writer, tensordicts.batch_size[0]
        size = rows.size
        with self._replay_lock, self._write_lock:
            at = writer._cursor
            slots = np.arange(at, at + n)
            if at + n > size:
                slots %= size
            index = torch.from_numpy(slots)
            fits = 0 < n <= size and rows.write(tensordicts, at, n, slots)
            if fits:
                writer._cursor = (at + n) % size
                writer._write_count += n
                storage._set_last_cursor(range(at, at + n) if at + n <= size else index)
                held = storage._len
                if held < size:
                    storage._len = min(held + n, size)
                storage._bump_mutation_revision()
                writer._bump_generation(index, tensordicts)
                entities = storage._attached_entities
                if len(entities) == 1 and entities[0] is self:
                    self._sampler._mark(slots, storage)
                else:
                    writer._mark_update_entities(index)
        if not fits:
            # Rows written before the first mismatch are written again.
            return super().extend(tensordicts, update_priority=update_priority)
        if update_priority is not False and (given := _field(tensordicts, self.priority_key)) is not None:
            self.update_priority(index, given)
        return index

    def sample(
        self, batch_size: int | None = None, return_info: bool = False, include_info: bool | None = None
    ) -> Any:
        """Samples rows by priority.

        Args:
            batch_size: batch size B; by default that of the buffer.
            return_info: whether to also return a dict with ``index`` and ``priority_weight``.
            include_info: deprecated option of TorchRL.

        Returns:
            A TensorDict of B rows with ``index`` and ``priority_weight``; with ``return_info`` also the dict.
        """
        rows = self._fast_path_rows()
        size = self._batch_size if batch_size is None else batch_size
        if rows is None or size is None or include_info is not None or self._sample_dependency is not None:
            return super().sample(batch_size, return_info, include_info)
        if self._batch_size is not None and size != self._batch_size:
            return super().sample(batch_size, return_info, include_info)
        with self._replay_lock, self._write_lock:
            index, info = self._sampler.sample(self._storage, size)
            data = rows.take(index, size)
        info["index"] = index
        fields = data._tensordict
        fields["index"], fields["priority_weight"] = index, info["priority_weight"]
        return (data, info) if return_info else data

    def update_tensordict_priority(self, data: Any) -> None:
        """Sets the priorities of the rows of ``data`` to its entry ``priority_key``.

        Args:
            data: rows of :meth:`sample`, with ``index`` and the priority key.
        """
        if self._fast_path_rows() is not None and data.ndim == 1:
            index, priority = _field(data, "index"), _field(data, self.priority_key)
            if (
                index is not None
                and priority is not None
                and index.ndim == 1
                and priority.numel() == index.numel()
            ):
                with self._replay_lock, self._write_lock:
                    self._sampler.update_priority(index, priority, storage=self._storage)
                return
        super().update_tensordict_priority(data)

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        state["_rows"] = None
        return state


class _NumpyColumns:
    """The tensors of a storage's TensorDict as a flat list of numpy arrays that share their memory."""

    def __init__(self, table: Any) -> None:
        self.table = table
        self.is_supported = isinstance(table, TensorDict) and table.device in (None, torch.device("cpu"))
        # Nested TensorDicts: parent and key; the outermost is number 0. Arrays: parent, key, array.
        self.nodes: list[tuple[int, str]] = []
        self.arrays: list[tuple[int, str, NDArray[Any]]] = []
        self.fields = [0]
        # The entries when they were read, and how many each TensorDict had: callers can replace them.
        self._entries: list[tuple[dict[str, Any], str, Any]] = []
        self._sizes: list[tuple[dict[str, Any], int]] = []
        self.has_index = False
        if self.is_supported:
            self.size = len(table)
            self._walk(table, 0)

    def is_current(self) -> bool:
        """Whether no entry of the TensorDict was replaced, added or removed since."""
        for entries, key, value in self._entries:
            if entries.get(key) is not value:
                return False
        return all(len(entries) == size for entries, size in self._sizes)

    def _walk(self, table: Any, node: int) -> None:
        self._sizes.append((table._tensordict, len(table._tensordict)))
        for key, value in table._tensordict.items():
            self._entries.append((table._tensordict, key, value))
            if isinstance(value, TensorDict):
                self.nodes.append((node, key))
                self.fields[node] += 1
                self.fields.append(0)
                self._walk(value, len(self.nodes))
            elif node == 0 and key == "index":
                self.has_index = isinstance(value, torch.Tensor)
                self.index: NDArray[Any] = value.numpy()
            else:
                self.fields[node] += 1
                try:
                    self.is_supported = (
                        self.is_supported and isinstance(value, torch.Tensor) and value.is_contiguous()
                    )
                    self.arrays.append((node, key, value.numpy()))
                except (AttributeError, TypeError):  # not a tensor, or a dtype that numpy does not support
                    self.is_supported = False

    def write(self, given: Any, at: int, n: int, slots: NDArray[np.int64]) -> bool:
        """Copies n rows to ``slots``, which start at ``at`` and continue at the start of the ring.

        Returns:
            False if fields, shapes, dtypes or device do not match; some rows may have been written then.
        """
        outer = given._tensordict
        if len(outer) - ("index" in outer) != self.fields[0]:
            return False
        tables = [outer]
        try:
            for number, (parent, key) in enumerate(self.nodes, 1):
                inner = tables[parent][key]
                if type(inner) is not TensorDict or len(inner._tensordict) != self.fields[number]:
                    return False
                tables.append(inner._tensordict)
            end = at + n
            for node, key, ring in self.arrays:
                rows = tables[node][key].numpy()
                if rows.dtype != ring.dtype or rows.shape[1:] != ring.shape[1:]:
                    return False
                if end <= self.size:
                    ring[at:end] = rows
                else:
                    ring[at:] = rows[: self.size - at]
                    ring[: end - self.size] = rows[self.size - at :]
        except (
            AttributeError,
            KeyError,
            RuntimeError,
            TypeError,
        ):  # missing key, not a CPU tensor, or a tensor that requires a gradient
            return False
        if self.has_index:
            self.index[slots] = slots
        return True

    def take(self, index: torch.Tensor, n: int) -> Any:
        """Copies n rows to a new TensorDict."""
        slots, device = index.numpy(), self.table.device
        tables: list[dict[str, Any]] = [{}]
        for _ in self.nodes:
            tables.append({})
        for node, key, ring in self.arrays:
            tables[node][key] = torch.from_numpy(ring.take(slots, 0))
        for number in range(len(self.nodes), 0, -1):
            parent, key = self.nodes[number - 1]
            tables[parent][key] = _tensordict(tables[number], n, device)
        if self.has_index:
            tables[0]["index"] = index
        return _tensordict(tables[0], n, device)


def _transforms(transform: Any) -> bool:
    """Whether a buffer's transform contains any transforms."""
    if transform is None:
        return False
    try:  # Called three times a step; reads the attributes that ``len`` reads, without its overhead.
        return bool(transform._modules["transforms"]._modules)
    except (AttributeError, KeyError):
        return True


def _field(data: Any, key: Any) -> Any:
    """A tensor of a TensorDict, or None: the result of ``get`` without its overhead."""
    if type(data) is TensorDict and type(key) is str:
        return data._tensordict.get(key)
    return data.get(key, None)


def _tensordict(fields: dict[str, Any], n: int, device: Any) -> Any:
    """Makes a TensorDict of fields known to match, unchecked if the version of tensordict allows it."""
    make = getattr(TensorDict, "_new_unsafe", None)
    if make is None:
        return TensorDict(fields, batch_size=[n], device=device)
    return make(source=fields, batch_size=torch.Size((n,)), device=device)
