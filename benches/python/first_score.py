"""Time from an empty environment to the first score, and what takes it.

    make wheel
    python benches/python/first_score.py

Creates an environment in a temporary folder, installs the newest wheel of ``dist`` with its extra ``train``
by pip without a cache, and runs ``parl train ppo --stop-at-return 475`` (``CartPole-v1``) until the score is
confirmed on other seeds. Then measures ``import parl`` and ``parl --help`` in new processes, with modules
compiled by then, beside the start of Python itself. Needs a package index, and 9 GB of disk for a while:
nearly all of it is torch with the libraries of CUDA.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import Record, add_option

ROOT = Path(__file__).parents[2]


def seconds(command: Sequence[str | Path], folder: Path) -> float:
    """Runs a command in an environment without parl's checkout; returns its wall seconds.

    Raises:
        RuntimeError: the command failed; with its output.
    """
    environment = {
        key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    began = time.perf_counter()
    done = subprocess.run([*map(str, command)], cwd=folder, env=environment, capture_output=True, text=True)
    took = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return took


def gigabytes(folder: Path) -> float:
    """Size of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e9


def newest_wheel() -> Path:
    wheels = sorted((ROOT / "dist").glob("parl_rl-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        raise SystemExit(f"no wheel in {ROOT / 'dist'}: make wheel")
    return wheels[-1]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--starts", type=int, default=15, help="new processes for each start that is measured"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    add_option(parser, "first-score")
    arguments = parser.parse_args()
    wheel = newest_wheel()
    title = "From an empty environment to the first score"
    with Record(arguments.record, title) as record, tempfile.TemporaryDirectory() as name:
        folder, binaries = Path(name), Path(name) / "venv" / "bin"
        train = [binaries / "parl", "train", "ppo", "--stop-at-return", "475", "--seed", str(arguments.seed)]
        steps = {
            "create the environment": [sys.executable, "-m", "venv", folder / "venv"],
            "pip install": [binaries / "pip", "install", "--quiet", "--no-cache-dir", f"{wheel}[train]"],
            "parl train ppo until 475 on CartPole-v1 is confirmed": train,
        }
        took = {}
        for step, command in steps.items():
            took[step] = seconds(command, folder)
            record.print(f"{step:52} {took[step]:8.1f} s")
            record.add("first-score", step, "wall time", "s", took[step], conditions=f"seed {arguments.seed}")
        total = sum(took.values())
        record.print(f"{'all':52} {total:8.1f} s")
        record.add("first-score", "all", "wall time", "s", total, conditions=f"seed {arguments.seed}")
        packages = next((folder / "venv" / "lib").glob("python*")) / "site-packages"
        sizes = {
            "parl's wheel": wheel.stat().st_size / 1e9,
            "parl, installed": gigabytes(packages / "parl"),
            "all packages, installed": gigabytes(packages),
        }
        for what, size in sizes.items():
            record.print(f"{what:52} {size:8.3f} GB")
            record.add("first-score", what, "size", "GB", size)
        starts = {
            "python -c pass": [binaries / "python", "-c", "pass"],
            "import parl": [binaries / "python", "-c", "import parl"],
            "parl --help": [binaries / "parl", "--help"],
        }
        found = {step: [] for step in starts}
        for _ in range(arguments.starts):
            for step, command in starts.items():
                found[step].append(seconds(command, folder))
        own = statistics.median(found["python -c pass"])
        for step, values in found.items():
            middle = statistics.median(values)
            record.print(f"{step:52} {middle:8.3f} s, {middle - own:.3f} s more than Python itself")
            record.add("first-score", step, "start", "s", values, spread="quartiles", rounds=arguments.starts)


if __name__ == "__main__":
    main()
