"""One Atari 2600 with a game in it, frame by frame."""

from __future__ import annotations

import operator
import os
import secrets
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from parl import _native, cuda
from parl.atari.actions import Action
from parl.atari.catalogue import SCREEN_WIDTH, find_id, game_id, suggestion, title
from parl.atari.roms import ale_py_folder
from parl.errors import AtariError

SYSTEM_SEED = 4_753_849
"""Seed of power-on RAM and of the timer at resets unless another one is given; ale-py's default too."""
_SEEDS = 2**32
_NTSC_FPS = 60.0
_PAL_FPS = 50.0
_BYTES = 256
_RAM_BYTES = 128
_MOST_FRAMES = 2**31


class Console:
    """One Atari 2600 with a game in it. Behaves bit for bit as ale-py 0.12.1 does.

    A new console has been reset once and is ready to play. All methods may be called from several threads:
    calls on one console take turns, and those on different consoles run at the same time, without the
    interpreter's lock.

    Args:
        game: a game's id (``breakout``; ``Breakout`` and ``ALE/Breakout-v5`` mean the same), looked for in
            the folders of PARL_ROMS_DIR, ALE_ROMS_DIR, ALE_ROM_DIR and of an installed ale-py; or the path of
            a file.
        seed: of the generator behind sticky actions (and two modes of Adventure), 0 to 2^32 - 1; None draws
            one.
        frame_skip: frames per :meth:`act`, at least 1. Rewards are summed; there is no pooling of pictures.
        repeat_action_probability: in each frame the previous action goes on with this probability, 0 to 1.
        max_num_frames_per_episode: an episode is truncated after so many frames; 0 for no limit.
        truncate_on_life_loss: an episode is truncated when fewer lives are left than the game starts with.
        mode: one of :attr:`modes`; None for the game's first.
        difficulty: one of :attr:`difficulties`; None for 0.
        rules: the game whose score, lives, end and modes are read out of RAM; None for the game that the ROM
            is.
        allow_unknown: accept a ROM that is not what its name says, or that is no known game. It runs without
            rules, unless ``rules`` are given: reward 0, no lives, no end.
        system_seed: of the generator behind power-on RAM and the timer at resets, 0 to 2^32 - 1.
        device: where :meth:`act` runs its frames: ``"cpu"``, or ``"cuda"`` or ``"cuda:1"``. All else is on
            the host, and states, pictures and numbers are the same. One console keeps one thread of a
            device busy: it is there to compare, :class:`parl.AtariVectorEnv` to be fast.

    Raises:
        FileNotFoundError: there is no such ROM; says where it was looked for and how to get one.
        ValueError: a setting is out of its bounds, the file is no cartridge, or not the ROM its name says.
        CudaUnavailableError: ``device="cuda"`` cannot be had.

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
        device: str = "cpu",
    ) -> None:
        rom = _find_rom(os.fspath(game), allow_unknown=allow_unknown or rules is not None)
        if rules is not None:
            rules = game_id(rules)
        elif rom.game is not None:
            rules = rom.game
        elif not allow_unknown:
            raise AtariError(
                f"{rom.path} (md5 {rom.md5}) is none of the known games; "
                "allow_unknown=True runs it without rules, rules=GAME with those of a game"
            )
        self._start(
            rom,
            {
                "rules": rules,
                "seed": secrets.randbelow(_SEEDS) if seed is None else _whole("seed", seed, _SEEDS),
                "system_seed": _whole("system_seed", system_seed, _SEEDS),
                "frame_skip": _whole("frame_skip", frame_skip, _MOST_FRAMES, 1),
                "repeat_action_probability": float(repeat_action_probability),
                "max_num_frames_per_episode": _whole(
                    "max_num_frames_per_episode", max_num_frames_per_episode, _MOST_FRAMES
                ),
                "truncate_on_life_loss": bool(truncate_on_life_loss),
                "device": None if device == "cpu" else cuda.ordinal(device),
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
        folders = [] if settings.get("device") is None else cuda.nvrtc_folders()
        self._use(_native.Console(rom, **settings, nvrtc_folders=folders))

    def _use(self, native: _native.Console) -> None:
        self._native = native
        if type(self).act is Console.act:
            # The native method itself: an act takes some microseconds, a call through Python one more.
            self.__dict__["act"] = native.act

    # ---------------------------------------------------------------- what it is

    @property
    def game(self) -> str | None:
        """Id of the game whose rules run; None without rules."""
        return self._settings["rules"]

    @property
    def name(self) -> str:
        """Title of the game, or the file's name where there are no rules."""
        return os.path.basename(self._rom.path) if self.game is None else title(self.game)

    @property
    def md5(self) -> str:
        """Hash of the ROM, in hexadecimal."""
        return self._rom.md5

    @property
    def cartridge(self) -> str:
        """How the ROM sits on the bus: 2K, 4K, F8 and so on."""
        return self._rom.cartridge

    @property
    def players(self) -> int:
        """Players that :meth:`act` has a stick or paddle for: 1 for a game with rules, otherwise 2."""
        return self._native.players

    @property
    def seed(self) -> int:
        """Seed of the generator behind sticky actions."""
        return self._settings["seed"]

    @property
    def device(self) -> str:
        """Where frames run: ``"cpu"`` or ``"cuda:0"``."""
        ordinal = self._settings.get("device")
        return "cpu" if ordinal is None else f"cuda:{ordinal}"

    @property
    def frame_skip(self) -> int:
        """Frames per :meth:`act`."""
        return self._settings["frame_skip"]

    @property
    def repeat_action_probability(self) -> float:
        """Probability with which the previous action goes on."""
        return self._settings["repeat_action_probability"]

    @property
    def max_num_frames_per_episode(self) -> int:
        """Frames after which an episode is truncated; 0 for no limit."""
        return self._settings["max_num_frames_per_episode"]

    @property
    def legal_actions(self) -> tuple[Action, ...]:
        """The actions that are passed on; the others count as NOOP. Ascending."""
        return tuple(Action(number) for number in self._native.legal_actions)

    @property
    def minimal_actions(self) -> tuple[Action, ...]:
        """The actions that do something in the game. Ascending."""
        return tuple(Action(number) for number in self._native.minimal_actions)

    @property
    def modes(self) -> tuple[int, ...]:
        """Variants of the game that :meth:`set_mode` takes; the first is the default."""
        return tuple(self._native.modes)

    @property
    def difficulties(self) -> tuple[int, ...]:
        """Positions of the difficulty switches that :meth:`set_difficulty` takes."""
        return tuple(self._native.difficulties)

    @property
    def frames_per_second(self) -> float:
        """60 for an NTSC game, 50 for a PAL one."""
        return _PAL_FPS if self._native.pal else _NTSC_FPS

    # ---------------------------------------------------------------- playing

    def reset(self) -> None:
        """Starts a new episode: power off and on, selection of the mode, the presses that start the game.

        RAM outlives it, as in the reference, so that some games start differently each time; see
        :meth:`save` for the very same start.
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
        """Plays ``frame_skip`` frames. After the end of an episode nothing happens until :meth:`reset`.

        Args:
            action: player A's :class:`Action`, its number or its name; one that is not legal in the game is
                NOOP.
            action_b: player B's.
            strength: how far player A's paddle turns, 1 for a full turn; its sign does not matter. Joysticks
                ignore it.
            strength_b: the same for player B.

        Returns:
            The sum of the frames' rewards.

        Raises:
            ValueError: no such action, or a strength that is not finite.
        """
        return self._native.act(action, action_b, strength=strength, strength_b=strength_b)

    def set_mode(self, mode: int) -> None:
        """Chooses a variant of the game; the next :meth:`reset` selects it.

        Raises:
            ValueError: not one of :attr:`modes`.
        """
        self._native.set_mode(_whole("mode", mode, _SEEDS))

    def set_difficulty(self, difficulty: int) -> None:
        """Sets the difficulty switches, from the next frame on.

        Raises:
            ValueError: not one of :attr:`difficulties`.
        """
        self._native.set_difficulty(_whole("difficulty", difficulty, _SEEDS))

    @property
    def mode(self) -> int:
        """The mode that was set, or the default."""
        return self._native.mode

    @property
    def difficulty(self) -> int:
        """The difficulty that was set, or 0, even in a game that does not list it."""
        return self._native.difficulty

    # ---------------------------------------------------------------- how it stands

    @property
    def lives(self) -> int:
        """Lives left; 0 in games without lives."""
        return self._native.lives

    @property
    def terminated(self) -> bool:
        """True when the game itself has ended."""
        return self._native.terminated

    @property
    def truncated(self) -> bool:
        """True when the episode was cut: by the limit of frames, or by a lost life if that was asked for."""
        return self._native.truncated

    @property
    def game_over(self) -> bool:
        """True when the episode has ended either way."""
        return self._native.game_over

    @property
    def frame_number(self) -> int:
        """Frames since the console was made, without those of resets that :meth:`act` did not play."""
        return self._native.frame_number

    @property
    def episode_frame_number(self) -> int:
        """Frames since the last reset began; mode selection may have used some."""
        return self._native.episode_frame_number

    # ---------------------------------------------------------------- looking

    @property
    def ram(self) -> NDArray[np.uint8]:
        """A copy of RAM, (128,) uint8, read-only: :meth:`write_ram` changes RAM itself."""
        ram = self._native.read_ram(None)
        ram.flags.writeable = False
        return ram

    @property
    def screen(self) -> NDArray[np.uint8]:
        """The picture of the last frame as palette indices, (H, 160) uint8."""
        return self._native.read_screen(None)

    @property
    def screen_rgb(self) -> NDArray[np.uint8]:
        """The picture of the last frame in colour, (H, 160, 3) uint8."""
        return self._native.read_screen_rgb(None)

    @property
    def screen_gray(self) -> NDArray[np.uint8]:
        """The picture of the last frame in gray, (H, 160) uint8."""
        return self._native.read_screen_gray(None)

    @property
    def screen_shape(self) -> tuple[int, int]:
        """Height and width of the picture: 210, 214, 220, 230 or 250, and 160."""
        return self._native.screen_height, SCREEN_WIDTH

    def read_ram(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Copies RAM into ``out``, (128,) uint8 C-contiguous, or a new array, and returns it.

        Raises:
            ValueError: another shape or layout. TypeError: another dtype.
        """
        return self._native.read_ram(out)

    def read_screen(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes palette indices into ``out``, (H, 160) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen(out)

    def read_screen_rgb(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes colours into ``out``, (H, 160, 3) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen_rgb(out)

    def read_screen_gray(self, out: NDArray[np.uint8] | None = None) -> NDArray[np.uint8]:
        """Writes gray values into ``out``, (H, 160) uint8, C-contiguous, or a new array; returns it."""
        return self._native.read_screen_gray(out)

    def write_ram(self, index: int, value: int) -> None:
        """Writes one byte of RAM; index 0 is bus address $80.

        Raises:
            IndexError: the index is outside 0..128. ValueError: the value is outside 0..256.
        """
        index, value = operator.index(index), _whole("value", value, _BYTES)
        if not 0 <= index < _RAM_BYTES:
            raise IndexError(f"RAM index {index} is outside 0..{_RAM_BYTES}")
        self._native.write_ram(index, value)

    # ---------------------------------------------------------------- states

    def save(self, *, generator: bool = True) -> bytes:
        """The state as bytes: what makes the console's future, without ROM, settings and picture.

        Args:
            generator: with the generator of the sticky actions, so that they will be the same too.

        Returns:
            Bytes that :meth:`load` of any console with the same ROM takes, in this version of parl.
        """
        return self._native.save(generator)

    def load(self, state: bytes, *, keep_held: bool = False) -> None:
        """Goes back to a saved state. The screen shows the old picture until the next frame.

        Args:
            state: from :meth:`save`; without the generator in it, that of this console runs on.
            keep_held: the action that may be repeated next stays this console's rather than the state's. So
                it is in ALE, whose states do not hold it.

        Raises:
            ValueError: no saved state of a console with this ROM and these rules.
        """
        self._native.load(state, keep_held)

    def clone(self, *, generator: bool = True) -> Console:
        """A console that will do the same and shares nothing mutable; its picture is the same too.

        Args:
            generator: with the generator of the sticky actions where it stands; otherwise the copy's is
                seeded anew with a drawn :attr:`seed`, and the two part ways.
        """
        other = object.__new__(type(self))
        other._rom = self._rom
        other._settings = self._settings
        if generator:
            other._use(self._native.clone())
        else:
            seed = secrets.randbelow(_SEEDS)
            other._settings = {**self._settings, "seed": seed}
            other._use(self._native.clone(seed))
        return other

    def __copy__(self) -> Console:
        return self.clone()

    def __deepcopy__(self, memo: dict[int, Any]) -> Console:
        return self.clone()

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self._rom, self._settings, self.save())

    def __repr__(self) -> str:
        return (
            f"Console({self.game or self._rom.path!r}, mode={self.mode}, difficulty={self.difficulty}, "
            f"frame_number={self.frame_number}, lives={self.lives}, game_over={self.game_over})"
        )


def _unpickled(kind: type[Console], rom: _native.Rom, settings: dict[str, Any], state: bytes) -> Console:
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


def _whole(name: str, value: SupportsIndex, end: int, start: int = 0) -> int:
    """A whole number in ``start..end``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number") from None
    if not start <= number < end:
        raise AtariError(f"{name} is {number}, expected {start}..{end}, the end excluded")
    return number
