"""An actor: steps a vector environment with the newest weights it has, writes what it sees into a replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parl.envs import EnvMaker, EpisodeTracker, FiniteCheck, Observer, games_over, points
from parl.envs.snapshot import Snapshot
from parl.runtime import states
from parl.runtime.estimates import Estimates
from parl.runtime.seeds import training_seed
from parl.types import Algorithm, EnvSpec, Policy, Sink

if TYPE_CHECKING:
    from parl.runtime.halves import HalvesActor


class Actor:
    """One vector environment, its policy and the rows it writes.

    Args:
        env: a vector environment of ``num_envs``, owned by the actor from now on.
        spec: its description.
        policy: chooses the actions.
        replay: takes one row per environment and step.
        first_env: number of the first environment within the run.
        seed: of the first reset.
        estimates: gives the rows their first priorities; None: the replay does.
        pickles: where the environment's state is not plain data, :meth:`save` pickles it.
    """

    def __init__(
        self,
        env: Any,
        spec: EnvSpec,
        policy: Policy,
        replay: Sink,
        first_env: int,
        seed: int,
        estimates: Estimates | None = None,
        pickles: bool = False,
    ) -> None:
        self.policy = policy
        self.num_envs = int(env.num_envs)
        self._env = env
        self._replay = replay
        self._env_id = np.arange(first_env, first_env + self.num_envs)
        self._observe = Observer(spec)
        self._action_dtype = np.dtype(spec.action_dtype)
        self._same_step = spec.autoreset == "same_step"
        self._episodes = EpisodeTracker(self.num_envs, spec.autoreset)
        self.reward_sum = 0.0
        """Of all rewards received since the actor was made, before any clipping."""
        self._check = FiniteCheck(spec, first_env)
        self._env_steps = 0
        self._obs = self._observe(env.reset(seed=seed)[0])
        self._check.observations(self._obs, "at its first reset")
        self._snapshot, self._pickles = Snapshot(env), pickles
        self._action: Any = None
        self._moved: Any = None
        self._estimates = estimates

    def step(self, env_steps: int) -> tuple[int, list[tuple[float, int]]]:
        """One vector step.

        Args:
            env_steps: transitions that the run has collected, for the policy's schedules.

        Returns:
            the transitions collected, and return and length of each game that ended.
        """
        self.act(env_steps)
        self.move()
        return self.record()

    def act(self, env_steps: int) -> None:
        """The first part of a step: chooses the actions."""
        self._env_steps = env_steps
        self._action = np.asarray(self.policy.act(self._obs, env_steps), self._action_dtype)
        if self._estimates is not None:
            self._estimates.judged()

    def move(self) -> None:
        """The second part: steps the environments; another thread may do it."""
        self._moved = self._env.step(self._action)

    @property
    def has_moved(self) -> bool:
        """Whether a step's rows have not been written yet."""
        return self._moved is not None

    def record(self) -> tuple[int, list[tuple[float, int]]]:
        """The last part: writes the rows; see :meth:`step`.

        Raises:
            NonFiniteError: a reward or an observation is NaN or infinite; no row is written.
        """
        moved, self._moved = self._moved, None
        assert moved is not None
        obs, reward, terminated, truncated, info = moved
        obs = self._observe(obs)
        extra = {"final_obs": self._observe.final(obs, info)} if self._same_step else {}
        reward = np.asarray(reward, np.float32)
        self._check.rewards(reward, self._env_steps)
        self._check.observations(obs, self._env_steps)
        if extra:
            self._check.observations(extra["final_obs"], self._env_steps, "final observation")
        tickets = self._replay.add(
            obs=self._obs,
            action=self._action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_id,
            **extra,
        )
        if self._estimates is not None:
            self._estimates.add(tickets, reward, terminated, truncated)
        self._obs = obs
        score = points(reward, info)
        self.reward_sum += float(score.sum())
        over = games_over(terminated, np.logical_or(terminated, truncated), info)
        return self._episodes.step(score, terminated, truncated, over)

    def save(self) -> bytes:
        """The actor as bytes: environments, generators, unfinished episodes.

        Raises:
            TypeError, pickle.PicklingError: the state of the environment is not plain data.
        """
        rest = {
            "obs": self._obs,
            "episodes": self._episodes.state_dict(),
            "policy": self.policy.state_dict(),
            "under_way": (self._action, self._moved),
            "estimates": None if self._estimates is None else self._estimates.state_dict(),
        }
        return states.save(self._env, self._snapshot, rest, self._pickles)

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave.

        Raises:
            RunDirectoryError: it is damaged or of another environment.
        """
        self._env, saved = states.load(state, self._env, self._snapshot)
        self._snapshot = Snapshot(self._env)
        self._obs = saved["obs"]
        self._episodes.load_state_dict(saved["episodes"])
        self.policy.load_state_dict(saved["policy"])
        self._action, self._moved = saved["under_way"]
        if self._estimates is not None and saved["estimates"] is not None:
            self._estimates.load_state_dict(saved["estimates"])

    def end_episodes(self) -> None:
        """Tells the replay that the rows to come do not follow on those it has."""
        self._replay.end_episodes(self._env_id)
        self._moved = None
        if self._estimates is not None:
            self._estimates.forget()

    def forget_estimates(self) -> None:
        """Leaves the rows that are there with the priorities they have."""
        if self._estimates is not None:
            self._estimates.forget_rows()

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()


def first_and_end(index: int, actors: int, num_envs: int) -> tuple[int, int]:
    """Numbers of the first environment of actor ``index`` and of the one behind its last."""
    return index * num_envs // actors, (index + 1) * num_envs // actors


def make_actor(
    maker: EnvMaker,
    spec: EnvSpec,
    algorithm: Algorithm,
    replay: Sink,
    index: int,
    actors: int,
    num_envs: int,
    seed: int,
    halves: bool = False,
) -> Actor | HalvesActor:
    """Actor ``index`` of ``actors``, which share ``num_envs`` environments as evenly as can be.

    Each environment's first seed and each policy's generator follow from ``seed`` and their number alone.
    """
    from parl.runtime.halves import HalvesActor

    first, end = first_and_end(index, actors, num_envs)
    policy_seed, env_seed = np.random.SeedSequence([seed, index]).generate_state(2)
    policy = algorithm.make_policy(index, actors, end - first, int(policy_seed))

    def part(start: int, stop: int) -> Actor:
        own_seed = training_seed(int(env_seed)) + start - first
        estimates = Estimates.of(algorithm, policy, replay, stop - start, spec)
        env = maker.beside(actors)(stop - start)
        pickles = not isinstance(maker.env, str)
        return Actor(env, spec, policy, replay, start, own_seed, estimates, pickles)

    if not halves:
        return part(first, end)
    middle = (first + end) // 2
    return HalvesActor(part(first, middle), part(middle, end))
