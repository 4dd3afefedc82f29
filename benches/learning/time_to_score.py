"""Wall time to a score with one and with two actors and learners, beside Stable-Baselines3.

    python benches/learning/time_to_score.py --seeds 5 --finished runs.jsonl --record
    python benches/learning/time_to_score.py --only dqn-cartpole --splits 2+2 --seeds 1

For an idle machine. The settings are those of ``curves.py``: parl's defaults or preset, Stable-Baselines3's
those of RL Baselines3 Zoo. Every run is a separate process, every process has one thread of torch.

A goal is reached when the mean of 50 greedy episodes reaches it and the mean of 50 more on other seeds too.
parl evaluates when training returns come close to the goal, and its seconds include the evaluations.
Stable-Baselines3 is evaluated after every 500 transitions, of CartPole after every 1,000, and its seconds
exclude the evaluations. Its run ends after the Zoo's number of transitions if the goal is not reached. The
start of processes does not count.
"""

import os
import tempfile
import time

import curves
from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    version_of,
)

EPISODES = 50
# case of curves.py: mean return to reach
GOALS = {"dqn-cartpole": 475.0, "ddpg-pendulum": -200.0, "td3-pendulum": -200.0, "sac-pendulum": -200.0}
SPLITS = ((1, 1), (2, 2))  # actors, learners
METRICS = (
    ("training", "s", "seconds"),
    ("processor time", "s", "cpu_s"),
    ("transitions", "transitions", "steps"),
    ("score of 100 fresh episodes", "return", "fresh"),
)


def run(case, seed):
    import torch

    torch.set_num_threads(1)
    name, *split = case
    return train_parl(name, *split, seed) if split else train_sb3(name, seed)


def train_parl(name, actors, learners, seed):
    import parl

    case, began = curves.CASES[name], {}

    class Start(parl.Callback):
        def on_start(self, _):
            began.update(clock=time.monotonic(), cpu_s=processor_s(children=True))

    options = {"env": case.env, "total_steps": case.steps, "evaluation_episodes": EPISODES, **case.options}
    options |= {"actors": actors, "learners": learners, "threads": 1, "stop_at_return": GOALS[name]}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        made = parl.train(
            name.partition("-")[0], runs=runs, seed=seed, quiet=True, callbacks=[Start()], **options
        )
        seconds = time.monotonic() - began["clock"]
        cpu_s = processor_s(children=True) - began["cpu_s"]
        fresh = float(parl.evaluate(made.path, episodes=100, seed=10**6 + 10**4 * seed).mean())
    reached = made.stopped == "stop_at_return"
    return {"seconds": seconds, "cpu_s": cpu_s, "steps": made.env_steps, "reached": reached, "fresh": fresh}


def train_sb3(name, seed):
    from stable_baselines3.common.callbacks import BaseCallback

    case, goal = curves.CASES[name], GOALS[name]
    model, evaluated = curves.make_sb3(name, seed)
    every = 1_000 if case.env == "CartPole-v1" else 500
    found = {"reached": False, "evaluation_s": 0.0, "evaluation_cpu_s": 0.0}

    class Stop(BaseCallback):
        def _on_step(self):
            if self.num_timesteps % every:
                return True
            clock, cpu_s = time.monotonic(), processor_s()
            first = 10**5 * (seed + 1) + self.num_timesteps
            # Other seeds confirm a mean that reaches the goal.
            found["reached"] = all(evaluated(EPISODES, first + more) >= goal for more in (0, 10**7))
            found["evaluation_s"] += time.monotonic() - clock
            found["evaluation_cpu_s"] += processor_s() - cpu_s
            return not found["reached"]

    clock, cpu_s = time.monotonic(), processor_s()
    model.learn(total_timesteps=case.peer_steps, callback=Stop())
    return {
        "seconds": time.monotonic() - clock - found["evaluation_s"],
        "cpu_s": processor_s() - cpu_s - found["evaluation_cpu_s"],
        "steps": model.num_timesteps,
        "reached": found["reached"],
        "fresh": evaluated(100, 10**6 + 10**4 * seed),
    }


def add_runs(record, label, rows, **same):
    """Adds the results of runs to the record."""
    reached = sum(row["reached"] for row in rows)
    same |= {"seeds": len(rows)}
    record.add("time-to-score", label, "seeds that reach the goal", "seeds", reached, **same)
    for metric, unit, key in METRICS:
        record.add("time-to-score", label, metric, unit, [row[key] for row in rows], **same)


def add_case(record, name, rows):
    """Adds a case to the record: runs by their split, those of Stable-Baselines3 by an empty one."""
    label = f"{name.partition('-')[0].upper()}, {curves.CASES[name].env} to {GOALS[name]:g}"
    version, theirs = version_of("stable-baselines3"), rows.pop(())
    add_runs(record, label, theirs, library="Stable-Baselines3", version=version)
    for (actors, learners), ours in rows.items():
        parts = f"{actors} actor{'s' * (actors > 1)}, {learners} learner{'s' * (learners > 1)}"
        add_runs(record, label, ours, conditions=parts)
        times = [two["seconds"] / one["seconds"] for one, two in zip(ours, theirs, strict=True)]
        record.print(f"{name}, {parts}: {median(times):.2f} times as fast")
        if not all(row["reached"] for row in ours):
            continue
        # A run of the peer that did not reach the goal would have taken longer.
        least = "" if all(row["reached"] for row in theirs) else ", at least"
        for metric, key in (("speed ratio", "seconds"), ("processor-time speed ratio", "cpu_s")):
            ratios = [two[key] / one[key] for one, two in zip(ours, theirs, strict=True)]
            same = {"peer": "Stable-Baselines3", "version": version, "seeds": len(ratios)}
            record.add("time-to-score", label, metric, "x", ratios, conditions=parts + least, **same)


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--only", nargs="*", choices=sorted(GOALS), default=list(GOALS))
    splits = [f"{actors}+{learners}" for actors, learners in SPLITS]
    parser.add_argument("--splits", nargs="*", choices=splits, default=splits, help="actors + learners")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..N")
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return
    chosen = [tuple(map(int, split.split("+"))) for split in arguments.splits]
    with Record(arguments.record, "Time to a score, with one and two actors and learners") as record:
        record.print(
            "case           who                seed    time s  processor s  transitions   fresh  load"
        )
        for name in arguments.only:
            rows = {}
            for seed in range(arguments.seeds):
                for split in ((), *chosen):
                    row = run_in_process(__file__, [name, *split], seed, arguments.finished)
                    rows.setdefault(split, []).append(row)
                    who = "{} + {}".format(*split) if split else "Stable-Baselines3"
                    record.print(
                        f"{name:<14} {who:<18} {seed:>4} {row['seconds']:9.2f} {row['cpu_s']:12.2f}"
                        f" {row['steps']:>12,} {row['fresh']:7.1f} {os.getloadavg()[0]:5.1f}"
                        f"{'' if row['reached'] else '  not reached'}"
                    )
            add_case(record, name, rows)


if __name__ == "__main__":
    main()
