"""Learning from a dataset of :mod:`parl.datasets`: a replay that a recording fills, one learner, no actors.

A dataset that fits is added to the replay once. Of a larger one the replay holds the last ``replay_capacity``
steps of a stream: replays of the whole dataset, one after the other, each with its episodes in another random
order. The stream adds one step for every ``replay_ratio`` sampled transitions.

Everything runs in this thread in one order: equal seeds give equal results, and a resumed run continues
exactly.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from parl.datasets import Dataset, DQNReplay
from parl.datasets.buffers import add_rows
from parl.datasets.learning import open_dataset, view_of
from parl.errors import ConfigError
from parl.replay import PrioritizedReplay
from parl.runtime import states
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.env_actor import Counts
from parl.runtime.loop import LocalLoop
from parl.runtime.off_policy.learner_worker import (
    BatchSampler,
    DelayedPriorities,
    apply_step,
    compute_gradients,
)
from parl.runtime.off_policy.setup import OffPolicySetup
from parl.types import Learner


@dataclass(frozen=True, kw_only=True)
class DatasetSetup(OffPolicySetup):
    """Description of a run that learns from a dataset.

    Attributes:
        dataset: path of the dataset.
    """

    dataset: str

    def make_source(self) -> DatasetSource:
        """Opens the dataset.

        Raises:
            ConfigError: the dataset is empty, or of another game, or its actions are not those of the run.
            DatasetError: the file is not a dataset, or is damaged.
        """
        dataset = open_dataset(self.dataset)
        if dataset.num_steps == 0:
            raise ConfigError(f"{self.dataset} has no steps")
        view = view_of(dataset, self.maker)
        return DatasetSource(dataset, view, self.num_envs, self.replay_capacity, self.own_seed())

    def make_dataset_replay(self, source: DatasetSource) -> PrioritizedReplay:
        """Makes an empty replay for the rows of ``source``."""
        spec = dataclasses.replace(self.spec, autoreset="disabled")
        return dataclasses.replace(self, spec=spec, replay_capacity=source.capacity).make_replay(None)


class DatasetSource:
    """Adds the steps of a dataset to a replay.

    Args:
        dataset: the dataset, or a logged replay, whose checkpoints take the place of episodes.
        view: options of its replays.
        num_envs: number of episodes that are replayed at the same time.
        most: number of steps that the replay may hold.
        seed: seed of the order of episodes.
    """

    def __init__(
        self, dataset: Dataset | DQNReplay, view: dict[str, Any], num_envs: int, most: int, seed: int
    ) -> None:
        self._dataset, self._view, self._num_envs = dataset, view, num_envs
        self.fits = dataset.num_steps <= most
        # A replay reuses its rows in chunks of up to a 64th of its capacity or 1,024 rows.
        steps = dataset.num_steps
        self.capacity = steps + min(steps // 16 + 64, 4_096) + num_envs if self.fits else most
        self._rng = np.random.default_rng(seed)
        # The state of the generator before the order of this replay was drawn, and its steps so far.
        self._before: Any = self._rng.bit_generator.state
        self._taken = 0
        self._stream = self._rows(0)
        self.added = 0

    def _rows(self, skipped: int) -> Iterator[dict[str, Any]]:
        """The rows of each step of replays without end; ``skipped`` steps of the first one are left out."""
        while True:
            self._before, self._taken = self._rng.bit_generator.state, 0
            for rows in self._replay():
                self._taken += 1
                if self._taken > skipped:
                    yield rows
            skipped = 0
            if self.fits:
                return

    def _replay(self) -> Iterator[dict[str, Any]]:
        """A replay of the whole dataset in the next random order."""
        dataset = self._dataset
        options: dict[str, Any] = {"batch_size": self._num_envs, **self._view}
        if isinstance(dataset, DQNReplay):
            return dataset.replay(checkpoints=self._rng.permutation(dataset.checkpoints).tolist(), **options)
        return dataset.replay(episodes=self._rng.permutation(dataset.num_episodes).tolist(), **options)

    def add(self, replay: Any, until: float) -> None:
        """Adds rows to ``replay`` until ``until`` were added in all, or all those of a dataset that fits."""
        while self.added < until and (rows := next(self._stream, None)) is not None:
            add_rows(replay, rows)
            self.added += len(rows["step"])

    def save(self) -> bytes:
        """The place in the stream as bytes; the replay itself is in the checkpoint."""
        return states.to_bytes((self._before, self._taken, self.added))

    def load(self, state: bytes) -> None:
        """Restores what :meth:`save` returned: replays the dataset from the start of a pass to the place."""
        self._before, self._taken, self.added = states.from_bytes(state)
        self._rng.bit_generator.state = self._before
        self.close()
        self._stream = iter(()) if self.fits else self._rows(self._taken)

    def close(self) -> None:
        """Frees the environments of the replay."""
        close = getattr(self._stream, "close", None)
        if close is not None:
            close()


class DatasetLoop(LocalLoop[Learner]):
    """See the module. An iteration is an update; sampled transitions count as steps of the run.

    Args:
        setup: the run.
        saved: the checkpoint to start from, or None.
    """

    obeys_clock = False
    exact = True

    def __init__(self, setup: DatasetSetup, saved: Checkpoint | None = None) -> None:
        torch.set_num_threads(1)
        self._setup = setup
        self._actors = []
        super().__init__(setup.make_learner(), setup.pacer.total_steps, saved)
        self._source = setup.make_source()
        if saved is None:
            self._replay = setup.make_dataset_replay(self._source)
            self._source.add(self._replay, self._source.capacity)
        else:
            self._replay = PrioritizedReplay.load(saved.folder / "replay.bin", device="cpu")
        self._load_actors([self._source], saved)
        self._sampler = BatchSampler(self._replay, setup.batch_size, 2, 0, 1)
        self._priorities = DelayedPriorities(self._replay, 0)
        self._learner.may_record_graph = True
        self._learner.use_threads(setup.threads)

    def _iterate(self, seconds: float) -> None:
        setup, source = self._setup, self._source
        batch = self._sampler.draw(setup.algorithm.replay_beta(self._env_steps))
        priorities = compute_gradients(self._learner, batch, self._env_steps)
        apply_step(self._learner, self._env_steps)
        self._priorities.add([(batch.tickets, priorities)])
        self._updates += 1
        self.count(Counts(setup.batch_size, [], 0.0))
        if not source.fits:
            source.add(self._replay, source.capacity + self._env_steps / setup.pacer.ratio)

    def _figures(self, elapsed: float) -> dict[str, Any]:
        return {"replay_size": len(self._replay), "dataset_steps": self._source.added}
