"""Progress of a run on terminals of several widths, in a notebook and in a file."""

import fcntl
import math
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import types

import pytest

from parl.run import Progress
from parl.run.progress import duration, progress_line

VALUES = {
    "policy_lag": 1.25,
    "replay_ratio": 0.987,
    "updates_per_s": 1234.5,
    "env_steps_per_s": 1_234_567.8,
    "episode_return": -12_345.67,
    "eta_s": 45_296.0,
    "percent": 41.2,
    "bar": 0.5,
    "position": "4,120,000/10,000,000 steps",
}
BAR = "█" * 10 + "░" * 10


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (59, "return -12,345.7  1,234,568 steps/s  ETA 12:34:56  41 %"),
        (79, f"return -12,345.7  1,234,568 steps/s  ETA 12:34:56  41 %  {BAR}"),
        (
            119,
            f"return -12,345.7  1,234,568 steps/s  ETA 12:34:56  41 %  {BAR}  4,120,000/10,000,000 steps",
        ),
        (
            math.inf,
            f"return -12,345.7  1,234,568 steps/s  ETA 12:34:56  41 %  {BAR}  4,120,000/10,000,000 steps"
            "  1,234 updates/s  replay ratio 0.99  policy lag 1.2",
        ),
    ],
)
def test_the_return_comes_first_and_fields_that_do_not_fit_are_left_out(width, line):
    assert progress_line(VALUES, width) == line
    assert len(line) <= width


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_numbers_that_are_not_finite_are_not_printed(value):
    assert progress_line(dict.fromkeys(VALUES, value), math.inf) == "return -  ETA -"


def test_durations_have_hours_minutes_and_seconds():
    assert [duration(seconds) for seconds in (0, 59.6, 3_723, 360_000)] == [
        "0:00:00",
        "0:01:00",
        "1:02:03",
        "100:00:00",
    ]


SCRIPT = """
from parl.run import Progress

with Progress(10_000_000) as progress:
    progress.print_line("a sentence")
    for step in (1_000_000, 4_120_000):
        values = {"updates_per_s": 1e3, "policy_lag": float("nan"), "episode_return": 195.3}
        progress.update(step, env_steps_per_s=1234567.8, **values)
    progress.print_line("another sentence")
"""


def shown_on_terminal(width):
    """What the script writes to a terminal of so many columns."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment | {"TERM": "xterm"},
    )
    os.close(theirs)
    received = b""
    try:
        while part := os.read(ours, 65536):
            received += part
    except OSError:  # the end of a terminal's output on Linux
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return received.decode()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_wraps_on_a_terminal(width):
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown_on_terminal(width))
    lines = [line for line in re.split(r"[\r\n]+", text) if line]
    assert "a sentence" in lines and "another sentence" in lines
    last = [line for line in lines if line.startswith("return ")][-1]
    assert last.startswith("return 195.3  1,234,568 steps/s  ETA 0:00:0")
    assert max(map(len, lines)) < width
    assert ("4,120,000/10,000,000 steps" in last) == (width == 120)
    assert "nan" not in text


def test_plain_lines_where_there_is_no_terminal(capsys):
    with Progress(1_000_000) as progress:
        progress.update(10, env_steps_per_s=1234.5, episode_return=None)
        progress.update(1_000_000, policy_lag=2)
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"return -  1,234 steps/s  ETA \d+:\d\d:\d\d  10/1,000,000 steps", first)
    assert last == "return -  1,234 steps/s  ETA 0:00:00  1,000,000/1,000,000 steps  policy lag 2.0"


def test_details_are_printed_on_request_and_nothing_if_quiet(capsys):
    for quiet, verbose in ((False, False), (False, True), (True, True)):
        with Progress(10, quiet=quiet, verbose=verbose) as progress:
            progress.print_line("line")
            progress.print_detail("detail")
            progress.update(10)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["line", "return", "line", "detail", "return"]


def test_a_notebook_shows_a_bar(monkeypatch, capsys):
    """IPython's interface as a kernel offers it; the package is not a dependency."""
    shown = []

    class Cell:
        update = staticmethod(shown.append)

    def display(page, display_id):
        shown.append(page)
        return Cell()

    module, displays = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    module.get_ipython = lambda: types.SimpleNamespace(kernel=object())
    displays.display, displays.HTML = display, str
    monkeypatch.setitem(sys.modules, "IPython", module)
    monkeypatch.setitem(sys.modules, "IPython.display", displays)
    with Progress(100) as progress:
        progress.print_line("a sentence")
        progress.update(25, episode_return=9.0)
        progress.update(100, episode_return=10.0)
    assert shown[-1].startswith(
        '<progress value="1.0" max="1"></progress> return 10.0  ETA 0:00:00  100/100 steps'
    )
    assert '<progress value="0.25"' in shown[0]
    assert capsys.readouterr() == ("a sentence\n", "")


UNREAD = """
from parl.run import Progress

with Progress(10_000_000) as progress:
    progress.update(1_000_000)
    input()
    for step in (4_120_000, 10_000_000):
        progress.update(step)
        progress.print_line("a sentence")
print("done")
"""


@pytest.mark.parametrize("opened", [os.pipe, pty.openpty])
def test_a_run_goes_on_when_nothing_reads_its_progress(opened):
    ours, theirs = opened()
    process = subprocess.Popen(
        [sys.executable, "-c", UNREAD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm"},
        text=True,
    )
    os.close(theirs)
    received = b""
    while b"return" not in received:
        received += os.read(ours, 65536)
    os.close(ours)
    assert process.communicate("\n", timeout=60)[0] == "done\n"
