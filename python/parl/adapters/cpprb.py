"""cpprb's ``ReplayBuffer`` and ``PrioritizedReplayBuffer``, so that a script changes one import.

Class, method and argument names, shapes and dtypes are those of cpprb 11, which need not be installed.
Differences: an index outside the buffer, a priority that is not finite, an unknown field and a draw
from an empty buffer are errors; late priorities are always looked for (``check_for_update``); the last rows
of an episode that was cut without ``done`` keep their true next values under ``Nstep``; rows that are added
or loaded together keep the next values that they were given, also where an episode ends between two of
them (cpprb's ``next_of`` takes the next row's values instead); stacks are kept as they are given
(``stack_compress`` changes no result, and saves no memory here).

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
    """Rows drawn uniformly.

    Args:
        size: rows kept; the oldest are overwritten.
        env_dict: name -> ``{"shape": ..., "dtype": ...}``; the shape is 1 and the dtype ``default_dtype``
            where they are missing.
        next_of: names of fields whose next values, ``"next_"`` and the name, are those of the next row: each
            is stored once.
        stack_compress: names of stacked fields; looked at only to see that they are there.
        default_dtype: of fields without one, ``numpy.float32`` by default.
        Nstep: ``{"size": n, "rew": names, "gamma": 0.99, "next": names}`` for n-step rows; needs ``"done"``.
        mmap_prefix: each field is kept in a file named ``{mmap_prefix}_{field}.dat``.

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
        self._kept = {name: specs[name] for name in specs if not self._is_next(name)}
        self._fields = self._kept | {f"next_{name}": specs[name] for name in self._next_of}
        self._arrays = {
            name: _array(None if mmap_prefix is None else f"{mmap_prefix}_{name}.dat", self._size, *spec)
            for name, spec in self._kept.items()
        }
        # Next values that no next row holds, those of the newest row and of the ends of episodes.
        self._loose: dict[int, dict[str, NDArray[Any]]] = {}
        self._is_loose = np.zeros(self._size, np.bool_)
        self._n_step = None if Nstep is None else _NStep(Nstep, self._fields)
        self._rng: np.random.Generator | None = None
        self.clear()

    def _is_next(self, name: str) -> bool:
        return name.startswith("next_") and name[5:] in self._next_of

    def clear(self) -> None:
        """Removes all rows."""
        self._at = self._stored = self._episode = 0
        self._loose.clear()
        self._is_loose[:] = False
        self._chained = False
        if self._n_step is not None:
            self._n_step.pending.clear()

    def add(self, **kwargs: Any) -> int | None:
        """Adds one row or several.

        Args:
            **kwargs: every field, (*shape) or (n, *shape).

        Returns:
            where the first row lies; None if all of them still wait for their n steps.

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
            # Without ``Nstep`` the next values of the row before can always be read from this one.
            if self._chained and (self._n_step is None or self._follows((first - 1) % size, rows)):
                self._tie((first - 1) % size)
            for slot in slots[self._is_loose[slots]]:
                self._tie(int(slot))
            for i in (0,) if n == 1 else self._ends(rows, skip, n):
                slot = (first + i) % size
                self._loose[slot] = {name: rows[f"next_{name}"][i].copy() for name in self._next_of}
                self._is_loose[slot] = True
            self._chained = True
        self._written(slots, priorities if priorities is None or not priorities.ndim else priorities[skip:])
        return first

    def _follows(self, slot: int, rows: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the next values of the row in this slot are the values of the first of ``rows``."""
        nexts = self._loose.get(slot, {})
        return all(np.array_equal(nexts.get(f"next_{name}", ()), rows[name][0]) for name in self._next_of)

    def _ends(self, rows: Mapping[str, NDArray[Any]], first: int, n: int) -> list[int]:
        """The rows ``first..n`` whose next values are not those of the row after them; the last is one."""
        differs = np.zeros(n - first, np.bool_)
        differs[-1] = True
        for name in self._next_of:
            other = rows[f"next_{name}"][first : n - 1] != rows[name][first + 1 : n]
            differs[:-1] |= other.reshape(n - first - 1, math.prod(other.shape[1:])).any(1)
        return (np.flatnonzero(differs) + first).tolist()

    def _tie(self, slot: int) -> None:
        """From now on the next values of this row are those of the next row."""
        self._loose.pop(slot, None)
        self._is_loose[slot] = False

    def _written(self, slots: NDArray[np.int64], priorities: NDArray[np.float64] | None) -> None:
        """Rows were written."""

    def on_episode_end(self) -> None:
        """Ends the episode: no row after this is the next one of a row before it."""
        if self._n_step is not None:
            self._put(self._n_step.finish())
        self._chained = False
        self._episode = 0

    def sample(self, batch_size: int) -> dict[str, NDArray[Any]]:
        """Draws rows.

        Returns:
            name -> (B, *shape).

        Raises:
            NotSampleableError: there is no row.
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
            loose = np.flatnonzero(self._is_loose.take(slots))
            for name in self._next_of:
                found[f"next_{name}"] = values = self._arrays[name].take(after, 0)
                for i in loose:
                    values[i] = self._loose[int(slots[i])][name]
        return found

    def get_all_transitions(self, shuffle: bool = False) -> dict[str, NDArray[Any]]:
        """All rows, in the order in which they lie, or shuffled."""
        slots = np.arange(self._stored)
        return self._take(np.random.permutation(slots) if shuffle else slots)

    def save_transitions(self, file: Any, *, safe: bool = True) -> None:
        """Writes all rows to ``file``, a path or an open file, as numpy's ``.npz``.

        Args:
            file: where to.
            safe: whether the next values of ``next_of`` fields are written beside the values themselves, so
                that programs without this class can read them. With False only those next values are
                written that are not the values of the next row; the file is smaller.
        """
        rows = self.get_all_transitions()
        arrays: dict[str, Any] = {}
        if not safe and self._next_of:
            ends = np.flatnonzero(self._is_loose[: self._stored])
            arrays["ends"] = ends
            for name in self._next_of:
                arrays[f"end.next_{name}"] = rows.pop(f"next_{name}")[ends]
        arrays |= {f"row.{name}": array for name, array in rows.items()}
        arrays["n_step"] = 1 if self._n_step is None else self._n_step.n
        arrays["gamma"] = 1.0 if self._n_step is None else self._n_step.gamma
        np.savez_compressed(file, **arrays)

    def load_transitions(self, file: Any) -> None:
        """Adds the rows of a file that :meth:`save_transitions`, of this class or of cpprb, wrote.

        The rows are episodes of their own: none of them is the next row of a row that was there before, and
        none that is added later is the next row of them.

        cpprb's files are pickles, which can run anything: load none that you do not trust.

        Raises:
            KeyError: the file has no values for a field of this buffer.
            ValueError: it is no such file, or its rows span another number of steps or were summed with
                another discount than this buffer's ``Nstep``.
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

        cpprb's files say only whether there are several, files of earlier versions of this class nothing.
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
        """Rows kept."""
        return self._size

    def get_stored_size(self) -> int:
        """Rows that are there."""
        return self._stored

    def get_next_index(self) -> int:
        """Where the next row will lie."""
        return self._at

    def get_current_episode_len(self) -> int:
        """Rows stored since the episode began."""
        return self._episode

    def is_Nstep(self) -> bool:  # noqa: N802 - cpprb's name
        """Whether rows are n-step rows."""
        return self._n_step is not None

    def __len__(self) -> int:
        """Rows that are there."""
        return self._stored


class PrioritizedReplayBuffer(ReplayBuffer):
    """Rows drawn with probability proportional to ``(priority + eps) ** alpha``.

    Args:
        size: rows kept; the oldest are overwritten.
        env_dict: as of :class:`ReplayBuffer`.
        alpha: exponent of the priority.
        Nstep: as of :class:`ReplayBuffer`.
        eps: added to priorities.
        check_for_update: of cpprb; a priority for a row that was overwritten after it was drawn is dropped
            in any case.
        **kwargs: the others of :class:`ReplayBuffer`.

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
        """Forgets all rows and their priorities."""
        super().clear()
        self._slots.clear()

    def add(self, *, priorities: ArrayLike | None = None, **kwargs: Any) -> int | None:
        """Adds one row or several.

        Args:
            priorities: one, or (n,); by default the largest so far.
            **kwargs: every field, (*shape) or (n, *shape).

        Returns:
            where the first row lies; None if all of them still wait for their n steps.

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
        """Draws rows, stratified, by priority.

        Args:
            batch_size: B, how many.
            beta: exponent of the importance weights.

        Returns:
            name -> (B, *shape); ``weights`` (B,) float32, ``(smallest weight / weight) ** beta``;
            ``indexes`` (B,) uint64.

        Raises:
            NotSampleableError: there is no row.
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
        """Gives rows new priorities; of equal indexes the last one wins.

        Args:
            indexes: (B,) integers.
            priorities: (B,) float; absolute values count.

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
        """Priorities that were dropped because their row had been overwritten."""
        return self._slots.stale


class _NStep:
    """Sums rewards over n rows: a row comes out when n - 1 rows after it are known, or the episode ends."""

    def __init__(self, options: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
        self.n = int(options["size"])
        if self.n < 1:
            raise ValueError(f"Nstep size {self.n} is below 1")
        self.gamma = float(options.get("gamma", 0.99))
        self.rewards, self.nexts = _names(options.get("rew")), _names(options.get("next"))
        for name in (*self.rewards, *self.nexts, "done"):
            if name not in fields:
                raise KeyError(f"Nstep needs the field {name!r}, env_dict has {', '.join(fields)}")
        self.pending: list[tuple[dict[str, NDArray[Any]], float | None]] = []

    def push(
        self, row: dict[str, NDArray[Any]], priority: float | None
    ) -> Iterator[tuple[dict[str, NDArray[Any]], float | None]]:
        """Adds a row; gives the row that is complete by that, if there is one."""
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
        """Gives the rows that wait, as they are."""
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
        # Without ``safe`` cpprb leaves out next values, and keeps what compressed rows lack by row.
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
