"""Plays a game at random and writes its sound to a WAV file.

python examples/sound.py [game] [seconds] [file]
"""

from __future__ import annotations

import os
import sys
import wave

import numpy as np

from parl.atari import Console

QUICK = "PARL_EXAMPLE_QUICK" in os.environ
# Frames for which an action is held.
HELD = 8


def main(game: str, seconds: float, file: str) -> None:
    """Writes the sound of the game's first seconds."""
    console = Console(game, seed=0, sound=True)
    random = np.random.default_rng(0)
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(1)  # uint8, as Console.audio
        out.setframerate(console.audio_sample_rate)
        for frame in range(round(seconds * console.frames_per_second)):
            if console.game_over:
                console.reset()
            if frame % HELD == 0:
                action = int(random.choice(console.minimal_actions))
            console.act(action)
            out.writeframes(console.audio.tobytes())
    print(f"{file}: {seconds:g} seconds of {console.name}, {console.audio_sample_rate:,} samples per second")


if __name__ == "__main__":
    defaults = ["seaquest", "2" if QUICK else "30", "sound.wav"]
    game, seconds, file = [*sys.argv[1:], *defaults[len(sys.argv) - 1 :]]
    main(game, float(seconds), file)
