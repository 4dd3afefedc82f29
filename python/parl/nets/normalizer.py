"""Normalization of observations and rewards by running statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parl.types import Array


class Normalizer(nn.Module):
    """Subtracts a running mean and divides by a running standard deviation, feature by feature.

    The statistics are parameters without gradients. They are published with the weights, so that actors and
    learners normalize alike. Results are clipped to -5..5. The initial mean is 0 and the deviation 1.
    """

    _LIMIT = 5.0

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(features), requires_grad=False)
        self.inverse_std = nn.Parameter(torch.ones(features), requires_grad=False)

    def forward(self, features: Tensor) -> Tensor:
        """Normalizes (B, features) float32."""
        return ((features - self.mean) * self.inverse_std).clamp_(-self._LIMIT, self._LIMIT)

    def apply_(self, features: Tensor) -> Tensor:
        """As :meth:`forward`, in place."""
        return features.sub_(self.mean).mul_(self.inverse_std).clamp_(-self._LIMIT, self._LIMIT)

    def vectors(self, features: Array) -> Array:
        """As :meth:`forward`, for numpy arrays, with equal results bit for bit; only on the CPU."""
        x: Array = features - self.mean.detach().numpy()
        x *= self.inverse_std.detach().numpy()
        return np.minimum(np.maximum(x, -self._LIMIT, out=x), self._LIMIT, out=x)


class RunningMoments:
    """Mean and variance of all rows added so far.

    Attributes:
        count: number of rows.
        mean: (features,) float64.
        square: (features,) float64, sum of squared distances from the mean.

    Source: Chan, Golub and LeVeque (1979), the pairwise update.
    """

    def __init__(self, features: int) -> None:
        self.count = 0
        self.mean = torch.zeros(features, dtype=torch.float64)
        self.square = torch.zeros(features, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Adds rows (B, features) of any dtype."""
        rows = rows.to(torch.float64)
        count, mean = len(rows), rows.mean(dim=0)
        square = (rows - mean).square().sum(dim=0)
        total = self.count + count
        shift = mean - self.mean
        self.square += square + shift.square() * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total

    def join(self, average: Callable[[Tensor], object]) -> None:
        """Combines the statistics of several learners, as if each had added the rows of all.

        ``average`` replaces a tensor by its mean over the learners; ``count`` is then a mean per learner.
        """
        first, second = self.mean * self.count, self.square + self.mean.square() * self.count
        sums = torch.cat([torch.tensor([float(self.count)], dtype=torch.float64), first, second])
        before = sums.clone()
        average(sums)
        if torch.equal(sums, before):
            return
        features = len(self.mean)
        self.count = round(float(sums[0]))
        self.mean = sums[1 : 1 + features] / sums[0]
        self.square = (sums[1 + features :] - self.mean.square() * sums[0]).clamp_(min=0)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {"count": self.count, "mean": self.mean.clone(), "square": self.square.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self.count = state["count"]
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])

    def inverse_std(self, lowest: float, unscaled: float = 0.0) -> Tensor:
        """Returns 1 / max(deviation, ``lowest``), (features,) float32.

        Features that never changed have 1, up to rounding errors of their mean, and those whose deviation is
        at most ``unscaled``.
        """
        deviation = (self.square / max(self.count, 1)).sqrt()
        scaled = deviation > (1e-9 * self.mean.abs()).clamp(min=unscaled)
        return torch.where(scaled, 1 / deviation.clamp(min=lowest), 1.0).to(torch.float32)


class RewardScaler:
    """Divides rewards by the running standard deviation of the discounted return.

    The return of each environment is the running sum ``R <- gamma R + r``, which starts at 0 in each episode.
    Results are clipped to -10..10.

    Args:
        gamma: discount factor per step.

    Source: Engstrom et al. (2020), "Implementation Matters in Deep Policy Gradients", section 3.
    """

    _LIMIT = 10.0

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._moments = RunningMoments(1)
        self._returns = torch.zeros(0)

    def scale(
        self,
        reward: Tensor,
        ended: Tensor,
        valid: Tensor,
        average: Callable[[Tensor], object] | None = None,
    ) -> None:
        """Scales ``reward`` (T, N) float32 in place; consecutive calls get consecutive steps.

        Args:
            reward: received on leaving step t.
            ended: (T, N) bool, whether the episode ended with step t.
            valid: (T, N) bool, whether the row belongs to an episode.
            average: replaces a tensor by its mean over several learners, so that all divide alike.
        """
        if len(self._returns) != reward.shape[1]:
            self._returns = torch.zeros(reward.shape[1])
        seen = torch.empty(reward.shape)
        for t, (r, over) in enumerate(zip(reward.cpu(), ended.cpu(), strict=True)):
            torch.add(r, self._returns, alpha=self._gamma, out=seen[t])
            self._returns = torch.where(over, 0.0, seen[t])
        rows = seen[valid.cpu()]
        if len(rows):
            self._moments.add(rows.unsqueeze(1))
        if average is not None:
            self._moments.join(average)
        factor = float(self._moments.inverse_std(1e-4))
        reward.mul_(factor).clamp_(-self._LIMIT, self._LIMIT)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return self._moments.state_dict() | {"returns": self._returns.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._moments.load_state_dict(state)
        self._returns = state["returns"].clone()


def frame_deltas(observations: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the newest of stacked vectors (B, K, features), and the differences between neighbors.

    The differences (B, K - 1, features) of bytes wrap around at 256, and are in -128..127.
    """
    newest = observations[:, -1]
    if observations.dtype != torch.uint8:
        if not observations.is_floating_point():
            observations = observations.to(torch.int64)
        return newest, observations[:, 1:] - observations[:, :-1]
    if torch.compiler.is_compiling():
        wide = observations.to(torch.int32)  # ONNX neither subtracts nor reinterprets bytes.
        return newest, (wide[:, 1:] - wide[:, :-1] + 128) % 256 - 128
    return newest, (observations[:, 1:] - observations[:, :-1]).view(torch.int8)


class Flattener(nn.Module):
    """Converts vector observations to inputs: flat float32, bytes scaled to 0..1, normalized if requested.

    Input (B, *shape) of ``dtype``, output (B, inputs) float32.

    Args:
        shape: of one observation.
        dtype: numpy name of the observations.
        normalize: subtract running means and divide by running deviations.
        frame_deltas: replace the older of stacked vectors (K, features), the newest last, by the differences
            between neighbors; those of bytes wrap around at 256. Velocities, which are small compared with
            positions, are then features with a scale of their own.

    Raises:
        ValueError: ``frame_deltas`` is set, and observations are not stacked vectors.
    """

    def __init__(self, shape: Sequence[int], dtype: str, normalize: bool, frame_deltas: bool = False) -> None:
        super().__init__()
        if frame_deltas and len(shape) != 2:
            raise ValueError(f"frame_deltas needs stacked vectors (K, features), not {tuple(shape)}")
        self.inputs = inputs = math.prod(shape)
        self._frame_deltas = frame_deltas
        # Lower bound, so that features that have hardly changed yet are not amplified; of bytes, 2 units.
        self.lowest_deviation = 2 / 255 if dtype == "uint8" else 1e-4
        # Bytes that hardly ever change, such as some of a console's memory, are not scaled.
        self.unscaled_deviation = 1e-4 if dtype == "uint8" else 0.0
        self.statistics_every = 1
        """Steps of a rollout between two whose observations enter the statistics; 1: all."""
        self._scale = 1 / 255 if dtype == "uint8" else None
        self.normalizer = Normalizer(inputs) if normalize else None

    def raw(self, observations: Tensor) -> Tensor:
        """Returns (B, inputs) float32 before normalization."""
        if self._frame_deltas:
            newest, change = frame_deltas(observations)
            x = torch.cat([newest.to(torch.float32), change.flatten(1).to(torch.float32)], dim=1)
        else:
            x = observations.flatten(1) if observations.dim() != 2 else observations
        if x.dtype != torch.float32:
            x = x.to(torch.float32)
        return x if self._scale is None else x * self._scale

    def vectors(self, observations: Array) -> Array:
        """As :meth:`forward`, for numpy arrays."""
        if not self._frame_deltas and observations.dtype == np.float32:
            x = observations.reshape(len(observations), -1)
            return x if self.normalizer is None else self.normalizer.vectors(x)
        with torch.no_grad():
            return self(torch.from_numpy(observations)).numpy()

    def forward(self, observations: Tensor) -> Tensor:
        """Returns (B, inputs) float32."""
        x = self.raw(observations)
        return x if self.normalizer is None else self.normalizer(x)


class PixelNormalizer(Flattener):
    """Normalizes images pixel by pixel.

    Input (B, *shape) uint8, output the same shape, float32. Statistics are those of every 16th step: images
    of neighboring steps are alike.

    Args:
        shape: of one image, (C, H, W) or (H, W, C).

    Source: Burda et al. (2018), "Exploration by random network distillation", section 2.4, for its
    distillation networks.
    """

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__(shape, "uint8", True)
        self.statistics_every = 16

    def forward(self, observations: Tensor) -> Tensor:
        """Returns (B, *shape) float32; its values are those of :class:`Flattener`."""
        assert self.normalizer is not None
        x = observations.flatten(1).to(torch.float32).mul_(1 / 255)
        return self.normalizer.apply_(x).view(observations.shape)
