"""Training in one call: the only module that combines algorithm, environment, runtime and run directory.

::

    run = parl.train("dqn", env="CartPole-v1", seed=3, stop_at_return=475)
    returns = parl.evaluate(run.path, episodes=100)
    run = parl.resume(run.path)
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import multiprocessing
import os
import secrets
import sys
import types
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict, Unpack, cast

import numpy as np

from parl import functions, pickles
from parl.errors import ConfigError, RunDirectoryError, WorkerError
from parl.ops.bounds import integer
from parl.run import Progress, RunDirectory, check_keys
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
from parl.train.config import SELF, OffPolicyRunConfig, RunConfig, keywords, words
from parl.train.evaluation_protocol import evaluation_options, protocol_facts, protocol_of
from parl.train.loggers import make_loggers
from parl.train.options import Options
from parl.train.registry import (
    ALGORITHMS,
    Layer,
    algorithm_names,
    check_configs,
    check_known,
    class_of,
    default_settings,
    import_paths,
    make_algorithm,
    module_of,
    pickled_functions,
    preset_layer,
    presets_of,
    refuse_acting,
    refuse_unused,
    register_algorithm,
    replace,
    resolve,
    table_layer,
    table_of,
    topology_of,
)
from parl.train.summary import summary_of
from parl.train.trainer import Run, Trainer, TrainingInterrupted, run_follower_rank

if TYPE_CHECKING:
    from gymnasium import Env
    from gymnasium.vector import VectorEnv

    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.distributed.torchrun import Group
    from parl.runtime.on_policy.start_states import SavedStates
    from parl.runtime.setup import SavedLearner
    from parl.train.policy import Policy
    from parl.types import EnvSpec

    EnvLike: TypeAlias = (
        str
        | Env[Any, Any]
        | VectorEnv[Any, Any, Any]
        | Callable[[], Env[Any, Any]]
        | Callable[[int], VectorEnv[Any, Any, Any]]
    )

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


@contextlib.contextmanager
def _kept_threads() -> Generator[None]:
    """Context that restores the number of torch's threads, which runs and evaluations change."""
    try:
        import torch
    except ImportError:  # They name the extra that installs it.
        yield
        return
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@show_options(Options)
@_kept_threads()
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
        TrainingInterrupted: SIGINT (Ctrl-C) or SIGTERM arrived, and the run was saved; a KeyboardInterrupt.
    """
    _refuse_workers_import()
    name = algorithm
    topology = topology_of(name)
    check_configs(name, run_config, algorithm_config)
    layers = [*preset_layer(name, preset), _options_layer(name, options)]
    if run_config is None:
        layers = _with_dataset(layers, env)
    maker = _env_maker(name, env, layers, run_config, wrappers)
    for text in (maker.env, *maker.wrappers):
        if isinstance(text, str):
            functions.remember(text)
    if hasattr(env, "num_envs"):  # a vector environment
        layers.insert(0, Layer(f"{maker.name}", {"num_envs": cast("Any", env).num_envs}, {}))
    spec, environment = _probe_env(maker)
    settings, own = resolve(name, spec, layers, run_config, algorithm_config)
    settings = dataclasses.replace(settings, env=maker.name, wrappers=maker.wrapper_names)
    refuse_unused(name, own, spec)
    refuse_acting(name, settings, own, spec)
    _check_device(settings.device, maker)
    hooks = CallbackList(callbacks, make_loggers(settings.logger))
    made = make_algorithm(name, own, spec)
    init_from = _saved_learner(name, settings, made, maker)
    group = _join_process_group(name, settings.device)
    is_follower = group is not None and group.rank > 0
    progress = Progress(settings.total_steps, settings.quiet or is_follower, settings.verbose)
    settings = topology.resolve_auto(made, settings, maker, spec, progress.print_detail)
    start_states.check(settings, maker)
    starts = _played_states(settings, maker, spec)
    if starts is not None:
        source = settings.start_states
        progress.print_detail(f"{len(starts)} states of games that the policy of {source} has played")
    progress.print_line(summary_of(name, settings, maker, 1 if group is None else group.size))

    def new_directory() -> Path:
        label = settings.name or f"{name}-{settings.env}-{settings.seed}"
        files = {} if maker.is_text else {"env.pkl": pickles.dump(maker)}
        if pickled := pickled_functions(own):
            files["network.pkl"] = pickles.dump(pickled)
        if starts is not None:
            files[start_states.FILE] = starts.to_bytes()
        table = table_of(name, settings, own)
        return RunDirectory.create(settings.runs, label, table, command, environment, files).path

    path = None if is_follower else new_directory()
    if group is not None:
        settings, path = group.from_rank_zero((settings, path))
    assert path is not None
    own_fields = {"init_from": init_from, **start_states.fields(settings, starts)}
    setup = dataclasses.replace(topology.setup(made, settings, maker, spec), **own_fields)
    run = RunDirectory(path)
    try:
        if is_follower:
            return run_follower_rank(run, topology, settings, setup, None)
        with run.lock():
            evaluation = _evaluation_maker(maker, settings)
            return Trainer(run, topology, settings, setup, evaluation, progress, hooks).run(None)
    finally:
        if group is not None:
            group.disconnect()


def _refuse_workers_import() -> None:
    """Raises WorkerError in a worker process that imports the script of its parent, which trains."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise WorkerError(
            "a worker process has to import the script that started it, which would train again: write the "
            'calls that train below `if __name__ == "__main__":`'
        )


def _saved_learner(name: str, config: RunConfig, made: Any, maker: EnvMaker) -> SavedLearner | None:
    """The learner of the run ``config.init_from``, from whose weights a run starts; None without such a run.

    Args:
        name: name of the new run's algorithm.
        config: settings of the new run.
        made: the new run's algorithm.
        maker: makes the new run's environments.

    Raises:
        ConfigError: the other run has another algorithm, or the first parameter whose shape differs.
    """
    source = config.init_from
    if source is None:
        return None
    import torch

    from parl.runtime import policy_file
    from parl.runtime.setup import SavedLearner

    path, folder = _locate(source, "best", "learner.pt")
    if not (folder / "learner.pt").is_file():
        raise ConfigError(f"init_from = {source!r} has no learner.pt: name a run or one of its checkpoints")
    saved = policy_file.read(folder / policy_file.NAME)
    if saved.algorithm != name:
        raise ConfigError(f"init_from = {source!r} is a run of {saved.algorithm}, not of {name}")
    opened = _open(path, False, cast("EnvLike", maker.env), saved.spec)
    state = torch.load(folder / "learner.pt", weights_only=True, map_location="cpu")
    own = opened.algorithm
    if getattr(own, "cuda_graph", False):
        own = dataclasses.replace(own, cuda_graph=False)
    found = SavedLearner(make_algorithm(name, own, saved.spec), state)
    try:
        found.start(made.make_learner(0, config.device))
    except ConfigError as error:
        raise ConfigError(f"init_from = {source!r} does not fit: {error}") from error
    return found


def _played_states(config: RunConfig, maker: EnvMaker, spec: EnvSpec) -> SavedStates | None:
    """States of games that the policy of the run ``config.start_states`` plays; None if there is no such run.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ConfigError: it is of another game, or of other observations or actions.
    """
    source = getattr(config, "start_states", None)
    if source in (None, SELF):
        return None
    return start_states.play(load(source), maker, spec, config)


def _check_device(device: str, maker: EnvMaker) -> None:
    """Checks that the device of the learners exists.

    Raises:
        ConfigError: names the device.
    """
    import torch

    from parl.runtime.cuda.envs import is_on_device

    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ConfigError(f"device = {device!r} is not a torch device, such as 'cpu' or 'cuda:0'") from error
    # Environments on a CUDA device check it themselves, with a more detailed message.
    if kind == "cuda" and not is_on_device(maker) and not torch.cuda.is_available():
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
    if "WORLD_SIZE" not in os.environ:
        return None
    from parl.runtime.distributed.torchrun import Group

    group = Group.from_environment()
    if group is None:
        return None
    if not topology_of(name).grouped:
        able = sorted(other for other in ALGORITHMS if topology_of(other).grouped)
        raise ConfigError(f"{name} cannot run under torchrun, only: {', '.join(able)}")
    group.connect(group.device(device))
    return group


def _options_layer(name: str, options: Mapping[str, Any]) -> Layer:
    """Divides the keywords of :func:`train` into settings of the run and of the algorithm."""
    where = f"train({name!r})"
    if "seed" in options and options["seed"] is None:
        options = {**options, "seed": secrets.randbelow(2**31)}
    run = {field.name for field in dataclasses.fields(topology_of(name).config)}
    own = {field.name for field in dataclasses.fields(module_of(name).Config)}
    check_keys(options, run | own, where)
    return Layer(
        where,
        {key: value for key, value in options.items() if key in run},
        {key: value for key, value in options.items() if key in own},
    )


def _with_dataset(layers: list[Layer], env: EnvLike | None) -> list[Layer]:
    """``layers``, and the environment of the dataset that they name if they set no other one.

    Args:
        layers: settings by name.
        env: the environment if it was given.
    """
    found = {
        key: layer.run[key]
        for layer in layers
        for key in ("dataset", "env", "env_options")
        if key in layer.run
    }
    if not found.get("dataset") or env is not None or "env" in found:
        return layers
    from parl.datasets.learning import environment_of, open_dataset

    chosen, options = environment_of(open_dataset(found["dataset"]))
    options |= keywords(words(found.get("env_options", ())))
    own = {"env": chosen, "env_options": words(options)}
    return [*layers, Layer(f"dataset {found['dataset']}", own, {})]


def _env_maker(
    name: str,
    env: EnvLike | None,
    layers: Sequence[Layer],
    config: Any = None,
    wrappers: Sequence[str | Callable[[Any], Any]] | None = None,
) -> EnvMaker:
    """Returns the maker of a run's environments.

    Args:
        name: name of the algorithm.
        env: see :func:`train`.
        layers: settings by name, of which ``env``, ``env_options`` and ``wrappers`` are read.
        config: settings of the run to start from; None: the defaults.
        wrappers: see :func:`train`; they replace those of the settings.
    """
    from parl.envs import EnvMaker

    chosen = topology_of(name).config() if config is None else config
    found = {"env": chosen.env, "env_options": chosen.env_options, "wrappers": chosen.wrappers}
    for layer in layers:
        found |= {key: layer.run[key] for key in found if key in layer.run}
    found |= {} if env is None else {"env": env}
    found |= {} if wrappers is None else {"wrappers": wrappers}
    maker = EnvMaker(found["env"], keywords(words(found["env_options"])), found["wrappers"])
    if getattr(class_of(name), "takes_masks", False):
        maker.find_masks()
    return maker


def _probe_env(maker: EnvMaker) -> tuple[EnvSpec, dict[str, Any]]:
    """Makes one environment; returns its description and its own settings."""
    from parl.envs import spec_of

    probe = maker(1)
    spec = spec_of(probe)
    found = getattr(probe.unwrapped, "settings", {})  # Of any type, if the environment is not parl's.
    environment = dict(found) if isinstance(found, Mapping) else {}
    environment.pop("num_envs", None)  # The number in the probe, not in the run.
    probe.close()
    return spec, environment


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
        dataset: of an algorithm that learns from one; its environment is then the default.

    Raises:
        ConfigError: there is no such algorithm, preset or environment, or the table has an unknown key, a
            wrong value or another algorithm.
    """
    layers = preset_layer(name, preset)
    if table is not None:
        layers.append(table_layer(name, table, where))
    given = {"env": env, "env_options": env_options, "wrappers": wrappers}
    layers.append(Layer(name, {key: value for key, value in given.items() if value is not None}, {}))
    if dataset and hasattr(topology_of(name).config, "dataset"):
        layers = _with_dataset([*layers, Layer(name, {"dataset": dataset}, {})], env)
    spec, _ = _probe_env(_env_maker(name, None, layers))
    return resolve(name, spec, layers)


def settings_from(name: str, table: Mapping[str, Any], where: str | Path = "") -> tuple[Any, Any]:
    """The settings of a run from a table such as a ``config.toml``; see :func:`settings_for`."""
    return settings_for(name, table=table, where=where)


def _evaluation_maker(maker: EnvMaker, config: RunConfig) -> EnvMaker:
    env = maker.env if isinstance(maker.env, str) else ""
    return maker.with_options(evaluation_options(env, maker.options, config.evaluation_env_options))


@dataclasses.dataclass(frozen=True)
class _OpenedRun:
    """An opened run directory with its algorithm, settings and environments."""

    run: RunDirectory
    name: str
    config: Any
    algorithm: Any
    maker: EnvMaker
    spec: EnvSpec

    def make_setup(self, config: Any) -> Any:
        """The setup of the run with the settings ``config``."""
        made = make_algorithm(self.name, self.algorithm, self.spec)
        setup = topology_of(self.name).setup(made, config, self.maker, self.spec)
        saved = start_states.read(self.run, config)
        return dataclasses.replace(setup, **start_states.fields(config, saved))


def _open(
    path: str | Path, trusted: bool, env: EnvLike | None = None, spec: EnvSpec | None = None
) -> _OpenedRun:
    """Opens a run directory; ``env`` and ``spec`` are those of the run if None."""
    run = RunDirectory.open(path)
    run.verify()
    table, path = run.config, run.path / "config.toml"
    name = check_known(table, path)
    layers = [table_layer(name, table, path)]
    for value in import_paths(name, table):
        functions.check(value, path, trusted)
    is_callable = callable(env)
    if not is_callable:
        named = [*table["run"].get("wrappers", ()), *([table["run"]["env"]] if env is None else [])]
        for value in named:
            functions.check_environment(value, path, trusted)
    if (pickled := run.path / "network.pkl").exists():
        layers.append(Layer(str(pickled), {}, pickles.load(pickled, trusted)))
    if env is not None:
        maker = _env_maker(name, env, [] if is_callable else layers)
    elif (pickled := run.path / "env.pkl").exists():
        maker = pickles.load(pickled, trusted)
    elif run.about.get("function_env"):
        maker = _absent_env(table["run"]["env"], run.path)
    else:
        maker = _env_maker(name, None, layers)
    spec = spec or _probe_env(maker)[0]
    config, algorithm = resolve(name, spec, layers)
    return _OpenedRun(run, name, config, algorithm, maker, spec)


def _absent_env(name: str, path: Path) -> EnvMaker:
    """A maker in place of a function that is not part of the folder ``path``; raises an error when called."""
    from parl.envs import EnvMaker

    def absent() -> Env[Any, Any]:
        raise ConfigError(
            f"the environment {name} is a function and not part of {path}: give env= to parl.load"
        )

    absent.__name__ = name
    return EnvMaker(absent)


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
@_kept_threads()
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
    reached ``stop_at_return`` then continues without this goal, unless a new one is given. Checkpoints keep
    both limits, so that a later call need not repeat them.

    Args:
        path: the run directory.
        trust: load pickles of the run. A pickle can run any code; runs of registered environments have none.
        callbacks: as in :func:`train`; those of the first part of the run are not kept.
        **options: settings to change, see :class:`ResumeOptions`.

    Raises:
        FileNotFoundError: there is no run.
        RunDirectoryError: another process trains in the directory; or a file of the run or of its last
            checkpoint is missing, damaged, edited or of another run. The message names the file and why.
        UntrustedRunError: the run has pickles that another process wrote, and ``trust`` is false.
        ConfigError: the run was trained by another number of processes of torchrun.
        CallbackError: a callback raised an exception.
        WorkerError: an actor or learner failed.
        TrainingInterrupted: SIGINT (Ctrl-C) or SIGTERM arrived, and the run was saved; a KeyboardInterrupt.
    """
    _refuse_workers_import()
    opened = _open(path, trust)
    check_keys(options, set(ResumeOptions.__annotations__), "resume")
    config = replace(opened.config, options, "resume")
    _check_device(config.device, opened.maker)
    hooks = CallbackList(callbacks, make_loggers(config.logger))
    group = _join_process_group(opened.name, config.device)
    rank = 0 if group is None else group.rank
    topology = topology_of(opened.name)

    def last_checkpoint() -> tuple[RunConfig, Any, Checkpoint | None]:
        """Settings, setup and the last checkpoint, without which the run starts as :func:`train` does."""
        saved = _last_checkpoint(opened.run, rank, trust)
        if saved is not None:
            _check_processes(opened.run, saved, group)
        limits = {} if saved is None else saved.counters.get("limits", {})
        current = replace(config, {key: limits[key] for key in limits if key not in options}, "resume")
        setup = opened.make_setup(current)
        if saved is None:
            first = _saved_learner(opened.name, current, setup.algorithm, opened.maker)
            setup = dataclasses.replace(setup, init_from=first)
        elif "total_steps" in options and "stop_at_return" not in options and _has_reached_goal(saved):
            current = replace(current, {"stop_at_return": None}, "resume")
        return current, setup, saved

    try:
        if rank > 0:
            return run_follower_rank(opened.run, topology, *last_checkpoint())
        with opened.run.lock():
            config, setup, saved = last_checkpoint()
            start = int(saved.counters["env_steps"]) if saved is not None else 0
            if saved is None:
                warnings.warn(f"{path} has no checkpoint yet: it starts again at step 0", stacklevel=3)
            progress = Progress(config.total_steps, config.quiet, config.verbose)
            said = summary_of(opened.name, config, opened.maker, 1 if group is None else group.size)
            progress.print_line(f"{said}, from step {start:,}")
            evaluation = _evaluation_maker(opened.maker, config)
            return Trainer(opened.run, topology, config, setup, evaluation, progress, hooks).run(saved)
    finally:
        if group is not None:
            group.disconnect()


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


def _last_checkpoint(run: RunDirectory, rank: int, trusted: bool) -> Checkpoint | None:
    """The last checkpoint of a process, verified; None if it has none."""
    from parl.runtime import checkpoint

    try:
        return checkpoint.read(run.checkpoints_of(rank).verified("last"), trusted)
    except FileNotFoundError:
        return None


def load(
    source: str | Path,
    checkpoint: str = "best",
    *,
    env: str | Callable[..., Any] | None = None,
    trust: bool = False,
) -> Policy:
    """Loads the policy of a run.

    Args:
        source: a run directory, a folder of one of its checkpoints, a folder that
            :meth:`parl.train.policy.Policy.save_for_hub` wrote, or ``"hf://user/repository"`` on the Hugging
            Face Hub.
        checkpoint: of a run directory: ``"last"``; or ``"best"``, the one with the highest score.
        env: as in :func:`train`, in place of the run's environment.
        trust: load the environment of the run if it is a pickle, see :func:`resume`.

    Raises:
        ConfigError: the spaces of ``env`` are not those of the policy.
        FileNotFoundError: there is no such folder, or the run has no checkpoint.
        RunDirectoryError: a file is missing, damaged or of another run. The message names it.
        UntrustedRunError: the environment is a pickle that another process wrote; neither ``env`` nor
            ``trust`` was given.
    """
    from parl.runtime import policy_file
    from parl.train.policy import Policy, PolicyConfig

    path, folder = _locate(source, checkpoint)
    saved = policy_file.read(folder / policy_file.NAME)
    opened = _open(path, trust, env, saved.spec)
    if saved.algorithm != opened.name:
        raise RunDirectoryError(f"{folder / policy_file.NAME} is of {saved.algorithm}, not of {opened.name}")
    if env is not None and (found := _probe_env(opened.maker)[0].spaces) != saved.spec.spaces:
        raise ConfigError(
            f"env = {opened.maker.name} has {found}; the policy of {path} takes {saved.spec.spaces}"
        )
    acting = make_algorithm(opened.name, opened.algorithm, saved.spec).make_policy(0, 1, 1, 0)
    policy_file.load_into(acting, saved.tensors)
    return Policy(
        acting=acting,
        algorithm=opened.name,
        run=path,
        folder=folder,
        spec=saved.spec,
        config=PolicyConfig(opened.config, opened.algorithm),
        env_maker=_evaluation_maker(opened.maker, opened.config),
        env_steps=saved.env_steps,
    )


def _locate(source: str | Path, checkpoint: str, *files: str) -> tuple[Path, Path]:
    """The run directory of ``source``, see :func:`load`, and the folder of its policy.

    The policy, and ``files`` in its folder, are verified.
    """
    from parl.runtime.policy_file import NAME

    if checkpoint not in ("best", "last"):
        raise ConfigError(f"checkpoint = {checkpoint!r} is not one of best, last")
    if str(source).startswith("hf://"):
        from parl.train.hub import download

        source = download(str(source))
    path, only = Path(source), ["counters.json", NAME, *files]
    if (path / "manifest.json").is_file():
        run = RunDirectory.open(path.resolve().parents[1])
        run.checkpoints.verify(path, only)
        return run.path, path
    if (path / NAME).is_file():
        return path, path
    run = RunDirectory.open(path)
    return path, run.checkpoints.verified(checkpoint, only)


def evaluate(
    path: str | Path,
    episodes: int = 100,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    *,
    trust: bool = False,
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Plays greedy episodes with a run's policy.

    Args:
        path: the run directory.
        episodes: number of episodes, each in a freshly seeded environment.
        seed: seed of the first episode; episode i uses ``seed + i``. Runs use no seeds below 2**23, neither
            in training nor in their own evaluations.
        checkpoint: ``"last"``; or ``"best"``, the one with the highest score, which is too high on average,
            because the checkpoint was chosen by it.
        trust: load pickles of the run, see :func:`resume`.

    Returns:
        (episodes,) float64, the undiscounted returns.

    Raises:
        ConfigError: ``episodes`` is below 1, or ``seed`` below 0.
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    return evaluate_with_protocol(path, episodes, seed, checkpoint, trust=trust)[0]


@_kept_threads()
def evaluate_with_protocol(
    path: str | Path,
    episodes: int = 100,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    *,
    trust: bool = False,
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], list[tuple[str, str]], Policy]:
    """As :func:`evaluate`; also returns the protocol as :func:`protocol_table` does, and the policy.

    They are those of the weights that played: a run in progress may have replaced its checkpoints since.
    """
    from parl.runtime.evaluate import Evaluator

    episodes, seed = integer("episodes", episodes, 1), integer("seed", seed, 0)
    policy = _load_for_playing(path, checkpoint, trust)
    facts = protocol_facts(RunDirectory.open(policy.run), policy.env_steps, episodes)
    evaluator = Evaluator(policy.env_maker, policy.acting, policy.spec)
    try:
        return evaluator.play(episodes, seed), facts, policy
    finally:
        evaluator.close()


def protocol(path: str | Path, checkpoint: str = "best", episodes: int | None = None) -> str:
    """One line that says how scores of the run at ``path`` are measured, to be reported with them.

    Args:
        path: the run directory.
        checkpoint: ``"best"`` or ``"last"``.
        episodes: number of episodes of the score, to include in the line; None leaves it out.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
    """
    return protocol_of(*_steps_of(path, checkpoint), episodes)


def protocol_table(
    path: str | Path, checkpoint: str = "best", episodes: int | None = None
) -> list[tuple[str, str]]:
    """The line of :func:`protocol` as a table of (name, value)."""
    return protocol_facts(*_steps_of(path, checkpoint), episodes)


def _steps_of(path: str | Path, checkpoint: str) -> tuple[RunDirectory, int]:
    """The run at ``path``, and the number of steps after which a checkpoint was saved."""
    run = RunDirectory.open(path)
    folder = run.checkpoints.verified(checkpoint, only=["counters.json"])
    return run, int(json.loads((folder / "counters.json").read_text(encoding="utf-8"))["env_steps"])


def _load_for_playing(path: str | Path, checkpoint: str, trusted: bool) -> Policy:
    """Returns the policy of a checkpoint; torch uses one thread if it is small."""
    policy = load(path, checkpoint, trust=trusted)
    if not policy.spec.has_images:
        import torch

        torch.set_num_threads(1)  # Several threads make small networks slower.
    return policy


@_kept_threads()
def record(
    path: str | Path,
    out: str | Path,
    seed: int = 1_000_000,
    checkpoint: str = "best",
    scale: int | None = None,
    *,
    trust: bool = False,
) -> float:
    """Plays one greedy episode with a run's policy and writes a video of it.

    Args:
        path: the run directory.
        out: file to write, ``.mp4``, ``.gif`` or ``.png``; its folder is created if missing. An ``.mp4`` of
            an Atari game that ran on the CPU has sound.
        seed: seed of the environment.
        checkpoint: ``"best"`` or ``"last"``.
        scale: height of each pixel in the file, in pixels; by default 2 for Atari games, else 1.
        trust: load pickles of the run, see :func:`resume`.

    Returns:
        The return of the episode.

    Raises:
        FileNotFoundError: there is no run, or it has no checkpoint.
        ConfigError: the environment does not render pictures, the type of the file is not supported, or
            ``seed`` or ``scale`` is out of its bounds.
    """
    from parl.atari.pictures import write_frames
    from parl.train.player import Player

    seed = integer("seed", seed, 0)
    scale = None if scale is None else integer("scale", scale, 1)
    policy = _load_for_playing(path, checkpoint, trust)
    player = Player(policy.env_maker, sound=Path(out).suffix.lower() == ".mp4")
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    sounds = player.is_atari and player.env.unwrapped.settings["sound"]
    try:
        write_frames(
            Path(out),
            player.episode(policy, seed),
            fps=player.fps,
            scale=scale or (2 if player.is_atari else 1),
            aspect=2 if player.is_atari else 1,
            audio=(lambda: player.info["audio"][0]) if sounds else None,
        )
    finally:
        player.close()
    return player.episode_return


class _Callable(types.ModuleType):
    """Makes the module ``parl.train`` callable, so that ``parl.train(...)`` also works after its import."""

    __signature__ = inspect.signature(train)

    def __call__(self, *args: Any, **kwargs: Any) -> Run:
        return train(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
