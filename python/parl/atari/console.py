"""A single Atari 2600 console with a game."""

from __future__ import annotations

import copy
import operator
import os
import secrets
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from parl import _native
from parl.atari.actions import Action
from parl.atari.catalogue import NTSC_FPS, PAL_FPS, SCREEN_WIDTH, find_id, game_id, suggestion, title
from parl.atari.flags import flag
from parl.atari.roms import ale_py_folder
from parl.errors import AtariError

SYSTEM_SEED = 4_753_849
"""Default seed of the RAM at power-on and of the timer at resets, as in ale-py."""
_SEEDS = 2**32
_BYTES = 256
_RAM_BYTES = 128
AUDIO_SAMPLES = 512
"""Samples of sound that one :meth:`Console.act` makes."""
_MAX_FRAMES = 2**31
# Attributes that a copy of a console gets by itself.
_OWN = ("_rom", "_settings", "_native", "act")


class Console:
    """An Atari 2600 console with a game, bit for bit as ale-py 0.12.1.

    A new console has been reset and is ready to play. Methods may be called from several threads: calls on
    one console are serialized, calls on different consoles run in parallel without the interpreter's lock.

    Args:
        game: a game's id (``breakout``; also ``Breakout`` or ``ALE/Breakout-v5``), whose ROM is searched in
            the folders of PARL_ROMS_DIR, ALE_ROMS_DIR, ALE_ROM_DIR and of an installed ale-py; or the path of
            a ROM file.
        seed: seed of the generator of sticky actions (and of two modes of Adventure), 0 to 2^32 - 1; None for
            a random one.
        frame_skip: frames per :meth:`act`, at least 1. Rewards are summed; frames are not pooled.
        repeat_action_probability: probability, for each frame, that the previous action is repeated (0 to 1).
        max_num_frames_per_episode: frames after which an episode is truncated; 0 for no limit.
        truncate_on_life_loss: whether an episode is truncated when fewer lives are left than after loading,
            which is in the game's first mode.
        mode: one of :attr:`modes`; None for the game's first.
        difficulty: one of :attr:`difficulties`; None for 0.
        rules: id of the game whose rules compute score, lives and end from RAM; None for the game of the ROM.
        allow_unknown: whether to accept a ROM that is not a known game, or not the game of its name. Without
            ``rules`` it runs with reward 0, no lives and no end.
        system_seed: seed of the RAM at power-on and of the timer at resets, 0 to 2^32 - 1.
        sound: whether :meth:`act` makes sound, for :attr:`audio`. Nothing else depends on it.

    Raises:
        FileNotFoundError: there is no such ROM; the message lists the folders searched.
        AtariError: (a ValueError) a setting is out of its bounds, or the file is not a cartridge or not the
            game of its name.

    Examples:
        >>> from parl.atari import Action, Console
        >>> console = Console("breakout", seed=1)
        >>> console.act(Action.FIRE), console.lives, console.screen_rgb.shape
        (0, 5, (210, 160, 3))
    """

    def __init__(
        self,
        game: str | os.PathLike[str],
        *,
        seed: int | None = None,
        frame_skip: int = 1,
        repeat_action_probability: float = 0.0,
        max_num_frames_per_episode: int = 0,
        truncate_on_life_loss: bool = False,
        mode: int | None = None,
        difficulty: int | None = None,
        rules: str | None = None,
        allow_unknown: bool = False,
        system_seed: int = SYSTEM_SEED,
        sound: bool = False,
    ) -> None:
        rom = _find_rom(os.fspath(game), allow_unknown=allow_unknown or rules is not None)
        if rules is not None:
            rules = game_id(rules)
        elif rom.game is not None:
            rules = rom.game
        elif not allow_unknown:
            raise AtariError(
                f"{rom.path} (md5 {rom.md5}) is not a known game: use allow_unknown=True to run it without "
                "rules, or rules=GAME to run it with those of a game"
            )
        self._start(
            rom,
            {
                "rules": rules,
                "seed": secrets.randbelow(_SEEDS) if seed is None else _integer("seed", seed, _SEEDS),
                "system_seed": _integer("system_seed", system_seed, _SEEDS),
                "frame_skip": _integer("frame_skip", frame_skip, _MAX_FRAMES, 1),
                "repeat_action_probability": float(repeat_action_probability),
                "max_num_frames_per_episode": _integer(
                    "max_num_frames_per_episode", max_num_frames_per_episode, _MAX_FRAMES
                ),
                "truncate_on_life_loss": flag("truncate_on_life_loss", truncate_on_life_loss),
                "sound": flag("sound", sound),
            },
        )
        if mode is not None:
            self.set_mode(mode)
        if difficulty is not None:
            self.set_difficulty(difficulty)
        if mode is not None or difficulty is not None:
            self.reset()

    def _start(self, rom: _native.Rom, settings: dict[str, Any]) -> None:
        self._rom = rom
        self._settings = settings
        self._use(_native.Console(rom, **settings))

    def _use(self, native: _native.Console) -> None:
        self._native = native
        if type(self).act is Console.act:
            # Calls the native method directly; a call through Python adds about a microsecond.
            self.__dict__["act"] = native.act

    # ---------------------------------------------------------------- properties

    @property
    def game(self) -> str | None:
        """Id of the game whose rules are used; None without rules."""
        return self._settings["rules"]

    @property
    def name(self) -> str:
        """Title of the game; without rules the name of the file."""
        return os.path.basename(self._rom.path) if self.game is None else title(self.game)

    @property
    def md5(self) -> str:
        """MD5 hash of the ROM in hexadecimal."""
        return self._rom.md5

    @property
    def cartridge(self) -> str:
        """Bank switching scheme of the cartridge: 2K, 4K, F8 and so on."""
        return self._rom.cartridge

    @property
    def players(self) -> int:
        """Number of players that :meth:`act` takes actions for: 1 for a game with rules, otherwise 2."""
        return self._native.players

    @property
    def seed(self) -> int:
        """Seed of the generator of sticky actions."""
        return self._settings["seed"]

    @property
    def frame_skip(self) -> int:
        """Frames per :meth:`act`."""
        return self._settings["frame_skip"]

    @property
    def repeat_action_probability(self) -> float:
        """Probability, for each frame, that the previous action is repeated."""
        return self._settings["repeat_action_probability"]

    @property
    def max_num_frames_per_episode(self) -> int:
        """Frames after which an episode is truncated; 0 for no limit."""
        return self._settings["max_num_frames_per_episode"]

    @property
    def legal_actions(self) -> tuple[Action, ...]:
        """Actions that the game receives, in ascending order; others are replaced by NOOP."""
        return tuple(Action(number) for number in self._native.legal_actions)

    @property
    def minimal_actions(self) -> tuple[Action, ...]:
        """Actions that have an effect in the game, in ascending order."""
        return tuple(Action(number) for number in self._native.minimal_actions)

    @property
    def modes(self) -> tuple[int, ...]:
        """Modes of the game, for :meth:`set_mode`; the first is the default."""
        return tuple(self._native.modes)

    @property
    def difficulties(self) -> tuple[int, ...]:
        """Positions of the difficulty switches, for :meth:`set_difficulty`."""
        return tuple(self._native.difficulties)

    @property
    def frames_per_second(self) -> float:
        """Frames per second: 60 for NTSC games, 50 for PAL games."""
        return PAL_FPS if self._native.pal else NTSC_FPS

    @property
    def sound(self) -> bool:
        """Whether :meth:`act` makes sound."""
        return self._settings.get("sound", False)

    @property
    def audio_sample_rate(self) -> int:
        """Samples of :attr:`audio` per second: 30,720 for NTSC games, 25,600 for PAL games.

        512 samples per frame; the rate at which sound and picture go together with ``frame_skip=1``.
        """
        return int(AUDIO_SAMPLES * self.frames_per_second)

    # ---------------------------------------------------------------- playing

    def reset(self) -> None:
        """Starts a new episode: switches the console off and on, selects the mode and starts the game.

        RAM keeps its content, as in ale-py, so that some games start differently each time. Use :meth:`save`
        and :meth:`load` to repeat a start exactly.
        """
        self._native.reset()

    def act(
        self,
        action: int | str,
        action_b: int | str = Action.NOOP,
        *,
        strength: float = 1.0,
        strength_b: float = 1.0,
    ) -> int:
        """Runs ``frame_skip`` frames with an action; after the end of an episode it does nothing.

        Args:
            action: :class:`Action` of player A, its number or its name; actions that are not legal in the
                game are replaced by NOOP.
            action_b: action of player B.
            strength: how far the paddle of player A turns, 1 for a full turn; the sign is ignored. No effect
                on joysticks.
            strength_b: how far the paddle of player B turns.

        Returns:
            The sum of the rewards of the frames.

        Raises:
            AtariError: (a ValueError) there is no such action, or a strength is not finite.
        """
        return self._native.act(action, action_b, strength=strength, strength_b=strength_b)

    def set_mode(self, mode: int) -> None:
        """Sets the mode of the game, which the next :meth:`reset` selects.

        Raises:
            AtariError: (a ValueError) it is not one of :attr:`modes`.
        """
        self._native.set_mode(_integer("mode", mode, _SEEDS))

    def set_difficulty(self, difficulty: int) -> None:
        """Sets the difficulty switches from the next frame on.

        Raises:
            AtariError: (a ValueError) it is not one of :attr:`difficulties`.
        """
        self._native.set_difficulty(_integer("difficulty", difficulty, _SEEDS))

    @property
    def mode(self) -> int:
        """The mode that was set, or the default."""
        return self._native.mode

    @property
    def difficulty(self) -> int:
        """The difficulty that was set, or 0, also in games that do not list 0."""
        return self._native.difficulty

    # ---------------------------------------------------------------- state of the episode

    @property
    def lives(self) -> int:
        """Number of lives left; 0 in games without lives."""
        return self._native.lives

    @property
    def terminated(self) -> bool:
        """Whether the game has ended."""
        return self._native.terminated

    @property
    def truncated(self) -> bool:
        """Whether the episode was truncated, by the frame limit or by ``truncate_on_life_loss``."""
        return self._native.truncated

    @property
    def game_over(self) -> bool:
        """Whether the episode has terminated or was truncated."""
        return self._native.game_over

    @property
    def frame_number(self) -> int:
        """Number of frames since the console was made, without the frames of resets."""
        return self._native.frame_number

    @property
    def episode_frame_number(self) -> int:
        """Number of frames since the last reset began, those of the mode selection included."""
        return self._native.episode_frame_number

    # ---------------------------------------------------------------- screen and memory

    @property
    def ram(self) -> NDArray[np.uint8]:
        """A read-only copy of the RAM, (128,) uint8; :meth:`write_ram` writes to the RAM."""
        ram = self._native.read_ram(None)
        ram.flags.writeable = False
        return ram

    @property
    def screen(self) -> NDArray[np.uint8]:
        """The screen of the last frame as palette indices, (H, 160) uint8."""
        return self._native.read_screen(None)

    @property
    def screen_rgb(self) -> NDArray[np.uint8]:
        """The screen of the last frame as RGB, (H, 160, 3) uint8."""
        return self._native.read_screen_rgb(None)

    @property
    def screen_gray(self) -> NDArray[np.uint8]:
        """The screen of the last frame as gray values, (H, 160) uint8."""
        return self._native.read_screen_gray(None)

    @property
    def screen_shape(self) -> tuple[int, int]:
        """Height (210, 214, 220, 230 or 250) and width (160) of the screen in pixels."""
        return self._native.screen_height, SCREEN_WIDTH

    @property
    def audio(self) -> NDArray[np.uint8]:
        """The sound of the last :meth:`act`, (512,) uint8 of one channel, at :attr:`audio_sample_rate`.

        Equals ale-py's ``getAudio()``. Each act makes 512 samples from the sound registers as they are after
        its last frame, whatever its number of frames, and also after the end of an episode. A sample is 128
        plus 4 times the volume, 0 to 30, of the two channels of the TIA; 0 before the first act. The frames
        of :meth:`reset` make no sound, except those of a mode selection that plays. As in ale-py, neither
        :meth:`reset` nor :meth:`load` changes the sound: saved states do not contain it.

        Raises:
            AtariError: (a ValueError) the console was made without ``sound=True``.
        """
        return self._native.read_audio(None)

    def read_audio(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copies :attr:`audio` into ``out``, (512,) uint8 and C-contiguous, or a new array; returns it."""
        return self._native.read_audio(out)

    def read_ram(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copies the RAM into ``out``, (128,) uint8 and C-contiguous, or into a new array; returns it.

        Raises:
            ValueError: ``out`` has another shape or layout.
            TypeError: ``out`` has another dtype.
        """
        return self._native.read_ram(out)

    def read_screen(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes palette indices into ``out``, (H, 160) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen(out)

    def read_screen_rgb(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes RGB values into ``out``, (H, 160, 3) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen_rgb(out)

    def read_screen_gray(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes gray values into ``out``, (H, 160) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen_gray(out)

    def write_ram(self, index: int, value: int) -> None:
        """Writes a byte of the RAM; index 0 is bus address $80.

        Raises:
            IndexError: ``index`` is outside 0 to 127.
            AtariError: (a ValueError) ``value`` is outside 0 to 255.
        """
        index, value = operator.index(index), _integer("value", value, _BYTES)
        if not 0 <= index < _RAM_BYTES:
            raise IndexError(f"RAM index {index} is outside 0 to {_RAM_BYTES - 1}")
        self._native.write_ram(index, value)

    # ---------------------------------------------------------------- states

    def save(self, *, generator: bool = True) -> bytes:
        """Saves the state of the console as bytes, without ROM, settings, screen and sound.

        Args:
            generator: whether to include the generator of sticky actions.

        Returns:
            Bytes that any console with the same ROM and rules can :meth:`load`, in this version of parl.
        """
        return self._native.save(generator)

    def load(self, state: bytes, *, keep_repeated_action: bool = False) -> None:
        """Restores a saved state; the screen keeps the old frame until the next one is run.

        Args:
            state: bytes of :meth:`save`. If they do not include the generator, this console keeps its own.
            keep_repeated_action: whether the action that sticky actions repeat remains that of this console,
                as in ALE, whose states do not contain it.

        Raises:
            AtariError: (a ValueError) the bytes are not a state of a console with this ROM and these rules.
        """
        self._native.load(state, keep_repeated_action)

    def clone(self, *, generator: bool = True) -> Console:
        """An independent copy of the console, screen and sound included.

        Args:
            generator: whether to copy the state of the generator of sticky actions; otherwise the copy gets a
                random :attr:`seed`.
        """
        other = object.__new__(type(self))
        other.__dict__.update(self._added())
        other._rom = self._rom
        other._settings = self._settings
        if generator:
            other._use(self._native.clone())
        else:
            seed = secrets.randbelow(_SEEDS)
            other._settings = {**self._settings, "seed": seed}
            other._use(self._native.clone(seed))
        return other

    def _added(self) -> dict[str, Any]:
        """The attributes that a subclass or a caller has added."""
        return {name: value for name, value in self.__dict__.items() if name not in _OWN}

    def __copy__(self) -> Console:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Console:
        other = memo[id(self)] = self.clone()
        other.__dict__.update(copy.deepcopy(self._added(), memo))
        return other

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickle, (type(self), self._rom, self._settings, self.save()), self._added() or None

    def __repr__(self) -> str:
        return (
            f"Console({self.game or self._rom.path!r}, mode={self.mode}, difficulty={self.difficulty}, "
            f"frame_number={self.frame_number}, lives={self.lives}, game_over={self.game_over})"
        )


def _unpickle(kind: type[Console], rom: _native.Rom, settings: dict[str, Any], state: bytes) -> Console:
    console = object.__new__(kind)
    console._start(rom, settings)
    console.load(state)
    return console


def _find_rom(name: str, *, allow_unknown: bool) -> _native.Rom:
    folders = [folder for folder in [ale_py_folder()] if folder is not None]
    is_name = not os.path.isfile(name) and os.path.basename(name.removeprefix("ALE/")) == name.removeprefix(
        "ALE/"
    )
    known = find_id(name) if is_name else None
    try:
        return _native.Rom.find(known or name, folders, allow_unknown)
    except FileNotFoundError as error:
        hint = suggestion(name) if is_name and known is None else ""
        if not hint:
            raise
        raise FileNotFoundError(f"{error}; {hint}") from None


def _integer(name: str, value: SupportsIndex, end: int, start: int = 0) -> int:
    """Checks that ``value`` is an int with ``start <= value < end`` and returns it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an int") from None
    if not start <= number < end:
        raise AtariError(f"{name} is {number}, expected {start} to {end - 1}")
    return number
