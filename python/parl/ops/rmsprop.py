"""RMSprop on one flat buffer, as ``torch.optim.RMSprop`` computes it (a test compares them)."""

from __future__ import annotations

import torch
from torch import Tensor

# Decay rate of the running mean of squared gradients.
_DECAY = 0.99


def rmsprop_step(
    weights: Tensor,
    gradients: Tensor,
    square: Tensor,
    learning_rate: float | Tensor,
    epsilon: float,
) -> None:
    """Makes one step in place: ``weights -= learning_rate * gradients / (sqrt(square) + epsilon)``.

    Args:
        weights: (P,) float32, changed; requires no gradient.
        gradients: (P,) float32.
        square: (P,) float32, running mean of their squares, changed; zeros before the first step.
        learning_rate: learning rate; for CUDA graphs as a () float32 tensor on the device.
        epsilon: added to the denominator.

    Source: Tieleman and Hinton (2012), lecture 6.5; epsilon is outside of the root.
    """
    square.mul_(_DECAY).addcmul_(gradients, gradients, value=1 - _DECAY)
    root = torch.sqrt(square).add_(epsilon)
    if isinstance(learning_rate, Tensor):
        weights.sub_(gradients / root * learning_rate)
    else:
        weights.addcdiv_(gradients, root, value=-learning_rate)
