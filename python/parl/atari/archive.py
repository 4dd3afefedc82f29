"""A collection of environments' states in which equal states are stored once."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from parl import _native
from parl._system import write_atomically
from parl.errors import AtariError

_EQUAL = ("console", "all")
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    RuntimeError,
)
"""What NumPy and zipfile raise for files of something else, and for damaged ones."""


class StateArchive:
    """States of ``parl.AtariVectorEnv``, each with a number, in which equal states are one.

    Two states are equal if their consoles are: processor, memory, video, cartridge, and the game's score,
    lives and end. Frame counters, the last inputs, random generators and images are not compared. Equal
    consoles continue alike under equal actions, apart from sticky actions and limits on frames and steps. Of
    equal states the first one is kept. They are found by hash, and compared byte by byte.

    Args:
        equal: ``"console"``; or ``"all"``: every byte must be equal, generators, counters and images
            included.

    Raises:
        AtariError: ``equal`` is neither.

    Examples:
        >>> import numpy as np
        >>> import parl
        >>> envs = parl.AtariVectorEnv("breakout", num_envs=1, obs_type="ram", stack_num=None)
        >>> obs, info = envs.reset(seed=0)
        >>> archive = parl.atari.StateArchive()
        >>> archive.add(envs.get_state())
        (array([0]), array([ True]))
        >>> result = envs.branch(envs.get_state(), np.array([[[2, 3], [3, 2], [0, 0]]]))
        >>> ids, new = archive.add(result.states[0])
        >>> len(archive), archive.get(ids).shape == result.states[0].shape
        (4, True)
    """

    def __init__(self, equal: Literal["console", "all"] = "console") -> None:
        if equal not in _EQUAL:
            raise AtariError(f"equal is {equal!r}, expected one of {_EQUAL}")
        self._equal = equal
        self._ids: dict[bytes, int] = {}
        # Without the zeros at their ends, which rows of different lengths differ in.
        self._rows: list[bytes] = []
        self._width = 0

    @property
    def equal(self) -> str:
        """What is compared: ``"console"`` or ``"all"``."""
        return self._equal

    def __len__(self) -> int:
        """The number of different states."""
        return len(self._rows)

    def __repr__(self) -> str:
        return f"StateArchive({self._equal!r}, {len(self)} states)"

    @property
    def nbytes(self) -> int:
        """Bytes of the states that are stored, without the keys by which they are found."""
        return sum(map(len, self._rows))

    def add(self, states: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Adds states, unless there is an equal one.

        Args:
            states: (n, S) uint8, of ``get_state`` or ``branch``; S may differ between calls.

        Returns:
            the number of each state, (n,) int64, from 0 in the order of their first addition, and whether
            this call added it, (n,) bool; of equal states in one call, the first one is new.

        Raises:
            TypeError: states have another dtype.
            AtariError: they have another shape, or a row is no state, or damaged. Nothing is added.
        """
        rows = _checked(states)
        keys = self._keys(rows)
        ids, new = np.empty(len(rows), np.int64), np.zeros(len(rows), np.bool_)
        for i, key in enumerate(keys):
            number = self._ids.setdefault(key, len(self._rows))
            if number == len(self._rows):
                self._rows.append(_stripped(rows[i]))
                new[i] = True
            ids[i] = number
        self._width = max(self._width, rows.shape[1] if len(rows) else 0)
        return ids, new

    def find(self, states: NDArray[np.uint8]) -> NDArray[np.int64]:
        """The number of the equal state of each row, -1 where there is none; adds nothing.

        Args:
            states: as for :meth:`add`.
        """
        missing = -1
        return np.array([self._ids.get(key, missing) for key in self._keys(_checked(states))], np.int64)

    def get(self, ids: NDArray[np.integer] | list[int]) -> NDArray[np.uint8]:
        """The states with these numbers, (n, S) uint8, for ``branch`` and ``set_state``.

        Args:
            ids: (n,) integers, of :meth:`add`.

        Raises:
            IndexError: there is no state with a number.
        """
        states = np.zeros((len(ids), self._width), np.uint8)
        for i, number in enumerate(ids):
            if not 0 <= number < len(self._rows):
                raise IndexError(f"state {number} is outside 0 to {len(self._rows) - 1}")
            row = self._rows[number]
            states[i, : len(row)] = np.frombuffer(row, np.uint8)
        return states

    def save(self, path: str | Path) -> None:
        """Writes the states to a compressed file of NumPy, ``.npz``; an older one is replaced at the end."""
        content = io.BytesIO()
        states = self.get(list(range(len(self))))
        np.savez_compressed(content, states=states, equal=np.array(self._equal))
        write_atomically(Path(path), content.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> StateArchive:
        """Reads what :meth:`save` wrote; the states have the same numbers.

        Raises:
            AtariError: the file holds something else, or is damaged.
        """
        content = io.BytesIO(Path(path).read_bytes())
        try:
            with np.load(content, allow_pickle=False) as arrays:
                equal, states = str(arrays["equal"]), arrays["states"]
        except UNREADABLE as error:
            raise AtariError(f"{path} is not the file of a StateArchive: {error}") from None
        archive = cls(equal)  # pyright: ignore[reportArgumentType]
        if not archive.add(states)[1].all():
            raise AtariError(f"{path} holds equal states")
        return archive

    def _keys(self, rows: NDArray[np.uint8]) -> list[bytes]:
        consoles = _native.console_bytes(rows)  # Also for "all": it checks the rows.
        if self._equal == "all":
            return [_stripped(row) for row in rows]
        return [console.tobytes() for console in consoles]


def _stripped(row: NDArray[np.uint8]) -> bytes:
    return row.tobytes().rstrip(b"\0")


def _checked(states: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """States as a contiguous array."""
    array = np.ascontiguousarray(states)
    if array.dtype != np.uint8:
        raise TypeError(f"states have dtype {array.dtype}, expected uint8")
    if array.ndim != 2:
        raise AtariError(f"states have shape {array.shape}, expected (n, S): rows of get_state")
    return array
