"""Protocols and batch types: what algorithms, replays and runtimes require of each other.

An algorithm sees batches and tensors; a runtime sees only these protocols, never the algorithm itself. torch
and gymnasium are named here for type checkers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor, nn

Array = np.ndarray[Any, Any]
Observations = Array | Mapping[str, Array]
"""Observations of N environments: (N, *observation_shape), or for dictionaries one such array per key."""
ObservationKind = Literal["vector", "image", "dict"]
Autoreset = Literal["next_step", "same_step"]
MASK = "action_mask"
"""Name of the observation part, and of the entry of ``info``, that says which actions are valid."""
GOALS = ("achieved_goal", "desired_goal")
"""Names of the observation parts of environments with goals, as in Gymnasium-Robotics."""


def rows_of(observations: Observations) -> Array:
    """Converts observations to one row per environment: dictionaries become rows of bytes.

    Args:
        observations: (N, ...) array, returned as it is, or a dictionary of them.

    Returns:
        (N, ...) array, or (N, bytes) uint8.
    """
    if not isinstance(observations, Mapping):
        return observations
    parts = (np.ascontiguousarray(part).reshape(len(part), -1) for part in observations.values())
    return np.concatenate([part.view(np.uint8) for part in parts], axis=1)


@dataclass(frozen=True)
class EnvSpec:
    """Description of an environment, as algorithms need it.

    Attributes:
        observation_shape: shape of one observation, without the environment dimension; ``()`` for
            dictionaries.
        observation_dtype: numpy name, ``"float32"``, ``"uint8"``, ...
        action_shape: ``()`` for discrete actions.
        action_dtype: numpy name.
        num_actions: number of discrete actions; None for continuous actions and for several choices at once.
        autoreset: ``"next_step"`` or ``"same_step"``, as gymnasium's ``AutoresetMode``.
        action_low: lower bounds of continuous actions, flattened in C order, possibly infinite; empty if
            discrete.
        action_high: the upper bounds, likewise.
        observation_parts: name, shape and numpy dtype name of each part of a dictionary observation; else
            empty.
        frame_stack: number of frames that an observation stacks along its first dimension, newest last, so
            that a replay stores only one frame per step. 1: observations are not stacked.
        stack_padding: fills the stack before an episode's first frame: ``"zero"``, or ``"first"`` to repeat
            it.
        action_branches: of MultiDiscrete actions, numbers of values of their elements; else empty.
        mask_size: M, size of the observation part :data:`MASK` if there is one, else 0. The part has an entry
            for each action, or for each value of each branch, which is 0 if that is not valid. Networks do
            not get it.
    """

    observation_shape: tuple[int, ...]
    observation_dtype: str
    action_shape: tuple[int, ...]
    action_dtype: str
    num_actions: int | None
    autoreset: Autoreset
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    observation_parts: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    frame_stack: int = 1
    stack_padding: Literal["zero", "first"] = "zero"
    action_branches: tuple[int, ...] = ()
    mask_size: int = 0

    @property
    def is_discrete(self) -> bool:
        """Whether an action is one or several choices, not numbers."""
        return bool(self.num_actions or self.action_branches)

    @property
    def action_space(self) -> str:
        """The action space as text, in Gymnasium's words."""
        if self.num_actions:
            return f"Discrete({self.num_actions})"
        if self.action_branches:
            return f"MultiDiscrete({list(self.action_branches)})"
        return f"Box{self.action_shape}"

    @property
    def spaces(self) -> str:
        """Observation and action space as text; descriptions with the same text suit the same policies."""
        parts = [f"{name}: {dtype} {shape}" for name, shape, dtype in self.observation_parts]
        seen = f"Dict({', '.join(parts)})" if parts else f"{self.observation_dtype} {self.observation_shape}"
        bounds = f" from {list(self.action_low)} to {list(self.action_high)}" if self.action_low else ""
        return f"observations {seen} and actions {self.action_space}{bounds}"

    @property
    def without_mask(self) -> EnvSpec:
        """The description without the part :data:`MASK`: of what networks take."""
        if not self.mask_size:
            return self
        first, *more = (part for part in self.observation_parts if part[0] != MASK)
        if more:
            return replace(self, observation_parts=(first, *more), mask_size=0)
        _, shape, dtype = first
        return replace(
            self, observation_parts=(), observation_shape=shape, observation_dtype=dtype, mask_size=0
        )

    @property
    def observation_kind(self) -> ObservationKind:
        """``"dict"`` for named parts, ``"image"`` for (C, H, W) or (H, W, C) bytes, else ``"vector"``."""
        if self.observation_parts:
            return "dict"
        return "image" if is_image(self.observation_shape, self.observation_dtype) else "vector"

    @property
    def flat_row(self) -> tuple[tuple[int, ...], str]:
        """Shape and dtype name of an observation in a rollout; a dictionary is stored as one row of bytes."""
        if not self.observation_parts:
            return self.observation_shape, self.observation_dtype
        sizes = (math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in self.observation_parts)
        return (sum(sizes),), "uint8"

    @property
    def has_images(self) -> bool:
        """Whether the observation, or a part of it, is an image."""
        parts = self.observation_parts or (("", self.observation_shape, self.observation_dtype),)
        return any(is_image(shape, dtype) for _, shape, dtype in parts)


def is_image(shape: Sequence[int], dtype: str) -> bool:
    """Whether observations of ``shape`` are images: three dimensions of bytes."""
    return len(shape) == 3 and dtype == "uint8"


@dataclass(frozen=True)
class Preset:
    """A named set of settings of one algorithm.

    Attributes:
        run: settings of the run that differ from the defaults.
        algorithm: settings of the algorithm that differ from the defaults.
        tuned: whether they were found by a search on such environments; else they come from a publication
            or are guesses.
        note: one line of description.
    """

    run: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    tuned: bool
    note: str


class Batch(Protocol):
    """B sampled transitions with n-step reward sums (torch tensors, except where noted)."""

    @property
    def obs(self) -> Any:
        """(B, *observation_shape); for dictionaries a mapping of such tensors."""
        ...

    @property
    def action(self) -> Tensor:
        """(B, *action_shape)."""
        ...

    @property
    def reward(self) -> Tensor:
        """(B,) float32, sum of gamma^i r_i over the k <= n steps taken."""
        ...

    @property
    def discount(self) -> Tensor:
        """(B,) float32, gamma^k, or 0 where the episode terminated."""
        ...

    @property
    def next_obs(self) -> Any:
        """As ``obs``, k steps later."""
        ...

    @property
    def weights(self) -> Tensor:
        """(B,) float32 importance weights, at most 1."""
        ...

    @property
    def tickets(self) -> Any:
        """Identifiers of the rows, for the replay's ``update_priorities``."""
        ...


class Policy(Protocol):
    """Chooses actions for one actor.

    Attributes:
        weights: (P,) float32 on the CPU, all parameters in one buffer, into which newer weights are copied.
    """

    weights: Tensor

    def act(self, observations: Any, env_steps: int) -> Array:
        """Returns actions (N, ...) with exploration, after ``env_steps`` transitions of the run."""
        ...

    def act_greedily(self, observations: Any) -> Array:
        """Returns actions (N, ...) without exploration."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns random generators and other state that a resumed run needs, without the weights."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        ...


class NetworkPolicy(Policy, Protocol):
    """A policy with a network, which :func:`parl.load` takes out of a run and exports."""

    @property
    def network(self) -> nn.Module:
        """The network that chooses actions. Its parameters are views of ``weights``."""
        ...

    def greedy(self, network: Any, observations: Any, *memory: Tensor) -> tuple[Tensor, ...]:
        """As :meth:`Policy.act_greedily`, in operations of torch alone, which can be exported.

        Args:
            network: a copy of :attr:`network`.
            observations: (N, ...) tensor, or a mapping of such tensors for dictionaries.
            memory: of recurrent policies, (2, N, H).

        Returns:
            Actions (N, ...); recurrent policies also return the next memory (2, N, H).
        """
        ...


class PriorityPolicy(Policy, Protocol):
    """A policy that also gives the first priorities of the rows it produces.

    Attributes:
        action_values: from the latest ``act``, (N,) float32 each: Q of the chosen actions and the largest Q.
    """

    action_values: tuple[Array, Array]

    def initial_priorities(self, reward: Array, discount: Array, chosen: Array, following: Array) -> Array:
        """Returns priorities (N,) of rows: absolute n-step TD errors.

        Args:
            reward: (N,) n-step sums of rewards.
            discount: (N,) gamma^k for the k <= n steps taken, or 0 where the episode terminated.
            chosen: (N,) Q of the action taken.
            following: (N,) largest Q after these steps.
        """
        ...


class EmbeddingPolicy(Policy, Protocol):
    """A policy that acts on embeddings too: outputs (N, K, L) float16 of its convolutions for images."""

    def embed(self, images: Array) -> Array:
        """Returns the embeddings (N, K, L) float16 of images (N, ...), of K parts of the network."""
        ...


class Learned(Protocol):
    """Base protocol of learners: weights, metrics, saving and loading.

    Attributes:
        weights: (P,) float32, the parameters that policies act with, in one buffer.
    """

    weights: Tensor

    @property
    def network(self) -> nn.Module:
        """As that of its policies, see :class:`NetworkPolicy`, with views of this :attr:`weights`."""
        ...

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the latest update by name."""
        ...

    def start_from(self, other: Any) -> None:
        """Takes weights and normalization of another learner of the algorithm, but not its optimizer.

        Raises:
            ConfigError: names the first parameter whose shape differs.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns all that a resumed run needs: weights, target networks, optimizer, counters."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned, with its tensors on any device, such as the CPU."""
        ...


class Learner(Learned, Protocol):
    """Computes gradients from batches of transitions and applies them to the weights.

    Attributes:
        gradients: (Q,) float32, of all learned parameters, which may be more than policies need. Written by
            :meth:`compute`, then possibly averaged over learners.
        may_record_graph: whether gradients stay unchanged between :meth:`compute` and :meth:`step`, so that
            both may be recorded as one CUDA graph. Set before the first call of either.
    """

    gradients: Tensor
    may_record_graph: bool

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch`` into ``gradients``; returns new priorities (B,)."""
        ...

    def step(self) -> None:
        """One optimizer step with ``gradients``."""
        ...

    def use_threads(self, count: int) -> None:
        """Lets :meth:`compute` use ``count`` threads; called once, in the learner's process."""
        ...


class EmbeddingLearner(Learner, Protocol):
    """A learner that can stop learning its convolutions, and then takes batches of images or of embeddings.

    Attributes:
        frozen: whether :meth:`freeze` was called; part of ``state_dict``.
    """

    frozen: bool

    @property
    def embedding_shape(self) -> tuple[int, int]:
        """(K, L): L outputs of the convolutions of each of K parts of the network."""
        ...

    def freeze(self) -> None:
        """Keeps the convolutions as they are from now on. Those of target networks become equal to them."""
        ...

    def embed(self, images: Array) -> Array:
        """As :meth:`EmbeddingPolicy.embed`; may be called by another thread, if :attr:`frozen`."""
        ...


class Sink(Protocol):
    """Destination of an actor's transitions: a replay, or a buffer in front of one."""

    def add(self, **columns: Any) -> Any:
        """Adds one row per environment: the fields of the replay and ``env_id``."""
        ...

    def end_episodes(self, env_id: Any) -> None:
        """Ends the episodes of these environments; their next rows start new ones."""
        ...

    def update_priorities(self, tickets: Any, priorities: Any) -> Any:
        """Sets priorities of rows by the tickets that :meth:`add` returned."""
        ...


class Algorithm(Protocol):
    """Factory of the policies and learners of an off-policy algorithm; cheap to pickle, holds no tensors.

    The optional member ``freeze_after`` (int) is the number of transitions after which convolutions are
    frozen and the replay stores embeddings in place of images; 0: never. Policies and learners are then
    :class:`EmbeddingPolicy` and :class:`EmbeddingLearner`.

    Environments on the learner's device need optional members:

    - ``make_device_policy(learner, seed)`` of the algorithm returns a policy that acts with the networks of
      ``learner``. Its ``act(observations, env_steps)`` takes and returns tensors (N, ...) on the device and
      does not synchronize; ``state_dict`` and ``load_state_dict`` are those of its generator.
    - ``records_updates`` (bool) of the algorithm: whether an update is recorded as a CUDA graph.
    - ``compute_on_device(batch)`` and ``apply_gradients()`` of the learner are ``compute`` and ``step`` with
      batch and priorities (B,) on the device, without synchronization, so that they can be captured in a
      graph; ``after_step()`` is the rest of ``step``, such as the periodic copy to a target network;
      ``generator`` is the random generator of the updates.
    """

    def replay_options(self) -> dict[str, Any]:
        """Returns keywords of the replay, all three: ``alpha`` (0: uniform), ``n_step``, ``gamma``."""
        ...

    def replay_beta(self, env_steps: int) -> float:
        """Returns the exponent of the importance weights after ``env_steps`` transitions."""
        ...

    @property
    def actor_priorities(self) -> bool:
        """Whether policies are :class:`PriorityPolicy` and compute the initial priorities of rows."""
        ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> Policy:
        """The policy of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> Learner:
        """A learner; equal seeds give equal weights."""
        ...


class RegisteredAlgorithm(Protocol):
    """Class of an algorithm of your own, for :func:`parl.register_algorithm`.

    Its instances are also an ``Algorithm``, a ``RolloutAlgorithm`` or a
    ``PopulationAlgorithm``, as ``topology`` says. They are pickled for worker processes.

    Optional static members: ``default_config(spec)`` returns settings that suit an ``EnvSpec``;
    ``default_run(spec)`` returns settings of the run by name; ``PRESETS`` maps names to ``Preset``. The
    method ``unused(spec)`` of ``Config``, also optional, returns the settings that have no effect, with the
    reasons. Error messages begin with its class attribute ``algorithm_name``, by default the registered name.

    Attributes:
        Config: frozen dataclass of the settings, all with defaults and other names than settings of a run. A
            string below a field is its help text on the command line.
        topology: how actors and learners are arranged. An ``Algorithm`` has ``"replay"``; a
            ``RolloutAlgorithm`` has ``"rollout"`` (one process collects, then learns), ``"async"``
            (actors collect while the learner learns), ``"hogwild"``, ``"predictor"`` or ``"data"``; a
            ``PopulationAlgorithm`` has ``"population"``.
    """

    Config: type[Any]
    topology: str

    def __init__(self, config: Any, spec: EnvSpec) -> None: ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> Any:
        """The :class:`Policy` of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> Any:
        """A ``Learned``; equal seeds give equal weights."""
        ...


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments by one actor (torch tensors, time first).

    Row t is the step from ``obs[t]`` to ``obs[t + 1]``. With next-step autoreset, the step after the end of
    an episode only resets: its row is not ``valid``. With same-step autoreset, ``obs[t + 1]`` after an end is
    the first observation of the next episode; ``final_obs`` has the last observations of truncated episodes.

    Attributes:
        obs: (T + 1, N, *observation_shape); for dictionaries (T + 1, N, bytes), see :attr:`EnvSpec.flat_row`.
        action: (T, N, *action_shape).
        log_prob: (T, N) float32, of the action under the policy that acted.
        reward: (T, N) float32.
        terminated: (T, N) bool.
        ended: (T, N) bool, terminated or truncated.
        valid: (T, N) bool, always on the CPU, where the number of rows is needed.
        final_obs: (K, ...), as ``obs``: last observations of truncated episodes that ``obs`` does not
            contain; K is often 0.
        final_at: (K, 2) int64, t and n of the step that led to each of them.
        starts: (T + 1, N) bool, whether an episode begins at ``obs[t]``; None if the policy is not recurrent.
        memory: (2, N, H) float32, recurrent state of the policy before ``obs[0]``; None if it is
            not recurrent.
    """

    obs: Tensor
    action: Tensor
    log_prob: Tensor
    reward: Tensor
    terminated: Tensor
    ended: Tensor
    valid: Tensor
    final_obs: Tensor
    final_at: Tensor
    starts: Tensor | None = None
    memory: Tensor | None = None


class RolloutPolicy(Policy, Protocol):
    """A policy that returns the log-probabilities of its actions."""

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Samples actions (N, ...); also returns their log-probabilities (N,) float32."""
        ...


@runtime_checkable
class RecurrentPolicy(Protocol):
    """A recurrent policy.

    Attributes:
        memory: (2, N, H) float32, hidden and cell state of its LSTM.
    """

    @property
    def memory(self) -> Tensor:
        """See the class."""
        ...

    def restart(self, starts: Array) -> None:
        """Zeroes the state where ``starts`` (N,) bool is set, or everywhere if N has changed."""
        ...


class RolloutLearner(Learned, Protocol):
    """Learns from whole rollouts.

    Attributes:
        gradients: (P,) float32, of the latest optimizer step.
        learners: number of learners that average each gradient, each on a rollout of its own; minibatches are
            divided evenly among them.
    """

    gradients: Tensor
    learners: int

    def learn(self, rollout: Rollout, progress: float, average: Callable[[Tensor], object]) -> int:
        """Makes all optimizer steps of one rollout.

        Args:
            rollout: may be modified; not used after the call.
            progress: fraction of the run that is done, 0..1, for schedules.
            average: called before each step with ``gradients``, which it replaces by the mean over all
                learners.

        Returns:
            The number of optimizer steps.
        """
        ...


class HogwildLearner(RolloutLearner, Protocol):
    """A rollout learner that can update weights which other learners update at the same time (Hogwild)."""

    def share(self, weights: Tensor, mean: Tensor, square: Tensor, count: Tensor, fill: bool) -> None:
        """Makes optimizer steps update these shared arrays; ``self.weights`` becomes a local copy of them.

        Args:
            weights: (P,) float32 on the CPU.
            mean: (P,) float32 on the CPU, the optimizer's running mean of gradients.
            square: (P,) float32 on the CPU, its running mean of squared gradients.
            count: (1,) int64 on the CPU, optimizer steps of all learners.
            fill: whether to write this learner's state into the arrays first; else the learner
                loads its state from them.
        """
        ...

    def refresh(self) -> None:
        """Copies the newest shared weights into ``self.weights``, as each optimizer step also does."""
        ...


class RolloutAlgorithm(Protocol):
    """Factory of the policies and learners of an on-policy algorithm; cheap to pickle, holds no tensors.

    Environments on the learner's device need optional members:

    - ``make_device_policy(learner, seed)`` of the algorithm returns a policy that acts with the network of
      ``learner``. Its ``schedule(env_steps)`` sets values that follow a schedule, such as exploration, for
      the next calls of ``sample(observations)``, which returns actions (N, ...) and their log-probabilities
      (N,) on the device, does not synchronize and can be captured in a graph. ``generator`` is its random
      generator; ``state_dict`` and ``load_state_dict`` are those of the generator.
    - ``check_device(grouped)`` of the algorithm raises ConfigError if a setting needs the host; ``grouped``:
      whether several processes train together.
    - ``records_updates`` (bool) of the algorithm: whether collecting a rollout, and learning from it, are
      recorded as CUDA graphs.
    - ``schedule(progress)`` of the learner copies values that follow a schedule to the device. ``learn`` can
      then be captured in a graph; it does not count its steps: ``count_updates(steps)`` adds them.
      ``generator`` is the learner's random generator on the device.
    """

    @property
    def rollout_steps(self) -> int:
        """T, vector steps in a rollout."""
        ...

    @property
    def memory(self) -> int:
        """H, size of the recurrent state; 0 unless policies are :class:`RecurrentPolicy`."""
        ...

    @property
    def shareable(self) -> bool:
        """Whether learners are :class:`HogwildLearner`, which have no state but weights and optimizer."""
        ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> RolloutPolicy:
        """The policy of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> RolloutLearner:
        """A learner; equal seeds give equal weights."""
        ...


Member = tuple[int, ...]
"""A member of a population as it is sent between processes: the seeds from which its weights are computed."""


class PopulationLearner(Learned, Protocol):
    """Learns from the returns of a population; evaluations use its ``weights`` (P,)."""

    def ask(self, size: int) -> list[Member]:
        """Returns the ``size`` members of the next generation."""
        ...

    def tell(self, members: Sequence[Member], returns: Array, weights: Tensor | None = None) -> None:
        """Updates the learner from the returns of the members that :meth:`ask` returned.

        Args:
            members: N members of this generation.
            returns: (N,) float64.
            weights: (N, P) float32 of the members, not to be kept or modified; None: decode them again.
        """
        ...


class Decoder(Protocol):
    """Computes the weights of members from their seeds; every worker has one."""

    def decode(self, base: Tensor, members: Sequence[Member], out: Tensor | None = None) -> Tensor:
        """Computes weights (N, P) float32 of ``members``, which may be relative to ``base`` (P,).

        A member's weights do not depend on the other members. ``out`` (N, P), if given, is filled and
        returned.
        """
        ...


class MemberNetworks(Protocol):
    """Networks of several members, each with its own weights."""

    def act(self, observations: Array) -> Array:
        """Returns actions (N, ...) for observations (N, ...), row i by network i."""
        ...

    def select(self, rows: Array) -> MemberNetworks:
        """Returns the networks of these rows (M,) int64."""
        ...


class PopulationPolicy(Policy, Protocol):
    """Acts for many members at once, each with its own weights."""

    def assemble(self, weights: Tensor) -> MemberNetworks:
        """Returns networks with weights (N, P) float32."""
        ...


class PopulationAlgorithm(Protocol):
    """Factory of policies, learners and decoders of an evolutionary algorithm; cheap to pickle."""

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> PopulationPolicy:
        """A policy."""
        ...

    def make_learner(self, seed: int, device: str) -> PopulationLearner:
        """A learner; equal seeds give equal weights."""
        ...

    def make_decoder(self) -> Decoder:
        """A decoder."""
        ...
