"""Generates the index of ``benches/records``, ``docs/benchmarks.md`` and its figures from the records.

    python benches/report.py            # write them: `make records`
    python benches/report.py --check    # fail if one of them is out of date: part of `make lint`

``benches/claims.toml`` lists the claims in the order of the page. The description of a figure has a hash of
its data, so that the check does not depend on the version of matplotlib.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from record import FOLDER, LOST_COMMIT, ROOT, UNKNOWN_COMMIT, Row, meets, read

CLAIMS = ROOT / "benches" / "claims.toml"
PAGE = ROOT / "docs" / "benchmarks.md"
FIGURES = ROOT / "docs" / "benchmarks"
INDEX = FOLDER / "README.md"
PROSE_LINES = 10
NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-[\w-]+")
# Columns of a table with the conditions of a figure.
CONDITIONS = ("rounds", "seeds", "steps", "threads", "conditions")
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")

Records = dict[str, list[Row]]
Claim = dict[str, Any]


def load() -> Records:
    """The rows of every record, by the record's name, oldest first.

    Raises:
        ValueError: a record, its name or its prose is invalid.
    """
    records = {}
    for path in sorted(FOLDER.glob("*.csv")):
        if not NAME.fullmatch(path.stem):
            raise ValueError(f"{path.name} is not named DATE-NAME.csv")
        records[path.stem] = read(path)
    if not records:
        raise ValueError(f"no records in {FOLDER}")
    pages = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("2*.md")}
    if pages.keys() != records.keys():
        raise ValueError(f"each record is a .csv and a .md file: {sorted(pages.keys() ^ records.keys())}")
    for name, text in pages.items():
        title, _, prose = text.partition("\n")
        if not title.startswith("# ") or len(prose.strip().splitlines()) > PROSE_LINES:
            raise ValueError(f"{name}.md: expected a title and at most {PROSE_LINES} lines of prose")
    return records


def title(name: str) -> str:
    """The title of a record."""
    return (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def commits_not_in_history(records: Records) -> list[str]:
    """Messages about commits of records that are not in the history; none in a shallow clone."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT, check=False)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        return []
    named: dict[str, str] = {}
    for name, rows in records.items():
        for row in rows:
            if row.commit != UNKNOWN_COMMIT and LOST_COMMIT not in row.commit:
                named.setdefault(row.commit.rstrip("+"), name)
    return [
        f"{name}: commit {commit} is not in the history; write `{commit} ({LOST_COMMIT})` if it was"
        for commit, name in named.items()
        if git("merge-base", "--is-ancestor", commit, "HEAD").returncode
    ]


def claims() -> tuple[list[str | Claim], list[str]]:
    """Section titles and claims in the order of the page, and the lines about what was not measured."""
    order: list[str | Claim] = []
    text = CLAIMS.read_text(encoding="utf-8")
    table = tomllib.loads(text)
    sections, each = iter(table["section"]), iter(table["claim"])
    for kind in re.findall(r"^\[\[(\w+)\]\]", text, re.M):
        order.append(next(sections)["title"] if kind == "section" else next(each))
    return order, table["not_measured"]


def plotted_claims() -> list[Claim]:
    """The claims with a figure, and the overview, which is drawn as bars for the README."""
    overview = tomllib.loads(CLAIMS.read_text(encoding="utf-8")).get("overview", {"plot": []})
    order, _ = claims()
    return [claim for claim in (*order, overview) if not isinstance(claim, str) and claim["plot"]]


def rows_of_claim(records: Records, claim: Claim, plotted: bool = False) -> dict[str, list[Row]]:
    """The rows of a claim by record.

    The records are those that the claim names, otherwise the newest one with the claim; with ``plotted``,
    also those that it names as ``earlier``.

    Raises:
        ValueError: no record, or not every named one, has rows of the claim.
    """
    key = claim.get("from", claim["key"]) if plotted else claim["key"]
    having = {
        name: found for name, rows in records.items() if (found := [row for row in rows if row.claim == key])
    }
    names = claim.get("records", sorted(having)[-1:]) + (claim.get("earlier", []) if plotted else [])
    missing = [name for name in names if name not in having]
    if missing or not names:
        raise ValueError(f"claim {key}: no rows in {missing or 'any record'}")
    return {name: having[name] for name in names}


def number(text: str) -> str:
    """Formats a number of a record with thousands separators."""
    sign, digits = "-" if text.startswith("-") else "", text.removeprefix("-")
    whole, dot, rest = digits.partition(".")
    return sign + (f"{int(whole):,}" if whole.isdigit() else whole) + dot + rest


def format_cell(row: Row, unit: bool) -> str:
    """Median, unit and spread of a row, and whether it meets its bar."""
    sign = "x" if row.unit == "x" else f" {row.unit}" if unit else ""
    text = number(row.median) + sign
    if row.low:
        text += f" ({number(row.low)} to {number(row.high)})"
    met = meets(row)
    if met is not None:
        text += f", bar {row.bar} {'met' if met else '**missed**'}"
    return text


def library_label(row: Row, measured: set[tuple[str, str]]) -> str:
    """The library of a table's row; a ratio is put into the row of its peer if the peer has figures."""
    version = f" ({row.version})" if row.version else ""
    peer = row.peer + version
    if not row.peer:
        return row.library + version
    if row.library == "parl" and (row.case, row.peer) in measured:
        return peer
    return f"{row.library} / {peer}"


def format_count(count: str, plural: str) -> str:
    """A count and its noun, such as ``1 thread`` or ``10,000 steps``."""
    return f"{number(count)} {plural[:-1] if count == '1' else plural}"


def table(chosen_rows: dict[str, list[Row]], shown: list[str], cases: str) -> list[str]:
    """A Markdown table with a line per case and library and a column per metric."""
    rows = [
        (NAME.fullmatch(name)[1], row)
        for name, found in chosen_rows.items()
        for row in found
        if (not shown or row.metric in shown) and re.fullmatch(cases, row.case)
    ]
    measured = {(row.case, row.library) for _, row in rows}
    metrics = list(dict.fromkeys(row.metric for _, row in rows))
    units = {metric: {row.unit for _, row in rows if row.metric == metric} for metric in metrics}
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for date, row in rows:
        key = (row.case, date, library_label(row, measured), *(getattr(row, column) for column in CONDITIONS))
        cells = lines.setdefault(key, {})
        if row.metric in cells:
            raise ValueError(f"{row.claim}, {key} has {row.metric} twice")
        cells[row.metric] = format_cell(row, len(units[row.metric]) > 1)
    heads = ["case", "date", "library", *CONDITIONS]
    varying = [i for i, _ in enumerate(heads) if i == 0 or len({key[i] for key in lines}) > 1]
    first = next(iter(lines))
    # The date is that of the record listed below the table.
    alike = [
        first[i] if head in ("library", "conditions") else format_count(first[i], head)
        for i, head in enumerate(heads)
        if head != "date" and i not in varying and first[i] not in ("", "parl")
    ]
    one_unit = {metric: min(units[metric]) for metric in metrics if len(units[metric]) == 1}
    columns = [heads[i] for i in varying]
    columns += [
        metric if one_unit.get(metric, "x") == "x" else f"{metric}, {one_unit[metric]}" for metric in metrics
    ]
    out = [f"All rows: {'; '.join(alike)}.", ""] if alike else []
    out += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(varying) + "---:|" * len(metrics)]
    for key, cells in lines.items():
        values = [*(key[i] for i in varying), *(cells.get(metric, "") for metric in metrics)]
        out.append("| " + " | ".join(value.replace("|", "\\|") for value in values) + " |")
    spreads = sorted({row.spread for _, row in rows if row.spread})
    if spreads:
        out += ["", f"In brackets: {' or '.join(spreads)}."]
    return out


def sources(chosen_rows: dict[str, list[Row]]) -> list[str]:
    """The commands of the rows, with commit, machine and record."""
    found = dict.fromkeys(
        (name, row.command, row.commit, row.machine) for name, rows in chosen_rows.items() for row in rows
    )
    return [
        f"- `{command}` on {machine}; commit {commit}; [{name}](../benches/records/{name}.csv)"
        for name, command, commit, machine in found
    ]


def points(claim: Claim, records: Records) -> list[tuple[str, Row]]:
    """Series and row of each point of a claim's figure; single games instead of their median and worst."""
    rows = rows_of_claim(records, claim, plotted=True)
    found = []
    for name, mine in rows.items():
        for row in mine:
            if row.metric not in claim["plot"]:
                continue
            words = [row.metric] if len(claim["plot"]) > 1 or len(rows) == 1 else []
            words += [NAME.fullmatch(name)[1]] if len(rows) > 1 else []
            found.append((row.conditions if claim.get("from") else ", ".join(words), row))
    games = [(name, row) for name, row in found if not row.case.startswith(("median of", "worst of"))]
    if not (games or found):
        raise ValueError(f"claim {claim['key']}: nothing to plot for {claim['plot']}")
    return games or found


def label(row: Row) -> str:
    """The label of a row in a figure."""
    if row.peer:
        return (
            f"{row.case}\n{row.library} / {row.peer}" if row.library != "parl" else f"{row.case} / {row.peer}"
        )
    return f"{row.case}, {row.library}" if row.library != "parl" else row.case


def fingerprint(claim: Claim, shown_points: Iterable[tuple[str, Row]]) -> str:
    """A hash of the data of a figure."""
    shown = [
        (name, row.case, row.library, row.peer, row.metric, row.unit, row.median, row.low, row.high)
        for name, row in shown_points
    ]
    return hashlib.sha256(repr((claim["title"], claim["plot"], shown)).encode()).hexdigest()[:16]


def draw(claim: Claim, shown_points: list[tuple[str, Row]], path: Path) -> None:
    """Draws the figure of a claim and saves it."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams |= {"svg.hashsalt": claim["key"], "svg.fonttype": "none", "font.size": 8}
    from matplotlib import pyplot

    kind = draw_bars if claim["key"] == "overview" else draw_curves if claim.get("curves") else draw_points
    figure = kind(claim, shown_points)
    path.parent.mkdir(exist_ok=True)
    figure.savefig(
        path,
        bbox_inches="tight",
        metadata={"Date": None, "Description": f"data {fingerprint(claim, shown_points)}"},
    )
    pyplot.close(figure)


def draw_points(claim: Claim, shown_points: list[tuple[str, Row]]) -> Any:
    """A figure with a point per row and its spread as a line; sorted points if there are many cases."""
    from matplotlib import pyplot

    rows = [row for _, row in shown_points]
    many = len({row.case for row in rows}) > 50
    names = list(dict.fromkeys(label(row) for row in rows))
    series: dict[str, list[Row]] = {}
    for name, row in shown_points:
        series.setdefault(name, []).append(row)
    height = 3.2 if many else 0.8 + 0.22 * len(names) + 0.11 * sum("\n" in name for name in names)
    figure, axes = pyplot.subplots(figsize=(7, height))
    for at, (name, found) in enumerate(series.items()):
        values = [float(row.median) for row in found]
        color, shift = COLORS[at % len(COLORS)], 0.16 * (at - (len(series) - 1) / 2)
        if many:
            axes.plot(sorted(values), ".", color=color, label=name, markersize=4)
            continue
        places = [names.index(label(row)) + shift for row in found]
        for row, place in zip(found, places, strict=True):
            if row.low:
                axes.plot(
                    [float(row.low), float(row.high)], [place, place], color=color, linewidth=1.2, alpha=0.5
                )
        axes.plot(values, places, "o", color=color, label=name, markersize=4)
    values = [float(value) for row in rows for value in (row.median, row.low or row.median)]
    ratio = all(row.unit == "x" for row in rows)
    wide = min(values) > 0 and max(values) / min(values) > 20
    if many:
        axes.set_xlabel(f"{len({row.case for row in rows})} games, slowest first")
        axes.set_ylabel(rows[0].metric)
        axes.set_ylim(bottom=0)
        axes.axhline(1, color="0.6", linewidth=0.8)
    else:
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        metrics = ", ".join(claim["plot"])
        axes.set_xlabel(metrics if ratio else f"{metrics} ({rows[0].unit})")
        if wide:
            axes.set_xscale("log")
        elif min(values) >= 0:
            axes.set_xlim(left=0)
        if ratio:
            axes.axvline(1, color="0.6", linewidth=0.8)
    axes.grid(axis="y" if many else "x", linewidth=0.4, alpha=0.5)
    if len(series) > 1:
        axes.legend(fontsize=7)
    axes.set_title(claim["title"], fontsize=9)
    return figure


def draw_bars(claim: Claim, shown_points: list[tuple[str, Row]]) -> Any:
    """A figure with a group of bars for each case, one bar a library."""
    from matplotlib import pyplot

    rows = [row for _, row in shown_points]
    cases = list(dict.fromkeys(row.case for row in rows))
    libraries = list(dict.fromkeys((row.library, row.version) for row in rows))
    # White, because the README, which shows it, may be on a dark page.
    figure, axes = pyplot.subplots(figsize=(7, 2.6), facecolor="white")
    for at, (library, version) in enumerate(libraries):
        found = [row for row in rows if row.library == library]
        places = [cases.index(row.case) + 0.2 * (at - (len(libraries) - 1) / 2) for row in found]
        values = [float(row.median) for row in found]
        axes.bar(places, values, 0.2, color=COLORS[at % len(COLORS)], label=f"{library} {version}".strip())
    axes.set_xticks(range(len(cases)), [case.replace("_", "\n") for case in cases], fontsize=7)
    axes.set_ylabel(rows[0].unit)
    axes.set_title(claim["title"], fontsize=9)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    axes.set_axisbelow(True)
    axes.legend(fontsize=7)
    return figure


def draw_curves(claim: Claim, shown_points: list[tuple[str, Row]]) -> Any:
    """A figure with a panel for each case and a curve in it for each library.

    The claim's ``plot`` has the metrics of the two axes. Their rows with the same number of steps are a
    point; the spread of the second metric is drawn as a band.
    """
    from matplotlib import pyplot

    across, up = claim["plot"]
    rows = [row for _, row in shown_points]
    cases = list(dict.fromkeys(row.case for row in rows))
    libraries = list(dict.fromkeys(row.library for row in rows))
    lines = -(-len(cases) // 3)
    figure, panels = pyplot.subplots(lines, 3, figsize=(7.5, 1.9 * lines), squeeze=False)
    for panel, case in zip(panels.flat, cases, strict=False):
        for library in libraries:
            mine = [row for row in rows if (row.case, row.library) == (case, library)]
            times = {row.steps: float(row.median) for row in mine if row.metric == across}
            found = sorted(((times[row.steps], row) for row in mine if row.metric == up), key=lambda p: p[0])
            color = COLORS[libraries.index(library) % len(COLORS)]
            places = [place for place, _ in found]
            panel.plot(places, [float(row.median) for _, row in found], color=color, label=library)
            low, high = ([float(getattr(row, k) or row.median) for _, row in found] for k in ("low", "high"))
            panel.fill_between(places, low, high, color=color, alpha=0.2, linewidth=0)
        panel.set_xscale("log")
        panel.set_title(case, fontsize=8)
        panel.grid(linewidth=0.4, alpha=0.5)
    for panel in panels.flat[len(cases) :]:
        panel.axis("off")
    units = {row.metric: row.unit for row in rows}
    figure.supxlabel(f"{across} ({units[across]})", fontsize=8)
    figure.supylabel(up, fontsize=8)
    panels.flat[0].legend(fontsize=7)
    figure.tight_layout()
    return figure


def page(records: Records) -> str:
    """``docs/benchmarks.md``."""
    order, not_measured = claims()
    out = [
        "# Benchmarks",
        "",
        "`make records` writes this page from [benches/records](../benches/records/README.md) and "
        "`benches/claims.toml`.",
        "",
        "A speed ratio is parl's speed divided by the peer's, a time ratio parl's time divided by the "
        "peer's. Ratios are taken within a round, in which the libraries take turns, or between runs with "
        "the same seed, which take minutes and did not always take turns. A commit marked as not in the "
        "history belongs to a branch that was rewritten. All machines but that with an NVIDIA H200 are "
        "virtual, with two cores and no GPU. A *bar* is the value that was set as a goal before the "
        "measurement; after a figure it says whether the goal was met.",
        "",
        "## Not measured",
        "",
        *(f"- {line}" for line in not_measured),
    ]
    for claim in order:
        if isinstance(claim, str):
            out += ["", f"## {claim}"]
            continue
        rows = rows_of_claim(records, claim)
        out += ["", f"### {claim['title']}", "", claim["text"], ""]
        out += table(rows, claim.get("shown", []), claim.get("cases", ".*"))
        if claim["plot"]:
            out += ["", f"![{claim['title']}](benchmarks/{claim['key']}.svg)"]
        out += ["", *sources(rows | rows_of_claim(records, claim, plotted=True))]
    return "\n".join(out) + "\n"


def index(records: Records) -> str:
    """The index of the records."""
    out = [
        "# Records",
        "",
        "Results of benchmarks and of long tests, one file for a day and a subject: figures in "
        "`DATE-NAME.csv`, their conditions in words in `DATE-NAME.md`. A benchmark adds to them with "
        "`--record`; `make records` writes this list and [docs/benchmarks.md](../../docs/benchmarks.md). "
        "`benches/record.py` defines the columns.",
        "",
        "| date | record | rows | commits | machines |",
        "|---|---|---:|---|---|",
    ]
    for name, rows in sorted(records.items(), reverse=True):
        date = NAME.fullmatch(name)[1]
        commits, machines = (
            "; ".join(dict.fromkeys(getattr(row, column) for row in rows)) for column in ("commit", "machine")
        )
        link = f"[{title(name)}]({name}.md) ([data]({name}.csv))"
        out.append(f"| {date} | {link} | {len(rows):,} | {commits} | {machines} |")
    return "\n".join(out) + "\n"


def problems(records: Records) -> list[str]:
    """Messages about records with unknown claims or commits, and about files that are out of date."""
    order, _ = claims()
    wanted = [claim for claim in order if not isinstance(claim, str)]
    known = {key for claim in wanted for key in (claim["key"], claim.get("from"))}
    found = [
        f"{name}: claim {key} is not in {CLAIMS.name}"
        for name, rows in records.items()
        for key in sorted({row.claim for row in rows} - known)
    ]
    for claim in wanted:
        having = [name for name, rows in records.items() if claim["key"] in {row.claim for row in rows}]
        newest = max(having, default=None)
        if newest not in claim.get("records", [newest]):
            found.append(
                f"{CLAIMS.name}: claim {claim['key']} does not show {newest}, the newest record with it"
            )
    found += commits_not_in_history(records)
    for path, text in ((INDEX, index(records)), (PAGE, page(records))):
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            found.append(f"{path.relative_to(ROOT)} is not what the records give: make records")
    figures = {f"{claim['key']}.svg": claim for claim in plotted_claims()}
    for name, claim in figures.items():
        path = FIGURES / name
        mark = f"data {fingerprint(claim, points(claim, records))}"
        if not path.exists() or mark not in path.read_text(encoding="utf-8"):
            found.append(f"{path.relative_to(ROOT)} is not what the records give: make records")
    found += [
        f"{path.relative_to(ROOT)} belongs to no claim: remove it"
        for path in FIGURES.glob("*")
        if path.name not in figures
    ]
    return found


def write(records: Records) -> None:
    """Writes index and page, and the figures whose data have changed."""
    INDEX.write_text(index(records), encoding="utf-8")
    PAGE.write_text(page(records), encoding="utf-8")
    for claim in plotted_claims():
        path, shown_points = FIGURES / f"{claim['key']}.svg", points(claim, records)
        mark = f"data {fingerprint(claim, shown_points)}"
        if not path.exists() or mark not in path.read_text(encoding="utf-8"):
            draw(claim, shown_points, path)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail if a file is out of date")
    arguments = parser.parse_args()
    records = load()
    if not arguments.check:
        write(records)
    found = problems(records)
    for line in found:
        print(line, file=sys.stderr)
    return int(bool(found))


if __name__ == "__main__":
    raise SystemExit(main())
