"""Prioritized replay with n-step returns, for one process or many.

Source: Schaul et al. (2016), "Prioritized Experience Replay"; Horgan et al. (2018), "Distributed Prioritized
Experience Replay", for n-step returns and priorities given on insertion.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from parl._native import Replay as _Replay
from parl.replay.batch import Batch

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike, NDArray

    FieldSpec = tuple[int | Sequence[int], DTypeLike] | Mapping[str, Any]

Mode = Literal[
    "stratified", "independent", "systematic", "without_replacement", "split", "uniform", "largest"
]
Autoreset = Literal["next_step", "same_step", "disabled"]


class PrioritizedReplay:
    """Rows drawn with probability proportional to ``(|priority| + epsilon) ** alpha``.

    Any number of threads, and with ``shared`` any number of processes, may add, sample and update at once;
    sampling waits for nobody. A row is never seen half written, and a priority that arrives after its row
    was overwritten is dropped and counted (:attr:`stale_updates`).

    The names of some fields have a meaning. ``terminated`` (bool) makes rows steps of episodes: then
    ``reward`` (float32 or float64) is needed, ``truncated`` (bool) is understood, and every field ``obs`` or
    ``obs_*`` has a next observation: the field ``next_obs`` or ``next_obs_*`` if there is one, else it is
    taken from the next row of the same environment, so that each observation is stored once. All other
    fields are just copied.

    A sampled transition spans the ``k <= n_step`` steps up to the end of its episode: ``reward`` is the sum
    of ``gamma**i * r[i]``, ``next_obs`` the observation after them, ``terminated`` and ``truncated`` say how
    the span ended, and ``discount`` is ``gamma**k``, or 0 if it ended by termination, so that the target is
    ``reward + discount * value(next_obs)``. A row can be drawn as soon as all of that is known; until then
    it has weight 0. After termination without a stored final observation, ``next_obs`` is the last one (its
    discount is 0).

    Args:
        capacity: rows kept; the oldest are overwritten.
        fields: name -> (shape, dtype), shape without the row.
        alpha: exponent of the priority; 0 draws uniformly.
        n_step: steps summed into one transition.
        gamma: discount per step.
        epsilon: added to the absolute priority.
        fan_out: children per node of the sum tree: 4, 8, 16, 32 or 64.
        num_envs: environments are numbered ``0..num_envs``.
        autoreset: as in gymnasium. ``"next_step"``: the row after a done row carries the final observation,
            its action and reward mean nothing, and it is never drawn. ``"same_step"`` and ``"disabled"``:
            the row after a done row begins the next episode, and truncated rows come with ``final_obs``.
        shared: name of shared memory, to create or, if a process already uses it, attach to.
        seed: of the draws.
        weight_norm: importance weights are divided by the largest of the ``"batch"`` or of all rows
            (``"global"``: by a bound of it within a factor of ``2**beta``, which costs no search).
        writer: ``"lock_free"``: updates of the tree never wait. ``"combining"``: they take turns, with plain
            instructions inside, which costs less; not with ``shared``.

    Raises:
        ValueError: a setting is out of its bounds.
        MemoryError: there is not enough memory.
        SharedMemoryError: ``shared`` exists with other settings.
    """

    _fixed: ClassVar[Mapping[str, Any]] = {}

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, FieldSpec],
        *,
        alpha: float = 0.6,
        n_step: int = 1,
        gamma: float = 0.99,
        epsilon: float = 1e-6,
        fan_out: int = 16,
        num_envs: int = 1024,
        autoreset: Autoreset = "next_step",
        shared: str | None = None,
        seed: int = 0,
        weight_norm: Literal["batch", "global"] = "batch",
        writer: Literal["lock_free", "combining"] = "lock_free",
    ) -> None:
        if writer not in ("lock_free", "combining"):
            raise ValueError(f"writer {writer!r} is outside lock_free, combining")
        specs = [_field(name, spec) for name, spec in fields.items()]
        self._take(
            _Replay(
                _natural("capacity", capacity),
                specs,
                alpha=float(alpha),
                n_step=_natural("n_step", n_step),
                gamma=float(gamma),
                epsilon=float(epsilon),
                fan_out=_natural("fan_out", fan_out),
                num_envs=_natural("num_envs", num_envs),
                autoreset=str(autoreset),
                weight_norm=str(weight_norm),
                seed=int(seed) & (2**64 - 1),
                shared=shared,
                combining=writer == "combining",
            )
        )

    @classmethod
    def _of(cls, core: _Replay) -> Self:
        replay = cls.__new__(cls)
        replay._take(core)
        return replay

    def _take(self, core: _Replay) -> None:
        self._core = core
        self._settings = core.settings()
        self._fields = [
            (name, np.dtype(dtype), tuple(shape)) for name, dtype, shape, _ in self._settings["fields"]
        ]
        by_name = {name: (name, dtype, shape) for name, dtype, shape in self._fields}
        self._final = [by_name[name] for name in core.final_fields()]
        self._outputs = [(name, np.dtype(dtype), tuple(shape)) for name, dtype, shape in core.outputs()]
        self._names = frozenset(by_name)

    @classmethod
    def attach(cls, name: str) -> Self:
        """The replay that another process made with ``shared=name``.

        Raises:
            SharedMemoryError: there is none, or it is something else.
        """
        return cls._of(_Replay.attach(name))

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, shared: str | None = None) -> Self:
        """The replay that :meth:`save` wrote: same rows, priorities, tickets and future draws.

        Raises:
            FileNotFoundError: there is no such file.
            ReplayFileError: it is no replay, truncated, damaged, or of a newer version. Nothing is left
                behind.
        """
        return cls._of(_Replay.load(os.fspath(path), shared))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything to ``path`` at once or not at all; adds and updates of others wait meanwhile."""
        self._core.save(os.fspath(path))

    def add(
        self,
        *,
        env_id: ArrayLike | None = None,
        priorities: ArrayLike | None = None,
        **columns: Any,
    ) -> NDArray[np.uint64]:
        """Adds n rows.

        Args:
            env_id: (n,) integers, the environment of each row; by default row i is from environment i.
            priorities: (n,) float; by default the largest priority so far.
            **columns: every field, (n, *shape), numpy or anything numpy takes. With ``autoreset`` other than
                ``"next_step"`` also ``final_obs`` (``final_`` and the name of each observation without a
                next one): (n, *shape), or a sequence with None for rows that are not truncated.

        Returns:
            (n,) uint64 tickets, for :meth:`update_priorities`.

        Raises:
            ValueError: a field is missing, unknown, or of the wrong shape or dtype; a priority is not
                finite; a truncated row lacks its final observation.
            IndexError: an environment is outside ``0..num_envs``.
        """
        finals = {name: columns.pop("final_" + name, None) for name, _, _ in self._final}
        if columns.keys() != self._names:
            raise ValueError(_difference(columns, self._names))
        rows = -1
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape in self._fields:
            array = _rows(name, columns[name], dtype)
            if rows < 0:
                rows = len(array) if array.ndim else -1
            if array.shape != (rows, *shape):
                wanted = ("n" if rows < 0 else rows, *shape)
                raise ValueError(f"{name} has shape {array.shape}, expected {wanted}")
            arrays.append(array)
        mask, final_arrays = self._final_rows(finals, rows)
        return self._core.add(arrays, rows, env_id, priorities, mask, final_arrays)

    def _final_rows(
        self, finals: Mapping[str, Any], rows: int
    ) -> tuple[NDArray[np.bool_] | None, list[NDArray[Any]]]:
        if all(value is None for value in finals.values()):
            return None, []
        mask: NDArray[np.bool_] | None = None
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape in self._final:
            value = finals[name]
            if value is None:
                raise ValueError(f"final_{name} is missing, the other final observations are there")
            present, array = _sparse_rows("final_" + name, value, dtype, shape, rows)
            mask = present if mask is None else mask & present
            arrays.append(array)
        return mask, arrays

    def sample(
        self,
        batch_size: int,
        *,
        beta: float = 0.4,
        as_torch: bool = False,
        out: Mapping[str, Any] | None = None,
        mode: Mode = "stratified",
        rank: int = 0,
        learners: int = 1,
        uniform: float = 0.0,
        newest: float = 0.0,
        newest_rows: int | None = None,
    ) -> Batch:
        """Draws transitions.

        Args:
            batch_size: B, how many.
            beta: exponent of the importance weights, ``(smallest weight / weight) ** beta``.
            as_torch: return torch tensors on the CPU (no copy) instead of numpy arrays; tickets stay numpy.
            out: arrays of an earlier batch of this size to be overwritten.
            mode: ``"stratified"`` (one draw from each of B equal parts of the total weight),
                ``"independent"``, ``"systematic"``, ``"without_replacement"``, or ``"split"``: stratified
                draws of ``learners`` callers from parts of their own, this one being ``rank``. Not by
                priority, and with weights of 1: ``"uniform"``, and ``"largest"``, the rows of largest
                priority in order (reads all priorities).
            rank: of this caller, for ``"split"``.
            learners: callers, for ``"split"``.
            uniform: share of the batch that is drawn uniformly instead of by priority.
            newest: share that is drawn uniformly among the newest rows.
            newest_rows: how many rows count as newest, by default ``batch_size``; more do while none of them
                can be drawn yet. The batch then begins with the newest rows, then come the uniform ones, and
                weights follow from the probabilities of the mixture.

        Returns:
            the fields, (B, *shape) each; next observations; ``discount`` (B,) float32; ``indices`` (B,)
            int64 slots; ``weights`` (B,) float32, the largest 1; ``tickets`` (B,) uint64.

        Raises:
            NotSampleableError: no row can be drawn yet.
            ValueError: a mode, share or size that cannot be served, or an array of ``out`` that does not fit.
        """
        size = _natural("batch_size", batch_size)
        if out is None:
            fields = [np.empty((size, *shape), dtype) for _, dtype, shape in self._outputs]
            discount, weights = np.empty(size, np.float32), np.empty(size, np.float32)
            indices, tickets = np.empty(size, np.int64), np.empty(size, np.uint64)
        else:
            fields = [_given(out, name, (size, *shape), dtype) for name, dtype, shape in self._outputs]
            discount = _given(out, "discount", (size,), np.dtype(np.float32))
            weights = _given(out, "weights", (size,), np.dtype(np.float32))
            indices = _given(out, "indices", (size,), np.dtype(np.int64))
            tickets = _given(out, "tickets", (size,), np.dtype(np.uint64))
        self._core.sample(
            fields,
            discount,
            indices,
            weights,
            tickets,
            beta=float(beta),
            mode=mode,
            rank=rank,
            learners=learners,
            uniform=uniform,
            newest=newest,
            newest_rows=size if newest_rows is None else _natural("newest_rows", newest_rows),
        )
        batch = Batch(zip((name for name, _, _ in self._outputs), fields, strict=True))
        if self._core.has_discounts:
            batch["discount"] = discount
        batch["indices"], batch["weights"] = indices, weights
        if as_torch:
            from_numpy = _from_numpy()
            for name, array in batch.items():
                batch[name] = from_numpy(array)
        batch["tickets"] = tickets
        return batch

    def update_priorities(self, tickets: ArrayLike, priorities: ArrayLike) -> int:
        """Gives rows new priorities; of equal tickets the last one wins.

        Args:
            tickets: (B,) uint64, as :meth:`add` and :meth:`sample` gave them.
            priorities: (B,) float, numpy or torch; their absolute values count, say TD errors.

        Returns:
            how many were dropped because their row had been overwritten.

        Raises:
            ValueError: a priority is not finite, or the lengths differ; then nothing was stored.
            IndexError: a ticket that is none of this replay's.
        """
        return self._core.update(tickets, priorities)

    def evict(self, rows: int) -> int:
        """Takes rows out of circulation before their time, small priorities first (prioritized eviction).

        The rows are distinct, each drawn with probability proportional to one over
        ``(|priority| + epsilon) ** alpha``. They are never sampled again and their tickets are stale; their
        memory is used again when the ring comes round to it. Reads all priorities.

        Returns:
            how many were taken: fewer than asked if others closed some of them in the same moment.

        Raises:
            NotSampleableError: fewer rows can be drawn.
        """
        return self._core.evict(_natural("rows", rows))

    def end_episodes(self, env_id: ArrayLike) -> None:
        """Ends the episodes of these environments where they stand, as after a crash of an environment.

        The next row of each starts a new episode. Rows that still wait for their n-step window are never
        drawn.
        """
        self._core.cut(env_id)

    def verify(self) -> None:
        """Checks that every sum of the tree is exact.

        Raises:
            InconsistentError: names the first one that is not.
        """
        self._core.verify()

    def close(self) -> None:
        """Leaves shared memory; the maker's close and the last one's remove its name. Twice is once."""
        self._core.close()

    def unlink(self) -> None:
        """Removes the name of shared memory now: nobody new can attach, who has it keeps it."""
        self._core.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Rows held, drawable or not, at most the capacity."""
        return len(self._core)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {shape} {dtype}" for name, dtype, shape in self._fields)
        return f"{type(self).__name__}({len(self)}/{self.capacity} rows, {fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.shared is None:
            raise TypeError(
                "a replay in private memory cannot be pickled; make it with shared=... or save it"
            )
        return type(self).attach, (self.shared,)

    @property
    def capacity(self) -> int:
        """Rows kept."""
        return cast("int", self._settings["capacity"])

    @property
    def nbytes(self) -> int:
        """Bytes of memory, all included."""
        return self._core.nbytes

    @property
    def shared(self) -> str | None:
        """Name of the shared memory, None for private memory."""
        return self._core.shared

    @property
    def settings(self) -> dict[str, Any]:
        """What the replay was made with."""
        return dict(self._settings)

    @property
    def sampleable(self) -> int:
        """Rows whose window is complete."""
        return self._core.sampleable

    @property
    def total_priority(self) -> float:
        """Sum of ``(|priority| + epsilon) ** alpha`` over all rows that can be drawn."""
        return self._core.total

    @property
    def counters(self) -> dict[str, int]:
        """Since the replay was made: added, sampled, redrawn, updated, stale, saturated, restarts, recovered.

        Readable at any time, without stopping anybody.
        """
        return self._core.counters()

    @property
    def max_priority(self) -> float:
        """The largest ``(|priority| + epsilon) ** alpha`` given so far, which new rows get; 1 at first."""
        return self._core.largest

    def histogram(self) -> NDArray[np.uint64]:
        """Rows by the size of ``(|priority| + epsilon) ** alpha``, without stopping anybody.

        Returns:
            (33,) uint64: entry k counts those in ``2**(k-17) <= size < 2**(k-16)``; entry 0 the slots that
            cannot be drawn.
        """
        return self._core.histogram()

    @property
    def stale_updates(self) -> int:
        """Priorities that were dropped because their row had been overwritten."""
        return self._core.counters()["stale"]

    @property
    def saturated(self) -> int:
        """Priorities that were too large for a weight and stored as the largest one."""
        return self._core.counters()["saturated"]

    @property
    def rng_state(self) -> tuple[int, int]:
        """Seed and number of sample calls: all that the next draws depend on besides the priorities."""
        seed, calls = self._core.rng_state
        return seed, calls

    @rng_state.setter
    def rng_state(self, state: tuple[int, int]) -> None:
        self._core.rng_state = list(state)


def _natural(name: str, value: int) -> int:
    number = value.__index__()
    if not 0 <= number < 2**63:
        raise ValueError(f"{name} {number} is outside 0..2**63")
    return number


def _field(name: str, spec: FieldSpec) -> tuple[str, str, list[int], int]:
    shape_like, dtype_like = (spec["shape"], spec["dtype"]) if isinstance(spec, Mapping) else spec
    shape = [shape_like] if isinstance(shape_like, int) else [_natural("shape", n) for n in shape_like]
    dtype = np.dtype(dtype_like)
    if dtype.hasobject or dtype.names is not None or not dtype.isnative or dtype.itemsize == 0:
        raise ValueError(f"field {name!r} has dtype {dtype}, expected numbers or bytes of fixed size")
    return name, dtype.str, shape, dtype.itemsize * int(np.prod(shape, dtype=np.int64))


def _difference(columns: Mapping[str, Any], names: frozenset[str]) -> str:
    missing, unknown = sorted(names - columns.keys()), sorted(columns.keys() - names)
    parts = [f"missing {', '.join(missing)}"] if missing else []
    parts += [f"unknown {', '.join(unknown)}"] if unknown else []
    return f"fields do not match: {'; '.join(parts)}"


def _rows(name: str, value: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    """``value`` as a C-contiguous array of ``dtype``; casts within a kind, never from real to integer."""
    if not isinstance(value, np.ndarray):
        if hasattr(value, "detach"):
            value = value.detach().cpu().numpy()
        elif not hasattr(value, "dtype"):
            # Plain Python numbers take the field's type if they fit it.
            try:
                given = np.asarray(value)
                kinds = "biu" if dtype.kind in "biu" else "biufc"
                if given.size and given.dtype.kind in kinds:
                    array = np.asarray(value, dtype, order="C")
                    if dtype.kind in "biu" and not np.array_equal(array, given):
                        raise ValueError(f"{name} holds a number that {dtype} does not")
                    return array
            except OverflowError as error:
                raise ValueError(f"{name} holds a number that {dtype} does not: {error}") from None
            value = given.astype(dtype) if given.size == 0 else given
        else:
            value = np.asarray(value)
    array = cast("NDArray[Any]", value)
    if array.dtype != dtype:
        same = array.dtype.kind == "b" and dtype.kind in "biu" and dtype.itemsize == 1
        if not (same or np.can_cast(array.dtype, dtype, "same_kind")):
            raise ValueError(f"{name} has dtype {array.dtype}, which does not go into {dtype}")
        return np.ascontiguousarray(array, dtype).reshape(array.shape)
    return array if array.flags.c_contiguous else np.ascontiguousarray(array)


def _sparse_rows(
    name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], rows: int
) -> tuple[NDArray[np.bool_], NDArray[Any]]:
    """Final observations: an array of all rows, or a sequence with None where there is none."""
    is_object = isinstance(value, np.ndarray) and value.dtype.hasobject
    if is_object or isinstance(value, (list, tuple)):
        values = cast("Sequence[Any]", value)
        if len(values) != rows:
            raise ValueError(f"{name} has {len(values)} rows, expected {rows}")
        mask = np.array([one is not None for one in values], np.bool_)
        array = np.zeros((rows, *shape), dtype)
        for i in np.flatnonzero(mask).tolist():
            row = _rows(name, values[i], dtype)
            if row.shape != shape:
                raise ValueError(f"{name}[{i}] has shape {row.shape}, expected {shape}")
            array[i] = row
        return mask, array
    array = _rows(name, value, dtype)
    if array.shape != (rows, *shape):
        raise ValueError(f"{name} has shape {array.shape}, expected {(rows, *shape)}")
    return np.ones(rows, np.bool_), array


def _given(out: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    value = out.get(name)
    if value is None:
        return np.empty(shape, dtype)
    array = cast("NDArray[Any]", value if isinstance(value, np.ndarray) else value.numpy())
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"out[{name!r}] is {array.shape} {array.dtype}, expected {shape} {dtype}")
    return array


def _from_numpy() -> Any:
    import torch

    return torch.from_numpy
