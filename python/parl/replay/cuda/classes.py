"""Classes of replays on a CUDA device, one for each class of the CPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.replay.cuda import columns, layout, structs
from parl.replay.cuda.replay import CudaReplay
from parl.replay.prioritized import PrioritizedReplay
from parl.replay.sequence import SequenceReplay
from parl.replay.uniform import UniformReplay

if TYPE_CHECKING:
    from torch import Tensor

    from parl.replay.batch import Batch

# Rows of the slot table of sampled sequences: the slot, the length, an unused row; then the slots of the
# steps.
_OWN, _WALK = 0, 3


class CudaUniformReplay(CudaReplay, UniformReplay):
    """:class:`parl.UniformReplay` on a CUDA device."""

    def add(self, *, env_id: Any = None, priorities: Any = None, **columns: Any) -> Any:
        """As :meth:`CudaReplay.add`; ``priorities`` are ignored."""
        return super().add(env_id=env_id, priorities=None, **columns)

    def update_priorities(self, tickets: Any, priorities: Any) -> int:
        """Does nothing and returns 0."""
        return 0


class CudaSequenceReplay(CudaReplay, SequenceReplay):
    """:class:`parl.SequenceReplay` on a CUDA device, with equal sequences."""

    def sequence_priorities(self, td_errors: Any, mask: Any = None) -> Any:
        """As :meth:`parl.SequenceReplay.sequence_priorities`, on the device; does not synchronize.

        Args:
            td_errors: (T, B) float, or (T - burn_in, B) without the burn-in.
            mask: (T, B) bool, the mask of the batch; None if all sequences have T steps.

        Returns:
            (B,) float64 on the device; 0 for a sequence without a step after the burn-in.

        Raises:
            ValueError: a shape does not fit.
        """
        torch = self._cuda.torch
        errors = self._cuda.numbers(td_errors).detach().double().abs()
        skipped = self._burn_in_steps(tuple(errors.shape))
        errors = errors[skipped:]
        if mask is None:
            valid = torch.ones_like(errors, dtype=torch.bool)
        else:
            valid = torch.as_tensor(mask, device=self._cuda.device).bool()
            self._check_mask(tuple(valid.shape), errors.shape[1])
            valid = valid[self.burn_in :]
        errors = torch.where(valid, errors, 0.0)
        count = valid.sum(0).clamp(min=1)
        largest = torch.cat([errors, errors.new_zeros((1, errors.shape[1]))]).amax(0)
        return self.eta * largest + (1 - self.eta) * errors.sum(0) / count

    def update_priorities(self, tickets: Any, priorities: Any, mask: Any = None) -> Any:
        """As :meth:`parl.SequenceReplay.update_priorities`; does not synchronize.

        Args:
            tickets: (B,) int64, of the batch.
            priorities: (B,) float, or TD errors (T, B), which :meth:`sequence_priorities` converts.
            mask: (T, B) bool, the mask of the batch, for TD errors.

        Returns:
            () int64 tensor, the number of priorities dropped because their row had been overwritten.
        """
        values = self._cuda.numbers(priorities)
        if values.ndim == 2:
            values = self.sequence_priorities(values, mask)
        return CudaReplay.update_priorities(self, tickets, values)

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
        # (start in the table, rows to copy) -> outputs.
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


def cuda_class(kind: type[PrioritizedReplay]) -> type[CudaReplay]:
    """The CUDA class that corresponds to a class of replays on the CPU.

    Raises:
        ValueError: there is none.
    """
    if issubclass(kind, CudaReplay):
        return kind
    found = {
        PrioritizedReplay: CudaReplay,
        UniformReplay: CudaUniformReplay,
        SequenceReplay: CudaSequenceReplay,
    }.get(kind)
    if found is None:
        names = "PrioritizedReplay, UniformReplay, SequenceReplay"
        raise ValueError(f'{kind.__name__} does not support device="cuda", expected one of {names}')
    return found
