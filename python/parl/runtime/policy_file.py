"""``policy.safetensors``: the policy of a checkpoint as named tensors, which can be read without parl.

The tensors are the parameters of the network that chooses actions, with their names in
``policy.network.named_parameters()``; or ``weights`` alone if a registered algorithm names no network.
Statistics that normalize observations are among them, as ``...normalizer.mean`` and
``...normalizer.inverse_std``. The metadata names the algorithm, the version of parl, the environment's spaces
(``spec``, JSON) and the transitions of the run at that time (``env_steps``).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from parl import __version__
from parl.errors import ConfigError, RunDirectoryError
from parl.nets import copy_named, named_weights
from parl.types import EnvSpec

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save
except ImportError as error:
    raise ConfigError("checkpoints need safetensors: pip install 'parl-rl[train]'") from error

NAME = "policy.safetensors"


@dataclass(frozen=True)
class PolicyFile:
    """Content of the file.

    Attributes:
        tensors: parameters by name, on the CPU.
        algorithm: name of the algorithm.
        spec: the environment that the policy acts in.
        env_steps: transitions that the run had collected.
    """

    tensors: dict[str, Tensor]
    algorithm: str
    spec: EnvSpec
    env_steps: int


def write(folder: Path, holder: Any, algorithm: str, spec: EnvSpec, env_steps: int) -> None:
    """Writes the file into ``folder``.

    Args:
        folder: of a checkpoint.
        holder: learner or policy with the weights.
        algorithm: name of the algorithm.
        spec: the environment.
        env_steps: transitions that the run has collected.
    """
    if hasattr(holder, "network"):
        named = named_weights(holder.network)
    else:  # Of an algorithm that was registered by a user.
        named = {"weights": holder.weights}
    tensors = {
        name: tensor.cpu().clone(memory_format=torch.contiguous_format) for name, tensor in named.items()
    }
    about = {
        "format": "pt",
        "algorithm": algorithm,
        "parl": __version__,
        "spec": json.dumps(dataclasses.asdict(spec)),
        "env_steps": str(env_steps),
    }
    (folder / NAME).write_bytes(save(tensors, about))


def load_into(holder: Any, tensors: Mapping[str, Tensor]) -> None:
    """Copies the tensors of a file into the weights of a policy.

    Raises:
        ConfigError: names the first parameter that does not fit.
    """
    if hasattr(holder, "network"):
        copy_named(tensors, holder.network)
    else:
        holder.weights.copy_(tensors["weights"])


def read(path: Path) -> PolicyFile:
    """Reads the file at ``path``; runs no code of it.

    Raises:
        RunDirectoryError: it is missing, damaged, or has no metadata of parl.
    """
    try:
        with safe_open(path, "pt") as file:
            about: dict[str, str] = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}
        spec = EnvSpec(**{name: _tupled(value) for name, value in json.loads(about["spec"]).items()})
        return PolicyFile(tensors, about["algorithm"], spec, int(about["env_steps"]))
    except FileNotFoundError as error:
        raise RunDirectoryError(
            f"{path} is missing: the checkpoint was written by an older version of parl"
        ) from error
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunDirectoryError(f"{path} is damaged or not a policy of parl: {error}") from error


def _tupled(value: Any) -> Any:
    """``value`` with tuples in place of lists, which JSON makes of them."""
    return tuple(_tupled(one) for one in value) if isinstance(value, list) else value
