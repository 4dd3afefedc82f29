"""First priorities of rows: errors that the actor's own network sees, n steps after they were added.

A row cannot be drawn before the n rewards behind it and the observation after them are known. By then the
actor has seen that observation and judged it, so the error of the row costs nothing but a sum. Rows at the
end of an episode can be drawn at once, and have the largest priority for these n steps; so have, for good,
rows before a truncation in environments that reset in the same step, whose last observation nobody acts on.

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
from parl.types import Algorithm, Array, EnvSpec, JudgingPolicy, Policy, Sink


@dataclass
class _Step:
    """What is kept of a vector step, (N,) each; the last five once its rows are written."""

    chosen: Array
    best: Array
    tickets: Any = None
    reward: Any = None
    terminated: Any = None
    truncated: Any = None
    valid: Any = None


class Estimates:
    """Sets the priorities of one actor's rows.

    Args:
        policy: says how it judged the observations it acted on.
        replay: the rows are in.
        num_envs: N.
        n_step: n.
        gamma: discount a step.
        next_step: environments reset in the step after an end.
    """

    def __init__(
        self, policy: JudgingPolicy, replay: Sink, num_envs: int, n_step: int, gamma: float, next_step: bool
    ) -> None:
        self._policy, self._replay = policy, replay
        self._n_step, self._gamma, self._next_step = n_step, gamma, next_step
        self._steps: deque[_Step] = deque()
        self._resets = np.zeros(num_envs, bool)

    @classmethod
    def of(
        cls, algorithm: Algorithm, policy: Policy, replay: Sink, num_envs: int, spec: EnvSpec
    ) -> Estimates | None:
        """Estimates where the algorithm wants them, else None."""
        if not algorithm.judges:
            return None
        options = algorithm.replay_options()
        judging = cast("JudgingPolicy", policy)
        next_step = spec.autoreset == "next_step"
        return cls(judging, replay, num_envs, options["n_step"], options["gamma"], next_step)

    def judged(self) -> None:
        """The policy has acted: the rows n steps back can be judged."""
        chosen, best = self._policy.judged
        self._steps.append(_Step(np.array(chosen), np.array(best)))
        if len(self._steps) > self._n_step:
            self._judge()
            self._steps.popleft()

    def add(self, tickets: Any, reward: Array, terminated: Array, truncated: Array) -> None:
        """The rows of the latest step are written."""
        step = self._steps[-1]
        step.tickets, step.reward = np.asarray(tickets), np.array(reward)
        step.terminated, step.truncated = np.array(terminated), np.array(truncated)
        step.valid = ~self._resets
        if self._next_step:
            self._resets = step.terminated | step.truncated

    def _judge(self) -> None:
        """Priorities of the oldest step's rows."""
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
            priorities = self._policy.priorities_of(total, discount, row.chosen, following)
            if not all_finite(priorities[known]):
                reward, value = float(total[known].max()), float(row.chosen[known].max())
                raise NonFiniteError(
                    f"an initial priority is not finite: rewards of {reward:g} (before reward_scale) and "
                    f"values of {value:g} overflow"
                )
            self._replay.update_priorities(row.tickets[known], priorities[known])

    def forget(self) -> None:
        """Rows to come do not follow on those that are there."""
        self._steps.clear()
        self._resets[:] = False

    def forget_rows(self) -> None:
        """Rows that are there keep the priorities they have."""
        for step in self._steps:
            if step.valid is not None:
                step.valid[:] = False

    def state_dict(self) -> dict[str, Any]:
        """What :meth:`load_state_dict` takes back."""
        return {"steps": [vars(step).copy() for step in self._steps], "resets": self._resets.copy()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes back what :meth:`state_dict` gave."""
        self._steps = deque(_Step(**step) for step in state["steps"])
        self._resets = np.array(state["resets"])
