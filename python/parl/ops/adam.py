"""Adam on one flat buffer.

``torch.optim.Adam`` gives the same numbers (a test compares them), but its constructor loads torch's
compiler, 1.3 s that a short run feels, and its step costs twice as much on small networks.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def adam_step(
    weights: Tensor,
    gradients: Tensor,
    mean: Tensor,
    square: Tensor,
    step: int,
    learning_rate: float,
    epsilon: float,
    betas: tuple[float, float] = (0.9, 0.999),
) -> None:
    """One step in place: ``weights -= learning_rate * mean_hat / (sqrt(square_hat) + epsilon)``.

    Args:
        weights: (P,) float32, changed; requires no gradient.
        gradients: (P,) float32.
        mean: (P,) float32, running mean of the gradients, changed; zeros before the first step.
        square: (P,) float32, running mean of their squares, changed; zeros before the first step.
        step: number of this step, from 1.
        learning_rate: step size.
        epsilon: offset of the denominator.
        betas: decay of the two means.

    Source: Kingma and Ba (2015), algorithm 1.
    """
    first, second = betas
    mean.lerp_(gradients, 1 - first)
    square.mul_(second).addcmul_(gradients, gradients, value=1 - second)
    denominator = torch.sqrt(square).div_(math.sqrt(1 - second**step)).add_(epsilon)
    weights.addcdiv_(mean, denominator, value=-learning_rate / (1 - first**step))
