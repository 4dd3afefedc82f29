"""Double DQN with the options that the field settled on, each of which can be turned off.

For a sampled transition ``(s, a, R, d, s')`` with the n-step sum ``R = sum_{i<k} gamma^i r_i``, ``k <= n``,
and ``d = gamma^k`` (0 where the episode terminated; truncation bootstraps)::

    y     = R + d * Q_target(s', argmax_a' Q(s', a'))          double:  van Hasselt et al. (2016), equation 4
    y     = R + d * max_a' Q_target(s', a')                    single:  Mnih et al. (2015), equation 2
    delta = y - Q(s, a)
    loss  = mean_b w_b huber(delta_b)                          w:       Schaul et al. (2016), section 3.4
    p     = |delta| + priority_epsilon                         p:       Schaul et al. (2016), section 3.3
    Q     = V + A - mean(A)                                    dueling: Wang et al. (2016), equation 9

Rewards are multiplied by ``reward_scale`` first. The n-step sums, the draw in proportion to ``p ** alpha``
and ``w`` are the replay's work.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parl.errors import ConfigError
from parl.nets import DuelingHead, flatten, make_torso
from parl.ops.adam import adam_step
from parl.ops.exploration import epsilon_greedy
from parl.ops.losses import weighted_huber
from parl.ops.returns import bellman_target, double_q_value
from parl.ops.schedules import actor_epsilons, linear
from parl.types import Array, Batch, EnvSpec


@dataclass(frozen=True)
class Config:
    """Settings of DQN. Steps are environment steps (transitions); updates are optimizer steps."""

    double: bool = True
    """Let the online network choose the next action and the target network judge it."""
    dueling: bool = False
    """Split the last layer into a state value and advantages."""
    n_step: int = 10
    """Rewards summed before bootstrapping, 1..64."""
    gamma: float = 0.99
    """Discount a step, 0..1."""
    reward_scale: float = 0.1
    """Rewards are multiplied by this: networks learn fastest where values stay below about 10."""
    prioritized: bool = True
    """Draw in proportion to the last temporal-difference error; else uniformly."""
    alpha: float = 0.4
    """Exponent of the priorities, 0..1; 0 draws uniformly."""
    beta: float = 0.4
    """Exponent of the importance weights at the start, 0..1."""
    beta_steps: int = 0
    """Steps over which ``beta`` rises to 1; 0 keeps it."""
    priority_epsilon: float = 1e-2
    """Added to each absolute error, in units of the scaled return, so that no row starves."""
    huber_delta: float = 1.0
    """Error beyond which the loss is linear, in units of the scaled return; ``inf``: squared error."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the dense layers; images use a convolutional torso and the last width."""
    layer_norm: bool = True
    """Normalise each dense layer before its ReLU; steadies high learning rates."""
    learning_rate: float = 2e-3
    """Adam's step size."""
    adam_epsilon: float = 1e-8
    """Adam's denominator offset."""
    max_gradient_norm: float = 10.0
    """Gradients longer than this are scaled down to it; 0 never scales."""
    target_period: int = 25
    """Updates between copies of the weights into the target network; unused with ``target_tau``."""
    target_tau: float = 0.0
    """Polyak: share of the weights that flows into the target network at each update; 0 copies instead."""
    epsilon_first: float = 1.0
    """Exploration rate at step 0."""
    epsilon_last: float = 0.02
    """Exploration rate of actor 0 after ``epsilon_steps``."""
    epsilon_steps: int = 5_000
    """Steps, of all actors together, over which the rate falls in a straight line."""
    epsilon_spread: float = 0.0
    """Actor i of n ends at ``epsilon_last ** (1 + spread * i / (n - 1))``; 7 as in Ape-X, 0 all alike."""

    def __post_init__(self) -> None:
        for name, low, high in (
            ("n_step", 1, 64),
            ("gamma", 0, 1),
            ("alpha", 0, 1),
            ("beta", 0, 1),
            ("beta_steps", 0, float("inf")),
            ("priority_epsilon", 0, float("inf")),
            ("learning_rate", 0, float("inf")),
            ("adam_epsilon", 0, float("inf")),
            ("max_gradient_norm", 0, float("inf")),
            ("target_period", 1, float("inf")),
            ("target_tau", 0, 1),
            ("epsilon_first", 0, 1),
            ("epsilon_last", 0, 1),
            ("epsilon_steps", 0, float("inf")),
            ("epsilon_spread", 0, float("inf")),
        ):
            value = getattr(self, name)
            if not low <= value <= high:  # also refuses NaN
                raise ConfigError(f"dqn: {name} = {value} is outside {low}..{high}")
        if not self.huber_delta > 0:
            raise ConfigError(f"dqn: huber_delta = {self.huber_delta} is not above 0")
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"dqn: hidden = {self.hidden} needs one or more widths of at least 1")


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations: the defaults, or those of the Atari literature for images.

    Source for images: Hessel et al. (2018), "Rainbow", table 1.
    """
    if len(spec.observation_shape) != 3:
        return Config()
    return Config(
        n_step=3,
        reward_scale=1.0,
        hidden=(512,),
        layer_norm=False,
        learning_rate=6.25e-5,
        adam_epsilon=1.5e-4,
        target_period=8_000,
        epsilon_last=0.01,
        epsilon_steps=250_000,
        dueling=True,
        alpha=0.5,
    )


class QNetwork(nn.Module):
    """Observations (B, ...) to action values (B, A) float32."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self.torso = make_torso(
            spec.observation_shape, spec.observation_dtype, config.hidden, config.layer_norm
        )
        actions = spec.num_actions or 0
        make_head = DuelingHead if config.dueling else nn.Linear
        self.head = make_head(self.torso.features, actions)

    def forward(self, observations: Tensor) -> Tensor:
        """Values (B, A)."""
        return self.head(self.torso(observations))


class DQN:
    """Makes policies and learners. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: the environment's actions are not discrete.
    """

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        if not spec.num_actions:
            raise ConfigError("dqn needs a discrete action space; this environment's is continuous")
        self.config = config
        self.spec = spec

    def replay_options(self) -> dict[str, Any]:
        """Keywords of the replay."""
        alpha = self.config.alpha if self.config.prioritized else 0.0
        return {"alpha": alpha, "n_step": self.config.n_step, "gamma": self.config.gamma}

    def replay_beta(self, env_steps: int) -> float:
        """Exponent of the importance weights after ``env_steps``."""
        if not self.config.beta_steps:
            return self.config.beta
        return linear(env_steps, self.config.beta, 1.0, self.config.beta_steps)

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> EpsilonGreedyPolicy:
        """The policy of one actor."""
        epsilon = actor_epsilons(self.config.epsilon_last, self.config.epsilon_spread, actors)[actor]
        return EpsilonGreedyPolicy(self.config, self.spec, epsilon, seed)

    def make_learner(self, seed: int, device: str) -> DQNLearner:
        """A learner with weights drawn from ``seed``."""
        return DQNLearner(self.config, self.spec, seed, device)


class EpsilonGreedyPolicy:
    """Acts by the highest value, and at random with a probability that falls over the run.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: Config, spec: EnvSpec, epsilon_last: float, seed: int) -> None:
        self._config = config
        self._actions = spec.num_actions or 0
        self._epsilon_last = epsilon_last
        self._network = QNetwork(config, spec)
        self.weights = flatten(self._network, gradients=False).weights
        self._rng = np.random.default_rng(seed)

    def act(self, observations: Array, env_steps: int) -> Array:
        """Exploring actions (N,) int64."""
        epsilon = linear(
            env_steps, self._config.epsilon_first, self._epsilon_last, self._config.epsilon_steps
        )
        return epsilon_greedy(self.act_greedily(observations), epsilon, self._actions, self._rng)

    def act_greedily(self, observations: Array) -> Array:
        """Greedy actions (N,) int64."""
        with torch.inference_mode():
            return self._network(torch.from_numpy(observations)).argmax(dim=1).numpy()

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes back."""
        return {"rng": self._rng.bit_generator.state}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self._rng.bit_generator.state = state["rng"]


class DQNLearner:
    """Online and target network, loss, priorities and optimizer. See :class:`parl.types.Learner`."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        self._config = config
        self._device = torch.device(device)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.online = QNetwork(config, spec).to(self._device)
            self.target = QNetwork(config, spec).to(self._device)
        online, target = flatten(self.online), flatten(self.target, gradients=False)
        assert online.gradients is not None
        self.weights, self.gradients = online.weights, online.gradients
        self._target_weights = target.weights
        self._target_weights.copy_(self.weights)
        self._mean = torch.zeros_like(self.weights)
        self._square = torch.zeros_like(self.weights)
        self._updates = 0
        self._latest: tuple[Tensor, Tensor, Tensor] | None = None

    def targets(self, batch: Batch) -> Tensor:
        """(B,) float32: ``y`` of the module's equations."""
        with torch.no_grad():
            next_target_q = self.target(batch.next_obs)
            if self._config.double:
                value = double_q_value(self.online(batch.next_obs), next_target_q)
            else:
                value = next_target_q.amax(dim=1)
            return bellman_target(batch.reward * self._config.reward_scale, batch.discount, value)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The scalar loss, the errors ``delta`` (B,) and the values ``Q(s, a)`` (B,)."""
        target = self.targets(batch)
        q = self.online(batch.obs).gather(1, batch.action.unsqueeze(1)).squeeze(1)
        loss = weighted_huber(q, target, batch.weights, self._config.huber_delta)
        q = q.detach()
        return loss, target - q, q

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch``; returns ``p`` of the module's equations, (B,)."""
        if self._device.type != "cpu":
            batch = _moved(batch, self._device)
        self.gradients.zero_()
        loss, delta, q = self.loss(batch)
        loss.backward()
        self._latest = (loss.detach(), delta, q)
        return delta.abs().add_(self._config.priority_epsilon).cpu().numpy()

    def step(self) -> None:
        """Scales long gradients down, one Adam step, lets the target network follow."""
        config = self._config
        if config.max_gradient_norm:
            norm = torch.linalg.vector_norm(self.gradients)
            self.gradients.mul_((config.max_gradient_norm / (norm + 1e-6)).clamp_(max=1.0))
        self._updates += 1
        adam_step(
            self.weights,
            self.gradients,
            self._mean,
            self._square,
            self._updates,
            config.learning_rate,
            config.adam_epsilon,
        )
        if config.target_tau:
            self._target_weights.lerp_(self.weights, config.target_tau)
        elif self._updates % config.target_period == 0:
            self._target_weights.copy_(self.weights)

    def metrics(self) -> dict[str, float]:
        """Loss, mean absolute error, mean value and gradient norm of the latest update."""
        if self._latest is None:
            return {}
        loss, delta, q = self._latest
        return {
            "loss": loss.item(),
            "td_error": delta.abs().mean().item(),
            "q_mean": q.mean().item(),
            "gradient_norm": torch.linalg.vector_norm(self.gradients).item(),
        }

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes back."""
        return {
            "weights": self.weights.clone(),
            "target_weights": self._target_weights.clone(),
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "updates": self._updates,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self.weights.copy_(state["weights"])
        self._target_weights.copy_(state["target_weights"])
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._updates = state["updates"]


@dataclass(frozen=True)
class _Moved:
    obs: Tensor
    action: Tensor
    reward: Tensor
    discount: Tensor
    next_obs: Tensor
    weights: Tensor
    tickets: Any


def _moved(batch: Batch, device: torch.device) -> _Moved:
    names = ("obs", "action", "reward", "discount", "next_obs", "weights")
    return _Moved(
        **{name: getattr(batch, name).to(device, non_blocking=True) for name in names}, tickets=batch.tickets
    )
