"""Returns and advantages of whole rollouts, time first; each is one scan backward in time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def backward_scan(values: Tensor, factors: Tensor, last: Tensor) -> Tensor:
    """Computes ``y_t = values_t + factors_t * y_{t+1}`` for t = T-1..0, with ``y_T = last``.

    Args:
        values: (T, N) float32.
        factors: (T, N) float32.
        last: (N,) float32.

    Returns:
        (T, N) float32.
    """
    y = last
    rows: list[Tensor] = []
    for value, factor in zip(reversed(values.unbind(0)), reversed(factors.unbind(0)), strict=True):
        y = torch.addcmul(value, factor, y)
        rows.append(y)
    rows.reverse()
    return torch.stack(rows)


def gae(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    gamma: float,
    lam: float,
) -> Tensor:
    """Computes generalized advantage estimates (GAE).

    With ``delta_t = r_t + gamma (1 - terminated_t) V(s'_t) - V(s_t)``::

        A_t = delta_t + gamma lam (1 - ended_t) A_{t+1}

    Args:
        reward: (T, N) float32.
        value: (T, N) float32, of the observation that step t acted on.
        next_value: (T, N) float32, of the observation that step t led to, before any reset.
        terminated: (T, N) bool; the next value counts as 0.
        ended: (T, N) bool, terminated or truncated: row t + 1 belongs to another episode.
        gamma: discount factor per step, 0..1.
        lam: lambda, 0..1; 1 gives Monte Carlo returns minus the value, 0 one-step TD errors.

    Returns:
        (T, N) float32.

    Source: Schulman et al. (2016), equations 11 and 16; truncation as in Pardo et al. (2018).
    """
    alive = torch.where(terminated, 0.0, gamma)
    delta = torch.addcmul(reward - value, alive, next_value)
    decay = torch.where(ended, 0.0, gamma * lam)
    return backward_scan(delta, decay, torch.zeros_like(value[0]))


def lambda_returns(
    reward: Tensor, next_value: Tensor, terminated: Tensor, ended: Tensor, gamma: float, lam: float
) -> Tensor:
    """Computes lambda-returns, weighted means of the n-step returns of all n.

    ::

        G_t = r_t + gamma (1 - terminated_t) ((1 - lam_t) V(s'_t) + lam_t G_{t+1})
        lam_t = lam, or 0 where the episode ended at t and on the last row

    Args:
        reward: (T, N) float32.
        next_value: (T, N) float32, of the observation that step t led to, before any reset.
        terminated: (T, N) bool; the next value counts as 0.
        ended: (T, N) bool, terminated or truncated.
        gamma: discount factor per step, 0..1.
        lam: lambda, 0..1.

    Returns:
        (T, N) float32.

    Source: Sutton & Barto (2018), equation 12.20; Gallici et al. (2024), section 3.
    """
    alive = torch.where(terminated, 0.0, gamma)
    mix = torch.where(ended, 0.0, lam)
    mix[-1] = 0.0
    one_step = reward + alive * (1 - mix) * next_value
    return backward_scan(one_step, alive * mix, torch.zeros_like(reward[0]))


class VTrace(NamedTuple):
    """Result of :func:`vtrace`.

    Attributes:
        target: (T, N) float32, targets of the values.
        advantage: (T, N) float32, clipped importance ratio times the one-step advantage towards ``target``.
    """

    target: Tensor
    advantage: Tensor


def vtrace(
    reward: Tensor,
    value: Tensor,
    next_value: Tensor,
    terminated: Tensor,
    ended: Tensor,
    log_ratio: Tensor,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
) -> VTrace:
    """Computes V-trace targets: n-step values of the target policy from a behavior policy's rollout.

    With ``rho_t = min(rho_max, pi/mu)``, ``c_t = lam min(c_max, pi/mu)`` and ``delta_t`` as in :func:`gae`::

        v_t - V(s_t) = rho_t delta_t + gamma c_t (1 - ended_t) (v_{t+1} - V(s_{t+1}))
        A_t = rho_t (r_t + gamma (1 - terminated_t) v'_t - V(s_t))

    where ``v'_t`` is ``v_{t+1}``, or ``V(s'_t)`` where the episode was truncated and on the last row.

    Args:
        reward: (T, N) float32.
        value: (T, N) float32, the learner's, of the observation that step t acted on.
        next_value: (T, N) float32, of the observation that step t led to, before any reset.
        terminated: (T, N) bool; the next value counts as 0.
        ended: (T, N) bool, terminated or truncated.
        log_ratio: (T, N) float32, ``log pi(a_t) - log mu(a_t)``.
        gamma: discount factor per step, 0..1.
        lam: lambda, 0..1; smaller values shorten traces.
        rho_max: upper bound of the importance ratio that weights TD errors.
        c_max: upper bound of the importance ratio along traces.

    Source: Espeholt et al. (2018), "IMPALA", equation 1 and section 4.2.
    """
    ratio = log_ratio.exp()
    rho = ratio.clamp(max=rho_max)
    alive = torch.where(terminated, 0.0, gamma)
    delta = torch.addcmul(reward - value, alive, next_value)
    trace = torch.where(ended, 0.0, gamma * lam) * ratio.clamp(max=c_max)
    excess = backward_scan(rho * delta, trace, torch.zeros_like(value[0]))
    target = value + excess
    following = torch.cat([torch.where(ended[:-1], next_value[:-1], target[1:]), next_value[-1:]])
    return VTrace(target, rho * (torch.addcmul(reward - value, alive, following)))
