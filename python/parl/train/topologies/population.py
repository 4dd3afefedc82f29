"""Runs of evolutionary algorithms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from parl.envs import usable_cores
from parl.envs.make import steps_one_by_one
from parl.train.config import PopulationRunConfig, RunConfig
from parl.train.topologies.common import ray_actors, ray_cluster, refuse_device

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.loop import Loop
    from parl.runtime.population import PopulationSetup
    from parl.types import EnvSpec

# Members per batch if environments are stepped one by one: a large batch is then no faster than a small one.
_BATCH_MEMBERS = 16


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
        refuse_device(maker)
        given, actors, member_batches = config, config.actors, config.member_batches
        if actors == "auto":
            limit = config.num_envs if member_batches == "auto" else member_batches
            if config.engine == "ray":
                actors = ray_actors(config, limit, 1, print_line)
            else:
                actors = 1 if config.schedule == "deterministic" else min(usable_cores(), limit)
        if member_batches == "auto":
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
            remote=ray_cluster(config),
            member_batches=1 if config.member_batches == "auto" else config.member_batches,
        )

    def loop(self, setup: PopulationSetup, config: RunConfig, saved: Checkpoint | None) -> Loop[Any]:
        """See :class:`Topology`."""
        from parl.runtime.population import PopulationLoop

        if setup.remote is not None:
            from parl.runtime.distributed.ray_population import RayPopulationLoop

            return RayPopulationLoop(setup, saved)
        return PopulationLoop(setup, saved)
