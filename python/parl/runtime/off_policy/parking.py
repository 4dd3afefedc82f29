"""Parks actors that the replay ratio does not need, and wakes them again.

The pacer holds the replay ratio by making the faster side wait. If the actors are faster, all of them
repeatedly wake up, check and wait again, which takes CPU time that the learners could use. ActorParking
measures how long each side waits and lets only as many actors run as are busy::

    n actors, waiting a share w of the time, do the work of n (1 - w) busy ones
    one is parked  while  n (1 - w) <= (n - 1) * BUSY
    one is woken   while  learners wait for longer than IDLE of the time and w < 1 - BUSY

Each period parks other actors, so that all environments continue to be stepped.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# Fraction of the time for which actors may be busy before another one is woken.
BUSY = 0.85
# Fraction of the time for which learners may wait for transitions.
IDLE = 0.05
PERIOD_S = 0.5


@dataclass
class ActorParking:
    """See the module.

    Attributes:
        actors: number of actors.
        running: number of actors that may run.
        first: index of the first one that may run; the others follow it, modulo ``actors``.
    """

    actors: int
    running: int
    first: int = 0

    @classmethod
    def all_running(cls, actors: int) -> ActorParking:
        """The state in which all actors may run."""
        return cls(actors, actors)

    def decide(self, actors_wait: float, learners_wait: float) -> None:
        """Chooses the number of actors that run in the next period.

        Args:
            actors_wait: fraction of the last period for which the running actors waited, 0..1.
            learners_wait: fraction for which the learners waited for transitions, 0..1.
        """
        busy = self.running * (1.0 - actors_wait)
        if learners_wait > IDLE and actors_wait < 1.0 - BUSY:
            self.running = min(self.actors, self.running + 1)
        elif learners_wait <= IDLE and busy <= (self.running - 1) * BUSY:
            self.running = max(1, min(self.running - 1, math.ceil(busy / BUSY)))
        self.first = (self.first + 1) % self.actors if self.running < self.actors else 0

    def may_run(self, actor: int) -> bool:
        """Whether ``actor`` may run."""
        return (actor - self.first) % self.actors < self.running
