"""Values that change over a run."""

from __future__ import annotations


def linear(step: int, first: float, last: float, over: int) -> float:
    """Interpolates linearly from ``first`` at step 0 to ``last`` at step ``over``; constant after that."""
    if step >= over:
        return last
    return first + (last - first) * step / over


def actor_epsilons(epsilon: float, spread: float, actors: int) -> list[float]:
    """Returns the final exploration rate of each actor, ``epsilon ** (1 + spread * i / (actors - 1))``.

    Args:
        epsilon: rate of actor 0, in 0..1.
        spread: 0 gives all actors the same rate; the source uses 7.
        actors: number of actors, ``>= 1``.

    Source: Horgan et al. (2018), "Distributed Prioritized Experience Replay", section 4.1.
    """
    if actors == 1:
        return [epsilon]
    return [epsilon ** (1 + spread * i / (actors - 1)) for i in range(actors)]


def actor_scales(spread: float, actors: int) -> list[float]:
    """Returns the factor of each actor's exploration noise, ``2 ** (spread * (2 i / (actors - 1) - 1))``.

    Args:
        spread: 0 gives all actors a factor of 1; 1 factors from 1/2 to 2.
        actors: number of actors, ``>= 1``.
    """
    if actors == 1:
        return [1.0]
    return [2.0 ** (spread * (2 * i / (actors - 1) - 1)) for i in range(actors)]
