"""Settings of a run: those that all algorithms share, and those of each topology."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from parl.errors import ConfigError
from parl.ops.bounds import check_bounds, check_choices


def check_starts(config: Any) -> None:
    """Refuses random_starts out of bounds.

    Raises:
        ConfigError: names the value and the bounds.
    """
    if config.random_starts != "auto":
        check_bounds(config, ("random_starts", 0, 2**20))


def refuse_unused(config: Any, names: Iterable[str], reason: str) -> None:
    """Refuses settings that were set, but have no effect.

    Raises:
        ConfigError: names the setting and ``reason``, what leaves it without effect.
    """
    defaults = {field.name: field.default for field in fields(config)}
    for name in names:
        value = getattr(config, name)
        if value != defaults[name]:
            raise ConfigError(f"{name} = {value!r} has no effect with {reason}")


@dataclass(frozen=True)
class RunConfig:
    """Settings of a run that all algorithms share."""

    env: str = "CartPole-v1"
    """Gymnasium id."""
    env_options: tuple[str, ...] = ()
    """Keywords of the environment, such as obs_type=ram stack_num=2."""
    evaluation_env_options: tuple[str, ...] = ()
    """Keywords that replace those of env_options in evaluations, such as reward_clipping=False."""
    seed: int = 0
    """Seed of all random numbers of the run, 0..2**31."""
    total_steps: int = 500_000
    """Transitions that all environments collect together, such as 50k or 10M."""
    num_envs: int = 64
    """Environments of all actors together."""
    schedule: Literal["async", "deterministic"] = "async"
    """async: actors and learners overlap. deterministic: a fixed order, equal numbers for equal seeds."""
    evaluation_episodes: int = 100
    """Episodes of an evaluation, without exploration; 0 never evaluates."""
    evaluation_every: int = 0
    """Transitions between evaluations; 0 evaluates at the end, and when stop_at_return seems reached."""
    stop_at_return: float | None = None
    """Ends the run when an evaluation's mean return reaches this, and that of a second one on other seeds."""
    checkpoint_every: int = 0
    """Transitions between checkpoints; 0: see checkpoint_every_s."""
    checkpoint_every_s: float = 120.0
    """Seconds between checkpoints where checkpoint_every is 0 (async schedule only)."""
    log_every_s: float = 1.0
    """Seconds between records in metrics.jsonl, less at the start; deterministic: every 1,000 transitions."""
    device: str = "cpu"
    """torch device of the learners."""
    runs: str = "runs"
    """Folder that holds run directories."""
    name: str | None = None
    """Name of the run directory; by default algorithm, environment and seed."""
    tensorboard: bool | None = None
    """Write TensorBoard events too; None: where tensorboard is installed."""
    quiet: bool = False
    """Show no progress."""

    def __post_init__(self) -> None:
        check_bounds(
            self,
            ("seed", 0, 2**31),
            ("total_steps", 1, 2**53),
            ("num_envs", 1, 2**20),
            ("evaluation_episodes", 0, 2**20),
            ("evaluation_every", 0, 2**53),
            ("checkpoint_every", 0, 2**53),
            ("checkpoint_every_s", 0, math.inf),
            ("log_every_s", 0, math.inf),
        )
        check_choices(self, ("schedule", ("async", "deterministic")))
        if not self.evaluation_episodes:
            refuse_unused(self, ("stop_at_return", "evaluation_every"), "evaluation_episodes = 0")
        keywords(self.env_options)
        keywords(self.evaluation_env_options)


def keywords(options: Iterable[str]) -> dict[str, Any]:
    """Keywords from words such as ``obs_type=ram`` or ``stack_num=2``: Python values, else text.

    Raises:
        ConfigError: a word has no ``=``.
    """
    found: dict[str, Any] = {}
    for word in options:
        name, sign, text = word.partition("=")
        if not sign or not name.isidentifier():
            raise ConfigError(f"env_options: {word!r} is not of the form name=value")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            found[name] = text
    return found


def words(options: Mapping[str, Any] | Iterable[str]) -> tuple[str, ...]:
    """The form that :func:`keywords` reads, from a mapping or from itself."""
    if isinstance(options, Mapping):
        return tuple(f"{name}={value}" for name, value in options.items())
    return tuple(options)


@dataclass(frozen=True)
class OffPolicyRunConfig(RunConfig):
    """Settings of a run with a replay: actors collect, learners sample, a ratio couples them."""

    actors: int | Literal["auto"] = "auto"
    """Actors that step environments at the same time; auto measures and chooses."""
    learners: int | Literal["auto"] = "auto"
    """Learners that share every batch; auto measures and chooses."""
    threads: int | Literal["auto"] = "auto"
    """Threads of each learner; auto: 1 for small networks or if deterministic, else 1 per core, up to 4."""
    actor_kind: Literal["auto", "process", "thread"] = "auto"
    """Whether actors are threads, which suit environments that release the GIL, or processes; auto: threads
    for parl's Atari games."""
    learner_kind: Literal["process", "thread"] = "process"
    """Whether several learners are processes, or threads of one process (async schedule)."""
    replay_ratio: float = 1.0
    """Transitions sampled per transition collected, counted from learning_starts on."""
    batch_size: int = 64
    """Transitions per update, all learners together."""
    replay_capacity: int = 50_000
    """Capacity of the replay, in transitions."""
    learning_starts: int = 2_000
    """Transitions collected before the first update."""
    park_actors: bool = True
    """Stop some actors, a different one each time, while fewer are enough to hold replay_ratio."""
    double_buffer: bool = False
    """Split each actor's environments into two groups: one steps while the policy acts for the other."""
    prefetch: int | Literal["auto"] = "auto"
    """Batches sampled in advance, while gradients are averaged or, with one learner, by a thread; auto: one
    if there are several learners (async schedule)."""
    priority_delay: int = 0
    """Updates after which new priorities are written to the replay."""
    engine: Literal["local", "ray"] = "local"
    """local: actors on this machine. ray: Ray actors, on any machine of a cluster (async schedule)."""
    ray_address: str | None = None
    """The cluster, as ray.init takes it (auto, host:port); None: RAY_ADDRESS, else a new one here."""
    ray_steps: int = 16
    """Vector steps of a Ray actor per request."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("replay_ratio", 1e-6, 1e6),
            ("batch_size", 1, 2**24),
            ("replay_capacity", 1, 2**40),
            ("learning_starts", 0, self.replay_capacity),
            ("ray_steps", 1, 2**16),
            ("priority_delay", 0, 2**16),
        )
        kinds = ("process", "thread")
        check_choices(
            self, ("actor_kind", ("auto", *kinds)), ("learner_kind", kinds), ("engine", ("local", "ray"))
        )
        if self.double_buffer and self.num_envs < 2 * (1 if self.actors == "auto" else self.actors):
            raise ConfigError(f"double_buffer needs two environments per actor; num_envs = {self.num_envs}")
        if self.engine == "local":
            refuse_unused(self, ("ray_address", "ray_steps"), "engine = 'local'")
        if self.engine == "ray" and self.schedule == "deterministic":
            raise ConfigError("schedule = 'deterministic' is one thread; engine = 'ray' needs 'async'")
        for name in ("actors", "learners", "threads"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= 4096:
                raise ConfigError(f"{name} = {value} is neither auto nor in 1..4096")
        if self.prefetch != "auto" and not 0 <= self.prefetch <= 1024:
            raise ConfigError(f"prefetch = {self.prefetch} is neither auto nor in 0..1024")
        if self.actors != "auto" and self.actors > self.num_envs:
            raise ConfigError(f"actors = {self.actors} is above num_envs = {self.num_envs}")
        if self.learners != "auto" and self.batch_size % self.learners:
            raise ConfigError(f"batch_size = {self.batch_size} is no multiple of learners = {self.learners}")


@dataclass(frozen=True)
class SyncRunConfig(RunConfig):
    """Settings of a run that learns from rollouts and keeps no replay."""

    num_envs: int = 8
    """Environments, all stepped together."""
    random_starts: int | Literal["auto"] = "auto"
    """Steps of random actions before learning, in which environments start anew one by one, so that their
    episodes do not go side by side; auto: 500 above 64 environments, else none."""
    threads: int | Literal["auto"] = "auto"
    """Threads of torch while it learns; auto: one for small networks on vectors, else one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_starts(self)
        if self.threads != "auto" and not 1 <= self.threads <= 4096:
            raise ConfigError(f"threads = {self.threads} is neither auto nor in 1..4096")


@dataclass(frozen=True)
class DatasetRunConfig(SyncRunConfig):
    """Settings of a run that learns from files. total_steps counts a row each time it is learned from."""

    data: tuple[str, ...] = ()
    """Recorded episodes: files of parl play --record, or .npz files with observations and actions."""
    num_envs: int = 64
    """Rows are sampled in batches of this number times rollout_steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_starts not in ("auto", 0):
            raise ConfigError(
                f"random_starts = {self.random_starts}: rows of files have no starts; leave it at 'auto'"
            )


@dataclass(frozen=True)
class HogwildRunConfig(RunConfig):
    """Settings of a run with several actors that collect at the same time."""

    num_envs: int = 16
    """Environments of all actors together."""
    random_starts: int | Literal["auto"] = "auto"
    """Steps of random actions before learning, in which environments start anew one by one, so that their
    episodes do not go side by side; auto: 500 above 64 environments, else none."""
    actors: int | Literal["auto"] = "auto"
    """Actors that step environments at the same time; auto: one per core."""
    actor_kind: Literal["process", "thread"] = "process"
    """Whether actors are threads, which suit environments that release the GIL, or processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_starts(self)
        check_choices(self, ("actor_kind", ("process", "thread")))
        if self.actors != "auto" and not 1 <= self.actors <= self.num_envs:
            raise ConfigError(f"actors = {self.actors} is neither auto nor in 1..num_envs = {self.num_envs}")


@dataclass(frozen=True)
class AsyncRunConfig(HogwildRunConfig):
    """Settings of a run whose actors collect rollouts while the learner learns from earlier ones."""

    max_lag: int = 32
    """Largest age of a rollout's weights, in updates; older rollouts are discarded and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, ("max_lag", 0, 2**53))
        if self.schedule == "deterministic":
            refuse_unused(self, ("max_lag",), "schedule = 'deterministic', where no policy lags")


@dataclass(frozen=True)
class PredictorRunConfig(AsyncRunConfig):
    """Settings of a run in which predictor threads choose the actors' actions."""

    predictors: int = 1
    """Predictor threads at the start, at most one per actor."""
    trainers: int = 1
    """Trainer threads at the start, at most one per actor."""
    rollouts_per_update: int = 2
    """Rollouts per update at the start, at most one per actor."""
    tune_every_s: float = 5.0
    """Seconds between adjustments of the numbers of actors, predictors, trainers and rollouts; 0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("predictors", 1, 4096),
            ("trainers", 1, 4096),
            ("rollouts_per_update", 1, 4096),
            ("tune_every_s", 0, math.inf),
        )
        if self.schedule == "deterministic":
            names = ("predictors", "trainers", "rollouts_per_update", "tune_every_s")
            refuse_unused(self, names, "schedule = 'deterministic', where actors take turns")


@dataclass(frozen=True)
class PopulationRunConfig(RunConfig):
    """Settings of a run of an evolutionary algorithm."""

    num_envs: int = 64
    """Members of a generation; each plays one episode in an environment of its own."""
    actors: int | Literal["auto"] = "auto"
    """Processes that evaluate members; auto: one per core; deterministic: all in this process."""
    member_batches: int | Literal["auto"] = "auto"
    """Batches into which a generation is divided, each evaluated by one process; auto: batches of 16 members
    where environments are stepped one by one, else one batch for each process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise ConfigError(
                f"device = {self.device!r}: members of a population are evaluated on processors; leave it at "
                "'cpu'"
            )
        if self.schedule == "deterministic" and self.actors not in ("auto", 1):
            raise ConfigError(
                f"actors = {self.actors}: schedule = 'deterministic' evaluates all members in one process"
            )
        for name in ("actors", "member_batches"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= self.num_envs:
                raise ConfigError(f"{name} = {value} is neither auto nor in 1..num_envs = {self.num_envs}")
        if self.actors != "auto" and self.member_batches != "auto" and self.member_batches < self.actors:
            raise ConfigError(
                f"member_batches = {self.member_batches} is below actors = {self.actors}: some would be idle"
            )
