"""Base classes of SAC, TD3 and DDPG: settings, action bounds, networks, policies and learners.

The gradients of actor and critics are computed at the same weights, those before the update. Several learners
can then average both at once and apply them in one optimizer step (as Acme and Brax do; most single-threaded
implementations update the critics first).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parl.algos.common.noise import CorrelatedNoise
from parl.algos.common.off_policy import OffPolicyConfig
from parl.algos.common.off_policy_learner import OffPolicyLearner
from parl.algos.common.seeded import SeededPolicy
from parl.errors import ConfigError
from parl.nets import Encoder, Ensemble, check_actions, copy_named, flatten, named_weights, tensors_of
from parl.nets.embeddings import embed, embedding_of
from parl.nets.fused import Update, may_replay
from parl.nets.torsos import Images, ImageTorso
from parl.nets.user import UserModule, UserPart
from parl.ops.adam import adam_step
from parl.ops.batches import TensorBatch, batch_to_device
from parl.ops.bounds import NO_IMAGES, check_above_zero, check_bounds, check_choices, check_hidden
from parl.ops.execution import compiled
from parl.ops.finite import check_update
from parl.ops.memory import keep_freed_memory
from parl.types import Array, Batch, EnvSpec, Observations


@dataclass(frozen=True)
class CriticsConfig(OffPolicyConfig):
    """Settings that SAC, TD3 and DDPG share. Steps are environment steps; updates are optimizer steps."""

    acting_settings: ClassVar[tuple[str, ...]] = (
        *OffPolicyConfig.acting_settings,
        "random_steps",
        "noise_correlation",
    )

    hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of actor and critics."""
    images: Images = "nature"
    """Convolutions for images: nature (those of the Nature DQN), impala (IMPALA's residual network) or small
    (two, of Mnih et al., 2013). Actor and critics have separate ones."""
    image_features: int = 256
    """Width of the dense layer after an image's convolutions, 1..65536."""
    layer_norm: bool = False
    """Layer normalization before each ReLU of the critics; stabilizes many updates per step."""
    learning_rate: float = 3e-4
    """Learning rate of Adam."""
    critic_learning_rate: float = 0.0
    """Learning rate of Adam for the critics; 0: the same as learning_rate."""
    adam_epsilon: float = 1e-8
    """Epsilon of Adam, added to the denominator."""
    target_tau: float = 0.005
    """Polyak averaging: share of the weights mixed into the target networks each time they are updated."""
    random_steps: int = 1_000
    """Steps at the start, of all actors together, in which actions are drawn uniformly."""
    noise_correlation: float = 0.0
    """Correlation of the exploration noise in two successive steps of an environment, 0 <= c < 1 (an
    Ornstein-Uhlenbeck process), for continuous actions; uniform actions are correlated too. Helps where
    independent random actions cancel each other out."""

    @property
    def sends_critics(self) -> bool:
        """Whether actors get the critics' weights too."""
        return self.actor_priorities or self.freeze_after > 0

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found, pictures = super().unused(spec), ("images", "image_features")
        if not spec.has_images:
            found |= dict.fromkeys(pictures, NO_IMAGES)
        if spec.num_actions:
            found["noise_correlation"] = "discrete actions"
        return found | self.replaced(pictures, ("hidden", "layer_norm"))

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("image_features", 1, 2**16),
            ("learning_rate", 0, math.inf),
            ("critic_learning_rate", 0, math.inf),
            ("adam_epsilon", 0, math.inf),
            ("target_tau", 0, 1),
            ("random_steps", 0, math.inf),
        )
        check_above_zero(self, "adam_epsilon")
        if not 0 <= self.noise_correlation < 1:
            raise ConfigError(
                f"{self.algorithm_name}: noise_correlation = {self.noise_correlation} is not in 0 <= c < 1"
            )
        check_hidden(self)
        check_choices(self, ("images", get_args(Images)))


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run: one environment, 256 rows sampled per step as in the sources; less for images."""
    if spec.has_images:
        return {
            "total_steps": 1_000_000,
            "num_envs": 4,
            "replay_ratio": 64.0,
            "batch_size": 128,
            "replay_capacity": 50_000,
            "learning_starts": 2_000,
            "evaluation_episodes": 10,
        }
    return {
        "total_steps": 1_000_000,
        "num_envs": 1,
        "replay_ratio": 256.0,
        "batch_size": 256,
        "replay_capacity": 1_000_000,
        "learning_starts": 1_000,
        "evaluation_episodes": 10,
    }


@dataclass(frozen=True)
class ActionBox:
    """Bounds of continuous actions; networks use actions scaled to -1..1.

    Attributes:
        shape: of one action.
        low: (D,) float32, lower bounds.
        high: (D,) float32, upper bounds.
        center: (D,) float32, middle of the bounds.
        half: (D,) float32, half the distance between the bounds.
    """

    shape: tuple[int, ...]
    low: Tensor
    high: Tensor
    center: Tensor
    half: Tensor

    @classmethod
    def from_spec(cls, name: str, spec: EnvSpec) -> ActionBox:
        """Returns the action bounds of ``spec`` for algorithm ``name``.

        Raises:
            ConfigError: the actions are discrete, or their bounds are infinite, too far apart or equal.
        """
        check_actions(name, spec, "continuous")
        low, high = torch.tensor(spec.action_low), torch.tensor(spec.action_high)
        where = f"this environment's are in {spec.action_low}..{spec.action_high}"
        if not (low < high).all():
            raise ConfigError(f"{name} needs actions whose lower bounds are below the upper ones; {where}")
        if not torch.isfinite(high - low).all():
            raise ConfigError(
                f"{name} needs actions with bounds; {where}: wrap it in gymnasium's RescaleAction"
            )
        return cls(spec.action_shape, low, high, (low + high) / 2, (high - low) / 2)

    @property
    def size(self) -> int:
        """D, number of elements of an action."""
        return len(self.center)

    def scaled(self, action: Tensor) -> Tensor:
        """Scales actions (N, D) in -1..1 to the environment's bounds, (N, *shape) float32."""
        # Clamped, because rounding exceeds about one of seven bounds a little, such as 0.7 of -1..0.7.
        scaled = torch.addcmul(self.center, action, self.half)
        return torch.clamp(scaled, self.low, self.high).view(-1, *self.shape)

    def to_env(self, action: Tensor) -> Array:
        """As :meth:`scaled`, as a numpy array."""
        return self.scaled(action).numpy()

    def to(self, device: torch.device) -> ActionBox:
        """Returns a copy with its tensors on ``device``."""
        tensors = (self.low, self.high, self.center, self.half)
        return ActionBox(self.shape, *(one.to(device) for one in tensors))

    def draw(self, count: int, rng: np.random.Generator) -> Array:
        """Draws ``count`` actions uniformly."""
        return self.to_env(torch.from_numpy(rng.uniform(-1, 1, (count, self.size)).astype(np.float32)))

    def uniform(self, noise: Array) -> Array:
        """Maps standard normal noise (N, D) to uniform actions; correlated noise gives correlated ones."""
        return self.to_env(torch.erf(torch.from_numpy(noise) / math.sqrt(2)))

    def to_unit(self, action: Tensor) -> Tensor:
        """Scales the environment's actions (B, *shape) to -1..1, (B, D)."""
        return (action.flatten(1) - self.center) / self.half


def _encoder(config: CriticsConfig, spec: EnvSpec) -> Encoder | UserModule:
    """Creates the encoder of the actor or of the critics, which is a user's torso if there is one.

    The features of images are normalized. Otherwise the changes that an optimizer step makes to each of the
    convolutions multiply, and within tens of updates the actor's tanh saturates: its gradient is then 0 in
    float32, and stays so.

    Source: Yarats et al. (2021), "Improving Sample Efficiency in Model-Free Reinforcement Learning from
    Images", appendix.
    """
    if config.torso is not None:
        return config.make_own(spec)
    return Encoder(spec, config.image_features, config.images, layer_norm=True)


class Actor(nn.Module):
    """Actor: an encoder and dense layers with ReLU; observations (B, ...) to outputs (B, outputs)."""

    def __init__(self, config: CriticsConfig, spec: EnvSpec, outputs: int) -> None:
        super().__init__()
        self.encoder = _encoder(config, spec)
        self.only_flattens = isinstance(self.encoder, Encoder) and not self.encoder.torsos
        """Whether the encoder has no weights, so that observations can be encoded before an update."""
        self.layers = Ensemble(1, self.encoder.features, config.hidden, outputs)

    def forward(self, observations: Any) -> Tensor:
        """See the class."""
        return self.layers(self.encoder(embedding_of(observations, 0))).squeeze(0)


class Critics(nn.Module):
    """E critics on one shared encoder: observations (B, ...) and actions (B, D) to values (E, B, outputs).

    Args:
        config: widths and number of critics.
        spec: describes the observations.
        count: E.
        actions: D; 0 if each critic returns a value for every discrete action.
        outputs: number of values per critic.
    """

    def __init__(self, config: CriticsConfig, spec: EnvSpec, count: int, actions: int, outputs: int) -> None:
        super().__init__()
        self.encoder = _encoder(config, spec)
        seen = self.encoder.features + actions
        self.ensemble = Ensemble(count, seen, config.hidden, outputs, config.layer_norm)

    def forward(
        self,
        observations: Any,
        actions: Tensor | None = None,
        frozen: bool = False,
        members: int | None = None,
    ) -> Tensor:
        """Returns values, of the first ``members`` if given; ``frozen``: only actions get gradients."""
        observations = embedding_of(observations, 1)
        if frozen:
            with torch.no_grad():
                seen = self.encoder(observations)
        else:
            seen = self.encoder(observations)
        parts = (seen,) if actions is None else (seen, actions)
        return self.ensemble(*parts, frozen=frozen, members=members)


class UserActor(UserPart):
    """The actor of a user's network."""

    only_flattens = False


class UserCritics(UserPart):
    """The critics of a user's network; called like :class:`Critics`."""

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        observations: Any,
        actions: Tensor | None = None,
        frozen: bool = False,
        members: int | None = None,
    ) -> Tensor:
        """See :class:`Critics`; the learner leaves out the gradients of weights that are ``frozen``."""
        found = super().forward(*(observations,) if actions is None else (observations, actions))
        return (found if actions is None else found.unsqueeze(2))[:members]


class Networks(nn.Module):
    """Actor, extra parameters and critics; all flat buffers have this order."""

    def __init__(
        self, actor: Actor | UserActor, extra: Tensor | None, critics: Critics | UserCritics
    ) -> None:
        super().__init__()
        self.actor = actor
        # In a list: a module's own parameters would come before those of its submodules.
        self.extra = nn.ParameterList([] if extra is None else [nn.Parameter(extra)])
        self.critics = critics


def user_networks(
    config: CriticsConfig, spec: EnvSpec, outputs: tuple[str, int], count: int, extra: Tensor | None = None
) -> Networks:
    """Creates the networks from a user's module with the parts ``actor`` and ``critic``.

    Args:
        config: names the module.
        spec: describes the environment.
        outputs: meaning and number of the actor's outputs.
        count: number of critics.
        extra: see :class:`Networks`.

    Raises:
        ConfigError: a part is missing, its output has another shape, or both parts share a parameter.
    """
    own = config.make_own(spec)
    own.expect((outputs[0], (outputs[1],)), part="actor")
    if spec.num_actions:
        own.expect(("values", (count, -1, spec.num_actions)), part="critic")
    else:
        own.expect(("values", (count, -1)), part="critic", actions=(math.prod(spec.action_shape),))
    parts: Any = own.module
    shared = {id(one) for one in parts.actor.parameters()} & {id(one) for one in parts.critic.parameters()}
    if shared:
        raise ConfigError(
            f"{config.algorithm_name}: network = {config.network!r}: actor and critic share {len(shared)} "
            "parameters"
        )
    return Networks(UserActor(parts.actor), extra, UserCritics(parts.critic))


def _torsos(networks: Networks) -> list[ImageTorso]:
    """The torsos of actor and critics, for images."""
    return [cast("Any", part).encoder.image_torso for part in (networks.actor, networks.critics)]


class CriticsPolicy(SeededPolicy):
    """Base class of the policies: the actor, and the critics too if actors compute priorities.

    Attributes:
        weights: (P,) float32 on the CPU, see :class:`parl.types.Policy`.
        action_values: see :class:`parl.types.PriorityPolicy`; without entropy terms.
    """

    _network: Actor | UserActor

    def __init__(
        self, config: CriticsConfig, box: ActionBox | None, networks: Networks, num_envs: int, seed: int
    ) -> None:
        super().__init__(seed)
        self._box = box
        self._process = CorrelatedNoise(num_envs, box.size if box else 0, config.noise_correlation)
        self._network = networks.actor
        self._critics = networks.critics if config.actor_priorities else None
        self._networks = networks if config.sends_critics else None
        self.weights = flatten(networks if config.sends_critics else networks.actor, gradients=False).weights
        self.initial_priorities = config.initial_priorities
        self.action_values: tuple[Array, Array] = (np.zeros(0), np.zeros(0))

    def embed(self, images: Array) -> Array:
        """See :class:`parl.types.EmbeddingPolicy`: the actor's embeddings, then the critics'."""
        assert self._networks is not None
        return embed(_torsos(self._networks), images)

    def _outputs(self, observations: Observations) -> Tensor:
        """Returns the actor's outputs (N, outputs); call in inference mode."""
        if not self._network.only_flattens:
            return self._network(tensors_of(observations))
        assert isinstance(self._network, Actor)
        seen = self._network.encoder(tensors_of(observations)).numpy()
        return torch.from_numpy(self._network.layers.act(seen))

    def greedy(self, network: Actor, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """See :class:`parl.types.NetworkPolicy`."""
        out = network(observations)
        if self._box is None:
            return (out.argmax(dim=1),)
        return (self._box.scaled(torch.tanh(out[:, : self._box.size])),)

    def _uniform_actions(self, count: int) -> Array:
        """Draws continuous actions (N, ...) uniformly."""
        assert self._box is not None
        if not self._process.correlation:
            return self._box.draw(count, self._rng)
        return self._box.uniform(self._process.draw(count, self._rng))

    def state_dict(self) -> dict[str, Any]:
        """See :class:`SeededPolicy`."""
        return super().state_dict() | (
            {"noise": self._process.state_dict()} if self._process.correlation else {}
        )

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`SeededPolicy`."""
        super().load_state_dict(state)
        if self._process.correlation:
            self._process.load_state_dict(state["noise"])

    def _keep_action_values(self, observations: Observations, action: Array) -> None:
        """Stores the critics' values of ``action`` (N, ...) and of the policy, if there are critics."""
        if self._critics is None:
            return
        with torch.inference_mode():
            seen, taken = tensors_of(observations), torch.from_numpy(action)
            out = self._network(seen)
            if self._box is None:
                values = self._critics(seen).amin(dim=0)  # (N, A)
                chosen = values.gather(1, taken.unsqueeze(1)).squeeze(1)
                best = (out.softmax(dim=1) * values).sum(dim=1)
            else:
                chosen = self._critics(seen, self._box.to_unit(taken)).squeeze(2).amin(dim=0)
                mode = torch.tanh(out[:, : self._box.size])
                best = self._critics(seen, mode).squeeze(2).amin(dim=0)
            self.action_values = chosen.numpy(), best.numpy()


class CriticsLearner(OffPolicyLearner):
    """Base class of the learners: gradients and optimizer steps of actor and critics.

    Subclasses define the losses of critics and actor. No parameter gets gradients from both, so two threads
    can compute one loss each and synchronize once per update. Threads within each matrix product would
    synchronize a hundred times.

    Attributes:
        weights: (P,) float32, of the actor; of all networks if actors compute priorities or embeddings.
        gradients: (Q,) float32, of actor, extra parameters and critics.
    """

    def __init__(
        self, config: CriticsConfig, networks: Networks, targets: Networks, seed: int, device: str
    ) -> None:
        self._settings = config
        if torch.device(device).type == "cpu" and not networks.actor.only_flattens:
            keep_freed_memory()
        self.networks, self.targets = networks, targets
        super().__init__(config, networks, targets, seed, device)
        critics = sum(parameter.numel() for parameter in networks.critics.parameters())
        acting = sum(parameter.numel() for parameter in networks.actor.parameters())
        # Actor and extra parameters, then critics.
        self._actor, self._critics = (
            slice(0, len(self._all_weights) - critics),
            slice(len(self._all_weights) - critics, None),
        )
        if not config.sends_critics:
            self.weights = self._all_weights[:acting]
        # Optimizer steps of the actor and of the critics, on the device, where CUDA graphs read them.
        self._counts = torch.zeros(2, device=self._device)
        self._losses = (compiled(config, self.critics_loss), compiled(config, self.actor_loss))
        self._pool: ThreadPoolExecutor | None = None
        # Indices of the critics that the targets use, if they are drawn anew for each update.
        self._target_critics: Tensor | None = None
        self._no_indices = torch.empty(0, dtype=torch.int64)
        # Parameters that the actor's loss changes, if a user's critics would get gradients from it too.
        self._actor_parameters: list[Tensor] | None = None
        if isinstance(networks.critics, UserCritics):
            every = (*networks.actor.parameters(), *networks.extra)
            self._actor_parameters = [one for one in every if one.requires_grad]
        replay = networks.actor.only_flattens and may_replay(self)
        if isinstance(networks.actor, Actor) and isinstance(networks.critics, Critics):
            replay = replay and networks.actor.layers.fused and networks.critics.ensemble.fused
        self._critics_gradients, self._actor_gradients = (
            self.gradients[self._critics],
            self.gradients[self._actor],
        )
        self._replayed_updates = (
            Update(self._compute_critics, self._critics_gradients, replay),
            Update(self._compute_actor, self._actor_gradients, replay),
        )

    @property
    def network(self) -> Actor | UserActor:
        """See :class:`parl.types.Learned`."""
        return self.networks.actor

    @property
    def image_torsos(self) -> list[ImageTorso]:
        """See :class:`OffPolicyLearner`."""
        return _torsos(self.networks)

    def _leave_out(self, frozen: Sequence[slice]) -> None:
        actor, critics = frozen
        # An encoder's convolutions come first in each part.
        self._actor = slice(actor.stop, self._actor.stop)
        self._critics = slice(critics.stop, self._critics.stop)

    @abstractmethod
    def draws(self, size: int) -> Tensor:
        """Draws all random numbers of an update with ``size`` rows: noise of shape (K, size, D), float32."""

    @abstractmethod
    def critics_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Returns the critics' scalar loss, absolute errors (B,) and metrics; ``noise``: of :meth:`draws`."""

    @abstractmethod
    def actor_loss(self, batch: Batch, noise: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss of the actor and the extra parameters, and metrics."""

    @property
    def moves_actor(self) -> bool:
        """Whether this update changes the actor too."""
        return True

    def use_threads(self, count: int) -> None:
        """Lets :meth:`compute` use two threads, if ``count`` is more than one."""
        # MKL's number of threads is set for each calling thread: in the pool's thread it is 1.
        self._pool = ThreadPoolExecutor(1, "parl-learner", torch.set_num_threads, (1,)) if count > 1 else None

    def squared(self, q: Tensor, target: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
        """``sum_e mean_b w_b (q_eb - y_b)^2 / 2`` and ``mean_e |q_eb - y_b|``, for q (E, B) and y (B,)."""
        error = q - target
        loss = 0.5 * (error.square() * weights).mean(dim=1).sum()
        return loss, error.detach().abs().mean(dim=0)

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch``; returns new priorities (B,).

        Raises:
            NonFiniteError: a loss or an error is NaN or infinite.
        """
        if self._device.type != "cpu" or self._settings.compile:
            batch = batch_to_device(batch, self._device)
        if self._graphed_update is None:
            figures = self._backward(batch)
        else:
            figures = self._graphed_update(cast("TensorBatch", batch), self.kind)
        self._latest = self._latest | figures
        priorities = self._latest.pop("priorities")
        if isinstance(priorities, Tensor):
            priorities = priorities.cpu().numpy()
        # On a device the losses are not read, since that would synchronize.
        losses = {} if self._device.type != "cpu" else self._latest
        check_update(
            priorities, critic_loss=losses.get("critic_loss", 0.0), actor_loss=losses.get("actor_loss", 0.0)
        )
        return priorities

    @property
    def kind(self) -> Hashable:
        """What differs between updates besides the batch; one CUDA graph is recorded for each value."""
        return None

    def _backward(self, batch: Batch) -> dict[str, Any]:
        """Writes the gradients; returns priorities (B,) and metrics."""
        noise = self.draws(len(batch.reward))
        actor, obs, next_obs = self.networks.actor, batch.obs, batch.next_obs
        if isinstance(actor, Actor) and actor.only_flattens:  # concatenates the parts of dictionaries
            obs, next_obs = actor.encoder(obs), actor.encoder(next_obs)
        given = (obs, batch.action, batch.reward, batch.discount, next_obs, batch.weights, noise)
        drawn = self._no_indices if self._target_critics is None else self._target_critics
        critics, actor = self._replayed_updates
        if self._device.type != "cpu" or self._graphed_update is not None:
            critics, actor = self._compute_critics, self._compute_actor
        if not self.moves_actor:
            self._actor_gradients.zero_()
            return critics(*given, drawn)
        if self._pool is None:
            return {**critics(*given, drawn), **actor(*given)}
        waiting = self._pool.submit(actor, *given)
        try:
            found = critics(*given, drawn)
        finally:
            more = waiting.result()
        return {**found, **more}

    def _compute_critics(self, *tensors: Any) -> dict[str, Tensor]:
        """Writes the critics' gradients for batch, noise and drawn critics; returns priorities, metrics."""
        *columns, noise, drawn = tensors
        self._target_critics = drawn if len(drawn) else None
        self._critics_gradients.zero_()
        loss, error, figures = self._losses[0](TensorBatch(*columns, tickets=None), noise)
        loss.backward()
        priorities = error + self._settings.priority_epsilon
        return figures | {"critic_loss": loss.detach(), "priorities": priorities}

    def _compute_actor(self, *tensors: Any) -> dict[str, Tensor]:
        """Writes the gradients of actor and extra parameters for a batch and noise; returns metrics."""
        *columns, noise = tensors
        self._actor_gradients.zero_()
        loss, figures = self._losses[1](TensorBatch(*columns, tickets=None), noise)
        loss.backward(inputs=self._actor_parameters)
        return figures

    def optimize_actor(self) -> None:
        """Makes one Adam step on the actor and the extra parameters."""
        self._optimize(self._actor, self._counts[0], self._settings.learning_rate)

    def optimize_critics(self) -> None:
        """Makes one Adam step on the critics."""
        settings = self._settings
        rate = settings.critic_learning_rate or settings.learning_rate
        self._optimize(self._critics, self._counts[1], rate)

    def _optimize(self, part: slice, count: Tensor, learning_rate: float) -> None:
        buffers = (self._all_weights[part], self.gradients[part], self._mean[part], self._square[part])
        count += 1
        adam_step(*buffers, count, learning_rate, self._settings.adam_epsilon)

    def update_targets(self, part: slice) -> None:
        """Updates a part of the target networks (Polyak averaging)."""
        self._target_weights[part].lerp_(self._all_weights[part], self._settings.target_tau)

    def apply_gradients(self) -> None:
        """Makes one Adam step on all parameters and updates the critics' target networks."""
        waiting = self._pool.submit(self.optimize_actor) if self._pool else None
        self.optimize_critics()
        self.update_targets(self._critics)
        if waiting is None:
            self.optimize_actor()
        else:
            waiting.result()

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the latest update."""
        return {name: value.item() for name, value in self._latest.items()}

    def start_from(self, other: CriticsLearner) -> None:
        """See :class:`parl.types.Learned`; also takes critics and target networks."""
        copy_named(named_weights(other.networks), self.networks)
        copy_named(named_weights(other.targets), self.targets)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return super().state_dict() | {"counts": self._counts.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._counts.copy_(state["counts"])
