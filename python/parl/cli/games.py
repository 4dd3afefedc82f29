"""``parl games``: list the Atari games, or describe some of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Annotated

import tyro

from parl.atari.catalogue import Game, find_id, games
from parl.cli.arguments import aligned, parse
from parl.errors import AtariError


@dataclasses.dataclass(frozen=True)
class GamesOptions:
    """List the games that parl knows, or describe some of them."""

    game: Annotated[
        tyro.conf.Positional[tuple[str, ...]],
        tyro.conf.arg(metavar="[GAME ...]", help_behavior_hint="(default: all)"),
    ] = ()
    """Ids of games to describe in full."""


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
    return aligned(lines)


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
    return aligned(list(facts.items()))


def games_command(arguments: Sequence[str]) -> int:
    """Prints the table of games, or all facts about some of them. Returns the exit status."""
    chosen = parse(GamesOptions, "parl games", arguments).game
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
