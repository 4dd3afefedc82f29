"""Observations brought to mean 0 and deviation 1 by running statistics."""

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

    The statistics are parameters without gradients, so that they travel with the weights: who acts and who
    learns normalizes alike. Results are cut to -5..5; before the first :meth:`update` they are the inputs.
    """

    _LIMIT = 5.0

    def __init__(self, features: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(features), requires_grad=False)
        self.inverse_std = nn.Parameter(torch.ones(features), requires_grad=False)

    def forward(self, features: Tensor) -> Tensor:
        """(B, features) float32 to the same."""
        return ((features - self.mean) * self.inverse_std).clamp_(-self._LIMIT, self._LIMIT)

    def vectors(self, features: Array) -> Array:
        """The same of and with numpy, bit for bit; where the statistics are on the CPU."""
        x: Array = features - self.mean.detach().numpy()
        x *= self.inverse_std.detach().numpy()
        return np.minimum(np.maximum(x, -self._LIMIT, out=x), self._LIMIT, out=x)


class RunningMoments:
    """Mean and variance of everything seen so far.

    Attributes:
        count: rows seen.
        mean: (features,) float64.
        square: (features,) float64, sum of squared distances from the mean.

    Source: Chan, Golub and LeVeque (1979), the pairwise update.
    """

    def __init__(self, features: int) -> None:
        self.count = 0
        self.mean = torch.zeros(features, dtype=torch.float64)
        self.square = torch.zeros(features, dtype=torch.float64)

    def add(self, rows: Tensor) -> None:
        """Takes (B, features) of any dtype into account."""
        rows = rows.to(torch.float64)
        count, mean = len(rows), rows.mean(dim=0)
        square = (rows - mean).square().sum(dim=0)
        total = self.count + count
        shift = mean - self.mean
        self.square += square + shift.square() * (self.count * count / total)
        self.mean += shift * (count / total)
        self.count = total

    def join(self, average: Callable[[Tensor], object]) -> None:
        """Takes the mean over several learners of what each saw, as if all had seen everything.

        ``average`` replaces a tensor by that mean; counts are then those of one learner.
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
        """What :meth:`load_state_dict` takes back."""
        return {"count": self.count, "mean": self.mean.clone(), "square": self.square.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self.count = state["count"]
        self.mean.copy_(state["mean"])
        self.square.copy_(state["square"])

    def inverse_std(self, lowest: float) -> Tensor:
        """(features,) float32: one over the deviation or ``lowest``; features that never changed give 1."""
        deviation = (self.square / max(self.count, 1)).sqrt()
        return torch.where(deviation > 1e-4, 1 / deviation.clamp(min=lowest), 1.0).to(torch.float32)


class RewardScaler:
    """Divides rewards by the running deviation of the discounted return.

    The return of each environment is summed up as rewards come, ``R <- gamma R + r``, and begins anew with
    each episode. Results are cut to -10..10.

    Args:
        gamma: discount a step.

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
        """Scales ``reward`` (T, N) float32 in place; the steps follow on those of the last call.

        Args:
            reward: received on leaving step t.
            ended: (T, N) bool, the episode ended with it.
            valid: (T, N) bool, the row belongs to an episode.
            average: replaces a tensor by its mean over several learners, which then divide alike.
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
        """What :meth:`load_state_dict` takes back."""
        return self._moments.state_dict() | {"returns": self._returns.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self._moments.load_state_dict(state)
        self._returns = state["returns"].clone()


class Flattener(nn.Module):
    """Vectors as a network takes them: flat, float32, bytes as 0..1, normalized if wanted.

    Input (B, *shape) of ``dtype``, output (B, inputs) float32.

    Args:
        shape: of one observation.
        dtype: numpy name of the observations.
        normalize: subtract running means and divide by running deviations.
        frame_deltas: of stacked readings (K, features), the newest last, give the newest and, in place of the
            older ones, the changes between neighbours; those of bytes go round at 256. Motion, which is small
            beside the places it leads to, then has features of its own scale.

    Raises:
        ValueError: ``frame_deltas`` of what is no stack.
    """

    def __init__(self, shape: Sequence[int], dtype: str, normalize: bool, frame_deltas: bool = False) -> None:
        super().__init__()
        if frame_deltas and len(shape) != 2:
            raise ValueError(f"frame_deltas needs stacked readings (K, features), not {tuple(shape)}")
        self.inputs = inputs = math.prod(shape)
        self._frame_deltas = frame_deltas
        # What has hardly moved yet must not be blown up: of bytes that is two steps of 256.
        self.lowest_deviation = 2 / 255 if dtype == "uint8" else 1e-4
        self._scale = 1 / 255 if dtype == "uint8" else None
        self.normalizer = Normalizer(inputs) if normalize else None

    def raw(self, observations: Tensor) -> Tensor:
        """(B, inputs) float32 before normalization."""
        if self._frame_deltas:
            change = observations[:, 1:] - observations[:, :-1]
            if change.dtype == torch.uint8:
                change = change.view(torch.int8)
            newest = observations[:, -1].to(torch.float32)
            x = torch.cat([newest, change.flatten(1).to(torch.float32)], dim=1)
        else:
            x = observations.flatten(1) if observations.dim() != 2 else observations
        if x.dtype != torch.float32:
            x = x.to(torch.float32)
        return x if self._scale is None else x * self._scale

    def vectors(self, observations: Array) -> Array:
        """(B, inputs) float32 of and with numpy."""
        if not self._frame_deltas and observations.dtype == np.float32:
            x = observations.reshape(len(observations), -1)
            return x if self.normalizer is None else self.normalizer.vectors(x)
        with torch.no_grad():
            return self(torch.from_numpy(observations)).numpy()

    def forward(self, observations: Tensor) -> Tensor:
        """(B, inputs) float32."""
        x = self.raw(observations)
        return x if self.normalizer is None else self.normalizer(x)
