"""Saving and loading of replays on a CUDA device, in the file format of replays on the CPU.

``crates/sumtree/src/replay/file.rs`` defines the format, writes header and checksum, and checks files that
are loaded.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parl import _native
from parl.errors import ReplayFileError
from parl.replay.cuda import generator, structs
from parl.replay.cuda.structs import MAX_WEIGHT, SIZES, Strategy, Word
from parl.replay.fields import check_described

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from parl.replay.cuda.replay import CudaReplay

_HEAD_WORDS, _KEPT_WORDS, _COUNTERS, _VERSION = 6, 5, 32, 2
# Positions of counters in a file.
_SEED, _CALLS, _LARGEST, _TAG, _FIRST = 0, 1, 2, 3, 7
_COUNTED = {
    8: Word.ADDED,
    16: Word.UPDATED,
    17: Word.STALE,
    18: Word.SATURATED,
    24: Word.SAMPLED,
    25: Word.REDRAWN,
}
# Weight that means "the largest priority so far".
_SENTINEL = 2**32 - 1
# Largest number of bytes copied at a time.
_PIECE_BYTES = 1 << 26


def save(replay: CudaReplay, native: _native.Replay, path: str) -> None:
    """Saves a replay to a file atomically; synchronizes.

    Args:
        replay: the replay.
        native: a native replay with the same settings except for the capacity.
        path: path of the file.
    """
    used = min(replay._memory.word(Word.RESERVED), replay._plan.slots)
    native.save_parts(path, replay.capacity, used, _parts(replay, used))


def _parts(replay: CudaReplay, used: int) -> Iterator[NDArray[Any]]:
    memory, plan = replay._memory, replay._plan
    word = memory.get_words(0, structs.WORDS)
    reserved = word[Word.RESERVED]
    marked = _marked(reserved, plan.chunk)
    yield np.array([reserved, marked, marked, word[Word.READY], 0], np.uint64)
    counters = np.zeros(_COUNTERS, np.uint64)
    counters[_SEED], counters[_CALLS] = replay._seed, word[Word.CALLS]
    counters[_LARGEST], counters[_FIRST] = word[Word.LARGEST_EVER], word[Word.FIRST_SEQUENCE]
    counters[_TAG] = plan.tag << 32
    for place, which in _COUNTED.items():
        counters[place] = word[which]
    yield counters
    # On the CPU each record starts with a lock.
    tails = memory.arena.view("tails", "int64").cpu().numpy().reshape(plan.num_envs, -1)
    yield np.concatenate([np.zeros((plan.num_envs, 1), np.int64), tails], 1)
    states = memory.arena.view("states", "int32")[: 4 * used].cpu().numpy().reshape(-1, 4)
    yield np.ascontiguousarray(states[:, :3])
    yield memory.level(0)[:used].cpu().numpy()
    if _has_history(plan):
        yield np.ascontiguousarray(states[:, 3])
    for name, width in replay._widths.items():
        column = replay._bytes_of(name)[: used * width]
        for start in range(0, used * width, _PIECE_BYTES):
            yield column[start : start + _PIECE_BYTES].cpu().numpy()


def _has_history(plan: structs.Replay) -> bool:
    """Whether the file stores the distance from each row to the previous row of its environment."""
    return plan.frames > 1 or plan.strategy == Strategy.EPISODE


def _marked(reserved: int, chunk: int) -> int:
    """Number of chunks closed to readers since the start: one more than the chunks written, as on the CPU."""
    return 0 if reserved == 0 else (reserved - 1) // chunk + 2


class ReplayFile:
    """A file of a saved replay, checked on opening.

    Args:
        path: path of the file.
        capacity: another capacity for the replay; None keeps it.

    Raises:
        FileNotFoundError, ReplayFileError: as :meth:`parl.PrioritizedReplay.load`.
        ValueError: the file has compressed rows, or was converted from stacks of frames.
    """

    def __init__(self, path: str, capacity: int | None) -> None:
        self._native = _native.Replay.load(path, None, capacity)
        self.settings: dict[str, Any] = self._native.settings()
        try:
            check_described(path, self.settings["fields"], [name for name, *_ in self._native.outputs()])
        except ReplayFileError:
            self.close()
            raise
        if self.settings["compression"] != "none":
            self.close()
            raise ValueError(
                f"{path} has compression {self.settings['compression']!r}, which "
                'device="cuda" does not support: load it with device="cpu"'
            )
        extra_rows = self.settings.pop("extra_rows")
        if extra_rows:
            self.close()
            raise ValueError(
                f"{path} has {extra_rows} extra rows, since it was converted from stacks of frames, which "
                'device="cuda" does not support: load it with device="cpu"'
            )
        self._path, self._capacity = path, capacity

    def close(self) -> None:
        """Closes the file."""
        self._native.close()

    def fields(self) -> dict[str, Any]:
        """The fields of the replay, nested, as :class:`parl.PrioritizedReplay` takes them."""
        found: dict[str, Any] = {}
        for name, dtype, shape, _, _ in self.settings["fields"]:
            *outer, last = name.split("/")
            at = found
            for part in outer:
                at = at.setdefault(part, {})
            at[last] = (tuple(shape), dtype)
        return found

    def restore(self, replay: CudaReplay) -> None:
        """Copies the contents of the file into a replay with these settings."""
        head = np.fromfile(self._path, "<u8", _HEAD_WORDS)
        with tempfile.TemporaryDirectory() as folder:
            path = self._path
            if self._capacity not in (None, _capacity_in(path, int(head[2]))) or int(head[1]) != _VERSION:
                # Converts the rows to the replay's ring and to the current version of the format.
                path = str(Path(folder) / "replay.bin")
                self._native.save(path)
            self._native.close()
            _restore(replay, path)


def _capacity_in(path: str, settings_bytes: int) -> int:
    with Path(path).open("rb") as file:
        file.seek(8 * _HEAD_WORDS)
        text = file.read(settings_bytes).decode()
    return int(next(line.split(" ")[1] for line in text.splitlines() if line.startswith("capacity ")))


def _restore(replay: CudaReplay, path: str) -> None:
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
    # Trees of smaller fan-out on the CPU can hold larger weights.
    parked = states[:, 2]
    parked[(parked > MAX_WEIGHT) & (parked != _SENTINEL)] = MAX_WEIGHT
    beyond = int((weights > MAX_WEIGHT).sum())
    weights = np.minimum(weights, np.uint32(MAX_WEIGHT))

    torch = replay._cuda.torch

    def put(name: str, values: NDArray[Any], dtype: str) -> None:
        flat = np.ascontiguousarray(values).reshape(-1).view(dtype)
        memory.arena.view(name, dtype)[: len(flat)].copy_(torch.from_numpy(flat.copy()))

    put("tails", tails, "int64")
    put("states", states, "int32")
    put("level0", weights, "int32")
    memory.rebuild_sums()
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
    word[Word.CALLS], word[Word.FIRST_SEQUENCE] = counters[_CALLS], counters[_FIRST]
    word[Word.LARGEST_EVER] = min(counters[_LARGEST], MAX_WEIGHT)
    for place, which in _COUNTED.items():
        word[which] = counters[place]
    word[Word.SATURATED] += beyond
    word[Word.GENERATOR] = generator.first_number(counters[_SEED])
    # Number of significant bits of each weight; exact, because a weight fits into a double.
    bits = np.frexp(weights.astype(np.float64))[1]
    sizes = np.bincount(bits, minlength=SIZES)
    word[Word.HISTOGRAM + 1 : Word.HISTOGRAM + SIZES] = sizes[1:].tolist()
    memory.set_words(0, word)
    replay._seed, plan.tag = counters[_SEED], counters[_TAG] >> 32
