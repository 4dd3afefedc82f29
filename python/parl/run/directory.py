"""Run directories: the files of one run, and its checkpoints.

::

    runs/dqn-CartPole-v1-0/
      run.json             identifier, checksums of the settings, command line, versions, machine, start time,
                           settings of an Atari environment, names of settings whose numbers auto chose,
                           names and digests of functions without an import path, settings that are None
                           although their default is not
      config.toml          every setting, resolved
      env.pkl              the environment, if it is a function; see :mod:`parl.pickles`
      network.pkl          functions that make torso or network, if they have no import path
      start_states.npz     console states of another run's policy, with the setting start_states
      limits.json          total_steps and stop_at_return of the last resume
      lock                 locked by the training process; contains its process id
      metrics.jsonl        one JSON object per line
      tensorboard/         event files of the logger tensorboard
      checkpoints/         index.json names the last and the best
        step-000000050000/ files of a checkpoint, and manifest.json with the size and checksum of each
      plots/  videos/

Files are written atomically: under another name, flushed to the disk, and then renamed.
"""

from __future__ import annotations

import contextlib
import errno
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

from parl._system import lock, process_exists, sync_file, sync_folder, unlock, write_atomically
from parl.errors import ConfigError, RunDirectoryError
from parl.run.config import dump_toml, load_toml
from parl.run.integrity import (
    FORMAT,
    check_file,
    describe,
    digest,
    read_checked,
    with_checksum,
)

_VERSIONED = ("parl-rl", "numpy", "torch", "gymnasium", "ale-py")
# Step, and a number if several checkpoints have the same step.
_STEP = re.compile(r"step-(\d{12})(?:-(\d{1,9}))?")
HUB = "hf://"
"""How addresses of policies on the Hugging Face Hub begin, which can be given in place of a run directory."""
_MANIFEST = "manifest.json"
_LIMITS = "limits.json"
# How long a lock may be held after its process has ended: worker processes hold it until they have ended too.
_LOCK_GRACE_S = 5.0


def _sync_tree(folder: Path) -> None:
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            sync_folder(path)
        else:
            sync_file(path)


def _versions() -> dict[str, str]:
    found: dict[str, str] = {"python": platform.python_version()}
    for name in _VERSIONED:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _is_best(score: float, best: float | None) -> bool:
    """Whether a checkpoint with ``score`` replaces the best one; a score of NaN counts as the lowest."""
    return math.isfinite(score) and (best is None or not math.isfinite(best) or score >= best)


def is_on_hub(source: str | Path) -> bool:
    """Returns whether ``source`` is the address of a policy on the Hugging Face Hub."""
    return str(source).startswith(HUB)


class RunDirectory:
    """The directory of one run; made by :meth:`create` or :meth:`open`.

    Attributes:
        path: path of the directory.
    """

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
        auto: Sequence[str] = (),
        functions: Mapping[str, str] | None = None,
        cleared: Mapping[str, Sequence[str]] | None = None,
    ) -> RunDirectory:
        """Creates the directory ``root/name``, or ``root/name-2`` and so on if it exists.

        Args:
            root: folder of runs; created if missing.
            name: name of the run; characters outside ``[A-Za-z0-9._-]`` become ``-``.
            config: all settings, resolved, which are written to ``config.toml``.
            command: the command line; None for that of this process.
            environment: settings of the environment, for ``run.json``.
            files: further files that belong to the settings, name -> content.
            auto: settings that were ``auto``, for ``run.json``; ``config`` has the numbers in their place.
            functions: setting -> name and digest of a function that ``config`` does not describe, for
                ``run.json``.
            cleared: table of ``config`` -> names of settings that are None although their default is not,
                for ``run.json``.

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
            "auto": list(auto),
            "functions": dict(functions or {}),
            "cleared": dict(cleared or {}),
        } | ({"environment": dict(environment)} if environment else {})
        # Written last, because it marks the directory as complete.
        write_atomically(path / "run.json", with_checksum(about))
        sync_folder(path.parent)
        return run

    @classmethod
    def open(cls, path: str | Path) -> RunDirectory:
        """Opens an existing run directory.

        Raises:
            FileNotFoundError: there is no such folder.
            RunDirectoryError: the folder is not a run directory.
        """
        path = Path(path)
        if not path.is_dir():
            raise FileNotFoundError(f"no run directory at {path}")
        if not (path / "config.toml").is_file():
            raise RunDirectoryError(f"{path} is not a run directory: it has no config.toml")
        return cls(path)

    @property
    def about(self) -> dict[str, Any]:
        """The content of ``run.json``.

        Raises:
            RunDirectoryError: it is missing, damaged or was written by another version of parl.
        """
        try:
            return read_checked(self.path / "run.json")
        except FileNotFoundError as error:
            raise RunDirectoryError(
                f"{self.path} has no run.json: it was removed, or the process ended while creating the "
                "directory"
            ) from error

    @functools.cached_property
    def id(self) -> str:
        """Identifier of the run, which its checkpoints contain."""
        return str(self.about["id"])

    def limits(self, counters: Mapping[str, Any]) -> dict[str, Any]:
        """``total_steps`` and ``stop_at_return`` of the last resume, which may have no checkpoint yet.

        Args:
            counters: of the last checkpoint; of a run without resumes its limits are returned.

        Raises:
            RunDirectoryError: the file is damaged, or of another run or version of parl.
        """
        path = self.path / _LIMITS
        try:
            content = read_checked(path)
        except FileNotFoundError:
            return dict(counters.get("limits", {}))
        self.checkpoints.check_run(path, content)
        return dict(content["limits"])

    def write_limits(self, limits: Mapping[str, Any]) -> None:
        """Keeps the :meth:`limits` of a resume, also if it is killed before its first checkpoint."""
        content = {"format": FORMAT, "run": self.id, "limits": dict(limits)}
        write_atomically(self.path / _LIMITS, with_checksum(content))

    @functools.cached_property
    def checkpoints(self) -> Checkpoints:
        """Checkpoints of the run, or of its process of rank 0 under torchrun."""
        return Checkpoints(self.path / "checkpoints", self.id)

    def checkpoints_of(self, rank: int) -> Checkpoints:
        """Checkpoints of the process of this rank under torchrun."""
        return self.checkpoints if rank == 0 else Checkpoints(self.path / f"rank-{rank}", self.id)

    def verify(self) -> None:
        """Verifies the files of settings against the checksums from the start of the run.

        Raises:
            RunDirectoryError: a file is missing, damaged or was edited, or is from another version of parl.
        """
        files = self.about["files"]
        for name in sorted(
            {"config.toml", "env.pkl", "network.pkl", "start_states.npz"}
            & {path.name for path in self.path.iterdir()}
        ):
            if name not in files:
                raise RunDirectoryError(f"{self.path / name} was added after the start of the run: remove it")
        for name, expected in files.items():
            try:
                check_file(self.path / name, expected)
            except RunDirectoryError as error:
                if name != "config.toml":
                    raise
                hint = "to change a setting, pass it to resume, such as total_steps"
                raise RunDirectoryError(f"{error}; {hint}") from error

    @contextlib.contextmanager
    def lock(self) -> Generator[None]:
        """Context in which no other process can train in this directory.

        Raises:
            RunDirectoryError: another process trains in it; the message has its process id.
        """
        path = self.path / "lock"
        with open(
            os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+", encoding="utf-8", errors="replace"
        ) as file:
            end = time.monotonic() + _LOCK_GRACE_S
            while not _try_lock(file.fileno(), path):
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
                # Also unlocks the copies of the descriptor in forked workers.
                with contextlib.suppress(OSError):
                    unlock(file.fileno())

    @property
    def metrics(self) -> Path:
        """Path of the metrics file, which has one JSON object per line."""
        return self.path / "metrics.jsonl"

    @property
    def config(self) -> dict[str, Any]:
        """The settings in ``config.toml``."""
        return load_toml(self.path / "config.toml")

    def folder(self, name: str) -> Path:
        """Path of a subfolder (``plots``, ``videos``, ``tensorboard``), which is created if missing."""
        path = self.path / name
        path.mkdir(exist_ok=True)
        return path


def _try_lock(descriptor: int, path: Path) -> bool:
    """Tries to lock an open file exclusively; True with a warning on a file system without locks."""
    try:
        lock(descriptor)
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
        return process_exists(int(pid))
    except (ValueError, OverflowError):
        return False


class Checkpoints:
    """The checkpoints of a run, in folders named by step; the last and the best one are kept.

    ``index.json`` names both. It is replaced after a new checkpoint is complete and on the disk, and older
    checkpoints are removed after that, so that it always names complete checkpoints.

    Args:
        path: folder of the checkpoints; created with the first one.
        run_id: identifier of the run.
    """

    def __init__(self, path: Path, run_id: str) -> None:
        self.path = path
        self._run_id = run_id

    def _index(self) -> dict[str, Any] | None:
        """Content of ``index.json``; None before the first checkpoint is complete."""
        path = self.path / "index.json"
        try:
            index = read_checked(path)
        except FileNotFoundError:
            return None
        self.check_run(path, index)
        return index

    def check_run(self, path: Path, content: Mapping[str, Any]) -> None:
        """Checks that ``content``, read from ``path``, is of this run.

        Raises:
            RunDirectoryError: it is of another one.
        """
        if content.get("run") != self._run_id:
            raise RunDirectoryError(
                f"{path} belongs to another run ({content.get('run')!r}, not {self._run_id!r})"
            )

    @contextlib.contextmanager
    def write(self, step: int, score: float | None = None) -> Generator[Path]:
        """Context that writes a checkpoint into the folder that it returns.

        At its end the checkpoint becomes the last one, and the previous last one is removed unless it is the
        best one. If the context raises, nothing changes.

        Args:
            step: environment steps so far, ``>= 0``.
            score: mean return of an evaluation; the checkpoint becomes the best one if no score was higher.

        Raises:
            ConfigError: ``step`` is negative.
            RunDirectoryError: ``index.json`` is damaged.
        """
        if step < 0:
            raise ConfigError(f"step of the checkpoint is {step}, expected at least 0")
        self.path.mkdir(parents=True, exist_ok=True)
        index = self._index() or {"format": FORMAT, "run": self._run_id}
        temporary = Path(tempfile.mkdtemp(prefix=".writing-", dir=self.path))
        try:
            yield temporary
            manifest = with_checksum(
                {"format": FORMAT, "run": self._run_id, "files": describe(temporary)}
            ).encode()
            (temporary / _MANIFEST).write_bytes(manifest)
            _sync_tree(temporary)
            # A new name, so that the index names complete checkpoints until it is replaced.
            final = self._new_folder(step)
            temporary.replace(final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(self.path)
        entry = {"folder": final.name, "manifest": digest(manifest)}
        index["last"] = entry
        if score is not None and _is_best(score, index.get("best_score")):
            index |= {"best": entry, "best_score": score}
        write_atomically(self.path / "index.json", with_checksum(index))
        self._remove_others({index[which]["folder"] for which in ("last", "best") if which in index})

    def _new_folder(self, step: int) -> Path:
        number, path = 1, self.path / f"step-{step:012d}"
        while path.exists():
            number += 1
            path = self.path / f"step-{step:012d}-{number}"
        return path

    def _remove_others(self, kept: set[str]) -> None:
        for path in self.path.iterdir():
            if path.name in kept or path.name == "index.json":
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    def _named(self, which: str) -> tuple[Path, str | None]:
        """Folder and checksum of the manifest of the ``last`` or ``best`` checkpoint."""
        index = self._index()
        if index is None:
            # The index is written after the folder, so that a crash can leave a first checkpoint without one.
            complete = [path for path in self.path.glob("step-*") if (path / _MANIFEST).is_file()]
            matches = [match for path in complete if (match := _STEP.fullmatch(path.name))]
            if not matches:
                raise FileNotFoundError(f"there is no checkpoint in {self.path}")
            newest = max(matches, key=lambda match: tuple(map(int, match.groups(default="1"))))
            return self.path / newest[0], None
        try:
            entry = index.get(which) or index["last"]
            name, manifest = str(entry["folder"]), str(entry["manifest"])
        except (KeyError, TypeError, AttributeError) as error:
            raise RunDirectoryError(f"{self.path / 'index.json'} names no {which} checkpoint") from error
        folder = self.path / name
        if not _STEP.fullmatch(name) or folder.is_symlink():
            raise RunDirectoryError(
                f"{self.path / 'index.json'} names {name!r}, which is not a checkpoint of this run"
            )
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
            RunDirectoryError: the index is damaged, or names a checkpoint that does not exist.
        """
        return self._named("last")[0]

    def best(self) -> Path:
        """The checkpoint with the highest evaluation, or the newest one without evaluations.

        Raises:
            FileNotFoundError: there is none.
            RunDirectoryError: the index is damaged, or names a checkpoint that does not exist.
        """
        return self._named("best")[0]

    def verified(self, which: str, only: Sequence[str] | None = None) -> Path:
        """The ``last`` or ``best`` checkpoint, after its files are verified against its manifest.

        Args:
            which: ``"last"`` or ``"best"``.
            only: files whose checksum is verified; of other files only the size is. None: all files.

        Raises:
            FileNotFoundError: there is none.
            RunDirectoryError: a file is missing, damaged, of another checkpoint or not in the manifest; or
                the index is damaged or names a checkpoint that does not exist.
        """
        while True:
            before = self._index()
            try:
                folder, manifest = self._named(which)
                self._verify(folder, manifest, only)
                return folder
            except RunDirectoryError:
                # A run in progress may have replaced its checkpoints meanwhile.
                if self._index() == before:
                    raise

    def verify(self, folder: Path, only: Sequence[str] | None = None) -> None:
        """Verifies the files of the checkpoint in ``folder``; see :meth:`verified`."""
        self._verify(folder, None, only)

    def _verify(self, folder: Path, expected: str | None, only: Sequence[str] | None) -> None:
        path = folder / _MANIFEST
        try:
            manifest = read_checked(path)
            if expected is not None and digest(path.read_bytes()) != expected:
                raise RunDirectoryError(f"{path} does not have the checksum that index.json names")
            names = {entry.name for entry in folder.iterdir()}
        except FileNotFoundError as error:
            raise RunDirectoryError(f"{path} is missing") from error
        self.check_run(path, manifest)
        files = manifest.get("files")
        if not isinstance(files, dict):
            raise RunDirectoryError(f"{path} has no list of files")
        for name in sorted(names - {*files, _MANIFEST}):
            raise RunDirectoryError(f"{folder / name} is not listed in {path}")
        for name, content in files.items():
            check_file(folder / name, content, only is None or name in only)
