"""Distributions of returns: categorical ones on fixed atoms, and quantiles."""

from __future__ import annotations

import torch
from torch import Tensor


def project_categorical(support: Tensor, probabilities: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """Projects the distribution of ``reward + discount * Z`` onto the atoms of ``Z``.

    Each shifted atom is clipped to the support, and its probability is divided between the two nearest atoms,
    in proportion to nearness.

    Args:
        support: (M,) float32, equally spaced, ascending.
        probabilities: (B, M) float32, of Z.
        reward: (B,) float32.
        discount: (B,) float32.

    Returns:
        (B, M) float32, rows sum to 1; a row is NaN if its reward or one of its probabilities is.

    Source: Bellemare, Dabney and Munos (2017), "A Distributional Perspective on Reinforcement Learning",
    equation 7 and algorithm 1.
    """
    atoms = len(support)
    low, spacing = support[0], support[1] - support[0]
    shifted = reward.unsqueeze(1) + discount.unsqueeze(1) * support
    place = ((shifted - low) / spacing).clamp_(0, atoms - 1)
    below = place.floor()
    share = place - below  # of the upper atom; 0 on an atom, so that the last one needs no upper atom
    below = below.long().clamp_(min=0)  # NaN is no index; ``share`` passes it on to the result
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, below, probabilities * (1 - share))
    return projected.scatter_add_(1, (below + 1).clamp_(max=atoms - 1), probabilities * share)


def categorical_divergence(target: Tensor, logits: Tensor) -> Tensor:
    """Computes the Kullback-Leibler divergence of each row's ``softmax(logits)`` from ``target``.

    It has the gradient of the cross-entropy, and is 0 where both agree.

    Args:
        target: (B, M) float32 probabilities, no gradient flows into them.
        logits: (B, M) float32.

    Returns:
        (B,) float32.

    Source: Hessel et al. (2018), "Rainbow", equation 3.
    """
    return (torch.xlogy(target, target) - target * torch.log_softmax(logits, dim=1)).sum(dim=1)


def midpoints(count: int, device: torch.device | None = None) -> Tensor:
    """Returns the midpoints of ``count`` equal parts of 0..1, (count,) float32: the fractions of quantiles.

    Source: Dabney et al. (2018), "Distributional Reinforcement Learning with Quantile Regression", lemma 2.
    """
    return (torch.arange(count, dtype=torch.float32, device=device) + 0.5) / count


def quantile_huber(quantiles: Tensor, fractions: Tensor, target: Tensor, delta: float) -> Tensor:
    """Asymmetric Huber loss: ``sum_i mean_j |tau_i - [u < 0]| huber(u) / delta``, ``u = target_j - theta_i``.

    Args:
        quantiles: (B, N) float32, predicted.
        fractions: (N,) or (B, N) float32, the tau of each quantile.
        target: (B, M) float32 samples, no gradient flows into them.
        delta: ``> 0`` and finite, in units of the return.

    Returns:
        (B,) float32.

    Source: Dabney et al. (2018), "Distributional Reinforcement Learning with Quantile Regression",
    equation 10; Dabney et al. (2018), "Implicit Quantile Networks", equation 3.
    """
    u = target.unsqueeze(1) - quantiles.unsqueeze(2)  # (B, N, M)
    distance = u.abs()
    huber = torch.where(distance <= delta, 0.5 / delta * u * u, distance - 0.5 * delta)
    slope = (fractions.unsqueeze(-1) - (u.detach() < 0).to(u.dtype)).abs()
    return (slope * huber).mean(dim=2).sum(dim=1)
