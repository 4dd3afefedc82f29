"""Replays on a CUDA device: what :class:`parl.PrioritizedReplay` is with ``device="cuda"``."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, NoReturn, Self, cast

from parl.errors import NonFiniteError, NotSampleableError
from parl.replay.batch import Batch
from parl.replay.device import choose, columns, files, goals, jump, layout, structs
from parl.replay.device.ahead import DevicePrefetch
from parl.replay.device.place import Parts, Place
from parl.replay.device.structs import Word
from parl.replay.device.tree import Memory, draws, reals_of
from parl.replay.fields import SEPARATOR, difference, flatten, is_one_row, natural, one_final_row
from parl.replay.prioritized import PrioritizedReplay

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from parl.replay.fields import FieldSpec
    from parl.replay.hindsight import Hindsight

# Rows of the table that a draw leaves: its own slot, the last of its window, the next; then frames.
_OWN, _LAST, _NEXT, _FRAMES = 0, 1, 2, 3
_UNITS = 65536.0
_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64")


class DeviceReplay(PrioritizedReplay):
    """A replay whose rows, sums and counters are on a CUDA device.

    Not made directly: ``PrioritizedReplay(..., device="cuda")``; :mod:`parl.replay.device.kinds` has its kin.
    Fields, windows, frames and draws are those of the CPU: the same rows and the same seed give the same
    batches, but for the last bit of ``priority ** alpha``.

    - ``add`` takes CUDA tensors (others are copied there first), ``sample`` returns CUDA tensors that torch
      has allocated; tickets are int64. ``add``, ``sample``, ``update_priorities`` and ``end_episodes`` go to
      torch's current stream and do not wait, so they can be captured in a CUDA graph: counters, the generator
      and the ring are on the device. ``beta`` may be a float64 CUDA tensor that changes between replays of a
      graph.
    - What is wrong with values on the device (a priority that is not finite, an environment that is none, a
      truncated row without its final observation, draws while nothing can be drawn) is left out, counted, and
      raised by :meth:`check`. Draws of nothing have weight 0 and tickets that are none. A reward that is not
      finite is counted and raised too, and its row stays.
    - ``update_priorities`` returns how many were dropped as a tensor.
    - Properties and ``len`` wait for the device.
    - One stream at a time, as with any tensor of torch.
    - ``"uniform"``, ``"without_replacement"``, mixtures and ``evict`` have the CPU's laws with random numbers
      of their own; ``"largest"`` gives the same rows. The last three read all priorities. ``evict`` returns a
      tensor.
    - With ``hindsight`` the same rows get the same goals. Its functions are given tensors on the device, of
      all B rows: what they give for those that are not relabelled is not looked at.
    - ``save`` and ``load`` wait; files are the CPU's: each loads the other's.
    - Not here: ``shared``, ``path``, ``compression``, the combining writer. Each says what there is instead.
    """

    _place: Place

    @classmethod
    def _place_at(cls, device: str) -> Place:
        return Place(device)

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
            raise ValueError(f"capacity {capacity} is outside 1..={layout.CAPACITY_MAX}")
        for name, found, off, instead in (
            ("path", path, None, "save() writes a file, load() reads it"),
            ("shared", settings["shared"], None, 'processes share one with device="cpu"'),
            ("compression", settings["compression"], "none", 'take device="cpu" for rows that do not fit'),
            (
                "writer",
                "combining" if settings["combining"] else "lock_free",
                "lock_free",
                "one stream writes, which needs neither",
            ),
        ):
            if found != off:
                raise ValueError(f'{name} is {found!r}: device="cuda" has it not; {instead}')
        # A node of the tree is a warp.
        settings["fan_out"] = layout.LANES
        # A replay of a few rows on the CPU knows what the settings mean, and refuses those that cannot be.
        few = min(capacity, settings["n_step"] + 1)
        super()._make(few, fields, frame_stack, path=None, device="cpu", **settings)
        self._settings["capacity"] = capacity
        self._place = self._place_at(device)
        self._lay_out(capacity)
        self.rng_state = (settings["seed"], 0)
        self._memory.words[Word.LARGEST_EVER] = int(_UNITS)

    def _lay_out(self, capacity: int) -> None:
        settings = self._settings
        by_name = {name: (dtype, shape) for name, dtype, shape, _ in self._fields}
        self._widths = {name: dtype.itemsize * _product(shape) for name, (dtype, shape) in by_name.items()}
        for name, (dtype, _) in by_name.items():
            if dtype.name not in _DTYPES or not dtype.isnative:
                raise ValueError(f'field {name!r} has dtype {dtype}, which device="cuda" has not: {_DTYPES}')
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
        # Rows of one reservation, which may bring as many final observations.
        self._piece = max(capacity // 2, 1)
        parts = Parts()
        for name, width in self._widths.items():
            parts.add(_column(name), slots, width)
        parts.add("states", slots, 16)
        parts.add("tails", settings["num_envs"] * (2 + window), 8)
        parts.add("listed", slots, 4)
        parts.add("final_of", self._piece, 4)
        parts.add("stale", 1, 8)
        self._memory = Memory(self._place, slots, _UNITS, is_chained=False, parts=parts)

        def role(name: str) -> int:
            return parts.address(_column(name)) if steps else 0

        def is_double(name: str) -> int:
            return int(name in by_name and by_name[name][0].itemsize == 8)

        self._plan = structs.Replay(
            tree=self._memory.plan,
            states=parts.address("states"),
            tails=parts.address("tails"),
            listed=parts.address("listed"),
            final_of=parts.address("final_of"),
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
            strategy=goals.strategy_of(hindsight),
            goal_in_next=int(hindsight is not None and goals.column(hindsight, by_name) == hindsight[2]),
        )

    def _launch(self, kernel: str, blocks: int, threads: int, call: Any) -> None:
        self._place.launch("parl_replay_" + kernel, blocks, threads, self._plan, call)

    # ------------------------------------------------------------ adding

    def add(self, *, env_id: Any = None, priorities: Any = None, **fields: Any) -> Any:
        """As :meth:`parl.PrioritizedReplay.add`, with tensors; does not wait.

        Args:
            env_id: (n,) integers; by default row i is from environment i.
            priorities: (n,) float, or one for all.
            **fields: all of them, (n, *shape), or a single row without the leading axis; with ``autoreset``
                other than ``"next_step"`` also ``final_obs`` and its like, of all rows, of which those of
                truncated rows are read.

        Returns:
            (n,) int64 tickets on the device.

        Raises:
            ValueError: a field is missing, unknown, or of the wrong shape or dtype.
            IndexError: there are more rows than environments, and no ``env_id``.
        """
        finals = self._take_finals(fields)
        if self._is_nested:
            fields = flatten(fields, [name for name, *_ in self._fields])
        if fields.keys() != self._names:
            raise ValueError(difference(fields, self._names))
        if is_one_row(fields, self._fields):
            as_tensor = self._place.torch.as_tensor
            fields = {name: as_tensor(value)[None] for name, value in fields.items()}
            finals = {
                name: one_final_row(finals.get(name), shape, stack) for name, _, shape, stack in self._final
            }
        rows = -1
        given: dict[str, Tensor] = {}
        for name, dtype, shape, stack in self._fields:
            given[name] = tensor = self._rows(name, fields[name], dtype.name, shape, stack, rows)
            rows = len(tensor)
        last = {
            name: self._rows("final_" + name, finals[name], dtype.name, shape, stack, rows)
            for name, dtype, shape, stack in self._final
            if finals.get(name) is not None
        }
        envs = None if env_id is None else self._place.given(env_id, "int64").reshape(-1)
        if envs is not None and len(envs) != rows:
            raise ValueError(f"env_id has {len(envs)} rows, expected {rows}")
        if envs is None and not self._is_independent and rows > self._settings["num_envs"]:
            raise IndexError(
                f"row {rows - 1} is from no environment: num_envs is {self._settings['num_envs']}"
            )
        kept, reals = (None, structs.Reals()) if priorities is None else self._reals(priorities, rows)
        if kept is not None and rows > self._piece:
            # As on the CPU, the largest of all rows is known before the first of them is weighed.
            call = structs.ReplayAdd(priorities=reals, count=1 if kept.ndim == 0 else rows)
            self._launch("note", layout.blocks(call.count), layout.THREADS, call)
        tickets = self._place.empty((rows,), "int64")
        for start in range(0, rows, self._piece):
            piece = slice(start, min(start + self._piece, rows))
            self._add_piece(
                {name: tensor[piece] for name, tensor in given.items()},
                {name: tensor[piece] for name, tensor in last.items()},
                envs[piece] if envs is not None else self._own_envs(piece, rows),
                reals if kept is None or kept.ndim == 0 else self._reals(kept[piece], piece.stop - start)[1],
                tickets[piece],
            )
        return tickets

    def _reals(self, value: Any, count: int) -> tuple[Any, structs.Reals]:
        return reals_of(self._place, value, count, "priorities")

    def _own_envs(self, piece: slice, rows: int) -> Any:
        """Environments of a piece of rows that are numbered as their environments."""
        if self._is_independent or rows <= self._piece:
            return None
        return self._place.torch.arange(piece.start, piece.stop, device=self._place.device)

    def _take_finals(self, fields: dict[str, Any]) -> dict[str, Any]:
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
            raise ValueError(f"final_{missing[0]} is missing, the other final observations are there")
        return found

    def _rows(
        self, name: str, value: Any, dtype: str, shape: tuple[int, ...], stack: int, rows: int
    ) -> Tensor:
        torch = self._place.torch
        tensor = torch.as_tensor(value, device=self._place.device)
        wanted = getattr(torch, dtype)
        if tensor.dtype != wanted:
            if not torch.can_cast(tensor.dtype, wanted):
                raise ValueError(f"{name} has dtype {tensor.dtype}, which does not go into {wanted}")
            tensor = tensor.to(wanted)
        rows = len(tensor) if rows < 0 and tensor.ndim else rows
        if stack > 1 and tuple(tensor.shape) == (rows, stack, *shape):
            tensor = tensor[:, -1]
        if tuple(tensor.shape) != (rows, *shape):
            raise ValueError(f"{name} has shape {tuple(tensor.shape)}, expected {(max(rows, 0), *shape)}")
        # Rows may lie apart, each must be in one piece.
        return tensor if _is_dense(tensor) else tensor.contiguous()

    def _add_piece(
        self,
        given: Mapping[str, Tensor],
        last: Mapping[str, Tensor],
        envs: Tensor | None,
        priorities: structs.Reals,
        tickets: Tensor,
    ) -> None:
        torch, rows = self._place.torch, len(tickets)
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
        return self._memory.parts.address(_column(name))

    def _bytes_of(self, name: str) -> Tensor:
        """A field's column as bytes, row after row of the ring."""
        return self._memory.parts.view(_column(name), "uint8")

    # ------------------------------------------------------------ drawing

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
        """As :meth:`parl.PrioritizedReplay.sample`, with tensors on the device; does not wait.

        Args:
            batch_size: B, at most 131,040.
            beta: exponent of the importance weights; or a float64 tensor of it on the device, read when the
                draw runs, whose value is therefore not checked.
            as_torch: they are tensors either way.
            out: tensors of an earlier batch of this size to be overwritten.
            mode: as there. ``"largest"`` and ``"without_replacement"`` take rows whose earlier frames are
                gone in nobody's place: they leave them out.
            rank: of this caller, for ``"split"``.
            learners: callers, for ``"split"``.
            uniform: share of the batch that is drawn uniformly.
            newest: share that is drawn uniformly among the newest rows.
            newest_rows: how many rows count as newest, as there.

        Returns:
            the fields, (B, *shape) each; next observations; ``discount`` and ``weights`` (B,) float32;
            ``indices`` and ``tickets`` (B,) int64.

        Raises:
            ValueError: a mode, share or size that cannot be, a number beta that is negative or not finite, or
                a tensor of ``out`` that does not fit.
        """
        size = natural("batch_size", batch_size)
        kind = choose.kind_of(str(mode), uniform, newest)
        chosen = draws(size, "independent" if mode in choose.MODES else str(mode), rank, learners)
        batch = self._empty_batch(size, out)
        if size > 0:
            table = self._place.empty((self._table_rows() * size,), "int32")
            drawn = self._place.empty((size,), "int32")
            call = self._drawing(chosen, batch, table, drawn, beta)
            if kind is None:
                blocks = -(-size // layout.DRAWS_PER_BLOCK)
                self._launch("draw", blocks, layout.SAMPLE_THREADS, call)
            else:
                choose.draw(self, kind, call, uniform, newest, size if newest_rows is None else newest_rows)
            if self._hindsight is not None:
                goals.choose(self, table, drawn, batch["relabelled"])
            self._gather(batch, table, size)
        if self._hindsight is not None:
            goals.relabel(self._hindsight, batch, self._settings["gamma"], self._place)
        return self._nest(batch) if self._is_nested else batch

    def _table_rows(self) -> int:
        """Rows of the table that a draw leaves."""
        return _FRAMES + 2 * self._frames + int(self._hindsight is not None)

    def _empty_batch(self, size: int, out: Mapping[str, Any] | None) -> Batch:
        flat: Mapping[str, Any] = {}
        if out is not None:
            flat = flatten(out, [name for name, *_ in self._outputs]) if self._is_nested else out
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
                tensor = self._place.empty(shape, dtype)
            found = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.device
            if found != (shape, dtype, self._place.device) or not tensor.is_contiguous():
                raise ValueError(
                    f"out[{name!r}] is {found[0]} {found[1]} on {found[2]}, expected a contiguous tensor "
                    f"{shape} {dtype} on {self._place.device}"
                )
            batch[name] = tensor
        return batch

    def _drawing(
        self, chosen: structs.Draws, batch: Batch, table: Tensor, drawn: Tensor, beta: Any
    ) -> structs.ReplayDraw:
        # Of sequences each step is there as it is.
        steps = self._plan.steps != 0 and not self._has_sequences
        on_device = hasattr(beta, "data_ptr")
        if on_device and (str(beta.dtype), beta.numel(), beta.device) != (
            "torch.float64",
            1,
            self._place.device,
        ):
            raise ValueError(
                f"beta is {beta.dtype} on {beta.device}, expected one float64 on {self._place.device}"
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
            beta=0.0 if on_device else _exponent(beta),
        )

    def _gather(self, batch: Batch, table: Tensor, size: int) -> None:
        outputs = [
            columns.Output(self._column(field), self._widths[field], batch[name].data_ptr(), row, frames)
            for field, name, row, frames in self._gathered()
        ]
        for call, blocks in columns.gathers(outputs, table.data_ptr(), size):
            self._launch("gather", blocks, layout.THREADS, call)

    def _gathered(self) -> Sequence[tuple[str, str, int, int]]:
        """Field, name in the batch, row of the table, and frames of each output that is copied."""
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
            field = goals.column(self._settings["hindsight"], names)
            found.append((field, "hindsight_goal", _FRAMES + 2 * self._frames, 1))
        return found

    def update_priorities(self, tickets: Any, priorities: Any) -> Any:
        """As :meth:`parl.PrioritizedReplay.update_priorities`; does not wait.

        A ticket of a row that this replay has not written counts as overwritten.

        Args:
            tickets: (B,) int64, as :meth:`add` and :meth:`sample` gave them.
            priorities: (B,) float32 or float64; their absolute values count.

        Returns:
            a tensor of one int64: how many were dropped because their row had been overwritten.

        Raises:
            ValueError: the lengths differ.
        """
        given = self._place.given(tickets, "int64").reshape(-1)
        kept, reals = self._reals(priorities, len(given))
        stale = self._place.empty((), "int64")
        call = structs.ReplayUpdate(given.data_ptr(), reals, stale.data_ptr(), len(given))
        for kernel in ("stamp", "scatter"):
            self._launch(kernel, layout.blocks(len(given)), layout.THREADS, call)
        del kept
        return stale

    def end_episodes(self, env_id: Any) -> None:
        """As :meth:`parl.PrioritizedReplay.end_episodes`; does not wait."""
        envs = self._place.given(env_id, "int64").reshape(-1)
        if len(envs):
            call = structs.ReplayCut(envs.data_ptr(), len(envs))
            self._launch("cut", layout.blocks(len(envs)), layout.THREADS, call)

    def empty_batch(self, batch_size: int, *, as_torch: bool = True, pin_memory: bool = False) -> Batch:
        """Tensors for ``out`` of :meth:`sample`, to be filled again and again."""
        batch = self._empty_batch(natural("batch_size", batch_size), None)
        return self._nest(batch) if self._is_nested else batch

    def evict(self, rows: int) -> Any:
        """As :meth:`parl.PrioritizedReplay.evict`; does not wait.

        Returns:
            a tensor of one int64: how many were taken; where it is fewer than asked, :meth:`check` raises.

        Raises:
            ValueError: more than the replay can hold.
        """
        return choose.evict(self, natural("rows", rows))

    def prefetch(
        self,
        batch_size: int,
        *,
        depth: int = 2,
        lockstep: bool = True,
        reuse: bool = False,
        pin_memory: bool = False,
        **options: Any,
    ) -> Any:
        """As :meth:`parl.PrioritizedReplay.prefetch`: the same batches; see :class:`DevicePrefetch`.

        Args:
            batch_size: B.
            depth: batches that lie ready.
            lockstep: draws are at fixed places among the other calls either way: no thread draws.
            reuse: the tensors of a batch are filled again once the next one is taken.
            pin_memory: batches are on the device either way.
            **options: of :meth:`sample`, but ``out``.
        """
        if "out" in options:
            raise ValueError("prefetch fills tensors of its own; ask for reuse instead of out")
        return DevicePrefetch(self, batch_size, depth=depth, reuse=reuse, options=options)

    # ------------------------------------------------------------ files and names

    def save(self, path: str | os.PathLike[str]) -> None:
        """As :meth:`parl.PrioritizedReplay.save`: a file that either device loads. Waits."""
        files.save(self, self._core, os.fspath(path))

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
        """As :meth:`parl.PrioritizedReplay.load`: a file of either device. Waits.

        Raises:
            FileNotFoundError, ReplayFileError: as there.
            ValueError: the file is of another kind of replay, or has compressed rows, which a device has not.
            CudaUnavailableError: there is no such device; the message says why.
        """
        if shared is not None:
            raise ValueError('shared memory is of device="cpu"')
        cls._place_at(device)
        opened = files.Opened(os.fspath(path), None if capacity is None else natural("capacity", capacity))
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
            combining=False,
            **settings,
        )
        opened.put_into(replay)
        return replay

    def flush(self) -> NoReturn:
        """Not on a device: there is no file that is mapped."""
        raise ValueError('this replay is in no file: path is of device="cpu"; save() writes one')

    @classmethod
    def attach(cls, name: str, *, hindsight: Hindsight | None = None) -> NoReturn:
        """Not on a device, whose memory processes do not share."""
        raise ValueError('shared memory is of device="cpu"')

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, hindsight: Hindsight | None = None) -> NoReturn:
        """Not on a device: there is no file that is mapped."""
        raise ValueError('a file that is mapped is of device="cpu"; load() reads what save() wrote')

    # ------------------------------------------------------------ what it is; all of it waits

    def check(self) -> None:
        """Waits for the device, and raises what went wrong on it since the last look.

        Raises:
            ValueError: rewards or priorities that are not finite, discounts outside 0..=1, truncated rows
                without their final observation.
            IndexError: tickets or environments that cannot be.
            NotSampleableError: draws while nothing could be drawn.
        """
        memory = self._memory
        bad, discounts, finals = memory.take_counts(Word.BAD_PRIORITY, Word.BAD_DISCOUNT, Word.NO_FINAL)
        (rewards,) = memory.take_counts(Word.BAD_REWARD)
        tickets, envs, empty = memory.take_counts(Word.BAD_INDEX, Word.BAD_ENV, Word.EMPTY)
        if rewards:
            raise NonFiniteError(f"{rewards} rewards were not finite")
        if bad:
            raise ValueError(f"{bad} priorities were not finite; they were left out")
        if discounts:
            raise ValueError(f"{discounts} discounts were outside 0..=1")
        if finals:
            raise ValueError(
                f"{finals} truncated rows came without their final observation, which autoreset "
                f"{self._settings['autoreset']!r} needs; their episodes were cut"
            )
        if tickets:
            raise IndexError(f"{tickets} tickets are none of this replay's; they were left out")
        if envs:
            raise IndexError(f"{envs} rows were from environments outside 0..{self._settings['num_envs']}")
        if empty:
            raise NotSampleableError(f"{empty} calls drew more rows than could be drawn: {self!r}")

    def verify(self) -> None:
        """Checks that every sum of the tree is exact; raises InconsistentError."""
        self._memory.verify()

    def __len__(self) -> int:
        beginning = self._memory.word(Word.BEGINNING)
        return min(self._memory.word(Word.RESERVED) - beginning, self.capacity)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a replay on a device cannot be pickled")

    @property
    def device(self) -> Any:
        """Where it lies."""
        return self._place.device

    @property
    def nbytes(self) -> int:
        """Bytes of memory on the device."""
        return self._memory.parts.bytes

    @property
    def sampleable(self) -> int:
        """Rows whose window is complete."""
        return self._memory.word(Word.READY)

    @property
    def total_priority(self) -> float:
        """Sum of ``(|priority| + epsilon) ** alpha`` over all rows that can be drawn."""
        return self._memory.total()

    @property
    def max_priority(self) -> float:
        """The largest ``(|priority| + epsilon) ** alpha`` given so far, which new rows get."""
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
        """Priorities that were dropped because their row had been overwritten."""
        return self._memory.word(Word.STALE)

    @property
    def saturated(self) -> int:
        """Priorities that were too large for a weight and stored as the largest one."""
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
        self._memory.set_words(Word.CALLS, [calls, jump.first_number(self._seed)])


def _column(name: str) -> str:
    return "column " + name


def _is_observation(name: str) -> bool:
    return name == "obs" or name.startswith(("obs_", "obs" + SEPARATOR))


def _product(shape: tuple[int, ...]) -> int:
    size = 1
    for n in shape:
        size *= n
    return size


def _is_dense(tensor: Tensor) -> bool:
    """Whether each row is in one piece, and no two overlap."""
    inner = tensor[0] if len(tensor) else tensor
    return inner.is_contiguous() and (len(tensor) < 2 or tensor.stride(0) >= inner.numel())


def _exponent(beta: Any) -> float:
    number = float(beta)
    if not 0.0 <= number < math.inf:
        raise ValueError(f"beta {number} is outside 0..inf")
    return number


def _address(tensor: Any) -> int:
    return 0 if tensor is None else cast("int", tensor.data_ptr())
