"""Noisy layers: exploration by noise of learned size on the weights."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Rows of a batch below which two products cost less than computing the noisy weights, for one product.
_FEW_ROWS = 64


class NoisyLinear(nn.Module):
    """A linear layer with factorized Gaussian noise on weights and biases.

    With noise ``e_i = f(x_i)``, ``e_o = f(x_o)``, ``x ~ N(0, 1)`` and ``f(x) = sign(x) sqrt|x|``::

        y = W x + b + e_o * (S (e_i * x) + s)

    Until :meth:`resample` is called, the noise is zero. Input (B, inputs) float32, output (B, outputs).

    Args:
        inputs: width of the input.
        outputs: width of the output.
        sigma: the noise's learned sizes S and s start at ``sigma / sqrt(inputs)``.

    Source: Fortunato et al. (2018), "Noisy Networks for Exploration", equations 9 to 11, section 3.2.
    """

    noise_in: Tensor
    noise_out: Tensor

    def __init__(self, inputs: int, outputs: int, sigma: float = 0.5) -> None:
        super().__init__()
        bound = 1 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), sigma * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), sigma * bound))
        self.register_buffer("noise_in", torch.zeros(inputs), persistent=False)
        self.register_buffer("noise_out", torch.zeros(outputs), persistent=False)

    def resample(self, generator: torch.Generator) -> None:
        """Draws new noise, the same for all rows of a batch."""
        resample_noise(self, generator)

    def silence(self) -> None:
        """Sets the noise to zero: the mean network."""
        self.noise_in.zero_()
        self.noise_out.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """See the class."""
        # A compiler or an export would fix the number of rows if it were asked for.
        if torch.compiler.is_compiling() or len(x) < _FEW_ROWS:
            noise = F.linear(x * self.noise_in, self.weight_sigma, self.bias_sigma)
            return F.linear(x, self.weight, self.bias) + self.noise_out * noise
        weight = torch.addcmul(self.weight, self.weight_sigma, torch.outer(self.noise_out, self.noise_in))
        return F.linear(x, weight, torch.addcmul(self.bias, self.bias_sigma, self.noise_out))


def resample_noise(module: nn.Module, generator: torch.Generator) -> None:
    """Draws new noise in every noisy layer of ``module``."""
    layers = [layer for layer in module.modules() if isinstance(layer, NoisyLinear)]
    noises = [noise for layer in layers for noise in (layer.noise_in, layer.noise_out)]
    if noises:
        drawn = torch.randn(sum(map(len, noises)), generator=generator, device=noises[0].device)
        drawn = drawn.sign() * drawn.abs().sqrt_()
        for noise, part in zip(noises, drawn.split([len(noise) for noise in noises]), strict=True):
            noise.copy_(part)


def silence_noise(module: nn.Module) -> None:
    """Sets the noise of every noisy layer of ``module`` to zero."""
    for layer in module.modules():
        if isinstance(layer, NoisyLinear):
            layer.silence()
