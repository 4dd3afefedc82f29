"""Training from one call: the only place that puts algorithm, environment, runtime and run together.

::

    run = parl.train("dqn", env="CartPole-v1", seed=3, stop_at_return=475)
    returns = parl.evaluate(run.path, episodes=100)
    run = parl.resume(run.path)
"""

from __future__ import annotations

import collections
import dataclasses
import importlib
import json
import math
import os
import signal
import sys
import threading
import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from parl.errors import ConfigError, ParlError, WorkerError
from parl.run import MetricsLog, Progress, RunDirectory, check_keys, parse_count

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.evaluate import Evaluator
    from parl.runtime.setup import Loop, Saved, Setup
    from parl.types import Algorithm, EnvSpec

ALGORITHMS = {"dqn": ("parl.algos.dqn", "DQN")}
"""Name of each algorithm, its module and its class; the module has ``Config`` and ``default_config``."""

# An evaluation is worth its time once training earns this share of ``stop_at_return``, judged over this many
# vector steps by rewards received per episode ended: returns of whole episodes tell of policies long gone.
_PROMISING = 0.8
_PROMISING_WINDOW = 75
# Vector steps between looks at returns, clocks and signals; between two evaluations of a promising policy.
_LOOK_EVERY = 25
_EVALUATE_EVERY = 75


@dataclass(frozen=True)
class TrainConfig:
    """Settings of a run that are the same for every algorithm. A frame is one transition collected."""

    env: str = "CartPole-v1"
    """Gymnasium id."""
    seed: int = 0
    """Everything random follows from it, 0..2**31."""
    total_frames: int = 500_000
    """Transitions to collect in all, such as 50k or 10M."""
    actors: int | Literal["auto"] = "auto"
    """Actors that step environments at the same time; auto measures and chooses."""
    learners: int | Literal["auto"] = "auto"
    """Learners that share every batch; auto measures and chooses."""
    actor_kind: Literal["process", "thread"] = "process"
    """Threads suit environments that release Python's lock, such as parl's own; processes suit all others."""
    num_envs: int = 64
    """Environments of all actors together."""
    schedule: Literal["free", "lockstep"] = "free"
    """free: everything overlaps. lockstep: one fixed order, the same seed gives the same numbers."""
    replay_ratio: float = 1.0
    """Transitions sampled per transition collected, counted from learning_starts on."""
    batch_size: int = 64
    """Transitions per update, all learners together."""
    replay_capacity: int = 50_000
    """Transitions kept."""
    learning_starts: int = 2_000
    """Transitions collected before the first update; at least until some can be drawn."""
    evaluation_episodes: int = 100
    """Greedy episodes of an evaluation; 0 never evaluates."""
    evaluation_every: int = 0
    """Transitions between evaluations; 0 evaluates at the end, and when stop_at_return seems reached."""
    stop_at_return: float | None = None
    """Ends the run when an evaluation's mean return reaches this."""
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
        for name, low, high in (
            ("seed", 0, 2**31),
            ("total_frames", 1, 2**53),
            ("num_envs", 1, 2**20),
            ("replay_ratio", 1e-6, 1e6),
            ("batch_size", 1, 2**24),
            ("replay_capacity", 1, 2**40),
            ("learning_starts", 0, self.replay_capacity),
            ("evaluation_episodes", 0, 2**20),
            ("evaluation_every", 0, 2**53),
            ("checkpoint_every", 0, 2**53),
            ("checkpoint_every_s", 0, math.inf),
            ("log_every_s", 0, math.inf),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"{name} = {value} is outside {low}..{high}")
        for name, choices in (("actor_kind", ("process", "thread")), ("schedule", ("free", "lockstep"))):
            if getattr(self, name) not in choices:
                raise ConfigError(f"{name} = {getattr(self, name)!r} is not one of {', '.join(choices)}")
        for name in ("actors", "learners"):
            value = getattr(self, name)
            if value != "auto" and not 1 <= value <= 4096:
                raise ConfigError(f"{name} = {value} is neither auto nor in 1..4096")
        if self.actors != "auto" and self.actors > self.num_envs:
            raise ConfigError(f"actors = {self.actors} is above num_envs = {self.num_envs}")
        if self.learners != "auto" and self.batch_size % self.learners:
            raise ConfigError(f"batch_size = {self.batch_size} is no multiple of learners = {self.learners}")


@dataclass(frozen=True)
class Run:
    """How a run ended.

    Attributes:
        path: its directory.
        env_steps: transitions collected.
        updates: optimizer steps.
        training_s: seconds from the start of collection to the last checkpoint, all sittings together.
        evaluation_return: mean return of the last evaluation, None without one.
        stopped: why: ``"total_frames"``, ``"stop_at_return"`` or ``"interrupted"``.
    """

    path: Path
    env_steps: int
    updates: int
    training_s: float
    evaluation_return: float | None
    stopped: str


# --- settings -----------------------------------------------------------------------------------------------


def _module(name: str) -> Any:
    if name not in ALGORITHMS:
        raise ConfigError(f"there is no algorithm {name!r}; there are: {', '.join(sorted(ALGORITHMS))}")
    return importlib.import_module(ALGORITHMS[name][0])


def default_settings(name: str, spec: EnvSpec | None = None) -> tuple[TrainConfig, Any]:
    """The run's and the algorithm's default settings, those for ``spec``'s observations if given."""
    module = _module(name)
    if spec is None:
        return TrainConfig(), module.Config()
    config = TrainConfig()
    if len(spec.observation_shape) == 3:
        config = TrainConfig(
            total_frames=10_000_000,
            num_envs=16,
            replay_ratio=8.0,
            batch_size=32,
            replay_capacity=200_000,
            learning_starts=20_000,
        )
    return config, module.default_config(spec)


def _coerce(kind: str, name: str, value: Any, default: Any) -> Any:
    """``value`` in the type of the field's default; text such as 10M where a whole number is wanted."""
    try:
        if isinstance(default, bool):
            if not isinstance(value, bool):
                raise ConfigError("not true or false")
            return value
        if isinstance(default, int) or (default == "auto" and value != "auto"):
            return parse_count(value)
        if isinstance(default, float) or (default is None and isinstance(value, int)):
            return float(value)
        if isinstance(default, tuple):
            return tuple(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{kind}: {name} = {value!r}: {error}") from error
    return value


def _replace(config: Any, values: Mapping[str, Any], kind: str) -> Any:
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    check_keys(values, defaults, kind)
    return dataclasses.replace(
        config, **{key: _coerce(kind, key, value, defaults[key]) for key, value in values.items()}
    )


def settings_from(name: str, table: Mapping[str, Any], where: str | Path = "") -> tuple[TrainConfig, Any]:
    """Settings from a table such as a run's ``config.toml``: ``algorithm``, ``[run]`` and ``[<algorithm>]``.

    Raises:
        ConfigError: an unknown key, a wrong value or another algorithm; names ``where``.
    """
    check_keys(table, {"algorithm", "run", name}, str(where))
    if table.get("algorithm", name) != name:
        raise ConfigError(f"{where} is for algorithm {table['algorithm']!r}, not {name!r}")
    config, algorithm = default_settings(name)
    return (
        _replace(config, table.get("run", {}), f"{where} [run]"),
        _replace(algorithm, table.get(name, {}), f"{where} [{name}]"),
    )


def _table(name: str, config: TrainConfig, algorithm: Any) -> dict[str, Any]:
    return {"algorithm": name, "run": dataclasses.asdict(config), name: dataclasses.asdict(algorithm)}


# --- the run ------------------------------------------------------------------------------------------------


def train(
    name: str,
    /,
    env: str | Callable[..., Any] | None = None,
    *,
    config: TrainConfig | None = None,
    algorithm: Any = None,
    command: Sequence[str] | None = None,
    **options: Any,
) -> Run:
    """Trains algorithm ``name`` and leaves a run directory.

    Args:
        name: one of :data:`ALGORITHMS`.
        env: a Gymnasium id, or a function: with one parameter it returns a vector environment of that many,
            with none a single environment. By default ``config.env``.
        config: settings of the run; by default those that suit the environment.
        algorithm: settings of the algorithm, its ``Config``; likewise.
        command: command line to keep in ``run.json``.
        **options: single settings, of the run or of the algorithm, by name; they win over the two above.

    Raises:
        ConfigError: a setting is unknown or out of its bounds.
        WorkerError: an actor or learner failed; the directory can be resumed.
    """
    from parl.envs import EnvMaker, spec_of

    maker = EnvMaker(env or (config.env if config else options.get("env", TrainConfig.env)))
    probe = maker(1)
    spec = spec_of(probe)
    environment = getattr(probe.unwrapped, "settings", {})
    environment.pop("num_envs", None)  # That is the probe's.
    probe.close()
    defaults = default_settings(name, spec)
    start = defaults[0] if config is None else config
    own = defaults[1] if algorithm is None else algorithm
    run_fields = {field.name for field in dataclasses.fields(start)}
    own_fields = {field.name for field in dataclasses.fields(own)}
    check_keys(options, run_fields | own_fields, f"train({name!r})")
    given = {"env": maker.name} | {key: value for key, value in options.items() if key in run_fields}
    settings: TrainConfig = _replace(start, given, "run")
    own = _replace(own, {key: value for key, value in options.items() if key in own_fields}, name)
    progress = Progress(settings.total_frames, quiet=settings.quiet)
    settings = _settle(name, settings, own, maker, spec, progress.say)
    label = settings.name or f"{name}-{settings.env}-{settings.seed}"
    run = RunDirectory.create(settings.runs, label, _table(name, settings, own), command, environment)
    if not isinstance(maker.env, str):
        import cloudpickle

        (run.path / "env.pkl").write_bytes(cloudpickle.dumps(maker))
    setup = _setup(name, settings, own, maker, spec)
    return _Sitting(run, settings, setup, progress).go(None)


def _opened(path: str | Path) -> tuple[RunDirectory, TrainConfig, Setup]:
    from parl.envs import EnvMaker, spec_of

    run = RunDirectory.open(path)
    table = run.config
    name = str(table.get("algorithm"))
    config, algorithm = settings_from(name, table, run.path / "config.toml")
    maker = EnvMaker(config.env)
    if (run.path / "env.pkl").exists():
        import cloudpickle

        maker = cloudpickle.loads((run.path / "env.pkl").read_bytes())
    probe = maker(1)
    spec = spec_of(probe)
    probe.close()
    return run, config, _setup(name, config, algorithm, maker, spec)


def resume(path: str | Path, **options: Any) -> Run:
    """Goes on with the run at ``path`` from its last checkpoint, or from the start if it has none.

    In the lockstep schedule the numbers are those that the uninterrupted run would have given.

    Args:
        path: the run directory.
        **options: settings that may change in mid-run: ``total_frames``, ``stop_at_return``,
            ``evaluation_every``, ``evaluation_episodes``, ``checkpoint_every``, ``checkpoint_every_s``,
            ``log_every_s`` and ``quiet``.

    Raises:
        FileNotFoundError, RunDirectoryError: there is no run, or its checkpoint is damaged.
        WorkerError: an actor or learner failed.
    """
    from parl.runtime import checkpoint

    run, config, setup = _opened(path)
    changeable = {"total_frames", "stop_at_return", "quiet", "log_every_s"} | {
        field.name
        for field in dataclasses.fields(config)
        if field.name.startswith(("evaluation", "checkpoint"))
    }
    check_keys(options, changeable, "resume")
    config = _replace(config, options, "resume")
    setup = dataclasses.replace(
        setup, pacer=dataclasses.replace(setup.pacer, total_frames=config.total_frames)
    )
    try:
        saved = checkpoint.read(run.checkpoints.last())
    except FileNotFoundError:
        saved = None
    start = int(saved.counters["env_steps"]) if saved is not None else 0
    return _Sitting(run, config, setup, Progress(config.total_frames, start, config.quiet)).go(saved)


def evaluate(
    path: str | Path, episodes: int = 100, seed: int = 1_000_000, checkpoint: str = "best"
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Plays greedy episodes with a run's policy.

    Args:
        path: the run directory.
        episodes: how many, each in a freshly seeded environment.
        seed: of the first; episode i starts from ``seed + i``.
        checkpoint: ``"best"`` or ``"last"``.

    Returns:
        (episodes,) float64, the undiscounted returns.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    from parl.runtime import checkpoint as files

    if checkpoint not in ("best", "last"):
        raise ConfigError(f"checkpoint = {checkpoint!r} is not one of best, last")
    run, _, setup = _opened(path)
    folder = run.checkpoints.best() if checkpoint == "best" else run.checkpoints.last()
    learner = setup.make_learner()
    files.load_learner(files.read(folder), learner)
    evaluator = _evaluator(setup)
    evaluator.policy.weights.copy_(learner.weights)
    try:
        return evaluator.play(episodes, seed)
    finally:
        evaluator.close()


def _setup(name: str, config: TrainConfig, algorithm: Any, maker: EnvMaker, spec: EnvSpec) -> Setup:
    from parl.runtime.pacer import Pacer
    from parl.runtime.setup import Setup

    make: Callable[[Any, EnvSpec], Algorithm] = getattr(_module(name), ALGORITHMS[name][1])
    made = make(algorithm, spec)
    # A row can be drawn once the n steps after it are known: by then every environment has taken n + 1.
    drawable = config.num_envs * (int(made.replay_options()["n_step"]) + 1)
    starts = max(config.learning_starts, drawable)
    pacer = Pacer(config.replay_ratio, config.batch_size, config.num_envs, starts, config.total_frames)
    return Setup(
        algorithm=made,
        maker=maker,
        spec=spec,
        seed=config.seed,
        actors=1 if config.actors == "auto" else config.actors,
        processes=config.actor_kind == "process",
        learners=1 if config.learners == "auto" else config.learners,
        num_envs=config.num_envs,
        batch_size=config.batch_size,
        replay_capacity=config.replay_capacity,
        pacer=pacer,
        device=config.device,
    )


def _settle(
    name: str,
    config: TrainConfig,
    algorithm: Any,
    maker: EnvMaker,
    spec: EnvSpec,
    say: Callable[[str], None],
) -> TrainConfig:
    """``config`` with numbers in place of ``auto``; says why."""
    if "auto" not in (config.actors, config.learners):
        return config
    actors = None if config.actors == "auto" else config.actors
    learners = None if config.learners == "auto" else config.learners
    if config.schedule == "lockstep":
        say("lockstep runs in one thread: 1 actor and 1 learner unless told otherwise")
        return dataclasses.replace(config, actors=actors or 1, learners=learners or 1)
    from parl.runtime import balance

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    rates = balance.measure(
        _setup(name, config, algorithm, maker, spec),
        [actors] if actors else [n for n in range(1, min(cores, 16) + 1) if n <= config.num_envs],
        [learners] if learners else [m for m in range(1, min(cores, 8) + 1) if config.batch_size % m == 0],
    )
    split = balance.choose(rates, config.num_envs, config.batch_size / config.replay_ratio, cores)
    say(split.reason)
    return dataclasses.replace(config, actors=split.actors, learners=split.learners)


def _evaluator(setup: Setup) -> Evaluator:
    from parl.runtime.evaluate import Evaluator

    policy = setup.algorithm.make_policy(0, 1, 1, 0)
    return Evaluator(setup.maker, policy, setup.spec.observation_dtype)


class _Sitting:
    """One process's share of a run, from its start or a checkpoint to its end or an interruption."""

    def __init__(self, run: RunDirectory, config: TrainConfig, setup: Setup, progress: Progress) -> None:
        self._run, self._config, self._setup, self._progress = run, config, setup, progress
        self._recent: collections.deque[float] = collections.deque(maxlen=100)
        self._window: collections.deque[tuple[int, float, int]] = collections.deque()
        self._evaluations = 0
        self._evaluation_return: float | None = None
        self._evaluated_at = self._saved_at = self._logged_at = 0
        self._interrupted = False

    def go(self, saved: Saved | None) -> Run:
        """Trains until the end, a stop or an interruption."""
        from parl.runtime.free import FreeLoop
        from parl.runtime.lockstep import LockstepLoop

        before_s = float(saved.counters.get("training_s", 0.0)) if saved else 0.0
        self._evaluations = int(saved.counters.get("evaluations", 0)) if saved else 0
        self._began = time.monotonic() - before_s
        self._saved_clock = self._logged_clock = time.monotonic()
        kind = LockstepLoop if self._config.schedule == "lockstep" else FreeLoop
        # The environments of evaluations come first: workers are forked, and find everything loaded.
        evaluator = _evaluator(self._setup)
        with (
            _signals(self._interrupt),
            MetricsLog(self._run, self._config.tensorboard) as log,
            self._progress,
        ):
            loop: Loop = kind(self._setup, saved)
            try:
                self._loop = loop
                self._saved_at = self._evaluated_at = self._logged_at = loop.env_steps
                if saved is not None:
                    log.write({"env_steps": loop.env_steps, "resumed": True})
                try:
                    stopped = self._train(loop, log, evaluator)
                except WorkerError:
                    self._rescue(loop)
                    raise
                training_s = time.monotonic() - self._began
                return Run(
                    self._run.path, loop.env_steps, loop.updates, training_s, self._evaluation_return, stopped
                )
            finally:
                loop.close()
                evaluator.close()

    def _interrupt(self) -> None:
        self._interrupted = True
        loop = getattr(self, "_loop", None)
        if loop is not None:
            loop.interrupt()

    def _train(self, loop: Loop, log: MetricsLog, evaluator: Evaluator) -> str:
        config = self._config
        look_every = _LOOK_EVERY * config.num_envs
        while True:
            loop.advance((loop.env_steps // look_every + 1) * look_every, seconds=0.25)
            self._recent += [value for value, _ in loop.take_episodes()]
            if self._interrupted:
                self._log(loop, log)
                self._save(loop, None)
                self._progress.say(f"interrupted; saved in {self._run.path}, parl resume goes on from there")
                return "interrupted"
            over = loop.env_steps >= config.total_frames
            if self._log_is_due(loop) or over:
                self._log(loop, log)
            if config.evaluation_episodes and (over or self._evaluation_is_due(loop)):
                score = self._evaluate(loop, log, evaluator)
                solved = config.stop_at_return is not None and score >= config.stop_at_return
                if solved or over or config.evaluation_every:
                    self._save(loop, score)
                if solved:
                    return "stop_at_return"
            elif over or self._checkpoint_is_due(loop):
                self._save(loop, None)
            if over:
                return "total_frames"

    def _log_is_due(self, loop: Loop) -> bool:
        if self._config.schedule == "lockstep":
            return loop.env_steps - self._logged_at >= 1_000
        now = time.monotonic()
        # Closer together at the start, so that a run of seconds has a curve too.
        return now - self._logged_clock >= min(self._config.log_every_s, 0.1 + 0.05 * (now - self._began))

    def _evaluation_is_due(self, loop: Loop) -> bool:
        config = self._config
        since = loop.env_steps - self._evaluated_at
        if config.evaluation_every and since >= config.evaluation_every:
            return True
        goal = config.stop_at_return
        now = (loop.env_steps, *loop.rewards_and_episodes())
        while len(self._window) > 1 and now[0] - self._window[1][0] >= _PROMISING_WINDOW * config.num_envs:
            self._window.popleft()
        self._window.append(now)
        if goal is None or since < _EVALUATE_EVERY * config.num_envs or not self._recent:
            return False
        rewards, ended = (new - old for new, old in zip(now[1:], self._window[0][1:], strict=True))
        return ended == 0 or rewards / ended >= goal - (1 - _PROMISING) * abs(goal)

    def _checkpoint_is_due(self, loop: Loop) -> bool:
        if self._config.checkpoint_every:
            return loop.env_steps - self._saved_at >= self._config.checkpoint_every
        if self._config.schedule == "lockstep":
            return False
        return time.monotonic() - self._saved_clock >= self._config.checkpoint_every_s

    def _log(self, loop: Loop, log: MetricsLog) -> None:
        recent = float(np.mean(self._recent)) if self._recent else None
        report = loop.report()
        log.write(
            {
                "env_steps": loop.env_steps,
                "updates": loop.updates,
                "wall_time_s": time.monotonic() - self._began,
                "episode_return": recent,
                **report,
            }
        )
        shown = ("env_steps_per_s", "updates_per_s", "replay_ratio", "policy_lag")
        fields = {key: report[key] for key in shown}
        self._progress.update(loop.env_steps, **fields, episode_return=recent)
        self._logged_at, self._logged_clock = loop.env_steps, time.monotonic()

    def _evaluate(self, loop: Loop, log: MetricsLog, evaluator: Evaluator) -> float:
        evaluator.policy.weights.copy_(loop.learner.weights)
        self._evaluations += 1
        seed = np.random.SeedSequence([self._config.seed, 2**31, self._evaluations]).generate_state(1)[0] >> 1
        returns = evaluator.play(self._config.evaluation_episodes, int(seed))
        score = float(returns.mean())
        log.write(
            {
                "env_steps": loop.env_steps,
                "updates": loop.updates,
                "wall_time_s": time.monotonic() - self._began,
                "evaluation_return": score,
                "evaluation_return_std": float(returns.std()),
            }
        )
        self._progress.say(f"evaluation after {loop.env_steps:,} steps: mean return {score:.1f}")
        self._evaluation_return, self._evaluated_at = score, loop.env_steps
        return score

    def _rescue(self, loop: Loop) -> None:
        """Saves what outlives a failed worker, if anything does; the failure itself matters more."""
        try:
            self._save(loop, None, loop.rescue)
        except (ParlError, OSError) as error:
            self._progress.say(f"no checkpoint after the failure: {error}")
        else:
            self._progress.say(f"saved in {self._run.path}, parl resume goes on from there")

    def _save(self, loop: Loop, score: float | None, save: Callable[[Path], None] | None = None) -> None:
        with self._run.checkpoints.write(loop.env_steps, score) as folder:
            (save or loop.save)(folder)
            path = folder / "counters.json"
            counters = json.loads(path.read_text(encoding="utf-8"))
            counters["training_s"] = time.monotonic() - self._began
            counters["evaluations"] = self._evaluations
            path.write_text(json.dumps(counters, indent=2) + "\n", encoding="utf-8")
        self._saved_at, self._saved_clock = loop.env_steps, time.monotonic()


class _signals:  # noqa: N801 - a context manager, used like a function
    """Within it the first SIGINT or SIGTERM calls ``action``, a second SIGINT raises KeyboardInterrupt."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._old: dict[int, Any] = {}
        self._asked = False

    def _handle(self, number: int, frame: object) -> None:
        if self._asked and number == signal.SIGINT:
            raise KeyboardInterrupt
        self._asked = True
        self._action()

    def __enter__(self) -> None:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._old[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, old in self._old.items():
            signal.signal(number, old)


class _Callable(types.ModuleType):
    """Lets ``parl.train(...)`` train whether or not ``parl.train`` was imported as a module before."""

    def __call__(self, *args: Any, **kwargs: Any) -> Run:
        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
