"""Replay buffers: transitions in a ring, sampled by priority or uniformly by threads and processes."""

from parl.replay.batch import Batch
from parl.replay.hindsight import Hindsight
from parl.replay.prefetch import Prefetch
from parl.replay.prioritized import PrioritizedReplay
from parl.replay.sequence import SequenceReplay
from parl.replay.uniform import UniformReplay

__all__ = ["Batch", "Hindsight", "Prefetch", "PrioritizedReplay", "SequenceReplay", "UniformReplay"]
