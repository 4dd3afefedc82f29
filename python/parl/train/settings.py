"""Settings of a run and its algorithm: from defaults, presets, tables and keywords, and back to a table."""

from __future__ import annotations

import dataclasses
import os
import secrets
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parl.errors import ConfigError
from parl.function_digests import digest_of
from parl.functions import PickledFunction
from parl.run import check_keys, dump_toml, parse_count
from parl.train.config import words
from parl.train.registry import RESERVED, entry, is_registered, module_of, preset_of, topology_of

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.types import EnvSpec


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
    if table.get("algorithm", name) != name:
        raise ConfigError(f"{where} is for algorithm {table['algorithm']!r}, not {name!r}")
    check_keys(table, {*RESERVED, name}, str(where))
    run, own = table.get("run", {}), table.get(name, {})
    for key, value in (("run", run), (name, own)):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: {key} = {value!r} is not a table of settings")
    return Layer(str(where), run, own)


def options_layer(name: str, options: Mapping[str, Any]) -> Layer:
    """Divides the keywords of :func:`train` into settings of the run and of the algorithm."""
    where = f"train({name!r})"
    if "seed" in options and options["seed"] is None:
        options = {**options, "seed": secrets.randbelow(2**31)}
    run = {field.name for field in dataclasses.fields(topology_of(name).config)}
    own = {field.name for field in dataclasses.fields(module_of(name).Config)}
    check_keys(options, run | own, where)
    return Layer(
        where,
        {key: value for key, value in options.items() if key in run},
        {key: value for key, value in options.items() if key in own},
    )


def check_configs(name: str, run: Any, own: Any) -> None:
    """Checks the types of settings that are given as dataclasses; None is right.

    Args:
        name: name of the algorithm.
        run: settings of the run.
        own: settings of the algorithm.

    Raises:
        ConfigError: one is of another type; names it and the right one.
    """
    kinds = {"run_config": (run, topology_of(name).config), "algorithm_config": (own, module_of(name).Config)}
    for label, (given, kind) in kinds.items():
        if given is not None and not isinstance(given, kind):
            raise ConfigError(
                f"{label} is a {_full_name(type(given))}, {name} takes a {_full_name(kind)}, which "
                f"parl.train.default_settings({name!r}) returns"
            )


def _full_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


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
    reasons = own.unused(spec) if hasattr(own, "unused") else {}
    for field in dataclasses.fields(own):
        value = getattr(own, field.name)
        if field.name in reasons and value not in (field.default, getattr(suited, field.name)):
            raise ConfigError(f"{name}: {field.name} = {value!r} has no effect with {reasons[field.name]}")


def acting_settings(run: Any, own: Any) -> list[str]:
    """The settings of actors in a run that learns from a dataset, which has none; empty for other runs.

    Args:
        run: settings of the run.
        own: settings of the algorithm.
    """
    if not getattr(run, "dataset", ""):
        return []
    of_run = [name for name in ("learning_starts",) if hasattr(run, name)]
    return [*getattr(own, "acting_settings", ()), *of_run]


def refuse_acting(name: str, run: Any, own: Any, spec: EnvSpec) -> None:
    """Checks that settings of actors have their default values in a run that learns from a dataset.

    Args:
        name: name of the algorithm.
        run: settings of the run.
        own: settings of the algorithm.
        spec: description of the environment.

    Raises:
        ConfigError: a setting was changed that has no effect without actors; names it.
    """
    acting = acting_settings(run, own)
    if not acting:
        return
    module, spec = module_of(name), spec.without_mask
    suited = dataclasses.replace(type(run)(), **getattr(module, "default_run", lambda _: {})(spec))
    for setting in acting:
        of_run = hasattr(run, setting)
        config, defaults = (run, suited) if of_run else (own, module.default_config(spec))
        value = getattr(config, setting)
        if value not in (getattr(type(config)(), setting), getattr(defaults, setting)):
            raise ConfigError(
                f"{name}: {setting} = {value!r} has no effect with dataset = {run.dataset!r}: no actor steps "
                "environments"
            )


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
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if value is default:
        return value
    if name == "device":  # text, or a torch.device
        return str(value)
    number_or_auto = default == "auto" and "int" in str(field.type)
    types = [one for one in str(field.type).split(" | ") if one != "None"]
    try:
        if isinstance(default, bool):
            if not isinstance(value, bool | np.bool_):
                raise ConfigError("not true or false")
            return bool(value)
        if isinstance(default, int) or (number_or_auto and value != "auto"):
            return parse_count(value)
        if isinstance(default, float) or (default is None and types == ["float"]):
            if isinstance(value, bool):
                raise ConfigError("not a number")
            return float(value)
        if types == ["str"] and not isinstance(value, str):
            raise ConfigError("not text")
        if isinstance(default, tuple):
            if name.endswith("env_options"):
                return words(value)
            return (value,) if isinstance(value, str) else tuple(value)
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
    """The settings as a table that :func:`table_layer` reads, without functions that have no import path."""
    own = {key: value for key, value in dataclasses.asdict(algorithm).items() if not _is_pickled(value)}
    module = {"module": entry(name).module} if is_registered(name) else {}
    return {"algorithm": name, **module, "run": dataclasses.asdict(config), name: own}


def cleared_settings(
    name: str, spec: EnvSpec, table: Mapping[str, Any], config: Any, own: Any
) -> dict[str, Any]:
    """The settings that are None and would have another value when read from TOML, which has no None.

    Args:
        name: name of the algorithm.
        spec: description of the environment.
        table: from :func:`table_of`.
        config: settings of the run.
        own: settings of the algorithm.

    Returns:
        ``"run"`` and the name of the algorithm -> names of such settings.

    Raises:
        ConfigError: another setting of the algorithm would have another value; names it.
    """
    layer = table_layer(name, tomllib.loads(dump_toml(table)), "config.toml")
    read_run, read_own = resolve(name, spec, [layer])
    cleared: dict[str, Any] = {}
    for key, given, read in (("run", config, read_run), (name, own, read_own)):
        names = [one for one, value in vars(given).items() if value is None is not getattr(read, one)]
        cleared |= {key: names} if names else {}
    for setting, value in vars(own).items():
        found = getattr(read_own, setting)
        if value is None or _is_pickled(value) or _listed(found) == _listed(value) or value != value:
            continue
        raise ConfigError(
            f"{name}: {setting} = {value!r} comes back as {found!r} from a file of settings: expected a "
            "number, text, true, false, None, or a list or dictionary of these"
        )
    return cleared


def _listed(value: Any) -> Any:
    """``value`` with tuples as lists, which TOML does not tell apart."""
    if isinstance(value, list | tuple):
        return [_listed(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _listed(item) for key, item in value.items()}
    return value


def pickled_functions(algorithm: Any) -> dict[str, Any]:
    """The settings of an algorithm that :func:`table_of` leaves out: functions without an import path."""
    return {name: value for name, value in vars(algorithm).items() if _is_pickled(value)}


def described_functions(maker: EnvMaker, algorithm: Any) -> dict[str, str]:
    """Name and digest of each function of a run without an import path, for comparisons of runs."""
    found = {name: f"{value}-{digest_of(value)}" for name, value in pickled_functions(algorithm).items()}
    if not isinstance(maker.env, str):
        found["environment"] = f"{maker.name}-{digest_of(maker.env)}"
    own = [one for one in maker.wrappers if not isinstance(one, str)]
    if own:
        found["wrapper functions"] = " ".join(
            f"{name}-{digest_of(one)}"
            for name, one in zip(maker.wrapper_names, maker.wrappers, strict=True)
            if one in own
        )
    return found


def import_paths(name: str, table: Mapping[str, Any]) -> list[str]:
    """The import paths of functions that a table of settings names, see ``parl.algos.common.networks``."""
    defaults = vars(module_of(name).Config())
    own = table.get(name, {})
    return [own[key] for key in ("torso", "network") if key in defaults and isinstance(own.get(key), str)]


def _is_pickled(value: Any) -> bool:
    return isinstance(value, PickledFunction)
