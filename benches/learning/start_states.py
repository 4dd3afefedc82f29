"""PPO whose games continue from states that the run has passed, beside PPO with whole games.

The preset ``atari-ram`` of PPO (the console's memory, 64 environments) on both sides; with ``start_states``
half of the new games continue from one of the last 64 states of environment 0. Evaluations play whole games
from their start, greedily, of at most 20,000 frames; the return is their mean, unclipped. Steps are those of
the environment, 4 frames each. Each run is a process with one thread; processor time has the training and the
evaluations during it.

    python benches/learning/start_states.py
    ... --games Pong --steps 100_000 --seeds 1      # shorter
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --record                                    # writes benches/records/DATE-start-states.csv
"""

import tempfile

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

KINDS = {"start of the game": {}, "states of the run": {"start_states": "self"}}


def train(case, seed):
    """Trains one case; returns the score of each evaluation, and processor seconds."""
    import torch

    from parl.run import read_metrics
    from parl.train import train

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = train(
            "ppo",
            env=f"parl/{case['game']}-v0",
            preset="atari-ram",
            seed=seed,
            total_steps=case["steps"],
            threads=1,
            evaluation_every=case["every"],
            evaluation_episodes=case["episodes"],
            evaluation_env_options={"max_num_frames_per_episode": 20_000, "reward_clipping": False},
            quiet=True,
            runs=runs,
            **KINDS[case["kind"]],
        )
        scores = [row["evaluation_return"] for row in read_metrics(run.path) if "evaluation_return" in row]
    return {"scores": scores, "cpu_s": processor_s()}


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--games", nargs="+", default=["Pong", "Breakout"])
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--every", type=int, default=100_000, help="steps between evaluations")
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--episodes", type=int, default=20)
    options = parse_or_run(parser, train)
    if options is not None:
        use_cores(options.cores)
        with Record(options.record, "PPO from states of the run", "beside other work") as out:
            compare(options, out)


def compare(options, out):
    """Prints and records the scores of all games and starts."""
    print(f"{options.steps:,} steps, {options.seeds} seeds, {options.episodes} episodes")
    columns = {"seeds": options.seeds, "threads": 1, "conditions": f"{options.episodes} episodes"}
    for game in options.games:
        found = {}
        for kind in KINDS:
            case = {name: getattr(options, name) for name in ("steps", "every", "episodes")}
            case |= {"game": game, "kind": kind}
            found[kind] = [
                run_in_process(__file__, case, seed, options.finished) for seed in range(options.seeds)
            ]
        for at in range(options.steps // options.every):
            steps = options.every * (at + 1)
            for kind, runs in found.items():
                scores = [run["scores"][at] for run in runs]
                case = f"{game}, {steps:,} steps, {kind}"
                print(f"{case:48} return {median(scores):7.1f} ({min(scores):.1f} to {max(scores):.1f})")
                out.add("start-states", case, "mean return", "points", scores, steps=steps, **columns)
        for kind, runs in found.items():
            seconds = [run["cpu_s"] for run in runs]
            print(f"{game}, {kind}: processor time {median(seconds):.0f} s", flush=True)
            case, metric = f"{game}, {options.steps:,} steps, {kind}", "processor time"
            out.add("start-states", case, metric, "s", seconds, steps=options.steps, **columns)


if __name__ == "__main__":
    main()
