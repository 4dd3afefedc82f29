"""The sentence that is printed at the start of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from parl.train.config import DatasetRunConfig, OffPolicyRunConfig, PopulationRunConfig, RunConfig

if TYPE_CHECKING:
    from parl.envs import EnvMaker


def summary_of(name: str, settings: RunConfig, maker: EnvMaker, processes: int = 1) -> str:
    """Algorithm, environment, environments, workers and device of a run, in one line.

    Args:
        name: name of the algorithm.
        settings: settings of the run, with numbers in place of ``auto``.
        maker: maker of its environments.
        processes: number of processes of torchrun, each of which has so many actors and learners.
    """
    if isinstance(settings, DatasetRunConfig):
        parts = [settings.dataset or _count(len(settings.data), "file")]
    elif isinstance(settings, OffPolicyRunConfig) and settings.dataset:
        parts = [settings.dataset]
    elif isinstance(settings, PopulationRunConfig):
        parts = [_count(settings.num_envs, "member")]
    else:
        parts = [_count(settings.num_envs, "environment")]
    numbers = {worker: getattr(settings, f"{worker}s", None) for worker in ("actor", "learner")}
    workers = [_count(number, worker) for worker, number in numbers.items() if isinstance(number, int)]
    if processes > 1:
        each = f" with {' and '.join(workers)} each" * bool(workers)
        workers = [f"{processes} processes{each}"]
    parts += workers
    if settings.device == "cpu":
        parts.append("on the CPU")
    elif maker.is_on_device:
        parts.append(f"on {settings.device}")
    else:
        parts.append(f"environments on the CPU, learner on {settings.device}")
    return f"{name} on {maker.name}: {', '.join(parts)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"
