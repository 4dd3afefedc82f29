"""Deep deterministic policy gradient (DDPG).

For a sampled transition ``(s, a, R, d, s')`` with the n-step sum R and ``d = gamma^k`` (0 where the episode
terminated; truncation bootstraps), a critic Q, and target networks Q', mu' of critic and actor::

    y    = R + d Q'(s', mu'(s'))
    L_Q  = mean_b w_b (Q(s, a) - y)^2 / 2
    L_mu = -mean_b Q(s, mu(s)) + p mean_b,d u_d(s)^2

with ``mu = tanh(u)`` and p the ``preactivation_penalty``. All networks change at every update. DDPG is TD3
(:mod:`parl.algos.td3`) with one critic, no delay and no noise on the target's actions. Exploration adds
normal noise, which works as well as the source's Ornstein-Uhlenbeck process (Fujimoto et al., 2018) in most
environments; ``noise_correlation`` selects the latter.

A ``network`` of your own has the parts of ``td3.py``, with one critic.

Source: Lillicrap et al. (2016), "Continuous Control with Deep Reinforcement Learning", algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from parl.algos import td3
from parl.algos.common.control import MOUNTAIN_CAR_RUN, PENDULUM_RUN
from parl.algos.common.critics import default_run
from parl.types import EnvSpec, Preset

__all__ = ["DDPG", "PRESETS", "Config", "default_config", "default_run"]


@dataclass(frozen=True)
class Config(td3.Config):
    """Settings of DDPG: those of TD3, with other defaults."""

    algorithm_name: ClassVar[str] = "ddpg"

    critics: int = 1
    """Number of critics, 1..64; the target uses the smallest of their values."""
    policy_delay: int = 1
    """Critic updates per actor update, 1..1000."""
    target_noise: float = 0.0
    """Standard deviation of the noise on the target's actions, in units of half the action range."""


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the environment."""
    return Config()


PRESETS = {
    "mountaincar": Preset(MOUNTAIN_CAR_RUN, td3.MOUNTAIN_CAR, tuned=True, note="Reaches 90 within seconds."),
    "pendulum": Preset(PENDULUM_RUN, td3.PENDULUM, tuned=True, note="Reaches -200 within seconds."),
}


class DDPG(td3.TD3):
    """Creates policies and learners. See :class:`parl.types.Algorithm`.

    Raises:
        ConfigError: the kind of observations is not supported, or actions are discrete or have no bounds.
    """
