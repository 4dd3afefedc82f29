"""Gradients of an update, computed by torch's autograd or, for small networks, by replaying a recording."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl.nets.fused.record import NotReplayableError, Program, record_update, same
from parl.types import Array

Function = Callable[..., Mapping[str, Tensor]]
Run = Callable[..., dict[str, Array]]
# Largest tensor of a replayed update: above, arithmetic costs more than starting it, and torch has threads.
_MAX_REPLAYED_SIZE = 2**16
# Largest number of recordings, one for each combination of shapes; with more, torch runs the updates.
_MAX_RECORDINGS = 8


def may_replay(learner: object) -> bool:
    """Returns whether updates of a learner may be replayed: it is of a class of parl, or its class says so.

    The loss of a class derived from one of parl's may use Python numbers that change between updates. Its
    attribute ``replays_updates = True`` says that it uses none.
    """
    kind = type(learner)
    return kind.__module__.partition(".")[0] == "parl" or getattr(kind, "replays_updates", False) is True


class Update:
    """Runs ``function(*tensors)``, which writes gradients and returns metrics, and replays it if possible.

    The first call is recorded and translated to numpy (:mod:`parl.nets.fused.record`); later calls run the
    translation. Its results are compared with torch's in the first three calls, in the first call with other
    shapes, and in each call whose number is a power of two. If they differ, or if the update cannot be
    replayed, a warning gives the reason, once, and torch runs all later updates. Updates without a network
    of :mod:`parl.nets.fused` always run in torch.

    As in a CUDA graph, Python numbers keep the values of the recorded call: pass everything that changes
    between calls as a tensor, random numbers too.

    Args:
        function: zeroes and writes ``gradients``, and returns tensors by name; has no other lasting effect.
        gradients: flat float32 on the CPU.
        replay: False: torch runs all updates.
    """

    replays_at_all = True
    """False: torch runs all updates of all instances."""

    def __init__(self, function: Function, gradients: Tensor, replay: bool = True) -> None:
        self._function, self._gradients = function, gradients
        self._replays = replay and self.replays_at_all and gradients.device.type == "cpu"
        self._largest_norm = 0.0  # largest norm of the gradient so far
        # For each combination of shapes: the function that replays it, and the number of its program's calls.
        self._runs: dict[Any, tuple[Run | None, list[int]]] = {}
        self._programs: list[tuple[Any, Program, list[int]]] = []

    @property
    def replays(self) -> bool:
        """Whether calls are replayed; False once a call could not be."""
        return self._replays

    def __call__(self, *tensors: Tensor) -> dict[str, Array]:
        """Writes the gradients; returns what ``function`` returns, as arrays."""
        if not self._replays:
            return self._run_in_torch(tensors)
        if not self._runs and not all(type(one) is Tensor for one in tensors):
            self._replays = False
            return self._run_in_torch(tensors)
        arrays = [one.numpy() for one in tensors]
        found = self._runs.get(key := tuple([(one.shape, one.dtype.char) for one in arrays]))
        is_new = found is None
        if found is None:
            try:
                found = self._runs[key] = self._start(key, tensors)
            except NotReplayableError as reason:
                return self._give_up(str(reason), tensors)
        run, calls = found
        if run is None:
            return self._run_in_torch(tensors)
        calls[0] += 1
        expected = gradients = None
        if is_new or calls[0] == 3 or not calls[0] & (calls[0] - 1):
            expected = self._run_in_torch(tensors)
            gradients = self._gradients.clone()
        replayed = run(*arrays)
        if expected is not None and gradients is not None:
            wrong = _difference(replayed, expected) or ("" if self._is_near(gradients) else "the gradient")
            if wrong:
                return self._give_up(f"{wrong} differs from torch's at call {calls[0]:,}", tensors)
        return replayed

    def _is_near(self, expected: Tensor) -> bool:
        """Returns whether the gradients are near ``expected``; where terms cancel, rounding errors remain."""
        difference, length = (self._gradients - expected).norm().item(), expected.norm().item()
        self._largest_norm = max(self._largest_norm, length) if math.isfinite(length) else self._largest_norm
        return not math.isfinite(length) or difference <= 2e-2 * length + 1e-4 * self._largest_norm

    def _run_in_torch(self, tensors: tuple[Tensor, ...]) -> dict[str, Array]:
        with torch.enable_grad():
            return {name: one.detach().numpy() for name, one in self._function(*tensors).items()}

    def _start(self, key: Any, tensors: tuple[Tensor, ...]) -> tuple[Run | None, list[int]]:
        """Returns what replays tensors of new shapes, or None if torch runs them, and its number of calls."""
        if max(one.numel() for one in tensors) > _MAX_REPLAYED_SIZE:
            return None, [0]
        rows = len(tensors[0])
        inner = [(shape[1:], dtype) if shape else (shape, dtype) for shape, dtype in key]
        # Of a single row some functions compute something else, such as advantages that are not normalized.
        same_rows = rows > 1 and all(not shape or shape[0] == rows for shape, _ in key)
        for kind, program, calls in self._programs:
            if program.general and kind == inner and same_rows:
                return program.bind(rows), calls
        if len(self._programs) == _MAX_RECORDINGS:
            raise NotReplayableError(f"there are more than {_MAX_RECORDINGS} combinations of shapes")
        try:
            program = record_update(self._function, tensors, self._gradients)
        except NotReplayableError:
            raise
        except Exception as error:
            # An error of the update itself is raised again when torch runs the update next.
            raise NotReplayableError(f"recording it raised {type(error).__name__}: {error}") from error
        self._programs.append((inner, program, [0]))
        return program.bind(rows), self._programs[-1][2]

    def _give_up(self, reason: str, tensors: tuple[Tensor, ...]) -> dict[str, Array]:
        self._replays = False
        self._runs.clear()
        self._programs.clear()
        found = self._run_in_torch(tensors)
        if reason:
            name = getattr(self._function, "__qualname__", repr(self._function))
            message = f"updates by {name} are run by torch's autograd from now on, which is slower: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return found


def _difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> str:
    """Returns the name of an array that differs by more than float32 rounding; empty if none does."""
    names = (name for name, one in expected.items() if not same(np.asarray(found[name]), one, 1e-3, 1e-5))
    return next(names, "")
