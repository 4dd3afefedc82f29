"""Description of a run that every topology needs: algorithm, environments, seeds, numbers of actors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from parl.envs import EnvMaker
from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.runtime.distributed.ray_cluster import RayCluster
from parl.types import EnvSpec, Policy

# Distance between the seeds of successive resumes, and between those of processes.
_RESUME_SEEDS, _RANK_SEEDS = 1_000_003, 2_000_029


def env_range(index: int, actors: int, num_envs: int) -> tuple[int, int]:
    """Number of the first environment of actor ``index``, and number of its last one plus 1."""
    return index * num_envs // actors, (index + 1) * num_envs // actors


@dataclass(frozen=True)
class SavedLearner:
    """The learner of another run, whose weights a run starts from; picklable.

    Attributes:
        algorithm: made the learner.
        state: its ``state_dict``.
    """

    algorithm: Any
    state: Mapping[str, Any]

    def start(self, learner: Any) -> None:
        """Copies its weights and normalization into ``learner``.

        Raises:
            ConfigError: the algorithm cannot start so; or the first parameter whose shape differs.
        """
        if not hasattr(learner, "start_from"):
            raise ConfigError(f"{type(learner).__name__} has no method start_from")
        other = self.algorithm.make_learner(0, "cpu")
        # Random generators of other devices have other states; that of ``other`` is not used.
        generators = {name: value for name, value in other.state_dict().items() if name == "generator"}
        other.load_state_dict({**self.state, **generators})
        learner.start_from(other)


@dataclass(frozen=True, kw_only=True)
class RunSetup:
    """Description of a run; picklable, for worker processes.

    Attributes:
        algorithm: makes policies and learners.
        maker: makes environments.
        spec: spaces and other properties of the environments.
        seed: all random numbers of the run derive from it.
        num_envs: environments of all actors together.
        actors: number of actors.
        processes: whether actors that run concurrently are processes; else they are threads.
        device: torch device of the learners.
        threads: number of torch threads of each learner.
        group: the process group that torchrun started, or None.
        remote: the Ray cluster of the actors; None: actors run on this machine.
        init_from: the learner whose weights the run starts from; None: random weights.
    """

    algorithm: Any
    maker: EnvMaker
    spec: EnvSpec
    seed: int
    num_envs: int
    actors: int = 1
    processes: bool = False
    device: str = "cpu"
    threads: int = 1
    group: Group | None = None
    remote: RayCluster | None = None
    init_from: SavedLearner | None = None

    def own_seed(self, resumes: int = 0) -> int:
        """Seed of random numbers that differ between processes of torchrun and between resumes."""
        rank = 0 if self.group is None else self.group.rank
        return self.seed + _RESUME_SEEDS * resumes + _RANK_SEEDS * rank

    def env_range(self, index: int) -> tuple[int, int]:
        """Number of the first environment of actor ``index``, and number of its last one plus 1."""
        return env_range(index, self.actors, self.num_envs)

    @property
    def scale(self) -> int:
        """Number of processes that collect as many transitions as this one, itself included."""
        return 1 if self.group is None else self.group.size

    @property
    def pickles(self) -> bool:
        """Whether actors may pickle environments, which only a user's own function makes necessary."""
        return not self.maker.is_text

    def make_learner(self) -> Any:
        """Makes a learner with the initial weights of the run."""
        learner = self.algorithm.make_learner(self.seed, self.device)
        if self.init_from is not None:
            self.init_from.start(learner)
        return learner

    def make_policy(self) -> Policy:
        """Makes a policy for evaluations."""
        return self.algorithm.make_policy(0, 1, 1, 0)
