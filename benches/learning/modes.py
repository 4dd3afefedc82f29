"""PPO in modes of a game that it was not trained in (`examples/generalization.py`), over several seeds.

Every other mode of a game is for training, the others are for the test; the policy sees the console's memory,
with sticky actions (probability 0.25). Scores are points of 10 greedy episodes in each mode. Interquartile
means are those of all modes of a half and all seeds, intervals are bootstraps of the seeds within each mode
(Agarwal et al. 2021). Each run is a process with one thread.

    python benches/learning/modes.py
    ... --games freeway --steps 200_000 --seeds 2   # shorter
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --record                                    # writes benches/records/DATE-modes.csv
"""

import sys
import tempfile
from pathlib import Path

from processes import (
    Record,
    add_finished,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    use_cores,
)

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def train(case, seed):
    """Trains in half of a game's modes; returns the points of each mode and processor seconds."""
    import generalization
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        training, test = generalization.trained_points(
            case["game"],
            seed,
            case["steps"],
            num_envs=64,
            episodes=10,
            most_frames=30_000,
            runs=runs,
            threads=1,
        )
    return {"training": training.tolist(), "test": test.tolist(), "cpu_s": processor_s()}


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--games", nargs="+", default=["freeway", "breakout", "demon_attack"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    options = parse_or_run(parser, train)
    if options is not None:
        use_cores(options.cores)
        with Record(options.record, "PPO in modes without training", "beside other work; sticky 0.25") as out:
            measure(options, out)


def measure(options, out):
    """Prints and records the interquartile means of all games."""
    import numpy as np

    from parl.run.scores import bootstrap_interval, interquartile_mean

    same = {"steps": options.steps, "seeds": options.seeds, "threads": 1}
    for game in options.games:
        case = {"game": game, "steps": options.steps}
        runs = [run_in_process(__file__, case, seed, options.finished) for seed in range(options.seeds)]
        for half in ("training", "test"):
            points = np.array([run[half] for run in runs])  # (seeds, modes)
            middle = float(interquartile_mean(points.ravel()))
            interval = bootstrap_interval(list(points.T), interquartile_mean)
            case = f"{game}, {points.shape[1]} {half} modes"
            print(f"{case:36} IQM {middle:8.2f} ({interval[0]:.2f} to {interval[1]:.2f})", flush=True)
            out.add("modes", case, "interquartile mean", "points", middle, interval=interval, **same)
        seconds = [run["cpu_s"] for run in runs]
        out.add("modes", game, "processor time", "s", seconds, **same)


if __name__ == "__main__":
    main()
