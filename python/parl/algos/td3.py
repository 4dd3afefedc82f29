"""Twin delayed deep deterministic policy gradient (TD3).

For a sampled transition ``(s, a, R, d, s')`` with the n-step sum R and ``d = gamma^k`` (0 where the episode
terminated; truncation bootstraps), two critics Q_e, and target networks Q'_e, mu' of critics and actor::

    a'   = clip(mu'(s') + clip(target_noise x, -c, c), -1, 1),  x ~ N(0, 1)    smoothing
    y    = R + d min_e Q'_e(s', a')                                            twin critics
    L_Q  = sum_e mean_b w_b (Q_e(s, a) - y)^2 / 2
    L_mu = -mean_b Q_1(s, mu(s)) + p mean_b,d u_d(s)^2  every ``policy_delay`` updates

``mu = tanh(u)``, and p is ``preactivation_penalty``: 0 in the source, see Andrychowicz et al. (2017),
"Hindsight Experience Replay", appendix A. The target networks change in the same updates as the actor.
Actions are scaled to -1..1. Exploration adds normal noise, with ``noise_correlation`` an Ornstein-Uhlenbeck
process. Priorities are ``mean_e |Q_e(s, a) - y| + priority_epsilon``. The gradients are computed at the
weights before the update (see ``parl.algos.common.critics``).

A ``network`` of your own has two modules without common parameters as attributes. ``actor(observations)``
returns (batch, D), to which tanh is applied; ``critic(observations, actions)`` values (critics, batch)
for actions (batch, D) in -1..1.

Source: Fujimoto, van Hoof and Meger (2018), "Addressing Function Approximation Error in Actor-Critic
Methods", algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from parl.algos.common.control import MOUNTAIN_CAR_RUN, PENDULUM_RUN
from parl.algos.common.critics import (
    ActionBox,
    Actor,
    Critics,
    CriticsConfig,
    CriticsLearner,
    CriticsPolicy,
    Networks,
    default_run,
    user_networks,
)
from parl.algos.common.off_policy import OffPolicyAlgorithm
from parl.nets import count_of
from parl.nets.seeding import seeded
from parl.ops.bounds import check_bounds
from parl.ops.returns import bellman_target
from parl.ops.schedules import actor_scales
from parl.types import Array, Batch, EnvSpec, Observations, Preset

__all__ = [
    "PRESETS",
    "TD3",
    "Config",
    "DeterministicPolicy",
    "TD3Learner",
    "default_config",
    "default_run",
]


@dataclass(frozen=True)
class Config(CriticsConfig):
    """Settings of TD3, in addition to those shared with SAC. Noise is in units of half the action range."""

    algorithm_name: ClassVar[str] = "td3"

    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    exploration_noise: float = 0.1
    """Standard deviation of the exploration noise on actions, in units of half the action range."""
    exploration_spread: float = 0.0
    """Noise of actor i of n: exploration_noise * 2 ** (exploration_spread * (2 i / (n - 1) - 1)). 0: the
    same for all."""
    critics: int = 2
    """Number of critics, 1..64; the target uses the smallest of their values."""
    policy_delay: int = 2
    """Critic updates per actor update, 1..1000."""
    preactivation_penalty: float = 0.0
    """Weight of the mean square of the actor's outputs before tanh in its loss; keeps actions away from the
    bounds, where the gradient of tanh vanishes and the actor stops learning."""
    target_noise: float = 0.2
    """Standard deviation of the noise on the target's actions, in units of half the action range."""
    target_noise_clip: float = 0.5
    """Bound of the noise on the target's actions, in units of half the action range."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = super().unused(spec)
        if not self.exploration_noise:
            found["exploration_spread"] = "exploration_noise = 0"
        if not self.target_noise:
            found["target_noise_clip"] = "target_noise = 0"
        return found

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("exploration_noise", 0, math.inf),
            ("exploration_spread", 0, 64),
            ("critics", 1, 64),
            ("policy_delay", 1, 1000),
            ("preactivation_penalty", 0, math.inf),
            ("target_noise", 0, math.inf),
            ("target_noise_clip", 0, math.inf),
            infinite=("target_noise_clip",),
        )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the environment: those of the source, with hidden layers of 256."""
    return Config()


PENDULUM = {
    "hidden": (64, 64),
    "learning_rate": 2e-3,
    "target_tau": 0.01,
    "gamma": 0.98,
    "reward_scale": 0.1,
    "exploration_noise": 0.2,
}
MOUNTAIN_CAR = {
    "hidden": (64, 64),
    "target_tau": 0.01,
    "n_step": 5,
    "preactivation_penalty": 1.0,
    "exploration_noise": 0.5,
    "noise_correlation": 0.9,
    "random_steps": 4_000,
}
PRESETS = {
    "mountaincar": Preset(MOUNTAIN_CAR_RUN, MOUNTAIN_CAR, tuned=True, note="Reaches 90 within seconds."),
    "pendulum": Preset(PENDULUM_RUN, PENDULUM, tuned=True, note="Reaches -200 within seconds."),
}


class TD3(OffPolicyAlgorithm):
    """Creates policies and learners. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: the kind of observations is not supported, or actions are discrete or have no bounds.
    """

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        ActionBox.from_spec(config.algorithm_name, spec)
        if config.own is not None:
            make_networks(config, spec)  # raises its errors before the run starts

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> DeterministicPolicy:
        """The policy of one actor."""
        config = self.config
        noise = config.exploration_noise * actor_scales(config.exploration_spread, actors)[actor]
        return DeterministicPolicy(config, self.spec, noise, num_envs, seed)

    def make_learner(self, seed: int, device: str) -> TD3Learner:
        """A learner with weights drawn from ``seed``."""
        return TD3Learner(self.config, self.spec, seed, device)


def make_networks(config: Config, spec: EnvSpec) -> Networks:
    """Creates actor and critics."""
    size = math.prod(spec.action_shape)
    if config.network is not None:
        return user_networks(config, spec, ("means", size), config.critics)
    critics = Critics(config, spec, config.critics, size, 1)
    return Networks(Actor(config, spec, size), None, critics)


class DeterministicPolicy(CriticsPolicy):
    """Adds normal noise to the actor's actions; actions of the first ``random_steps`` steps are uniform.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: Config, spec: EnvSpec, noise: float, num_envs: int, seed: int) -> None:
        self._bounds = ActionBox.from_spec(config.algorithm_name, spec)
        super().__init__(config, self._bounds, make_networks(config, spec), num_envs, seed)
        self._random_steps = config.random_steps
        self._noise = noise

    def act(self, observations: Observations, env_steps: int) -> Array:
        """Returns actions (N, ...) with exploration."""
        action = self._explore(observations, env_steps)
        self._keep_action_values(observations, action)
        return action

    def _explore(self, observations: Observations, env_steps: int) -> Array:
        box, count = self._bounds, count_of(observations)
        if env_steps < self._random_steps:
            return self._uniform_actions(count)
        noise = torch.from_numpy(self._process.draw(count, self._rng))
        with torch.inference_mode():
            action = torch.tanh(self._outputs(observations))
            return box.to_env(action.add_(noise, alpha=self._noise).clamp_(-1, 1))

    def act_greedily(self, observations: Observations) -> Array:
        """Returns actions (N, ...) without noise."""
        with torch.inference_mode():
            return self._bounds.to_env(torch.tanh(self._outputs(observations)))


class TD3Learner(CriticsLearner):
    """Learner of TD3; the equations are on the module's page."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        self._config = config
        self._box = ActionBox.from_spec(config.algorithm_name, spec).to(torch.device(device))

        with seeded(seed, device):
            networks, targets = make_networks(config, spec), make_networks(config, spec)
        super().__init__(config, networks, targets, seed, device)

    def targets_of(self, batch: Batch, noise: Tensor) -> Tensor:
        """Returns ``y`` of the module's equations, (B,) float32; ``noise`` (B, D) is their x."""
        config = self._config
        with torch.no_grad():
            obs = batch.next_obs
            action = torch.tanh(self.targets.actor(obs))
            if config.target_noise:
                clip = config.target_noise_clip
                action = (action + (config.target_noise * noise).clamp_(-clip, clip)).clamp_(-1, 1)
            q = self.targets.critics(obs, action).squeeze(2)
            return bellman_target(batch.reward * config.reward_scale, batch.discount, q.amin(dim=0))

    def draws(self, size: int) -> Tensor:
        """Draws the noise of the target's actions, (1, size, D)."""
        return torch.randn((1, size, self._box.size), generator=self.generator, device=self._device)

    @property
    def kind(self) -> bool:
        """See :class:`CriticsLearner`: whether the update changes the actor."""
        return self.moves_actor

    @property
    def moves_actor(self) -> bool:
        """See :class:`CriticsLearner`."""
        return (self._updates + 1) % self._config.policy_delay == 0

    def critics_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns ``L_Q``, absolute errors and metrics. See :class:`CriticsLearner`."""
        target = self.targets_of(batch, noise[0])
        q = self.networks.critics(batch.obs, self._box.to_unit(batch.action)).squeeze(2)
        loss, error = self.squared(q, target, batch.weights)
        return loss, error, {"td_error": error.mean(), "q_mean": q.detach().mean()}

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns ``L_mu`` and metrics."""
        outputs = self.networks.actor(batch.obs)
        action = torch.tanh(outputs)
        loss = -self.networks.critics(batch.obs, action, frozen=True, members=1).mean()
        if self._config.preactivation_penalty:
            loss = loss + self._config.preactivation_penalty * outputs.square().mean()
        return loss, {"actor_loss": loss.detach()}

    def apply_gradients(self) -> None:
        """Makes one Adam step on the critics.

        If :attr:`moves_actor`, makes one on the actor too, and updates the target networks.
        """
        self.optimize_critics()
        if self.moves_actor:
            self.optimize_actor()
            self.update_targets(slice(None))
