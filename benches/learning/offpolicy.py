"""DQN, SAC, TD3 and DDPG: time to a score, speed beside Stable-Baselines3, and the replay's share of time.

    python benches/learning/offpolicy.py goals --seeds 10        # all cases, or --only pendulum-sac
    python benches/learning/offpolicy.py peers --rounds 3 --cores 1   # needs stable-baselines3, mujoco
    python benches/learning/offpolicy.py replay
    ... --record                     # writes the figures to benches/records/DATE-offpolicy.csv

Every run is a separate process. ``goals``: seconds of training from the start of collection to the checkpoint
that reached the goal (in two consecutive evaluations on different seeds), processor seconds, steps, updates,
and the mean of 100 more episodes on seeds that the run did not use. ``peers``: both libraries alternate, with
the same hyper-parameters and steps; a ratio per seed, then median and range. Steps per second are measured
while both learn at each step. Scores are means of 100 greedy episodes of CartPole or 10 of HalfCheetah with
the last weights, on other seeds.
"""

import os
import tempfile
import time

from processes import (
    Record,
    median,
    parse_or_run,
    processor_s,
    run_in_process,
    shared_options,
    use_cores,
    version_of,
)

# name: algorithm, settings, score to reach
GOALS = {
    "pendulum-sac": ("sac", {"preset": "pendulum", "actors": 1, "learners": 1}, -200.0),
    "pendulum-td3": ("td3", {"preset": "pendulum", "actors": 1, "learners": 1}, -200.0),
    "pendulum-ddpg": ("ddpg", {"preset": "pendulum", "actors": 1, "learners": 1}, -200.0),
    "acrobot-dqn": ("dqn", {"preset": "acrobot", "actors": 1, "learners": 1}, -90.0),
    "lunarlander-dqn": ("dqn", {"preset": "lunarlander", "actors": 1, "learners": 1}, 200.0),
}
TURNS = 60  # pairs of blocks with and without the replay
CHEETAH = 2_000  # steps, of which the first 500 are not counted
# name: kind, steps
PEERS = {
    "cheetah-sac": ("sac", CHEETAH),
    "cheetah-td3": ("td3", CHEETAH),
    "cartpole-dqn-zoo": ("dqn-zoo", 50_000),
    "cartpole-dqn-defaults": ("dqn-defaults", 50_000),
}
# Source: rl-baselines3-zoo, hyperparams/dqn.yml, CartPole-v1; and the defaults of Stable-Baselines3's DQN.
DQN = {
    "zoo": {
        "learning_rate": 2.3e-3,
        "batch_size": 64,
        "buffer_size": 100_000,
        "learning_starts": 1_000,
        "target_update_interval": 10,
        "train_freq": 256,
        "gradient_steps": 128,
        "exploration_fraction": 0.16,
        "exploration_final_eps": 0.04,
        "policy_kwargs": {"net_arch": [256, 256]},
    },
    "defaults": {
        "learning_rate": 1e-4,
        "batch_size": 32,
        "buffer_size": 1_000_000,
        "learning_starts": 100,
        "target_update_interval": 10_000,
        "train_freq": 4,
        "gradient_steps": 1,
        "exploration_fraction": 0.1,
        "exploration_final_eps": 0.05,
        "policy_kwargs": {"net_arch": [64, 64]},
    },
}


def goal(case, seed, _steps):
    from parl.train import evaluate, train

    name, options, score = GOALS[case]
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = train(
            name, seed=seed, stop_at_return=score, evaluation_episodes=100, runs=runs, quiet=True, **options
        )
        fresh = float(evaluate(run.path, episodes=100, seed=10**6 + 10**4 * seed).mean())
    return {
        "training_s": run.training_s,
        "cpu_s": processor_s(children=True),
        "steps": run.env_steps,
        "updates": run.updates,
        "fresh": fresh,
        "reached": run.stopped == "stop_at_return",
    }


def parl(case, seed, steps):
    from parl.run import read_metrics
    from parl.train import evaluate, train

    kind = PEERS[case][0]
    common = {"seed": seed, "total_steps": steps, "quiet": True, "evaluation_episodes": 0, "num_envs": 1}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        if not kind.startswith("dqn"):
            options = {
                "learning_starts": 500,
                "random_steps": 500,
                "replay_capacity": 100_000,
                "log_every_s": 0.5,
            }
            run = train(kind, "HalfCheetah-v5", runs=runs, actors=1, learners=1, **common, **options)
            records = [r for r in read_metrics(run.path) if "updates_per_s" in r and r["env_steps"] > 550]
            first, last = records[0], records[-1]
            return {
                "seconds": last["wall_time_s"] - first["wall_time_s"],
                "steps": last["env_steps"] - first["env_steps"],
                "score": float(evaluate(run.path, episodes=10, checkpoint="last").mean()),
            }
        given = DQN[kind.removeprefix("dqn-")]
        run = train(
            "dqn",
            "CartPole-v1",
            runs=runs,
            actors=1,
            learners=1,
            batch_size=given["batch_size"],
            replay_ratio=given["batch_size"] * given["gradient_steps"] / given["train_freq"],
            replay_capacity=min(given["buffer_size"], steps),
            learning_starts=given["learning_starts"],
            double=False,
            prioritized=False,
            n_step=1,
            reward_scale=1.0,
            layer_norm=False,
            hidden=tuple(given["policy_kwargs"]["net_arch"]),
            learning_rate=given["learning_rate"],
            # SB3 counts steps, parl updates; SB3 keeps the target network during consecutive updates.
            target_period=max(
                given["gradient_steps"],
                given["target_update_interval"] * given["gradient_steps"] // given["train_freq"],
            ),
            epsilon_last=given["exploration_final_eps"],
            epsilon_steps=int(given["exploration_fraction"] * steps),
            **common,
        )
        score = float(evaluate(run.path, episodes=100, checkpoint="last").mean())
        return {"seconds": run.training_s, "steps": run.env_steps, "score": score}


def sb3(case, seed, steps):
    import numpy as np
    import stable_baselines3
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.noise import NormalActionNoise

    kind = PEERS[case][0]
    if not kind.startswith("dqn"):
        own = {}
        if kind == "td3":  # The defaults are layers of 400 and 300 units, without action noise.
            noise = NormalActionNoise(np.zeros(6), np.full(6, 0.1))
            own = {"policy_kwargs": {"net_arch": [256, 256]}, "action_noise": noise}
        make = {"sac": stable_baselines3.SAC, "td3": stable_baselines3.TD3}[kind]
        model = make("MlpPolicy", "HalfCheetah-v5", learning_starts=500, seed=seed, device="cpu", **own)
        model.learn(550)
        started = time.time()
        model.learn(steps - 550, reset_num_timesteps=False)
        seconds = time.time() - started
        games = make_vec_env("HalfCheetah-v5", 1, seed=10**6)
        score = float(evaluate_policy(model, games, 10, warn=False)[0])
        return {"seconds": seconds, "steps": steps - 550, "score": score}
    model = stable_baselines3.DQN(
        "MlpPolicy", "CartPole-v1", seed=seed, device="cpu", **DQN[kind.removeprefix("dqn-")]
    )
    started = time.time()
    model.learn(steps)
    seconds = time.time() - started
    score = float(evaluate_policy(model, make_vec_env("CartPole-v1", 1, seed=10**6), 100, warn=False)[0])
    return {"seconds": seconds, "steps": steps, "score": score}


def share(case, _seed, _steps):
    """The replay's share of the time of a training step.

    A step acts, steps the environments, adds rows, samples, learns and updates priorities. The replay's part
    is ``add``, from the arrays of a vector step to rows that can be sampled; sampling a batch of torch
    tensors; and updating priorities from a numpy array; with all checks, Python code and copies in them.
    Blocks of steps with and without these calls alternate, and the share is the difference of the medians.
    Without them, rows are discarded, each batch is the previous one, and no priorities are updated. One
    thread does everything and its processor time is measured; with ``prefetch`` another thread samples the
    next batch concurrently, and wall time is measured.
    """
    import torch

    from parl.envs import EnvMaker, spec_of
    from parl.runtime.gradient_allreduce import SingleLearner
    from parl.train.registry import make_algorithm, topology_of
    from parl.train.settings import default_settings, replace

    torch.set_num_threads(1)
    ahead = case.endswith("/prefetch")
    case, prioritized = case.removesuffix("/prefetch").rsplit("/", 1)
    name, env = case.split("/", 1)
    clock = time.perf_counter if ahead else time.thread_time
    maker = EnvMaker(env)
    spec = spec_of(maker(1))
    run, own = default_settings(name, spec)
    own = replace(own, {"prioritized": prioritized == "prioritized"}, name)
    run = replace(run, {"actors": 1, "learners": 1, "learning_starts": 1_000, "prefetch": int(ahead)}, name)
    setup = topology_of(name).setup(make_algorithm(name, own, spec), run, maker, spec)
    replay, learner = setup.make_replay(None), setup.make_learner()
    actor, part = (
        setup.make_actor(0, replay, 0),
        setup.make_learner_worker(learner, replay, SingleLearner(), 0),
    )
    env_steps = updates = 0

    def steps(seconds):
        """Seconds per update, acting and environment steps included."""
        nonlocal env_steps, updates
        started, before = clock(), updates
        while clock() < started + seconds:
            env_steps += actor.step(env_steps)[0]
            while setup.pacer.due(env_steps, updates):
                part.update(env_steps)
                updates += 1
            actor.policy.weights.copy_(learner.weights)
        return (clock() - started) / max(1, updates - before)

    while updates < 20:
        steps(0.05)
    places = {"add": (replay, "add"), "draw": (part._sampler, "draw")}
    places["give"] = (part._delayed_priorities, "add")
    if ahead:
        places["draw"] = (part, "_next")
    latest, spent = {}, dict.fromkeys(places, 0.0)

    def timed(method, name):
        def call(*args, **kwargs):
            started = time.perf_counter()
            latest[name] = method(*args, **kwargs)
            spent[name] += time.perf_counter() - started
            return latest[name]

        return call

    def block(calls, seconds):
        """As :func:`steps`, with the calls of the replay replaced by ``calls``."""
        for name, call in calls.items():
            setattr(*places[name], call)
        took = steps(seconds)
        for name in calls:
            delattr(*places[name])
        return took

    before = updates
    block({name: timed(getattr(*place), name) for name, place in places.items()}, 2.0)
    parts = {name: seconds / (updates - before) * 1e6 for name, seconds in spent.items()}
    without = {name: lambda *_, name=name, **__: latest[name] for name in places}
    turns = [(block({}, 0.1), block(without, 0.1)) for _ in range(TURNS)]
    whole, rest = (median(column) for column in zip(*turns, strict=True))
    part.close()
    return {
        "share": (whole - rest) / whole,
        "update_us": whole * 1e6,
        "replay_us": (whole - rest) * 1e6,
        "parts_us": parts,
    }


def run(what, name, seed=0, steps=None):
    """The result of ``what``, run in a separate process."""
    return run_in_process(__file__, {"what": what, "name": name, "steps": steps}, seed)


def goals(record, only, arguments):
    for case in only or GOALS:
        name, options, score = GOALS[case]
        record.print(f"{case} to {score:g}: parl {name} {options}")
        record.print("seed  train s  cpu s    steps  updates   fresh  load")
        rows = []
        for seed in range(arguments.seeds):
            row = run("goal", case, seed)
            rows.append(row)
            missed = "" if row["reached"] else "  not reached"
            record.print(
                f"{seed:>4} {row['training_s']:8.1f} {row['cpu_s']:6.1f} {row['steps']:8,}"
                f" {row['updates']:8,} {row['fresh']:7.1f} {os.getloadavg()[0]:5.1f}{missed}"
            )
        add_goal(record, case, rows)
        middle = {
            key: median([row[key] for row in rows]) for key in ("training_s", "cpu_s", "steps", "fresh")
        }
        record.print(
            f"reached on {sum(row['reached'] for row in rows)} of {len(rows)}; median "
            f"{middle['training_s']:.1f} s, {middle['cpu_s']:.1f} processor s, {middle['steps']:,.0f} steps, "
            f"fresh {middle['fresh']:.1f}\n"
        )


def add_goal(record, case, rows):
    """Adds a case of goals to the record."""
    name, options, score = GOALS[case]
    same = {"seeds": len(rows), "conditions": f"preset {options['preset']}, 1 actor, 1 learner"}
    reached = sum(row["reached"] for row in rows)
    if options["preset"] == "lunarlander":
        claim, label, goal, fresh = "lunarlander", "DQN", "seeds that solve it", "score of 100 fresh episodes"
    else:
        env = {"pendulum": "Pendulum-v1", "acrobot": "Acrobot-v1"}[options["preset"]]
        claim, label = "offpolicy-goals", f"{name.upper()}, {env} to {score:g}"
        goal, fresh = "seeds that reach the goal", "fresh score"
    record.add(claim, label, goal, "seeds", reached, **same)
    for metric, unit, key in (
        ("training", "s", "training_s"),
        ("processor time", "s", "cpu_s"),
        ("transitions", "transitions", "steps"),
        (fresh, "return", "fresh"),
    ):
        record.add(claim, label, metric, unit, [row[key] for row in rows], **same)


def add_peers(record, case, steps, cores, rows):
    """Adds a case of peers to the record; ``rows`` are pairs of parl's and Stable-Baselines3's."""
    claim = "dqn-cartpole" if "dqn" in case else "sac-td3"
    label = {
        "cheetah-sac": "SAC, HalfCheetah-v5",
        "cheetah-td3": "TD3, HalfCheetah-v5",
        "cartpole-dqn-zoo": "DQN, CartPole-v1, RL Zoo's settings",
        "cartpole-dqn-defaults": "DQN, CartPole-v1, Stable-Baselines3's defaults",
    }[case]
    label, version = f"{label}, {steps:,} steps", version_of("stable-baselines3")
    same = {"seeds": len(rows), "steps": steps, "conditions": cores}
    rates = [[row["steps"] / row["seconds"] for row in pair] for pair in rows]
    for at, library in enumerate(("parl", "Stable-Baselines3")):
        who = {"library": library, "version": version if at else ""} | same
        record.add(claim, label, "steps per second", "steps/s", [pair[at] for pair in rates], **who)
        record.add(claim, label, "score", "return", [pair[at]["score"] for pair in rows], **who)
    peer = {"peer": "Stable-Baselines3", "version": version} | same
    record.add(claim, label, "speed ratio", "x", [ours / theirs for ours, theirs in rates], **peer)


def peers(record, only, arguments):
    for case in only or PEERS:
        steps = arguments.steps or PEERS[case][1]
        cores, pairs = use_cores(arguments.cores), []
        record.print(f"{case}: {steps:,} steps, in turns; {cores}")
        record.print("seed  parl steps/s  sb3 steps/s  ratio  parl score  sb3 score  load")
        ratios = []
        for seed in range(arguments.first, arguments.first + arguments.rounds):
            rows = [run(who, case, seed, steps) for who in ("parl", "sb3")]
            pairs.append(rows)
            rates = [row["steps"] / row["seconds"] for row in rows]
            ratios.append(rates[0] / rates[1])
            record.print(
                f"{seed:>4} {rates[0]:13.1f} {rates[1]:12.1f} {ratios[-1]:6.2f} {rows[0]['score']:11.1f}"
                f" {rows[1]['score']:10.1f} {os.getloadavg()[0]:5.1f}"
            )
        add_peers(record, case, steps, cores, pairs)
        record.print(f"ratio: median {median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}\n")


def replay(record, only, _arguments):
    record.print("the replay's share of a step: adding rows, sampling batches, updating priorities")
    for case in only or [
        f"{name}/{env}/{kind}{ahead}"
        for name, env in (("dqn", "CartPole-v1"), ("sac", "HalfCheetah-v5"), ("td3", "HalfCheetah-v5"))
        for kind in ("prioritized", "uniform")
        for ahead in ("", "/prefetch")
    ]:
        row = run("share", case)
        name = case.replace("parl/", "parl|").replace("/", ", ").replace("|", "/")
        clock = 100 * sum(row["parts_us"].values()) / row["update_us"]
        for metric, unit, value in (
            ("share of a step, by leaving it out", "%", 100 * row["share"]),
            ("share of a step, by the clock around the calls", "%", clock),
            ("time of a step", "us", row["update_us"]),
            *((f"wall clock, {part}", "us", value) for part, value in row["parts_us"].items()),
        ):
            record.add("replay-share", name, metric, unit, value, threads=1)
        parts = ", ".join(f"{name} {value:.1f}" for name, value in row["parts_us"].items())
        record.print(
            f"{case:<36} {100 * row['share']:5.2f} %  {row['replay_us']:7.1f} us of "
            f"{row['update_us']:9.1f} us per update; wall clock of the calls: {parts} us"
        )
    record.print("")


def work(case, seed):
    do = {"goal": goal, "parl": parl, "sb3": sb3, "share": share}[case["what"]]
    return do(case["name"], seed, case["steps"])


def main():
    parser = shared_options(__doc__)
    parser.add_argument("what", nargs="?", choices=["goals", "peers", "replay"], default="goals")
    parser.add_argument("--only", action="append", help="a case; may be given more than once")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--first", type=int, default=0, help="first seed of peers")
    parser.add_argument("--steps", type=int, help="steps of peers, instead of the case's default")
    arguments = parse_or_run(parser, work)
    if arguments is None:
        return
    with Record(arguments.record, "DQN, SAC, TD3 and DDPG: goals, speed, share of the replay") as record:
        {"goals": goals, "peers": peers, "replay": replay}[arguments.what](record, arguments.only, arguments)


if __name__ == "__main__":
    main()
