"""Initial priorities of rows: n-step TD errors, computed by the actor with its own network.

A row can be sampled once its n rewards and the observation after them are known. By then the actor has
computed the action values of that observation, so the TD error needs no further pass through the network. Two
kinds of rows have the largest priority so far instead: rows at the end of an episode, until their error is
computed n steps later, and rows before a truncation in environments with same-step autoreset, because no
action is chosen for their last observation.

Source: Horgan et al. (2018), "Distributed Prioritized Experience Replay", section 3.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from parl._native import all_finite
from parl.errors import NonFiniteError
from parl.types import Algorithm, Array, EnvSpec, Policy, PriorityPolicy, Sink


@dataclass
class _Step:
    """One vector step, (N,) each; the last five are set once its rows are written."""

    chosen: Array
    best: Array
    tickets: Any = None
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    valid: Any = None


class InitialPriorities:
    """Computes and sets the initial priorities of one actor's rows.

    Args:
        policy: gives the action values of the observations it acted on.
        replay: holds the rows.
        num_envs: N.
        n_step: n.
        gamma: discount per step.
        next_step: whether environments reset in the step after the end of an episode.
    """

    def __init__(
        self, policy: PriorityPolicy, replay: Sink, num_envs: int, n_step: int, gamma: float, next_step: bool
    ) -> None:
        self._policy, self._replay = policy, replay
        self._n_step, self._gamma, self._next_step = n_step, gamma, next_step
        self._steps: deque[_Step] = deque()
        self._resets = np.zeros(num_envs, bool)

    @classmethod
    def for_algorithm(
        cls, algorithm: Algorithm, policy: Policy, replay: Sink, num_envs: int, spec: EnvSpec
    ) -> InitialPriorities | None:
        """An instance if the algorithm's actors compute initial priorities, else None."""
        if not algorithm.actor_priorities:
            return None
        options = algorithm.replay_options()
        own = cast("PriorityPolicy", policy)
        next_step = spec.autoreset == "next_step"
        return cls(own, replay, num_envs, options["n_step"], options["gamma"], next_step)

    def after_act(self) -> None:
        """Sets the priorities of the rows written n steps ago; called after the policy acted."""
        chosen, best = self._policy.action_values
        self._steps.append(_Step(np.array(chosen), np.array(best)))
        if len(self._steps) > self._n_step:
            self._set_priorities()
            self._steps.popleft()

    def add(self, tickets: Any, reward: Array, terminated: Array, truncated: Array) -> None:
        """Stores what the priorities need; called after the rows of the latest step were written."""
        step = self._steps[-1]
        step.tickets, step.reward = np.asarray(tickets), np.array(reward)
        step.terminated, step.truncated = np.array(terminated), np.array(truncated)
        step.valid = ~self._resets
        if self._next_step:
            self._resets = step.terminated | step.truncated

    def _set_priorities(self) -> None:
        """Computes and sets the priorities of the oldest step's rows."""
        steps = self._steps
        row = steps[0]
        total = np.zeros(len(row.chosen), np.float32)
        discount = np.ones(len(row.chosen), np.float32)
        following = np.array(steps[self._n_step].best)
        known = row.valid.copy()
        running = np.ones(len(row.chosen), bool)
        for k in range(self._n_step):
            step = steps[k]
            total[running] += discount[running] * step.reward[running]
            discount[running] *= self._gamma
            ended = running & step.terminated
            discount[ended] = 0.0
            cut = running & step.truncated & ~step.terminated
            if self._next_step:
                following[cut] = steps[k + 1].best[cut]
            else:
                known &= ~cut
            running &= ~(step.terminated | step.truncated)
        if known.any():
            priorities = self._policy.initial_priorities(total, discount, row.chosen, following)
            if not all_finite(priorities[known]):
                reward, value = float(total[known].max()), float(row.chosen[known].max())
                raise NonFiniteError(
                    f"an initial priority is not finite: rewards of {reward:g} (before reward_scale) and "
                    f"values of {value:g} overflow"
                )
            self._replay.update_priorities(row.tickets[known], priorities[known])

    def clear(self) -> None:
        """Forgets all rows; the next ones begin new episodes."""
        self._steps.clear()
        self._resets[:] = False

    def keep_priorities(self) -> None:
        """Leaves the priorities of the rows written so far unchanged."""
        for step in self._steps:
            if step.valid is not None:
                step.valid[:] = False

    def state_dict(self) -> dict[str, Any]:
        """State for :meth:`load_state_dict`."""
        return {"steps": [vars(step).copy() for step in self._steps], "resets": self._resets.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores what :meth:`state_dict` returned."""
        self._steps = deque(_Step(**step) for step in state["steps"])
        self._resets = np.array(state["resets"])
