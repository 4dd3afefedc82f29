"""The classes of replays that are on a CUDA device, one for each of the CPU's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.device import columns, layout, structs
from parl.replay.device.replay import DeviceReplay
from parl.replay.prioritized import PrioritizedReplay
from parl.replay.sequence import SequenceReplay
from parl.replay.uniform import UniformReplay

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.batch import Batch

# Rows of the table that the draw of a sequence leaves: its own slot, its length, one more; then its steps.
_OWN, _WALK = 0, 3


class DeviceUniformReplay(DeviceReplay, UniformReplay):
    """:class:`DeviceReplay` in which every row that can be drawn has weight 1."""

    def add(self, *, env_id: Any = None, priorities: Any = None, **columns: Any) -> Any:
        """As :meth:`DeviceReplay.add`; ``priorities`` are not looked at."""
        return super().add(env_id=env_id, priorities=None, **columns)

    def update_priorities(self, tickets: Any, priorities: Any) -> int:
        """Does nothing and returns 0."""
        return 0


class DeviceSequenceReplay(DeviceReplay, SequenceReplay):
    """:class:`parl.SequenceReplay` on a CUDA device: the same sequences, as tensors, time first."""

    def sequence_priorities(self, td_errors: Any, mask: Any = None) -> Any:
        """As :meth:`parl.SequenceReplay.sequence_priorities`, on the device; does not wait.

        Args:
            td_errors: (T, B) float, or (T - burn_in, B) without the burn-in.
            mask: (T, B) bool, the batch's; by default all steps are there.

        Returns:
            (B,) float64; 0 for a sequence without a step after the burn-in.

        Raises:
            ValueError: the shapes disagree.
        """
        torch = self._place.torch
        errors = torch.as_tensor(td_errors, device=self._place.device).detach().double().abs()
        skipped = self._burnt_in(tuple(errors.shape))
        errors = errors[skipped:]
        if mask is None:
            there = torch.ones_like(errors, dtype=torch.bool)
        else:
            there = torch.as_tensor(mask, device=self._place.device).bool()
            self._check_mask(tuple(there.shape), errors.shape[1])
            there = there[self.burn_in :]
        errors = torch.where(there, errors, 0.0)
        count = there.sum(0).clamp(min=1)
        largest = torch.cat([errors, errors.new_zeros((1, errors.shape[1]))]).amax(0)
        return self.eta * largest + (1 - self.eta) * errors.sum(0) / count

    def update_priorities(self, tickets: Any, priorities: Any, mask: Any = None) -> Any:
        """As :meth:`parl.SequenceReplay.update_priorities`; does not wait.

        Args:
            tickets: (B,) int64, of the batch.
            priorities: (B,), or TD errors (T, B) that :meth:`sequence_priorities` makes them of.
            mask: (T, B) bool, the batch's, with TD errors.

        Returns:
            a tensor of one int64: how many were dropped because their row had been overwritten.
        """
        values = self._place.torch.as_tensor(priorities, device=self._place.device)
        if values.ndim == 2:
            values = self.sequence_priorities(values, mask)
        return DeviceReplay.update_priorities(self, tickets, values)

    def _table_rows(self) -> int:
        walk = self.length + 1
        return _WALK + walk + self.length + (walk * self._frames if self._frames > 1 else 0)

    def _gather(self, batch: Batch, table: Tensor, size: int) -> None:
        length, start = self.length, table.data_ptr()
        call = structs.ReplaySteps(start, batch["discount"].data_ptr(), batch["mask"].data_ptr(), size)
        self._launch("steps", layout.blocks((length + 1) * size), layout.THREADS, call)
        walk, steps = _WALK * size, (_WALK + length + 1) * size
        frames = (_WALK + 2 * length + 1) * size
        stacks = {name: stack for name, _, _, stack in self._fields}
        # Where in the table, rows of the batch, and what is copied so.
        groups: dict[tuple[int, int], list[columns.Output]] = {}
        for name, _, _, long in self._outputs:
            if name in ("discount", "mask") or self._widths[name] == 0:
                continue
            stack = stacks[name] if long > length else 1
            place = {0: _OWN, length: steps}.get(long, frames if stack > 1 else walk)
            output = columns.Output(self._column(name), self._widths[name], batch[name].data_ptr(), 0, stack)
            groups.setdefault((place, max(long, 1) * size), []).append(output)
        for (place, rows), outputs in groups.items():
            for gather, blocks in columns.gathers(outputs, start + 4 * place, rows):
                self._launch("gather", blocks, layout.THREADS, gather)


def on_device(kind: type[PrioritizedReplay]) -> type[DeviceReplay]:
    """The class that stands for a class of replays on a device.

    Raises:
        ValueError: there is none.
    """
    if issubclass(kind, DeviceReplay):
        return kind
    found = {
        PrioritizedReplay: DeviceReplay,
        UniformReplay: DeviceUniformReplay,
        SequenceReplay: DeviceSequenceReplay,
    }.get(kind)
    if found is None:
        names = "PrioritizedReplay, UniformReplay, SequenceReplay"
        raise ValueError(f'{kind.__name__} is of device="cpu": a device has {names}')
    return found
