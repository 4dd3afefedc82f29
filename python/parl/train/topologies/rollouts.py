"""Runs that learn from rollouts (sync, async, Hogwild, predictors) or from recorded episodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parl.envs import usable_cores
from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.train.config import (
    AsyncRunConfig,
    DatasetRunConfig,
    HogwildRunConfig,
    PredictorRunConfig,
    RayConfig,
    RunConfig,
    SyncRunConfig,
)
from parl.train.topologies.common import (
    check_on_device,
    in_group,
    ray_actors,
    ray_cluster,
    refuse_device,
    rollout_setup,
    threads_text,
)

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.loop import Loop
    from parl.runtime.on_policy.setup import RolloutSetup
    from parl.types import EnvSpec


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
            check_on_device(config, {"engine": "local", "actors": 1})
            if config.threads not in ("auto", 1):
                raise ConfigError(
                    f"threads = {config.threads}: the learner is on {config.device}, which needs one thread"
                )
            print_line(f"environments, policy, rollouts and learner are on {config.device}, in one process")
            return dataclasses.replace(config, threads=1)
        if config.actors == "auto" and config.engine == "ray":
            size = 1 if group is None else group.size
            actors = ray_actors(config, config.num_envs, size, print_line, size)
            config = dataclasses.replace(config, actors=actors)
        if getattr(getattr(algorithm, "config", None), "cuda_graph", False):
            raise ConfigError(
                "cuda_graph = True needs environments on a CUDA device: set env_options to device=cuda"
            )
        if config.threads != "auto":
            return config
        cores = max(1, usable_cores() // (group.local_size if group is not None else 1))
        threads = 1 if config.schedule == "deterministic" or not spec.has_images else cores
        stepped = threads_text(maker, 1, config.num_envs)
        print_line(f"{config.num_envs} environments{stepped}, {threads} thread{'s' * (threads > 1)} of torch")
        return dataclasses.replace(config, threads=threads)

    def setup(self, algorithm: Any, config: SyncRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        threads = 1 if config.threads == "auto" else config.threads
        setup = rollout_setup(
            algorithm,
            config,
            maker,
            spec,
            threads=threads,
            actors=1 if config.actors == "auto" else config.actors,
            joins_rollouts=True,
            remote=ray_cluster(config),
        )
        return in_group(setup, self.grouped)

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
        refuse_device(maker)
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
        refuse_device(maker)
        if config.schedule == "async" and self._shares_weights(algorithm):
            _check_shared_weights(algorithm, config)
        if config.actors != "auto":
            return config
        if isinstance(config, RayConfig) and config.engine == "ray":
            return dataclasses.replace(config, actors=ray_actors(config, config.num_envs, 1, print_line))
        many = min(usable_cores() * self.actors_per_core, config.num_envs)
        actors = 1 if config.schedule == "deterministic" else many
        stepped = threads_text(maker, actors, config.num_envs)
        print_line(f"{actors} actor{'s' * (actors > 1)} of {config.num_envs // actors} environments{stepped}")
        return dataclasses.replace(config, actors=actors)

    def _shares_weights(self, algorithm: Any) -> bool:
        """Whether several learners update the same weights in the async schedule."""
        return True

    def setup(self, algorithm: Any, config: HogwildRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        remote = ray_cluster(config) if isinstance(config, RayConfig) else None
        return rollout_setup(
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
            actors = ray_actors(config, config.num_envs, group.size, print_line, group.size)
        else:
            each = max(1, min(usable_cores() // group.local_size, config.num_envs // group.size))
            actors = group.size * (1 if config.schedule == "deterministic" else each)
            print_line(f"actors in each of {group.size} processes of torchrun: {actors // group.size}")
        return dataclasses.replace(config, actors=actors)

    def _shares_weights(self, algorithm: Any) -> bool:
        return False

    def setup(self, algorithm: Any, config: HogwildRunConfig, maker: EnvMaker, spec: EnvSpec) -> RolloutSetup:
        """See :class:`Topology`."""
        return in_group(super().setup(algorithm, config, maker, spec), self.grouped)

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
