"""A few trials of ``damage.py``: damaged files are refused, or can be used without a fault."""

from __future__ import annotations

import pathlib
import tempfile
from collections.abc import Iterator

import damage
import pytest


@pytest.fixture(scope="module")
def folder() -> Iterator[pathlib.Path]:
    with tempfile.TemporaryDirectory(dir=damage.MEMORY) as made:
        yield pathlib.Path(made)


@pytest.fixture(scope="module")
def samples(folder: pathlib.Path) -> pathlib.Path:
    damage.make_samples(folder)
    return folder


@pytest.mark.parametrize("kind", damage.KINDS)
def test_damaged_files_are_refused_or_used_without_a_fault(folder, samples, kind):
    outcomes = {seed: damage.trial(kind, seed, samples, folder) for seed in range(10**6, 10**6 + 15)}
    faults = {seed: found for seed, found in outcomes.items() if found.split(":")[0] in damage.FAULTS}
    assert not faults


@pytest.mark.parametrize(
    ("kind", "words", "reason"),
    [
        # Words of the ring: reserved, marked, cleared.
        ("saved", {0: 2**60}, "it numbers its rows 0..1152921504606846976, beyond"),
        ("saved", {0: 2**40}, "rows do not fit"),
        ("saved", {1: 7}, "rows do not fit 7 marked"),
        ("saved", {2: 0}, r"rows do not fit \d+ marked and 0 cleared chunks"),
        # Counters: the largest weight, the first row.
        ("saved", {5 + 2: 2**31}, r"its largest weight 2147483648 is outside 1 to "),
        ("saved", {5 + 7: 10**6}, "it numbers its rows 1000000.."),
        # The tail of environment 0: number of incomplete rows, newest row.
        ("saved", {37 + 1: 9}, "environment 0 has 9 rows waiting"),
        ("saved", {37 + 2: 2**32 + 5000}, r"environment 0 names slot 5000 of 42"),
    ],
)
def test_errors_name_inconsistent_counts(tmp_path, samples, kind, words, reason):
    data = bytearray((samples / f"{kind}-steps").read_bytes())
    start = damage.HEAD_WORDS * 8 + damage.word(data, 2)
    for at, value in words.items():
        data[start + 8 * at : start + 8 * at + 8] = value.to_bytes(8, "little")
    data[-8:] = damage.checksum(bytes(data[:-8])).to_bytes(8, "little")
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(damage.parl.errors.ReplayFileError, match=reason):
        damage.parl.PrioritizedReplay.load(path)


def test_the_checksum_equals_that_of_the_rust_core(samples):
    data = (samples / "saved-steps").read_bytes()
    assert damage.checksum(data[:-8]) == int.from_bytes(data[-8:], "little")
