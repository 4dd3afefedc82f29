"""Training in one call: the only module that combines algorithm, environment, runtime and run directory.

::

    run = parl.train("dqn", env="CartPole-v1", seed=3, stop_at_return=475)
    returns = parl.evaluate(run.path, episodes=100)
    run = parl.resume(run.path)
"""

from __future__ import annotations

import dataclasses
import inspect
import multiprocessing
import sys
import types
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from parl import functions, pickles
from parl._algorithms import ALGORITHMS, algorithm_names
from parl.errors import ConfigError, UntrustedRunError, WorkerError
from parl.run import Progress, RunDirectory, check_keys
from parl.runtime.distributed.group import Group
from parl.signatures import show_options
from parl.train import start_states
from parl.train.callbacks import (
    Callback,
    CallbackList,
    Evaluation,
    Record,
    RunInfo,
    SavedCheckpoint,
    load_callback,
)
from parl.train.config import SELF, OffPolicyRunConfig, RunConfig
from parl.train.environments import checked_evaluation_maker, env_maker, probe_env, with_dataset
from parl.train.loggers import make_loggers
from parl.train.options import Options
from parl.train.playing import evaluate, kept_threads, protocol, protocol_table, record
from parl.train.registry import make_algorithm, presets_of, register_algorithm, topology_of
from parl.train.saved_runs import last_checkpoint_of, load, open_run, saved_learner
from parl.train.settings import (
    Layer,
    check_configs,
    cleared_settings,
    default_settings,
    described_functions,
    options_layer,
    pickled_functions,
    preset_layer,
    refuse_acting,
    refuse_unused,
    replace,
    resolve,
    table_layer,
    table_of,
)
from parl.train.summary import summary_of
from parl.train.trainer import Run, TrainingInterrupted, limits_of, run_share

if TYPE_CHECKING:
    from gymnasium import Env

    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.on_policy.start_states import SavedStates
    from parl.train.environments import EnvLike
    from parl.types import EnvSpec

__all__ = [
    "ALGORITHMS",
    "Callback",
    "Evaluation",
    "OffPolicyRunConfig",
    "Record",
    "Run",
    "RunConfig",
    "RunInfo",
    "SavedCheckpoint",
    "TrainingInterrupted",
    "algorithm_names",
    "default_settings",
    "evaluate",
    "load",
    "load_callback",
    "presets_of",
    "protocol",
    "protocol_table",
    "record",
    "register_algorithm",
    "resume",
    "settings_for",
    "settings_from",
    "train",
]


@show_options(Options)
@kept_threads()
def train(
    algorithm: str,
    /,
    env: EnvLike | None = None,
    *,
    wrappers: Sequence[str | Callable[[Any], Env[Any, Any]]] | None = None,
    preset: str | None = None,
    run_config: RunConfig | None = None,
    algorithm_config: object | None = None,
    command: Sequence[str] | None = None,
    callbacks: Sequence[object] = (),
    **options: Unpack[Options],
) -> Run:
    """Trains a policy and writes its checkpoints and metrics to a run directory.

    Args:
        algorithm: one of :func:`algorithm_names`.
        env: a Gymnasium id; ``module:Id`` or ``module:Class``; a class or a function without parameters that
            makes one environment; a function that takes the number of environments and returns a vector
            environment of them; or an environment, of which copies are made. See
            :class:`parl.envs.EnvMaker`. Default: that of ``run_config`` or ``preset``.
        wrappers: functions, classes or text that wrap each environment, the first innermost. Default: those
            of ``run_config`` or ``preset``.
        preset: name of a set of settings of the algorithm, see :func:`presets_of`.
        run_config: settings of the run. Default: those of the preset, or those that suit the environment.
        algorithm_config: settings of the algorithm, an instance of its ``Config``. Default: likewise.
        command: command line to keep in ``run.json``.
        callbacks: objects with methods of :class:`parl.Callback`, which are called during the run.
        **options: settings of the run or of the algorithm by name; they take precedence over the rest.
            ``seed=None`` draws a seed, which the run directory keeps.

    Raises:
        ConfigError: a setting is unknown or out of its bounds.
        CallbackError: a callback raised an exception; the directory can be resumed.
        WorkerError: an actor or learner failed; the directory can be resumed. Or a worker process imports the
            script that trains, whose calls must be below ``if __name__ == "__main__":``.
        TrainingInterrupted: SIGINT (Ctrl-C), SIGTERM or SIGHUP (a closed terminal) arrived, and the run was
            saved; a KeyboardInterrupt.
    """
    _refuse_workers_import()
    working = Path.cwd()  # environments may change it
    name = algorithm
    topology = topology_of(name)
    check_configs(name, run_config, algorithm_config)
    layers = [*preset_layer(name, preset), options_layer(name, options)]
    if run_config is None:
        layers = with_dataset(layers, env)
    maker = env_maker(name, env, layers, run_config, wrappers)
    for text in (maker.env, *maker.wrappers):
        if isinstance(text, str):
            functions.remember(text)
    if hasattr(env, "num_envs"):  # a vector environment
        layers.insert(0, Layer(f"{maker.name}", {"num_envs": cast("Any", env).num_envs}, {}))
    spec, environment = probe_env(maker)
    settings, own = resolve(name, spec, layers, run_config, algorithm_config)
    settings = dataclasses.replace(settings, env=maker.name, wrappers=maker.wrapper_names)
    refuse_unused(name, own, spec)
    refuse_acting(name, settings, own, spec)
    _check_device(settings.device, maker)
    evaluation = checked_evaluation_maker(maker, spec, settings)
    hooks = CallbackList(callbacks, make_loggers(settings.logger))
    made = make_algorithm(name, own, spec)
    init_from = saved_learner(name, settings, own, made, maker)
    deviation: float | None = getattr(made, "first_deviation", None)
    if deviation is not None and init_from is None:
        from parl.nets import warn_unreached_bounds

        warn_unreached_bounds(name, spec, deviation, stacklevel=3)  # `train` is decorated
    group = _join_process_group(name, settings.device)
    is_follower = group is not None and group.rank > 0
    progress = Progress(settings.total_steps, settings.quiet or is_follower, settings.verbose)
    asked = vars(settings)
    settings = topology.resolve_auto(made, settings, maker, spec, progress.print_detail)
    auto = [name for name, value in asked.items() if value == "auto" != getattr(settings, name)]
    start_states.check(settings, maker)
    starts = _played_states(settings, maker, spec)
    if starts is not None:
        source = settings.start_states
        progress.print_detail(f"{len(starts)} states of games that the policy of {source} has played")
    progress.print_line(summary_of(name, settings, maker, 1 if group is None else group.size))

    table = table_of(name, settings, own)
    cleared = cleared_settings(name, spec, table, settings, own)

    def new_directory() -> Path:
        label = settings.name or f"{name}-{settings.env}-{settings.seed}"
        files = {} if maker.is_text else {"env.pkl": pickles.dump(maker)}
        if pickled := pickled_functions(own):
            files["network.pkl"] = pickles.dump(pickled)
        if starts is not None:
            files[start_states.FILE] = starts.to_bytes()
        digests = described_functions(maker, own)
        root = working / settings.runs
        made = RunDirectory.create(root, label, table, command, environment, files, auto, digests, cleared)
        return Path(settings.runs) / made.path.name

    path = None if is_follower else new_directory()
    if group is not None:
        settings, path = group.from_rank_zero((settings, path))
    assert path is not None
    own_fields = {"init_from": init_from, **start_states.fields(settings, starts)}
    setup = dataclasses.replace(topology.setup(made, settings, maker, spec), **own_fields)
    run = RunDirectory(path if Path.cwd() == working else working / path)
    begun = settings, setup, None
    return run_share(run, topology, group, evaluation, hooks, lambda: begun, lambda *_: progress)


def _refuse_workers_import() -> None:
    """Raises WorkerError in a worker process that imports the script of its parent, which trains."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkerError(
            "a worker process has to import the script that started it, which would train again: write the "
            'calls that train below `if __name__ == "__main__":`'
        )


def _played_states(config: RunConfig, maker: EnvMaker, spec: EnvSpec) -> SavedStates | None:
    """States of games that the policy of the run ``config.start_states`` plays; None if there is no such run.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ConfigError: it is of another game, or of other observations or actions.
        UntrustedRunError: it has pickles that this process neither wrote nor loaded.
    """
    source = getattr(config, "start_states", None)
    if source in (None, SELF):
        return None
    try:
        policy = load(source)
    except UntrustedRunError as error:
        raise UntrustedRunError(
            f"start_states = {source!r} has pickles or names modules, which run code when loaded: if you "
            f"trust it, call parl.load({source!r}, trust=True) before parl.train"
        ) from error
    return start_states.play(policy, maker, spec, config)


def _check_device(device: str, maker: EnvMaker) -> None:
    """Checks that the device of the learners exists.

    Raises:
        ConfigError: names the device.
    """
    import torch

    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ConfigError(f"device = {device!r} is not a torch device, such as 'cpu' or 'cuda:0'") from error
    # Environments on a CUDA device check it themselves, with a more detailed message.
    if kind == "cuda" and not maker.is_on_device and not torch.cuda.is_available():
        raise ConfigError(f"device = {device!r}: torch {torch.__version__} finds no CUDA device here")
    if kind not in ("cpu", "cuda"):
        try:
            torch.zeros(1, device=device).cpu()
        except Exception as error:  # of several classes: torch was built without the device, or finds none
            message = str(error).partition("\n")[0]
            raise ConfigError(f"device = {device!r}: torch {torch.__version__}: {message}") from error


def _join_process_group(name: str, device: str) -> Group | None:
    """Connects this process to the others that ``torchrun`` started; None without ``torchrun``.

    Raises:
        ConfigError: the algorithm cannot run under torchrun.
    """
    group = Group.from_environment()
    if group is None:
        return None
    if not topology_of(name).grouped:
        able = sorted(other for other in ALGORITHMS if topology_of(other).grouped)
        raise ConfigError(f"{name} cannot run under torchrun, only: {', '.join(able)}")
    group.connect(group.device(device))
    return group


def settings_for(
    name: str,
    env: str | None = None,
    env_options: Sequence[str] | None = None,
    preset: str | None = None,
    table: Mapping[str, Any] | None = None,
    where: str | Path = "",
    wrappers: Sequence[str] | None = None,
    dataset: str | None = None,
) -> tuple[Any, Any]:
    """The settings of a run and its algorithm: the defaults for the environment, then a preset or a table.

    Args:
        name: name of the algorithm.
        env: a Gymnasium id; by default that of the table or the preset.
        env_options: keyword arguments of the environment; by default those of the table or the preset.
        preset: name of a preset of the algorithm.
        table: settings, such as a run's ``config.toml``: ``algorithm``, ``[run]`` and ``[<algorithm>]``.
        where: source of the table, for error messages.
        wrappers: wrappers of the environment; by default those of the table or the preset.
        dataset: of an algorithm that learns from one; by default that of the table or the preset. Its
            environment is then the default.

    Raises:
        ConfigError: there is no such algorithm, preset or environment, or the table has an unknown key, a
            wrong value or another algorithm.
    """
    layers = preset_layer(name, preset)
    if table is not None:
        layers.append(table_layer(name, table, where))
    given = {"env": env, "env_options": env_options, "wrappers": wrappers}
    layers.append(Layer(name, {key: value for key, value in given.items() if value is not None}, {}))
    if hasattr(topology_of(name).config, "dataset"):
        layers.append(Layer(name, {} if dataset is None else {"dataset": dataset}, {}))
        layers = with_dataset(layers, env)
    spec, _ = probe_env(env_maker(name, None, layers))
    return resolve(name, spec, layers)


def settings_from(name: str, table: Mapping[str, Any], where: str | Path = "") -> tuple[Any, Any]:
    """The settings of a run from a table such as a ``config.toml``; see :func:`settings_for`."""
    return settings_for(name, table=table, where=where)


class ResumeOptions(TypedDict, total=False):
    """The settings of a run that :func:`resume` can change."""

    total_steps: int
    stop_at_return: float | None
    evaluation_every: int
    evaluation_episodes: int
    evaluation_env_options: tuple[str, ...]
    checkpoint_every: int
    checkpoint_every_s: float
    log_every_s: float
    logger: Sequence[str]
    quiet: bool
    verbose: bool


@show_options(ResumeOptions)
@kept_threads()
def resume(
    path: str | Path,
    *,
    trust: bool = False,
    callbacks: Sequence[object] = (),
    **options: Unpack[ResumeOptions],
) -> Run:
    """Continues the run at ``path`` from its last checkpoint.

    If the run has no checkpoint yet, it starts again at step 0, with a warning. In the deterministic schedule
    the results are the same as those of a run without interruption, unless ``bc`` learns from a dataset that
    does not fit into its memory.

    A run that has ended continues with a larger ``total_steps``, over which learning rates fall; one that has
    reached ``stop_at_return`` then continues without this goal, unless a new one is given. The directory
    keeps both limits, so that a later call need not repeat them.

    Args:
        path: the run directory.
        trust: load pickles of the run. A pickle can run any code; runs of registered environments have none.
        callbacks: as in :func:`train`; those of the first part of the run are not kept.
        **options: settings to change, see :class:`ResumeOptions`.

    Raises:
        FileNotFoundError: there is no run.
        RunDirectoryError: another process trains in the directory; or a file of the run or of its last
            checkpoint is missing, damaged, edited or of another run. The message names the file and why. Or a
            process of torchrun on another machine does not see the directory.
        UntrustedRunError: the run has pickles that another process wrote, and ``trust`` is false.
        ConfigError: the run was trained by another number of processes of torchrun; or the folder was written
            by :meth:`parl.train.policy.Policy.save_for_hub`.
        CallbackError: a callback raised an exception.
        WorkerError: an actor or learner failed.
        TrainingInterrupted: SIGINT (Ctrl-C), SIGTERM or SIGHUP (a closed terminal) arrived, and the run was
            saved; a KeyboardInterrupt.
    """
    _refuse_workers_import()
    if (group := Group.from_environment()) is not None:
        group.check_sees(Path(path))
    absolute = Path(path).absolute()
    opened = open_run(path, trust)
    if opened.run.path.absolute() != absolute:  # the environment has changed the working folder
        opened = dataclasses.replace(opened, run=RunDirectory(absolute))
    if (opened.run.path / "policy.safetensors").is_file():
        raise ConfigError(
            f"{path} was written by save_for_hub: its policy has no state of training to resume"
        )
    check_keys(options, set(ResumeOptions.__annotations__), "resume")
    config = replace(opened.config, options, "resume")
    _check_device(config.device, opened.maker)
    evaluation = checked_evaluation_maker(opened.maker, opened.spec, config)
    hooks = CallbackList(callbacks, make_loggers(config.logger))
    group = _join_process_group(opened.name, config.device)
    rank = 0 if group is None else group.rank
    topology = topology_of(opened.name)

    def last_checkpoint() -> tuple[RunConfig, Any, Checkpoint | None]:
        """Settings, setup and the last checkpoint, without which the run starts as :func:`train` does."""
        saved = last_checkpoint_of(opened.run, rank, trust)
        if saved is not None:
            _check_processes(opened.run, saved, group)
        limits = opened.run.limits({} if saved is None else saved.counters)
        current = replace(config, {key: limits[key] for key in limits if key not in options}, "resume")
        setup = opened.make_setup(current)
        if saved is None:
            parts = (opened.algorithm, setup.algorithm, opened.maker)
            first = saved_learner(opened.name, current, *parts)
            setup = dataclasses.replace(setup, init_from=first)
        elif "total_steps" in options and "stop_at_return" not in options and _has_reached_goal(saved):
            current = replace(current, {"stop_at_return": None}, "resume")
        return current, setup, saved

    def announce(current: RunConfig, saved: Checkpoint | None) -> Progress:
        """Keeps the limits of the run and prints where it continues."""
        opened.run.write_limits(limits_of(current))
        start = int(saved.counters["env_steps"]) if saved is not None else 0
        if saved is None:
            # The level of the caller of `resume`, which is decorated.
            warnings.warn(f"{path} has no checkpoint yet: it starts again at step 0", stacklevel=5)
        progress = Progress(current.total_steps, current.quiet, current.verbose)
        said = summary_of(opened.name, current, opened.maker, 1 if group is None else group.size)
        progress.print_line(f"{said}, from step {start:,}")
        return progress

    return run_share(opened.run, topology, group, evaluation, hooks, last_checkpoint, announce)


def _check_processes(run: RunDirectory, saved: Checkpoint, group: Group | None) -> None:
    """Checks that a run goes on with as many processes as it had.

    Raises:
        ConfigError: it has more or fewer.
    """
    now = 1 if group is None else group.size
    before = int(saved.counters.get("processes", now))
    if before != now:
        raise ConfigError(
            f"{run.path} was trained by {before} process{'es' * (before > 1)}, which saved their shares: "
            f"it cannot go on with {now}"
        )


def _has_reached_goal(saved: Checkpoint) -> bool:
    """Whether ``saved`` is the end of a run that reached its ``stop_at_return``."""
    return (saved.counters.get("score") or {}).get("confirmed") is not None


class _Callable(types.ModuleType):
    """Makes the module ``parl.train`` callable, so that ``parl.train(...)`` also works after its import."""

    __signature__ = inspect.signature(train)

    def __call__(self, *args: Any, **kwargs: Any) -> Run:
        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
