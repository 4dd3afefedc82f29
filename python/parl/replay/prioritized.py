"""Prioritized replay with n-step returns, for one process or many.

Source: Schaul et al. (2016), "Prioritized Experience Replay"; Horgan et al. (2018), "Distributed Prioritized
Experience Replay", for n-step returns and priorities given on insertion.
"""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from parl._native import Replay as _Replay
from parl.replay.batch import Batch, Filled
from parl.replay.fields import (
    BATCH_BITS,
    SEPARATOR,
    check_described,
    column,
    difference,
    dtype_of,
    flatten,
    flatten_specs,
    is_one_row,
    natural,
    nest,
    one_final_row,
    rows_of,
    shape_error,
    sparse_rows,
    split_objects,
)
from parl.replay.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight
    from parl.replay.prefetch import _Work

Mode = Literal[
    "stratified", "independent", "systematic", "without_replacement", "split", "uniform", "largest"
]
Autoreset = Literal["next_step", "same_step", "disabled"]
Compression = Literal["none", "lz4"]


class PrioritizedReplay:
    """Rows drawn with probability proportional to ``(|priority| + epsilon) ** alpha``.

    Any number of threads, and with ``shared`` any number of processes, may add, sample and update at once;
    sampling waits for nobody. A row is never seen half written, and a priority that arrives after its row
    was overwritten is dropped and counted (:attr:`stale_updates`).

    Fields may be nested, as dictionary observations are: ``{"obs": {"image": ..., "speed": ...}}``; rows are
    given and batches returned nested in the same way.

    The names of some fields have a meaning. ``terminated`` (bool) makes rows steps of episodes: then
    ``reward`` (float32 or float64) is needed, ``truncated`` (bool) is understood, ``discount`` (float32 or
    float64 in 0..1) is multiplied with gamma, and ``obs``, every ``obs_*`` and all that is nested in ``obs``
    has a next observation: the field ``next_obs`` or ``next_obs_*`` if there is one, else it is taken from
    the next row of the same environment, so that each observation is stored once. All other fields are just
    copied.

    A sampled transition spans the ``k <= n_step`` steps up to the end of its episode: ``reward`` is the sum
    of ``gamma**i * r[i]``, ``next_obs`` the observation after them, ``terminated`` and ``truncated`` say how
    the span ended, and ``discount`` is ``gamma**k`` (times the row's own discounts, which count in the sum
    too), or 0 if it ended by termination, so that the target is
    ``reward + discount * value(next_obs)``. A row can be drawn as soon as all of that is known; until then
    it has weight 0. After termination without a stored final observation, ``next_obs`` is the last one (its
    discount is 0).

    Args:
        capacity: rows kept; the oldest are overwritten.
        fields: name -> (shape, dtype), a gymnasium space, or again a mapping; shape without the row. Any
            dtype of fixed size without objects.
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
        frame_stack: rows hold single frames, and batches stacks of so many, the newest last: ``obs`` and
            ``next_obs`` are (B, frame_stack, *shape), rebuilt from the rows before, never across the border
            of an episode. One number for all observations, or name -> number. ``add`` takes single frames,
            or whole stacks of which it keeps the last frame.
        stack_padding: what stands for frames before the first of an episode: ``"zero"``, or ``"first"`` for
            that first frame again.
        compression: ``"lz4"``: rows of 256 bytes and more per field are held compressed, each by itself. In
            private memory only.
        hindsight: relabel goals when rows are drawn; see :class:`Hindsight`.
        path: a file to keep everything in, mapped into memory: larger than memory if need be, shared by all
            processes that open it, and there again when the next one does. See :meth:`flush`.
        device: ``"cpu"``; or ``"cuda"``, ``"cuda:<number>"``: a replay in the memory of a device, with
            tensors in and out; see :class:`parl.replay.device.replay.DeviceReplay`.

    Raises:
        ValueError: a setting is out of its bounds.
        MemoryError: there is not enough memory.
        SharedMemoryError: ``shared`` exists with other settings.
        CudaUnavailableError: there is no such device; the message says why.
    """

    _has_sequences: ClassVar[bool] = False

    def __new__(cls, *_: Any, **options: Any) -> Self:
        """One on the CPU, or the class of its kind that is on a device."""
        return object.__new__(cls if options.get("device", "cpu") == "cpu" else cls._on_device())

    @classmethod
    def _on_device(cls) -> type[Self]:
        """The class of replays of this kind that are on a device: itself for those."""
        from parl.replay.device.kinds import on_device

        return cast("type[Self]", on_device(cls))

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
        frame_stack: int | Mapping[str, int] = 1,
        stack_padding: Literal["zero", "first"] = "zero",
        compression: Compression = "none",
        hindsight: Hindsight | None = None,
        path: str | os.PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        if writer not in ("lock_free", "combining"):
            raise ValueError(f"writer {writer!r} is outside lock_free, combining")
        self._hindsight = hindsight
        self._make(
            capacity,
            fields,
            frame_stack,
            path=path,
            alpha=float(alpha),
            n_step=natural("n_step", n_step),
            gamma=float(gamma),
            epsilon=float(epsilon),
            fan_out=natural("fan_out", fan_out),
            num_envs=natural("num_envs", num_envs),
            autoreset=str(autoreset),
            weight_norm=str(weight_norm),
            seed=int(seed) & (2**64 - 1),
            shared=shared,
            stack_padding=str(stack_padding),
            sequence=None,
            hindsight=None if hindsight is None else hindsight.settings(flatten_specs(fields)),
            compression=str(compression),
            combining=writer == "combining",
            device=device,
        )

    def _make(
        self,
        capacity: int,
        fields: Mapping[str, FieldSpec],
        frame_stack: int | Mapping[str, int],
        *,
        path: str | os.PathLike[str] | None,
        device: str = "cpu",
        **settings: Any,
    ) -> None:
        del device  # Others are classes of their own.
        flat = flatten_specs(fields)
        if isinstance(frame_stack, int):
            stacks = {
                name: natural("frame_stack", frame_stack)
                for name in flat
                if name == "obs" or name.startswith(("obs_", "obs" + SEPARATOR))
            }
            if frame_stack != 1 and not stacks:
                raise ValueError(f"frame_stack {frame_stack} is given, but no field is an observation")
        else:
            stacks = {
                name.replace(".", SEPARATOR): natural("frame_stack", n) for name, n in frame_stack.items()
            }
            if unknown := sorted(stacks.keys() - flat.keys()):
                raise ValueError(f"frame_stack names {', '.join(unknown)}, which is no field")
        specs = [column(name, spec, stacks.get(name, 1)) for name, spec in flat.items()]
        self._take(
            _Replay(
                natural("capacity", capacity),
                specs,
                path=None if path is None else os.fspath(path),
                **settings,
            )
        )

    @classmethod
    def _of(cls, core: _Replay, hindsight: Hindsight | None, path: str | None = None) -> Self:
        replay = cls.__new__(cls)
        replay._hindsight = hindsight
        try:
            if path is not None:
                outputs = [name for name, *_ in core.outputs()]
                check_described(path, core.settings()["fields"], outputs)
            replay._take(core)
            cls._check_kind(replay._settings, hindsight)
        except BaseException:
            core.close()
            raise
        return replay

    @classmethod
    def _check_kind(cls, settings: Mapping[str, Any], hindsight: Hindsight | None) -> None:
        """Whether what was made with these settings is of this class.

        Raises:
            ValueError: it is of another one, or relabels goals otherwise.
        """
        if (settings["sequence"] is not None) != cls._has_sequences:
            other = "SequenceReplay" if settings["sequence"] is not None else "PrioritizedReplay"
            raise ValueError(f"this replay is no {cls.__name__}; use {other}")
        relabels = settings["hindsight"]
        if hindsight is None and relabels is not None:
            raise ValueError("this replay relabels goals; give hindsight=Hindsight(reward_fn, ...)")
        if hindsight is not None:
            names = {name: None for name, *_ in settings["fields"]}
            if relabels is None or hindsight.settings(names) != relabels:
                raise ValueError(f"this replay was made with hindsight {relabels}, not {hindsight}")

    def _take(self, core: _Replay) -> None:
        self._core = core
        self._ahead: list[weakref.ref[_Work]] = []
        self._settings = core.settings()
        self._fields = [
            (name, dtype_of(dtype), tuple(shape), stack)
            for name, dtype, shape, _, stack in self._settings["fields"]
        ]
        by_name = {field[0]: field for field in self._fields}
        self._final = [by_name[name] for name in core.final_fields()]
        self._outputs = [
            (name, dtype_of(dtype), tuple(shape), steps) for name, dtype, shape, steps in core.outputs()
        ]
        self._output_names = tuple(name for name, *_ in self._outputs)
        self._names = frozenset(by_name)
        self._is_nested = any(SEPARATOR in name for name in self._names)
        self._has_discounts = core.has_discounts
        returned = [name for name, *_ in self._outputs if name != "hindsight_goal"]
        returned += ["discount"] if self._has_discounts else []
        self._nest = nest([*returned, "indices", "weights", "tickets"])

    @classmethod
    def attach(cls, name: str, *, hindsight: Hindsight | None = None) -> Self:
        """The replay that another process made with ``shared=name``.

        Args:
            name: of the shared memory.
            hindsight: as it was made with, for a replay that relabels goals.

        Raises:
            SharedMemoryError: there is none, or it is something else.
        """
        return cls._of(_Replay.attach(name), hindsight)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hindsight: Hindsight | None = None) -> Self:
        """The replay that was made with ``path=path``, in use or not.

        Args:
            path: of the file.
            hindsight: as it was made with, for a replay that relabels goals.

        Raises:
            FileNotFoundError: there is no such file.
            ReplayFileError: it is no mapped replay, or damaged, or the machine went down while rows were
                written. Damage of the rows themselves is found by :meth:`verify`.
        """
        name = os.fspath(path)
        return cls._of(_Replay.open(name), hindsight, name)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        shared: str | None = None,
        capacity: int | None = None,
        hindsight: Hindsight | None = None,
        device: str = "cpu",
    ) -> Self:
        """The replay that :meth:`save` wrote: same rows, priorities, tickets and future draws.

        Args:
            path: of the file.
            shared: name of shared memory to load it into.
            capacity: of the replay, if it shall be another one. The newest rows are kept, with their
                priorities; tickets that were given before are stale.
            hindsight: as it was made with, for a replay that relabels goals.
            device: where it shall be; a replay that was saved on another device goes on all the same.

        Raises:
            FileNotFoundError: there is no such file.
            ReplayFileError: it is no replay, truncated, damaged, or of a newer version. Nothing is left
                behind.
        """
        if device != "cpu":
            there = cls._on_device()
            return there.load(path, shared=shared, capacity=capacity, hindsight=hindsight, device=device)
        size = None if capacity is None else natural("capacity", capacity)
        name = os.fspath(path)
        return cls._of(_Replay.load(name, shared, size), hindsight, name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes everything to ``path`` at once or not at all; adds and updates of others wait meanwhile."""
        self._core.save(os.fspath(path))

    def flush(self) -> None:
        """Writes what the file of ``path=`` does not have yet to the disk; adds and updates wait meanwhile.

        Rows outlive the process from the moment they are added, however it ends. They outlive the machine
        from the next flush or close on: if it goes down while rows are being written, the file is refused
        afterwards, because rows may be torn.

        Raises:
            ValueError: this replay is in no file.
        """
        self._core.flush()

    def add(
        self,
        *,
        env_id: ArrayLike | None = None,
        priorities: ArrayLike | None = None,
        **columns: Any,
    ) -> NDArray[np.uint64]:
        """Adds n rows, or one without a leading axis.

        Args:
            env_id: (n,) integers, the environment of each row; by default row i is from environment i.
            priorities: (n,) float; by default the largest priority so far.
            **columns: every field, (n, *shape), numpy or anything numpy takes. With ``autoreset`` other than
                ``"next_step"`` also ``final_obs`` (``final_`` and the name of each observation without a
                next one): (n, *shape), or a sequence with None for rows that are not truncated. A single row
                may come without the leading axis, if all fields do: then ``env_id``, ``priorities`` and
                ``final_obs`` may too.

        Returns:
            (n,) uint64 tickets, for :meth:`update_priorities`.

        Raises:
            ValueError: a field is missing, unknown, or of the wrong shape or dtype; a priority is not
                finite; a truncated row lacks its final observation.
            IndexError: an environment is outside ``0..num_envs``.
        """
        if self._ahead:
            self._settle()
        # Mostly all fields are there, as they shall be, and no final observations.
        plain = None if self._is_nested else self._core.add_plain(columns, env_id, priorities)
        return self._add(columns, env_id, priorities) if plain is None else plain

    def _add(
        self, columns: dict[str, Any], env_id: ArrayLike | None, priorities: ArrayLike | None
    ) -> NDArray[np.uint64]:
        finals: Mapping[str, Any] = {}
        if self._is_nested or columns.keys() != self._names:
            finals = self._pop_finals(columns) if self._final else {}
            if self._is_nested:
                columns = flatten(columns, [name for name, *_ in self._fields])
            if columns.keys() != self._names:
                raise ValueError(difference(columns, self._names))
        rows = -1
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, stack in self._fields:
            array = columns[name]
            if type(array) is not np.ndarray or array.dtype != dtype or not array.flags.c_contiguous:
                array = rows_of(name, array, dtype)
            if rows < 0:
                rows = len(array) if array.ndim else -1
            if stack > 1 and array.shape == (rows, stack, *shape):
                array = np.ascontiguousarray(array[:, -1])
            if array.shape != (rows, *shape):
                if not is_one_row(columns, self._fields):
                    raise self._shape_error(columns)
                return self._add_one(columns, finals, env_id, priorities)
            arrays.append(array)
        mask, final_arrays = self._final_rows(finals, rows) if finals else (None, [])
        return self._core.add(arrays, rows, env_id, priorities, mask, final_arrays)

    def _add_one(
        self, columns: dict[str, Any], finals: Mapping[str, Any], env_id: Any, priorities: Any
    ) -> NDArray[np.uint64]:
        """Adds one row of values without a leading axis."""
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, _ in self._fields:
            array = rows_of(name, columns[name], dtype)
            arrays.append(np.ascontiguousarray(array if array.shape == shape else array[-1])[None])
        finals = {
            name: one_final_row(finals.get(name), shape, stack) for name, _, shape, stack in self._final
        }
        mask, final_arrays = self._final_rows(finals, 1) if finals else (None, [])
        env_id, priorities = (
            np.reshape(value, 1) if value is not None and np.ndim(value) == 0 else value
            for value in (env_id, priorities)
        )
        return self._core.add(arrays, 1, env_id, priorities, mask, final_arrays)

    def _shape_error(self, columns: Mapping[str, Any]) -> ValueError:
        """The error of columns that are neither n rows nor one, naming the first that does not fit."""
        shapes = [rows_of(name, columns[name], dtype).shape for name, dtype, *_ in self._fields]
        fields = list(zip(self._fields, shapes, strict=True))
        rows = next((found[0] for (_, _, shape, _), found in fields if len(found) > len(shape)), -1)
        return next(
            shape_error(name, found, shape, rows)
            for (name, _, shape, stack), found in fields
            if found != (rows, *shape) and (stack == 1 or found != (rows, stack, *shape))
        )

    def _pop_finals(self, columns: dict[str, Any]) -> dict[str, Any]:
        """The final observations of an add, by column."""
        if not self._is_nested:
            return {name: columns.pop("final_" + name, None) for name, *_ in self._final}
        groups: dict[str, list[str]] = {}
        for name, *_ in self._final:
            groups.setdefault("final_" + name.split(SEPARATOR)[0], []).append("final_" + name)
        flat: dict[str, Any] = {}
        for group, names in groups.items():
            value = columns.pop(group, None)
            flat |= {names[0]: value} if names == [group] else split_objects(group, value, names)
        wanted = {"final_" + name: name for name, *_ in self._final}
        if flat.keys() != wanted.keys():
            raise ValueError(difference(flat, frozenset(wanted)))
        return {wanted[name]: value for name, value in flat.items()}

    def _final_rows(
        self, finals: Mapping[str, Any], rows: int
    ) -> tuple[NDArray[np.bool_] | None, list[NDArray[Any]]]:
        if all(value is None for value in finals.values()):
            return None, []
        mask: NDArray[np.bool_] | None = None
        arrays: list[NDArray[Any]] = []
        for name, dtype, shape, stack in self._final:
            value = finals[name]
            if value is None:
                raise ValueError(f"final_{name} is missing, the other final observations are there")
            present, array = sparse_rows("final_" + name, value, dtype, shape, stack, rows)
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
            out: arrays of an earlier batch of this size to be overwritten. One of :meth:`empty_batch` is
                itself filled and returned, which costs least.
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
            ValueError: a mode, share or size that cannot be served, a beta that is negative or not finite, or
                an array of ``out`` that does not fit.
        """
        size = natural("batch_size", batch_size, BATCH_BITS)
        rows = size if newest_rows is None else natural("newest_rows", newest_rows)
        how = (float(beta), mode, rank, learners, uniform, newest, rows)
        filled: Filled | None = getattr(out, "filled", None)
        if filled is not None and filled.serves(cast("Batch", out), self._outputs, size, as_torch):
            fields, discount, indices, weights, tickets = filled.arguments
            self._core.sample(fields, discount, indices, weights, tickets, *how)
            return cast("Batch", out)
        flat: Mapping[str, Any] = {}
        if out is None:
            fields = [
                np.empty((steps, size, *shape) if steps else (size, *shape), dtype)
                for _, dtype, shape, steps in self._outputs
            ]
            discount, weights = np.empty(size, np.float32), np.empty(size, np.float32)
            indices, tickets = np.empty(size, np.int64), np.empty(size, np.uint64)
        else:
            flat = flatten(out, [name for name, *_ in self._outputs]) if self._is_nested else out
            fields = [
                _given(flat, name, (steps, size, *shape) if steps else (size, *shape), dtype)
                for name, dtype, shape, steps in self._outputs
            ]
            discount = _given(flat, "discount", (size,), np.dtype(np.float32))
            weights = _given(flat, "weights", (size,), np.dtype(np.float32))
            indices = _given(flat, "indices", (size,), np.dtype(np.int64))
            tickets = _given(flat, "tickets", (size,), np.dtype(np.uint64))
        self._core.sample(fields, discount, indices, weights, tickets, *how)
        batch = Batch(zip(self._output_names, fields, strict=True))
        if self._has_discounts:
            batch["discount"] = discount
        batch["indices"], batch["weights"] = indices, weights
        if self._hindsight is not None:
            self._hindsight.relabel(batch, self._settings["gamma"])
        if as_torch:
            torch = _torch()
            for name, array in batch.items():
                # A tensor that was given is given back, pinned as it may be. (Asking torch what is a tensor
                # takes longer than making one.)
                given = flat.get(name) if flat else None
                if given is None or not isinstance(given, torch.Tensor):
                    given = torch.from_numpy(array)
                batch[name] = given
        batch["tickets"] = tickets
        return self._nest(batch) if self._is_nested else batch

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        lockstep: bool = True,
        reuse: bool = False,
        pin_memory: bool = False,
        **options: Any,
    ) -> Prefetch:
        """An endless iterator over batches that a thread draws ahead; see :class:`Prefetch`.

        Args:
            batch_size: B.
            depth: batches that lie ready.
            lockstep: draws come at fixed places among the other calls on this object, so that the batches
                are the same every time.
            reuse: the arrays of a batch are filled again once the next one is taken.
            pin_memory: as ``reuse``, in memory from which a GPU copies without waiting. Needs CUDA.
            **options: of :meth:`sample`, but ``out``.
        """
        if "out" in options:
            raise ValueError("prefetch fills arrays of its own; ask for reuse instead of out")
        return Prefetch(
            self,
            batch_size,
            depth=depth,
            lockstep=lockstep,
            reuse=reuse,
            pin_memory=pin_memory,
            options=options,
        )

    def _follow(self, work: _Work) -> None:
        """From now on, changes wait until ``work`` has nothing to draw."""
        self._ahead = [one for one in self._ahead if one() is not None] + [weakref.ref(work)]

    def _settle(self) -> None:
        for one in self._ahead:
            work = one()
            if work is not None:
                work.settle()

    def empty_batch(self, batch_size: int, *, as_torch: bool = False, pin_memory: bool = False) -> Batch:
        """Arrays for ``out`` of :meth:`sample`, to be filled again and again.

        Args:
            batch_size: B.
            as_torch: tensors on the CPU instead of numpy arrays; tickets stay numpy.
            pin_memory: tensors in memory from which a GPU copies without waiting. Needs CUDA.

        Returns:
            a batch as :meth:`sample` returns it, with arbitrary numbers.
        """
        size = natural("batch_size", batch_size, BATCH_BITS)
        arrays = {
            name: np.empty((steps, size, *shape) if steps else (size, *shape), dtype)
            for name, dtype, shape, steps in self._outputs
            if name != "hindsight_goal"
        }
        if self._has_discounts:
            arrays["discount"] = np.empty(size, np.float32)
        arrays["indices"], arrays["weights"] = np.empty(size, np.int64), np.empty(size, np.float32)
        flat: dict[str, Any] = dict(arrays)
        if as_torch or pin_memory:
            torch = _torch()
            flat = {name: torch.from_numpy(array) for name, array in arrays.items()}
            if pin_memory:
                flat = {name: tensor.pin_memory() for name, tensor in flat.items()}
                arrays = {name: tensor.numpy() for name, tensor in flat.items()}
        flat["tickets"] = tickets = np.empty(size, np.uint64)
        batch = self._nest(flat)
        if not self._is_nested and self._hindsight is None:
            discount = arrays.get("discount") if self._has_discounts else None
            arguments = (
                [arrays[name] for name in self._output_names],
                np.empty(size, np.float32) if discount is None else discount,
                arrays["indices"],
                arrays["weights"],
                tickets,
            )
            batch.filled = Filled(
                self._core.sample,
                arguments,
                self._outputs,
                size,
                as_torch or pin_memory,
                tuple(batch.values()),
            )
        return batch

    def update_priorities(self, tickets: ArrayLike, priorities: ArrayLike) -> int:
        """Gives rows new priorities; of equal tickets the last one wins.

        A ticket says slot and lap of a row, not of which replay: one of another replay is refused only where
        this one has not written so many rows yet, and else is that of another row, or of one that was
        overwritten. ``indices`` are no tickets and are refused.

        Args:
            tickets: (B,) uint64, as :meth:`add` and :meth:`sample` gave them.
            priorities: (B,) float, numpy or torch; their absolute values count, say TD errors.

        Returns:
            how many were dropped because their row had been overwritten.

        Raises:
            ValueError: a priority is not finite, or the lengths differ; then nothing was stored.
            IndexError: a ticket that this replay has not given out. Where it names a slot of this replay,
                the priorities of the other tickets were stored.
        """
        if self._ahead:
            self._settle()
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
        return self._core.evict(natural("rows", rows))

    def end_episodes(self, env_id: ArrayLike) -> None:
        """Ends the episodes of these environments where they stand, as after a crash of an environment.

        The next row of each starts a new episode. Rows that still wait for their n-step window are never
        drawn.
        """
        if self._ahead:
            self._settle()
        self._core.cut(env_id)

    def verify(self) -> None:
        """Checks that every sum of the tree is exact, and of a mapped file that the rows are what was stored.

        Of a file (``path=``) it compares the checksums of all rows that were there at the last :meth:`flush`
        or close, which reads all of them. Adds and updates wait meanwhile.

        Raises:
            InconsistentError: names the first sum that is not exact.
            ReplayFileError: names the first slots whose rows differ, or what else is damaged.
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
        fields = ", ".join(f"{name}: {shape} {dtype}" for name, dtype, shape, _ in self._fields)
        return f"{type(self).__name__}({len(self)}/{self.capacity} rows, {fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.shared is not None:
            return _attach, (type(self), self.shared, self._hindsight)
        if self.path is not None:
            return _open, (type(self), self.path, self._hindsight)
        raise TypeError("a replay in private memory cannot be pickled; make it with shared=... or save it")

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
    def path(self) -> str | None:
        """The file that holds everything, None if there is none."""
        return self._core.path

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


def _attach(cls: type[PrioritizedReplay], name: str, hindsight: Hindsight | None) -> PrioritizedReplay:
    return cls.attach(name, hindsight=hindsight)


def _open(cls: type[PrioritizedReplay], path: str, hindsight: Hindsight | None) -> PrioritizedReplay:
    return cls.open(path, hindsight=hindsight)


def _given(out: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    value = out.get(name)
    if value is None:
        return np.empty(shape, dtype)
    array = cast("NDArray[Any]", value if isinstance(value, np.ndarray) else value.numpy())
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(f"out[{name!r}] is {array.shape} {array.dtype}, expected {shape} {dtype}")
    return array


def _torch() -> Any:
    import torch

    return torch
