"""Effect of late priorities, lazy writing and the tree's fan-out on scores and speed.

    python benches/learning/ablation.py --seeds 3
    python benches/learning/ablation.py --only delay --seeds 5
    ... --record    # writes the figures to benches/records/DATE-ablation.csv

DQN on CartPole-v1 with parl's settings, two actor threads, one learner, 30,000 steps; each run is a separate
process. ``delay``: number of updates by which new priorities are delayed; ``lazy False``: one lock for every
add, sample and update of the replay, as in buffers without lazy writing; ``fan_out``: children per node of
the sum tree. Score: mean of 100 greedy episodes with the last weights, on seeds that the run did not use.
"""

import functools
import json
import os
import tempfile
import threading

from processes import Record, median, parse_or_run, run_in_process, shared_options

FRAMES = 30_000
CASES = {
    "delay": [{"delay": 0}, {"delay": 10}, {"delay": 100}],
    "lazy": [{"lazy": True}, {"lazy": False}],
    "fan_out": [{"fan_out": k} for k in (4, 8, 16, 32, 64)],
}


def run(case, seed):
    from parl import replay
    from parl.runtime.off_policy import setup
    from parl.train import evaluate, train

    kind = replay.PrioritizedReplay
    if not case.get("lazy", True):
        kind = locked(kind)
    setup.PrioritizedReplay = functools.partial(kind, fan_out=case.get("fan_out", 16))
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        result = train(
            "dqn",
            "CartPole-v1",
            seed=seed,
            runs=runs,
            total_steps=FRAMES,
            actors=2,
            learners=1,
            actor_kind="thread",
            priority_delay=case.get("delay", 0),
            evaluation_episodes=0,
            quiet=True,
        )
        score = float(
            evaluate(result.path, episodes=100, seed=10**6 + 10**4 * seed, checkpoint="last").mean()
        )
        return {"seconds": result.training_s, "updates": result.updates, "score": score}


def locked(kind):
    """A replay class whose calls all hold one lock."""
    lock = threading.Lock()

    def holding(method):
        @functools.wraps(method)
        def call(*args, **kwargs):
            with lock:
                return method(*args, **kwargs)

        return call

    def empty_batch(self, *args, **kwargs):
        batch = kind.empty_batch(self, *args, **kwargs)
        if hasattr(batch, "prepared"):
            del batch.prepared  # A run would sample with it, without the lock.
        return batch

    names = ("add", "sample", "update_priorities")
    methods = {name: holding(getattr(kind, name)) for name in names}
    return type("LockedReplay", (kind,), methods | {"empty_batch": empty_batch})


def main():
    parser = shared_options(__doc__)
    parser.add_argument("--only", action="append", choices=sorted(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return
    with Record(arguments.record, "DQN with late priorities, one lock, and other fan-outs") as record:
        record.print(
            f"dqn, CartPole-v1, {FRAMES:,} steps, 2 actor threads, 1 learner, {arguments.seeds} seeds"
        )
        record.print(
            "case               seconds   steps/s  updates/s  score: median (lowest..highest)   load"
        )
        for name in arguments.only or CASES:
            # In turns, so that load on the machine affects all cases alike.
            rows = {json.dumps(case): [] for case in CASES[name]}
            for seed in range(arguments.seeds):
                for case in CASES[name]:
                    rows[json.dumps(case)].append(run_in_process(__file__, case, seed))
            for key, found in rows.items():
                label = ", ".join(f"{k} {v}" for k, v in json.loads(key).items())
                seconds = median([row["seconds"] for row in found])
                scores = sorted(row["score"] for row in found)
                updates = median([row["updates"] for row in found])
                same = {"seeds": arguments.seeds, "steps": FRAMES}
                same["conditions"] = "CartPole-v1, 2 actor threads, 1 learner"
                times = [row["seconds"] for row in found]
                rates = [row["updates"] / row["seconds"] for row in found]
                record.add("ablation", label, "training", "s", times, **same)
                record.add(
                    "ablation", label, "steps per second", "steps/s", [FRAMES / t for t in times], **same
                )
                record.add("ablation", label, "updates per second", "updates/s", rates, **same)
                record.add("ablation", label, "score", "return", scores, **same)
                record.print(
                    f"{label:<18} {seconds:7.2f} {FRAMES / seconds:9,.0f} {updates / seconds:10,.0f}  "
                    f"{median(scores):6.1f} ({scores[0]:.1f}..{scores[-1]:.1f}) {os.getloadavg()[0]:12.1f}"
                )


if __name__ == "__main__":
    main()
