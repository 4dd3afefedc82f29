"""Search for the settings of an algorithm with Optuna.

::

    found = parl.tune("ppo", env="CartPole-v1", trials=50, total_steps=20_000)
    print(found.study.best_value, found.best)
    parl.train("ppo", env="CartPole-v1", **found.best)

A study is a SQLite file. Several processes that name the same file share it, and a later call continues it.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import platform
import re
import shutil
import warnings
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from parl._system import locked_folder, process_exists, write_atomically
from parl.errors import ConfigError, NonFiniteError
from parl.functions import PickledFunction, as_setting
from parl.ops.bounds import integer
from parl.run import dump_toml
from parl.run.config import plain
from parl.run.listing import WITHOUT_EFFECT
from parl.signatures import show_options
from parl.train import train
from parl.train.callbacks import Callback, Evaluation, RunInfo
from parl.train.config import words
from parl.train.environments import env_maker, probe_env, with_dataset
from parl.train.options import Options
from parl.train.settings import Layer, acting_settings, options_layer, preset_layer, resolve, table_of
from parl.train.trainer import Run, TrainingInterrupted

try:
    import optuna
    from optuna.distributions import (
        BaseDistribution,
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )
    from optuna.samplers import BaseSampler, TPESampler
    from optuna.trial import FrozenTrial, Trial, TrialState
except ModuleNotFoundError as error:
    raise ConfigError("tune needs optuna: pip install 'parl-rl[tune]'") from error

from parl.train.search_spaces import SPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    from gymnasium import Env
    from gymnasium.vector import VectorEnv
    from optuna.pruners import BasePruner

    from parl.envs import EnvMaker

# Attributes of a trial.
_POSITION = "position"  # see _position
_PROCESS = "process"  # name of the machine and id of the process
_RUN = "run"  # its directory
_PLACE = ("runs", "name", "quiet")  # settings that say where and how a trial is written
_COMMON = "settings"  # attribute of a study: what all its trials have in common
# Settings in which calls that continue a study may differ.
_FREE = (*WITHOUT_EFFECT, "seed", "device")


@dataclasses.dataclass(frozen=True)
class Tuned:
    """The result of a search.

    Attributes:
        study: the study with all trials, also those of other processes.
        best: the settings of the trial with the highest return, and those that were given: keywords of
            :func:`parl.train`.
        config: file with these settings, for ``parl train --config``. An environment given as a function is
            written as its name, which that command refuses.
    """

    study: optuna.Study
    best: dict[str, Any]
    config: Path


@show_options(Options)
def tune(
    algorithm: str,
    /,
    env: str | Callable[[], Env[Any, Any]] | Callable[[int], VectorEnv[Any, Any, Any]] | None = None,
    *,
    preset: str | None = None,
    trials: int = 50,
    study: str | Path | None = None,
    space: Mapping[str, BaseDistribution] | None = None,
    startup_trials: int = 10,
    evaluations: int = 5,
    sampler: BaseSampler | None = None,
    pruner: BasePruner | None = None,
    **options: Unpack[Options],
) -> Tuned:
    """Searches for the settings with which a run's last evaluation has the highest mean return.

    Each trial is a run with sampled settings and the seed ``seed`` + number of the trial. It is pruned, that
    is ended early, if its evaluations are below the median of the other trials at the same point. With
    ``schedule = "deterministic"`` one process finds the same settings for the same seed, in one call or more:
    a trial that Ctrl-C, an error or a kill ended is repeated by the next one, with its seed and its settings.

    Args:
        algorithm: one of :func:`parl.train.algorithm_names`.
        env: as for :func:`parl.train`.
        preset: as for :func:`parl.train`; sampled settings take precedence.
        trials: number of completed and pruned trials at which the search ends, in all processes together.
            Each further process may add one.
        study: SQLite file, such as ``name.db``. Default: ``tune/<algorithm>-<env>.db``. Beside it are a file
            with the suffix ``.toml``, the best settings, and a folder without suffix, the runs of the trials,
            of which checkpoints are not kept.
        space: setting -> Optuna's distribution. Default: that of the algorithm, see
            ``parl.train.search_spaces``, without settings that have no effect here.
        startup_trials: trials with random settings, none of which is pruned.
        evaluations: evaluations of a trial, equally spaced.
        sampler: Optuna's sampler. Default: ``TPESampler``.
        pruner: Optuna's pruner. Default: ``MedianPruner``.
        **options: settings of all trials, which are not sampled. Defaults that differ from those of a run:
            ``evaluation_episodes = 20`` and ``evaluation_every = total_steps / evaluations``.

    Raises:
        ConfigError: a setting is unknown or out of its bounds; the algorithm has no search space; the study
            has another one, or other settings in all trials; or no trial was completed.
    """
    trials, evaluations = integer("trials", trials, 1), integer("evaluations", evaluations, 1)
    startup_trials = integer("startup_trials", startup_trials, 0)
    given: dict[str, Any] = {"evaluation_episodes": 20, **options}
    layers = with_dataset([*preset_layer(algorithm, preset), options_layer(algorithm, given)], env)
    maker = env_maker(algorithm, env, layers)
    spec, _ = probe_env(maker)
    settings, own = resolve(algorithm, spec, layers)
    if options.get("seed", 0) is None:
        options["seed"] = settings.seed
    if not settings.evaluation_episodes:
        raise ConfigError("tune needs evaluations: evaluation_episodes = 0")
    given.setdefault("evaluation_every", max(settings.total_steps // evaluations, 1))
    if space is None:
        space = _default_space(algorithm, {*own.unused(spec), *acting_settings(settings, own)})
    sampled = {name: kind for name, kind in space.items() if name not in options}
    _check_space(algorithm, sampled)
    label = f"{algorithm}-{maker.name}"
    file = _study_file(study, label)
    common = _common_settings(
        algorithm,
        dataclasses.replace(
            settings, wrappers=maker.wrapper_names, evaluation_every=given["evaluation_every"]
        ),
        own,
        sampled,
    )
    if settings.quiet:
        optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = _open_study(
        file,
        label,
        sampler or _SeededTPE(settings.seed, startup_trials),
        pruner or optuna.pruners.MedianPruner(n_startup_trials=startup_trials),
        common,
    )
    _check_common_settings(found, file, common, sampled)

    trained: Any = partial(train, algorithm, env, preset=preset, **given)
    objective = _Objective(found, file.with_suffix(""), sampled, settings.seed, trained)
    config = file.with_suffix(".toml")

    def write_best() -> dict[str, Any]:
        best = {**options, **_keywords(found.best_trial.params)}
        kept = {name: value for name, value in best.items() if name not in _PLACE}
        layers = with_dataset([*preset_layer(algorithm, preset), options_layer(algorithm, kept)], env)
        _write_settings(config, algorithm, maker, layers)
        return best

    while len(_trials(found, TrialState.COMPLETE, TrialState.PRUNED)) < trials:
        _end_killed(found)
        found.optimize(objective, n_trials=1)
        if _trials(found, TrialState.COMPLETE):
            write_best()
    if not _trials(found, TrialState.COMPLETE):
        pruned = _trials(found, TrialState.PRUNED)
        reasons = [trial.user_attrs["error"] for trial in pruned if "error" in trial.user_attrs]
        raise ConfigError("; ".join([f"none of {len(pruned)} trials was completed", *reasons[-1:]]))
    return Tuned(found, write_best(), config)


def plot_study(study: optuna.Study, folder: Path) -> list[Path]:
    """Draws the history of the search, the importance of the settings, and the return against each of them.

    Args:
        study: a study with completed trials.
        folder: folder of the PNG files; created if missing.

    Returns:
        The files. The importance is left out if the study has fewer than two completed trials or one setting.

    Raises:
        ConfigError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib import pyplot
        from optuna.visualization import matplotlib as plots
    except ImportError as error:
        raise ConfigError("plots need matplotlib: pip install 'parl-rl[tune]'") from error
    files: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        # The functions are experimental, and matplotlib warns if a setting has the same value in all trials.
        warnings.simplefilter("ignore")
        drawings: dict[str, Any] = {"history": plots.plot_optimization_history, "slice": plots.plot_slice}
        if len(_trials(study, TrialState.COMPLETE)) > 1 and len(study.best_params) > 1:
            evaluator = optuna.importance.PedAnovaImportanceEvaluator()
            drawings["importance"] = partial(plots.plot_param_importances, evaluator=evaluator)
        # Optuna measures texts, which not every backend can.
        before = matplotlib.get_backend()
        pyplot.switch_backend("agg")
        try:
            for name, draw in drawings.items():
                figure = np.ravel(draw(study))[0].figure
                files.append(folder / f"{name}.png")
                figure.savefig(files[-1], dpi=150, bbox_inches="tight")
                pyplot.close(figure)
        finally:
            pyplot.switch_backend(before)
    return files


def _write_settings(path: Path, algorithm: str, maker: EnvMaker, layers: Sequence[Layer]) -> None:
    """Writes a file for ``parl train --config``; later layers take precedence."""
    run: dict[str, Any] = {}
    own: dict[str, Any] = {}
    for layer in layers:
        run |= layer.run
        own |= layer.algorithm
    # A function is written as its name, so that `parl train --config` does not take another environment.
    run["env"] = maker.env if isinstance(maker.env, str) else maker.name
    for key in {"env_options", "evaluation_env_options"} & run.keys():
        run[key] = words(run[key])  # TOML has no None, which may be a value
    for key in {"torso", "network"} & own.keys():
        own[key] = as_setting(key, own[key])
        if isinstance(own[key], PickledFunction):
            del own[key]
    if "wrappers" in run:
        run["wrappers"] = maker.wrapper_names
    write_atomically(path, dump_toml({"algorithm": algorithm, "run": run, algorithm: own}).encode())


def _position(study: optuna.Study, number: int) -> int:
    """Which trial of an uninterrupted search the trial ``number`` is: the first not done or running."""
    taken = {
        trial.user_attrs.get(_POSITION, trial.number)
        for trial in study.get_trials(deepcopy=False)
        if trial.number != number and trial.state != TrialState.FAIL
    }
    return next(position for position in itertools.count() if position not in taken)


def _end_killed(study: optuna.Study) -> None:
    """Ends trials of processes of this machine that were killed, so that they are repeated."""
    for trial in _trials(study, TrialState.RUNNING):
        machine, pid = trial.user_attrs.get(_PROCESS, ("", 0))
        if machine == platform.node() and not process_exists(pid):
            study.tell(trial.number, state=TrialState.FAIL, skip_if_finished=True)
            _remove_checkpoints(trial)


def _remove_checkpoints(trial: Trial | FrozenTrial) -> None:
    if run := trial.user_attrs.get(_RUN):
        shutil.rmtree(Path(run) / "checkpoints", ignore_errors=True)


def _trials(study: optuna.Study, *states: TrialState) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=states)


def _common_settings(algorithm: str, settings: Any, own: Any, sampled: Collection[str]) -> dict[str, Any]:
    """The settings that all trials have in common, as values that JSON can hold."""
    found = {**vars(settings), **table_of(algorithm, settings, own)[algorithm]}
    return {
        name: None if value is None else plain(value)
        for name, value in found.items()
        if name not in (*sampled, *_FREE)
    }


def _open_study(
    file: Path, name: str, sampler: BaseSampler, pruner: BasePruner, common: Mapping[str, Any]
) -> optuna.Study:
    """Opens or creates a study; one process at a time, because creating the tables is not atomic."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with locked_folder(file.parent):
        # Seconds that a process waits while others write.
        arguments = {"connect_args": {"timeout": 60}}
        study = optuna.create_study(
            storage=optuna.storages.RDBStorage(f"sqlite:///{file.resolve()}", engine_kwargs=arguments),
            study_name=name,
            direction="maximize",
            sampler=sampler,
            pruner=pruner,
            load_if_exists=True,
        )
        if _COMMON not in study.user_attrs:
            study.set_user_attr(_COMMON, dict(common))
    return study


def _check_common_settings(
    study: optuna.Study, file: Path, common: Mapping[str, Any], sampled: Collection[str]
) -> None:
    """Checks that the earlier trials of a study have the same settings in common.

    Raises:
        ConfigError: names the first setting that differs.
    """
    for name, before in study.user_attrs[_COMMON].items():
        if name in sampled:
            raise ConfigError(
                f"study {file} was started with {name} = {before!r} in all trials, which is sampled now: "
                "name another file as study"
            )
        if common.get(name, before) != before:
            raise ConfigError(
                f"study {file} was started with {name} = {before!r}, not {common[name]!r}: name another "
                "file as study"
            )


def _sample(trial: Trial, name: str, kind: BaseDistribution) -> Any:
    """Samples a setting; returns the keyword of :func:`parl.train`.

    Raises:
        ConfigError: the study has another distribution of this setting.
    """
    try:
        match kind:
            case FloatDistribution():
                value = trial.suggest_float(name, kind.low, kind.high, step=kind.step, log=kind.log)
            case IntDistribution():
                value = trial.suggest_int(name, kind.low, kind.high, step=kind.step, log=kind.log)
            case CategoricalDistribution():
                value = trial.suggest_categorical(name, kind.choices)
            case _:
                raise ConfigError(f"space: {name} has the unknown distribution {kind!r}")
    except ValueError as error:
        raise ConfigError(f"the study was started with another search space: {name}: {error}") from error
    return _keywords({name: value})[name]


def _keywords(params: Mapping[str, Any]) -> dict[str, Any]:
    """Sampled values as keywords of :func:`parl.train`: the text ``"64 64"`` of ``hidden`` as numbers."""
    return {
        name: tuple(map(int, str(value).split())) if name == "hidden" else value
        for name, value in params.items()
    }


def _study_file(study: str | Path | None, label: str) -> Path:
    """The file of a study; ``label`` names it if the caller of ``tune`` does not.

    Raises:
        ConfigError: its suffix is missing, or is that of the file of settings beside it.
    """
    file = Path(study or Path("tune") / (re.sub(r"[^A-Za-z0-9._-]+", "-", label) + ".db"))
    if file.suffix in ("", ".toml"):  # the names of the folder and of the file beside it
        raise ConfigError(f"study = {str(file)!r} ends in {file.suffix!r}, expected for example .db")
    return file


def _default_space(algorithm: str, unused: Collection[str]) -> dict[str, BaseDistribution]:
    """The search space of an algorithm without the settings in ``unused``.

    Raises:
        ConfigError: the algorithm has none.
    """
    if algorithm not in SPACES:
        raise ConfigError(f"{algorithm} has no search space: pass space")
    return {name: kind for name, kind in SPACES[algorithm].items() if name not in unused}


def _check_space(algorithm: str, space: Mapping[str, BaseDistribution]) -> None:
    """Checks that settings can be sampled, stored in a study and read back.

    Raises:
        ConfigError: the algorithm has no such setting; ``tune`` itself sets it in each trial; or a choice of
            ``hidden`` is no text with numbers of units.
    """
    options_layer(algorithm, space)  # checks the names
    for name in ("env", "seed", *_PLACE):
        if name in space:
            raise ConfigError(f"space has {name!r}, which is not sampled: tune sets it in each trial")
    for choice in getattr(space.get("hidden"), "choices", ()):
        if not re.fullmatch(r"\d+( \d+)*", str(choice)):
            raise ConfigError(
                f"space: hidden has the choice {choice!r}, expected text with the units of each layer, such "
                "as '64 64'"
            )


class _Objective:
    """Trains the run of a trial with sampled settings; returns the mean return of its last evaluation.

    Args:
        study: the study of the trial.
        runs: folder of the runs.
        space: setting -> distribution, of the settings to sample.
        seed: that of the first trial.
        train: trains a run with the settings of all trials, and with those given as keywords.
    """

    def __init__(
        self,
        study: optuna.Study,
        runs: Path,
        space: Mapping[str, BaseDistribution],
        seed: int,
        train: Callable[..., Run],
    ) -> None:
        self._study, self._runs, self._space, self._seed, self._train = study, runs, space, seed, train

    def __call__(self, trial: Trial) -> float:
        """See the class.

        Raises:
            TrialPruned: the pruner ended the run, or it failed; the attribute ``error`` says why it failed.
            KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP ended it.
        """
        position = _position(self._study, trial.number)
        trial.set_user_attr(_POSITION, position)
        trial.set_user_attr(_PROCESS, [platform.node(), os.getpid()])
        sampled = {name: _sample(trial, name, kind) for name, kind in self._space.items()}
        place = {"runs": str(self._runs), "name": f"trial-{trial.number}", "quiet": True}
        try:
            run = self._train(callbacks=[_Pruning(trial)], **sampled, **place, seed=self._seed + position)
        except TrainingInterrupted as error:
            run = error.run
        except (ConfigError, NonFiniteError) as error:
            trial.set_user_attr("error", str(error))
            raise optuna.TrialPruned(str(error)) from error
        finally:
            _remove_checkpoints(trial)
        if run.stopped == "interrupted":
            raise KeyboardInterrupt
        if run.stopped == "callback":
            raise optuna.TrialPruned(f"pruned after {run.env_steps:,} steps")
        assert run.evaluation_return is not None
        return run.evaluation_return


class _Pruning(Callback):
    """Reports evaluations to Optuna and ends the run when the pruner says so.

    An evaluation is reported for the nearest multiple of ``evaluation_every``: rollouts of different lengths
    end after different numbers of transitions.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._point = 0

    def on_start(self, run: RunInfo, /) -> None:
        self._trial.set_user_attr(_RUN, str(run.path))
        self._every = run.settings["run"]["evaluation_every"]

    def on_evaluation(self, evaluation: Evaluation, /) -> bool | None:
        point = round(evaluation.env_steps / (self._every or evaluation.env_steps))
        if point <= self._point:
            return None  # the point has an evaluation already, or this one is before all points
        self._point = point
        self._trial.report(evaluation.mean_return, point)
        return False if self._trial.should_prune() else None


class _SeededTPE(BaseSampler):
    """TPE whose random numbers depend on the seed and on :func:`_position` of the trial.

    A study that is continued samples what an uninterrupted one does, and processes that share a study sample
    different settings.
    """

    def __init__(self, seed: int, startup_trials: int) -> None:
        self._seed, self._startup_trials = seed, startup_trials

    def before_trial(self, study: optuna.Study, trial: FrozenTrial) -> None:
        position = _position(study, trial.number)
        seed = int(np.random.SeedSequence((self._seed, position)).generate_state(1)[0])
        self._tpe = TPESampler(seed=seed, n_startup_trials=self._startup_trials)
        self._tpe.before_trial(study, trial)

    def infer_relative_search_space(
        self, study: optuna.Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self._tpe.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: optuna.Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self._tpe.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: optuna.Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)
