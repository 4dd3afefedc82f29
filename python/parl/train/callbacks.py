"""Callbacks of a run: what they are told, and when.

::

    class Print(parl.Callback):
        def on_evaluation(self, evaluation):
            print(evaluation.env_steps, evaluation.mean_return)

    parl.train("ppo", env="CartPole-v1", evaluation_every=10_000, callbacks=[Print()])

Hooks are called in the process and thread that trains, between two updates; under ``torchrun`` in the
process of rank 0. Training waits for them.
"""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from parl.errors import CallbackError, ConfigError
from parl.functions import import_module

if TYPE_CHECKING:
    from parl.train.trainer import Run


@dataclass(frozen=True)
class RunInfo:
    """A run that starts or is resumed.

    Attributes:
        id: identifier of the run, which stays the same when it is resumed.
        path: the run directory.
        algorithm: name of the algorithm.
        settings: all settings as in ``config.toml``: ``"algorithm"``, ``"run"`` and the algorithm's name.
        env_steps: transitions collected so far; above 0 if the run is resumed.
    """

    id: str
    path: Path
    algorithm: str
    settings: Mapping[str, Any]
    env_steps: int


@dataclass(frozen=True)
class Record:
    """Metrics of the time since the previous record, as in ``metrics.jsonl``.

    Attributes:
        env_steps: transitions collected so far.
        updates: optimizer steps so far.
        wall_time_s: seconds of training so far, over all resumes.
        metrics: name -> finite number, such as ``"episode_return"``, ``"env_steps_per_s"`` or ``"loss"``.
    """

    env_steps: int
    updates: int
    wall_time_s: float
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Evaluation:
    """An evaluation of the newest weights without exploration.

    Attributes:
        env_steps: transitions collected so far.
        mean_return: mean of the undiscounted returns.
        std_return: their standard deviation.
        episodes: number of episodes.
        success_rate: share of episodes that ended with ``info["is_success"]``; None if the environment does
            not report it.
    """

    env_steps: int
    mean_return: float
    std_return: float
    episodes: int
    success_rate: float | None = None


@dataclass(frozen=True)
class SavedCheckpoint:
    """A complete checkpoint.

    Attributes:
        path: its folder, which is removed after the next checkpoint unless this one is the best.
        env_steps: transitions collected so far.
        evaluation_return: mean return of the evaluation of its weights; None if they were not evaluated.
        is_best: whether no earlier checkpoint of the run has a higher ``evaluation_return``.
    """

    path: Path
    env_steps: int
    evaluation_return: float | None
    is_best: bool


class Callback:
    """Base class of callbacks; its methods do nothing. Any object with one of these methods is a callback.

    Attributes:
        ends_run: whether an exception of one of its methods ends the run. If not, an exception during
            training becomes a warning, and the run goes on without this callback.
    """

    ends_run: ClassVar[bool] = True

    def on_start(self, run: RunInfo, /) -> None:
        """Called before the first update of a run or of a resumed run; its workers run already."""

    def on_record(self, record: Record, /) -> bool | None:
        """Called after a record was written to ``metrics.jsonl``; False ends the run with a checkpoint."""

    def on_evaluation(self, evaluation: Evaluation, /) -> bool | None:
        """Called after an evaluation; False ends the run with a checkpoint."""

    def on_checkpoint(self, checkpoint: SavedCheckpoint, /) -> bool | None:
        """Called after a checkpoint was saved; False ends the run."""

    def on_end(self, result: Run, /) -> None:
        """Called once after all workers have ended, unless this callback's ``on_start`` raised an exception.

        If an exception ends the run, ``result.stopped`` is ``"error"``, and the exception is raised after the
        call.
        """


HOOKS = ("on_start", "on_record", "on_evaluation", "on_checkpoint", "on_end")


class CallbackList:
    """Calls the hooks of several callbacks, in their order.

    Args:
        callbacks: objects with at least one of the methods of :class:`Callback`.
        loggers: callbacks that are called before these.

    Attributes:
        stop: whether a hook has returned False.

    Raises:
        ConfigError: an object has none of the methods, or is a :class:`Callback` with another one whose name
            begins with ``on_``; or ``callbacks`` is not a list.
    """

    def __init__(self, callbacks: Any = (), loggers: Sequence[Any] = ()) -> None:
        if isinstance(callbacks, str) or not isinstance(callbacks, Iterable):
            raise ConfigError(f"callbacks = {callbacks!r} is not a list of callbacks")
        self.stop = False
        self._hooks: dict[str, list[tuple[int, str, Any]]] = {hook: [] for hook in HOOKS}
        # Numbers of callbacks whose exceptions do not end the run, and of those that raised one.
        self._optional: set[int] = set()
        self._dropped: set[int] = set()
        for number, callback in enumerate([*loggers, *callbacks], -len(loggers)):
            if isinstance(callback, type) or not any(hasattr(callback, hook) for hook in HOOKS):
                raise ConfigError(
                    f"callbacks[{number}] = {callback!r} is not an object with one of the methods "
                    f"{', '.join(HOOKS)}"
                )
            kind = type(callback)
            if isinstance(callback, Callback):
                _check_hooks(kind, f"callbacks[{number}]")
            if not getattr(callback, "ends_run", True):
                self._optional.add(number)
            for hook in HOOKS:
                # A method that is not overridden is not called.
                if getattr(kind, hook, None) is not getattr(Callback, hook) and hasattr(callback, hook):
                    self._hooks[hook].append((number, f"{kind.__name__}.{hook}", getattr(callback, hook)))

    def has(self, hook: str) -> bool:
        """Whether a callback has this hook."""
        return bool(self._hooks[hook])

    def call(self, hook: str, event: Any) -> None:
        """Calls a hook of all callbacks; each is called, also if an earlier one returns False.

        Raises:
            CallbackError: a hook raised an exception; the remaining hooks are called only for ``on_end``.
        """
        failed: CallbackError | None = None
        for number, name, method in [*self._hooks[hook]]:
            try:
                answer = method(event)
                # Comparisons with numbers of numpy give numpy's bool.
                is_false = isinstance(answer, bool | np.bool_) and not answer
                self.stop |= is_false and hook not in ("on_start", "on_end")
            except Exception as error:
                at = traceback.extract_tb(error.__traceback__)[-1]
                message = (
                    f"callback {name} raised {type(error).__name__}: {error} ({at.filename}:{at.lineno})"
                )
                if number in self._optional and (
                    hook not in ("on_start", "on_end") or number in self._dropped
                ):
                    self._drop(number, message)
                    continue
                if failed is None:
                    failed = CallbackError(message)
                    failed.__cause__ = error
                if hook == "on_start":
                    ends = self._hooks["on_end"]
                    self._hooks["on_end"] = [entry for entry in ends if entry[0] < number]
                if hook != "on_end":
                    break
        if failed is not None:
            raise failed

    def _drop(self, number: int, message: str) -> None:
        """Warns, and calls the callback ``number`` only at the end from now on."""
        warnings.warn(f"{message}: the run goes on without it", stacklevel=4)
        self._dropped.add(number)
        for hook in HOOKS[1:-1]:
            self._hooks[hook] = [entry for entry in self._hooks[hook] if entry[0] != number]


def _check_hooks(kind: type[Callback], where: str) -> None:
    """Checks that a class has no method whose name is that of a hook of other libraries, or misspelled.

    Raises:
        ConfigError: names the method.
    """
    for name in dir(kind):
        if name.startswith("on_") and name not in HOOKS:
            raise ConfigError(
                f"{where}: {kind.__name__}.{name} would never be called, the hooks are {', '.join(HOOKS)}"
            )


def load_callback(name: str) -> Any:
    """Makes a callback from ``module:Class``; the module may be a file in the current folder.

    Raises:
        ConfigError: the name has another form, or there is no such module or class.
    """
    module, _, kind = name.partition(":")
    if not module or not kind:
        raise ConfigError(f"callback {name!r} is not of the form module:Class")
    found = getattr(import_module(module, f"callback {name!r}"), kind, None)
    if found is None:
        raise ConfigError(f"callback {name!r}: module {module} has no {kind!r}")
    return found()
