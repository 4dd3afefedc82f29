"""Batches of tensors, on any device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parl.types import Batch


@dataclass(frozen=True)
class TensorBatch:
    """A batch of tensors. See :class:`parl.types.Batch`."""

    obs: Any
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Any
    weights: Tensor
    tickets: Any


TENSORS = ("obs", "action", "reward", "discount", "next_obs", "weights")
"""Fields of a batch that learners compute with."""


def select_rows(column: Tensor, rows: Tensor) -> Tensor:
    """Returns ``column.index_select(0, rows)``; bytes are copied as words of eight if possible.

    On a GPU one thread copies one element: frames of bytes take as many threads as floats of eight times
    their size.

    Args:
        column: (R, ...).
        rows: (B,) int64.
    """
    row = column[0].numel() if len(column) else 0
    if column.dtype != torch.uint8 or not row or row % 8 or column.storage_offset() % 8:
        return column.index_select(0, rows)
    words = column.reshape(len(column), row).view(torch.int64).index_select(0, rows)
    return words.view(torch.uint8).view(len(rows), *column.shape[1:])


def batch_to_device(batch: Batch, device: torch.device) -> TensorBatch:
    """Returns ``batch`` with its tensors on ``device``; the tickets are not moved."""
    return TensorBatch(**{name: _to(getattr(batch, name), device) for name in TENSORS}, tickets=batch.tickets)


def _to(part: Any, device: torch.device) -> Any:
    if isinstance(part, Mapping):
        return {name: _to(inner, device) for name, inner in part.items()}
    return part.to(device, non_blocking=True)
