"""The commands ``parl games``, ``parl play`` and ``parl record``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parl.atari.actions import Action, action_number
from parl.atari.catalogue import Game, find_id, games
from parl.atari.console import Console
from parl.atari.pictures import SUFFIXES, write_frames
from parl.atari.play import play
from parl.atari.recording import Recorder
from parl.errors import AtariError, ConfigError

_SECONDS = 30
_SCALE = 2
_LARGEST_SCALE = 16
# Number of frames for which random play repeats an action.
_RANDOM_FRAMES = 8


def _range_text(values: Sequence[int]) -> str:
    """Formats ascending integers with ranges: 0-3, 8."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def table(rows: Sequence[Game]) -> str:
    """Formats games as a table with aligned columns."""
    head = ("id", "title", "cartridge", "players", "actions", "modes", "difficulties", "screen", "rom")
    lines: list[tuple[str, ...]] = [head]
    for game in rows:
        rom = "found" if game.found else "other md5" if game.path else "missing"
        screen = f"{game.screen[0]}x{game.screen[1]}"
        lines.append(
            (
                game.id,
                game.title,
                game.cartridge,
                str(game.players),
                str(len(game.actions)),
                str(len(game.modes)),
                _range_text(game.difficulties),
                screen,
                rom,
            )
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def describe(game: Game) -> str:
    """Formats all facts about a game, one per line."""
    place = "not found" if game.path is None else str(game.path)
    if game.path is not None and not game.found:
        place += " (another md5)"
    facts = {
        "id": game.id,
        "title": game.title,
        "cartridge": game.cartridge,
        "players": str(game.players),
        "actions": ", ".join(f"{action.value} {action.name}" for action in game.actions),
        "modes": _range_text(game.modes),
        "difficulties": _range_text(game.difficulties),
        "screen": f"{game.screen[0]} rows of {game.screen[1]} pixels",
        "md5": game.md5,
        "rom": place,
    }
    width = max(map(len, facts))
    return "\n".join(f"{name.ljust(width)}  {fact}" for name, fact in facts.items())


def _games_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="parl games", description="List the games that parl knows, or describe some of them."
    )
    parser.add_argument("game", nargs="*", help="ids of games to describe in full")
    chosen = parser.parse_args(arguments).game
    known = games()
    if not chosen:
        print(table(known))
        found = sum(game.found for game in known)
        print(f"\n{len(known)} games, {found} ROMs found")
        if found < len(known):
            print("pip install ale-py installs all of them; PARL_ROMS_DIR can name another folder")
        return 0
    by_id = {game.id: game for game in known}
    for number, name in enumerate(chosen):
        found_id = find_id(name)
        if found_id is None:
            raise AtariError(f"there is no game {name!r}: run parl games for a list")
        print(("\n" if number else "") + describe(by_id[found_id]))
    return 0


def _console_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("game", help="id of a game (parl games lists them) or path of a ROM")
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of sticky actions and random play (default 0)"
    )
    parser.add_argument("--mode", type=int, help="mode of the game (default: its first)")
    parser.add_argument("--difficulty", type=int, help="position of the difficulty switches (default 0)")
    parser.add_argument("--allow-unknown", action="store_true", help="accept a ROM that is not a known game")


def _console(options: argparse.Namespace) -> Console:
    return Console(
        options.game,
        seed=options.seed,
        mode=options.mode,
        difficulty=options.difficulty,
        allow_unknown=options.allow_unknown,
    )


def _play_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="parl play",
        description="Play a game: arrows move, space fires, p pauses, r resets, q quits; the second player "
        "of a game for two has w a s d and f.",
    )
    _console_options(parser)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--window", action="store_true", help="play in a window (needs pygame)")
    where.add_argument("--terminal", action="store_true", help="play in the terminal")
    parser.add_argument("--fps", type=float, help="frames per second (default: 60, or 50 for PAL games)")
    parser.add_argument("--frames", type=int, default=0, help="stop after this many frames (default: never)")
    parser.add_argument(
        "--record", type=Path, help="write the actions to this .npz file, for parl train bc --data"
    )
    options = parser.parse_args(arguments)
    console = _console(options)
    record: Path | None = options.record
    recorder = None if record is None else Recorder(console)
    where_to = "window" if options.window else "terminal" if options.terminal else "auto"
    score = play(console, where=where_to, fps=options.fps, max_frames=options.frames, recorder=recorder)
    print(f"{console.name}: score {score} after {console.episode_frame_number} frames")
    if recorder is not None and record is not None:
        recorder.write(record)
        print(f"{record}: {len(recorder)} steps")
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


def _record_command(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="parl record",
        description="Play a game with random or given actions and write it to a file: .mp4, .gif (extra "
        "'video'), or .png for the last frame.",
    )
    _console_options(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, help=f"file: {', '.join(SUFFIXES)}")
    parser.add_argument("--frames", type=int, help=f"number of frames (default: {_SECONDS} seconds)")
    parser.add_argument(
        "--actions", default="random", help="random, or actions and counts: 'FIRE*2 RIGHT*30 NOOP' (repeated)"
    )
    parser.add_argument("--scale", type=int, default=_SCALE, help=f"size of a pixel (default {_SCALE})")
    options = parser.parse_args(arguments)
    if not 1 <= options.scale <= _LARGEST_SCALE:
        raise ConfigError(f"--scale is {options.scale}, expected 1 to {_LARGEST_SCALE}")
    script = None if options.actions == "random" else scripted(options.actions)
    if script is not None and not script:
        raise ConfigError("--actions is empty, expected 'random' or names of actions")
    console = _console(options)
    fps = console.frames_per_second
    frames = round(_SECONDS * fps) if options.frames is None else options.frames
    if frames < 1:
        raise ConfigError(f"--frames is {frames}, expected at least 1")
    written = write_frames(
        options.out,
        frames_of(console, frames, options.seed, script),
        fps=fps,
        scale=options.scale,
    )
    print(f"{options.out}: {written} frames of {console.name}, {options.out.stat().st_size:,} bytes")
    return 0


_COMMANDS: dict[str, Callable[[Sequence[str]], int]] = {
    "games": _games_command,
    "play": _play_command,
    "record": _record_command,
}


def run(command: str, arguments: Sequence[str]) -> int:
    """Runs ``games``, ``play`` or ``record`` and returns the exit status.

    Raises:
        ParlError: a value is out of its bounds, or a file cannot be written.
        FileNotFoundError: there is no such ROM.
    """
    try:
        return _COMMANDS[command](arguments)
    except BrokenPipeError:
        # The reader closed the pipe; standard output must not be flushed to it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except PermissionError as error:
        raise ConfigError(str(error)) from error
