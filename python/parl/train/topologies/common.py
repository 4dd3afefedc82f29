"""What several topologies share: actors on Ray, processes of torchrun, and settings that are refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.train.config import RayConfig, RunConfig

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.distributed.ray_cluster import RayCluster
    from parl.runtime.on_policy.setup import RolloutSetup
    from parl.types import EnvSpec


def ray_actors(
    config: RayConfig, most: int, learners: int, print_line: Callable[[str], None], share: int = 1
) -> int:
    """Number of actors: one per processor of the Ray cluster, less those that the learners need.

    Args:
        config: settings of the run.
        most: largest number of actors.
        learners: number of processors for learners.
        print_line: takes the reason.
        share: number of which the number of actors is a multiple.
    """
    from parl.runtime.distributed.ray_cluster import RayCluster, cluster_cpus

    found = cluster_cpus(RayCluster(config.ray_address))
    actors = max(1, min(found - learners, most) // share) * share
    print_line(f"the Ray cluster has {found} processors: {actors} actors, {learners} learners here")
    return actors


def ray_cluster(config: RayConfig, steps: int = 1) -> RayCluster | None:
    """The Ray cluster of a run; None: actors run on this machine.

    Args:
        config: settings of the run.
        steps: vector steps per request of an actor that writes into a replay.
    """
    from parl.runtime.distributed.ray_cluster import RayCluster

    return RayCluster(config.ray_address, steps) if config.engine == "ray" else None


def threads_text(maker: EnvMaker, actors: int, num_envs: int) -> str:
    """Part of a message: the threads that step each actor's environments; empty if these have no threads."""
    threads = maker.threads_per_actor(actors, max(1, num_envs // actors))
    each = " each" if actors > 1 else ""
    return f" on {threads} thread{'s' * (threads > 1)}{each}" if threads else ""


def refuse_group(why: str) -> None:
    """Checks that this process is the only one of the run.

    Args:
        why: reason why it must be.

    Raises:
        ConfigError: torchrun started several processes.
    """
    if Group.from_environment() is not None:
        raise ConfigError(f"{why}: start the run without torchrun")


def refuse_device(maker: EnvMaker) -> None:
    """Checks that the environments are not on a CUDA device.

    Raises:
        ConfigError: they are.
    """
    if maker.is_on_device:
        raise ConfigError(
            "environments on a CUDA device are for a2c, dqn, ppo, pqn and rainbow: leave device out of "
            "env_options"
        )


def check_values(config: Any, needed: Mapping[str, Any], why: str) -> None:
    """Checks that settings have the values that a run needs, or ``auto``.

    Args:
        config: settings of the run.
        needed: the value of each of these settings.
        why: why the run needs them.

    Raises:
        ConfigError: the first setting that has another value.
    """
    for name, value in needed.items():
        given = getattr(config, name)
        if given not in (value, "auto"):
            raise ConfigError(f"{name} = {given!r}: {why}: set {value!r}")


def check_on_device(config: Any, needed: Mapping[str, Any]) -> None:
    """Checks settings of a run whose environments are on a CUDA device, as :func:`check_values` does.

    Raises:
        ConfigError: the learner is on the CPU, or a setting is not possible in one process.
    """
    if config.device == "cpu":
        raise ConfigError("environments on a CUDA device need the learner there too: device = 'cuda'")
    check_values(config, needed, "with environments on a CUDA device the run is one process")


# "auto" of random_starts: above _IN_STEP environments _RANDOM_STARTS steps, else none.
_IN_STEP, _RANDOM_STARTS = 64, 500


def rollout_setup(
    algorithm: Any, config: RunConfig, maker: EnvMaker, spec: EnvSpec, **own: Any
) -> RolloutSetup:
    """The setup of a run that learns from rollouts; ``own``: further fields, which depend on the topology."""
    from parl.runtime.on_policy.setup import RolloutSetup

    starts = getattr(config, "random_starts", 0)
    if starts == "auto":
        starts = _RANDOM_STARTS if config.num_envs > _IN_STEP and not spec.mask_size else 0
    if starts and spec.mask_size:
        raise ConfigError(f"random_starts = {starts}: random actions ignore action masks; leave it at 'auto'")
    return RolloutSetup(
        algorithm=algorithm,
        maker=maker,
        spec=spec,
        seed=config.seed,
        num_envs=config.num_envs,
        total_steps=config.total_steps,
        device=config.device,
        random_steps=starts,
        **own,
    )


def in_group(setup: RolloutSetup, grouped: bool) -> RolloutSetup:
    """The setup of one process of torchrun: its share of environments and actors."""
    group = Group.from_environment() if grouped else None
    if group is None:
        return setup
    return dataclasses.replace(
        setup,
        group=group,
        num_envs=group.share("num_envs", setup.num_envs),
        actors=1 if setup.actors == 1 else group.share("actors", setup.actors),
        device=group.device(setup.device),
    )
