"""``parl record``: record an episode of a run, or an Atari game, in a file."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import tyro
from numpy.typing import NDArray

from parl.atari.actions import Action, action_number
from parl.atari.console import Console
from parl.atari.pictures import write_frames
from parl.cli.arguments import UsageError, parse
from parl.cli.option_types import Flag, OptionalInt
from parl.cli.runs import ask_for_trust
from parl.errors import AtariError, ConfigError
from parl.run.directory import is_on_hub

_SECONDS = 30
_SCALE = 2
_LARGEST_SCALE = 16
# Number of frames for which random play repeats an action.
_RANDOM_FRAMES = 8


@dataclasses.dataclass(frozen=True)
class RecordOptions:
    """Record one greedy episode of a run, or an Atari game, in a file; .png holds the last frame."""

    what: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN|GAME")]
    """A run directory, a checkpoint's folder or hf://user/repository; or the id or ROM file of a game."""
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])]
    """File to write: .mp4 (of an Atari game with sound), .gif (both need the extra video) or .png."""
    seed: OptionalInt = None
    """Seed of the environment, or of sticky actions and random play; default: 1000000 for a run, else 0."""
    scale: OptionalInt = None
    """Height of a pixel in the file; default: 2 for Atari games, else 1."""
    checkpoint: Literal["best", "last"] = "best"
    """Of a run: the checkpoint with the highest evaluation, or the last one."""
    trust: Flag = False
    """Of a run: load its pickles without asking. This runs the code in them: open only runs you trust."""
    frames: OptionalInt = None
    """Of a game: number of frames; default: 30 seconds."""
    actions: str = "random"
    """Of a game: random, or actions and counts, repeated: 'FIRE*2 RIGHT*30 NOOP'."""
    mode: OptionalInt = None
    """Of a game: its mode; default: its first."""
    difficulty: OptionalInt = None
    """Of a game: position of the difficulty switches; default: 0."""
    allow_unknown: Flag = False
    """Of a game: accept a ROM that is not a known game."""


def record_command(arguments: Sequence[str]) -> int:
    """Records an episode into a video or picture file. Returns the exit status."""
    options = parse(RecordOptions, "parl record", arguments)
    is_run = is_on_hub(options.what) or Path(options.what).is_dir()
    of_games = ("frames", "actions", "mode", "difficulty", "allow_unknown")
    for field in dataclasses.fields(RecordOptions):
        unused = field.name in (of_games if is_run else ("checkpoint", "trust"))
        if unused and getattr(options, field.name) != field.default:
            option = field.name.replace("_", "-")
            raise UsageError(f"parl record: --{option} has no effect on {options.what}")
    return _record_run(options) if is_run else _record_game(options)


def _record_run(options: RecordOptions) -> int:
    record = importlib.import_module("parl.train").record
    seed = 1_000_000 if options.seed is None else options.seed

    def play(trust: bool) -> float:
        return record(options.what, options.out, seed, options.checkpoint, options.scale, trust=trust)

    score = ask_for_trust(play, options.trust)
    print(f"{options.out}: one episode, return {score:g}")
    return 0


def _record_game(options: RecordOptions) -> int:
    scale = _SCALE if options.scale is None else options.scale
    if not 1 <= scale <= _LARGEST_SCALE:
        raise ConfigError(f"--scale is {scale}, expected 1 to {_LARGEST_SCALE}")
    script = None if options.actions == "random" else scripted(options.actions)
    if script is not None and not script:
        raise ConfigError("--actions is empty, expected 'random' or names of actions")
    seed = options.seed or 0
    console = Console(
        options.what,
        seed=seed,
        mode=options.mode,
        difficulty=options.difficulty,
        allow_unknown=options.allow_unknown,
        sound=True,
    )
    fps = console.frames_per_second
    frames = round(_SECONDS * fps) if options.frames is None else options.frames
    if frames < 1:
        raise ConfigError(f"--frames is {frames}, expected at least 1")
    written = write_frames(
        options.out,
        frames_of(console, frames, seed, script),
        fps=fps,
        scale=scale,
        audio=lambda: console.audio,
    )
    print(f"{options.out}: {written} frames of {console.name}, {options.out.stat().st_size:,} bytes")
    return 0


def scripted(text: str) -> list[Action]:
    """Parses actions: names or numbers separated by spaces, each followed by ``*N`` for N frames.

    Raises:
        AtariError: a word is not an action, or a count is not positive.
    """
    actions: list[Action] = []
    for word in text.split():
        name, _, count = word.partition("*")
        if count and not (count.isdecimal() and int(count) > 0):
            raise AtariError(f"{word!r} has the count {count!r}, expected a number of frames of at least 1")
        number = action_number(int(name) if name.isdecimal() else name)
        actions += [Action(number)] * int(count or 1)
    return actions


def frames_of(
    console: Console, frames: int, seed: int, script: Sequence[Action] | None
) -> Iterator[NDArray[np.uint8]]:
    """Plays and yields the screen of each frame, (H, 160, 3) uint8; resets when an episode ends.

    Args:
        console: the console.
        frames: number of frames.
        seed: seed of random actions.
        script: one action per frame, repeated from the start at its end; None for random actions.
    """
    random = np.random.default_rng(seed)
    own = console.minimal_actions
    action = Action.NOOP
    for frame in range(frames):
        if console.game_over:
            console.reset()
        if script is not None:
            action = script[frame % len(script)]
        elif frame % _RANDOM_FRAMES == 0:
            action = own[int(random.integers(len(own)))]
        console.act(action)
        yield console.screen_rgb
