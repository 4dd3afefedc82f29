"""Steps a second of learners of small networks, of this tree beside another one, by processor time.

    git worktree add /tmp/before 35f52f5 && cp python/parl/_native.abi3.so /tmp/before/python/parl/
    python benches/learning/fused.py /tmp/before [--only dqn sac] [--pairs 5] [--torch-only]

Each run is a process of its own with one thread, which trains for a few seconds; the trees take turns.
Printed are the medians of environment steps per second of processor time, and median and range of the ratio
over the pairs, the other tree being 1. ``--torch-only`` runs this tree's updates by torch's autograd, as one
that cannot be replayed.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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
CASES = {
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


def run(name: str, torch_only: bool) -> None:
    """Trains in this process; prints steps per second of processor time."""
    import torch

    from parl.train import train

    torch.set_num_threads(1)
    if torch_only:
        from parl.nets import fused

        fused.Update.replays_at_all = False
    algorithm, steps, options = CASES[name]
    common = {"total_steps": steps, "quiet": True, "evaluation_episodes": 0, "schedule": "deterministic"}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        begun = time.process_time()
        found = train(algorithm, runs=runs, threads=1, tensorboard=False, **common, **options)
        spent = time.process_time() - begun
    print(json.dumps({"rate": found.env_steps / spent, "updates": found.updates}))


def measured(tree: Path, name: str, *words: str) -> dict[str, float]:
    variables = os.environ | {"PYTHONPATH": str(tree / "python"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", __file__, "--one", name, *words]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", nargs="?", type=Path, help="the other tree, with its extension built")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--torch-only", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        return run(given.one, given.torch_only)
    if given.before is None:
        parser.error("name the other tree")
    here = Path(__file__).resolve().parents[2]
    words = ["--torch-only"] if given.torch_only else []
    for name in given.only:
        rates: dict[str, list[float]] = {"before": [], "here": []}
        for pair in range(given.pairs):
            order = [("before", given.before, []), ("here", here, words)]
            for which, tree, more in order if pair % 2 else order[::-1]:
                rates[which].append(measured(tree, name, *more)["rate"])
        ratios = [one / other for one, other in zip(rates["here"], rates["before"], strict=True)]
        before, now = statistics.median(rates["before"]), statistics.median(rates["here"])
        spread = f"{min(ratios):.2f}..{max(ratios):.2f}"
        print(f"{name:10s} {before:9.0f} {now:9.0f}  x{statistics.median(ratios):.2f}  {spread}", flush=True)
    return None


if __name__ == "__main__":
    main()
