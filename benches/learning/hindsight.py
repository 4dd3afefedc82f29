"""Hindsight experience replay: parl beside Stable-Baselines3's, in two tasks.

    python benches/learning/hindsight.py bits --bits 15 --steps 60000 --seeds 3
    pip install gymnasium-robotics "mujoco<3.4"
    python benches/learning/hindsight.py reach
    ... --record    # writes the figures to benches/records/DATE-hindsight.csv

``bits``: DQN flips bits to a goal. ``reach``: SAC moves the gripper of FetchReach-v4 to a goal. The same
environment, networks, learning rate, batches, exploration, updates per transition and number of goals per
transition, one core and one torch thread each, in turns. The score is the mean return of 100 greedy
episodes: of bits about ``1 - bits / 2`` if all goals are reached, ``-bits`` if none is; of reach 0 to -50,
minus the number of steps outside of 5 cm. Times are processor seconds of training, of parl with the start
of the run and its checkpoint. One difference stays: parl computes whether a step terminates for the new goal
too, SB3 keeps the flag of the old one.
"""

import argparse
import functools
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import parl

sys.path.insert(0, str(Path(__file__).parents[1]))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "learning"))
from goal_envs import BitFlip

import record

ENVS, BATCH, RATIO, EPISODES = 8, 128, 8, 100
# parl's settings of both tasks.
COMMON = {
    "goals": "future",
    "goals_per_transition": 4.0,
    "n_step": 1,
    "prioritized": False,
    "reward_scale": 1.0,
}
COMMON |= {"schedule": "deterministic", "evaluation_episodes": 0, "quiet": True}


def score_of(run):
    """Mean return of a run's last weights."""
    return float(parl.evaluate(run.path, EPISODES, checkpoint="last", trust=True).mean())


def run_parl(bits, steps, seed):
    """Processor seconds of training and mean return."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = parl.train(
            "dqn",
            env=functools.partial(BitFlip, bits),
            seed=seed,
            total_steps=steps,
            num_envs=ENVS,
            double=False,
            hidden=(256,),
            layer_norm=False,
            learning_rate=1e-3,
            gamma=0.98,
            batch_size=BATCH,
            replay_ratio=float(RATIO),
            replay_capacity=1_000_000,
            learning_starts=500,
            target_period=500,
            epsilon_last=0.05,
            epsilon_steps=steps // 3,
            runs=folder,
            **COMMON,
        )
        return time.process_time() - start, score_of(run)


def run_sb3(bits, steps, seed):
    """Processor seconds of training and mean return."""
    from stable_baselines3 import DQN, HerReplayBuffer
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    make = functools.partial(BitFlip, bits)
    model = DQN(
        "MultiInputPolicy",
        make_vec_env(make, n_envs=ENVS, seed=seed),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        policy_kwargs={"net_arch": [256]},
        learning_rate=1e-3,
        gamma=0.98,
        batch_size=BATCH,
        train_freq=BATCH // RATIO // ENVS,  # vector steps
        gradient_steps=1,
        learning_starts=500,
        target_update_interval=500 * BATCH // RATIO,  # transitions
        exploration_fraction=1 / 3,
        exploration_final_eps=0.05,
        seed=seed,
        device="cpu",
    )
    start = time.process_time()
    model.learn(steps)
    seconds = time.process_time() - start
    return seconds, evaluate_policy(model, Monitor(make()), EPISODES)[0]


REACH = "gymnasium_robotics:FetchReach-v4"
REACH_ENVS, REACH_BATCH = 4, 256


def run_parl_reach(steps, seed):
    """Processor seconds of training and mean return."""
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = parl.train(
            "sac",
            env=REACH,
            seed=seed,
            total_steps=steps,
            num_envs=REACH_ENVS,
            hidden=(64, 64),
            learning_rate=1e-3,
            gamma=0.95,
            batch_size=REACH_BATCH,
            replay_ratio=float(REACH_BATCH),
            replay_capacity=100_000,
            learning_starts=1_000,
            random_steps=1_000,
            runs=folder,
            **COMMON,
        )
        return time.process_time() - start, score_of(run)


def run_sb3_reach(steps, seed):
    """Processor seconds of training and mean return."""
    import gymnasium
    import gymnasium_robotics  # noqa: F401 - registers its environments
    from stable_baselines3 import SAC, HerReplayBuffer
    from stable_baselines3.common.env_util import make_vec_env
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    name = REACH.partition(":")[2]
    model = SAC(
        "MultiInputPolicy",
        make_vec_env(name, n_envs=REACH_ENVS, seed=seed),
        replay_buffer_class=HerReplayBuffer,
        replay_buffer_kwargs={"n_sampled_goal": 4, "goal_selection_strategy": "future"},
        policy_kwargs={"net_arch": [64, 64]},
        learning_rate=1e-3,
        gamma=0.95,
        batch_size=REACH_BATCH,
        buffer_size=100_000,
        train_freq=1,
        gradient_steps=REACH_ENVS,
        learning_starts=1_000,
        seed=seed,
        device="cpu",
    )
    start = time.process_time()
    model.learn(steps)
    seconds = time.process_time() - start
    return seconds, evaluate_policy(model, Monitor(gymnasium.make(name)), EPISODES)[0]


def main():
    """Runs both in turns, prints a line for each and the median of the ratios of their times."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", choices=("bits", "reach"))
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--steps", type=int, help="default: 60,000 of bits, 20,000 of reach")
    parser.add_argument("--seeds", type=int, default=3)
    record.add_option(parser, "hindsight")
    options = parser.parse_args()
    steps = options.steps or {"bits": 60_000, "reach": 20_000}[options.task]
    if options.task == "bits":
        case = f"{options.bits} bits"
        mine, theirs = (functools.partial(run, options.bits) for run in (run_parl, run_sb3))
    else:
        case, mine, theirs = REACH.partition(":")[2], run_parl_reach, run_sb3_reach
    runs = {"parl": mine, "stable-baselines3": theirs}
    torch.set_num_threads(1)
    found = {name: [] for name in runs}
    for seed in range(options.seeds):
        for name, run in runs.items():
            found[name].append(run(steps, seed))
            seconds, score = found[name][-1]
            print(f"seed {seed} {name}: {seconds:.1f} s, mean return {score:.2f}", flush=True)
    ratios = [theirs[0] / mine[0] for mine, theirs in zip(*found.values(), strict=True)]
    print(f"{case}, {steps:,} steps: parl is {np.median(ratios):.2f} times as fast (median)")
    columns = {"seeds": options.seeds, "steps": steps, "threads": 1}
    version = record.version_of("stable-baselines3")
    with record.Record(options.record, "Hindsight experience replay") as out:
        for name, results in found.items():
            who = {"library": name, "version": "" if name == "parl" else version}
            out.add("hindsight", case, "processor time", "s", [one[0] for one in results], **who, **columns)
            out.add("hindsight", case, "score", "return", [one[1] for one in results], **who, **columns)
        peer = {"peer": "stable-baselines3", "version": version}
        out.add("hindsight", case, "speed ratio", "x", ratios, **peer, **columns)


if __name__ == "__main__":
    main()
