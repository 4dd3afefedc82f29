"""Base classes of the actor-critic algorithms, such as PPO, A2C and IMPALA: network, policy and learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from parl.algos.common.on_policy import OnPolicyAlgorithm, OnPolicyConfig, OnPolicyLearner, check_vectors
from parl.algos.common.seeded import DevicePolicy, SeededPolicy
from parl.errors import ConfigError
from parl.nets import flatten
from parl.nets.actor_critic import ActorCritic, UserActorCritic
from parl.nets.masks import MaskedActorCritic, MaskedRecurrentActorCritic, MaskedRows, MaskedUserActorCritic
from parl.nets.observations import DictTorso, RowTorso
from parl.nets.recurrent import RecurrentActorCritic
from parl.nets.torsos import Images
from parl.nets.user import UserInputs
from parl.ops.bounds import check_bounds, check_choices
from parl.ops.exploration import sample_softmax
from parl.ops.policies import LOG_SQRT_2PI, categorical, gaussian, multi_categorical
from parl.types import Array, EnvSpec, Observations, Rollout, rows_of

Network = ActorCritic | UserActorCritic | RecurrentActorCritic


@dataclass(frozen=True)
class ActorCriticConfig(OnPolicyConfig):
    """Settings that actor-critic algorithms share."""

    gae_lambda: float = 0.95
    """Lambda of the advantages, 0..1; larger values give longer horizons more weight."""
    value_coefficient: float = 0.5
    """Weight of the value loss, half the mean squared error of the values."""
    entropy_coefficient: float = 0.0
    """Weight of the entropy bonus in the loss."""
    normalize_advantages: bool = True
    """Normalize advantages to mean 0 and standard deviation 1 in each minibatch of two or more rows."""
    shared_layers: bool = False
    """Use the same layers for policy and value instead of separate ones. Images and dictionaries always share
    them."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Activation function of the dense layers, except for images and dictionaries, which have ReLU."""
    initial_log_std: float = 0.0
    """Initial logarithm of the standard deviation of continuous actions."""
    images: Images = "nature"
    """Convolutions for images: nature (those of the Nature DQN), impala (IMPALA's residual network) or small
    (two, of Mnih et al., 2013)."""
    lstm: int = 0
    """Width of an LSTM after the layers, which policy and value then share; 0: no LSTM."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = super().unused(spec)
        if spec.is_discrete:
            found["initial_log_std"] = "discrete actions"
        if self.lstm:
            found["shared_layers"] = f"lstm = {self.lstm}"
        elif spec.has_images or spec.observation_parts:
            found["shared_layers"] = "images and dictionaries, whose layers are always shared"
        if spec.has_images or spec.observation_parts:
            found["activation"] = "images and dictionaries, whose layers have ReLU"
        return found | self.replaced(("activation",), ("shared_layers",))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("gae_lambda", 0, 1),
            ("value_coefficient", 0, float("inf")),
            ("entropy_coefficient", 0, float("inf")),
            ("initial_log_std", -20, 20),
            ("lstm", 0, 2**20),
        )
        check_choices(self, ("activation", ("tanh", "relu")), ("images", get_args(Images)))
        if self.network is not None and self.lstm:
            raise ConfigError(
                f"{self.algorithm_name}: lstm = {self.lstm} needs parl's layers: set torso in place of "
                "network"
            )


def make_network(config: ActorCriticConfig, spec: EnvSpec) -> Network:
    """Creates the network of ``config`` for ``spec``."""
    network = _make_network(config, spec.without_mask, masked=spec.mask_size > 0)
    if isinstance(network, MaskedActorCritic | MaskedRecurrentActorCritic | MaskedUserActorCritic):
        network.rows = MaskedRows(spec)
    network.branches = spec.action_branches
    return network


def _make_network(config: ActorCriticConfig, spec: EnvSpec, masked: bool) -> Network:
    """Creates a network for observations without masks, of a class that takes them too if ``masked``."""
    if spec.is_discrete:
        outputs, log_std = spec.num_actions or sum(spec.action_branches), None
    else:
        outputs, log_std = int(np.prod(spec.action_shape)), config.initial_log_std
    torso, own, inputs = None, [], None
    if config.own is not None:
        # Images and dictionaries have one torso, as parl's do.
        shared = config.shared_layers or config.lstm or spec.has_images or spec.observation_parts
        count = 1 if shared or config.network is not None else 2
        modules = [config.make_own(spec) for _ in range(count)]
        inputs = UserInputs(spec, config.normalize_observations)
        own = [inputs.on_rows(module, spec) for module in modules]
        torso = own[0] if config.lstm else None
        if config.network is not None:
            modules[0].expect(("logits" if spec.is_discrete else "means", (outputs,)), ("values", ()))
            return (MaskedUserActorCritic if masked else UserActorCritic)(own[0], inputs, outputs, log_std)
    elif spec.observation_parts:
        torso = RowTorso(spec, DictTorso(spec, config.hidden, False, config.images))
    common: dict[str, Any] = {
        "shape": spec.observation_shape,
        "dtype": spec.observation_dtype,
        "outputs": outputs,
        "hidden": config.hidden,
        "activation": config.activation,
        "normalize": config.normalize_observations,
        "log_std": log_std,
        "frame_deltas": config.frame_deltas,
        "images": config.images,
        "torso": torso,
        "inputs": inputs,
    }
    if config.lstm:
        return (MaskedRecurrentActorCritic if masked else RecurrentActorCritic)(**common, width=config.lstm)
    return (MaskedActorCritic if masked else ActorCritic)(**common, shared=config.shared_layers, own=own)


def evaluate_actions(network: Network, obs: Tensor, action: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns log-probabilities of actions, entropies and values, each (B,) float32."""
    parameters, value = network(obs)
    return *log_prob_and_entropy(network, parameters, action), value


def log_prob_and_entropy(network: Network, parameters: Tensor, action: Tensor) -> tuple[Tensor, Tensor]:
    """Returns log-probabilities of actions and entropies, (B,) each, for the network's policy parameters."""
    if network.branches:
        return multi_categorical(parameters, action, network.branches)
    if network.log_std is None:
        return categorical(parameters, action)
    return gaussian(parameters, network.log_std, action.flatten(1))


class StochasticPolicy(SeededPolicy):
    """Samples actions from the network's distribution; greedy actions are its mode.

    Continuous actions are clipped to the bounds, as actors of rollouts do. Those of :meth:`sample` are not,
    since they have the log-probabilities.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec, seed: int) -> None:
        super().__init__(seed)
        self._network = make_network(config, spec)
        self._shape = spec.action_shape
        self._ends = np.cumsum(spec.action_branches)[:-1]
        self._low, self._high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        self.weights = flatten(self._network, gradients=False).weights

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Samples actions (N, ...); also returns their log-probabilities (N,) float32."""
        parameters = self._network.act(observations)
        if self._network.branches:
            parts = [self._choose(part) for part in np.split(parameters, self._ends, axis=1)]
            return np.stack([action for action, _ in parts], axis=1), np.add.reduce([one for _, one in parts])
        if self._network.log_std is None:
            return self._choose(parameters)
        noise = self._rng.standard_normal(parameters.shape, np.float32)
        log_std = self._network.log_std.detach().numpy()
        parameters = parameters + np.exp(log_std) * noise
        normalizer = np.float32(np.add.reduce(log_std) + len(log_std) * LOG_SQRT_2PI)
        noise *= noise
        log_prob = np.add.reduce(noise, axis=1) * np.float32(-0.5) - normalizer
        return parameters.reshape(-1, *self._shape), log_prob

    def _choose(self, logits: Array) -> tuple[Array, Array]:
        """Samples (N,) from softmax(``logits``), which it changes; also returns log-probabilities."""
        action = sample_softmax(logits, self._rng)
        logits -= logits.max(axis=1, keepdims=True)
        chosen = logits[np.arange(len(action)), action]
        return action, chosen - np.log(np.add.reduce(np.exp(logits), axis=1))

    def act(self, observations: Observations, env_steps: int) -> Array:
        """Returns sampled actions (N, ...)."""
        action = self.sample(rows_of(observations), env_steps)[0]
        return action if self._network.log_std is None else self._clipped(torch.from_numpy(action)).numpy()

    def act_greedily(self, observations: Observations) -> Array:
        """Returns the most probable actions (N, ...)."""
        parameters = self._network.act(rows_of(observations))
        if self._network.branches:
            parts = np.split(parameters, self._ends, axis=1)
            return np.stack([part.argmax(axis=1) for part in parts], axis=1)
        if self._network.log_std is None:
            return parameters.argmax(axis=1)
        return self._clipped(torch.from_numpy(parameters)).numpy()

    def greedy(self, network: Any, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        return (self._mode(network(observations)[0]),)

    def _mode(self, parameters: Tensor) -> Tensor:
        """Returns the most probable actions (N, ...) for policy parameters (N, outputs)."""
        if self._network.branches:
            parts = parameters.split_with_sizes(list(self._network.branches), dim=1)
            return torch.stack([part.argmax(dim=1) for part in parts], dim=1)
        if self._network.log_std is None:
            return parameters.argmax(dim=1)
        return self._clipped(parameters)

    def _clipped(self, actions: Tensor) -> Tensor:
        """Clips continuous actions (N, ...) to the bounds of the environment, (N, *shape)."""
        if len(self._low):
            actions = torch.clamp(actions.flatten(1), self._low, self._high)
        return actions.reshape(-1, *self._shape)


class RecurrentPolicy(StochasticPolicy):
    """As :class:`StochasticPolicy`, with an LSTM. See :class:`parl.types.RecurrentPolicy`."""

    _network: RecurrentActorCritic

    @property
    def memory(self) -> Tensor:
        """(2, N, H) float32."""
        return self._network.memory

    @memory.setter
    def memory(self, memory: Tensor) -> None:
        self._network.memory = memory

    def restart(self, starts: Array) -> None:
        """See :class:`parl.types.RecurrentPolicy`."""
        self._network.restart(torch.from_numpy(starts))

    def greedy(self, network: Any, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        parameters, _, following = network.step(observations, *memory)
        return self._mode(parameters), following

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return super().state_dict() | {"memory": self.memory.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._network.memory = state["memory"].clone()


class DeviceStochasticPolicy(DevicePolicy):
    """As :class:`StochasticPolicy`, with the learner's network and device.

    See :class:`parl.types.RolloutAlgorithm`.
    """

    def __init__(
        self, network: ActorCritic | UserActorCritic, spec: EnvSpec, device: torch.device, seed: int
    ) -> None:
        super().__init__(device, seed)
        self._network, self._shape = network, spec.action_shape

    def schedule(self, env_steps: int) -> None:
        """Does nothing: the policy has no schedules."""

    def sample(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Samples actions (N, ...) and their log-probabilities (N,) float32; does not synchronize."""
        parameters, log_std = self._network.policy_of(observations), self._network.log_std
        if log_std is None:
            # As `sample_softmax`.
            noise = torch.empty_like(parameters).exponential_(generator=self.generator).clamp_(min=1e-30)
            action = (parameters - noise.log()).argmax(dim=1)
            chosen = parameters.log_softmax(dim=1).gather(1, action.unsqueeze(1)).squeeze(1)
            return action, chosen
        with torch.no_grad():
            noise = torch.empty_like(parameters).normal_(generator=self.generator)
            action = parameters + log_std.exp() * noise
            return action.view(-1, *self._shape), gaussian(parameters, log_std, action)[0]


class ActorCriticLearner(OnPolicyLearner):
    """Base class of learners whose network has a policy head and a value head."""

    network: Network
    _memories: Tensor

    def make_network(self) -> Network:
        """See :class:`OnPolicyLearner`."""
        return make_network(self.config, self.spec)

    def values_of(self, obs: Tensor) -> Tensor:
        """See :class:`OnPolicyLearner`."""
        return self.network.value_of(obs)

    def outputs(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Returns policy parameters (T + 1, N, outputs) and values (T + 1, N) for ``rollout.obs``."""
        if isinstance(self.network, RecurrentActorCritic):
            assert rollout.starts is not None and rollout.memory is not None
            parameters, value, memories = self.network.unroll(rollout.obs, rollout.starts, rollout.memory)
            self._memories = memories.detach()  # (T + 1, 2, N, H)
            return parameters, value
        parameters, value = self.network(rollout.obs.flatten(0, 1))
        shape = rollout.obs.shape[:2]
        return parameters.view(*shape, -1), value.view(shape)

    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """See :class:`OnPolicyLearner`."""
        if not isinstance(self.network, RecurrentActorCritic):
            return super().values(rollout)
        with torch.no_grad():
            value = self.outputs(rollout)[1]
            return value[:-1], self.next_values(rollout, value)

    def final_values(self, rollout: Rollout) -> Tensor:
        """See :class:`OnPolicyLearner`; an LSTM has the state after the step that led there."""
        if not isinstance(self.network, RecurrentActorCritic):
            return super().final_values(rollout)
        t, n = rollout.final_at[:, 0], rollout.final_at[:, 1]
        memory = self._memories[t, :, n].transpose(0, 1)
        return self.network.step(rollout.final_obs, memory)[1]


class ActorCriticAlgorithm(OnPolicyAlgorithm):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""

    learner: type[ActorCriticLearner]
    takes_masks: bool = True
    """Whether policies choose valid actions only, if environments report masks."""

    def __init__(self, config: ActorCriticConfig, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        check_vectors(config, spec, images=config.own is None and not config.lstm)
        if config.own is not None:
            make_network(config, spec)  # raises its errors before the run starts

    @property
    def first_deviation(self) -> float | None:
        """Standard deviation of the first policy's actions around 0; None with a network of one's own."""
        return None if self.config.own is not None else math.exp(self.config.initial_log_std)

    @property
    def memory(self) -> int:
        """H, width of the LSTM; 0 without one."""
        return self.config.lstm

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> StochasticPolicy:
        """The policy of one actor."""
        kind = RecurrentPolicy if self.config.lstm else StochasticPolicy
        return kind(self.config, self.spec, seed)

    def make_learner(self, seed: int, device: str) -> ActorCriticLearner:
        """A learner with weights drawn from ``seed``."""
        return self.learner(self.config, self.spec, seed, device)

    def check_device(self, grouped: bool) -> None:
        """See :class:`parl.types.RolloutAlgorithm`."""
        if self.config.lstm:
            raise ConfigError(f"lstm = {self.config.lstm} needs environments on the CPU: leave it at 0")
        super().check_device(grouped)

    def make_device_policy(self, learner: ActorCriticLearner, seed: int) -> DeviceStochasticPolicy:
        """See :class:`parl.types.RolloutAlgorithm`."""
        assert not isinstance(learner.network, RecurrentActorCritic)
        return DeviceStochasticPolicy(learner.network, self.spec, learner.weights.device, seed)
