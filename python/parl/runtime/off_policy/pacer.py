"""Holds the replay ratio, sampled per collected transitions, by making either side wait.

With c transitions collected since learning started (the first ``learning_starts`` are free) and s sampled::

    learners may sample  B more while  s + B <= ratio * c + band
    actors   may collect N more while  ratio * (c + N) <= s + band

so ``|s - ratio * c| <= band`` at all times. One side can always continue, because ``2 * band >= B + ratio *
N``: if both inequalities were false, ``B + ratio * N > 2 * band`` would follow. (The vector step that passes
``learning_starts`` collects up to N at once, within the band: ``band >= ratio * N``.)

Source: limits for both sides, as in Reverb's ``SampleToInsertRatio`` (Cassirer et al., 2021).
"""

from __future__ import annotations

from dataclasses import dataclass

# Sleep times of a process that waits for the other side; the kernel adds about 60 microseconds. The band lets
# actors run ahead by some vector steps, so they may check less often, which leaves CPU time to the learners.
LEARNER_PAUSE_S = 1e-4
ACTOR_PAUSE_S = 5e-4
ACTOR_PAUSE_MAX_S = 2e-3


@dataclass(frozen=True)
class Pacer:
    """See the module. All figures count transitions.

    Attributes:
        ratio: sampled per collected, ``> 0``.
        batch_size: B, sampled by all learners together in one update.
        num_envs: N, collected by all actors together in one vector step.
        learning_starts: collected before learning may start.
        total_steps: collected in the whole run.
        slack: the band in units of ``(B + ratio * N) / 2``, at least 2; larger values allow more overlap.
    """

    ratio: float
    batch_size: int
    num_envs: int
    learning_starts: int
    total_steps: int
    slack: float = 4.0

    def __post_init__(self) -> None:
        if self.slack < 2:
            raise ValueError(f"slack = {self.slack} is below 2: the two sides could stall each other")

    @property
    def band(self) -> float:
        """Largest distance of sampled transitions from ``ratio`` times the collected ones."""
        return self.slack * 0.5 * (self.batch_size + self.ratio * self.num_envs)

    def may_learn(self, env_steps: int, updates: int) -> bool:
        """Whether the next update keeps the ratio, after ``env_steps`` and ``updates``."""
        collected = env_steps - self.learning_starts
        return collected >= 0 and (updates + 1) * self.batch_size <= self.ratio * collected + self.band

    def may_collect(self, env_steps: int, updates: int) -> bool:
        """Whether the next vector step keeps the ratio and the limit."""
        if env_steps >= self.total_steps:
            return False
        if env_steps < self.learning_starts:
            return True
        collected = env_steps + self.num_envs - self.learning_starts
        return self.ratio * collected <= updates * self.batch_size + self.band

    def due(self, env_steps: int, updates: int) -> bool:
        """Whether the ratio asks for the next update now; for loops in one thread, which need no band."""
        collected = env_steps - self.learning_starts
        return collected >= 0 and (updates + 1) * self.batch_size <= self.ratio * collected

    def measured(self, env_steps: int, updates: int) -> float:
        """The ratio so far, NaN before learning started."""
        collected = env_steps - self.learning_starts
        return updates * self.batch_size / collected if collected > 0 else float("nan")
