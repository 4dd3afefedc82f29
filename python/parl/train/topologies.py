"""Topologies: how actors and learners are arranged, with the settings and the loop of each arrangement.

A topology turns settings into a setup for ``parl.runtime``, which does not depend on algorithms.
``trainer.py`` runs, logs, evaluates and saves all topologies in the same way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from parl.envs import usable_cores
from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.train.config import (
    AsyncRunConfig,
    DatasetRunConfig,
    HogwildRunConfig,
    OffPolicyRunConfig,
    PopulationRunConfig,
    PredictorRunConfig,
    RayConfig,
    RunConfig,
    SyncRunConfig,
)

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.distributed.ray_cluster import RayCluster
    from parl.runtime.loop import Loop
    from parl.runtime.off_policy.setup import OffPolicySetup
    from parl.runtime.on_policy.setup import RolloutSetup
    from parl.runtime.population import PopulationSetup
    from parl.types import EnvSpec


# Members per batch if environments are stepped one by one: a large batch is then no faster than a small one.
_BATCH_MEMBERS = 16


class Topology(Protocol):
    """Protocol of a topology."""

    config: type[Any]
    """Class of the settings of a run, a subclass of :class:`RunConfig`."""
    grouped: bool
    """Whether processes of torchrun can share a run."""

    def resolve_auto(
        self, algorithm: Any, config: Any, maker: EnvMaker, spec: EnvSpec, print_line: Callable[[str], None]
    ) -> Any:
        """Returns ``config`` with numbers in place of ``auto``; passes the reasons to ``print_line``."""
        ...

    def setup(self, algorithm: Any, config: Any, maker: EnvMaker, spec: EnvSpec) -> Any:
        """Returns the description of a run, a :class:`parl.runtime.setup.RunSetup`."""
        ...

    def loop(self, setup: Any, config: Any, saved: Checkpoint | None) -> Loop[Any]:
        """Starts the training loop of ``setup``, from the checkpoint ``saved`` if there is one."""
        ...


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
                actors = _ray_actors(config, _max_actors(config), learners * processes, print_line, processes)
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
        print_line(f"{split.reason}; actors are {kind}{_threads_text(maker, split.actors, config.num_envs)}")
        return dataclasses.replace(config, actors=split.actors, learners=split.learners)

    def _resolve_dataset(
        self,
        algorithm: Any,
        config: OffPolicyRunConfig,
        maker: EnvMaker,
        print_line: Callable[[str], None],
    ) -> OffPolicyRunConfig:
        """Sets the number of threads of a run that learns from a dataset."""
        _refuse_group(f"a run with dataset = {config.dataset!r} is a single process")
        _refuse_device(maker)
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
        from parl.runtime.distributed.ray_cluster import RayCluster
        from parl.runtime.off_policy.pacer import Pacer
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
            remote=RayCluster(config.ray_address, config.ray_steps) if uses_ray else None,
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
    _refuse_group(why)
    if freeze_after < config.learning_starts:
        raise ConfigError(
            f"freeze_after = {freeze_after} is below learning_starts = {config.learning_starts}: the "
            "convolutions would be frozen before they learn"
        )
    for name, only in (("learners", 1), ("actor_kind", "thread"), ("engine", "local")):
        value = getattr(config, name)
        if value not in (only, "auto"):
            raise ConfigError(f"{name} = {value!r}: {why}: set {only!r}")
    if config.schedule == "deterministic":
        return dataclasses.replace(config, learners=1)
    return dataclasses.replace(config, learners=1, actor_kind="thread")


def _max_actors(config: OffPolicyRunConfig) -> int:
    """The largest number of actors that the environments can be divided among."""
    return config.num_envs // (2 if config.double_buffer else 1)


def _ray_actors(
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


def _ray_cluster(config: RayConfig) -> RayCluster | None:
    """The Ray cluster of a run without a replay; None: actors run on this machine."""
    from parl.runtime.distributed.ray_cluster import RayCluster

    return RayCluster(config.ray_address) if config.engine == "ray" else None


def _uses_processes(config: OffPolicyRunConfig, maker: EnvMaker) -> bool:
    """Whether actors are processes."""
    return not maker.has_threads if config.actor_kind == "auto" else config.actor_kind == "process"


def _threads_text(maker: EnvMaker, actors: int, num_envs: int) -> str:
    """Part of a message: the threads that step each actor's environments; empty if these have no threads."""
    threads = maker.threads_per_actor(actors, max(1, num_envs // actors))
    each = " each" if actors > 1 else ""
    return f" on {threads} thread{'s' * (threads > 1)}{each}" if threads else ""


def _resolve_on_device(config: OffPolicyRunConfig, print_line: Callable[[str], None]) -> OffPolicyRunConfig:
    """Settings of a run whose environments are on a CUDA device, which is always one process.

    Raises:
        ConfigError: a setting is not possible in one process.
    """
    if config.device == "cpu":
        raise ConfigError("environments on a CUDA device need the learner there too: device = 'cuda'")
    alone: tuple[tuple[str, Any], ...] = (
        ("actors", 1),
        ("learners", 1),
        ("threads", 1),
        ("actor_kind", "auto"),
        ("learner_kind", "process"),
        ("prefetch", 0),
        ("priority_delay", 0),
        ("double_buffer", False),
        ("engine", "local"),
    )
    for name, only in alone:
        value = getattr(config, name)
        if value not in (only, "auto"):
            raise ConfigError(
                f"{name} = {value!r}: with environments on a CUDA device the run is one process: set {only!r}"
            )
    _refuse_group("a run with a replay and environments on a CUDA device is a single process")
    print_line(f"environments, replay and learner are on {config.device}, in one process")
    return dataclasses.replace(config, actors=1, learners=1, threads=1, prefetch=0)


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


def _refuse_group(why: str) -> None:
    """Checks that this process is the only one of the run.

    Args:
        why: reason why it must be.

    Raises:
        ConfigError: torchrun started several processes.
    """
    if Group.from_environment() is not None:
        raise ConfigError(f"{why}: start the run without torchrun")


def _refuse_device(maker: EnvMaker) -> None:
    """Checks that the environments are not on a CUDA device.

    Raises:
        ConfigError: they are.
    """
    if maker.is_on_device:
        raise ConfigError(
            "environments on a CUDA device are for a2c, dqn, ppo, pqn and rainbow: leave device out of "
            "env_options"
        )


# "auto" of random_starts: above _IN_STEP environments _RANDOM_STARTS steps, else none.
_IN_STEP, _RANDOM_STARTS = 64, 500


def _rollout_setup(
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


def _in_group(setup: RolloutSetup, grouped: bool) -> RolloutSetup:
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


class SyncTopology:
    """The learner steps the environments itself and learns from each rollout; there is no replay."""

    config: type[Any] = SyncRunConfig
    grouped = True

    def resolve_auto(
        self,
        algorithm: Any,
        config: SyncRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> SyncRunConfig:
        """See :class:`Topology`: sets the number of torch threads."""
        group = Group.from_environment()
        if group is not None:
            print_line(f"{group.size} processes of torchrun share environments, minibatches and steps")
        if maker.is_on_device:
            if config.device == "cpu":
                raise ConfigError("environments on a CUDA device need the learner there too: device = 'cuda'")
            for name, only in (("engine", "local"), ("actors", 1)):
                if getattr(config, name) not in (only, "auto"):
                    raise ConfigError(
                        f"{name} = {getattr(config, name)!r}: with environments on a CUDA device the run is "
                        f"one process: set {only!r}"
                    )
            if config.threads not in ("auto", 1):
                raise ConfigError(
                    f"threads = {config.threads}: the learner is on {config.device}, which needs one thread"
                )
            print_line(f"environments, policy, rollouts and learner are on {config.device}, in one process")
            return dataclasses.replace(config, threads=1)
        if config.actors == "auto" and config.engine == "ray":
            size = 1 if group is None else group.size
            actors = _ray_actors(config, config.num_envs, size, print_line, size)
            config = dataclasses.replace(config, actors=actors)
        if getattr(getattr(algorithm, "config", None), "cuda_graph", False):
            raise ConfigError(
                "cuda_graph = True needs environments on a CUDA device: set env_options to device=cuda"
            )
        if config.threads != "auto":
            return config
        cores = max(1, usable_cores() // (group.local_size if group is not None else 1))
        threads = 1 if config.schedule == "deterministic" or not spec.has_images else cores
        stepped = _threads_text(maker, 1, config.num_envs)
        print_line(f"{config.num_envs} environments{stepped}, {threads} thread{'s' * (threads > 1)} of torch")
        return dataclasses.replace(config, threads=threads)

    def setup(self, algorithm: Any, config: SyncRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        threads = 1 if config.threads == "auto" else config.threads
        setup = _rollout_setup(
            algorithm,
            config,
            maker,
            spec,
            threads=threads,
            actors=1 if config.actors == "auto" else config.actors,
            joins_rollouts=True,
            remote=_ray_cluster(config),
        )
        return _in_group(setup, self.grouped)

    def loop(self, setup: RolloutSetup, config: RunConfig, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`Topology`."""
        from parl.runtime.cuda.on_policy import CudaRolloutLoop
        from parl.runtime.on_policy.sync import SyncRolloutLoop

        if setup.remote is not None:
            from parl.runtime.distributed.ray_rollouts import RaySyncRolloutLoop

            return RaySyncRolloutLoop(setup, saved)
        return (CudaRolloutLoop if setup.maker.is_on_device else SyncRolloutLoop)(setup, saved)


class DatasetTopology(SyncTopology):
    """The learner learns from files of recorded episodes."""

    config = DatasetRunConfig

    def resolve_auto(
        self,
        algorithm: Any,
        config: SyncRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> SyncRunConfig:
        """See :class:`Topology`."""
        _refuse_device(maker)
        return super().resolve_auto(algorithm, config, maker, spec, print_line)

    def setup(self, algorithm: Any, config: SyncRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        from parl.runtime.on_policy.recorded import RecordedSetup

        assert isinstance(config, DatasetRunConfig)
        fields: dict[str, Any] = vars(super().setup(algorithm, config, maker, spec))
        return RecordedSetup(**fields, data=config.data, dataset=config.dataset)


def _check_shared_weights(algorithm: Any, config: HogwildRunConfig) -> None:
    """Checks that several learners can update the same weights.

    Raises:
        ConfigError: they have further state, or are on a device.
    """
    if not algorithm.shareable:
        raise ConfigError(
            f"{type(algorithm).__name__} is not shareable with these settings: learners that share weights "
            "can have no statistics of their own, such as those that normalize observations or rewards"
        )
    if config.device != "cpu":
        raise ConfigError(
            f"device = {config.device!r}: learners that share weights keep them in the CPU's memory: leave "
            "it at 'cpu', or use a2c or impala"
        )


class HogwildTopology:
    """Workers collect and learn at the same time and update shared weights without locks."""

    config: type[Any] = HogwildRunConfig
    grouped = False
    actors_per_core = 1

    def resolve_auto(
        self,
        algorithm: Any,
        config: HogwildRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> HogwildRunConfig:
        """See :class:`Topology`: sets the number of actors."""
        _refuse_device(maker)
        if config.schedule == "async" and self._shares_weights(algorithm):
            _check_shared_weights(algorithm, config)
        if config.actors != "auto":
            return config
        if isinstance(config, RayConfig) and config.engine == "ray":
            return dataclasses.replace(config, actors=_ray_actors(config, config.num_envs, 1, print_line))
        many = min(usable_cores() * self.actors_per_core, config.num_envs)
        actors = 1 if config.schedule == "deterministic" else many
        stepped = _threads_text(maker, actors, config.num_envs)
        print_line(f"{actors} actor{'s' * (actors > 1)} of {config.num_envs // actors} environments{stepped}")
        return dataclasses.replace(config, actors=actors)

    def _shares_weights(self, algorithm: Any) -> bool:
        """Whether several learners update the same weights in the async schedule."""
        return True

    def setup(self, algorithm: Any, config: HogwildRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        remote = _ray_cluster(config) if isinstance(config, RayConfig) else None
        return _rollout_setup(
            algorithm,
            config,
            maker,
            spec,
            threads=1,
            actors=1 if config.actors == "auto" else config.actors,
            processes=config.actor_kind == "process" and remote is None,
            max_lag=config.max_lag if isinstance(config, AsyncRunConfig) else 0,
            remote=remote,
        )

    def loop(self, setup: RolloutSetup, config: RunConfig, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`Topology`; the deterministic schedule runs one actor after the other."""
        from parl.runtime.on_policy.sync import SyncRolloutLoop

        return (
            SyncRolloutLoop(setup, saved)
            if config.schedule == "deterministic"
            else self.async_loop(setup, saved)
        )

    def async_loop(self, setup: RolloutSetup, saved: Checkpoint | None) -> Loop[Any]:
        """The loop of the async schedule."""
        from parl.runtime.on_policy.hogwild import HogwildLoop

        return HogwildLoop(setup, saved)


class AsyncTopology(HogwildTopology):
    """Actors collect rollouts while the learner learns from earlier ones."""

    config = AsyncRunConfig
    grouped = True

    def resolve_auto(
        self,
        algorithm: Any,
        config: HogwildRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> HogwildRunConfig:
        """See :class:`Topology`."""
        group = Group.from_environment() if self.grouped else None
        if group is None or config.actors != "auto":
            return super().resolve_auto(algorithm, config, maker, spec, print_line)
        if isinstance(config, RayConfig) and config.engine == "ray":
            actors = _ray_actors(config, config.num_envs, group.size, print_line, group.size)
        else:
            each = max(1, min(usable_cores() // group.local_size, config.num_envs // group.size))
            actors = group.size * (1 if config.schedule == "deterministic" else each)
            print_line(f"actors in each of {group.size} processes of torchrun: {actors // group.size}")
        return dataclasses.replace(config, actors=actors)

    def _shares_weights(self, algorithm: Any) -> bool:
        return False

    def setup(self, algorithm: Any, config: HogwildRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        return _in_group(super().setup(algorithm, config, maker, spec), self.grouped)

    def async_loop(self, setup: RolloutSetup, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`HogwildTopology`."""
        from parl.runtime.on_policy.asynchronous import AsyncRolloutLoop

        if setup.remote is not None:
            from parl.runtime.distributed.ray_rollouts import RayAsyncRolloutLoop

            return RayAsyncRolloutLoop(setup, saved)
        return AsyncRolloutLoop(setup, saved)


class PredictorTopology(AsyncTopology):
    """Predictors choose the actions of actors without networks; trainers learn from the rollouts."""

    config = PredictorRunConfig
    grouped = False
    actors_per_core = 2  # an actor waits for its actions most of the time

    def _shares_weights(self, algorithm: Any) -> bool:
        return bool(algorithm.shareable)

    def setup(self, algorithm: Any, config: HogwildRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        setup = super().setup(algorithm, config, maker, spec)
        assert isinstance(config, PredictorRunConfig)
        return dataclasses.replace(
            setup,
            predictors=config.predictors,
            trainers=config.trainers,
            rollouts_per_update=config.rollouts_per_update,
            tune_every_s=config.tune_every_s,
        )

    def async_loop(self, setup: RolloutSetup, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`HogwildTopology`."""
        from parl.runtime.on_policy.predictor import PredictorLoop

        return PredictorLoop(setup, saved)


class PopulationTopology:
    """Processes evaluate the members of a population; the learner learns from their returns."""

    config = PopulationRunConfig
    grouped = False

    def resolve_auto(
        self,
        algorithm: Any,
        config: PopulationRunConfig,
        maker: EnvMaker,
        spec: EnvSpec,
        print_line: Callable[[str], None],
    ) -> PopulationRunConfig:
        """See :class:`Topology`: sets the numbers of processes and of member batches."""
        _refuse_device(maker)
        given, actors, member_batches = config, config.actors, config.member_batches
        if actors == "auto":
            limit = config.num_envs if member_batches == "auto" else member_batches
            if config.engine == "ray":
                actors = _ray_actors(config, limit, 1, print_line)
            else:
                actors = 1 if config.schedule == "deterministic" else min(usable_cores(), limit)
        if member_batches == "auto":
            from parl.envs.make import steps_one_by_one

            probe = maker(1)
            members = _BATCH_MEMBERS if steps_one_by_one(probe) else config.num_envs
            probe.close()
            member_batches = max(actors, -(-config.num_envs // members))
        config = dataclasses.replace(config, actors=actors, member_batches=member_batches)
        if config != given:
            parts = f"{member_batches} batch{'es' * (member_batches > 1)}"
            ray = "Ray " * (config.engine == "ray")
            by = f"{actors} {ray}process{'es' * (actors > 1)}"
            print_line(f"{config.num_envs} members per generation, in {parts}, evaluated by {by}")
        return config

    def setup(
        self, algorithm: Any, config: PopulationRunConfig, maker: EnvMaker, spec: EnvSpec
    ) -> PopulationSetup:
        """See :class:`Topology`."""
        from parl.runtime.population import PopulationSetup

        return PopulationSetup(
            algorithm=algorithm,
            maker=maker,
            spec=spec,
            seed=config.seed,
            num_envs=config.num_envs,
            total_steps=config.total_steps,
            actors=1 if config.actors == "auto" else config.actors,
            processes=config.schedule == "async" and config.engine == "local",
            remote=_ray_cluster(config),
            member_batches=1 if config.member_batches == "auto" else config.member_batches,
        )

    def loop(self, setup: PopulationSetup, config: RunConfig, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`Topology`."""
        from parl.runtime.population import PopulationLoop

        if setup.remote is not None:
            from parl.runtime.distributed.ray_population import RayPopulationLoop

            return RayPopulationLoop(setup, saved)
        return PopulationLoop(setup, saved)


TOPOLOGIES: Mapping[str, Topology] = {
    "replay": OffPolicyTopology(),
    "rollout": SyncTopology(),
    "async": AsyncTopology(),
    "data": DatasetTopology(),
    "hogwild": HogwildTopology(),
    "predictor": PredictorTopology(),
    "population": PopulationTopology(),
}
"""Every topology by its name."""
