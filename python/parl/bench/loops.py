"""Training loops without a run directory, measurement of their rates, tables and figures."""

from __future__ import annotations

import importlib.util
import math
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parl.errors import ParlError
from parl.train.config import keywords
from parl.train.registry import make_algorithm, topology_of
from parl.train.settings import default_settings, replace

if TYPE_CHECKING:
    from parl.runtime.loop import Loop

_SAMPLE_S = 0.5


def make_loop(name: str, env: str, env_options: Sequence[str] = (), **options: Any) -> Loop[Any]:
    """Makes the training loop of an algorithm as ``parl train`` does, with a practically unlimited length.

    Args:
        name: name of the algorithm.
        env: Gymnasium id.
        env_options: keywords of the environment, ``"name=value"``.
        **options: settings of the run or of the algorithm.

    Raises:
        ConfigError: a setting is unknown or out of its bounds.
    """
    from parl.envs import EnvMaker, spec_of

    maker = EnvMaker(env, keywords(env_options))
    probe = maker(1)
    spec = spec_of(probe)
    probe.close()
    run, own = default_settings(name, spec)
    fields = set(vars(run))
    given = {key: value for key, value in options.items() if key in fields}
    start = {"env": env, "env_options": tuple(env_options), "total_steps": 10**9}
    run = replace(run, start | given, name)
    own = replace(own, {key: value for key, value in options.items() if key not in fields}, name)
    topology = topology_of(name)
    made = make_algorithm(name, own, spec)
    run = topology.resolve_auto(made, run, maker, spec, lambda line: None)
    return topology.loop(topology.setup(made, run, maker, spec), run, None)


def rates(loop: Loop[Any], seconds: float, warm_up_s: float = 0.0) -> dict[str, Any]:
    """Runs a loop and returns its rates.

    Args:
        loop: the training loop.
        seconds: smallest duration of the measurement.
        warm_up_s: duration of the warm-up before it.

    Returns:
        The result of ``loop.report()``, over the time of the measurement.
    """
    loop.advance(loop.env_steps + 1, 60.0)
    for limit in (warm_up_s, seconds):
        loop.report()
        end = time.monotonic() + limit
        while True:
            loop.advance(loop.env_steps + 1, 0.25)
            if time.monotonic() >= end:
                break
    return loop.report()


class GpuUtilization:
    """Context that samples the utilization of the first GPU with ``nvidia-smi``.

    Attributes:
        mean: mean fraction of time in which a kernel ran, 0..1; None if ``nvidia-smi`` is missing or fails.
    """

    def __init__(self) -> None:
        self.mean: float | None = None
        self._command = shutil.which("nvidia-smi")
        self._samples: list[float] = []
        self._stop_requested = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        assert self._command is not None
        words = [self._command, "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
        while not self._stop_requested.wait(_SAMPLE_S):
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            first = done.stdout.splitlines()[:1]
            if done.returncode == 0 and first and first[0].strip().isdigit():
                self._samples.append(int(first[0]) / 100)

    def __enter__(self) -> GpuUtilization:
        if self._command is not None:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_requested.set()
        if self._command is not None:
            self._thread.join()
        if self._samples:
            self.mean = sum(self._samples) / len(self._samples)


def table(columns: Sequence[str], rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Lines of a Markdown table; missing cells are shown as dashes."""
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" + "---:|" * (len(columns) - 1)]
    return lines + ["| " + " | ".join(row.get(name, "-") for name in columns) + " |" for row in rows]


def axes_of(width: float, height: float, panels: int = 1) -> tuple[Any, Any]:
    """A matplotlib figure of ``panels`` panels side by side, and its axes.

    Args:
        width: width in inches.
        height: height in inches.
        panels: number of panels.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot.subplots(1, panels, figsize=(width, height), squeeze=False)


def figure_line(draw: Callable[[], Path]) -> str:
    """Draws a figure, and returns the line that names its file, or says what is missing."""
    if importlib.util.find_spec("matplotlib") is None:
        return "no figure: that needs matplotlib: pip install 'parl-rl[plot]'"
    return f"figure: {draw()}"


def check_figure(out: Path) -> None:
    """Raises if ``out`` ends in no format of figures; without matplotlib, which draws none, never.

    Raises:
        ParlError: names the file and the formats.
    """
    if out.suffix and importlib.util.find_spec("matplotlib") is not None:
        from matplotlib.backend_bases import FigureCanvasBase

        formats = sorted(FigureCanvasBase.get_supported_filetypes())
        if out.suffix[1:].lower() not in formats:
            raise ParlError(f"out is {str(out)!r}, expected a name that ends in .{', .'.join(formats)}")


def check_seconds(seconds: float) -> None:
    """Raises if a duration is not above 0 and finite.

    Raises:
        ParlError: names the value.
    """
    if not 0 < seconds < math.inf:
        raise ParlError(f"seconds is {seconds}, expected more than 0 and a finite number")


def save(figure: Any, out: Path) -> Path:
    """Writes a figure to a file, closes it and returns the path; the folder is created if missing."""
    from matplotlib import pyplot

    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, bbox_inches="tight", dpi=120)
    pyplot.close(figure)
    return out
