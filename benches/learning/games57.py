"""Scores of PPO from the console's memory on the 57 Atari games of the literature, with one preset for all.

Training: preset ``atari-ram`` (two stacked copies of the 128 bytes of memory and their changes), which was
tuned on Pong alone, with sticky actions (probability 0.25), 4 frames a step, clipped rewards and whole games.
Evaluation: greedy episodes of the last checkpoint, with sticky actions too, unclipped, until the game is over
or 108,000 frames have been played. Human-normalized scores use the human and random scores of Wang et al.
(2016), table 2; the interquartile mean and its interval are those of Agarwal et al. (2021). Each run is a
process with one thread.

    python benches/learning/games57.py
    ... --games pong alien --steps 100_000          # shorter
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --finished FILE --no-runs --record          # writes a record of the runs that FILE has
"""

from concurrent.futures import ThreadPoolExecutor

from processes import (
    Record,
    add_finished,
    finished_result,
    median,
    parse_or_run,
    run_in_process,
    shared_options,
    train_and_score,
    use_cores,
)

SUITE = "atari57"
OPTIONS = {"obs_type": "ram", "stack_num": 2, "padding": "reset", "repeat_action_probability": 0.25}


def train(case, seed):
    """Trains one game; returns its score and seconds."""
    return train_and_score(
        "ppo",
        case["steps"],
        case["episodes"],
        seed=seed,
        env=case["env"],
        preset="atari-ram",
        env_options=OPTIONS,
        evaluation_env_options={"max_num_frames_per_episode": 108_000, "reward_clipping": False},
    )


def main():
    from parl.run.suites import SUITES

    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--games", nargs="+", default=SUITES[SUITE], choices=SUITES[SUITE], metavar="GAME")
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0..N")
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--no-runs", action="store_true", help="only take the results that --finished has")
    options = parse_or_run(parser, train)
    if options is not None:
        conditions = f"{use_cores(options.cores)}; {options.episodes} episodes; sticky actions 0.25"
        with Record(options.record, "PPO from the console's memory on 57 games", conditions) as out:
            measure(options, out)


def measure(options, out):
    """Trains all games, prints and records their scores and those of the suite."""
    runs = [(game, seed) for seed in range(options.seeds) for game in options.games]
    print(f"{options.steps:,} steps, {options.seeds} seeds, {options.episodes} episodes", flush=True)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda run: run_game(options, *run), runs)
        done = {}
        for (game, _), result in zip(runs, results, strict=True):
            if result is not None:
                done.setdefault(game, []).append(result)
    report(options, out, done)


def run_game(options, game, seed):
    """The result of one run; None if it is not in the file of results and no run is to be made."""
    from parl.envs.atari.registration import env_id

    case = {"env": env_id(game), "steps": options.steps, "episodes": options.episodes}
    if options.no_runs:
        return finished_result(options.finished, case, seed)
    result = run_in_process(__file__, case, seed, options.finished)
    print(f"{game:20} seed {seed}  return {result['score']:10.1f}  {result['cpu_s']:.0f} s", flush=True)
    return result


def report(options, out, done):
    """Prints and records the scores of the games, their human-normalized scores, and those of the suite."""
    from parl.run.suites import SuiteScores, human_normalized

    same = {"steps": options.steps, "threads": 1}
    scores = {game: [run["score"] for run in runs] for game, runs in done.items()}
    for game, found in sorted(scores.items()):
        normalized = [human_normalized(game, score) for score in found]
        seconds = [run["cpu_s"] for run in done[game]]
        print(f"{game:20} return {median(found):10.1f}  human-normalized {median(normalized):7.3f}")
        for metric, unit, values in (
            ("mean return", "points", found),
            ("human-normalized score", "of 1", normalized),
            ("processor time of training", "s", seconds),
        ):
            out.add("games57", game, metric, unit, values, seeds=len(found), **same)
    suite = SuiteScores.of(SUITE, scores)
    case = f"{len(scores)} of 57 games"
    figures = {"interquartile mean": (suite.iqm, (suite.low, suite.high)), "median": (suite.median, None)}
    for name, (value, interval) in figures.items():
        interval = interval if options.seeds > 1 else None
        metric = "human-normalized score"
        out.add("games57", f"{case}, {name}", metric, "of 1", value, interval=interval, **same)
    above = sum(value >= 1 for value in suite.games.values())
    out.add("games57", f"{case}, at least as good as the human", "games", "games", above, **same)
    print(f"{case}: interquartile mean {suite.iqm:.3f}, median {suite.median:.3f}, {above} at human level")
    if suite.missing:
        print(f"without a run: {', '.join(suite.missing)}")


if __name__ == "__main__":
    main()
