"""``parl play``: play an Atari game in a window or the terminal."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from parl.cli.arguments import UsageError, parse
from parl.cli.option_types import Flag, OptionalFloat, OptionalInt, OptionalPath
from parl.errors import ConfigError

GameName = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="GAME")]


@dataclasses.dataclass(frozen=True)
class PlayOptions:
    """Play a game in a window or the terminal.

    Arrows move, space fires, p pauses, r resets, q quits; a second player has w a s d and f.
    """

    game: GameName
    """Id of a game (parl games lists them) or path of a ROM."""
    window: Flag = False
    """Play in a window (needs pygame)."""
    terminal: Flag = False
    """Play in the terminal."""
    seed: int = 0
    """Seed of sticky actions."""
    mode: OptionalInt = None
    """Mode of the game; default: its first."""
    difficulty: OptionalInt = None
    """Position of the difficulty switches; default: 0."""
    fps: OptionalFloat = None
    """Frames per second; default: 60, or 50 for PAL games."""
    frames: int = 0
    """Stop after this many frames; 0: never."""
    record: OptionalPath = None
    """Write the actions to this .npz file, for parl train bc --data."""
    allow_unknown: Flag = False
    """Accept a ROM that is not a known game."""
    mute: Flag = False
    """Play no sound. Only a window plays sound."""


def play_command(arguments: Sequence[str]) -> int:
    """Plays a game and prints its score. Returns the exit status."""
    from parl.atari.console import Console
    from parl.atari.play import play
    from parl.atari.recording import Recorder

    options = parse(PlayOptions, "parl play", arguments)
    if options.window and options.terminal:
        raise UsageError("parl play: --window and --terminal exclude each other")
    if options.frames < 0:
        raise ConfigError(f"--frames is {options.frames}, expected at least 0")
    console = Console(
        options.game,
        seed=options.seed,
        mode=options.mode,
        difficulty=options.difficulty,
        allow_unknown=options.allow_unknown,
        sound=not options.mute,
    )
    record: Path | None = options.record
    recorder = None if record is None else Recorder(console)
    where = "window" if options.window else "terminal" if options.terminal else "auto"
    score = play(console, where=where, fps=options.fps, max_frames=options.frames, recorder=recorder)
    print(f"{console.name}: score {score} after {console.episode_frame_number} frames")
    if recorder is not None and record is not None:
        recorder.write(record)
        print(f"{record}: {len(recorder)} steps")
    return 0
