"""What all algorithms that learn from a replay share: which of its rows are drawn, and what is summed up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from parl.ops.bounds import NO_IMAGES, check_bounds, check_choices
from parl.ops.execution import Precision
from parl.ops.schedules import linear
from parl.types import Array, EnvSpec

_OF_PRIORITIES = ("beta", "beta_steps", "priority_epsilon", "initial_priority")


@dataclass(frozen=True)
class ReplayedConfig:
    """Settings that all these algorithms share. Steps are environment steps."""

    of: ClassVar[str] = ""
    """Said in front of messages about wrong settings."""

    n_step: int = 1
    """Rewards summed before bootstrapping, 1..64."""
    gamma: float = 0.99
    """Discount a step, 0..1."""
    reward_scale: float = 1.0
    """Rewards are multiplied by this."""
    prioritized: bool = False
    """Draw in proportion to the last temporal-difference error; else uniformly."""
    alpha: float = 0.6
    """Exponent of the priorities, 0..1; 0 draws uniformly."""
    beta: float = 0.4
    """Exponent of the importance weights at the start, 0..1."""
    beta_steps: int = 0
    """Steps over which ``beta`` rises to 1; 0 keeps it."""
    priority_epsilon: float = 1e-2
    """Added to each absolute error, in units of the scaled return, so that no row starves."""
    initial_priority: Literal["max", "td"] = "max"
    """First priority of a row: the largest so far, or the error that the actor's own network sees, n steps
    later. Actors of sac, td3 and ddpg then hold the critics too."""

    precision: Precision = "float32"
    """Of the learner's products: bfloat16 is faster where the hardware has it. All else stays float32."""
    channels_last: bool = False
    """Lay images out with the channels of a pixel side by side for the learner's convolutions, which the
    tensor cores of GPUs prefer."""
    compile: bool = False
    """Let torch.compile translate the losses; the first updates then take tens of seconds."""
    cuda_graph: bool = False
    """Record updates as CUDA graphs and replay them; needs a CUDA device. Of a learner that averages with
    others the gradients are recorded, else the optimizer's step too."""

    @property
    def actor_priorities(self) -> bool:
        """Whether actors give rows their first priorities."""
        return self.prioritized and self.alpha > 0 and self.initial_priority == "td"

    def initial_priorities(self, reward: Array, discount: Array, chosen: Array, following: Array) -> Array:
        """See :class:`parl.types.PriorityPolicy`."""
        return np.abs(self.reward_scale * reward + discount * following - chosen) + self.priority_epsilon

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Settings that the others leave without effect in this environment, each with the reason."""
        found: dict[str, str] = {}
        if not self.prioritized:
            found |= dict.fromkeys((*_OF_PRIORITIES, "alpha"), "prioritized = False")
        elif not self.alpha:
            found |= dict.fromkeys(_OF_PRIORITIES, "alpha = 0")
        if not spec.has_images:
            found["channels_last"] = NO_IMAGES
        return found

    def __post_init__(self) -> None:
        check_bounds(
            self,
            ("n_step", 1, 64),
            ("gamma", 0, 1),
            ("reward_scale", 0, math.inf),
            ("alpha", 0, 1),
            ("beta", 0, 1),
            ("beta_steps", 0, math.inf),
            ("priority_epsilon", 0, math.inf),
            of=self.of,
        )
        check_choices(
            self,
            ("initial_priority", ("max", "td")),
            ("precision", ("float32", "bfloat16")),
            of=self.of,
        )


class ReplayedAlgorithm:
    """The replay's side of an algorithm. See :class:`parl.types.Algorithm`."""

    config: Any

    def replay_options(self) -> dict[str, Any]:
        """Keywords of the replay."""
        alpha = self.config.alpha if self.config.prioritized else 0.0
        return {"alpha": alpha, "n_step": self.config.n_step, "gamma": self.config.gamma}

    @property
    def actor_priorities(self) -> bool:
        """Whether actors give rows their first priorities."""
        return self.config.actor_priorities

    def replay_beta(self, env_steps: int) -> float:
        """Exponent of the importance weights after ``env_steps``."""
        if not self.config.beta_steps:
            return self.config.beta
        return linear(env_steps, self.config.beta, 1.0, self.config.beta_steps)
