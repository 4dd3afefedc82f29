"""Processor time, page faults and memory of PPO on Pong from pixels, with freed memory kept or returned.

    python benches/learning/memory.py --rounds 2

64 environments, one rollout of 128 steps, one epoch of 32 minibatches of 256, Nature CNN, one thread;
alternating runs with ``PARL_KEEP_MEMORY`` 0 and 1, each in a separate process.
"""

import os
import resource
import tempfile

from processes import Record, parse_or_run, run_in_process, shared_options


def run(case, seed):
    import torch

    from parl.train import train

    torch.set_num_threads(1)
    before = resource.getrusage(resource.RUSAGE_SELF)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        train(
            "ppo",
            env="parl/Pong-v0",
            num_envs=64,
            total_steps=64 * 128,
            epochs=1,
            evaluation_episodes=0,
            threads=1,
            seed=seed,
            quiet=True,
            runs=runs,
        )
    after = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "user_s": after.ru_utime - before.ru_utime,
        "kernel_s": after.ru_stime - before.ru_stime,
        "faults": after.ru_minflt - before.ru_minflt,
        "most_mb": after.ru_maxrss // 1024,
    }


def main():
    parser = shared_options(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return
    with Record(arguments.record, "Freed memory kept or given back, learning from pictures") as record:
        record.print("kept  user s  kernel s  page faults  most MB")
        rows = {"0": [], "1": []}
        for turn in range(arguments.rounds):
            for kept in "01":
                os.environ["PARL_KEEP_MEMORY"] = kept
                row = run_in_process(__file__, "", turn)
                rows[kept].append(row)
                record.print(
                    f"{kept:>4} {row['user_s']:7.1f} {row['kernel_s']:9.1f} {row['faults']:12,}"
                    f" {row['most_mb']:8,}"
                )
        for kept, found in rows.items():
            case = "freed memory kept" if kept == "1" else "PARL_KEEP_MEMORY=0"
            for metric, unit, key in (
                ("user time", "s", "user_s"),
                ("kernel time", "s", "kernel_s"),
                ("page faults", "faults", "faults"),
                ("peak memory", "MB", "most_mb"),
            ):
                values = [row[key] for row in found]
                record.add("memory", case, metric, unit, values, rounds=arguments.rounds, threads=1)


if __name__ == "__main__":
    main()
