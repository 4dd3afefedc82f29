"""Makers of a run's environments, from its settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from parl.errors import ConfigError
from parl.train.config import RunConfig, keywords, words
from parl.train.evaluation_protocol import evaluation_options
from parl.train.registry import class_of, topology_of
from parl.train.settings import Layer

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from parl.envs import EnvMaker
    from parl.types import EnvSpec

    EnvLike: TypeAlias = (
        str
        | Env[Any, Any]
        | VectorEnv[Any, Any, Any]
        | Callable[[], Env[Any, Any]]
        | Callable[[int], VectorEnv[Any, Any, Any]]
    )


def env_maker(
    name: str,
    env: EnvLike | None,
    layers: Sequence[Layer],
    config: Any = None,
    wrappers: Sequence[str | Callable[[Any], Any]] | None = None,
) -> EnvMaker:
    """Returns the maker of a run's environments.

    Args:
        name: name of the algorithm.
        env: see :func:`train`.
        layers: settings by name, of which ``env``, ``env_options`` and ``wrappers`` are read.
        config: settings of the run to start from; None: the defaults.
        wrappers: see :func:`train`; they replace those of the settings.
    """
    from parl.envs import EnvMaker

    chosen = topology_of(name).config() if config is None else config
    found = {"env": chosen.env, "env_options": chosen.env_options, "wrappers": chosen.wrappers}
    for layer in layers:
        found |= {key: layer.run[key] for key in found if key in layer.run}
    found |= {} if env is None else {"env": env}
    found |= {} if wrappers is None else {"wrappers": wrappers}
    maker = EnvMaker(found["env"], keywords(words(found["env_options"])), found["wrappers"])
    if getattr(class_of(name), "takes_masks", False):
        maker.find_masks()
    return maker


def with_dataset(layers: list[Layer], env: EnvLike | None) -> list[Layer]:
    """``layers``, and the environment of the dataset that they name if they set no other one.

    Args:
        layers: settings by name.
        env: the environment if it was given.
    """
    found = {
        key: layer.run[key]
        for layer in layers
        for key in ("dataset", "env", "env_options")
        if key in layer.run
    }
    if not found.get("dataset") or env is not None or "env" in found:
        return layers
    from parl.datasets.learning import environment_of, open_dataset

    chosen, options = environment_of(open_dataset(found["dataset"]))
    options |= keywords(words(found.get("env_options", ())))
    own = {"env": chosen, "env_options": words(options)}
    return [*layers, Layer(f"dataset {found['dataset']}", own, {})]


def probe_env(maker: EnvMaker) -> tuple[EnvSpec, dict[str, Any]]:
    """Makes one environment; returns its description and its own settings."""
    from parl.envs import spec_of

    probe = maker(1)
    spec = spec_of(probe)
    found = getattr(probe.unwrapped, "settings", {})  # Of any type, if the environment is not parl's.
    environment = dict(found) if isinstance(found, Mapping) else {}
    environment.pop("num_envs", None)  # The number in the probe, not in the run.
    probe.close()
    return spec, environment


def evaluation_maker(maker: EnvMaker, config: RunConfig) -> EnvMaker:
    """The maker of the environments of evaluations, from that of training and the settings of the run."""
    env = maker.env if isinstance(maker.env, str) else ""
    return maker.with_options(evaluation_options(env, maker.options, config.evaluation_env_options))


def checked_evaluation_maker(maker: EnvMaker, spec: EnvSpec, config: RunConfig) -> EnvMaker:
    """As :func:`evaluation_maker`; makes one environment if ``config`` has ``evaluation_env_options``.

    Args:
        maker: makes the environments of training.
        spec: their description.
        config: settings of the run.

    Raises:
        ConfigError: the environment does not take these options, or has other spaces with them.
    """
    given = config.evaluation_env_options
    if not given:
        return evaluation_maker(maker, config)
    where = f"evaluation_env_options = {' '.join(given)!r}"
    try:
        found = evaluation_maker(maker, config)
        spaces = probe_env(found)[0].spaces
    except Exception as error:  # an environment may raise any error
        raise ConfigError(f"{where}: {error}") from error
    if spaces != spec.spaces:
        raise ConfigError(
            f"{where}: environments of evaluations have {spaces}, those of training {spec.spaces}"
        )
    return found
