"""Time to reach a mean return of 18 on Pong with the preset ``atari-ram``, over several seeds.

Protocol: ``parl/Pong-v0`` with the defaults of ``ale_py.AtariVectorEnv`` (4 frames per step, up to 30 no-op
frames after a reset, no sticky actions). Observations are two stacked copies of all 128 bytes of the
console's memory. Games of evaluations are truncated after 30,000 frames. A run ends when 30 greedy episodes
have a mean return of at least 18, and 30 more on other seeds too. Each run is a separate process. Wall time
is measured from the start of the process and includes evaluations. Processor time is that of all threads; two
cores need at least half of it, on a machine without other load. After the run, 30 more episodes are played on
fresh seeds, which do not affect the result.

    python benches/learning/pong.py --seeds 5
    python benches/learning/pong.py --seeds 1 --options '{"hidden": [64, 64]}'
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

from processes import Record, add_option, median, processor_s

GOAL = 18.0


def train_seed(seed, options):
    from parl.train import evaluate, train

    with tempfile.TemporaryDirectory() as runs:
        run = train(
            "ppo",
            preset="atari-ram",
            seed=seed,
            stop_at_return=GOAL,
            runs=runs,
            quiet=True,
            **json.loads(options),
        )
        ended = time.time()
        cpu_s = processor_s()
        return {
            "ended": ended,
            "training_s": run.training_s,
            "cpu_s": cpu_s,
            "env_steps": run.env_steps,
            "updates": run.updates,
            "evaluation": run.evaluation_return,
            "fresh": float(evaluate(run.path, episodes=30).mean()),
            "reached": run.stopped == "stop_at_return",
        }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..N")
    parser.add_argument("--options", default="{}", help="settings of the run or of PPO, as JSON")
    add_option(parser, "pong")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one is not None:
        print(json.dumps(train_seed(arguments.one, arguments.options)))
        return
    print(f"ppo atari-ram {arguments.options} on {len(os.sched_getaffinity(0))} cores")
    print("seed  process s   cpu s      steps  updates   mean  fresh  load")
    rows = []
    for seed in range(arguments.seeds):
        started = time.time()
        done = subprocess.run(
            [sys.executable, __file__, "--one", str(seed), "--options", arguments.options],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        row = json.loads(done.stdout.splitlines()[-1])
        row["process_s"], row["load"] = row["ended"] - started, os.getloadavg()[0]
        rows.append(row)
        print(
            f"{seed:>4} {row['process_s']:10.1f} {row['cpu_s']:7.1f} {row['env_steps']:10,}"
            f" {row['updates']:8,} {row['evaluation']:6.1f} {row['fresh']:6.1f} {row['load']:5.1f}"
            f"{'' if row['reached'] else '  not reached'}",
            flush=True,
        )
    reached = sum(row["reached"] for row in rows)
    with Record(arguments.record, "Pong from the console's memory to 18") as record:
        load = [row["load"] for row in rows]
        conditions = [f"both cores, load average {min(load):.1f} to {max(load):.1f} with this work"]
        if arguments.options != "{}":
            conditions.append(arguments.options)
        case, same = (
            "PPO, preset atari-ram, Pong to 18",
            {"seeds": len(rows), "conditions": "; ".join(conditions)},
        )
        record.add("pong-memory", case, "seeds that reach the goal", "seeds", reached, **same)
        for metric, unit, key, bar in (
            ("process", "s", "process_s", "<= 180"),
            ("processor time", "s", "cpu_s", ""),
            ("transitions", "transitions", "env_steps", ""),
            ("mean of 30 greedy episodes", "return", "evaluation", ""),
            ("mean of 30 more episodes", "return", "fresh", ""),
        ):
            record.add("pong-memory", case, metric, unit, [row[key] for row in rows], bar=bar, **same)
    middle = {key: median([row[key] for row in rows]) for key in ("process_s", "cpu_s", "env_steps")}
    print(
        f"reached {GOAL:g}: {reached} of {len(rows)}; median: process {middle['process_s']:.1f} s, processor "
        f"{middle['cpu_s']:.1f} s, {middle['env_steps']:,.0f} steps"
    )


if __name__ == "__main__":
    main()
