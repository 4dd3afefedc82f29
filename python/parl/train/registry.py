"""Table of all algorithms with their topologies, and resolution of their settings for an environment.

An algorithm is a module with ``Config``, ``default_config(spec)``, a class that makes policies and learners,
and optionally ``default_run(spec)`` (default settings of the run for an environment) and ``PRESETS``.
"""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from parl.errors import ConfigError
from parl.run import check_keys, parse_count
from parl.train.config import words
from parl.train.presets import PRESETS
from parl.train.topologies import TOPOLOGIES, Topology

if TYPE_CHECKING:
    from parl.types import EnvSpec, Preset


@dataclass(frozen=True)
class Entry:
    """Module, class and topology of an algorithm.

    Attributes:
        module: name of the module.
        kind: name of the class in it that makes policies and learners.
        topology: key of :data:`parl.train.topologies.TOPOLOGIES`.
    """

    module: str
    kind: str
    topology: str = "replay"


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


def class_of(name: str) -> Any:
    """The class of algorithm ``name`` that makes policies and learners."""
    return getattr(module_of(name), entry(name).kind)


def topology_of(name: str) -> Topology:
    """The topology of algorithm ``name``."""
    return TOPOLOGIES[entry(name).topology]


def make_algorithm(name: str, algorithm: Any, spec: EnvSpec) -> Any:
    """The algorithm ``name`` with the settings ``algorithm`` for the environment ``spec``."""
    return class_of(name)(algorithm, spec)


def presets_of(name: str) -> dict[str, Preset]:
    """All presets of algorithm ``name`` by their names: the common ones, then those of its own module."""
    return {**PRESETS.get(name, {}), **getattr(module_of(name), "PRESETS", {})}


def preset_of(name: str, preset: str) -> Preset:
    """A preset of algorithm ``name``.

    Raises:
        ConfigError: it has no such preset; the message lists those it has.
    """
    presets = presets_of(name)
    if preset not in presets:
        raise ConfigError(f"{name} has no preset {preset!r}; it has: {', '.join(sorted(presets)) or 'none'}")
    return presets[preset]


class Layer(NamedTuple):
    """Settings from one source, by name. Later layers take precedence.

    Attributes:
        where: the source, for error messages.
        run: settings of the run.
        algorithm: settings of the algorithm.
    """

    where: str
    run: Mapping[str, Any]
    algorithm: Mapping[str, Any]


def preset_layer(name: str, preset: str | None) -> list[Layer]:
    """The layer of a preset of algorithm ``name``; no layer for None.

    Raises:
        ConfigError: there is no such preset.
    """
    if preset is None:
        return []
    chosen = preset_of(name, preset)
    return [Layer(f"{name} preset {preset}", chosen.run, chosen.algorithm)]


def table_layer(name: str, table: Mapping[str, Any], where: str | Path = "") -> Layer:
    """The layer of a table such as a run's ``config.toml``: ``algorithm``, ``[run]`` and ``[<algorithm>]``.

    Raises:
        ConfigError: an unknown key or another algorithm; names ``where``.
    """
    check_keys(table, {"algorithm", "run", name}, str(where))
    if table.get("algorithm", name) != name:
        raise ConfigError(f"{where} is for algorithm {table['algorithm']!r}, not {name!r}")
    return Layer(str(where), table.get("run", {}), table.get(name, {}))


def resolve(
    name: str, spec: EnvSpec | None, layers: Sequence[Layer] = (), run: Any = None, own: Any = None
) -> tuple[Any, Any]:
    """Returns the settings of a run and of its algorithm, for every way to start or resume a run.

    In the order of increasing precedence: defaults of the dataclasses, defaults for the environment, layers.

    Args:
        name: name of the algorithm.
        spec: description of the environment; None leaves out the defaults for it.
        layers: settings by name.
        run: settings of the run to start from, in place of the defaults.
        own: settings of the algorithm to start from, in place of the defaults.

    Raises:
        ConfigError: a key is unknown or a value wrong; names the layer.
    """
    module = module_of(name)
    spec = None if spec is None else spec.without_mask
    suited: list[Layer] = []
    if run is None:
        run = topology_of(name).config()
        if spec is not None and hasattr(module, "default_run"):
            suited = [Layer(f"{name} default_run", module.default_run(spec), {})]
    if own is None:
        own = module.Config() if spec is None else module.default_config(spec)
    return (
        _merged(run, [(f"{layer.where} [run]", layer.run) for layer in (*suited, *layers)]),
        _merged(own, [(f"{layer.where} [{name}]", layer.algorithm) for layer in layers]),
    )


def _merged(config: Any, sources: Sequence[tuple[str, Mapping[str, Any]]]) -> Any:
    """``config`` with the values of all sources; bounds are checked once, when all are set."""
    fields = {field.name: field for field in dataclasses.fields(config)}
    values: dict[str, Any] = {}
    for where, source in sources:
        check_keys(source, fields, where)
        values |= {key: _coerce(where, fields[key], value) for key, value in source.items()}
    return dataclasses.replace(config, **values)


def refuse_unused(name: str, own: Any, spec: EnvSpec) -> None:
    """Checks that settings of the algorithm without effect have their default values.

    Args:
        name: name of the algorithm.
        own: its settings.
        spec: description of the environment.

    Raises:
        ConfigError: a setting was changed that has no effect with the others; names it and the reason.
    """
    spec = spec.without_mask
    suited = module_of(name).default_config(spec)
    reasons = own.unused(spec)
    for field in dataclasses.fields(own):
        value = getattr(own, field.name)
        if field.name in reasons and value not in (field.default, getattr(suited, field.name)):
            raise ConfigError(f"{name}: {field.name} = {value!r} has no effect with {reasons[field.name]}")


def default_settings(name: str, spec: EnvSpec | None = None, preset: str | None = None) -> tuple[Any, Any]:
    """The run's and the algorithm's default settings.

    Args:
        name: name of the algorithm.
        spec: description of the environment, for the defaults that depend on it.
        preset: name of a preset of the algorithm, whose settings take precedence.
    """
    return resolve(name, spec, preset_layer(name, preset))


def _coerce(kind: str, field: dataclasses.Field[Any], value: Any) -> Any:
    """Converts ``value`` to the type of the field's default; whole numbers may be text such as 10M."""
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
        ConfigError: a key is unknown or a value wrong; the message starts with ``kind``.
    """
    return _merged(config, [(kind, values)])


def table_of(name: str, config: Any, algorithm: Any) -> dict[str, Any]:
    """The settings as a table that :func:`table_layer` reads."""
    return {"algorithm": name, "run": dataclasses.asdict(config), name: dataclasses.asdict(algorithm)}
