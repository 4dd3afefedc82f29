"""The gradients of an update: by torch's autograd, and replayed without it where the networks are small."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from parl.nets.fused.record import NotReplayableError, Program, recorded, same
from parl.types import Array

Function = Callable[..., Mapping[str, Tensor]]
Run = Callable[..., dict[str, Array]]
# Numbers in a tensor from which the arithmetic costs more than starting it, and torch has threads for it.
_MANY = 2**16
# Kinds of batches of which each has a recording of its own; with more of them, updates are run by torch.
_MOST_RECORDINGS = 8


class Update:
    """``function(*tensors)``, which makes gradients and returns figures, from tensors to arrays of the CPU.

    The first call is recorded and written down as numpy (:mod:`parl.nets.fused.record`); later ones replay
    that. The results are compared with torch's at the first three calls, the first with tensors of other
    shapes, and each call whose number is a power of two. Where they differ, or where an update cannot be
    replayed, a warning says so once, and torch runs it from then on. Updates without a network of
    :mod:`parl.nets.fused` are torch's from the first.

    As in a CUDA graph, numbers of Python are those of the recorded call: what changes between calls is to be
    given as a tensor, random numbers too.

    Args:
        function: zeroes ``gradients``, makes them, and returns tensors by name; it changes nothing else that
            lasts.
        gradients: flat float32 on the CPU.
        replay: False: always by torch.
    """

    replays_at_all = True
    """False: every update is torch's."""

    def __init__(self, function: Function, gradients: Tensor, replay: bool = True) -> None:
        self._function, self._gradients = function, gradients
        self._replays = replay and self.replays_at_all and gradients.device.type == "cpu"
        # By the shapes of the tensors: what replays them, and the calls of its program so far.
        self._longest = 0.0
        self._runs: dict[Any, tuple[Run | None, list[int]]] = {}
        self._programs: list[tuple[Any, Program, list[int]]] = []

    @property
    def replays(self) -> bool:
        """Whether calls are replayed, as far as is known yet."""
        return self._replays

    def __call__(self, *tensors: Tensor) -> dict[str, Array]:
        """Writes the gradients; returns what ``function`` returns, as arrays."""
        if not self._replays:
            return self._by_torch(tensors)
        if not self._runs and not all(type(one) is Tensor for one in tensors):
            self._replays = False
            return self._by_torch(tensors)
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
            return self._by_torch(tensors)
        calls[0] += 1
        expected = gradients = None
        if is_new or calls[0] == 3 or not calls[0] & (calls[0] - 1):
            expected = self._by_torch(tensors)
            gradients = self._gradients.clone()
        replayed = run(*arrays)
        if expected is not None and gradients is not None:
            wrong = _difference(replayed, expected) or ("" if self._is_near(gradients) else "the gradient")
            if wrong:
                return self._give_up(f"{wrong} differs from torch's at call {calls[0]:,}", tensors)
        return replayed

    def _is_near(self, expected: Tensor) -> bool:
        """Whether the gradients are ``expected``; where terms cancel, what is left of them is rounding."""
        difference, length = (self._gradients - expected).norm().item(), expected.norm().item()
        self._longest = max(self._longest, length) if math.isfinite(length) else self._longest
        return not math.isfinite(length) or difference <= 2e-2 * length + 1e-4 * self._longest

    def _by_torch(self, tensors: tuple[Tensor, ...]) -> dict[str, Array]:
        with torch.enable_grad():
            return {name: one.detach().numpy() for name, one in self._function(*tensors).items()}

    def _start(self, key: Any, tensors: tuple[Tensor, ...]) -> tuple[Run | None, list[int]]:
        """What replays tensors of new shapes; None: torch shall run them."""
        if max(one.numel() for one in tensors) > _MANY:
            return None, [0]
        rows = len(tensors[0])
        inner = [(shape[1:], dtype) if shape else (shape, dtype) for shape, dtype in key]
        same_rows = all(not shape or shape[0] == rows for shape, _ in key)
        for kind, program, calls in self._programs:
            if program.general and kind == inner and same_rows:
                return program.bind(rows), calls
        if len(self._programs) == _MOST_RECORDINGS:
            raise NotReplayableError(f"there are more than {_MOST_RECORDINGS} kinds of batches")
        try:
            program = recorded(self._function, tensors, self._gradients)
        except NotReplayableError:
            raise
        except Exception as error:
            # What is wrong with the update itself is raised again by torch, which runs it next.
            raise NotReplayableError(f"recording it raised {type(error).__name__}: {error}") from error
        self._programs.append((inner, program, [0]))
        return program.bind(rows), self._programs[-1][2]

    def _give_up(self, reason: str, tensors: tuple[Tensor, ...]) -> dict[str, Array]:
        self._replays = False
        self._runs.clear()
        self._programs.clear()
        found = self._by_torch(tensors)
        if reason:
            name = getattr(self._function, "__qualname__", repr(self._function))
            message = f"updates by {name} are run by torch's autograd from now on, which is slower: {reason}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        return found


def _difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> str:
    """The name of what differs by more than float32 explains; empty if nothing does."""
    names = (name for name, one in expected.items() if not same(np.asarray(found[name]), one, 1e-3, 1e-5))
    return next(names, "")
