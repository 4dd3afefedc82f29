"""Sequence replay for recurrent agents: runs of steps drawn by priority, with the state they begin with.

Source: Kapturowski et al. (2019), "Recurrent Experience Replay in Distributed Reinforcement Learning".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from parl.replay.fields import natural
from parl.replay.prioritized import Autoreset, Compression, PrioritizedReplay

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from parl.replay.fields import FieldSpec


class SequenceReplay(PrioritizedReplay):
    """Sequences of ``length`` steps of one episode, drawn in proportion to their priorities.

    Rows are added step by step as to a :class:`PrioritizedReplay`, and each is stored once. Every
    ``length - overlap`` steps of an episode a sequence begins; it ends after ``length`` steps or with the
    episode, never beyond. A shorter one at the end of an episode is left out if all its steps are in the
    sequence before it, or if none would be left after the burn-in.

    Batches are time first. With T = ``length``:

    - ``obs`` and every other observation without a ``next_`` field: (T + 1, B, *shape), step t's observation
      and, one later, the one after it; with ``frame_stack`` (T + 1, B, frame_stack, *shape).
    - ``state`` and ``state_*``, the recurrent state before the first step: (B, *shape).
    - all other fields, ``reward``, ``terminated``, ``truncated`` among them, of each step: (T, B, *shape).
    - ``discount``: (T, B) float32, gamma (times the row's own discount), or 0 where the episode terminated.
    - ``mask``: (T, B) bool, which steps there are; the others hold 0. They are always the last ones.
    - ``indices``, ``weights``, ``tickets``: (B,), as ever.

    Args:
        capacity: rows (steps) kept; the oldest are overwritten.
        fields: as of :class:`PrioritizedReplay`; ``terminated`` and ``reward`` are needed.
        length: T, steps of a sequence, burn-in included.
        overlap: steps that a sequence shares with the one before it in its episode.
        burn_in: steps at its start that only warm the state up: they count for no priority.
        eta: priority of a sequence: ``eta * max + (1 - eta) * mean`` of its steps' absolute TD errors.
        alpha: exponent of the priority.
        gamma: discount per step.
        epsilon: added to the priority.
        fan_out: children per node of the sum tree.
        num_envs: environments are numbered ``0..num_envs``.
        autoreset: as in gymnasium.
        shared: name of shared memory.
        path: of a file to keep everything in.
        seed: of the draws.
        weight_norm: ``"batch"`` or ``"global"``.
        frame_stack: frames of stacks.
        stack_padding: ``"zero"`` or ``"first"``.
        compression: ``"lz4"`` for rows of many bytes.
        device: ``"cpu"``; or ``"cuda"``, ``"cuda:<number>"``: in the memory of a device, with tensors in and
            out; see :class:`parl.replay.device.kinds.DeviceSequenceReplay`.

    Raises:
        ValueError: a setting is out of its bounds.
        CudaUnavailableError: there is no such device; the message says why.
    """

    _has_sequences: ClassVar[bool] = True

    def __init__(
        self,
        capacity: int,
        fields: Mapping[str, FieldSpec],
        *,
        length: int,
        overlap: int = 0,
        burn_in: int = 0,
        eta: float = 0.9,
        alpha: float = 0.9,
        gamma: float = 0.99,
        epsilon: float = 1e-6,
        fan_out: int = 16,
        num_envs: int = 1024,
        autoreset: Autoreset = "next_step",
        shared: str | None = None,
        path: str | os.PathLike[str] | None = None,
        seed: int = 0,
        weight_norm: Literal["batch", "global"] = "batch",
        frame_stack: int | Mapping[str, int] = 1,
        stack_padding: Literal["zero", "first"] = "zero",
        compression: Compression = "none",
        device: str = "cpu",
    ) -> None:
        self._hindsight = None
        steps = natural("length", length)
        if not 1 <= steps <= 1024:
            raise ValueError(f"length {steps} is outside 1..=1024")
        shared_steps = natural("overlap", overlap)
        if shared_steps >= steps:
            raise ValueError(f"overlap {shared_steps} is outside 0..{steps} (the length)")
        self._make(
            capacity,
            fields,
            frame_stack,
            path=path,
            alpha=float(alpha),
            n_step=steps,
            gamma=float(gamma),
            epsilon=float(epsilon),
            fan_out=natural("fan_out", fan_out),
            num_envs=natural("num_envs", num_envs),
            autoreset=str(autoreset),
            weight_norm=str(weight_norm),
            seed=int(seed) & (2**64 - 1),
            shared=shared,
            stack_padding=str(stack_padding),
            sequence=(steps - shared_steps, natural("burn_in", burn_in), float(eta)),
            hindsight=None,
            compression=str(compression),
            combining=False,
            device=device,
        )

    @property
    def length(self) -> int:
        """Steps of a sequence, burn-in included."""
        return cast("int", self._settings["n_step"])

    @property
    def overlap(self) -> int:
        """Steps that a sequence shares with the one before it."""
        return self.length - cast("int", self._settings["sequence"][0])

    @property
    def burn_in(self) -> int:
        """Steps at the start of a sequence that only warm the state up."""
        return cast("int", self._settings["sequence"][1])

    @property
    def eta(self) -> float:
        """Share of the largest TD error in a priority."""
        return cast("float", self._settings["sequence"][2])

    def sequence_priorities(self, td_errors: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
        """``eta * max + (1 - eta) * mean`` of each sequence's absolute TD errors after the burn-in.

        Args:
            td_errors: (T, B), numpy or torch, or (T - burn_in, B) without the burn-in.
            mask: (T, B) bool, the batch's; by default all steps are there.

        Returns:
            (B,) float64; 0 for a sequence without a step after the burn-in.

        Raises:
            ValueError: the shapes disagree.
        """
        errors = np.abs(np.asarray(_numpy(td_errors), np.float64))
        errors = errors[self._burnt_in(errors.shape) :]
        if mask is None:
            there = np.ones(errors.shape, bool)
        else:
            there = np.asarray(_numpy(mask), bool)
            self._check_mask(there.shape, errors.shape[1])
            there = there[self.burn_in :]
        errors = np.where(there, errors, 0.0)
        count = np.maximum(there.sum(axis=0), 1)
        return self.eta * errors.max(axis=0, initial=0.0) + (1 - self.eta) * errors.sum(axis=0) / count

    def _burnt_in(self, shape: tuple[int, ...]) -> int:
        """Steps at the start of TD errors of this shape that count for nothing.

        Raises:
            ValueError: the shape is none of TD errors.
        """
        length, burn_in = self.length, self.burn_in
        if len(shape) != 2 or shape[0] not in (length, length - burn_in):
            wanted = f"({length}, B)" + (f" or ({length - burn_in}, B)" if burn_in else "")
            raise ValueError(f"td_errors has shape {shape}, expected {wanted}")
        return burn_in if shape[0] == length else 0

    def _check_mask(self, shape: tuple[int, ...], batch_size: int) -> None:
        if shape != (self.length, batch_size):
            raise ValueError(f"mask has shape {shape}, expected {(self.length, batch_size)}")

    def update_priorities(
        self, tickets: ArrayLike, priorities: ArrayLike, mask: ArrayLike | None = None
    ) -> int:
        """Gives sequences new priorities.

        Args:
            tickets: (B,) uint64, of the batch.
            priorities: (B,), or TD errors (T, B) that :meth:`sequence_priorities` makes them of.
            mask: (T, B) bool, the batch's, with TD errors.

        Returns:
            how many were dropped because their row had been overwritten.
        """
        values: Any = _numpy(priorities)
        if np.ndim(values) == 2:
            values = self.sequence_priorities(values, mask)
        return super().update_priorities(tickets, values)


def _numpy(value: Any) -> Any:
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value
