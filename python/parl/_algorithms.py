"""Table of all algorithms with their topologies. Imports nothing else, so that ``parl --help`` is fast."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from importlib import metadata


@dataclass(frozen=True)
class Entry:
    """Module, class and topology of an algorithm.

    Attributes:
        module: name of the module.
        kind: name of the class in it that makes policies and learners.
        topology: key of :data:`parl.train.topologies.TOPOLOGIES`.
    """

    module: str
    kind: str
    topology: str = "replay"


ALGORITHMS: dict[str, Entry] = {
    "a2c": Entry("parl.algos.a2c", "A2C", "rollout"),
    "a3c": Entry("parl.algos.a3c", "A3C", "hogwild"),
    "dqn": Entry("parl.algos.dqn", "DQN"),
    "bc": Entry("parl.algos.bc", "BC", "data"),
    "es": Entry("parl.algos.es", "ES", "population"),
    "ga": Entry("parl.algos.ga", "GA", "population"),
    "ga3c": Entry("parl.algos.ga3c", "GA3C", "predictor"),
    "impala": Entry("parl.algos.impala", "IMPALA", "async"),
    "ppo": Entry("parl.algos.ppo", "PPO", "rollout"),
    "pqn": Entry("parl.algos.pqn", "PQN", "rollout"),
    "rainbow": Entry("parl.algos.rainbow", "Rainbow"),
    "sac": Entry("parl.algos.sac", "SAC"),
    "td3": Entry("parl.algos.td3", "TD3"),
    "ddpg": Entry("parl.algos.ddpg", "DDPG"),
}
"""Every algorithm of parl, and those registered so far, by name."""
ENTRY_POINTS = "parl.algorithms"
"""Group of entry points: name of an algorithm -> its class, or a module that registers it."""


@functools.cache
def entry_points() -> dict[str, list[metadata.EntryPoint]]:
    """The entry points of all installed packages, by name of the algorithm."""
    found: dict[str, list[metadata.EntryPoint]] = {}
    for point in metadata.entry_points(group=ENTRY_POINTS):
        found.setdefault(point.name, []).append(point)
    return found


def algorithm_names() -> list[str]:
    """The names of all algorithms, also of entry points that are not loaded yet, sorted."""
    return sorted({*ALGORITHMS, *entry_points()})
