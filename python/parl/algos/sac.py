"""Soft actor-critic (SAC) with a learned temperature, for continuous and discrete actions.

For a sampled transition ``(s, a, R, d, s')`` with the n-step sum R and ``d = gamma^k`` (0 where the episode
terminated; truncation bootstraps), E critics Q_e, target networks Q'_e and temperature ``T = exp(t)``::

    continuous   a' = tanh(mu(s') + sigma(s') x), x ~ N(0, 1)
                 y   = R + d (min_e Q'_e(s', a') - T log pi(a'|s'))
                 L_Q = sum_e mean_b w_b (Q_e(s, a) - y)^2 / 2               Haarnoja et al. (2018), equation 5
                 L_pi = mean_b T log pi(a~|s) - min_e Q_e(s, a~)            equation 7, a~ redrawn at s
                 L_t = -mean_b t (log pi(a~|s) + H)                         equation 18, with t for T
    discrete     y   = R + d sum_a' pi(a'|s') (min_e Q'_e(s', a') - T log pi(a'|s'))
                 L_pi = mean_b sum_a pi(a|s) (T log pi(a|s) - min_e Q_e(s, a))
                 L_t = -mean_b t (sum_a pi(a|s) log pi(a|s) + H)            Christodoulou (2019), 10 to 12

A ``network`` of your own has two modules without common parameters as attributes. ``actor(observations)``
returns means and logarithms of standard deviations (batch, 2 D), side by side, or logits (batch, actions).
``critic(observations, actions)`` returns values (critics, batch) for actions (batch, D) in -1..1;
``critic(observations)`` values (critics, batch, actions) for discrete actions.

H is the target entropy: by default -D for D continuous dimensions (scaled to -1..1), and a share of log A
for A discrete actions. Priorities are ``mean_e |Q_e(s, a) - y| + priority_epsilon``. The gradients are
computed at the weights before the update (see ``parl.algos.common.critics``).

Source: Haarnoja et al. (2018), "Soft Actor-Critic Algorithms and Applications"; two critics from Fujimoto et
al. (2018); more critics, with the smallest value of ``target_critics`` drawn ones in the target and the mean
of all in L_pi, from Chen et al. (2021), "REDQ", algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

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
from parl.errors import ConfigError
from parl.nets import check_actions, count_of
from parl.nets.seeding import seeded
from parl.ops.bounds import check_bounds
from parl.ops.exploration import sample_softmax
from parl.ops.policies import squashed_gaussian
from parl.ops.returns import bellman_target
from parl.types import Array, Batch, EnvSpec, Observations, Preset

__all__ = ["PRESETS", "SAC", "Config", "SACLearner", "SACPolicy", "default_config", "default_run"]

_LOG_STD_MIN, _LOG_STD_MAX = -20.0, 2.0


@dataclass(frozen=True)
class Config(CriticsConfig):
    """Settings of SAC, in addition to those shared with TD3 and DDPG."""

    algorithm_name: ClassVar[str] = "sac"

    critics: int = 2
    """Number of critics, 1..64."""
    target_critics: int = 0
    """Number of critics drawn for each update, the smallest of whose values is the target; the actor then
    maximizes the mean of all. 0: all, and the actor maximizes the smallest value."""
    temperature: float = 1.0
    """Initial temperature: the weight of the entropy."""
    learn_temperature: bool = True
    """Learn the temperature, so that the policy's entropy stays near target_entropy."""
    target_entropy: float | None = None
    """Target entropy in nats; None: -D for actions with D continuous dimensions, target_entropy_share * log A
    for A discrete actions."""
    target_entropy_share: float = 0.5
    """Target entropy of discrete actions as a share of the largest possible, 0..1."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = super().unused(spec)
        if not spec.num_actions:
            found["target_entropy_share"] = "continuous actions"
        elif self.target_entropy is not None:
            found["target_entropy_share"] = f"target_entropy = {self.target_entropy}"
        if not self.learn_temperature:
            found |= dict.fromkeys(("target_entropy", "target_entropy_share"), "learn_temperature = False")
        return found

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("critics", 1, 64),
            ("target_critics", 0, self.critics),
            ("target_entropy_share", 0, 1),
        )
        if not 0 < self.temperature < math.inf:
            raise ConfigError(
                f"{self.algorithm_name}: temperature = {self.temperature} is not above 0 and finite"
            )
        if self.target_entropy is not None and not math.isfinite(self.target_entropy):
            raise ConfigError(f"{self.algorithm_name}: target_entropy = {self.target_entropy} is not finite")


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the environment: those of the source."""
    return Config()


_DISCRETE_RUN = {"replay_ratio": 32.0, "batch_size": 128, "learning_starts": 1_000}
_DISCRETE = {"hidden": (64, 64), "learning_rate": 1e-3, "reward_scale": 0.1}
PRESETS = {
    "acrobot": Preset(
        {**_DISCRETE_RUN, "env": "Acrobot-v1", "num_envs": 16, "total_steps": 100_000},
        # At a temperature of 1 the entropy of a long episode is worth more than its end.
        {**_DISCRETE, "n_step": 5, "temperature": 0.02},
        tuned=True,
        note="Reaches -90 within seconds.",
    ),
    "cartpole": Preset(
        {**_DISCRETE_RUN, "env": "CartPole-v1", "total_steps": 200_000},
        _DISCRETE,
        tuned=True,
        note="Reaches 475 within a minute.",
    ),
    "mountaincar": Preset(
        MOUNTAIN_CAR_RUN,
        {
            "hidden": (64, 64),
            "learning_rate": 1e-3,
            "target_tau": 0.01,
            "gamma": 0.999,
            "n_step": 5,
            # A learned temperature can fall before the first success.
            "learn_temperature": False,
            "temperature": 0.05,
            "noise_correlation": 0.9,
            "random_steps": 4_000,
        },
        tuned=True,
        note="Reaches 90 within seconds.",
    ),
    "pendulum": Preset(
        PENDULUM_RUN,
        {"hidden": (64, 64), "learning_rate": 2e-3, "target_tau": 0.01, "reward_scale": 0.1},
        tuned=True,
        note="Reaches -200 within seconds.",
    ),
}


class SAC(OffPolicyAlgorithm):
    """Creates policies and learners. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: the kind of observations is not supported, or actions have no bounds.
    """

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        check_actions(config.algorithm_name, spec, "discrete", "continuous")
        if not spec.num_actions:
            ActionBox.from_spec(config.algorithm_name, spec)
        if config.own is not None:
            make_networks(config, spec)  # raises its errors before the run starts

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> SACPolicy:
        """The policy of one actor."""
        return SACPolicy(self.config, self.spec, num_envs, seed)

    def make_learner(self, seed: int, device: str) -> SACLearner:
        """A learner with weights drawn from ``seed``."""
        return SACLearner(self.config, self.spec, seed, device)


def _outputs(spec: EnvSpec) -> int:
    return spec.num_actions or 2 * math.prod(spec.action_shape)


def make_networks(config: Config, spec: EnvSpec) -> Networks:
    """Creates actor, logarithm of the temperature, and critics."""
    temperature = torch.tensor([math.log(config.temperature)])
    if config.network is not None:
        kind = "logits" if spec.num_actions else "means and logarithms of deviations"
        return user_networks(config, spec, (kind, _outputs(spec)), config.critics, temperature)
    actions, outputs = (0, spec.num_actions) if spec.num_actions else (math.prod(spec.action_shape), 1)
    actor = Actor(config, spec, _outputs(spec))
    critics = Critics(config, spec, config.critics, actions, outputs)
    return Networks(actor, temperature, critics)


class SACPolicy(CriticsPolicy):
    """Samples actions from the actor's distribution; in the first ``random_steps`` steps they are uniform.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: Config, spec: EnvSpec, num_envs: int, seed: int) -> None:
        box = None if spec.num_actions else ActionBox.from_spec(config.algorithm_name, spec)
        super().__init__(config, box, make_networks(config, spec), num_envs, seed)
        self._random_steps = config.random_steps
        self._actions = spec.num_actions

    def act(self, observations: Observations, env_steps: int) -> Array:
        """Returns actions (N, ...) with exploration."""
        action = self._explore(observations, env_steps)
        self._keep_action_values(observations, action)
        return action

    def _explore(self, observations: Observations, env_steps: int) -> Array:
        count = count_of(observations)
        if self._box is None:
            assert self._actions is not None
            if env_steps < self._random_steps:
                return self._rng.integers(self._actions, size=count)
            with torch.inference_mode():
                logits = self._outputs(observations).numpy()
            return sample_softmax(logits, self._rng)
        if env_steps < self._random_steps:
            return self._uniform_actions(count)
        noise = torch.from_numpy(self._process.draw(count, self._rng))
        with torch.inference_mode():
            mean, log_std = self._outputs(observations).chunk(2, dim=1)
            std = log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX).exp()
            return self._box.to_env(torch.tanh(torch.addcmul(mean, std, noise)))

    def act_greedily(self, observations: Observations) -> Array:
        """Returns the most probable actions (N, ...): the squashed mean, or the largest logit."""
        with torch.inference_mode():
            out = self._outputs(observations)
            if self._box is None:
                return out.argmax(dim=1).numpy()
            return self._box.to_env(torch.tanh(out[:, : self._box.size]))


class SACLearner(CriticsLearner):
    """Learner of SAC; the equations are on the module's page."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        self._config = config
        self._draws_critics = 0 < config.target_critics < config.critics
        self._averages_critics = config.target_critics > 0
        self._box: ActionBox | None = None
        if spec.num_actions:
            entropy = config.target_entropy_share * math.log(spec.num_actions)
        else:
            self._box = ActionBox.from_spec(config.algorithm_name, spec).to(torch.device(device))
            entropy = -float(math.prod(spec.action_shape))
        self._target_entropy = entropy if config.target_entropy is None else config.target_entropy

        with seeded(seed, device):
            networks, targets = make_networks(config, spec), make_networks(config, spec)
        super().__init__(config, networks, targets, seed, device)
        self.log_temperature = networks.extra[0]

    def start_from(self, other: CriticsLearner) -> None:
        """See :class:`CriticsLearner`; a temperature that is not learned stays that of the settings."""
        fixed = self.log_temperature.detach().clone()
        super().start_from(other)
        if not self._config.learn_temperature:
            with torch.no_grad():
                self.log_temperature.copy_(fixed)

    def draws(self, size: int) -> Tensor:
        """Draws the noise of the next actions and of the actor's, (2, size, D); D = 0 if discrete."""
        config = self._config
        if self._draws_critics:
            order = torch.randperm(config.critics, generator=self.generator, device=self._device)
            self._target_critics = order[: config.target_critics]
        shape = (2, size, 0 if self._box is None else self._box.size)
        return torch.randn(shape, generator=self.generator, device=self._device)

    def _draw(self, obs: Any, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Samples actions (B, D) in -1..1; also returns their log-densities (B,)."""
        mean, log_std = self.networks.actor(obs).chunk(2, dim=1)
        return squashed_gaussian(mean, log_std.clamp(_LOG_STD_MIN, _LOG_STD_MAX), noise)

    def _target_value(self, q: Tensor) -> Tensor:
        """Returns the smallest of the target critics' values (E, ...), or of those of the drawn critics."""
        return _min_over_critics(q if self._target_critics is None else q[self._target_critics])

    def _actor_value(self, q: Tensor) -> Tensor:
        """Returns the value that the actor maximizes: the critics' smallest, with drawn ones their mean."""
        return q.mean(dim=0) if self._averages_critics else _min_over_critics(q)

    def targets_of(self, batch: Batch, noise: Tensor) -> Tensor:
        """Returns ``y`` of the module's equations, (B,) float32; ``noise`` (B, D) is the x."""
        with torch.no_grad():
            obs, temperature = batch.next_obs, self.log_temperature.exp()
            if self._box is None:
                log_p = self.networks.actor(obs).log_softmax(dim=1)
                q = self._target_value(self.targets.critics(obs))
                value = (log_p.exp() * (q - temperature * log_p)).sum(dim=1)
            else:
                action, log_density = self._draw(obs, noise)
                q = self._target_value(self.targets.critics(obs, action).squeeze(2))
                value = q - temperature * log_density
            return bellman_target(batch.reward * self._config.reward_scale, batch.discount, value)

    def critics_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns ``L_Q``, absolute errors and metrics. See :class:`CriticsLearner`."""
        critics, obs = self.networks.critics, batch.obs
        target = self.targets_of(batch, noise[0])
        if self._box is None:
            values = critics(obs)  # (E, B, A)
            q = values.gather(2, batch.action.view(1, -1, 1).expand(len(values), -1, 1)).squeeze(2)
        else:
            q = critics(obs, self._box.to_unit(batch.action)).squeeze(2)
        loss, error = self.squared(q, target, batch.weights)
        return loss, error, {"td_error": error.mean(), "q_mean": q.detach().mean()}

    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns ``L_pi + L_t`` and metrics."""
        critics, obs = self.networks.critics, batch.obs
        temperature = self.log_temperature.detach().exp()
        if self._box is None:
            log_p = self.networks.actor(obs).log_softmax(dim=1)
            p = log_p.exp()
            with torch.no_grad():
                values = self._actor_value(critics(obs))
            loss = (p * (temperature * log_p - values)).sum(dim=1).mean()
            negative_entropy = (p.detach() * log_p.detach()).sum(dim=1).mean()
        else:
            action, log_density = self._draw(obs, noise[1])
            q = critics(obs, action, frozen=True).squeeze(2)
            loss = (temperature * log_density - self._actor_value(q)).mean()
            negative_entropy = log_density.detach().mean()
        figures = {"actor_loss": loss.detach(), "entropy": -negative_entropy, "temperature": temperature}
        if self._config.learn_temperature:
            loss = loss - (self.log_temperature * (negative_entropy + self._target_entropy)).sum()
        return loss, figures


def _min_over_critics(q: Tensor) -> Tensor:
    """Returns the minimum over the first dimension; only the smallest value gets a gradient."""
    return torch.minimum(q[0], q[1]) if len(q) == 2 else q.amin(dim=0)
