"""Base classes of the off-policy algorithms: settings of sampling, n-step returns and execution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from parl.algos.common.networks import NetworkConfig
from parl.errors import ConfigError
from parl.nets import check_observations
from parl.ops.bounds import NO_IMAGES, check_bounds, check_choices
from parl.ops.execution import Precision
from parl.ops.schedules import linear
from parl.types import GOALS, Array, EnvSpec

_PRIORITY_SETTINGS = ("beta", "beta_steps", "priority_epsilon", "initial_priority")


@dataclass(frozen=True)
class OffPolicyConfig(NetworkConfig):
    """Settings that all off-policy algorithms share. Steps are environment steps."""

    acting_settings: ClassVar[tuple[str, ...]] = ("initial_priority", "freeze_after")
    """Settings of actors alone, which have no effect in runs that learn from a dataset."""

    n_step: int = 1
    """Number of rewards summed before bootstrapping, 1..64."""
    gamma: float = 0.99
    """Discount factor per step, 0..1."""
    reward_scale: float = 1.0
    """Factor that rewards are multiplied by."""
    prioritized: bool = False
    """Prioritized replay: sample in proportion to the last TD error (see alpha); else uniformly."""
    alpha: float = 0.6
    """Exponent of the priorities, 0..1; 0 samples uniformly."""
    beta: float = 0.4
    """Initial exponent of the importance weights, 0..1."""
    beta_steps: int = 0
    """Steps over which beta rises linearly to 1; 0: beta is constant."""
    priority_epsilon: float = 1e-2
    """Added to each absolute error, in units of the scaled return, so that every row can be sampled."""
    initial_priority: Literal["max", "td"] = "max"
    """Priority of a new row. max: the largest so far. td: the TD error that the actor computes n steps later;
    actors of sac, td3 and ddpg then get the critics' weights too."""
    goals: Literal["none", "future", "final", "episode"] = "none"
    """Hindsight experience replay, for environments with goals: sampled transitions get a goal that their
    own or a later step of their episode achieved (future), its last step (final) or any step (episode).
    none: off."""
    goals_per_transition: float = 4.0
    """Number of sampled transitions with another goal for each one that keeps its own."""

    freeze_after: int = 0
    """Transitions after which the convolutions for images stop learning and the replay stores their outputs
    (float16) in place of images, also for the rows that it already has; 0: never."""

    precision: Precision = "float32"
    """Precision of the learner's matrix products; bfloat16 is faster on hardware that supports it. Weights
    and all other computations stay float32."""
    channels_last: bool = False
    """Store images with the channels of a pixel side by side for the learner's convolutions: the memory
    layout that the tensor cores of GPUs prefer."""
    compile: bool = False
    """Compile the losses with torch.compile; the first updates then take tens of seconds."""
    cuda_graph: bool = False
    """Record updates as CUDA graphs and replay them; needs a CUDA device. With several learners the graph
    holds the gradients only, with one learner also the optimizer step."""

    @property
    def actor_priorities(self) -> bool:
        """Whether actors compute the initial priorities of rows."""
        return self.prioritized and self.alpha > 0 and self.initial_priority == "td"

    def initial_priorities(self, reward: Array, discount: Array, chosen: Array, following: Array) -> Array:
        """See :class:`parl.types.PriorityPolicy`."""
        return np.abs(self.reward_scale * reward + discount * following - chosen) + self.priority_epsilon

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found: dict[str, str] = {}
        if not self.prioritized:
            found |= dict.fromkeys((*_PRIORITY_SETTINGS, "alpha"), "prioritized = False")
        elif not self.alpha:
            found |= dict.fromkeys(_PRIORITY_SETTINGS, "alpha = 0")
        if not spec.has_images:
            found |= dict.fromkeys(("channels_last", "freeze_after"), NO_IMAGES)
        if self.goals == "none":
            found["goals_per_transition"] = "goals = 'none'"
        return found | self.replaced(("channels_last",), ())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("n_step", 1, 64),
            ("gamma", 0, 1),
            ("reward_scale", 0, math.inf),
            ("alpha", 0, 1),
            ("beta", 0, 1),
            ("beta_steps", 0, math.inf),
            ("priority_epsilon", 0, math.inf),
            ("goals_per_transition", 0, 1e6),
            ("freeze_after", 0, math.inf),
        )
        check_choices(
            self,
            ("initial_priority", ("max", "td")),
            ("goals", ("none", "future", "final", "episode")),
            ("precision", ("float32", "bfloat16")),
        )
        for name in ("compile", "cuda_graph"):
            if self.freeze_after and getattr(self, name):
                raise ConfigError(
                    f"{self.algorithm_name}: freeze_after = {self.freeze_after} changes the shape of "
                    f"batches, which {name} = True keeps: set one of them"
                )
        if self.freeze_after and self.own is not None:
            raise ConfigError(
                f"{self.algorithm_name}: freeze_after = {self.freeze_after} freezes parl's convolutions, "
                f"which {self.own[0]} = {self.own[1]!r} replaces"
            )
        if self.goals != "none" and self.n_step != 1:
            raise ConfigError(
                f"{self.algorithm_name}: goals = {self.goals!r} needs n_step = 1, not {self.n_step}: the "
                "rewards of other goals are known for single steps only"
            )


def _check_goals(config: OffPolicyConfig, spec: EnvSpec) -> None:
    """Refuses ``config.goals`` if observations have no goals.

    Raises:
        ConfigError: names the algorithm and the observation.
    """
    parts = {part: (shape, dtype) for part, shape, dtype in spec.observation_parts}
    achieved, desired = (parts.get(goal) for goal in GOALS)
    if config.goals != "none" and (achieved is None or achieved != desired):
        raise ConfigError(
            f"{config.algorithm_name}: goals = {config.goals!r} needs Dict observations with "
            f"{' and '.join(GOALS)} of one shape; this environment's have "
            f"{parts or f'the shape {spec.observation_shape}'}"
        )


def _check_freezing(config: OffPolicyConfig, spec: EnvSpec) -> None:
    """Refuses ``config.freeze_after`` for dictionaries with images.

    Raises:
        ConfigError: names the algorithm and the parts of the observation.
    """
    if config.freeze_after and spec.has_images and spec.observation_kind != "image":
        parts = ", ".join(part for part, _, _ in spec.observation_parts)
        raise ConfigError(
            f"{config.algorithm_name}: freeze_after = {config.freeze_after} needs observations that are one "
            f"image; this environment's have the parts {parts}"
        )


class OffPolicyAlgorithm:
    """Base class of off-policy algorithms: settings of the replay. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: a setting does not suit the environment, or its kind of observations is not supported.
    """

    def __init__(self, config: OffPolicyConfig, spec: EnvSpec) -> None:
        check_observations(config.algorithm_name, spec.without_mask, images=config.convolutions)
        _check_goals(config, spec)
        _check_freezing(config, spec)
        self.config: Any = config
        self.spec = spec

    @property
    def freeze_after(self) -> int:
        """Transitions after which convolutions are frozen; 0: never."""
        return self.config.freeze_after if self.spec.has_images else 0

    @property
    def goals(self) -> tuple[str, float] | None:
        """Strategy of hindsight experience replay, and goals per transition; None: off."""
        return None if self.config.goals == "none" else (self.config.goals, self.config.goals_per_transition)

    def replay_options(self) -> dict[str, Any]:
        """Returns keywords of the replay."""
        alpha = self.config.alpha if self.config.prioritized else 0.0
        return {"alpha": alpha, "n_step": self.config.n_step, "gamma": self.config.gamma}

    @property
    def actor_priorities(self) -> bool:
        """Whether actors compute the initial priorities of rows."""
        return self.config.actor_priorities

    def replay_beta(self, env_steps: int) -> float:
        """Returns the exponent of the importance weights after ``env_steps``."""
        if not self.config.beta_steps:
            return self.config.beta
        return linear(env_steps, self.config.beta, 1.0, self.config.beta_steps)
