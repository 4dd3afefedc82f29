"""Runs with a replay: actors write into it, learners sample from it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parl.envs import usable_cores
from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.runtime.off_policy.pacer import Pacer
from parl.train.config import OffPolicyRunConfig, RunConfig
from parl.train.topologies.common import (
    check_on_device,
    check_values,
    ray_actors,
    ray_cluster,
    refuse_device,
    refuse_group,
    threads_text,
)

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.loop import Loop
    from parl.runtime.off_policy.setup import OffPolicySetup
    from parl.types import EnvSpec


class OffPolicyTopology:
    """Actors write into a replay and learners sample from it."""

    config = OffPolicyRunConfig
    grouped = True

    def resolve_auto(
        self,
        algorithm: Any,
        config: OffPolicyRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> OffPolicyRunConfig:
        """See :class:`Topology`: sets the numbers of actors and learners, by measuring, and of threads."""
        if config.dataset:
            return self._resolve_dataset(algorithm, config, maker, print_line)
        if config.gradient_compression != "none" and Group.from_environment() is None:
            raise ConfigError(
                f"gradient_compression = {config.gradient_compression!r} has no effect without torchrun, "
                "whose processes send gradients"
            )
        if getattr(algorithm, "freeze_after", 0):
            config = _in_one_process(algorithm.freeze_after, config, maker)
        if maker.is_on_device:
            return _resolve_on_device(config, print_line)
        group = Group.from_environment()
        if group is not None:
            config = self._resolve_in_group(group, config, print_line)
        if config.threads == "auto":
            config = dataclasses.replace(config, threads=self._threads(algorithm, config, print_line))
        if "auto" not in (config.actors, config.learners):
            return config
        actors = None if config.actors == "auto" else config.actors
        learners = None if config.learners == "auto" else config.learners
        if config.schedule == "deterministic":
            print_line(
                "the deterministic schedule runs in one thread: 1 actor and 1 learner unless set otherwise"
            )
            return dataclasses.replace(config, actors=actors or 1, learners=learners or 1)
        if config.engine == "ray":
            learners = learners or 1
            if actors is None:
                processes = 1 if group is None else group.size
                actors = ray_actors(config, _max_actors(config), learners * processes, print_line, processes)
            return dataclasses.replace(config, actors=actors, learners=learners)
        return self._measure(algorithm, config, maker, spec, print_line)

    def _resolve_in_group(
        self, group: Group, config: OffPolicyRunConfig, print_line: Callable[[str], None]
    ) -> OffPolicyRunConfig:
        """Sets the numbers of actors and learners of a process of torchrun."""
        if config.schedule == "deterministic":
            raise ConfigError("torchrun needs schedule = 'async', got 'deterministic'")
        if config.learners not in ("auto", 1):
            raise ConfigError(
                f"learners = {config.learners}: under torchrun every process is one learner; "
                "set --nproc-per-node instead"
            )
        config = dataclasses.replace(config, learners=1)
        print_line(f"{group.size} processes of torchrun share environments, batch, replay and steps")
        if config.actors == "auto" and config.engine == "local":
            config = dataclasses.replace(config, actors=_actors_per_process(group, config, print_line))
        return config

    def _measure(
        self,
        algorithm: Any,
        config: OffPolicyRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> OffPolicyRunConfig:
        """Sets numbers of actors and learners that are ``auto`` to those with the highest measured rate."""
        from parl.runtime import autotune

        cores, threads = usable_cores(), 1 if config.threads == "auto" else config.threads
        rates = autotune.measure(
            self.setup(algorithm, config, maker, spec),
            list(range(1, min(cores, 16, _max_actors(config)) + 1))
            if config.actors == "auto"
            else [config.actors],
            [m for m in range(1, max(1, min(cores // threads, 8)) + 1) if config.batch_size % m == 0]
            if config.learners == "auto"
            else [config.learners],
        )
        split = autotune.choose(rates, config.num_envs, config.batch_size / config.replay_ratio, cores)
        kind = "processes" if _uses_processes(config, maker) else "threads"
        print_line(f"{split.reason}; actors are {kind}{threads_text(maker, split.actors, config.num_envs)}")
        return dataclasses.replace(config, actors=split.actors, learners=split.learners)

    def _resolve_dataset(
        self,
        algorithm: Any,
        config: OffPolicyRunConfig,
        maker: EnvMaker,
        print_line: Callable[[str], None],
    ) -> OffPolicyRunConfig:
        """Sets the number of threads of a run that learns from a dataset."""
        refuse_group(f"a run with dataset = {config.dataset!r} is a single process")
        refuse_device(maker)
        if config.threads != "auto":
            return config
        return dataclasses.replace(config, threads=self._threads(algorithm, config, print_line))

    def _threads(self, algorithm: Any, config: OffPolicyRunConfig, print_line: Callable[[str], None]) -> int:
        from parl.nets.fused.rust_mlp import RUST_MAX_PRODUCTS

        learners = 1 if config.learners == "auto" else config.learners
        cores = usable_cores() // learners
        if config.schedule == "deterministic" or cores < 2 or config.device != "cpu":
            return 1
        products = len(algorithm.make_learner(config.seed, "cpu").gradients) * config.batch_size // learners
        if products < RUST_MAX_PRODUCTS:
            return 1
        threads = min(cores, 4)
        print_line(
            f"{threads} threads per learner: an update takes about {products / 1e6:,.0f}M multiplications"
        )
        return threads

    def setup(
        self, algorithm: Any, config: OffPolicyRunConfig, maker: EnvMaker, spec: EnvSpec
    ) -> OffPolicySetup:
        """See :class:`Topology`."""
        from parl.runtime.off_policy.setup import OffPolicySetup

        group = Group.from_environment()
        if group is not None:
            config = _share_of_process(config, group)
        # A row can be sampled once the n steps after it are known: every environment has then taken n + 1
        # steps.
        options = algorithm.replay_options()
        if missing := {"alpha", "n_step", "gamma"} - options.keys():
            raise ConfigError(f"replay_options of the algorithm has no {', '.join(sorted(missing))}")
        drawable = config.num_envs * (int(options["n_step"]) + 1)
        starts = max(config.learning_starts, drawable)
        uses_ray = config.engine == "ray"
        # Ray actors collect several vector steps per request.
        at_once = config.num_envs * (config.ray_steps if uses_ray else 1)
        pacer = Pacer(config.replay_ratio, config.batch_size, at_once, starts, config.total_steps)
        setup = OffPolicySetup(
            algorithm=algorithm,
            maker=maker,
            spec=spec,
            seed=config.seed,
            actors=1 if config.actors == "auto" else config.actors,
            processes=not uses_ray and _uses_processes(config, maker),
            learners=1 if config.learners == "auto" else config.learners,
            learner_threads=config.learner_kind == "thread",
            num_envs=config.num_envs,
            batch_size=config.batch_size,
            replay_capacity=config.replay_capacity,
            pacer=pacer,
            device=config.device,
            threads=1 if config.threads == "auto" else config.threads,
            remote=ray_cluster(config, config.ray_steps),
            prefetch=_prefetch(config),
            priority_delay=config.priority_delay,
            group=group,
            park_actors=config.park_actors,
            gradient_compression=config.gradient_compression,
            double_buffer=config.double_buffer,
        )
        if not config.dataset:
            return setup
        from parl.runtime.off_policy.dataset import DatasetSetup

        return DatasetSetup(**vars(setup), dataset=config.dataset)

    def loop(self, setup: OffPolicySetup, config: RunConfig, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`Topology`."""
        from parl.runtime.cuda.off_policy import CudaOffPolicyLoop
        from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
        from parl.runtime.off_policy.deterministic import DeterministicOffPolicyLoop

        if getattr(config, "dataset", ""):
            from parl.runtime.off_policy.dataset import DatasetLoop, DatasetSetup

            assert isinstance(setup, DatasetSetup)
            return DatasetLoop(setup, saved)
        if setup.maker.is_on_device:
            return CudaOffPolicyLoop(setup, saved)
        return (DeterministicOffPolicyLoop if config.schedule == "deterministic" else AsyncOffPolicyLoop)(
            setup, saved
        )


def _in_one_process(freeze_after: int, config: OffPolicyRunConfig, maker: EnvMaker) -> OffPolicyRunConfig:
    """Settings of a run whose replay is converted to embeddings, which needs its private memory.

    Raises:
        ConfigError: a setting needs several processes, or environments are on a CUDA device.
    """
    why = f"freeze_after = {freeze_after} converts a replay in the memory of one process"
    if maker.is_on_device:
        raise ConfigError(f"{why}, not on a CUDA device: leave device out of env_options")
    refuse_group(why)
    if freeze_after < config.learning_starts:
        raise ConfigError(
            f"freeze_after = {freeze_after} is below learning_starts = {config.learning_starts}: the "
            "convolutions would be frozen before they learn"
        )
    check_values(config, {"learners": 1, "actor_kind": "thread", "engine": "local"}, why)
    if config.schedule == "deterministic":
        return dataclasses.replace(config, learners=1)
    return dataclasses.replace(config, learners=1, actor_kind="thread")


def _resolve_on_device(config: OffPolicyRunConfig, print_line: Callable[[str], None]) -> OffPolicyRunConfig:
    """Settings of a run whose environments are on a CUDA device, which is always one process.

    Raises:
        ConfigError: a setting is not possible in one process.
    """
    needed = {
        "actors": 1,
        "learners": 1,
        "threads": 1,
        "actor_kind": "auto",
        "learner_kind": "process",
        "prefetch": 0,
        "priority_delay": 0,
        "double_buffer": False,
        "engine": "local",
    }
    check_on_device(config, needed)
    refuse_group("a run with a replay and environments on a CUDA device is a single process")
    print_line(f"environments, replay and learner are on {config.device}, in one process")
    return dataclasses.replace(config, actors=1, learners=1, threads=1, prefetch=0)


def _max_actors(config: OffPolicyRunConfig) -> int:
    """The largest number of actors that the environments can be divided among."""
    return config.num_envs // (2 if config.double_buffer else 1)


def _uses_processes(config: OffPolicyRunConfig, maker: EnvMaker) -> bool:
    """Whether actors are processes."""
    return not maker.has_threads if config.actor_kind == "auto" else config.actor_kind == "process"


def _actors_per_process(group: Group, config: OffPolicyRunConfig, print_line: Callable[[str], None]) -> int:
    """Number of actors: in each process of ``group`` one per core that its learner leaves, at least one.

    It is not measured, because the processes would disturb each other and must choose the same number.
    """
    envs = config.num_envs // group.size // (2 if config.double_buffer else 1)
    each = max(1, min(usable_cores() // group.local_size - 1, 16, envs))
    print_line(f"actors in each process: {each}, one core left for its learner")
    return each * group.size


def _share_of_process(config: OffPolicyRunConfig, group: Group) -> OffPolicyRunConfig:
    """The settings of one process of ``group``: its share of environments, batch, replay and steps."""
    actors = config.actors if config.actors == "auto" else group.share("actors", config.actors)
    shared = {name: group.share(name, getattr(config, name)) for name in ("num_envs", "batch_size")}
    rounded = {
        name: -(-getattr(config, name) // group.size)
        for name in ("total_steps", "replay_capacity", "learning_starts")
    }
    return dataclasses.replace(config, actors=actors, device=group.device(config.device), **shared, **rounded)


def _prefetch(config: OffPolicyRunConfig) -> int:
    if config.prefetch != "auto":
        return config.prefetch
    several = config.learners != "auto" and config.learners > 1
    return int(several and config.schedule == "async")
