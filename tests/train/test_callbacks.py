"""Callbacks: when they are called, with what, and what their results and exceptions do."""

import json
import os
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from scripted_runs import SMALL, TOPOLOGIES, Scripted, scripted

import parl
from parl.cli import main
from parl.errors import CallbackError, ConfigError, WorkerError
from parl.run import RunDirectory, read_metrics
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.train import resume, train
from parl.train.trainer import Trainer

HOOKS = ("on_start", "on_record", "on_evaluation", "on_checkpoint", "on_end")
RUN = {
    "schedule": "deterministic",
    "num_envs": 4,
    "rollout_steps": 8,
    "hidden": (4,),
    "quiet": True,
    "total_steps": 320,
    "evaluation_episodes": 2,
    "evaluation_every": 100,
}


class Recorder:
    """Keeps all events; ``answers`` are the results of hooks."""

    def __init__(self, **answers):
        self.events, self.answers = [], answers

    def _hook(self, hook, event):
        self.events.append((hook, event))
        return self.answers.get(hook)

    def of(self, hook):
        return [event for name, event in self.events if name == hook]


for _hook in HOOKS:
    setattr(Recorder, _hook, lambda self, event, hook=_hook: self._hook(hook, event))


def failing(hook):
    def method(self, event):
        raise ValueError("as planned")

    return type("Failing", (parl.Callback,), {hook: method})()


def saved_steps(run):
    counters = RunDirectory.open(run).checkpoints.verified("last") / "counters.json"
    return json.loads(counters.read_text())["env_steps"]


def test_hooks_get_what_the_run_writes(tmp_path):
    seen = Recorder()
    run = train("ppo", **RUN, runs=str(tmp_path), callbacks=[seen])
    directory = RunDirectory.open(run.path)
    assert [name for name, _ in seen.events][:: len(seen.events) - 1] == ["on_start", "on_end"]
    (start,) = seen.of("on_start")
    assert (start.id, start.path, start.algorithm, start.env_steps) == (directory.id, run.path, "ppo", 0)
    assert start.settings["run"]["total_steps"] == 320 and start.settings["ppo"]["gamma"] > 0
    rows = read_metrics(run.path)
    records = [row for row in rows if "evaluation_return" not in row]
    assert [event.env_steps for event in seen.of("on_record")] == [row["env_steps"] for row in records]
    event, row = seen.of("on_record")[-1], records[-1]
    assert (event.updates, event.wall_time_s) == (row["updates"], row["wall_time_s"])
    others = {"env_steps", "updates", "wall_time_s"}
    numbers = {key: value for key, value in row.items() if isinstance(value, float) and key not in others}
    assert event.metrics == numbers and "episode_return" in numbers
    evaluations = [
        (row["env_steps"], row["evaluation_return"], row["evaluation_return_std"], 2)
        for row in rows
        if "evaluation_return" in row
    ]
    found = seen.of("on_evaluation")
    assert [(one.env_steps, one.mean_return, one.std_return, one.episodes) for one in found] == evaluations
    assert len(found) >= 3
    assert seen.of("on_end") == [run]


def test_checkpoints_say_whether_they_are_the_best(tmp_path):
    class Best(parl.Callback):
        seen = []  # noqa: RUF012

        def on_checkpoint(self, checkpoint):
            best = RunDirectory.open(checkpoint.path.parents[1]).checkpoints.best()
            assert (best == checkpoint.path) is checkpoint.is_best and checkpoint.path.is_dir()
            self.seen.append((checkpoint.evaluation_return, checkpoint.is_best))

    options = RUN | {"evaluation_episodes": 3, "evaluation_every": 64, "total_steps": 256}
    run = train("ppo", env=scripted(2.0, 1.0, 3.0), runs=str(tmp_path), callbacks=[Best()], **options)
    assert Best.seen == [(2.0, True), (1.0, False), (3.0, True)]
    Best.seen.clear()
    resume(run.path, total_steps=320, evaluation_episodes=0, evaluation_every=0, callbacks=[Best()])
    assert [value for value, _ in Best.seen] == [None]


@pytest.mark.parametrize(
    ("hook", "answer"),
    [("on_record", False), ("on_evaluation", np.mean([9, 11]) < 10), ("on_checkpoint", False)],
)
def test_false_ends_the_run_with_a_checkpoint(tmp_path, hook, answer):
    seen = Recorder(**{hook: answer})
    options = RUN | {"total_steps": 100_000, "evaluation_every": 200}
    run = train("ppo", **options, runs=str(tmp_path), callbacks=[seen, Recorder()])
    assert run.stopped == "callback"
    assert len(seen.of(hook)) == 1 and seen.of("on_end") == [run]
    assert run.env_steps == saved_steps(run.path) < 2_000
    assert resume(run.path, total_steps=run.env_steps + 32).stopped == "total_steps"


@pytest.mark.parametrize("answer", [None, 0, "", np.float32(0)])
def test_only_false_ends_the_run(tmp_path, answer):
    answers = dict.fromkeys(HOOKS, answer) | {"on_start": False, "on_end": False}
    assert train("ppo", **RUN, runs=str(tmp_path), callbacks=[Recorder(**answers)]).stopped == "total_steps"


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_callbacks_end_runs_of_every_topology(topology, tmp_path):
    name, options = TOPOLOGIES[topology]
    options = {"total_steps": 10_000_000, "runs": str(tmp_path), "quiet": True} | SMALL | options
    seen = Recorder(on_record=False)
    run = train(name, env=scripted(), evaluation_episodes=0, callbacks=[seen], **options)
    assert run.stopped == "callback"
    assert seen.of("on_start") and seen.of("on_end") == [run]
    assert saved_steps(run.path) <= run.env_steps


def test_a_run_that_ends_before_its_first_step_has_a_checkpoint(tmp_path, monkeypatch):
    """As where workers have not started when the first record is due."""
    monkeypatch.setattr(Trainer, "_log_is_due", lambda self, loop: True)
    with monkeypatch.context() as patch:
        patch.setattr(SyncRolloutLoop, "advance", lambda self, until, seconds: None)
        run = train("ppo", **RUN, runs=str(tmp_path), callbacks=[Recorder(on_record=False)])
    assert (run.stopped, run.env_steps, saved_steps(run.path)) == ("callback", 0, 0)
    assert resume(run.path).stopped == "total_steps"


@pytest.mark.parametrize("hook", HOOKS)
def test_an_exception_ends_the_run_with_a_checkpoint_and_names_the_hook(tmp_path, hook):
    seen = Recorder()
    options = RUN | {"evaluation_every": 200}
    with pytest.raises(
        CallbackError, match=f"callback Failing.{hook} raised ValueError: as planned"
    ) as found:
        train("ppo", **options, runs=str(tmp_path), name="run", callbacks=[seen, failing(hook)])
    assert isinstance(found.value.__cause__, ValueError)
    assert f"({__file__}:" in str(found.value)
    (end,) = seen.of("on_end")
    assert end.stopped == ("total_steps" if hook == "on_end" else "error")
    if hook == "on_start":  # no step has been taken
        assert not (tmp_path / "run" / "checkpoints").exists()
    else:
        assert saved_steps(tmp_path / "run") == end.env_steps > 0
        resume(tmp_path / "run", total_steps=end.env_steps + 32, evaluation_episodes=0, evaluation_every=0)


def test_an_exit_in_a_callback_ends_the_process_with_a_checkpoint(tmp_path):
    class Exits:
        def on_record(self, record):
            self.steps = record.env_steps
            sys.exit(3)

    callback = Exits()
    with pytest.raises(SystemExit, match="3"):
        train("ppo", **RUN, runs=str(tmp_path), name="run", callbacks=[callback])
    assert saved_steps(tmp_path / "run") == callback.steps


def test_a_callback_that_did_not_start_is_not_ended(tmp_path):
    class Broken:
        def on_start(self, run):
            raise OSError("no network")

        def on_end(self, result):
            raise AssertionError

    before, after = Recorder(), Recorder()
    with pytest.raises(CallbackError, match=r"Broken.on_start raised OSError: no network"):
        train("ppo", **RUN, runs=str(tmp_path), callbacks=[before, Broken(), after])
    assert [name for name, _ in before.events] == ["on_start", "on_end"]
    assert not after.events


def test_a_failure_of_the_run_is_raised_with_that_of_on_end_as_a_note(tmp_path):
    class Dies(Scripted):
        def step(self, action):
            raise KeyError("a step")

    with pytest.raises((KeyError, WorkerError), match="a step") as found:
        train("ppo", env=Dies, runs=str(tmp_path), callbacks=[failing("on_end")], **RUN)
    (note,) = found.value.__notes__
    assert note.startswith("callback Failing.on_end raised ValueError: as planned")


@pytest.mark.parametrize("wrong", [Recorder, object(), "on_start"])
def test_an_object_without_hooks_is_an_error_before_the_run(tmp_path, wrong):
    with pytest.raises(ConfigError, match=r"callbacks\[1\] = .* is not an object with one of the methods"):
        train("ppo", **RUN, runs=str(tmp_path), callbacks=[Recorder(), wrong])
    with pytest.raises(ConfigError, match=r"callbacks\[0\] = .* is not an object"):
        train("ppo", **RUN, runs=str(tmp_path), logger="tensorboard", callbacks=[wrong])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["on_eval", "on_step", "on_training_end"])
def test_methods_that_would_never_be_called_are_an_error(name, tmp_path):
    kind = type(
        "Own", (parl.Callback,), {name: lambda self, event: None, "on_record": lambda self, event: None}
    )
    with pytest.raises(
        ConfigError, match=rf"callbacks\[0\]: Own.{name} would never be called, the hooks are on_"
    ):
        train("ppo", **RUN, runs=str(tmp_path), callbacks=[kind()])


def test_a_callback_in_place_of_a_list_is_an_error(tmp_path):
    for wrong in (Recorder(), None, "my_callbacks:Recorder"):
        with pytest.raises(ConfigError, match=r"callbacks = .* is not a list"):
            train("ppo", **RUN, runs=str(tmp_path), callbacks=wrong)
    assert not list(tmp_path.iterdir())


def test_a_resumed_run_says_where_it_starts_and_its_changed_settings(tmp_path):
    run = train("ppo", **RUN, runs=str(tmp_path))
    seen = Recorder()
    resume(run.path, total_steps=640, callbacks=[seen])
    (start,) = seen.of("on_start")
    assert start.env_steps == run.env_steps and start.settings["run"]["total_steps"] == 640
    assert seen.of("on_record")[0].env_steps > run.env_steps


def test_callbacks_change_no_result(tmp_path):
    runs = [train("ppo", **RUN, runs=str(tmp_path), callbacks=callbacks) for callbacks in ((), (Recorder(),))]
    returns = [[row.get("evaluation_return") for row in read_metrics(run.path)] for run in runs]
    assert returns[0] == returns[1]


PLUGIN = """
class Stop:
    def on_record(self, record):
        return False

class Fail:
    def on_record(self, record):
        raise ValueError("as planned")
"""
QUICK = [
    "--total-steps",
    "10M",
    "--num-envs",
    "4",
    "--rollout-steps",
    "8",
    "--evaluation-episodes",
    "0",
    "--quiet",
]


def test_callbacks_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))
    (tmp_path / "plugin_of_test.py").write_text(PLUGIN)
    assert main(["train", "ppo", *QUICK, "--name", "one", "--callback", "plugin_of_test:Stop"]) == 0
    assert "ended by callback" in capsys.readouterr().out
    both = ["--callback", "plugin_of_test:Fail", "--callback", "plugin_of_test:Stop"]
    assert main(["resume", "runs/one", *both]) == 1
    assert "parl: callback Fail.on_record raised ValueError: as planned" in capsys.readouterr().err
    assert saved_steps(tmp_path / "runs" / "one") > 0
    for name, message in {
        "plugin_of_test": "is not of the form module:Class",
        "plugin_of_test:Gone": "module plugin_of_test has no 'Gone'",
        "gone_plugin:Stop": "No module named 'gone_plugin'; it is searched for in the current folder",
    }.items():
        assert main(["train", "ppo", *QUICK, "--callback", name]) == 1
        assert message in capsys.readouterr().err


class Moving(gymnasium.Wrapper):
    """Changes the working folder when it is made, as scripts around simulators do."""

    def __init__(self, env):
        super().__init__(env)
        os.chdir("/")


class Moves:
    def on_record(self, record):
        os.chdir("/")


@pytest.mark.parametrize("options", [{"wrappers": [Moving]}, {"callbacks": [Moves()]}])
def test_a_changed_working_folder_does_not_move_the_run(options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = train("ppo", **RUN | {"runs": "runs", "log_every_s": 0.0, "name": "one"}, **options)
    assert run.path == tmp_path / "runs" / "one"
    monkeypatch.chdir(tmp_path)
    again = resume("runs/one", total_steps=2 * run.env_steps, callbacks=options.get("callbacks", ()))
    assert again.path == run.path and again.env_steps > run.env_steps
    monkeypatch.chdir(tmp_path)
    assert train("ppo", **RUN | {"runs": "runs"}, name="two").path == Path("runs/two")
