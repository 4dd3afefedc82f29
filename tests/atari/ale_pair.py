"""Makes the same calls on ale-py's `ALEInterface` and on parl's, and compares the results."""

import ale_py
import numpy as np
from ale_py import roms

from parl.atari import ale as parl_ale

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)

# Games with every cartridge type, PAL, paddles, swapped ports, other heights, fewer legal actions.
GAMES = [
    "pong",
    "breakout",
    "surround",
    "adventure",
    "carnival",
    "lost_luggage",
    "seaquest",
    "asterix",
    "elevator_action",
    "road_runner",
    "darkchambers",
    "montezuma_revenge",
    "robotank",
    "pitfall2",
]


def loaded(kind, game, **settings):
    """Returns an interface of class ``kind`` with ``game`` loaded."""
    interface = kind()
    for name, value in {"random_seed": 7, **settings}.items():
        if isinstance(value, bool):
            interface.setBool(name, value)
        elif isinstance(value, int):
            interface.setInt(name, value)
        else:
            interface.setFloat(name, value)
    interface.loadROM(roms.get_rom_path(game))
    return interface


class Pair:
    """Calls a method of both interfaces with the same arguments and asserts that the results are equal."""

    def __init__(self, game, **settings):
        self.theirs = loaded(ale_py.ALEInterface, game, **settings)
        self.ours = loaded(parl_ale.ALEInterface, game, **settings)

    def __getattr__(self, name):
        def both(*arguments, **keywords):
            theirs = getattr(self.theirs, name)(*arguments, **keywords)
            ours = getattr(self.ours, name)(*arguments, **keywords)
            assert np.array_equal(theirs, ours), (name, arguments, theirs, ours)
            return ours

        return both

    def check(self, pictures=True):
        """Compares RAM, lives, game over, frame numbers and, with ``pictures``, the screens."""
        assert np.array_equal(self.theirs.getRAM(), self.ours.getRAM())
        for name in ("lives", "game_over", "game_truncated", "getFrameNumber", "getEpisodeFrameNumber"):
            getattr(self, name)()
        self.game_over(with_truncation=False)
        if pictures:
            self.getScreen()
            self.getScreenRGB()
            self.getScreenGrayscale()
