"""The interface of ale-py for :class:`parl.atari.Console`, with the same class and method names.

A script for ale-py needs one change: ``from parl.atari.ale import ALEInterface`` instead of ``from ale_py
import ALEInterface``. Settings, defaults (such as sticky actions with probability 0.25) and return values are
those of ale-py 0.12.1. ``docs/ale-names.md`` lists the differences: calls that end or hang the process with
ale-py raise an exception.
"""

# ruff: noqa: N802 - the names are ALE's
from __future__ import annotations

import enum
import operator
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import UnionType
from typing import Any, SupportsFloat, SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from parl import _native
from parl.atari.actions import Action
from parl.atari.console import AUDIO_SAMPLES, SYSTEM_SEED, Console
from parl.atari.pictures import enlarged, png_bytes

__all__ = ["ALEInterface", "ALEState", "Action", "LoggerMode"]

_INT_MIN, _INT_MAX = -(2**31), 2**31 - 1
_UINT_MAX = 2**32 - 1
_STATE_MAGIC = b"parl-ale"
_DEFAULTS: Mapping[str, int | float | bool | str] = {
    "random_seed": -1,
    "system_random_seed": SYSTEM_SEED,
    "frame_skip": 1,
    "max_num_frames_per_episode": 0,
    "reward_min": _INT_MIN,
    "reward_max": _INT_MAX,
    "paddle_min": -1,
    "paddle_max": -1,
    "repeat_action_probability": 0.25,
    "truncate_on_loss_of_life": False,
    "color_averaging": False,
    "sound_obs": False,
    "display_screen": False,
    "sound": False,
    "send_rgb": False,
    "restricted_action_set": False,
    "cpu": "low",
    "rom_file": "",
    "record_screen_dir": "",
    "record_sound_filename": "",
}
_UNSUPPORTED = {
    "sound": "use `parl play` to hear a game",
    "record_sound_filename": "use `getAudio` and Python's module `wave` to write a file",
    "display_screen": "use `parl play` for a window",
    "record_screen_dir": "use `parl record` to write files",
    "color_averaging": "parl does not average frames",
    "paddle_min": "parl uses the paddle limits of the game",
    "paddle_max": "parl uses the paddle limits of the game",
}


class LoggerMode(enum.Enum):
    """Log level of ALE; without effect, because parl logs nothing."""

    Info = 0
    Warning = 1
    Error = 2


def _integer(name: str, value: SupportsIndex, low: int, high: int) -> int:
    """Checks that ``value`` is an int with ``low <= value <= high``; TypeError otherwise, as in ale-py."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an int") from None
    if not low <= number <= high:
        raise TypeError(f"{name} is {number}, expected {low} to {high}")
    return number


def _kind_of(key: str) -> str:
    """The type of a setting, for messages."""
    if key not in _DEFAULTS:
        return "there is none of this name"
    return f"it is of type {type(_DEFAULTS[key]).__name__}"


def _expect(name: str, value: object, kind: type | UnionType) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}, expected a {getattr(kind, '__name__', kind)}")


class ALEState:
    """A saved state of an :class:`ALEInterface`, which can be compared, pickled and converted to bytes."""

    def __init__(self, data: bytes | None = None) -> None:
        header = (0, 0, 0, 0)
        content = b""
        if data is not None:
            size = len(_STATE_MAGIC) + 16
            if len(data) < size or not data.startswith(_STATE_MAGIC):
                raise ValueError(f"data ({len(data)} bytes) is not a serialized ALEState of parl")
            numbers = np.frombuffer(data, "<i4", 4, len(_STATE_MAGIC))
            header = (int(numbers[0]), int(numbers[1]), int(numbers[2]), int(numbers[3]))
            content = data[size:]
        self._header = header
        self._content = content

    @classmethod
    def _from_console(cls, console: Console, include_rng: bool) -> ALEState:
        state = cls()
        state._header = (
            console.mode,
            console.difficulty,
            console.frame_number,
            console.episode_frame_number,
        )
        # As in ALE, a state does not contain the action that sticky actions repeat.
        state._content = console._native.save(include_rng, False)
        return state

    def serialize(self) -> bytes:
        """The state as bytes; ``ALEState(data)`` reads them. Their layout is parl's, not ALE's."""
        return _STATE_MAGIC + np.array(self._header, "<i4").tobytes() + self._content

    def equals(self, other: ALEState) -> bool:
        """True when all saved values are equal."""
        return self == other

    def getCurrentMode(self) -> int:
        """The mode that was set when the state was saved."""
        return self._header[0]

    def getDifficulty(self) -> int:
        """The difficulty that was set when the state was saved."""
        return self._header[1]

    def getFrameNumber(self) -> int:
        """Frames since the ROM was loaded."""
        return self._header[2]

    def getEpisodeFrameNumber(self) -> int:
        """Frames since the last reset."""
        return self._header[3]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ALEState):
            return NotImplemented
        return self._header == other._header and self._content == other._content

    def __hash__(self) -> int:
        return hash((self._header, self._content))

    def __getstate__(self) -> bytes:
        return self.serialize()

    def __setstate__(self, data: bytes) -> None:
        self.__init__(data)


class ALEInterface:
    """The interface of the Arcade Learning Environment for parl's console.

    Settings take effect when a ROM is loaded, as in ale-py. Sound files and playing sound aloud, color
    averaging, windows and paddle limits are not supported; setting them raises ``NotImplementedError``.
    """

    def __init__(self) -> None:
        self._settings: dict[str, int | float | bool | str] = dict(_DEFAULTS)
        self._loaded: Console | None = None
        self._rewards = (_INT_MIN, _INT_MAX)

    # ------------------------------------------------------------ settings

    def _set(self, key: str, value: int | float | bool | str, kinds: tuple[type, ...]) -> None:
        if type(_DEFAULTS.get(key)) not in kinds:
            raise RuntimeError(f"the setting {key!r} cannot be {value!r}: {_kind_of(key)}")
        if key in _UNSUPPORTED and value != _DEFAULTS[key]:
            raise NotImplementedError(f"{key} is {value}, which is not supported: {_UNSUPPORTED[key]}")
        self._settings[key] = value

    def setInt(self, key: str, value: SupportsIndex, /) -> None:
        """Sets an integer setting for the next load."""
        number = _integer(key, value, _INT_MIN, _INT_MAX)
        if isinstance(_DEFAULTS.get(key), bool):
            self._set(key, bool(number), (bool,))
        else:
            self._set(key, number, (int,))

    def setFloat(self, key: str, value: SupportsFloat, /) -> None:
        """Sets a floating-point setting, in single precision, for the next load."""
        if not hasattr(value, "__float__"):
            raise TypeError(f"{key} is {value!r}, expected a number")
        self._set(key, float(np.float32(float(value))), (float,))

    def setBool(self, key: str, value: bool, /) -> None:
        """Sets a boolean setting for the next load."""
        _expect(key, value, bool | np.bool_)
        self._set(key, bool(value), (bool,))

    def setString(self, key: str, value: str, /) -> None:
        """Sets a string setting for the next load; string settings have no effect in parl."""
        self._set(key, value, (str,))

    def _number(self, key: str) -> float | None:
        value = self._settings.get(key)
        if value is None or isinstance(value, str):
            return None if value is None else 0.0
        return float(value)

    def getInt(self, key: str, /) -> int:
        """A setting as an int; -1 if there is none of this name."""
        number = self._number(key)
        return -1 if number is None else int(number)

    def getFloat(self, key: str, /) -> float:
        """A setting as a float; -1.0 if there is none of this name."""
        number = self._number(key)
        return -1.0 if number is None else number

    def getBool(self, key: str, /) -> bool:
        """Whether a setting is 1 or true; False if there is none of this name."""
        return self._number(key) == 1

    def getString(self, key: str, /) -> str:
        """A setting as a string; empty if there is none of this name."""
        value = self._settings.get(key, "")
        if isinstance(value, bool):
            return str(int(value))
        return f"{value:g}" if isinstance(value, float) else str(value)

    # ------------------------------------------------------------ loading

    @staticmethod
    def setLoggerMode(mode: LoggerMode, /) -> None:
        """Has no effect, because parl logs nothing."""
        _expect("mode", mode, LoggerMode)

    @staticmethod
    def isSupportedROM(path: str | os.PathLike[str], /) -> str | None:
        """The id of the game whose ROM has the hash of the file; None if there is none."""
        if not Path(path).is_file():
            raise RuntimeError(f"{os.fspath(path)} is not a file")
        try:
            rom = _native.Rom.find(os.fspath(path), [], True)
        except ValueError:
            return None
        return rom.game

    def loadROM(self, path: str | os.PathLike[str], /) -> None:
        """Loads a ROM, by path or by the id of a game, with the current settings, and resets it.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the file is not a known game or not the game of its name, or a setting is out of its
                bounds.
        """
        seed = self.getInt("random_seed")
        # With NaN the action is always repeated, as in ale-py.
        sticky = self.getFloat("repeat_action_probability")
        self._loaded = Console(
            path,
            seed=int(time.time()) % 2**32 if seed == -1 else seed % 2**32,
            system_seed=self.getInt("system_random_seed") % 2**32,
            frame_skip=self.getInt("frame_skip") or 1,
            repeat_action_probability=max(0.0, sticky) if sticky < 1 else 1.0,
            max_num_frames_per_episode=max(0, self.getInt("max_num_frames_per_episode")),
            truncate_on_life_loss=self.getBool("truncate_on_loss_of_life"),
            sound=self.getBool("sound_obs"),
        )
        self._rewards = (self.getInt("reward_min"), self.getInt("reward_max"))
        self._choose_act()
        self._settings["rom_file"] = os.fspath(path)

    def _choose_act(self) -> None:
        self.__dict__.pop("act", None)
        unclipped = self._rewards == (_INT_MIN, _INT_MAX)
        if self._loaded is not None and unclipped and type(self).act is ALEInterface.act:
            # Calls the native method directly, which is faster.
            self.__dict__["act"] = self._loaded._native.act_ale

    def __getstate__(self) -> dict[str, Any]:
        # Without `act`, which is that of the console.
        return {name: value for name, value in vars(self).items() if name != "act"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._choose_act()

    @property
    def _console(self) -> Console:
        if self._loaded is None:
            raise RuntimeError("no ROM is loaded: call loadROM first")
        return self._loaded

    # ------------------------------------------------------------ playing

    def act(self, action: int | Action, paddle_strength: float = 1.0) -> int:
        """Runs ``frame_skip`` frames with an action; numbers above 17 are NOOP.

        Returns:
            The sum of the rewards, clipped to ``reward_min`` and ``reward_max``.
        """
        reward = self._console._native.act_ale(action, paddle_strength)
        low, high = self._rewards
        return max(low, min(high, reward))

    def reset_game(self) -> None:
        """Starts a new episode in the mode that was set."""
        self._console.reset()

    def game_over(self, with_truncation: bool = True) -> bool:
        """Whether the game has ended; with ``with_truncation`` also whether the episode was truncated."""
        console = self._console
        return console.game_over if with_truncation else console.terminated

    def game_truncated(self) -> bool:
        """Whether the episode was truncated by the frame limit or a lost life."""
        return self._console.truncated

    def lives(self) -> int:
        """Number of lives left; 0 in games without lives."""
        return self._console.lives

    def getFrameNumber(self) -> int:
        """Frames since the ROM was loaded."""
        return self._console.frame_number

    def getEpisodeFrameNumber(self) -> int:
        """Frames since the last reset."""
        return self._console.episode_frame_number

    def getLegalActionSet(self) -> list[Action]:
        """The actions that the game receives."""
        return list(self._console.legal_actions)

    def getMinimalActionSet(self) -> list[Action]:
        """The actions that have an effect in the game."""
        return list(self._console.minimal_actions)

    def getAvailableModes(self) -> list[int]:
        """The game's modes, the default first."""
        return list(self._console.modes)

    def getAvailableDifficulties(self) -> list[int]:
        """The game's difficulties."""
        return list(self._console.difficulties)

    def setMode(self, mode: int, /) -> None:
        """Sets the mode that the next reset selects."""
        number = _integer("mode", mode, 0, _UINT_MAX)
        if number not in self._console.modes:
            raise RuntimeError(f"mode {number} is not one of {list(self._console.modes)}")
        self._console.set_mode(number)

    def setDifficulty(self, difficulty: int, /) -> None:
        """Sets the difficulty from the next frame on."""
        number = _integer("difficulty", difficulty, 0, _UINT_MAX)
        if number not in self._console.difficulties:
            raise RuntimeError(f"difficulty {number} is not one of {list(self._console.difficulties)}")
        self._console.set_difficulty(number)

    # ------------------------------------------------------------ screen and memory

    def getRAMSize(self) -> int:
        """Size of the RAM in bytes: 128."""
        return len(self._console.ram)

    @overload
    def getRAM(self) -> NDArray[np.uint8]: ...
    @overload
    def getRAM(self, buffer: NDArray[np.uint8]) -> None: ...
    def getRAM(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The RAM, (128,) uint8; or None after writing it into ``buffer``."""
        console = self._console
        if buffer is None:
            return console.read_ram()
        _check_buffer(buffer, (128,), TypeError)
        console.read_ram(out=buffer)
        return None

    def setRAM(self, index: int, value: int, /) -> None:
        """Writes a byte of the RAM."""
        if _integer("index", index, 0, _UINT_MAX) > 127:
            raise RuntimeError(f"RAM index {index} is outside 0 to 127")
        self._console.write_ram(index, _integer("value", value, 0, 255))

    def getScreenDims(self) -> tuple[int, int]:
        """Height and width of the screen in pixels."""
        return self._console.screen_shape

    @overload
    def getScreen(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreen(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreen(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as palette indices, (H, 160) uint8; or None after writing it into ``buffer``."""
        console = self._console
        if buffer is None:
            return console.screen
        _check_buffer(buffer, console.screen_shape, RuntimeError)
        console.read_screen(out=buffer)
        return None

    @overload
    def getScreenGrayscale(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreenGrayscale(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreenGrayscale(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as gray values, (H, 160) uint8; or None after writing it into ``buffer``."""
        console = self._console
        if buffer is None:
            return console.screen_gray
        _check_buffer(buffer, console.screen_shape, RuntimeError)
        console.read_screen_gray(out=buffer)
        return None

    @overload
    def getScreenRGB(self) -> NDArray[np.uint8]: ...
    @overload
    def getScreenRGB(self, buffer: NDArray[np.uint8]) -> None: ...
    def getScreenRGB(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The screen as RGB, (H, 160, 3) uint8; or None after writing it into ``buffer``."""
        console = self._console
        if buffer is None:
            return console.screen_rgb
        _check_buffer(buffer, (*console.screen_shape, 3), RuntimeError)
        console.read_screen_rgb(out=buffer)
        return None

    def saveScreenPNG(self, path: str, /) -> None:
        """Writes the screen to a PNG file, each pixel twice as wide as high.

        Raises:
            OSError: the file cannot be written.
        """
        Path(path).write_bytes(png_bytes(enlarged(self._console.screen_rgb, 1)))

    def getAudioSize(self) -> int:
        """Number of samples of an act: 512."""
        _ = self._console
        return AUDIO_SAMPLES

    @overload
    def getAudio(self) -> NDArray[np.uint8]: ...
    @overload
    def getAudio(self, buffer: NDArray[np.uint8]) -> None: ...
    def getAudio(self, buffer: NDArray[np.uint8] | None = None) -> NDArray[np.uint8] | None:
        """The sound of the last act, (512,) uint8; or None after writing it into ``buffer``.

        All zeros if ``sound_obs`` was false when the ROM was loaded. See :attr:`parl.atari.Console.audio`.
        """
        console = self._console
        if buffer is not None:
            _check_buffer(buffer, (AUDIO_SAMPLES,), TypeError)
        audio = console.audio if console.sound else np.zeros(AUDIO_SAMPLES, np.uint8)
        if buffer is None:
            return audio
        buffer[:] = audio
        return None

    # ------------------------------------------------------------ states

    def cloneState(self, include_rng: bool = False) -> ALEState:
        """Saves the state of the console; with ``include_rng`` also the generator of sticky actions."""
        return ALEState._from_console(self._console, include_rng)

    def restoreState(self, state: ALEState, /) -> None:
        """Restores a saved state; the screen keeps the old frame until the next one is run, as in ale-py."""
        _expect("state", state, ALEState)
        self._console.load(state._content, keep_repeated_action=True)

    def cloneSystemState(self) -> ALEState:
        """``cloneState(include_rng=True)``."""
        return self.cloneState(include_rng=True)

    def restoreSystemState(self, state: ALEState, /) -> None:
        """The same as :meth:`restoreState`."""
        self.restoreState(state)


def _check_buffer(buffer: Any, shape: tuple[int, ...], wrong_shape: type[Exception]) -> None:
    if not isinstance(buffer, np.ndarray) or buffer.dtype != np.uint8 or not buffer.flags.c_contiguous:
        raise TypeError("buffer is not a C-contiguous uint8 array")
    if buffer.shape != shape:
        raise wrong_shape(f"buffer has shape {buffer.shape}, expected {shape}")
