"""Distributions of returns: categorical ones on fixed atoms, and quantiles."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor


def project_categorical(support: Tensor, probabilities: Tensor, reward: Tensor, discount: Tensor) -> Tensor:
    """Projects the distribution of ``reward + discount * Z`` onto the atoms of ``Z``.

    Each shifted atom is clipped to the support, and its probability is divided between the two nearest atoms,
    in proportion to nearness.

    Args:
        support: (M,) float32, ascending.
        probabilities: (B, M) float32, of Z.
        reward: (B,) float32.
        discount: (B,) float32.

    Returns:
        (B, M) float32, rows sum to 1; a row is NaN if its reward or one of its probabilities is.

    Source: Bellemare, Dabney and Munos (2017), "A Distributional Perspective on Reinforcement Learning",
    equation 7 and algorithm 1.
    """
    shifted = reward.unsqueeze(1) + discount.unsqueeze(1) * support
    above = torch.searchsorted(support, shifted, right=True).clamp_(1, len(support) - 1)
    low = support[above - 1]
    share = ((shifted - low) / (support[above] - low)).clamp_(0, 1)  # of the upper atom; NaN stays NaN
    projected = torch.zeros_like(probabilities)
    projected.scatter_add_(1, above - 1, probabilities * (1 - share))
    return projected.scatter_add_(1, above, probabilities * share)


def atom_values(low: float, high: float, count: int, spacing: Literal["equal", "sqrt"]) -> Tensor:
    """Returns the values of the atoms of a categorical distribution, (count,) float32, ascending.

    Args:
        low: value of the first atom.
        high: value of the last atom, above ``low``.
        count: number of atoms.
        spacing: what is equally spaced: the values, or their square roots, with sign. The distance of
            neighbors then grows with the value's root, so that small returns are told apart as well as
            large ones are.
    """
    if spacing == "equal":
        return torch.linspace(low, high, count)
    roots = torch.linspace(_signed_root(low), _signed_root(high), count)
    return roots * roots.abs()


def _signed_root(value: float) -> float:
    return math.copysign(math.sqrt(abs(value)), value)


def initial_logits(support: Tensor) -> Tensor:
    """Returns logits (M,) float32 of a narrow distribution around 0 on the atoms ``support`` (M,).

    Networks start with them added to the outputs. Equal probabilities, as wide as the range, are narrowed by
    nothing but the discount, a little with each copy of the target network; until then, which can take more
    updates than a run has, differences between actions are lost in the width.
    """
    places = torch.arange(len(support), dtype=torch.float32, device=support.device)
    return -(places - support.abs().argmin()).abs()


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
