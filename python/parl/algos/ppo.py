"""Proximal policy optimization (PPO) with a clipped ratio.

Each rollout of T steps of N environments is used for several epochs. With ``r_b = pi(a_b | s_b) /
pi_old(a_b | s_b)``, advantages ``A`` of generalized advantage estimation and returns ``R = A + V_old``::

    L_policy = -mean_b min(r_b A_b, clip(r_b, 1 - c, 1 + c) A_b)            Schulman et al. (2017), equation 7
    L_value  = 1/2 mean_b (V(s_b) - R_b)^2                                  ibid., equation 9
    L_value' = 1/2 mean_b max((V - R)^2, (V_old + clip(V - V_old, -v, v) - R)^2)       with value_clip v > 0
    loss     = L_policy + value_coefficient L_value - entropy_coefficient mean_b H(pi(. | s_b))
    KL       = mean_b (r_b - 1 - log r_b)                                   Schulman (2020), estimator k3

A is normalized to mean 0 and standard deviation 1 in each minibatch. Learning from a rollout stops early when
KL exceeds ``target_kl``. ``anneal`` and ``anneal_clip`` decrease learning rate and clip range linearly.

A ``network`` of your own returns a tuple: logits (batch, actions), or means (batch, D) of continuous actions
with D elements, and values (batch,). The standard deviation is a parameter of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from parl.algos.common.actor_critic import (
    ActorCriticAlgorithm,
    ActorCriticConfig,
    ActorCriticLearner,
    evaluate_actions,
    log_prob_and_entropy,
)
from parl.algos.common.atari import PONG, PONG_RAM, PONG_RAM_NOTE
from parl.algos.common.on_policy import Average
from parl.nets.recurrent import RecurrentActorCritic
from parl.ops.advantages import gae
from parl.ops.bounds import check_bounds
from parl.ops.policies import normalized
from parl.types import EnvSpec, Preset, Rollout


@dataclass(frozen=True)
class Config(ActorCriticConfig):
    """Settings of PPO. Steps are vector steps; updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "ppo"

    epochs: int = 10
    """Number of passes over each rollout."""
    minibatch_size: int = 256
    """Transitions per update."""
    clip: float = 0.2
    """Clip range: probability ratios are clipped to 1 - clip..1 + clip."""
    anneal_clip: bool = False
    """Decrease the clip range linearly to 0 over total_steps."""
    value_clip: float = 0.0
    """Clip range, in the value loss, of the change of a value since the rollout; 0: no clipping."""
    target_kl: float = 0.0
    """Stop learning from a rollout when the KL divergence from the policy that acted exceeds this, in nats;
    0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("epochs", 1, 2**20),
            ("minibatch_size", 1, 2**40),
            ("clip", 0, float("inf")),
            ("value_clip", 0, float("inf")),
            ("target_kl", 0, float("inf")),
            infinite=("clip", "value_clip", "target_kl"),
        )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations and actions: the defaults, or those of the literature.

    Source for images: Huang et al. (2022), "The 37 implementation details of PPO"; else Raffin (2020),
    RL Baselines3 Zoo.
    """
    if spec.has_images:
        return Config(
            rollout_steps=128,
            entropy_coefficient=0.01,
            learning_rate=2.5e-4,
            epochs=4,
            clip=0.1,
            value_clip=0.1,
            hidden=(512,),
        )
    if not spec.is_discrete:
        vectors = spec.observation_kind == "vector"
        return Config(rollout_steps=256, learning_rate=3e-4, normalize_observations=vectors)
    return Config(gamma=0.98, gae_lambda=0.8, epochs=20, anneal_clip=True)


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    if spec.has_images:
        return {"total_steps": 10_000_000, "num_envs": 8}
    return {"num_envs": 8}


PRESETS: dict[str, Preset] = {
    "acrobot": Preset(
        run={"env": "Acrobot-v1", "num_envs": 16, "total_steps": 100_000},
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 128,
            "epochs": 4,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "learning_rate": 3e-3,
            "entropy_coefficient": 0.01,
            "normalize_observations": True,
            "normalize_rewards": True,
        },
        tuned=True,
        note="Reaches -100 within a second; a million transitions reach -75.",
    ),
    "atari-ram": Preset(
        run={**PONG_RAM, "num_envs": 64, "total_steps": 4_000_000},
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 512,
            "epochs": 4,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "entropy_coefficient": 0.01,
            "normalize_observations": True,
            "frame_deltas": True,
            "hidden": (128, 128),
            "anneal_clip": False,
        },
        tuned=True,
        note=PONG_RAM_NOTE,
    ),
    "atari-small": Preset(
        run={
            **PONG,
            "env_options": ("img_height=44", "img_width=44", "padding=reset"),
            "num_envs": 64,
            "total_steps": 4_000_000,
        },
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 512,
            "learning_rate": 1e-3,
            "clip": 0.2,
            "value_clip": 0.0,
            "normalize_observations": True,
            "images": "small",
            "hidden": (256,),
        },
        tuned=True,
        note="Normalized pictures of 44 x 44 and the network of Mnih et al. (2013), for CPUs; tuned on Pong.",
    ),
    "cartpole": Preset(
        run={"env": "CartPole-v1", "num_envs": 8, "total_steps": 25_000},
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 64,
            "epochs": 6,
            "gamma": 0.98,
            "gae_lambda": 0.95,
            "learning_rate": 3e-3,
        },
        tuned=True,
        note="Reaches 475 within a second.",
    ),
    "lunarlander": Preset(
        run={"env": "LunarLander-v3", "num_envs": 16, "total_steps": 1_000_000},
        algorithm={
            "rollout_steps": 256,
            "minibatch_size": 64,
            "epochs": 4,
            "gamma": 0.999,
            "gae_lambda": 0.98,
            "entropy_coefficient": 0.003,
            "learning_rate": 5e-4,
            "reward_scale": 0.02,
        },
        tuned=True,
        note="Reaches 200 within a minute; rewards are scaled to the values of a new network.",
    ),
    "pendulum": Preset(
        run={"env": "Pendulum-v1", "num_envs": 16, "total_steps": 100_000},
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 256,
            "epochs": 10,
            "gamma": 0.95,
            "gae_lambda": 0.95,
            "learning_rate": 3e-3,
            "normalize_observations": True,
            "reward_scale": 0.1,
            "activation": "relu",
        },
        tuned=True,
        note="Reaches -200 within seconds.",
    ),
}


class PPOLearner(ActorCriticLearner):
    """Learner of PPO: losses and the loop over minibatches."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        super().__init__(config, spec, seed, device)
        self._clip = torch.full((), config.clip, device=self.device)

    def schedule(self, progress: float) -> None:
        """See :class:`parl.types.RolloutAlgorithm`; also sets the clip range."""
        super().schedule(progress)
        self._clip.fill_(self._clip_range(progress))

    def _clip_range(self, progress: float) -> float:
        config: Config = self.config
        # Without a limit (infinity) there is nothing to reduce.
        anneals = config.anneal_clip and math.isfinite(config.clip)
        return config.clip * (max(0.0, 1.0 - progress) if anneals else 1.0)

    def loss(
        self,
        obs: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        old_value: Tensor,
        clip: Tensor,
        evaluated: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss of a minibatch, and its terms and KL as metrics.

        Args:
            obs: (B, *observation_shape).
            action: (B, *action_shape).
            old_log_prob: (B,) float32, of the policy that acted.
            advantage: (B,) float32, not normalized.
            old_value: (B,) float32, before learning from this rollout.
            clip: scalar, clip range of the ratio.
            evaluated: log-probabilities, entropies and values (B,), if they are already computed.
        """
        c: Config = self.config
        log_prob, entropy, value = evaluated or evaluate_actions(self.network, obs, action)
        target = advantage + old_value
        if c.normalize_advantages:
            advantage = normalized(advantage)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        policy = -torch.minimum(ratio * advantage, ratio.clamp(1 - clip, 1 + clip) * advantage).mean()
        square = (value - target).square()
        if c.value_clip:
            moved = old_value + (value - old_value).clamp(-c.value_clip, c.value_clip)
            square = torch.maximum(square, (moved - target).square())
        error, mean_entropy = 0.5 * square.mean(), entropy.mean()
        total = policy + c.value_coefficient * error
        if c.entropy_coefficient:
            total = total - c.entropy_coefficient * mean_entropy
        kl = (ratio.detach() - 1 - log_ratio.detach()).mean()
        figures = {"policy_loss": policy, "value_loss": error, "entropy": mean_entropy}
        return total, {name: one.detach() for name, one in figures.items()} | {"kl": kl}

    def optimize(self, rollout: Rollout, progress: float, average: Average) -> int:
        """Makes the updates of all epochs over one rollout; returns their number."""
        config: Config = self.config
        value, following = self.values(rollout)
        advantage = gae(
            rollout.reward,
            value,
            following,
            rollout.terminated,
            rollout.ended,
            config.gamma,
            config.gae_lambda,
        )
        columns = [
            rollout.obs[:-1].flatten(0, 1),
            rollout.action.flatten(0, 1),
            *(column.flatten() for column in (rollout.log_prob, advantage, value)),
        ]
        if self._device_schedule is None:
            self._clip.fill_(self._clip_range(progress))
        if rollout.memory is not None:
            return self._optimize_sequences(rollout, advantage, value, progress, average)
        updates = 0
        for part in self.minibatches(columns, rollout.valid, config.epochs, config.minibatch_size):
            self.differentiate(*part, self._clip)
            if self._exceeds_target_kl(average):
                return updates
            self.apply(progress, average)
            updates += 1
        return updates

    def _optimize_sequences(
        self,
        rollout: Rollout,
        advantage: Tensor,
        value: Tensor,
        progress: float,
        average: Average,
    ) -> int:
        """As :meth:`optimize` for recurrent networks: minibatches are whole rollouts of some environments."""
        config: Config = self.config
        network = self.network
        assert isinstance(network, RecurrentActorCritic)
        assert rollout.starts is not None and rollout.memory is not None
        steps, envs = rollout.reward.shape
        parts = max(1, round(steps * envs * self.learners / config.minibatch_size))
        updates = 0
        for _ in range(config.epochs):
            order = torch.randperm(envs, generator=self.generator, device=self.generator.device).cpu()
            for chosen in order.tensor_split(min(parts, envs)):
                obs, valid = rollout.obs[:-1, chosen], rollout.valid[:, chosen]
                if self.learners == 1 and not valid.any():
                    continue
                starts, memory = rollout.starts[:-1, chosen], rollout.memory[:, chosen]
                parameters, seen, _ = network.unroll(obs, starts, memory)
                action = rollout.action[:, chosen][valid]
                evaluated = (*log_prob_and_entropy(network, parameters[valid], action), seen[valid])
                old = [column[:, chosen][valid] for column in (rollout.log_prob, advantage, value)]
                self.figures = self.make_gradients(obs, action, *old, self._clip, evaluated)
                if self._exceeds_target_kl(average):
                    return updates
                self.apply(progress, average)
                updates += 1
        return updates

    def _exceeds_target_kl(self, average: Average) -> bool:
        """Returns whether learning from this rollout stops before this update; equal for all learners."""
        if not self.config.target_kl:
            return False
        kl = torch.as_tensor(self.figures.get("kl", 0.0))
        average(kl)
        return float(kl) > self.config.target_kl


class PPO(ActorCriticAlgorithm):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`."""

    learner = PPOLearner
