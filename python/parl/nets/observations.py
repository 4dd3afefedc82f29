"""Encoders: vectors are flattened, images pass convolutions, dictionaries have an encoder for each part."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from parl.errors import ConfigError
from parl.nets.torsos import LEAST_SIZE, MLP, ImageTorso, is_channels_last, make_torso
from parl.ops.execution import ExecutionModule, autocast_bf16
from parl.types import EnvSpec, ObservationKind, Observations, is_image

Seen = Tensor | Mapping[str, Tensor]
"""Observations as tensors (B, ...), or such a tensor for each part of a dictionary."""


def tensors_of(observations: Observations) -> Any:
    """Returns tensors that share the memory of ``observations``."""
    if isinstance(observations, Mapping):
        return {name: torch.from_numpy(part) for name, part in observations.items()}
    return torch.from_numpy(observations)


def count_of(observations: Observations) -> int:
    """Returns N, the number of observations."""
    return len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)


def check_observations(
    name: str,
    spec: EnvSpec,
    kinds: Sequence[ObservationKind] = ("vector", "image", "dict"),
    images: str | None = "nature",
) -> None:
    """Refuses observations that algorithm ``name`` does not support.

    Args:
        name: of the algorithm.
        spec: describes the observations.
        kinds: that the algorithm supports.
        images: the name of the convolutions for images; None: those of the user.

    Raises:
        ConfigError: names the algorithm, the kind and the shape.
    """
    kind = spec.observation_kind
    parts = spec.observation_parts or (("", spec.observation_shape, spec.observation_dtype),)
    if kind not in kinds:
        shown = ", ".join(f"{part} {shape}".strip() for part, shape, _ in parts)
        raise ConfigError(
            f"{name} takes observations of kind {', '.join(kinds)}; this environment's are of kind {kind} "
            f"({shown}): wrap it, say in gymnasium's FlattenObservation, or use another algorithm"
        )
    for part, shape, dtype in parts:
        if np.dtype(dtype).kind not in "fiub":
            raise ConfigError(f"{name}: observation {part or spec.observation_shape} has dtype {dtype}")
        rows, columns = shape[:2] if is_channels_last(shape) else shape[1:] if len(shape) == 3 else (0, 0)
        least = LEAST_SIZE.get(images or "", 0)
        if is_image(shape, dtype) and min(rows, columns) < least:
            raise ConfigError(
                f"{name}: images of {shape} are below {least} x {least}, too small for "
                f"images = {images!r}: use another value of images"
            )


def check_vector(setting: str, spec: EnvSpec) -> None:
    """Refuses observations that are not vectors, for a setting that is True.

    Raises:
        ConfigError: names the setting and the observations.
    """
    if spec.observation_kind != "vector":
        kind = "a dictionary" if spec.observation_parts else f"images {spec.observation_shape}"
        raise ConfigError(f"{setting} = True is for vectors; this environment's observations are {kind}")


def check_stacked(spec: EnvSpec) -> None:
    """Refuses observations that are not stacked vectors, for the setting ``frame_deltas``.

    Raises:
        ConfigError: names the setting and the observations.
    """
    check_vector("frame_deltas", spec)
    shape = spec.observation_shape
    if len(shape) != 2:
        raise ConfigError(
            f"frame_deltas = True needs stacked vectors (K, features); observations have shape {shape}"
        )


def check_actions(name: str, spec: EnvSpec, *kinds: Literal["discrete", "continuous"]) -> None:
    """Refuses actions that algorithm ``name`` does not support.

    Args:
        name: of the algorithm.
        spec: describes the actions.
        kinds: that the algorithm supports: ``discrete`` is one choice, ``continuous`` numbers.

    Raises:
        ConfigError: names the action space, and algorithms that support it.
    """
    kind = "discrete" if spec.num_actions else "several" if spec.action_branches else "continuous"
    if kind in kinds:
        return
    able = {
        "discrete": "dqn, ppo or sac",
        "continuous": "sac, td3 or ppo",
        "several": "a2c, a3c, ga3c, impala or ppo",
    }
    raise ConfigError(
        f"{name} needs a {' or '.join(kinds)} action space; this environment's is {spec.action_space}: use "
        f"{able[kind]}"
    )


def warn_unreached_bounds(name: str, spec: EnvSpec, deviation: float, stacklevel: int) -> None:
    """Warns if all actions of the first policy are clipped to one bound.

    Args:
        name: of the algorithm.
        spec: describes the actions.
        deviation: standard deviation of the first policy's actions, whose mean is about 0.
        stacklevel: level of the code that is warned, as for ``warnings.warn`` called by the caller.
    """
    for low, high in zip(spec.action_low, spec.action_high, strict=True):
        if low >= 3 * deviation or high <= -3 * deviation:
            warnings.warn(
                f"{name}: actions are in {low:g}..{high:g}, but those of the first policy are about 0 +- "
                f"{deviation:g} and are all clipped to one bound, from which nothing can be learned: wrap "
                "the environment in gymnasium.wrappers:RescaleAction(min_action=-1.0,max_action=1.0)",
                stacklevel=stacklevel + 1,
            )
            return


class Encoder(ExecutionModule):
    """Observations to features (B, ``features``) float32.

    Vectors are flattened, without weights. Images pass convolutions and a dense layer. Each part of a
    dictionary is encoded in this way, and the features of all parts are concatenated.

    Args:
        spec: describes the observations.
        width: of the dense layer after an image's convolutions.
        images: the convolutions, see :func:`parl.nets.make_torso`.
        layer_norm: normalize before that layer's ReLU.
    """

    def __init__(self, spec: EnvSpec, width: int, images: str, layer_norm: bool = False) -> None:
        super().__init__()
        self._parts = spec.observation_parts
        self.torsos = nn.ModuleDict()
        self.features = 0
        for name, shape, dtype in self._parts or (("", spec.observation_shape, spec.observation_dtype),):
            if is_image(shape, dtype):
                torso = make_torso(shape, dtype, (width,), layer_norm, images)
                self.torsos[_key(name)] = torso
                self.features += torso.features
            else:
                self.features += math.prod(shape)

    @property
    def image_torso(self) -> ImageTorso:
        """The torso of observations that are one image."""
        return cast("ImageTorso", self.torsos[_key("")])

    def forward(self, observations: Seen) -> Tensor:
        """See the class."""
        if isinstance(observations, Mapping):
            return torch.cat([self._one(name, observations[name]) for name, _, _ in self._parts], dim=1)
        return self._one("", observations)

    def _one(self, name: str, observations: Tensor) -> Tensor:
        key = _key(name)
        if key in self.torsos:
            if not self.use_bf16:
                return self.torsos[key](observations)
            with autocast_bf16(observations.device):
                return self.torsos[key](observations).to(torch.float32)
        return observations.reshape(observations.shape[0], -1).to(torch.float32)


def _key(name: str) -> str:
    # Names of submodules must not contain dots or equal the names of a module's own methods.
    return "part_" + name.replace(".", "/")


class DictTorso(nn.Module):
    """An :class:`Encoder` followed by dense layers: observations to features (B, hidden[-1]).

    Args:
        spec: describes the observations.
        hidden: widths of the dense layers; images first pass one more of the last width.
        layer_norm: normalize each dense layer before its ReLU.
        images: the convolutions.
    """

    def __init__(self, spec: EnvSpec, hidden: Sequence[int], layer_norm: bool, images: str) -> None:
        super().__init__()
        self.encoder = Encoder(spec, hidden[-1], images, layer_norm)
        self.layers = MLP(self.encoder.features, hidden, layer_norm)
        self.features = self.layers.features

    def forward(self, observations: Seen) -> Tensor:
        """See the class."""
        return self.layers(self.encoder(observations))


class RowTorso(nn.Module):
    """A network for dictionaries on rows of bytes, the form in which rollouts store them.

    Input (B, bytes) uint8, see :attr:`parl.types.EnvSpec.flat_row`, or the dictionary's parts (B, ...).

    Args:
        spec: describes the observations.
        torso: takes the dictionary's parts, such as :class:`DictTorso`.
    """

    def __init__(self, spec: EnvSpec, torso: nn.Module) -> None:
        super().__init__()
        self.torso = torso
        self.features: int = cast("Any", torso).features
        self._parts: list[tuple[str, tuple[int, ...], torch.dtype, int, int]] = []
        start = 0
        for name, shape, dtype in spec.observation_parts:
            end = start + math.prod(shape) * np.dtype(dtype).itemsize
            self._parts.append((name, shape, torch.from_numpy(np.empty(0, dtype)).dtype, start, end))
            start = end

    def parts(self, rows: Tensor) -> dict[str, Tensor]:
        """Converts rows (B, bytes) uint8 to the dictionary's parts (B, ...)."""
        return {
            name: rows[:, start:end].clone(memory_format=torch.contiguous_format).view(dtype).view(-1, *shape)
            for name, shape, dtype, start, end in self._parts
        }

    def forward(self, rows: Seen) -> Any:
        """Returns the network's outputs."""
        return self.torso(self.parts(rows) if isinstance(rows, Tensor) else rows)


def torso_for(
    spec: EnvSpec, hidden: Sequence[int], layer_norm: bool, images: str, dense: bool = True
) -> nn.Module:
    """Creates the torso for ``spec``, see :func:`parl.nets.make_torso`; its output width is ``features``."""
    if spec.observation_parts:
        return DictTorso(spec, hidden, layer_norm, images)
    return make_torso(spec.observation_shape, spec.observation_dtype, hidden, layer_norm, images, dense)
