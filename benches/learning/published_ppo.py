"""PPO with the settings of CleanRL's scripts, for comparison with parl's. It contains no code of CleanRL.

One process, rollouts of a SyncVectorEnv in tensors, epochs over shuffled minibatches, plain PyTorch with
autograd. Source: Huang et al. (2022), "The 37 implementation details of proximal policy optimization", and
the hyper-parameters of CleanRL's ppo_atari and ppo_continuous_action:

- both: Adam with epsilon 1e-5 and a learning rate that decays to 0, GAE 0.99 / 0.95, advantages normalized
  per minibatch, clipped values, value coefficient 0.5, gradients clipped to 0.5, orthogonal weights.
- Atari: 8 environments, 128 steps, 4 epochs of 4 minibatches, learning rate 2.5e-4, clip 0.1, entropy 0.01,
  Nature CNN; up to 30 no-ops, frame skip 4 with max pooling, a life is an episode, FIRE at reset, 84 x 84
  gray, signs of rewards, 4 stacked frames.
- continuous: 1 environment, 2,048 steps, 10 epochs of 32 minibatches, learning rate 3e-4, clip 0.2, two
  separate tanh networks of 64 x 64, a log standard deviation independent of the state; observations and
  rewards normalized and clipped to -10..10.
"""

import math
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn


@dataclass(frozen=True)
class Settings:
    num_envs: int
    steps: int
    epochs: int
    minibatches: int
    rate: float
    clip: float
    entropy: float


ATARI = Settings(8, 128, 4, 4, 2.5e-4, 0.1, 0.01)
CONTINUOUS = Settings(1, 2_048, 10, 32, 3e-4, 0.2, 0.0)


def layer(module, gain=2**0.5):
    nn.init.orthogonal_(module.weight, gain)
    nn.init.zeros_(module.bias)
    return module


class Pixels(nn.Module):
    def __init__(self, actions):
        super().__init__()
        convolutions = ((4, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
        layers = [part for sizes in convolutions for part in (layer(nn.Conv2d(*sizes)), nn.ReLU())]
        self.torso = nn.Sequential(*layers, nn.Flatten(), layer(nn.Linear(3_136, 512)), nn.ReLU())
        self.policy, self.critic = layer(nn.Linear(512, actions), 0.01), layer(nn.Linear(512, 1), 1.0)

    def forward(self, obs):
        features = self.torso(obs / 255.0)
        distribution = torch.distributions.Categorical(logits=self.policy(features))
        return distribution, self.critic(features).squeeze(1)


class Vectors(nn.Module):
    def __init__(self, inputs, actions):
        super().__init__()

        def tower(outputs, gain):
            widths = [layer(nn.Linear(inputs, 64)), nn.Tanh(), layer(nn.Linear(64, 64)), nn.Tanh()]
            return nn.Sequential(*widths, layer(nn.Linear(64, outputs), gain))

        self.mean, self.critic = tower(actions, 0.01), tower(1, 1.0)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, obs):
        normal = torch.distributions.Normal(self.mean(obs), self.log_std.exp())
        return torch.distributions.Independent(normal, 1), self.critic(obs).squeeze(1)


def atari_env(game, seed, training=True):
    import ale_py
    import gymnasium
    from gymnasium import wrappers as w
    from stable_baselines3.common import atari_wrappers as a

    gymnasium.register_envs(ale_py)
    env = gymnasium.make(f"ALE/{game}-v5", frameskip=1, repeat_action_probability=0.0)
    env = a.NoopResetEnv(w.RecordEpisodeStatistics(env), noop_max=30)
    env = a.MaxAndSkipEnv(env, skip=4)
    env = a.EpisodicLifeEnv(env) if training else env
    env = a.FireResetEnv(env) if "FIRE" in env.unwrapped.get_action_meanings() else env
    env = a.ClipRewardEnv(env) if training else env
    env = w.GrayscaleObservation(w.ResizeObservation(env, (84, 84)))
    env = w.FrameStackObservation(env, 4)
    env.action_space.seed(seed)
    return env


def continuous_env(name, gamma=0.99):
    import gymnasium
    from gymnasium import wrappers as w

    env = w.ClipAction(w.RecordEpisodeStatistics(w.FlattenObservation(gymnasium.make(name))))
    env = w.NormalizeObservation(env)
    env = w.TransformObservation(env, lambda obs: np.clip(obs, -10, 10), env.observation_space)
    return w.TransformReward(
        w.NormalizeReward(env, gamma=gamma), lambda reward: float(np.clip(reward, -10, 10))
    )


def train(makers, network, settings, seed, total_steps, seconds=math.inf):
    """Trains until ``total_steps`` or ``seconds``.

    Returns:
        Steps, seconds, processor seconds of all threads, and the returns of episodes.
    """
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    torch.manual_seed(seed)
    envs = SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.rate, eps=1e-5)
    rows = (settings.steps, settings.num_envs)
    obs = torch.zeros(*rows, *envs.single_observation_space.shape)
    discrete = envs.single_action_space.shape == ()
    action = torch.zeros(
        *rows, *envs.single_action_space.shape, dtype=torch.int64 if discrete else torch.float32
    )
    log_prob, reward, ended, value = (torch.zeros(rows) for _ in range(4))
    now, _ = envs.reset(seed=seed)
    now, over = torch.as_tensor(now, dtype=torch.float32), torch.zeros(settings.num_envs)
    returns, done, started, before = [], 0, time.time(), time.process_time()
    while done < total_steps and time.time() - started < seconds:
        progress = max(done / total_steps, min(1.0, (time.time() - started) / seconds))
        optimizer.param_groups[0]["lr"] = settings.rate * (1.0 - progress)
        for t in range(settings.steps):
            obs[t], ended[t] = now, over
            with torch.no_grad():
                distribution, value[t] = network(now)
                action[t] = distribution.sample()
                log_prob[t] = distribution.log_prob(action[t])
            seen, got, terminated, truncated, info = envs.step(action[t].numpy())
            reward[t] = torch.as_tensor(got, dtype=torch.float32)
            over = torch.as_tensor(np.logical_or(terminated, truncated), dtype=torch.float32)
            now = torch.as_tensor(seen, dtype=torch.float32)
            final = info.get("final_info", {})
            if "episode" in final:
                returns += final["episode"]["r"][final["_episode"]].tolist()
        done += settings.steps * settings.num_envs
        learn(network, optimizer, settings, obs, action, log_prob, reward, ended, value, now, over)
    envs.close()
    return done, time.time() - started, time.process_time() - before, returns


def learn(network, optimizer, settings, obs, action, log_prob, reward, ended, value, now, over):
    """Updates the network in all epochs over one rollout."""
    advantage, following = torch.zeros_like(reward), 0.0
    with torch.no_grad():
        next_value, next_over = network(now)[1], over
    for t in reversed(range(settings.steps)):
        delta = reward[t] + 0.99 * next_value * (1 - next_over) - value[t]
        advantage[t] = following = delta + 0.99 * 0.95 * (1 - next_over) * following
        next_value, next_over = value[t], ended[t]
    target = (advantage + value).flatten()
    obs, action = obs.flatten(0, 1), action.flatten(0, 1)
    old, advantage, before = log_prob.flatten(), advantage.flatten(), value.flatten()
    for _ in range(settings.epochs):
        for part in torch.randperm(len(obs)).chunk(settings.minibatches):
            distribution, seen = network(obs[part])
            ratio = (distribution.log_prob(action[part]) - old[part]).exp()
            a = advantage[part]
            a = (a - a.mean()) / (a.std() + 1e-8)
            clipped = ratio.clamp(1 - settings.clip, 1 + settings.clip)
            policy = -torch.minimum(ratio * a, clipped * a).mean()
            moved = before[part] + (seen - before[part]).clamp(-settings.clip, settings.clip)
            errors = torch.maximum((seen - target[part]) ** 2, (moved - target[part]) ** 2)
            entropy = distribution.entropy().mean()
            loss = policy + 0.5 * 0.5 * errors.mean() - settings.entropy * entropy
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 0.5)
            optimizer.step()
