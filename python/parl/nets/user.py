"""Networks of a user's own: torsos and whole networks made by functions that settings name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from parl import functions
from parl.errors import ConfigError
from parl.functions import PickledFunction
from parl.nets.fused.chain import Chain, fuse, last_head, run_and_find_chain
from parl.nets.fused.layers import Head, MLPWithHeads
from parl.nets.normalizer import Flattener
from parl.nets.observations import RowTorso
from parl.ops.execution import ExecutionModule, autocast_bf16
from parl.types import EnvSpec

# Modules with random numbers of torch's global generator, or with running statistics.
_STATEFUL = (
    *(nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)
# Number of observations with which a new module is tried.
_TRIED = 2


def spaces_of(spec: EnvSpec) -> tuple[Any, Any]:
    """Returns observation and action space of one environment, as networks get observations.

    Observations are a ``Box``, or a ``Dict`` of them without nesting; their bounds are those of the dtype.
    """
    from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete

    def box(shape: tuple[int, ...], dtype: str) -> Any:
        kind: Any = np.dtype(dtype)
        if kind.kind == "f":
            low, high = -np.inf, np.inf
        else:
            low, high = (0, 1) if kind.kind == "b" else (np.iinfo(kind).min, np.iinfo(kind).max)
        return Box(low, high, shape, kind.type)

    if spec.observation_parts:
        observation: Any = Dict({name: box(shape, dtype) for name, shape, dtype in spec.observation_parts})
    else:
        observation = box(spec.observation_shape, spec.observation_dtype)
    if spec.num_actions:
        return observation, Discrete(spec.num_actions)
    if spec.action_branches:
        return observation, MultiDiscrete(list(spec.action_branches))
    low, high = (np.array(one, np.float32) for one in (spec.action_low, spec.action_high))
    shape = spec.action_shape
    return observation, Box(low.reshape(shape), high.reshape(shape), dtype=np.float32)


class UserPart(ExecutionModule):
    """A user's module or a part of it.

    Attributes:
        module: the user's.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Any) -> Any:
        """Returns what the module returns, in float32."""
        if not self.use_bf16:
            return self.module(*inputs)
        seen = inputs[0]
        with autocast_bf16((next(iter(seen.values())) if isinstance(seen, Mapping) else seen).device):
            found = self.module(*inputs)
        return found.float() if isinstance(found, Tensor) else tuple(one.float() for one in found)


class UserModule(UserPart):
    """A user's module, which is tried on a batch of zeros when it is made.

    Args:
        algorithm: name of the algorithm, for messages.
        setting: ``torso`` or ``network``.
        function: makes the module.
        spec: describes the environment.
        normalized: whether observations are normalized vectors, which are float32.

    Attributes:
        features: width of the output; only of a torso.
        chain: the module's layers if it is a chain of dense layers, once :meth:`expect` was called.

    Raises:
        ConfigError: the function does not return a module that suits; names the algorithm and what it gave.
    """

    def __init__(
        self,
        algorithm: str,
        setting: str,
        function: str | PickledFunction,
        spec: EnvSpec,
        normalized: bool = False,
    ) -> None:
        name = f"{algorithm}: {setting} = {function!r}"
        names = ("observation_space", "action_space")[: 1 if setting == "torso" else 2]
        given = dict(zip(names, spaces_of(spec), strict=False))
        module = functions.call(f"{algorithm}: {setting}", function, **given)
        if not isinstance(module, nn.Module):
            raise ConfigError(f"{name} returned a {type(module).__name__}, not a torch.nn.Module")
        if vars(module).setdefault("_parl_uses", 0):
            raise ConfigError(f"{name} returned a module a second time; make a new one in each call")
        vars(module)["_parl_uses"] = 1
        for part in module.modules():
            if isinstance(part, _STATEFUL) and getattr(part, "p", 1.0):
                raise ConfigError(
                    f"{name}: {type(part).__name__} has random numbers or statistics that actors and "
                    "checkpoints do not get; use LayerNorm or GroupNorm"
                )
        buffers = dict(module.named_buffers())
        if buffers:
            with torch.random.fork_rng(devices=[]):  # continues the random numbers of the first call
                other = dict(functions.call(f"{algorithm}: {setting}", function, **given).named_buffers())
            for key, buffer in buffers.items():
                lazy = nn.parameter.is_lazy(buffer)  # its values are set by the first forward pass
                if not lazy and (key not in other or not torch.equal(buffer, other[key])):
                    raise ConfigError(
                        f"{name}: buffer {key!r} is not the same in each module that the function returns, "
                        "and actors and checkpoints do not get it; make it an nn.Parameter with "
                        "requires_grad=False"
                    )
        super().__init__(module)
        self._spec, self._normalized, self._name = spec, normalized, name
        self.chain: Chain | None = None
        self.features = 0
        if setting == "torso":
            width = getattr(module, "out_features", None)
            if not isinstance(width, int) or isinstance(width, bool) or width < 1:
                raise ConfigError(
                    f"{self._name}: {type(module).__name__}.out_features is {width!r}; set it to the number "
                    "of features, an int of at least 1"
                )
            self.features = width
            self.expect(("features", (width,)))

    def expect(
        self, *outputs: tuple[str, tuple[int, ...]], part: str = "", actions: tuple[int, ...] | None = None
    ) -> None:
        """Checks the outputs for a batch of observations.

        Args:
            outputs: name of each output, and its shape for one observation; or for a batch, with -1 for the
                number of observations.
            part: name of the submodule that is called; empty: the module.
            actions: shape of actions that are passed too.

        Raises:
            ConfigError: the module fails, or an output has another shape.
        """
        if part and not isinstance(getattr(self.module, part, None), nn.Module):
            raise ConfigError(f"{self._name}: {type(self.module).__name__} has no module {part!r}")
        called = f"{self._name}{'.' * bool(part)}{part}"
        given: list[Any] = [_zeros(self._spec, self._normalized)]
        if actions is not None:
            given.append(torch.zeros(_TRIED, *actions))
        shown = _shown(given[0]) + ("" if actions is None else f" and actions {_shown(given[1])}")
        try:
            with torch.no_grad(), torch.random.fork_rng(devices=[]):
                module = getattr(self.module, part) if part else self.module
                if any(nn.parameter.is_lazy(one) for one in module.parameters()):
                    module(*given)  # makes the parameters
                buffers, generator = self._buffer_versions(), torch.get_rng_state()
                if part or self._spec.observation_parts:
                    found = module(*given)
                else:
                    found, self.chain = run_and_find_chain(self.module, given[0])
                random = not torch.equal(generator, torch.get_rng_state())
        except Exception as error:
            raise ConfigError(
                f"{called} fails on observations {shown}: {type(error).__name__}: {error}"
            ) from error
        now = self._buffer_versions()
        changed = [key for key, version in buffers.items() if now.get(key) != version]
        if random or changed:
            what = "draws random numbers" if random else f"changes its buffer {changed[0]!r}"
            raise ConfigError(f"{called} {what} in its forward pass, which actors and checkpoints do not get")
        several = found if isinstance(found, tuple | list) else (found,)
        got = ", ".join(_shown(one) for one in several)
        wanted = [_batched(shape) for _, shape in outputs]
        text = ", ".join(f"{name} {shape}" for (name, _), shape in zip(outputs, wanted, strict=True))
        if [tuple(getattr(one, "shape", ())) for one in several] != wanted or not all(
            isinstance(one, Tensor) and one.dtype == torch.float32 for one in several
        ):
            raise ConfigError(f"{called} returned {got} for observations {shown}, expected float32 {text}")

    def _buffer_versions(self) -> dict[str, tuple[int, int]]:
        """What differs for a buffer after it was changed in place or replaced."""
        return {key: (id(one), one._version) for key, one in self.module.named_buffers()}

    def vectors(self, observations: Tensor) -> Tensor:
        """Converts observations (B, *shape) to (B, inputs) for :meth:`with_heads`."""
        return observations if observations.dim() == 2 else observations.flatten(1)

    def with_heads(self, heads: Sequence[Head]) -> MLPWithHeads | None:
        """Returns the module with ``heads`` as one fused operation, see :func:`with_heads`."""
        return with_heads([self], heads)

    def as_dense(self) -> MLPWithHeads | None:
        """Returns a module whose last layer is linear as one fused operation; None if that is impossible."""
        if self.chain is None or self.chain.last is None:
            return None
        return fuse([self.chain], [last_head(self.chain)])


class UserInputs(Flattener):
    """Observations of rollouts as a user's network gets them: as they are, or normalized vectors.

    Args:
        spec: describes the observations.
        normalize: subtract running means and divide by running deviations.
    """

    def __init__(self, spec: EnvSpec, normalize: bool) -> None:
        super().__init__(spec.observation_shape, spec.observation_dtype, normalize)
        self._shape = spec.observation_shape

    def forward(self, observations: Tensor) -> Tensor:
        """Returns observations (B, *shape); rows of bytes for dictionaries."""
        if self.normalizer is None:
            return observations
        return super().forward(observations).view(-1, *self._shape)

    @staticmethod
    def on_rows(module: UserModule, spec: EnvSpec) -> nn.Module:
        """Returns ``module``, for dictionaries with rows of bytes as its input."""
        return RowTorso(spec, module) if spec.observation_parts else module


def with_heads(torsos: Sequence[UserModule], heads: Sequence[Head]) -> MLPWithHeads | None:
    """Returns torsos of dense layers with heads as one fused operation; None if that is impossible.

    Args:
        torsos: one or several, whose parameters must have been flattened.
        heads: on their features.
    """
    chains = [torso.chain for torso in torsos if torso.chain is not None and torso.chain.last is None]
    return fuse(chains, heads) if len(chains) == len(torsos) else None


def _zeros(spec: EnvSpec, normalized: bool) -> Any:
    def one(shape: tuple[int, ...], dtype: str) -> Tensor:
        return torch.zeros(_TRIED, *shape, dtype=torch.float32 if normalized else getattr(torch, dtype))

    if spec.observation_parts:
        return {name: one(shape, dtype) for name, shape, dtype in spec.observation_parts}
    return one(spec.observation_shape, spec.observation_dtype)


def _batched(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of an output for the tried batch, which is -1 in ``shape``; without -1 it comes first."""
    return tuple(_TRIED if size == -1 else size for size in shape) if -1 in shape else (_TRIED, *shape)


def _shown(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_shown(part)}" for name, part in value.items()) + "}"
    return f"a {type(value).__name__}"
