"""Stored embeddings: freezes the convolutions of a learner, then replaces the images of its replay.

After ``freeze_after`` transitions the convolutions stop learning. Their outputs for an image then never
change, so the replay stores the outputs (float16) in place of images: actors compute them once per
observation, and updates need no convolutions any more. Rows that are there already are converted, in the
async schedule by a thread, while learning continues with images.

Source: Chen et al. (2021), "Improving Computational Efficiency in Visual Reinforcement Learning via Stored
Embeddings".
"""

from __future__ import annotations

import math
import threading
from typing import Any, cast

from parl.replay import PrioritizedReplay
from parl.replay.conversion import Conversion
from parl.types import EmbeddingLearner, Learner

_OBS = "obs"


def stores_embeddings(replay: PrioritizedReplay) -> bool:
    """Whether ``replay``, of a run with images, holds embeddings."""
    return any(name == _OBS and dtype == "<f2" for name, dtype, *_ in replay.settings["fields"])


class SwitchableReplay:
    """The replay that actors of this process write to, which is replaced while none of them steps.

    Attributes:
        replay: the replay.
    """

    def __init__(self, replay: PrioritizedReplay) -> None:
        self.replay = replay

    @property
    def stores_embeddings(self) -> bool:
        """Whether rows have embeddings in place of images."""
        return stores_embeddings(self.replay)

    def add(self, **columns: Any) -> Any:
        """See :class:`parl.types.Sink`."""
        return self.replay.add(**columns)

    def end_episodes(self, env_id: Any) -> None:
        """See :class:`parl.types.Sink`."""
        self.replay.end_episodes(env_id)

    def update_priorities(self, tickets: Any, priorities: Any) -> Any:
        """See :class:`parl.types.Sink`."""
        return self.replay.update_priorities(tickets, priorities)


class Freezing:
    """Freezes the convolutions of a learner at the right time and converts its replay.

    Args:
        after: transitions after which convolutions are frozen; 0: never.
        learner: the learner.
        replay: its replay.
    """

    def __init__(self, after: int, learner: Learner, replay: PrioritizedReplay) -> None:
        self._after, self._learner, self._replay = after, cast("EmbeddingLearner", learner), replay
        self._converted = after > 0 and stores_embeddings(replay)
        self._conversion: Conversion | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._stop = False

    def is_due(self, env_steps: int) -> bool:
        """Whether the replay is to be converted after ``env_steps`` transitions, and it has not begun."""
        return 0 < self._after <= env_steps and not self._converted and self._conversion is None

    def start(self) -> None:
        """Freezes the convolutions and begins to convert the replay.

        Raises:
            MemoryError: images and embeddings together do not fit into memory.
        """
        self._learner.freeze()
        shape = self._learner.embedding_shape
        self._conversion = Conversion(self._replay, _OBS, shape, "float16", self._learner.embed)

    def start_thread(self) -> None:
        """As :meth:`start`, and converts rows in a thread."""
        self.start()
        self._thread = threading.Thread(target=self._run, name="parl-embeddings", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        conversion = self._conversion
        assert conversion is not None
        try:
            # Each pass converts the rows that were added during the one before. Another follows while it has
            # at most half as many rows: until none is left, or actors add rows as fast as they are converted.
            before, left = math.inf, conversion.left
            while left and left <= before / 2:
                for _ in range(0, left, conversion.rows):
                    if self._stop or not conversion.step():
                        break
                before, left = left, conversion.left
        except BaseException as error:  # raised again by `is_ready`
            self._error = error

    def is_ready(self) -> bool:
        """Whether the thread has passed all rows, so that :meth:`finish` has few left.

        Raises:
            Exception: that of the thread.
        """
        if self._thread is None or self._thread.is_alive():
            return False
        self._thread.join()
        self._thread = None
        if self._error is not None:
            raise self._error
        return True

    def finish(self) -> PrioritizedReplay:
        """Converts the rest and returns the new replay; no other thread may add rows or set priorities."""
        conversion, self._conversion = self._conversion, None
        assert conversion is not None
        self._replay, self._converted = conversion.finish(), True
        return self._replay

    def close(self) -> None:
        """Ends the thread; safe to call twice."""
        self._stop = True
        if self._thread is not None:
            self._thread.join()

    def figures(self) -> dict[str, float]:
        """Metrics: bytes of the replay, and share of its rows that are embeddings; empty without freezing."""
        if not self._after:
            return {}
        conversion, rows = self._conversion, max(len(self._replay), 1)
        share = float(self._converted) if conversion is None else 1 - min(conversion.left, rows) / rows
        return {"replay_bytes": self._replay.nbytes, "embedded_share": share}
