"""Advantage actor-critic (A2C): one update per rollout, with generalized advantages or V-trace.

::

    loss = -mean_b log pi(a_b | s_b) A_b  +  value_coefficient 1/2 mean_b (V(s_b) - R_b)^2
           - entropy_coefficient mean_b H(pi(. | s_b))                     Mnih et al. (2016), section 4 and 5

``advantage = "gae"`` takes A from Schulman et al. (2016) and ``R = A + V``; with ``gae_lambda = 1`` these are
the n-step advantages of Mnih et al. ``advantage = "vtrace"`` takes A and R from Espeholt et al. (2018),
equation 1, which correct for the difference between the policy that acted and the current one.

With many environments, one update per rollout of all of them wastes experience. With a batching strategy, an
update is made every ``rollout_steps`` steps, from the last ``window`` steps of one of ``env_groups`` groups
of environments, which alternate. Windows then overlap and hold steps of several policies, for which V-trace
corrects (Dalton and Frosio, 2020, "Accelerating RL through GPU Atari emulation", section 4).

A ``network`` of your own returns a tuple: logits (batch, actions), or means (batch, D) of continuous actions
with D elements, and values (batch,). The standard deviation is a parameter of its own.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from parl.algos.common.actor_critic import (
    ActorCriticAlgorithm,
    ActorCriticConfig,
    ActorCriticLearner,
    log_prob_and_entropy,
)
from parl.algos.common.on_policy import Average, rollout_on
from parl.errors import ConfigError
from parl.nets.recurrent import RecurrentActorCritic
from parl.ops.advantages import gae, vtrace
from parl.ops.bounds import check_bounds, check_choices
from parl.ops.policies import normalized
from parl.types import EnvSpec, Preset, Rollout

COLUMNS = ("obs", "action", "log_prob", "reward", "terminated", "ended", "valid")
"""Fields of a rollout that have a row for each step and environment."""


@dataclass(frozen=True)
class Config(ActorCriticConfig):
    """Settings of A2C. Steps are vector steps; updates are optimizer steps."""

    algorithm_name: ClassVar[str] = "a2c"

    advantage: Literal["gae", "vtrace"] = "gae"
    """gae: generalized advantage estimation. vtrace: V-trace, which corrects for data of older policies."""
    window: int = 0
    """Latest steps that an update uses, a multiple of rollout_steps; 0: rollout_steps, each used once."""
    env_groups: int = 1
    """Number of groups of environments; updates learn from one group each, alternately. More than one need a
    window of at least env_groups * rollout_steps."""
    rho_max: float = 1.0
    """V-trace: upper bound of the importance ratio that weights TD errors."""
    c_max: float = 1.0
    """V-trace: upper bound of the importance ratio along traces."""

    def unused(self, spec: EnvSpec) -> dict[str, str]:
        """Returns the settings that have no effect with the others or in this environment, with reasons."""
        found = super().unused(spec)
        if self.advantage == "gae":
            found |= dict.fromkeys(("rho_max", "c_max"), "advantage = 'gae'")
        return found

    def __post_init__(self) -> None:
        super().__post_init__()
        check_bounds(
            self,
            ("window", 0, 2**20),
            ("env_groups", 1, 2**20),
            ("rho_max", 0, float("inf")),
            ("c_max", 0, float("inf")),
            infinite=("rho_max", "c_max"),
        )
        check_choices(self, ("advantage", ("gae", "vtrace")))
        if self.window % self.rollout_steps:
            raise ConfigError(
                f"{self.algorithm_name}: window = {self.window} is no multiple of rollout_steps = "
                f"{self.rollout_steps}"
            )
        if self.lstm and (self.window or self.env_groups > 1):
            raise ConfigError(
                f"{self.algorithm_name}: lstm = {self.lstm} needs window = 0 and env_groups = 1, not "
                f"{self.window} and {self.env_groups}: only the newest rollout has its recurrent state"
            )


def refuse_windows(config: Config) -> None:
    """Refuses settings that do not work with several actors: windows, groups, normalized rewards, graphs.

    Raises:
        ConfigError: names the algorithm, the setting and its value.
    """
    algorithm = config.algorithm_name
    if config.cuda_graph:
        raise ConfigError(
            f"{algorithm}: cuda_graph = True needs environments on a CUDA device, and {algorithm} steps "
            "environments on the CPU: use a2c, ppo or pqn"
        )
    for name, off in (("window", 0), ("env_groups", 1), ("normalize_rewards", False)):
        if getattr(config, name) != off:
            raise ConfigError(
                f"{algorithm}: {name} = {getattr(config, name)} needs consecutive rollouts of one actor: use "
                "a2c"
            )


def default_config(spec: EnvSpec) -> Config:
    """Settings that suit the observations; those for images are after Mnih et al. (2016), with RMSprop."""
    if spec.has_images:
        return Config(
            rollout_steps=5,
            gae_lambda=1.0,
            learning_rate=7e-4,
            optimizer="rmsprop",
            value_coefficient=0.25,
            entropy_coefficient=0.01,
            normalize_advantages=False,
            hidden=(512,),
        )
    return Config(rollout_steps=8, gae_lambda=0.95, learning_rate=2e-3)


def default_run(spec: EnvSpec) -> dict[str, Any]:
    """Settings of the run that suit the observations."""
    return {"total_steps": 10_000_000, "num_envs": 16} if spec.has_images else {}


PRESETS: dict[str, Preset] = {
    "acrobot": Preset(
        run={"env": "Acrobot-v1", "num_envs": 16, "total_steps": 100_000},
        algorithm={"normalize_observations": True, "normalize_rewards": True},
        tuned=True,
        note="Reaches -100 within seconds.",
    ),
    "cartpole": Preset(
        run={"env": "CartPole-v1", "num_envs": 8, "total_steps": 60_000},
        algorithm={
            "rollout_steps": 32,
            "learning_rate": 5e-3,
            "reward_scale": 0.1,
            "normalize_advantages": False,
        },
        tuned=True,
        note="Reaches 475 within a second.",
    ),
    "lunarlander": Preset(
        run={"env": "LunarLander-v3", "num_envs": 8, "total_steps": 1_500_000},
        algorithm={
            "rollout_steps": 128,
            "gamma": 0.99,
            "gae_lambda": 1.0,
            "learning_rate": 1e-2,
            "entropy_coefficient": 0.01,
            "reward_scale": 0.02,
        },
        tuned=True,
        note="Few, large optimizer steps on long rollouts; reaches 200 on nine of ten seeds.",
    ),
}


class A2CLearner(ActorCriticLearner):
    """Learner of A2C: losses, and the window of rollouts that an update uses."""

    def __init__(self, config: Config, spec: EnvSpec, seed: int, device: str) -> None:
        super().__init__(config, spec, seed, device)
        length = max(1, config.window // config.rollout_steps)
        self._window: collections.deque[Rollout] = collections.deque(maxlen=length)
        self._group = 0

    def loss(
        self, rollout: Rollout, successors: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Returns the scalar loss of T steps of N environments, and its terms as metrics.

        Args:
            rollout: rows that are not ``valid`` have weight 0; if ``valid`` is empty, all rows are valid.
            successors: result of :meth:`_successors`, if it is already computed.
        """
        c: Config = self.config
        parameters, value = self.outputs(rollout)
        actions = rollout.action.flatten(0, 1)
        log_prob, entropy = log_prob_and_entropy(self.network, parameters[:-1].flatten(0, 1), actions)
        log_prob, entropy = (one.view(rollout.reward.shape) for one in (log_prob, entropy))
        following = value.detach()[1:]
        rows, final = successors or self._successors(rollout)
        if rows.numel():
            following = torch.where(rows, final, following)
        columns = (rollout.reward, value.detach()[:-1], following, rollout.terminated, rollout.ended)
        if c.advantage == "gae":
            advantage = gae(*columns, c.gamma, c.gae_lambda)
            target = advantage + columns[1]
        else:
            log_ratio = log_prob.detach() - rollout.log_prob
            bounds = (c.rho_max, c.c_max)
            target, advantage = vtrace(*columns, log_ratio, c.gamma, c.gae_lambda, *bounds)
        error, weights = value[:-1] - target, None
        if rollout.valid.numel():
            weights = rollout.valid.to(error)
            weights = weights / weights.sum().clamp(min=1.0)

        def mean(x: Tensor) -> Tensor:
            return x.mean() if weights is None else (x * weights).sum()

        if c.normalize_advantages:
            advantage = normalized(advantage, weights)
        policy, squares, mean_entropy = -mean(log_prob * advantage), 0.5 * mean(error.square()), mean(entropy)
        total = policy + c.value_coefficient * squares
        if c.entropy_coefficient:
            total = total - c.entropy_coefficient * mean_entropy
        figures = {"policy_loss": policy, "value_loss": squares, "entropy": mean_entropy}
        return total, {name: one.detach() for name, one in figures.items()}

    def make_gradients(self, *tensors: Any) -> dict[str, Tensor]:
        """See :class:`OnPolicyLearner`; takes a rollout, or its tensors as :meth:`optimize` passes them."""
        if len(tensors) == 1:
            return super().make_gradients(*tensors)
        *columns, rows, final = tensors
        none = columns[0][:0, 0]
        rollout = Rollout(*columns, final_obs=none, final_at=none)
        return super().make_gradients(rollout, (rows, final))

    def _successors(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Returns where (T, N) steps led to rows of ``final_obs``, and their values; empty if nowhere."""
        rows = torch.zeros(rollout.reward.shape, dtype=torch.bool, device=self.device)
        final = torch.zeros(rollout.reward.shape, device=self.device)
        if not len(rollout.final_obs):
            return rows[:0], final[:0]
        at = rollout.final_at[:, 0], rollout.final_at[:, 1]
        with torch.no_grad():
            rows[at], final[at] = True, self.final_values(rollout)
        return rows, final

    def optimize(self, rollout: Rollout, progress: float, average: Average) -> int:
        """Makes one update from the window that ends with ``rollout``.

        Returns:
            1, or 0 without an update: while the window is not full, and if no row is valid, as in one step of
            environments that all reset in it. One of several learners makes an update also without valid
            rows, with gradients of 0, because the others wait for it.
        """
        config: Config = self.config
        if self._window.maxlen != 1:
            self._window.append(_copy_rollout(rollout))
            if len(self._window) < (self._window.maxlen or 1):
                return 0
            rollout = concatenate_rollouts(list(self._window))
        if config.env_groups > 1:
            if config.env_groups > rollout.reward.shape[1]:
                raise ConfigError(
                    f"{config.algorithm_name}: env_groups = {config.env_groups} is above num_envs = "
                    f"{rollout.reward.shape[1]}"
                )
            rollout = env_group(rollout, self._group, config.env_groups)
            self._group = (self._group + 1) % config.env_groups
        if self.learners == 1 and not rollout.valid.any():
            return 0
        if rollout.valid.all():
            rollout = dataclasses.replace(rollout, valid=rollout.valid[:0])
        if not isinstance(self.network, RecurrentActorCritic):
            columns = (getattr(rollout, name) for name in COLUMNS)
            self.differentiate(*columns, *self._successors(rollout))
        else:
            self.figures = self.make_gradients(rollout)
        self.apply(progress, average)
        return 1

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that :meth:`load_state_dict` restores."""
        return super().state_dict() | {"window": [vars(part) for part in self._window], "group": self._group}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        super().load_state_dict(state)
        self._window.clear()
        self._window.extend(rollout_on(self.device, Rollout(**part)) for part in state["window"])
        self._group = state["group"]


def _copy_rollout(rollout: Rollout) -> Rollout:
    """Returns a copy of ``rollout``, whose arrays the actor overwrites."""
    return Rollout(**{name: value.clone() for name, value in vars(rollout).items() if value is not None})


def concatenate_rollouts(parts: list[Rollout]) -> Rollout:
    """Concatenates consecutive rollouts."""
    columns: dict[str, Tensor] = {
        field.name: torch.cat([getattr(part, field.name) for part in parts])
        for field in fields(Rollout)
        if getattr(parts[0], field.name) is not None
    }
    columns["obs"] = torch.cat([*(part.obs[:-1] for part in parts), parts[-1].obs[-1:]])
    steps = 0
    at: list[Tensor] = []
    for part in parts:
        later = part.final_at.clone()
        later[:, 0] += steps
        at.append(later)
        steps += len(part.reward)
    columns["final_at"] = torch.cat(at)
    return Rollout(**columns)


def env_group(rollout: Rollout, index: int, groups: int) -> Rollout:
    """Returns group ``index`` of a rollout's environments: from ``index * N // groups`` on."""
    envs = rollout.reward.shape[1]
    first, end = index * envs // groups, (index + 1) * envs // groups
    inside = (rollout.final_at[:, 1] >= first) & (rollout.final_at[:, 1] < end)
    at = rollout.final_at[inside]
    at[:, 1] -= first
    columns = {name: getattr(rollout, name)[:, first:end] for name in COLUMNS}
    return Rollout(**columns, final_obs=rollout.final_obs[inside], final_at=at)


class A2C(ActorCriticAlgorithm):
    """Creates policies and learners. See :class:`parl.types.RolloutAlgorithm`.

    Raises:
        ConfigError: with ``env_groups`` the window is too short.
    """

    learner = A2CLearner

    def __init__(self, config: Config, spec: EnvSpec) -> None:
        super().__init__(config, spec)
        turns = config.env_groups * config.rollout_steps
        if config.env_groups > 1 and config.window < turns:
            raise ConfigError(
                f"{config.algorithm_name}: window = {config.window} is below env_groups * rollout_steps = "
                f"{turns}: steps of a group of environments would leave it before the group's turn"
            )
