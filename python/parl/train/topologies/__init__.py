"""Topologies: how actors and learners are arranged, with the settings and the loop of each arrangement.

A topology turns settings into a setup for ``parl.runtime``, which does not depend on algorithms.
``trainer.py`` runs, logs, evaluates and saves all topologies in the same way. Modules that need torch are
imported by the functions that make setups and loops, so that settings are read without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from parl.train.topologies.off_policy import OffPolicyTopology
from parl.train.topologies.population import PopulationTopology
from parl.train.topologies.rollouts import (
    AsyncTopology,
    DatasetTopology,
    HogwildTopology,
    PredictorTopology,
    SyncTopology,
)

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.loop import Loop
    from parl.types import EnvSpec


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
