"""Settings of a user's own torso or network, which all algorithms with gradients share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from parl.errors import ConfigError
from parl.functions import PickledFunction, as_setting
from parl.nets.user import UserModule
from parl.types import EnvSpec


@dataclass(frozen=True)
class NetworkConfig:
    """Settings of a user's own torso or network."""

    algorithm_name: ClassVar[str] = "algorithm"
    """Name of the algorithm, with which error messages begin; each algorithm sets its own."""

    torso: str | Callable[[Any], nn.Module] | None = None
    """Your own torso in place of parl's: a function, or its import path module:function, that takes the
    observation space and returns an nn.Module with the attribute out_features, from observations (batch, ...)
    to features (batch, out_features)."""
    network: str | Callable[[Any, Any], nn.Module] | None = None
    """Your own network in place of parl's: a function, or its import path module:function, that takes
    observation space and action space and returns an nn.Module with the outputs of the algorithm."""

    def __post_init__(self) -> None:
        for name in ("torso", "network"):
            object.__setattr__(self, name, as_setting(name, getattr(self, name)))
        if self.torso is not None and self.network is not None:
            raise ConfigError(
                f"{self.algorithm_name}: torso = {self.torso!r} and network = {self.network!r} exclude each "
                "other"
            )

    @property
    def own(self) -> tuple[str, str | PickledFunction] | None:
        """Name and value of the one of the two settings that is set, or None."""
        for name in ("torso", "network"):
            value: Any = getattr(self, name)
            if value is not None:
                return name, value
        return None

    @property
    def convolutions(self) -> str | None:
        """Name of parl's convolutions for images; None with a user's own torso or network."""
        return None if self.own else getattr(self, "images", None)

    def replaced(self, torso: Iterable[str], network: Iterable[str]) -> dict[str, str]:
        """Returns the settings that have no effect with a user's own torso or network, with reasons.

        Args:
            torso: settings that both replace.
            network: settings that only a network replaces.
        """
        if self.own is None:
            return {}
        names = (*torso, *network) if self.network is not None else torso
        return dict.fromkeys(names, f"{self.own[0]} = {self.own[1]!r}")

    def make_own(self, spec: EnvSpec) -> UserModule:
        """Makes the torso or network for an environment."""
        assert self.own is not None
        normalized = getattr(self, "normalize_observations", False)
        return UserModule(self.algorithm_name, *self.own, spec, normalized)
