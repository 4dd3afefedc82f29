"""An algorithm of your own: REINFORCE with a baseline, on CartPole-v1. `docs/own-algorithm.md` explains it.

The return of a step is the discounted sum of the rewards after it; where the rollout or a truncated episode
ends, the baseline V stands for the rest::

    G_t  = r_t + gamma G_{t+1}
    loss = -mean_t (G_t - V(s_t)) log pi(a_t | s_t) + 1/2 mean_t (G_t - V(s_t))^2

Source: Sutton and Barto (2018), section 13.4.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

import parl
from parl.nets import flatten
from parl.ops.advantages import lambda_returns
from parl.types import EnvSpec, Rollout


@dataclass(frozen=True)
class Config:
    """Settings; parl shows each one as an option, with the string below it as help."""

    rollout_steps: int = 32
    """Steps of each environment in a rollout."""
    gamma: float = 0.99
    """Discount factor per step."""
    learning_rate: float = 5e-3
    """Learning rate of Adam."""
    width: int = 64
    """Width of the hidden layer."""


class Network(nn.Module):
    """Observations (B, ...) to logits (B, actions) and values (B,)."""

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__()
        inputs = int(np.prod(spec.observation_shape))
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(inputs, config.width), nn.Tanh())
        self.policy, self.value = nn.Linear(config.width, spec.num_actions), nn.Linear(config.width, 1)

    def forward(self, observations: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        features = self.layers(observations.float())
        return self.policy(features), self.value(features).squeeze(1)


class Policy:
    """Chooses actions for one actor, see `parl.types.RolloutPolicy`."""

    def __init__(self, network: Network, seed: int) -> None:
        self.network = network
        self.weights = flatten(network, gradients=False).weights  # parl copies newer weights into it
        self.generator = torch.Generator().manual_seed(seed)

    def sample(self, observations: np.ndarray, env_steps: int) -> tuple[np.ndarray, np.ndarray]:
        log_p = self._logits(observations).log_softmax(dim=1)
        action = torch.multinomial(log_p.exp(), 1, generator=self.generator)
        return action.squeeze(1).numpy(), log_p.gather(1, action).squeeze(1).numpy()

    def act(self, observations: np.ndarray, env_steps: int) -> np.ndarray:
        return self.sample(observations, env_steps)[0]

    def act_greedily(self, observations: np.ndarray) -> np.ndarray:
        return self._logits(observations).argmax(dim=1).numpy()

    def _logits(self, observations: np.ndarray) -> torch.Tensor:
        with torch.no_grad():
            return self.network(torch.from_numpy(observations))[0]

    def state_dict(self) -> dict:
        return {"generator": self.generator.get_state()}

    def load_state_dict(self, state: dict) -> None:
        self.generator.set_state(state["generator"])


class Learner:
    """Learns from rollouts, see `parl.types.RolloutLearner`."""

    learners = 1

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        self.config, self.figures = config, {}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = Network(config, spec).to(device)
        flat = flatten(self.network)
        self.weights, self.gradients = flat.weights, flat.gradients
        self.optimizer = torch.optim.Adam(self.network.parameters(), config.learning_rate)

    def learn(self, rollout: Rollout, progress: float, average) -> int:
        where, (steps, envs) = self.weights.device, rollout.reward.shape
        logits, value = self.network(rollout.obs.to(where).flatten(0, 1))
        logits, value = logits.view(steps + 1, envs, -1)[:-1], value.view(steps + 1, envs)
        with torch.no_grad():
            following = value[1:].clone()
            if len(rollout.final_obs):  # last observations of truncated episodes
                final = self.network(rollout.final_obs.to(where))[1]
                following[rollout.final_at[:, 0], rollout.final_at[:, 1]] = final
            columns = (rollout.reward, rollout.terminated, rollout.ended)
            reward, terminated, ended = (column.to(where) for column in columns)
            returns = lambda_returns(reward, following, terminated, ended, self.config.gamma, 1.0)
        valid = rollout.valid.to(where)  # rows that only reset an environment are not
        log_p = logits.log_softmax(dim=2).gather(2, rollout.action.to(where).unsqueeze(2)).squeeze(2)[valid]
        error = (returns - value[:-1])[valid]
        advantage = error.detach() / (error.detach().std() + 1e-6)
        policy_loss, value_loss = -(advantage * log_p).mean(), 0.5 * error.square().mean()
        self.gradients.zero_()
        (policy_loss + value_loss).backward()
        average(self.gradients)  # over the processes of torchrun, if there are several
        self.optimizer.step()
        self.figures = {"policy_loss": policy_loss.item(), "value_loss": value_loss.item()}
        return 1

    def metrics(self) -> dict[str, float]:
        return self.figures

    def state_dict(self) -> dict:
        return {"weights": self.weights.clone(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.weights.copy_(state["weights"])
        self.optimizer.load_state_dict(state["optimizer"])


class Reinforce:
    """Makes policies and learners, see `parl.types.RegisteredAlgorithm` and `parl.types.RolloutAlgorithm`."""

    Config = Config
    topology = "rollout"
    memory = 0  # no recurrent state
    shareable = False  # only the topology "hogwild" needs True

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        if not spec.num_actions or spec.observation_parts:
            raise parl.errors.ConfigError("reinforce takes discrete actions and observations in one array")
        self.config, self.spec = config, spec
        self.rollout_steps = config.rollout_steps

    def make_policy(self, actor: int, actors: int, num_envs: int, seed: int) -> Policy:
        return Policy(Network(self.config, self.spec), seed)

    def make_learner(self, seed: int, device: str) -> Learner:
        return Learner(self.config, self.spec, seed, device)


parl.register_algorithm("reinforce", Reinforce)

if __name__ == "__main__":
    # Documentation tests set this variable to check that the script runs, not that it learns.
    quick = {"total_steps": 3_000, "evaluation_episodes": 5} if os.environ.get("PARL_EXAMPLE_QUICK") else {}

    run = parl.train("reinforce", env="CartPole-v1", **({"total_steps": 100_000} | quick))
    print(f"{run.path}: mean return {run.evaluation_return:.1f} after {run.env_steps:,} steps")
