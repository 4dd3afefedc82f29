"""Policy and value on an LSTM, whose state is reset where an episode begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from parl.nets.actor_critic import Towers
from parl.nets.normalizer import Flattener
from parl.nets.torsos import make_torso
from parl.ops.execution import ExecutionModule, autocast_bf16
from parl.types import Array, is_image


class RecurrentActorCritic(ExecutionModule):
    """Recurrent actor-critic network: observations and LSTM state to policy parameters and values.

    Dense layers, or convolutions for images (C, H, W) or (H, W, C) uint8, then one LSTM cell with two heads
    on its output.
    The memory of B environments is (2, B, H) float32: hidden and cell state, initially zeros.

    Args:
        shape: of one observation.
        dtype: its numpy name.
        outputs: policy parameters per observation.
        hidden: widths of the dense layers; images use only the last.
        width: H, width of the LSTM.
        activation: of the dense layers.
        normalize: subtract running means and divide by running deviations (vectors only).
        log_std: initial logarithm of a state-independent standard deviation; None: there is none.
        frame_deltas: of stacked vectors, see :class:`parl.nets.normalizer.Flattener`.
        images: convolutions, see :func:`parl.nets.make_torso`.
        torso: replaces the layers and convolutions; has ``features`` outputs.
        inputs: prepares observations for a user's ``torso``.

    Source: Hochreiter and Schmidhuber (1997); used so by Mnih et al. (2016), section 5.2.
    """

    branches: tuple[int, ...] = ()
    """Of MultiDiscrete actions: number of logits of each choice, see :class:`parl.types.EnvSpec`."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        outputs: int,
        hidden: Sequence[int],
        width: int,
        activation: Literal["tanh", "relu"],
        normalize: bool,
        log_std: float | None = None,
        frame_deltas: bool = False,
        images: str = "nature",
        torso: nn.Module | None = None,
        inputs: Flattener | None = None,
    ) -> None:
        super().__init__()
        features = hidden[-1]
        if torso is not None:
            self.torso: nn.Module = torso
            features = int(cast("Any", torso).features)
            if inputs is not None:
                self.flattener = inputs
        elif is_image(shape, dtype):
            self.torso = make_torso(shape, dtype, hidden, False, images)
        else:
            self.flattener = Flattener(shape, dtype, normalize, frame_deltas)
            self.torso = Towers(self.flattener.inputs, hidden, 1, activation)
        self.cell = nn.LSTMCell(features, width)
        self.policy, self.value = nn.Linear(width, outputs), nn.Linear(width, 1)
        for weight, gain in (
            (self.cell.weight_ih, 1.0),
            (self.cell.weight_hh, 1.0),
            (self.policy.weight, 0.01),
            (self.value.weight, 1.0),
        ):
            nn.init.orthogonal_(weight, gain)
        for bias in (self.cell.bias_ih, self.cell.bias_hh, self.policy.bias, self.value.bias):
            nn.init.zeros_(bias)
        self.log_std = None if log_std is None else nn.Parameter(torch.full((outputs,), log_std))
        self.width = width
        self.memory = torch.zeros(2, 0, width)
        """(2, B, H), updated by :meth:`forward`."""

    def restart(self, starts: Tensor) -> None:
        """Zeroes the memory where ``starts`` (B,) bool is set, or of all environments if B has changed."""
        if self.memory.shape[1] != len(starts):
            self.memory = torch.zeros(2, len(starts), self.width)
        self.memory = self.memory * ~starts.view(1, -1, 1)

    def features(self, observations: Tensor) -> Tensor:
        """Returns the inputs of the LSTM, (B, features) float32."""
        if self.use_bf16:
            with autocast_bf16(observations.device):
                return self._features(observations).to(torch.float32)
        return self._features(observations)

    def _features(self, observations: Tensor) -> Tensor:
        if hasattr(self, "flattener"):
            observations = self.flattener(observations)
        features = self.torso(observations)
        return features[0] if isinstance(self.torso, Towers) else features

    def step(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Returns policy parameters (B, outputs), values (B,) and the new memory (2, B, H)."""
        output, cell = self.cell(self.features(observations), (memory[0], memory[1]))
        return self.policy(output), self.value(output).squeeze(1), torch.stack((output, cell))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Updates :attr:`memory` by one step; returns policy parameters (B, outputs) and values (B,)."""
        parameters, value, self.memory = self.step(observations, self.memory)
        return parameters, value

    def act(self, observations: Array) -> Array:
        """Updates :attr:`memory` by one step; returns policy parameters (B, outputs), in and out numpy."""
        with torch.no_grad():
            return self(torch.from_numpy(observations))[0].numpy()

    def value_of(self, observations: Tensor) -> Tensor:
        """Returns values (B,) with a memory of zeros; no gradient."""
        nothing = torch.zeros(2, len(observations), self.width, device=observations.device)
        with torch.no_grad():
            return self.step(observations, nothing)[1]

    def unroll(self, obs: Tensor, starts: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Computes T steps of N environments; only the LSTM runs step by step.

        Args:
            obs: (T, N, *shape).
            starts: (T, N) bool, whether an episode begins at the observation.
            memory: (2, N, H), before the first step.

        Returns:
            policy parameters (T, N, outputs), values (T, N), and the memory after each step (T, 2, N, H).
        """
        steps, envs = starts.shape
        seen = self.features(obs.flatten(0, 1)).view(steps, envs, -1)
        keep = (~starts).to(seen.dtype).unsqueeze(2)
        output, cell = memory[0], memory[1]
        outputs: list[Tensor] = []
        cells: list[Tensor] = []
        for t in range(steps):
            output, cell = self.cell(seen[t], (output * keep[t], cell * keep[t]))
            outputs.append(output)
            cells.append(cell)
        h = torch.stack(outputs)
        memories = torch.stack((h, torch.stack(cells)), dim=1)
        return self.policy(h), self.value(h).squeeze(2), memories
