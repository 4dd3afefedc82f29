"""Scores at the end of runs of several lengths: longer runs must not score worse with default settings.

    python benches/learning/lengths.py pqn --lengths 200000 300000 --seeds 203 301
    python benches/learning/lengths.py rainbow --seeds 0 1 2 --options '{"hidden": [64]}'

Every run is a separate process with one thread. ``last`` is the mean return of 100 greedy episodes with the
last weights, on seeds that the run did not use. The curve shows the ten evaluations of the run, of 20 greedy
episodes each, which do not affect the run.
"""

import json
import statistics
import tempfile

from processes import Record, parse_or_run, run_in_process, shared_options

EVALUATIONS = 10


def work(case, seed):
    import torch

    from parl.run import read_metrics
    from parl.train import evaluate, train

    torch.set_num_threads(1)
    name, env, length, options = case
    options = {"total_steps": length, "evaluation_every": length // EVALUATIONS, **options}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = train(
            name,
            env,
            seed=seed,
            runs=runs,
            evaluation_episodes=20,
            quiet=True,
            **options,
        )
        curve = [row["evaluation_return"] for row in read_metrics(run.path) if "evaluation_return" in row]
        last = float(evaluate(run.path, seed=10**6 + 10**4 * seed, checkpoint="last").mean())
    return {"last": last, "curve": curve, "seconds": run.training_s}


def main():
    parser = shared_options(__doc__)
    parser.add_argument("algorithm", nargs="?", help="such as pqn or rainbow")
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium id")
    parser.add_argument("--lengths", type=int, nargs="+", default=[100_000, 200_000, 300_000, 600_000])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--options", default="{}", help="settings of the run or of the algorithm, as JSON")
    arguments = parse_or_run(parser, work)
    if arguments is None:
        return
    with Record(arguments.record, "Scores at the end of runs of several lengths") as record:
        record.print(f"{arguments.algorithm} on {arguments.env} {arguments.options}")
        record.print("   steps  seed   last      s  evaluations during the run")
        for length in arguments.lengths:
            last = []
            for seed in arguments.seeds:
                case = (arguments.algorithm, arguments.env, length, json.loads(arguments.options))
                found = run_in_process(__file__, case, seed)
                last.append(found["last"])
                name = f"{arguments.algorithm}, {arguments.options.strip('{}') or 'defaults'}, seed {seed}"
                about = {"steps": length, "seeds": 1, "threads": 1, "conditions": arguments.env}
                record.add("lengths", name, "score of the last weights", "return", found["last"], **about)
                curve = " ".join(f"{value:.0f}" for value in found["curve"])
                record.print(f"{length:>8,} {seed:>5} {found['last']:6.1f} {found['seconds']:6.1f}  {curve}")
            record.print(f"{length:>8,}: lowest {min(last):.1f}, median {statistics.median(last):.1f}")


if __name__ == "__main__":
    main()
