"""Single Atari 2600 consoles, the games that parl knows, and their ROM files.

``parl.AtariVectorEnv`` runs many consoles at once. ``parl.atari.ale`` has the method names of ale-py.
"""

from parl.atari.actions import Action
from parl.atari.archive import StateArchive
from parl.atari.catalogue import Game, game_id, games, two_player_games
from parl.atari.console import Console
from parl.atari.modifications import GameVariations, Modification
from parl.atari.object_table import ObjectField, object_games, objects
from parl.atari.roms import rom_folder, rom_folders
from parl.atari.two_players import aec_env, parallel_env

__all__ = [
    "Action",
    "Console",
    "Game",
    "GameVariations",
    "Modification",
    "ObjectField",
    "StateArchive",
    "aec_env",
    "game_id",
    "games",
    "object_games",
    "objects",
    "parallel_env",
    "rom_folder",
    "rom_folders",
    "two_player_games",
]
