"""What a policy makes of actions that were taken, with numpy: for a few hundred rows.

Log-densities and entropies of :mod:`parl.ops.policies`, and the way back from their gradients to those of the
network's outputs; ``docs/decisions/0015-derivatives-by-hand.md`` says why.
"""

from __future__ import annotations

import numpy as np

from parl.ops.policies import LOG_SQRT_2PI
from parl.types import Array


def softmax(logits: Array) -> tuple[Array, Array]:
    """Probabilities (B, A) of logits (B, A) float32 and their logarithms."""
    log_p = logits - logits.max(axis=1, keepdims=True)
    p = np.exp(log_p)
    sums = np.add.reduce(p, axis=1, keepdims=True)
    p /= sums
    log_p -= np.log(sums)
    return p, log_p


class Categories:
    """Of discrete actions.

    Args:
        logits: (B, A) float32.
        action: (B,) int64.

    Attributes:
        log_prob: (B,) float32, in nats.
        entropy: (B,) float32, in nats.
    """

    def __init__(self, logits: Array, action: Array) -> None:
        self._p, self._log_p = softmax(logits)
        self._each, self._action = np.arange(len(action)), action
        self.log_prob: Array = self._log_p[self._each, action]
        self.entropy: Array = -np.add.reduce(self._p * self._log_p, axis=1)

    def back(self, of_log_prob: Array, of_entropy: float) -> Array:
        """The logits' gradient (B, A), from those of log-probabilities (B,) and of every entropy."""
        of_logits: Array = self._p * -of_log_prob[:, None]
        of_logits[self._each, self._action] += of_log_prob
        if of_entropy:
            of_logits -= self._p * (self._log_p + self.entropy[:, None]) * np.float32(of_entropy)
        return of_logits


class Gaussians:
    """Of continuous actions: diagonal Gaussians of one deviation for all rows.

    Args:
        mean: (B, D) float32.
        log_std: (D,) float32.
        of_log_std: (D,) float32, takes the deviations' gradient.
        action: (B, ...) float32 of D numbers.

    Attributes:
        log_prob: (B,) float32, log-densities in nats.
        entropy: (B,) float32, in nats.
    """

    def __init__(self, mean: Array, log_std: Array, of_log_std: Array, action: Array) -> None:
        self._scale, self._of_log_std = np.exp(-log_std), of_log_std
        self._z = (action.reshape(mean.shape) - mean) * self._scale
        self._squares = self._z * self._z
        width = mean.shape[1]
        normaliser = np.float32(np.add.reduce(log_std) + width * LOG_SQRT_2PI)
        self.log_prob: Array = np.add.reduce(self._squares, axis=1) * np.float32(-0.5) - normaliser
        self.entropy: Array = np.full(len(mean), normaliser + np.float32(0.5 * width))

    def back(self, of_log_prob: Array, of_entropy: float) -> Array:
        """The means' gradient (B, D), from those of log-densities (B,) and of every entropy."""
        of = of_log_prob[:, None]
        np.add.reduce((self._squares - 1) * of, axis=0, out=self._of_log_std)
        self._of_log_std += np.float32(of_entropy * len(of_log_prob))
        return self._z * of * self._scale


Judged = Categories | Gaussians
