"""PPO with an LSTM on CartPole without velocities, beside RecurrentPPO of sb3-contrib.

    python benches/learning/recurrent.py --seeds 5 --finished runs.jsonl --record

It needs ``sb3-contrib``: ``make bench-recurrent``. Every run is a separate process with one torch thread, and
ends when the mean of 100 greedy episodes reaches 475, which 100 more on other seeds confirm. Evaluations are
every 5,000 transitions, those of parl also when training returns come close to the goal; their time does not
count. parl has the settings of ``lstm-positions`` of ``goals.py``, whose runs end after a million
transitions, and like RecurrentPPO those of RL Baselines3 Zoo for CartPoleNoVel-v1
(``hyperparams/ppo_lstm.yml``), whose runs end after 100,000. The learning
rate depends on these numbers. The score is that of 100 more episodes.
"""

import os
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

from curves import Clock
from goals import CASES
from positions import Positions
from processes import (
    Record,
    add_finished,
    median,
    parse_or_run,
    run_in_process,
    shared_options,
    version_of,
)

GOAL, EPISODES, EVERY = 475.0, 100, 5_000
ZOO_STEPS, ZOO_ENVS = 100_000, 8
ZOO = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": lambda left: 1e-3 * left,
    "clip_range": lambda left: 0.2 * left,
}
# The same for parl; gamma, epochs, learning rate and the clipping that falls are its defaults too.
ZOO_IN_PARL = {
    "num_envs": ZOO_ENVS,
    "hidden": (64,),
    "activation": "relu",
    "rollout_steps": 32,
    "minibatch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "epochs": 20,
    "entropy_coefficient": 0.0,
    "learning_rate": 1e-3,
    "anneal": True,
    "clip": 0.2,
    "anneal_clip": True,
    "normalize_observations": True,
    "normalize_rewards": True,
}
PEER = "RecurrentPPO of sb3-contrib"
LIBRARIES = ("parl", "parl, Zoo's settings", "sb3-contrib")


def run(library, seed):
    import torch

    torch.set_num_threads(1)
    if library == "sb3-contrib":
        return train_contrib(seed)
    algorithm, env, steps, _, options = CASES["lstm-positions"]
    if library == "parl, Zoo's settings":
        steps, options = ZOO_STEPS, options | ZOO_IN_PARL
    return train_parl(algorithm, env, steps, options, seed)


def train_parl(algorithm, env, steps, options, seed):
    import parl
    from parl.train import evaluate

    clock, wall = Clock(), []

    class Start(parl.Callback):
        def on_start(self, _):
            wall.append(time.monotonic())
            clock.start()

    clock.leave_out_evaluations()
    options = {"total_steps": steps, "evaluation_every": EVERY, "evaluation_episodes": EPISODES, **options}
    with tempfile.TemporaryDirectory(prefix="parl-bench-") as runs:
        run = parl.train(
            algorithm,
            env=env,
            seed=seed,
            stop_at_return=GOAL,
            threads=1,
            runs=runs,
            quiet=True,
            callbacks=[Start()],
            **options,
        )
        cpu_s, wall_s = clock.now(), time.monotonic() - wall[0]
        score = float(evaluate(run.path, episodes=100, seed=10**6 + 10**4 * seed).mean())
    reached = run.stopped == "stop_at_return"
    return {"cpu_s": cpu_s, "wall_s": wall_s, "steps": run.env_steps, "reached": reached, "score": score}


def train_contrib(seed):
    from sb3_contrib import RecurrentPPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import nn

    clock, counts = Clock(), {"evaluations": 0}

    def played(first_seed):
        fresh = make_vec_env("CartPole-v1", 50, seed=first_seed, wrapper_class=Positions)
        fresh = VecNormalize(fresh, training=False, norm_reward=False)
        fresh.obs_rms = envs.obs_rms
        return float(evaluate_policy(model, fresh, EPISODES, warn=False)[0])

    class Until(BaseCallback):
        reached = False

        def _on_step(self):
            if self.num_timesteps >= (counts["evaluations"] + 1) * EVERY:
                counts["evaluations"] += 1
                first = 10**5 * (seed + 1) + 1_000 * counts["evaluations"]
                self.reached = all(clock.without(played, first + more) >= GOAL for more in (0, 500))
            return not self.reached

    envs = make_vec_env("CartPole-v1", ZOO_ENVS, seed=seed, wrapper_class=Positions)
    envs = VecNormalize(envs, gamma=ZOO["gamma"])
    policy = {"ortho_init": False, "activation_fn": nn.ReLU, "lstm_hidden_size": 64}
    policy |= {"enable_critic_lstm": True, "net_arch": {"pi": [64], "vf": [64]}}
    model = RecurrentPPO("MlpLstmPolicy", envs, seed=seed, device="cpu", policy_kwargs=policy, **ZOO)
    until, wall = Until(), time.monotonic()
    clock.start()
    model.learn(ZOO_STEPS, callback=until)
    cpu_s, wall_s = clock.now(), time.monotonic() - wall
    found = {"cpu_s": cpu_s, "wall_s": wall_s, "steps": model.num_timesteps, "reached": until.reached}
    return found | {"score": played(10**6 + 10**4 * seed)}


def main():
    parser = shared_options(__doc__)
    add_finished(parser)
    parser.add_argument("--seeds", type=int, default=5, help="seeds 0..N")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="runs at once")
    arguments = parse_or_run(parser, run)
    if arguments is None:
        return

    def finish(what):
        library, seed = what
        row = run_in_process(__file__, library, seed, arguments.finished)
        end = "" if row["reached"] else ", not reached"
        print(
            f"{library} {seed}: {row['score']:.0f} after {row['steps']:,} transitions,"
            f" processor {row['cpu_s']:.1f} s{end}",
            file=sys.stderr,
            flush=True,
        )
        return row

    conditions = f"{arguments.jobs} runs at a time, beside other work"
    with (
        Record(arguments.record, "PPO with an LSTM beside RecurrentPPO", conditions) as record,
        ThreadPoolExecutor(arguments.jobs) as pool,
    ):
        seeds = range(arguments.seeds)
        rows = list(pool.map(finish, [(name, seed) for seed in seeds for name in LIBRARIES]))
        add_to_record(record, rows[0::3], rows[1::3], rows[2::3])


def add_to_record(record, own, ours, theirs):
    """Adds the runs to the record; the ratios are of those with the Zoo's settings, if all of parl's end."""
    goal, version = f"CartPole-v1 without velocities to {GOAL:g}", version_of("sb3-contrib")
    for settings, library, rows in (
        ("own settings", "parl", own),
        ("Zoo's settings", "parl", ours),
        ("Zoo's settings", PEER, theirs),
    ):
        label = f"{goal}, {settings}"
        same = {"library": library, "version": "" if library == "parl" else version}
        same |= {"seeds": len(rows), "threads": 1}
        reached = sum(row["reached"] for row in rows)
        record.add("recurrent", label, "seeds that reach the goal", "seeds", reached, **same)
        for metric, unit, key in (
            ("transitions", "transitions", "steps"),
            ("processor time", "s", "cpu_s"),
            ("score of 100 fresh episodes", "return", "score"),
        ):
            record.add("recurrent", label, metric, unit, [row[key] for row in rows], **same)
        steps, cpu_s = (median([row[key] for row in rows]) for key in ("steps", "cpu_s"))
        record.print(
            f"{library}, {settings}: {reached} of {len(rows)}, median {steps:,.0f} transitions, {cpu_s:.1f} s"
        )
    if all(row["reached"] for row in ours):
        # Of a run that ended before its goal, the ratio is a lower bound.
        same = {"peer": PEER, "version": version, "seeds": len(ours), "threads": 1}
        label = f"{goal}, Zoo's settings"
        ratios = [two["cpu_s"] / one["cpu_s"] for one, two in zip(ours, theirs, strict=True)]
        record.add("recurrent", label, "processor-time speed ratio", "x", ratios, **same)


if __name__ == "__main__":
    main()
