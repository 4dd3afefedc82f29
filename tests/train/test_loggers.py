"""Loggers write what `metrics.jsonl` has: event files, W&B offline, MLflow and Trackio in local stores."""

import importlib.util
import struct
import sys
import types
from concurrent.futures import Future

import pytest

import parl
from parl.cli import main
from parl.errors import CallbackError, ConfigError
from parl.run import read_metrics
from parl.train import loggers, resume, train
from parl.train.config import LOGGERS

RUN = {
    "schedule": "deterministic",
    "num_envs": 4,
    "rollout_steps": 8,
    "hidden": (4,),
    "quiet": True,
    "total_steps": 200,
    "evaluation_episodes": 2,
}


def written(run, name):
    """Steps and values of a metric in ``metrics.jsonl``."""
    return [(row["env_steps"], row[name]) for row in read_metrics(run.path) if row.get(name) is not None]


def scalars(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder))
    events.Reload()
    return [(event.step, pytest.approx(event.value, rel=1e-6)) for event in events.Scalars(name)]


def test_tensorboard_has_the_same_numbers_in_groups_and_the_settings(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

    run = train("ppo", **RUN, runs=str(tmp_path), logger="tensorboard")
    folder = run.path / "tensorboard"
    assert written(run, "episode_return") == scalars(folder, "train/episode_return")
    assert written(run, "evaluation_return") == scalars(folder, "evaluation/mean_return")
    assert written(run, "evaluation_return_std") == scalars(folder, "evaluation/std_return")
    events = EventAccumulator(str(folder))
    events.Reload()
    tags = events.Tags()["scalars"]
    assert {tag.partition("/")[0] for tag in tags} == {"train", "evaluation"}
    data = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    values = HParamsPluginData.FromString(data).session_start_info.hparams
    assert values["gamma"].number_value == pytest.approx(0.99, abs=0.02)
    assert values["algorithm"].string_value == "ppo" and values["hidden"].string_value == "[4]"


class Rows(loggers.Logger):
    """A logger that needs no package."""

    def __init__(self):
        super().__init__()
        self.rows = []

    def log(self, env_steps, metrics):
        self.rows += [(env_steps, name, value) for name, value in metrics.items()]


def test_a_logger_of_ones_own_gets_the_same_numbers(tmp_path):
    mine = Rows()
    run = train("ppo", **RUN, runs=str(tmp_path), callbacks=[mine])
    for name, logged in {"episode_return": "train/", "evaluation_return": "evaluation/mean_"}.items():
        logged += name.removeprefix("evaluation_")
        assert written(run, name) == [(step, value) for step, one, value in mine.rows if one == logged] != []


def test_a_run_goes_on_without_a_logger_that_fails(tmp_path):
    class Fails(Rows):
        def log(self, env_steps, metrics):
            super().log(env_steps, metrics)
            raise ConnectionResetError("the server is gone")

        def on_end(self, result):
            self.ended = result
            raise ConnectionResetError("it is still gone")

    failing, other = Fails(), Rows()
    with pytest.warns(
        UserWarning, match=r"Fails\.on_\w+ raised ConnectionResetError: .*the run goes on"
    ) as told:
        run = train("ppo", **RUN, evaluation_every=50, runs=str(tmp_path), callbacks=[failing, other])
    assert len(told) == 2 and failing.ended == run
    assert {step for step, *_ in failing.rows} == {min(step for step, *_ in other.rows)}
    assert written(run, "evaluation_return")[-1][0] == run.env_steps >= 200


def test_events_are_on_the_disk_while_the_run_goes_on(tmp_path):
    class Look(parl.Callback):
        seen = []  # noqa: RUF012

        def on_start(self, run):
            self.folder = run.path / "tensorboard"

        def on_record(self, record):
            self.seen.append(scalars(self.folder, "train/updates") == [(record.env_steps, record.updates)])
            return False

    train(
        "ppo", **RUN | {"total_steps": 10_000}, runs=str(tmp_path), logger=["tensorboard"], callbacks=[Look()]
    )
    assert Look.seen == [True]


def test_a_resumed_run_continues_its_events_without_those_after_the_checkpoint(tmp_path):
    class Killed(parl.Callback):
        def on_record(self, record):
            raise KeyboardInterrupt

    run = train("ppo", **RUN, runs=str(tmp_path), logger=["tensorboard"])
    with pytest.raises(KeyboardInterrupt):  # The event is written, a checkpoint is not.
        resume(run.path, total_steps=300, callbacks=[Killed()])
    lost = read_metrics(run.path)[-1]["env_steps"]
    resume(run.path, total_steps=400)
    steps = [step for step, _ in scalars(run.path / "tensorboard", "train/updates")]
    assert [step for step, _ in written(run, "env_steps_per_s")] == steps
    assert run.env_steps in steps and lost not in steps


def test_a_run_that_starts_again_hides_its_earlier_events(tmp_path):
    class Killed(parl.Callback):
        def on_record(self, record):
            if record.env_steps > 2_000:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(
            "ppo",
            **RUN | {"total_steps": 3_000},
            runs=str(tmp_path),
            logger=["tensorboard"],
            callbacks=[Killed()],
        )
    (path,) = tmp_path.iterdir()
    with pytest.warns(UserWarning, match="starts again at step 0"):
        run = resume(path)
    steps = [step for step, _ in scalars(path / "tensorboard", "train/updates")]
    assert steps == [step for step, _ in written(run, "env_steps_per_s")] == sorted(set(steps))


def records_of(file):
    """Records of a .wandb file, which has the format of LevelDB's log after a header of 7 bytes."""
    data, place, record = file.read_bytes(), 7, b""
    while place < len(data):
        if -place % 32_768 < 7:  # the rest of a block, too small for a header
            place += -place % 32_768
        _, length, kind = struct.unpack_from("<IHB", data, place)
        record += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # complete, or its last part
            yield record
            record = b""


def test_wandb_offline_has_the_run(tmp_path, monkeypatch):
    wandb = pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = train("ppo", **RUN, runs=str(tmp_path), logger=["wandb"])
    wandb.teardown()  # waits until its process has written the file
    (file,) = run.path.glob("wandb/offline-run-*/run-*.wandb")
    records = [wandb_internal_pb2.Record.FromString(data) for data in records_of(file)]
    (start,) = [record.run for record in records if record.HasField("run")][:1]
    assert (start.project, start.display_name) == ("parl", run.path.name)
    assert "gamma" in {item.key for item in start.config.update}
    rows = [
        {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
        for record in records
        if record.HasField("history")
    ]
    found = [
        (int(row["env_steps"]), float(row["evaluation/mean_return"]))
        for row in rows
        if "evaluation/mean_return" in row
    ]
    assert found == written(run, "evaluation_return")
    assert len([row for row in rows if "train/updates" in row]) == len(written(run, "env_steps_per_s"))


@pytest.mark.slow(minutes=1)  # MLflow creates its database in many small steps.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of SQLAlchemy, from MLflow's tables
def test_mlflow_has_the_run_and_its_continuation(tmp_path):
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    run = train("ppo", **RUN, runs=str(tmp_path), callbacks=[loggers.MLflow(uri, "cart")])

    class Dies(parl.Callback):
        def on_evaluation(self, evaluation):
            raise ValueError("as planned")

    with pytest.raises(CallbackError):
        resume(run.path, total_steps=400, callbacks=[loggers.MLflow(uri, "cart"), Dies()])
    client = MlflowClient(uri)
    (found,) = client.search_runs([client.get_experiment_by_name("cart").experiment_id])
    assert (found.info.run_name, found.info.status) == (run.path.name, "FAILED")
    assert found.data.params["hidden"] == "[4]" and found.data.params["total_steps"] == "200"
    history = client.get_metric_history(found.info.run_id, "evaluation/mean_return")
    assert sorted((one.step, one.value) for one in history) == written(run, "evaluation_return")
    history = client.get_metric_history(found.info.run_id, "train/updates")
    assert sorted((one.step, one.value) for one in history) == [
        (row["env_steps"], row["updates"]) for row in read_metrics(run.path) if "env_steps_per_s" in row
    ]


class Server:
    """Stands in for a client of MLflow whose first numbers are refused."""

    status, is_fast = None, True

    def __init__(self, uri):
        self.sent = 0

    def get_experiment_by_name(self, name):
        return types.SimpleNamespace(experiment_id="0")

    def search_runs(self, experiments, found):
        return [types.SimpleNamespace(info=types.SimpleNamespace(run_id="1"))]

    def update_run(self, run, status):
        pass

    def log_batch(self, run, metrics, synchronous):
        self.sent += 1
        future = Future()
        if self.is_fast:
            future.set_result(None)
        wait = [lambda: None, lambda: 1 // 0][self.sent == 1]
        return types.SimpleNamespace(wait=wait, _operation_futures=[future])

    def set_terminated(self, run, status):
        Server.status = status


@pytest.mark.parametrize(
    ("is_fast", "warning"),
    [(True, "ZeroDivisionError.*: the run goes on without it"), (False, "MLflow lacks metrics")],
)
def test_numbers_that_mlflow_refuses_are_a_warning(is_fast, warning, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setattr(mlflow, "MlflowClient", Server)
    monkeypatch.setattr(Server, "is_fast", is_fast)
    with pytest.warns(UserWarning, match=warning):
        train("ppo", **RUN, evaluation_every=50, runs=str(tmp_path), logger=["mlflow"])
    assert Server.status == "FINISHED"


def test_trackio_has_the_run(tmp_path, monkeypatch):
    pytest.importorskip("trackio")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    # Trackio reads the variable when it is imported.
    for name in [name for name in sys.modules if name.partition(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, name)
    run = train("ppo", **RUN, runs=str(tmp_path), logger=["trackio"])
    resume(run.path, total_steps=400)
    from trackio import Api
    from trackio.sqlite_storage import SQLiteStorage

    (found,) = Api().runs("parl")
    assert found.name.startswith(run.path.name + "-")
    assert found.config["hidden"] == [4]
    rows = SQLiteStorage.get_logs("parl", found.name)
    key = "evaluation/mean_return"
    assert [(row["step"], row[key]) for row in rows if key in row] == written(run, "evaluation_return")
    assert [row["step"] for row in rows if "train/updates" in row] == [
        steps for steps, _ in written(run, "env_steps_per_s")
    ]


@pytest.mark.parametrize("name", LOGGERS)
def test_a_missing_package_is_an_error_with_the_command(tmp_path, monkeypatch, name):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda package: None if package == name else find(package)
    )
    with pytest.raises(
        ConfigError, match=rf"logger = '{name}' needs {name}: pip install 'parl-rl\[{name}\]'"
    ):
        train("ppo", **RUN, runs=str(tmp_path), logger=[name])
    assert not list(tmp_path.iterdir())


def test_an_unknown_logger_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="logger = 'tensorbord' is not one of tensorboard, wandb, mlflow"):
        train("ppo", **RUN, runs=str(tmp_path), logger=["tensorbord"])


def test_the_option_can_be_repeated(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr("parl.train.make_loggers", lambda names: made.append(names) or [])
    options = ["--total-steps", "40", "--num-envs", "4", "--evaluation-episodes", "0", "--quiet"]
    runs = ["--runs", str(tmp_path)]
    assert main(["train", "ppo", *options, *runs, "--logger", "tensorboard", "--logger", "mlflow"]) == 0
    assert made == [("tensorboard", "mlflow")]
