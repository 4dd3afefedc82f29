"""Ranges of the settings that ``parl tune`` searches, for each algorithm.

Source: RL Baselines3 Zoo (Raffin, 2020), ``hyperparams_opt.py``. They differ where parl's setting has another
unit or default: rollouts are shorter, because a run has 8 environments; learning rates end at 0.01; and
``replay_ratio``, ``target_period`` and ``epsilon_steps`` count samples, updates and transitions.
"""

from __future__ import annotations

from collections.abc import Mapping

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

Space = Mapping[str, BaseDistribution]
"""Setting -> distribution. Settings with several values, such as ``hidden``, are texts: ``"64 64"``."""


def _one_of(*values: float | str) -> CategoricalDistribution:
    return CategoricalDistribution(values)


def _log(low: float, high: float) -> FloatDistribution:
    return FloatDistribution(low, high, log=True)


_LEARNING_RATE = _log(1e-5, 1e-2)
_GAMMA = _one_of(0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999)
_LAMBDA = _one_of(0.8, 0.9, 0.92, 0.95, 0.98, 0.99, 1.0)
_SMALL_HIDDEN = _one_of("64", "64 64", "256 256")
_MINIBATCH = _one_of(32, 64, 128, 256, 512)
_ROLLOUT = {
    "rollout_steps": _one_of(16, 32, 64, 128, 256, 512),
    "gamma": _GAMMA,
    "learning_rate": _LEARNING_RATE,
    "max_gradient_norm": FloatDistribution(0.3, 2.0),
    "hidden": _SMALL_HIDDEN,
}
_ACTOR_CRITIC = _ROLLOUT | {
    "gae_lambda": _LAMBDA,
    "entropy_coefficient": _log(1e-8, 0.1),
    "activation": _one_of("tanh", "relu"),
}
_A2C = _ACTOR_CRITIC | {"rollout_steps": _one_of(5, 8, 16, 32, 64, 128)}
_REPLAY = {
    "gamma": _GAMMA,
    "learning_rate": _LEARNING_RATE,
    "batch_size": _one_of(16, 32, 64, 128, 256, 512),
    "replay_capacity": _one_of(10_000, 50_000, 100_000, 1_000_000),
    "learning_starts": _one_of(0, 1_000, 5_000, 10_000),
}
_VALUES = _REPLAY | {
    "replay_ratio": _one_of(1, 2, 4, 8, 16, 32),
    "target_period": _one_of(1, 10, 25, 100, 250, 1_000),
    "hidden": _SMALL_HIDDEN,
}
_CONTINUOUS = _REPLAY | {
    "batch_size": _one_of(64, 128, 256, 512, 1_024),
    "target_tau": _one_of(0.001, 0.005, 0.01, 0.02, 0.05, 0.08),
    "hidden": _one_of("64 64", "256 256", "400 300"),
}
_NOISE = _CONTINUOUS | {"exploration_noise": FloatDistribution(0.0, 1.0)}
_EPSILON = {
    "epsilon_last": FloatDistribution(0.0, 0.2),
    "epsilon_steps": _one_of(1_000, 5_000, 10_000, 50_000, 100_000),
}
_EPOCHS = {"epochs": _one_of(1, 5, 10, 20), "minibatch_size": _MINIBATCH}

SPACES: Mapping[str, Space] = {
    "a2c": _A2C,
    "a3c": _A2C,
    "bc": {"learning_rate": _LEARNING_RATE, "minibatch_size": _MINIBATCH, "hidden": _SMALL_HIDDEN},
    "ddpg": _NOISE,
    "dqn": _VALUES | _EPSILON,
    "es": {
        "sigma": _one_of(0.01, 0.02, 0.025, 0.03, 0.05, 0.1, 0.2, 0.3),
        "learning_rate": _log(1e-3, 1.0),
        "hidden": _one_of("16", "32", "32 32", "64 64"),
    },
    "ga": {
        "sigma": _one_of(0.01, 0.02, 0.025, 0.03, 0.05, 0.1, 0.2, 0.3),
        "hidden": _one_of("16", "32", "32 32", "64 64"),
    },
    "ga3c": _A2C,
    "impala": _A2C,
    "ppo": _ACTOR_CRITIC | _EPOCHS | {"clip": _one_of(0.1, 0.2, 0.3, 0.4)},
    "pqn": _ROLLOUT | _EPOCHS | _EPSILON | {"td_lambda": _LAMBDA, "epochs": _one_of(1, 2, 4, 8)},
    "rainbow": _VALUES | {"n_step": _one_of(1, 3, 5, 10)},
    "sac": _CONTINUOUS,
    "td3": _NOISE,
}
"""Algorithm -> its search space."""
