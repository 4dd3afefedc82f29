"""Demonstrations of people with their gaze, in the layout of Atari-HEAD: :func:`read_atari_head`.

The archive of a game unpacks to a folder with two files for each trial of a person: ``TRIAL.txt`` and
``TRIAL.tar.bz2``, such as ``198_RZ_3877709_Dec-03-16-56-11``. The text has a header and a row for each
frame, separated by commas: ``frame_id, episode_id, score, duration(ms), unclipped_reward, action,
gaze_positions``. A value can be ``null``. The last one is the list x0,y0,x1,y1, ... of the row, in pixels of
the screen from its top left corner. The archive has a picture of 160 x 210 pixels for each row,
``FRAME_ID.png``. Actions are the 18 codes of the console. The files have neither seeds nor states, so that
the frames cannot be computed again: they are read.

Source: Zhang et al. (2020), "Atari-HEAD: Atari Human Eye-Tracking and Demonstration Dataset", and the
description at https://zenodo.org/records/3451402.
"""

from __future__ import annotations

import importlib
import io
import math
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parl.atari.catalogue import game_id
from parl.datasets.dqn_replay import game_of
from parl.envs.atari import arguments
from parl.errors import DatasetError
from parl.extras import install_command

Rows = dict[str, Any]
_HEADER = ("frame_id", "episode_id", "score", "duration(ms)", "unclipped_reward", "action", "gaze_positions")
_SCREEN, _ACTIONS = (210, 160, 3), 18
_NULL = "null"


class _Frame(NamedTuple):
    """A row of a trial. ``episode``, ``score`` and ``duration`` are None where the file has null."""

    name: str
    episode: int | None
    score: int | None
    duration: int | None
    reward: int
    action: int
    gaze: NDArray[np.float32]


def read_atari_head(path: str | Path, game: str | None = None) -> AtariHead:
    """Opens demonstrations of Atari-HEAD.

    Args:
        path: the folder of a game with the files of its trials, such as ``atari_head/breakout``, or the text
            file of one trial.
        game: id of the game; None: the part of the path that is the name of a game, if there is one.

    Raises:
        FileNotFoundError: there is no such folder or file.
        DatasetError: the folder has no trial, or the pictures of one are missing.
    """
    return AtariHead(path, game)


class AtariHead:
    """Demonstrations that :func:`read_atari_head` opened. Files are read when their rows are needed.

    Attributes:
        path: the folder or the text file.
        game: id of the game, or None if it is unknown.
        trials: names of the trials, sorted by their numbers.
    """

    def __init__(self, path: str | Path, game: str | None = None) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FileNotFoundError(f"{self.path} does not exist")
        texts = list(self.path.glob("*.txt")) if self.path.is_dir() else [self.path]
        # The number of a trial begins its name; other texts, such as a list of the actions, are no trials.
        self._texts = {text.stem: text for text in sorted(texts, key=_number) if _number(text)[0] >= 0}
        if not self._texts:
            raise DatasetError(f"{self.path} has no text files of trials, such as 198_RZ_3877709.txt")
        self._archives = {name: _pictures_of(text) for name, text in self._texts.items()}
        self.trials = tuple(self._texts)
        self.game = game_of(self.path) if game is None else game_id(game)

    @property
    def num_steps(self) -> int:
        """Number of rows of all trials; their texts are read."""
        return sum(len(self._frames(trial)) for trial in self.trials)

    def gaze(self, trial: str) -> list[NDArray[np.float32]]:
        """Gaze positions of each row of a trial: (n, 2) float32, column and row of the screen in pixels.

        n differs from row to row, and is 0 where nothing was recorded. Positions can be outside the screen.

        Raises:
            DatasetError: there is no such trial, or its text is damaged; the message names the line.
        """
        return [frame.gaze for frame in self._frames(self._known(trial))]

    def replay(
        self,
        *,
        trials: Sequence[str] | None = None,
        stack_num: int | None = None,
        batch_size: int = 1,
    ) -> Iterator[Rows]:
        """Yields the steps, as :meth:`Dataset.replay` does.

        ``batch_size`` trials are read at the same time, and each yield has one step of each of them: arrays
        ``observation`` (B, 210, 160, 3) uint8, red, green and blue, or with ``stack_num`` (B, stack, 210,
        160, 3); ``action`` int64, the console's code (0 to 17); ``reward`` float32, not clipped;
        ``next_observation``; ``terminated``, true at the last row of an episode that another one follows;
        ``truncated``, true at the last step of a trial; ``episode``, counted from the start of the trial;
        ``step``, from the start of the episode; ``env_id``, the place of the trial; ``score`` and
        ``duration_ms`` int64, -1 for null; and ``gaze`` (B, 2) float32, the mean of the positions of the row,
        NaN without any.

        The files have no observation after the end of an episode: ``next_observation`` is then the last one
        again. The last row of a trial has none either and is left out. An ``episode_id`` of null
        continues the episode before it.

        Args:
            trials: their names, in order; None for all.
            stack_num: pictures in an observation, zeros before the first one of an episode; None for a single
                picture without this dimension.
            batch_size: number of trials.

        Raises:
            ValueError: an argument is out of its bounds.
            ModuleNotFoundError: Pillow, which reads the pictures, is not installed.
            DatasetError: there is no such trial, or a file is damaged; the message names file and line.
        """
        stack = None if stack_num is None else arguments.integer("stack_num", stack_num, 1, 64)
        count = arguments.integer("batch_size", batch_size, 1, arguments.INT32_MAX)
        chosen = self.trials if trials is None else tuple(self._known(trial) for trial in trials)
        return self._replay(chosen, stack, count)

    def fill(self, replay: Any, *, steps: int | None = None, **options: Any) -> int:
        """Adds steps to a replay buffer; see :meth:`Dataset.fill`. ``options``: those of :meth:`replay`.

        Each trial is an environment of its own: ``num_envs`` of the buffer must be at least their number,
        whatever ``batch_size`` is.
        """
        from parl.datasets.buffers import fill

        return fill(self, replay, steps, options)

    def _known(self, trial: str) -> str:
        if trial not in self._texts:
            raise DatasetError(f"{self.path} has no trial {trial!r}, only {list(self.trials)}")
        return trial

    def _frames(self, trial: str) -> list[_Frame]:
        return _read_text(self._texts[trial])

    def _replay(self, chosen: Sequence[str], stack: int | None, count: int) -> Iterator[Rows]:
        image = _pillow()
        waiting = list(enumerate(chosen))
        running: list[Iterator[Rows]] = []
        while waiting or running:
            while waiting and len(running) < count:
                place, trial = waiting.pop(0)
                pictures = _Pictures(self._archives[trial], image)
                running.append(_steps(self._frames(trial), pictures, stack, place))
            found: list[Rows] = []
            for trial in list(running):
                step = next(trial, None)
                if step is None:
                    running.remove(trial)
                else:
                    found.append(step)
            if found:
                yield {name: np.stack([step[name] for step in found]) for name in found[0]}


def _number(text: Path) -> tuple[int, str]:
    """Number of a trial, which begins its name, and the name; -1 for a text that is no trial."""
    head = text.stem.partition("_")[0]
    return (int(head) if head.isascii() and head.isdigit() else -1), text.stem


def _pictures_of(text: Path) -> Path:
    """The archive or the folder with the pictures of a trial."""
    for found in (text.with_name(text.stem + ".tar.bz2"), text.with_name(text.stem)):
        if found.exists():
            return found
    raise DatasetError(
        f"{text} has no pictures: neither {text.stem}.tar.bz2 nor a folder {text.stem} is beside it"
    )


def _read_text(path: Path) -> list[_Frame]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise DatasetError(f"{path} is damaged: {error}") from None
    header = tuple(name.strip() for name in lines[0].split(",")) if lines else ()
    if header != _HEADER:
        raise DatasetError(f"{path}, line 1: the columns are {list(header)}, expected {list(_HEADER)}")
    frames = [_frame(path, number, line) for number, line in enumerate(lines[1:], 2) if line.strip()]
    if not frames:
        raise DatasetError(f"{path} has no rows")
    return frames


def _frame(path: Path, number: int, line: str) -> _Frame:
    where = f"{path}, line {number}"
    values = [value.strip() for value in line.split(",")]
    if len(values) < len(_HEADER):
        raise DatasetError(f"{where}: {len(values)} values, expected at least {len(_HEADER)}")
    name, *plain = values[: len(_HEADER) - 1]
    if not name:
        raise DatasetError(f"{where}: frame_id is empty")
    figures = [_whole(where, column, value) for column, value in zip(_HEADER[1:], plain, strict=False)]
    episode, score, duration, reward, action = figures
    if action is not None and not 0 <= action < _ACTIONS:
        raise DatasetError(f"{where}: action is {action}, expected 0 to {_ACTIONS - 1}")
    # Without an action the person pressed nothing; without a reward nothing was scored.
    return _Frame(name, episode, score, duration, reward or 0, action or 0, _gaze(where, values[6:]))


def _whole(where: str, column: str, value: str) -> int | None:
    if value == _NULL:
        return None
    try:
        return int(value)
    except ValueError:
        raise DatasetError(f"{where}: {column} is {value!r}, expected an integer or {_NULL}") from None


def _gaze(where: str, values: Sequence[str]) -> NDArray[np.float32]:
    if list(values) in ([_NULL], [""]):
        return np.zeros((0, 2), np.float32)
    positions: list[float] = []
    for value in values:
        try:
            positions.append(float(value))
        except ValueError:
            positions.append(math.nan)
        if not math.isfinite(positions[-1]):
            raise DatasetError(f"{where}: gaze_positions has {value!r}, expected a number")
    if len(positions) % 2:
        raise DatasetError(f"{where}: gaze_positions has {len(positions)} numbers, expected pairs x,y")
    return np.array(positions, np.float32).reshape(-1, 2)


class _Pictures:
    """Pictures of a trial by the names of its frames. Those of an archive are in memory, as PNG files."""

    def __init__(self, path: Path, image: Any) -> None:
        self._path, self._image = path, image
        self._files: Mapping[str, bytes] | None = None if path.is_dir() else _unpack(path)

    def read(self, name: str) -> NDArray[np.uint8]:
        """(210, 160, 3) uint8, the picture of a frame."""
        file = f"{name}.png"
        if self._files is None:
            place = self._path / file
            data = place.read_bytes() if place.is_file() else None
        else:
            data = self._files.get(file)
        if data is None:
            raise DatasetError(f"{self._path} has no picture {file}")
        try:
            with self._image.open(io.BytesIO(data), formats=["PNG"]) as picture:
                pixels = np.asarray(picture.convert("RGB"))
        except (OSError, SyntaxError, ValueError) as error:
            raise DatasetError(f"{self._path}: the picture {file} is damaged: {error}") from None
        if pixels.shape != _SCREEN:
            raise DatasetError(
                f"{self._path}: the picture {file} has shape {pixels.shape}, expected {_SCREEN}"
            )
        return pixels


def _unpack(path: Path) -> dict[str, bytes]:
    """PNG files of an archive by their names without folders."""
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:bz2") as archive:
            for member in archive:
                if member.isfile() and member.name.endswith(".png"):
                    file = archive.extractfile(member)
                    files[PurePosixPath(member.name).name] = b"" if file is None else file.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DatasetError(f"{path} is damaged: {error}") from None
    return files


def _steps(frames: Sequence[_Frame], pictures: _Pictures, stack: int | None, place: int) -> Iterator[Rows]:
    """The steps of one trial."""
    episodes = _episodes(frames)
    shown = [np.zeros(_SCREEN, np.uint8)] * (stack or 1)
    newest = pictures.read(frames[0].name)
    begin = 0
    # The last row has no picture after it.
    for i, frame in enumerate(frames[:-1]):
        if i == 0 or episodes[i] != episodes[i - 1]:
            shown, begin = [np.zeros(_SCREEN, np.uint8)] * (stack or 1), i
        shown = [*shown[1:], newest]
        newest = pictures.read(frames[i + 1].name)
        ended = episodes[i + 1] != episodes[i]
        following = shown if ended else [*shown[1:], newest]
        yield {
            "observation": shown[-1] if stack is None else np.stack(shown),
            "action": np.int64(frame.action),
            "reward": np.float32(frame.reward),
            "next_observation": following[-1] if stack is None else np.stack(following),
            "terminated": np.bool_(ended),
            "truncated": np.bool_(i + 2 == len(frames) and not ended),
            "episode": np.int64(episodes[i]),
            "step": np.int64(i - begin),
            "env_id": np.int64(place),
            "score": np.int64(-1 if frame.score is None else frame.score),
            "duration_ms": np.int64(-1 if frame.duration is None else frame.duration),
            "gaze": frame.gaze.mean(0) if len(frame.gaze) else np.full(2, np.nan, np.float32),
        }


def _episodes(frames: Sequence[_Frame]) -> list[int]:
    """Number of each row's episode from the start of the trial."""
    found: list[int] = []
    number, current = 0, None
    for frame in frames:
        if frame.episode is not None and current is not None and frame.episode != current:
            number += 1
        current = current if frame.episode is None else frame.episode
        found.append(number)
    return found


def _pillow() -> Any:
    try:
        return importlib.import_module("PIL.Image")
    except ModuleNotFoundError as error:
        command = install_command(error) or "pip install pillow"
        raise ModuleNotFoundError(
            f"Pillow reads the pictures of Atari-HEAD, but it is not installed: {command}", name=error.name
        ) from None
