"""Run directories, checkpoints, metrics and settings files."""

import contextlib
import json
import math
import os
import shutil
import signal
from pathlib import Path

import pytest
from file_operations import FileOperations

from children import in_child
from parl.errors import ConfigError, RunDirectoryError
from parl.run import (
    MetricsLog,
    RunDirectory,
    check_keys,
    dump_toml,
    load_toml,
    parse_count,
    read_metrics,
)
from parl.run.integrity import check_file, describe, read_checked, with_checksum


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("10000", 10_000),
        ("10_000", 10_000),
        ("10k", 10_000),
        ("2.5M", 2_500_000),
        ("8.2M", 8_200_000),
        ("2.01M", 2_010_000),
        ("16.1k", 16_100),
        ("1.07G", 1_070_000_000),
        ("9007199254740993", 2**53 + 1),
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
    with pytest.raises(ConfigError, match=f"{text}.? is not a"):
        parse_count(text)


def test_unknown_key_names_the_nearest_valid_one():
    with pytest.raises(ConfigError, match=r"'learning_rte' .did you mean 'learning_rate'"):
        check_keys({"learning_rte": 1}, ["learning_rate", "batch_size"], "dqn")
    check_keys({"batch_size": 1}, ["learning_rate", "batch_size"], "dqn")


def test_settings_are_the_same_after_writing_and_reading(tmp_path):
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
    assert run.checkpoints.verified("last").name == "step-000000000010"


def test_a_checkpoint_that_is_replaced_while_it_is_opened_is_no_error(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, "run", {})
    _write(run, 10, "a")
    kind, indices = type(run.checkpoints), []
    index = kind._index

    def replaced(self):
        found = index(self)
        indices.append(found)
        if len(indices) == 2:  # before the folder that it names is opened
            _write(run, 20, "b")
        return found

    monkeypatch.setattr(kind, "_index", replaced)
    assert run.checkpoints.verified("last").name == "step-000000000020"


def test_a_kill_at_any_point_of_a_save_leaves_a_complete_last_checkpoint(tmp_path):
    """It is the old or the new one, and the next save works."""

    def save():
        counted = FileOperations(run.checkpoints.path, fatal)
        _write(run, 10, "new")
        (tmp_path / "count").write_text(str(counted.count))

    run = RunDirectory.create(tmp_path, "run", {})
    fatal, found = 0, set()
    while True:
        fatal += 1
        _write(run, 10, "old")
        code = in_child(save)
        last = run.checkpoints.verified("last")
        found.add((last / "data").read_text())
        if code == 0:
            break
        assert code == -signal.SIGKILL
        _write(run, 10, "next")
        assert (run.checkpoints.verified("last") / "data").read_text() == "next"
        assert len(list(run.checkpoints.path.iterdir())) == 2, "one folder and the index"
    assert found == {"old", "new"}
    assert fatal == int((tmp_path / "count").read_text()) + 1 > 10


def _flip(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _cut(path):
    path.write_bytes(path.read_bytes()[:-1])


def _of_another_run(path):
    other = RunDirectory.create(path.parents[2], "other", {})
    _write(other, 10, "other")
    place = next(other.path.rglob(path.name))
    path.write_bytes(place.read_bytes())


def _edit(path):
    path.write_text(path.read_text().replace("best", "last").replace("1", "2"))


def _as_before_checksums(path):
    path.write_text(json.dumps({"last": "step-000000000010", "format": 1}))


def _link(path):
    path.rename(path.parents[1] / "elsewhere")
    path.symlink_to("../elsewhere")


FOLDER = "checkpoints/step-000000000010"
DAMAGE = [
    ("checkpoints/index.json", _flip, r"index\.json is damaged"),
    ("checkpoints/index.json", _cut, r"index\.json is damaged"),
    ("checkpoints/index.json", _edit, "damaged or was edited"),
    ("checkpoints/index.json", _of_another_run, "belongs to another run"),
    ("checkpoints/index.json", _as_before_checksums, "has format 1; this version of parl reads format 2"),
    (f"{FOLDER}/manifest.json", _flip, r"manifest\.json is damaged"),
    (f"{FOLDER}/manifest.json", Path.unlink, r"manifest\.json is missing"),
    (
        f"{FOLDER}/manifest.json",
        _of_another_run,
        r"manifest\.json does not have the checksum that index\.json names",
    ),
    (f"{FOLDER}/data", _flip, "data is damaged"),
    (f"{FOLDER}/data", _cut, "data has 2 bytes, expected 3"),
    (f"{FOLDER}/data", Path.unlink, "data is missing"),
    (
        f"{FOLDER}/data",
        lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        "data is not a regular file",
    ),
    (FOLDER, lambda path: (path / "more.pkl").write_text(""), r"more\.pkl is not listed in .*manifest\.json"),
    (FOLDER, shutil.rmtree, "names step-000000000010 as the last checkpoint, but there is no such folder"),
    (FOLDER, _link, "is not a checkpoint of this run"),
    ("run.json", _flip, r"run\.json is damaged"),
    ("run.json", Path.unlink, r"has no run\.json"),
    ("run.json", lambda path: path.write_text("{}"), "has format 1; this version of parl reads format 2"),
    ("config.toml", _edit, r"config\.toml is damaged, was edited"),
    ("env.pkl", lambda path: path.write_text(""), r"env\.pkl was added after the start of the run"),
]


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE)
def test_damaged_and_foreign_files_are_named(tmp_path, name, damage, message):
    run = RunDirectory.create(tmp_path / "runs", "run", {"seed": 1})
    _write(run, 10, "one", score=1.0)
    run.verify()
    damage(run.path / name)
    again = RunDirectory.open(run.path)
    with pytest.raises(RunDirectoryError, match=message):
        again.verify()
        again.checkpoints.verified("last")


def test_an_index_cannot_point_outside_its_run(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    _write(run, 10, "one")
    index = read_checked(run.checkpoints.path / "index.json")
    for name in ("../../elsewhere", "/tmp", "", "step-10"):
        index["last"]["folder"] = name
        (run.checkpoints.path / "index.json").write_text(with_checksum(index))
        with pytest.raises(RunDirectoryError, match="is not a checkpoint of this run"):
            run.checkpoints.verified("last")


def test_only_the_ends_of_a_replay_file_are_compared(tmp_path):
    path = tmp_path / "replay.bin"
    path.write_bytes(bytes(300_000))
    wanted = describe(tmp_path)["replay.bin"]
    for place, differs in [(0, True), (150_000, False), (299_999, True)]:
        data = bytearray(300_000)
        data[place] = 1
        path.write_bytes(data)
        with pytest.raises(RunDirectoryError) if differs else contextlib.nullcontext():
            check_file(path, wanted)


def test_one_process_at_a_time_trains_in_a_directory(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    begins, ends = os.pipe(), os.pipe()

    def hold():
        with run.lock():
            os.write(begins[1], b"!")
            os.read(ends[0], 1)

    holder = os.fork()
    if holder == 0:
        hold()
        os._exit(0)
    os.read(begins[0], 1)
    try:
        with pytest.raises(RunDirectoryError, match=f"in use: process {holder} trains in it"), run.lock():
            pass
    finally:
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
    with run.lock():
        pass
    with run.lock():
        assert (run.path / "lock").read_text().strip() == str(os.getpid())


def test_metrics_survive_a_killed_writer_and_a_resume(tmp_path):
    run = RunDirectory.create(tmp_path, "run", {})
    with MetricsLog(run) as log:
        for steps in (100, 200, 300):
            log.write({"env_steps": steps, "loss": math.nan if steps == 200 else 0.5})
    with run.metrics.open("a") as file:
        file.write('{"env_steps": 4')  # killed in the middle of a line
    with MetricsLog(run) as log:
        log.write({"env_steps": 150, "resumed": True})
        log.write({"env_steps": 250, "loss": 0.1})
    written = [json.loads(line)["env_steps"] for line in run.metrics.read_text().splitlines()]
    assert written == [100, 200, 300, 150, 250]
    records = read_metrics(run.path)
    assert [record["env_steps"] for record in records] == [100, 150, 250]
