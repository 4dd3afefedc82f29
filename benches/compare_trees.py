"""Speed of this tree beside another checkout: learners, console, vector environments, sum tree, replay.

    git worktree add /tmp/before 36eadf8 && (cd /tmp/before && make build)
    python benches/compare_trees.py /tmp/before [--only dqn console-pong] [--pairs 5] [--record]

The extension of each tree must be built. Each measurement is a separate process with one thread; the trees
alternate. Prints the medians of items per second of processor time, and median and range over the pairs of
this tree's speed divided by the other's. With ``--torch-only`` torch's autograd computes the learners'
updates in this tree, as if they could not be replayed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from record import Record, add_option

CARTPOLE = {"env": "CartPole-v1", "num_envs": 8}
PENDULUM = {
    "env": "Pendulum-v1",
    "num_envs": 4,
    "replay_ratio": 128.0,
    "batch_size": 128,
    "learning_starts": 500,
}
PENDULUM |= {"random_steps": 500, "replay_capacity": 20_000, "hidden": (64, 64)}
DQN = {**CARTPOLE, "replay_ratio": 64.0, "batch_size": 64, "hidden": (64, 64)}
LARGE = PENDULUM | {"hidden": (256, 256), "replay_ratio": 256.0, "batch_size": 256, "num_envs": 1}
PIXELS = {"env": "parl/Pong-v0", "num_envs": 4, "learning_starts": 200, "replay_capacity": 2_000}
# name: algorithm, steps, settings
LEARNERS = {
    "ppo": ("ppo", 60_000, CARTPOLE | {"rollout_steps": 32, "epochs": 10, "minibatch_size": 64}),
    "ppo-256": ("ppo", 60_000, CARTPOLE | {"rollout_steps": 32, "epochs": 20, "minibatch_size": 256}),
    "a2c": ("a2c", 80_000, CARTPOLE),
    "pqn": ("pqn", 40_000, CARTPOLE | {"hidden": (64, 64), "layer_norm": False}),
    "pqn-norm": ("pqn", 40_000, CARTPOLE | {"hidden": (64, 64)}),
    "dqn": ("dqn", 25_000, DQN | {"layer_norm": False}),
    "dqn-norm": ("dqn", 20_000, DQN),
    "sac": ("sac", 4_000, PENDULUM),
    "td3": ("td3", 6_000, PENDULUM),
    "ddpg": ("ddpg", 6_000, PENDULUM),
    "sac-256": ("sac", 900, LARGE),
    "dqn-pixels": ("dqn", 1_200, PIXELS),
}
GAMES = ("pong", "breakout", "space_invaders", "seaquest")
LEAVES = 1 << 20


def learner(name: str, torch_only: bool) -> float:
    """Environment steps per second of processor time of a training run."""
    import torch

    import parl
    from parl.train import train

    torch.set_num_threads(1)
    if torch_only:
        from parl.nets import fused

        fused.Update.replays_at_all = False
    algorithm, steps, options = LEARNERS[name]
    common = {"total_steps": steps, "quiet": True, "evaluation_episodes": 0, "schedule": "deterministic"}
    if (Path(parl.__file__).parent / "cli.py").exists():  # a tree from before 24 November 2026
        common |= {"total_frames": common.pop("total_steps"), "schedule": "lockstep"}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        begun = time.process_time()
        found = train(algorithm, runs=runs, threads=1, **common, **options)
        return found.env_steps / (time.process_time() - begun)


def rate(call: Callable[[], object], items: int, seconds: float = 1.5) -> float:
    """Items per second of processor time of calls, after a warm-up."""
    for _ in range(20):
        call()
    calls, begun = 0, time.process_time()
    while (spent := time.process_time() - begun) < seconds:
        for _ in range(10):
            call()
        calls += 10
    return calls * items / spent


def console(game: str) -> float:
    """Frames per second of one console with random actions; every fourth screen is read as RGB."""
    import numpy as np

    import parl

    played = parl.atari.Console(game, seed=0)
    actions = np.random.default_rng(0).choice(np.asarray(played.minimal_actions), 4096).tolist()
    count = 0

    def call() -> None:
        nonlocal count
        for _ in range(4):
            played.act(actions[count % 4096])
            count += 1
            if played.game_over:
                played.reset()
        _ = played.screen_rgb

    return rate(call, 4)


def vector(game: str, num_envs: int) -> float:
    """Frames per second, skipped ones counted, of a vector environment with one thread."""
    import numpy as np

    import parl

    envs = parl.AtariVectorEnv(game, num_envs, num_threads=1)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).integers(0, envs.single_action_space.n, (64, num_envs))
    count = 0

    def call() -> None:
        nonlocal count
        envs.step(actions[count % 64])
        count += 1

    found = rate(call, 4 * num_envs)
    envs.close()
    return found


def tree(what: str, batch: int) -> float:
    """Leaves per second that a sum tree samples, or updates in random order."""
    import numpy as np

    import parl

    rng = np.random.default_rng(0)
    leaves = parl.SumTree(LEAVES)
    leaves.update(np.arange(LEAVES), rng.random(LEAVES))
    at, values = rng.integers(0, LEAVES, (64, batch)), rng.random(batch)
    count = 0

    def update() -> None:
        nonlocal count
        leaves.update(at[count % 64], values)
        count += 1

    return rate((lambda: leaves.sample(batch)) if what == "sample" else update, batch)


def replay(what: str, batch: int) -> float:
    """Rows per second that a prioritized replay adds, or samples and updates."""
    import numpy as np

    import parl

    fields = {name: ((8,), "float32") for name in ("obs", "next_obs")}
    fields |= {"action": ((), "int64"), "reward": ((), "float32"), "terminated": ((), "bool")}
    rows = parl.PrioritizedReplay(100_000, fields, num_envs=batch)
    rng = np.random.default_rng(0)
    step = {name: rng.random((batch, 8), np.float32) for name in ("obs", "next_obs")}
    step |= {"action": np.zeros(batch, np.int64), "reward": np.zeros(batch, np.float32)}
    step |= {"terminated": np.zeros(batch, bool)}
    for _ in range(100_000 // batch):
        rows.add(**step)
    errors = rng.random(batch)

    def learn() -> None:
        rows.update_priorities(rows.sample(batch).tickets, errors)

    return rate((lambda: rows.add(**step)) if what == "add" else learn, batch)


CASES: dict[str, tuple[str, Callable[[bool], float]]] = {
    **{name: ("steps", lambda only, name=name: learner(name, only)) for name in LEARNERS},
    **{f"console-{game}": ("frames", lambda _, game=game: console(game)) for game in GAMES},
    **{f"vector-{game}-8": ("frames", lambda _, game=game: vector(game, 8)) for game in GAMES},
    **{
        f"tree-{what}-{batch}": ("leaves", lambda _, what=what, batch=batch: tree(what, batch))
        for what in ("sample", "update")
        for batch in (256, 4096)
    },
    **{
        f"replay-{what}-{batch}": ("rows", lambda _, what=what, batch=batch: replay(what, batch))
        for what, batch in (("add", 8), ("add", 256), ("learn", 32), ("learn", 256))
    },
}


def measured(tree: Path, name: str, *words: str) -> float:
    """Items per second of one case, in a process that imports parl from ``tree``."""
    variables = os.environ | {"PYTHONPATH": str(tree / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", type=Path, help="the other tree, with its extension built")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES), metavar="CASE")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--torch-only", action="store_true")
    parser.add_argument("--one", choices=CASES, help=argparse.SUPPRESS)
    add_option(parser, "redesign")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(CASES[given.one][1](given.torch_only)))
        return
    if given.before is None:
        parser.error("before is missing: the folder of the other tree")
    here = Path(__file__).resolve().parents[1]
    words = ["--torch-only"] if given.torch_only else []
    git = ["git", "-C", str(given.before), "rev-parse", "--short", "HEAD"]
    other = subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()
    with Record(given.record, "Speed after the redesign beside the tree before it", "one thread") as record:
        for name in given.only:
            unit = f"{CASES[name][0]}/s"
            rates: dict[str, list[float]] = {other: [], "here": []}
            for pair in range(given.pairs):
                order = [(other, given.before, []), ("here", here, words)]
                for which, folder, more in order if pair % 2 else order[::-1]:
                    rates[which].append(measured(folder, name, *more))
            ratios = [one / old for one, old in zip(rates["here"], rates[other], strict=True)]
            case = f"{name}, autograd" if given.torch_only else name
            about = {"rounds": given.pairs, "threads": 1, "conditions": "per second of processor time"}
            record.add("before-after", case, "speed", unit, rates["here"], **about)
            record.add("before-after", case, "speed", unit, rates[other], library=f"parl {other}", **about)
            about |= {"peer": f"parl {other}", "bar": ">= 0.9"}
            record.add("before-after", case, "speed ratio", "x", ratios, **about)
            before, now = statistics.median(rates[other]), statistics.median(rates["here"])
            ratio = f"x{statistics.median(ratios):.2f}  {min(ratios):.2f}..{max(ratios):.2f}"
            record.print(f"{case:20s} {before:12,.0f} {now:12,.0f} {unit:9s} {ratio}")


if __name__ == "__main__":
    main()
