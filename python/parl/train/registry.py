"""Registration of algorithms, and resolution of their settings for an environment.

An algorithm of parl is a module with ``Config``, ``default_config(spec)``, a class that makes policies and
learners, and optionally ``default_run(spec)`` (default settings of the run for an environment) and
``PRESETS``.
An algorithm of a user or of another package is a class, see :class:`parl.types.RegisteredAlgorithm`.
"""

from __future__ import annotations

import dataclasses
import importlib
import os
import re
import secrets
import sys
import tomllib
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from parl._algorithms import ALGORITHMS, Entry
from parl._algorithms import entry_points as _entry_points
from parl.errors import ConfigError
from parl.extras import install_command
from parl.function_digests import digest_of
from parl.functions import PickledFunction
from parl.run import check_keys, dump_toml, parse_count
from parl.train.config import words
from parl.train.presets import PRESETS
from parl.train.topologies import TOPOLOGIES, Topology

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.types import EnvSpec, Preset, RegisteredAlgorithm


_REGISTERED: dict[str, type[RegisteredAlgorithm]] = {}
# Keys of config.toml beside the algorithm's own.
_RESERVED = ("algorithm", "module", "run")
_METHODS = ("make_policy", "make_learner")
# Members of an instance, by topology; those that are not listed are on-policy.
_MEMBERS = {"replay": ("replay_options", "replay_beta", "actor_priorities"), "population": ("make_decoder",)}
_OPTIONAL = ("default_config", "default_run", "PRESETS")
_ON_POLICY_MEMBERS = ("rollout_steps", "memory", "shareable")


def register_algorithm(name: str, algorithm: type[RegisteredAlgorithm]) -> None:
    """Makes an algorithm available under ``name`` to :func:`parl.train`, ``parl train`` and the rest.

    Call it where the module of the class is imported: ``parl resume RUN --import MODULE`` then knows it too.

    Args:
        name: lower-case letters, digits, ``-`` and ``_``, the first one a letter.
        algorithm: see :class:`parl.types.RegisteredAlgorithm`.

    Raises:
        ConfigError: the name is not valid or belongs to another algorithm, or the class lacks a member.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", f"{name}") or name in _RESERVED:
        raise ConfigError(
            f"{name!r} is not a name for an algorithm: it takes lower-case letters, digits, - and _, begins "
            f"with a letter, and is none of {', '.join(_RESERVED)}"
        )
    _check_class(name, algorithm)
    new, old = _place(algorithm), ALGORITHMS.get(name)
    if old is not None and (old.module, old.kind) != new:
        raise ConfigError(f"algorithm {name!r} exists already: {old.module}:{old.kind}; choose another name")
    for point in _entry_points().get(name, ()):
        if point.module.split(".")[0] != algorithm.__module__.split(".")[0]:
            raise ConfigError(f"algorithm {name!r} exists already: {_shown(point)}; choose another name")
    # Error messages begin with it. A class of parl's, and one that sets it, keeps its own.
    if "algorithm_name" not in vars(algorithm.Config):
        algorithm.Config.algorithm_name = name
    # A class of the same place replaces the earlier one: a cell of a notebook is run again.
    _REGISTERED[name] = algorithm
    ALGORITHMS[name] = Entry(*new, algorithm.topology)


def _check_class(name: str, algorithm: Any) -> None:
    if not isinstance(algorithm, type):
        raise ConfigError(f"algorithm {name!r} is {algorithm!r}, not a class")
    kind: Any = algorithm
    where = f"algorithm {name!r}: {kind.__name__}"
    missing = [one for one in ("Config", "topology", *_METHODS) if not hasattr(kind, one)]
    if missing:
        raise ConfigError(f"{where} has no {', '.join(missing)}; see parl.types.RegisteredAlgorithm")
    if kind.topology not in TOPOLOGIES:
        raise ConfigError(f"{where}.topology = {kind.topology!r} is not one of {', '.join(TOPOLOGIES)}")
    if not isinstance(kind.Config, type) or not dataclasses.is_dataclass(kind.Config):
        raise ConfigError(f"{where}.Config is not a dataclass")
    fields = dataclasses.fields(kind.Config)
    unset = [one.name for one in fields if one.default is dataclasses.MISSING]
    if unset:
        raise ConfigError(f"{where}.Config has fields without a default: {', '.join(unset)}")
    run = {one.name for one in dataclasses.fields(TOPOLOGIES[kind.topology].config)}
    both = sorted(run & {one.name for one in fields})
    if both:
        raise ConfigError(f"{where}.Config has fields that are settings of the run: {', '.join(both)}")


def _place(algorithm: type) -> tuple[str, str]:
    """Module and name of a class; of a program that is run, the name by which its file can be imported."""
    module = algorithm.__module__
    if module == "__main__":
        program: Any = sys.modules[module]
        file = Path(getattr(program, "__file__", None) or module)
        module = program.__spec__.name if program.__spec__ else file.stem
    return module, algorithm.__qualname__


def _shown(point: metadata.EntryPoint) -> str:
    return f"{point.value}, an entry point of {point.dist.name if point.dist else 'a package'}"


def algorithm_names() -> list[str]:
    """The names of all algorithms, also of entry points that are not loaded yet, sorted."""
    return sorted({*ALGORITHMS, *_entry_points()})


def entry(name: str) -> Entry:
    """The entry of ``name``; loads an entry point of that name.

    Raises:
        ConfigError: there is no such algorithm; or there are several, or the entry point cannot be loaded.
    """
    points = _entry_points().get(name, [])
    if len(points) > 1 or (points and name in ALGORITHMS and name not in _REGISTERED):
        own = [f"parl's own {name}"] if name in ALGORITHMS and name not in _REGISTERED else []
        shown = "; ".join([*own, *map(_shown, points)])
        raise ConfigError(f"there are several algorithms {name!r}: {shown}")
    if points and name not in ALGORITHMS:
        try:
            loaded = points[0].load()
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"algorithm {name!r}: {_shown(points[0])} cannot be loaded: {error}") from error
        if isinstance(loaded, type):
            register_algorithm(name, loaded)
        elif name not in ALGORITHMS:
            raise ConfigError(f"algorithm {name!r}: {_shown(points[0])} is no class and registers none")
    if name not in ALGORITHMS:
        raise ConfigError(f"there is no algorithm {name!r}; there are: {', '.join(algorithm_names())}")
    return ALGORITHMS[name]


def check_known(table: Mapping[str, Any], where: str | Path) -> str:
    """Returns the name of the algorithm of a run's settings.

    Raises:
        ConfigError: it is not registered; the message says how to register it.
    """
    name, module = str(table.get("algorithm")), table.get("module")
    if module is not None and name not in algorithm_names():
        raise ConfigError(
            f"{where}: algorithm {name!r} is not registered; module {module} registers it: import it first, "
            f"with --import {module} on the command line"
        )
    return name


def module_of(name: str) -> Any:
    """The module of algorithm ``name``, or an object with the same members for a registered one.

    Raises:
        ConfigError: it needs a package that is not installed.
    """
    found = entry(name)
    kind: Any = _REGISTERED.get(name)
    if kind is None:
        try:
            return importlib.import_module(found.module)
        except ModuleNotFoundError as error:
            if command := install_command(error):
                raise ConfigError(f"{name} needs {error.name}: {command}") from error
            raise
    optional: dict[str, Any] = {"default_config": lambda spec: kind.Config()}
    optional |= {one: getattr(kind, one) for one in _OPTIONAL if hasattr(kind, one)}
    return SimpleNamespace(Config=kind.Config, **optional)


def class_of(name: str) -> Any:
    """The class of algorithm ``name`` that makes policies and learners."""
    return _REGISTERED[name] if name in _REGISTERED else getattr(module_of(name), entry(name).kind)


def topology_of(name: str) -> Topology:
    """The topology of algorithm ``name``."""
    return TOPOLOGIES[entry(name).topology]


def make_algorithm(name: str, algorithm: Any, spec: EnvSpec) -> Any:
    """The algorithm ``name`` with the settings ``algorithm`` for the environment ``spec``.

    Raises:
        ConfigError: the settings do not suit the environment, or a registered algorithm lacks a member.
    """
    made: Any = class_of(name)(algorithm, spec)
    if name in _REGISTERED:
        members = _MEMBERS.get(entry(name).topology, _ON_POLICY_MEMBERS)
        missing = [one for one in members if not hasattr(made, one)]
        if missing:
            raise ConfigError(f"algorithm {name!r}: {type(made).__name__} has no {', '.join(missing)}")
    return made


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
    if table.get("algorithm", name) != name:
        raise ConfigError(f"{where} is for algorithm {table['algorithm']!r}, not {name!r}")
    check_keys(table, {*_RESERVED, name}, str(where))
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
    module = {"module": entry(name).module} if name in _REGISTERED else {}
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
