"""An actor that writes rollouts: T steps of its vector environment into preallocated arrays."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from parl.envs import Rows, check_final, games_over, points
from parl.errors import ConfigError
from parl.runtime.env_actor import Counts, EnvActor, check_dtype
from parl.runtime.on_policy.start_states import StartStates
from parl.types import Array, EnvSpec, RecurrentPolicy, Rollout, RolloutPolicy, rows_of


def _size(shape: tuple[int, ...], dtype: str) -> int:
    """Bytes of an array, rounded up to whole cache lines."""
    return -(-math.prod(shape) * np.dtype(dtype).itemsize // 64) * 64


def check_sampled(action: Any, log_prob: Any, count: int, column: Array) -> None:
    """Checks what ``sample`` of a policy returned, which numpy would broadcast or round.

    Args:
        action: of ``count`` environments.
        log_prob: of the actions.
        count: N.
        column: (T, N, ...), where actions are stored.

    Raises:
        ConfigError: names the shapes, or the dtype of the actions.
    """
    shape, got = (count, *column.shape[2:]), (np.shape(action), np.shape(log_prob))
    if got != (shape, shape[:1]):
        raise ConfigError(
            f"sample of the policy returned actions of shape {tuple(got[0])} and log-probabilities of shape "
            f"{tuple(got[1])}, expected {shape} and {shape[:1]}"
        )
    check_dtype("sample", np.asarray(action).dtype, column.dtype)


class RolloutBuffer:
    """Arrays of one rollout, numpy and torch on the same memory.

    Args:
        spec: description of the environment.
        steps: T.
        num_envs: N.
        context: a ``multiprocessing`` context: processes that receive the buffer share the arrays; the memory
            has no name, so that it cannot outlive the run. None: memory of this process only.
        memory: H, size of the policy's recurrent state; 0 if it has none.
    """

    def __init__(
        self, spec: EnvSpec, steps: int, num_envs: int, context: Any = None, memory: int = 0
    ) -> None:
        rows = (steps, num_envs)
        self._arrays: dict[str, tuple[tuple[int, ...], str]] = {
            "obs": ((steps + 1, num_envs, *spec.flat_row[0]), spec.flat_row[1]),
            "action": ((*rows, *spec.action_shape), spec.action_dtype),
            "log_prob": (rows, "float32"),
            "reward": (rows, "float32"),
            "terminated": (rows, "bool"),
            "ended": (rows, "bool"),
            "valid": (rows, "bool"),
            "starts": ((steps + 1, num_envs), "bool"),
            "memory": ((2, num_envs, memory), "float32"),
        }
        size = sum(_size(*array) for array in self._arrays.values())
        self._memory: Any = np.zeros(size, np.uint8) if context is None else context.RawArray("B", size)
        self._map()

    def _map(self) -> None:
        found: dict[str, Array] = {}
        start = 0
        for name, (shape, dtype) in self._arrays.items():
            flat = np.frombuffer(self._memory, dtype, math.prod(shape), start)
            found[name] = flat.reshape(shape)
            start += _size(shape, dtype)
        self.obs, self.action, self.log_prob = found["obs"], found["action"], found["log_prob"]
        self.reward, self.terminated = found["reward"], found["terminated"]
        self.ended, self.valid = found["ended"], found["valid"]
        self.starts, self.memory = found["starts"], found["memory"]
        self.final_obs: list[Array] = []
        self.final_at: list[tuple[int, int]] = []

    def __getstate__(self) -> dict[str, Any]:
        return {"arrays": self._arrays, "memory": self._memory}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._arrays, self._memory = state["arrays"], state["memory"]
        self._map()

    @property
    def content(self) -> Array:
        """The bytes (size,) uint8 of all arrays; without ``final_obs`` and ``final_at``."""
        return np.frombuffer(self._memory, np.uint8)

    def fill(self, content: Array) -> None:
        """Copies the :attr:`content` of a buffer of the same shapes into this one."""
        np.copyto(self.content, content)

    def names(self) -> tuple[str, ...]:
        """Names of the columns; ``starts`` and ``memory`` only if the policy is recurrent."""
        own = ("starts", "memory") if self.memory.size else ()
        return ("obs", "action", "log_prob", "reward", "terminated", "ended", "valid", *own)

    def tensors(self) -> Rollout:
        """The rollout on the same memory; valid until the arrays are written again."""
        final = np.stack(self.final_obs) if self.final_obs else self.obs[0, :0]
        at = np.array(self.final_at, np.int64).reshape(-1, 2)
        columns = {name: torch.from_numpy(getattr(self, name)) for name in self.names()}
        return Rollout(**columns, final_obs=torch.from_numpy(final), final_at=torch.from_numpy(at))


def concatenate(rollouts: list[Rollout]) -> Rollout:
    """Concatenates rollouts of equal T along the environment dimension."""
    if len(rollouts) == 1:
        return rollouts[0]
    columns = {
        name: torch.cat([getattr(part, name) for part in rollouts], dim=1)
        for name, value in vars(rollouts[0]).items()
        if value is not None and not name.startswith("final")
    }
    before = np.cumsum([0, *(part.reward.shape[1] for part in rollouts)])
    at = [part.final_at + torch.tensor([0, int(n)]) for part, n in zip(rollouts, before, strict=False)]
    return Rollout(
        **columns, final_obs=torch.cat([part.final_obs for part in rollouts]), final_at=torch.cat(at)
    )


def _resets_one(env: Any) -> bool:
    """Whether ``reset`` of a vector environment supports gymnasium's option ``reset_mask``."""
    from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv

    from parl.envs import AtariVectorEnv
    from parl.envs.classic import AcrobotVectorEnv

    return isinstance(env.unwrapped, SyncVectorEnv | AsyncVectorEnv | AtariVectorEnv | AcrobotVectorEnv)


class RolloutActor(EnvActor):
    """Fills a :class:`RolloutBuffer` with steps of its environments.

    Args:
        env: a vector environment of ``num_envs``, owned by the actor from now on.
        spec: description of the environment.
        policy: chooses the actions.
        seed: seed of the first reset.
        random_steps: vector steps of random actions before the first rollout, in which the environments are
            reset one by one, so that their episodes do not end at the same time.
        first_env: number of the first environment within the run.
        pickles: see :class:`EnvActor`.
        start_states: draws which games of parl's Atari environments continue from saved states; None: all
            begin at the start of the game. Return and length of such a game include those up to its state.
    """

    policy: RolloutPolicy

    def __init__(
        self,
        env: Any,
        spec: EnvSpec,
        policy: RolloutPolicy,
        seed: int,
        random_steps: int = 0,
        first_env: int = 0,
        pickles: bool = False,
        start_states: StartStates | None = None,
    ) -> None:
        self._rows = Rows(spec)
        self._has_parts = bool(spec.observation_parts)
        super().__init__(env, spec, policy, seed, first_env, pickles)
        self._resetting = np.zeros(self.num_envs, bool)
        self._starting = np.ones(self.num_envs, bool)
        self._random_steps, self._seed = random_steps, seed
        self._inspect_env()
        self._start_states = start_states
        # With next-step autoreset: where the next step begins a game.
        self._new_games = np.zeros(self.num_envs, bool)
        # Points that games had at the states from which they continue, since the last rollout.
        self._given = 0.0
        if start_states is not None:
            self._continue_games(start_states, np.ones(self.num_envs, bool), self._obs)

    def _observed(self, observations: Any, step: int | str) -> Array:
        """Checks observations of the environment and converts them to rows (N, ...)."""
        parts = self._rows.parts(observations)
        self._check.observations(parts, step)
        return rows_of(parts)

    def _inspect_env(self) -> None:
        """Reads the properties of the environment that every step needs."""
        self._accepts_out = "out" in inspect.signature(self._env.step).parameters
        space = self._env.single_action_space
        self._bounds = None if self._spec.is_discrete else (space.low, space.high)

    def collect(self, buffer: RolloutBuffer, env_steps: int) -> Counts:
        """Fills ``buffer``.

        Args:
            buffer: buffer for T steps of ``num_envs`` environments.
            env_steps: transitions that the run has collected, for the policy's schedules.

        Raises:
            NonFiniteError: a reward or an observation is NaN or infinite.
        """
        collected = self._take_random_steps(env_steps) if self._random_steps else 0
        buffer.final_obs.clear()
        buffer.final_at.clear()
        buffer.obs[0] = self._obs
        finished: list[tuple[float, int]] = []
        unclipped = 0.0
        for t in range(len(buffer.reward)):
            obs = buffer.obs[t]
            if buffer.memory.size:
                self._restart_policy(buffer, t)
            action, log_prob = self.policy.sample(obs, env_steps + collected)
            check_sampled(action, log_prob, self.num_envs, buffer.action)
            buffer.action[t] = action
            buffer.log_prob[t] = log_prob
            np.logical_not(self._resetting, out=buffer.valid[t])
            info = self._step(buffer, t, env_steps + collected)
            reward, terminated, ended = buffer.reward[t], buffer.terminated[t], buffer.ended[t]
            score = points(reward, info)
            if score is not reward:
                unclipped += float(score.sum()) - float(reward.sum())
            over = games_over(terminated, ended, info)
            transitions, games = self._episodes.step(score, terminated, ended, over)
            collected += transitions
            finished += games
            if self._same_step and ended.any():
                self._keep_final(buffer, t, info, env_steps + collected)
            if self._start_states is not None:
                new = over if self._same_step else self._new_games
                self._new_games = over
                self._continue_games(self._start_states, new, buffer.obs[t + 1])
                self._start_states.keep(
                    self._env.unwrapped,
                    *self._episodes.in_progress,
                    playing=self._same_step or not ended[0],
                )
            self._starting = ended if self._same_step else ~buffer.valid[t]
            if not self._same_step:
                self._resetting = ended
        buffer.starts[-1] = self._starting
        self._starting = self._starting.copy()
        self._obs = buffer.obs[-1].copy()
        self._resetting = self._resetting.copy()
        given, self._given = self._given, 0.0
        return Counts(collected, finished, unclipped + float(buffer.reward.sum()) + given)

    def _continue_games(self, start_states: StartStates, new: Array, obs: Array) -> None:
        """Lets a part of the games that begin continue from states.

        Args:
            start_states: draws them.
            new: (N,) bool, the environments in which a game begins.
            obs: (N, ...), the observations, which are replaced.
        """
        if not new.any():
            return
        drawn = start_states.draw(new)
        if drawn is None:
            return
        mask, found, seeds = drawn
        options = {"reset_mask": mask, "states": found.states}
        self._env.unwrapped.reset(seed=seeds, options=options, out=obs)
        self._episodes.proceed(mask, found.returns, found.lengths)
        self._given += float(found.returns.sum())

    def _take_random_steps(self, env_steps: int) -> int:
        """Takes the random steps; returns the number of their transitions, which are not learned from.

        Environment i is reset after a number of steps that is drawn from 0..random_steps. A vector
        environment that cannot reset one environment alone only takes the random actions.

        Source: Stooke and Abbeel (2018), "Accelerated Methods for Deep Reinforcement Learning", section 3.
        """
        steps, self._random_steps = self._random_steps, 0
        rng = np.random.default_rng([self._seed, steps])
        due = rng.integers(steps + 1, size=self.num_envs)
        self._env.action_space.seed(self._seed)
        can_reset_one = _resets_one(self._env)
        collected = 0
        for step in range(steps):
            obs, reward, terminated, truncated, info = self._env.step(self._env.action_space.sample())
            self._check.rewards(np.asarray(reward), env_steps + collected)
            over = games_over(terminated, np.logical_or(terminated, truncated), info)
            collected += self._episodes.step(points(reward, info), terminated, truncated, over)[0]
            self._resetting = np.logical_or(terminated, truncated) & (not self._same_step)
            self._new_games = np.logical_and(over, self._resetting)
            mask = due == step + 1
            if can_reset_one and mask.any():
                obs, _ = self._env.reset(options={"reset_mask": mask})
                self._resetting &= ~mask
                self._new_games &= ~mask
                self._episodes.restart(mask)
            self._obs = np.array(self._observed(obs, env_steps + collected))
        return collected

    def _restart_policy(self, buffer: RolloutBuffer, t: int) -> None:
        """Resets the recurrent state where episodes begin at row t; at row 0, writes it into ``buffer``."""
        assert isinstance(self.policy, RecurrentPolicy)
        buffer.starts[t] = self._starting
        self.policy.restart(self._starting)
        if t == 0:
            buffer.memory[:] = self.policy.memory.numpy()

    def _step(self, buffer: RolloutBuffer, t: int, env_steps: int) -> Mapping[str, Any]:
        """Steps the environment; writes row t of ``buffer`` and the observations after it."""
        action = buffer.action[t]
        if self._bounds is not None:
            action = np.clip(action, *self._bounds)
        if self._accepts_out:
            _, reward, terminated, truncated, info = self._env.step(action, out=buffer.obs[t + 1])
        else:
            obs, reward, terminated, truncated, info = self._env.step(action)
            buffer.obs[t + 1] = self._observed(obs, env_steps) if self._has_parts else obs
        if not self._has_parts:
            self._check.observations(buffer.obs[t + 1], env_steps)
        buffer.reward[t] = reward
        self._check.rewards(buffer.reward[t], env_steps)
        buffer.terminated[t] = terminated
        np.logical_or(terminated, truncated, out=buffer.ended[t])
        return info

    def _keep_final(self, buffer: RolloutBuffer, t: int, info: Mapping[str, Any], env_steps: int) -> None:
        """Stores the last observations of truncated episodes, which ``buffer.obs`` does not have."""
        truncated = buffer.ended[t] & ~buffer.terminated[t]
        check_final(info, truncated)
        for index in np.nonzero(truncated)[0]:
            final = info["final_obs"][index]
            self._check.final(int(index), self._rows.parts(final), env_steps)
            buffer.final_obs.append(self._rows.one(final))
            buffer.final_at.append((t, int(index)))

    def _extra_state(self) -> dict[str, Any]:
        own = {"resetting": self._resetting, "starting": self._starting}
        if self._start_states is None:
            return own
        starts = self._start_states.state_dict()
        return own | {"start_states": starts, "new_games": self._new_games, "given": self._given}

    def _load_extra_state(self, state: Mapping[str, Any]) -> None:
        self._random_steps = 0
        self._inspect_env()
        self._resetting, self._starting = state["resetting"], state["starting"]
        if self._start_states is not None:
            self._start_states.load_state_dict(state["start_states"])
            self._new_games, self._given = state["new_games"], float(state["given"])
