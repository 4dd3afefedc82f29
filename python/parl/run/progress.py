"""Progress of a run: a live line with rich on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

_PLAIN_EVERY_S = 5.0


def _format_value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)


class Progress:
    """Displays the progress of a run on standard error.

    Args:
        total_steps: environment steps of the whole run.
        start: environment steps done before, in a resumed run.
        quiet: whether to display nothing.

    ``update(env_steps, **fields)`` sets the position and the fields shown after it, such as
    ``env_steps_per_s``, ``updates_per_s``, ``replay_ratio``, ``episode_return`` and ``policy_lag``.
    """

    def __init__(self, total_steps: int, start: int = 0, quiet: bool = False) -> None:
        self._total = total_steps
        self._bar: Any = None
        self._last_line = 0.0
        self._quiet = quiet
        if quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._bar = RichProgress(
            TextColumn("{task.completed:,}/{task.total:,} steps"),
            BarColumn(bar_width=20),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[fields]}"),
            console=Console(stderr=True),
        )
        self._task = self._bar.add_task("run", total=total_steps, completed=start, fields="")
        self._bar.start()

    def update(self, env_steps: int, **fields: Any) -> None:
        """Displays the number of steps and further values by name; None is left out."""
        if self._quiet:
            return
        text = "  ".join(
            f"{name.replace('_', ' ')} {_format_value(value)}"
            for name, value in fields.items()
            if value is not None
        )
        if self._bar is not None:
            self._bar.update(self._task, completed=env_steps, fields=text)
            return
        now = time.monotonic()
        if now - self._last_line >= _PLAIN_EVERY_S or env_steps >= self._total:
            self._last_line = now
            self.print_line(f"{env_steps:,}/{self._total:,} steps  {text}")

    def print_line(self, text: str) -> None:
        """Prints a line above the progress, on standard error."""
        if self._quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            sys.stderr.write(text + "\n")
            sys.stderr.flush()

    def close(self) -> None:
        """Ends the display; a second call does nothing."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
            self._quiet = True

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
