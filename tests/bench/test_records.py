"""`benches/record.py` and `benches/report.py`: the contents of records, and the pages made from them."""

import dataclasses
import importlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def record(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benches"))
    return importlib.import_module("record")


@pytest.fixture
def report(record):
    return importlib.import_module("report")


def row(record, **changed):
    cells = dict(
        claim="claim", case="pong", library="parl", metric="frames per second", unit="frames/s", median="10",
        machine="a machine", commit=record.UNKNOWN_COMMIT, command="make bench",
    )  # fmt: skip
    return record.Row(**(cells | changed))


@pytest.fixture
def tree(report, monkeypatch, tmp_path):
    """A repository with one record and the pages made from it."""
    folder = tmp_path / "records"
    folder.mkdir()
    (tmp_path / "claims.toml").write_text(
        'not_measured = ["a GPU"]\n'
        '[overview]\nkey = "overview"\ntitle = "All"\nfrom = "claim"\nplot = ["frames per second"]\n'
        '[[section]]\ntitle = "Speed"\n'
        '[[claim]]\nkey = "claim"\ntitle = "Frames"\ntext = "Text."\nplot = ["speed ratio"]\n'
    )
    for name, value in (
        ("ROOT", tmp_path), ("FOLDER", folder), ("CLAIMS", tmp_path / "claims.toml"),
        ("PAGE", tmp_path / "page.md"), ("FIGURES", tmp_path / "figures"), ("INDEX", folder / "README.md"),
    ):  # fmt: skip
        monkeypatch.setattr(report, name, value)
    record = importlib.import_module("record")
    peer = dict(peer="ale-py", version="0.12", metric="speed ratio", unit="x")
    ratio = row(record, **peer, median="2.5", low="2", high="3", spread="range", bar=">= 3", seeds="3")
    record.save(
        folder / "2026-01-02-speed.csv",
        [row(record, seeds="3"), row(record, library="ale-py", version="0.12", median="4", seeds="3"), ratio],
    )
    (folder / "2026-01-02-speed.md").write_text("# Speed\n\nOne line.\n")
    report.write(report.load())
    return tmp_path


def test_a_row_is_read_as_it_was_written(record, tmp_path):
    rows = [row(record, case='a, "b"', median="9.80"), row(record, low="9", high="11", spread="range")]
    record.save(tmp_path / "r.csv", rows)
    assert record.read(tmp_path / "r.csv") == rows


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"median": ""}, "median is empty"),
        ({"median": "fast"}, "median is 'fast', not a number"),
        ({"commit": ""}, "commit is empty"),
        ({"seeds": "many"}, "seeds is 'many', not a number"),
        ({"low": "9"}, "low, high and spread go together"),
        ({"low": "9", "high": "11", "spread": "guess"}, "spread is 'guess'"),
        ({"bar": "5"}, "bar is '5'"),
        ({"metric": "speed ratio"}, "a ratio names its peer"),
    ],
)
def test_a_wrong_cell_is_named_with_its_line(record, tmp_path, changed, says):
    record.save(tmp_path / "r.csv", [row(record), row(record, **changed)])
    with pytest.raises(ValueError, match=re.escape(f"r.csv:3: {says}")):
        record.read(tmp_path / "r.csv")


def test_unknown_columns_are_refused(record, tmp_path):
    (tmp_path / "r.csv").write_text("claim,case\na,b\n")
    with pytest.raises(ValueError, match="columns are"):
        record.read(tmp_path / "r.csv")


def test_a_record_holds_medians_spreads_command_and_conditions(record, tmp_path, monkeypatch):
    monkeypatch.setattr(record.sys, "argv", [str(ROOT / "benches/x.py"), "--record", "speed", "--seeds", "3"])
    kept = record.Record("speed", "Speed", conditions="one core")
    kept.add("claim", "pong", "steps per second", "steps/s", [3.0, 1.0, 2.0], seeds=3)
    kept.add("claim", "pong", "speed ratio", "x", [1.0, 2.0, 3.0, 4.0], spread="quartiles", peer="gym")
    kept.add("claim", "pong", "score", "return", 1234.5678)
    path = kept.write(tmp_path)
    steps, ratio, score = record.read(path)
    assert (steps.median, steps.low, steps.high, steps.spread) == ("2", "1", "3", "range")
    assert (ratio.median, ratio.low, ratio.high) == ("2.5", "1.25", "3.75")
    assert (score.median, score.low, score.spread) == ("1235", "", "")
    assert steps.command == "python benches/x.py --seeds 3"
    assert (steps.conditions, steps.seeds) == ("one core", "3")
    assert path.with_suffix(".md").read_text() == "# Speed\n"


def test_a_second_run_of_a_command_replaces_only_its_rows(record, tmp_path):
    for name, value in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        kept = record.Record("speed")
        kept.add(name, "pong", "steps per second", "steps/s", value)
        path = kept.write(tmp_path)
    assert [(one.claim, one.median) for one in record.read(path)] == [("b", "2"), ("a", "3")]


def test_pages_are_made_from_the_records(tree, report):
    page = (tree / "page.md").read_text()
    assert "## Speed\n\n### Frames\n\nText." in page
    assert "| case | library | frames per second, frames/s | speed ratio |" in page
    assert "| pong | ale-py (0.12) | 4 | 2.5x (2 to 3), bar >= 3 **missed** |" in page
    assert "All rows: 3 seeds." in page
    assert "- a GPU" in page
    assert "`make bench` on a machine; commit not recorded" in page
    assert (tree / "figures" / "claim.svg").exists()
    assert "ale-py 0.12" in (tree / "figures" / "overview.svg").read_text()
    assert "| 2026-01-02 | [Speed](2026-01-02-speed.md)" in (tree / "records" / "README.md").read_text()
    assert report.problems(report.load()) == []


def test_a_plot_is_drawn_again_only_if_its_data_changed(tree, report):
    figure, other = tree / "figures" / "claim.svg", tree / "records" / "2026-01-02-speed.csv"
    figure.write_text(figure.read_text().replace("<svg", "<svg id='kept'", 1))
    report.write(report.load())
    assert "id='kept'" in figure.read_text()
    other.write_text(other.read_text().replace(",2.5,", ",2.6,"))
    assert [line.split()[0] for line in report.problems(report.load())] == ["page.md", "figures/claim.svg"]
    report.write(report.load())
    assert "id='kept'" not in figure.read_text()
    assert report.problems(report.load()) == []


def test_stale_and_unknown_files_are_reported(tree, report, record):
    records = tree / "records"
    (tree / "figures" / "old.svg").write_text("")
    (tree / "page.md").write_text("by hand\n")
    record.save(records / "2026-01-03-more.csv", [row(record, claim="unknown")])
    (records / "2026-01-03-more.md").write_text("# More\n")
    found = "\n".join(report.problems(report.load()))
    assert "claim unknown is not in claims.toml" in found
    assert "old.svg belongs to no claim" in found
    assert "page.md is not what the records give" in found
    (records / "2026-01-03-more.md").write_text("# More\n" + "line\n" * 11)
    with pytest.raises(ValueError, match="at most 10 lines"):
        report.load()
    (records / "2026-01-03-more.md").unlink()
    with pytest.raises(ValueError, match=r"a \.csv and a \.md"):
        report.load()


def test_a_claim_that_shows_only_older_records_is_reported(tree, report, record):
    claims = tree / "claims.toml"
    older = claims.read_text() + 'records = ["2026-01-02-speed"]\n'
    record.save(
        tree / "records" / "2026-01-03-speed.csv", record.read(tree / "records" / "2026-01-02-speed.csv")
    )
    (tree / "records" / "2026-01-03-speed.md").write_text("# Speed again\n")
    for text, expected in (
        (older, ["claims.toml: claim claim does not show 2026-01-03-speed, the newest record with it"]),
        (older.replace("-02-", "-03-"), []),
    ):
        claims.write_text(text)
        report.write(report.load())
        assert report.problems(report.load()) == expected


def test_a_commit_must_be_in_the_history(tree, report, record):
    def git(*words):
        return subprocess.run(
            ["git", "-C", str(tree), *words], check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    git(*who, "commit", "-q", "--allow-empty", "-m", "first")
    rows = {
        "r": [
            row(record, commit=commit)
            for commit in (
                git("rev-parse", "--short", "HEAD").strip() + "+",
                "123abcd (not in history)",
                "456abcd",
            )
        ]
    }
    assert [line.split(" is not")[0] for line in report.commits_not_in_history(rows)] == ["r: commit 456abcd"]


def test_two_rows_for_one_cell_of_a_table_are_refused(report, record):
    same = row(record)
    with pytest.raises(ValueError, match="twice"):
        report.table({"2026-01-02-a": [same, dataclasses.replace(same, median="11")]}, [], ".*")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1234567.8", "1,234,567.8"),
        ("-1234", "-1,234"),
        ("-0.7333", "-0.7333"),
        ("0.05", "0.05"),
        ("1.7e+09", "1.7e+09"),
        ("-5e-05", "-5e-05"),
    ],
)
def test_numbers_keep_their_sign_and_get_separators(report, text, shown):
    assert report.number(text) == shown


def test_pages_with_the_overview_name_the_record_that_it_is_drawn_from(report):
    """The figure is that of the record in claims.toml; the pages described older records."""
    overview = next(claim for claim in report.plotted_claims() if claim["key"] == "overview")
    for page in ("README.md", "docs/index.md"):
        caption = (ROOT / page).read_text().partition("benchmarks/overview.svg)")[2].partition("\n\n")[2]
        caption = caption.partition("\n\n")[0]
        assert re.findall(r"records/([\w-]+)\.md", caption) == overview["records"], page


def test_quartiles_of_two_values_lie_between_them(record):
    out = record.Record("speed")
    out.add("claim", "pong", "speed ratio", "x", [1.0, 2.0], spread="quartiles", peer="ale-py")
    assert 1 <= float(out.rows[0].low) <= float(out.rows[0].median) <= float(out.rows[0].high) <= 2
