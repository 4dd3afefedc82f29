"""Parks actors that the replay ratio does not need, and wakes them again.

The pacer holds the replay ratio by making the faster side wait. If that is the actors, all of them wake up,
check and wait again, on cores that the learners could use. The parking measures how long each side waits and
lets only so many actors run as are busy::

    n actors, waiting a share w of the time, do the work of n (1 - w) busy ones
    one is parked  while  n (1 - w) <= (n - 1) * BUSY
    one is woken   while  learners wait for longer than IDLE of the time and w < 1 - BUSY

Other actors are parked in each period, so that rows of all environments keep coming.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Share of the time for which actors may be busy before another one is woken.
BUSY = 0.85
# Share of the time for which learners may wait for transitions.
IDLE = 0.05
PERIOD_S = 0.5


@dataclass
class ActorParking:
    """See the module.

    Attributes:
        actors: how many there are.
        awake: how many may run.
        first: number of the first one that may; they are counted on from it, round the end.
    """

    actors: int
    awake: int
    first: int = 0

    @classmethod
    def of(cls, actors: int) -> ActorParking:
        """All awake."""
        return cls(actors, actors)

    def decide(self, actors_wait: float, learners_wait: float) -> None:
        """Chooses how many actors run in the next period.

        Args:
            actors_wait: share of the last period that the actors that were awake waited, 0..1.
            learners_wait: share of it that the learners waited for transitions.
        """
        busy = self.awake * (1.0 - actors_wait)
        if learners_wait > IDLE and actors_wait < 1.0 - BUSY:
            self.awake = min(self.actors, self.awake + 1)
        elif learners_wait <= IDLE and busy <= (self.awake - 1) * BUSY:
            self.awake = max(1, min(self.awake - 1, math.ceil(busy / BUSY)))
        self.first = (self.first + 1) % self.actors if self.awake < self.actors else 0

    def wakes(self, actor: int) -> bool:
        """Whether ``actor`` may run."""
        return (actor - self.first) % self.actors < self.awake
