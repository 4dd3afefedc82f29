"""An actor of off-policy algorithms: steps a vector environment and writes the rows into a replay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from parl.envs import EnvMaker, Observer, games_over, points
from parl.runtime.env_actor import Counts, EnvActor, check_dtype
from parl.runtime.off_policy.initial_priorities import InitialPriorities
from parl.runtime.seeds import actor_seeds
from parl.runtime.setup import env_range
from parl.types import Algorithm, EmbeddingPolicy, EnvSpec, Policy, Sink

if TYPE_CHECKING:
    from parl.runtime.off_policy.double_buffer import DoubleBufferedActor


class Actor(EnvActor):
    """Writes one row per environment and step into a replay.

    Args:
        env: a vector environment of ``num_envs``, owned by the actor from now on.
        spec: description of the environment.
        policy: chooses the actions.
        replay: destination of the rows.
        first_env: number of the first environment within the run.
        seed: seed of the first reset.
        initial_priorities: computes the rows' initial priorities; None: the replay chooses them.
        pickles: see :class:`EnvActor`.
        relabels_goals: whether the replay relabels goals, so that last observations of terminated episodes
            are needed too.
    """

    def __init__(
        self,
        env: Any,
        spec: EnvSpec,
        policy: Policy,
        replay: Sink,
        first_env: int,
        seed: int,
        initial_priorities: InitialPriorities | None = None,
        pickles: bool = False,
        relabels_goals: bool = False,
    ) -> None:
        self._observe = Observer(spec)
        self.stores_embeddings = False
        super().__init__(env, spec, policy, seed, first_env, pickles)
        self._replay = replay
        self._env_id = np.arange(first_env, first_env + self.num_envs)
        self._env_steps = 0
        self._action: Any = None
        self._results: Any = None
        self._initial_priorities = initial_priorities
        self._relabels_goals = relabels_goals

    def _observed(self, observations: Any, step: int | str) -> Any:
        observations = self._observe(observations)
        self._check.observations(observations, step)
        return self._stored(observations)

    def _stored(self, observations: Any) -> Any:
        """Converts observations to the form that the replay stores and the policy acts on."""
        if not self.stores_embeddings:
            return observations
        return cast("EmbeddingPolicy", self.policy).embed(observations)

    def store_embeddings(self) -> None:
        """From now on adds embeddings in place of images; the policy has the frozen convolutions."""
        self.stores_embeddings = True
        self._obs = self._stored(self._obs)

    def step(self, env_steps: int) -> Counts:
        """Takes one vector step.

        Args:
            env_steps: transitions that the run has collected, for the policy's schedules.
        """
        self.act(env_steps)
        self.step_envs()
        return self.record()

    def act(self, env_steps: int) -> None:
        """First part of a step: chooses the actions."""
        self._env_steps = env_steps
        action = np.asarray(self.policy.act(self._obs, env_steps))
        check_dtype("act", action.dtype, self._action_dtype)
        self._action = action.astype(self._action_dtype, copy=False)
        if self._initial_priorities is not None:
            self._initial_priorities.after_act()

    def step_envs(self) -> None:
        """Second part of a step: steps the environments; another thread may call it."""
        self._results = self._env.step(self._action)

    @property
    def has_results(self) -> bool:
        """Whether the environments have stepped and the rows are not written yet."""
        return self._results is not None

    def record(self) -> Counts:
        """Last part of a step: writes the rows.

        Raises:
            NonFiniteError: a reward or an observation is NaN or infinite; no row is written.
            ConfigError: a final observation is missing; no row is written.
        """
        results, self._results = self._results, None
        assert results is not None
        obs, reward, terminated, truncated, info = results
        reward = np.asarray(reward, np.float32)
        self._check.rewards(reward, self._env_steps)
        obs = self._observe(obs)
        self._check.observations(obs, self._env_steps)
        extra: dict[str, Any] = {}
        if self._same_step:
            ended = np.logical_or(terminated, truncated)
            needed = ended if self._relabels_goals else ended & ~np.asarray(terminated, bool)
            final = self._observe.final(obs, info, needed)
            self._check.observations(final, self._env_steps, "final observation")
            extra = {"final_obs": self._stored(final)}
        obs = self._stored(obs)
        tickets = self._replay.add(
            obs=self._obs,
            action=self._action,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            env_id=self._env_id,
            **extra,
        )
        if self._initial_priorities is not None:
            self._initial_priorities.add(tickets, reward, terminated, truncated)
        self._obs = obs
        score = points(reward, info)
        over = games_over(terminated, np.logical_or(terminated, truncated), info)
        return Counts(*self._episodes.step(score, terminated, truncated, over), float(score.sum()))

    def _extra_state(self) -> dict[str, Any]:
        priorities = self._initial_priorities
        return {
            "pending_step": (self._action, self._results),
            "initial_priorities": None if priorities is None else priorities.state_dict(),
        }

    def _load_extra_state(self, state: Mapping[str, Any]) -> None:
        self._action, self._results = state["pending_step"]
        if self._initial_priorities is not None and state["initial_priorities"] is not None:
            self._initial_priorities.load_state_dict(state["initial_priorities"])

    def end_episodes(self) -> None:
        """Tells the replay that the next rows do not continue the episodes it holds."""
        self._replay.end_episodes(self._env_id)
        self._results = None
        if self._initial_priorities is not None:
            self._initial_priorities.clear()

    def keep_priorities(self) -> None:
        """Leaves the priorities of the rows written so far unchanged."""
        if self._initial_priorities is not None:
            self._initial_priorities.keep_priorities()


def make_actor(
    maker: EnvMaker,
    spec: EnvSpec,
    algorithm: Algorithm,
    replay: Sink,
    index: int,
    actors: int,
    num_envs: int,
    seed: int,
    double_buffer: bool = False,
) -> Actor | DoubleBufferedActor:
    """Makes actor ``index`` of ``actors``, which share ``num_envs`` environments as evenly as possible.

    The first seeds of its environments and the seed of its policy depend only on ``seed`` and ``index``.
    """
    from parl.runtime.off_policy.double_buffer import DoubleBufferedActor

    first, end = env_range(index, actors, num_envs)
    policy_seed, env_seed = actor_seeds(seed, index)
    policy = algorithm.make_policy(index, actors, end - first, policy_seed)

    def make_group(start: int, stop: int) -> Actor:
        own_seed = env_seed + start - first
        priorities = InitialPriorities.for_algorithm(algorithm, policy, replay, stop - start, spec)
        env = maker.for_actors(actors)(stop - start)
        return Actor(
            env,
            spec,
            policy,
            replay,
            start,
            own_seed,
            priorities,
            pickles=not maker.is_text,
            relabels_goals=getattr(algorithm, "goals", None) is not None,
        )

    if not double_buffer:
        return make_group(first, end)
    middle = (first + end) // 2
    return DoubleBufferedActor(make_group(first, middle), make_group(middle, end))
