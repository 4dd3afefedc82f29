"""Progress of a run: a line on a terminal that fits its width, a bar in a notebook, else plain lines."""

from __future__ import annotations

import contextlib
import html
import importlib
import math
import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

_PLAIN_EVERY_S = 5.0
_BAR = 20
# Text of each field in the order of importance; fields that do not fit are left out.
_FIELDS: dict[str, Callable[[Any], str]] = {
    "episode_return": lambda value: f"return {value:,.1f}",
    "env_steps_per_s": lambda value: f"{value:,.0f} steps/s",
    "eta_s": lambda value: f"ETA {duration(value)}",
    "percent": lambda value: f"{value:.0f} %",
    "bar": lambda value: "█" * round(value * _BAR) + "░" * (_BAR - round(value * _BAR)),
    "position": str,
    "updates_per_s": lambda value: f"{value:,.0f} updates/s",
    "replay_ratio": lambda value: f"replay ratio {value:.2f}",
    "policy_lag": lambda value: f"policy lag {value:.1f}",
}
# Shown without a value too, as a dash.
_ALWAYS = {"episode_return": "return -", "eta_s": "ETA -"}


def duration(seconds: float) -> str:
    """Formats seconds as hours, minutes and seconds: ``1:02:03``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def progress_line(values: Mapping[str, Any], width: float) -> str:
    """The fields that fit into ``width`` columns, the most important ones first.

    Args:
        values: name -> value of a field; None and numbers that are not finite have no value.
        width: number of columns; infinity for all fields.
    """
    line = ""
    for name, format_value in _FIELDS.items():
        value = values.get(name)
        missing = value is None or (isinstance(value, int | float) and not math.isfinite(value))
        text = _ALWAYS.get(name) if missing else format_value(value)
        if text is not None and len(line) + 2 * bool(line) + len(text) <= width:
            line += "  " * bool(line) + text
    return line


class Progress:
    """Displays the progress of a run on standard error, or in the output of a notebook's cell.

    Args:
        total_steps: environment steps of the whole run.
        quiet: whether to display nothing.
        verbose: whether to print details too.

    ``update(env_steps, **fields)`` sets the position and the fields, such as ``episode_return``,
    ``env_steps_per_s``, ``updates_per_s``, ``replay_ratio`` and ``policy_lag``.
    """

    def __init__(self, total_steps: int, quiet: bool = False, verbose: bool = False) -> None:
        self._total = total_steps
        self._quiet, self._verbose = quiet, verbose and not quiet
        self._is_open = False
        self._live: Any = None
        self._cell: Any = None
        self._last_line = 0.0
        # Steps and time of the first update, from which the mean speed is computed.
        self._first: tuple[int, float] | None = None
        self._values: dict[str, Any] = {}

    def _place(self, env_steps: int) -> None:
        """Sets position, bar and remaining time."""
        now = time.monotonic()
        self._first = self._first or (env_steps, now)
        done, seconds = env_steps - self._first[0], now - self._first[1]
        rate = done / seconds if done > 0 and seconds > 0 else self._values.get("env_steps_per_s")
        share = min(env_steps / self._total, 1.0)
        self._values |= {
            "eta_s": max(self._total - env_steps, 0) / rate if rate else None,
            "percent": 100 * share,
            "bar": share,
            "position": f"{env_steps:,}/{self._total:,} steps",
        }

    def __enter__(self) -> Progress:
        return self

    def _open(self) -> None:
        """Opens the display of a notebook or a terminal.

        Called by the first update: rich starts a thread, with which worker processes could not be forked.
        """
        if _in_notebook():
            self._cell = _ipython_display().display(self._bar(), display_id=True)
        elif sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            console = Console(stderr=True)
            self._live = Live(console=console, get_renderable=lambda: self._text(console.width))
            self._live.start()

    def _text(self, width: int) -> Any:
        """The line for a terminal; one column is left free, where some terminals would wrap."""
        from rich.text import Text

        return Text(progress_line(self._values, width - 1), no_wrap=True, overflow="crop")

    def _bar(self) -> Any:
        """The bar for a notebook."""
        line = html.escape(progress_line({**self._values, "bar": None, "percent": None}, math.inf))
        return _ipython_display().HTML(f'<progress value="{self._values["bar"]}" max="1"></progress> {line}')

    def update(self, env_steps: int, **fields: Any) -> None:
        """Displays the number of steps and further values by name; None is left out."""
        if self._quiet:
            return
        self._values |= fields
        self._place(env_steps)
        if not self._is_open:
            self._is_open = True
            self._open()
        if self._cell is not None:
            self._cell.update(self._bar())
        elif self._live is None:
            now = time.monotonic()
            if now - self._last_line >= _PLAIN_EVERY_S or env_steps >= self._total:
                self._last_line = now
                self.print_line(progress_line({**self._values, "bar": None, "percent": None}, math.inf))

    def print_line(self, text: str) -> None:
        """Prints a line above the progress; nothing from then on if the output cannot be written."""
        if self._quiet:
            return
        try:
            self._write(text)
        except OSError:  # Its reader has ended, or its terminal or disk is gone: the run goes on.
            self.close()

    def _write(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, highlight=False, markup=False)
        else:
            # Notebooks show standard error as if it were an error.
            stream = sys.stdout if _in_notebook() else sys.stderr
            stream.write(text + "\n")
            stream.flush()

    def print_detail(self, text: str) -> None:
        """Prints a line if the run is verbose."""
        if self._verbose:
            self.print_line(text)

    def close(self) -> None:
        """Ends the display; a second call does nothing."""
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.stop()
            self._live = None
        self._quiet = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _ipython_display() -> Any:
    """IPython's module of displays, which every kernel of a notebook has; it is no dependency of parl."""
    return importlib.import_module("IPython.display")


def _in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")
