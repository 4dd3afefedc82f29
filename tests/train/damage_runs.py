"""Damages files of a run, opens it, and counts what was accepted, hung or ended in a traceback.

usage: python tests/train/damage_runs.py [--count 5000] [--seed 0] [--files NAME ...]

Each kind of file is damaged `count` times: a bit flipped, some bytes replaced, cut, lengthened, emptied, a
piece moved, replaced by the same file of another run. The run is opened as `resume` does it, then the file
is read without its checksum. Every damage must end in a ParlError that names a file of the run; without the
checksum some damages cannot be seen, but none may end in another error.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import torch

from parl.errors import ParlError
from parl.replay import PrioritizedReplay
from parl.run import RunDirectory
from parl.runtime import checkpoint, policy_file, states
from parl.train import train

_OPTIONS = {
    "env": "CartPole-v1",
    "num_envs": 2,
    "hidden": (8,),
    "learning_starts": 50,
    "batch_size": 8,
    "replay_capacity": 200,
    "schedule": "deterministic",
    "actors": 1,
    "learners": 1,
    "prefetch": 1,
    "evaluation_episodes": 1,
    "total_steps": 120,
    "quiet": True,
}
HANGS_S = 10
# All files with a checksum: of the run, of the index, and of a checkpoint.
SETTINGS = ("run.json", "config.toml", "env.pkl")
INDEX = ("checkpoints/index.json",)
PARTS = (
    "manifest.json",
    "learner.pt",
    "policy.safetensors",
    "counters.json",
    "actor-0.npz",
    "pending.npz",
    "replay.bin",
)


def make_run(folder: Path, seed: int) -> Path:
    """Trains a small run that writes one file of each kind."""
    import gymnasium

    options = _OPTIONS | {"env": lambda: gymnasium.make("CartPole-v1")}
    return train("dqn", **options, seed=seed, runs=str(folder), name=f"run-{seed}").path


def place_of(path: Path, name: str) -> Path:
    """The path of the file ``name`` of the run at ``path``."""
    return path / name if name in SETTINGS + INDEX else next(path.glob("checkpoints/step-*")) / name


def damaged(data: bytes, other: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Returns a kind of damage and ``data`` with this damage, which always differs from ``data``."""
    while True:
        kind = rng.choice(("bit", "bit", "bit", "bytes", "cut", "longer", "empty", "moved", "foreign"))
        made = bytearray(data)
        at = rng.randrange(len(data))
        size = min(rng.randint(1, 64), len(data) - at)
        match kind:
            case "bit":
                made[at] ^= 1 << rng.randrange(8)
            case "bytes":
                made[at : at + size] = rng.randbytes(size)
            case "cut":
                del made[at:]
            case "longer":
                made += rng.randbytes(size)
            case "empty":
                made.clear()
            case "moved":
                piece = made[at : at + size]
                del made[at : at + size]
                to = rng.randrange(len(made) + 1)
                made[to:to] = piece
            case _:
                made[:] = other
        if made != data:
            return kind, bytes(made)


def open_all(path: Path, name: str) -> None:
    """Opens and verifies a run as `resume` does; loads the replay if ``name`` is its file."""
    run = RunDirectory.open(path)
    run.verify()
    folder = run.checkpoints.verified("last")
    if name == "replay.bin":
        # The middle of the file has a checksum of its own, which is verified when the replay is loaded.
        PrioritizedReplay.load(folder / name)


def read_unverified(path: Path, name: str) -> None:
    """Reads a damaged file without verifying it, which may raise a ParlError but no other error."""
    place = place_of(path, name)
    match name:
        case "learner.pt":
            checkpoint.load_learner(checkpoint.Checkpoint(place.parent, {}), _Any())
        case "policy.safetensors":
            policy_file.read(place)
        case "counters.json":
            checkpoint.read(place.parent)
        case "actor-0.npz" | "pending.npz":
            states.from_bytes(place.read_bytes())
        case "config.toml":
            _ = RunDirectory.open(path).config
        case _:
            pass


class _Any:
    """A fake learner that accepts any state."""

    def load_state_dict(self, state: object) -> None:
        """Ignores the state."""


def _hangs(*_: object) -> None:
    raise TimeoutError


def outcome(work: Callable[[Path, str], None], path: Path, name: str) -> str:
    """Returns ``refused``, ``accepted``, ``hung``, or class and text of another exception."""
    signal.signal(signal.SIGALRM, _hangs)
    signal.setitimer(signal.ITIMER_REAL, HANGS_S)
    try:
        work(path, name)
    except TimeoutError:
        return "hung"
    except ParlError as error:
        files = (*SETTINGS, "index.json", *PARTS, "state of an actor")
        named = any(file in str(error) for file in files)
        return "refused" if named else f"refused without a name: {error}"
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "accepted"


def damage_all(
    path: Path, other: Path, name: str, count: int, seed: int = 0
) -> tuple[Counter[str], Counter[str]]:
    """Counts the outcomes of ``count`` damages of one file: opened with checks, and read without them."""
    place, rng = place_of(path, name), random.Random(f"{seed} {name}")
    data, foreign = place.read_bytes(), place_of(other, name).read_bytes()
    found: Counter[str] = Counter()
    unverified: Counter[str] = Counter()
    for _ in range(count):
        _, made = damaged(data, foreign, rng)
        place.write_bytes(made)
        found[outcome(open_all, path, name)] += 1
        unverified[outcome(read_unverified, path, name)] += 1
    place.write_bytes(data)
    open_all(path, name)
    return found, unverified


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", nargs="*", default=[*SETTINGS, *INDEX, *PARTS])
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder, bad = Path(tempfile.mkdtemp()), 0
    try:
        path, other = make_run(folder, 1), make_run(folder, 2)
        for name in options.files:
            began = time.monotonic()
            found, unverified = damage_all(path, other, name, options.count, options.seed)
            tolerated = unverified["refused"] + unverified["accepted"]
            bad += options.count - found["refused"] + options.count - tolerated
            print(
                f"{name}: {options.count} damaged, {found['refused']} refused by name, "
                f"{found['accepted']} accepted, {found['hung']} hung; read without checks: "
                f"{options.count - tolerated} ended otherwise ({time.monotonic() - began:.0f} s)",
                flush=True,
            )
            for what, number in (found + unverified).most_common():
                if what not in ("refused", "accepted", "hung"):
                    print(f"  {number} times {what[:200]}")
    finally:
        shutil.rmtree(folder)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
