"""What the four games for two show: `two_players.json` holds every tenth link of their traces.

usage: two_players.py [--write]

The file is parl's own trace, not ale-py's, which loads none of them under their names: it shows that a game
plays as it did, not that it plays as ale-py's. With one player they are compared with ale-py under another
game's rules (`test_exactness.py`), and were equal when the file was written. `--write` replaces it: look at
the games first.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import sides
from numpy.typing import NDArray

GOLDEN = Path(__file__).with_name("two_players.json")
FRAMES = 300
EVERY = 10


def play(game: str, frames: int = FRAMES) -> tuple[list[str], NDArray[np.uint8]]:
    """Every tenth link, and the last picture as RGB."""
    ours = sides.Parl(sides.setup(game))
    ours.reset()
    both = [sides.script(list(range(18)), frames, f"{game} {player}") for player in "AB"]
    links = []
    chain = 0
    for t, (a, b) in enumerate(zip(*both, strict=True)):
        chain = ours.frame(ours.console.act(a, b)).link(chain)
        if t % EVERY == EVERY - 1:
            links.append(f"{chain:08x}")
    return links, ours.console.read_screen_rgb(None)


def main() -> int:
    """Compares, or writes; 1 if a game is not as it was."""
    new = {game: play(game)[0] for game in sides.TWO_PLAYERS}
    if "--write" in sys.argv:
        GOLDEN.write_text(json.dumps(new, indent=1) + "\n")
    different = [game for game, links in new.items() if links != json.loads(GOLDEN.read_text())[game]]
    print(f"{len(new)} games, different: {', '.join(different) or 'none'}")
    return int(bool(different))


if __name__ == "__main__":
    sys.exit(main())
