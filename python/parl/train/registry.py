"""Registration of algorithms, and what belongs to a name: module, class, topology and presets.

An algorithm of parl is a module with ``Config``, ``default_config(spec)``, a class that makes policies and
learners, and optionally ``default_run(spec)`` (default settings of the run for an environment) and
``PRESETS``.
An algorithm of a user or of another package is a class, see :class:`parl.types.RegisteredAlgorithm`.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from parl._algorithms import ALGORITHMS, Entry, algorithm_names
from parl._algorithms import entry_points as _entry_points
from parl.errors import ConfigError
from parl.extras import install_command
from parl.train.presets import PRESETS
from parl.train.topologies import TOPOLOGIES, Topology

if TYPE_CHECKING:
    from parl.types import EnvSpec, Preset, RegisteredAlgorithm


_REGISTERED: dict[str, type[RegisteredAlgorithm]] = {}
RESERVED = ("algorithm", "module", "run")
"""Keys of config.toml beside the algorithm's own, which no algorithm has as its name."""
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
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", f"{name}") or name in RESERVED:
        raise ConfigError(
            f"{name!r} is not a name for an algorithm: it takes lower-case letters, digits, - and _, begins "
            f"with a letter, and is none of {', '.join(RESERVED)}"
        )
    _check_class(name, algorithm)
    new, old = _place(algorithm), ALGORITHMS.get(name)
    if old is not None and (old.module, old.kind) != new:
        raise ConfigError(f"algorithm {name!r} exists already: {old.module}:{old.kind}; choose another name")
    for point in _entry_points().get(name, ()):
        if point.module.split(".")[0] != algorithm.__module__.split(".")[0]:
            raise ConfigError(f"algorithm {name!r} exists already: {_shown(point)}; choose another name")
    # Error messages begin with it. A class of parl's, and one that sets it, keeps its own.
    config = algorithm.Config
    if "algorithm_name" not in vars(config) and config.__module__.partition(".")[0] != "parl":
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


def is_registered(name: str) -> bool:
    """Whether algorithm ``name`` is one that was registered, not one of parl's own."""
    return name in _REGISTERED


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
