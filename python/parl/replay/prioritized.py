"""Prioritized replay with n-step returns, for one or several processes.

Source: Schaul et al. (2016), "Prioritized Experience Replay"; Horgan et al. (2018), "Distributed Prioritized
Experience Replay", for n-step returns and priorities given on insertion.
"""

from __future__ import annotations

import atexit
import copy
import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from parl._native import Replay as _Replay
from parl.replay.arguments import AddArguments
from parl.replay.batch import Batch, PreparedBatch
from parl.replay.fields import (
    BATCH_BITS,
    SEPARATOR,
    check_described,
    column,
    dtype_of,
    flatten_out,
    flatten_specs,
    nester,
    unsigned,
)
from parl.replay.prefetch import Prefetch
from parl.signatures import show_init

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight
    from parl.replay.prefetch import _Work

Mode = Literal[
    "stratified", "independent", "systematic", "without_replacement", "split", "uniform", "largest"
]
Autoreset = Literal["next_step", "same_step", "disabled"]
Compression = Literal["none", "lz4"]


# Replays in shared memory or in files.
_OPEN: weakref.WeakSet[PrioritizedReplay] = weakref.WeakSet()


@atexit.register
def _close_open_replays() -> None:
    # A thread that runs until the process ends, such as that of Prefetch, keeps its replay alive.
    for replay in list(_OPEN):
        replay.close()


@show_init
class PrioritizedReplay:
    """Replay whose rows are sampled with probability proportional to ``(|priority| + epsilon) ** alpha``.

    Any number of threads, and with ``shared`` or ``path`` any number of processes, can add, sample and update
    concurrently; sampling does not block. A sampled row is never partly written. A priority for a row that
    has been overwritten is dropped and counted (:attr:`stale_updates`). Powers are stored as multiples of
    ``2**-16``, from ``2**-16`` for any power above 0 to 4096 (2048 and 1024 with ``fan_out`` 32 and 64);
    larger ones are counted (:attr:`saturated`). With ``alpha`` 1, scale TD errors below 0.001 up.

    Fields may be nested, as dictionary observations are: ``{"obs": {"image": ..., "speed": ...}}``. ``add``
    takes rows, and ``sample`` returns batches, with the same nesting.

    Some field names have a meaning. With a field ``terminated`` (bool), rows are steps of episodes. Then
    ``reward`` (float32 or float64) is required, ``truncated`` (bool) marks truncated steps, and ``discount``
    (float32 or float64 in 0..1) is multiplied by gamma. ``obs``, every ``obs_*`` and the fields nested in
    ``obs`` have a next observation: the field ``next_obs`` or ``next_obs_*`` if there is one, else the
    observation of the next row of the same environment, so that each observation is stored once. All other
    fields are returned as they were added.

    A sampled transition spans ``k <= n_step`` steps and stops at the end of its episode. ``reward`` is the
    sum of ``gamma**i * r[i]``, ``next_obs`` the observation after the last step, and ``terminated`` and
    ``truncated`` are those of the last step. ``discount`` is ``gamma**k``, or 0 after termination, so that
    the target is ``reward + discount * value(next_obs)``. A field ``discount`` is multiplied into both. A row
    has weight 0, and is not sampled, until all k steps are known. After termination without a stored final
    observation, ``next_obs`` repeats the last observation (its discount is 0).

    Args:
        capacity: number of rows kept; then the oldest are overwritten.
        fields: name -> (shape, dtype), a gymnasium space, or a nested mapping; the shape is that of one row.
            Any dtype of fixed size without objects.
        alpha: exponent of the priority; 0 samples uniformly.
        n_step: largest number of steps of a transition.
        gamma: discount per step.
        epsilon: added to the absolute priority.
        fan_out: children per node of the sum tree: 4, 8, 16, 32 or 64.
        num_envs: number of environments; ``env_id`` is in ``0..num_envs``.
        autoreset: autoreset mode of the environments, as in gymnasium. ``"next_step"``: the row after an
            episode's last one holds its final observation; the action and reward of that row are ignored, and
            it is never sampled. ``"same_step"`` and ``"disabled"``: the row after an episode's last one
            begins the next episode, and truncated rows are added with ``final_obs``.
        shared: name of the shared memory; created, or attached to if a process already uses it.
        seed: seed of the sampling.
        weight_norm: what importance weights are divided by: the largest weight of the ``"batch"``, or of all
            rows (``"global"``; an upper bound within a factor of ``2**beta``, which needs no search).
        frame_stack: number of frames in a stack. Rows hold single frames; ``sample`` rebuilds stacks
            (B, frame_stack, *shape), the newest frame last, from earlier rows of the same episode. One number
            for all observations, or name -> number. ``add`` takes single frames, or stacks, of which it
            stores the last frame.
        stack_padding: what fills the positions before the first frame of an episode: ``"zero"``, or
            ``"first"`` for copies of that frame.
        compression: ``"lz4"`` compresses each row of fields with at least 256 bytes per row; ``"none"``. Only
            in private memory.
        hindsight: relabels goals of sampled rows; see :class:`Hindsight`.
        path: a file that is mapped into memory and holds the replay. It may be larger than the memory,
            processes that open it share it, and its rows are still there when it is opened again. See
            :meth:`flush`.
        device: ``"cpu"``; or ``"cuda"`` or ``"cuda:<number>"`` for a replay in the memory of a CUDA device,
            which takes and returns tensors; see :class:`parl.replay.cuda.replay.CudaReplay`.

    Raises:
        ValueError: a setting is out of its bounds.
        TypeError: a setting is of another type.
        MemoryError: there is not enough memory.
        SharedMemoryError: ``shared`` exists with other settings.
        CudaUnavailableError: there is no such CUDA device; the message says why.
    """

    _has_sequences: ClassVar[bool] = False

    if not TYPE_CHECKING:  # Type checkers and `help()` see the parameters of `__init__`.

        def __new__(cls, *_: Any, **options: Any) -> Self:
            """An instance of this class, or of the corresponding class for a CUDA device."""
            return object.__new__(cls if options.get("device", "cpu") == "cpu" else cls._cuda_class())

    @classmethod
    def _cuda_class(cls) -> type[Self]:
        """The class of this kind of replay on CUDA devices; the class itself if it is one."""
        from parl.replay.cuda.classes import cuda_class

        return cast("type[Self]", cuda_class(cls))

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
        frame_stack: int | Mapping[str, int] = 1,
        stack_padding: Literal["zero", "first"] = "zero",
        compression: Compression = "none",
        hindsight: Hindsight | None = None,
        path: str | os.PathLike[str] | None = None,
        device: str = "cpu",
    ) -> None:
        self._hindsight = hindsight
        self._make(
            capacity,
            fields,
            frame_stack,
            path=path,
            alpha=float(alpha),
            n_step=unsigned("n_step", n_step),
            gamma=float(gamma),
            epsilon=float(epsilon),
            fan_out=unsigned("fan_out", fan_out),
            num_envs=unsigned("num_envs", num_envs),
            autoreset=str(autoreset),
            weight_norm=str(weight_norm),
            seed=unsigned("seed", seed, 64),
            shared=shared,
            stack_padding=str(stack_padding),
            sequence=None,
            hindsight=None if hindsight is None else hindsight.settings(flatten_specs(fields)),
            compression=str(compression),
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
        del device  # Classes for CUDA devices override this method.
        flat = flatten_specs(fields)
        if not isinstance(frame_stack, Mapping):
            stacks = {
                name: unsigned("frame_stack", frame_stack)
                for name in flat
                if name == "obs" or name.startswith(("obs_", "obs" + SEPARATOR))
            }
            if frame_stack != 1 and not stacks:
                raise ValueError(
                    f"frame_stack is {frame_stack}, but there is no observation: no field is obs or obs_*"
                )
        else:
            stacks = {
                name.replace(".", SEPARATOR): unsigned("frame_stack", n) for name, n in frame_stack.items()
            }
            if unknown := sorted(stacks.keys() - flat.keys()):
                raise ValueError(f"frame_stack names {', '.join(unknown)}, which is not a field")
        specs = [column(name, spec, stacks.get(name, 1)) for name, spec in flat.items()]
        self._set_native(
            _Replay(
                unsigned("capacity", capacity),
                specs,
                path=None if path is None else os.fspath(path),
                **settings,
            )
        )

    @classmethod
    def _from_native(cls, native: _Replay, hindsight: Hindsight | None, path: str | None = None) -> Self:
        replay = cls.__new__(cls)
        replay._hindsight = hindsight
        try:
            if path is not None:
                outputs = [name for name, *_ in native.outputs()]
                check_described(path, native.settings()["fields"], outputs)
            replay._set_native(native)
            cls._check_kind(replay._settings, hindsight)
        except BaseException:
            native.close()
            raise
        return replay

    @classmethod
    def _check_kind(cls, settings: Mapping[str, Any], hindsight: Hindsight | None) -> None:
        """Checks that a replay with these settings is of this class and has the given ``hindsight``.

        Raises:
            ValueError: it is of another class, or was made with another ``hindsight``.
        """
        if (settings["sequence"] is not None) != cls._has_sequences:
            other = "SequenceReplay" if settings["sequence"] is not None else "PrioritizedReplay"
            raise ValueError(f"this replay is not a {cls.__name__}; use {other}")
        relabels = settings["hindsight"]
        if hindsight is None and relabels is not None:
            raise ValueError("this replay relabels goals: pass hindsight=Hindsight(reward_fn, ...)")
        if hindsight is not None:
            specs = {name: (shape, dtype_of(dtype)) for name, dtype, shape, *_ in settings["fields"]}
            if relabels is None or hindsight.settings(specs) != relabels:
                raise ValueError(f"this replay was made with hindsight {relabels}, not {hindsight}")

    def _set_native(self, native: _Replay) -> None:
        self._native = native
        if self.shared is not None or self.path is not None:
            _OPEN.add(self)
        self._prefetchers: list[weakref.ref[_Work]] = []
        self._settings = native.settings()
        self._fields = [
            (name, dtype_of(dtype), tuple(shape), stack)
            for name, dtype, shape, _, stack in self._settings["fields"]
        ]
        by_name = {field[0]: field for field in self._fields}
        self._final = [by_name[name] for name in native.final_fields()]
        self._outputs = [
            (name, dtype_of(dtype), tuple(shape), steps) for name, dtype, shape, steps in native.outputs()
        ]
        self._output_names = tuple(name for name, *_ in self._outputs)
        self._names = frozenset(by_name)
        self._is_nested = any(SEPARATOR in name for name in self._names)
        self._arguments = AddArguments(self._fields, self._final, self._settings["autoreset"])
        self._has_discounts = native.has_discounts
        returned = [name for name, *_ in self._outputs if name != "hindsight_goal"]
        returned += ["discount"] if self._has_discounts else []
        self._nest = nester([*returned, "indices", "weights", "tickets"])

    @classmethod
    def attach(cls, name: str, *, hindsight: Hindsight | None = None) -> Self:
        """Attaches to a replay that another process made with ``shared=name``.

        Args:
            name: name of the shared memory.
            hindsight: the ``hindsight`` that the replay was made with.

        Raises:
            SharedMemoryError: there is no such shared memory, or it does not hold a replay.
            ValueError: the replay is of another class or has another ``hindsight``.
        """
        return cls._from_native(_Replay.attach(name), hindsight)

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hindsight: Hindsight | None = None) -> Self:
        """Opens a replay that was made with ``path=path``, whether or not other processes have it open.

        Args:
            path: path of the file.
            hindsight: the ``hindsight`` that the replay was made with.

        Raises:
            FileNotFoundError: there is no such file.
            ReplayFileError: the file is not a mapped replay, is damaged, or the machine stopped while rows
                were written. The rows themselves are not checked; see :meth:`verify`.
            ValueError: the replay is of another class or has another ``hindsight``.
        """
        name = os.fspath(path)
        return cls._from_native(_Replay.open(name), hindsight, name)

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
        """Loads a replay that :meth:`save` wrote, with its rows, priorities, tickets and generator state.

        Args:
            path: path of the file.
            shared: name of shared memory to load the replay into; None for private memory.
            capacity: another capacity for the replay. The newest rows are kept with their priorities;
                tickets from before become stale. None keeps the capacity.
            hindsight: the ``hindsight`` that the replay was made with.
            device: device of the replay, which may differ from the device it was saved on.

        Raises:
            FileNotFoundError: there is no such file.
            ReplayFileError: the file is not a replay, is truncated or damaged, or was written by a newer
                version.
            ValueError: the replay is of another class or has another ``hindsight``.
        """
        if device != "cpu":
            cuda_class = cls._cuda_class()
            return cuda_class.load(path, shared=shared, capacity=capacity, hindsight=hindsight, device=device)
        size = None if capacity is None else unsigned("capacity", capacity)
        name = os.fspath(path)
        return cls._from_native(_Replay.load(name, shared, size), hindsight, name)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves the replay to a file atomically; concurrent adds and updates block meanwhile.

        Args:
            path: path of the file, which is replaced if it exists.

        Raises:
            ValueError: the path is that of the mapped file of this replay; see :meth:`flush`.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        name, own = os.fspath(path), self.path
        if own is not None and all(map(os.path.exists, (own, name))) and os.path.samefile(own, name):
            raise ValueError(f"{name} is the file of this replay itself: use flush() or another path")
        self._native.save(name)

    def flush(self) -> None:
        """Writes changes of a replay made with ``path=`` to the disk; adds and updates block meanwhile.

        Rows survive the end of the process, a crash included, as soon as they are added. They survive a crash
        of the machine after the next flush or close. If the machine stops while rows are being written, rows
        may be incomplete, and :meth:`open` rejects the file.

        Raises:
            ValueError: the replay has no file.
        """
        self._native.flush()

    def add(
        self,
        *,
        env_id: ArrayLike | None = None,
        priorities: ArrayLike | None = None,
        **columns: Any,
    ) -> NDArray[np.uint64]:
        """Adds n rows, or one row given without the leading dimension.

        Args:
            env_id: (n,) integers, the environment of each row; by default row i is from environment i.
            priorities: (n,) float; by default the largest priority so far.
            **columns: every field, (n, *shape), as numpy arrays or anything that numpy converts. With
                ``autoreset`` other than ``"next_step"`` also ``final_obs``, and in general ``final_`` with
                the name of each observation that has no ``next_`` field: (n, *shape), or a sequence with None
                for rows that are not truncated (with ``hindsight``: not the last of an episode). A single row
                may be given without the leading dimension, if all fields are; then ``env_id``, ``priorities``
                and ``final_obs`` may be too.

        Returns:
            (n,) uint64 tickets, for :meth:`update_priorities`.

        Raises:
            ValueError: a field is missing, unknown, or of the wrong shape or dtype; a priority is not
                finite; a truncated row has no final observation; or there is one with ``autoreset``
                ``"next_step"``.
            IndexError: an environment is outside ``0..num_envs``.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        # The fast path: all fields have the right type and there are no final observations.
        tickets = None if self._is_nested else self._native.add_plain(columns, env_id, priorities)
        if tickets is not None:
            return tickets
        return self._native.add(*self._arguments.of_rows(columns, env_id, priorities))

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
        """Samples a batch of transitions.

        Args:
            batch_size: batch size B.
            beta: exponent of the importance weights, ``(smallest weight / weight) ** beta``.
            as_torch: whether to return CPU tensors, without a copy, instead of numpy arrays; tickets are
                always numpy.
            out: an earlier batch of this size, whose arrays are overwritten. A batch of :meth:`empty_batch`
                is filled and returned itself, which is fastest.
            mode: how rows are chosen. By priority: ``"stratified"`` (one draw from each of B equal parts of
                the total weight), ``"independent"``, ``"systematic"``, ``"without_replacement"`` or
                ``"split"`` (stratified; each of ``learners`` callers draws from its own part, this one from
                part ``rank``). With importance weights of 1: ``"uniform"`` and ``"largest"`` (the rows of
                largest priority in descending order; reads all priorities).
            rank: number of this caller, for ``"split"``.
            learners: number of callers, for ``"split"``.
            uniform: share of the batch that is drawn uniformly instead of by priority.
            newest: share of the batch that is drawn uniformly from the newest rows.
            newest_rows: number of rows that count as newest, by default ``batch_size``; increased while none
                of them can be sampled. The batch starts with the newest rows, then the uniform ones;
                importance weights are computed from the probabilities of the mixture.

        Returns:
            A batch with the fields, (B, *shape) each; next observations; ``discount`` (B,) float32;
            ``indices`` (B,) int64 slots; ``weights`` (B,) float32, at most 1; ``tickets`` (B,) uint64.

        Raises:
            NotSampleableError: no row can be sampled yet.
            ValueError: the mode, a share or the size is invalid, beta is negative or not finite, or an array
                of ``out`` does not fit or belongs to no field.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        size = unsigned("batch_size", batch_size, BATCH_BITS)
        rows = size if newest_rows is None else unsigned("newest_rows", newest_rows)
        options = (float(beta), mode, rank, learners, uniform, newest, rows)
        prepared: PreparedBatch | None = getattr(out, "prepared", None)
        if prepared is not None and prepared.fits(cast("Batch", out), self._outputs, size, as_torch):
            fields, discount, indices, weights, tickets = prepared.arguments
            self._native.sample(fields, discount, indices, weights, tickets, *options)
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
            flat = flatten_out(out, self._output_names)
            fields = [
                _array_of(flat, name, (steps, size, *shape) if steps else (size, *shape), dtype)
                for name, dtype, shape, steps in self._outputs
            ]
            # Of sequences it is one of the fields.
            discount = (
                _array_of(flat, "discount", (size,), np.dtype(np.float32))
                if self._has_discounts
                else np.empty(size, np.float32)
            )
            weights = _array_of(flat, "weights", (size,), np.dtype(np.float32))
            indices = _array_of(flat, "indices", (size,), np.dtype(np.int64))
            tickets = _array_of(flat, "tickets", (size,), np.dtype(np.uint64))
        self._native.sample(fields, discount, indices, weights, tickets, *options)
        batch = Batch(zip(self._output_names, fields, strict=True))
        if self._has_discounts:
            batch["discount"] = discount
        batch["indices"], batch["weights"] = indices, weights
        if self._hindsight is not None:
            self._hindsight.relabel(batch, self._settings["gamma"])
        if as_torch:
            torch = _torch()
            for name, array in batch.items():
                # Tensors of `out` are returned themselves, since they may be in pinned memory. (isinstance
                # with torch.Tensor takes longer than from_numpy.)
                tensor = flat.get(name) if flat else None
                if tensor is None or not isinstance(tensor, torch.Tensor):
                    tensor = torch.from_numpy(array)
                batch[name] = tensor
        batch["tickets"] = tickets
        return self._nest(batch) if self._is_nested else batch

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        ordered: bool = True,
        reuse: bool = False,
        pin_memory: bool = False,
        **options: Any,
    ) -> Prefetch:
        """An endless iterator over batches that a thread samples in advance; see :class:`Prefetch`.

        Args:
            batch_size: batch size B.
            depth: number of batches sampled in advance, 1 to 1,024.
            ordered: whether each batch is sampled at a fixed point between the other calls on this object, so
                that runs can be repeated exactly.
            reuse: whether the arrays of a batch are overwritten once the next batch is taken.
            pin_memory: as ``reuse``, with arrays in pinned memory for asynchronous copies to a GPU. Needs
                CUDA.
            **options: options of :meth:`sample` except ``out``.

        Raises:
            ValueError: ``depth`` is out of its bounds, or ``out`` is given.
        """
        if "out" in options:
            raise ValueError("prefetch does not take out: use reuse=True to reuse arrays")
        return Prefetch(
            self,
            batch_size,
            depth=depth,
            ordered=ordered,
            reuse=reuse,
            pin_memory=pin_memory,
            options=options,
        )

    def _add_prefetcher(self, work: _Work) -> None:
        """Makes later calls whose results depend on the order wait until ``work`` has no batch to sample."""
        self._prefetchers = [one for one in self._prefetchers if one() is not None] + [weakref.ref(work)]

    def _wait_for_prefetchers(self, *, but: _Work | None = None) -> None:
        for one in self._prefetchers:
            work = one()
            if work is not None and work is not but:
                work.wait_idle()

    def empty_batch(self, batch_size: int, *, as_torch: bool = False, pin_memory: bool = False) -> Batch:
        """Allocates a batch for ``out`` of :meth:`sample`, which can be used for many calls.

        Args:
            batch_size: batch size B.
            as_torch: whether to allocate CPU tensors instead of numpy arrays; tickets are always numpy.
            pin_memory: whether to allocate tensors in pinned memory, for asynchronous copies to a GPU. Needs
                CUDA.

        Returns:
            A batch as :meth:`sample` returns it, with arbitrary values.
        """
        size = unsigned("batch_size", batch_size, BATCH_BITS)
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
            batch.prepared = PreparedBatch(
                self._native.sample,
                arguments,
                self._outputs,
                size,
                as_torch or pin_memory,
                tuple(batch.values()),
            )
        return batch

    def update_priorities(self, tickets: ArrayLike, priorities: ArrayLike) -> int:
        """Sets the priorities of rows; for equal tickets the last one counts.

        A ticket holds the slot of a row, its generation, which is the number of times that the ring has gone
        around, and the random tag of its replay. Tickets of another replay and ``indices`` raise an error.
        Processes that share a replay, and a replay that is loaded from a file, have the tag of the original.

        Args:
            tickets: (B,) uint64, from :meth:`add` or :meth:`sample`.
            priorities: (B,) float, numpy or torch, such as TD errors; their absolute values are used.

        Returns:
            The number of priorities that were dropped because their row had been overwritten.

        Raises:
            ValueError: a priority is not finite, or the lengths differ. No priority has been stored.
            IndexError: a ticket was not issued by this replay. If it names one of its slots, the priorities
                of the other tickets have been stored.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        return self._native.update(tickets, priorities)

    def evict(self, rows: int) -> int:
        """Removes rows from sampling, those of small priority with larger probability.

        The rows are distinct, each chosen with probability proportional to the inverse of
        ``(|priority| + epsilon) ** alpha``. They are never sampled again and their tickets become stale.
        Their memory is reused when the ring reaches their slots. Reads all priorities.

        Args:
            rows: number of rows to remove.

        Returns:
            The number of rows removed, which is smaller than ``rows`` if other threads removed some of the
            chosen rows at the same time.

        Raises:
            NotSampleableError: fewer than ``rows`` rows can be sampled.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        return self._native.evict(unsigned("rows", rows))

    def end_episodes(self, env_id: ArrayLike) -> None:
        """Ends the running episodes of environments, for example after an environment has crashed.

        The next row of each environment starts a new episode. Rows whose n steps are not complete are never
        sampled.

        Args:
            env_id: (n,) integers, the environments.

        Raises:
            IndexError: an environment is outside ``0..num_envs``.
        """
        if self._prefetchers:
            self._wait_for_prefetchers()
        self._native.cut(env_id)

    def verify(self) -> None:
        """Checks the sums of the tree, and the rows of a mapped file; adds and updates block meanwhile.

        With ``path=``, compares the checksums of all rows that were in the file at the last :meth:`flush` or
        close; this reads the rows.

        Raises:
            InconsistentError: a sum of the tree differs from the sum of its leaves; names the first one.
            ReplayFileError: rows differ from what was stored, or the file is damaged elsewhere; names the
                first slots.
        """
        self._native.verify()

    def close(self) -> None:
        """Releases the memory, or detaches from shared memory; a second call does nothing.

        The name of shared memory is removed when the process that created it closes, or the last one does.
        """
        self._native.close()

    def unlink(self) -> None:
        """Removes the name of the shared memory, so that no process can attach any more.

        Processes that are attached keep the memory.
        """
        self._native.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Number of rows held, including those that cannot be sampled yet."""
        return len(self._native)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {shape} {dtype}" for name, dtype, shape, _ in self._fields)
        return f"{type(self).__name__}({len(self)}/{self.capacity} rows, {fields})"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.shared is not None:
            return _attach, (type(self), self.shared, self._hindsight)
        if self.path is not None:
            return _open, (type(self), self.path, self._hindsight)
        raise TypeError("a replay in private memory cannot be pickled: make it with shared=..., or save it")

    @property
    def capacity(self) -> int:
        """Largest number of rows held."""
        return cast("int", self._settings["capacity"])

    @property
    def nbytes(self) -> int:
        """Size of the memory in bytes, sum tree included."""
        return self._native.nbytes

    @property
    def shared(self) -> str | None:
        """Name of the shared memory; None for private memory."""
        return self._native.shared

    @property
    def path(self) -> str | None:
        """Path of the mapped file; None if there is none."""
        return self._native.path

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that the replay was made with."""
        return copy.deepcopy(self._settings)

    @property
    def sampleable(self) -> int:
        """Number of rows whose n steps are complete, so that they can be sampled."""
        return self._native.sampleable

    @property
    def total_priority(self) -> float:
        """Sum of ``(|priority| + epsilon) ** alpha`` over all rows that can be sampled."""
        return self._native.total

    @property
    def counters(self) -> dict[str, int]:
        """Counts of events since the replay was made; reading them does not block other calls.

        Rows ``added`` and ``sampled``; draws ``redrawn`` because their row was being overwritten; priorities
        ``updated``, ``stale`` (dropped: row overwritten) and ``saturated`` (above the largest weight);
        ``restarts`` of draws at nodes that a writer emptied; ``recovered`` processes, which died in a call.
        """
        return self._native.counters()

    @property
    def max_priority(self) -> float:
        """Largest ``(|priority| + epsilon) ** alpha`` so far, the default of new rows; 1 at first."""
        return self._native.largest

    def histogram(self) -> NDArray[np.uint64]:
        """Histogram of ``(|priority| + epsilon) ** alpha``; does not block other calls.

        Returns:
            (33,) uint64: entry k counts the rows with ``2**(k-17) <= value < 2**(k-16)``, entry 0 the slots
            that cannot be sampled.
        """
        return self._native.histogram()

    @property
    def stale_updates(self) -> int:
        """Number of priorities that were dropped because their row had been overwritten."""
        return self._native.counters()["stale"]

    @property
    def saturated(self) -> int:
        """Number of priorities that were too large and were stored as the largest possible value."""
        return self._native.counters()["saturated"]

    @property
    def rng_state(self) -> tuple[int, int]:
        """Seed and number of ``sample`` calls, which together with the priorities determine later samples."""
        if self._prefetchers:
            self._wait_for_prefetchers()
        seed, calls = self._native.rng_state
        return seed, calls

    @rng_state.setter
    def rng_state(self, state: tuple[int, int]) -> None:
        if self._prefetchers:
            self._wait_for_prefetchers()
        self._native.rng_state = list(state)


def _attach(cls: type[PrioritizedReplay], name: str, hindsight: Hindsight | None) -> PrioritizedReplay:
    return cls.attach(name, hindsight=hindsight)


def _open(cls: type[PrioritizedReplay], path: str, hindsight: Hindsight | None) -> PrioritizedReplay:
    return cls.open(path, hindsight=hindsight)


def _array_of(
    out: Mapping[str, Any], name: str, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    """The array ``name`` of ``out``, or a new one if ``out`` has none; ValueError if it does not fit."""
    value = out.get(name)
    if value is None:
        return np.empty(shape, dtype)
    array = cast("NDArray[Any]", value if isinstance(value, np.ndarray) else value.numpy())
    if array.shape != shape or array.dtype != dtype:
        raise ValueError(
            f"out[{name!r}] is {array.dtype} of shape {array.shape}, expected {dtype} of shape {shape}"
        )
    return array


def _torch() -> Any:
    import torch

    return torch
