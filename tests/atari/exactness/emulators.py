"""A common interface to ale-py and parl, for the comparisons in this folder.

An `Emulator` has a cartridge and runs frame by frame; `Frame` holds everything observable after a frame.
A trace is a chain of CRC-32s, one link per frame, each over the previous link and the data of the frame.
All links after a difference differ, so the first different link identifies the frame.
"""

from __future__ import annotations

import importlib.util
import random
import struct
import zlib
from pathlib import Path
from typing import NamedTuple, Protocol

import ale_py
import numpy as np
from numpy.typing import NDArray

from parl import _native

SPEC = importlib.util.find_spec("ale_py")
ROMS = Path(SPEC.origin).parent / "roms" if SPEC and SPEC.origin else Path()
# ale-py ends the process when it loads one of these.
TWO_PLAYERS = ("combat", "joust", "maze_craze", "warlords")
SYSTEM_SEED = 4753849

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


class Setup(NamedTuple):
    """A cartridge and its settings."""

    rom: Path
    """The file. ale-py chooses the rules by its name."""
    rules: str | None
    """The game whose rules parl uses."""
    mode: int | None = None
    difficulty: int | None = None
    sticky: float = 0.0
    seed: int = 1
    sound: bool = False


class Frame(NamedTuple):
    """Everything observable after a frame."""

    reward: int
    lives: int
    over: bool
    number: int
    episode_number: int
    ram: NDArray[np.uint8]
    screen: NDArray[np.uint8] | None
    audio: NDArray[np.uint8] | None = None

    def head(self) -> tuple[int, ...]:
        """Returns reward, lives, game over and the two frame numbers."""
        return self[:5]

    def state_link(self, before: int) -> int:
        """Returns the next link of a chain over numbers and RAM."""
        return zlib.crc32(self.ram, zlib.crc32(struct.pack("<5i", *self.head()), before))

    def link(self, before: int) -> int:
        """Returns the next link of a chain over numbers, RAM and picture."""
        chain = self.state_link(before)
        return chain if self.screen is None else zlib.crc32(self.screen, chain)

    def difference(self, other: Frame) -> str | None:
        """Describes the first difference, or returns None."""
        if self.head() != other.head():
            return f"reward, lives, over, frames: {self.head()} and {other.head()}"
        if not np.array_equal(self.ram, other.ram):
            places = np.flatnonzero(self.ram != other.ram)
            shown = ", ".join(f"${0x80 + i:02X}: {self.ram[i]:02X} {other.ram[i]:02X}" for i in places[:8])
            return f"{len(places)} bytes of RAM: {shown}"
        if self.audio is not None and other.audio is not None and not np.array_equal(self.audio, other.audio):
            places = np.flatnonzero(self.audio != other.audio)
            return f"{len(places)} samples of sound, the first is number {places[0]}"
        if self.screen is None or other.screen is None:
            return None
        if self.screen.shape != other.screen.shape:
            return f"screen {self.screen.shape} and {other.screen.shape}"
        # Eight pixels at a time: this runs once per frame.
        if not np.array_equal(
            self.screen.reshape(-1).view(np.uint64), other.screen.reshape(-1).view(np.uint64)
        ):
            rows, columns = np.nonzero(self.screen != other.screen)
            return f"{len(rows)} pixels, the first at row {rows[0]}, column {columns[0]}"
        return None


class Emulator(Protocol):
    """An emulator with a loaded cartridge."""

    def reset(self) -> None: ...
    def act(self, action: int) -> int: ...
    def poke(self, index: int, value: int) -> None: ...
    def frame(self, reward: int = 0, picture: bool = True) -> Frame: ...


class Ale:
    """ale-py. The next call of `frame` overwrites the arrays of the last `Frame`."""

    def __init__(self, setup: Setup) -> None:
        self.interface = ale_py.ALEInterface()
        self.interface.setInt("random_seed", setup.seed)
        self.interface.setFloat("repeat_action_probability", setup.sticky)
        self.interface.setBool("sound_obs", setup.sound)
        self.interface.loadROM(setup.rom)
        self.choose(setup.mode, setup.difficulty)
        self._ram = np.zeros(128, np.uint8)
        self._screen = np.zeros(self.interface.getScreenDims(), np.uint8)
        self._audio = np.zeros(512, np.uint8) if setup.sound else None

    def choose(self, mode: int | None, difficulty: int | None) -> None:
        """Sets the mode of later resets, and the difficulty."""
        if mode is not None:
            self.interface.setMode(mode)
        if difficulty is not None:
            self.interface.setDifficulty(difficulty)

    def reset(self) -> None:
        self.interface.reset_game()

    def act(self, action: int) -> int:
        return self.interface.act(action)

    def poke(self, index: int, value: int) -> None:
        self.interface.setRAM(index, value)

    def frame(self, reward: int = 0, picture: bool = True) -> Frame:
        ale = self.interface
        ale.getRAM(self._ram)
        if picture:
            ale.getScreen(self._screen)
        if self._audio is not None:
            ale.getAudio(self._audio)
        return Frame(
            reward,
            ale.lives(),
            ale.game_over(with_truncation=False),
            ale.getFrameNumber(),
            ale.getEpisodeFrameNumber(),
            self._ram,
            self._screen if picture else None,
            self._audio,
        )


class Parl:
    """parl's console."""

    def __init__(self, setup: Setup) -> None:
        self.console = _native.Console(
            _native.Rom(setup.rom.read_bytes(), str(setup.rom)),
            rules=setup.rules,
            seed=setup.seed,
            system_seed=SYSTEM_SEED,
            frame_skip=1,
            repeat_action_probability=setup.sticky,
            max_num_frames_per_episode=0,
            truncate_on_life_loss=False,
            sound=setup.sound,
        )
        self._sound = setup.sound
        self.choose(setup.mode, setup.difficulty)

    def choose(self, mode: int | None, difficulty: int | None) -> None:
        """Sets the mode of later resets, and the difficulty."""
        if mode is not None:
            self.console.set_mode(mode)
        if difficulty is not None:
            self.console.set_difficulty(difficulty)

    def reset(self) -> None:
        self.console.reset()

    def act(self, action: int) -> int:
        return self.console.act(action)

    def poke(self, index: int, value: int) -> None:
        self.console.write_ram(index, value)

    def detour(self, actions: bytes) -> None:
        """Saves the state, loads it on a copy that has played other actions, and continues on the copy.

        Not with sound, which is not part of a state.
        """
        saved = self.console.save(generator=True)
        other = self.console.clone()
        for action in actions:
            other.act(action)
        other.load(saved, keep_repeated_action=False)
        self.console = other

    def frame(self, reward: int = 0, picture: bool = True) -> Frame:
        console = self.console
        return Frame(
            reward,
            console.lives,
            console.terminated,
            console.frame_number,
            console.episode_frame_number,
            console.read_ram(None),
            console.read_screen(None) if picture else None,
            console.read_audio(None) if self._sound else None,
        )


def games() -> list[str]:
    """Returns the 104 games that ale-py plays."""
    return sorted(path.stem for path in ROMS.glob("*.bin") if path.stem not in TWO_PLAYERS)


def setup(game: str, **settings: float | None) -> Setup:
    """Returns the setup of a game with its own cartridge."""
    return Setup(ROMS / f"{game}.bin", game, **settings)


def script(actions: list[int], frames: int, seed: str, change: float = 0.2) -> bytes:
    """Returns one action code per frame; each frame draws a new one with probability `change`."""
    generator = random.Random(seed)
    out = bytearray()
    action = 0
    for _ in range(frames):
        if generator.random() < change:
            action = generator.choice(actions)
        out.append(action)
    return bytes(out)


def compare(
    ale: Ale, ours: Parl, actions: bytes, *, reset_every: int = 0, detour_every: int = 0, chain: int = 0
) -> tuple[str | None, int, int]:
    """Plays both emulators, with a reset after each end of a game and every `reset_every` frames if not 0.

    Returns:
        The first difference or None, the number of frames compared, and the last link of the trace.
    """
    for t, action in enumerate(actions):
        theirs, mine = ale.frame(ale.act(action)), ours.frame(ours.act(action))
        wrong = mine.difference(theirs)
        if wrong:
            return f"frame {t}: parl and ale-py: {wrong}", t, chain
        chain = mine.link(chain)
        if mine.over or (reset_every and (t + 1) % reset_every == 0):
            ale.reset()
            ours.reset()
        elif detour_every and (t + 1) % detour_every == 0:
            ours.detour(actions[t - 40 : t])
    return None, len(actions), chain


def start(setup: Setup) -> tuple[Ale, Parl, str | None]:
    """Returns both emulators after a reset, and a difference before or after the reset or None."""
    ale, ours = Ale(setup), Parl(setup)
    wrong = ours.frame().difference(ale.frame())
    ale.reset()
    ours.reset()
    wrong = wrong or ours.frame().difference(ale.frame())
    return ale, ours, wrong and f"at the start: parl and ale-py: {wrong}"
