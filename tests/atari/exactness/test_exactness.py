"""The games beside ale-py, each frame: RAM, picture, reward, lives, game over, frame numbers.

Every game for 300 frames from reset, 16 games for 3,000 with resets and saved states, every (mode,
difficulty) of six games; and the four games for two, which ale-py plays under another game's name and rules.
`make test-games` is the same for hours.
"""

import json
import shutil
import tempfile
from pathlib import Path

import games
import pictures
import pytest
import sides
import two_players

# Every cartridge type, PAL, paddles, swapped ports, unfinished and odd frames, mode selections by code.
SIXTEEN = [
    "adventure",
    "asterix",
    "breakout",
    "double_dunk",
    "elevator_action",
    "fishing_derby",
    "journey_escape",
    "montezuma_revenge",
    "pitfall2",
    "pong",
    "riverraid",
    "robotank",
    "road_runner",
    "seaquest",
    "surround",
    "tic_tac_toe_3d",
]
SIX = ["space_invaders", "breakout", "gravitar", "basic_math", "berzerk", "double_dunk"]
# The rules that two_players' games are played by in ale-py; they ask for nothing but a byte of RAM.
BORROWED = "koolaid"


def from_reset(game):
    run = games.Run(game, 300, script="all", sticky=0.25)
    return games.play(run)["wrong"]


def with_resets(game):
    run = games.Run(game, 3000, sticky=0.25, reset_every=700, detour_every=450)
    return games.play(run)["wrong"]


def every_pair(game):
    """All of them on one console each: RAM outlives a reset."""
    row = games.rows()[game]
    ale, ours, wrong = sides.start(sides.setup(game))
    for mode in row.modes:
        for difficulty in row.difficulties:
            if wrong:
                return wrong
            for side in (ale, ours):
                side.choose(mode, difficulty)
                side.reset()
            actions = sides.script(row.minimal_actions, 40, f"{game} {mode} {difficulty}")
            wrong = ours.frame().difference(ale.frame()) or sides.compare(ale, ours, actions)[0]
            wrong = wrong and f"mode {mode}, difficulty {difficulty}: {wrong}"
    return wrong


def for_two(game):
    """RAM and picture; what else there is comes from the borrowed rules."""
    ours = sides.Parl(sides.setup(game))
    with tempfile.TemporaryDirectory() as folder:
        rom = shutil.copyfile(sides.ROMS / f"{game}.bin", Path(folder) / f"{BORROWED}.bin")
        ale = sides.Ale(sides.Setup(rom, None))
    for t, action in enumerate(sides.script(list(range(18)), 600, game)):
        if t % 200 == 0:
            ale.reset()
            ours.reset()
        ale.act(action)
        ours.act(action)
        theirs, mine = ale.frame(), ours.frame()
        wrong = mine._replace(lives=theirs.lives, over=theirs.over).difference(theirs)
        if wrong:
            return f"frame {t}: {wrong}"
    return None


@pytest.mark.parametrize("game", sides.games())
def test_every_game_is_equal_from_reset_on(game):
    assert from_reset(game) is None


@pytest.mark.parametrize("game", SIXTEEN)
def test_sixteen_games_are_equal_through_resets_and_saved_states(game):
    assert with_resets(game) is None


@pytest.mark.parametrize("game", SIX)
def test_every_mode_and_difficulty_of_six_games_is_equal(game):
    assert every_pair(game) is None


@pytest.mark.parametrize("game", sides.TWO_PLAYERS)
def test_the_games_for_two_are_equal_under_borrowed_rules(game):
    assert for_two(game) is None


@pytest.mark.parametrize("game", sides.TWO_PLAYERS)
def test_the_games_for_two_are_as_they_were(game, tmp_path):
    golden = json.loads(two_players.GOLDEN.read_text())[game]
    links, picture = two_players.play(game)
    if links != golden:
        at = next(i for i, (old, new) in enumerate(zip(golden, links, strict=True)) if old != new)
        _, picture = two_players.play(game, (at + 1) * two_players.EVERY)
        pictures.write(tmp_path / f"{game}.png", picture)
        pytest.fail(f"another frame up to {(at + 1) * two_players.EVERY}; its picture is in {tmp_path}")


def test_there_are_104_games():
    assert len(sides.games()) == 104
