"""Compares games with ale-py in each frame: RAM, picture, reward, lives, game over, frame numbers.

Every game runs for 300 frames after a reset, with sound (a quarter of them in the quick tests); 16 games for
3,000 with resets and saved states; and six games with every (mode, difficulty). The four two-player games run
in ale-py under another game's name and rules.
`make test-games` makes longer comparisons, for hours.
"""

import json
import shutil
import tempfile
from pathlib import Path

import emulators
import games
import pictures
import pytest
import two_players

from parts import one_of

# Every cartridge type, PAL, paddles, swapped ports, unfinished and unusual frames, modes selected by code.
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
# The game whose rules ale-py uses for two-player games; they read a single byte of RAM.
BORROWED = "koolaid"


def from_reset(game):
    run = games.Run(game, 300, script="all", sticky=0.25)
    return games.play(run)["wrong"]


def with_resets(game):
    run = games.Run(game, 3000, sticky=0.25, reset_every=700, detour_every=450)
    return games.play(run)["wrong"]


def every_pair(game):
    """Plays all pairs on one console per emulator: RAM survives a reset."""
    row = games.rows()[game]
    ale, ours, wrong = emulators.start(emulators.setup(game, sound=True))
    for mode in row.modes:
        for difficulty in row.difficulties:
            if wrong:
                return wrong
            for emulator in (ale, ours):
                emulator.choose(mode, difficulty)
                emulator.reset()
            actions = emulators.script(row.minimal_actions, 40, f"{game} {mode} {difficulty}")
            wrong = ours.frame().difference(ale.frame()) or emulators.compare(ale, ours, actions)[0]
            wrong = wrong and f"mode {mode}, difficulty {difficulty}: {wrong}"
    return wrong


def two_player_game(game):
    """Compares RAM and picture. In ale-py, lives and game over come from the borrowed rules."""
    ours = emulators.Parl(emulators.setup(game))
    with tempfile.TemporaryDirectory() as folder:
        rom = shutil.copyfile(emulators.ROMS / f"{game}.bin", Path(folder) / f"{BORROWED}.bin")
        ale = emulators.Ale(emulators.Setup(rom, None))
    for t, action in enumerate(emulators.script(list(range(18)), 600, game)):
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


@pytest.mark.parametrize("game", one_of(4, emulators.games()))
def test_every_game_equals_ale_py_after_a_reset(game):
    assert from_reset(game) is None


@pytest.mark.parametrize("game", SIXTEEN)
def test_sixteen_games_equal_ale_py_through_resets_and_saved_states(game):
    assert with_resets(game) is None


@pytest.mark.parametrize("game", SIX)
def test_every_mode_and_difficulty_of_six_games_equals_ale_py(game):
    assert every_pair(game) is None


@pytest.mark.parametrize("game", emulators.TWO_PLAYERS)
def test_two_player_games_equal_ale_py_under_borrowed_rules(game):
    assert two_player_game(game) is None


@pytest.mark.parametrize("game", emulators.TWO_PLAYERS)
def test_two_player_games_match_their_recorded_traces(game, tmp_path):
    golden = json.loads(two_players.GOLDEN.read_text())[game]
    links, picture = two_players.play(game)
    if links != golden:
        at = next(i for i, (old, new) in enumerate(zip(golden, links, strict=True)) if old != new)
        _, picture = two_players.play(game, (at + 1) * two_players.EVERY)
        pictures.write(tmp_path / f"{game}.png", picture)
        pytest.fail(f"the trace differs at frame {(at + 1) * two_players.EVERY}, shown in {tmp_path}")


def test_there_are_104_games():
    assert len(emulators.games()) == 104
