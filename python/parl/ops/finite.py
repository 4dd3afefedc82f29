"""Checks for NaN and infinite numbers; the errors name their position."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl._native import all_finite
from parl.errors import NonFiniteError


def check_update(priorities: np.ndarray[Any, Any], **losses: Any) -> None:
    """Raises if a loss or an error of an update is not finite.

    Args:
        priorities: (B,), absolute errors plus a constant.
        **losses: numbers, or tensors () on the CPU.

    Raises:
        NonFiniteError: names the first loss, or row of the batch, that is not finite.
    """
    for name, loss in losses.items():
        if not math.isfinite(loss):
            raise NonFiniteError(f"{name} is {float(loss)}")
    if not all_finite(priorities):
        row = int(np.flatnonzero(~np.isfinite(priorities))[0])
        raise NonFiniteError(f"the priority of row {row} of the batch is {priorities[row]}")


def with_metrics(error: NonFiniteError, when: str, figures: Mapping[str, float]) -> NonFiniteError:
    """Returns ``error`` with the update and its metrics added to the message.

    Args:
        error: from :func:`check_update`, an optimizer's step or :func:`check_state`.
        when: names the update.
        figures: result of ``metrics`` of a learner.
    """
    shown = ", ".join(f"{name} {value:.4g}" for name, value in figures.items())
    return NonFiniteError(f"{when}: {error}" + (f" ({shown})" if shown else ""))


def check_state(state: Any, what: str) -> None:
    """Raises if a state holds a number that is not finite.

    Args:
        state: result of ``state_dict``: tensors, arrays, numbers, and mappings and sequences of them.
        what: name of the state, for the message.

    Raises:
        NonFiniteError: names the first tensor that holds such a number, how many it holds and the first one.
    """
    for name, value in _leaves(state, ""):
        if isinstance(value, Tensor):
            if not (value.is_floating_point() or value.is_complex()):
                continue
            bad = ~torch.isfinite(value.detach())
            count = int(bad.sum())
            if not count:
                continue
            position = int(bad.flatten().nonzero()[0])
            first, size = value.detach().flatten()[position].item(), value.numel()
            raise NonFiniteError(
                f"{what}: {name} holds {count:,} of {size:,} numbers that are not finite, "
                f"the first is {first} at {position:,}"
            )
        if not math.isfinite(value):
            raise NonFiniteError(f"{what}: {name} is {value}")


def _leaves(state: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yields the tensors and floats of ``state``, with the keys that lead to them."""
    if isinstance(state, Mapping):
        for key, value in state.items():
            yield from _leaves(value, f"{name}.{key}" if name else str(key))
    elif isinstance(state, list | tuple):
        for index, value in enumerate(state):
            yield from _leaves(value, f"{name}[{index}]")
    elif isinstance(state, np.ndarray):
        if state.dtype.kind in "fc":
            yield name, torch.from_numpy(state)
    elif isinstance(state, Tensor | float | np.floating):
        yield name, state
