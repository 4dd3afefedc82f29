"""Logged replays of DQN in the layout of Agarwal et al. (2020): :func:`read_dqn_replay`.

A folder has the files of several checkpoints N, each a NumPy array compressed by gzip, with the same number
of rows M: ``$store$_observation_ckpt.N.gz`` (M, 84, 84) uint8, ``$store$_action_ckpt.N.gz`` (M,) integers,
``$store$_reward_ckpt.N.gz`` (M,) float32, clipped, and ``$store$_terminal_ckpt.N.gz`` (M,) 0 or 1. Rows are
the steps of one agent in their order. An observation is a single picture, and up to three rows before the
first one of an episode are blank. The files have neither seeds nor the outcomes of sticky actions, so that
the steps cannot be computed again: they are read.

Source: Agarwal et al. (2020), "An Optimistic Perspective on Offline Reinforcement Learning", and the
description at https://offline-rl.github.io.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parl.atari.catalogue import game_id
from parl.envs.atari import arguments
from parl.errors import DatasetError

Rows = dict[str, Any]
ENVIRONMENT: dict[str, Any] = {"repeat_action_probability": 0.25, "noop_max": 0, "use_fire_reset": False}
"""Options of the environment in which the replays of Agarwal et al. (2020) were recorded."""
_COLUMNS = ("observation", "action", "reward", "terminal")
_NAME = re.compile(r"\$store\$_(\w+)_ckpt\.(\d+)\.gz")
# Blank rows before an episode, and rows that are in memory at the same time.
_BLANK, _BLOCK = 3, 8_192


class _Block(NamedTuple):
    """Pictures (n, ...) of consecutive rows, of which those from ``begin`` to ``end`` are steps to yield.

    ``first`` (n,) is the place of the first picture of each row's episode, -1 in rows that are no steps.
    """

    pictures: NDArray[np.uint8]
    start: int
    begin: int
    end: int
    first: NDArray[np.int64]


def read_dqn_replay(folder: str | Path, game: str | None = None) -> DQNReplay:
    """Opens a logged replay of DQN.

    Args:
        folder: where its files are, such as ``dqn/Pong/1/replay_logs``.
        game: id of the game; None: the part of the path that is the name of a game, if there is one.

    Raises:
        FileNotFoundError: there is no such folder.
        DatasetError: the folder has no checkpoint, or one lacks a file.
    """
    return DQNReplay(folder, game)


class DQNReplay:
    """A logged replay that :func:`read_dqn_replay` opened. Its files are read when their rows are needed.

    Attributes:
        path: the folder.
        game: id of the game, or None if it is unknown.
        checkpoints: numbers of the checkpoints, ascending.
    """

    def __init__(self, folder: str | Path, game: str | None = None) -> None:
        self.path = Path(folder)
        if not self.path.is_dir():
            raise FileNotFoundError(f"{self.path} is not a folder")
        found: dict[int, set[str]] = {}
        for file in self.path.iterdir():
            if match := _NAME.fullmatch(file.name):
                found.setdefault(int(match[2]), set()).add(match[1])
        if not found:
            raise DatasetError(f"{self.path} has no files $store$_observation_ckpt.N.gz")
        for number, columns in sorted(found.items()):
            if missing := [name for name in _COLUMNS if name not in columns]:
                raise DatasetError(f"{self.path} has no file {self._file(missing[0], number).name}")
        self.checkpoints = tuple(sorted(found))
        self.game = game_of(self.path) if game is None else game_id(game)

    def _file(self, column: str, checkpoint: int) -> Path:
        return self.path / f"$store$_{column}_ckpt.{checkpoint}.gz"

    @property
    def num_steps(self) -> int:
        """Number of rows of all checkpoints, blank ones included."""
        return sum(_Reader(self._file("action", number)).shape[0] for number in self.checkpoints)

    def replay(
        self,
        *,
        checkpoints: Sequence[int] | None = None,
        stack_num: int | None = 4,
        batch_size: int = 64,
    ) -> Iterator[Rows]:
        """Yields the steps, as :meth:`Dataset.replay` does.

        ``batch_size`` pieces of the log are read at the same time, and each yield has one step of each of
        them: arrays ``observation`` (B, stack, 84, 84), ``action`` int64, ``reward`` float32,
        ``next_observation``, ``terminated``, ``truncated`` (true at the end of a piece that is not the end of
        an episode), ``episode`` (counted from the start of the checkpoint), ``step`` (from its first row in
        this checkpoint) and ``env_id`` (the piece). The log has no observation after the end of an episode:
        ``next_observation`` is then the last one again.

        Args:
            checkpoints: their numbers, in order; None for all.
            stack_num: pictures in an observation, zeros before the first one of an episode; None for a single
                picture without this dimension.
            batch_size: number of pieces.

        Raises:
            ValueError: an argument is out of its bounds.
            DatasetError: there is no such checkpoint, or a file is damaged; the message names it.
        """
        stack = 1 if stack_num is None else arguments.integer("stack_num", stack_num, 1, 64)
        pieces = arguments.integer("batch_size", batch_size, 1, arguments.INT32_MAX)
        chosen = self.checkpoints if checkpoints is None else tuple(int(number) for number in checkpoints)
        for number in chosen:
            if number not in self.checkpoints:
                raise DatasetError(f"{self.path} has no checkpoint {number}, only {list(self.checkpoints)}")
        return self._replay(chosen, stack, pieces, stack_num is not None)

    def fill(self, replay: Any, *, steps: int | None = None, **options: Any) -> int:
        """Adds steps to a replay buffer; see :meth:`Dataset.fill`. ``options``: those of :meth:`replay`."""
        from parl.datasets.buffers import fill

        return fill(self, replay, steps, options)

    def _replay(self, chosen: Sequence[int], stack: int, pieces: int, stacked: bool) -> Iterator[Rows]:
        for number in chosen:
            columns = {name: _Reader(self._file(name, number)).read() for name in _COLUMNS[1:]}
            lengths = {name: len(column) for name, column in columns.items()}
            pictures = _Reader(self._file("observation", number))
            if len({*lengths.values(), pictures.shape[0]}) > 1:
                raise DatasetError(
                    f"{self.path}: the files of checkpoint {number} have {pictures.shape[0]} observations "
                    f"and {lengths}"
                )
            ended = columns["terminal"].astype(bool)
            episodes = np.cumsum(ended) - ended
            used = columns["action"].astype(bool) | columns["reward"].astype(bool) | ended
            tail = len(used) - int(used[::-1].argmax()) if used.any() else 0
            for block in self._blocks(pictures, ended, number, stack, tail):
                yield from _pieces(block, columns, ended, episodes, stack, pieces, stacked)

    def _blocks(
        self, reader: _Reader, ended: NDArray[np.bool_], number: int, stack: int, tail: int
    ) -> Iterator[_Block]:
        """The pictures of a checkpoint, with those before each block that its stacks need.

        From row ``tail`` on all other columns are 0: blank rows there are the unused end of the file.
        """
        count, kept, first = len(ended), np.zeros((0, *reader.shape[1:]), np.uint8), -1
        # The first rows of a log that goes on from another file have no whole stacks.
        whole = 0
        for at in range(0, count, _BLOCK):
            pictures = np.concatenate([kept, reader.rows(min(_BLOCK, count - at))])
            start = at - len(kept)
            firsts = np.full(len(pictures), -1, np.int64)
            last = at + len(pictures) - len(kept)
            blank = _blanks(pictures, start, ended)
            for place in range(max(0, tail - start), len(pictures)):
                blank[place] |= not pictures[place].any()
            if at == 0:
                whole = stack - 1 if number != 0 and not blank[:1].any() else 0
            for place in range(len(pictures)):
                row = start + place
                if row == 0 or ended[row - 1]:
                    first = row
                if blank[place]:
                    first = row + 1
                firsts[place] = -1 if blank[place] or row < whole else first
            # A step needs the picture after it, unless it ends an episode.
            begin = at - 1 if at else 0
            yield _Block(pictures, start, begin, last if last == count else last - 1, firsts)
            kept = pictures[-(stack + 1) :]


def _blanks(pictures: NDArray[np.uint8], start: int, ended: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """(n,) bool, the blank rows before an episode."""
    found = np.zeros(len(pictures), bool)
    begins = np.nonzero(ended[start : start + len(pictures)])[0] + 1
    begins = [*([0] if start == 0 else []), *begins.tolist()]
    if start > 0:
        # Episodes that began in the block before.
        before = np.nonzero(ended[max(0, start - _BLANK) : start])[0] + max(0, start - _BLANK) + 1 - start
        begins += before.tolist()
    for begin in begins:
        for place in range(begin, min(begin + _BLANK, len(pictures))):
            if place < 0:
                continue
            if pictures[place].any():
                break
            found[place] = True
    return found


def _pieces(
    block: _Block,
    columns: Rows,
    ended: NDArray[np.bool_],
    episodes: NDArray[np.int64],
    stack: int,
    pieces: int,
    stacked: bool,
) -> Iterator[Rows]:
    """The steps of a block: one of each piece at a time."""
    places = np.arange(block.begin, block.end) - block.start
    rows = places + block.start
    steps = block.first[places] >= 0
    # The last row of a file, and rows whose next one is blank, have no next observation.
    following = np.minimum(places + 1, len(block.pictures) - 1)
    has_next = ended[rows] | ((following > places) & (block.first[following] >= 0))
    places = places[steps & has_next]
    length = -(-len(places) // pieces)
    if length == 0:
        return
    parts = [places[at : at + length] for at in range(0, len(places), length)]
    for step in range(length):
        at = np.array([part[step] for part in parts if step < len(part)])
        ids = np.array([i for i, part in enumerate(parts) if step < len(part)])
        last = np.array([step + 1 == len(part) for part in parts if step < len(part)])
        row = at + block.start
        over = ended[row]
        obs = _stacks(block, at, stack)
        following = obs.copy()
        on = np.nonzero(~over)[0]
        following[on] = _stacks(block, at[on] + 1, stack)
        yield {
            "observation": obs if stacked else obs[:, 0],
            "action": columns["action"][row].astype(np.int64),
            "reward": columns["reward"][row].astype(np.float32),
            "next_observation": following if stacked else following[:, 0],
            "terminated": over,
            "truncated": last & ~over,
            "episode": episodes[row],
            "step": row - block.first[at],
            "env_id": ids,
        }


def _stacks(block: _Block, at: NDArray[np.int64], stack: int) -> NDArray[np.uint8]:
    """Stacks (B, stack, ...) whose newest pictures are those at the places ``at``."""
    wanted = at[:, None] - np.arange(stack - 1, -1, -1)
    found = block.pictures[np.maximum(wanted, 0)]
    found[wanted + block.start < block.first[at][:, None]] = 0
    return found


def game_of(path: Path) -> str | None:
    """Id of the game whose name is the last such part of a path, or None."""
    for part in reversed(path.resolve().parts):
        try:
            return game_id(part)
        except ValueError:
            continue
    return None


class _Reader:
    """An array in a file that gzip compressed, read from its start.

    Raises:
        DatasetError: the file is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = gzip.open(path)
        try:
            version = np.lib.format.read_magic(self._file)
            header = np.lib.format.read_array_header_1_0 if version == (1, 0) else None
            header = header or np.lib.format.read_array_header_2_0
            self.shape, self._fortran, self._dtype = header(self._file)
        except (ValueError, EOFError, OSError, zlib.error) as error:
            raise DatasetError(f"{path} is damaged: {error}") from None
        if self._fortran or self._dtype.hasobject or not self.shape:
            raise DatasetError(
                f"{path} has an array of {self._dtype} and shape {self.shape} that is not read"
            )

    def rows(self, count: int) -> NDArray[Any]:
        """The next ``count`` rows."""
        size = int(np.prod(self.shape[1:], dtype=np.int64)) * self._dtype.itemsize * count
        try:
            data = self._file.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise DatasetError(f"{self._path} is damaged: {error}") from None
        if len(data) != size:
            raise DatasetError(f"{self._path} is damaged: it ends within its rows")
        return np.frombuffer(data, self._dtype).reshape(count, *self.shape[1:])

    def read(self) -> NDArray[Any]:
        """All rows."""
        found = self.rows(self.shape[0])
        self._file.close()
        return found
