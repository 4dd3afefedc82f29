"""An actor in two halves that take turns: while the environments of one step, the other's actions are found.

::

    thread of the actor     act A | record B, act B  | record A |        act A | ...
    thread of the halves    step B ...| step A       | step B ...................

It pays where environments release Python's lock while they step, as parl's own do and those in processes.
Numbers do not depend on how the threads meet: each half's rows, actions and random numbers come in one order.
"""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from parl.runtime import states
from parl.runtime.actor import Actor
from parl.types import Policy


class HalvesActor:
    """Two actors with one policy, the second one's environments always one step under way.

    Args:
        first: half of the environments.
        second: the other half; both act by the same policy.
    """

    def __init__(self, first: Actor, second: Actor) -> None:
        self.policy: Policy = first.policy
        self.num_envs = first.num_envs + second.num_envs
        self._halves = (first, second)
        self._pool: Executor = ThreadPoolExecutor(1, "parl-halves")
        self._moving: Future[None] | None = None

    @property
    def reward_sum(self) -> float:
        """Of all rewards received since the actor was made."""
        return sum(half.reward_sum for half in self._halves)

    def step(self, env_steps: int) -> tuple[int, list[tuple[float, int]]]:
        """As :meth:`Actor.step`; the second half's rows are those of the step before."""
        first, second = self._halves
        first.act(env_steps)
        moving = self._pool.submit(first.move)
        counted: tuple[int, list[tuple[float, int]]] = (0, [])
        if self._moving is not None:
            self._moving.result()
        if second.has_moved:
            counted = second.record()
        second.act(env_steps)
        self._moving = self._pool.submit(second.move)
        moving.result()
        transitions, finished = first.record()
        return transitions + counted[0], counted[1] + finished

    def save(self) -> bytes:
        """As :meth:`Actor.save`; a step that is under way is finished first, its rows wait in the state."""
        if self._moving is not None:
            self._moving.result()
        parts = [half.save() for half in self._halves]
        return pickle.dumps(parts) if any(map(states.is_pickle, parts)) else states.to_bytes(parts)

    def load(self, state: bytes) -> None:
        """Takes back what :meth:`save` gave."""
        parts = pickle.loads(state) if states.is_pickle(state) else states.from_bytes(state)
        for half, part in zip(self._halves, parts, strict=True):
            half.load(part)
        self._moving = None

    def end_episodes(self) -> None:
        """As :meth:`Actor.end_episodes`."""
        for half in self._halves:
            half.end_episodes()

    def forget_estimates(self) -> None:
        """As :meth:`Actor.forget_estimates`."""
        for half in self._halves:
            half.forget_estimates()

    def close(self) -> None:
        """Closes the environments."""
        self._pool.shutdown()
        for half in self._halves:
            half.close()
