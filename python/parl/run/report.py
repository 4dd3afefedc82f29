"""A report of a run: settings, curves, scores and a video in one HTML page that refers to no other file."""

from __future__ import annotations

import base64
import html
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from parl.errors import ConfigError
from parl.run.directory import RunDirectory
from parl.run.listing import ListedRun, listed
from parl.run.metrics import read_metrics
from parl.run.plot import curve, learning_curves

LARGEST_VIDEO_BYTES = 8 << 20
"""A video that is larger is not embedded in a report."""

_MEDIA = {".mp4": "video/mp4", ".gif": "image/gif", ".png": "image/png"}
# Drawn in the first figure.
_RETURNS = ("episode_return", "evaluation_return", "env_steps", "wall_time_s")
_COLUMNS = 3
_STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 0.5rem 0; }
td, th { border-bottom: 1px solid #ddd; padding: 0.15rem 0.8rem 0.15rem 0; text-align: left; }
svg, video, img { max-width: 100%; height: auto; }
code { overflow-wrap: anywhere; }
"""


def write_report(path: str | Path, out: str | Path | None = None) -> Path:
    """Writes a page with the settings, curves and scores of a run, and its newest video if it is small.

    Args:
        path: the run directory.
        out: HTML file to write; by default ``report.html`` in the run directory.

    Returns:
        The file.

    Raises:
        ConfigError: matplotlib is not installed.
        FileNotFoundError: there is no run.
        RunDirectoryError: the folder is not a run directory, or a file in it is damaged.
    """
    run = RunDirectory.open(path)
    about, config = run.about, run.config
    records = read_metrics(run.path) if run.metrics.exists() else []
    one = listed(run.path)
    out = Path(out) if out is not None else run.path / "report.html"
    title = html.escape(f"{run.path.resolve().name}: {config['algorithm']} on {config['run']['env']}")
    sections = [
        ("Result", _table(_facts(one, about.get("command")))),
        ("Scores", _scores(run, records)),
        ("Learning curves", _curves(run, records)),
        ("Video", _video(run)),
        *((f"Settings: {name}", _table(table.items())) for name, table in _tables(config)),
        ("Versions and machine", _table({**about["versions"], **about.get("machine", {})}.items())),
    ]
    body = "\n".join(f"<h2>{html.escape(head)}</h2>\n{text}" for head, text in sections if text)
    page = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{title}</title>\n'
        f"<style>\n{_STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{body}\n</body>\n</html>\n"
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(page, encoding="utf-8")
    return out


def _facts(one: ListedRun, command: Sequence[str] | None) -> list[tuple[str, Any]]:
    return [
        ("state", one.state),
        ("score, the mean return of the last evaluation", one.score),
        ("mean return of the last training episodes", one.episode_return),
        ("transitions", one.steps),
        ("seconds of training", one.time_s),
        ("started", one.created),
        ("command", None if command is None else " ".join(command)),
    ]


def _tables(config: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]]:
    return [(name, table) for name, table in config.items() if isinstance(table, Mapping)]


def _shown(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def _table(rows: Iterable[Sequence[Any]], head: Sequence[str] = ()) -> str:
    """An HTML table; values that are None are left out."""
    lines = ["<tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in head) + "</tr>"] if head else []
    for row in rows:
        if row[-1] is not None:
            cells = "".join(f"<td>{html.escape(_shown(cell))}</td>" for cell in row)
            lines.append(f"<tr>{cells}</tr>")
    return "<table>\n" + "\n".join(lines) + "\n</table>"


def _scores(run: RunDirectory, records: Sequence[Mapping[str, Any]]) -> str:
    """Evaluations of the run and of ``parl eval``, with their protocols."""
    head = ("evaluation", "mean return", "standard deviation", "episodes", "protocol")
    rows = [
        (
            f"after {record['env_steps']:,} steps",
            record["evaluation_return"],
            record.get("evaluation_return_std"),
            record.get("evaluation_episodes"),
            record.get("protocol", ""),
        )
        for record in records
        if record.get("evaluation_return") is not None
    ]
    path = run.path / "evaluations.jsonl"
    for one in read_metrics(path) if path.exists() else ():  # without a line that a full disk has cut
        name = f"parl eval, {one['checkpoint']} checkpoint, seed {one['seed']}"
        rows.append((name, one["mean"], one["std"], one["episodes"], one["protocol"]))
    return _table(rows, head) if rows else ""


def _svg(figure: Any) -> str:
    """A figure of matplotlib as an SVG element, without the header of an XML file."""
    from matplotlib import rc_context

    file = io.StringIO()
    with rc_context({"svg.fonttype": "none"}):  # text as text, in the page's fonts
        figure.savefig(file, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    text = file.getvalue()
    return text[text.index("<svg") :]


def _curves(run: RunDirectory, records: Sequence[dict[str, Any]]) -> str:
    """Returns over steps and time, then every other number over steps."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a report needs matplotlib: pip install 'parl-rl[plot]'") from error
    parts: list[str] = []
    if any(record.get("episode_return") is not None for record in records):
        parts.append(_svg(learning_curves([run.path], "episode_return", bands=False)))
    curves = {key: curve(records, "env_steps", key) for key in _numbers(records)}
    curves = {key: points for key, points in curves.items() if len(points[0]) > 1}
    if curves:
        rows = math.ceil(len(curves) / _COLUMNS)
        figure = Figure(figsize=(11, 2.2 * rows), layout="constrained")
        axes = figure.subplots(rows, _COLUMNS, squeeze=False).ravel()
        for axis, (key, points) in zip(axes, curves.items(), strict=False):
            axis.plot(*points, linewidth=1.2)
            axis.set_title(key.replace("_", " "), fontsize="medium")
            axis.grid(alpha=0.3)
        for axis in axes[len(curves) :]:
            axis.set_axis_off()
        parts.append(f"<p>Over environment steps:</p>\n{_svg(figure)}")
    return "\n".join(parts)


def _numbers(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys of the numbers in the records of training, in order of their first appearance."""
    found: dict[str, None] = {}
    for record in records:
        if "evaluation_return" not in record:
            found |= dict.fromkeys(key for key, value in record.items() if isinstance(value, int | float))
    return [key for key in found if key not in (*_RETURNS, "resumed")]


def _video(run: RunDirectory) -> str:
    """The newest video or picture of the run that is not too large."""
    files = [path for path in (run.path / "videos").glob("*") if path.suffix in _MEDIA]
    files = [path for path in files if path.stat().st_size <= LARGEST_VIDEO_BYTES]
    if not files:
        return ""
    path = max(files, key=lambda path: path.stat().st_mtime)
    data = base64.b64encode(path.read_bytes()).decode()
    source = f"data:{_MEDIA[path.suffix]};base64,{data}"
    if path.suffix == ".mp4":
        return f'<video controls src="{source}"></video>'
    return f'<img alt="{html.escape(path.name)}" src="{source}">'
