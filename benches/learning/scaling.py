"""Speed with one and more actors and learners, and how fast the split that ``auto`` chooses is.

    python benches/learning/scaling.py actors --seconds 8        # CPU-heavy environments
    python benches/learning/scaling.py learners --seconds 10     # a total batch of 4,096
    python benches/learning/scaling.py curve --rounds 5          # scores during training, by learners
    python benches/learning/scaling.py split --seconds 6         # every split of a grid, and that of auto
    ... --record                    # writes the figures to benches/records/DATE-scaling.csv

``actors``: CartPole with a wrapper that computes in Python for about 2 ms per step; one learner with very
little work. ``learners``: DQN with two layers of 512 units, one thread each. Rates exclude start and end of a
run. ``curve``: the same total batch size with two layers of 64 units, ten greedy episodes every 5,000 steps;
median, lowest and highest over the seeds. ``split``: for three workloads, every number of actors and learners
up to the number of cores, and the split that ``auto`` chooses; the ratio is its rate divided by the best rate
of the grid.
"""

import os
import tempfile
import time

from processes import Record, median, parse_or_run, run_in_process, shared_options, train_for

WORK = 2_000_000  # nanoseconds
HEAVY = {"num_envs": 8, "replay_ratio": 0.5, "batch_size": 32, "learning_starts": 200, "hidden": (16,)}
LARGE = {
    "num_envs": 64,
    "batch_size": 4_096,
    "replay_ratio": 512.0,
    "hidden": (512, 512),
    "learning_starts": 5_000,
    "threads": 1,
}
CURVE = {
    "num_envs": 64,
    "batch_size": 4_096,
    "replay_ratio": 256.0,
    "learning_starts": 5_000,
    "threads": 1,
    "total_steps": 30_000,
    "evaluation_every": 5_000,
    "evaluation_episodes": 10,
}
SPLITS = {
    "small": {},
    "heavy environments": HEAVY,
    "large batches": LARGE | {"learning_starts": 2_000},
}


def heavy():
    """CartPole whose steps also compute for WORK nanoseconds of processor time."""
    import gymnasium

    class Heavy(gymnasium.Wrapper):
        def step(self, action):
            end = time.thread_time_ns() + WORK
            number = 1
            while time.thread_time_ns() < end:
                for _ in range(200):
                    number = (number * 1103515245 + 12345) % 2147483648
            return super().step(action)

    return Heavy(gymnasium.make("CartPole-v1"))


def run(case, seed):
    options = dict(case["options"])
    options["env"] = heavy if options.pop("heavy", False) else "CartPole-v1"
    options["hidden"] = tuple(options.get("hidden", (64, 64)))
    if "chosen" in case:
        from parl.run import RunDirectory
        from parl.train import train

        with tempfile.TemporaryDirectory() as runs:
            short = options | {"total_steps": 500, "learning_starts": 400}
            short |= {"evaluation_episodes": 0, "evaluation_every": 0}
            made = train("dqn", runs=runs, quiet=True, **short)
            table = RunDirectory.open(made.path).config["run"]
            return {"actors": table["actors"], "learners": table["learners"]}
    if "curve" in case:
        from parl.run import read_metrics
        from parl.train import train

        with tempfile.TemporaryDirectory() as runs:
            made = train("dqn", seed=seed, runs=runs, quiet=True, **options)
            return [r["evaluation_return"] for r in read_metrics(made.path) if "evaluation_return" in r]
    return train_for("dqn", case["seconds"], seed, **options)


def rate(case, rounds):
    return [run_in_process(__file__, case, turn) for turn in range(rounds)]


def actors(record, seconds, rounds):
    record.print(f"actors on environments of about {WORK / 1e6:g} ms a step, {HEAVY}")
    compare(record, "actors", HEAVY | {"heavy": True, "learners": 1}, "env_steps_per_s", seconds, rounds)


def learners(record, seconds, rounds):
    record.print(f"learners at a total batch of 4,096, {LARGE}")
    compare(record, "learners", LARGE | {"actors": 1}, "updates_per_s", seconds, rounds)


def compare(record, what, options, key, seconds, rounds):
    ratios, rates, most = [], [], os.cpu_count() or 1
    record.print(f"turn  {'  '.join(f'{n} {what}: {key}' for n in (1, most))}  ratio  load")
    for turn in range(rounds):
        found = [
            run_in_process(__file__, {"options": options | {what: n}, "seconds": seconds}, turn)[key]
            for n in (1, most)
        ]
        rates.append(found)
        ratios.append(found[1] / found[0])
        record.print(
            f"{turn:>4} {found[0]:20,.1f} {found[1]:25,.1f} {ratios[-1]:7.2f} {os.getloadavg()[0]:6.1f}"
        )
    case = f"{most} {what}" if most > 2 else f"second {what.removesuffix('s')}"
    metric, unit = (
        ("environment steps per second", "steps/s") if "env" in key else ("updates per second", "updates/s")
    )
    for at, n in enumerate((1, most)):
        record.add(
            "actors-learners", case, metric, unit, [pair[at] for pair in rates], rounds=rounds, threads=n
        )
    peer = f"parl with 1 {what.removesuffix('s')}"
    record.add("actors-learners", case, "speed ratio", "x", ratios, peer=peer, rounds=rounds)
    record.print(
        f"ratio 1 to {most} {what}: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}\n"
    )


def curve(record, _seconds, rounds):
    most = os.cpu_count() or 1
    record.print(
        f"scores during training, total batch of 4,096, {CURVE}; {rounds} seeds: median (lowest..highest)"
    )
    found = {n: [] for n in (1, most)}
    for seed in range(rounds):
        for n, curves in found.items():
            options = CURVE | {"actors": 1, "learners": n}
            curves.append(run_in_process(__file__, {"options": options, "curve": True}, seed))
    record.print("steps    " + "".join(f"{f'{n} learners':>26}" for n in found))
    for place in range(min(len(scores) for curves in found.values() for scores in curves)):
        cells = []
        for curves in found.values():
            scores = sorted(scores[place] for scores in curves)
            cells.append(f"{median(scores):7.1f} ({scores[0]:.1f}..{scores[-1]:.1f})")
        steps = CURVE["evaluation_every"] * (place + 1)
        for n, curves in found.items():
            case = f"{steps:,} steps, {n} learner{'s' * (n > 1)}"
            values = [scores[place] for scores in curves]
            about = {"seeds": rounds, "steps": steps, "conditions": "total batch of 4,096"}
            record.add("learners-score", case, "score", "return", values, **about)
        record.print(f"{steps:>7,}  " + "".join(f"{cell:>26}" for cell in cells))
    record.print("")


def split(record, seconds, rounds):
    cores = os.cpu_count() or 1
    for name, options in SPLITS.items():
        options = options | ({"heavy": True} if name.startswith("heavy") else {})
        chosen = run_in_process(__file__, {"options": options, "chosen": True})
        record.print(
            f"{name}: {options}\nauto chooses {chosen['actors']} actors, {chosen['learners']} learners"
        )
        rates = {(n, m): [] for n in range(1, cores + 1) for m in range(1, cores + 1)}
        for turn in range(rounds):
            for (n, m), found in rates.items():
                case = {"options": options | {"actors": n, "learners": m}, "seconds": seconds}
                found.append(run_in_process(__file__, case, turn)["env_steps_per_s"])
        for (n, m), found in rates.items():
            case = f"{name}, {n} actors, {m} learners"
            record.add("split", case, "steps per second", "steps/s", found, rounds=rounds)
            record.print(
                f"  {n} actors, {m} learners: {median(found):10,.0f} steps/s  {[round(x) for x in found]}"
            )
        best = max(median(found) for found in rates.values())
        own = median(rates[chosen["actors"], chosen["learners"]])
        about = {"peer": "best of the grid", "rounds": rounds, "bar": ">= 0.9"}
        record.add("split", f"{name}, chosen by auto", "speed ratio", "x", own / best, **about)
        record.print(
            f"chosen / best of the grid: {own / best:.2f}{'' if own >= 0.9 * best else '  below 0.9'}\n"
        )


def main():
    parser = shared_options(__doc__)
    parser.add_argument("what", nargs="?", choices=["actors", "learners", "curve", "split"], default="actors")
    parser.add_argument("--seconds", type=float, default=8.0, help="measured seconds of each run")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return
    with Record(arguments.record, "One and more actors and learners") as record:
        todo = {"actors": actors, "learners": learners, "curve": curve, "split": split}[arguments.what]
        todo(record, arguments.seconds, arguments.rounds)


if __name__ == "__main__":
    main()
