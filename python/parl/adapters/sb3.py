"""Replay buffers and Atari environments for Stable-Baselines3, and its algorithms with prioritized replay.

``PrioritizedReplayBuffer`` and ``UniformReplayBuffer`` can be the ``replay_buffer_class`` of any off-policy
algorithm of SB3. They support box and dict observations, several environments, time limits,
``VecNormalize``, ``n_steps``, saving and loading. With ``optimize_memory_usage=True`` each observation is
stored once; unlike in SB3's own buffer, truncated episodes still bootstrap, and dict observations are
supported.

SB3's own ``train`` neither weights its loss nor passes TD errors to the buffer. ``PrioritizedDQN``,
``PrioritizedSAC`` and ``PrioritizedTD3`` are SB3's classes with a ``train`` that does both::

    model = PrioritizedDQN("MlpPolicy", "CartPole-v1", replay_buffer_kwargs={"alpha": 0.6, "beta": 0.4})

``AtariVecEnv`` makes parl's Atari environments for SB3's algorithms::

    PPO("CnnPolicy", AtariVecEnv("breakout", n_envs=8)).learn(1_000_000)

Source: Schaul et al. (2016), "Prioritized Experience Replay"; for SAC and TD3 with the TD errors averaged
over the critics. The three ``train`` methods follow those of Stable-Baselines3's DQN, SAC and TD3 step by
step (Raffin et al. 2021, MIT license), with importance weights and priorities added.
"""

# pyright: reportIncompatibleMethodOverride=false, reportIncompatibleVariableOverride=false
from __future__ import annotations

import functools
import math
import os
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import BaseBuffer, ReplayBuffer
from stable_baselines3.common.utils import polyak_update
from torch.nn import functional as F

from parl.adapters.sb3_envs import AtariVecEnv
from parl.references import is_unshared
from parl.replay import PrioritizedReplay, UniformReplay
from parl.replay.fields import array_of, exponent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray
    from stable_baselines3.common.vec_env import VecNormalize
    from torch import Tensor

    from parl.replay import Batch

__all__ = [
    "AtariVecEnv",
    "PrioritizedDQN",
    "PrioritizedReplayBuffer",
    "PrioritizedSAC",
    "PrioritizedSamples",
    "PrioritizedTD3",
    "UniformReplayBuffer",
]

# Number of sampled batches after which a buffer without any updated priority warns.
_BATCHES_BEFORE_WARNING = 1000

# Bytes of observations above which allocating a batch takes longer than finding one to reuse.
_REUSE_FROM_BYTES = 2**17


class PrioritizedSamples(NamedTuple):
    """The result of ``sample``: SB3's fields and two more."""

    observations: Any
    actions: Tensor
    next_observations: Any
    dones: Tensor
    rewards: Tensor
    discounts: Tensor | None
    weights: Tensor
    """Importance weights, (B, 1) float32, at most 1."""
    tickets: NDArray[np.uint64]
    """Tickets for ``update_priorities``, (B,) uint64."""


class UniformReplayBuffer(ReplayBuffer):
    """SB3's ``ReplayBuffer`` on parl's replay, sampled uniformly.

    Args:
        buffer_size: number of transitions kept, of all environments together.
        observation_space: a Box, Discrete or similar space, or a Dict of these.
        action_space: action space of one environment.
        device: device of the sampled tensors.
        n_envs: number of environments.
        optimize_memory_usage: whether to store each observation once. A transition can then be sampled after
            the next step of its environment.
        handle_timeout_termination: whether episodes that end by a time limit bootstrap; otherwise they count
            as terminated.
        n_steps: number of steps of a transition, which can be sampled once they are known.
        gamma: discount per step, used if ``n_steps`` is not 1.
        seed: seed of the sampling; by default drawn from ``numpy.random``, which SB3's ``seed`` seeds.

    Raises:
        ValueError: a setting is out of its bounds.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        n_steps: int = 1,
        gamma: float = 0.99,
        seed: int | None = None,
    ) -> None:
        # Not ReplayBuffer.__init__, which allocates arrays.
        BaseBuffer.__init__(self, buffer_size, observation_space, action_space, device, n_envs=n_envs)
        self.buffer_size = max(int(buffer_size) // n_envs, 1)
        # A smaller buffer is for models that are loaded to play: no row can be added to it.
        self._least_rows = n_steps + int(optimize_memory_usage)
        self._capacity = max(self.buffer_size, self._least_rows) * n_envs
        self.optimize_memory_usage = optimize_memory_usage
        self.handle_timeout_termination = handle_timeout_termination
        self.n_steps, self.gamma = n_steps, gamma
        self._seed = int(np.random.randint(2**31)) if seed is None else seed
        shapes = self.obs_shape
        if isinstance(observation_space, spaces.Dict):
            named = cast("Mapping[str, tuple[int, ...]]", shapes)
            self._keys: list[str] | None = list(named)
            self._columns = [
                (f"obs_{i}", named[key], observation_space[key].dtype) for i, key in enumerate(named)
            ]
        else:
            self._keys = None
            self._columns = [("obs", shapes, observation_space.dtype)]
        # The same columns for one step of all environments.
        self._steps = [(name, (n_envs, *shape), dtype) for name, shape, dtype in self._columns]
        self._row_bytes = sum(
            math.prod(shape) * np.dtype(dtype).itemsize for _, shape, dtype in self._columns
        )
        self._reusable_batches: list[Batch] = []
        self._no_env = np.zeros(n_envs, np.bool_)
        self._action_dtype = np.dtype(cast("Any", self._maybe_cast_dtype(action_space.dtype)))
        # Transitions span consecutive rows, so a gap between two rows must be detected.
        self._chained = optimize_memory_usage or n_steps > 1
        self.reset()

    def reset(self) -> None:
        """Removes all transitions and priorities."""
        super().reset()
        fields: dict[str, Any] = {name: (shape, dtype) for name, shape, dtype in self._columns}
        if not self.optimize_memory_usage:
            fields |= {f"next_{name}": (shape, dtype) for name, shape, dtype in self._columns}
        fields["action"] = ((self.action_dim,), self._action_dtype)
        fields |= {"reward": ((), "float32"), "terminated": ((), "bool"), "truncated": ((), "bool")}
        self.replay = self._make(fields)
        self._expected: list[NDArray[Any]] | None = None

    def _make(self, fields: dict[str, Any]) -> PrioritizedReplay:
        return UniformReplay(self._capacity, fields, **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {
            "n_step": self.n_steps,
            "gamma": self.gamma,
            "num_envs": self.n_envs,
            "autoreset": "same_step",
            "seed": self._seed,
        }

    def add(
        self,
        obs: Any,
        next_obs: Any,
        action: NDArray[Any],
        reward: NDArray[Any],
        done: NDArray[Any],
        infos: Sequence[Mapping[str, Any]],
    ) -> None:
        """Adds one step of every environment.

        Args:
            obs: (n_envs, *shape), or a dict of such arrays.
            next_obs: as ``obs``; where ``done`` is true, the final observation of the episode.
            action: (n_envs, action_dim), or any shape of that size.
            reward: (n_envs,) float.
            done: (n_envs,) bool.
            infos: one dict per environment, of which ``TimeLimit.truncated`` is read.

        Raises:
            ValueError: a shape or dtype does not match the spaces, or the buffer holds fewer rows of each
                environment than a transition spans: none could ever be sampled.
        """
        n = self.n_envs
        if self.buffer_size < self._least_rows:
            raise ValueError(
                f"buffer_size holds {self.buffer_size} rows of each of {n} environments, expected at least "
                f"{self._least_rows}: n_steps is {self.n_steps}"
            )
        before, after = self._arrays(obs), self._arrays(next_obs)
        ended = np.asarray(done, np.bool_)
        terminated, truncated = ended, self._no_env
        if self.handle_timeout_termination and ended.any():
            cut = [bool(info.get("TimeLimit.truncated", False)) for info in infos]
            truncated = ended & np.asarray(cut, np.bool_)
            terminated = ended & ~truncated
        columns: dict[str, Any] = {
            "action": np.asarray(action, self._action_dtype).reshape(n, self.action_dim),
            "reward": np.asarray(reward, np.float32),
            "terminated": terminated,
            "truncated": truncated,
        }
        for (name, _, _), now, then in zip(self._columns, before, after, strict=True):
            columns[name] = now
            if not self.optimize_memory_usage:
                columns["next_" + name] = then
            elif truncated is not self._no_env and truncated.any():
                columns["final_" + name] = [
                    row if cut else None for row, cut in zip(then, truncated, strict=True)
                ]
        if self._chained:
            self._end_interrupted_episodes(before, after, ended)
        self.replay.add(**columns)
        self.pos += 1
        if self.pos == self.buffer_size:
            self.full, self.pos = True, 0

    def _arrays(self, obs: Any) -> list[NDArray[Any]]:
        parts = [obs] if self._keys is None else [obs[key] for key in self._keys]
        return [
            np.asarray(part, dtype).reshape(shape)
            for part, (_, shape, dtype) in zip(parts, self._steps, strict=True)
        ]

    def _end_interrupted_episodes(
        self, before: list[NDArray[Any]], after: list[NDArray[Any]], ended: NDArray[np.bool_]
    ) -> None:
        """Ends the episodes of environments whose observation is not the last step's next observation."""
        expected = self._expected
        if expected is not None:
            same = [np.array_equal(now, then) for now, then in zip(before, expected, strict=True)]
            if not all(same):
                follows = np.ones(self.n_envs, np.bool_)
                for now, then in zip(before, expected, strict=True):
                    equal = (now == then) | ((now != now) & (then != then))  # NaN is equal to NaN
                    follows &= equal.reshape(self.n_envs, -1).all(1)
                gaps = np.flatnonzero(~follows & ~self._ended)
                if len(gaps):
                    self.replay.end_episodes(gaps)
        self._expected, self._ended = [then.copy() for then in after], ended.copy()

    @property
    def dones(self) -> _Dones:
        """Supports SB3's ``dones[pos] = True``, which marks that a new ``learn`` interrupts an episode."""
        return _Dones(self)

    def end_episodes(self) -> None:
        """Ends the running episodes of all environments, without a terminal state."""
        self.replay.end_episodes(np.arange(self.n_envs))
        self._expected = None

    def sample(self, batch_size: int, env: VecNormalize | None = None) -> Any:
        """Samples a batch of transitions.

        Args:
            batch_size: batch size B.
            env: the environments that normalize observations and rewards, or None.

        Returns:
            A :class:`PrioritizedSamples` with SB3's fields, ``weights`` and ``tickets``.

        Raises:
            NotSampleableError: no transition is complete yet.
        """
        batch = self._draw(batch_size)
        rewards = batch["reward"].reshape(-1, 1)
        return PrioritizedSamples(
            self._observations(batch, "", env),
            self._tensor(batch["action"]),
            self._observations(batch, "next_", env),
            self._tensor(batch["terminated"].astype(np.float32).reshape(-1, 1)),
            self._tensor(rewards if env is None else self._normalized(rewards, env)),
            None if self.n_steps == 1 else self._tensor(batch["discount"].reshape(-1, 1)),
            self._tensor(batch["weights"].reshape(-1, 1)),
            batch["tickets"],
        )

    def _normalized(self, rewards: NDArray[Any], env: VecNormalize) -> NDArray[Any]:
        """Normalizes sums of n rewards, each of which SB3 clips before it adds them.

        The replay adds them first: sums are clipped to the bounds that they have in SB3. They are the same
        unless SB3 clips some of the n rewards.
        """
        if self.n_steps == 1 or not env.norm_reward:
            return cast("Any", self._normalize_reward(rewards, env))
        limit = env.clip_reward * sum(self.gamma**i for i in range(self.n_steps))
        scaled = rewards / np.sqrt(env.ret_rms.var + env.epsilon)
        return np.clip(scaled, -limit, limit).astype(np.float32)

    def _beta(self) -> float:
        return 0.0

    def _draw(self, batch_size: int) -> Batch:
        """Samples a batch. Large arrays of an earlier batch are reused once the caller holds none of them."""
        beta = self._beta()
        if batch_size * self._row_bytes < _REUSE_FROM_BYTES:
            return self.replay.sample(batch_size, beta=beta)
        for spare in self._reusable_batches:
            # A tensor or view that the caller holds refers to its array.
            if len(spare["tickets"]) == batch_size and all(is_unshared(spare, name) for name in spare):
                return self.replay.sample(batch_size, beta=beta, out=spare)
        batch = self.replay.sample(batch_size, beta=beta)
        # A loop keeps its batch until it has the next one, so that two batches alternate.
        self._reusable_batches = [batch, *self._reusable_batches[:2]]
        return batch

    def _observations(self, batch: Batch, prefix: str, env: VecNormalize | None) -> Any:
        if self._keys is None:
            array = batch[prefix + "obs"]
            return self._tensor(array if env is None else cast("Any", self._normalize_obs(array, env)))
        names = zip(self._keys, self._columns, strict=True)
        found: Any = self._normalize_obs({key: batch[prefix + name] for key, (name, _, _) in names}, env)
        return {key: self._tensor(value) for key, value in found.items()}

    def _tensor(self, array: NDArray[Any]) -> Tensor:
        # The arrays belong to this batch, so the tensor may share their memory.
        tensor = torch.from_numpy(array)
        return tensor if self.device.type == "cpu" else tensor.to(self.device, non_blocking=True)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        state["_reusable_batches"] = []
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "replay"
            self.replay.save(path)
            state["replay"] = path.read_bytes()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "replay")
            Path(path).write_bytes(state["replay"])
            kind = PrioritizedReplay if isinstance(self, PrioritizedReplayBuffer) else UniformReplay
            self.replay = kind.load(path)


class _Dones:
    """Ends the episodes of a buffer on ``dones[pos] = True``."""

    def __init__(self, buffer: UniformReplayBuffer) -> None:
        self._buffer = buffer

    def __setitem__(self, pos: Any, value: Any) -> None:
        if np.any(value):
            self._buffer.end_episodes()


class PrioritizedReplayBuffer(UniformReplayBuffer):
    """Prioritized replay as SB3's ``replay_buffer_class``.

    ``PrioritizedDQN``, ``PrioritizedSAC`` and ``PrioritizedTD3`` use it by default. In a loop of your own::

        samples = buffer.sample(batch_size)
        loss = (samples.weights * elementwise_loss).mean()
        buffer.update_priorities(samples.tickets, td_errors)

    Args:
        buffer_size: number of transitions kept, of all environments together.
        observation_space: a Box, Discrete or similar space, or a Dict of these.
        action_space: action space of one environment.
        device: device of the sampled tensors.
        n_envs: number of environments.
        optimize_memory_usage: whether to store each observation once.
        handle_timeout_termination: whether episodes that end by a time limit bootstrap; otherwise they count
            as terminated.
        alpha: exponent of the priority; 0 samples uniformly.
        beta: exponent of the importance weights at the start of training.
        final_beta: exponent at the end of training; in between it changes linearly.
        epsilon: added to the absolute TD error.
        n_steps: number of steps of a transition.
        gamma: discount per step, used if ``n_steps`` is not 1.
        seed: seed of the sampling; by default drawn from ``numpy.random``, which SB3's ``seed`` seeds.

    Raises:
        ValueError: a setting is out of its bounds.
    """

    def __init__(
        self,
        buffer_size: int,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        device: torch.device | str = "auto",
        n_envs: int = 1,
        optimize_memory_usage: bool = False,
        handle_timeout_termination: bool = True,
        *,
        alpha: float = 0.6,
        beta: float = 0.4,
        final_beta: float = 1.0,
        epsilon: float = 1e-6,
        n_steps: int = 1,
        gamma: float = 0.99,
        seed: int | None = None,
    ) -> None:
        self.alpha, self.epsilon = alpha, epsilon
        self.initial_beta = self.beta = exponent("beta", beta)
        self.final_beta = exponent("final_beta", final_beta)
        self._batches_until_warning = _BATCHES_BEFORE_WARNING
        super().__init__(
            buffer_size,
            observation_space,
            action_space,
            device,
            n_envs,
            optimize_memory_usage,
            handle_timeout_termination,
            n_steps=n_steps,
            gamma=gamma,
            seed=seed,
        )

    def _make(self, fields: dict[str, Any]) -> PrioritizedReplay:
        return PrioritizedReplay(
            self._capacity,
            fields,
            alpha=self.alpha,
            epsilon=self.epsilon,
            **self._settings(),
        )

    def _beta(self) -> float:
        if self._batches_until_warning > 0:
            self._batches_until_warning -= 1
            if self._batches_until_warning == 0:
                warnings.warn(
                    f"{_BATCHES_BEFORE_WARNING} batches were drawn and update_priorities was never called, "
                    "so all draws were uniform; SB3's own train does not call it, PrioritizedDQN's does",
                    stacklevel=4,
                )
        return self.beta

    def anneal(self, progress_remaining: float) -> None:
        """Sets beta for the remaining share of the training, from 1 at its start to 0 at its end.

        SB3's share becomes negative in the last steps if these go beyond the end; beta then stays final.
        """
        remaining = min(max(progress_remaining, 0.0), 1.0)
        self.beta = self.final_beta + (self.initial_beta - self.final_beta) * remaining

    def update_priorities(self, tickets: NDArray[np.uint64], priorities: Any) -> int:
        """Sets the priorities of transitions.

        Args:
            tickets: (B,) uint64, of a sample.
            priorities: (B,) or (B, 1) float, numpy or torch on any device; their absolute values are used.

        Returns:
            The number of priorities that were dropped because their row had been overwritten.

        Raises:
            ValueError: a priority is not finite.
        """
        self._batches_until_warning = 0
        if isinstance(priorities, torch.Tensor):
            priorities = array_of(priorities)
        return self.replay.update_priorities(tickets, np.asarray(priorities).reshape(-1))


def _buffer_of(model: Any) -> PrioritizedReplayBuffer:
    """The buffer of a model, after setting beta for the model's progress.

    Raises:
        TypeError: the buffer is not a PrioritizedReplayBuffer.
    """
    buffer = model.replay_buffer
    if not isinstance(buffer, PrioritizedReplayBuffer):
        raise TypeError(
            f"{type(model).__name__} needs a PrioritizedReplayBuffer, this one is a {type(buffer).__name__}"
        )
    buffer.anneal(model._current_progress_remaining)
    return buffer


def _discounts(model: Any, data: PrioritizedSamples) -> Any:
    return model.gamma if data.discounts is None else data.discounts


def _once_sampleable(train: Callable[..., None]) -> Callable[..., None]:
    """Lets ``train`` of a model do nothing as long as no transition of n steps is complete."""

    @functools.wraps(train)
    def train_once_sampleable(model: Any, *arguments: Any, **keywords: Any) -> None:
        if _buffer_of(model).replay.sampleable:
            train(model, *arguments, **keywords)

    return train_once_sampleable


class PrioritizedDQN(DQN):
    """SB3's DQN with importance weights in the loss and TD errors as priorities.

    Arguments are those of ``stable_baselines3.DQN``; ``replay_buffer_kwargs`` are those of
    :class:`PrioritizedReplayBuffer`.
    """

    def _setup_model(self) -> None:
        _prioritize(self)
        super()._setup_model()

    @_once_sampleable
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """DQN's ``train`` with importance weights in the loss, and updated priorities."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        buffer, losses = _buffer_of(self), list[float]()
        for _ in range(gradient_steps):
            data = buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                best = self.q_net_target(data.next_observations).amax(dim=1, keepdim=True)
                targets = data.rewards + (1.0 - data.dones) * _discounts(self, data) * best
            values = self.q_net(data.observations).gather(1, data.actions.long())
            loss = (data.weights * F.smooth_l1_loss(values, targets, reduction="none")).mean()
            self.policy.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
            buffer.update_priorities(data.tickets, targets - values.detach())
            losses.append(loss.item())
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        self.logger.record("train/beta", buffer.beta)


class PrioritizedTD3(TD3):
    """SB3's TD3 with importance weights in the critic loss and TD errors as priorities.

    Arguments are those of ``stable_baselines3.TD3``; ``replay_buffer_kwargs`` are those of
    :class:`PrioritizedReplayBuffer`.
    """

    def _setup_model(self) -> None:
        _prioritize(self)
        super()._setup_model()

    @_once_sampleable
    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """TD3's ``train`` with importance weights in the critics' loss, and updated priorities."""
        self.policy.set_training_mode(True)
        self._update_learning_rate([self.actor.optimizer, self.critic.optimizer])
        buffer, actor_losses, critic_losses = _buffer_of(self), list[float](), list[float]()
        for _ in range(gradient_steps):
            self._n_updates += 1
            data = buffer.sample(batch_size, env=self._vec_normalize_env)
            with torch.no_grad():
                noise = torch.randn_like(data.actions) * self.target_policy_noise
                noise = noise.clamp(-self.target_noise_clip, self.target_noise_clip)
                next_actions = (self.actor_target(data.next_observations) + noise).clamp(-1.0, 1.0)
                next_values = torch.cat(self.critic_target(data.next_observations, next_actions), dim=1)
                bootstrap = next_values.amin(dim=1, keepdim=True)
                targets = data.rewards + (1.0 - data.dones) * _discounts(self, data) * bootstrap
            errors = torch.cat(self.critic(data.observations, data.actions), dim=1) - targets
            critic_loss = (data.weights * errors.square()).mean(dim=0).sum()
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            buffer.update_priorities(data.tickets, errors.detach().abs().mean(dim=1))
            critic_losses.append(critic_loss.item())
            if self._n_updates % self.policy_delay == 0:
                actions = self.actor(data.observations)
                actor_loss = -self.critic.q1_forward(data.observations, actions).mean()
                self.actor.optimizer.zero_grad()
                actor_loss.backward()
                self.actor.optimizer.step()
                actor_losses.append(actor_loss.item())
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.actor.parameters(), self.actor_target.parameters(), self.tau)
                polyak_update(self.critic_batch_norm_stats, self.critic_batch_norm_stats_target, 1.0)
                polyak_update(self.actor_batch_norm_stats, self.actor_batch_norm_stats_target, 1.0)
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        if actor_losses:
            self.logger.record("train/actor_loss", np.mean(actor_losses))
        self.logger.record("train/critic_loss", np.mean(critic_losses))
        self.logger.record("train/beta", buffer.beta)


class PrioritizedSAC(SAC):
    """SB3's SAC with importance weights in the critic loss and TD errors as priorities.

    Arguments are those of ``stable_baselines3.SAC``; ``replay_buffer_kwargs`` are those of
    :class:`PrioritizedReplayBuffer`.
    """

    def _setup_model(self) -> None:
        _prioritize(self)
        super()._setup_model()

    @_once_sampleable
    def train(self, gradient_steps: int, batch_size: int = 64) -> None:
        """SAC's ``train`` with importance weights in the critics' loss, and updated priorities."""
        self.policy.set_training_mode(True)
        optimizers = [self.actor.optimizer, self.critic.optimizer]
        if self.ent_coef_optimizer is not None:
            optimizers.append(self.ent_coef_optimizer)
        self._update_learning_rate(optimizers)
        buffer = _buffer_of(self)
        logged: dict[str, list[float]] = {"actor_loss": [], "critic_loss": [], "ent_coef": []}
        for step in range(gradient_steps):
            data = buffer.sample(batch_size, env=self._vec_normalize_env)
            if self.use_sde:
                self.actor.reset_noise()
            actions, log_prob = self.actor.action_log_prob(data.observations)
            log_prob = log_prob.reshape(-1, 1)
            entropy = self._entropy_coefficient(log_prob, logged)
            with torch.no_grad():
                next_actions, next_log_prob = self.actor.action_log_prob(data.next_observations)
                next_values = torch.cat(self.critic_target(data.next_observations, next_actions), dim=1)
                bootstrap = next_values.amin(dim=1, keepdim=True) - entropy * next_log_prob.reshape(-1, 1)
                targets = data.rewards + (1.0 - data.dones) * _discounts(self, data) * bootstrap
            errors = torch.cat(self.critic(data.observations, data.actions), dim=1) - targets
            critic_loss = 0.5 * (data.weights * errors.square()).mean(dim=0).sum()
            self.critic.optimizer.zero_grad()
            critic_loss.backward()
            self.critic.optimizer.step()
            buffer.update_priorities(data.tickets, errors.detach().abs().mean(dim=1))
            worst = torch.cat(self.critic(data.observations, actions), dim=1).amin(dim=1, keepdim=True)
            actor_loss = (entropy * log_prob - worst).mean()
            self.actor.optimizer.zero_grad()
            actor_loss.backward()
            self.actor.optimizer.step()
            logged["actor_loss"].append(actor_loss.item())
            logged["critic_loss"].append(critic_loss.item())
            if step % self.target_update_interval == 0:
                polyak_update(self.critic.parameters(), self.critic_target.parameters(), self.tau)
                polyak_update(self.batch_norm_stats, self.batch_norm_stats_target, 1.0)
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        for name, values in logged.items():
            self.logger.record(f"train/{name}", np.mean(values))
        self.logger.record("train/beta", buffer.beta)

    def _entropy_coefficient(self, log_prob: Tensor, logged: dict[str, list[float]]) -> Tensor:
        """The entropy coefficient for this step; a learned coefficient is then updated."""
        if self.ent_coef_optimizer is None or self.log_ent_coef is None:
            coefficient = self.ent_coef_tensor
        else:
            coefficient = self.log_ent_coef.detach().exp()
            excess = (log_prob + cast("float", self.target_entropy)).detach()
            loss = -(self.log_ent_coef * excess).mean()
            self.ent_coef_optimizer.zero_grad()
            loss.backward()
            self.ent_coef_optimizer.step()
            logged.setdefault("ent_coef_loss", []).append(loss.item())
        logged["ent_coef"].append(coefficient.item())
        return coefficient


def _prioritize(model: Any) -> None:
    """Sets the buffer class, and passes SB3's ``n_steps`` and discount to it, before SB3 makes the buffer.

    Raises:
        TypeError: the model's buffer class is not a PrioritizedReplayBuffer.
    """
    # The caller's dict may be that of other models too.
    kwargs = model.replay_buffer_kwargs = dict(model.replay_buffer_kwargs)
    if model.replay_buffer_class is None:
        model.replay_buffer_class = PrioritizedReplayBuffer
        if getattr(model, "n_steps", 1) > 1:
            kwargs.setdefault("n_steps", model.n_steps)
            # The buffer handles n steps; otherwise SB3 would warn about it.
            model.n_steps = 1
    elif not issubclass(model.replay_buffer_class, PrioritizedReplayBuffer):
        raise TypeError(
            f"replay_buffer_class is {model.replay_buffer_class.__name__}, expected a PrioritizedReplayBuffer"
        )
    if kwargs.get("n_steps", 1) > 1:
        kwargs.setdefault("gamma", model.gamma)
