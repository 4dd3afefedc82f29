"""Markdown pages: links and paths exist, and the README's figures are those of the records."""

import csv
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT, capture_output=True, text=True, check=True,
).stdout.splitlines()  # fmt: skip
PAGES = [ROOT / name for name in FILES if name.endswith(".md") and (ROOT / name).exists()]
LINK = re.compile(r"(?<!`)\[[^\]]*\]\(([^)\s]+)\)")
# A ratio, seconds, or an end of a range.
FIGURE = re.compile(r"(?<![\d.,])(\d[\d,]*(?:\.\d+)?)(?=x\b| s\b| to \d|\))")


RECORDS = ROOT / "benches" / "records"  # a record keeps the paths of its day


def name_of(page):
    return str(page.relative_to(ROOT))


def prose(page):
    """Returns the text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors(page):
    """Returns the names that GitHub gives a page's headings as link targets."""
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def broken(page):
    """Returns links of a page to files or headings that do not exist."""
    found = []
    for target in LINK.findall(prose(page)):
        if re.match(r"(https?|mailto):", target):
            continue
        name, _, anchor = target.partition("#")
        path = page.parent / name if name else page
        if not path.exists() or (anchor and anchor not in anchors(path)):
            found.append(target)
    return found


def test_there_are_pages():
    assert {"README.md", "CONTRIBUTING.md", "glossary.md", "benchmarks.md"} <= {page.name for page in PAGES}


def test_a_broken_link_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# A heading\n[a](#a-heading) [b](#gone) [c](gone.md) [d](page.md) `[e](f.md)`\n")
    assert broken(page) == ["#gone", "gone.md"]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_have_targets(page):
    assert broken(page) == []


def absent(page):
    """Returns paths in a page's code that exist neither in this repository nor in one of its crates."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    named = re.findall(r"`((?:crates|python|tests|benches|docs|xtask|examples)/[\w./-]+)", text)
    names = [name.rstrip("./") for name in dict.fromkeys(named)]
    places = [f"/{file}/" for file in FILES if file.startswith("crates/")]
    return [
        name
        for name in names
        if not (ROOT / name).exists() and not any(f"/{name}/" in place for place in places)
    ]


def test_an_absent_path_is_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "`docs/glossary.md`, `crates/sumtree/src/gone.rs:12`, `docs/`, `tests/docs/test_pages.py::broken`"
    )
    assert absent(page) == ["crates/sumtree/src/gone.rs"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != RECORDS], ids=name_of)
def test_paths_exist(page):
    assert absent(page) == []


def recorded(names):
    """Returns the figures of some records, and for each time ratio also the speed ratio, its inverse."""
    values = []
    for name in names:
        with (ROOT / "benches" / "records" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                found = [float(row[column]) for column in ("median", "low", "high") if row[column]]
                values += found
                values += [1 / value for value in found if "time ratio" in row["metric"] and value]
    return values


def unsupported(line):
    """Returns figures in a row's second cell that no figure of the records linked in the row rounds to."""
    names = re.findall(r"benches/records/([\w-]+)\.(?:md|csv)", line)
    values = recorded(dict.fromkeys(names))
    return [
        text
        for text in FIGURE.findall(line.split("|")[2])
        if not any(f"{value:.{len(text.partition('.')[2])}f}" == text.replace(",", "") for value in values)
    ]


def test_a_wrong_figure_is_found():
    line = "| 9x | 2.7x (2.6 to 9.9), 81 s [SB3](benches/records/2026-11-23-equal-cores.md) |"
    assert unsupported(line) == ["9.9", "81"]


def test_figures_of_the_readme_are_recorded():
    text = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Measured")[2].partition("\n## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    assert len(rows) >= 8
    assert [row for row in rows if "benches/records/" not in row] == []
    assert [(row, wrong) for row in rows if (wrong := unsupported(row))] == []


def test_the_index_of_decisions_is_complete():
    folder = ROOT / "docs" / "decisions"
    listed = re.findall(r"^\| (\d{4}) \| \[(.+)\]\((.+)\) \|$", (folder / "README.md").read_text(), re.M)
    pages = sorted(path for path in folder.glob("*.md") if path.name != "README.md")
    titles = [path.read_text(encoding="utf-8").partition("\n")[0] for path in pages]
    assert [f"# {number}: {title}" for number, title, _ in listed] == titles
    assert [name for *_, name in listed] == [path.name for path in pages]
    assert [path.name[:4] for path in pages] == [number for number, *_ in listed]
