"""One process's share of a run: trains, logs, evaluates and saves, for all topologies."""

from __future__ import annotations

import _thread
import collections
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parl.envs import usable_cores
from parl.errors import CallbackError, NonFiniteError, WorkerError
from parl.run import MetricsLog, Progress, RunDirectory
from parl.run.listing import reason_of_end
from parl.runtime.seeds import evaluation_seed, seeded_modules
from parl.train.callbacks import CallbackList, Evaluation, Record, RunInfo, SavedCheckpoint
from parl.train.evaluation_protocol import protocol_of

if TYPE_CHECKING:
    from parl.envs import EnvMaker
    from parl.runtime.checkpoint import Checkpoint
    from parl.runtime.distributed.group import Group
    from parl.runtime.evaluate import Evaluator
    from parl.runtime.loop import Loop
    from parl.runtime.setup import RunSetup
    from parl.train.config import RunConfig
    from parl.train.topologies import Topology

# An unscheduled evaluation starts when training reaches this fraction of ``stop_at_return``: the sum of
# rewards divided by the number of ended episodes, over this many vector steps. Returns of whole episodes
# would be those of older policies.
_NEAR_GOAL = 0.8
_NEAR_GOAL_WINDOW = 75
# Vector steps between checks of returns, clocks and signals, and between unscheduled evaluations.
_CHECK_EVERY = 25
_EVALUATE_EVERY = 75
# After an unscheduled evaluation, this many times its duration passes before the next (async schedule).
_EVALUATION_REST = 2.0
# Seconds within which the training loop must respond to an interrupt; it abandons hanging workers within
# four. In an iteration it has this many times the duration of the longest one so far, if that is more.
_ANSWER_S = 6.0
_ITERATIONS = 2.0
_NOT_STARTED = "interrupted before the first step: nothing was lost"


@dataclass(frozen=True)
class Run:
    """How a run ended.

    Attributes:
        path: the run directory.
        env_steps: transitions collected.
        updates: optimizer steps.
        training_s: seconds from the start of collection to the last checkpoint, over all resumes.
        evaluation_return: mean return of the last evaluation, None without one.
        stopped: reason: ``"total_steps"``, ``"stop_at_return"``, ``"callback"``, ``"interrupted"``, or
            ``"follower"`` in a process of torchrun other than the first. Callbacks get ``"error"`` where an
            exception ended the run.
    """

    path: Path
    env_steps: int
    updates: int
    training_s: float
    evaluation_return: float | None
    stopped: str


class TrainingInterrupted(KeyboardInterrupt):
    """SIGINT (Ctrl-C), SIGTERM or SIGHUP (a closed terminal) ended a run, which was saved.

    Attributes:
        run: how the run ended.
    """

    def __init__(self, run: Run) -> None:
        super().__init__(f"interrupted; {run.path} is saved, parl.resume continues it")
        self.run = run


def make_evaluator(setup: RunSetup, maker: EnvMaker) -> Evaluator:
    """Returns an evaluator with environments of ``maker`` and a policy of ``setup``."""
    from parl.runtime.evaluate import Evaluator

    return Evaluator(maker, setup.make_policy(), setup.spec)


@contextmanager
def _evaluation_threads(learner_device: str) -> Generator[None]:
    """Lets torch use all cores for an evaluation, which is on the CPU, while a training device waits."""
    import torch

    if learner_device == "cpu":
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(usable_cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def limits_of(config: RunConfig) -> dict[str, Any]:
    """The settings of a run that say when it ends."""
    return {"total_steps": config.total_steps, "stop_at_return": config.stop_at_return}


def _add_counters(folder: Path, config: RunConfig, setup: RunSetup, **more: Any) -> dict[str, Any]:
    """Adds ``more`` and what ends the run to a checkpoint's ``counters.json``; returns its content.

    A resumed run can end elsewhere than its settings say: see ``RunDirectory.limits``.
    It needs as many ``processes`` of torchrun, because each saves its own share of the run.
    """
    path = folder / "counters.json"
    counters = json.loads(path.read_text(encoding="utf-8")) | more
    counters |= {"limits": limits_of(config), "processes": setup.scale}
    path.write_text(json.dumps(counters, indent=2) + "\n", encoding="utf-8")
    return counters


def _modules_seed(setup: RunSetup, saved: Checkpoint | None) -> int:
    """Seed of ``random`` and ``numpy.random`` in this process of a run, until it loads states of actors."""
    return setup.own_seed(int(saved.counters.get("resumes", 0)) + 1 if saved else 0)


def run_follower_rank(
    run: RunDirectory, topology: Topology, config: RunConfig, setup: Any, saved: Checkpoint | None
) -> Run:
    """Runs a process of torchrun other than rank 0: takes part in training and saves its own state.

    Raises:
        RunDirectoryError: it does not see the run directory.
    """
    began = time.monotonic()
    setup.group.check_sees(run.path)
    checkpoints = run.checkpoints_of(setup.group.rank)

    def save(write: Callable[[Path], None]) -> None:
        with checkpoints.write(loop.env_steps) as folder:
            write(folder)
            _add_counters(folder, config, setup)

    # Rank 0 handles interrupts for all processes.
    with _signals(lambda: None), seeded_modules(_modules_seed(setup, saved)):
        loop: Any = topology.loop(setup, config, saved)
        try:
            loop.run_follower_rank(save)
            return Run(run.path, loop.env_steps, loop.updates, time.monotonic() - began, None, "follower")
        finally:
            loop.close()


class Trainer:
    """One process's share of a run, from its start or a checkpoint to its end or an interruption."""

    def __init__(
        self,
        run: RunDirectory,
        topology: Topology,
        config: RunConfig,
        setup: RunSetup,
        evaluation: EnvMaker,
        progress: Progress,
        callbacks: CallbackList,
    ) -> None:
        self._callbacks = callbacks
        # Environments and callbacks may change the working folder.
        self._path, self._run = run.path, RunDirectory(run.path.absolute())
        self._topology, self._config, self._setup = topology, config, setup
        self._evaluation, self._progress = evaluation, progress
        self._recent: collections.deque[float] = collections.deque(maxlen=100)
        self._window: collections.deque[tuple[int, float, int]] = collections.deque()
        self._episodes_played = 0
        self._evaluation_return: float | None = None
        self._score: dict[str, Any] = {}
        self._evaluated_at = self._saved_at = self._logged_at = 0
        self._is_saved = False  # whether the run has a checkpoint
        self._advancing = False  # whether the loop is within an iteration
        # Whether the loop has reached a check of logs and evaluations that has not been made yet.
        self._unchecked = False
        # Sum of the rewards and number of the episodes before the run was resumed.
        self._before = (0.0, 0)
        self._evaluate_again = 0.0
        self._interrupted = False

    def run(self, saved: Checkpoint | None) -> Run:
        """Trains until total_steps, stop_at_return or a callback ends the run.

        Raises:
            TrainingInterrupted: SIGINT, SIGTERM or SIGHUP arrived; the run is saved.
        """
        try:
            with seeded_modules(_modules_seed(self._setup, saved)):
                result = self._run_loop(saved)
        except BaseException as error:
            self._report_failure(error)
            raise
        self._callbacks.call("on_end", result)
        if result.stopped == "interrupted":
            raise TrainingInterrupted(result)
        return result

    def _report_failure(self, reason: BaseException) -> None:
        """Calls ``on_end`` after an exception; an error of ``on_end`` becomes a note of that exception."""
        loop = getattr(self, "_loop", None)
        if loop is None or not self._callbacks.has("on_end"):
            return
        try:
            self._callbacks.call("on_end", self._result(loop, "error"))
        except CallbackError as error:
            reason.add_note(str(error))

    @property
    def _named_path(self) -> Path:
        """The run directory as the caller named it, unless the working folder is another one by now."""
        return self._path if self._path.absolute() == self._run.path else self._run.path

    def _result(self, loop: Loop[Any], stopped: str) -> Run:
        training_s = time.monotonic() - self._began
        return Run(
            self._named_path, loop.env_steps, loop.updates, training_s, self._evaluation_return, stopped
        )

    def _run_loop(self, saved: Checkpoint | None) -> Run:
        before_s = float(saved.counters.get("training_s", 0.0)) if saved else 0.0
        self._episodes_played = int(saved.counters.get("evaluation_episodes", 0)) if saved else 0
        self._began = time.monotonic() - before_s
        self._saved_clock = self._logged_clock = time.monotonic()
        from parl.runtime import policy_file  # Raises before training if safetensors is missing.

        self._write_policy = policy_file.write
        # Made before workers are forked, so that these inherit the modules that it imports.
        evaluator = make_evaluator(self._setup, self._evaluation)
        self._signals = _signals(self._interrupt, self._answer_s)
        with self._signals, MetricsLog(self._run) as log, self._progress:
            loop = self._make_loop(saved)
            try:
                if self._interrupted:  # and an environment has suppressed the exception
                    loop.interrupt()
                self._saved_at = self._evaluated_at = self._logged_at = loop.env_steps
                self._is_saved = saved is not None
                if saved is not None:
                    self._load_state(saved.counters.get("trainer", {}))
                # A run without a checkpoint that starts again has records too.
                if saved is not None or self._run.metrics.stat().st_size:
                    log.write({"env_steps": loop.env_steps, "resumed": True})
                try:
                    self._start_callbacks(loop)
                    stopped = self._reason_if_complete(loop, saved) or self._train(loop, log, evaluator)
                except NonFiniteError:
                    # The state in memory may be diverging: keep the last checkpoint.
                    self._progress.print_line(f"nothing is saved; {self._last_checkpoint()}")
                    raise
                except WorkerError:
                    self._save_unsaved(loop, loop.save_after_failure)
                    raise
                except CallbackError:
                    self._save_unsaved(loop)
                    raise
                except _InterruptTimeout as error:
                    self._progress.print_line(
                        "interrupted: an iteration of the training or a callback did not end within "
                        f"{error}; nothing is saved; {self._last_checkpoint()}"
                    )
                    raise KeyboardInterrupt from None
                except (Exception, SystemExit):  # of an environment, an algorithm or a callback
                    self._save_unsaved(loop)
                    raise
                return self._result(loop, stopped)
            finally:
                self._signals.acknowledge()
                loop.close()
                evaluator.close()

    def _make_loop(self, saved: Checkpoint | None) -> Loop[Any]:
        """Makes the loop, which starts its workers.

        Raises:
            KeyboardInterrupt: SIGINT, SIGTERM or SIGHUP arrived.
        """
        try:
            self._loop = self._topology.loop(self._setup, self._config, saved)
        except BaseException as error:
            if not self._interrupted:
                raise
            # Any error can be a consequence: processes that are starting get the signal too.
            raise KeyboardInterrupt(_NOT_STARTED) from (
                None if isinstance(error, KeyboardInterrupt) else error
            )
        return self._loop

    def _state(self, loop: Loop[Any]) -> dict[str, Any]:
        """What a resumed run needs to log and evaluate where an uninterrupted one does, as plain data."""
        return {
            "evaluated_at": self._evaluated_at,
            "logged_at": self._logged_at,
            "evaluation_return": self._evaluation_return,
            "recent": list(self._recent),
            "window": list(self._window),
            "seen": self._rewards_and_episodes(loop),
            "unchecked": self._unchecked,
        }

    def _load_state(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`_state` returned; empty in checkpoints of older versions."""
        if not state:
            return
        self._evaluated_at, self._logged_at = int(state["evaluated_at"]), int(state["logged_at"])
        self._evaluation_return = state["evaluation_return"]
        self._recent.extend(state["recent"])
        self._window.extend((int(steps), float(sum_), int(ended)) for steps, sum_, ended in state["window"])
        rewards, episodes = state["seen"]
        self._before = (float(rewards), int(episodes))
        self._unchecked = bool(state.get("unchecked", False))

    def _rewards_and_episodes(self, loop: Loop[Any]) -> tuple[float, int]:
        """The sum of all rewards and the number of episodes ended since the start of the run."""
        rewards, episodes = loop.rewards_and_episodes()
        return self._before[0] + rewards, self._before[1] + episodes

    def _start_callbacks(self, loop: Loop[Any]) -> None:
        if self._callbacks.has("on_start"):
            # The file has the settings from the start of the run, some of which `resume` changes.
            settings = self._run.config | {"run": asdict(self._config)}
            name = str(settings["algorithm"])
            self._callbacks.call(
                "on_start", RunInfo(self._run.id, self._run.path, name, settings, loop.env_steps)
            )

    def _interrupt(self) -> None:
        is_first, self._interrupted = not self._interrupted, True
        loop = getattr(self, "_loop", None)
        if loop is None:
            if is_first:
                self._signals.acknowledge()  # else the end of its time limit would interrupt the cleanup
                raise KeyboardInterrupt(_NOT_STARTED)
            return
        loop.interrupt()
        if self._answer_s() > _ANSWER_S:
            said = "interrupted: saves after this iteration; another Ctrl-C ends the run without saving"
            # In a thread, because the signal may have interrupted another print.
            threading.Thread(target=self._progress.print_line, args=(said,), daemon=True).start()

    def _answer_s(self) -> float:
        """Seconds within which an interrupt that arrives now must be noticed."""
        return max(_ANSWER_S, _ITERATIONS * self._loop.longest_iteration_s if self._advancing else 0.0)

    def _reason_if_complete(self, loop: Loop[Any], saved: Checkpoint | None) -> str | None:
        """Why the run ended, if ``saved`` is its end: the process may have been killed after saving it."""
        score = saved.counters.get("score") if saved else None
        if saved is None or score is None:
            return None
        self._evaluation_return = float(score["evaluation_return"])
        return reason_of_end(saved.counters, vars(self._config))

    def _train(self, loop: Loop[Any], log: MetricsLog, evaluator: Evaluator) -> str:
        config = self._config
        check_every = _CHECK_EVERY * config.num_envs
        while True:
            if not self._unchecked:
                until = min((loop.env_steps // check_every + 1) * check_every, config.total_steps)
                self._advancing = True
                loop.advance(until, seconds=0.25)
                self._advancing = False
                # After an interrupt the loop may return earlier; a resumed run first goes on to the check.
                self._unchecked = not self._interrupted or loop.env_steps >= until
            self._recent += [value for value, _ in loop.take_episodes()]
            if self._interrupted:
                self._signals.acknowledge()
                # A resumed run logs where an uninterrupted one does.
                is_due = self._unchecked and self._log_is_due(loop)
                logged_at = loop.env_steps if is_due else self._logged_at
                self._log(loop, log)
                self._logged_at = logged_at
                self._save(loop, None)
                self._progress.print_line(
                    f"interrupted; saved in {self._named_path}, parl resume goes on from there"
                )
                return "interrupted"
            over = loop.env_steps >= config.total_steps
            if self._log_is_due(loop) or over:
                self._log(loop, log)
            solved: bool | None = None  # None without an evaluation
            if config.evaluation_episodes and (over or self._evaluation_is_due(loop)):
                if over and config.schedule == "deterministic" and not self._is_saved:
                    # The process may be killed if the environments of an evaluation are large.
                    self._write_checkpoint(loop, None, loop.save)
                before = self._episodes_played, self._evaluated_at, self._evaluation_return
                try:
                    solved = self._evaluate(loop, log, evaluator, over)
                except _InterruptTimeout:
                    # Only the evaluation hangs; the training loop is between two updates and can be saved. A
                    # resumed run begins with the evaluation.
                    self._episodes_played, self._evaluated_at, self._evaluation_return = before
                    self._progress.print_line("the evaluation was aborted")
                    continue
            self._unchecked = False
            if solved is not None:
                if solved or over or config.evaluation_every:
                    self._save(loop, self._evaluation_return)
                if solved:
                    return "stop_at_return"
            elif over or self._checkpoint_is_due(loop):
                self._save(loop, None)
            if over:
                return "total_steps"
            if self._callbacks.stop:
                if not self._is_saved or loop.env_steps > self._saved_at:
                    self._save(loop, None)
                self._progress.print_line(f"a callback ended the run; saved in {self._named_path}")
                return "callback"

    def _log_is_due(self, loop: Loop[Any]) -> bool:
        if self._config.schedule == "deterministic":
            return loop.env_steps - self._logged_at >= 1_000
        now = time.monotonic()
        # More often at the start, so that a run of some seconds has a learning curve too.
        return now - self._logged_clock >= min(self._config.log_every_s, 0.1 + 0.05 * (now - self._began))

    def _evaluation_is_due(self, loop: Loop[Any]) -> bool:
        config = self._config
        since = loop.env_steps - self._evaluated_at
        if config.evaluation_every and since >= config.evaluation_every:
            return True
        goal = config.stop_at_return
        now = (loop.env_steps, *self._rewards_and_episodes(loop))
        # The window has at least _NEAR_GOAL_WINDOW vector steps and one end of an episode, which may take
        # longer.
        while (
            len(self._window) > 1
            and now[0] - self._window[1][0] >= _NEAR_GOAL_WINDOW * config.num_envs
            and now[2] > self._window[1][2]
        ):
            self._window.popleft()
        self._window.append(now)
        if goal is None or since < _EVALUATE_EVERY * config.num_envs or not self._recent:
            return False
        rewards, ended = (new - old for new, old in zip(now[1:], self._window[0][1:], strict=True))
        if config.schedule == "async" and time.monotonic() < self._evaluate_again:
            return False
        return rewards / max(ended, 1) >= goal - (1 - _NEAR_GOAL) * abs(goal)

    def _checkpoint_is_due(self, loop: Loop[Any]) -> bool:
        if self._config.checkpoint_every:
            return loop.env_steps - self._saved_at >= self._config.checkpoint_every
        if self._config.schedule == "deterministic":
            return False
        return time.monotonic() - self._saved_clock >= self._config.checkpoint_every_s

    def _log(self, loop: Loop[Any], log: MetricsLog) -> None:
        recent = float(np.mean(self._recent)) if self._recent else None
        report = loop.report()
        counts: dict[str, Any] = {
            "env_steps": loop.env_steps,
            "updates": loop.updates,
            "wall_time_s": time.monotonic() - self._began,
        }
        own = counts | {"episode_return": recent}
        record = log.write(own | report | own)  # metrics of an algorithm do not replace these
        shown = ("env_steps_per_s", "updates_per_s", "replay_ratio", "policy_lag")
        fields = {key: report[key] for key in shown if key in report}
        self._progress.update(loop.env_steps, **fields, episode_return=recent)
        self._logged_at, self._logged_clock = loop.env_steps, time.monotonic()
        if self._callbacks.has("on_record"):
            metrics = {
                key: float(value)
                for key, value in record.items()
                if key not in counts and isinstance(value, int | float)
            }
            self._callbacks.call("on_record", Record(**counts, metrics=metrics))

    def _evaluate(self, loop: Loop[Any], log: MetricsLog, evaluator: Evaluator, over: bool) -> bool:
        """Evaluates the weights; returns whether evaluations on two sets of seeds reach ``stop_at_return``.

        A run evaluates many times, so the first mean above the limit is selected from noisy ones and too
        high on average. The second one is not selected; it is stored as the score. An evaluation that only
        looks whether the goal is reached ends early where it is out of reach; those that give a checkpoint
        its score do not.
        """
        goal = self._config.stop_at_return
        score = self._play(loop, log, evaluator, None if over or self._config.evaluation_every else goal)
        if goal is None or score < goal:
            return False
        self._progress.print_line(f"that reaches stop_at_return = {goal:g}: evaluating again on other seeds")
        again = self._play(loop, log, evaluator)
        if again < goal:
            self._progress.print_line(f"not confirmed ({again:.1f} is below {goal:g})")
            return False
        self._progress.print_line(f"confirmed: {score:.1f}, then {again:.1f}")
        self._score["confirmed"] = min(score, again)
        return True

    def _play(
        self, loop: Loop[Any], log: MetricsLog, evaluator: Evaluator, goal: float | None = None
    ) -> float:
        """Runs and logs one evaluation; returns its mean return, which becomes the score of the weights."""
        from parl.ops.finite import check_state

        check_state({"weights": loop.learner.weights}, f"the policy after {loop.env_steps:,} steps")
        evaluator.policy.weights.copy_(loop.learner.weights)
        episodes = self._config.evaluation_episodes
        seed = evaluation_seed(self._config.seed, self._episodes_played, episodes)
        self._episodes_played += episodes
        started = time.monotonic()
        with _evaluation_threads(loop.learner.weights.device.type):
            returns = evaluator.play(episodes, seed, goal)
        ended = time.monotonic()
        self._evaluate_again = ended + _EVALUATION_REST * (ended - started)
        score = float(returns.mean())
        self._score = {
            "evaluation_return": score,
            "evaluation_return_std": float(returns.std()),
            "evaluation_episodes": len(returns),
            "evaluation_seed": seed,
            "protocol": protocol_of(
                self._run, loop.env_steps, len(returns), self._config.evaluation_env_options
            ),
        }
        rate = evaluator.success_rate
        if rate is not None:
            self._score["evaluation_success_rate"] = rate
        log.write(
            {
                "env_steps": loop.env_steps,
                "updates": loop.updates,
                "wall_time_s": time.monotonic() - self._began,
                **self._score,
            }
        )
        share = "" if rate is None else f", successes {rate:.0%}"
        self._progress.print_line(
            f"evaluation after {loop.env_steps:,} steps: mean return {score:.1f}{share}"
        )
        self._progress.print_detail(f"protocol: {self._score['protocol']}")
        self._evaluation_return, self._evaluated_at = score, loop.env_steps
        if self._callbacks.has("on_evaluation"):
            std = self._score["evaluation_return_std"]
            self._callbacks.call("on_evaluation", Evaluation(loop.env_steps, score, std, len(returns), rate))
        return score

    def _last_checkpoint(self) -> str:
        """Part of a message: the checkpoint from which parl resume continues."""
        try:
            return f"parl resume goes on from {self._run.checkpoints.last()}"
        except FileNotFoundError:
            return "there is no earlier checkpoint"

    def _save_unsaved(self, loop: Loop[Any], save: Callable[[Path], None] | None = None) -> None:
        """After a failure saves what the last checkpoint does not have.

        Errors are printed, since the failure is raised.

        Args:
            loop: the training loop.
            save: writes the checkpoint; None if the failure was in this process, between or in iterations.
        """
        if loop.env_steps <= self._saved_at:
            self._progress.print_line(self._last_checkpoint())
            return
        if save is None:
            save = loop.save_after_failure if self._advancing else loop.save
        try:
            self._write_checkpoint(loop, None, save)
        except Exception as error:
            self._progress.print_line(f"no checkpoint after the failure: {error}")
        else:
            self._progress.print_line(f"saved in {self._named_path}, parl resume goes on from there")

    def _save(self, loop: Loop[Any], score: float | None) -> None:
        env_steps = self._write_checkpoint(loop, score, loop.save)
        if self._callbacks.has("on_checkpoint"):
            path = self._run.checkpoints.last()
            is_best = score is not None and path == self._run.checkpoints.best()
            self._callbacks.call("on_checkpoint", SavedCheckpoint(path, env_steps, score, is_best))

    def _write_checkpoint(self, loop: Loop[Any], score: float | None, save: Callable[[Path], None]) -> int:
        """Writes a checkpoint with ``save``; returns its number of transitions."""
        with self._signals.unlimited(), self._run.checkpoints.write(loop.env_steps, score) as folder:
            save(folder)
            name = self._run.config["algorithm"]
            self._write_policy(folder, loop.learner, name, self._setup.spec, loop.env_steps)
            counters = _add_counters(
                folder,
                self._config,
                self._setup,
                training_s=time.monotonic() - self._began,
                evaluation_episodes=self._episodes_played,
                trainer=self._state(loop),
                **({} if score is None else {"score": self._score}),
            )
        self._saved_at, self._saved_clock, self._is_saved = loop.env_steps, time.monotonic(), True
        return int(counters["env_steps"])


class _InterruptTimeout(KeyboardInterrupt):
    """The main thread did not return to the training loop in time after an interrupt."""


class _signals:  # noqa: N801 - a context manager, used like a function
    """Context: the first SIGINT, SIGTERM or SIGHUP calls ``action``, another SIGINT raises KeyboardInterrupt.

    SIGHUP is left as it is if it is handled or ignored, as under nohup. Processes that are forked in the
    context, such as those of an environment, ignore SIGINT and SIGHUP; SIGTERM ends them after some seconds.

    If the training loop does not call :meth:`acknowledge` within ``answer_s()`` seconds after an interrupt,
    for example because an environment in this process hangs, :class:`_InterruptTimeout` is raised in the main
    thread. None: no limit.
    """

    def __init__(self, action: Callable[[], None], answer_s: Callable[[], float] | None = None) -> None:
        self._action, self._answer_s = action, answer_s
        self._previous_handlers: dict[int, Any] = {}
        self._interrupt_requested = self._timed_out = self._acknowledged = self._is_unlimited = False
        self._timer: threading.Timer | None = None
        self._limit_s = 0.0
        self._process = os.getpid()

    def acknowledge(self) -> None:
        """Ends the time limit; called when the training loop has noticed the interrupt."""
        self._acknowledged = True
        if self._timer is not None:
            self._timer.cancel()

    @contextmanager
    def unlimited(self) -> Generator[None]:
        """Context without a time limit, for what takes long but ends; the limit begins after it."""
        self._is_unlimited = True
        try:
            yield
        finally:
            self._is_unlimited = False

    def _start_timer(self) -> None:
        self._limit_s = self._answer_s() if self._answer_s is not None else 0.0
        self._timer = threading.Timer(self._limit_s, self._time_is_up)
        self._timer.daemon = True
        self._timer.start()

    def _time_is_up(self) -> None:
        if self._acknowledged:
            return
        if self._is_unlimited:
            self._start_timer()
            return
        self._timed_out = True
        if sys.platform == "win32":
            _thread.interrupt_main()  # Windows has no signals for a thread: this waits for Python code.
        else:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def _handle(self, number: int, frame: object) -> None:
        if os.getpid() != self._process:
            if number == signal.SIGTERM:
                # Of terminate(), or of all processes of the run, which the driver saves meanwhile. Not a
                # thread: this may be within the start of the process, where locks of `threading` are held.
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, _ANSWER_S)
            return
        if self._timed_out:
            self._timed_out = False
            if self._acknowledged:
                return  # acknowledge() was called between the end of the time limit and this signal
            if not self._is_unlimited:
                raise _InterruptTimeout(f"{round(self._limit_s, 1):g} s")
            self._start_timer()
            return
        if self._interrupt_requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self._answer_s is not None and not self._interrupt_requested:
            self._start_timer()
        self._interrupt_requested = True
        self._action()

    def __enter__(self) -> _signals:
        if threading.current_thread() is threading.main_thread():
            numbers = [signal.SIGINT, signal.SIGTERM]
            if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:
                numbers.append(signal.SIGHUP)
            for number in numbers:
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self.acknowledge()
        for number, old in self._previous_handlers.items():
            signal.signal(number, old)


def run_share(
    run: RunDirectory,
    topology: Topology,
    group: Group | None,
    evaluation: EnvMaker,
    callbacks: CallbackList,
    read: Callable[[], tuple[Any, Any, Checkpoint | None]],
    announce: Callable[[Any, Checkpoint | None], Progress],
) -> Run:
    """Runs this process's share of a run, as one of the processes of torchrun or alone.

    Args:
        run: the run directory, which the first process locks.
        topology: the topology of the run.
        group: the processes of torchrun, connected; None without torchrun.
        evaluation: makes the environments of evaluations.
        callbacks: called by the first process.
        read: returns settings and setup of the run, and the checkpoint from which it starts.
        announce: called by the first process with settings and checkpoint; returns the progress display.
    """
    with nullcontext() if group is None else group.membership():
        if group is not None and group.rank > 0:
            return run_follower_rank(run, topology, *read())
        with run.lock():
            config, setup, saved = read()
            progress = announce(config, saved)
            return Trainer(run, topology, config, setup, evaluation, progress, callbacks).run(saved)
