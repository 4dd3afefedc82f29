"""Records the RAM of games: `record_ram.py FOLDER [FRAMES]` plays random actions of each game on ale-py.

One file per game, with 129 bytes per frame: 1 if an episode begins there, else 0, and the RAM.
"""

import random
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ale_py
from ale_py import roms

# ale-py ends the process when it loads one of these.
TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")
# Longest episode, in frames.
EPISODE = 3_000


def play(game: str, folder: str, frames: int) -> None:
    """Plays random actions, each held for some frames, and writes the RAM."""
    path = Path(folder) / f"{game}.ram"
    if path.exists():
        return
    ale = ale_py.ALEInterface()
    ale.setFloat("repeat_action_probability", 0.0)
    ale.setInt("random_seed", 1)
    ale.loadROM(roms.get_rom_path(game))
    generator, actions = random.Random(game), ale.getMinimalActionSet()
    recorded, action, since = bytearray(), actions[0], 0
    for frame in range(frames):
        begins = frame == 0 or ale.game_over() or since == EPISODE
        if begins:
            ale.reset_game()
            since = 0
        elif generator.random() < 0.1:
            action = generator.choice(actions)
        if not begins:
            ale.act(action)
        since += 1
        recorded += bytes([begins]) + ale.getRAM().tobytes()
    path.with_suffix(".part").write_bytes(recorded)
    path.with_suffix(".part").rename(path)


def main() -> None:
    """Records every game that ale-py has and can start."""
    games = sorted(set(roms.get_all_rom_ids()).difference(TWO_PLAYERS))
    folder = sys.argv[1]
    frames = int(sys.argv[2]) if len(sys.argv) > 2 else 6_000
    Path(folder).mkdir(parents=True, exist_ok=True)
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    with ProcessPoolExecutor() as pool:
        ended = [pool.submit(play, game, folder, frames) for game in games]
        for one in ended:
            one.result()


if __name__ == "__main__":
    main()
