"""Bootstrapped targets."""

from __future__ import annotations

from torch import Tensor


def bellman_target(reward: Tensor, discount: Tensor, next_value: Tensor) -> Tensor:
    """``reward + discount * next_value``: the n-step target when reward and discount are n-step ones.

    Args:
        reward: (B,) float32, discounted sum of the rewards of the k steps taken.
        discount: (B,) float32, gamma^k, or 0 where the episode terminated (not where it was truncated).
        next_value: (B,) float32, value of the observation k steps later.

    Returns:
        (B,) float32.

    Source: Sutton & Barto (2018), section 7.1; truncation as in Pardo et al. (2018).
    """
    return (discount * next_value).add_(reward)


def soft_policy(q: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Returns the probabilities of ``softmax(q / temperature)``, and ``temperature`` times their logarithms.

    Args:
        q: (B, A) float32.
        temperature: ``> 0``, in units of the value.

    Returns:
        two (B, A) float32.

    Source: Vieillard, Pietquin and Geist (2020), "Munchausen Reinforcement Learning", appendix B.1.
    """
    log = (q / temperature).log_softmax(dim=1)
    return log.exp(), temperature * log
