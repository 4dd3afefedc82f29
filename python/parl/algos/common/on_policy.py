"""Base classes of the on-policy algorithms: settings, optimizer, observation statistics, minibatches."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from parl._native import all_finite
from parl.algos.common.networks import NetworkConfig
from parl.errors import ConfigError, NonFiniteError
from parl.nets import (
    check_observations,
    check_stacked,
    check_vector,
    copy_named,
    flatten,
    named_weights,
)
from parl.nets.fused import Update, may_replay
from parl.nets.normalizer import Flattener, RewardScaler, RunningMoments
from parl.nets.seeding import seeded
from parl.ops.adam import FlatAdam, adam_step, limit_norm
from parl.ops.batches import select_rows
from parl.ops.bounds import NO_IMAGES, check_above_zero, check_bounds, check_choices, check_hidden
from parl.ops.execution import ExecutionModule, Precision
from parl.ops.finite import check_state, with_metrics
from parl.ops.memory import keep_freed_memory
from parl.ops.rmsprop import rmsprop_step
from parl.types import EnvSpec, ObservationKind, Rollout

# Largest number of observations in a forward pass without gradients; and, on a CPU, of their elements, which
# are 64 MB of floats.
_CHUNK, _CHUNK_NUMBERS = 4096, 2**24
Average = Callable[[Tensor], object]


def rollout_on(device: torch.device, rollout: Rollout) -> Rollout:
    """Returns ``rollout`` with its tensors on ``device``, but for ``valid``, see :class:`Rollout`."""
    return Rollout(
        **{
            name: value if name == "valid" else value.to(device, non_blocking=True)
            for name, value in vars(rollout).items()
            if value is not None
        }
    )


@dataclass(frozen=True)
class OnPolicyConfig(NetworkConfig):
    """Settings that all on-policy algorithms share. Steps are vector steps."""

    rollout_steps: int = 32
    """T, steps of each environment in a rollout, after which the learner learns from it."""
    gamma: float = 0.99
    """Discount factor per step, 0..1."""
    reward_scale: float = 1.0
    """Factor that rewards are multiplied by."""
    learning_rate: float = 1e-3
    """Initial learning rate."""
    anneal: bool = True
    """Decrease the learning rate linearly to 0 over total_steps."""
    optimizer: Literal["adam", "rmsprop"] = "adam"
    """adam (Kingma and Ba, 2015) or rmsprop (Tieleman and Hinton, 2012, with decay 0.99)."""
    optimizer_epsilon: float = 1e-5
    """Epsilon of the optimizer, added to the denominator."""
    max_gradient_norm: float = 0.5
    """Largest norm of the gradient; a larger gradient is scaled down to it. 0: no limit."""
    normalize_observations: bool = False
    """Normalize observations by their running mean and standard deviation, to -5..5, images pixel by pixel
    (not those of pqn, nor with an LSTM or a network of your own)."""
    normalize_rewards: bool = False
    """Divide rewards by the running standard deviation of the discounted return, to -10..10."""
    frame_deltas: bool = False
    """Stacked vectors only: replace the older ones of a stack by the differences between neighbors."""
    hidden: tuple[int, ...] = (64, 64)
    """Widths of the dense layers; images use only the last, after the convolutions."""
    precision: Precision = "float32"
    """Precision of the learner's matrix products; bfloat16 is faster on hardware that supports it. Weights
    and all other computations stay float32."""
    channels_last: bool = False
    """Store images with the channels of a pixel side by side for the learner's convolutions: the memory
    layout that the tensor cores of GPUs prefer."""
    cuda_graph: bool = False
    """With environments on a CUDA device: record rollout and learning as one CUDA graph each."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = {} if spec.has_images else {"channels_last": NO_IMAGES, "images": NO_IMAGES}
        if self.normalize_rewards:
            found["reward_scale"] = "normalize_rewards = True"
        return found | self.replaced(("hidden", "images", "channels_last", "frame_deltas"), ())

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("rollout_steps", 1, 2**20),
            ("gamma", 0, 1),
            ("reward_scale", 0, math.inf),
            ("learning_rate", 0, math.inf),
            ("optimizer_epsilon", 0, math.inf),
            ("max_gradient_norm", 0, math.inf),
            infinite=("max_gradient_norm",),
        )
        check_above_zero(self, "optimizer_epsilon")
        check_choices(self, ("optimizer", ("adam", "rmsprop")), ("precision", ("float32", "bfloat16")))
        check_hidden(self)


def check_vectors(config: OnPolicyConfig, spec: EnvSpec, images: bool = False) -> None:
    """Refuses settings for vectors if the observations are not vectors.

    Args:
        config: the settings.
        spec: describes the observations.
        images: whether the algorithm can normalize images with these settings.

    Raises:
        ConfigError: names the setting and the observations.
    """
    if config.normalize_observations and not (images and spec.observation_kind == "image"):
        check_vector("normalize_observations", spec)
    if config.frame_deltas:
        check_stacked(spec)


class OnPolicyAlgorithm:
    """Base class of on-policy algorithms: settings of rollouts. See :class:`parl.types.RolloutAlgorithm`.

    Raises:
        ConfigError: the kind of observations is not supported.
    """

    kinds: tuple[ObservationKind, ...] = ("vector", "image", "dict")
    """Kinds of observations that the algorithm supports."""

    def __init__(self, config: OnPolicyConfig, spec: EnvSpec) -> None:
        check_observations(config.algorithm_name, spec.without_mask, self.kinds, config.convolutions)
        self.config: Any = config
        self.spec = spec

    @property
    def rollout_steps(self) -> int:
        """T, vector steps in a rollout."""
        return self.config.rollout_steps

    @property
    def memory(self) -> int:
        """0: there is no recurrent state."""
        return 0

    @property
    def shareable(self) -> bool:
        """See :class:`parl.types.RolloutAlgorithm`."""
        return not (self.config.normalize_observations or self.config.normalize_rewards)

    @property
    def records_updates(self) -> bool:
        """See :class:`parl.types.RolloutAlgorithm`."""
        return self.config.cuda_graph

    def check_device(self, grouped: bool) -> None:
        """Refuses settings that need numbers on the host between updates, if ``cuda_graph`` is set.

        Args:
            grouped: whether several processes train together.

        Raises:
            ConfigError: names the setting.
        """
        config = self.config
        if not config.cuda_graph:
            return
        off = {"normalize_observations": False, "normalize_rewards": False, "target_kl": 0.0}
        off |= {"window": 0, "env_groups": 1}
        for name, value in off.items():
            if getattr(config, name, value) != value:
                raise ConfigError(
                    f"{name} = {getattr(config, name)} needs the host between updates: it does not go with "
                    "cuda_graph = True"
                )
        if grouped:
            raise ConfigError("cuda_graph = True is not supported with several learner processes")


class OnPolicyLearner(ABC):
    """Base class of learners: network, optimizer and statistics.

    Subclasses create the network, define the loss, and make the updates of a rollout.

    Attributes:
        network: has an attribute ``flattener`` if observations are vectors or normalized images.
        weights: (P,) float32.
        gradients: (P,) float32.
        learners: number of learners that share each optimizer step.
        generator: random generator of the minibatches, on the device.
    """

    learners: int = 1

    def __init__(self, config: OnPolicyConfig, spec: EnvSpec, seed: int, device: str) -> None:
        self.config: Any = config
        self.spec = spec
        self.device = torch.device(device)
        self._chunk = _CHUNK
        if self.device.type == "cpu":
            if spec.has_images:
                keep_freed_memory()
            self._chunk = max(1, min(_CHUNK, _CHUNK_NUMBERS // math.prod(spec.flat_row[0])))
        with seeded(seed, self.device):
            self.network = self.make_network().to(self.device)
        for part in self.network.modules():
            if isinstance(part, ExecutionModule):
                part.use_bf16 = part.torch_only = config.precision == "bfloat16"
                part.channels_last = config.channels_last
        flat = flatten(self.network)
        assert flat.gradients is not None
        self.weights, self.gradients = flat.weights, flat.gradients
        self._mean = torch.zeros_like(self.weights)
        self._square = torch.zeros_like(self.weights)
        self._updates = 0
        # The weights that optimizer steps change: this learner's, or those shared with other learners.
        self._optimized_weights, self._count = self.weights, torch.zeros(1, dtype=torch.int64)
        self._adam = FlatAdam(self._optimized_weights, self.gradients, self._mean, self._square)
        flattener = getattr(self.network, "flattener", None)
        self._flattener: Flattener | None = flattener
        normalizes = flattener is not None and flattener.normalizer is not None
        self._moments = RunningMoments(flattener.inputs) if flattener is not None and normalizes else None
        self._scaler = RewardScaler(config.gamma) if config.normalize_rewards else None
        self.generator = torch.Generator(self.device).manual_seed(seed)
        # Learning rate and number of the latest step on the device; None until :meth:`schedule` is called.
        self._device_schedule: tuple[Tensor, Tensor] | None = None
        self.figures: Mapping[str, Any] = {}
        """Metrics of the latest update."""
        replay = not spec.has_images and config.precision == "float32" and may_replay(self)
        self._update = Update(self.make_gradients, self.gradients, replay)

    @abstractmethod
    def make_network(self) -> nn.Module:
        """Creates the network of ``config`` for ``spec``."""

    @abstractmethod
    def loss(self, *args: Any, **kwargs: Any) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss for tensors, and metrics, which have no gradients."""

    @abstractmethod
    def optimize(self, rollout: Rollout, progress: float, average: Average) -> int:
        """Makes the optimizer steps of a rollout; returns their number."""

    def learn(self, rollout: Rollout, progress: float, average: Average) -> int:
        """See :class:`parl.types.RolloutLearner`.

        Raises:
            NonFiniteError: a loss, the gradient or a weight is NaN or infinite.
        """
        if self.device.type != "cpu":
            rollout = rollout_on(self.device, rollout)
        if self.config.reward_scale != 1.0:
            rollout.reward.mul_(self.config.reward_scale)
        if self._scaler is not None:
            self._scaler.scale(rollout.reward, rollout.ended, rollout.valid, average)
        # The policy acted with the network's current statistics; they are updated for the next rollout.
        # The first rollout is used for statistics only: the first statistics change the inputs too much.
        first = self._moments is not None and self._moments.count == 0
        try:
            steps = 0 if first else self.optimize(rollout, progress, average)
            self._check_finite()
        except NonFiniteError as error:
            raise with_metrics(error, f"update {self._updates:,}", self.metrics()) from None
        self._update_statistics(rollout, average)
        return steps

    def _check_finite(self) -> None:
        """Checks the latest losses and the weights, unless that would synchronize with the device."""
        if self._device_schedule is not None:
            return  # on a device the weights are checked where the metrics are read
        for name, value in self.figures.items():
            if name.endswith("loss") and not math.isfinite(value):
                raise NonFiniteError(f"{name} is {float(value)}")
        if self.device.type != "cpu" or not all_finite(self.weights.numpy()):
            check_state({"weights": self.weights}, "after the step")

    def _update_statistics(self, rollout: Rollout, average: Average) -> None:
        if self._moments is None:
            return
        flattener = self._flattener
        assert flattener is not None and flattener.normalizer is not None
        rows = flattener.raw(rollout.obs[: -1 : flattener.statistics_every].flatten(0, 1))
        self._moments.add(rows.cpu())
        self._moments.join(average)
        inverse = self._moments.inverse_std(flattener.lowest_deviation, flattener.unscaled_deviation)
        flattener.normalizer.mean.copy_(self._moments.mean)
        flattener.normalizer.inverse_std.copy_(inverse)

    def next_values(self, rollout: Rollout, value: Tensor) -> Tensor:
        """Returns values (T, N) of the observations after each step; ``value`` (T + 1, N) is of ``obs``.

        Values of ``rollout.final_obs`` are computed without gradients.
        """
        following = value[1:]
        if len(rollout.final_obs):
            following = following.clone()
            with torch.no_grad():
                final = self.final_values(rollout)
            following[rollout.final_at[:, 0], rollout.final_at[:, 1]] = final
        return following

    def final_values(self, rollout: Rollout) -> Tensor:
        """Returns the values (K,) of ``rollout.final_obs``."""
        return self.values_of(rollout.final_obs)

    @abstractmethod
    def values_of(self, obs: Tensor) -> Tensor:
        """Returns the values (B,) of observations (B, ...)."""

    def values(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Returns the values of the observations before and after each step, (T, N) each; no gradient."""
        with torch.no_grad():
            flat = rollout.obs.flatten(0, 1)
            value = torch.cat([self.values_of(part) for part in flat.split(self._chunk)])
            value = value.view(rollout.obs.shape[:2])
            return value[:-1], self.next_values(rollout, value)

    def minibatches(
        self, columns: Sequence[Tensor], valid: Tensor, epochs: int, size: int
    ) -> Iterator[tuple[Tensor, ...]]:
        """Yields minibatches of about ``size`` valid rows of ``columns``, for ``epochs`` passes.

        Minibatches differ by at most one row. There are as many as if all rows were valid, so that learners
        on rollouts of the same size, each with a share of ``size``, make the same number of steps; a single
        learner has no more of them than valid rows, and one of several that has fewer valid rows repeats
        them. Rows are shuffled in each epoch, unless one minibatch holds them all.

        Args:
            columns: (R, ...) each.
            valid: bool, of any shape with R elements.
            epochs: number of passes.
            size: rows of a minibatch, all learners together.
        """
        flat, where = valid.flatten(), columns[0].device
        if not flat.all():
            rows = flat.nonzero().squeeze(1).to(where)
            columns = [select_rows(column, rows) for column in columns]
        count = len(columns[0])
        parts = max(1, round(flat.numel() * self.learners / size))
        if self.learners == 1:
            parts = min(parts, count)
        for _ in range(epochs if parts else 0):
            if parts == 1:
                yield tuple(columns)
                continue
            order = torch.randperm(count, generator=self.generator, device=self.generator.device).to(where)
            if 0 < count < parts:
                order = order[torch.arange(parts, device=where) % count]
            cut = [select_rows(column, order).tensor_split(parts) for column in columns]
            yield from zip(*cut, strict=True)

    def make_gradients(self, *tensors: Any) -> dict[str, Tensor]:
        """Writes the gradients of :meth:`loss`; returns its metrics."""
        self.gradients.zero_()
        total, figures = self.loss(*tensors)
        total.backward()
        return figures

    def differentiate(self, *tensors: Tensor) -> None:
        """As :meth:`make_gradients`; on a CPU it is recorded and replayed if possible.

        Without rows, which one of several learners may have, the gradients are 0.
        """
        if not len(tensors[0]):
            self.gradients.zero_()
            self.figures = {}
            return
        on_host = self.device.type == "cpu" and self._device_schedule is None
        self.figures = (self._update if on_host else self.make_gradients)(*tensors)

    def apply(self, progress: float, average: Average) -> None:
        """Averages the gradients over all learners and makes one optimizer step."""
        config = self.config
        average(self.gradients)
        longest, epsilon = config.max_gradient_norm, config.optimizer_epsilon
        if config.optimizer == "adam" and self._device_schedule is None:
            self.count_updates(1)
            steps, rate = self._updates - 1, self.learning_rate(progress)
            self._adam.step(steps, torch.full((), float(steps), device=self.device), rate, epsilon, longest)
            self.refresh()
            return
        if longest:
            limit_norm(self.gradients, longest, check=self._device_schedule is None)
        rate: float | Tensor
        number: int | Tensor
        if self._device_schedule is None:
            self.count_updates(1)
            rate, number = self.learning_rate(progress), self._updates
        else:
            rate, number = self._device_schedule
            number += 1
        if config.optimizer == "adam":
            moments = (self._mean, self._square)
            adam_step(self._optimized_weights, self.gradients, *moments, number, rate, epsilon)
        else:
            rmsprop_step(self._optimized_weights, self.gradients, self._square, rate, epsilon)
        self.refresh()

    def schedule(self, progress: float) -> None:
        """See :class:`parl.types.RolloutAlgorithm`."""
        if self._device_schedule is None:
            rate, number = (torch.zeros((), device=self.device) for _ in range(2))
            number.fill_(self._updates)
            self._device_schedule = rate, number
        self._device_schedule[0].fill_(self.learning_rate(progress))

    def count_updates(self, steps: int) -> None:
        """See :class:`parl.types.RolloutAlgorithm`."""
        self._count += steps
        self._updates = int(self._count)

    def share(self, weights: Tensor, mean: Tensor, square: Tensor, count: Tensor, fill: bool) -> None:
        """See :class:`parl.types.HogwildLearner`."""
        if fill:
            weights.copy_(self.weights)
            mean.copy_(self._mean)
            square.copy_(self._square)
            count.fill_(self._updates)
        self._optimized_weights, self._mean, self._square, self._count = weights, mean, square, count
        self._adam = FlatAdam(self._optimized_weights, self.gradients, self._mean, self._square)
        self.refresh()

    def refresh(self) -> None:
        """See :class:`parl.types.HogwildLearner`."""
        if self._optimized_weights is not self.weights:
            self.weights.copy_(self._optimized_weights)
            self._updates = int(self._count)

    def learning_rate(self, progress: float) -> float:
        """Returns the learning rate after the share ``progress`` of the run, 0..1."""
        config = self.config
        return config.learning_rate * (max(0.0, 1.0 - progress) if config.anneal else 1.0)

    def metrics(self) -> dict[str, float]:
        """Returns metrics of the latest update."""
        return {name: float(value) for name, value in self.figures.items()}

    def start_from(self, other: OnPolicyLearner) -> None:
        """See :class:`parl.types.Learned`."""
        copy_named(named_weights(other.network), self.network)
        if self._moments is not None and other._moments is not None:
            self._moments.load_state_dict(other._moments.state_dict())
        if self._scaler is not None and other._scaler is not None:
            self._scaler.load_state_dict(other._scaler.state_dict() | {"returns": torch.zeros(0)})

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        state: dict[str, Any] = {
            "weights": self.weights.clone(),
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "updates": self._updates,
            "generator": self.generator.get_state(),
        }
        if self._moments is not None:
            state["moments"] = self._moments.state_dict()
        if self._scaler is not None:
            state["rewards"] = self._scaler.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.weights.copy_(state["weights"])
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._updates = state["updates"]
        self._count.fill_(self._updates)
        if self._device_schedule is not None:
            self._device_schedule[1].fill_(self._updates)
        self.generator.set_state(state["generator"])
        if self._moments is not None:
            self._moments.load_state_dict(state["moments"])
        if self._scaler is not None:
            self._scaler.load_state_dict(state["rewards"])
