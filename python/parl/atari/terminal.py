"""Images and keys in a text terminal: two pixels per character, arrow keys, a status line.

A terminal reports when a key is pressed but not when it is released, so that a key counts as held for a
moment after its last byte. Terminals with the kitty keyboard protocol report both; it is used where it is
supported.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from parl.errors import ConfigError

HOLD_S = 0.22
"""Seconds for which a key counts as held after its last byte; longer than the interval of key repeat."""
TV_ASPECT = 4 / 3
_HALF_BLOCK = "\u2580"
# ESC [ or ESC O, an optional code, modifiers and event kind, a final letter.
_SEQUENCE = re.compile(rb"\x1b[\[O](\d*)(?:;(\d*)(?::(\d))?)?([A-Za-z~])")
_BEGINNING = re.compile(rb"\x1b[\[O][\d;:]{0,12}")
_ARROWS = {b"A": "up", b"B": "down", b"C": "right", b"D": "left"}
_RELEASE = 3
_CONTROL = 4


def resample(picture: NDArray[np.uint8], height: int, width: int) -> NDArray[np.uint8]:
    """Resizes an image: the mean of the pixels under each target pixel, or the nearest pixel when enlarging.

    Args:
        picture: (H, W, C) uint8.
        height: rows of the result.
        width: columns of the result.

    Returns:
        (height, width, C) uint8.
    """
    sums = picture.astype(np.uint32)
    counts = np.ones((height, width), np.uint32)
    for axis, target in ((0, height), (1, width)):
        source = picture.shape[axis]
        starts = np.arange(target) * source // target
        sums = np.add.reduceat(sums, starts, axis=axis)
        widths = np.maximum(np.diff(starts, append=source), 1).astype(np.uint32)
        counts = counts * (widths[:, None] if axis == 0 else widths[None, :])
    return (sums // counts[..., None]).astype(np.uint8)


def fit(columns: int, rows: int) -> tuple[int, int]:
    """Width and (even) height in pixels of the largest 4:3 image for a terminal, two pixels per character."""
    width = max(2, min(columns, int(2 * rows * TV_ASPECT)))
    height = max(2, int(width / TV_ASPECT) // 2 * 2)
    return width, height


class TerminalScreen:
    """Draws images with colored half blocks; writes only the lines that have changed.

    Args:
        out: the terminal.
        columns: characters per line.
        rows: number of lines, the last one for the status.
        true_color: whether to use 24-bit colors instead of 256 colors.
    """

    def __init__(self, out: TextIO, columns: int, rows: int, *, true_color: bool) -> None:
        self._out = out
        self._true_color = true_color
        self._status = ""
        self._lines: list[str] = []
        self.width: int
        self.height: int
        self.width, self.height = fit(columns, max(1, rows - 1))

    def draw(self, rgb: NDArray[np.uint8], status: str = "") -> None:
        """Draws an image, (H, W, 3) uint8, and a line of text below it."""
        small = resample(rgb, self.height, self.width)
        if not self._true_color:
            small = (small.astype(np.uint16) * 5 + 127) // 255
        lines = [self._line(small[y].tolist(), small[y + 1].tolist()) for y in range(0, self.height, 2)]
        changed = [
            f"\x1b[{row + 1};1H{line}"
            for row, line in enumerate(lines)
            if row >= len(self._lines) or self._lines[row] != line
        ]
        if status != self._status or not self._lines:
            changed.append(f"\x1b[{len(lines) + 1};1H\x1b[K{status[: self.width]}")
        self._lines, self._status = lines, status
        if changed:
            self._out.write("".join(changed))
            self._out.flush()

    def _line(self, upper: list[list[int]], lower: list[list[int]]) -> str:
        text: list[str] = []
        front = back = None
        for top, bottom in zip(upper, lower, strict=True):
            if top != front:
                text.append(self._color(38, top))
                front = top
            if bottom != back:
                text.append(self._color(48, bottom))
                back = bottom
            text.append(_HALF_BLOCK)
        text.append("\x1b[0m")
        return "".join(text)

    def _color(self, layer: int, rgb: list[int]) -> str:
        red, green, blue = rgb
        if self._true_color:
            return f"\x1b[{layer};2;{red};{green};{blue}m"
        return f"\x1b[{layer};5;{16 + 36 * red + 6 * green + blue}m"


def screen_of_terminal() -> TerminalScreen:
    """A screen that fills the terminal of standard output, with the colors that it says it has.

    Raises:
        ConfigError: the encoding of standard output lacks the character that draws images.
    """
    encoding = sys.stdout.encoding or "utf-8"
    try:
        _HALF_BLOCK.encode(encoding)
    except UnicodeEncodeError:
        raise ConfigError(
            f"the encoding of the terminal is {encoding}, which lacks the half blocks that draw images: "
            "set PYTHONUTF8=1 if it shows UTF-8"
        ) from None
    size = shutil.get_terminal_size()
    has_true_color = os.environ.get("COLORTERM", "") in ("truecolor", "24bit")
    return TerminalScreen(sys.stdout, size.columns, size.lines, true_color=has_true_color)


class Keys:
    """Decodes the bytes of a terminal into keys that are held or were pressed.

    Names of keys are ``up``, ``down``, ``left``, ``right``, ``escape``, and the character for others (``" "``
    is the space bar), with ``ctrl+`` in front if the terminal reports it instead of sending a signal.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Key -> time until which it is held; infinity if the terminal reports releases.
        self._until: dict[str, float] = {}
        self._pressed: list[str] = []
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Decodes the bytes received since the last call, possibly none; sequences may be split anywhere."""
        if not data and self._rest == b"\x1b":
            # No byte followed, so it was the escape key and not the start of a sequence.
            self._rest = b""
            self._press("escape", self._clock() + HOLD_S)
        data, at = self._rest + data, 0
        self._rest = b""
        while at < len(data):
            match = _SEQUENCE.match(data, at)
            if match is not None:
                at = match.end()
                self._sequence(match)
            elif data[at] == 0x1B and (at + 1 == len(data) or _BEGINNING.fullmatch(data, at)):
                # The start of an incomplete sequence.
                self._rest = data[at:]
                return
            else:
                key = "escape" if data[at] == 0x1B else chr(data[at]).lower()
                self._press(key, self._clock() + HOLD_S)
                at += 1

    def held(self) -> frozenset[str]:
        """The keys that are held now."""
        now = self._clock()
        self._until = {key: until for key, until in self._until.items() if until > now}
        return frozenset(self._until)

    def pressed(self) -> list[str]:
        """The keys pressed since the last call, in order."""
        pressed, self._pressed = self._pressed, []
        return pressed

    def _press(self, key: str, until: float) -> None:
        if key not in self.held():
            self._pressed.append(key)
        self._until[key] = until

    def _sequence(self, match: re.Match[bytes]) -> None:
        number, modifiers, event, letter = match.groups()
        if letter == b"u" and number:
            key = "escape" if int(number) == 0x1B else chr(min(int(number), 0x10FFFF)).lower()
            if modifiers and (int(modifiers) - 1) & _CONTROL:
                key = "ctrl+" + key
        elif letter in _ARROWS:
            key = _ARROWS[letter]
        else:
            return
        reports_releases = event is not None or letter == b"u"
        if event is not None and int(event) == _RELEASE:
            self._until.pop(key, None)
        else:
            self._press(key, float("inf") if reports_releases else self._clock() + HOLD_S)


@contextmanager
def raw_terminal(fd: int, out: TextIO) -> Generator[Callable[[], bytes]]:
    """Context in which a terminal has no echo, line buffer or cursor and shows its alternate screen.

    Args:
        fd: file descriptor of the terminal's input.
        out: the terminal's output.

    Yields:
        A function that returns the bytes typed since its last call, without blocking.

    Raises:
        OSError: ``fd`` is not a terminal, or this system has none that Python can set up (Windows).
    """
    if sys.platform == "win32":
        raise OSError(
            "Python has no module termios on Windows, so parl cannot play in its terminal: "
            "pip install pygame-ce to play in a window"
        )
    import termios
    import tty

    try:
        before = termios.tcgetattr(fd)
    except termios.error as error:
        raise OSError(f"file descriptor {fd} is not a terminal: {error}") from error

    def read() -> bytes:
        data = b""
        while select.select([fd], [], [], 0)[0]:
            part = os.read(fd, 1024)
            if not part:
                break
            data += part
        return data

    try:
        tty.setcbreak(fd)
        # Alternate screen, no cursor, clear, and reports of key releases (kitty protocol; ignored elsewhere).
        out.write("\x1b[?1049h\x1b[?25l\x1b[2J\x1b[>11u")
        out.flush()
        yield read
    finally:
        out.write("\x1b[<u\x1b[0m\x1b[?25h\x1b[?1049l")
        out.flush()
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
