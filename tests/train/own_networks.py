"""Torsos and networks of a user, as functions of a module and as classes."""

import math

import torch
from torch import nn


class Torso(nn.Module):
    """Two dense layers with tanh, which fused passes can compute."""

    def __init__(self, observation_space):
        super().__init__()
        width = math.prod(observation_space.shape)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.out_features = 6

    def forward(self, observations):
        return self.layers(observations)


class Uneven(Torso):
    """A torso that fused passes cannot compute."""

    def forward(self, observations):
        return self.layers(observations) + observations.flatten(1)[:, :1]


def count_of(action_space):
    if hasattr(action_space, "nvec"):  # several choices: the logits of all, side by side
        return int(action_space.nvec.sum())
    return int(getattr(action_space, "n", 0)) or math.prod(action_space.shape)


def q_network(observation_space, action_space):
    width = observation_space.shape[0]
    return nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, count_of(action_space)))


class Atoms(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.actions = count_of(action_space)
        self.layer = nn.Linear(observation_space.shape[0], self.actions * 51)

    def forward(self, observations):
        return self.layer(observations).view(-1, self.actions, 51)


class PolicyAndValue(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        self.body = nn.Linear(observation_space.shape[0], 8)
        self.policy, self.value = nn.Linear(8, count_of(action_space)), nn.Linear(8, 1)

    def forward(self, observations):
        x = torch.relu(self.body(observations))
        return self.policy(x), self.value(x).squeeze(1)


class Critic(nn.Module):
    def __init__(self, inputs, outputs, count):
        super().__init__()
        self.outputs = outputs
        self.critics = nn.ModuleList(nn.Linear(inputs, max(1, outputs)) for _ in range(count))

    def forward(self, observations, actions=None):
        x = observations if actions is None else torch.cat([observations, actions], dim=1)
        found = torch.stack([critic(x) for critic in self.critics])
        return found if self.outputs else found.squeeze(2)


class ActorAndCritic(nn.Module):
    def __init__(self, observation_space, action_space, outputs=2, critics=2):
        super().__init__()
        width, actions = observation_space.shape[0], count_of(action_space)
        discrete = hasattr(action_space, "n")
        self.actor = nn.Linear(width, actions if discrete else outputs * actions)
        self.critic = Critic(width + (0 if discrete else actions), actions if discrete else 0, critics)


def td3_network(observation_space, action_space):
    return ActorAndCritic(observation_space, action_space, outputs=1)


def ddpg_network(observation_space, action_space):
    return ActorAndCritic(observation_space, action_space, outputs=1, critics=1)


NETWORKS = {"dqn": q_network, "rainbow": Atoms, "pqn": q_network}
NETWORKS |= {"sac": ActorAndCritic, "td3": td3_network, "ddpg": ddpg_network}
NETWORKS |= dict.fromkeys(("ppo", "a2c", "a3c", "ga3c", "impala", "bc"), PolicyAndValue)
