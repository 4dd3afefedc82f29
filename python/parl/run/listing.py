"""Lists runs: algorithm, environment, score, steps, time and state of each run directory in a folder."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from parl._system import lock
from parl.errors import ParlError
from parl.run.directory import RunDirectory
from parl.run.metrics import read_metrics

Key = TypeVar("Key", bound=Hashable)
State = Literal["running", "ended", "interrupted", "damaged"]
_DESCENDING = ("score", "steps", "time", "created")
WITHOUT_EFFECT = ("name", "runs", "quiet", "verbose", "logger")
"""Settings of a run without effect on what it learns."""


@dataclass(frozen=True)
class ListedRun:
    """What a list of runs shows.

    Attributes:
        path: the run directory.
        algorithm: name of the algorithm; empty if the run is damaged, as are the following.
        env: id of the environment, or name of the function that makes it.
        seed: seed of the run.
        score: mean return of the last evaluation; None without one.
        episode_return: mean return of the last episodes in training; None if none has ended.
        steps: transitions collected.
        time_s: seconds of training, all resumes included.
        state: ``"running"``, ``"ended"`` (by total_steps or stop_at_return), ``"interrupted"`` (also by an
            error), or ``"damaged"`` (a file is missing or cannot be read).
        created: date and time of its start, ISO 8601.
    """

    path: Path
    algorithm: str = ""
    env: str = ""
    seed: int | None = None
    score: float | None = None
    episode_return: float | None = None
    steps: int = 0
    time_s: float | None = None
    state: State = "damaged"
    created: str = ""

    @property
    def name(self) -> str:
        """Name of the run directory."""
        return self.path.name

    def record(self) -> dict[str, Any]:
        """The attributes as plain data for JSON."""
        return dataclasses.asdict(self) | {"path": str(self.path)}


def reason_of_end(counters: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Why a run ended with a checkpoint; None if the checkpoint is not its end.

    Args:
        counters: content of the checkpoint's ``counters.json``.
        settings: settings of the run.
    """
    score = counters.get("score")
    if score is None:
        return None
    goal, confirmed = settings.get("stop_at_return"), score.get("confirmed")
    if goal is not None and confirmed is not None and confirmed >= goal:
        return "stop_at_return"
    return "total_steps" if counters["env_steps"] >= settings["total_steps"] else None


def compared_settings(run: RunDirectory) -> dict[str, Any]:
    """The settings by which a run is compared with others: its seed, and those with an effect on learning.

    A run that was resumed has the ``total_steps`` and ``stop_at_return`` of its last part. Functions without
    an import path are among them by name and digest; of runs of older versions, whether networks have any.
    """
    settings = dict(run.config.get("run", {}))
    about = run.about
    older = {"network": "pickled"} if "network.pkl" in about.get("files", {}) else {}
    settings |= about.get("functions", older)
    try:
        folder = run.checkpoints.verified("last", only=["counters.json"])
        counters = json.loads((folder / "counters.json").read_text(encoding="utf-8"))
    except (ParlError, OSError):  # Settings and metrics are enough to compare runs.
        counters = {}
    with contextlib.suppress(ParlError):
        settings |= run.limits(counters)
    return {
        name: value for name, value in settings.items() if value is not None and name not in WITHOUT_EFFECT
    }


def compared_keys(
    runs: Sequence[RunDirectory], key: Callable[[RunDirectory, dict[str, Any]], Key]
) -> list[Key]:
    """The keys of runs, which are equal if the runs differ in none of their compared settings.

    Numbers that ``auto`` chose count as ``auto``: they can differ from seed to seed. A run in which the same
    numbers were given, such as one trained again from a ``config.toml``, has the key of that with ``auto``.

    Args:
        runs: the runs.
        key: makes a key from a run and from a copy of its :func:`compared_settings`.
    """
    exact = [key(run, compared_settings(run)) for run in runs]
    asked: dict[Key, Key] = {}
    for run, mine in zip(runs, exact, strict=True):
        if auto := run.about.get("auto"):
            asked[mine] = key(run, compared_settings(run) | dict.fromkeys(auto, "auto"))
    return [asked.get(mine, mine) for mine in exact]


def list_runs(folder: str | Path, sort: str = "name") -> list[ListedRun]:
    """The runs whose directories are in a folder.

    Args:
        folder: the folder.
        sort: ``name``, ``algorithm``, ``env``, ``state``: ascending; ``score``, ``steps``, ``time``,
            ``created``: descending, runs without the value last.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"there is no folder {folder}")
    found = sorted((listed(path.parent) for path in folder.glob("*/config.toml")), key=lambda one: one.name)
    key = "time_s" if sort == "time" else sort
    if sort not in _DESCENDING:
        return sorted(found, key=lambda one: str(getattr(one, key)))
    having = [one for one in found if getattr(one, key) is not None]
    having.sort(key=lambda one: getattr(one, key), reverse=True)
    return having + [one for one in found if getattr(one, key) is None]


def listed(path: str | Path) -> ListedRun:
    """Describes the run at ``path``; damaged files give the state ``"damaged"``."""
    run = RunDirectory(Path(path))
    try:
        config, about = run.config, run.about
        settings = config["run"]
        records = read_metrics(run.path) if run.metrics.exists() else []
        return ListedRun(
            path=run.path,
            algorithm=config["algorithm"],
            env=settings["env"],
            seed=settings["seed"],
            score=_last(records, "evaluation_return"),
            episode_return=_last(records, "episode_return"),
            steps=_last(records, "env_steps") or 0,
            time_s=_last(records, "wall_time_s"),
            state=_state(run, settings),
            created=about["created"],
        )
    except (ParlError, OSError, KeyError, TypeError, AttributeError):
        return ListedRun(run.path)


def _last(records: list[dict[str, Any]], key: str) -> Any:
    return next((record[key] for record in reversed(records) if record.get(key) is not None), None)


def _state(run: RunDirectory, settings: Mapping[str, Any]) -> State:
    if _is_locked(run.path / "lock"):
        return "running"
    try:
        folder = run.checkpoints.verified("last", only=["counters.json"])
    except FileNotFoundError:
        return "interrupted"  # before the first checkpoint
    counters = json.loads((folder / "counters.json").read_text(encoding="utf-8"))
    settings = {**settings, **run.limits(counters)}
    without = not settings["evaluation_episodes"] and counters["env_steps"] >= settings["total_steps"]
    return "ended" if without or reason_of_end(counters, settings) else "interrupted"


def _is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a run, which it does as long as it trains."""
    try:
        with path.open("rb") as file:
            lock(file.fileno(), shared=True)
    except BlockingIOError:
        return True
    except OSError:  # no lock file, or a file system without locks
        return False
    return False
