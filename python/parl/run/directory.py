"""One run, one directory.

::

    runs/dqn-CartPole-v1-0/
      config.toml          every setting, resolved
      run.json             command line, versions, machine, start time, settings of an Atari environment
      metrics.jsonl        one JSON object a line
      tensorboard/         event files, where tensorboard is installed
      checkpoints/         step-000000050000/, ...; index.json names the last and the best
      plots/  videos/

Files appear whole or not at all: they are written under another name, flushed to the disk and renamed.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from parl.errors import ConfigError, RunDirectoryError
from parl.run.config import dump_toml, load_toml

_VERSIONED = ("parl-rl", "numpy", "torch", "gymnasium", "ale-py")
_STEP = re.compile(r"step-(\d{12})")


def write_atomically(path: Path, text: str) -> None:
    """Replaces ``path`` by ``text`` so that a reader or a crash sees the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _sync_tree(folder: Path) -> None:
    for place in [folder, *folder.rglob("*")]:
        descriptor = os.open(place, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _versions() -> dict[str, str]:
    found: dict[str, str] = {"python": platform.python_version()}
    for name in _VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _beats(score: float, best: float | None) -> bool:
    """Whether a checkpoint of ``score`` takes the place of the best one; NaN never does, and never stays."""
    return math.isfinite(score) and (best is None or not math.isfinite(best) or score >= best)


class RunDirectory:
    """The files of one run. Make one with :meth:`create` or :meth:`open`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")

    @classmethod
    def create(
        cls,
        root: str | Path,
        name: str,
        config: Mapping[str, Any],
        command: Sequence[str] | None = None,
        environment: Mapping[str, Any] | None = None,
    ) -> RunDirectory:
        """A new directory ``root/name``, or ``root/name-2`` and so on where that is taken.

        Args:
            root: folder that holds runs; made if missing.
            name: wanted name of the run; characters outside ``[A-Za-z0-9._-]`` become ``-``.
            config: all settings, resolved; kept as ``config.toml``.
            command: the command line; that of this process if None.
            environment: what is known of the environment beyond its name.

        Raises:
            OSError: the folder cannot be written.
        """
        stem = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
        Path(root).mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            path = Path(root) / (stem if number == 1 else f"{stem}-{number}")
            try:
                path.mkdir()
                break
            except FileExistsError:
                number += 1
        run = cls(path)
        run.write_config(config)
        about = {
            "command": list(command if command is not None else sys.argv),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": _versions(),
            "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "numpy": np.__version__},
        } | ({"environment": dict(environment)} if environment else {})
        write_atomically(path / "run.json", json.dumps(about, indent=2) + "\n")
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """The existing run at ``path``.

        Raises:
            FileNotFoundError: there is no such folder.
            RunDirectoryError: the folder holds no run.
        """
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"no run directory at {path}")
        if not (path / "config.toml").is_file():
            raise RunDirectoryError(f"{path} is no run directory: it has no config.toml")
        return cls(path)

    @property
    def metrics(self) -> Path:
        """The file of metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> dict[str, Any]:
        """The settings kept in ``config.toml``."""
        return load_toml(self.path / "config.toml")

    def write_config(self, config: Mapping[str, Any]) -> None:
        """Replaces ``config.toml``."""
        write_atomically(self.path / "config.toml", dump_toml(config))

    def folder(self, name: str) -> Path:
        """The sub-folder ``name`` (``plots``, ``videos``, ``tensorboard``), made if missing."""
        place = self.path / name
        place.mkdir(exist_ok=True)
        return place


class Checkpoints:
    """The checkpoints of a run: folders named by step, of which the last and the best are kept."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def _index(self) -> dict[str, Any]:
        try:
            return json.loads((self.path / "index.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        except json.JSONDecodeError as error:
            raise RunDirectoryError(f"{self.path / 'index.json'} is damaged: {error}") from error

    @contextlib.contextmanager
    def write(self, step: int, score: float | None = None) -> Generator[Path]:
        """A folder to write the checkpoint of ``step`` into; it becomes the last one when the block ends.

        If the block raises, nothing changes. The former last checkpoint is removed unless it is the best.

        Args:
            step: environment steps so far, ``>= 0``.
            score: evaluation mean; the checkpoint becomes the best one if none was higher.
        """
        if step < 0:
            raise ConfigError(f"checkpoint step {step} is below 0")
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=self.path))
        try:
            yield temporary
            _sync_tree(temporary)
            final = self.path / f"step-{step:012d}"
            if final.exists():
                # The same step again (a resumed run): the older one leaves only when the new one is complete.
                old = Path(tempfile.mkdtemp(prefix=".old-", dir=self.path))
                final.replace(old / "checkpoint")
                temporary.replace(final)
                shutil.rmtree(old, ignore_errors=True)
            else:
                temporary.replace(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        index = self._index()
        index["last"] = final.name
        if score is not None and _beats(score, index.get("best_score")):
            index |= {"best": final.name, "best_score": score}
        write_atomically(self.path / "index.json", json.dumps(index))
        self._sweep({index["last"], index.get("best")})

    def _sweep(self, kept: set[str | None]) -> None:
        for place in self.path.iterdir():
            if place.is_dir() and place.name not in kept:
                shutil.rmtree(place, ignore_errors=True)

    def _named(self, which: str) -> Path:
        name = self._index().get(which)
        if name is not None and (self.path / name).is_dir():
            return self.path / name
        # The index is written after the folder: a crash between the two leaves the newest folder unnamed.
        complete = sorted(place for place in self.path.glob("step-*") if _STEP.fullmatch(place.name))
        if not complete:
            raise FileNotFoundError(f"no checkpoint in {self.path}")
        return complete[-1]

    def last(self) -> Path:
        """The newest checkpoint.

        Raises:
            FileNotFoundError: there is none.
        """
        return self._named("last")

    def best(self) -> Path:
        """The checkpoint of the highest evaluation, or the newest where none was evaluated.

        Raises:
            FileNotFoundError: there is none.
        """
        return self._named("best" if "best" in self._index() else "last")
