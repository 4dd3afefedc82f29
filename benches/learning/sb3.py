"""PPO and A2C beside Stable-Baselines3: same steps and hyper-parameters, one torch thread each, in turns.

Each run is a separate process; times are those of training, without start and evaluation. The score is the
mean of 50 greedy episodes on fresh seeds. Hyper-parameters: RL Baselines3 Zoo (Raffin, 2020).

The bare loops only step each library's environments with random actions. SB3's time divided by that of parl's
bare loop is the ratio that learning without any cost would reach.

    python benches/learning/sb3.py --seeds 3
    python benches/learning/sb3.py --only ppo-cartpole --steps 20k --seeds 1
    python benches/learning/sb3.py --parl-only --seeds 10        # number of seeds that solve it
"""

import argparse
import json
import os
import subprocess
import sys
import time

from processes import Record, add_option, median, processor_s, train_and_score, version_of

# name: (algorithm, environment, environments, steps, score that counts as solved, hyper-parameters)
CASES = {
    "ppo-cartpole": (
        "ppo",
        "CartPole-v1",
        8,
        100_000,
        475.0,
        {
            "n_steps": 32,
            "batch_size": 256,
            "gae_lambda": 0.8,
            "gamma": 0.98,
            "n_epochs": 20,
            "ent_coef": 0.0,
            "learning_rate": 1e-3,
            "clip_range": 0.2,
            "linear": True,
        },
    ),
    "ppo-acrobot": (
        "ppo",
        "Acrobot-v1",
        16,
        200_000,
        -100.0,
        {
            "n_steps": 256,
            "batch_size": 64,
            "gae_lambda": 0.94,
            "gamma": 0.99,
            "n_epochs": 4,
            "ent_coef": 0.0,
            "learning_rate": 3e-4,
            "clip_range": 0.2,
            "linear": False,
        },
    ),
    "a2c-cartpole": (
        "a2c",
        "CartPole-v1",
        8,
        300_000,
        475.0,
        {
            "n_steps": 5,
            "gamma": 0.99,
            "gae_lambda": 1.0,
            "ent_coef": 0.0,
            "learning_rate": 7e-4,
            "linear": True,
        },
    ),
    "ppo-lunarlander": (
        "ppo",
        "LunarLander-v3",
        16,
        1_000_000,
        200.0,
        {
            "n_steps": 1_024,
            "batch_size": 64,
            "gae_lambda": 0.98,
            "gamma": 0.999,
            "n_epochs": 4,
            "ent_coef": 0.01,
            "learning_rate": 3e-4,
            "clip_range": 0.2,
            "linear": False,
        },
    ),
    "a2c-acrobot": (
        "a2c",
        "Acrobot-v1",
        16,
        500_000,
        -100.0,
        {
            "n_steps": 5,
            "gamma": 0.99,
            "gae_lambda": 1.0,
            "ent_coef": 0.0,
            "learning_rate": 7e-4,
            "linear": False,
        },
    ),
}


def parl(case, seed, steps):
    algorithm, env, num_envs, _, _, given = CASES[case]
    options = {
        "rollout_steps": given["n_steps"],
        "gamma": given["gamma"],
        "gae_lambda": given["gae_lambda"],
        "entropy_coefficient": given["ent_coef"],
        "learning_rate": given["learning_rate"],
        "anneal": given["linear"],
        "hidden": (64, 64),
        "activation": "tanh",
    }
    if algorithm == "ppo":
        options |= {
            "minibatch_size": given["batch_size"],
            "epochs": given["n_epochs"],
            "clip": given["clip_range"],
            "anneal_clip": given["linear"],
        }
    else:
        options |= {"optimizer": "rmsprop", "normalize_advantages": False}
    return train_and_score(algorithm, steps, 50, env=env, num_envs=num_envs, seed=seed, **options)


def sb3(case, seed, steps):
    import torch
    from stable_baselines3 import A2C, PPO
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy

    algorithm, env, num_envs, _, _, given = CASES[case]
    torch.set_num_threads(1)
    options = dict(given)
    if options.pop("linear"):
        for name in ("learning_rate", "clip_range"):
            if name in options:
                options[name] = lambda left, first=options[name]: left * first
    kind = {"ppo": PPO, "a2c": A2C}[algorithm]
    model = kind("MlpPolicy", make_vec_env(env, num_envs, seed=seed), seed=seed, device="cpu", **options)
    started, before = time.time(), processor_s()
    model.learn(total_timesteps=steps)
    ended, cpu_s = time.time(), processor_s() - before
    score = float(evaluate_policy(model, make_vec_env(env, 1, seed=10**6 + seed), 50, warn=False)[0])
    return {"training_s": ended - started, "cpu_s": cpu_s, "score": score}


def bare(case, seed, steps, make):
    """Seconds for this number of transitions without learning; steps that only reset count as transitions."""
    _, env, num_envs, *_ = CASES[case]
    envs = make(env, num_envs)
    envs.reset(seed=seed)
    envs.action_space.seed(seed)
    actions = [envs.action_space.sample() for _ in range(256)]
    started, before = time.time(), time.process_time()
    for step in range(-(-steps // num_envs)):
        envs.step(actions[step % 256])
    return {"training_s": time.time() - started, "cpu_s": time.process_time() - before, "score": 0.0}


def parl_bare(case, seed, steps):
    from parl.envs import EnvMaker

    return bare(case, seed, steps, lambda env, num_envs: EnvMaker(env)(num_envs))


def sb3_bare(case, seed, steps):
    from stable_baselines3.common.env_util import make_vec_env

    return bare(case, seed, steps, lambda env, num_envs: Sampled(make_vec_env(env, num_envs)))


class Sampled:
    """Adapts a vector environment of SB3 to the methods that :func:`bare` uses."""

    def __init__(self, envs):
        from gymnasium.vector.utils import batch_space

        self.envs, self.action_space = envs, batch_space(envs.action_space, envs.num_envs)

    def reset(self, seed):
        self.envs.seed(seed)
        self.envs.reset()

    def step(self, actions):
        self.envs.step(actions)


def add_to_record(record, case, steps, rows):
    """Adds a case to the record."""
    algorithm, env, num_envs, *_ = CASES[case]
    name = f"{algorithm.upper()}, {env}, {num_envs} environments"
    same = {"seeds": len(rows["parl"]), "steps": steps, "threads": 1}
    version = version_of("stable-baselines3")
    for key, library in (("parl", "parl"), ("sb3", "Stable-Baselines3")):
        who = {"library": library, "version": version if key == "sb3" else ""} | same
        if key in rows:
            record.add("ppo-a2c-sb3", name, "training", "s", [row["training_s"] for row in rows[key]], **who)
            record.add("ppo-a2c-sb3", name, "score", "return", [row["score"] for row in rows[key]], **who)
    if "sb3" in rows:
        peer = {"peer": "Stable-Baselines3", "version": version} | same
        for metric, key in (("speed ratio", "training_s"), ("processor-time speed ratio", "cpu_s")):
            ratios = [b[key] / a[key] for a, b in zip(rows["parl"], rows["sb3"], strict=True)]
            record.add("ppo-a2c-sb3", name, metric, "x", ratios, **peer)


def compare(record, case, seeds, steps, libraries):
    steps = steps or CASES[case][3]
    goal = CASES[case][4]
    print(
        f"{case}, {steps:,} steps\nseed  " + "  ".join(f"{name:>8} s   cpu s   score" for name in libraries)
    )
    rows = {name: [] for name in libraries}
    for seed in range(seeds):
        for name in libraries:
            done = subprocess.run(
                [sys.executable, __file__, "--one", name, case, str(seed), str(steps)],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            rows[name].append(json.loads(done.stdout.splitlines()[-1]))
        cells = [
            f"{row['training_s']:10.1f} {row['cpu_s']:7.1f} {row['score']:7.1f}"
            for row in (rows[name][-1] for name in libraries)
        ]
        print(f"{seed:>4}  " + "  ".join(cells) + f"  load {os.getloadavg()[0]:.1f}", flush=True)
    add_to_record(record, case, steps, rows)
    for name in libraries:
        found = rows[name]
        solved = sum(row["score"] >= goal for row in found)
        wall, cpu = (median([row[key] for row in found]) for key in ("training_s", "cpu_s"))
        scored = "" if name.endswith("bare") else f", at least {goal:g}: {solved} of {seeds}"
        print(f"{name}: median {wall:.1f} s, processor {cpu:.1f} s{scored}")
    for one, two, what in (
        ("parl", "sb3", "sb3 / parl"),
        ("parl-bare", "sb3", "sb3 / parl's environments alone, the bound"),
        ("parl-bare", "sb3-bare", "sb3's environments alone / parl's"),
    ):
        if one in rows and two in rows:
            ratios = [
                median([b[key] / a[key] for a, b in zip(rows[one], rows[two], strict=True)])
                for key in ("training_s", "cpu_s")
            ]
            print(f"{what}: {ratios[0]:.2f} wall, {ratios[1]:.2f} processor", flush=True)
    print()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds 0..N")
    parser.add_argument("--only", nargs="*", choices=sorted(CASES), default=sorted(CASES))
    parser.add_argument("--steps", default=None, help="such as 20k, instead of the case's default")
    parser.add_argument("--parl-only", action="store_true", help="leave Stable-Baselines3 out")
    add_option(parser, "sb3")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, case, seed, steps = arguments.one
        work = {"parl": parl, "sb3": sb3, "parl-bare": parl_bare, "sb3-bare": sb3_bare}
        print(json.dumps(work[name](case, int(seed), int(steps))))
        return
    from parl.run import parse_count

    steps = parse_count(arguments.steps) if arguments.steps else None
    libraries = ["parl"] if arguments.parl_only else ["parl", "sb3", "parl-bare", "sb3-bare"]
    with Record(arguments.record, "PPO and A2C beside Stable-Baselines3") as record:
        for case in arguments.only:
            compare(record, case, arguments.seeds, steps, libraries)


if __name__ == "__main__":
    main()
