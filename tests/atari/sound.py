"""Compares the sound of parl's console with that of ale-py, act by act.

usage: sound.py [--games a,b,...] [--frames N] [--jobs N]

Each game runs from a loaded ROM with random actions: with one frame per act, and again with four frames per
act and sticky actions. It is reset some acts after each end of a game, so that acts without frames are
compared too, and every 700 acts in the middle of a game. Every 450 acts a state that was saved 200 acts
before is restored, and the sound goes on as it is. 20 games, 3,000 frames by default.
"""

from __future__ import annotations

import argparse
import random
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

import numpy as np
from ale_pair import Pair

# Every cartridge type, PAL, modes selected by playing, open frames.
GAMES = (
    "adventure asterix berzerk breakout double_dunk phoenix fishing_derby journey_escape "
    "montezuma_revenge pitfall2 pong riverraid road_runner robotank seaquest space_invaders surround "
    "tic_tac_toe_3d video_cube yars_revenge"
).split()
SETTINGS = ({"frame_skip": 1}, {"frame_skip": 4, "repeat_action_probability": 0.25})
# Acts between resets in the middle of a game, and between restored states; acts after the end of a game.
RESET_EVERY, RESTORE_EVERY, SAVED_BEFORE, AFTER_END = 700, 450, 200, 3


class Result(NamedTuple):
    """Outcome of a game: buffers compared, those that were not constant, and the first difference."""

    game: str
    compared: int
    audible: int
    wrong: str | None


def play(game: str, acts: int, **settings: float) -> Result:
    """Plays a game and compares the sound after each act and reset."""
    pair = Pair(game, sound_obs=True, **settings)
    generator = random.Random(f"{game} {settings}")
    actions = [action.value for action in pair.ours.getMinimalActionSet()]
    saved = pair.theirs.cloneState(), pair.ours.cloneState()
    audible, ended, action, compared = 0, 0, 0, 0
    for t in range(acts):
        ended = ended + 1 if pair.game_over() else 0
        if ended > AFTER_END or (t + 1) % RESET_EVERY == 0:
            pair.reset_game()
            compared += 1
            if not np.array_equal(pair.theirs.getAudio(), pair.ours.getAudio()):
                return Result(game, compared, audible, f"the reset before act {t}, {settings}")
        if t % RESTORE_EVERY == RESTORE_EVERY - SAVED_BEFORE:
            saved = pair.theirs.cloneState(), pair.ours.cloneState()
        if t and t % RESTORE_EVERY == 0:
            pair.theirs.restoreState(saved[0])
            pair.ours.restoreState(saved[1])
        if generator.random() < 0.2:
            action = generator.choice(actions)
        pair.act(action)
        theirs, ours = pair.theirs.getAudio(), pair.ours.getAudio()
        compared += 1
        audible += int(theirs.min() != theirs.max())
        if not np.array_equal(theirs, ours):
            at = np.flatnonzero(theirs != ours)
            places = f"{len(at)} samples from number {at[0]}"
            return Result(game, compared, audible, f"act {t}, {places}, {settings}")
    return Result(game, compared, audible, None)


def play_all(game: str, frames: int) -> Result:
    """Plays a game with both settings."""
    results = [play(game, frames // int(settings["frame_skip"]), **settings) for settings in SETTINGS]
    wrong = next((result.wrong for result in results if result.wrong), None)
    return Result(game, sum(one.compared for one in results), sum(one.audible for one in results), wrong)


def main() -> int:
    """Compares the games; returns 1 if any differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", default=",".join(GAMES))
    parser.add_argument("--frames", type=int, default=3000)
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    games = options.games.split(",")
    with ProcessPoolExecutor(options.jobs) as pool:
        results = list(pool.map(play_all, games, [options.frames] * len(games)))
    for result in results:
        print(f"{result.game:<20} {result.compared:>6} buffers, {result.audible:>6} audible, ", end="")
        print(result.wrong or "equal")
    wrong = sum(result.wrong is not None for result in results)
    compared = sum(result.compared for result in results)
    print(f"{len(results)} games, {compared:,} buffers of 512 samples, {wrong} games differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
