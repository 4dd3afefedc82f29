"""PPO by self-play (`examples/self_play.py`) in Pong and Boxing: the last policy against the first.

One policy plays both sides from the console's memory, with sticky actions (probability 0.25), also against a
league of its past policies; every checkpoint joins the league. The first policy is that of the first
checkpoint. At the end each policy plays the one before it, and the last one also the first and a random
player, in games of at most 8,000 frames on both sides; Elo ratings are fitted to these games. Each run is a
process with one thread.

    python benches/learning/league.py
    ... --games boxing --steps 200_000 --seeds 1    # shorter
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --record                                    # writes benches/records/DATE-league.csv
"""

import contextlib
import sys
import tempfile
from pathlib import Path

from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    use_cores,
)

sys.path.append(str(Path(__file__).parents[2] / "examples"))


def train(case, seed):
    """Trains by self-play; returns scores, Elo ratings and processor seconds, final matches included."""
    import self_play
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs, contextlib.redirect_stdout(sys.stderr):
        found = self_play.self_play(seed=seed, runs=runs, threads=1, quiet=True, **case)
    return {
        "against_first": found.against_first,
        "against_random": found.against_random,
        "elo_gain": float(found.ratings[-1] - found.ratings[1]),
        "cpu_s": processor_s(),
    }


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--games", nargs="+", default=["pong", "boxing"])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--checkpoints", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    options = parse_or_run(parser, train)
    if options is not None:
        use_cores(options.cores)
        with Record(options.record, "PPO by self-play", "beside other work; sticky actions 0.25") as out:
            measure(options, out)


def measure(options, out):
    """Prints and records the scores of all games."""
    for game in options.games:
        case = {
            "game": game,
            "total_steps": options.steps,
            "every": options.steps // options.checkpoints,
            "num_envs": 64,
            "games": 40,
        }
        runs = [run_in_process(__file__, case, seed, options.finished) for seed in range(options.seeds)]
        for metric, unit, name in (
            ("score against the first policy", "of 1", "against_first"),
            ("score against a random player", "of 1", "against_random"),
            ("Elo above the first policy", "points", "elo_gain"),
            ("processor time", "s", "cpu_s"),
        ):
            values = [run[name] for run in runs]
            print(
                f"{game:8} {metric:32} {median(values):8.2f} ({min(values):.2f} to {max(values):.2f})",
                flush=True,
            )
            out.add(
                "self-play",
                f"{game}, policies every {case['every']:,} steps",
                metric,
                unit,
                values,
                steps=options.steps,
                seeds=options.seeds,
                threads=1,
            )


if __name__ == "__main__":
    main()
