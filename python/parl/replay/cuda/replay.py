"""Replays on a CUDA device: :class:`parl.PrioritizedReplay` with ``device="cuda"``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

import numpy as np

from parl.errors import NonFiniteError, NotSampleableError, ReplayClosedError
from parl.replay.batch import Batch
from parl.replay.cuda import columns, files, generator, layout, modes, relabel, structs
from parl.replay.cuda.device import Arena, CudaDevice
from parl.replay.cuda.prefetch import CudaPrefetch
from parl.replay.cuda.structs import Word
from parl.replay.cuda.tree import TreeMemory, draws, floats_of
from parl.replay.fields import (
    SEPARATOR,
    difference,
    exponent,
    flatten,
    flatten_out,
    is_one_row,
    one_final_row,
    rows_of,
    unsigned,
)
from parl.replay.prioritized import PrioritizedReplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight

# Rows of the slot table that the sampling kernel writes: the row, the last step of its transition, the row
# after it; then the frames of stacks.
_OWN, _LAST, _NEXT, _FRAMES = 0, 1, 2, 3
_UNITS = 65536.0
_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


class CudaReplay(PrioritizedReplay):
    """A replay in the memory of a CUDA device; ``PrioritizedReplay(..., device="cuda")`` makes one.

    ``parl.replay.cuda.classes`` has the classes for ``UniformReplay`` and ``SequenceReplay``. Rows and
    seed determine the batches as on the CPU; only the last bit of ``priority ** alpha`` can differ.

    - ``add`` takes CUDA tensors, or values that are copied to the device, and ``sample`` returns CUDA
      tensors; tickets are int64. ``add``, ``sample``, ``update_priorities`` and ``end_episodes`` enqueue
      kernels on torch's current stream and do not synchronize. They can be captured in a CUDA graph, because
      counters, generator and ring are on the device. ``beta`` may be a float64 CUDA tensor, whose value may
      change between launches of the graph.
    - Integers of NumPy and Python that a field cannot represent raise ValueError as on the CPU; those of
      tensors, which are on the device, wrap around.
    - Invalid values on the device are ignored and counted, and :meth:`check` raises an error for them:
      priorities that are not finite, environments outside the bounds, truncated rows without their final
      observation, and sampling while no row can be sampled, which returns weights of 0 and invalid tickets. A
      reward that is not finite is reported too, but its row is stored.
    - ``update_priorities`` and ``evict`` return a tensor.
    - Properties and ``len`` synchronize.
    - A replay must be used on one stream at a time, as any tensor of torch.
    - ``"uniform"``, ``"without_replacement"``, mixtures and ``evict`` have the distributions of the CPU but
      other random numbers; ``"largest"`` returns the same rows. The last three read all priorities.
    - With ``hindsight`` the same rows get the same goals as on the CPU. Its functions are called with device
      tensors of all B rows; their results for rows that are not relabeled are ignored.
    - ``save`` and ``load`` synchronize. Files are those of the CPU, which can load them and vice versa.
    - ``shared``, ``path`` and ``compression`` are not supported.
    """

    _cuda: CudaDevice
    # None once the replay is closed.
    _held: TreeMemory | None = None

    @classmethod
    def _device_of(cls, device: str) -> CudaDevice:
        return CudaDevice(device)

    def _make(
        self,
        capacity: int,
        fields: Mapping[str, FieldSpec],
        frame_stack: int | Mapping[str, int],
        *,
        path: str | os.PathLike[str] | None,
        device: str = "cuda",
        **settings: Any,
    ) -> None:
        if not 1 <= capacity <= layout.CAPACITY_MAX:
            raise ValueError(f"capacity is {capacity}, expected 1 to {layout.CAPACITY_MAX}")
        for name, found, off, instead in (
            ("path", path, None, "use save() and load()"),
            ("shared", settings["shared"], None, 'use device="cpu" to share it between processes'),
            ("compression", settings["compression"], "none", 'use device="cpu" if the rows do not fit'),
        ):
            if found != off:
                raise ValueError(f'{name} is {found!r}, which device="cuda" does not support: {instead}')
        # A warp reads a node of the tree.
        settings["fan_out"] = layout.LANES
        # A small replay on the CPU checks the settings and describes the outputs.
        few = min(capacity, settings["n_step"] + 1)
        super()._make(few, fields, frame_stack, path=None, device="cpu", **settings)
        self._settings["capacity"] = capacity
        self._cuda = self._device_of(device)
        self._allocate(capacity)
        self.rng_state = (settings["seed"], 0)
        self._memory.words[Word.LARGEST_EVER] = int(_UNITS)

    def _allocate(self, capacity: int) -> None:
        settings = self._settings
        by_name = {name: (dtype, shape) for name, dtype, shape, _ in self._fields}
        self._widths = {name: dtype.itemsize * _product(shape) for name, (dtype, shape) in by_name.items()}
        for name, (dtype, _) in by_name.items():
            if dtype.name not in _DTYPES or not dtype.isnative:
                raise ValueError(
                    f'field {name!r} has dtype {dtype}, expected one of {_DTYPES} with device="cuda"'
                )
        steps, rebuilds = "terminated" in by_name, bool(self._final)
        self._frames = max((stack for *_, stack in self._fields), default=1)
        history = min((self._frames - 1) * settings["num_envs"], capacity)
        slots, chunk = layout.ring(capacity, history)
        window = settings["n_step"] + int(rebuilds)
        sequence, hindsight = settings["sequence"], settings["hindsight"]
        is_plain = sequence is None and hindsight is None
        self._is_independent = not steps or (
            window == 1 and settings["autoreset"] != "next_step" and is_plain
        )
        self._needs_finals = rebuilds and settings["autoreset"] != "next_step"
        self._window = window
        # Rows that are added at once, which may come with as many final observations.
        self._piece = max(capacity // 2, 1)
        arena = Arena()
        for name, width in self._widths.items():
            arena.add(_column(name), slots, width)
        arena.add("states", slots, 16)
        arena.add("tails", settings["num_envs"] * (2 + window), 8)
        arena.add("listed", slots, 4)
        arena.add("final_of", self._piece, 4)
        arena.add("stale", 1, 8)
        self._held = TreeMemory(self._cuda, slots, _UNITS, is_chained=False, arena=arena)

        def role(name: str) -> int:
            return arena.address(_column(name)) if steps else 0

        def is_double(name: str) -> int:
            return int(name in by_name and by_name[name][0].itemsize == 8)

        self._plan = structs.Replay(
            tree=self._memory.plan,
            states=arena.address("states"),
            tails=arena.address("tails"),
            listed=arena.address("listed"),
            final_of=arena.address("final_of"),
            reward=role("reward"),
            terminated=role("terminated"),
            truncated=role("truncated"),
            discount=role("discount"),
            gamma=settings["gamma"],
            share=0.0 if hindsight is None else hindsight[1],
            alpha=settings["alpha"],
            epsilon=settings["epsilon"],
            reward_is_double=is_double("reward"),
            discount_is_double=is_double("discount"),
            slots=slots,
            capacity=capacity,
            chunk=chunk,
            n_step=settings["n_step"],
            window_rows=window,
            frames=self._frames,
            num_envs=settings["num_envs"],
            resets_next_step=int(settings["autoreset"] == "next_step"),
            rebuilds=int(rebuilds),
            steps=int(steps),
            independent=int(self._is_independent),
            pads_first=int(settings["stack_padding"] == "first"),
            is_global=int(settings["weight_norm"] == "global"),
            period=0 if sequence is None else sequence[0],
            burn_in=0 if sequence is None else sequence[1],
            strategy=relabel.strategy_of(hindsight),
            goal_in_next=int(
                hindsight is not None and relabel.goal_column(hindsight, by_name) == hindsight[2]
            ),
            tag=self._native.ticket_tag >> 32,
        )

    @property
    def _memory(self) -> TreeMemory:
        if self._held is None:
            raise ReplayClosedError("this replay is closed")
        return self._held

    def close(self) -> None:
        """Releases the memory to torch; a second call does nothing."""
        super().close()
        self._held = None

    def _launch(self, kernel: str, blocks: int, threads: int, call: Any) -> None:
        # The plan has addresses of this memory.
        _ = self._memory
        self._cuda.launch("parl_replay_" + kernel, blocks, threads, self._plan, call)

    # ------------------------------------------------------------ adding rows

    def add(self, *, env_id: Any = None, priorities: Any = None, **fields: Any) -> Any:
        """As :meth:`parl.PrioritizedReplay.add`, with tensors; does not synchronize.

        Args:
            env_id: (n,) integers; by default row i is from environment i.
            priorities: (n,) float, or one number for all rows.
            **fields: every field, (n, *shape), or a single row without the leading dimension. With
                ``autoreset`` other than ``"next_step"`` also ``final_obs`` (n, *shape), of which the rows of
                truncated steps are read, with ``hindsight`` also those of terminated ones.

        Returns:
            (n,) int64 tickets on the device.

        Raises:
            ValueError: a field is missing, unknown, or of the wrong shape or dtype.
            IndexError: there are more rows than environments, and no ``env_id``.
        """
        finals = self._pop_final_observations(fields)
        if self._is_nested:
            fields = flatten(fields, [name for name, *_ in self._fields])
        if fields.keys() != self._names:
            raise ValueError(difference(fields, self._names))
        if is_one_row(fields, self._fields):
            fields = {name: self._one_row(value) for name, value in fields.items()}
            finals = {
                name: one_final_row(finals.get(name), shape, stack) for name, _, shape, stack in self._final
            }
        rows = -1
        given: dict[str, Tensor] = {}
        for name, dtype, shape, stack in self._fields:
            given[name] = tensor = self._rows(name, fields[name], dtype, shape, stack, rows)
            rows = len(tensor)
        last = {
            name: self._rows("final_" + name, finals[name], dtype, shape, stack, rows)
            for name, dtype, shape, stack in self._final
            if finals.get(name) is not None
        }
        envs = None if env_id is None else self._cuda.to_device(env_id, "int64").reshape(-1)
        if envs is not None and len(envs) != rows:
            raise ValueError(f"env_id has {len(envs)} rows, expected {rows}")
        if envs is None and not self._is_independent and rows > self._settings["num_envs"]:
            raise IndexError(
                f"{rows} rows without env_id, expected at most num_envs, {self._settings['num_envs']}"
            )
        kept, reals = (None, structs.Reals()) if priorities is None else self._reals(priorities, rows)
        if kept is not None and rows > self._piece:
            # As on the CPU, the largest priority is updated from all rows before any weight is computed.
            call = structs.ReplayAdd(priorities=reals, count=1 if kept.ndim == 0 else rows)
            self._launch("note", layout.blocks(call.count), layout.THREADS, call)
        tickets = self._cuda.empty((rows,), "int64")
        for start in range(0, rows, self._piece):
            piece = slice(start, min(start + self._piece, rows))
            self._add_piece(
                {name: tensor[piece] for name, tensor in given.items()},
                {name: tensor[piece] for name, tensor in last.items()},
                envs[piece] if envs is not None else self._default_envs(piece, rows),
                reals if kept is None or kept.ndim == 0 else self._reals(kept[piece], piece.stop - start)[1],
                tickets[piece],
            )
        return tickets

    def _reals(self, value: Any, count: int) -> tuple[Any, structs.Reals]:
        return floats_of(self._cuda, value, count, "priorities")

    def _default_envs(self, piece: slice, rows: int) -> Any:
        """Environments of a range of rows added without ``env_id``; None if the kernels number them."""
        if self._is_independent or rows <= self._piece:
            return None
        return self._cuda.torch.arange(piece.start, piece.stop, device=self._cuda.device)

    def _pop_final_observations(self, fields: dict[str, Any]) -> dict[str, Any]:
        if not self._needs_finals:
            return {}
        found: dict[str, Any] = {}
        for group in dict.fromkeys(name.split(SEPARATOR)[0] for name, *_ in self._final):
            value = fields.pop("final_" + group, None)
            if value is None:
                continue
            found |= flatten({group: value}, [name for name, *_ in self._final])
        unknown = sorted(found.keys() - {name for name, *_ in self._final})
        if unknown:
            raise ValueError(f"fields do not match: unknown final_{', final_'.join(unknown)}")
        missing = [name for name, *_ in self._final if name not in found]
        if found and missing:
            raise ValueError(f"final_{missing[0]} is missing, expected all final observations or none")
        return found

    def _one_row(self, value: Any) -> Any:
        """A value without the leading dimension, with it."""
        if _is_of_host(value):
            return value[None] if isinstance(value, np.ndarray) else [value]
        return self._cuda.torch.as_tensor(value)[None]

    def _rows(
        self, name: str, value: Any, dtype: np.dtype[Any], shape: tuple[int, ...], stack: int, rows: int
    ) -> Tensor:
        torch = self._cuda.torch
        if _is_of_host(value):
            value = rows_of(name, value, dtype)
        tensor = torch.as_tensor(value, device=self._cuda.device)
        wanted = getattr(torch, dtype.name)
        if tensor.dtype != wanted:
            if not torch.can_cast(tensor.dtype, wanted):
                raise ValueError(f"{name} has dtype {tensor.dtype}, which cannot be cast to {wanted}")
            tensor = tensor.to(wanted)
        rows = len(tensor) if rows < 0 and tensor.ndim else rows
        if stack > 1 and tuple(tensor.shape) == (rows, stack, *shape):
            tensor = tensor[:, -1]
        if tuple(tensor.shape) != (rows, *shape):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {(max(rows, 0), *shape)}")
        # Rows need not be adjacent, but each must be contiguous.
        return tensor if _is_dense(tensor) else tensor.contiguous()

    def _add_piece(
        self,
        given: Mapping[str, Tensor],
        last: Mapping[str, Tensor],
        envs: Tensor | None,
        priorities: structs.Reals,
        tickets: Tensor,
    ) -> None:
        torch, rows = self._cuda.torch, len(tickets)
        flags = {
            name: given[name].contiguous()
            for name in ("terminated", "truncated")
            if self._is_step(name, given)
        }
        discounts = given["discount"].contiguous() if self._is_step("discount", given) else None
        rewards = given["reward"].contiguous() if self._is_step("reward", given) else None
        order = None
        if envs is not None and not self._is_independent:
            order = torch.argsort(envs, stable=True)
        call = structs.ReplayAdd(
            envs=0 if envs is None else envs.data_ptr(),
            order=0 if order is None else order.data_ptr(),
            priorities=priorities,
            terminated=_address(flags.get("terminated")),
            truncated=_address(flags.get("truncated")),
            finals=int(bool(last)),
            discounts=structs.Reals() if discounts is None else self._reals(discounts, rows)[1],
            rewards=structs.Reals() if rewards is None else self._reals(rewards, rows)[1],
            tickets=tickets.data_ptr(),
            count=rows,
        )
        self._launch("reserve", 1, 1024, call)
        self._launch("publish", layout.blocks(2 * rows), layout.THREADS, call)
        self._write(given, last, rows)
        self._launch("append", layout.blocks(rows), layout.THREADS, call)
        listed = rows if self._is_independent else rows * self._window
        self._launch("weigh", layout.blocks(listed), layout.THREADS, call)

    def _is_step(self, name: str, given: Mapping[str, Tensor]) -> bool:
        return name in given and self._plan.steps != 0

    def _write(self, given: Mapping[str, Tensor], last: Mapping[str, Tensor], rows: int) -> None:
        kinds = ((given, 0), (last, 1))
        rows_of = [
            columns.Rows(self._column(name), self._widths[name], tensor, is_final)
            for some, is_final in kinds
            for name, tensor in some.items()
        ]
        for call, blocks in columns.writes(rows_of, rows):
            self._launch("write", blocks, layout.THREADS, call)

    def _column(self, name: str) -> int:
        """Address of a field's column."""
        return self._memory.arena.address(_column(name))

    def _bytes_of(self, name: str) -> Tensor:
        """A field's column as bytes, in the order of the slots."""
        return self._memory.arena.view(_column(name), "uint8")

    # ------------------------------------------------------------ sampling

    def sample(
        self,
        batch_size: int,
        *,
        beta: Any = 0.4,
        as_torch: bool = True,
        out: Mapping[str, Any] | None = None,
        mode: Any = "stratified",
        rank: int = 0,
        learners: int = 1,
        uniform: float = 0.0,
        newest: float = 0.0,
        newest_rows: int | None = None,
    ) -> Batch:
        """As :meth:`parl.PrioritizedReplay.sample`, with tensors on the device; does not synchronize.

        Args:
            batch_size: batch size B, at most 2**24.
            beta: exponent of the importance weights, a number or a float64 tensor () on the device. A tensor
                is read when the kernel runs, and its value is not checked.
            as_torch: ignored; entries are always tensors.
            out: an earlier batch of this size, whose tensors are overwritten.
            mode: as of :meth:`parl.PrioritizedReplay.sample`. ``"largest"`` and ``"without_replacement"``
                leave out rows whose earlier frames have been overwritten, without a replacement.
            rank: number of this caller, for ``"split"``.
            learners: number of callers, for ``"split"``.
            uniform: share of the batch that is drawn uniformly.
            newest: share of the batch that is drawn uniformly from the newest rows.
            newest_rows: number of rows that count as newest, by default ``batch_size``.

        Returns:
            A batch with the fields, (B, *shape) each; next observations; ``discount`` and ``weights`` (B,)
            float32; ``indices`` and ``tickets`` (B,) int64.

        Raises:
            ValueError: the mode, a share or the size is invalid, a number beta is negative or not finite, or
                a tensor of ``out`` does not fit or belongs to no field.
        """
        size = unsigned("batch_size", batch_size)
        kind = modes.kind_of(str(mode), uniform, newest)
        chosen = draws(size, "independent" if mode in modes.MODES else str(mode), rank, learners)
        batch = self._empty_batch(size, out)
        if size > 0:
            table = self._cuda.empty((self._table_rows() * size,), "int32")
            drawn = self._cuda.empty((size,), "int32")
            call = self._draw_call(chosen, batch, table, drawn, beta)
            if kind is None:
                blocks = -(-size // layout.DRAWS_PER_BLOCK)
                self._launch("draw", blocks, layout.SAMPLE_THREADS, call)
            else:
                modes.draw(self, kind, call, uniform, newest, size if newest_rows is None else newest_rows)
            if self._hindsight is not None:
                relabel.choose_goals(self, table, drawn, batch["relabelled"])
            self._gather(batch, table, size)
        if self._hindsight is not None:
            relabel.apply(self._hindsight, batch, self._settings["gamma"], self._cuda)
        return self._nest(batch) if self._is_nested else batch

    def _table_rows(self) -> int:
        """Number of rows of the slot table that the sampling kernel writes."""
        return _FRAMES + 2 * self._frames + int(self._hindsight is not None)

    def _empty_batch(self, size: int, out: Mapping[str, Any] | None) -> Batch:
        flat = {} if out is None else flatten_out(out, [name for name, *_ in self._outputs])
        batch = Batch()
        wanted = [
            (name, dtype.name, (steps, size, *shape) if steps else (size, *shape))
            for name, dtype, shape, steps in self._outputs
        ]
        wanted += [("discount", "float32", (size,))] if self._has_discounts else []
        wanted += [
            ("indices", "int64", (size,)),
            ("weights", "float32", (size,)),
            ("tickets", "int64", (size,)),
        ]
        for name, dtype, shape in wanted:
            tensor = flat.get(name)
            if tensor is None:
                tensor = self._cuda.empty(shape, dtype)
            found = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.device
            if found != (shape, dtype, self._cuda.device) or not tensor.is_contiguous():
                raise ValueError(
                    f"out[{name!r}] is {found[1]} of shape {found[0]} on {found[2]}, expected a contiguous "
                    f"{dtype} tensor of shape {shape} on {self._cuda.device}"
                )
            batch[name] = tensor
        return batch

    def _draw_call(
        self, chosen: structs.Draws, batch: Batch, table: Tensor, drawn: Tensor, beta: Any
    ) -> structs.ReplayDraw:
        # In sequences the steps are copied unchanged.
        steps = self._plan.steps != 0 and not self._has_sequences
        on_device = hasattr(beta, "data_ptr")
        if on_device and (str(beta.dtype), beta.numel(), beta.device) != (
            "torch.float64",
            1,
            self._cuda.device,
        ):
            raise ValueError(
                f"beta is {beta.dtype} on {beta.device}, expected one float64 number on {self._cuda.device}"
            )
        return structs.ReplayDraw(
            draws=chosen,
            table=table.data_ptr(),
            drawn=drawn.data_ptr(),
            indices=batch["indices"].data_ptr(),
            tickets=batch["tickets"].data_ptr(),
            weights=batch["weights"].data_ptr(),
            discounts=_address(batch.get("discount")) if self._has_discounts else 0,
            rewards=_address(batch.get("reward")) if steps else 0,
            terminated=_address(batch.get("terminated")) if steps else 0,
            truncated=_address(batch.get("truncated")) if steps else 0,
            beta_at=beta.data_ptr() if on_device else 0,
            beta=0.0 if on_device else exponent("beta", beta),
        )

    def _gather(self, batch: Batch, table: Tensor, size: int) -> None:
        outputs = [
            columns.Output(self._column(field), self._widths[field], batch[name].data_ptr(), row, frames)
            for field, name, row, frames in self._copied_outputs()
        ]
        for call, blocks in columns.gathers(outputs, table.data_ptr(), size):
            self._launch("gather", blocks, layout.THREADS, call)

    def _copied_outputs(self) -> Sequence[tuple[str, str, int, int]]:
        """Field, name in the batch, row of the slot table, and frames of each output that is copied."""
        names = {name for name, *_ in self._fields}
        steps, final = self._plan.steps != 0, {name for name, *_ in self._final}
        own = {"reward", "terminated", "truncated", "discount"} if steps else set[str]()
        found: list[tuple[str, str, int, int]] = []
        for name, _, _, stack in self._fields:
            if name in own or self._widths[name] == 0:
                continue
            observed = name.removeprefix("next_")
            explicit = steps and observed != name and observed in names and _is_observation(observed)
            row = _LAST if explicit else _FRAMES if stack > 1 else _OWN
            found.append((name, name, row, stack))
            if name in final:
                row = _FRAMES + self._frames if stack > 1 else _NEXT
                found.append((name, "next_" + name, row, stack))
        if self._hindsight is not None:
            field = relabel.goal_column(self._settings["hindsight"], names)
            found.append((field, "hindsight_goal", _FRAMES + 2 * self._frames, 1))
        return found

    def update_priorities(self, tickets: Any, priorities: Any) -> Any:
        """As :meth:`parl.PrioritizedReplay.update_priorities`; does not synchronize.

        Tickets of other replays are ignored; :meth:`check` raises an error for them.

        Args:
            tickets: (B,) int64, from :meth:`add` or :meth:`sample`.
            priorities: (B,) float32 or float64; their absolute values are used.

        Returns:
            () int64 tensor, the number of priorities dropped because their row had been overwritten.

        Raises:
            ValueError: the lengths differ.
        """
        given = self._cuda.to_device(tickets, "int64").reshape(-1)
        kept, reals = self._reals(priorities, len(given))
        stale = self._cuda.empty((), "int64")
        call = structs.ReplayUpdate(given.data_ptr(), reals, stale.data_ptr(), len(given))
        for kernel in ("stamp", "scatter"):
            self._launch(kernel, layout.blocks(len(given)), layout.THREADS, call)
        del kept
        return stale

    def end_episodes(self, env_id: Any) -> None:
        """As :meth:`parl.PrioritizedReplay.end_episodes`; does not synchronize."""
        envs = self._cuda.to_device(env_id, "int64").reshape(-1)
        if len(envs):
            call = structs.ReplayCut(envs.data_ptr(), len(envs))
            self._launch("cut", layout.blocks(len(envs)), layout.THREADS, call)

    def empty_batch(self, batch_size: int, *, as_torch: bool = True, pin_memory: bool = False) -> Batch:
        """Allocates a batch of tensors for ``out`` of :meth:`sample`."""
        batch = self._empty_batch(unsigned("batch_size", batch_size), None)
        return self._nest(batch) if self._is_nested else batch

    def evict(self, rows: int) -> Any:
        """As :meth:`parl.PrioritizedReplay.evict`; does not synchronize.

        Returns:
            () int64 tensor, the number of rows removed; if it is smaller than ``rows``, :meth:`check` raises.

        Raises:
            ValueError: ``rows`` is larger than the number of slots.
        """
        return modes.evict(self, unsigned("rows", rows))

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        ordered: bool = True,
        reuse: bool = False,
        pin_memory: bool = False,
        **options: Any,
    ) -> Any:
        """As :meth:`parl.PrioritizedReplay.prefetch`; see :class:`CudaPrefetch`.

        Args:
            batch_size: batch size B.
            depth: number of batches sampled in advance, 1 to 1,024.
            ordered: ignored; without a thread, batches are always sampled at fixed points.
            reuse: whether the tensors of a batch are overwritten once the next batch is taken.
            pin_memory: ignored; batches are on the device.
            **options: options of :meth:`sample` except ``out``.

        Raises:
            ValueError: ``depth`` is out of its bounds, or ``out`` is given.
        """
        if "out" in options:
            raise ValueError("prefetch does not take out: use reuse=True to reuse tensors")
        return CudaPrefetch(self, batch_size, depth=depth, reuse=reuse, options=options)

    # ------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str]) -> None:
        """As :meth:`parl.PrioritizedReplay.save`; synchronizes. The file can be loaded on any device."""
        files.save(self, self._native, os.fspath(path))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        shared: str | None = None,
        capacity: int | None = None,
        hindsight: Hindsight | None = None,
        device: str = "cuda",
    ) -> Self:
        """As :meth:`parl.PrioritizedReplay.load`; synchronizes.

        Raises:
            FileNotFoundError, ReplayFileError: as of :meth:`parl.PrioritizedReplay.load`.
            ValueError: the file holds another kind of replay or compressed rows, or ``shared`` is given.
            CudaUnavailableError: there is no such device; the message says why.
        """
        if shared is not None:
            raise ValueError(f'shared is {shared!r}: shared memory needs device="cpu"')
        cls._device_of(device)
        opened = files.ReplayFile(
            os.fspath(path), None if capacity is None else unsigned("capacity", capacity)
        )
        try:
            cls._check_kind(opened.settings, hindsight)
        except ValueError:
            opened.close()
            raise
        settings = dict(opened.settings)
        fields = settings.pop("fields")
        replay = object.__new__(cls)
        replay._hindsight = hindsight
        replay._make(
            settings.pop("capacity"),
            opened.fields(),
            {name: stack for name, _, _, _, stack in fields},
            path=None,
            device=device,
            shared=None,
            **settings,
        )
        opened.restore(replay)
        return replay

    def flush(self) -> NoReturn:
        """Not supported on a device, because there is no mapped file."""
        raise ValueError('the replay has no mapped file, which needs device="cpu": use save()')

    @classmethod
    def attach(cls, name: str, *, hindsight: Hindsight | None = None) -> NoReturn:
        """Not supported on a device, whose memory is not shared between processes."""
        raise ValueError('attach needs a replay in shared memory, with device="cpu"')

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hindsight: Hindsight | None = None) -> NoReturn:
        """Not supported on a device, because there is no mapped file."""
        raise ValueError('open needs a mapped file, with device="cpu": use load() for a saved replay')

    # ------------------------------------------------------------ state; all of these synchronize

    def check(self) -> None:
        """Synchronizes, and raises an error for invalid values seen on the device since the last check.

        If there are errors of several kinds, the class is that of the first kind below, and the message names
        all of them.

        Raises:
            NonFiniteError: rewards were NaN or infinite.
            ValueError: priorities were not finite, discounts outside 0 to 1, or truncated rows without their
                final observation.
            IndexError: tickets were not issued by this replay, or environments were out of their bounds.
            NotSampleableError: more rows were requested than could be sampled.
        """
        self._memory.raise_errors(
            (Word.BAD_REWARD, NonFiniteError, "rewards were not finite"),
            (Word.BAD_PRIORITY, ValueError, "priorities were not finite and were ignored"),
            (Word.BAD_DISCOUNT, ValueError, "discounts were outside 0 to 1"),
            (
                Word.NO_FINAL,
                ValueError,
                "truncated rows were added without their final observation, which autoreset "
                f"{self._settings['autoreset']!r} needs; their episodes end at the row before",
            ),
            (Word.BAD_INDEX, IndexError, "tickets were not issued by this replay and were ignored"),
            (
                Word.BAD_ENV,
                IndexError,
                f"rows were from environments outside 0 to {self._settings['num_envs'] - 1}",
            ),
            (Word.EMPTY, NotSampleableError, f"calls requested more rows than could be sampled: {self!r}"),
        )

    def verify(self) -> None:
        """Checks every sum of the tree; raises InconsistentError if one is not the sum of its leaves."""
        self._memory.verify()

    def __len__(self) -> int:
        if self._held is None:
            return 0
        beginning = self._memory.word(Word.FIRST_SEQUENCE)
        return min(self._memory.word(Word.RESERVED) - beginning, self.capacity)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a replay on a device cannot be pickled")

    @property
    def device(self) -> Any:
        """The torch device of the replay."""
        return self._cuda.device

    @property
    def nbytes(self) -> int:
        """Size of the device memory in bytes."""
        return self._memory.arena.bytes

    @property
    def sampleable(self) -> int:
        """Number of rows whose n steps are complete, so that they can be sampled."""
        return self._memory.word(Word.READY)

    @property
    def total_priority(self) -> float:
        """Sum of ``(|priority| + epsilon) ** alpha`` over all rows that can be sampled."""
        return self._memory.total()

    @property
    def max_priority(self) -> float:
        """Largest ``(|priority| + epsilon) ** alpha`` so far, the default of new rows; 1 at first."""
        return self._memory.word(Word.LARGEST_EVER) / _UNITS

    @property
    def counters(self) -> dict[str, int]:
        """As :attr:`parl.PrioritizedReplay.counters`."""
        names = ("added", "sampled", "redrawn", "updated", "stale", "saturated")
        return {
            **{name: self._memory.word(Word[name.upper()]) for name in names},
            "restarts": 0,
            "recovered": 0,
        }

    @property
    def stale_updates(self) -> int:
        """Number of priorities that were dropped because their row had been overwritten."""
        return self._memory.word(Word.STALE)

    @property
    def saturated(self) -> int:
        """Number of priorities that were too large and were stored as the largest possible value."""
        return self._memory.word(Word.SATURATED)

    def histogram(self) -> Any:
        """As :meth:`parl.PrioritizedReplay.histogram`."""
        return self._memory.histogram()

    @property
    def rng_state(self) -> tuple[int, int]:
        """Seed and number of sample calls."""
        return self._seed, self._memory.word(Word.CALLS)

    @rng_state.setter
    def rng_state(self, state: tuple[int, int]) -> None:
        self._seed, calls = state
        self._memory.set_words(Word.CALLS, [calls, generator.first_number(self._seed)])


def _column(name: str) -> str:
    return "column " + name


def _is_of_host(value: Any) -> bool:
    """Whether a value consists of NumPy's arrays and numbers and Python's."""
    if isinstance(value, (list, tuple)):
        return all(map(_is_of_host, cast("Sequence[Any]", value)))
    return isinstance(value, (np.ndarray, np.generic, bool, int, float))


def _is_observation(name: str) -> bool:
    return name == "obs" or name.startswith(("obs_", "obs" + SEPARATOR))


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _is_dense(tensor: Tensor) -> bool:
    """Whether each row is contiguous and rows do not overlap."""
    inner = tensor[0] if len(tensor) else tensor
    return inner.is_contiguous() and (len(tensor) < 2 or tensor.stride(0) >= inner.numel())


def _address(tensor: Any) -> int:
    return 0 if tensor is None else cast("int", tensor.data_ptr())
