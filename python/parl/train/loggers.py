"""Loggers: callbacks that send settings and metrics to TensorBoard, Weights & Biases, MLflow or Trackio.

The setting ``logger`` selects them by name; each is configured by its own environment variables, such as
``WANDB_PROJECT``, ``WANDB_MODE``, ``MLFLOW_TRACKING_URI``, ``MLFLOW_EXPERIMENT_NAME`` or ``TRACKIO_DIR``. To
configure one in Python, pass an instance as a callback::

    from parl.train.loggers import WandB

    parl.train("ppo", env="CartPole-v1", callbacks=[WandB(project="cartpole", tags=["ppo"])])

Metrics are in two groups, ``train/`` with the names of ``metrics.jsonl`` and ``evaluation/``, against
``env_steps``. A resumed run continues in the same run of the logger.
"""

from __future__ import annotations

import importlib.util
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from parl.errors import ConfigError
from parl.train.callbacks import Callback, Evaluation, Record, RunInfo

if TYPE_CHECKING:
    from parl.train.trainer import Run

_PROJECT = "parl"


def _settings(run: RunInfo) -> dict[str, Any]:
    """All settings of a run and its algorithm by name; no name occurs in both."""
    return {"algorithm": run.algorithm, **run.settings["run"], **run.settings[run.algorithm]}


class Logger(Callback, ABC):
    """Base class of loggers. If one fails during training, the run goes on without it, with a warning.

    Attributes:
        package: that the logger needs; None if it needs no other package.

    Raises:
        ConfigError: the logger's package is not installed; the message has the pip command.
    """

    ends_run = False
    package: ClassVar[str | None] = None

    def __init__(self) -> None:
        name = self.package
        if name is not None and importlib.util.find_spec(name) is None:
            raise ConfigError(f"logger = {name!r} needs {name}: pip install 'parl-rl[{name}]'")

    @abstractmethod
    def log(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Logs numbers by name, which are those after ``env_steps`` transitions."""

    def on_record(self, record: Record, /) -> None:
        """Logs a record in the group ``train/``."""
        metrics = {"updates": record.updates, "wall_time_s": record.wall_time_s, **record.metrics}
        self.log(record.env_steps, {f"train/{name}": value for name, value in metrics.items()})

    def on_evaluation(self, evaluation: Evaluation, /) -> None:
        """Logs an evaluation in the group ``evaluation/``."""
        values = {
            "evaluation/mean_return": evaluation.mean_return,
            "evaluation/std_return": evaluation.std_return,
        }
        if evaluation.success_rate is not None:
            values["evaluation/success_rate"] = evaluation.success_rate
        self.log(evaluation.env_steps, values)


class TensorBoard(Logger):
    """Writes event files to the folder ``tensorboard`` of the run directory, with the settings as hparams.

    Records are flushed when they are logged, so that TensorBoard shows a run in progress.
    """

    package = "tensorboard"

    def on_start(self, run: RunInfo, /) -> None:
        """Opens the event file; TensorBoard hides events that a resumed run has after its checkpoint."""
        from torch.utils.tensorboard import SummaryWriter
        from torch.utils.tensorboard.summary import hparams

        folder = run.path / "tensorboard"
        # A run that ended before its first checkpoint has events too.
        purge_step = run.env_steps + 1 if folder.exists() else None
        writer: Any = SummaryWriter(str(folder), purge_step=purge_step)
        self._writer = writer
        values = {
            name: value if isinstance(value, bool | int | float | str) else str(value)
            for name, value in _settings(run).items()
        }
        for summary in hparams(values, {"evaluation/mean_return": 0.0, "train/episode_return": 0.0}):
            writer.file_writer.add_summary(summary)

    def log(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Writes and flushes scalars."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, env_steps)
        self._writer.flush()

    def on_end(self, result: Run, /) -> None:
        """Closes the event file."""
        self._writer.close()


class WandB(Logger):
    """Logs to Weights & Biases.

    Args:
        **options: for ``wandb.init``, such as ``project``, ``entity``, ``group``, ``tags`` or ``mode``. The
            default project is ``WANDB_PROJECT``, else ``"parl"``.
    """

    package = "wandb"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def on_start(self, run: RunInfo, /) -> None:
        """Starts a run, or continues the one with the same identifier."""
        import wandb

        options: dict[str, Any] = {
            "project": os.environ.get("WANDB_PROJECT", _PROJECT),
            "dir": str(run.path),
            "id": run.id,
            "name": run.path.name,
            "config": _settings(run),
            "allow_val_change": True,
            "resume": "allow" if run.env_steps else None,
            "reinit": "create_new",
        }
        self._run = wandb.init(**(options | self._options))
        self._run.define_metric("*", step_metric="env_steps")

    def log(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Sends metrics to the process of W&B, which uploads them."""
        self._run.log({"env_steps": env_steps, **metrics})

    def on_end(self, result: Run, /) -> None:
        """Finishes the run of W&B, as failed after an exception."""
        self._run.finish(exit_code=int(result.stopped == "error"))


class MLflow(Logger):
    """Logs to MLflow.

    Args:
        tracking_uri: store, such as ``sqlite:///mlflow.db`` or the address of a server. Default:
            ``MLFLOW_TRACKING_URI``, else MLflow's own default.
        experiment: name of the experiment, created if missing. Default: ``MLFLOW_EXPERIMENT_NAME``, else
            ``"parl"``.
    """

    package = "mlflow"
    _status: ClassVar = {"error": "FAILED", "interrupted": "KILLED"}

    def __init__(self, tracking_uri: str | None = None, experiment: str | None = None) -> None:
        super().__init__()
        self._uri = tracking_uri
        self._experiment = experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        self._pending: list[Any] = []

    def on_start(self, run: RunInfo, /) -> None:
        """Starts a run, or continues the one that has the run's identifier as the tag ``parl_run``."""
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client: Any = MlflowClient(self._uri)
        found = self._client.get_experiment_by_name(self._experiment)
        experiment = found.experiment_id if found else self._client.create_experiment(self._experiment)
        runs = self._client.search_runs([experiment], f"tags.parl_run = '{run.id}'")
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {"parl_run": run.id}
        self._id = self._client.create_run(experiment, tags=tags, run_name=run.path.name).info.run_id
        values = {name: str(value) for name, value in _settings(run).items()}
        self._client.log_batch(self._id, params=[Param(name, value) for name, value in values.items()])

    def log(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Adds metrics to the queue of MLflow's writing thread; raises what has failed in the queue."""
        from mlflow.entities import Metric

        ended = [one for one in self._pending if all(each.done() for each in one._operation_futures)]
        self._pending = [one for one in self._pending if one not in ended]
        for operation in ended:
            operation.wait()
        now = int(time.time() * 1000)
        values = [Metric(name, float(value), now, env_steps) for name, value in metrics.items()]
        self._pending.append(self._client.log_batch(self._id, metrics=values, synchronous=False))

    def on_end(self, result: Run, /) -> None:
        """Waits for the queue, warns of what failed in it, and ends the run of MLflow."""
        try:
            for operation in self._pending:
                operation.wait()
        except Exception as error:  # of MLflow, its store or the network; the run itself has ended
            warnings.warn(f"MLflow lacks metrics: {type(error).__name__}: {error}", stacklevel=2)
        finally:
            self._client.set_terminated(self._id, self._status.get(result.stopped, "FINISHED"))


class Trackio(Logger):
    """Logs to Trackio.

    Args:
        **options: for ``trackio.init``, such as ``project`` or ``space_id``. The default project is
            ``"parl"``.
    """

    package = "trackio"

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self._options = options

    def on_start(self, run: RunInfo, /) -> None:
        """Starts or continues the run whose name has the run directory's name and the run's identifier."""
        import trackio

        options: dict[str, Any] = {
            "project": _PROJECT,
            "name": f"{run.path.name}-{run.id[:8]}",
            "config": _settings(run),
            "resume": "allow",
            "embed": False,
        }
        self._run = trackio.init(**(options | self._options))

    def log(self, env_steps: int, metrics: Mapping[str, float]) -> None:
        """Adds metrics to the queue of Trackio's writing thread."""
        self._run.log(dict(metrics), step=env_steps)

    def on_end(self, result: Run, /) -> None:
        """Finishes the run of Trackio."""
        self._run.finish()


_CLASSES = {kind.package: kind for kind in (TensorBoard, WandB, MLflow, Trackio)}


def make_loggers(names: Sequence[str]) -> list[Logger]:
    """The loggers with these names.

    Raises:
        ConfigError: the package of a logger is not installed.
    """
    return [_CLASSES[name]() for name in names]
