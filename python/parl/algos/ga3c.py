"""GA3C: predictors compute the actions of many actors in one batch; updates use a queue of rollouts.

The loss is that of A2C (``a2c.py``) with n-step advantages. The weights may change while a rollout is
collected (topology ``predictor``); ``advantage = "vtrace"`` corrects for that, the source does not. With the
deterministic schedule the actors alternate.

A ``network`` of your own has the outputs of ``a2c.py``.

Source: Babaeizadeh et al. (2017), "Reinforcement Learning through Asynchronous Advantage Actor-Critic on a
GPU".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parl.algos.a2c import A2C, refuse_windows
from parl.algos.a2c import Config as A2CConfig
from parl.errors import ConfigError
from parl.types import EnvSpec, Preset


@dataclass(frozen=True)
class Config(A2CConfig):
    """Settings of GA3C. Steps are vector steps of one actor; updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "ga3c"

    rollout_steps: int = 8
    """T, steps in a rollout."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus in the loss."""
    normalize_advantages: bool = False
    """Normalize advantages to mean 0 and standard deviation 1 in each update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_windows(self)
        if self.lstm:
            raise ConfigError(
                f"{self.algorithm_name}: lstm = {self.lstm} needs actors with networks of their own: use "
                "a2c, a3c or impala"
            )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations; for images the numbers of the source, section 5 (RMSprop).

    The source sums losses over the batch and has epsilon inside of the root; here losses are means, and
    epsilon is added to the root.
    """
    if spec.has_images:
        return Config(
            rollout_steps=5,
            gae_lambda=1.0,
            learning_rate=3e-4,
            optimizer="rmsprop",
            optimizer_epsilon=0.1,
            max_gradient_norm=40.0,
            hidden=(256,),
        )
    return Config(learning_rate=2e-3)


def default_run(spec: EnvSpec) -> dict[str, object]:
    """Settings of the run that suit the observations."""
    return {"total_steps": 10_000_000, "num_envs": 32} if spec.has_images else {}


PRESETS: dict[str, Preset] = {}


class GA3C(A2C):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""
