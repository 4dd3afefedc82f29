"""Which algorithms there are, the family each belongs to, and their settings for an environment.

An algorithm is a module with ``Config``, ``default_config(spec)``, a class that makes its parts, and, where
it has them, ``default_run(spec)`` (settings of the run that suit the environment) and ``PRESETS``.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parl.errors import ConfigError
from parl.run import check_keys, parse_count
from parl.train.config import words
from parl.train.families import FAMILIES, Family
from parl.train.presets import PRESETS

if TYPE_CHECKING:
    from parl.types import EnvSpec, Preset


@dataclass(frozen=True)
class Entry:
    """Where an algorithm lives.

    Attributes:
        module: its name.
        kind: the class in it that makes policies and learners.
        family: key of :data:`parl.train.families.FAMILIES`.
    """

    module: str
    kind: str
    family: str = "replay"


ALGORITHMS: dict[str, Entry] = {
    "a2c": Entry("parl.algos.a2c", "A2C", "rollout"),
    "a3c": Entry("parl.algos.a3c", "A3C", "hogwild"),
    "dqn": Entry("parl.algos.dqn", "DQN"),
    "bc": Entry("parl.algos.bc", "BC", "data"),
    "es": Entry("parl.algos.es", "ES", "population"),
    "ga": Entry("parl.algos.ga", "GA", "population"),
    "ga3c": Entry("parl.algos.ga3c", "GA3C", "predictor"),
    "impala": Entry("parl.algos.impala", "IMPALA", "async"),
    "ppo": Entry("parl.algos.ppo", "PPO", "rollout"),
    "pqn": Entry("parl.algos.pqn", "PQN", "rollout"),
    "rainbow": Entry("parl.algos.rainbow", "Rainbow"),
    "sac": Entry("parl.algos.sac", "SAC"),
    "td3": Entry("parl.algos.td3", "TD3"),
    "ddpg": Entry("parl.algos.ddpg", "DDPG"),
}
"""Every algorithm by its name."""


def entry(name: str) -> Entry:
    """The entry of ``name``.

    Raises:
        ConfigError: there is no such algorithm.
    """
    if name not in ALGORITHMS:
        raise ConfigError(f"there is no algorithm {name!r}; there are: {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[name]


def module_of(name: str) -> Any:
    """The module of algorithm ``name``."""
    return importlib.import_module(entry(name).module)


def family_of(name: str) -> Family:
    """The family of algorithm ``name``."""
    return FAMILIES[entry(name).family]


def make_algorithm(name: str, algorithm: Any, spec: EnvSpec) -> Any:
    """The algorithm ``name`` with the settings ``algorithm`` for the environment ``spec``."""
    return getattr(module_of(name), entry(name).kind)(algorithm, spec)


def presets_of(name: str) -> dict[str, Preset]:
    """All presets of algorithm ``name`` by their names: those that most have, then its own."""
    return {**PRESETS.get(name, {}), **getattr(module_of(name), "PRESETS", {})}


def preset_of(name: str, preset: str) -> Preset:
    """A preset of algorithm ``name``.

    Raises:
        ConfigError: it has no such preset; names those it has.
    """
    presets = presets_of(name)
    if preset not in presets:
        raise ConfigError(f"{name} has no preset {preset!r}; it has: {', '.join(sorted(presets)) or 'none'}")
    return presets[preset]


def default_settings(name: str, spec: EnvSpec | None = None, preset: str | None = None) -> tuple[Any, Any]:
    """The run's and the algorithm's default settings.

    Args:
        name: of the algorithm.
        spec: of the environment, for settings that suit its observations.
        preset: one of the algorithm's, whose settings win over those.
    """
    module = module_of(name)
    run, own = family_of(name).config(), module.Config()
    if spec is not None:
        own = module.default_config(spec)
        if hasattr(module, "default_run"):
            run = replace(run, module.default_run(spec), f"{name} default_run")
    if preset is not None:
        chosen = preset_of(name, preset)
        run = replace(run, chosen.run, f"{name} preset {preset}")
        own = replace(own, chosen.algorithm, f"{name} preset {preset}")
    return run, own


def _coerce(kind: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """``value`` in the type of the field's default; text such as 10M where a whole number is wanted."""
    name, default = field.name, field.default
    number_or_auto = default == "auto" and "int" in str(field.type)
    try:
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise ConfigError("not true or false")
            return value
        if isinstance(default, int) or (number_or_auto and value != "auto"):
            return parse_count(value)
        if isinstance(default, float) or (default is None and isinstance(value, int)):
            return float(value)
        if isinstance(default, tuple):
            return words(value) if name.endswith("env_options") else tuple(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind}: {name} = {value!r}: {error}") from error
    return value


def replace(config: Any, values: Mapping[str, Any], kind: str) -> Any:
    """``config`` with ``values`` in place of its own.

    Raises:
        ConfigError: a key is unknown or a value wrong; ``kind`` says whose.
    """
    fields = {field.name: field for field in dataclasses.fields(config)}
    check_keys(values, fields, kind)
    return dataclasses.replace(
        config, **{key: _coerce(kind, fields[key], value) for key, value in values.items()}
    )


def settings_from(name: str, table: Mapping[str, Any], where: str | Path = "") -> tuple[Any, Any]:
    """Settings from a table such as a run's ``config.toml``: ``algorithm``, ``[run]`` and ``[<algorithm>]``.

    Raises:
        ConfigError: an unknown key, a wrong value or another algorithm; names ``where``.
    """
    check_keys(table, {"algorithm", "run", name}, str(where))
    if table.get("algorithm", name) != name:
        raise ConfigError(f"{where} is for algorithm {table['algorithm']!r}, not {name!r}")
    config, algorithm = default_settings(name)
    return (
        replace(config, table.get("run", {}), f"{where} [run]"),
        replace(algorithm, table.get(name, {}), f"{where} [{name}]"),
    )


def table_of(name: str, config: Any, algorithm: Any) -> dict[str, Any]:
    """The table that :func:`settings_from` reads."""
    return {"algorithm": name, "run": dataclasses.asdict(config), name: dataclasses.asdict(algorithm)}
