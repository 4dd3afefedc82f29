"""DQN in one file, as CleanRL writes it, with parl's prioritized replay.

    python examples/cleanrl_dqn.py                             # CartPole-v1, a minute
    python examples/cleanrl_dqn.py --env-id breakout --total-timesteps 10000000 --buffer-size 1000000

An id that Gymnasium has registered makes that environment; any other name is an Atari game of
``parl.AtariVectorEnv``. Only the lines marked with # replay differ from a script with a uniform buffer.
"""

from __future__ import annotations

import os
import random
import time
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
import tyro
from torch import Tensor, nn

import parl


@dataclass
class Args:
    env_id: str = "CartPole-v1"
    """a Gymnasium id, or an Atari game"""
    seed: int = 1
    total_timesteps: int = 60_000
    num_envs: int = 4
    device: str = "cpu"
    torch_threads: int = 1
    """threads of torch on the CPU; small networks are fastest with one"""
    learning_rate: float = 1e-3
    buffer_size: int = 50_000
    gamma: float = 0.99
    n_step: int = 3
    batch_size: int = 128
    learning_starts: int = 2_000
    train_every: int = 8
    """environment steps per gradient step"""
    target_every: int = 1_000
    """environment steps between updates of the target network"""
    start_e: float = 1.0
    end_e: float = 0.05
    exploration_fraction: float = 0.3
    alpha: float = 0.6
    """exponent of the priorities; 0 samples uniformly"""
    beta: float = 0.4
    """exponent of the importance weights at the start; it rises to 1"""
    quiet: bool = False


def make_envs(args: Args) -> gym.vector.VectorEnv:
    """Makes vector environments with next-step autoreset."""
    if args.env_id in gym.registry:
        return gym.make_vec(args.env_id, num_envs=args.num_envs)
    return parl.AtariVectorEnv(args.env_id, num_envs=args.num_envs, reward_clipping=True)


class QNetwork(nn.Module):
    def __init__(self, envs: Any):
        super().__init__()
        shape, actions = envs.single_observation_space.shape, int(envs.single_action_space.n)
        self.pixels = len(shape) == 3
        if self.pixels:
            front = [nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU()]
            front += [nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU()]
            self.network = nn.Sequential(*front, nn.Linear(512, actions))
        else:
            front = [nn.Linear(shape[0], 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU()]
            self.network = nn.Sequential(*front, nn.Linear(84, actions))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x.float() / 255.0 if self.pixels else x)


def main(args: Args) -> float:
    """Trains; returns the mean return of the last 20 episodes, or 0 if none was finished."""
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.torch_threads)
    rng = np.random.default_rng(args.seed)
    envs = make_envs(args)
    space = envs.single_observation_space
    q_network, target_network = QNetwork(envs).to(args.device), QNetwork(envs).to(args.device)
    target_network.load_state_dict(q_network.state_dict())
    optimizer = torch.optim.Adam(q_network.parameters(), lr=args.learning_rate)

    replay = parl.PrioritizedReplay(  # replay
        args.buffer_size,
        {
            "obs": (space.shape, space.dtype),  # the next row holds the next observation
            "action": ((), "int64"),
            "reward": ((), "float32"),
            "terminated": ((), "bool"),
            "truncated": ((), "bool"),
        },
        alpha=args.alpha,
        n_step=args.n_step,
        gamma=args.gamma,
        num_envs=args.num_envs,
        seed=args.seed,
    )

    obs, _ = envs.reset(seed=args.seed)
    returns, finished = np.zeros(args.num_envs), list[float]()
    # Environments whose episode has ended: the next step ignores the action and begins a new episode.
    begins = np.zeros(args.num_envs, np.bool_)
    start = time.time()
    for step in range(0, args.total_timesteps, args.num_envs):
        progress = step / args.total_timesteps
        epsilon = max(args.end_e, args.start_e - progress / args.exploration_fraction)
        with torch.no_grad():
            actions = q_network(torch.as_tensor(obs, device=args.device)).argmax(1).cpu().numpy()
        explores = rng.random(args.num_envs) < epsilon
        actions = np.where(explores, rng.integers(0, envs.single_action_space.n, args.num_envs), actions)
        next_obs, rewards, terminations, truncations, _ = envs.step(actions)
        replay.add(  # replay
            obs=obs, action=actions, reward=rewards, terminated=terminations, truncated=truncations
        )
        returns += np.where(begins, 0.0, rewards)
        begins = terminations | truncations
        finished += returns[begins].tolist()
        returns[begins] = 0.0
        obs = next_obs

        if step >= args.learning_starts and step % args.train_every < args.num_envs:
            beta = args.beta + (1.0 - args.beta) * progress
            data = replay.sample(args.batch_size, beta=beta, as_torch=True)  # replay
            data_on = {k: v.to(args.device) for k, v in data.items() if isinstance(v, Tensor)}
            with torch.no_grad():
                best = q_network(data_on["next_obs"]).argmax(1, keepdim=True)
                next_values = target_network(data_on["next_obs"]).gather(1, best).squeeze(1)
                targets = data_on["reward"] + data_on["discount"] * next_values
            values = q_network(data_on["obs"]).gather(1, data_on["action"][:, None]).squeeze(1)
            errors = targets - values
            elementwise = nn.functional.smooth_l1_loss(values, targets, reduction="none")
            loss = (data_on["weights"] * elementwise).mean()  # replay
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            replay.update_priorities(data.tickets, errors.detach())  # replay
        if step % args.target_every < args.num_envs:
            target_network.load_state_dict(q_network.state_dict())
        if not args.quiet and finished and step % 5_000 < args.num_envs:
            speed = step / (time.time() - start)
            print(
                f"{step:>9} steps  {speed:6.0f} per second  return {np.mean(finished[-20:]):7.1f}", flush=True
            )
    envs.close()
    return float(np.mean(finished[-20:] or [0.0]))


if __name__ == "__main__":
    # A short run, to check that everything works.
    quick = Args(total_timesteps=1_500, learning_starts=500) if "PARL_EXAMPLE_QUICK" in os.environ else Args()
    print(f"mean return of the last 20 episodes: {main(tyro.cli(Args, default=quick)):.1f}")
