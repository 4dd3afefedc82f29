"""Distributions over actions, as functions of what a network gives: categorical and diagonal Gaussian."""

from __future__ import annotations

import math
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from parl.types import Array

LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def categorical(logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probability of actions and entropy of the distributions.

    Args:
        logits: (B, A) float32, not normalised.
        action: (B,) int64.

    Returns:
        (B,) and (B,) float32, in nats. Their gradient can be taken once.
    """
    return cast("tuple[Tensor, Tensor]", _Categorical.apply(logits, action))


class _Categorical(torch.autograd.Function):
    """``d log p(a) / d z = [a] - p`` and ``d H / d z = -p (log p + H)``, as one operation."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
        """See :func:`categorical`."""
        ctx.set_materialize_grads(False)
        log_p = torch.log_softmax(logits, dim=1)
        p, chosen = log_p.exp(), action.unsqueeze(1)
        entropy = (p * log_p).sum(dim=1).neg_()
        ctx.save_for_backward(log_p, p, chosen, entropy)
        return log_p.gather(1, chosen).squeeze(1), entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, of_chosen: Tensor | None, of_entropy: Tensor | None) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the logits."""
        log_p, p, chosen, entropy = ctx.saved_tensors
        g = torch.zeros_like(p) if of_chosen is None else p * of_chosen.neg().unsqueeze_(1)
        if of_entropy is not None:
            g.addcmul_((log_p + entropy.unsqueeze(1)) * p, of_entropy.unsqueeze(1), value=-1)
        if of_chosen is not None:
            g.scatter_add_(1, chosen, of_chosen.unsqueeze(1))
        return g, None


def gaussian(mean: Tensor, log_std: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-density of actions and entropy of diagonal Gaussians.

    Args:
        mean: (B, D) float32.
        log_std: (D,) float32.
        action: (B, D) float32.

    Returns:
        (B,) and (B,) float32, in nats.
    """
    z = (action - mean) * torch.exp(-log_std)
    normaliser = log_std.sum() + action.shape[1] * LOG_SQRT_2PI
    entropy = normaliser + 0.5 * action.shape[1]
    return -0.5 * z.square().sum(dim=1) - normaliser, entropy.expand(len(mean))


def normalized(advantage: Tensor) -> Tensor:
    """(B,) float32 with mean 0 and standard deviation 1; one element alone is only centred."""
    centred = advantage - advantage.mean()
    if len(advantage) < 2:
        return centred
    deviation = torch.linalg.vector_norm(centred).mul_(1 / math.sqrt(len(advantage) - 1))
    return centred.div_(deviation.add_(1e-8))


def squashed_gaussian(mean: Tensor, log_std: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Actions ``tanh(mean + std * noise)`` and their log-density, differentiable in both parameters.

    Args:
        mean: (B, D) float32.
        log_std: (B, D) float32.
        noise: (B, D) float32, standard normal.

    Returns:
        (B, D) float32 in -1..1, and (B,) float32 in nats, of the squashed actions.

    Source: Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications", appendix C;
    ``log(1 - tanh(u)^2) = 2 (log 2 - u - softplus(-2 u))``, which does not run out of digits.
    """
    u = torch.addcmul(mean, log_std.exp(), noise)
    correction = 2 * (math.log(2) - u - torch.nn.functional.softplus(-2 * u))
    each = -0.5 * noise.square() - log_std - correction
    return torch.tanh(u), each.sum(dim=1) - mean.shape[1] * LOG_SQRT_2PI


class Squashed:
    """:func:`squashed_gaussian` of arrays, with its way back.

    Args:
        out: (B, 2 D) float32, means and then logarithms of standard deviations, these brought to
            ``low``..``high``.
        noise: (B, D) float32, standard normal.
        low: smallest logarithm.
        high: largest logarithm.

    Attributes:
        action: (B, D) float32 in -1..1.
        log_density: (B,) float32, in nats.
    """

    def __init__(self, out: Array, noise: Array, low: float, high: float) -> None:
        size = noise.shape[1]
        mean, given = out[:, :size], out[:, size:]
        log_std = np.clip(given, low, high)
        self._kept = log_std == given
        self._spread = np.exp(log_std) * noise
        u = mean + self._spread
        self.action = np.tanh(u)
        correction = 2 * (np.float32(math.log(2)) - u - np.logaddexp(np.float32(0), -2 * u))
        each = np.float32(-0.5) * np.square(noise) - log_std - correction
        self.log_density = each.sum(axis=1) - np.float32(size * LOG_SQRT_2PI)

    def back(self, of_action: Array, of_log_density: np.float32) -> Array:
        """Gradients of ``out``, from those of the actions (B, D) and that of each log-density, one number."""
        # The derivative of -log(1 - tanh(u)^2) is 2 tanh(u).
        of_u = of_action * (1 - np.square(self.action)) + (2 * of_log_density) * self.action
        of_log_std = (of_u * self._spread - of_log_density) * self._kept
        return np.concatenate((of_u, of_log_std), axis=1)
