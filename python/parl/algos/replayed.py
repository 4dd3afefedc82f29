"""What all algorithms that learn from a replay share: which of its rows are drawn, and what is summed up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from parl.ops.bounds import check_bounds
from parl.ops.schedules import linear


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

    def __post_init__(self) -> None:
        check_bounds(
            self,
            ("n_step", 1, 64),
            ("gamma", 0, 1),
            ("alpha", 0, 1),
            ("beta", 0, 1),
            ("beta_steps", 0, math.inf),
            ("priority_epsilon", 0, math.inf),
            of=self.of,
        )


class ReplayedAlgorithm:
    """The replay's side of an algorithm. See :class:`parl.types.Algorithm`."""

    config: Any

    def replay_options(self) -> dict[str, Any]:
        """Keywords of the replay."""
        alpha = self.config.alpha if self.config.prioritized else 0.0
        return {"alpha": alpha, "n_step": self.config.n_step, "gamma": self.config.gamma}

    def replay_beta(self, env_steps: int) -> float:
        """Exponent of the importance weights after ``env_steps``."""
        if not self.config.beta_steps:
            return self.config.beta
        return linear(env_steps, self.config.beta, 1.0, self.config.beta_steps)
