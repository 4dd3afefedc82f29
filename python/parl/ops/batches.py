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


def batch_to_device(batch: Batch, device: torch.device) -> TensorBatch:
    """Returns ``batch`` with its tensors on ``device``; the tickets are not moved."""
    return TensorBatch(**{name: _to(getattr(batch, name), device) for name in TENSORS}, tickets=batch.tickets)


def _to(part: Any, device: torch.device) -> Any:
    if isinstance(part, Mapping):
        return {name: _to(inner, device) for name, inner in part.items()}
    return part.to(device, non_blocking=True)
