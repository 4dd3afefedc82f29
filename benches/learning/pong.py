"""Time to reach a mean return of 18 on Pong from the console's memory or from pictures, over several seeds.

Protocol: ``parl/Pong-v0`` with the defaults of ``ale_py.AtariVectorEnv`` (4 frames per step, up to 30 no-op
frames after a reset, no sticky actions). Observations are two stacked copies of all 128 bytes of the
console's memory (preset ``atari-ram``), or with ``--input pictures`` four stacked pictures (preset
``atari-small``). Games of evaluations are truncated after 30,000 frames. A run ends when 30 greedy episodes
have a mean return of at least 18, and 30 more on other seeds too. Each run is a separate process. Wall time
is measured from the start of the process and includes evaluations. Processor time is that of all threads; two
cores need at least half of it, on a machine without other load. After the run, 30 more episodes are played on
fresh seeds, which do not affect the result.

    python benches/learning/pong.py --seeds 5
    python benches/learning/pong.py --input pictures --seeds 3 --finished FILE --record pong-pictures
    python benches/learning/pong.py --seeds 1 --options '{"hidden": [64, 64]}'
"""

import json
import os
import tempfile

from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    process_s,
    processor_s,
    run_in_process,
    shared_options,
    use_cores,
)

GOAL = 18.0
# Preset, claim, name in records, and the bar of the time in seconds.
INPUTS = {
    "memory": ("atari-ram", "pong-memory", "Pong from the console's memory to 18", 180),
    "pictures": ("atari-small", "pong-pictures", "Pong from pictures to 18", 2_400),
}


def train_seed(case, seed):
    from parl.train import evaluate, train

    with tempfile.TemporaryDirectory() as runs:
        run = train(
            "ppo",
            preset=INPUTS[case["input"]][0],
            seed=seed,
            stop_at_return=GOAL,
            runs=runs,
            quiet=True,
            **case["options"],
        )
        wall_s, cpu_s = process_s(), processor_s()
        return {
            "process_s": wall_s,
            "training_s": run.training_s,
            "cpu_s": cpu_s,
            "env_steps": run.env_steps,
            "updates": run.updates,
            "evaluation": run.evaluation_return,
            "fresh": float(evaluate(run.path, episodes=30).mean()),
            "reached": run.stopped == "stop_at_return",
            "load": os.getloadavg()[0],
        }


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--input", choices=list(INPUTS), default="memory")
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..N")
    parser.add_argument("--options", default="{}", help="settings of the run or of PPO, as JSON")
    arguments = parse_or_run(parser, train_seed)
    if arguments is None:
        return
    use_cores(arguments.cores)
    preset, claim, title, bar_s = INPUTS[arguments.input]
    print(f"ppo {preset} {arguments.options} on {len(os.sched_getaffinity(0))} cores")
    print("seed  process s   cpu s      steps  updates   mean  fresh  load")
    rows = []
    case = {"input": arguments.input, "options": json.loads(arguments.options)}
    for seed in range(arguments.seeds):
        row = run_in_process(__file__, case, seed, arguments.finished)
        rows.append(row)
        print(
            f"{seed:>4} {row['process_s']:10.1f} {row['cpu_s']:7.1f} {row['env_steps']:10,}"
            f" {row['updates']:8,} {row['evaluation']:6.1f} {row['fresh']:6.1f} {row['load']:5.1f}"
            f"{'' if row['reached'] else '  not reached'}",
            flush=True,
        )
    reached = sum(row["reached"] for row in rows)
    with Record(arguments.record, title) as record:
        load = [row["load"] for row in rows]
        cores = len(os.sched_getaffinity(0))
        conditions = [f"{cores} cores, load average {min(load):.1f} to {max(load):.1f} with this work"]
        if arguments.options != "{}":
            conditions.append(arguments.options)
        label = f"PPO, preset {preset}, Pong to 18"
        same = {"seeds": len(rows), "conditions": "; ".join(conditions)}
        record.add(claim, label, "seeds that reach the goal", "seeds", reached, **same)
        for metric, unit, key, bar in (
            ("process", "s", "process_s", f"<= {bar_s}"),
            ("processor time", "s", "cpu_s", ""),
            ("transitions", "transitions", "env_steps", ""),
            ("mean of 30 greedy episodes", "return", "evaluation", ""),
            ("mean of 30 more episodes", "return", "fresh", ""),
        ):
            record.add(claim, label, metric, unit, [row[key] for row in rows], bar=bar, **same)
    middle = {key: median([row[key] for row in rows]) for key in ("process_s", "cpu_s", "env_steps")}
    print(
        f"reached {GOAL:g}: {reached} of {len(rows)}; median: process {middle['process_s']:.1f} s, processor "
        f"{middle['cpu_s']:.1f} s, {middle['env_steps']:,.0f} steps"
    )


if __name__ == "__main__":
    main()
