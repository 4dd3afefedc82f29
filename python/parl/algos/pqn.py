"""Parallelized Q-network (PQN): Q-learning on rollouts, without replay and without a target network.

Layer normalization keeps it stable. For a rollout of T steps of N environments, where G is computed once,
with the Q from before the updates::

    G_t  = r_t + gamma (1 - terminated_t) ((1 - lam_t) max_a Q(s'_t, a) + lam_t G_{t+1})
    lam_t = lambda, or 0 where the episode ended at t and on the last row
    loss = 1/2 mean_b (Q(s_b, a_b) - G_b)^2

The loss is minimized over several epochs of minibatches. Actions are epsilon-greedy.

A ``network`` of your own returns Q-values (batch, actions).

Source: Gallici et al. (2024), "Simplifying Deep Temporal Difference Learning", algorithm 1, appendix C (Adam
here in place of rectified Adam).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from parl.algos.common.atari import PONG_RAM, PONG_RAM_NOTE
from parl.algos.common.on_policy import (
    Average,
    OnPolicyAlgorithm,
    OnPolicyConfig,
    OnPolicyLearner,
    check_vectors,
)
from parl.algos.common.seeded import DevicePolicy, SeededPolicy
from parl.nets import MLP, check_actions, flatten, make_torso
from parl.nets.fused import MLPWithHeads
from parl.nets.fused.layers import head
from parl.nets.normalizer import Flattener
from parl.nets.observations import DictTorso, RowTorso
from parl.nets.torsos import Images
from parl.nets.user import UserInputs, UserModule
from parl.ops.advantages import lambda_returns
from parl.ops.bounds import check_bounds, check_choices
from parl.ops.execution import ExecutionModule, autocast_bf16, in_float32
from parl.ops.exploration import epsilon_greedy
from parl.ops.schedules import linear
from parl.types import Array, EnvSpec, Observations, Preset, Rollout, is_image, rows_of


@dataclass(frozen=True)
class Config(OnPolicyConfig):
    """Settings of PQN. Steps are vector steps; updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "pqn"

    td_lambda: float = 0.95
    """Lambda of the returns, 0..1; larger values give longer horizons more weight."""
    epochs: int = 4
    """Number of passes over each rollout."""
    minibatch_size: int = 128
    """Transitions per update."""
    layer_norm: bool = True
    """Layer normalization before each ReLU of the dense layers; without it, values may drift."""
    epsilon_first: float = 1.0
    """Initial exploration rate (epsilon)."""
    epsilon_last: float = 0.05
    """Exploration rate after epsilon_steps."""
    epsilon_steps: int = 20_000
    """Transitions over which the exploration rate falls linearly."""
    max_gradient_norm: float = 10.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. 0: no limit."""
    hidden: tuple[int, ...] = (128, 128)
    """Widths of the dense layers; images use only the last, after the convolutions."""
    images: Images = "nature"
    """Convolutions for images: nature (those of the Nature DQN), impala (IMPALA's residual network) or small
    (two, of Mnih et al., 2013)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("td_lambda", 0, 1),
            ("epochs", 1, 2**20),
            ("minibatch_size", 1, 2**40),
            ("epsilon_first", 0, 1),
            ("epsilon_last", 0, 1),
            ("epsilon_steps", 0, 2**53),
        )
        check_choices(self, ("images", get_args(Images)))

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        return super().unused(spec) | self.replaced(("layer_norm",), ())


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations; those for images are after the source.

    The source has layer normalization after each convolution too, here only the dense layers have it.
    """
    if spec.has_images:
        return Config(
            td_lambda=0.65,
            epochs=2,
            learning_rate=2.5e-4,
            epsilon_last=0.001,
            epsilon_steps=1_000_000,
            hidden=(512,),
        )
    # Once an environment is solved, gradients are tiny, and so is Adam's mean of their squares. One rare
    # failure, with a norm of about 80 instead of the usual 0.02, then moves all weights so far that
    # everything learned is lost. The bound keeps such a step as small as the others.
    return Config(reward_scale=0.1, learning_rate=5e-4, max_gradient_norm=0.5)


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    return {"total_steps": 10_000_000, "num_envs": 128} if spec.has_images else {"num_envs": 16}


PRESETS: dict[str, Preset] = {
    "atari-ram": Preset(
        run={**PONG_RAM, "num_envs": 64, "total_steps": 2_000_000},
        algorithm={
            "rollout_steps": 32,
            "minibatch_size": 128,
            "td_lambda": 0.65,
            "learning_rate": 1e-3,
            "max_gradient_norm": 10.0,
            "reward_scale": 1.0,
            "epsilon_steps": 200_000,
            "epsilon_last": 0.02,
            "normalize_observations": True,
            "frame_deltas": True,
            "hidden": (256, 256),
        },
        tuned=True,
        note=PONG_RAM_NOTE,
    ),
    "lunarlander": Preset(
        run={"env": "LunarLander-v3", "num_envs": 16, "total_steps": 1_000_000},
        algorithm={
            "rollout_steps": 32,
            "epsilon_steps": 100_000,
            "epsilon_last": 0.02,
            "learning_rate": 1e-3,
            "max_gradient_norm": 10.0,
        },
        tuned=True,
        note="Reaches 200 within a minute on nine of ten seeds.",
    ),
}


class QNetwork(ExecutionModule):
    """Q-network: observations (B, ...) to action values (B, A) float32."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self._dense: MLPWithHeads | None = None
        shape, dtype, actions = spec.observation_shape, spec.observation_dtype, spec.num_actions or 0
        if config.own is not None:
            own = config.make_own(spec)
            if config.network is not None:
                own.expect(("values", (actions,)))
            self.flattener = UserInputs(spec, config.normalize_observations)
            self.torso: nn.Module = self.flattener.on_rows(own, spec)
            self.head = nn.Linear(own.features, actions) if own.features else nn.Identity()
            return
        if not spec.observation_parts and not is_image(shape, dtype):
            self.flattener = Flattener(shape, dtype, config.normalize_observations, config.frame_deltas)
            shape, dtype = (self.flattener.inputs,), "float32"
        if spec.observation_parts:
            inner = DictTorso(spec, config.hidden, config.layer_norm, config.images)
            self.torso = RowTorso(spec, inner)
        else:
            self.torso = make_torso(shape, dtype, config.hidden, config.layer_norm, config.images)
        self.head = nn.Linear(config.hidden[-1], actions)

    def bind(self) -> None:
        """See :func:`parl.nets.flatten`. Layers and head become one fused operation."""
        linear = self.head if isinstance(self.head, nn.Linear) else None
        if isinstance(self.torso, MLP | UserModule) and linear is not None:
            self._dense = self.torso.with_heads([head(0, linear)])
        elif isinstance(self.torso, UserModule):
            self._dense = self.torso.as_dense()

    def act(self, observations: Array) -> Array:
        """Returns action values (B, A) for observations (B, ...), both numpy; no gradient."""
        if self._dense is not None:
            found = self._dense.act(self.flattener.vectors(observations), 0)
            if found is not None:
                return found
        with torch.inference_mode():
            return self(torch.from_numpy(observations)).numpy()

    def forward(self, observations: Tensor) -> Tensor:
        """Returns action values (B, A)."""
        if self.use_bf16:
            with autocast_bf16(observations.device):
                return self._values(observations)
        return self._values(observations)

    def _values(self, observations: Tensor) -> Tensor:
        if hasattr(self, "flattener"):
            observations = self.flattener(observations)
            if self._dense is not None and not self.torch_only:
                x = observations.flatten(1) if observations.dim() > 2 else observations
                if self._dense.accepts(x):
                    return self._dense.outputs(x)[0]
        return in_float32(self.head, self.torso(observations))


class PQNPolicy(SeededPolicy):
    """Epsilon-greedy policy whose epsilon falls over the run.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
    """

    _network: QNetwork

    def __init__(self, config: Config, spec: EnvSpec, seed: int) -> None:
        super().__init__(seed)
        self._config = config
        self._actions = spec.num_actions or 0
        self._network = QNetwork(config, spec)
        self.weights = flatten(self._network, gradients=False).weights

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Returns actions (N,) with exploration, and zeros: the loss needs no log-probabilities."""
        action = self.act(observations, env_steps)
        return action, np.zeros(len(action), np.float32)

    def act(self, observations: Array, env_steps: int) -> Array:
        """Returns actions (N,) int64 with exploration."""
        config = self._config
        epsilon = linear(env_steps, config.epsilon_first, config.epsilon_last, config.epsilon_steps)
        return epsilon_greedy(self.act_greedily(observations), epsilon, self._actions, self._rng)

    def act_greedily(self, observations: Observations) -> Array:
        """Returns greedy actions (N,) int64."""
        return self._network.act(rows_of(observations)).argmax(axis=1)

    def greedy(self, network: QNetwork, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        return (network(observations).argmax(dim=1),)


class DevicePQNPolicy(DevicePolicy):
    """As :class:`PQNPolicy`, with the learner's network. See :class:`parl.types.RolloutAlgorithm`."""

    def __init__(self, config: Config, spec: EnvSpec, network: QNetwork, device: Any, seed: int) -> None:
        super().__init__(device, seed)
        self._config, self._network = config, network
        self._actions = spec.num_actions or 0
        self._epsilon = torch.zeros((), device=device)

    def schedule(self, env_steps: int) -> None:
        """Sets the exploration rate."""
        config = self._config
        self._epsilon.fill_(
            linear(env_steps, config.epsilon_first, config.epsilon_last, config.epsilon_steps)
        )

    def sample(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns actions (N,) int64 with exploration, and zeros; does not synchronize."""
        with torch.no_grad():
            greedy = self._network(observations).argmax(dim=1)
        action = self.epsilon_greedy(greedy, self._epsilon, self._actions)
        return action, torch.zeros(len(action), device=action.device)


class PQNLearner(OnPolicyLearner):
    """Learner of PQN: returns, loss and the loop over minibatches."""

    def make_network(self) -> QNetwork:
        """See :class:`OnPolicyLearner`."""
        return QNetwork(self.config, self.spec)

    def values_of(self, obs: Tensor) -> Tensor:
        """Returns the largest action values, (B,)."""
        return self.network(obs).amax(dim=1)

    def loss(self, obs: Tensor, action: Tensor, target: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss of a minibatch, (B, ...), (B,) int64 and (B,) float32, and metrics."""
        q = self.network(obs).gather(1, action.unsqueeze(1)).squeeze(1)
        loss = 0.5 * (q - target).square().mean()
        return loss, {"loss": loss.detach(), "q_mean": q.detach().mean()}

    def optimize(self, rollout: Rollout, progress: float, average: Average) -> int:
        """Makes the updates of all epochs over one rollout; returns their number."""
        config: Config = self.config
        _, following = self.values(rollout)
        target = lambda_returns(
            rollout.reward, following, rollout.terminated, rollout.ended, config.gamma, config.td_lambda
        ).flatten()
        obs, action = rollout.obs[:-1].flatten(0, 1), rollout.action.flatten()
        updates = 0
        columns = (obs, action, target)
        for part in self.minibatches(columns, rollout.valid, config.epochs, config.minibatch_size):
            self.differentiate(*part)
            self.apply(progress, average)
            updates += 1
        return updates


class PQN(OnPolicyAlgorithm):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`.

    Raises:
        ConfigError: the environment's actions are not discrete.
    """

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        check_vectors(config, spec)
        check_actions(config.algorithm_name, spec, "discrete")
        if config.own is not None:
            QNetwork(config, spec)  # raises its errors before the run starts

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> PQNPolicy:
        """The policy of one actor."""
        return PQNPolicy(self.config, self.spec, seed)

    def make_learner(self, seed: int, device: str) -> PQNLearner:
        """A learner with weights drawn from ``seed``."""
        return PQNLearner(self.config, self.spec, seed, device)

    def make_device_policy(self, learner: PQNLearner, seed: int) -> DevicePQNPolicy:
        """See :class:`parl.types.RolloutAlgorithm`."""
        network = cast("QNetwork", learner.network)
        return DevicePQNPolicy(self.config, self.spec, network, learner.weights.device, seed)
