"""Asynchronous advantage actor-critic (A3C): workers update shared weights without locks.

The loss is that of A2C (``a2c.py``) with n-step advantages; the weights and RMSprop's running mean of squared
gradients are shared by all workers (topology ``hogwild``)::

    theta' <- theta;  T steps with pi(theta');  g = gradient of the loss at theta'
    s <- decay s + (1 - decay) g^2;  theta <- theta - rate g / (sqrt(s) + epsilon)

Mnih et al. (2016), "Asynchronous Methods for Deep Reinforcement Learning", algorithm S3 and section 4. With
the deterministic schedule the workers alternate.

A ``network`` of your own has the outputs of ``a2c.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from parl.algos.a2c import A2C, refuse_windows
from parl.algos.a2c import Config as A2CConfig
from parl.errors import ConfigError
from parl.types import EnvSpec, Preset


@dataclass(frozen=True)
class Config(A2CConfig):
    """Settings of A3C. Steps are vector steps of one worker; updates are optimizer steps of all."""

    algorithm_name: ClassVar[str] = "a3c"

    rollout_steps: int = 8
    """T, steps in a rollout of a worker."""
    optimizer: Literal["adam", "rmsprop"] = "rmsprop"
    """adam (Kingma and Ba, 2015) or rmsprop (Tieleman and Hinton, 2012, with decay 0.99); all workers share
    its running means."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus in the loss."""
    normalize_advantages: bool = False
    """Normalize advantages to mean 0 and standard deviation 1 in each rollout."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_windows(self)
        if self.normalize_observations:
            raise ConfigError(
                f"{self.algorithm_name}: normalize_observations = True needs statistics that one learner "
                "keeps; a3c has one per worker: use a2c or impala"
            )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations; those for images are after the source, section 8."""
    if spec.has_images:
        return Config(
            rollout_steps=5,
            gae_lambda=1.0,
            learning_rate=7e-4,
            value_coefficient=0.25,
            max_gradient_norm=40.0,
            hidden=(256,),
        )
    return Config(learning_rate=1e-3)


def default_run(spec: EnvSpec) -> dict[str, object]:
    """Settings of the run that suit the observations."""
    return {"total_steps": 10_000_000} if spec.has_images else {}


PRESETS: dict[str, Preset] = {}


class A3C(A2C):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""
