"""save and load: a loaded replay continues identically, and damage is detected."""

from __future__ import annotations

import os

import numpy as np
import pytest
from model import fields

import parl


def filled(steps: int = 150, **options) -> parl.PrioritizedReplay:
    buffer = parl.PrioritizedReplay(400, fields(), n_step=3, num_envs=4, seed=9, **options)
    add_and_sample(buffer, steps, np.random.default_rng(0))
    return buffer


def add_and_sample(
    buffer: parl.PrioritizedReplay, steps: int, rng: np.random.Generator
) -> list[parl.replay.Batch]:
    batches = []
    for _ in range(steps):
        buffer.add(
            obs=rng.random(4, np.float32),
            action=rng.integers(0, 9, 4),
            reward=rng.random(4, np.float32),
            terminated=rng.random(4) < 0.1,
            truncated=rng.random(4) < 0.1,
        )
        if buffer.sampleable:
            batches.append(buffer.sample(16))
            buffer.update_priorities(batches[-1].tickets, rng.random(16))
    return batches


def test_the_settings_of_a_replay_are_a_copy():
    buffer = filled(2)
    buffer.settings["fields"].clear()
    assert buffer.settings["fields"]
    buffer.sample(2)


@pytest.mark.parametrize("steps", [0, 2, 30, 150, 700])
def test_a_loaded_replay_continues_identically(tmp_path, steps):
    buffer = filled(steps)
    buffer.save(tmp_path / "replay.bin")
    loaded = parl.PrioritizedReplay.load(tmp_path / "replay.bin")
    assert loaded.settings == buffer.settings
    assert (len(loaded), loaded.sampleable, loaded.counters) == (
        len(buffer),
        buffer.sampleable,
        buffer.counters,
    )
    assert (loaded.total_priority, loaded.rng_state) == (buffer.total_priority, buffer.rng_state)
    loaded.verify()
    # Windows that were incomplete when saved are completed by rows added later.
    pairs = zip(
        add_and_sample(buffer, 60, np.random.default_rng(1)),
        add_and_sample(loaded, 60, np.random.default_rng(1)),
        strict=True,
    )
    count = 0
    for ours, theirs in pairs:
        count += 1
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name], name)
    assert count >= 50
    assert os.listdir(tmp_path) == ["replay.bin"], "no temporary file is left"


def test_saving_replaces_the_old_file_or_leaves_it(tmp_path):
    path = tmp_path / "replay.bin"
    filled(10).save(path)
    before = path.read_bytes()
    filled(20).save(path)
    assert path.read_bytes() != before
    with pytest.raises(FileNotFoundError):
        filled(1).save(tmp_path / "missing" / "replay.bin")
    assert os.listdir(tmp_path) == ["replay.bin"]


def test_every_truncation_and_every_flipped_bit_is_detected(tmp_path):
    path, bad = tmp_path / "replay.bin", tmp_path / "bad.bin"
    filled(20).save(path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    for length in [0, 1, 47, 48, 100, *rng.integers(0, len(whole), 20), len(whole) - 1]:
        bad.write_bytes(whole[:length])
        with pytest.raises(parl.errors.ReplayFileError, match=r"bad.bin is not a replay .* it has \d+ bytes"):
            parl.PrioritizedReplay.load(bad)
    bad.write_bytes(whole + b"\0")
    with pytest.raises(parl.errors.ReplayFileError, match="were written"):
        parl.PrioritizedReplay.load(bad)
    for at in [0, 8, 16, 24, 32, 40, 48, *rng.integers(0, len(whole), 150)]:
        damaged = bytearray(whole)
        damaged[at] ^= 1 << int(rng.integers(8))
        bad.write_bytes(damaged)
        with pytest.raises(parl.errors.ReplayFileError):
            parl.PrioritizedReplay.load(bad)


def test_newer_and_missing_files_raise_clear_errors(tmp_path):
    path = tmp_path / "replay.bin"
    filled(1).save(path)
    newer = bytearray(path.read_bytes())
    newer[8] = 4
    path.write_bytes(newer)
    with pytest.raises(parl.errors.ReplayFileError, match="it has version 4, the newest known here is 3"):
        parl.PrioritizedReplay.load(path)
    with pytest.raises(FileNotFoundError):
        parl.PrioritizedReplay.load(tmp_path / "none.bin")
    with pytest.raises(IsADirectoryError):
        parl.PrioritizedReplay.load(tmp_path)


def test_loading_into_shared_memory(tmp_path, name):
    buffer = filled(30)
    buffer.save(tmp_path / "replay.bin")
    with parl.PrioritizedReplay.load(tmp_path / "replay.bin", shared=name) as shared:
        attached = parl.PrioritizedReplay.attach(name)
        np.testing.assert_array_equal(attached.sample(8).obs, buffer.sample(8).obs)
        attached.close()
        assert shared.shared == name
    # After a failed load, the segment does not exist.
    damaged = bytearray((tmp_path / "replay.bin").read_bytes())
    damaged[-20] ^= 1
    (tmp_path / "replay.bin").write_bytes(damaged)
    with pytest.raises(parl.errors.ReplayFileError, match="checksum"):
        parl.PrioritizedReplay.load(tmp_path / "replay.bin", shared=name)
    assert not os.path.exists(f"/dev/shm/{name}")
