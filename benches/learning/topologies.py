"""Topologies: rates and policy lag compared with `sync`, scaling of populations, profile of a loop.

Each row is a separate process, whose loop runs a warm-up and then `--seconds` of measurement. All rows of a
table have the same environments, network and rollout length.

    python benches/learning/topologies.py rates     # a2c (sync), impala, a3c, ga3c: steps/s, updates/s, lag
    python benches/learning/topologies.py scaling   # es and ga with 1 and 2 processes
    python benches/learning/topologies.py profile   # share of wall time in environments, policy and learner
    python benches/learning/topologies.py starts    # learning with and without decorrelated starts, figure
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from processes import Record, add_option

ENVS = {"CartPole-v1": (), "parl/Pong-v0": ("obs_type=ram", "stack_num=2", "padding=reset")}
WARM_UP_S = 3.0
# Environment, members of a generation (each with its own environment), and number of measured generations
# after the first two: the same for any number of processes, because episodes grow longer during a run. The
# time of a step of vectorized CartPoles depends little on their number, so that half of a few hundred members
# take more than half of the time.
POPULATIONS = (("CartPole-v1", 512, 25), ("CartPole-v1", 4096, 10), ("parl/Pong-v0", 64, 2))


def make_loop(name, env, **options):
    from parl.bench import loops

    return loops.make_loop(name, env, options.pop("env_options", ENVS[env]), **options)


def rate(name, env, seconds, options):
    loop = make_loop(name, env, **options)
    try:
        for limit in (WARM_UP_S, seconds):
            loop.report()
            end = time.monotonic() + limit
            while time.monotonic() < end:
                loop.advance(loop.env_steps + 2_000, 0.25)
        report = loop.report()
        names = ("env_steps_per_s", "updates_per_s", "policy_lag", "policy_lag_max")
        return {name: report.get(name, 0.0) for name in names}
    finally:
        loop.close()


def generations(name, env, count, options):
    """Steps per second over ``count`` generations."""
    loop = make_loop(name, env, **options)
    try:
        for last in (2, 2 + count):
            loop.report()
            while loop.updates < last:
                loop.advance(loop.env_steps + 1, 0.0)
        return {"env_steps_per_s": loop.report()["env_steps_per_s"], "env_steps": loop.env_steps}
    finally:
        loop.close()


def profile(name, env, seconds, options):
    """Shares of the wall time of a `sync` loop spent in the environment's step, policy and learner."""
    loop = make_loop(name, env, **options)
    spent = {"environment": 0.0, "policy": 0.0, "learner": 0.0}

    def timed(part, function):
        def call(*args, **kwargs):
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                spent[part] += time.perf_counter() - started

        return call

    try:
        loop.advance(2_000, 0.0)
        actor = loop._actors[0]
        actor._env.step = timed("environment", actor._env.step)
        actor.policy.sample = timed("policy", actor.policy.sample)
        loop.learner.learn = timed("learner", loop.learner.learn)
        started = time.perf_counter()
        while time.perf_counter() < started + seconds:
            loop.advance(loop.env_steps + 1_000, 0.0)
        wall = time.perf_counter() - started
        return {part: value / wall for part, value in spent.items()} | {"all": sum(spent.values()) / wall}
    finally:
        loop.close()


def curve(name, env, seconds, options):
    """Learning curve: list of (steps, mean return of the episodes that ended since the previous entry)."""
    loop = make_loop(name, env, **options)
    found = []
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            loop.advance(loop.env_steps + 20_000, 0.0)
            episodes = [value for value, _ in loop.take_episodes()]
            if episodes:
                found.append((loop.env_steps, sum(episodes) / len(episodes)))
        return found
    finally:
        loop.close()


def measure(kind, name, env, seconds, **options):
    """Runs one measurement in a separate process."""
    words = [sys.executable, __file__, "one", "--of", json.dumps([kind, name, env, seconds, options])]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def env_name(env):
    return f"{env} from memory" if env.startswith("parl/") else env


def rates(seconds, record):
    same = {"num_envs": 16, "rollout_steps": 16, "hidden": (64, 64)}
    print(
        "| environment | algorithm (topology) | steps/s | beside sync | updates/s | lag, updates | longest |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for env in ENVS:
        sync = None
        for name, topology, own in (
            ("a2c", "sync", {}),
            ("impala", "async", {"actors": 2}),
            ("a3c", "hogwild", {"actors": 2}),
            ("ga3c", "predictor", {"actors": 2, "tune_every_s": 0.0}),
        ):
            found = measure("rate", name, env, seconds, **same, **own)
            steps = found["env_steps_per_s"]
            sync = sync or steps
            cells = (f"{steps:,.0f}", f"{steps / sync:.2f}", f"{found['updates_per_s']:,.0f}")
            lags = (f"{found['policy_lag']:.2f}", f"{found['policy_lag_max']:.0f}")
            print("|", " | ".join((env, f"{name} ({topology})", *cells, *lags)), "|", flush=True)
            case = f"{env_name(env)}, {name} ({topology})"
            about = {"conditions": "16 environments, rollouts of 16 steps, two layers of 64"}
            for metric, unit, key in (
                ("steps per second", "steps/s", "env_steps_per_s"),
                ("updates per second", "updates/s", "updates_per_s"),
                ("policy lag, mean", "updates", "policy_lag"),
                ("policy lag, longest", "updates", "policy_lag_max"),
            ):
                record.add("topologies", case, metric, unit, found[key], **about)
            if steps != sync:
                record.add(
                    "topologies", case, "speed ratio", "x", steps / sync, peer="parl a2c (sync)", **about
                )


def scaling(_, record):
    """Scaling of populations; the last column, two independent runs at once, is the machine's limit."""
    print(
        "| environment | algorithm | members | steps/s, 1 process | 2 processes | ratio (bar 1.8) "
        "| 2 runs at once |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for env, members, count in POPULATIONS:
        given = {"num_envs": members}
        if env.startswith("parl/"):  # its threads would already use the other core
            given["env_options"] = [*ENVS[env], "num_threads=1"]
        for name in ("es", "ga"):

            def taken(actors, name=name, env=env, count=count, given=given):
                return measure("generations", name, env, count, actors=actors, **given)["env_steps_per_s"]

            one, two = taken(1), taken(2)
            with ThreadPoolExecutor(2) as pool:
                apart = sum(pool.map(taken, (1, 1)))
            case, claim = f"{env_name(env)}, {name}, {members} members", "populations"
            record.add(claim, case, "steps per second", "steps/s", one, conditions="1 process")
            record.add(claim, case, "steps per second", "steps/s", two, conditions="2 processes")
            about = {"bar": ">= 1.8", "conditions": "a fixed number of generations"}
            record.add(claim, case, "speed ratio", "x", two / one, peer="parl with 1 process", **about)
            about = {"conditions": "two runs of one process at once, nothing shared"}
            record.add(
                claim, case, "machine's speed ratio", "x", apart / one, peer="one run of 1 process", **about
            )
            cells = (f"{one:,.0f}", f"{two:,.0f}", f"{two / one:.2f}", f"{apart / one:.2f}")
            print("|", " | ".join((env, name, f"{members:,}", *cells)), "|", flush=True)


def profiles(seconds, record):
    print("| environment | algorithm | environment | policy | learner | all (bar 90 %) |")
    print("|---|---|---:|---:|---:|---:|")
    for env, name in (("CartPole-v1", "ppo"), ("CartPole-v1", "a2c"), ("parl/Pong-v0", "ppo")):
        found = measure("profile", name, env, seconds, num_envs=8 if env == "CartPole-v1" else 64)
        case = f"{env_name(env)}, {name}"
        for part in ("environment", "policy", "learner"):
            record.add("loop-profile", case, f"share of wall time, {part}", "%", 100 * found[part])
        whole = 100 * found["all"]
        record.add("loop-profile", case, "share of wall time, all three", "%", whole, bar=">= 90")
        parts = (f"{100 * found[part]:.1f} %" for part in ("environment", "policy", "learner", "all"))
        print(f"| {env} | {name} |", " | ".join(parts), "|", flush=True)


def starts(seconds, out, record):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    kept = {}
    options = {"num_envs": 256, "rollout_steps": 8, "hidden": (64, 64), "normalize_observations": True}
    figure, axes = pyplot.subplots(figsize=(7, 4))
    for steps, label in ((0, "all at once"), (500, "500 random steps, each from its own")):
        for seed in range(2):
            found = measure(
                "curve", "a2c", "parl/Pong-v0", seconds, random_starts=steps, seed=seed, **options
            )
            axes.plot(
                *zip(*found, strict=True), color=f"C{int(steps > 0)}", label=label if seed == 0 else None
            )
            last = found[-max(1, len(found) // 5) :]
            mean = sum(value for _, value in last) / len(last)
            kept.setdefault(label, []).append((mean, found[-1][0]))
            print(
                f"{label}, seed {seed}: {found[-1][0]:,} steps, mean return of the last fifth {mean:.2f}",
                flush=True,
            )
    for label, values in kept.items():
        means, about = [mean for mean, _ in values], {"seeds": 2, "steps": max(steps for _, steps in values)}
        case = f"starts {label.partition(',')[0]}"
        record.add("random-starts", case, "mean return of the last fifth", "return", means, **about)
    axes.set_xlabel("transitions")
    axes.set_ylabel("episode return")
    axes.legend()
    figure.savefig(out, bbox_inches="tight")
    print(out)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("rates", "scaling", "profile", "starts", "one"))
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "starts.png")
    add_option(parser, "topologies")
    parser.add_argument("--of", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.what == "one":
        kind, name, env, seconds, own = json.loads(options.of)
        if "hidden" in own:
            own["hidden"] = tuple(own["hidden"])
        work = {"rate": rate, "profile": profile, "curve": curve, "generations": generations}[kind]
        print(json.dumps(work(name, env, seconds, own)))
        return
    with Record(options.record, "Topologies, populations and the time of a loop") as record:
        if options.what == "starts":
            starts(options.seconds, options.out, record)
        else:
            {"rates": rates, "scaling": scaling, "profile": profiles}[options.what](options.seconds, record)


if __name__ == "__main__":
    main()
