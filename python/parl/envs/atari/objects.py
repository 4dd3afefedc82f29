"""Observations of objects: the fields of :func:`parl.atari.objects`, made of the memory of each step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from parl.atari.object_table import ObjectField, objects
from parl.envs.atari.step_results import ENDED
from parl.errors import AtariError

if TYPE_CHECKING:
    from torch import Tensor


def fields_of(games: Sequence[str]) -> tuple[ObjectField, ...]:
    """The fields of environments that play ``games``.

    Raises:
        AtariError: there are several games, or the game has no table.
    """
    if len(games) != 1:
        raise AtariError(
            f'obs_type is "objects" with {len(games)} games, expected one: fields differ by game'
        )
    return objects(games[0])


class FieldReader:
    """Computes fields (..., F) uint8 of memories (..., 128) uint8.

    Fields of a memory of zeros are zeros: no game has one, it is the padding of a stack.
    """

    def __init__(self, fields: Sequence[ObjectField]) -> None:
        self.size = len(fields)
        self.addresses = np.array([field.address for field in fields])
        # Values of all fields in one row: entry 256 * field + byte.
        self.values = np.concatenate([field.values for field in fields])
        self.starts = np.arange(self.size) * 256

    def read(self, memory: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
        """Writes the fields of ``memory``, which is contiguous, to ``out``."""
        out[...] = self.values[memory[..., self.addresses] + self.starts]
        shown = memory.view(np.uint64).any(-1)
        if not shown.all():
            out[~shown] = 0


class TensorFieldReader:
    """As :class:`FieldReader`, for tensors on a CUDA device; does not synchronize.

    Args:
        fields: the fields.
        device: the torch device.
    """

    def __init__(self, fields: Sequence[ObjectField], device: Any) -> None:
        import torch

        reader = FieldReader(fields)
        self.size = reader.size
        self._take = torch.take
        self._addresses, self._values, self._starts = (
            torch.from_numpy(array).to(device) for array in (reader.addresses, reader.values, reader.starts)
        )

    def read(self, memory: Tensor) -> Tensor:
        """Fields (..., F) uint8 of memories (..., 128) uint8."""
        codes = memory.index_select(-1, self._addresses).long() + self._starts
        return self._take(self._values, codes) * memory.any(-1, keepdim=True)


class ObjectBatch:
    """A ``parl._native.AtariBatch`` that shows memory, with fields as observations instead.

    Args:
        batch: the environments.
        fields: of their game.
    """

    def __init__(self, batch: Any, fields: Sequence[ObjectField]) -> None:
        self._batch = batch
        self._reader = FieldReader(fields)
        self.obs_shape = [*batch.obs_shape[:-1], self._reader.size]

    def __getattr__(self, name: str) -> Any:
        if name == "_batch":  # Not made yet.
            raise AttributeError(name)
        return getattr(self._batch, name)

    def adopt(self, other: ObjectBatch) -> None:
        """As the batch's."""
        self._batch.adopt(other._batch)

    def _memory(self, shown: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.zeros((*shown.shape[:-1], 128), np.uint8)

    def reset(self, seeds: Any, mask: Any, obs: NDArray[np.uint8], *others: Any) -> Any:
        """As the batch's, with fields in ``obs``."""
        memory = self._memory(obs)
        results = self._batch.reset(seeds, mask, memory, *others)
        self._reader.read(memory, obs)
        return results

    def step(
        self, actions: Any, obs: NDArray[np.uint8], final_obs: NDArray[np.uint8] | None, *others: Any
    ) -> Any:
        """As the batch's, with fields in ``obs`` and ``final_obs``."""
        return self._run(lambda *memories: self._batch.step(actions, *memories, *others), obs, final_obs)

    def recv(self, obs: NDArray[np.uint8], final_obs: NDArray[np.uint8] | None, *others: Any) -> Any:
        """As the batch's, with fields in ``obs`` and ``final_obs``."""
        return self._run(lambda *memories: self._batch.recv(*memories, *others), obs, final_obs)

    def step_and_reset(
        self,
        envs: Any,
        actions: Any,
        seeds: Any,
        obs: NDArray[np.uint8],
        final_obs: NDArray[np.uint8] | None,
        *others: Any,
    ) -> Any:
        """As the batch's, with fields in ``obs`` and, of all rows, in ``final_obs``."""
        memory = self._memory(obs)
        before = None if final_obs is None else self._memory(final_obs)
        results = self._batch.step_and_reset(envs, actions, seeds, memory, before, *others)
        self._reader.read(memory, obs)
        if final_obs is not None and before is not None:
            self._reader.read(before, final_obs)
        return results

    def _run(self, run: Any, obs: NDArray[np.uint8], final_obs: NDArray[np.uint8] | None) -> Any:
        memory = self._memory(obs)
        before = None if final_obs is None else self._memory(final_obs)
        results = run(memory, before)
        self._reader.read(memory, obs)
        if final_obs is not None and before is not None:
            # Rows without an end stay zeros.
            self._reader.read(before, final_obs)
            final_obs[~results[1][ENDED]] = 0
        return results

    def branch(
        self,
        states: Any,
        actions: Any,
        branches: int,
        steps: int,
        obs: NDArray[np.uint8] | None,
        *others: Any,
    ) -> Any:
        """As the batch's, with fields in ``obs``."""
        memory = None if obs is None else self._memory(obs)
        results = self._batch.branch(states, actions, branches, steps, memory, *others)
        if obs is not None and memory is not None:
            self._reader.read(memory, obs)
        return results
