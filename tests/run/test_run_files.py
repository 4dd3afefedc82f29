"""Run directories, checkpoints, metrics and settings files."""

import json
import math

import pytest

from parl.errors import ConfigError, RunDirectoryError
from parl.run import (
    MetricsLog,
    Progress,
    RunDirectory,
    check_keys,
    dump_toml,
    load_toml,
    parse_count,
    read_metrics,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("10000", 10_000),
        ("10_000", 10_000),
        ("10k", 10_000),
        ("2.5M", 2_500_000),
        ("1e6", 10**6),
        (7, 7),
    ],
)
def test_counts_are_read(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text", ["", "ten", "-5", "1.5", "2.00005k", "1kk", "1e400", float("nan"), float("inf"), -1]
)
def test_other_counts_are_refused_by_value(text):
    with pytest.raises(ConfigError, match=f"{text}.? is no"):
        parse_count(text)


def test_unknown_key_names_the_nearest_valid_one():
    with pytest.raises(ConfigError, match=r"'learning_rte' .did you mean 'learning_rate'"):
        check_keys({"learning_rte": 1}, ["learning_rate", "batch_size"], "dqn")
    check_keys({"batch_size": 1}, ["learning_rate", "batch_size"], "dqn")


def test_settings_survive_the_file(tmp_path):
    settings = {
        "env": "CartPole-v1",
        "lr": 1e-3,
        "sizes": (64, 64),
        "nothing": None,
        "inner": {"double": True},
    }
    path = tmp_path / "run.toml"
    path.write_text(dump_toml(settings))
    assert load_toml(path) == {"env": "CartPole-v1", "lr": 1e-3, "sizes": [64, 64], "inner": {"double": True}}


def test_broken_settings_file_is_named(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("env = \n")
    with pytest.raises(ConfigError, match=r"run\.toml is not valid TOML"):
        load_toml(path)


def test_run_directory_is_new_each_time_and_opens_again(tmp_path):
    first = RunDirectory.create(tmp_path, "dqn CartPole/v1", {"seed": 3}, ["parl", "train"])
    second = RunDirectory.create(tmp_path, "dqn CartPole/v1", {"seed": 3})
    assert (first.path.name, second.path.name) == ("dqn-CartPole-v1", "dqn-CartPole-v1-2")
    assert RunDirectory.open(first.path).config == {"seed": 3}
    about = json.loads((first.path / "run.json").read_text())
    assert about["command"] == ["parl", "train"] and "numpy" in about["versions"]
    with pytest.raises(FileNotFoundError, match="missing"):
        RunDirectory.open(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunDirectoryError, match=r"no config\.toml"):
        RunDirectory.open(tmp_path / "empty")


def _write(run, step, text, score=None):
    with run.checkpoints.write(step, score) as folder:
        (folder / "data").write_text(text)


def test_last_and_best_checkpoints_are_kept_and_no_others(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    with pytest.raises(FileNotFoundError):
        run.checkpoints.last()
    _write(run, 10, "a", score=5.0)
    _write(run, 20, "b", score=1.0)
    _write(run, 30, "c")
    assert (run.checkpoints.last() / "data").read_text() == "c"
    assert (run.checkpoints.best() / "data").read_text() == "a"
    assert {place.name for place in run.checkpoints.path.glob("step-*")} == {
        "step-000000000010",
        "step-000000000030",
    }
    _write(run, 30, "again")
    assert (run.checkpoints.last() / "data").read_text() == "again"


def test_a_failing_checkpoint_changes_nothing(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    _write(run, 10, "a")
    with pytest.raises(RuntimeError), run.checkpoints.write(20) as folder:
        (folder / "data").write_text("half")
        raise RuntimeError
    assert (run.checkpoints.last() / "data").read_text() == "a"
    assert sorted(place.name for place in run.checkpoints.path.iterdir()) == [
        "index.json",
        "step-000000000010",
    ]


def test_a_crash_before_the_index_still_finds_the_newest(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    _write(run, 10, "a")
    (run.checkpoints.path / "index.json").unlink()
    assert run.checkpoints.last().name == "step-000000000010"


def test_metrics_survive_a_killed_writer_and_a_resume(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    with MetricsLog(run, tensorboard=False) as log:
        for steps in (100, 200, 300):
            log.write({"env_steps": steps, "loss": math.nan if steps == 200 else 0.5})
    with run.metrics.open("a") as file:
        file.write('{"env_steps": 4')  # killed in the middle of a line
    with MetricsLog(run, tensorboard=False) as log:
        log.write({"env_steps": 150, "resumed": True})
        log.write({"env_steps": 250, "loss": 0.1})
    written = [json.loads(line)["env_steps"] for line in run.metrics.read_text().splitlines()]
    assert written == [100, 200, 300, 150, 250]
    records = read_metrics(run.path)
    assert [record["env_steps"] for record in records] == [100, 150, 250]


def test_tensorboard_gets_the_same_numbers(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = RunDirectory.create(tmp_path, "run", {})
    with MetricsLog(run, tensorboard=True) as log:
        for steps in range(100):
            log.write({"env_steps": steps, "loss": steps / 2, "note": "text"})
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("loss")] == [(n, n / 2) for n in range(100)]


def test_progress_prints_plain_lines_where_there_is_no_terminal(capsys):
    with Progress(1_000_000) as progress:
        progress.update(10, env_steps_per_s=1234.5, episode_return=None)
        progress.update(1_000_000, policy_lag=2)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["10/1,000,000 steps  env steps per s 1,234", "1,000,000/1,000,000 steps  policy lag 2"]
