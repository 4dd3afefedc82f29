"""What PPO, A2C and IMPALA share: the network with two heads and the policy that acts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from parl.algos.rollouts import OptimizedLearner, RolloutConfig
from parl.algos.seeded import SeededPolicy
from parl.nets import check_observations, flatten
from parl.nets.actor_critic import ActorCritic
from parl.ops.bounds import check_bounds, check_choices
from parl.ops.policies import categorical, gaussian
from parl.types import Array, EnvSpec


@dataclass(frozen=True)
class ActorCriticConfig(RolloutConfig):
    """Settings that actor-critic algorithms share."""

    gae_lambda: float = 0.95
    """Mixes short and long horizons in advantages, 0..1."""
    value_coefficient: float = 0.5
    """Weight of the value's squared error in the loss."""
    entropy_coefficient: float = 0.0
    """Weight of the policy's entropy in the loss."""
    normalize_advantages: bool = True
    """Bring advantages to mean 0 and deviation 1 in each minibatch."""
    shared_layers: bool = False
    """One tower of layers for policy and value instead of one each (images always share)."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the dense layers."""
    initial_log_std: float = 0.0
    """Logarithm of the standard deviation of continuous actions at the start."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("gae_lambda", 0, 1),
            ("value_coefficient", 0, float("inf")),
            ("entropy_coefficient", 0, float("inf")),
            ("initial_log_std", -20, 20),
        )
        check_choices(self, ("activation", ("tanh", "relu")))


def make_network(config: ActorCriticConfig, spec: EnvSpec) -> ActorCritic:
    """The network of ``config`` for ``spec``."""
    if spec.num_actions:
        outputs, log_std = spec.num_actions, None
    else:
        outputs, log_std = int(np.prod(spec.action_shape)), config.initial_log_std
    return ActorCritic(
        spec.observation_shape,
        spec.observation_dtype,
        outputs,
        config.hidden,
        config.shared_layers,
        config.activation,
        config.normalize_observations,
        log_std,
        config.changes,
    )


def evaluate_actions(network: ActorCritic, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Log-probabilities of actions, entropies and values, each (B,) float32."""
    parameters, value = network(obs)
    return *judge(network, parameters, action), value


def judge(network: ActorCritic, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Log-probabilities of actions and entropies, (B,) each, from the network's policy parameters."""
    if network.log_std is None:
        return categorical(parameters, action)
    return gaussian(parameters, network.log_std, action.flatten(1))


class StochasticPolicy(SeededPolicy):
    """Draws actions from the network's distribution; greedily it takes the mode.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec, seed: int) -> None:
        super().__init__(seed)
        self._network = make_network(config, spec)
        self._shape = spec.action_shape
        self.weights = flatten(self._network, gradients=False).weights

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Actions (N, ...) and their log-probabilities (N,) float32."""
        parameters = self._network.act(observations)
        if self._network.log_std is None:
            # The largest of logit + Gumbel noise is a draw from the softmax (Gumbel, 1954).
            noise = self._rng.standard_exponential(parameters.shape, np.float32) + 1e-30  # never 0
            action = (parameters - np.log(noise)).argmax(axis=1)
            parameters -= parameters.max(axis=1, keepdims=True)
            chosen = parameters[np.arange(len(action)), action]
            return action, chosen - np.log(np.add.reduce(np.exp(parameters), axis=1))
        noise = self._rng.standard_normal(parameters.shape, np.float32)
        with torch.inference_mode():
            mean = torch.from_numpy(parameters)
            drawn = mean + torch.exp(self._network.log_std) * torch.from_numpy(noise)
            log_prob, _ = gaussian(mean, self._network.log_std, drawn)
            return drawn.numpy().reshape(-1, *self._shape), log_prob.numpy()

    def act(self, observations: Array, env_steps: int) -> Array:
        """Drawn actions (N, ...)."""
        return self.sample(observations, env_steps)[0]

    def act_greedily(self, observations: Array) -> Array:
        """The most likely actions (N, ...)."""
        parameters = self._network.act(observations)
        if self._network.log_std is None:
            return parameters.argmax(axis=1)
        return parameters.reshape(-1, *self._shape)


class ActorCriticLearner(OptimizedLearner):
    """A learner whose network is an :class:`ActorCritic`."""

    network: ActorCritic

    def make_network(self) -> ActorCritic:
        """See :class:`OptimizedLearner`."""
        return make_network(self.config, self.spec)

    def values_of(self, obs: Tensor) -> Tensor:
        """See :class:`OptimizedLearner`."""
        return self.network.value_of(obs)


class ActorCriticAlgorithm:
    """Makes policies and learners. See :class:`parl.types.RolloutAlgorithm`."""

    learner: type[ActorCriticLearner]

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec) -> None:
        check_observations(type(self).__name__.lower(), spec, ("vector", "image"))
        self.config = config
        self.spec = spec

    @property
    def rollout_steps(self) -> int:
        """T."""
        return self.config.rollout_steps

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> StochasticPolicy:
        """The policy of one actor."""
        return StochasticPolicy(self.config, self.spec, seed)

    def make_learner(self, seed: int, device: str) -> ActorCriticLearner:
        """A learner with weights drawn from ``seed``."""
        return self.learner(self.config, self.spec, seed, device)
