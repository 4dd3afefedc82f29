"""The topology of a GPU: environments, network, replay and learner on one CUDA device, in one process.

A round acts, steps all environments, writes their rows and takes the updates that the replay ratio owes.
Nothing of it is read by the host, which only says what comes next: observations are drawn, stored, sampled
and learned from where they are. Episodes are added up on the device and read when somebody asks.

With ``cuda_graph`` of the algorithm an update is one graph: draw, gradients, step, priorities.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from parl.envs import EnvMaker, games_over, points
from parl.envs.snapshot import Snapshot
from parl.errors import ConfigError, RunDirectoryError
from parl.ops import execution
from parl.ops.finite import check_state
from parl.replay import PrioritizedReplay
from parl.runtime import checkpoint, states
from parl.runtime.loop import L, LoopBase, kept, state_or_reason
from parl.runtime.setup import Saved, Setup, actor_seeds
from parl.types import DeviceAlgorithm, DeviceLearner, DevicePolicy


def is_on_device(maker: EnvMaker) -> bool:
    """Whether a maker's environments are parl's own on a CUDA device."""
    is_own = isinstance(maker.env, str) and maker.env.startswith("parl/")
    return is_own and str(maker.options.get("device", "cpu")) != "cpu"


class Played(Protocol):
    """What a step of a vector environment on a device gives."""

    num_envs: int

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Tensor, dict[str, Any]]:
        """Observations (N, ...)."""
        ...

    def step(
        self, actions: Tensor, *, out: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, dict[str, Any]]:
        """Observations, rewards, terminated, truncated, (N, ...) each, and figures."""
        ...

    def check(self) -> None:
        """Raises what went wrong."""
        ...

    def close(self) -> None:
        """Frees all."""
        ...


class Tally:
    """Returns and lengths of games (see :func:`parl.envs.games_over`), added up on a device.

    Args:
        num_envs: N.
        next_step: the row after an end only resets.
        device: torch's device.
        room: ends of games between two looks; what is beyond is only counted.
    """

    def __init__(self, num_envs: int, next_step: bool, device: Any, room: int = 65_536) -> None:
        self._next_step, self._room = next_step, room
        self._of = torch.zeros((2, num_envs), dtype=torch.float64, device=device)
        self._resets = torch.zeros(num_envs, dtype=torch.bool, device=device)
        # Those of them that begin another game.
        self._fresh = self._resets
        # One place more, where all goes that has none.
        self._ended = torch.zeros((2, room + 1), dtype=torch.float64, device=device)
        self._count = torch.zeros((), dtype=torch.int64, device=device)
        self._reward = torch.zeros((), dtype=torch.float64, device=device)

    def step(self, reward: Tensor, done: Tensor, over: Tensor | None = None) -> None:
        """Takes one step of every environment, (N,) each; does not wait.

        Args:
            reward: of any number type.
            done: bool, where an episode has ended.
            over: bool, where a game has; by default where an episode has.
        """
        over = done if over is None else over
        reward = reward.double()
        self._reward += reward.sum()
        self._of[0] += reward
        self._of[1] += 1
        if self._next_step:
            self._of[0].masked_fill_(self._fresh, 0.0)
            self._of[1] -= self._resets.double()
            self._resets, self._fresh = done.clone(), over.clone()
        place = self._count + torch.cumsum(over, 0) - 1
        place = torch.where(over, place, self._room).clamp_(max=self._room)
        self._ended.scatter_(1, place.expand(2, -1), self._of)
        self._count += over.sum()
        self._of.masked_fill_(over, 0.0)

    def take(self) -> tuple[list[tuple[float, int]], float]:
        """Return and length of the episodes that ended since the last call, and all rewards; waits."""
        count = min(int(self._count), self._room)
        returns, lengths = self._ended[:, :count].tolist()
        reward = float(self._reward)
        self._count.zero_()
        self._reward.zero_()
        return [(value, int(length)) for value, length in zip(returns, lengths, strict=True)], reward

    def restart(self, mask: Tensor) -> None:
        """The environments that ``mask`` (N,) bool names were reset by hand."""
        self._of.masked_fill_(mask, 0.0)
        self._resets = self._resets & ~mask
        self._fresh = self._fresh & ~mask

    def state(self) -> list[Tensor]:
        """What :meth:`restore` takes back."""
        return [part.cpu() for part in (self._of, self._resets, self._fresh)]

    def restore(self, state: list[Tensor]) -> None:
        """Takes back what :meth:`state` gave."""
        self._of.copy_(state[0])
        self._resets, self._fresh = (part.to(self._of.device) for part in state[1:])


class DeviceActor:
    """Environments of a device, and a policy beside them.

    Args:
        envs: owned from now on.
        policy: chooses the actions.
        replay: takes one row per environment and step.
        same_step: truncated rows come with their last observation.
        seed: of the first reset.
    """

    def __init__(
        self, envs: Played, policy: DevicePolicy, replay: PrioritizedReplay, same_step: bool, seed: int
    ) -> None:
        self.policy, self.num_envs = policy, envs.num_envs
        self._envs, self._replay, self._same_step = envs, replay, same_step
        self._obs = envs.reset(seed=seed)[0]
        self._snapshot = Snapshot(envs)
        self.tally = Tally(envs.num_envs, not same_step, self._obs.device)

    def step(self, env_steps: int) -> int:
        """One vector step; how many rows. Does not wait."""
        action = self.policy.act(self._obs, env_steps)
        obs, reward, terminated, truncated, infos = self._envs.step(action)
        self._replay.add(
            obs=self._obs,
            action=action,
            reward=reward.to(torch.float32),
            terminated=terminated,
            truncated=truncated,
            **({"final_obs": infos["final_obs"]} if self._same_step else {}),
        )
        self._obs = obs
        done = terminated | truncated
        self.tally.step(points(reward, infos), done, games_over(terminated, done, infos))
        return self.num_envs

    def check(self) -> None:
        """Waits, and raises what went wrong in environments."""
        self._envs.check()

    def save(self) -> bytes:
        """The environments, the policy's generator and unfinished episodes."""
        rest = {
            "obs": self._obs.cpu(),
            "policy": self.policy.state_dict(),
            "episodes": self.tally.state(),
        }
        return states.save(self._envs, self._snapshot, rest, pickles=False)

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave."""
        _, saved = states.load(state, self._envs, self._snapshot)
        self._obs = saved["obs"].to(self._obs.device)
        self.policy.load_state_dict(saved["policy"])
        self.tally.restore(saved["episodes"])

    def end_episodes(self) -> None:
        """Tells the replay that the rows to come do not follow on those it has."""
        self._replay.end_episodes(torch.arange(self.num_envs))

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()


class Update:
    """One update: draw, gradients, step, priorities; as calls or as one graph. Does not wait.

    Args:
        learner: learns.
        replay: on the learner's device.
        size: transitions of a batch.
        as_graph: record it, and replay that.
    """

    def __init__(self, learner: DeviceLearner, replay: PrioritizedReplay, size: int, as_graph: bool) -> None:
        self._learner, self._replay, self._size = learner, replay, size
        self._gives_back = replay.settings["alpha"] > 0.0
        self._beta = torch.zeros((), dtype=torch.float64, device=learner.weights.device)
        self._known = float("nan")
        self._update = execution.Recorded(self._all, [learner.generator], as_graph)

    def __call__(self, beta: float) -> None:
        """Takes one update with this exponent of importance weights."""
        if beta != self._known:
            self._beta.fill_(beta)
            self._known = beta
        self._update()
        self._learner.stepped()

    def _all(self) -> None:
        batch = self._replay.sample(self._size, beta=cast("Any", self._beta))
        priorities = self._learner.compute_there(cast("Any", batch))
        self._learner.step_there()
        if self._gives_back:
            self._replay.update_priorities(batch.tickets, cast("Any", priorities))


class TalliedLoop(LoopBase[L]):
    """A loop on a device: episodes are read when somebody asks; after an error nothing is written."""

    @property
    @abstractmethod
    def _tally(self) -> Tally:
        """Of the actor."""

    def _look(self) -> None:
        """Reads what episodes brought; waits."""
        finished, reward = self._tally.take()
        self.count(0, finished, reward)

    def take_episodes(self) -> list[tuple[float, int]]:
        """Return and length of the episodes finished since the last call; waits."""
        self._look()
        return super().take_episodes()

    def rewards_and_episodes(self) -> tuple[float, int]:
        """Sum of all rewards, and number of all episodes ended, since this loop was made; waits."""
        self._look()
        return super().rewards_and_episodes()

    def rescue(self, folder: Path) -> None:
        """Refuses: what a device has after an error is nobody's."""
        raise RunDirectoryError(f"nothing is written into {folder}: the device failed; resume goes on before")


class DeviceLoop(TalliedLoop[DeviceLearner]):
    """See the module and :class:`parl.runtime.setup.Loop`.

    Rows that only reset count as transitions: nobody waits to learn how many they were.

    Args:
        setup: the run.
        saved: the checkpoint to go on from, or None.

    Raises:
        ConfigError: the algorithm cannot act on a device, or the learner is on another one.
    """

    def __init__(self, setup: Setup, saved: Saved | None = None) -> None:
        algorithm = setup.algorithm
        if not isinstance(algorithm, DeviceAlgorithm):
            raise ConfigError(
                f"{type(algorithm).__name__.lower()} cannot act on a device, as dqn and rainbow can: leave "
                "device out of env_options"
            )
        if algorithm.judges:
            raise ConfigError("initial_priority = 'td' needs environments of the CPU: leave it at 'max'")
        self._setup = setup
        super().__init__(cast("DeviceLearner", setup.make_learner()), saved)
        if saved is None:
            self._replay = setup.make_replay(shared=None, device=setup.device)
        else:
            self._replay = PrioritizedReplay.load(saved.folder / "replay.bin", device=setup.device)
        policy_seed, env_seed = actor_seeds(setup.seed, 0)
        policy = algorithm.make_device_policy(self.learner, policy_seed)
        envs: Any = setup.maker(setup.num_envs)
        same_step = setup.spec.autoreset == "same_step"
        self._actor = DeviceActor(envs.unwrapped, policy, self._replay, same_step, env_seed)
        state = checkpoint.actor_state(saved, 0)
        if state is not None:
            self._actor.load(state)
        elif saved is not None:
            self._actor.end_episodes()
        self._update = Update(self.learner, self._replay, setup.batch_size, algorithm.records_updates)

    def advance(self, until_env_steps: int, seconds: float) -> None:
        """Runs whole rounds until ``until_env_steps`` are collected, or ``seconds`` have passed."""
        setup, pacer = self._setup, self._setup.pacer
        until_env_steps = min(until_env_steps, pacer.total_frames)
        end = time.monotonic() + seconds
        while self._env_steps < until_env_steps and not self._interrupted and time.monotonic() < end:
            self._env_steps += self._actor.step(self._env_steps)
            while pacer.due(self._env_steps, self._updates):
                self._update(setup.algorithm.replay_beta(self._env_steps))
                self._updates += 1

    @property
    def _tally(self) -> Tally:
        return self._actor.tally

    def report(self) -> dict[str, Any]:
        """Figures of the time since the last call; waits, and raises what went wrong on the device."""
        self._check()
        check_state({"weights": self.learner.weights}, "the learner")
        return {
            **self.rates()[1],
            "replay_ratio": self._setup.pacer.measured(self._env_steps, self._updates),
            "replay_size": len(self._replay),
            "policy_lag": 0.0,
            **self.learner.metrics(),
        }

    def _check(self) -> None:
        self._actor.check()
        cast("Any", self._replay).check()

    def save(self, folder: Path) -> None:
        """Writes the checkpoint's parts into ``folder``; waits."""
        self._check()
        self.write(folder, [kept("actor 0", state_or_reason(self._actor), exact=True)], self._replay)

    def close(self) -> None:
        """Ends it; safe to call twice."""
        self._actor.close()
        self._replay.close()
