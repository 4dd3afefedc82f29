"""Scores from the console's memory on the 57 Atari games of the literature or on Atari-5, one preset for all.

Training: preset ``atari-ram`` (two stacked copies of the 128 bytes of memory and their changes), which was
tuned on Pong alone, with sticky actions (probability 0.25), 4 frames a step, clipped rewards and whole games;
the spacing of Rainbow's atoms was chosen on Battle Zone, "rainbow-equal" has equal distances. Evaluation:
greedy episodes of the last checkpoint, with sticky actions too, unclipped, until the game is over or 108,000
frames have been played.
Human-normalized scores use the human and random scores of Wang et al. (2016), table 2; the interquartile mean
and its interval are those of Agarwal et al. (2021). Each run is a process with one thread.

    python benches/learning/games57.py
    ... --games pong alien --steps 100_000          # shorter
    ... --algorithms dqn rainbow pqn --suite atari5 --steps 1_000_000 --seeds 3 --record games5
    ... --algorithms dqn rainbow --suite atari5 --steps 200_000 --claim games5-short --record games5-short
    ... --algorithms rainbow rainbow-equal --suite atari5 --games battle_zone --steps 200_000 --seeds 2
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

OPTIONS = {"obs_type": "ram", "stack_num": 2, "padding": "reset", "repeat_action_probability": 0.25}

# algorithm, and what follows "-" to tell apart settings: those that are not of its preset
ALGORITHMS = {
    "ppo": {},
    "pqn": {},
    "dqn": {"schedule": "deterministic"},
    "rainbow": {"schedule": "deterministic"},
    "rainbow-equal": {"schedule": "deterministic", "atom_spacing": "equal"},
}

CLAIMS = {"atari57": "games57", "atari5": "games5"}
NAMES = {
    "ppo": "PPO",
    "pqn": "PQN",
    "dqn": "DQN",
    "rainbow": "Rainbow",
    "rainbow-equal": "Rainbow with equal distances",
}


def train(case, seed):
    """Trains one game; returns its score and seconds."""
    algorithm = case["algorithm"]
    return train_and_score(
        algorithm.partition("-")[0],
        case["steps"],
        case["episodes"],
        seed=seed,
        env=case["env"],
        preset="atari-ram",
        env_options=OPTIONS,
        evaluation_env_options={"max_num_frames_per_episode": 108_000, "reward_clipping": False},
        **ALGORITHMS[algorithm],
    )


def main():
    from parl.run.suites import SUITES

    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--algorithms", nargs="+", default=["ppo"], choices=ALGORITHMS)
    parser.add_argument("--suite", default="atari57", choices=SUITES)
    parser.add_argument("--claim", help="of the record (default: that of the suite)")
    parser.add_argument("--games", nargs="+", metavar="GAME", help="games of the suite (default: all)")
    parser.add_argument("--steps", type=int, default=2_000_000)
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0..N")
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time")
    parser.add_argument("--no-runs", action="store_true", help="only take the results that --finished has")
    options = parse_or_run(parser, train)
    if options is not None:
        suite = SUITES[options.suite]
        options.games = options.games or suite
        if others := sorted(set(options.games) - set(suite)):
            parser.error(f"{options.suite} does not contain {', '.join(others)}, only {', '.join(suite)}")
        names = ", ".join(map(NAMES.get, options.algorithms))
        title = f"{names} from the console's memory on {len(options.games)} games"
        conditions = f"{use_cores(options.cores)}; {options.episodes} episodes; sticky actions 0.25"
        with Record(options.record, title, conditions) as out:
            measure(options, out)


def measure(options, out):
    """Trains all games, prints and records their scores and those of the suite."""
    runs = [
        (algorithm, game, seed)
        for seed in range(options.seeds)
        for game in options.games
        for algorithm in options.algorithms
    ]
    print(f"{options.steps:,} steps, {options.seeds} seeds, {options.episodes} episodes", flush=True)
    done = {algorithm: {} for algorithm in options.algorithms}
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda run: run_game(options, *run), runs)
        for (algorithm, game, _), result in zip(runs, results, strict=True):
            if result is not None:
                done[algorithm].setdefault(game, []).append(result)
    for algorithm, games in done.items():
        report(options, out, algorithm, games)


def run_game(options, algorithm, game, seed):
    """The result of one run; None if it is not in the file of results and no run is to be made."""
    from parl.envs.atari.registration import env_id

    case = {
        "algorithm": algorithm,
        "env": env_id(game),
        "steps": options.steps,
        "episodes": options.episodes,
    }
    if options.no_runs:
        return finished_result(options.finished, case, seed)
    result = run_in_process(__file__, case, seed, options.finished)
    print(
        f"{NAMES[algorithm]:8} {game:20} seed {seed}  return {result['score']:10.1f}  "
        f"{result['cpu_s']:.0f} s",
        flush=True,
    )
    return result


def report(options, out, algorithm, done):
    """Prints and records the scores of an algorithm in the games, and those of the suite."""
    from parl.run.suites import SUITES, SuiteScores, human_normalized

    name, size = NAMES[algorithm], len(SUITES[options.suite])
    claim = options.claim or CLAIMS[options.suite]
    same = {"steps": options.steps, "threads": 1}
    scores = {game: [run["score"] for run in runs] for game, runs in done.items()}
    for game, found in sorted(scores.items()):
        normalized = [human_normalized(game, score) for score in found]
        seconds = [run["cpu_s"] for run in done[game]]
        print(f"{name:8} {game:20} return {median(found):10.1f}  human-normalized {median(normalized):7.3f}")
        for metric, unit, values in (
            ("mean return", "points", found),
            ("human-normalized score", "of 1", normalized),
            ("processor time of training", "s", seconds),
        ):
            out.add(claim, f"{name}, {game}", metric, unit, values, seeds=len(found), **same)
    suite = SuiteScores.of(options.suite, scores)
    case = f"{name}, {len(scores)} of {size} games"
    figures = {"interquartile mean": (suite.iqm, (suite.low, suite.high)), "median": (suite.median, None)}
    for figure, (value, interval) in figures.items():
        interval = interval if options.seeds > 1 else None
        metric = "human-normalized score"
        out.add(claim, f"{case}, {figure}", metric, "of 1", value, interval=interval, **same)
    above = sum(value >= 1 for value in suite.games.values())
    out.add(claim, f"{case}, at least as good as the human", "games", "games", above, **same)
    print(f"{case}: interquartile mean {suite.iqm:.3f}, median {suite.median:.3f}, {above} at human level")
    if suite.missing:
        print(f"without a run: {', '.join(suite.missing)}")


if __name__ == "__main__":
    main()
