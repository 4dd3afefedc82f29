"""Traces of the four two-player games; `two_players.json` holds every tenth link.

usage: two_players.py [--write]

The file holds parl's own traces, since ale-py does not load these games under their names. It shows that a
game is unchanged, not that it equals ale-py's. With one player, `test_exactness.py` compares them with ale-py
under another game's rules; they were equal when the file was written. `--write` replaces the file: check the
games before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import emulators
import numpy as np
from numpy.typing import NDArray

GOLDEN = Path(__file__).with_name("two_players.json")
FRAMES = 300
EVERY = 10


def play(game: str, frames: int = FRAMES) -> tuple[list[str], NDArray[np.uint8]]:
    """Returns every tenth link of a game's trace, and the last picture as RGB."""
    ours = emulators.Parl(emulators.setup(game))
    ours.reset()
    both = [emulators.script(list(range(18)), frames, f"{game} {player}") for player in "AB"]
    links = []
    chain = 0
    for t, (a, b) in enumerate(zip(*both, strict=True)):
        chain = ours.frame(ours.console.act(a, b)).link(chain)
        if t % EVERY == EVERY - 1:
            links.append(f"{chain:08x}")
    return links, ours.console.read_screen_rgb(None)


def main() -> int:
    """Compares the traces with the file, or replaces it; returns 1 if a game differs."""
    new = {game: play(game)[0] for game in emulators.TWO_PLAYERS}
    if "--write" in sys.argv:
        GOLDEN.write_text(json.dumps(new, indent=1) + "\n")
    different = [game for game, links in new.items() if links != json.loads(GOLDEN.read_text())[game]]
    print(f"{len(new)} games, different: {', '.join(different) or 'none'}")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
