"""Parts of the mutation tests that work without mutants: the interval, the state, the lists."""

import json
from pathlib import Path

import pytest
import records


def test_wilson_intervals_equal_published_ones():
    # Figures of Newcombe (1998), table I: 81 of 263, 15 of 148, 0 of 20.
    assert records.wilson(81, 263) == pytest.approx((0.2553, 0.3662), abs=1e-4)
    assert records.wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert records.wilson(0, 20) == pytest.approx((0.0, 0.1611), abs=1e-4)
    assert records.wilson(0, 0) == (0.0, 1.0)


def test_a_later_run_reads_the_last_outcome_of_each_mutant(tmp_path):
    path = tmp_path / "mutants" / "ops.jsonl"
    state = records.State(path)
    state.add("a", records.Outcome("survived", "no test", 0.5))
    state.add("a", records.Outcome("killed", "test_a", 1.0))
    assert records.State(path).outcomes == {"a": records.Outcome("killed", "test_a", 1.0)}
    assert (
        len(path.read_text().splitlines()) == 2 and json.loads(path.read_text().splitlines()[0])["key"] == "a"
    )


def test_equal_changes_of_equal_lines_are_told_apart(tmp_path):
    lines = ["def f():", "    return 1", "def g():", "    return 1"]
    mutants = []
    for index in (1, 3):
        nth = records.nth_of_its_text(lines, index)
        key = records.keyed(nth, "a.py", "NumberReplacer", "return 1", "return 2")
        mutants.append(
            records.Mutant(key, "ops", "a.py", index + 1, nth, "NumberReplacer", "return 1", "return 2", "")
        )
    assert [mutant.nth for mutant in mutants] == [1, 2]
    assert mutants[0].key != mutants[1].key
    entry = '[[survivor]]\nfile = "a.py"\nbefore = "return 1"\nafter = "return 2"\nreason = "g is unused."\n'
    (tmp_path / "accepted.toml").write_text(f"{entry}nth = 2\n")
    accepted = records.Accepted(tmp_path / "accepted.toml")
    assert [accepted.reason(mutant) for mutant in mutants] == [None, "g is unused."]


def test_every_accepted_survivor_is_in_the_code_and_has_a_reason(tmp_path):
    here, root = Path(__file__).parent, Path(__file__).parents[2]
    accepted = records.Accepted(here / "accepted.toml")
    for file in accepted.excluded:
        assert (root / file).is_file(), file
    for file, before, _, nth in accepted.survivors:
        lines = [line.strip() for line in (root / file).read_text().splitlines()]
        found = lines.count(before) >= nth or f" {before} " in " ".join(lines)  # one line, or several
        assert found, f"{file} has no line {before!r}, or not {nth} of them"
    (tmp_path / "accepted.toml").write_text('[[exclude]]\nfile = "a.py"\nreason = " "\n')
    with pytest.raises(ValueError, match="every entry needs a reason"):
        records.Accepted(tmp_path / "accepted.toml")
