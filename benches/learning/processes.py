"""Helpers of these benchmarks: runs in separate processes, medians, records (`benches/record.py`)."""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, commit, version_of

__all__ = ["Record", "add_option", "version_of"]


def shared_options(doc):
    """A parser with the options that the benchmarks share."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_cores(parser)
    add_option(parser, Path(sys.argv[0]).stem.replace("_", "-"))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return parser


def add_finished(parser):
    """Adds the option ``--finished``, the last argument of :func:`run_in_process`."""
    parser.add_argument(
        "--finished",
        type=Path,
        metavar="FILE",
        help="keep results of runs in FILE, and take those that it has: a benchmark that was ended goes on",
    )


def add_cores(parser):
    """Adds the option ``--cores``, which gives every library of a comparison the same cores."""
    parser.add_argument(
        "--cores", type=int, help="number of cores for every run of every library (default: all)"
    )


def use_cores(count):
    """Limits this process and its child processes to ``count`` cores; returns the condition for the record.

    OpenMP, and therefore torch, uses as many threads as there are usable cores.

    Args:
        count: number of cores, or None for all cores that the process may use.

    Raises:
        SystemExit: the process has fewer cores.
    """
    allowed = sorted(os.sched_getaffinity(0))
    if count is not None:
        if not 1 <= count <= len(allowed):
            raise SystemExit(f"--cores {count} is outside 1..={len(allowed)}")
        os.sched_setaffinity(0, allowed[:count])
        allowed = allowed[:count]
    return f"every run of every library on {len(allowed)} core{'s' if len(allowed) > 1 else ''}"


def parse_or_run(parser, work):
    """The arguments; or None after printing ``work(case, seed)``, in a process of :func:`run_in_process`."""
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one is None:
        return arguments
    print(json.dumps(work(json.loads(arguments.one), arguments.seed)))
    return None


def run_in_process(file, case, seed=0, finished=None):
    """Runs ``python file --one case --seed seed``; returns the JSON value of the last line of its output.

    Args:
        file: the benchmark.
        case: what JSON can hold.
        seed: of the run.
        finished: path of a file of results, a line for each; a result that is in it is returned.
    """
    if finished is not None:
        result = finished_result(finished, case, seed)
        if result is None:
            result = run_in_process(file, case, seed)
            with finished.open("a", encoding="utf-8") as out:
                line = {"case": case, "seed": seed, "result": result, "commit": commit()}
                out.write(json.dumps(line) + "\n")
        return result
    done = subprocess.run(
        [sys.executable, file, "--one", json.dumps(case), "--seed", str(seed)],
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{case} seed {seed} failed")
    return json.loads(done.stdout.splitlines()[-1])


def finished_result(finished, case, seed):
    """The result of a run in a file of :func:`run_in_process`; None if the file does not have it.

    A record names the commit of the tree that writes it: a result of another one is reported.
    """
    lines = finished.read_text(encoding="utf-8").splitlines() if finished.exists() else []
    for line in map(json.loads, lines):
        if (line["case"], line["seed"]) == (case, seed):
            if line.get("commit") != commit():
                made = line.get("commit", "a commit that was not kept")
                print(f"{finished}: {case}, seed {seed} is of {made}, not {commit()}", file=sys.stderr)
            return line["result"]
    return None


def processor_s(children=False):
    """Seconds of processor time of this process and, with ``children``, of those that it has waited for."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN) if children else (resource.RUSAGE_SELF,)
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, who))


def process_s():
    """Seconds since this process was started; only on Linux."""
    ticks = int(Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def train_and_score(name, steps, episodes, **options):
    """Trains with one thread; returns training and processor seconds, and the mean of greedy episodes."""
    options = {"total_steps": steps, "evaluation_episodes": 0, **options}
    return _train_and_evaluate(name, options, {"episodes": episodes, "checkpoint": "last"})


def train_until(name, score, **options):
    """Trains with one thread until 100 greedy episodes average ``score`` in two evaluations, or to the end.

    The returned score is that of 100 more episodes with the best weights, on seeds that the run did not use.
    """
    unseen = 10**6 + 10**4 * options.get("seed", 0)
    options = {"stop_at_return": score, "evaluation_episodes": 100, **options}
    return _train_and_evaluate(name, options, {"episodes": 100, "seed": unseen})


def _train_and_evaluate(name, options, evaluation):
    import torch

    from parl.train import evaluate, train

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        before = processor_s()
        run = train(name, threads=1, quiet=True, runs=runs, **options)
        cpu_s = processor_s() - before
        score = float(evaluate(run.path, **evaluation).mean())
    return {
        "training_s": run.training_s,
        "cpu_s": cpu_s,
        "score": score,
        "steps": run.env_steps,
        "reached": run.stopped == "stop_at_return",
    }


def train_for(name, seconds, seed=0, skip=1, **options):
    """Trains for ``seconds`` after the first ``skip`` seconds of learning; returns rates and other metrics.

    Rates are computed between two rows of the metrics, so that start and end of the run are excluded.
    """
    from parl.run import read_metrics
    from parl.train import train

    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        options = {
            "log_every_s": 0.25,
            "evaluation_episodes": 0,
            "quiet": True,
            "callbacks": [_UntilLearned(seconds + skip)],
        } | options
        options.setdefault("total_steps", 10**9)
        run = train(name, seed=seed, runs=runs, checkpoint_every=2**52, **options)
        records = [r for r in read_metrics(run.path) if r.get("updates", 0) > 0 and "updates_per_s" in r]
        began = records[0]["wall_time_s"] + skip
        records = [r for r in records if r["wall_time_s"] >= began] or records[-2:]
        first, last = records[0], records[-1]
        elapsed = last["wall_time_s"] - first["wall_time_s"]
        return {
            "env_steps_per_s": (last["env_steps"] - first["env_steps"]) / elapsed,
            "updates_per_s": (last["updates"] - first["updates"]) / elapsed,
            "seconds": elapsed,
            "ratio": last["replay_ratio"],
            "lag": last.get("policy_lag"),
        }


class _UntilLearned:
    """A callback that ends a run ``seconds`` after the first record with an update."""

    def __init__(self, seconds):
        self.seconds, self.end = seconds, None

    def on_record(self, record):
        if self.end is None and record.updates:
            self.end = record.wall_time_s + self.seconds
        return self.end is None or record.wall_time_s < self.end
