"""Proximal policy optimisation with a clipped ratio.

A rollout of T steps of N environments is learned from several times over. With ``r_b = pi(a_b | s_b) /
pi_old(a_b | s_b)``, advantages ``A`` of generalised advantage estimation and returns ``R = A + V_old``::

    L_policy = -mean_b min(r_b A_b, clip(r_b, 1 - c, 1 + c) A_b)            Schulman et al. (2017), equation 7
    L_value  = 1/2 mean_b (V(s_b) - R_b)^2                                  ibid., equation 9
    L_value' = 1/2 mean_b max((V - R)^2, (V_old + clip(V - V_old, -v, v) - R)^2)       with value_clip v > 0
    loss     = L_policy + value_coefficient L_value - entropy_coefficient mean_b H(pi(. | s_b))
    KL       = mean_b (r_b - 1 - log r_b)                                   Schulman (2020), estimator k3

A is brought to mean 0 and deviation 1 in each minibatch. Learning from a rollout ends early when KL passes
``target_kl``. Step size and clip range fall in straight lines where ``anneal`` and ``anneal_clip`` say so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from parl.algos.actor_critic import (
    ActorCriticAlgorithm,
    ActorCriticConfig,
    ActorCriticLearner,
    evaluate_actions,
    judge,
)
from parl.algos.rollouts import Average
from parl.nets.recurrent import RecurrentActorCritic
from parl.ops.advantages import gae
from parl.ops.bounds import check_bounds
from parl.ops.losses import clipped_gradients, clipped_loss
from parl.ops.policies import normalized
from parl.types import EnvSpec, Preset, Rollout


@dataclass(frozen=True)
class Config(ActorCriticConfig):
    """Settings of PPO. Steps are vector steps; updates are optimizer steps."""

    epochs: int = 10
    """Times that each rollout is learned from."""
    minibatch_size: int = 256
    """Transitions per update."""
    clip: float = 0.2
    """Ratios outside 1 - clip..1 + clip gain nothing more."""
    anneal_clip: bool = False
    """Let the clip range fall to 0 in a straight line over total_frames."""
    value_clip: float = 0.0
    """Values may move this far from the old ones in an update; 0: as far as they like."""
    target_kl: float = 0.0
    """Learning from a rollout ends when the policy has moved this far, in nats; 0: never."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("epochs", 1, 2**20),
            ("minibatch_size", 1, 2**40),
            ("clip", 0, float("inf")),
            ("value_clip", 0, float("inf")),
            ("target_kl", 0, float("inf")),
        )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations and actions: the defaults, or those of the literature.

    Source for images: Huang et al. (2022), "The 37 implementation details of PPO"; else Raffin (2020),
    RL Baselines3 Zoo.
    """
    if len(spec.observation_shape) == 3:
        return Config(
            rollout_steps=128,
            entropy_coefficient=0.01,
            learning_rate=2.5e-4,
            epochs=4,
            clip=0.1,
            value_clip=0.1,
            hidden=(512,),
        )
    if not spec.num_actions:
        return Config(rollout_steps=256, learning_rate=3e-4, normalize_observations=True)
    return Config(gamma=0.98, gae_lambda=0.8, epochs=20, anneal_clip=True)


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    if len(spec.observation_shape) == 3:
        return {"total_frames": 10_000_000, "num_envs": 8}
    return {"num_envs": 8}


PRESETS: dict[str, Preset] = {
    "atari-ram": Preset(
        run={
            "env": "parl/Pong-v0",
            "env_options": ("obs_type=ram", "stack_num=2", "padding=reset"),
            # Two players that are both good enough could go on for ever.
            "evaluation_env_options": ("max_num_frames_per_episode=30_000",),
            "num_envs": 64,
            "total_frames": 4_000_000,
            "evaluation_episodes": 30,
        },
        algorithm={
            "rollout_steps": 64,
            "minibatch_size": 512,
            "epochs": 4,
            "gamma": 0.99,
            "gae_lambda": 0.95,
            "entropy_coefficient": 0.01,
            "normalize_observations": True,
            "changes": True,
            "hidden": (128, 128),
            "anneal_clip": False,
        },
        tuned=True,
        note="The console's 128 bytes and their changes since the step before; found on Pong.",
    ),
    "lunarlander": Preset(
        run={"env": "LunarLander-v3", "num_envs": 16, "total_frames": 1_000_000},
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
        note="LunarLander to 200 within a minute or two; rewards scaled to what a new network gives.",
    ),
}


class PPOLearner(ActorCriticLearner):
    """The losses of the module and the loop over minibatches."""

    def loss(
        self,
        obs: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        old_value: Tensor,
        clip: float,
        judged: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The scalar loss of a minibatch, and KL.

        Args:
            obs: (B, *observation_shape).
            action: (B, *action_shape).
            old_log_prob: (B,) float32, of the policy that acted.
            advantage: (B,) float32, not normalised.
            old_value: (B,) float32, before learning from this rollout.
            clip: range of the ratio.
            judged: log-probabilities, entropies and values (B,), where they are known already.
        """
        config: Config = self.config
        log_prob, entropy, value = judged or evaluate_actions(self.network, obs, action)
        target = advantage + old_value
        if config.normalize_advantages:
            advantage = normalized(advantage)
        loss = clipped_loss(
            log_prob,
            entropy,
            value,
            old_log_prob,
            old_value,
            advantage,
            target,
            clip,
            config.value_clip,
            config.value_coefficient,
            config.entropy_coefficient,
        )
        assert loss.kl is not None
        self.figures = {
            "policy_loss": loss.policy,
            "value_loss": loss.value,
            "entropy": loss.entropy,
            "kl": loss.kl,
        }
        return loss.total, loss.kl

    def optimise(self, rollout: Rollout, progress: float, average: Average) -> int:
        """All epochs over one rollout; returns the updates made."""
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
        clip = config.clip * (1.0 - progress if config.anneal_clip else 1.0)
        if rollout.memory is not None:
            return self._optimise_sequences(rollout, advantage, value, clip, progress, average)
        updates = 0
        for part in self.minibatches(columns, rollout.valid, config.epochs, config.minibatch_size):
            taken = self._step_directly(part, clip, progress, average)
            if taken is not None:
                if not taken:
                    return updates
                updates += 1
                continue
            obs, action, old_log_prob, part_advantage, old_value = part
            loss, kl = self.loss(obs, action, old_log_prob, part_advantage, old_value, clip)
            if self._too_far(kl, average):
                return updates
            self.step(loss, progress, average)
            updates += 1
        return updates

    def _step_directly(
        self, part: tuple[Tensor, ...], clip: float, progress: float, average: Average
    ) -> bool | None:
        """The step of :meth:`loss` without torch's records. None: it has to be made with them.

        False: the policy had moved too far for a step.
        """
        config: Config = self.config
        recorded = self.record(part[0])
        if recorded is None:
            return None
        self.gradients.zero_()
        advantage = normalized(part[3]) if config.normalize_advantages else part[3]
        action, old_log_prob, advantage, old_value, target = (
            column.numpy() for column in (part[1], part[2], advantage, part[4], part[3] + part[4])
        )
        outputs, value = recorded.outputs
        of_outputs, of_value, figures = clipped_gradients(
            self.judge(outputs, action),
            value,
            old_log_prob,
            old_value,
            advantage,
            target,
            clip,
            config.value_clip,
            config.value_coefficient,
            config.entropy_coefficient,
        )
        self.figures = {**figures}
        if config.target_kl and self._too_far(torch.tensor(figures["kl"]), average):
            recorded.drop()
            return False
        recorded.back(of_outputs, of_value)
        self.apply(progress, average)
        return True

    def _optimise_sequences(
        self,
        rollout: Rollout,
        advantage: Tensor,
        value: Tensor,
        clip: float,
        progress: float,
        average: Average,
    ) -> int:
        """The same where steps hang together: minibatches are whole rollouts of some environments."""
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
                starts, memory = rollout.starts[:-1, chosen], rollout.memory[:, chosen]
                parameters, seen, _ = network.unroll(obs, starts, memory)
                action = rollout.action[:, chosen][valid]
                judged = (*judge(network, parameters[valid], action), seen[valid])
                old = [column[:, chosen][valid] for column in (rollout.log_prob, advantage, value)]
                loss, kl = self.loss(obs, action, old[0], old[1], old[2], clip, judged)
                if self._too_far(kl, average):
                    return updates
                self.step(loss, progress, average)
                updates += 1
        return updates

    def _too_far(self, kl: Tensor, average: Average) -> bool:
        """Whether learning from this rollout shall end; the same for all learners."""
        if not self.config.target_kl:
            return False
        average(kl)
        return float(kl) > self.config.target_kl


class PPO(ActorCriticAlgorithm):
    """Makes policies and learners. See :class:`parl.types.RolloutAlgorithm`."""

    learner = PPOLearner
