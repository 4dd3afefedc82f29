"""Replays of a device as files: the format, and the numbers, of the CPU's, so that either loads the other's.

The format is that of ``crates/sumtree/src/replay/file.rs``, which writes the head and the checksum and checks
all of a file that is loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parl import _native
from parl.errors import ReplayFileError
from parl.replay.device import jump, structs
from parl.replay.device.structs import MAX_WEIGHT, SIZES, Strategy, Word
from parl.replay.fields import check_described

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parl.replay.device.replay import DeviceReplay

_HEAD_WORDS, _KEPT_WORDS, _COUNTERS, _VERSION = 6, 5, 32, 2
# Places of counters in a file.
_SEED, _CALLS, _LARGEST, _FIRST = 0, 1, 2, 7
_COUNTED = {
    8: Word.ADDED,
    16: Word.UPDATED,
    17: Word.STALE,
    18: Word.SATURATED,
    24: Word.SAMPLED,
    25: Word.REDRAWN,
}
# A weight that stands for "the largest so far".
_SENTINEL = 2**32 - 1
# Bytes of a column that are copied at a time.
_PIECE_BYTES = 1 << 26


def save(replay: DeviceReplay, core: _native.Replay, path: str) -> None:
    """Writes a replay at once or not at all; waits for the device.

    Args:
        replay: whose memory is written.
        core: one with its settings but for the capacity.
        path: of the file.
    """
    used = min(replay._memory.word(Word.RESERVED), replay._plan.slots)
    core.save_parts(path, replay.capacity, used, _parts(replay, used))


def _parts(replay: DeviceReplay, used: int) -> Iterator[NDArray[Any]]:
    memory, plan = replay._memory, replay._plan
    word = memory.get_words(0, structs.WORDS)
    reserved = word[Word.RESERVED]
    marked = _marked(reserved, plan.chunk)
    yield np.array([reserved, marked, marked, word[Word.READY], 0], np.uint64)
    counters = np.zeros(_COUNTERS, np.uint64)
    counters[_SEED], counters[_CALLS] = replay._seed, word[Word.CALLS]
    counters[_LARGEST], counters[_FIRST] = word[Word.LARGEST_EVER], word[Word.BEGINNING]
    for place, which in _COUNTED.items():
        counters[place] = word[which]
    yield counters
    # Those of the CPU have a lock in front.
    tails = memory.parts.view("tails", "int64").cpu().numpy().reshape(plan.num_envs, -1)
    yield np.concatenate([np.zeros((plan.num_envs, 1), np.int64), tails], 1)
    states = memory.parts.view("states", "int32")[: 4 * used].cpu().numpy().reshape(-1, 4)
    yield np.ascontiguousarray(states[:, :3])
    yield memory.level(0)[:used].cpu().numpy()
    if _has_history(plan):
        yield np.ascontiguousarray(states[:, 3])
    for name, width in replay._widths.items():
        column = replay._bytes_of(name)[: used * width]
        for start in range(0, used * width, _PIECE_BYTES):
            yield column[start : start + _PIECE_BYTES].cpu().numpy()


def _has_history(plan: structs.Replay) -> bool:
    """Whether a file says of each row how far back the one before it is."""
    return plan.frames > 1 or plan.strategy == Strategy.EPISODE


def _marked(reserved: int, chunk: int) -> int:
    """Chunks of the ring that are closed to readers: as where threads share it, one ahead of the newest."""
    return 0 if reserved == 0 else (reserved - 1) // chunk + 2


class Opened:
    """A file that has been checked, and what its replay was made with.

    Args:
        path: of the file.
        capacity: of the replay, if it shall be another one.

    Raises:
        FileNotFoundError, ReplayFileError: as :meth:`parl.PrioritizedReplay.load`.
        ValueError: it holds what a device has not.
    """

    def __init__(self, path: str, capacity: int | None) -> None:
        self._core = _native.Replay.load(path, None, capacity)
        self.settings: dict[str, Any] = self._core.settings()
        try:
            check_described(path, self.settings["fields"], [name for name, *_ in self._core.outputs()])
        except ReplayFileError:
            self.close()
            raise
        if self.settings["compression"] != "none":
            self.close()
            raise ValueError(
                f"{path} is of a replay whose compression is {self.settings['compression']!r}: "
                'device="cuda" has it not, load it with device="cpu"'
            )
        self._path, self._capacity = path, capacity

    def close(self) -> None:
        """Lets go of it."""
        self._core.close()

    def fields(self) -> dict[str, Any]:
        """As :class:`parl.PrioritizedReplay` takes them, nested as they were."""
        found: dict[str, Any] = {}
        for name, dtype, shape, _, _ in self.settings["fields"]:
            *outer, last = name.split("/")
            at = found
            for part in outer:
                at = at.setdefault(part, {})
            at[last] = (tuple(shape), dtype)
        return found

    def put_into(self, replay: DeviceReplay) -> None:
        """Fills a replay of these settings."""
        head = np.fromfile(self._path, "<u8", _HEAD_WORDS)
        with tempfile.TemporaryDirectory() as folder:
            path = self._path
            if self._capacity not in (None, _capacity_in(path, int(head[2]))) or int(head[1]) != _VERSION:
                # As rows lie in the ring that this replay has, or in this version of the format.
                path = str(Path(folder) / "replay.bin")
                self._core.save(path)
            self._core.close()
            _restore(replay, path)


def _capacity_in(path: str, settings_bytes: int) -> int:
    with Path(path).open("rb") as file:
        file.seek(8 * _HEAD_WORDS)
        text = file.read(settings_bytes).decode()
    return int(next(line.split(" ")[1] for line in text.splitlines() if line.startswith("capacity ")))


def _restore(replay: DeviceReplay, path: str) -> None:
    memory, plan = replay._memory, replay._plan
    data = np.memmap(path, np.uint8, "r")
    _, _, settings_bytes, used = data[: 8 * 4].view("<u8").tolist()
    at = 8 * _HEAD_WORDS + settings_bytes

    def take(count: int, dtype: str) -> NDArray[Any]:
        nonlocal at
        start, at = at, at + count * np.dtype(dtype).itemsize
        return np.frombuffer(data[start:at].tobytes(), dtype)

    kept, counters = take(_KEPT_WORDS, "<u8").tolist(), take(_COUNTERS, "<u8").tolist()
    stride = 3 + plan.window_rows
    tails = take(plan.num_envs * stride, "<i8").reshape(-1, stride)[:, 1:]
    states = np.zeros((used, 4), np.uint32)
    states[:, :3] = take(3 * used, "<u4").reshape(-1, 3)
    weights = take(used, "<u4")
    if _has_history(plan):
        states[:, 3] = take(used, "<u4")
    # The CPU's trees of smaller fan-out hold larger weights.
    parked = states[:, 2]
    parked[(parked > MAX_WEIGHT) & (parked != _SENTINEL)] = MAX_WEIGHT
    beyond = int((weights > MAX_WEIGHT).sum())
    weights = np.minimum(weights, np.uint32(MAX_WEIGHT))

    torch = replay._place.torch

    def put(name: str, values: NDArray[Any], dtype: str) -> None:
        flat = np.ascontiguousarray(values).reshape(-1).view(dtype)
        memory.parts.view(name, dtype)[: len(flat)].copy_(torch.from_numpy(flat.copy()))

    put("tails", tails, "int64")
    put("states", states, "int32")
    put("level0", weights, "int32")
    memory.add_up()
    for name, width in replay._widths.items():
        column = replay._bytes_of(name)
        for start in range(0, used * width, _PIECE_BYTES):
            end = min(start + _PIECE_BYTES, used * width)
            column[start:end].copy_(torch.from_numpy(np.array(data[at + start : at + end])))
        at += used * width

    word = [0] * structs.WORDS
    reserved = kept[0]
    marked, chunks = _marked(reserved, plan.chunk), plan.slots // plan.chunk
    word[Word.RESERVED], word[Word.READY] = reserved, kept[3]
    word[Word.HORIZON] = max(marked - chunks, 0) * plan.chunk
    word[Word.NEWEST_LAP] = max(marked * plan.chunk - 1, 0) // plan.slots
    word[Word.CALLS], word[Word.BEGINNING] = counters[_CALLS], counters[_FIRST]
    word[Word.LARGEST_EVER] = min(counters[_LARGEST], MAX_WEIGHT)
    for place, which in _COUNTED.items():
        word[which] = counters[place]
    word[Word.SATURATED] += beyond
    word[Word.GENERATOR] = jump.first_number(counters[_SEED])
    # Significant bits of each weight: exact, weights have fewer than a double has.
    bits = np.frexp(weights.astype(np.float64))[1]
    sizes = np.bincount(bits, minlength=SIZES)
    word[Word.HISTOGRAM + 1 : Word.HISTOGRAM + SIZES] = sizes[1:].tolist()
    memory.set_words(0, word)
    replay._seed = counters[_SEED]
