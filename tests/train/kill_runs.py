"""Kills runs between file operations and at random moments, resumes them, and counts lost runs.

usage: python tests/train/kill_runs.py [--kills 200] [--seed 0]

A run is lost if `resume` refuses it, if it resumes from before the last complete checkpoint, or if a
deterministic run ends with other weights than one that was not killed. Every second kill comes right before
a file operation in the run's directory (files opened, renamed, removed, `fsync`), the others at random
moments. Runs are forks of this process, which has imported everything, so they start at once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "run"))

import torch
from file_operations import FileOperations

from children import in_child
from parl.errors import RunDirectoryError
from parl.run import RunDirectory
from parl.train import resume, train
from saved_learners import weights_of

_COMMON = {"env": "CartPole-v1", "num_envs": 2, "hidden": (8,), "evaluation_episodes": 1, "quiet": True}
_REPLAY = {"learning_starts": 50, "batch_size": 8, "replay_capacity": 500, "replay_ratio": 1.0}
RUNS = {
    "dqn": (
        "dqn",
        _COMMON | _REPLAY | {"schedule": "deterministic", "prefetch": 1, "actors": 1, "learners": 1},
    ),
    "ppo": ("ppo", _COMMON | {"rollout_steps": 16, "minibatch_size": 16, "epochs": 1}),
    "async dqn": ("dqn", _COMMON | _REPLAY | {"schedule": "async", "actors": 2, "learners": 1}),
}
_TOTAL_STEPS, _EVERY = 480, 96


def _train(kind: str, folder: Path, name: str) -> None:
    algorithm, options = RUNS[kind]
    train(
        algorithm, **options, total_steps=_TOTAL_STEPS, checkpoint_every=_EVERY, runs=str(folder), name=name
    )


def _save_last_again(path: Path) -> None:
    """Saves the last checkpoint once more, at the same step."""
    run = RunDirectory.open(path)
    with run.lock():
        last = run.checkpoints.verified("last")
        with run.checkpoints.write(int(last.name[5:17])) as folder:
            for file in last.iterdir():
                if file.name != "manifest.json":
                    shutil.copy(file, folder / file.name)


def _steps_of(path: Path) -> int:
    """Environment steps of the last checkpoint; 0 if there is none yet."""
    try:
        last = RunDirectory.open(path).checkpoints.verified("last")
    except FileNotFoundError:
        return 0
    return int(json.loads((last / "counters.json").read_text())["env_steps"])


class Kills:
    """Kills runs, and counts kills and lost runs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.rng = folder, random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.lost: list[str] = []
        self._number = 0
        self._next: Counter[str] = Counter()
        self._seconds: dict[str, float] = {}

    @property
    def kills(self) -> int:
        return self.counts["forced"] + self.counts["random"]

    def _uninterrupted_run(self, kind: str) -> Path:
        path = self.folder / f"whole-{kind.replace(' ', '-')}"
        if not path.exists():
            began = time.monotonic()
            assert in_child(lambda: _train(kind, self.folder, path.name)) == 0
            self._seconds[kind] = time.monotonic() - began
        return path

    def _child(self, kind: str, work: object, path: Path, what: str) -> bool:
        """Runs ``work`` in a child process and kills it; returns True if it ended before."""
        forced = self.kills % 2 == 0
        if forced:
            # For each kind of work, kills move through its file operations; larger strides reach late ones.
            self._next[f"{kind} {what}"] += 1 if what == "again" else self.rng.choice((1, 2, 5))
            fatal = self._next[f"{kind} {what}"]
        else:
            fatal = None

        def killed() -> None:
            steps = FileOperations(path, fatal)
            if not forced:
                seconds = self.rng.random() * self._seconds[kind]
                signal.signal(signal.SIGALRM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
                signal.setitimer(signal.ITIMER_REAL, max(seconds, 1e-3))
            work()  # type: ignore[operator]
            steps.is_on = False
            signal.setitimer(signal.ITIMER_REAL, 0)

        code = in_child(killed)
        if code == -signal.SIGKILL:
            self.counts["forced" if forced else "random"] += 1
            return False
        if code != 0:
            self.lost.append(f"{path.name}: {kind}: {what} ended with {code}")
        elif forced:
            self._next[f"{kind} {what}"] = 0
        return True

    def run(self, kind: str, until: int) -> None:
        """Trains one run from start to end, killing it several times."""
        whole = self._uninterrupted_run(kind)
        self._number += 1
        path = self.folder / f"run-{self._number}"
        what, work = "train", lambda: _train(kind, self.folder, path.name)
        before = 0
        while self.kills < until:
            ended = self._child(kind, work, path, what)
            if not (path / "run.json").exists():
                # Killed while the directory was made: nothing was trained, and `resume` must refuse it.
                with contextlib.suppress(FileNotFoundError, RunDirectoryError):
                    resume(path)
                    self.lost.append(f"{path.name}: {kind}: resumed without run.json")
                self.counts["before the run began"] += 1
                return
            try:
                now = _steps_of(path)
            except RunDirectoryError as error:
                self.lost.append(f"{path.name}: {kind}: {what}: {error}")
                return
            if now < before:
                self.lost.append(f"{path.name}: {kind}: {what}: fell from step {before} to {now}")
                return
            before = now
            if ended and what == "resume":
                break
            again = now and self.rng.random() < 0.3
            what = "again" if again else "resume"
            work = (lambda: _save_last_again(path)) if again else (lambda: resume(path))
        else:
            if in_child(lambda: resume(path)) != 0:
                self.lost.append(f"{path.name}: {kind}: resume failed")
                return
        self.counts["runs"] += 1
        if _steps_of(path) < _TOTAL_STEPS:
            self.lost.append(f"{path.name}: {kind}: ended at step {_steps_of(path)}")
        elif kind != "async dqn" and not torch.equal(weights_of(path), weights_of(whole)):
            self.lost.append(f"{path.name}: {kind}: ended with other weights")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that a run killed before its first checkpoint starts again
    with tempfile.TemporaryDirectory() as folder:
        found = Kills(Path(folder), options.seed)
        kinds = list(RUNS)
        while found.kills < options.kills and not found.lost:
            for kind in kinds:
                if found.kills < options.kills:
                    found.run(kind, min(options.kills, found.kills + 4))
        for line in found.lost:
            print("lost:", line)
        counts = ", ".join(f"{name} {count}" for name, count in sorted(found.counts.items()))
        print(f"{found.kills} kills ({counts}): {len(found.lost)} lost runs")
    return 1 if found.lost else 0


if __name__ == "__main__":
    sys.exit(main())
