"""Base class of the off-policy learners: flat buffers, CUDA graphs, frozen convolutions, saved state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parl.algos.common.off_policy import OffPolicyConfig
from parl.nets import flatten
from parl.nets.embeddings import embed, freeze
from parl.nets.torsos import ImageTorso
from parl.ops.execution import GraphedBatchCall, prepare
from parl.types import Array, Batch


class OffPolicyLearner(ABC):
    """Holds what learners with target networks share. See :class:`parl.types.EmbeddingLearner`.

    Subclasses create the networks, and define losses, gradients and the optimizer step.

    Args:
        config: settings of execution.
        networks: the networks that learn; their parameters become views of one buffer on the device.
        targets: the target networks, with the same parameters, which get the values of ``networks``.
        seed: of the generator.
        device: of networks and buffers.

    Attributes:
        weights: (P,) float32, of all networks that learn, unless policies need fewer.
        gradients: (Q,) float32, of all networks that learn.
        frozen: whether :meth:`freeze` was called.
        generator: random generator of the updates, on the device.
    """

    may_record_graph: bool = False

    def __init__(
        self, config: OffPolicyConfig, networks: nn.Module, targets: nn.Module, seed: int, device: str
    ) -> None:
        self._device = torch.device(device)
        for module in (networks, targets):
            module.to(self._device)
        flat = flatten(networks)
        assert flat.gradients is not None
        self._all_weights, self.gradients = flat.weights, flat.gradients
        self.weights = self._all_weights
        self._target_weights = flatten(targets, gradients=False).weights
        self._target_weights.copy_(self._all_weights)
        self._mean = torch.zeros_like(self._all_weights)
        self._square = torch.zeros_like(self._all_weights)
        self._updates = 0
        self.frozen = False
        self.generator = torch.Generator(self._device).manual_seed(seed)
        prepare(config, self._device, networks, targets)
        self._graphed_update = (
            GraphedBatchCall(self._compute_and_apply, self.generator) if config.cuda_graph else None
        )
        self._latest: dict[str, Any] = {}  # results of the latest update by name

    @property
    @abstractmethod
    def image_torsos(self) -> list[ImageTorso]:
        """Torsos of the networks that learn, for observations that are images, in the order of weights."""

    def freeze(self) -> None:
        """See :class:`parl.types.EmbeddingLearner`; target networks get the convolutions of the others."""
        if self.frozen:
            return
        self.frozen = True
        parts = [freeze(torso, self._all_weights) for torso in self.image_torsos]
        for part in parts:
            self._target_weights[part].copy_(self._all_weights[part])
            self.gradients[part].zero_()
        self._leave_out(parts)

    @abstractmethod
    def _leave_out(self, frozen: Sequence[slice]) -> None:
        """Leaves the frozen parts of the weights, one of each torso, out of later optimizer steps."""

    def embed(self, images: Array) -> Array:
        """See :class:`parl.types.EmbeddingLearner`."""
        return embed(self.image_torsos, images)

    @property
    def embedding_shape(self) -> tuple[int, int]:
        """See :class:`parl.types.EmbeddingLearner`."""
        torsos = self.image_torsos
        return len(torsos), torsos[0].embedding_size

    @abstractmethod
    def _backward(self, batch: Batch) -> dict[str, Any]:
        """Draws the random numbers of an update and writes its gradients; returns its results by name."""

    def _compute_and_apply(self, batch: Batch) -> dict[str, Tensor]:
        """The work of one CUDA graph: :meth:`_backward` and, if ``may_record_graph``, the optimizer step."""
        found = self._backward(batch)
        if self.may_record_graph:
            self.apply_gradients()
        return found

    def step(self) -> None:
        """Makes one optimizer step, unless a CUDA graph has made it, and counts the update."""
        if self._graphed_update is None or not self.may_record_graph:
            self.apply_gradients()
        self.after_step()

    @abstractmethod
    def apply_gradients(self) -> None:
        """The part of :meth:`step` that runs on the device; can be captured in a graph."""

    def after_step(self) -> None:
        """The rest of :meth:`step`: counts the update."""
        self._updates += 1

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return {
            "weights": self._all_weights.clone(),
            "target_weights": self._target_weights.clone(),
            "mean": self._mean.clone(),
            "square": self._square.clone(),
            "updates": self._updates,
            "generator": self.generator.get_state(),
            "frozen": self.frozen,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._all_weights.copy_(state["weights"])
        self._target_weights.copy_(state["target_weights"])
        self._mean.copy_(state["mean"])
        self._square.copy_(state["square"])
        self._updates = state["updates"]
        self.generator.set_state(state["generator"])
        if state.get("frozen", False):  # older checkpoints have no entry
            self.freeze()
