"""Sequence replay for recurrent agents: sequences of steps sampled by priority, with their first state.

Source: Kapturowski et al. (2019), "Recurrent Experience Replay in Distributed Reinforcement Learning".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from parl.replay.fields import array_of, refuse_masked, unsigned
from parl.replay.prioritized import Autoreset, Compression, PrioritizedReplay
from parl.signatures import show_init

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from parl.replay.fields import FieldSpec


@show_init
class SequenceReplay(PrioritizedReplay):
    """Replay that samples sequences of up to ``length`` steps of one episode by their priorities.

    Rows are added step by step as to a :class:`PrioritizedReplay`, and each is stored once. A sequence starts
    every ``length - overlap`` steps of an episode and ends after ``length`` steps or with the episode. A
    shorter sequence at the end of an episode is left out if the sequence before it contains all its steps, or
    if it has no step after the burn-in.

    Batches are time first. With T = ``length``:

    - ``obs`` and every other observation without a ``next_`` field: (T + 1, B, *shape), the observation of
      each step and the one after the last; with ``frame_stack`` (T + 1, B, frame_stack, *shape).
    - ``state`` and ``state_*``, the recurrent state before the first step: (B, *shape).
    - all other fields, such as ``reward``, ``terminated`` and ``truncated``: (T, B, *shape).
    - ``discount``: (T, B) float32, gamma (times the row's field ``discount``), or 0 where the episode
      terminated.
    - ``mask``: (T, B) bool, true for the steps of the sequence. Steps after its end are false and hold zeros.
    - ``indices``, ``weights``, ``tickets``: (B,), as in :meth:`PrioritizedReplay.sample`.

    Args:
        capacity: number of rows (steps) kept; then the oldest are overwritten.
        fields: as of :class:`PrioritizedReplay`; ``terminated`` and ``reward`` are required.
        length: number of steps T of a sequence, burn-in included.
        overlap: number of steps that a sequence shares with the previous one of its episode.
        burn_in: number of steps at the start of a sequence that only compute the recurrent state; they do not
            affect the priority.
        eta: the priority of a sequence is ``eta * max + (1 - eta) * mean`` of the absolute TD errors of its
            steps.
        alpha: exponent of the priority.
        gamma: discount per step.
        epsilon: added to the priority.
        fan_out: children per node of the sum tree: 4, 8, 16, 32 or 64.
        num_envs: number of environments; ``env_id`` is in ``0..num_envs``.
        autoreset: autoreset mode of the environments, as of :class:`PrioritizedReplay`.
        shared: name of the shared memory; created, or attached to if a process already uses it.
        path: a file that is mapped into memory and holds the replay.
        seed: seed of the sampling.
        weight_norm: ``"batch"`` or ``"global"``, as of :class:`PrioritizedReplay`.
        frame_stack: number of frames in a stack, as of :class:`PrioritizedReplay`.
        stack_padding: what fills a stack before the first frame of an episode: ``"zero"`` or ``"first"``.
        compression: ``"lz4"`` or ``"none"``, as of :class:`PrioritizedReplay`.
        device: ``"cpu"``; or ``"cuda"`` or ``"cuda:<number>"`` for a replay in the memory of a CUDA device,
            which takes and returns tensors; see :class:`parl.replay.cuda.classes.CudaSequenceReplay`.

    Raises:
        ValueError: a setting is out of its bounds.
        CudaUnavailableError: there is no such CUDA device; the message says why.
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
        steps = unsigned("length", length)
        if not 1 <= steps <= 1024:
            raise ValueError(f"length is {steps}, expected 1 to 1024")
        shared_steps = unsigned("overlap", overlap)
        if shared_steps >= steps:
            raise ValueError(f"overlap is {shared_steps}, expected less than length, {steps}")
        self._make(
            capacity,
            fields,
            frame_stack,
            path=path,
            alpha=float(alpha),
            n_step=steps,
            gamma=float(gamma),
            epsilon=float(epsilon),
            fan_out=unsigned("fan_out", fan_out),
            num_envs=unsigned("num_envs", num_envs),
            autoreset=str(autoreset),
            weight_norm=str(weight_norm),
            seed=unsigned("seed", seed, 64),
            shared=shared,
            stack_padding=str(stack_padding),
            sequence=(steps - shared_steps, unsigned("burn_in", burn_in), float(eta)),
            hindsight=None,
            compression=str(compression),
            device=device,
        )

    @property
    def length(self) -> int:
        """Number of steps of a sequence, burn-in included."""
        return cast("int", self._settings["n_step"])

    @property
    def overlap(self) -> int:
        """Number of steps that a sequence shares with the previous one of its episode."""
        return self.length - cast("int", self._settings["sequence"][0])

    @property
    def burn_in(self) -> int:
        """Number of steps at the start of a sequence that only compute the recurrent state."""
        return cast("int", self._settings["sequence"][1])

    @property
    def eta(self) -> float:
        """Weight of the largest TD error in the priority of a sequence."""
        return cast("float", self._settings["sequence"][2])

    def sequence_priorities(self, td_errors: ArrayLike, mask: ArrayLike | None = None) -> NDArray[np.float64]:
        """Priorities of sequences from their TD errors.

        A priority is ``eta * max + (1 - eta) * mean`` of the absolute TD errors after the burn-in.

        Args:
            td_errors: (T, B), or (T - burn_in, B) without the burn-in; numpy or torch.
            mask: (T, B) bool, the mask of the batch; None if all sequences have T steps.

        Returns:
            (B,) float64; 0 for a sequence without a step after the burn-in.

        Raises:
            ValueError: a shape does not fit, or TD errors are masked.

        Source: Kapturowski et al. (2019), section 2.3.
        """
        refuse_masked("td_errors", td_errors)
        errors = np.abs(np.asarray(_numpy(td_errors), np.float64))
        errors = errors[self._burn_in_steps(errors.shape) :]
        if mask is None:
            valid = np.ones(errors.shape, bool)
        else:
            valid = np.asarray(_numpy(mask), bool)
            self._check_mask(valid.shape, errors.shape[1])
            valid = valid[self.burn_in :]
        errors = np.where(valid, errors, 0.0)
        count = np.maximum(valid.sum(axis=0), 1)
        return self.eta * errors.max(axis=0, initial=0.0) + (1 - self.eta) * errors.sum(axis=0) / count

    def _burn_in_steps(self, shape: tuple[int, ...]) -> int:
        """Number of burn-in steps that TD errors of this shape contain.

        Raises:
            ValueError: TD errors cannot have this shape.
        """
        length, burn_in = self.length, self.burn_in
        if len(shape) != 2 or shape[0] not in (length, length - burn_in):
            expected = f"({length}, B)" + (f" or ({length - burn_in}, B)" if burn_in else "")
            raise ValueError(f"td_errors has shape {shape}, expected {expected}")
        return burn_in if shape[0] == length else 0

    def _check_mask(self, shape: tuple[int, ...], batch_size: int) -> None:
        if shape != (self.length, batch_size):
            raise ValueError(f"mask has shape {shape}, expected {(self.length, batch_size)}")

    def update_priorities(
        self, tickets: ArrayLike, priorities: ArrayLike, mask: ArrayLike | None = None
    ) -> int:
        """Sets the priorities of sequences.

        Args:
            tickets: (B,) uint64, of the batch.
            priorities: (B,) float, or TD errors (T, B), which :meth:`sequence_priorities` converts.
            mask: (T, B) bool, the mask of the batch, for TD errors.

        Returns:
            The number of priorities that were dropped because their row had been overwritten.

        Raises:
            ValueError, IndexError: as :meth:`PrioritizedReplay.update_priorities`.
        """
        values: Any = _numpy(priorities)
        if np.ndim(values) == 2:
            if np.shape(values)[1] != np.size(tickets):
                raise ValueError(
                    f"TD errors have shape {np.shape(values)}, expected (T, {np.size(tickets)}) for "
                    f"{np.size(tickets)} tickets"
                )
            values = self.sequence_priorities(values, mask)
        return super().update_priorities(tickets, values)


def _numpy(value: Any) -> Any:
    return array_of(value) if hasattr(value, "detach") else value
