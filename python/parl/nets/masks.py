"""Action masks: invalid actions have probability 0, and are never those of the largest value.

The mask is the observation part :data:`parl.types.MASK` (see :mod:`parl.envs.spaces`). Networks get the
observation without it, and :func:`mask_logits` is applied to their outputs.

Source: Huang and Ontañon (2020), "A Closer Look at Invalid Action Masking in Policy Gradient Algorithms",
section 3: the logits of invalid actions are replaced by a large negative number, -1e8, so that their
probability is 0 and no gradient flows into them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from parl.nets.actor_critic import ActorCritic, UserActorCritic
from parl.nets.recurrent import RecurrentActorCritic
from parl.types import MASK, Array, EnvSpec

_LOWEST = -1e8
Logits = TypeVar("Logits", Tensor, Array)


def mask_logits(logits: Logits, mask: Logits) -> Logits:
    """Replaces logits or values (..., A) by -1e8 where ``mask`` (..., A) is 0."""
    if isinstance(logits, Tensor):
        return logits.masked_fill(mask == 0, _LOWEST)
    return np.where(mask, logits, np.float32(_LOWEST))


def without_mask(observations: Mapping[str, Any]) -> Any:
    """The observations (N, ...) of a dictionary without the mask: the only other part, or a dictionary."""
    parts = {name: part for name, part in observations.items() if name != MASK}
    return parts if len(parts) > 1 else next(iter(parts.values()))


class MaskedRows:
    """Divides rows of bytes, the form in which rollouts store dictionaries, into observation and mask.

    Args:
        spec: describes the observations, with a mask.
    """

    def __init__(self, spec: EnvSpec) -> None:
        before = 0
        for name, shape, dtype in spec.observation_parts:
            if name == MASK:
                break
            before += math.prod(shape) * np.dtype(dtype).itemsize
        self._mask = slice(before, before + spec.mask_size)
        plain = spec.without_mask
        self._shape, self._dtype = plain.flat_row
        self._tensor_dtype = torch.from_numpy(np.empty(0, self._dtype)).dtype

    def __call__(self, rows: Tensor | Mapping[str, Tensor]) -> tuple[Any, Tensor]:
        """Divides rows (..., bytes) into observations (..., *shape), or rows of them, and masks (..., M).

        A dictionary in place of rows, as in exported policies, is divided into its parts.
        """
        if not isinstance(rows, Tensor):
            return without_mask(rows), rows[MASK]
        parts = (rows[..., : self._mask.start], rows[..., self._mask.stop :])
        found = torch.cat([part for part in parts if part.shape[-1]], dim=-1)
        return found.view(self._tensor_dtype).view(*rows.shape[:-1], *self._shape), rows[..., self._mask]

    def arrays(self, rows: Array) -> tuple[Array, Array]:
        """As :meth:`__call__`, for numpy arrays."""
        found = np.delete(rows, self._mask, axis=-1)
        return found.view(self._dtype).reshape(*rows.shape[:-1], *self._shape), rows[..., self._mask]


class _Masked(nn.Module):
    """Applies the next class of the inheritance to observations without their mask, and masks its logits.

    Attributes:
        rows: divides the rows; set once the network is made.
    """

    rows: MaskedRows

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Returns masked logits (B, outputs) and values (B,) for rows (B, bytes) uint8."""
        plain, mask = self.rows(observations)
        logits, value = super().forward(plain)
        return mask_logits(logits, mask), value


class MaskedActorCritic(_Masked, ActorCritic):
    """An :class:`ActorCritic` on rows of bytes with an action mask, whose logits are masked."""

    def act(self, observations: Array) -> Array:
        """See :class:`ActorCritic`."""
        plain, mask = self.rows.arrays(observations)
        if self._dense is not None:
            found = self._dense.act(self.flattener.vectors(plain), 0)
            if found is not None:
                return mask_logits(found, mask)
        return self.policy_of(torch.from_numpy(observations)).numpy()

    def _one(self, observations: Tensor, number: int) -> Tensor:
        with torch.no_grad():
            return self(observations)[number]


class MaskedUserActorCritic(_Masked, UserActorCritic):
    """A :class:`UserActorCritic` on rows of bytes with an action mask, whose logits are masked."""


class MaskedRecurrentActorCritic(RecurrentActorCritic):
    """A :class:`RecurrentActorCritic` on rows of bytes with an action mask, whose logits are masked.

    Attributes:
        rows: divides the rows; set once the network is made.
    """

    rows: MaskedRows

    def step(self, observations: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RecurrentActorCritic`."""
        plain, mask = self.rows(observations)
        logits, value, memory = super().step(plain, memory)
        return mask_logits(logits, mask), value, memory

    def unroll(self, obs: Tensor, starts: Tensor, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """See :class:`RecurrentActorCritic`."""
        plain, mask = self.rows(obs)
        logits, value, memories = super().unroll(plain, starts, memory)
        return mask_logits(logits, mask), value, memories
