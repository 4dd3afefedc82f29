"""Embeddings: outputs of frozen convolutions, which a replay stores in place of images.

Source: Chen et al. (2021), "Improving Computational Efficiency in Visual Reinforcement Learning via Stored
Embeddings".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from parl.nets.torsos import ImageTorso, is_embedding
from parl.types import Array


def embed(torsos: Sequence[ImageTorso], images: Array) -> Array:
    """Returns the outputs (B, K, L) float16 of the convolutions of K torsos for images (B, ...).

    They are computed in float32, on the device of the torsos.
    """
    device = next(torsos[0].parameters()).device
    with torch.inference_mode():
        seen = torch.from_numpy(images).to(device)
        return torch.stack([torso.embed(seen) for torso in torsos], dim=1).cpu().numpy()


def embedding_of(observations: Any, index: int) -> Any:
    """Selects what torso ``index`` takes: its embeddings (B, L) of (B, K, L), or the images themselves."""
    if isinstance(observations, Tensor) and is_embedding(observations):
        return observations[:, index]
    return observations


def freeze(torso: ImageTorso, weights: Tensor) -> slice:
    """Stops gradients of the convolutions of ``torso``.

    Args:
        torso: part of a module whose parameters are views of ``weights``, see :func:`parl.nets.flatten`.
        weights: (P,).

    Returns:
        The part of ``weights`` that holds the convolutions.
    """
    parameters = list(torso.convolutions.parameters())
    for parameter in parameters:
        parameter.requires_grad_(False)
    start = parameters[0].storage_offset() - weights.storage_offset()
    return slice(start, start + sum(parameter.numel() for parameter in parameters))
