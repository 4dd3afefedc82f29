"""Seeding of the initial weights of networks."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

import torch


@contextlib.contextmanager
def seeded(seed: int, device: torch.device | str) -> Generator[None]:
    """Seeds torch's global generator for a block, and restores its state afterwards.

    ``torch.manual_seed`` would also seed the generators of GPUs that are not used, and each call keeps the
    stack of its callers until a GPU is used.

    Args:
        seed: of the generator.
        device: where the networks are to be; unless it is the CPU, its generators are seeded too.
    """
    with torch.random.fork_rng(devices=[]):
        if torch.device(device).type == "cpu":
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
        yield
