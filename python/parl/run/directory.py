"""One run, one directory.

::

    runs/dqn-CartPole-v1-0/
      run.json             identifier, checksums of the settings, command line, versions, machine, start time,
                           settings of an Atari environment
      config.toml          every setting, resolved
      env.pkl              the environment, where it is a function; see :mod:`parl.pickles`
      lock                 held by the process that trains, whose number is in it
      metrics.jsonl        one JSON object a line
      tensorboard/         event files, where tensorboard is installed
      checkpoints/         index.json names the last and the best
        step-000000050000/ the parts, and manifest.json with the size and checksum of each
      plots/  videos/

Files appear whole or not at all: they are written under another name, flushed to the disk and renamed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import math
import os
import platform
import re
import shutil
import sys
import tempfile
import time
import uuid
import warnings
from collections.abc import Generator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from parl.errors import ConfigError, RunDirectoryError
from parl.run.config import dump_toml, load_toml
from parl.run.integrity import (
    FORMAT,
    check_file,
    describe,
    digest,
    sealed,
    sync_directory,
    unsealed,
    write_atomically,
)

_VERSIONED = ("parl-rl", "numpy", "torch", "gymnasium", "ale-py")
# Step, and which one where several checkpoints are of the same step.
_STEP = re.compile(r"step-(\d{12})(?:-(\d{1,9}))?")
_MANIFEST = "manifest.json"
# How long a lock may outlive the process that took it: its workers hold it until the kernel has ended them.
_LOCK_GRACE_S = 5.0


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

    @classmethod
    def create(
        cls,
        root: str | Path,
        name: str,
        config: Mapping[str, Any],
        command: Sequence[str] | None = None,
        environment: Mapping[str, Any] | None = None,
        files: Mapping[str, bytes] | None = None,
    ) -> RunDirectory:
        """A new directory ``root/name``, or ``root/name-2`` and so on where that is taken.

        Args:
            root: folder that holds runs; made if missing.
            name: wanted name of the run; characters outside ``[A-Za-z0-9._-]`` become ``-``.
            config: all settings, resolved; kept as ``config.toml``.
            command: the command line; that of this process if None.
            environment: what is known of the environment beyond its name.
            files: more files that belong to the settings, by name.

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
        for file, data in {"config.toml": dump_toml(config).encode(), **(files or {})}.items():
            write_atomically(path / file, data)
        about = {
            "format": FORMAT,
            "id": uuid.uuid4().hex,
            "files": describe(path),
            "command": list(command if command is not None else sys.argv),
            "created": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "versions": _versions(),
            "machine": {"platform": platform.platform(), "cores": os.cpu_count(), "numpy": np.__version__},
        } | ({"environment": dict(environment)} if environment else {})
        # The last of them: with it the directory is complete.
        write_atomically(path / "run.json", sealed(about))
        sync_directory(path.parent)
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
    def about(self) -> dict[str, Any]:
        """What ``run.json`` holds.

        Raises:
            RunDirectoryError: it is missing, damaged or of another version of parl.
        """
        try:
            return unsealed(self.path / "run.json")
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"{self.path} has no run.json: it was lost, or the process ended while it made the directory"
            ) from error

    @functools.cached_property
    def id(self) -> str:
        """The run's identifier, which every checkpoint of it carries."""
        return str(self.about["id"])

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the run, or of its first process under torchrun."""
        return Checkpoints(self.path / "checkpoints", self.id)

    def checkpoints_of(self, rank: int) -> Checkpoints:
        """The checkpoints of a process of torchrun."""
        return self.checkpoints if rank == 0 else Checkpoints(self.path / f"rank-{rank}", self.id)

    def verify(self) -> None:
        """Compares the settings with the checksums that were taken when the run began.

        Raises:
            RunDirectoryError: a file is missing, damaged or was edited, or is of another version of parl.
        """
        files = self.about["files"]
        for name in sorted({"config.toml", "env.pkl"} & {place.name for place in self.path.iterdir()}):
            if name not in files:
                raise RunDirectoryError(f"{self.path / name} was not there when the run began")
        for name, wanted in files.items():
            try:
                check_file(self.path / name, wanted)
            except RunDirectoryError as error:
                if name != "config.toml":
                    raise
                hint = "settings that may change are options of resume, such as total_frames"
                raise RunDirectoryError(f"{error}; {hint}") from error

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Keeps other processes from training in this directory until the block ends.

        Raises:
            RunDirectoryError: another process does; the message has its number.
        """
        path = self.path / "lock"
        with open(
            os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="utf-8", errors="replace"
        ) as file:
            end = time.monotonic() + _LOCK_GRACE_S
            while not _take_lock(file.fileno(), path):
                file.seek(0)
                holder = file.read().strip()
                if _is_alive(holder) or time.monotonic() >= end:
                    raise RunDirectoryError(
                        f"{self.path} is in use: process {holder or 'unknown'} trains in it. "
                        "Wait until it has ended, or end it"
                    )
                time.sleep(0.05)
            file.seek(0)
            file.truncate()
            file.write(f"{os.getpid()}\n")
            file.flush()
            try:
                yield
            finally:
                file.truncate(0)
                # Of workers too that were forked meanwhile.
                with contextlib.suppress(OSError):
                    fcntl.flock(file.fileno(), fcntl.LOCK_UN)

    @property
    def metrics(self) -> Path:
        """The file of metrics, one JSON object a line."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> dict[str, Any]:
        """The settings kept in ``config.toml``."""
        return load_toml(self.path / "config.toml")

    def folder(self, name: str) -> Path:
        """The sub-folder ``name`` (``plots``, ``videos``, ``tensorboard``), made if missing."""
        place = self.path / name
        place.mkdir(exist_ok=True)
        return place


def _take_lock(descriptor: int, path: Path) -> bool:
    """Whether the exclusive lock of an open file was free; a file system without locks only warns."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
            raise
        warnings.warn(
            f"{path} cannot be locked ({error.strerror}): do not train in it with two processes", stacklevel=4
        )
    return True


def _is_alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


class Checkpoints:
    """The checkpoints of a run: folders named by step, of which the last and the best are kept.

    ``index.json`` names them. It is replaced once a checkpoint is complete and on the disk, and what it does
    not name is removed after that: at every moment it names whole checkpoints only.

    Args:
        path: the folder that holds them; made when the first is written.
        run_id: identifier of the run.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self._run_id = run_id

    def _index(self) -> dict[str, Any] | None:
        """The index, None before the first checkpoint is complete."""
        path = self.path / "index.json"
        try:
            index = unsealed(path)
        except FileNotFoundError:
            return None
        self._check_run(path, index)
        return index

    def _check_run(self, path: Path, content: Mapping[str, Any]) -> None:
        if content.get("run") != self._run_id:
            raise RunDirectoryError(
                f"{path} belongs to another run ({content.get('run')!r}, not {self._run_id!r})"
            )

    @contextlib.contextmanager
    def write(self, step: int, score: float | None = None) -> Generator[Path]:
        """A folder to write the checkpoint of ``step`` into; it becomes the last one when the block ends.

        If the block raises, nothing changes. The former last checkpoint is removed unless it is the best.

        Args:
            step: environment steps so far, ``>= 0``.
            score: evaluation mean; the checkpoint becomes the best one if none was higher.

        Raises:
            RunDirectoryError: ``index.json`` is damaged.
        """
        if step < 0:
            raise ConfigError(f"checkpoint step {step} is below 0")
        self.path.mkdir(parents=True, exist_ok=True)
        index = self._index() or {"format": FORMAT, "run": self._run_id}
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=self.path))
        try:
            yield temporary
            manifest = sealed({"format": FORMAT, "run": self._run_id, "files": describe(temporary)}).encode()
            (temporary / _MANIFEST).write_bytes(manifest)
            _sync_tree(temporary)
            # A fresh name: the index goes on naming whole checkpoints until it is replaced.
            final = self._fresh(step)
            temporary.replace(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_directory(self.path)
        entry = {"folder": final.name, "manifest": digest(manifest)}
        index["last"] = entry
        if score is not None and _beats(score, index.get("best_score")):
            index |= {"best": entry, "best_score": score}
        write_atomically(self.path / "index.json", sealed(index))
        self._sweep({index[which]["folder"] for which in ("last", "best") if which in index})

    def _fresh(self, step: int) -> Path:
        number, place = 1, self.path / f"step-{step:012d}"
        while place.exists():
            number += 1
            place = self.path / f"step-{step:012d}-{number}"
        return place

    def _sweep(self, kept: set[str]) -> None:
        for place in self.path.iterdir():
            if place.name in kept or place.name == "index.json":
                continue
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place, ignore_errors=True)
            else:
                place.unlink(missing_ok=True)

    def _named(self, which: str) -> tuple[Path, str | None]:
        """Folder and checksum of the manifest of the ``last`` or ``best`` checkpoint."""
        index = self._index()
        if index is None:
            # The index is written after the folder: a crash between the two leaves the first one unnamed.
            complete = [place for place in self.path.glob("step-*") if (place / _MANIFEST).is_file()]
            matches = [match for place in complete if (match := _STEP.fullmatch(place.name))]
            if not matches:
                raise FileNotFoundError(f"no checkpoint in {self.path}")
            newest = max(matches, key=lambda match: tuple(map(int, match.groups(default="1"))))
            return self.path / newest[0], None
        try:
            entry = index.get(which) or index["last"]
            name, manifest = str(entry["folder"]), str(entry["manifest"])
        except (KeyError, TypeError, AttributeError) as error:
            raise RunDirectoryError(f"{self.path / 'index.json'} names no {which} checkpoint") from error
        folder = self.path / name
        if not _STEP.fullmatch(name) or folder.is_symlink():
            raise RunDirectoryError(f"{self.path / 'index.json'} names {name!r}, no checkpoint of this run")
        if not folder.is_dir():
            raise RunDirectoryError(
                f"{self.path / 'index.json'} names {name} as the {which} checkpoint, "
                "but there is no such folder"
            )
        return folder, manifest

    def last(self) -> Path:
        """The newest checkpoint.

        Raises:
            FileNotFoundError: there is none.
            RunDirectoryError: the index is damaged, or names a checkpoint that is gone.
        """
        return self._named("last")[0]

    def best(self) -> Path:
        """The checkpoint of the highest evaluation, or the newest where none was evaluated.

        Raises:
            FileNotFoundError: there is none.
            RunDirectoryError: the index is damaged, or names a checkpoint that is gone.
        """
        return self._named("best")[0]

    def verified(self, which: str, only: Sequence[str] | None = None) -> Path:
        """The ``last`` or ``best`` checkpoint after its files were compared with its manifest.

        Args:
            which: ``"last"`` or ``"best"``.
            only: files to read in full; of the others only the sizes are compared. None: all.

        Raises:
            FileNotFoundError: there is none.
            RunDirectoryError: a file is missing, damaged, of another checkpoint or not in the manifest; or
                the index is damaged or names a checkpoint that is gone.
        """
        while True:
            before = self._index()
            folder, manifest = self._named(which)
            try:
                self._verify(folder, manifest, only)
                return folder
            except RunDirectoryError:
                # A run that goes on meanwhile replaces its checkpoints.
                if self._index() == before:
                    raise

    def _verify(self, folder: Path, wanted: str | None, only: Sequence[str] | None) -> None:
        path = folder / _MANIFEST
        try:
            manifest = unsealed(path)
            if wanted is not None and digest(path.read_bytes()) != wanted:
                raise RunDirectoryError(f"{path} is not the one that index.json names")
            names = {place.name for place in folder.iterdir()}
        except FileNotFoundError as error:
            raise RunDirectoryError(f"{path} is missing") from error
        self._check_run(path, manifest)
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise RunDirectoryError(f"{path} lists no files")
        for name in sorted(names - {*files, _MANIFEST}):
            raise RunDirectoryError(f"{folder / name} is not in {path}")
        for name, content in files.items():
            check_file(folder / name, content, only is None or name in only)
