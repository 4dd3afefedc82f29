"""Settings in TOML files, checks of their keys, and counts such as ``10M``."""

from __future__ import annotations

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Collection, Mapping
from fractions import Fraction
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from parl.errors import ConfigError

_SUFFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
# Names of settings in Stable-Baselines3, CleanRL, TorchRL, Tianshou and RLlib -> those of parl. Algorithms
# differ in their settings: the first one that exists is suggested.
_NAMES_ELSEWHERE = {
    "anneal_lr": "anneal",
    "autotune": "learn_temperature",
    "batch_size": "minibatch_size",
    "buffer_size": "replay_capacity",
    "checkpoint_freq": "checkpoint_every",
    "clip_coef": "clip",
    "clip_param": "clip",
    "clip_range": "clip",
    "clip_range_vf": "value_clip",
    "clip_vloss": "value_clip",
    "cuda": "device",
    "discount": "gamma",
    "discount_factor": "gamma",
    "end_e": "epsilon_last",
    "ent_coef": "entropy_coefficient temperature",
    "entropy_coef": "entropy_coefficient temperature",
    "entropy_coeff": "entropy_coefficient temperature",
    "env_id": "env",
    "env_kwargs": "env_options",
    "env_name": "env",
    "env_per_actor": "num_envs",
    "eval_episodes": "evaluation_episodes",
    "eval_freq": "evaluation_every",
    "exp_name": "name",
    "exploration_final_eps": "epsilon_last",
    "exploration_fraction": "epsilon_steps",
    "exploration_initial_eps": "epsilon_first",
    "gradient_steps": "replay_ratio epochs",
    "hidden_size": "hidden",
    "hidden_sizes": "hidden",
    "init_random_frames": "learning_starts random_steps",
    "lam": "gae_lambda",
    "lambda": "gae_lambda",
    "lambda_": "gae_lambda",
    "learning_rate_critic": "critic_learning_rate",
    "log_dir": "runs",
    "log_interval": "log_every_s",
    "logdir": "runs",
    "lr": "learning_rate",
    "lstm_hidden_size": "lstm",
    "max_grad_norm": "max_gradient_norm",
    "max_steps": "total_steps",
    "max_timesteps": "total_steps",
    "min_replay_size": "learning_starts",
    "minibatch_size": "batch_size",
    "n_actors": "actors",
    "n_atoms": "atoms",
    "n_envs": "num_envs",
    "n_epochs": "epochs",
    "n_eval_episodes": "evaluation_episodes",
    "n_quantiles": "quantiles",
    "n_steps": "rollout_steps n_step",
    "net_arch": "hidden",
    "norm_adv": "normalize_advantages",
    "normalize_advantage": "normalize_advantages",
    "num_actors": "actors",
    "num_atoms": "atoms",
    "num_epochs": "epochs",
    "num_learners": "learners",
    "num_minibatches": "minibatch_size",
    "num_steps": "rollout_steps total_steps",
    "num_workers": "actors num_envs",
    "per_alpha": "alpha",
    "per_beta": "beta",
    "policy_frequency": "policy_delay",
    "policy_lr": "learning_rate",
    "prioritized_replay": "prioritized",
    "prioritized_replay_alpha": "alpha",
    "prioritized_replay_beta": "beta",
    "q_lr": "critic_learning_rate",
    "rollout_length": "rollout_steps",
    "save_freq": "checkpoint_every",
    "sgd_minibatch_size": "minibatch_size",
    "start_e": "epsilon_first",
    "start_timesteps": "random_steps learning_starts",
    "target_network_frequency": "target_period",
    "target_noise_std": "target_noise",
    "target_policy_noise": "target_noise",
    "target_update_freq": "target_period",
    "target_update_interval": "target_period",
    "tau": "target_tau",
    "tensorboard_log": "logger",
    "timesteps": "total_steps",
    "torch_deterministic": "schedule",
    "total_timesteps": "total_steps",
    "train_batch_size": "batch_size rollout_steps",
    "train_freq": "replay_ratio rollout_steps",
    "training_num": "num_envs",
    "update_epochs": "epochs",
    "update_interval": "target_period",
    "v_max": "value_max",
    "v_min": "value_min",
    "vf_coef": "value_coefficient",
}
_COUNT = re.compile(r"([0-9][0-9_]*(?:\.[0-9]+)?(?:e[0-9]{1,3})?)([kmgb]?)", re.IGNORECASE)


def parse_count(value: int | float | str) -> int:
    """Converts a count such as ``10000``, ``"10_000"``, ``"10k"``, ``"2.5M"`` or ``"1e6"`` to an int.

    Raises:
        ConfigError: ``value`` is not a whole number in 0..2**63.
    """
    if isinstance(value, str):
        match = _COUNT.fullmatch(value.strip())
        if match is None:
            raise ConfigError(
                f"{value!r} is not a count, expected for example 50000, 50_000, 50k, 2.5M or 1e6"
            )
        number = Fraction(match[1].replace("_", "")) * _SUFFIXES[match[2].lower()]
    else:
        number = value
    # A float that is not finite fails the first comparison.
    if isinstance(number, bool) or not isinstance(number, Real) or not 0 <= number < 2**63 or number % 1:
        raise ConfigError(f"{value!r} is not a whole number in 0..2**63")
    return int(number)


def suggestion(name: str, valid: Collection[str]) -> str | None:
    """The valid name that is probably meant by another one; None if there is none.

    Args:
        name: a name of other libraries, such as ``total_timesteps`` or ``lr``, or a misspelled one.
        valid: names that exist.
    """
    for known in _NAMES_ELSEWHERE.get(name, "").split():
        if known in valid:
            return known
    return next(iter(difflib.get_close_matches(name, valid, n=1)), None)


def check_keys(given: Collection[str], valid: Collection[str], where: str) -> None:
    """Checks that all keys are valid.

    Args:
        given: keys that are used.
        valid: keys that exist.
        where: what the keys belong to, for the message.

    Raises:
        ConfigError: a key is unknown; the message names it and the most similar valid key.
    """
    unknown = [key for key in given if key not in valid]
    if not unknown:
        return
    words: list[str] = []
    for key in unknown:
        near = suggestion(key, valid)
        words.append(f"{key!r} (did you mean {near!r}?)" if near else f"{key!r}")
    raise ConfigError(f"{where} has no setting {', '.join(words)}; settings are: {', '.join(sorted(valid))}")


def load_toml(path: str | Path) -> dict[str, Any]:
    """Reads the settings in a TOML file.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: the file is not valid TOML; the message names file, line and column.
    """
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error


def plain(value: Any) -> Any:
    """Converts a value to the types of TOML and JSON: dataclasses to tables, tuples to arrays, paths to text.

    Numbers of numpy become those of Python. Keys with the value None are left out: TOML has no null, and a
    missing key means the default.
    """
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, bool | int | float | str):
        return value
    return value.item() if isinstance(value, np.number | np.bool_) else str(value)


def dump_toml(settings: Mapping[str, Any]) -> str:
    """Formats settings as TOML, which :func:`load_toml` reads back; keys with the value None are left out."""
    import tomli_w

    return tomli_w.dumps(plain(settings))
