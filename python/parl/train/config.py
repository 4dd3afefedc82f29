"""Settings of a run: those that all algorithms share, and those of each family of them."""

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
    """Settings of a run that are the same for every algorithm. A frame is one transition collected."""

    env: str = "CartPole-v1"
    """Gymnasium id."""
    env_options: tuple[str, ...] = ()
    """Keywords of the environment, such as obs_type=ram stack_num=2."""
    evaluation_env_options: tuple[str, ...] = ()
    """Keywords in which the environments of evaluations differ, such as reward_clipping=False."""
    seed: int = 0
    """Everything random follows from it, 0..2**31."""
    total_frames: int = 500_000
    """Transitions to collect in all, such as 50k or 10M."""
    num_envs: int = 64
    """Environments of all actors together."""
    schedule: Literal["free", "lockstep"] = "free"
    """free: everything overlaps. lockstep: one fixed order, the same seed gives the same numbers."""
    evaluation_episodes: int = 100
    """Greedy episodes of an evaluation; 0 never evaluates."""
    evaluation_every: int = 0
    """Transitions between evaluations; 0 evaluates at the end, and when stop_at_return seems reached."""
    stop_at_return: float | None = None
    """Ends the run when an evaluation's mean return reaches this, and that of a second one on other seeds."""
    checkpoint_every: int = 0
    """Transitions between checkpoints; 0 leaves it to the clock."""
    checkpoint_every_s: float = 120.0
    """Seconds between checkpoints where checkpoint_every is 0 (free schedule only)."""
    log_every_s: float = 1.0
    """Seconds between records in metrics.jsonl, fewer at the start (in lockstep: 1,000 transitions)."""
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
            ("total_frames", 1, 2**53),
            ("num_envs", 1, 2**20),
            ("evaluation_episodes", 0, 2**20),
            ("evaluation_every", 0, 2**53),
            ("checkpoint_every", 0, 2**53),
            ("checkpoint_every_s", 0, math.inf),
            ("log_every_s", 0, math.inf),
        )
        check_choices(self, ("schedule", ("free", "lockstep")))
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
class TrainConfig(RunConfig):
    """Settings of a run with a replay: actors collect, learners sample, a ratio couples them."""

    actors: int | Literal["auto"] = "auto"
    """Actors that step environments at the same time; auto measures and chooses."""
    learners: int | Literal["auto"] = "auto"
    """Learners that share every batch; auto measures and chooses."""
    threads: int | Literal["auto"] = "auto"
    """Threads of each learner; auto: one for small networks and in lockstep, else one per core, up to 4."""
    actor_kind: Literal["auto", "process", "thread"] = "auto"
    """Threads suit environments that release Python's lock, processes all others; auto: threads for parl's
    Atari games."""
    learner_kind: Literal["process", "thread"] = "process"
    """Several learners are processes, or threads of one process (free schedule)."""
    replay_ratio: float = 1.0
    """Transitions sampled per transition collected, counted from learning_starts on."""
    batch_size: int = 64
    """Transitions per update, all learners together."""
    replay_capacity: int = 50_000
    """Transitions kept."""
    learning_starts: int = 2_000
    """Transitions collected before the first update; at least until some can be drawn."""
    park_actors: bool = True
    """Park actors that are not needed to hold replay_ratio, in turns, and wake them when they are."""
    halves: bool = False
    """Each actor's environments take turns in two halves: one steps while the other's actions are found."""
    prefetch: int | Literal["auto"] = "auto"
    """Batches drawn ahead, while gradients are averaged or, with one learner, by a thread; auto: one if there
    are several learners (free schedule)."""
    priority_delay: int = 0
    """Updates by which new priorities reach the replay late."""
    engine: Literal["local", "ray"] = "local"
    """local: actors on this machine. ray: Ray actors, on any machine of a cluster (free schedule)."""
    ray_address: str | None = None
    """The cluster, as ray.init takes it (auto, host:port); None: RAY_ADDRESS, else a new one here."""
    ray_steps: int = 16
    """Vector steps that a Ray actor takes between two answers."""

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
        if self.halves and self.num_envs < 2 * (1 if self.actors == "auto" else self.actors):
            raise ConfigError(f"halves need two environments per actor; num_envs = {self.num_envs}")
        if self.engine == "local":
            refuse_unused(self, ("ray_address", "ray_steps"), "engine = 'local'")
        if self.engine == "ray" and self.schedule == "lockstep":
            raise ConfigError("schedule = 'lockstep' is one thread; engine = 'ray' needs 'free'")
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
class RolloutConfig(RunConfig):
    """Settings of a run that learns from rollouts and keeps no replay."""

    num_envs: int = 8
    """Environments, all stepped together."""
    random_starts: int | Literal["auto"] = "auto"
    """Steps of random actions before learning, in which environments start anew one by one, so that their
    episodes do not go side by side; auto: 500 above 64 environments, else none."""
    threads: int | Literal["auto"] = "auto"
    """Of torch while it learns; auto: one for small networks on vectors, else one per core."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_starts(self)
        if self.threads != "auto" and not 1 <= self.threads <= 4096:
            raise ConfigError(f"threads = {self.threads} is neither auto nor in 1..4096")


@dataclass(frozen=True)
class DataConfig(RolloutConfig):
    """Settings of a run that learns from files. total_frames are rows learned from, each time counted."""

    data: tuple[str, ...] = ()
    """Files of recorded play: of parl play --record, or .npz with observations and actions."""
    num_envs: int = 64
    """Rows that are drawn at a time are this times rollout_steps."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.random_starts not in ("auto", 0):
            raise ConfigError(
                f"random_starts = {self.random_starts}: rows of files have no starts; leave it at 'auto'"
            )


@dataclass(frozen=True)
class HogwildConfig(RunConfig):
    """Settings of a run whose actors, each with environments of its own, overlap."""

    num_envs: int = 16
    """Environments of all actors together."""
    random_starts: int | Literal["auto"] = "auto"
    """Steps of random actions before learning, in which environments start anew one by one, so that their
    episodes do not go side by side; auto: 500 above 64 environments, else none."""
    actors: int | Literal["auto"] = "auto"
    """Actors that step environments at the same time; auto: one per core."""
    actor_kind: Literal["process", "thread"] = "process"
    """Threads suit environments that release Python's lock, such as parl's own; processes suit all others."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_starts(self)
        check_choices(self, ("actor_kind", ("process", "thread")))
        if self.actors != "auto" and not 1 <= self.actors <= self.num_envs:
            raise ConfigError(f"actors = {self.actors} is neither auto nor in 1..num_envs = {self.num_envs}")


@dataclass(frozen=True)
class AsyncConfig(HogwildConfig):
    """Settings of a run whose actors collect rollouts while the learner learns from earlier ones."""

    max_lag: int = 32
    """Updates by which a rollout's weights may be behind; older rollouts are left out and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, ("max_lag", 0, 2**53))
        if self.schedule == "lockstep":
            refuse_unused(self, ("max_lag",), "schedule = 'lockstep', where no policy lags")


@dataclass(frozen=True)
class PredictorConfig(AsyncConfig):
    """Settings of a run whose actors ask predictors for actions."""

    predictors: int = 1
    """Threads that answer actors at the start, at most one per actor."""
    trainers: int = 1
    """Threads that learn at the start, at most one per actor."""
    rollouts_per_update: int = 2
    """Rollouts of an update at the start, at most one per actor."""
    tune_every_s: float = 5.0
    """Seconds between changes of the numbers of actors, predictors, trainers and rollouts; 0 keeps them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("predictors", 1, 4096),
            ("trainers", 1, 4096),
            ("rollouts_per_update", 1, 4096),
            ("tune_every_s", 0, math.inf),
        )
        if self.schedule == "lockstep":
            names = ("predictors", "trainers", "rollouts_per_update", "tune_every_s")
            refuse_unused(self, names, "schedule = 'lockstep', where actors take turns")


@dataclass(frozen=True)
class PopulationConfig(RunConfig):
    """Settings of a run that evaluates whole networks and follows the better ones."""

    num_envs: int = 64
    """Members of a generation; each plays one episode in an environment of its own."""
    actors: int | Literal["auto"] = "auto"
    """Processes that evaluate members; auto: one per core, in lockstep none but the run's own."""
    blocks: int | Literal["auto"] = "auto"
    """Parts of a generation that are played at once, one after the other by whoever is free; auto: of 16
    members where environments are stepped one by one, else one for each process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise ConfigError(
                f"device = {self.device!r}: members of a population are evaluated on processors; leave it at "
                "'cpu'"
            )
        if self.schedule == "lockstep" and self.actors not in ("auto", 1):
            raise ConfigError(
                f"actors = {self.actors}: schedule = 'lockstep' evaluates all members in one process"
            )
        for name in ("actors", "blocks"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= self.num_envs:
                raise ConfigError(f"{name} = {value} is neither auto nor in 1..num_envs = {self.num_envs}")
        if self.actors != "auto" and self.blocks != "auto" and self.blocks < self.actors:
            raise ConfigError(
                f"blocks = {self.blocks} is below actors = {self.actors}, some of which would idle"
            )
