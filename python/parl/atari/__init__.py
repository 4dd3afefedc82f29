"""One Atari 2600, frame by frame: consoles, the games they play, and their ROM files.

For many consoles at once there is ``parl.AtariVectorEnv``; for ALE's own method names ``parl.atari.ale``.
"""

from parl.atari.actions import Action
from parl.atari.catalogue import Game, game_id, games
from parl.atari.console import Console
from parl.atari.roms import rom_folder, rom_folders

__all__ = ["Action", "Console", "Game", "game_id", "games", "rom_folder", "rom_folders"]
