"""The small protocols that hold parl together: what algorithms, replays and runtimes need of each other.

An algorithm sees batches and tensors; a runtime sees these protocols and nothing of the algorithm. torch and
gymnasium are named here for type checkers only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

Array = np.ndarray[Any, Any]
Observations = Array | Mapping[str, Array]
"""Of N environments: (N, *observation_shape), or such an array for each part of a dictionary."""
ObservationKind = Literal["vector", "image", "dict"]
Autoreset = Literal["next_step", "same_step"]


@dataclass(frozen=True)
class EnvSpec:
    """What an algorithm must know of an environment.

    Attributes:
        observation_shape: shape of one observation, without the environment dimension; ``()`` for parts.
        observation_dtype: numpy name, ``"float32"``, ``"uint8"``, ...
        action_shape: ``()`` for discrete actions.
        action_dtype: numpy name.
        num_actions: number of discrete actions, None for continuous ones.
        autoreset: ``"next_step"`` or ``"same_step"``, as gymnasium's ``AutoresetMode``.
        action_low: lowest continuous actions, flattened in C order, maybe infinite; empty for discrete ones.
        action_high: the highest, likewise.
        observation_parts: of a dictionary, name, shape and numpy name of each part; else empty.
        frame_stack: an observation is the last so many pictures of its episode, the newest last, which stand
            along its first dimension: one of them a step is all that need be kept. 1: it is no such stack.
        stack_padding: what stands for pictures before an episode's first: ``"zero"``, or ``"first"``, itself.
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

    @property
    def observation_kind(self) -> ObservationKind:
        """``"dict"`` for named parts, ``"image"`` for (C, H, W) or (H, W, C) bytes, else ``"vector"``."""
        if self.observation_parts:
            return "dict"
        return "image" if is_image(self.observation_shape, self.observation_dtype) else "vector"

    @property
    def row(self) -> tuple[tuple[int, ...], str]:
        """Shape and numpy name of an observation as rollouts hold it: of a dictionary, a row of bytes."""
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
        algorithm: settings of the algorithm that do.
        tuned: they were searched for on such environments; else they are taken from a source or guessed.
        note: one line for people.
    """

    run: Mapping[str, Any]
    algorithm: Mapping[str, Any]
    tuned: bool
    note: str


class Batch(Protocol):
    """B sampled transitions, n-step sums already taken (torch tensors, except where noted)."""

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
        """(B,) float32 importance weights, the largest 1."""
        ...

    @property
    def tickets(self) -> Any:
        """Name the rows when their priorities are updated."""
        ...


class Policy(Protocol):
    """Chooses actions; owned by one actor.

    Attributes:
        weights: (P,) float32 on the CPU; every parameter in one buffer. A newer snapshot is copied into it.
    """

    weights: Tensor

    def act(self, observations: Any, env_steps: int) -> Array:
        """Exploring actions (N, ...) for :data:`Observations`; ``env_steps`` were collected in the run."""
        ...

    def act_greedily(self, observations: Any) -> Array:
        """Actions (N, ...) without exploration."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Generators and whatever else a resumed run needs, without the weights."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class JudgingPolicy(Policy, Protocol):
    """A policy that says what it thinks of what it does.

    Attributes:
        judged: of the latest ``act``, (N,) float32 each: values of the actions taken, and of the observations
            under the best actions.
    """

    judged: tuple[Array, Array]

    def priorities_of(self, reward: Array, discount: Array, chosen: Array, following: Array) -> Array:
        """Priorities (N,) of rows with n-step sums ``reward`` (N,), judged when taken and n steps later."""
        ...


class Learned(Protocol):
    """What all learners have in common: weights, and a state that can be saved.

    Attributes:
        weights: (P,) float32; what policies act with, in one buffer.
    """

    weights: Tensor

    def metrics(self) -> dict[str, float]:
        """Figures of the latest update."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs: weights, targets, optimizer, counters."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class Learner(Learned, Protocol):
    """Turns batches into gradients and gradients into new weights.

    Attributes:
        gradients: (Q,) float32, of everything learned, which may be more than policies need; what
            :meth:`compute` wrote, possibly averaged with peers since.
        alone: nobody touches the gradients between :meth:`compute` and :meth:`step`, so that both may be one
            graph of a GPU; set before the first of them.
    """

    gradients: Tensor
    alone: bool

    def compute(self, batch: Batch) -> NDArray[np.float32]:
        """Writes the mean gradient over ``batch`` into ``gradients``; returns new priorities (B,)."""
        ...

    def step(self) -> None:
        """One optimizer step with ``gradients``."""
        ...

    def use_threads(self, count: int) -> None:
        """Lets :meth:`compute` use ``count`` threads; called once, in the learner's process."""
        ...


class Sink(Protocol):
    """Where actors write."""

    def add(self, **columns: Any) -> Any:
        """Adds one row per environment: the schema's columns and ``env_id``."""
        ...

    def end_episodes(self, env_id: Any) -> None:
        """Ends the episodes of these environments where they stand; their next rows start new ones."""
        ...

    def update_priorities(self, tickets: Any, priorities: Any) -> Any:
        """Sets priorities of rows by the tickets that :meth:`add` gave."""
        ...


class Algorithm(Protocol):
    """Makes the parts of one algorithm for one environment; cheap to pickle, holds no tensors."""

    def replay_options(self) -> dict[str, Any]:
        """Keywords of the replay: ``alpha`` (0 draws uniformly), ``n_step``, ``gamma``."""
        ...

    def replay_beta(self, env_steps: int) -> float:
        """Exponent of the importance weights after ``env_steps``."""
        ...

    @property
    def judges(self) -> bool:
        """Whether policies are :class:`JudgingPolicy`, and give rows their first priorities."""
        ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> Policy:
        """The policy of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> Learner:
        """A learner; equal seeds give equal weights."""
        ...


class DevicePolicy(Protocol):
    """Chooses actions on a learner's device, with the learner's own networks."""

    def act(self, observations: Tensor, env_steps: int) -> Tensor:
        """Exploring actions (N, ...) for observations (N, ...), tensors on the device; does not wait."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The generator's state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class DeviceLearner(Learner, Protocol):
    """A learner whose updates never wait for its device.

    Attributes:
        generator: what updates draw from.
    """

    generator: Any

    def compute_there(self, batch: Batch) -> Tensor:
        """As ``compute``, with a batch and priorities (B,) on the device; can be captured in a graph."""
        ...

    def step_there(self) -> None:
        """The part of ``step`` that is on the device; can be captured."""
        ...

    def stepped(self) -> None:
        """The rest of ``step``, such as a copy to a target network every so often."""
        ...


@runtime_checkable
class DeviceAlgorithm(Algorithm, Protocol):
    """An algorithm that can act on the device it learns on."""

    @property
    def records_updates(self) -> bool:
        """Whether an update is recorded as a graph."""
        ...

    def make_device_policy(self, learner: Any, seed: int) -> DevicePolicy:
        """A policy that acts with the networks of ``learner``."""
        ...


@dataclass(frozen=True)
class Rollout:
    """T steps of N environments, as one actor saw them (torch tensors; time first).

    A row is a step on ``obs[t]``. Where the environment resets in the step after an end, that row belongs to
    no episode and is not ``valid``; ``obs[t + 1]`` is then the observation that step t led to, also where the
    episode ended. Where it resets in the same step, ``final_obs`` holds the successors of truncated rows.

    Attributes:
        obs: (T + 1, N, *observation_shape); for dictionaries (T + 1, N, bytes), see :attr:`EnvSpec.row`.
        action: (T, N, *action_shape).
        log_prob: (T, N) float32, of the action under the policy that acted.
        reward: (T, N) float32.
        terminated: (T, N) bool.
        ended: (T, N) bool, terminated or truncated.
        valid: (T, N) bool, on the processor wherever the rest is: how many rows there are is decided there.
        final_obs: (K, ...), as ``obs``: successors that ``obs`` does not hold; K is often 0.
        final_at: (K, 2) int64, their t and n.
        starts: (T + 1, N) bool, an episode begins at ``obs[t]``; None where the policy has no memory.
        memory: (2, N, H) float32, of the policy before ``obs[0]``; None likewise.
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
    """A policy that says how likely its actions were."""

    def sample(self, observations: Array, env_steps: int) -> tuple[Array, Array]:
        """Exploring actions (N, ...) and their log-probabilities (N,) float32, for rows of a rollout."""
        ...


@runtime_checkable
class Remembering(Protocol):
    """A policy that remembers what it saw.

    Attributes:
        memory: (2, N, H) float32.
    """

    @property
    def memory(self) -> Tensor:
        """See the class."""
        ...

    def restart(self, starts: Array) -> None:
        """Forgets in the environments that ``starts`` (N,) bool names; in all, if they are another number."""
        ...


class RolloutLearner(Learned, Protocol):
    """Learns from whole rollouts.

    Attributes:
        gradients: (P,) float32, of the latest optimizer step.
        learners: that share each optimizer step, every one on a rollout of its own; minibatches are shared
            evenly.
    """

    gradients: Tensor
    learners: int

    def learn(self, rollout: Rollout, progress: float, average: Callable[[Tensor], object]) -> int:
        """All optimizer steps that one rollout is good for.

        Args:
            rollout: may be changed, and is not looked at again.
            progress: share of the run that lies behind, 0..1, for schedules.
            average: called with ``gradients`` before each step; puts the mean over all learners there.

        Returns:
            the number of steps.
        """
        ...


class CommonLearner(RolloutLearner, Protocol):
    """A rollout learner that can change weights which other learners change at the same time."""

    def share(self, weights: Tensor, mean: Tensor, square: Tensor, count: Tensor, fill: bool) -> None:
        """Lets optimizer steps change these from now on; ``self.weights`` becomes a copy to compute with.

        Args:
            weights: (P,) float32 on the CPU, as all but the last.
            mean: (P,) float32, the optimizer's running mean of gradients.
            square: (P,) float32, that of their squares.
            count: (1,) int64, optimizer steps of all learners.
            fill: write this learner's state there first; else take what is there.
        """
        ...

    def refresh(self) -> None:
        """Copies the newest shared weights into ``self.weights``; each optimizer step ends with it too."""
        ...


class RolloutAlgorithm(Protocol):
    """Makes the parts of one algorithm that learns from rollouts; cheap to pickle, holds no tensors."""

    @property
    def rollout_steps(self) -> int:
        """T, vector steps in a rollout."""
        ...

    @property
    def memory(self) -> int:
        """H, the width of what policies remember; 0 without. Such policies are a :class:`Remembering`."""
        ...

    @property
    def shareable(self) -> bool:
        """Whether learners can be :class:`CommonLearner`: they keep nothing but weights and optimizer."""
        ...

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> RolloutPolicy:
        """The policy of actor ``actor`` of ``actors``, which steps ``num_envs`` environments."""
        ...

    def make_learner(self, seed: int, device: str) -> RolloutLearner:
        """A learner; equal seeds give equal weights."""
        ...


class DeviceRolloutPolicy(Protocol):
    """Chooses actions on a learner's device, with the learner's own network.

    Attributes:
        generator: what it draws from, on the device.
    """

    generator: Any

    def schedule(self, env_steps: int) -> None:
        """Puts what changes over the run, after ``env_steps``, where :meth:`sample` reads it."""
        ...

    def sample(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Exploring actions (N, ...) and their log-probabilities (N,), tensors on the device.

        Does not wait; can be captured in a graph.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """The generator's state."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        ...


class DeviceRolloutLearner(RolloutLearner, Protocol):
    """A rollout learner that need not wait for its device, once :meth:`schedule` has been called.

    Attributes:
        generator: what it draws from.
    """

    generator: Any

    def schedule(self, progress: float) -> None:
        """Puts what changes over the run on the device; ``learn`` reads it there from then on.

        ``learn`` can then be captured in a graph, and leaves it to :meth:`took` to count its steps.
        """
        ...

    def took(self, steps: int) -> None:
        """So many optimizer steps have been taken since the last call."""
        ...


@runtime_checkable
class DeviceRolloutAlgorithm(RolloutAlgorithm, Protocol):
    """An algorithm that can act on the device it learns on."""

    @property
    def records_updates(self) -> bool:
        """Whether rollouts, and what is learned from them, are recorded as graphs."""
        ...

    def check_device(self, grouped: bool) -> None:
        """Refuses settings that need the host.

        Args:
            grouped: several processes learn together.

        Raises:
            ConfigError: names the setting.
        """
        ...

    def make_device_policy(self, learner: Any, seed: int) -> DeviceRolloutPolicy:
        """A policy that acts with the network of ``learner``."""
        ...


Member = tuple[int, ...]
"""What is sent of a member of a population: seeds, from which anybody computes its weights."""


class PopulationLearner(Learned, Protocol):
    """Learns from the returns of a population; its ``weights`` (P,) are those that are evaluated."""

    def ask(self, size: int) -> list[Member]:
        """The next generation's members."""
        ...

    def tell(self, members: Sequence[Member], returns: Array, weights: Tensor | None = None) -> None:
        """Takes the returns (N,) of the members that :meth:`ask` gave.

        Args:
            members: of this generation.
            returns: (N,) float64.
            weights: theirs, (N, P) float32, not to be kept nor changed; None: to be decoded once more.
        """
        ...


class Decoder(Protocol):
    """Computes members' weights; every worker has one."""

    def decode(self, base: Tensor, members: Sequence[Member], out: Tensor | None = None) -> Tensor:
        """Weights (N, P) float32 of ``members``, some of which may be relative to ``base`` (P,).

        They do not depend on what else is decoded. Given ``out`` (N, P), it is filled and returned.
        """
        ...


class Networks(Protocol):
    """Members' networks, ready to act."""

    def act(self, observations: Array) -> Array:
        """Actions (N, ...) for observations (N, ...), row i by network i; the same with others beside it."""
        ...

    def only(self, rows: Array) -> Networks:
        """The networks of these rows (M,) int64."""
        ...


class PopulationPolicy(Policy, Protocol):
    """Acts for many members at once, each with weights of its own."""

    def assemble(self, weights: Tensor) -> Networks:
        """The networks with weights (N, P) float32."""
        ...


class PopulationAlgorithm(Protocol):
    """Makes the parts of one algorithm that searches among whole networks; cheap to pickle."""

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> PopulationPolicy:
        """A policy."""
        ...

    def make_learner(self, seed: int, device: str) -> PopulationLearner:
        """A learner; equal seeds give equal weights."""
        ...

    def make_decoder(self) -> Decoder:
        """A decoder."""
        ...
