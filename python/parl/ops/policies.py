"""Distributions over actions as functions of a network's outputs: categorical and diagonal Gaussian."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def categorical(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities of actions, and entropies of the distributions.

    Args:
        logits: (B, A) float32, not normalized.
        action: (B,) int64.

    Returns:
        (B,) and (B,) float32, in nats.
    """
    log_p = torch.log_softmax(logits, dim=1)
    entropy = -(log_p.exp() * log_p).sum(dim=1)
    return log_p.gather(1, action.unsqueeze(1)).squeeze(1), entropy


def multi_categorical(logits: Tensor, action: Tensor, branches: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities of actions of several independent choices, and entropies: sums over choices.

    Args:
        logits: (B, M) float32, not normalized, of all choices side by side.
        action: (B, D) int64.
        branches: D numbers of values, whose sum is M.

    Returns:
        (B,) and (B,) float32, in nats.
    """
    each = [
        categorical(part, action[:, number])
        for number, part in enumerate(logits.split_with_sizes(list(branches), dim=1))
    ]
    return torch.stack([one for one, _ in each]).sum(dim=0), torch.stack([one for _, one in each]).sum(dim=0)


def gaussian(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log-densities of actions, and entropies of diagonal Gaussians.

    Args:
        mean: (B, D) float32.
        log_std: (D,) float32.
        action: (B, D) float32.

    Returns:
        (B,) and (B,) float32, in nats.
    """
    z = (action - mean) * torch.exp(-log_std)
    normalizer = log_std.sum() + action.shape[1] * LOG_SQRT_2PI
    entropy = normalizer + 0.5 * action.shape[1]
    return -0.5 * z.square().sum(dim=1) - normalizer, entropy.expand(len(mean))


def normalized(advantage: Tensor, weights: Tensor | None = None) -> Tensor:
    """Normalizes ``advantage`` to mean 0 and standard deviation 1; a single element is returned as it is.

    Args:
        advantage: of any shape, float32.
        weights: of the same shape, 1 / n for the n rows that count, 0 for the others; None: all count.
    """
    if weights is None:
        if advantage.numel() < 2:
            return advantage
        return (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    centred = advantage - (advantage * weights).sum()
    # The variance of n rows is their sum of squares over n - 1.
    share = weights.max()
    variance = (centred.square() * weights).sum() / (1 - share).clamp(min=1e-8)
    return torch.where(share < 1, centred / (variance.sqrt() + 1e-8), advantage)


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Returns actions ``tanh(mean + std * noise)`` and log-densities, differentiable in both parameters.

    Args:
        mean: (B, D) float32.
        log_std: (B, D) float32.
        noise: (B, D) float32, standard normal.

    Returns:
        (B, D) float32 in -1..1, and (B,) float32 in nats, of the squashed actions.

    Source: Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications", appendix C;
    ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))``, which does not lose precision.
    """
    u = torch.addcmul(mean, log_std.exp(), noise)
    correction = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    each = -0.5 * noise.square() - log_std - correction
    return torch.tanh(u), each.sum(dim=1) - mean.shape[1] * LOG_SQRT_2PI
