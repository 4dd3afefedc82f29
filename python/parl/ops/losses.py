"""Losses, weighted for importance."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def weighted_huber(prediction: Tensor, target: Tensor, weights: Tensor, delta: float) -> Tensor:
    """Mean over the batch of ``weights * huber(prediction - target)``.

    Huber is ``0.5 x^2`` for ``|x| <= delta`` and ``delta (|x| - 0.5 delta)`` beyond.

    Args:
        prediction: (B,) float32.
        target: (B,) float32, no gradient flows into it.
        weights: (B,) float32 importance weights.
        delta: ``> 0``, in units of the prediction; infinite gives half the squared error.

    Returns:
        scalar float32.

    Source: Huber (1964); Mnih et al. (2015), Methods, clip the error term at delta = 1.
    """
    if delta == float("inf"):
        losses = F.mse_loss(prediction, target, reduction="none").mul(0.5)
    else:
        losses = F.huber_loss(prediction, target, reduction="none", delta=delta)
    return torch.dot(losses, weights) / len(losses)
