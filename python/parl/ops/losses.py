"""Losses as functions of prediction and target."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def huber(prediction: Tensor, target: Tensor, delta: float) -> Tensor:
    """``0.5 x^2`` for ``|x| <= delta``, else ``delta (|x| - 0.5 delta)``; ``x = prediction - target``.

    Args:
        prediction: (B,) float32.
        target: (B,) float32.
        delta: ``> 0``, in units of the prediction; infinite gives half the squared error.

    Returns:
        (B,) float32.

    Source: Huber (1964); Mnih et al. (2015), Methods, clip the error term at delta = 1.
    """
    if math.isinf(delta):
        return 0.5 * (prediction - target).square()
    return torch.nn.functional.huber_loss(prediction, target, reduction="none", delta=delta)
