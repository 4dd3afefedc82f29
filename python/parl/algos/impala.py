"""IMPALA: actors collect rollouts with older weights; the learner corrects for that with V-trace.

The loss is that of A2C (``a2c.py``), with targets and advantages of Espeholt et al. (2018), "IMPALA",
equation 1 and section 4.2::

    v_t - V(s_t) = sum_{k >= t} gamma^{k-t} (prod_{i<k} c_i) rho_k delta_k,   rho = min(rho_max, pi / mu)
    A_t          = rho_t (r_t + gamma v_{t+1} - V(s_t)),                      c   = lambda min(c_max, pi / mu)

where mu is the policy that acted, whose log-probabilities are part of the rollout. Each rollout gives one
update. The policy lag is measured, and rollouts with a lag above the run's ``max_lag`` are discarded.

A ``network`` of your own has the outputs of ``a2c.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from parl.algos.a2c import A2C, refuse_windows
from parl.algos.a2c import Config as A2CConfig
from parl.types import EnvSpec, Preset


@dataclass(frozen=True)
class Config(A2CConfig):
    """Settings of IMPALA. Steps are vector steps; updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "impala"

    rollout_steps: int = 20
    """T, steps in a rollout."""
    advantage: Literal["gae", "vtrace"] = "vtrace"
    """vtrace: V-trace. gae: generalized advantage estimation, without correction for older policies."""
    gae_lambda: float = 1.0
    """Lambda of the advantages, 0..1; smaller values shorten the traces."""
    normalize_advantages: bool = False
    """Normalize advantages to mean 0 and standard deviation 1 in each rollout."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus in the loss."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_windows(self)


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations; for images the numbers of the source, table G.1 (RMSprop).

    The source sums losses over batch and time and has epsilon inside of the root; here losses are means, and
    epsilon is added to the root.
    """
    if spec.has_images:
        return Config(
            learning_rate=6e-4,
            optimizer="rmsprop",
            optimizer_epsilon=0.01,
            max_gradient_norm=40.0,
            hidden=(256,),
        )
    return Config(learning_rate=2e-3, normalize_advantages=True, gae_lambda=0.95)


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    return {"total_steps": 10_000_000, "num_envs": 32} if spec.has_images else {}


PRESETS: dict[str, Preset] = {}


class IMPALA(A2C):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""
