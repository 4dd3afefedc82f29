"""Speed of training on CartPole with a user's own torso of two layers of 64 units, beside the default.

    python benches/learning/own_torso.py
    ... --record    # writes the figures to benches/records/DATE-own-torso.csv

Each round trains with both in turn, in this process, with the deterministic schedule and one thread. The
ratio is the own torso's time divided by the default's; its median and range over the rounds, of processor
time and of wall time. The default of ``dqn`` has layer normalization, so a second line leaves it out.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from torch import nn

import parl

sys.path.insert(0, str(Path(__file__).parents[1]))
import record

CASES = {
    "dqn": ("dqn", {"actors": 1, "learners": 1}, nn.ReLU),
    "dqn, layer_norm = False": ("dqn", {"actors": 1, "learners": 1, "layer_norm": False}, nn.ReLU),
    "ppo": ("ppo", {}, nn.Tanh),
}


class Torso(nn.Module):
    """Two dense layers, written as a user would."""

    def __init__(self, observation_space, activation):
        super().__init__()
        inputs = observation_space.shape[0]
        self.layers = nn.Sequential(nn.Linear(inputs, 64), activation(), nn.Linear(64, 64), activation())
        self.out_features = 64

    def forward(self, observations):
        return self.layers(observations)


def seconds(algorithm, options, steps):
    """Processor and wall time of a run."""
    with tempfile.TemporaryDirectory() as runs:
        before = time.process_time(), time.perf_counter()
        parl.train(
            algorithm,
            env="CartPole-v1",
            total_steps=steps,
            schedule="deterministic",
            evaluation_episodes=0,
            quiet=True,
            runs=runs,
            **options,
        )
        return time.process_time() - before[0], time.perf_counter() - before[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=20_000)
    record.add_option(parser, "own-torso")
    options = parser.parse_args()
    with record.Record(options.record, "Training with a user's torso") as out:
        measure(options, out)


def measure(options, out):
    """Prints and records the ratios of all cases."""
    columns = {"rounds": options.rounds, "steps": options.steps, "threads": 1}
    for name, (algorithm, settings, activation) in CASES.items():
        own = {key: value for key, value in settings.items() if key != "layer_norm"}
        own["torso"] = lambda space, activation=activation: Torso(space, activation)
        rounds = []
        for _ in range(options.rounds + 1):  # the first one imports and compiles
            default = seconds(algorithm, settings, options.steps)
            mine = seconds(algorithm, own, options.steps)
            rounds.append([one / two for one, two in zip(mine, default, strict=True)])
        for clock, found in zip(("processor time", "wall time"), zip(*rounds[1:], strict=True), strict=True):
            spread = f"{min(found):.2f} to {max(found):.2f}"
            print(f"{name}, {clock}: own torso takes {statistics.median(found):.2f}x ({spread})", flush=True)
            out.add(
                "own-torso",
                name,
                f"{clock} ratio",
                "x",
                found,
                peer="parl's default network",
                bar="<= 1.5",
                **columns,
            )


if __name__ == "__main__":
    main()
