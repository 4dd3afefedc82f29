"""Policy and value in one module: towers of dense layers, or a CNN with two heads."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from parl.nets.fused.layers import Activation, Layer, MLPWithHeads, Stack, head, view_parameter
from parl.nets.normalizer import Flattener, PixelNormalizer
from parl.nets.torsos import make_torso
from parl.nets.user import UserModule, with_heads
from parl.ops.execution import ExecutionModule, autocast_bf16, in_float32
from parl.types import Array, is_image


def _orthogonal(shape: Sequence[int], gain: float) -> Tensor:
    return nn.init.orthogonal_(torch.empty(*shape), gain)


class Towers(nn.Module):
    """Dense layers of several networks on the same input, with one batched product per layer.

    Input (B, inputs) float32, output (towers, B, hidden[-1]) float32.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], towers: int, activation: Activation) -> None:
        super().__init__()
        gain = math.sqrt(2)
        self.kind: Activation = activation
        self.activation = torch.tanh_ if activation == "tanh" else torch.relu_
        self.towers = towers
        first = torch.cat([_orthogonal((hidden[0], inputs), gain) for _ in range(towers)])
        self.first = nn.Parameter(first)
        self.first_bias = nn.Parameter(torch.zeros(towers * hidden[0]))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for width, following in itertools.pairwise(hidden):
            matrices = [_orthogonal((following, width), gain).T for _ in range(towers)]
            self.weights.append(nn.Parameter(torch.stack(matrices)))
            self.biases.append(nn.Parameter(torch.zeros(towers, 1, following)))
        self.features = hidden[-1]

    def forward(self, observations: Tensor) -> Tensor:
        """Returns features (towers, B, features)."""
        x = torch.nn.functional.linear(observations, self.first, self.first_bias)
        x = self.activation(x).view(x.shape[0], self.towers, -1).transpose(0, 1)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            x = self.activation(torch.baddbmm(bias, x, weight))
        return x

    def stack(self) -> Stack:
        """Returns the layers as one fused operation; the parameters must have been flattened."""
        towers = self.towers
        first = Layer(
            view_parameter(self.first, lambda w: w.view(towers, -1, w.shape[1]).mT),
            view_parameter(self.first_bias, lambda b: b.view(towers, 1, -1)),
        )
        rest = [
            Layer(view_parameter(weight, lambda w: w), view_parameter(bias, lambda b: b))
            for weight, bias in zip(self.weights, self.biases, strict=True)
        ]
        return Stack([first, *rest], self.kind)


def _head(inputs: int, outputs: int, gain: float) -> nn.Linear:
    head = nn.Linear(inputs, outputs)
    with torch.no_grad():
        head.weight.copy_(_orthogonal((outputs, inputs), gain))
        head.bias.zero_()
    return head


class ActorCritic(ExecutionModule):
    """Actor-critic network: observations to policy parameters and values.

    Images (C, H, W) or (H, W, C) uint8 pass one CNN. All other observations are flattened and pass towers of
    dense layers; uint8 vectors, such as a console's memory, are scaled to 0..1.

    Args:
        shape: of one observation.
        dtype: its numpy name.
        outputs: policy parameters per observation, the number of actions or of means.
        hidden: widths of the dense layers; a CNN uses only the last.
        shared: one tower for policy and value instead of one each (a CNN is always shared).
        activation: of the dense layers.
        normalize: subtract running means and divide by running deviations, of images pixel by pixel.
        log_std: initial logarithm of a state-independent standard deviation; None: there is none.
        frame_deltas: of stacked vectors, see :class:`parl.nets.normalizer.Flattener`.
        images: convolutions, see :func:`parl.nets.make_torso`.
        torso: replaces the CNN; has ``features`` outputs, which policy and value share.
        own: torsos of a user, in place of all others: one that policy and value share, or one each.
        inputs: prepares observations for ``own``.

    Raises:
        ValueError: ``hidden`` is empty or a width is below 1.
    """

    branches: tuple[int, ...] = ()
    """Of MultiDiscrete actions: number of logits of each choice, see :class:`parl.types.EnvSpec`."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str,
        outputs: int,
        hidden: Sequence[int],
        shared: bool,
        activation: Activation,
        normalize: bool,
        log_std: float | None = None,
        frame_deltas: bool = False,
        images: str = "nature",
        torso: nn.Module | None = None,
        own: Sequence[nn.Module] = (),
        inputs: Flattener | None = None,
    ) -> None:
        super().__init__()
        if not hidden or min(hidden) < 1:
            raise ValueError(f"hidden = {list(hidden)}: at least one width of at least 1 is needed")
        self.image = not own and (torso is not None or is_image(shape, dtype))
        self.own = nn.ModuleList(own)
        features = hidden[-1]
        if inputs is not None:
            self.flattener = inputs
            features = int(cast("Any", own[0]).features)
        elif self.image:
            if normalize:
                self.flattener = PixelNormalizer(shape)
            self.cnn = torso or make_torso(shape, dtype, hidden, False, images)
            for layer in self.cnn.modules():
                if isinstance(layer, nn.Conv2d | nn.Linear):
                    nn.init.orthogonal_(layer.weight, math.sqrt(2))
                    assert layer.bias is not None
                    nn.init.zeros_(layer.bias)
        else:
            self.flattener = Flattener(shape, dtype, normalize, frame_deltas)
            self.towers = Towers(self.flattener.inputs, hidden, 1 if shared else 2, activation)
        self.policy = _head(features, outputs, 0.01)
        self.value = _head(features, 1, 1.0)
        self.log_std = None if log_std is None else nn.Parameter(torch.full((outputs,), log_std))
        self._dense: MLPWithHeads | None = None

    def bind(self) -> None:
        """See :func:`parl.nets.flatten`."""
        if self.image:
            return
        if len(self.own):
            torsos = [one for one in self.own if isinstance(one, UserModule)]
            if len(torsos) == len(self.own):  # not of dictionaries
                heads = [head(0, self.policy), head(len(torsos) - 1, self.value, scalar=True)]
                self._dense = with_heads(torsos, heads)
            return
        heads = [head(0, self.policy), head(self.towers.towers - 1, self.value, scalar=True)]
        self._dense = MLPWithHeads(self.towers.stack(), heads, self.policy.weight)

    def _features(self, observations: Tensor) -> Tensor | list[Tensor]:
        if self.image:
            if hasattr(self, "flattener"):
                observations = self.flattener(observations)
            return self.cnn(observations).unsqueeze(0)
        if len(self.own):
            x = self.flattener(observations)
            return [torso(x) for torso in self.own]
        return self.towers(self.flattener(observations))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns policy parameters (B, outputs) and values (B,), float32."""
        if self.use_bf16:
            with autocast_bf16(observations.device):
                features = self._features(observations)
                policy, value = in_float32(self.policy, features[0]), in_float32(self.value, features[-1])
            return policy, value.squeeze(1)
        if self._dense is not None:
            x = self._vectors(observations)
            if self._dense.accepts(x):
                policy, value = self._dense.outputs(x)
                return policy, value
        features = self._features(observations)
        return self.policy(features[0]), self.value(features[-1]).squeeze(1)

    def _vectors(self, observations: Tensor) -> Tensor:
        x = self.flattener(observations)
        return x if x.dim() == 2 else x.flatten(1)

    def act(self, observations: Array) -> Array:
        """Returns policy parameters (B, outputs) for observations (B, ...), both numpy; no gradient."""
        if self._dense is not None:
            found = self._dense.act(self.flattener.vectors(observations), 0)
            if found is not None:
                return found
        return self.policy_of(torch.from_numpy(observations)).numpy()

    def policy_of(self, observations: Tensor) -> Tensor:
        """Returns policy parameters (B, outputs) only; no gradient."""
        return self._one(observations, 0)

    def value_of(self, observations: Tensor) -> Tensor:
        """Returns values (B,) only; no gradient."""
        return self._one(observations, 1)

    def _one(self, observations: Tensor, number: int) -> Tensor:
        with torch.no_grad():
            if self._dense is not None and not self.use_bf16:
                x = self._vectors(observations)
                if self._dense.accepts(x):
                    return self._dense.output(x, number)
            return self(observations)[number]


class UserActorCritic(ExecutionModule):
    """As :class:`ActorCritic`, with a user's network, which returns policy parameters and values.

    Args:
        network: the user's network.
        inputs: prepares observations for it.
        outputs: policy parameters per observation.
        log_std: initial logarithm of a state-independent standard deviation; None: there is none.
    """

    branches: tuple[int, ...] = ()
    """See :class:`ActorCritic`."""

    def __init__(self, network: nn.Module, inputs: Flattener, outputs: int, log_std: float | None) -> None:
        super().__init__()
        self.flattener = inputs
        self.network = network
        self.log_std = None if log_std is None else nn.Parameter(torch.full((outputs,), log_std))

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns policy parameters (B, outputs) and values (B,), float32."""
        policy, value = self.network(self.flattener(observations))
        return policy, value

    def act(self, observations: Array) -> Array:
        """Returns policy parameters (B, outputs) for observations (B, ...), both numpy; no gradient."""
        return self.policy_of(torch.from_numpy(observations)).numpy()

    def policy_of(self, observations: Tensor) -> Tensor:
        """Returns policy parameters (B, outputs) only; no gradient."""
        with torch.no_grad():
            return self(observations)[0]

    def value_of(self, observations: Tensor) -> Tensor:
        """Returns values (B,) only; no gradient."""
        with torch.no_grad():
            return self(observations)[1]
