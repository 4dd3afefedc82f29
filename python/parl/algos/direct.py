"""What SAC, TD3 and DDPG need to write their gradients out: batches and networks as arrays.

torch's records of an update of two layers of 256 cost half as much as its products (decision 0018). The
losses in torch stay what is meant, and are used for everything else; tests compare the two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from parl.nets.ensemble import Ensemble
from parl.nets.members import Members
from parl.nets.observations import Encoder
from parl.types import Array


class Rows(NamedTuple):
    """A batch as arrays, float32.

    Attributes:
        obs: (B, features).
        next_obs: (B, features).
        action: (B, D) in -1..1.
        reward: (B,), scaled.
        discount: (B,).
        weights: (B,).
    """

    obs: Array
    next_obs: Array
    action: Array
    reward: Array
    discount: Array
    weights: Array

    def returns(self, next_value: Array) -> Array:
        """(B,), see :func:`parl.ops.returns.bellman_target`."""
        return self.reward + self.discount * next_value


def pairs(obs: Array, action: Array) -> Array:
    """What critics see: observations and actions side by side, (B, features + D)."""
    return np.concatenate((obs, action), axis=1)


class Networks:
    """A learner's networks. Two threads may use them, if no attribute is used by both.

    Args:
        actor: that learns.
        critics: that learn.
        next_actor: the target of the actor.
        next_critics: the targets of the critics.
        judges: the actor learns through so many of the critics; None: all.

    Attributes:
        judges: the critics, through which the actor learns.
    """

    def __init__(
        self,
        actor: Ensemble,
        critics: Ensemble,
        next_actor: Ensemble,
        next_critics: Ensemble,
        judges: int | None,
    ) -> None:
        self.actor, self.critics = Members(actor, learn=True), Members(critics, learn=True)
        self.judges = Members(critics, judges)
        self.next_actor, self.next_critics = Members(next_actor), Members(next_critics)


def suits(encoder: Encoder, *ensembles: Ensemble) -> bool:
    """Whether networks are dense layers alone, as :meth:`parl.nets.members.Members.suits` says."""
    return not encoder.torsos and all(Members.suits(one) for one in ensembles)
