"""Deep Q-learning (DQN) with its common extensions, up to Rainbow, IQN and Munchausen DQN.

For a sampled transition ``(s, a, R, d, s')`` with the n-step sum ``R = sum_{i<k} gamma^i r_i``, ``k <= n``,
and ``d = gamma^k`` (0 where the episode terminated; truncation bootstraps)::

    y     = R + d * Q_target(s', argmax_a' Q(s', a'))          double:  van Hasselt et al. (2016), equation 4
    y     = R + d * max_a' Q_target(s', a')                    single:  Mnih et al. (2015), equation 2
    delta = y - Q(s, a)
    loss  = mean_b w_b huber(delta_b)                          w:       Schaul et al. (2016), section 3.4
    p     = |delta| + priority_epsilon                         p:       Schaul et al. (2016), section 3.3
    Q     = V + A - mean(A)                                    dueling: Wang et al. (2016), equation 9

With ``distribution`` set, the network predicts the distribution of each action's return; Q is its mean::

    c51   Z = sum_i p_i [z_i],  z_i fixed                      Bellemare et al. (2017), equation 7
          loss = mean_b w_b KL(project(R + d z, p_target(s', a*)) || p(s, a)),  p = KL + priority_epsilon
    qr    Z = quantiles at (i + 1/2) / N                       Dabney et al. (2018), "QR", equation 10
    iqn   Z(tau), tau drawn from 0..1                          Dabney et al. (2018), "IQN", equation 3
          loss = mean_b w_b sum_i mean_j |tau_i - [u_ij < 0]| huber(u_ij) / delta,
          u_ij = R + d Z_target,j(s', a*) - Z_i(s, a),         p = |mean_ij u_ij| + priority_epsilon

Munchausen targets, with ``pi = softmax(Q_target / T)`` (for quantiles, Z_target in place of Q_target)::

    y = R + m * max(T log pi(a|s), clip) + d * sum_a' pi(a'|s') (Q_target(s', a') - T log pi(a'|s'))
                                                               Vieillard et al. (2020), equation 2

With ``n_step > 1`` only the bonus of the first step is added. Noisy layers: see ``parl.nets.noisy``.

Conservative Q-learning, for runs that learn from a dataset (``c``: ``cql_alpha``; Q: the mean of a
distribution)::

    loss = ... + c mean_b w_b (log sum_a' exp Q(s, a') - Q(s, a))
                                                               Kumar et al. (2020), equation 4, "CQL(H)"

If environments report action masks, every ``max``, ``argmax`` and ``pi`` above is over the valid actions of
its state. Rewards are multiplied by ``reward_scale`` first. The replay computes the n-step sums and ``w``,
and samples in proportion to ``p ** alpha``. Distributions of c51 start near 0, see
:func:`parl.ops.distributions.initial_logits`.

A ``network`` of your own returns Q-values (batch, actions); for c51 logits (batch, actions, atoms), for qr
quantiles (batch, actions, quantiles). iqn takes only a ``torso``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parl.algos.common.atari import PONG_RAM, PONG_RAM_NOTE
from parl.algos.common.off_policy import OffPolicyAlgorithm, OffPolicyConfig
from parl.algos.common.off_policy_learner import OffPolicyLearner
from parl.algos.common.q_network import QNetwork
from parl.algos.common.seeded import DevicePolicy, SeededPolicy
from parl.errors import ConfigError
from parl.nets import (
    check_actions,
    check_stacked,
    copy_named,
    flatten,
    named_weights,
    resample_noise,
    select_actions,
    silence_noise,
)
from parl.nets.embeddings import embed
from parl.nets.fused import Update, may_replay
from parl.nets.seeding import seeded
from parl.nets.torsos import Images, ImageTorso
from parl.ops.adam import FlatAdam
from parl.ops.batches import TENSORS, TensorBatch, batch_to_device
from parl.ops.bounds import NO_IMAGES, check_above_zero, check_bounds, check_choices, check_hidden
from parl.ops.distributions import (
    categorical_divergence,
    midpoints,
    project_categorical,
    quantile_huber,
)
from parl.ops.execution import compiled
from parl.ops.exploration import epsilon_greedy
from parl.ops.finite import check_update
from parl.ops.losses import huber
from parl.ops.memory import keep_freed_memory
from parl.ops.returns import bellman_target, soft_policy
from parl.ops.schedules import actor_epsilons, linear
from parl.types import MASK, Array, Batch, EnvSpec, Observations, Preset

Distribution = Literal["none", "c51", "qr", "iqn"]
AtomSpacing = Literal["equal", "sqrt"]


@dataclass(frozen=True)
class Config(OffPolicyConfig):
    """Settings of DQN. Steps are environment steps (transitions); updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "dqn"
    acting_settings: ClassVar[tuple[str, ...]] = (
        *OffPolicyConfig.acting_settings,
        "epsilon_first",
        "epsilon_last",
        "epsilon_steps",
        "epsilon_spread",
    )

    double: bool = True
    """Double DQN: the online network selects the next action, the target network evaluates it."""
    dueling: bool = False
    """Dueling network: the head predicts a state value and an advantage per action."""
    dueling_hidden: int = 0
    """Width of a hidden layer in each of the two dueling streams; for images it replaces the dense layer
    after the convolutions. 0: each stream is a single layer."""
    distribution: Distribution = "none"
    """none: learn the mean return. Else learn its distribution: c51 (on fixed atoms), qr (quantiles at fixed
    fractions) or iqn (quantiles at sampled fractions)."""
    atoms: int = 51
    """c51: number of atoms, 2..1024."""
    value_min: float = -10.0
    """c51: lowest atom, in units of the scaled return."""
    value_max: float = 10.0
    """c51: highest atom, in units of the scaled return. Larger returns are learned as this one: with gamma
    above 0.99 or rewards above 1, raise it or lower reward_scale."""
    atom_spacing: AtomSpacing = "equal"
    """c51: what is equally spaced: the values of the atoms (equal, as in the source), or their square roots
    (sqrt). Returns that are small compared with the range are then told apart too."""
    quantiles: int = 64
    """qr: number of quantiles. iqn: number of fractions sampled for the prediction, and as many for the
    target. 1..1024."""
    policy_quantiles: int = 32
    """iqn: number of evenly spaced fractions over which values are averaged to choose actions, 1..1024."""
    cosines: int = 64
    """iqn: number of cosine features that encode a fraction, 1..1024."""
    noisy: bool = False
    """Noisy layers: explore also by noise of learned size on the weights of the head."""
    noisy_sigma: float = 0.5
    """Initial size of the noise of noisy layers."""
    munchausen: float = 0.0
    """Weight of the log-policy that Munchausen DQN adds to the reward, 0..1; 0: off. The source uses 0.9."""
    munchausen_temperature: float = 0.03
    """Temperature of the softmax policy in Munchausen targets, in units of the scaled return."""
    munchausen_clip: float = -1.0
    """Lower bound of temperature times log-policy in Munchausen targets, at most 0."""
    cql_alpha: float = 0.0
    """Weight of the conservative term of CQL, which lowers the values of actions that a dataset does not
    have; 0: off."""
    n_step: int = 10
    """Number of rewards summed before bootstrapping, 1..64."""
    reward_scale: float = 0.1
    """Factor that rewards are multiplied by; networks learn fastest if values stay below about 10."""
    prioritized: bool = True
    """Prioritized replay: sample in proportion to the last TD error (see alpha); else uniformly."""
    alpha: float = 0.4
    """Exponent of the priorities, 0..1; 0 samples uniformly."""
    huber_delta: float = 1.0
    """Absolute error above which the loss is linear, in units of the scaled return; inf: squared error."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the dense layers; images use only the last, after the convolutions."""
    images: Images = "nature"
    """Convolutions for images: nature (those of the Nature DQN), impala (IMPALA's residual network) or small
    (two, of Mnih et al., 2013)."""
    frame_deltas: bool = False
    """Stacked vectors only: replace the older ones of a stack by the differences between neighbors, and scale
    bytes, such as those of the console's memory."""
    layer_norm: bool = True
    """Layer normalization before each ReLU of the dense layers; stabilizes high learning rates."""
    learning_rate: float = 2e-3
    """Learning rate of Adam."""
    adam_epsilon: float = 1e-8
    """Epsilon of Adam, added to the denominator."""
    max_gradient_norm: float = 10.0
    """Largest norm of the gradient; a larger gradient is scaled down to it. 0: no limit."""
    target_period: int = 25
    """Updates between copies of the weights to the target network; unused with target_tau."""
    target_tau: float = 0.0
    """Polyak averaging: share of the weights mixed into the target network at each update; 0: copy every
    target_period updates."""
    epsilon_first: float = 1.0
    """Exploration rate (epsilon) at step 0."""
    epsilon_last: float = 0.02
    """Exploration rate of actor 0 after epsilon_steps."""
    epsilon_steps: int = 5_000
    """Steps, of all actors together, over which the exploration rate falls linearly."""
    epsilon_spread: float = 0.0
    """Final exploration rate of actor i of n: epsilon_last ** (1 + epsilon_spread * i / (n - 1)). 7 in
    Ape-X; 0: the same for all."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = super().unused(spec)
        kind = f"distribution = {self.distribution!r}"
        if self.distribution != "c51":
            found |= dict.fromkeys(("atoms", "value_min", "value_max", "atom_spacing"), kind)
        else:
            found["huber_delta"] = kind
        if self.distribution not in ("qr", "iqn"):
            found["quantiles"] = kind
        if self.distribution != "iqn":
            found |= dict.fromkeys(("policy_quantiles", "cosines"), kind)
        if not self.noisy:
            found["noisy_sigma"] = "noisy = False"
        if self.munchausen:
            found["double"] = f"munchausen = {self.munchausen}"
        else:
            found |= dict.fromkeys(("munchausen_temperature", "munchausen_clip"), "munchausen = 0")
        if self.target_tau:
            found["target_period"] = f"target_tau = {self.target_tau}"
        if self.epsilon_last in (0, 1):
            found["epsilon_spread"] = f"epsilon_last = {self.epsilon_last}"
        if not spec.has_images:
            found["images"] = NO_IMAGES
        if self.dueling_hidden and spec.observation_kind == "image":
            # The head's layers take the place of the dense ones after the convolutions.
            found |= dict.fromkeys(("hidden", "layer_norm"), f"dueling_hidden = {self.dueling_hidden}")
        head = ("dueling", "dueling_hidden", "noisy_sigma")
        return found | self.replaced(("hidden", "images", "layer_norm", "frame_deltas"), head)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("dueling_hidden", 0, 2**20),
            ("atoms", 2, 1024),
            ("quantiles", 1, 1024),
            ("policy_quantiles", 1, 1024),
            ("cosines", 1, 1024),
            ("noisy_sigma", 0, math.inf),
            ("munchausen", 0, 1),
            ("munchausen_clip", -math.inf, 0),
            ("cql_alpha", 0, math.inf),
            ("learning_rate", 0, math.inf),
            ("adam_epsilon", 0, math.inf),
            ("max_gradient_norm", 0, math.inf),
            ("target_period", 1, math.inf),
            ("target_tau", 0, 1),
            ("epsilon_first", 0, 1),
            ("epsilon_last", 0, 1),
            ("epsilon_steps", 0, math.inf),
            ("epsilon_spread", 0, math.inf),
            ("munchausen_temperature", 0, math.inf),
            infinite=("munchausen_clip", "max_gradient_norm"),
        )
        check_above_zero(self, "huber_delta", "munchausen_temperature", "adam_epsilon")
        algorithm = self.algorithm_name
        check_hidden(self)
        check_choices(
            self,
            ("distribution", get_args(Distribution)),
            ("atom_spacing", get_args(AtomSpacing)),
            ("images", get_args(Images)),
        )
        if not -math.inf < self.value_min < self.value_max < math.inf:
            raise ConfigError(
                f"{algorithm}: value_min = {self.value_min} must be below value_max = {self.value_max}, both "
                "finite"
            )
        if self.distribution in ("qr", "iqn") and math.isinf(self.huber_delta):
            raise ConfigError(
                f"{algorithm}: huber_delta = inf does not go with distribution = {self.distribution!r}"
            )
        if self.distribution == "c51" and self.munchausen:
            raise ConfigError(
                f"{algorithm}: munchausen = {self.munchausen} does not work with distribution = 'c51'; use "
                "qr or iqn"
            )
        if self.dueling_hidden and not self.dueling:
            raise ConfigError(f"{algorithm}: dueling_hidden = {self.dueling_hidden} needs dueling = True")
        if self.network is not None and self.distribution == "iqn":
            raise ConfigError(
                f"{algorithm}: distribution = 'iqn' needs parl's head: set torso in place of network"
            )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations: the defaults, or those of the Atari literature for images.

    Source for images: Hessel et al. (2018), "Rainbow", table 1, but for ``target_period``: the source copies
    weights every 32,000 frames, which are 2,000 updates, and Mnih et al. (2015) every 10,000 updates.
    """
    if not spec.has_images:
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


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    if not spec.has_images:
        return {}
    return {
        "total_steps": 10_000_000,
        "num_envs": 16,
        "replay_ratio": 8.0,
        "batch_size": 32,
        "replay_capacity": 200_000,
        "learning_starts": 20_000,
    }


ATARI_RAM = Preset(
    {
        **PONG_RAM,
        "num_envs": 16,
        "replay_ratio": 8.0,
        "batch_size": 128,
        "replay_capacity": 200_000,
        "learning_starts": 10_000,
        "total_steps": 2_000_000,
    },
    {
        "frame_deltas": True,
        "hidden": (256, 256),
        "learning_rate": 5e-4,
        "n_step": 3,
        "reward_scale": 1.0,
        "target_tau": 0.005,
        "epsilon_steps": 100_000,
    },
    tuned=True,
    note=PONG_RAM_NOTE,
)
"""Preset of ``dqn`` and ``rainbow`` for the console's memory."""

PRESETS = {
    "acrobot": Preset(
        {
            "env": "Acrobot-v1",
            "num_envs": 16,
            "replay_ratio": 8.0,
            "batch_size": 128,
            "replay_capacity": 50_000,
            "total_steps": 300_000,
        },
        {
            "n_step": 5,
            "hidden": (128, 128),
            "learning_rate": 1e-3,
            "target_tau": 0.01,
            "epsilon_steps": 20_000,
        },
        tuned=True,
        note="Reaches -90 within a minute.",
    ),
    "atari-ram": ATARI_RAM,
    "lunarlander": Preset(
        {
            "env": "LunarLander-v3",
            "num_envs": 8,
            "replay_ratio": 32.0,
            "batch_size": 128,
            "replay_capacity": 100_000,
            "total_steps": 400_000,
        },
        {
            "n_step": 3,
            "prioritized": False,
            "hidden": (128, 128),
            "layer_norm": False,
            "learning_rate": 3e-4,
            "target_tau": 0.005,
            "epsilon_steps": 12_000,
        },
        tuned=True,
        note="Reaches 200 within a minute on one core.",
    ),
}


class DQN(OffPolicyAlgorithm):
    """Creates policies and learners. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: the environment's actions are not discrete, or its kind of observations is not supported.
    """

    takes_masks: bool = True
    """Whether policies choose valid actions only, if environments report masks."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        check_actions(config.algorithm_name, spec, "discrete")
        if config.frame_deltas and config.own is None:
            check_stacked(spec.without_mask)
        if config.own is not None:
            QNetwork(config, spec)  # raises its errors before the run starts

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> QPolicy:
        """The policy of one actor."""
        epsilon = actor_epsilons(self.config.epsilon_last, self.config.epsilon_spread, actors)[actor]
        return QPolicy(self.config, self.spec, epsilon, seed)

    def make_learner(self, seed: int, device: str) -> DQNLearner:
        """A learner with weights drawn from ``seed``."""
        return DQNLearner(self.config, self.spec, seed, device)

    @property
    def records_updates(self) -> bool:
        """See :class:`parl.types.Algorithm`."""
        return self.config.cuda_graph

    def make_device_policy(self, learner: DQNLearner, seed: int) -> DeviceQPolicy:
        """See :class:`parl.types.Algorithm`. The policy explores like actor 0."""
        return DeviceQPolicy(self.config, self.spec, learner.online, learner.weights.device, seed)


class QPolicy(SeededPolicy):
    """Epsilon-greedy policy whose epsilon falls over the run; noisy layers, if any, explore too.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
        action_values: see :class:`parl.types.PriorityPolicy`.
    """

    _network: QNetwork

    def __init__(self, config: Config, spec: EnvSpec, epsilon_last: float, seed: int) -> None:
        super().__init__(seed)
        self._config = config
        self._actions, self._masked = spec.num_actions or 0, bool(spec.mask_size)
        self._epsilon_last = epsilon_last
        self._network = QNetwork(config, spec)
        self.weights = flatten(self._network, gradients=False).weights
        self._noise = torch.Generator().manual_seed(seed)
        self.initial_priorities = config.initial_priorities
        self.action_values: tuple[Array, Array] = (np.zeros(0), np.zeros(0))

    def act(self, observations: Observations, env_steps: int) -> Array:
        """Returns actions (N,) int64 with exploration."""
        if self._config.noisy:
            resample_noise(self._network, self._noise)
        epsilon = linear(
            env_steps, self._config.epsilon_first, self._epsilon_last, self._config.epsilon_steps
        )
        values = self._values(observations)
        mask = observations[MASK] if self._masked else None
        action = epsilon_greedy(values.argmax(axis=1), epsilon, self._actions, self._rng, mask)
        if self._config.actor_priorities:
            self.action_values = values[np.arange(len(action)), action], values.max(axis=1)
        return action

    def embed(self, images: Array) -> Array:
        """See :class:`parl.types.EmbeddingPolicy`."""
        return embed([self._network.image_torso], images)

    def act_greedily(self, observations: Observations) -> Array:
        """Returns greedy actions (N,) int64."""
        if self._config.noisy:
            silence_noise(self._network)
        return self._values(observations).argmax(axis=1)

    def greedy(self, network: QNetwork, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        values = network.mean(network(observations))
        return (network.valid(values, observations).argmax(dim=1),)

    def _values(self, observations: Observations) -> Array:
        return self._network.act(observations)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return super().state_dict() | {"noise": self._noise.get_state()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._noise.set_state(state["noise"])


class DeviceQPolicy(DevicePolicy):
    """As :class:`QPolicy`, with the learner's network and device. See :class:`parl.types.Algorithm`."""

    def __init__(self, config: Config, spec: EnvSpec, network: QNetwork, device: Any, seed: int) -> None:
        super().__init__(device, seed)
        self._config, self._network = config, network
        self._actions = spec.num_actions or 0

    def act(self, observations: Tensor, env_steps: int) -> Tensor:
        """Returns actions (N,) int64 with exploration; does not synchronize with the device."""
        config = self._config
        if config.noisy:
            resample_noise(self._network, self.generator)
        epsilon = linear(env_steps, config.epsilon_first, config.epsilon_last, config.epsilon_steps)
        with torch.no_grad():
            greedy = self._network.mean(self._network(observations)).argmax(dim=1)
        return self.epsilon_greedy(greedy, epsilon, self._actions)


class DQNLearner(OffPolicyLearner):
    """Online and target network, loss, priorities and optimizer. See :class:`parl.types.Learner`."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        self._config = config
        if (spec.has_images or config.distribution != "none") and torch.device(device).type == "cpu":
            keep_freed_memory()
        with seeded(seed, device):
            self.online, self.target = QNetwork(config, spec), QNetwork(config, spec)
        super().__init__(config, self.online, self.target, seed, device)
        self._count = torch.zeros((), device=self._device)
        self._adam = FlatAdam(self.weights, self.gradients, self._mean, self._square)
        self._loss = compiled(config, self.loss)
        replay = self.online.fused and may_replay(self)
        self._update = Update(self._write_gradients, self.gradients, replay)

    @property
    def network(self) -> QNetwork:
        """See :class:`parl.types.Learned`."""
        return self.online

    @property
    def image_torsos(self) -> list[ImageTorso]:
        """See :class:`OffPolicyLearner`."""
        return [self.online.image_torso]

    def _leave_out(self, frozen: Sequence[slice]) -> None:
        # The torso's convolutions come first.
        rest = slice(frozen[0].stop, None)
        self._adam = FlatAdam(self.weights[rest], self.gradients[rest], self._mean[rest], self._square[rest])

    def fractions(self, batch: Batch) -> tuple[Tensor | None, Tensor | None]:
        """Returns the quantile fractions of the prediction and of the target.

        iqn samples (B, quantiles) for each; qr has fixed ones (quantiles,) for the prediction. Else None.
        """
        config = self._config
        if config.distribution == "qr":
            return midpoints(config.quantiles, self._device), None
        if config.distribution != "iqn":
            return None, None
        both = torch.rand(
            (2, len(batch.reward), config.quantiles), generator=self.generator, device=self._device
        )
        return both[0], both[1]

    def targets(self, batch: Batch, fractions: Tensor | None = None) -> Tensor:
        """Returns ``y`` of the module's equations: (B, M) float32 samples, M = 1 without a distribution.

        For c51, returns probabilities (B, atoms). For iqn, the target is evaluated at ``fractions``.
        """
        config, online, target = self._config, self.online, self.target
        reward = batch.reward * config.reward_scale
        with torch.no_grad():
            chooser = online if config.double and not config.munchausen else target
            outputs = chooser(batch.next_obs, fractions if chooser is target else None)  # (B, A, M)
            q = chooser.valid(chooser.mean(outputs), batch.next_obs)
            if config.munchausen:
                policy, log_policy = soft_policy(q, config.munchausen_temperature)
                soft = ((outputs - log_policy.unsqueeze(2)) * policy.unsqueeze(2)).sum(dim=1)
                now = target.valid(target.mean(target(batch.obs)), batch.obs)
                _, log_now = soft_policy(now, config.munchausen_temperature)
                bonus = select_actions(log_now.unsqueeze(2), batch.action).squeeze(1)
                reward = reward + config.munchausen * bonus.clamp(min=config.munchausen_clip)
                return bellman_target(reward.unsqueeze(1), batch.discount.unsqueeze(1), soft)
            best = q.argmax(dim=1)
            if chooser is target:
                values = select_actions(outputs, best)  # (B, M)
            else:
                values = target.of_actions(batch.next_obs, best, fractions)
            if config.distribution == "c51":
                return project_categorical(target.support, values.softmax(dim=1), reward, batch.discount)
            return bellman_target(reward.unsqueeze(1), batch.discount.unsqueeze(1), values)

    def loss(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Returns the scalar loss, errors (B,), whose sizes give priorities, and ``Q(s, a)`` (B,)."""
        config = self._config
        now, later = self.fractions(batch)
        target = self.targets(batch, later)
        outputs = cast("Tensor", self.online(batch.obs, now)) if config.cql_alpha else None  # (B, A, M)
        if outputs is None:
            values = self.online.of_actions(batch.obs, batch.action, now)  # (B, M)
        else:
            values = select_actions(outputs, batch.action)
        if config.distribution == "none":
            q, y = values.squeeze(1), target.squeeze(1)
            each = huber(q, y, config.huber_delta)
            error, q = y - q.detach(), q.detach()
        elif config.distribution == "c51":
            each = categorical_divergence(target, values)
            error, q = each.detach(), values.detach().softmax(dim=1) @ self.online.support
        else:
            assert now is not None
            each = quantile_huber(values, now, target, config.huber_delta)
            q = values.detach().mean(dim=1)
            error = target.mean(dim=1) - q
        if outputs is not None:
            all_q = self.online.valid(self.online.mean(outputs), batch.obs)
            log_softmax = all_q.log_softmax(dim=1).gather(1, batch.action.unsqueeze(1)).squeeze(1)
            each = each - config.cql_alpha * log_softmax
        return torch.dot(each, batch.weights) / len(each), error, q

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch``; returns ``p`` of the module's equations, (B,).

        Raises:
            NonFiniteError: the loss or an error is NaN or infinite.
        """
        on_cpu = self._device.type == "cpu"
        if not on_cpu or self._config.compile:
            batch = batch_to_device(batch, self._device)
        if on_cpu and self._graphed_update is None:
            self._resample()
            given = (batch.obs, batch.action, batch.reward, batch.discount, batch.next_obs, batch.weights)
            self._latest = self._update(*given)
            priorities = self._latest["priorities"]
        else:
            self._latest = (self._graphed_update or self._backward)(cast("TensorBatch", batch))
            priorities = self._latest["priorities"].cpu().numpy()
        # On a device only the priorities are read; if the loss is not finite, neither is one of them.
        check_update(priorities, loss=self._latest["loss"] if on_cpu else 0.0)
        return priorities

    def compute_on_device(self, batch: Batch) -> Tensor:
        """See :class:`parl.types.Algorithm`."""
        self._latest = self._backward(batch)
        return self._latest["priorities"]

    def _resample(self) -> None:
        if self._config.noisy:
            resample_noise(self.online, self.generator)
            resample_noise(self.target, self.generator)

    def _backward(self, batch: Batch) -> dict[str, Tensor]:
        """Draws new noise, writes the gradients of :meth:`loss`, and returns its results by name."""
        self._resample()
        return self._write_gradients(*(getattr(batch, name) for name in TENSORS))

    def _write_gradients(self, *batch: Any) -> dict[str, Tensor]:
        self.gradients.zero_()
        loss, error, q = self._loss(TensorBatch(*batch, tickets=None))
        loss.backward()
        priorities = error.abs() + self._config.priority_epsilon
        return {"loss": loss.detach(), "priorities": priorities, "q": q}

    def use_threads(self, count: int) -> None:
        """Sets the number of threads of torch's operations."""
        torch.set_num_threads(count)

    def apply_gradients(self) -> None:
        """Limits the norm of the gradient and makes one Adam step.

        With ``target_tau``, updates the target network too.
        """
        config = self._config
        settings = (config.learning_rate, config.adam_epsilon, config.max_gradient_norm)
        self._adam.step(self._updates, self._count, *settings)
        if config.target_tau:
            self._target_weights.lerp_(self.weights, config.target_tau)

    def after_step(self) -> None:
        """Counts the update; copies the weights to the target network every ``target_period`` updates."""
        super().after_step()
        if not self._config.target_tau and self._updates % self._config.target_period == 0:
            self._target_weights.copy_(self.weights)

    def metrics(self) -> dict[str, float]:
        """Returns loss, mean absolute error, mean value and gradient norm of the latest update."""
        if not self._latest:
            return {}
        loss, priorities, q = (torch.as_tensor(self._latest[name]) for name in ("loss", "priorities", "q"))
        return {
            "loss": loss.item(),
            "td_error": priorities.mean().item() - self._config.priority_epsilon,
            "q_mean": q.mean().item(),
            "gradient_norm": torch.linalg.vector_norm(self.gradients).item(),
        }

    def start_from(self, other: DQNLearner) -> None:
        """See :class:`parl.types.Learned`.

        Raises:
            ConfigError: the shape of a parameter differs, or the values of c51's atoms.
        """
        if self._config.distribution == "c51" and not torch.equal(self.online.support, other.online.support):
            mine, theirs = (
                {name: getattr(config, name) for name in ("value_min", "value_max", "atom_spacing")}
                for config in (self._config, other._config)
            )
            raise ConfigError(f"the atoms have {mine}, in that run {theirs}")
        copy_named(named_weights(other.online), self.online)
        self._target_weights.copy_(self.weights)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._count.fill_(self._updates)
