"""The updates of one learner: sample, compute gradients, average them, step, set priorities.

The next batch may be sampled while the gradients are averaged, and priorities may be written some updates
late. Neither harms learning (Horgan et al., 2018, learn from priorities that are thousands of updates old).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, Literal, TypeVar, cast

from parl.errors import NonFiniteError
from parl.ops.finite import with_metrics
from parl.replay import PrioritizedReplay
from parl.runtime.gradient_allreduce import GradientAllReduce, SingleLearner
from parl.types import Algorithm, Batch, Learner

T = TypeVar("T")
# Smaller changes of beta are not passed to the prefetching thread, since it must stop for them.
_BETA_STEP = 0.005


def compute_gradients(learner: Learner, batch: Batch, env_steps: int) -> Any:
    """Computes the gradients of ``batch`` in ``learner``; returns the new priorities (B,).

    Raises:
        NonFiniteError: a loss or a TD error is NaN or infinite; the message has ``env_steps``.
    """
    try:
        return learner.compute(batch)
    except NonFiniteError as error:
        raise with_metrics(error, f"update at step {env_steps}", learner.metrics()) from None


def apply_step(learner: Learner, env_steps: int) -> None:
    """Takes the optimizer's step.

    Raises:
        NonFiniteError: the gradient is NaN or infinite; the message has ``env_steps``.
    """
    try:
        learner.step()
    except NonFiniteError as error:
        raise with_metrics(error, f"update at step {env_steps}", learner.metrics()) from None


class BatchSampler:
    """Draws stratified samples of one learner's part of a batch, into reused arrays.

    Args:
        replay: the replay to sample from.
        size: number of transitions in the part.
        live: number of batches in use at the same time; after as many draws the arrays of a batch are filled
            again.
        rank: index of the part.
        learners: number of parts.
    """

    def __init__(self, replay: PrioritizedReplay, size: int, live: int, rank: int, learners: int) -> None:
        self._replay, self._size, self._rank, self._learners = replay, size, rank, learners
        self._mode: Literal["split", "stratified"] = "split" if learners > 1 else "stratified"
        self._live = live
        self._relabels = replay.settings.get("hindsight") is not None
        self._batches: deque[Any] = deque()

    def draw(self, beta: float) -> Batch:
        """Draws the next part, with exponent ``beta`` of the importance weights."""
        if self._relabels:  # into new arrays: a batch to be overwritten has no place for the drawn goals
            options: dict[str, Any] = {"mode": self._mode, "rank": self._rank, "learners": self._learners}
            return cast("Batch", self._replay.sample(self._size, beta=beta, as_torch=True, **options))
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
        self._batches.rotate(-1)  # only if the draw succeeded
        return cast("Batch", batch)


class PrefetchQueue(Generic[T]):
    """Queue of batches drawn in advance, with the priorities at the time of the draw.

    Args:
        depth: number of batches; 0: each batch is drawn when it is taken.
    """

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self.ready: deque[T] = deque()

    def take(self, one: Callable[[], T]) -> T:
        """The oldest batch in the queue, or ``one()`` if it is empty."""
        return self.ready.popleft() if self.ready else one()

    def fill(self, one: Callable[[], T]) -> None:
        """Adds batches drawn by ``one()`` until the queue has ``depth``."""
        while len(self.ready) < self._depth:
            self.ready.append(one())


class DelayedPriorities:
    """Writes priorities to a replay some updates late.

    Args:
        replay: the replay.
        delay: updates between the one that computed the priorities and the one after which they are set.
    """

    def __init__(self, replay: PrioritizedReplay, delay: int) -> None:
        self._replay = replay
        self._delay = delay
        self._is_prioritized = replay.settings["alpha"] > 0.0
        self.waiting: deque[list[tuple[Any, Any]]] = deque()

    def add(self, drawn: list[tuple[Any, Any]]) -> None:
        """Queues tickets and priorities of one update, and sets the priorities that are due."""
        if not self._is_prioritized:
            return
        if not self._delay and not self.waiting:
            for tickets, priorities in drawn:
                self._replay.update_priorities(tickets, priorities)
            return
        if self._delay:  # the arrays of the tickets are reused before then
            drawn = [(tickets.copy(), priorities) for tickets, priorities in drawn]
        self.waiting.append(drawn)
        self._set(self._delay)

    def flush(self) -> None:
        """Sets all queued priorities."""
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
        replay: the replay to sample from.
        peers: averages gradients with the other learners.
        size: number of transitions in the part.
        rank: index of the learner among those that share the replay.
        learners: number of those learners.
        prefetch: number of batches drawn in advance, while gradients are averaged or by a thread.
        delay: number of updates by which priorities are set late.
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
        learner.may_record_graph = isinstance(peers, SingleLearner)
        self._sampler = BatchSampler(replay, size, prefetch + 2, rank, learners)
        self._delayed_priorities = DelayedPriorities(replay, delay)
        # Several learners draw while gradients are averaged; for a single learner a thread draws.
        self._prefetch_queue: PrefetchQueue[Batch] = PrefetchQueue(
            0 if isinstance(peers, SingleLearner) else prefetch
        )
        # Made by the first update, which has the exponent of its first batches.
        self._stream: Any = None
        self._stream_beta = 0.0
        self._size, self._stream_depth = size, prefetch if isinstance(peers, SingleLearner) else 0

    def update(self, env_steps: int) -> bool:
        """Makes an update after ``env_steps`` transitions; returns False if it was skipped.

        Raises:
            NonFiniteError: a loss, a TD error or the gradient is NaN or infinite.
        """
        learner = self._learner
        beta = self._algorithm.replay_beta(env_steps)

        def one() -> Batch:
            return self._sampler.draw(beta)

        batch = self._next(beta) if self._stream_depth else self._prefetch_queue.take(one)
        priorities = compute_gradients(learner, batch, env_steps)
        if not self._peers.average(learner.gradients, True, lambda: self._prefetch_queue.fill(one)):
            self._delayed_priorities.flush()
            return False
        apply_step(learner, env_steps)
        self._delayed_priorities.add([(batch.tickets, priorities)])
        return True

    def _next(self, beta: float) -> Batch:
        if self._stream is None:
            self._stream = self._replay.prefetch(
                self._size, depth=self._stream_depth, ordered=False, reuse=True, as_torch=True, beta=beta
            )
            self._stream_beta = beta
        elif abs(beta - self._stream_beta) > _BETA_STEP:
            self._stream.set(beta=beta)
            self._stream_beta = beta
        return next(self._stream)

    def flush(self) -> None:
        """Sets all delayed priorities."""
        self._delayed_priorities.flush()

    def close(self) -> None:
        """Ends the prefetching thread, if there is one; safe to call twice."""
        if self._stream is not None:
            self._stream.close()

    def skip(self) -> None:
        """Makes all learners skip one update. Then all have made the same updates and none is pending."""
        self._delayed_priorities.flush()
        self._peers.average(self._learner.gradients, False)
