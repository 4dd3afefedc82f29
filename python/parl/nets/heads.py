"""Heads: features in, values out."""

from __future__ import annotations

from torch import Tensor, nn


class DuelingHead(nn.Module):
    """State value plus centred advantages: ``q = v + a - mean(a)``.

    Input (B, features) float32, output (B, actions) float32.

    Source: Wang et al. (2016), "Dueling Network Architectures", equation 9.
    """

    def __init__(self, features: int, actions: int) -> None:
        super().__init__()
        self.value = nn.Linear(features, 1)
        self.advantage = nn.Linear(features, actions)

    def forward(self, features: Tensor) -> Tensor:
        """Action values (B, actions)."""
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(dim=1, keepdim=True)
