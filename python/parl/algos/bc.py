"""Behavior cloning (BC): supervised learning of recorded actions.

::

    loss = -mean_b log pi(a_b | s_b)                 Pomerleau (1991), "Efficient Training of Neural Networks
                                                     for Autonomous Navigation"

Demonstrations come from ``parl play --record`` or from any file of observations and actions
(:mod:`parl.envs.recorded`). A run reads rows of the files instead of stepping environments; evaluations step
the environment.

A ``network`` of your own returns a tuple: logits (batch, actions), or means (batch, D) of continuous actions
with D elements, and values (batch,). The standard deviation is a parameter of its own; values are not used.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

from torch import Tensor

from parl.algos.common.actor_critic import (
    ActorCriticAlgorithm,
    ActorCriticConfig,
    ActorCriticLearner,
    evaluate_actions,
)
from parl.algos.common.on_policy import Average
from parl.errors import ConfigError
from parl.nets import check_actions
from parl.ops.bounds import check_bounds
from parl.types import EnvSpec, Preset, Rollout

# Settings without effect: there are no advantages, values and rewards, and no CUDA graphs.
_UNUSED = (
    "gamma",
    "reward_scale",
    "normalize_rewards",
    "gae_lambda",
    "value_coefficient",
    "entropy_coefficient",
    "normalize_advantages",
    "cuda_graph",
)


@dataclass(frozen=True)
class Config(ActorCriticConfig):
    """Settings of behavior cloning; those of advantages, values and rewards must keep their defaults."""

    algorithm_name: ClassVar[str] = "bc"

    rollout_steps: int = 16
    """T: each rollout holds T times num_envs recorded rows, drawn in random order."""
    minibatch_size: int = 256
    """Rows per update."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """adam (Kingma and Ba, 2015) or rmsprop (Tieleman and Hinton, 2012, with decay 0.99)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, ("minibatch_size", 1, 2**40))
        for field in fields(self):
            if field.name in _UNUSED and (value := getattr(self, field.name)) != field.default:
                raise ConfigError(
                    f"{self.algorithm_name}: {field.name} = {value} has no use: the loss is that of recorded "
                    f"actions alone; leave it at {field.default}"
                )
        if self.lstm:
            raise ConfigError(
                f"{self.algorithm_name}: lstm = {self.lstm} needs steps in a row, and bc learns from single "
                "ones"
            )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations."""
    return Config(hidden=(512,), learning_rate=3e-4) if spec.has_images else Config()


PRESETS: dict[str, Preset] = {}


class BCLearner(ActorCriticLearner):
    """Learner of BC: loss and the loop over minibatches."""

    def loss(self, obs: Tensor, action: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss of observations (B, ...) and actions (B, ...), and metrics."""
        log_prob, entropy, _ = evaluate_actions(self.network, obs, action)
        loss = -log_prob.mean()
        return loss, {"loss": loss.detach(), "entropy": entropy.detach().mean()}

    def optimize(self, rollout: Rollout, progress: float, average: Average) -> int:
        """Makes the updates of one pass over the rows; returns their number."""
        obs, action = rollout.obs[:-1].flatten(0, 1), rollout.action.flatten(0, 1)
        updates = 0
        for part in self.minibatches((obs, action), rollout.valid, 1, self.config.minibatch_size):
            self.differentiate(*part)
            self.apply(progress, average)
            updates += 1
        return updates


class BC(ActorCriticAlgorithm):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""

    learner = BCLearner
    kinds = ("vector", "image")
    takes_masks = False

    @property
    def first_deviation(self) -> None:
        """None: the actions that it learns from are recorded."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        check_actions(config.algorithm_name, spec, "discrete", "continuous")
        super().__init__(config, spec)
