"""Losses: weighted for importance, and those of policy and value together.

The latter are one operation each, with their gradient by hand; see ``parl.nets.dense`` for why.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from parl.ops.judged import Judged
from parl.types import Array


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
    return cast("Tensor", _Huber.apply(prediction, target, weights, delta))


class _Huber(torch.autograd.Function):
    """With ``c = clip(x, -delta, delta)``, Huber is ``c (x - c / 2)`` and its derivative ``c``."""

    @staticmethod
    def forward(ctx: Any, prediction: Tensor, target: Tensor, weights: Tensor, delta: float) -> Tensor:
        """See :func:`weighted_huber`."""
        error = prediction - target
        cut = error.clamp(-delta, delta)
        loss = torch.dot(error.sub_(cut, alpha=0.5).mul_(cut), weights).div_(len(weights))
        ctx.gradient = cut.mul_(weights).mul_(1 / len(weights))
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The gradient of the prediction."""
        return ctx.gradient * g, None, None, None


class PolicyLoss(NamedTuple):
    """A loss of policy and value, and its parts.

    Attributes:
        total: scalar, the one with a gradient, which can be taken once.
        policy: scalar.
        value: scalar, before its coefficient.
        entropy: scalar mean.
        kl: scalar, how far the policy has moved; None where nobody measured.
    """

    total: Tensor
    policy: Tensor
    value: Tensor
    entropy: Tensor
    kl: Tensor | None = None


def clipped_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    old_log_prob: Tensor,
    old_value: Tensor,
    advantage: Tensor,
    target: Tensor,
    clip: float,
    value_clip: float,
    value_coefficient: float,
    entropy_coefficient: float,
) -> PolicyLoss:
    """PPO's loss.

    With ``r = exp(log_prob - old_log_prob)``, means over the batch::

        total  = policy + value_coefficient * value - entropy_coefficient * mean(entropy)
        policy = -mean(min(r A, clip(r, 1 - clip, 1 + clip) A))
        value  = mean((V - R)^2) / 2, or with value_clip v > 0 that of
                 max((V - R)^2, (V_old + clip(V - V_old, -v, v) - R)^2)
        kl     = mean(r - 1 - log r)

    Args:
        log_prob: (B,) float32.
        entropy: (B,) float32.
        value: (B,) float32, V.
        old_log_prob: (B,) float32, of the policy that acted.
        old_value: (B,) float32, V_old.
        advantage: (B,) float32, A.
        target: (B,) float32, R.
        clip: range of the ratio.
        value_clip: range of the value; 0: none.
        value_coefficient: see above.
        entropy_coefficient: see above.

    Source: Schulman et al. (2017), equations 7 and 9; KL: Schulman (2020), estimator k3.
    """
    numbers = (clip, value_clip, value_coefficient, entropy_coefficient)
    columns = (log_prob, entropy, value, old_log_prob, old_value, advantage, target)
    return PolicyLoss(*cast("tuple[Tensor, ...]", _Clipped.apply(*columns, *numbers)))


class _Clipped(torch.autograd.Function):
    """:func:`clipped_loss`; where the clipped product is the smaller one the ratio has no gradient."""

    @staticmethod
    def forward(ctx: Any, *given: Any) -> tuple[Tensor, ...]:
        """Total, policy, value, entropy and KL, of the same columns and numbers; gradients come with them."""
        columns = cast("list[Tensor]", given[:7])
        log_prob, entropy, value, old_log_prob, old_value, advantage, target = columns
        clip, value_clip, value_coefficient, entropy_coefficient = cast("list[float]", given[7:])
        rows = len(value)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        free, held = ratio * advantage, ratio.clamp(1 - clip, 1 + clip).mul_(advantage)
        policy = torch.minimum(free, held).mean().neg_()
        of_log_prob = free.mul_(free <= held).mul_(-1 / rows)
        error = value - target
        of_value = error * (value_coefficient / rows)
        square = error.square()
        if value_clip:
            moved = (value - old_value).clamp_(-value_clip, value_clip).add_(old_value).sub_(target).square_()
            inside = (value - old_value).abs_() <= value_clip
            of_value.mul_((square >= moved).logical_or_(inside))
            square = torch.maximum(square, moved)
        squares = square.mean().mul_(0.5)
        mean_entropy = entropy.mean()
        kl = ratio.sub_(1).sub_(log_ratio).mean()
        total = torch.add(policy, squares, alpha=value_coefficient).sub_(
            mean_entropy, alpha=entropy_coefficient
        )
        ctx.gradients = (of_log_prob, -entropy_coefficient / rows, of_value)
        ctx.mark_non_differentiable(policy, squares, mean_entropy, kl)
        ctx.set_materialize_grads(False)
        return total, policy, squares, mean_entropy, kl

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients of log-probability, entropy and value."""
        of_log_prob, of_entropy, of_value = ctx.gradients
        entropy = (g * of_entropy).expand_as(of_value) if of_entropy else None
        return of_log_prob.mul_(g), entropy, of_value.mul_(g), *[None] * 8


def clipped_gradients(
    judged: Judged,
    value: Array,
    old_log_prob: Array,
    old_value: Array,
    advantage: Array,
    target: Array,
    clip: float,
    value_clip: float,
    value_coefficient: float,
    entropy_coefficient: float,
) -> tuple[Array, Array, dict[str, float]]:
    """:func:`clipped_loss` with numpy, and its gradients: for a few hundred rows.

    Args:
        judged: log-probabilities and entropies of the actions taken.
        value: (B,) float32, V, as are the other columns.
        old_log_prob: of the policy that acted.
        old_value: V_old.
        advantage: A.
        target: R.
        clip: range of the ratio.
        value_clip: range of the value; 0: none.
        value_coefficient: of the squared error.
        entropy_coefficient: of the entropy.

    Returns:
        gradients of the policy's outputs (B, A) and of ``value`` (B,), and the figures ``policy_loss``,
        ``value_loss``, ``entropy`` and ``kl``.
    """
    rows = len(value)
    log_ratio = judged.log_prob - old_log_prob
    ratio = np.exp(log_ratio)
    free, held = ratio * advantage, np.minimum(np.maximum(ratio, 1 - clip), 1 + clip) * advantage
    of_log_prob = free * (free <= held) * np.float32(-1 / rows)
    error = value - target
    of_value = error * np.float32(value_coefficient / rows)
    square = error * error
    if value_clip:
        distance = value - old_value
        moved = (np.minimum(np.maximum(distance, -value_clip), value_clip) + old_value - target) ** 2
        of_value *= (square >= moved) | (np.abs(distance) <= value_clip)
        square = np.maximum(square, moved)
    figures = {
        "policy_loss": -float(np.add.reduce(np.minimum(free, held))) / rows,
        "value_loss": float(np.add.reduce(square)) / (2 * rows),
        "entropy": float(np.add.reduce(judged.entropy)) / rows,
        "kl": float(np.add.reduce(ratio - 1 - log_ratio)) / rows,
    }
    return judged.back(of_log_prob, -entropy_coefficient / rows), of_value, figures


def policy_gradient_loss(
    log_prob: Tensor,
    entropy: Tensor,
    value: Tensor,
    advantage: Tensor,
    target: Tensor,
    value_coefficient: float,
    entropy_coefficient: float,
) -> PolicyLoss:
    """The loss of advantage actor-critic: means over the batch.

    ::

        total  = policy + value_coefficient * value - entropy_coefficient * mean(entropy)
        policy = -mean(log_prob * A)
        value  = mean((V - R)^2) / 2

    Args:
        log_prob: (B,) float32.
        entropy: (B,) float32.
        value: (B,) float32, V.
        advantage: (B,) float32, A; no gradient flows into it.
        target: (B,) float32, R; no gradient flows into it.
        value_coefficient: see above.
        entropy_coefficient: see above.

    Source: Mnih et al. (2016), algorithm S3.
    """
    columns = (log_prob, entropy, value, advantage, target)
    numbers = (value_coefficient, entropy_coefficient)
    return PolicyLoss(*cast("tuple[Tensor, ...]", _PolicyGradient.apply(*columns, *numbers)))


class _PolicyGradient(torch.autograd.Function):
    """See :func:`policy_gradient_loss`."""

    @staticmethod
    def forward(
        ctx: Any,
        log_prob: Tensor,
        entropy: Tensor,
        value: Tensor,
        advantage: Tensor,
        target: Tensor,
        value_coefficient: float,
        entropy_coefficient: float,
    ) -> tuple[Tensor, ...]:
        """Total, policy, value and entropy; gradients are computed on the way."""
        rows = len(value)
        error = value - target
        policy = torch.dot(log_prob, advantage).mul_(-1 / rows)
        squares = torch.dot(error, error).mul_(0.5 / rows)
        mean_entropy = entropy.mean()
        total = torch.add(policy, squares, alpha=value_coefficient).sub_(
            mean_entropy, alpha=entropy_coefficient
        )
        ctx.gradients = (
            advantage * (-1 / rows),
            -entropy_coefficient / rows,
            error.mul_(value_coefficient / rows),
        )
        ctx.mark_non_differentiable(policy, squares, mean_entropy)
        ctx.set_materialize_grads(False)
        return total, policy, squares, mean_entropy

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor, *_: Any) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Gradients of log-probability, entropy and value."""
        of_log_prob, of_entropy, of_value = ctx.gradients
        entropy = (g * of_entropy).expand_as(of_value) if of_entropy else None
        return of_log_prob.mul_(g), entropy, of_value.mul_(g), *[None] * 4


def policy_gradients(
    judged: Judged,
    value: Array,
    advantage: Array,
    target: Array,
    value_coefficient: float,
    entropy_coefficient: float,
) -> tuple[Array, Array, dict[str, float]]:
    """:func:`policy_gradient_loss` with numpy, and its gradients: for a few hundred rows.

    Args:
        judged: log-probabilities and entropies of the actions taken.
        value: (B,) float32, V, as are the other columns.
        advantage: A.
        target: R.
        value_coefficient: of the squared error.
        entropy_coefficient: of the entropy.

    Returns:
        gradients of the policy's outputs (B, A) and of ``value`` (B,), and the figures ``policy_loss``,
        ``value_loss`` and ``entropy``.
    """
    rows = len(value)
    of_log_prob = advantage * np.float32(-1 / rows)
    error = value - target
    figures = {
        "policy_loss": float(np.dot(judged.log_prob, of_log_prob)),
        "value_loss": float(np.dot(error, error)) / (2 * rows),
        "entropy": float(np.add.reduce(judged.entropy)) / rows,
    }
    of_outputs = judged.back(of_log_prob, -entropy_coefficient / rows)
    return of_outputs, error * np.float32(value_coefficient / rows), figures
