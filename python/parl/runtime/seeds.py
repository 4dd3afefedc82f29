"""Seeds of environments. Training, a run's evaluations and later evaluations use ranges that do not overlap.

====================  ========================================================================
Seeds                 Use
====================  ========================================================================
0 .. 2**23            :func:`parl.evaluate` and :func:`parl.train.record`, chosen by the caller
2**23 .. 2**24        evaluations of a run during training, one seed per episode
2**24 .. 2**31        training environments
====================  ========================================================================

A vector environment gives environment i the seed ``seed + i``; some vector environments (CartPole) have
one generator, seeded with ``seed``.

Environments that draw from ``random`` or ``numpy.random`` do not use these seeds: a run seeds both modules in
each of its processes.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Generator, Mapping
from typing import Any

import numpy as np

_RUN_FIRST = 2**23
_TRAINING_FIRST, _TRAINING_END = 2**24, 2**31 - 2**20
# Evaluations of a run start at a random seed in the lower half of their range and go up.
_RUN_EPISODES = 2**22


def training_seed(draw: int) -> int:
    """Seed of the first of at most 2**20 training environments.

    Args:
        draw: random number in 0..2**32.
    """
    seed = draw >> 1
    if seed < _TRAINING_FIRST:
        return seed + _TRAINING_FIRST
    return seed - 2**20 if seed >= _TRAINING_END else seed


def evaluation_seed(seed: int, played: int, episodes: int) -> int:
    """Seed of the first episode of an evaluation; episode i uses this plus i.

    Evaluations of the same run share no seed until it has played 2**22 episodes; then the seeds repeat.

    Args:
        seed: seed of the run.
        played: number of episodes in the run's evaluations so far.
        episodes: number of episodes in this evaluation, at most 2**20.
    """
    start = int(np.random.SeedSequence([seed, 2**31]).generate_state(1)[0]) % _RUN_EPISODES
    # From the number of episodes, not of evaluations: `episodes` may change when a run is resumed.
    return _RUN_FIRST + start + played % (_RUN_EPISODES - episodes)


def actor_seeds(seed: int, index: int) -> tuple[int, int]:
    """Seeds of the policy and of the first environment of actor ``index``, from the run's seed alone."""
    policy_seed, env_seed = np.random.SeedSequence([seed, index]).generate_state(2)
    return int(policy_seed), training_seed(int(env_seed))


def seed_modules(seed: int) -> None:
    """Seeds ``random`` and ``numpy.random`` of this process, from which environments may draw.

    Args:
        seed: any integer ``>= 0``.
    """
    random.seed(seed)
    np.random.seed(np.random.SeedSequence(seed).generate_state(4))


def draw_seed() -> int:
    """A seed for :func:`seed_modules` of another process, drawn from ``numpy.random`` of this one."""
    return int(np.random.randint(2**32, dtype=np.uint32))


def state_of_modules() -> dict[str, Any]:
    """States of ``random`` and ``numpy.random``, as plain data."""
    return {"random": random.getstate(), "numpy": np.random.get_state(legacy=False)}


def restore_modules(state: Mapping[str, Any]) -> None:
    """Restores what :func:`state_of_modules` returned."""
    random.setstate(state["random"])
    np.random.set_state(state["numpy"])


@contextlib.contextmanager
def seeded_modules(seed: int) -> Generator[None]:
    """Context in which ``random`` and ``numpy.random`` are seeded; then they have their former states."""
    before = state_of_modules()
    seed_modules(seed)
    try:
        yield
    finally:
        restore_modules(before)
