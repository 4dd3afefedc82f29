"""The file of a dataset: a header, a record for each episode, and an index at the end.

::

    "parl-act"  version u32  length u32  header (JSON)  CRC-32 u32
    for each episode:  length u32  CRC-32 u32  record
    index: (position u64, steps u32, end u8, return i32) for each episode
    position of the index u64  number of episodes u64  CRC-32 of the index and of these two u32  "parl-end"

A record is the seed i64, the number of steps u32, the end u8, the encoding of the actions u8, the number of
steps between two checkpoints u16, the return i32 and the bytes of the actions u32; then a hash u64 for each
interval of steps and one for the rest, the actions, and groups of checkpoints, each with its length u32. All
numbers are little-endian. In version 1 the checkpoints are in another form, and are not read.

A file is written under a temporary name, each record at once, and renamed when its index is complete: a file
with the final name is whole. :func:`scan_records` reads what a recording that was killed has left.
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from parl.datasets import checkpoints
from parl.datasets.actions import decode_actions, encode_actions
from parl.errors import DatasetError

MAGIC, END_MAGIC = b"parl-act", b"parl-end"
VERSION = 2
ENDS: tuple[Literal["terminated", "truncated", "cut"], ...] = ("terminated", "truncated", "cut")
PART_SUFFIX = ".part"
"""Added to the name of a file while it is written."""

INTERVAL = 1_000
"""Steps between two hashes of an episode."""
# Bytes of a step without the header of the file, at most, in files whose episodes have 150 steps on average.
_MOST_PER_STEP = 1.03
_START = struct.Struct("<8sII")
_FRAME = struct.Struct("<II")
_RECORD = struct.Struct("<qIBBHiI")
_TRAILER = struct.Struct("<QQI8s")
_CRC = struct.Struct("<I")
_INDEX = np.dtype([("position", "<u8"), ("steps", "<u4"), ("end", "u1"), ("episode_return", "<i4")])


def _plain(value: Any) -> Any:
    """A number or a dtype of numpy as JSON has it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    raise TypeError(f"{value!r} of {type(value).__name__} cannot be a part of a dataset's header")


class EpisodeInfo(NamedTuple):
    """What the index says of an episode.

    Attributes:
        number: place in the dataset.
        steps: number of steps.
        episode_return: sum of its rewards before clipping.
        end: ``"terminated"``, ``"truncated"``, or ``"cut"`` where the recording ended before the episode.
    """

    number: int
    steps: int
    episode_return: int
    end: Literal["terminated", "truncated", "cut"]


@dataclass
class Episode:
    """What a record holds: a whole game from a seeded reset on, or the part of it that was recorded."""

    seed: int
    actions: NDArray[np.uint8]
    end: int
    """Index into :data:`ENDS`."""
    episode_return: int
    hashes: list[int]
    spacing: int = 0
    """Steps between two checkpoints; 0: there is none."""
    checkpoints: bytes = b""

    @property
    def num_checkpoints(self) -> int:
        """Number of checkpoints."""
        return checkpoints.count_of(len(self.actions), self.spacing)


def encode_record(
    episode: Episode,
    num_actions: int,
    compress: bool,
    cores: list[NDArray[np.uint8]] | None = None,
    reference: NDArray[np.uint8] | None = None,
    spare: float = 0.0,
) -> bytes:
    """The bytes of an episode's record.

    Args:
        episode: what to write.
        num_actions: number of actions of the game.
        compress: whether actions are compressed where that makes them smaller.
        cores: what its checkpoints are made of, see :func:`parl.datasets.checkpoints.pack`; None: they are
            those of ``episode``.
        reference: likewise.
        spare: number of bytes that earlier episodes of the file have left for checkpoints.
    """
    encoding, actions = encode_actions(episode.actions, num_actions, compress)
    spacing, packed = episode.spacing, episode.checkpoints
    if cores and reference is not None:
        fixed = _FRAME.size + _RECORD.size + 8 * len(episode.hashes) + len(actions) + _INDEX.itemsize
        budget = spare + _MOST_PER_STEP * len(episode.actions) - fixed
        spacing, packed = checkpoints.pack(cores, reference, budget)
    parts = [
        _RECORD.pack(
            episode.seed,
            len(episode.actions),
            episode.end,
            encoding,
            spacing,
            episode.episode_return,
            len(actions),
        ),
        np.array(episode.hashes, "<u8").tobytes(),
        actions,
        packed,
    ]
    return b"".join(parts)


def decode_record(record: bytes, num_actions: int, interval: int, version: int = VERSION) -> Episode:
    """The episode of a record.

    Raises:
        ValueError: the record is not one of an episode, although its checksum may be right.
    """
    try:
        seed, steps, end, encoding, spacing, total, size = _RECORD.unpack_from(record)
        at = _RECORD.size
        hashes = np.frombuffer(record, "<u8", -(-steps // interval), at)
        at += hashes.nbytes
        actions = decode_actions(encoding, record[at : at + size], steps, num_actions)
        at += size
    except struct.error as error:
        raise ValueError(str(error)) from None
    if at > len(record) or end >= len(ENDS):
        raise ValueError(f"{len(record)} bytes and end {end}, expected {at} bytes and an end below 3")
    packed = record[at:]
    if version < VERSION:
        spacing, packed = 0, b""
    checkpoints.check(packed, checkpoints.count_of(steps, spacing))
    return Episode(seed, actions, end, total, hashes.tolist(), spacing, packed)


class Writer:
    """Writes a dataset; a file with the final name appears with :meth:`finish`.

    Args:
        path: the file.
        header: values that JSON can hold, among them ``actions``, the console's code of each action.
        compress: whether actions are compressed where that makes them smaller.
        overwrite: whether an existing file is replaced.

    Raises:
        FileExistsError: the file exists; or one with ``.part`` at the end, from a recording that was killed.
    """

    def __init__(
        self, path: str | Path, header: dict[str, Any], *, compress: bool = False, overwrite: bool = False
    ) -> None:
        self.path = Path(path)
        self._part = self.path.with_name(self.path.name + PART_SUFFIX)
        if not overwrite:
            if self.path.exists():
                raise FileExistsError(f"{self.path} exists already: choose another name, or overwrite it")
            if self._part.exists():
                raise FileExistsError(
                    f"{self._part} exists: a recording is running, or was killed; parl dataset recover keeps "
                    "its episodes, or remove it"
                )
        self._num_actions, self._compress = len(header["actions"]), compress
        self._index: list[tuple[int, int, int, int]] = []
        # Bytes by which the episodes so far are below the limit.
        self._spare = 0.0
        text = json.dumps(header, default=_plain).encode()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._part.open("wb")
        start = _START.pack(MAGIC, VERSION, len(text)) + text
        self._write(start + _CRC.pack(zlib.crc32(start)))

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        # Given to the operating system, which keeps it if this process is killed.
        self._file.flush()

    def add(
        self,
        episode: Episode,
        cores: list[NDArray[np.uint8]] | None = None,
        reference: NDArray[np.uint8] | None = None,
    ) -> None:
        """Appends an episode; further arguments as of :func:`encode_record`."""
        spare = max(0.0, self._spare)
        record = encode_record(episode, self._num_actions, self._compress, cores, reference, spare)
        self.add_record(record, episode)

    def add_record(self, record: bytes, episode: Episode) -> None:
        """Appends the record of ``episode`` as it is."""
        position, steps = self._file.tell(), len(episode.actions)
        self._index.append((position, steps, episode.end, episode.episode_return))
        self._spare += _MOST_PER_STEP * steps - len(record) - _FRAME.size - _INDEX.itemsize
        length = struct.pack("<I", len(record))
        self._write(length + _CRC.pack(zlib.crc32(length + record)) + record)

    def finish(self) -> Path:
        """Writes the index and gives the file its name; returns the path."""
        position = self._file.tell()
        index = np.array(self._index, _INDEX).tobytes()
        counts = struct.pack("<QQ", position, len(self._index))
        self._write(index + counts + _CRC.pack(zlib.crc32(index + counts)) + END_MAGIC)
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, self.path)
        return self.path

    def close(self) -> None:
        """Closes a file that is not finished; its records stay under the temporary name."""
        self._file.close()

    def discard(self) -> None:
        """Closes and removes a file that is not finished."""
        self._file.close()
        self._part.unlink(missing_ok=True)


def read_header(path: Path) -> tuple[dict[str, Any], int, int]:
    """The header of a file, the position of its first record, and the version of its format.

    Raises:
        FileNotFoundError: there is no such file.
        DatasetError: the file is not a dataset, is damaged or was written by a newer version.
    """
    with path.open("rb") as file:
        start = file.read(_START.size)
        if len(start) < _START.size or start[: len(MAGIC)] != MAGIC:
            raise DatasetError(f"{path} is not a dataset: it does not begin with {MAGIC.decode()!r}")
        _, version, length = _START.unpack(start)
        if version > VERSION:
            raise DatasetError(f"{path} has format version {version}, this parl reads up to {VERSION}")
        rest = file.read(length + _CRC.size) if length <= path.stat().st_size else b""
    if len(rest) != length + _CRC.size or _CRC.unpack(rest[length:])[0] != zlib.crc32(start + rest[:length]):
        raise DatasetError(f"{path} is damaged: its header is incomplete or does not fit its checksum")
    try:
        header = json.loads(rest[:length])
    except ValueError as error:
        raise DatasetError(f"{path} is damaged: its header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise DatasetError(f"{path} is damaged: its header is {type(header).__name__}, expected a table")
    return header, _START.size + length + _CRC.size, version


def read_index(path: Path, first_record: int) -> NDArray[Any]:
    """The index of a file, one row of :data:`_INDEX` for each episode.

    Raises:
        DatasetError: the file is unfinished, cut off or damaged.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - _TRAILER.size, 0))
        trailer = file.read(_TRAILER.size)
        if len(trailer) < _TRAILER.size or trailer[-len(END_MAGIC) :] != END_MAGIC:
            raise DatasetError(
                f"{path} is unfinished or cut off: it has no index; parl dataset recover keeps its whole "
                "episodes"
            )
        position, count, crc, _ = _TRAILER.unpack(trailer)
        if not first_record <= position <= size or position + count * _INDEX.itemsize + _TRAILER.size != size:
            raise DatasetError(f"{path} is damaged: its index is not where its end says")
        file.seek(position)
        index = file.read(count * _INDEX.itemsize)
    if zlib.crc32(index + trailer[:16]) != crc:
        raise DatasetError(f"{path} is damaged: its index does not fit its checksum")
    found = np.frombuffer(index, _INDEX)
    if (found["end"] >= len(ENDS)).any():
        raise DatasetError(f"{path} is damaged: its index has an end of an episode that does not exist")
    return found


def read_record(path: Path, position: int, what: str) -> bytes:
    """The record of an episode.

    Raises:
        DatasetError: the record is damaged; the message names the file and ``what``.
    """
    with path.open("rb") as file:
        file.seek(position)
        found = _framed(file.read(_FRAME.size), file, path.stat().st_size)
    if found is None:
        raise DatasetError(f"{path} is damaged: the record of {what} does not fit its checksum")
    return found


def _framed(frame: bytes, file: Any, size: int) -> bytes | None:
    """The record after ``frame``; None if it is incomplete or damaged."""
    if len(frame) < _FRAME.size:
        return None
    length, crc = _FRAME.unpack(frame)
    record: bytes = file.read(length) if length <= size else b""
    return record if len(record) == length and zlib.crc32(frame[:4] + record) == crc else None


def scan_records(path: Path, first_record: int) -> Iterator[bytes]:
    """The records of a file without index, up to the first one that is incomplete or damaged."""
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(first_record)
        while (record := _framed(file.read(_FRAME.size), file, size)) is not None:
            yield record
