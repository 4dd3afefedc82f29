"""Presets that most algorithms have under the same names: for Atari, classic control and MuJoCo.

They change the defaults for the environment (``default_config``, ``default_run``) and contain only what
differs. None of them is tuned: each has the defaults, or the settings of the source that its note names.
Presets that were tuned on an environment are in the algorithm's own module.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from parl.algos.common.atari import RAM
from parl.types import Preset

_PONG, _CARTPOLE, _CHEETAH = ({"env": name} for name in ("parl/Pong-v0", "CartPole-v1", "HalfCheetah-v5"))
_RAM = {"env_options": RAM}
_UNTESTED = "a guess for many environments; not run on a GPU yet"
_ON_CUDA: dict[str, Any] = {"env_options": ("device=cuda",)}
_TENSOR_CORES: dict[str, Any] = {"precision": "bfloat16", "channels_last": True}


def _source(note: str, run: Mapping[str, Any], algorithm: Mapping[str, Any] | None = None) -> Preset:
    return Preset(run, algorithm or {}, tuned=False, note=note)


def _gpu(num_envs: int, algorithm: Mapping[str, Any] | None = None, **run: Any) -> Preset:
    return _source(_UNTESTED, _PONG | {"device": "cuda", "num_envs": num_envs} | run, algorithm)


def _rollouts_on_gpu(note: str, algorithm: Mapping[str, Any], num_envs: int = 1_024) -> Preset:
    run = {"device": "cuda", "num_envs": num_envs, "env_options": ("device=cuda",)}
    # 500 random steps, the default, would be half a million transitions without learning.
    return _source(note, _PONG | run | {"random_starts": 128}, {**_TENSOR_CORES, **algorithm})


_PPO_ATARI = {
    "rollout_steps": 128,
    "minibatch_size": 256,
    "epochs": 4,
    "clip": 0.1,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "learning_rate": 2.5e-4,
    "entropy_coefficient": 0.01,
    "hidden": (512,),
}
_PPO_MUJOCO = {
    "rollout_steps": 2_048,
    "minibatch_size": 64,
    "epochs": 10,
    "clip": 0.2,
    "learning_rate": 3e-4,
    "normalize_observations": True,
    "normalize_rewards": True,
}
_MILLION = {"total_steps": 1_000_000}


def _continuous(note: str) -> Preset:
    return _source(f"{note}; one environment, a million steps", _CHEETAH | _MILLION)


PRESETS: Mapping[str, Mapping[str, Preset]] = {
    "ppo": {
        "atari-cpu": _source(
            "Huang et al. (2022), The 37 implementation details of PPO, Atari",
            _PONG | {"num_envs": 8},
            _PPO_ATARI | {"value_clip": 0.1},
        ),
        "atari-gpu": _rollouts_on_gpu(
            "minibatches, learning rate and clip range of Cobbe et al. (2020), Procgen; its only run "
            "on a GPU was at -12.9 after 70 seconds",
            _PPO_ATARI
            | {"rollout_steps": 8, "minibatch_size": 2_048, "learning_rate": 5e-4, "clip": 0.2}
            | {"cuda_graph": True},
            num_envs=2_048,
        ),
        "classic": _source("Raffin (2020), RL Baselines3 Zoo, CartPole-v1", _CARTPOLE),
        "mujoco": _source(
            "after Huang et al. (2022), continuous control, without their clipping of values",
            _CHEETAH | _MILLION | {"num_envs": 1},
            _PPO_MUJOCO,
        ),
    },
    "a2c": {
        "atari-cpu": _source("the defaults, after Mnih et al. (2016)", _PONG),
        "atari-gpu": _rollouts_on_gpu(
            _UNTESTED,
            {"advantage": "vtrace", "rollout_steps": 1, "window": 20, "env_groups": 4, "gae_lambda": 1.0},
        ),
        "classic": _source("the defaults", _CARTPOLE),
        "mujoco": _source(
            "after Raffin (2020), RL Baselines3 Zoo",
            _CHEETAH | _MILLION | {"num_envs": 4},
            {
                "rollout_steps": 8,
                "gae_lambda": 0.9,
                "normalize_observations": True,
                "normalize_rewards": True,
            },
        ),
    },
    "pqn": {
        "atari-cpu": _source("the defaults, after Gallici et al. (2024)", _PONG),
        "atari-gpu": _rollouts_on_gpu(
            "a guess for many environments; its only run on a GPU took 15 seconds",
            {"rollout_steps": 16, "minibatch_size": 1_024, "learning_rate": 5e-4, "cuda_graph": True},
        ),
        "classic": _source("the defaults", _CARTPOLE),
    },
    "impala": {
        "atari-cpu": _source("the defaults, after Espeholt et al. (2018)", _PONG),
        "atari-gpu": _gpu(256),
        "classic": _source("the defaults", _CARTPOLE),
        "mujoco": _source("the defaults", _CHEETAH | _MILLION),
    },
    "a3c": {
        "atari-cpu": _source("the defaults, after Mnih et al. (2016)", _PONG),
        "classic": _source("the defaults", _CARTPOLE),
        "mujoco": _source("the defaults", _CHEETAH | _MILLION),
    },
    "ga3c": {
        "atari-cpu": _source("the defaults, after Babaeizadeh et al. (2017)", _PONG),
        "atari-gpu": _gpu(256),
        "classic": _source("the defaults", _CARTPOLE),
        "mujoco": _source("the defaults", _CHEETAH | _MILLION),
    },
    "dqn": {
        "atari-cpu": _source("the defaults, after Hessel et al. (2018) but for target_period", _PONG),
        "atari-gpu": _gpu(64, **_ON_CUDA),
        "classic": _source("the defaults", _CARTPOLE),
    },
    "rainbow": {
        "atari-cpu": _source("the defaults, after Hessel et al. (2018)", _PONG),
        "atari-gpu": _gpu(64, **_ON_CUDA),
        "classic": _source("the defaults", _CARTPOLE),
    },
    "sac": {"mujoco": _continuous("the defaults, after Haarnoja et al. (2018)")},
    "td3": {
        "mujoco": _continuous(
            "the defaults, after Fujimoto et al. (2018) but for 1,000 random steps and batches of 256"
        )
    },
    "ddpg": {
        "mujoco": _continuous(
            "the defaults, those of td3 with one critic, not those of Lillicrap et al. (2016)"
        )
    },
    "es": {
        "atari-cpu": _source("observations are the console's memory", _PONG | _RAM),
        "classic": _source("the defaults", _CARTPOLE | {"num_envs": 32}),
        "mujoco": _source("the defaults", _CHEETAH),
    },
    "ga": {
        "atari-cpu": _source("observations are the console's memory", _PONG | _RAM),
        "classic": _source("the defaults", _CARTPOLE | {"num_envs": 32}),
        "mujoco": _source("the defaults", _CHEETAH),
    },
}
"""Algorithm -> name -> preset. Algorithms that run only on CPUs have none for a GPU."""
