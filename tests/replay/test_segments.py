"""Segments that other users can open, or that are damaged, are refused; new segments are private."""

from __future__ import annotations

import stat
from pathlib import Path

import numpy as np
import pytest

import parl

FIELDS = {"x": ((3,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}
REFUSED = parl.errors.SharedMemoryError


@pytest.fixture
def segment(name):
    """Name, file and initial bytes of a replay in shared memory."""
    with parl.PrioritizedReplay(64, FIELDS, shared=name, num_envs=2) as replay:
        place = Path("/dev/shm") / name
        yield name, place, bytearray(place.read_bytes())
        assert replay.sampleable == 0


def test_segments_are_private(segment):
    name, place, _ = segment
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    for mode in (0o640, 0o606):
        place.chmod(mode)
        with pytest.raises(REFUSED, match=f"{name}.*it has mode {mode:03o}, so other users can open it"):
            parl.PrioritizedReplay.attach(name)
    place.chmod(0o600)
    parl.PrioritizedReplay.attach(name).close()


def test_a_symbolic_link_is_not_followed(segment):
    name, place, _ = segment
    link = place.with_name(name + "-link")
    link.symlink_to(place)
    try:
        with pytest.raises(REFUSED, match=link.name):
            parl.PrioritizedReplay.attach(link.name)
    finally:
        link.unlink()


def copied(place: Path, data: bytes) -> str:
    other = place.with_name(place.name + "-copy")
    other.touch(mode=0o600)
    other.write_bytes(data)
    return other.name


def test_segments_of_the_wrong_size_are_refused(segment):
    _, place, whole = segment
    for data in (whole[:-64], whole + bytes(64), whole[:128], whole[:100]):
        copy = copied(place, bytes(data))
        try:
            with pytest.raises(REFUSED, match=f"{copy}.*bytes"):
                parl.PrioritizedReplay.attach(copy)
        finally:
            (place.with_name(copy)).unlink()


def test_a_segment_with_a_damaged_header_is_refused(segment):
    """Flips one bit of the first words, which describe the segment, or of the settings."""
    _, place, whole = segment
    end = whole.index(b"capacity")
    settings = len(whole[end : whole.index(b"\x00", end)])
    words = [at for word in (0, 1, 2, 3) for at in range(8 * word, 8 * word + 8)]
    rng = np.random.default_rng(1)
    for at in [*words, *rng.integers(end, end + settings, 60).tolist()]:
        data = bytearray(whole)
        data[at] ^= 1 << int(rng.integers(8))
        if data[:8] == bytes(8):
            continue
        copy = copied(place, bytes(data))
        try:
            with pytest.raises(REFUSED, match=copy):
                parl.PrioritizedReplay.attach(copy)
        finally:
            (place.with_name(copy)).unlink()


def test_the_last_close_removes_the_segment(name):
    first = parl.PrioritizedReplay(10, FIELDS, shared=name)
    second = parl.PrioritizedReplay.attach(name)
    second.close()
    assert (Path("/dev/shm") / name).exists()
    first.close()
    assert not (Path("/dev/shm") / name).exists()
