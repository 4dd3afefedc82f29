"""Settings of a run: those that all algorithms share, and those of each topology."""

from __future__ import annotations

import ast
import math
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np

from parl.errors import ConfigError
from parl.ops.bounds import check_bounds, check_choices

LOGGERS = ("tensorboard", "wandb", "mlflow", "trackio")
"""Names of loggers, see :mod:`parl.train.loggers`."""


SELF = "self"
"""The value of ``start_states`` for states of the run itself."""

# Settings that have no effect in a run that learns from a dataset.
_OF_ACTORS = (
    "gradient_compression",
    "actors",
    "actor_kind",
    "learner_kind",
    "park_actors",
    "double_buffer",
    "priority_delay",
    "engine",
    "ray_address",
    "ray_steps",
)

# Reasons why settings have no effect.
_ONE_THREAD = "schedule = 'deterministic', which runs in one thread"
_RAY_ACTORS = "engine = 'ray', whose actors are Ray actors"


def check_starts(config: Any) -> None:
    """Checks ``random_starts``, ``start_states`` and ``start_states_share``.

    Raises:
        ConfigError: names the value and the bounds, or a value that has no effect.
    """
    if config.random_starts != "auto":
        check_bounds(config, ("random_starts", 0, 2**20))
    if config.start_states is None:
        refuse_unused(config, ("start_states_share",), "start_states = None")
        return
    if not config.start_states:
        raise ConfigError(f"start_states = '': expected {SELF!r} or a run; leave it out for none")
    if not 0 < config.start_states_share <= 1:
        raise ConfigError(f"start_states_share = {config.start_states_share} is not above 0 and at most 1")


def refuse_unused(config: Any, names: Iterable[str], reason: str) -> None:
    """Checks that settings without effect have their default values.

    Raises:
        ConfigError: a setting of ``names`` was changed; names it and ``reason``, why it has no effect.
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
    """Gymnasium id of the environment, such as CartPole-v1 or parl/Pong-v0; or module:Class of your own."""
    env_options: tuple[str, ...] = ()
    """Keyword arguments of the environment, such as obs_type=ram stack_num=2."""
    wrappers: tuple[str, ...] = ()
    """Wrappers of each environment, the first innermost, such as gymnasium.wrappers:FlattenObservation or
    "gymnasium.wrappers:TimeLimit(max_episode_steps=100)"."""
    evaluation_env_options: tuple[str, ...] = ()
    """Keyword arguments that replace those of env_options in evaluations, such as
    repeat_action_probability=0.25."""
    seed: int = 0
    """Seed of all random numbers of the run, 0 to 2**31. Equal seeds give equal results with schedule
    deterministic only."""
    total_steps: int = 500_000
    """Length of the run: transitions collected by all environments together, such as 50k or 10M."""
    num_envs: int = 64
    """Number of environments, of all actors together."""
    schedule: Literal["async", "deterministic"] = "async"
    """async: actors and learners run at the same time. deterministic: they alternate in a fixed order, so
    that equal seeds give equal results."""
    init_from: str | None = None
    """Run directory, or folder of a checkpoint, whose weights and normalization training starts from; of a
    run, those of its best checkpoint. Algorithm and shapes must be the same."""
    evaluation_episodes: int = 100
    """Episodes per evaluation, played without exploration; 0 turns evaluations off."""
    evaluation_every: int = 0
    """Transitions between evaluations; 0: at the end, and when the return of training is within 20 % of
    stop_at_return."""
    stop_at_return: float | None = None
    """Mean evaluation return that ends the run, once a second evaluation on other seeds reaches it too."""
    checkpoint_every: int = 0
    """Transitions between checkpoints; 0: see checkpoint_every_s."""
    checkpoint_every_s: float = 120.0
    """Seconds between checkpoints if checkpoint_every is 0 (async schedule only)."""
    log_every_s: float = 1.0
    """Seconds between records in metrics.jsonl, less at the start of the run. The deterministic schedule
    writes a record every 1,000 transitions instead."""
    device: str = "cpu"
    """torch device of the learners, such as cpu or cuda:0."""
    runs: str = "runs"
    """Folder in which the run directory is created."""
    name: str | None = None
    """Name of the run directory; by default algorithm, environment and seed. If a run has that name, a
    number is added: NAME-2, NAME-3."""
    logger: tuple[str, ...] = ()
    """Where metrics also go, besides metrics.jsonl: tensorboard, wandb, mlflow, trackio."""
    quiet: bool = False
    """Print no progress."""
    verbose: bool = False
    """Also print why numbers that are auto were chosen, and the protocol of each evaluation."""

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
            infinite=("checkpoint_every_s", "log_every_s"),
        )
        if self.stop_at_return is not None:
            check_bounds(self, ("stop_at_return", -math.inf, math.inf))
        check_choices(self, ("schedule", ("async", "deterministic")))
        for name in self.logger:
            if name not in LOGGERS:
                raise ConfigError(f"logger = {name!r} is not one of {', '.join(LOGGERS)}")
        if not self.evaluation_episodes:
            refuse_unused(self, ("stop_at_return", "evaluation_every"), "evaluation_episodes = 0")
        if self.schedule == "deterministic":
            clockless = "schedule = 'deterministic', which does not read a clock: set checkpoint_every"
            refuse_unused(self, ("checkpoint_every_s",), clockless)
        keywords(self.env_options)
        keywords(self.evaluation_env_options)


def keywords(options: Iterable[Any]) -> dict[str, Any]:
    """Parses words such as ``obs_type=ram`` or ``stack_num=2``.

    Values are Python literals, else text; ``true`` and ``false`` are the literals ``True`` and ``False``.

    Raises:
        ConfigError: a word has no ``=``, or holds several options.
    """
    found: dict[str, Any] = {}
    for word in options:
        name, sign, text = word.partition("=") if isinstance(word, str) else ("", "", "")
        if not sign or not name.isidentifier():
            raise ConfigError(f"env_options: {word!r} is not of the form name=value")
        value = _literal(text)
        if value == text and re.search(r"\s[A-Za-z_]\w*=", text):
            raise ConfigError(f"env_options: {word!r} holds several options, expected one in each word")
        found[name] = value
    return found


def _literal(text: str) -> Any:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return ast.literal_eval(text)
    except (TypeError, ValueError, SyntaxError):
        return text


def words(options: Any) -> tuple[str, ...]:
    """Converts a mapping to the words that :func:`keywords` parses; words are returned as a tuple.

    Raises:
        ConfigError: a value is no Python literal, or ``options`` is neither a mapping nor words.
    """
    if isinstance(options, str):
        return (options,)
    if isinstance(options, Mapping):
        return tuple(_word(name, value) for name, value in options.items())
    if not isinstance(options, Iterable):
        raise ConfigError(f"env_options = {options!r} is neither a dictionary nor words such as obs_type=ram")
    return tuple(options)


def _word(name: str, value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    elif isinstance(value, os.PathLike):
        value = os.fspath(value)
    for text in (str(value), repr(value)):
        parsed = _literal(text)
        if type(parsed) is type(value) and parsed == value:
            return f"{name}={text}"
    raise ConfigError(
        f"env_options: {name} = {value!r} is no Python literal, which run directories keep: set it in a "
        "function that makes the environment"
    )


@dataclass(frozen=True)
class RayConfig:
    """Settings of runs whose actors can be on other machines."""

    engine: Literal["local", "ray"] = "local"
    """local: actors on this machine. ray: Ray actors on the machines of a cluster."""
    ray_address: str | None = None
    """Address of the Ray cluster, as for ray.init (auto, host:port); None: RAY_ADDRESS, else a new cluster on
    this machine."""

    def _check_ray(self, schedule: str) -> None:
        """Checks these settings.

        Args:
            schedule: "deterministic" if actors run one after the other, else "async".

        Raises:
            ConfigError: a value is unknown, has no effect, or is not possible with this schedule.
        """
        check_choices(self, ("engine", ("local", "ray")))
        if self.engine == "local":
            refuse_unused(self, ("ray_address",), "engine = 'local'")
        elif schedule == "deterministic":
            raise ConfigError("engine = 'ray' needs schedule = 'async', got 'deterministic'")


@dataclass(frozen=True)
class OffPolicyRunConfig(RayConfig, RunConfig):
    """Settings of a run with a replay: actors write to it, learners sample from it, at a fixed ratio."""

    actors: int | Literal["auto"] = "auto"
    """Number of actors, which step environments in parallel; auto: the fastest number, measured at the
    start."""
    learners: int | Literal["auto"] = "auto"
    """Number of learners, which divide each batch among them; auto: the fastest number, measured at the
    start."""
    threads: int | Literal["auto"] = "auto"
    """Threads of each learner; auto: 1 for small networks, on a GPU and in the deterministic schedule, else
    one per core, at most 4."""
    actor_kind: Literal["auto", "process", "thread"] = "auto"
    """Whether actors are processes or threads. Threads suit environments that release the GIL. auto: threads
    for parl's Atari games, else processes."""
    learner_kind: Literal["process", "thread"] = "process"
    """Whether several learners are processes or threads of one process (async schedule)."""
    replay_ratio: float = 1.0
    """Transitions sampled per transition collected, not counting the first learning_starts transitions. The
    number of updates per transition is this divided by batch_size."""
    batch_size: int = 64
    """Transitions per update, of all learners together."""
    replay_capacity: int = 50_000
    """Capacity of the replay, in transitions."""
    learning_starts: int = 2_000
    """Transitions collected before the first update."""
    park_actors: bool = True
    """Pause some of the actors, in rotation, while fewer are enough for replay_ratio."""
    double_buffer: bool = False
    """Split each actor's environments into two groups: one steps while the policy chooses actions for the
    other."""
    prefetch: int | Literal["auto"] = "auto"
    """Batches sampled in advance: by several learners while gradients are averaged, by a single learner in a
    thread. auto: 1 with several learners in the async schedule, else 0."""
    priority_delay: int = 0
    """Number of updates by which the replay receives new priorities late; 0: after each update."""
    ray_steps: int = 16
    """Vector steps that a Ray actor takes per request."""
    gradient_compression: Literal["none", "fp16", "bf16"] = "none"
    """Form in which processes of torchrun send gradients: none (float32), fp16 or bf16, half the bytes, which
    saves time between machines with a slow network."""
    dataset: str = ""
    """A dataset of parl record-dataset that one learner learns from, without actors. total_steps then counts
    sampled transitions, and num_envs is the number of episodes that are replayed at the same time. env and
    env_options are by default those with which it was recorded."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("replay_ratio", 1e-6, 1e6),
            ("batch_size", 1, 2**24),
            ("replay_capacity", 1, 2**31),
            ("learning_starts", 0, 2**31 if self.dataset else self.replay_capacity),
            ("ray_steps", 1, 2**16),
            ("priority_delay", 0, 2**16),
        )
        if self.dataset:
            alone = f"dataset = {self.dataset!r}, from which one learner learns without actors"
            refuse_unused(self, _OF_ACTORS, alone)
            for name, only in (("learners", 1), ("prefetch", 0)):
                if getattr(self, name) not in ("auto", only):
                    raise ConfigError(f"{name} = {getattr(self, name)} has no effect with {alone}")
        kinds = ("process", "thread")
        check_choices(
            self,
            ("actor_kind", ("auto", *kinds)),
            ("learner_kind", kinds),
            ("gradient_compression", ("none", "fp16", "bf16")),
        )
        least = 2 * (1 if self.actors == "auto" else self.actors)
        if self.double_buffer and self.num_envs < least:
            raise ConfigError(
                f"double_buffer needs two environments per actor: num_envs = {self.num_envs} is below {least}"
            )
        if self.engine == "local":
            refuse_unused(self, ("ray_steps",), "engine = 'local'")
        self._check_ray(self.schedule)
        if self.schedule == "deterministic":
            refuse_unused(self, ("actor_kind", "learner_kind", "park_actors"), _ONE_THREAD)
        if self.engine == "ray":
            refuse_unused(self, ("actor_kind", "park_actors"), _RAY_ACTORS)
        for name in ("actors", "learners", "threads"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= 4096:
                raise ConfigError(f"{name} = {value} is neither auto nor 1 to 4096")
        if self.prefetch != "auto" and not 0 <= self.prefetch <= 1024:
            raise ConfigError(f"prefetch = {self.prefetch} is neither auto nor 0 to 1024")
        if self.actors != "auto" and self.actors > self.num_envs:
            raise ConfigError(f"actors = {self.actors} is above num_envs = {self.num_envs}")
        if self.learners != "auto" and self.batch_size % self.learners:
            raise ConfigError(f"batch_size = {self.batch_size} is no multiple of learners = {self.learners}")


@dataclass(frozen=True)
class RolloutRunConfig(RunConfig):
    """Settings of a run that learns from rollouts of its newest weights, without a replay."""

    random_starts: int | Literal["auto"] = "auto"
    """Steps of random actions before learning, in which environments are reset one by one, so that their
    episodes do not end at the same time; auto: 500 for more than 64 environments without action masks, else
    0."""
    start_states: str | None = None
    """Saved console states from which games of parl's Atari environments continue in place of their start:
    self: states that the first environment of each actor has passed; or a run directory, whose policy plays
    games of which states are saved. Evaluations always play whole games."""
    start_states_share: float = 0.5
    """Share of the new games that continue from start_states."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_starts(self)


@dataclass(frozen=True)
class SyncRunConfig(RayConfig, RolloutRunConfig):
    """Settings of a run whose environments are stepped together."""

    num_envs: int = 8
    """Number of environments, all stepped together."""
    threads: int | Literal["auto"] = "auto"
    """torch threads of the learner; auto: 1 for vector observations and in the deterministic schedule, else
    one per core."""
    actors: int | Literal["auto"] = "auto"
    """Number of actors, which share the environments; results depend on it. engine = 'ray' runs them at the
    same time, engine = 'local' one after the other; auto: one per processor of the Ray cluster, 1 locally."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_ray("async")
        if self.actors != "auto" and not 1 <= self.actors <= self.num_envs:
            raise ConfigError(f"actors = {self.actors} is neither auto nor 1 to num_envs = {self.num_envs}")
        if self.threads != "auto" and not 1 <= self.threads <= 4096:
            raise ConfigError(f"threads = {self.threads} is neither auto nor 1 to 4096")


@dataclass(frozen=True)
class DatasetRunConfig(SyncRunConfig):
    """Settings of a run that learns from files. total_steps counts a row each time it is used."""

    data: tuple[str, ...] = ()
    """Files of recorded episodes: from parl play --record, or .npz files with observations and actions."""
    dataset: str = ""
    """A dataset of parl record-dataset, in place of data. env and env_options are by default those with which
    it was recorded."""
    num_envs: int = 64
    """A batch has this number times rollout_steps rows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dataset and self.data:
            raise ConfigError(f"dataset = {self.dataset!r} and data = {self.data}: give one of them")
        if self.random_starts not in ("auto", 0):
            raise ConfigError(f"random_starts = {self.random_starts} has no effect when learning from files")
        refuse_unused(self, ("start_states",), "data files or a dataset")
        refuse_unused(self, ("engine", "actors"), "data files or a dataset")


@dataclass(frozen=True)
class HogwildRunConfig(RolloutRunConfig):
    """Settings of a run with several actors that collect at the same time."""

    num_envs: int = 16
    """Number of environments, of all actors together."""
    actors: int | Literal["auto"] = "auto"
    """Number of actors, which step environments in parallel; auto: one per core, or two with predictors."""
    actor_kind: Literal["process", "thread"] = "process"
    """Whether actors are processes or threads. Threads suit environments that release the GIL."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choices(self, ("actor_kind", ("process", "thread")))
        if self.schedule == "deterministic":
            refuse_unused(self, ("actor_kind",), _ONE_THREAD)
        if self.actors != "auto" and not 1 <= self.actors <= self.num_envs:
            raise ConfigError(f"actors = {self.actors} is neither auto nor 1 to num_envs = {self.num_envs}")


@dataclass(frozen=True)
class AsyncRunConfig(RayConfig, HogwildRunConfig):
    """Settings of a run whose actors collect rollouts while the learner learns from earlier ones."""

    max_lag: int = 32
    """Largest policy lag of a rollout: the updates since its weights were published. Rollouts with a larger
    lag are discarded and counted."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(self, ("max_lag", 0, 2**53))
        self._check_ray(self.schedule)
        if self.engine == "ray":
            refuse_unused(self, ("actor_kind",), _RAY_ACTORS)
        if self.schedule == "deterministic":
            refuse_unused(self, ("max_lag",), "schedule = 'deterministic', where the policy lag is 0")


@dataclass(frozen=True)
class PredictorRunConfig(AsyncRunConfig):
    """Settings of a run in which predictor threads choose the actors' actions."""

    predictors: int = 1
    """Initial number of predictor threads, which choose the actions of all actors; at most one per actor."""
    trainers: int = 1
    """Initial number of trainer threads, which compute the updates; at most one per actor."""
    rollouts_per_update: int = 2
    """Initial number of rollouts per update; at most one per actor."""
    tune_every_s: float = 5.0
    """Seconds between adjustments of the numbers of actors, predictors, trainers and rollouts per update; 0:
    never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_unused(self, ("engine",), "predictors, which are threads of this process")
        check_bounds(
            self,
            ("predictors", 1, 4096),
            ("trainers", 1, 4096),
            ("rollouts_per_update", 1, 4096),
            ("tune_every_s", 0, math.inf),
            infinite=("tune_every_s",),
        )
        if self.schedule == "deterministic":
            names = ("predictors", "trainers", "rollouts_per_update", "tune_every_s")
            refuse_unused(self, names, "schedule = 'deterministic', which runs one actor at a time")


@dataclass(frozen=True)
class PopulationRunConfig(RayConfig, RunConfig):
    """Settings of a run of an evolutionary algorithm."""

    num_envs: int = 64
    """Population size. In a generation each member plays one episode in its own environment."""
    actors: int | Literal["auto"] = "auto"
    """Number of processes that evaluate members; auto: one per core, or per processor of the Ray cluster. The
    deterministic schedule evaluates all members in this process."""
    member_batches: int | Literal["auto"] = "auto"
    """Number of batches into which a generation is divided; each is evaluated by one process. auto: batches
    of 16 members if environments are stepped one by one, else one batch per process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise ConfigError(
                f"device = {self.device!r}: members of a population are evaluated on the CPU; leave it at "
                "'cpu'"
            )
        self._check_ray(self.schedule)
        if self.schedule == "deterministic" and self.actors not in ("auto", 1):
            raise ConfigError(
                f"actors = {self.actors}: schedule = 'deterministic' evaluates all members in one process"
            )
        for name in ("actors", "member_batches"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= self.num_envs:
                raise ConfigError(f"{name} = {value} is neither auto nor 1 to num_envs = {self.num_envs}")
        if self.actors != "auto" and self.member_batches != "auto" and self.member_batches < self.actors:
            raise ConfigError(
                f"member_batches = {self.member_batches} is below actors = {self.actors}: actors would idle"
            )
