"""Records random play of a game, replays it as other observations, and checks that a second replay is equal.

python examples/dataset.py [game] [steps]
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import parl

VIEWS: dict[str, dict[str, Any]] = {
    "four gray pictures of 84 x 84": {},
    "one color picture of 64 x 64": {
        "grayscale": False,
        "img_height": 64,
        "img_width": 64,
        "stack_num": None,
    },
    "memory": {"obs_type": "ram", "stack_num": None},
}


def replayed(dataset: parl.datasets.Dataset, view: dict[str, Any]) -> tuple[int, int, float]:
    """The CRC-32 and the bytes of all observations of a replay, and its seconds."""
    start, crc, size = time.perf_counter(), 0, 0
    for rows in dataset.replay(**view):
        crc = zlib.crc32(np.ascontiguousarray(rows["observation"]), crc)
        size += rows["observation"].nbytes
    return crc, size, time.perf_counter() - start


def main() -> None:
    quick = bool(os.environ.get("PARL_EXAMPLE_QUICK"))
    game = sys.argv[1] if len(sys.argv) > 1 else "breakout"
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000 if quick else 200_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{game}.parl"
        dataset = parl.datasets.record(game, path, steps, repeat_action_probability=0.25)
        print(f"{dataset.num_episodes:,} episodes, {dataset.num_steps:,} steps, {dataset.size_bytes:,} bytes")
        for name, view in VIEWS.items():
            crc, size, seconds = replayed(dataset, view)
            assert replayed(dataset, view)[0] == crc, "two replays differ"
            factor = size / dataset.size_bytes
            rate = dataset.num_steps / seconds
            print(f"{name}: {size:,} bytes, {factor:,.0f} times the file; {rate:,.0f} steps/s")


if __name__ == "__main__":
    main()
