"""The network of :mod:`parl.algos.dqn`: action values, or their distributions, of observations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import numpy as np
import torch
from torch import Tensor, nn

from parl.nets import (
    MLP,
    ActionHead,
    DuelingHead,
    FractionEmbedding,
    FrameDeltasMLP,
    NoisyLinear,
    select_actions,
    tensors_of,
    torso_for,
)
from parl.nets.embeddings import embedding_of
from parl.nets.fused import MLPWithHeads
from parl.nets.fused.layers import head
from parl.nets.masks import mask_logits, without_mask
from parl.nets.torsos import ImageTorso
from parl.nets.user import UserModule
from parl.ops.distributions import atom_values, initial_logits, midpoints
from parl.ops.execution import ExecutionModule, autocast_bf16
from parl.types import MASK, Array, EnvSpec, Observations

if TYPE_CHECKING:
    from parl.algos.dqn import Config


class QNetwork(ExecutionModule):
    """Q-network: observations (B, ...) to action values (B, A, M) float32.

    M is 1 without a distribution, the number of atoms for c51 (logits), of quantiles for qr, and of the given
    fractions for iqn.
    """

    support: Tensor

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        self._kind = config.distribution
        self._deltas = config.frame_deltas and config.own is None
        self._masked = bool(spec.mask_size)
        spec = spec.without_mask
        outputs = {"none": 1, "c51": config.atoms, "qr": config.quantiles, "iqn": 1}[self._kind]
        actions = spec.num_actions or 0
        self._dense: MLPWithHeads | None = None
        values = (config.value_min, config.value_max, config.atoms, config.atom_spacing)
        self.register_buffer("support", atom_values(*values), persistent=False)
        acting = midpoints(config.policy_quantiles).unsqueeze(0)
        self.register_buffer("acting_fractions", acting, persistent=False)
        own = config.own and config.make_own(spec)
        self.network = own if config.network is not None else None
        if self.network is not None:
            self.network.expect(("values", (actions,) if self._kind == "none" else (actions, outputs)))
            return
        dense = not config.dueling_hidden
        if self._deltas:
            self.torso = FrameDeltasMLP(math.prod(spec.observation_shape), config.hidden, config.layer_norm)
        else:
            self.torso = own or torso_for(spec, config.hidden, config.layer_norm, config.images, dense)

        def make_linear(inputs: int, width: int) -> nn.Module:
            return (
                NoisyLinear(inputs, width, config.noisy_sigma) if config.noisy else nn.Linear(inputs, width)
            )

        features = int(cast("Any", self.torso).features)
        if config.dueling:
            self.head = DuelingHead(features, actions, outputs, config.dueling_hidden, make_linear)
        else:
            self.head = ActionHead(features, actions, outputs, make_linear)
        if self._kind == "c51":
            self.head.add_to_bias(initial_logits(self.support))
        if self._kind == "iqn":
            self.embedding = FractionEmbedding(config.cosines, features)

    def bind(self) -> None:
        """See :func:`parl.nets.flatten`. Without a distribution, layers and heads are one fused operation."""
        if self._kind != "none":
            return
        if self.network is not None:
            self._dense = self.network.as_dense()
            return
        if not isinstance(self.torso, MLP | UserModule):
            return
        streams = [self.head.values] if isinstance(self.head, ActionHead) else []
        if isinstance(self.head, DuelingHead):
            streams = [self.head.advantage, self.head.value]
        heads = [head(0, one, scalar=number == 1) for number, one in enumerate(streams) if _is_linear(one)]
        if len(heads) == len(streams):
            self._dense = self.torso.with_heads(heads)

    @property
    def fused(self) -> bool:
        """Whether the whole network is one fused operation of :mod:`parl.nets.fused`."""
        return self._dense is not None and not self.torch_only

    @property
    def image_torso(self) -> ImageTorso:
        """The torso of observations that are one image."""
        return cast("ImageTorso", self.torso)

    def act(self, observations: Observations) -> Array:
        """Returns action values (B, A) for observations (B, ...), both numpy; no gradient.

        Values of invalid actions are replaced by -1e8 if there is a mask.
        """
        if self._masked:
            assert isinstance(observations, Mapping)
            return mask_logits(self._act(without_mask(observations)), observations[MASK])
        return self._act(observations)

    def _act(self, observations: Observations) -> Array:
        dense = None if self._deltas else self._dense
        if dense is not None and isinstance(observations, np.ndarray) and observations.dtype == np.float32:
            x = observations.reshape(len(observations), -1)
            found = dense.act_all(x, range(len(dense.heads)))
            if found is not None:
                return _values(found)
        with torch.inference_mode():
            return self.mean(self._forward(tensors_of(observations), None)).numpy()

    def forward(self, observations: Any, fractions: Tensor | None = None) -> Tensor:
        """Returns values (B, A, M); iqn takes ``fractions`` (B, M) or (1, M), by default those of acting."""
        return self._forward(without_mask(observations) if self._masked else observations, fractions)

    def of_actions(self, observations: Any, action: Tensor, fractions: Tensor | None = None) -> Tensor:
        """Returns the values (B, M) that :meth:`forward` has for the actions (B,) int64."""
        if self._kind in ("none", "iqn") or self.network is not None:
            return select_actions(self(observations, fractions), action)
        return self._forward(without_mask(observations) if self._masked else observations, None, action)

    def valid(self, values: Tensor, observations: Any) -> Tensor:
        """Returns action values (B, A), with -1e8 for invalid actions if ``observations`` have a mask."""
        return mask_logits(values, observations[MASK]) if self._masked else values

    def _forward(self, observations: Any, fractions: Tensor | None, action: Tensor | None = None) -> Tensor:
        if self.use_bf16:
            with autocast_bf16(self.support.device):
                return self._outputs(observations, fractions, action).to(torch.float32)
        if self._dense is not None and not self.torch_only:
            x = cast("MLP | UserModule", self.network or self.torso).vectors(observations)
            if self._dense.accepts(x):
                q, *value = self._dense.outputs(x)
                if value:
                    q = value[0].unsqueeze(1) + q - q.mean(dim=1, keepdim=True)
                return q.unsqueeze(2)
        return self._outputs(observations, fractions, action)

    def _outputs(self, observations: Any, fractions: Tensor | None, action: Tensor | None) -> Tensor:
        if self.network is not None:
            values = self.network(observations)
            return values.unsqueeze(2) if self._kind == "none" else values
        features = self.torso(embedding_of(observations, 0))
        if self._kind != "iqn":
            return self.head(features) if action is None else self.head.of_actions(features, action)
        wanted = self.acting_fractions if fractions is None else fractions
        mixed = features.unsqueeze(1) * self.embedding(wanted)  # (B, M, features)
        values = self.head(mixed.flatten(0, 1)).squeeze(2)  # (B M, A)
        return values.unflatten(0, (features.shape[0], -1)).transpose(1, 2)

    def mean(self, outputs: Tensor) -> Tensor:
        """Returns action values (B, A) for outputs of :meth:`forward`."""
        if self._kind == "c51":
            return outputs.softmax(dim=2) @ self.support
        return outputs.squeeze(2) if self._kind == "none" else outputs.mean(dim=2)


def _is_linear(module: nn.Module) -> TypeGuard[nn.Linear]:
    return isinstance(module, nn.Linear)


def _values(outputs: Sequence[Array]) -> Array:
    """Returns action values (B, A), given those, or advantages (B, A) and state values (B,) or (B, 1)."""
    q, *value = outputs
    return q + (value[0].reshape(-1) - q.mean(axis=1))[:, None] if value else q
