"""Double buffering: one of two groups of environments steps while the policy acts for the other.

::

    actor's thread          act A | record B, act B | record A       act A | ...
    environments' thread    step B ...| step A      | step B ..................

This saves time if environments release the GIL while they step, as parl's own and those in processes do.
Results do not depend on timing: the order of each group's rows, actions and random numbers is fixed.
"""

from __future__ import annotations

import pickle
from concurrent.futures import Executor, Future, ThreadPoolExecutor

from parl.runtime import states
from parl.runtime.env_actor import Counts, total
from parl.runtime.off_policy.actor import Actor
from parl.types import Policy


class DoubleBufferedActor:
    """Two actors with one policy; between two calls of :meth:`step` the second one's environments step.

    Args:
        first: actor of the first group of environments.
        second: actor of the second group, with the same policy.
    """

    def __init__(self, first: Actor, second: Actor) -> None:
        self.policy: Policy = first.policy
        self.num_envs = first.num_envs + second.num_envs
        self._groups = (first, second)
        self._pool: Executor = ThreadPoolExecutor(1, "parl-double-buffer")
        self._pending: Future[None] | None = None

    def step(self, env_steps: int) -> Counts:
        """As :meth:`Actor.step`; the second group's rows are those of the previous step."""
        first, second = self._groups
        first.act(env_steps)
        stepping = self._pool.submit(first.step_envs)
        counts: list[Counts] = []
        if self._pending is not None:
            self._pending.result()
        if second.has_results:
            counts.append(second.record())
        second.act(env_steps)
        self._pending = self._pool.submit(second.step_envs)
        stepping.result()
        counts.append(first.record())
        return total(counts)

    def save(self) -> bytes:
        """As :meth:`Actor.save`; waits for a pending step, whose results are part of the state."""
        if self._pending is not None:
            self._pending.result()
        parts = [group.save() for group in self._groups]
        return pickle.dumps(parts) if any(map(states.is_pickle, parts)) else states.to_bytes(parts)

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned."""
        parts = pickle.loads(state) if states.is_pickle(state) else states.from_bytes(state)
        for group, part in zip(self._groups, parts, strict=True):
            group.load(part)
        self._pending = None

    @property
    def stores_embeddings(self) -> bool:
        """As that of :class:`Actor`."""
        return self._groups[0].stores_embeddings

    def store_embeddings(self) -> None:
        """As :meth:`Actor.store_embeddings`; the results of a pending step are converted later."""
        for group in self._groups:
            group.store_embeddings()

    def end_episodes(self) -> None:
        """As :meth:`Actor.end_episodes`."""
        for group in self._groups:
            group.end_episodes()

    def keep_priorities(self) -> None:
        """As :meth:`Actor.keep_priorities`."""
        for group in self._groups:
            group.keep_priorities()

    def close(self) -> None:
        """Closes the environments."""
        self._pool.shutdown()
        for group in self._groups:
            group.close()
