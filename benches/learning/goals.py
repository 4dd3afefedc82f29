"""Algorithms on classic control and on Pong: number of seeds that reach a goal, and times.

Runs set only the environment or preset, the seed, the number of transitions and one torch thread. The score
is the mean of 100 greedy episodes with the last weights on fresh seeds. Solved means at least 475 on
CartPole, -100 on Acrobot (-90 of DQN's variants and SAC), 200 on LunarLander (Gymnasium's thresholds but on
Acrobot) and 0, as many points as the opponent, on Pong from the console's memory with sticky actions. With
``--until`` a run stops when an evaluation of 100 greedy episodes reaches that mean, and then counts as
solved; the score is that of 100 more episodes. Each seed is a separate process. ``--jobs`` of them run at
once and share the machine, which affects the seconds of training; processor seconds are those of training.

    python benches/learning/goals.py --seeds 10
    python benches/learning/goals.py --only pqn-lunarlander --until
    python benches/learning/goals.py --only ppo-acrobot --seeds 10 --record
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from games57 import OPTIONS as STICKY_RAM
from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    run_in_process,
    shared_options,
    train_and_score,
    train_until,
)

PONG = "parl/Pong-v0"
DETERMINISTIC = {"schedule": "deterministic"}
# name: (algorithm, environment, transitions, score that counts as solved, settings that are not the defaults)
CASES = {
    "ppo-cartpole": ("ppo", "CartPole-v1", 100_000, 475.0, {}),
    "a2c-cartpole": ("a2c", "CartPole-v1", 300_000, 475.0, {}),
    "pqn-cartpole": ("pqn", "CartPole-v1", 200_000, 475.0, {}),
    "ppo-acrobot": ("ppo", "Acrobot-v1", 200_000, -100.0, {}),
    "a2c-acrobot": ("a2c", "Acrobot-v1", 200_000, -100.0, {"num_envs": 16}),
    "pqn-acrobot": ("pqn", "Acrobot-v1", 200_000, -100.0, {}),
    "a2c-lunarlander": ("a2c", "LunarLander-v3", 1_500_000, 200.0, {"preset": "lunarlander"}),
    # The velocities are hidden, so that only a policy with memory balances the pole.
    "lstm-positions": (
        "ppo",
        "CartPole-v1",
        1_000_000,
        475.0,
        {"wrappers": ["positions:Positions"], "lstm": 64, "num_envs": 16},
    ),
    "mlp-positions": (
        "ppo",
        "CartPole-v1",
        1_000_000,
        475.0,
        {"wrappers": ["positions:Positions"], "num_envs": 16},
    ),
    **{
        f"{name}-{env.partition('-')[0].lower()}": (
            algorithm,
            env,
            300_000,
            score,
            {**DETERMINISTIC, **preset, **options},
        )
        for env, score, preset in (
            ("CartPole-v1", 475.0, {}),
            ("Acrobot-v1", -90.0, {"num_envs": 16, "replay_ratio": 8.0}),
        )
        for name, algorithm, options in (
            ("dueling", "dqn", {"dueling": True}),
            ("c51", "dqn", {"distribution": "c51"}),
            ("qr", "dqn", {"distribution": "qr"}),
            ("iqn", "dqn", {"distribution": "iqn"}),
            ("munchausen", "dqn", {"munchausen": 0.9}),
            ("noisy", "dqn", {"noisy": True}),
            ("rainbow", "rainbow", {}),
        )
    },
    **{
        f"{name}-pong": (
            algorithm,
            PONG,
            2_000_000,
            0.0,
            {"preset": "atari-ram", "env_options": STICKY_RAM, **options},
        )
        for name, algorithm, options in (
            ("dqn", "dqn", DETERMINISTIC),
            ("c51", "dqn", {**DETERMINISTIC, "distribution": "c51", "value_min": -5.0, "value_max": 5.0}),
            ("qr", "dqn", {**DETERMINISTIC, "distribution": "qr"}),
            ("iqn", "dqn", {**DETERMINISTIC, "distribution": "iqn"}),
            ("munchausen", "dqn", {**DETERMINISTIC, "munchausen": 0.9}),
            ("noisy", "dqn", {**DETERMINISTIC, "noisy": True}),
            ("rainbow", "rainbow", DETERMINISTIC),
            ("pqn", "pqn", {}),
        )
    },
    "sac-cartpole": (
        "sac",
        "CartPole-v1",
        300_000,
        475.0,
        {**DETERMINISTIC, "preset": "cartpole"},
    ),
    "sac-acrobot": ("sac", "Acrobot-v1", 300_000, -90.0, {**DETERMINISTIC, "preset": "acrobot"}),
    "ppo-lunarlander": ("ppo", "LunarLander-v3", 1_000_000, 200.0, {"preset": "lunarlander"}),
    "pqn-lunarlander": ("pqn", "LunarLander-v3", 1_000_000, 200.0, {"preset": "lunarlander"}),
}
CLAIMS = {"LunarLander-v3": "lunarlander"}
# What the first words of other names stand for.
VARIANTS = {
    "dueling": "DQN, dueling",
    "c51": "DQN, C51",
    "qr": "DQN, QR-DQN",
    "iqn": "DQN, IQN",
    "munchausen": "DQN, Munchausen",
    "noisy": "DQN, noisy layers",
    "rainbow": "Rainbow",
    "sac": "SAC, discrete actions",
    "lstm": "PPO with an LSTM, velocities hidden",
    "mlp": "PPO without memory, velocities hidden",
}


def run(what, seed):
    case, stops = what
    algorithm, env, steps, score, options = CASES[case]
    options = {"env": env, "seed": seed, **options}
    if stops:
        return train_until(algorithm, score, total_steps=steps, **options)
    row = train_and_score(algorithm, steps, 100, **options)
    return {**row, "reached": row["score"] >= score}


def run_and_print(case, stops, finished, seed):
    """Runs one seed, and prints the result on standard error immediately."""
    row = run_in_process(__file__, [case, stops], seed, finished)
    print(
        f"{case} {seed}: {row['score']:.0f} after {row['steps']:,} transitions, {row['cpu_s']:.0f} s"
        + ("" if row["reached"] else ", not solved"),
        file=sys.stderr,
        flush=True,
    )
    return row


def add_to_record(record, case, rows, first, jobs):
    """Adds a case to the record, whose rows are of the seeds from ``first`` on."""
    algorithm, env, _, score, options = CASES[case]
    variant = VARIANTS.get(case.partition("-")[0])
    claim = "variants" if variant or env == PONG else CLAIMS.get(env, "onpolicy-goals")
    name = variant or algorithm.upper()
    name += "" if claim == "lunarlander" else f", {env} to {score:g}"
    given = ", ".join(f"{key} {value}" for key, value in options.items() if key != "env_options")
    if "env_options" in options:
        given += ", sticky actions 0.25"
    same = {"seeds": len(rows), "threads": 1}
    later = f"seeds {first} to {first + len(rows) - 1}" if first else ""
    same["conditions"] = "; ".join(filter(None, (given, later, f"{jobs} runs at a time")))
    record.add(claim, name, "seeds that solve it", "seeds", sum(row["reached"] for row in rows), **same)
    for metric, unit, key in (
        ("transitions", "transitions", "steps"),
        ("training", "s", "training_s"),
        ("processor time", "s", "cpu_s"),
        ("score of 100 fresh episodes", "return", "score"),
    ):
        record.add(claim, name, metric, unit, [row[key] for row in rows], **same)


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--seeds", type=int, default=10, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=list(CASES))
    parser.add_argument("--until", action="store_true", help="stop when solved")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return
    with (
        Record(arguments.record, "PPO, A2C and PQN to a goal") as record,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        record.print(
            f"{'case':<16} {'steps':>9} {'solved':>9} {'training s':>11} {'cpu s':>7}  scores, sorted"
        )
        for case in arguments.only:
            seeds = range(arguments.first, arguments.first + arguments.seeds)
            rows = list(pool.map(partial(run_and_print, case, arguments.until, arguments.finished), seeds))
            solved = sum(row["reached"] for row in rows)
            add_to_record(record, case, rows, arguments.first, arguments.jobs)
            steps, wall, cpu = (
                median([row[key] for row in rows]) for key in ("steps", "training_s", "cpu_s")
            )
            record.print(
                f"{case:<16} {steps:>9,.0f} {solved:>3} of {len(rows):>2} {wall:>11.1f} {cpu:>7.1f}  "
                + " ".join(f"{score:.0f}" for score in sorted(row["score"] for row in rows))
            )


if __name__ == "__main__":
    main()
