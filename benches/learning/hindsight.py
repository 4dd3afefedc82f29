"""Hindsight experience replay: parl beside Stable-Baselines3's, on bits that are flipped to a goal.

    python benches/learning/hindsight.py --bits 15 --steps 60000 --seeds 3
    python benches/learning/hindsight.py --bits 8 --steps 6000 --seeds 1

The same environment, network (256 units), learning rate, batches, exploration, replay ratio and number of
goals per transition, one core and one torch thread each, in turns. The score is the mean return of 100 greedy
episodes: about ``1 - bits / 2`` if all goals are reached, ``-bits`` if none is. One difference stays: parl
computes whether a step terminates for the new goal too, SB3 keeps the flag of the old one.
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

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "learning"))
from goal_envs import BitFlip

ENVS, BATCH, RATIO, EPISODES = 8, 128, 8, 100


def run_parl(bits, steps, seed):
    """Seconds of training and mean return."""
    with tempfile.TemporaryDirectory() as folder:
        run = parl.train(
            "dqn",
            env=functools.partial(BitFlip, bits),
            seed=seed,
            total_steps=steps,
            num_envs=ENVS,
            schedule="deterministic",
            goals="future",
            goals_per_transition=4.0,
            n_step=1,
            double=False,
            reward_scale=1.0,
            prioritized=False,
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
            evaluation_episodes=EPISODES,
            runs=folder,
            quiet=True,
        )
    return run.training_s, run.evaluation_return


def run_sb3(bits, steps, seed):
    """Seconds of training and mean return."""
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
    start = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - start
    return seconds, evaluate_policy(model, Monitor(make()), EPISODES)[0]


def main():
    """Runs both in turns and prints one line a seed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bits", type=int, default=15)
    parser.add_argument("--steps", type=int, default=60_000)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    times = []
    for seed in range(options.seeds):
        found = {}
        for name, run in (("parl", run_parl), ("sb3", run_sb3)):
            found[name] = run(options.bits, options.steps, seed)
            print(f"seed {seed} {name}: {found[name][0]:.1f} s, mean return {found[name][1]:.2f}", flush=True)
        times.append(found["sb3"][0] / found["parl"][0])
    ratio = f"SB3's training time is {np.median(times):.2f} times parl's (median)"
    print(f"{options.bits} bits, {options.steps:,} steps: {ratio}")


if __name__ == "__main__":
    main()
