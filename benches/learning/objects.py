"""Mean return of PPO on objects, memory and pictures of the same games, after equal numbers of steps.

Objects (``obs_type="objects"``) and memory (``"ram"``) are two stacked observations with the preset
``atari-ram`` of PPO; pictures are four stacked gray ones of 84 x 84 with PPO's default settings for pictures.
Steps are those of the environment, 4 frames each. Games of evaluations end after 20,000 frames; the return is
the mean of greedy episodes of the last checkpoint, unclipped. Each run is a process with one thread.

    python benches/learning/objects.py
    ... --games boxing --steps 100_000 --seeds 1    # shorter
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --record                                    # writes benches/records/DATE-objects.csv
"""

from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    run_in_process,
    shared_options,
    train_and_score,
    use_cores,
)

VECTORS = {"stack_num": 2, "padding": "reset"}
KINDS = {
    "objects": {"preset": "atari-ram", "env_options": {"obs_type": "objects", **VECTORS}},
    "memory": {"preset": "atari-ram", "env_options": {"obs_type": "ram", **VECTORS}},
    "pictures": {},
}


def train(case, seed):
    """Trains one case; returns its score and seconds."""
    return train_and_score(
        "ppo",
        case["steps"],
        case["episodes"],
        seed=seed,
        env=f"parl/{case['game']}-v0",
        evaluation_env_options={"max_num_frames_per_episode": 20_000, "reward_clipping": False},
        **KINDS[case["kind"]],
    )


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--games", nargs="+", default=["Pong", "Boxing", "Breakout"])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--episodes", type=int, default=20)
    options = parse_or_run(parser, train)
    if options is not None:
        use_cores(options.cores)
        with Record(options.record, "PPO on objects, memory and pictures", "beside other work") as out:
            compare(options, out)


def compare(options, out):
    """Prints and records the returns of all games and kinds of observations."""
    print(f"{options.steps:,} steps, {options.seeds} seeds, {options.episodes} episodes")
    columns = {
        "steps": options.steps,
        "seeds": options.seeds,
        "threads": 1,
        "conditions": f"{options.episodes} episodes",
    }
    for game in options.games:
        for kind in options.kinds:
            case = {"game": game, "kind": kind, "steps": options.steps, "episodes": options.episodes}
            runs = [run_in_process(__file__, case, seed, options.finished) for seed in range(options.seeds)]
            scores, seconds = ([run[name] for run in runs] for name in ("score", "cpu_s"))
            print(
                f"{game:10} {kind:9} return {median(scores):7.1f} ({min(scores):.1f} to {max(scores):.1f})  "
                f"processor time {median(seconds):.0f} s",
                flush=True,
            )
            figures = (("mean return", "points", scores), ("processor time of training", "s", seconds))
            for metric, unit, values in figures:
                out.add("objects", f"{game}, {kind}", metric, unit, values, **columns)


if __name__ == "__main__":
    main()
