"""Go-Explore's robust phase (`examples/robustify.py`) in Montezuma's Revenge, over several seeds.

For each seed `examples/go_explore.py` looks for the shortest trajectory to as many points, for a number of
rounds; PPO then learns the trajectory backward with sticky actions, from the console's memory. The score is
the mean of greedy episodes from the start of the game until the first lost life, with sticky actions of other
seeds; beside it stands that of the trajectory's actions alone. Each run is a process with one thread.

    python benches/learning/robust.py
    ... --points 100 --steps 500_000 --seeds 1    # the key alone
    ... --finished FILE                             # goes on where an earlier call with FILE was ended
    ... --record                                    # writes benches/records/DATE-robust.csv
"""

import functools
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
GAME = "montezuma_revenge"


def found_way(points, rounds, seed):
    """The shortest trajectory to as many points that an exploration finds."""
    import go_explore
    import numpy as np
    import robustify

    import parl

    kind = "memory"
    envs = parl.AtariVectorEnv(GAME, **go_explore.RULES, **go_explore.OBSERVATIONS[kind], num_threads=1)
    cell_of, rng = go_explore.cell_function(GAME, kind), np.random.default_rng(seed)
    archive = go_explore.start(envs, cell_of)
    for _ in range(rounds):
        go_explore.explore_round(envs, archive, cell_of, rng, 256, 100)
    return robustify.Trajectory(GAME, archive.actions_to(archive.best(points)), points)


def replayed_points(way, episodes):
    """Points of the trajectory's actions alone, with sticky actions, until the first lost life; a list."""
    import numpy as np
    import robustify

    import parl

    rules = {**robustify.go_explore.RULES, **robustify.STICKY, "obs_type": "ram", "reward_clipping": False}
    envs = parl.AtariVectorEnv(GAME, episodes, **rules)
    envs.reset(seed=1)
    points, alive = np.zeros(episodes), np.ones(episodes, bool)
    for action in way.actions:
        _, rewards, terminated, truncated, _ = envs.step(np.full(episodes, action))
        points += rewards * alive
        alive &= ~(terminated | truncated)
    return points.tolist()


def train(case, seed):
    """Explores, trains and evaluates; returns lengths, points and seconds."""
    import robustify
    import torch

    import parl

    torch.set_num_threads(1)
    before = processor_s()
    way = found_way(case["points"], case["rounds"], seed)
    between = processor_s()
    robustify.ImitatingLearner.trajectory = way
    parl.register_algorithm("backward", robustify.Backward)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = parl.train(
            "backward",
            env=functools.partial(robustify.BackwardEnvs, trajectory=way, seed=seed),
            num_envs=64,
            total_steps=case["steps"],
            evaluation_episodes=0,
            threads=1,
            seed=seed,
            quiet=True,
            runs=runs,
            **robustify.SETTINGS,
        )
        after = processor_s()
        policy = parl.load(run.path, trust=True)
        scores = robustify.points_from_the_start(policy, GAME, case["episodes"])

    return {
        "points": scores.tolist(),
        "replayed": replayed_points(way, case["episodes"]),
        "way": len(way.actions),
        "way_points": int(way.points.sum()),
        "explore_s": between - before,
        "train_s": after - between,
    }


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--points", type=int, default=400, help="of the trajectory")
    parser.add_argument("--rounds", type=int, default=80, help="of the exploration")
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--episodes", type=int, default=100)
    options = parse_or_run(parser, train)
    if options is not None:
        use_cores(options.cores)
        with Record(options.record, "Go-Explore's robust phase", "beside other work") as out:
            measure(options, out)


def measure(options, out):
    """Prints and records the results of all seeds."""
    case = {name: getattr(options, name) for name in ("points", "rounds", "steps", "episodes")}
    runs = []
    for seed in range(options.seeds):
        run = run_in_process(__file__, case, seed, options.finished)
        runs.append(run)
        print(
            f"seed {seed}: a trajectory of {run['way']} steps and {run['way_points']} points; "
            f"mean {sum(run['points']) / len(run['points']):.0f} points; processor time "
            f"{run['explore_s']:.0f} s of exploration, {run['train_s']:.0f} s of training",
            flush=True,
        )
    columns = {
        "steps": options.steps,
        "seeds": options.seeds,
        "threads": 1,
        "conditions": f"sticky actions with probability 0.25; {options.episodes} episodes of each seed, "
        "until the first lost life",
    }
    name = f"Montezuma's Revenge, a way of {options.points} points"
    figures = [("steps of the way", "steps", [run["way"] for run in runs])]
    figures += [("mean points", "points", [sum(run["points"]) / len(run["points"]) for run in runs])]
    figures += [
        (
            "mean points of the way's actions",
            "points",
            [sum(run["replayed"]) / len(run["replayed"]) for run in runs],
        )
    ]
    for goal in sorted({100, options.points}):
        for name_of, key in (("episodes", "points"), ("replays of the way's actions", "replayed")):
            shares = [sum(one >= goal for one in run[key]) / len(run[key]) for run in runs]
            figures.append((f"{name_of} with at least {goal} points", "of 1", shares))
    figures += [("processor time of exploration", "s", [run["explore_s"] for run in runs])]
    figures += [("processor time of training", "s", [run["train_s"] for run in runs])]
    for metric, unit, values in figures:
        print(f"{metric}: {median(values):.3g} ({min(values):.3g} to {max(values):.3g}) {unit}")
        out.add("robust", name, metric, unit, values, **columns)


if __name__ == "__main__":
    main()
