"""Policies in files that run without parl: ONNX, and the format of ``torch.export``."""

from __future__ import annotations

import copy
import importlib
import logging
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from parl.errors import ConfigError
from parl.types import RecurrentPolicy

if TYPE_CHECKING:
    from parl.train.policy import Policy

# The size of the example batch: torch.export takes sizes of 0 and 1 as constants.
_EXAMPLE = 2


class DeterministicActions(nn.Module):
    """Observations to deterministic actions, with normalization and scaling of actions.

    Args:
        policy: its network is copied.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.network = copy.deepcopy(policy.network).requires_grad_(False)
        for parameter in self.network.parameters():  # Views of one buffer, which a file would hold once each.
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
        self._greedy: Callable[..., tuple[Tensor, ...]] = policy.acting.greedy

    def forward(
        self, observation: Tensor | Mapping[str, Tensor], state: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Returns actions (N, ...).

        Args:
            observation: (N, ...), or the parts of a dictionary.
            state: of recurrent policies, (2, N, H) float32; the next state is then returned too.
        """
        return self._greedy(self.network, observation, *(() if state is None else (state,)))


def export(policy: Policy, path: str | Path) -> None:
    """Writes ``policy`` to a file; see :meth:`parl.train.policy.Policy.export`."""
    writers = {".onnx": _write_onnx, ".pt2": _write_pt2}
    path = Path(path)
    if path.suffix not in writers:
        raise ConfigError(f"{path} ends in {path.suffix!r}, expected one of {', '.join(writers)}")
    parts = policy.spec.observation_parts
    names, shapes, dtypes = (
        zip(*parts, strict=True)
        if parts
        else (("observation",), (policy.spec.observation_shape,), (policy.spec.observation_dtype,))
    )
    examples = {
        name: torch.from_numpy(np.zeros((_EXAMPLE, *shape), dtype))
        for name, shape, dtype in zip(names, shapes, dtypes, strict=True)
    }
    batch = torch.export.Dim("batch", min=1)
    observation: Any = examples if parts else examples["observation"]
    varying: Any = {name: {0: batch} for name in names} if parts else {0: batch}
    args, sizes, inputs, outputs = [observation], [varying], [*names], ["action"]
    if isinstance(policy.acting, RecurrentPolicy):
        args.append(torch.zeros(2, _EXAMPLE, policy.acting.memory.shape[2]))
        sizes.append({1: batch})
        inputs, outputs = [*names, "state"], ["action", "next_state"]
    module = DeterministicActions(policy).eval()
    writers[path.suffix](module, path, tuple(args), tuple(sizes), inputs, outputs)


def _write_pt2(
    module: nn.Module, path: Path, args: Any, sizes: Any, inputs: list[str], outputs: list[str]
) -> None:
    torch.export.save(torch.export.export(module, args, dynamic_shapes=sizes), path)


def _write_onnx(
    module: nn.Module, path: Path, args: Any, sizes: Any, inputs: list[str], outputs: list[str]
) -> None:
    try:
        for name in ("onnx", "onnxscript"):
            importlib.import_module(name)
    except ImportError as error:
        raise ConfigError("ONNX files need onnx and onnxscript: pip install 'parl-rl[export]'") from error
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)  # It warns of each library whose operations it cannot find.
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "# The axis name", UserWarning)  # One name for two equal axes.
            torch.onnx.export(
                module,
                (*args, {}),  # A mapping at the end would be taken as keywords.
                path,
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=sizes,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        log.setLevel(level)
