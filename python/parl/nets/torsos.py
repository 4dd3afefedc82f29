"""Torsos: networks from observations to features."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from parl.nets.fused.layers import Head, Layer, MLPWithHeads, Stack, layer
from parl.nets.normalizer import frame_deltas
from parl.ops.execution import ExecutionModule
from parl.types import is_image

Images = Literal["nature", "impala", "small"]
"""Names of the convolutions for images, see :data:`IMAGE_TORSOS`."""
LEAST_SIZE = {"nature": 36, "small": 20}
"""Least height and width of images for the convolutions that have no padding."""


def _floats(images: Tensor, channels_last: bool) -> Tensor:
    """Converts bytes to float32 in 0..1, just before the first convolution; leaves normalized floats."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    if images.dtype != torch.uint8:
        return images.contiguous(memory_format=layout)
    return images.to(torch.float32, memory_format=layout).mul_(1 / 255)


_FLOAT16_MAX = 65_504.0


def embeddings_of(outputs: Tensor) -> Tensor:
    """Converts outputs of convolutions (B, L) to float16, the form in which a replay stores them."""
    return outputs.clamp(max=_FLOAT16_MAX).to(torch.float16)


def is_embedding(observations: Tensor) -> bool:
    """Whether ``observations`` are embeddings: float16 outputs of convolutions in place of images."""
    return observations.dtype == torch.float16


def _number_type(device: torch.device) -> torch.dtype:
    """Returns the type in which convolutions compute: that of autocast, else float32."""
    if torch.is_autocast_enabled(device.type):
        return torch.get_autocast_dtype(device.type)
    return torch.float32


def _convolve_blocks(layer: nn.Conv2d, images: Tensor) -> Tensor:
    """Applies a convolution whose kernel is twice its stride S to bytes, divided by 255, or to floats.

    Blocks of S x S pixels become the channels of one pixel, and the kernel 2 x 2, with the same sums. Tensor
    cores of GPUs need 8 or more channels side by side; frames have fewer.

    Args:
        layer: the convolution, of C channels, without padding.
        images: (B, C, H, W) uint8 or float32.

    Returns:
        (B, outputs, H', W'), channels last.
    """
    size, channels = layer.stride[0], layer.in_channels
    rows, columns = (length // size for length in images.shape[2:])
    blocks = images[:, :, : rows * size, : columns * size].unflatten(3, (columns, size))
    blocks = blocks.unflatten(2, (rows, size)).permute(0, 2, 4, 1, 3, 5)  # (B, rows, columns, C, S, S)
    x = blocks.to(_number_type(images.device), memory_format=torch.contiguous_format).flatten(3)
    # Bytes are exact in bfloat16, their quotients are not: the weights are divided.
    weight = layer.weight * (1 / 255) if images.dtype == torch.uint8 else layer.weight
    weight = weight.view(-1, channels, 2, size, 2, size).permute(0, 2, 4, 1, 3, 5)
    return nn.functional.conv2d(x.permute(0, 3, 1, 2), weight.flatten(3).permute(0, 3, 1, 2), layer.bias)


def is_channels_last(shape: Sequence[int]) -> bool:
    """Returns whether ``shape`` is (H, W, C) and not (C, H, W).

    The two equal dimensions are height and width, as 96 in (96, 96, 6) or 7 in (7, 7, 20). If there are not
    two next to each other, the channels come last where they are the smallest dimension.
    """
    if len(shape) != 3:
        return False
    first, middle, last = shape
    if (first == middle) != (middle == last):
        return first == middle
    return last < min(first, middle)


class MLP(ExecutionModule):
    """Fully connected layers with ReLU, each optionally with layer normalization before the ReLU.

    Input (B, *shape) of any dtype, flattened; output (B, hidden[-1]) float32.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], layer_norm: bool) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers.append(nn.Linear(inputs, width))
            if layer_norm:
                layers.append(nn.LayerNorm(width))
            layers.append(nn.ReLU(inplace=True))
            inputs = width
        self.layers = nn.Sequential(*layers)
        self.features = inputs
        self._dense: MLPWithHeads | None = None

    def forward(self, observations: Tensor) -> Tensor:
        """Returns features (B, features)."""
        x = self.vectors(observations)
        if self._dense is not None and not self.torch_only and self._dense.accepts(x):
            return self._dense.outputs(x)[0]
        return self.layers(x)

    def vectors(self, observations: Tensor) -> Tensor:
        """Converts observations (B, *shape) to (B, inputs) float32."""
        if observations.dim() != 2:
            observations = observations.flatten(1)
        return observations if observations.dtype == torch.float32 else observations.to(torch.float32)

    def bind(self) -> None:
        """See :func:`parl.nets.flatten`."""
        self._dense = self.with_heads([])

    def with_heads(self, heads: Sequence[Head]) -> MLPWithHeads:
        """Returns the layers with ``heads`` as one fused operation; parameters must have been flattened."""
        found: list[Layer] = []
        modules = list(self.layers)
        for number, one in enumerate(modules):
            if isinstance(one, nn.Linear):
                norm = modules[number + 1]
                found.append(layer(one, norm if isinstance(norm, nn.LayerNorm) else None))
        return MLPWithHeads(Stack(found, "relu"), heads, next(self.parameters()))


class FrameDeltasMLP(MLP):
    """As :class:`MLP`, for stacked vectors (K, features), the newest last.

    The older vectors are replaced by the differences between neighbors. Of bytes, which wrap around at 256,
    differences are divided by 4 and clipped to -4..4, and the newest vector is divided by 64: velocities,
    which are small compared with positions, then count as much.
    """

    def vectors(self, observations: Tensor) -> Tensor:
        """Converts observations (B, K, features) to (B, inputs) float32."""
        newest, deltas = frame_deltas(observations)
        deltas = deltas.flatten(1).to(torch.float32)
        if observations.dtype != torch.uint8:
            return torch.cat([newest.to(torch.float32), deltas], dim=1)
        return torch.cat([newest.to(torch.float32) * (1 / 64), (deltas * (1 / 4)).clamp(-4, 4)], dim=1)


class _ConvolutionalTorso(ExecutionModule):
    """Convolutions and a dense layer, which also takes stored outputs of the convolutions, see :meth:`embed`.

    Args:
        shape: (C, H, W).
        convolutions: from (B, C, H, W) float32 to (B, L).
        hidden: width of the dense layer; 0: there is none.
        layer_norm: normalize before the dense layer's ReLU.
    """

    def __init__(
        self, shape: Sequence[int], convolutions: nn.Sequential, hidden: int, layer_norm: bool
    ) -> None:
        super().__init__()
        self.convolutions = convolutions
        with torch.no_grad():
            self.embedding_size: int = self.convolutions(torch.zeros(1, *shape)).shape[1]
        self.dense, self.features = _dense(self.embedding_size, hidden, layer_norm)

    def forward(self, observations: Tensor) -> Tensor:
        """Returns features (B, features)."""
        if is_embedding(observations):
            return self.dense(observations.to(torch.float32))
        return self.dense(self._convolve(observations))

    def embed(self, observations: Tensor) -> Tensor:
        """Returns the outputs of the convolutions for images, (B, L) float16."""
        return embeddings_of(self._convolve(observations))

    def _convolve(self, observations: Tensor) -> Tensor:
        return self.convolutions(_floats(observations, self.channels_last))


class NatureCNN(_ConvolutionalTorso):
    """Three convolutions and one dense layer for stacked 8-bit frames.

    Input (B, C, H, W) uint8, or float32 if normalized, H and W of at least 36, or embeddings (B, L) float16,
    see :meth:`embed`; output (B, hidden) float32. With ``hidden = 0`` there is no dense layer, and the
    features are the outputs of the convolutions.

    Attributes:
        embedding_size: L, number of outputs of the convolutions.

    Source: Mnih et al. (2015), "Human-level control through deep reinforcement learning", Methods.
    """

    sizes: ClassVar[Sequence[tuple[int, int, int]]] = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
    """Outputs, kernel size and stride of each convolution."""

    def __init__(self, shape: Sequence[int], hidden: int, layer_norm: bool) -> None:
        layers: list[nn.Module] = []
        channels = shape[0]
        for outputs, kernel, stride in self.sizes:
            layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU(inplace=True)]
            channels = outputs
        super().__init__(shape, nn.Sequential(*layers, nn.Flatten()), hidden, layer_norm)

    def _convolve(self, observations: Tensor) -> Tensor:
        if not self.channels_last:
            return super()._convolve(observations)
        first, *rest = self.convolutions
        assert isinstance(first, nn.Conv2d)
        x = _convolve_blocks(first, observations)
        for one in rest:
            x = one(x)
        return x


class SmallCNN(NatureCNN):
    """Two convolutions and one dense layer: as :class:`NatureCNN`, for H and W of at least 20.

    Source: Mnih et al. (2013), "Playing Atari with deep reinforcement learning", section 4.1.
    """

    sizes = ((16, 8, 4), (32, 4, 2))


class _Residual(nn.Module):
    """Residual block ``x + conv(relu(conv(relu(x))))``, which keeps the number of channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        return x + self.second(torch.relu_(self.first(torch.relu(x))))


class ImpalaResNet(_ConvolutionalTorso):
    """Fifteen convolutions in three residual stages, each of which halves the image, and one dense layer.

    Input (B, C, H, W) uint8, or embeddings (B, L) float16, see :meth:`embed`; output (B, hidden) float32.
    With ``hidden = 0`` there is no dense layer.

    Attributes:
        embedding_size: L, number of outputs of the convolutions.

    Args:
        shape: (C, H, W).
        hidden: width of the dense layer.
        layer_norm: normalize before the dense layer's ReLU.
        channels: of the stages; "scaled IMPALA" networks have more.

    Source: Espeholt et al. (2018), "IMPALA", figure 3, the large architecture without its LSTM.
    """

    def __init__(
        self, shape: Sequence[int], hidden: int, layer_norm: bool, channels: Sequence[int] = (16, 32, 32)
    ) -> None:
        layers: list[nn.Module] = []
        inputs = shape[0]
        for width in channels:
            layers += [
                nn.Conv2d(inputs, width, 3, padding=1),
                nn.MaxPool2d(3, stride=2, padding=1),
                _Residual(width),
                _Residual(width),
            ]
            inputs = width
        convolutions = nn.Sequential(*layers, nn.ReLU(inplace=True), nn.Flatten())
        super().__init__(shape, convolutions, hidden, layer_norm)


def _dense(inputs: int, hidden: int, layer_norm: bool) -> tuple[nn.Module, int]:
    """Returns the dense layer after convolutions, and its output width."""
    if not hidden:
        return nn.Identity(), inputs
    norm = [nn.LayerNorm(hidden)] if layer_norm else []
    return nn.Sequential(nn.Linear(inputs, hidden), *norm, nn.ReLU(inplace=True)), hidden


class ChannelsLast(nn.Module):
    """A torso for images (B, H, W, C), the layout of most of Gymnasium's environments."""

    def __init__(self, torso: NatureCNN | ImpalaResNet) -> None:
        super().__init__()
        self.torso = torso
        self.features, self.embedding_size = torso.features, torso.embedding_size

    @property
    def convolutions(self) -> nn.Sequential:
        """The convolutions."""
        return self.torso.convolutions

    def forward(self, observations: Tensor) -> Tensor:
        """Returns features (B, features)."""
        return self.torso(observations if is_embedding(observations) else observations.permute(0, 3, 1, 2))

    def embed(self, observations: Tensor) -> Tensor:
        """As that of the torso."""
        return self.torso.embed(observations.permute(0, 3, 1, 2))


def make_torso(
    shape: Sequence[int],
    dtype: str,
    hidden: Sequence[int],
    layer_norm: bool,
    image: str = "nature",
    dense: bool = True,
) -> MLP | NatureCNN | ImpalaResNet | ChannelsLast:
    """Creates the torso for an observation: convolutions for (C, H, W) uint8, else :class:`MLP`.

    (H, W, C) is supported too, see :func:`is_channels_last`.

    Args:
        shape: of one observation.
        dtype: numpy name.
        hidden: widths of the dense layers, at least one; after convolutions only the last is used.
        layer_norm: normalize before each ReLU of a dense layer.
        image: convolutions, a key of :data:`IMAGE_TORSOS`.
        dense: whether a dense layer follows the convolutions; no effect on an :class:`MLP`.

    Raises:
        ValueError: ``hidden`` is empty, a width is below 1, ``image`` is unknown.
    """
    if not hidden or min(hidden) < 1:
        raise ValueError(f"hidden = {list(hidden)}: at least one width of at least 1 is needed")
    if image not in IMAGE_TORSOS:
        raise ValueError(f"image torso {image!r} is not one of {', '.join(IMAGE_TORSOS)}")
    if is_image(shape, dtype):
        width = hidden[-1] if dense else 0
        if is_channels_last(shape):
            return ChannelsLast(IMAGE_TORSOS[image]((shape[2], *shape[:2]), width, layer_norm))
        return IMAGE_TORSOS[image](shape, width, layer_norm)
    return MLP(math.prod(shape), hidden, layer_norm)


ImageTorso = NatureCNN | ImpalaResNet | ChannelsLast

IMAGE_TORSOS: dict[str, type[NatureCNN] | type[ImpalaResNet]] = {
    "nature": NatureCNN,
    "impala": ImpalaResNet,
    "small": SmallCNN,
}
"""Convolutions for images, by name."""
