"""One learner's work: sample its part of the batch, compute, average with its peers, step, set priorities.

The next batch may be drawn while the gradients are averaged, and priorities may go back some updates late:
neither hurts (Horgan et al., 2018, learn from priorities that are thousands of updates old).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, cast

from parl.errors import NonFiniteError
from parl.ops.finite import explained
from parl.replay import PrioritizedReplay
from parl.runtime.gradient_allreduce import GradientAllReduce, SingleLearner
from parl.types import Algorithm, Batch, Learner

T = TypeVar("T")
# Changes of the importance weights' exponent for which a drawing thread is not stopped.
_BETA_STEP = 0.005


def compute_gradients(learner: Learner, batch: Batch, env_steps: int) -> Any:
    """New priorities (B,) of ``batch``, whose gradients ``learner`` then has.

    Raises:
        NonFiniteError: a loss or an error is NaN or infinite; says after how many transitions.
    """
    try:
        return learner.compute(batch)
    except NonFiniteError as error:
        raise explained(error, f"update at step {env_steps}", learner.metrics()) from None


def apply_step(learner: Learner, env_steps: int) -> None:
    """The optimizer's step.

    Raises:
        NonFiniteError: the gradient is NaN or infinite; says after how many transitions.
    """
    try:
        learner.step()
    except NonFiniteError as error:
        raise explained(error, f"update at step {env_steps}", learner.metrics()) from None


class BatchSampler:
    """Stratified draws of one learner's part, into arrays that are used again and again.

    Args:
        replay: drawn from.
        size: transitions in the part.
        live: batches that are looked at at the same time; the arrays of a batch are filled again so many
            draws later.
        rank: number of the part.
        learners: parts of a draw.
    """

    def __init__(self, replay: PrioritizedReplay, size: int, live: int, rank: int, learners: int) -> None:
        self._replay, self._size, self._rank, self._learners = replay, size, rank, learners
        self._mode: Literal["split", "stratified"] = "split" if learners > 1 else "stratified"
        self._live = live
        self._batches: deque[Any] = deque()

    def draw(self, beta: float) -> Batch:
        """The next part, drawn with exponent ``beta`` of the importance weights."""
        if len(self._batches) < self._live:
            self._batches.appendleft(self._replay.empty_batch(self._size, as_torch=True))
        batch = self._batches[0]
        prepared = getattr(batch, "prepared", None)
        if prepared is not None:
            prepared.sample(beta, self._mode, self._rank, self._learners)
        else:
            self._replay.sample(
                self._size,
                beta=beta,
                as_torch=True,
                out=batch,
                mode=self._mode,
                rank=self._rank,
                learners=self._learners,
            )
        self._batches.rotate(-1)  # not of a draw that failed
        return cast("Batch", batch)


class PrefetchQueue(Generic[T]):
    """BatchSampler lie ready, up to ``depth`` of them: each has missed the priorities of the updates since.

    Args:
        depth: 0 draws when a draw is wanted.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.ready: deque[T] = deque()

    def take(self, one: Callable[[], T]) -> T:
        """The oldest draw that lies ready, or ``one()``."""
        return self.ready.popleft() if self.ready else one()

    def fill(self, one: Callable[[], T]) -> None:
        """BatchSampler until so many lie ready as shall."""
        while len(self.ready) < self._depth:
            self.ready.append(one())


class DelayedPriorities:
    """Priorities on their way back to a replay.

    Args:
        replay: takes them.
        delay: updates between the one that computed them and the one after which they are set.
    """

    def __init__(self, replay: PrioritizedReplay, delay: int) -> None:
        self._replay = replay
        self._delay = delay
        self._wanted = replay.settings["alpha"] > 0.0
        self.waiting: deque[list[tuple[Any, Any]]] = deque()

    def give(self, drawn: list[tuple[Any, Any]]) -> None:
        """Takes tickets and priorities of one update, and sets those whose time has come."""
        if not self._wanted:
            return
        if not self._delay and not self.waiting:
            for tickets, priorities in drawn:
                self._replay.update_priorities(tickets, priorities)
            return
        if self._delay:  # the arrays of the tickets are filled again meanwhile
            drawn = [(tickets.copy(), priorities) for tickets, priorities in drawn]
        self.waiting.append(drawn)
        self._set(self._delay)

    def flush(self) -> None:
        """Sets all."""
        self._set(0)

    def _set(self, keep: int) -> None:
        while len(self.waiting) > keep:
            for tickets, priorities in self.waiting.popleft():
                self._replay.update_priorities(tickets, priorities)


class LearnerWorker:
    """A learner and its part of every batch.

    Args:
        algorithm: gives the exponent of the importance weights.
        learner: computes gradients and steps.
        replay: drawn from.
        peers: the other learners.
        size: transitions in the part.
        rank: number of the learner among those that share the replay.
        learners: number of those learners.
        prefetch: batches that lie ready, drawn while gradients are averaged.
        delay: updates by which priorities go back late.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        learner: Learner,
        replay: PrioritizedReplay,
        peers: GradientAllReduce,
        size: int,
        rank: int = 0,
        learners: int = 1,
        prefetch: int = 0,
        delay: int = 0,
    ) -> None:
        self._algorithm = algorithm
        self._learner = learner
        self._replay = replay
        self._peers = peers
        learner.alone = isinstance(peers, SingleLearner)
        self._draws = BatchSampler(replay, size, prefetch + 2, rank, learners)
        self._late = DelayedPriorities(replay, delay)
        # With peers draws are made while gradients travel; alone, a thread makes them.
        self._ahead: PrefetchQueue[Batch] = PrefetchQueue(0 if isinstance(peers, SingleLearner) else prefetch)
        self._stream: Any = None
        self._stream_beta = 0.0
        if prefetch and isinstance(peers, SingleLearner):
            self._stream = replay.prefetch(size, depth=prefetch, ordered=False, reuse=True, as_torch=True)

    def update(self, env_steps: int) -> bool:
        """One update after ``env_steps`` collected transitions; False if a peer could not take part.

        Raises:
            NonFiniteError: a loss, an error or the gradient is NaN or infinite.
        """
        learner = self._learner
        beta = self._algorithm.replay_beta(env_steps)

        def one() -> Batch:
            return self._draws.draw(beta)

        batch = self._next(beta) if self._stream is not None else self._ahead.take(one)
        priorities = compute_gradients(learner, batch, env_steps)
        if not self._peers.average(learner.gradients, True, lambda: self._ahead.fill(one)):
            self._late.flush()
            return False
        apply_step(learner, env_steps)
        self._late.give([(batch.tickets, priorities)])
        return True

    def _next(self, beta: float) -> Batch:
        if abs(beta - self._stream_beta) > _BETA_STEP:
            self._stream.set(beta=beta)
            self._stream_beta = beta
        return next(self._stream)

    def flush(self) -> None:
        """Sets all priorities that are late."""
        self._late.flush()

    def close(self) -> None:
        """Ends the thread that draws ahead, if there is one; safe to call twice."""
        if self._stream is not None:
            self._stream.close()

    def skip(self) -> None:
        """Makes all learners skip one update. Then all have made the same updates and none is pending."""
        self._late.flush()
        self._peers.average(self._learner.gradients, False)
