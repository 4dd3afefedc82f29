"""cpprb's ``ReplayBuffer`` and ``PrioritizedReplayBuffer``, so that a script changes one import.

Class, method and argument names, shapes and dtypes are those of cpprb 11, which need not be installed.
Differences: an index outside the buffer, a priority that is not finite, an unknown field and sampling from an
empty buffer are errors; priorities for overwritten rows are always detected (``check_for_update``); with
``Nstep`` the last rows of an episode that was truncated without ``done`` have correct next values; rows that
are added or loaded together keep the given next values, also if an episode ends between two of them (cpprb's
``next_of`` uses the next row's values instead); ``stack_compress`` has no effect, so that stacks take their
full memory.

Source: Schaul et al. (2016), "Prioritized Experience Replay".
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parl.adapters._slots import Slots, exponent
from parl.errors import NotSampleableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import ArrayLike, DTypeLike, NDArray

__all__ = ["PrioritizedReplayBuffer", "ReplayBuffer"]


class ReplayBuffer:
    """Replay buffer that samples rows uniformly.

    Args:
        size: number of rows kept; then the oldest are overwritten.
        env_dict: name -> ``{"shape": ..., "dtype": ...}``; defaults are the shape 1 and ``default_dtype``.
        next_of: names of fields whose next values, named ``"next_"`` and the field's name, are those of the
            next row, so that each value is stored once.
        stack_compress: names of stacked fields; only checked to be fields.
        default_dtype: dtype of fields without one; ``numpy.float32`` by default.
        Nstep: ``{"size": n, "rew": names, "gamma": 0.99, "next": names}`` for n-step rows; needs ``"done"``.
        mmap_prefix: if given, each field is stored in a file named ``{mmap_prefix}_{field}.dat``.

    Raises:
        ValueError: the size is below 1.
        KeyError: a named field is not in ``env_dict``.
    """

    def __init__(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None = None,
        next_of: str | Sequence[str] | None = None,
        *,
        stack_compress: str | Sequence[str] | None = None,
        default_dtype: DTypeLike | None = None,
        Nstep: Mapping[str, Any] | None = None,  # noqa: N803 - cpprb's name
        mmap_prefix: str | None = None,
        **_: Any,
    ) -> None:
        self._size = int(size)
        if self._size < 1:
            raise ValueError(f"size {size} is below 1")
        specs: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
        for name, spec in (env_dict or {}).items():
            shape = np.atleast_1d(np.asarray(spec.get("shape", 1), int))
            dtype = spec.get("dtype") or default_dtype or np.float32
            specs[name] = tuple(int(n) for n in shape), np.dtype(dtype)
        self._next_of = _names(next_of)
        for name in (*self._next_of, *_names(stack_compress)):
            if name not in specs:
                raise KeyError(f"field {name!r} is not in env_dict, which has {', '.join(specs)}")
        self._row_fields = {name: specs[name] for name in specs if not self._is_next(name)}
        self._fields = self._row_fields | {f"next_{name}": specs[name] for name in self._next_of}
        self._arrays = {
            name: _array(None if mmap_prefix is None else f"{mmap_prefix}_{name}.dat", self._size, *spec)
            for name, spec in self._row_fields.items()
        }
        # Next values that are not those of the next row: of the newest row and at the ends of episodes.
        self._own_next: dict[int, dict[str, NDArray[Any]]] = {}
        self._has_own_next = np.zeros(self._size, np.bool_)
        self._n_step = None if Nstep is None else _NStep(Nstep, self._fields)
        self._rng: np.random.Generator | None = None
        self.clear()

    def _is_next(self, name: str) -> bool:
        return name.startswith("next_") and name[5:] in self._next_of

    def clear(self) -> None:
        """Removes all rows."""
        self._at = self._stored = self._episode = 0
        self._own_next.clear()
        self._has_own_next[:] = False
        self._chained = False
        if self._n_step is not None:
            self._n_step.pending.clear()

    def add(self, **kwargs: Any) -> int | None:
        """Adds one row or several.

        Args:
            **kwargs: every field, (*shape) or (n, *shape).

        Returns:
            Index of the first row; None if the n steps of all of them are incomplete.

        Raises:
            KeyError: a field is missing or unknown.
            ValueError: a field has another shape, or fields have different numbers of rows.
        """
        return self._add(kwargs, None)

    def _add(self, columns: dict[str, Any], priorities: NDArray[np.float64] | None) -> int | None:
        rows, n = self._rows(columns)
        if priorities is not None and priorities.ndim and len(priorities) != n:
            raise ValueError(f"priorities has length {len(priorities)}, expected {n}")
        if self._n_step is None:
            return self._store(rows, n, priorities)
        first = None
        for i in range(n):
            given = None if priorities is None else float(priorities[i] if priorities.ndim else priorities)
            done = self._n_step.push({name: rows[name][i] for name in rows}, given)
            at = self._put(done)
            first = at if first is None else first
        return first

    def _put(self, finished: Iterable[tuple[dict[str, NDArray[Any]], float | None]]) -> int | None:
        first = None
        for row, priority in finished:
            given = None if priority is None else np.asarray(priority)
            at = self._store({name: value[None] for name, value in row.items()}, 1, given)
            first = at if first is None else first
        return first

    def _rows(self, columns: dict[str, Any]) -> tuple[dict[str, NDArray[Any]], int]:
        """The fields of ``columns`` as (n, *shape), and n."""
        if columns.keys() != self._fields.keys():
            missing = [name for name in self._fields if name not in columns]
            unknown = [name for name in columns if name not in self._fields]
            raise KeyError(f"fields missing: {missing}, unknown: {unknown}")
        rows: dict[str, NDArray[Any]] = {}
        n = -1
        for name, (shape, dtype) in self._fields.items():
            given = np.asarray(columns[name], dtype)
            try:
                rows[name] = given.reshape(-1, *shape)
            except ValueError:
                raise ValueError(
                    f"{name} has shape {given.shape}, expected {shape} or (n, *{shape})"
                ) from None
            if n >= 0 and len(rows[name]) != n:
                raise ValueError(f"{name} has {len(rows[name])} rows, the fields before it have {n}")
            n = len(rows[name])
        return rows, n

    def _store(self, rows: dict[str, NDArray[Any]], n: int, priorities: NDArray[np.float64] | None) -> int:
        first, size = self._at, self._size
        skip = max(n - size, 0)
        slots = np.arange(first + skip, first + n) % size
        for name, array in self._arrays.items():
            array[slots] = rows[name][skip:]
        self._at, self._stored = (first + n) % size, min(self._stored + n, size)
        self._episode += n
        if self._next_of and n:
            # Without ``Nstep`` the next values of the previous row are always those of this row.
            if self._chained and (self._n_step is None or self._follows((first - 1) % size, rows)):
                self._use_next_row((first - 1) % size)
            for slot in slots[self._has_own_next[slots]]:
                self._use_next_row(int(slot))
            for i in (0,) if n == 1 else self._ends(rows, skip, n):
                slot = (first + i) % size
                self._own_next[slot] = {name: rows[f"next_{name}"][i].copy() for name in self._next_of}
                self._has_own_next[slot] = True
            self._chained = True
        self._written(slots, priorities if priorities is None or not priorities.ndim else priorities[skip:])
        return first

    def _follows(self, slot: int, rows: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the next values of the row in this slot equal the first of ``rows``."""
        nexts = self._own_next.get(slot, {})
        return all(np.array_equal(nexts.get(f"next_{name}", ()), rows[name][0]) for name in self._next_of)

    def _ends(self, rows: Mapping[str, NDArray[Any]], first: int, n: int) -> list[int]:
        """The rows of ``first..n`` whose next values differ from the following row, and the last row."""
        differs = np.zeros(n - first, np.bool_)
        differs[-1] = True
        for name in self._next_of:
            other = rows[f"next_{name}"][first : n - 1] != rows[name][first + 1 : n]
            differs[:-1] |= other.reshape(n - first - 1, math.prod(other.shape[1:])).any(1)
        return (np.flatnonzero(differs) + first).tolist()

    def _use_next_row(self, slot: int) -> None:
        """Makes the next row supply the next values of this row."""
        self._own_next.pop(slot, None)
        self._has_own_next[slot] = False

    def _written(self, slots: NDArray[np.int64], priorities: NDArray[np.float64] | None) -> None:
        """Called after rows were written; subclasses store priorities."""

    def on_episode_end(self) -> None:
        """Ends the episode: later rows are not the next rows of earlier ones."""
        if self._n_step is not None:
            self._put(self._n_step.finish())
        self._chained = False
        self._episode = 0

    def sample(self, batch_size: int) -> dict[str, NDArray[Any]]:
        """Samples rows uniformly.

        Returns:
            Name -> (B, *shape).

        Raises:
            NotSampleableError: the buffer is empty.
        """
        if self._stored == 0:
            raise NotSampleableError("the buffer is empty")
        if self._rng is None:
            self._rng = np.random.default_rng(np.random.randint(2**31))
        return self._take(self._rng.integers(0, self._stored, batch_size))

    def _take(self, slots: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        found = {name: array.take(slots, 0) for name, array in self._arrays.items()}
        if self._next_of:
            after = (slots + 1) % self._size
            loose = np.flatnonzero(self._has_own_next.take(slots))
            for name in self._next_of:
                found[f"next_{name}"] = values = self._arrays[name].take(after, 0)
                for i in loose:
                    values[i] = self._own_next[int(slots[i])][name]
        return found

    def get_all_transitions(self, shuffle: bool = False) -> dict[str, NDArray[Any]]:
        """All rows, in the order of their indices or shuffled."""
        slots = np.arange(self._stored)
        return self._take(np.random.permutation(slots) if shuffle else slots)

    def save_transitions(self, file: Any, *, safe: bool = True) -> None:
        """Writes all rows to ``file``, a path or an open file, as numpy's ``.npz``.

        Args:
            file: the path or open file.
            safe: whether to write all next values of ``next_of`` fields, so that programs without this class
                can read them. With False only the next values that differ from the next row are written,
                which makes the file smaller.
        """
        rows = self.get_all_transitions()
        arrays: dict[str, Any] = {}
        if not safe and self._next_of:
            ends = np.flatnonzero(self._has_own_next[: self._stored])
            arrays["ends"] = ends
            for name in self._next_of:
                arrays[f"end.next_{name}"] = rows.pop(f"next_{name}")[ends]
        arrays |= {f"row.{name}": array for name, array in rows.items()}
        arrays["n_step"] = 1 if self._n_step is None else self._n_step.n
        arrays["gamma"] = 1.0 if self._n_step is None else self._n_step.gamma
        np.savez_compressed(file, **arrays)

    def load_transitions(self, file: Any) -> None:
        """Adds the rows of a file that :meth:`save_transitions`, of this class or of cpprb, wrote.

        The rows are separate episodes: they are not the next rows of earlier rows, and rows that are added
        later are not their next rows.

        cpprb's files are pickles, and loading a pickle can run code: load only files that you trust.

        Raises:
            KeyError: the file has no values for a field of this buffer.
            ValueError: the file is not such a file, or its rows were made with another number of steps or
                discount than this buffer's ``Nstep``.
        """
        with np.load(file, allow_pickle=True) as arrays:
            rows = _saved_rows(arrays)
            if not rows:
                raise ValueError(f"{file} holds no transitions")
            self._check_steps(file, arrays)
        if missing := [name for name in self._fields if name not in rows]:
            raise KeyError(f"{file} has no {', '.join(missing)}; it has {', '.join(rows)}")
        found, n = self._rows({name: rows[name] for name in self._fields})
        episode, self._chained = self._episode, False
        self._store(found, n, None)
        self._episode, self._chained = episode, False

    def _check_steps(self, file: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Checks that the rows of a file span as many steps as those of this buffer.

        cpprb's files only have a flag for n-step rows; files of earlier versions of this class have nothing.
        """
        n, gamma = (1, 1.0) if self._n_step is None else (self._n_step.n, self._n_step.gamma)
        ours = f"this buffer has Nstep size {n}, gamma {gamma}"
        if "n_step" in arrays:
            theirs = int(arrays["n_step"]), float(arrays["gamma"])
            if theirs != (n, gamma):
                raise ValueError(f"the rows of {file} have Nstep size {theirs[0]}, gamma {theirs[1]}; {ours}")
        elif "Nstep" in arrays and bool(arrays["Nstep"]) != (self._n_step is not None):
            kind = "n-step" if arrays["Nstep"] else "1-step"
            raise ValueError(f"{file} holds {kind} rows; {ours}")

    def get_buffer_size(self) -> int:
        """Largest number of rows."""
        return self._size

    def get_stored_size(self) -> int:
        """Number of rows stored."""
        return self._stored

    def get_next_index(self) -> int:
        """Index of the next row to be written."""
        return self._at

    def get_current_episode_len(self) -> int:
        """Number of rows stored since the episode began."""
        return self._episode

    def is_Nstep(self) -> bool:  # noqa: N802 - cpprb's name
        """Whether rows are n-step rows."""
        return self._n_step is not None

    def __len__(self) -> int:
        """Number of rows stored."""
        return self._stored


class PrioritizedReplayBuffer(ReplayBuffer):
    """Replay buffer that samples rows with probability proportional to ``(priority + eps) ** alpha``.

    Args:
        size: number of rows kept; then the oldest are overwritten.
        env_dict: as of :class:`ReplayBuffer`.
        alpha: exponent of the priority.
        Nstep: as of :class:`ReplayBuffer`.
        eps: added to priorities.
        check_for_update: ignored; a priority for a row that was overwritten after it had been sampled is
            always dropped.
        **kwargs: further arguments of :class:`ReplayBuffer`.

    Raises:
        ValueError: a setting is out of its bounds.
        KeyError: a named field is not in ``env_dict``.
    """

    def __init__(
        self,
        size: int,
        env_dict: Mapping[str, Mapping[str, Any]] | None = None,
        alpha: float = 0.6,
        *,
        Nstep: Mapping[str, Any] | None = None,  # noqa: N803 - cpprb's name
        eps: float = 1e-4,
        check_for_update: bool = False,
        **kwargs: Any,
    ) -> None:
        self._slots = Slots(max(int(size), 1), alpha=alpha, epsilon=eps)
        super().__init__(size, env_dict, Nstep=Nstep, **kwargs)

    def clear(self) -> None:
        """Removes all rows and their priorities."""
        super().clear()
        self._slots.clear()

    def add(self, *, priorities: ArrayLike | None = None, **kwargs: Any) -> int | None:
        """Adds one row or several.

        Args:
            priorities: one number, or (n,); by default the largest so far.
            **kwargs: every field, (*shape) or (n, *shape).

        Returns:
            Index of the first row; None if the n steps of all of them are incomplete.

        Raises:
            KeyError: a field is missing or unknown.
            ValueError: a field has another shape, or a priority is not finite.
        """
        if priorities is None:
            return self._add(kwargs, None)
        given = np.asarray(priorities, np.float64)
        if not np.isfinite(given).all():
            raise ValueError(f"priority {given[~np.isfinite(given)].flat[0]} is not finite")
        return self._add(kwargs, given.reshape(-1) if given.size > 1 else given.reshape(()))

    def _written(self, slots: NDArray[np.int64], priorities: NDArray[np.float64] | None) -> None:
        self._slots.write(slots, priorities)

    def sample(self, batch_size: int, beta: float = 0.4) -> dict[str, NDArray[Any]]:
        """Samples rows by priority, stratified.

        Args:
            batch_size: batch size B.
            beta: exponent of the importance weights.

        Returns:
            Name -> (B, *shape); ``weights`` (B,) float32, ``(smallest weight / weight) ** beta``;
            ``indexes`` (B,) uint64.

        Raises:
            NotSampleableError: the buffer is empty.
            ValueError: beta is negative or not finite.
        """
        if not 0.0 <= beta < math.inf:
            exponent("beta", beta)
        if self._stored == 0:
            raise NotSampleableError("the buffer is empty")
        slots, weights = self._slots.draw(batch_size)
        found = self._take(slots)
        found["weights"] = ((weights / self._slots.smallest) ** -beta).astype(np.float32)
        found["indexes"] = slots.astype(np.uint64)
        return found

    def update_priorities(self, indexes: ArrayLike, priorities: ArrayLike) -> None:
        """Sets the priorities of rows; for equal indexes the last one counts.

        Args:
            indexes: (B,) integers.
            priorities: (B,) float; their absolute values are used.

        Raises:
            TypeError: one of them is None.
            IndexError: an index is outside the buffer.
            ValueError: a priority is not finite, or the lengths differ.
        """
        if cast("Any", indexes) is None or cast("Any", priorities) is None:
            raise TypeError("indexes and priorities are needed, None was given")
        slots = np.asarray(indexes).astype(np.int64).reshape(-1)
        given = np.asarray(priorities, np.float64).reshape(-1)
        if len(given) != len(slots):
            raise ValueError(f"priorities has length {len(given)}, expected {len(slots)}")
        self._slots.update(slots, given)

    def get_max_priority(self) -> float:
        """The largest priority so far, at least 1."""
        return self._slots.max_priority

    @property
    def stale_updates(self) -> int:
        """Number of priorities that were dropped because their row had been overwritten."""
        return self._slots.stale


class _NStep:
    """Sums rewards over n rows; a row is complete after n - 1 more rows, or at the end of its episode."""

    def __init__(
        self, options: Mapping[str, Any], fields: Mapping[str, tuple[tuple[int, ...], np.dtype[Any]]]
    ) -> None:
        self.n = int(options["size"])
        if self.n < 1:
            raise ValueError(f"Nstep size {self.n} is below 1")
        self.gamma = float(options.get("gamma", 0.99))
        self.rewards, self.nexts = _names(options.get("rew")), _names(options.get("next"))
        for name in (*self.rewards, *self.nexts, "done"):
            if name not in fields:
                raise KeyError(f"Nstep needs the field {name!r}, env_dict has {', '.join(fields)}")
        for name in self.rewards:
            if fields[name][1].kind != "f":
                raise TypeError(
                    f"Nstep needs rewards that are floats, the field {name!r} is {fields[name][1]}"
                )
        self.pending: list[tuple[dict[str, NDArray[Any]], float | None]] = []

    def push(
        self, row: dict[str, NDArray[Any]], priority: float | None
    ) -> Iterator[tuple[dict[str, NDArray[Any]], float | None]]:
        """Adds a row, and yields the row that this completes, if any."""
        for lag, (earlier, _) in zip(range(len(self.pending), 0, -1), self.pending, strict=True):
            if earlier["done"].any():
                continue
            for name in self.rewards:
                earlier[name] += earlier[name].dtype.type(self.gamma**lag) * row[name]
            for name in self.nexts:
                earlier[name][...] = row[name]
            earlier["done"][...] = row["done"]
        self.pending.append(({name: np.array(value) for name, value in row.items()}, priority))
        if len(self.pending) == self.n:
            yield self.pending.pop(0)

    def finish(self) -> Iterator[tuple[dict[str, NDArray[Any]], float | None]]:
        """Yields the pending rows with the steps that they have."""
        while self.pending:
            yield self.pending.pop(0)


def _saved_rows(arrays: Any) -> dict[str, NDArray[Any]]:
    """Name -> (n, *shape) of an open file, next values included; empty if it holds no rows."""
    rows: dict[str, NDArray[Any]] = {
        name[4:]: arrays[name] for name in arrays.files if name.startswith("row.")
    }
    if rows and "ends" in arrays.files:
        for key in arrays.files:
            if key.startswith("end.next_"):
                name = key[4:]
                rows[name] = np.roll(rows[name[5:]], -1, 0)
                rows[name][arrays["ends"]] = arrays[key]
    elif not rows and "data" in arrays.files:
        rows = dict(arrays["data"].item())
        # Without ``safe`` cpprb's files have no next values, except by row in ``cache``.
        for name in np.atleast_1d(arrays["next_of"]).tolist() if "next_of" in arrays.files else ():
            if name is not None and f"next_{name}" not in rows:
                rows[f"next_{name}"] = np.roll(rows[name], -1, 0)
        for i, values in ((arrays["cache"].item() if "cache" in arrays.files else None) or {}).items():
            for name, value in values.items():
                rows[str(name)][i] = value
    return rows


def _names(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)


def _array(path: str | None, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if path is None:
        return np.zeros((size, *shape), dtype)
    return np.memmap(path, dtype, "w+", shape=(size, *shape))
