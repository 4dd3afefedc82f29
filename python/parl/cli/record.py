"""``parl record``: record an episode of a run, or of an Atari game, in a file."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Sequence
from pathlib import Path

from parl.cli.runs import ask_for_trust


def record_command(arguments: Sequence[str]) -> int:
    """Records an episode into a video or picture file. Returns the exit status."""
    from parl.atari import commands

    if not any((Path(word) / "config.toml").is_file() for word in arguments):
        return commands.run("record", arguments)
    parser = argparse.ArgumentParser(
        prog="parl record", description="Record one greedy episode of a run's checkpoint in a file."
    )
    parser.add_argument("run", type=Path, help="the run directory")
    parser.add_argument("-o", "--out", type=Path, required=True, help="file: .mp4, .gif or .png")
    parser.add_argument("--checkpoint", default="best", help="best or last (default best)")
    parser.add_argument("--seed", type=int, default=1_000_000, help="seed of the environment")
    parser.add_argument("--scale", type=int, help="height of a pixel in the file (default: Atari 2, else 1)")
    parser.add_argument(
        "--trust", action="store_true", help="load pickles of the run without asking; this runs their code"
    )
    options = parser.parse_args(list(arguments))
    record = importlib.import_module("parl.train").record

    def play(trust: bool) -> float:
        return record(options.run, options.out, options.seed, options.checkpoint, options.scale, trust=trust)

    score = ask_for_trust(play, options.trust)
    print(f"{options.out}: one episode, return {score:g}")
    return 0
