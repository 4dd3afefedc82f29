"""Locks, processes and the machine's memory, as the operating system has them."""

import os
import subprocess
import sys

import pytest

from parl import _system


def test_a_lock_excludes_others_until_it_is_released(tmp_path):
    path = tmp_path / "lock"
    with path.open("w") as one, path.open("r+") as two:
        _system.lock(one.fileno())
        with pytest.raises(BlockingIOError):
            _system.lock(two.fileno(), shared=True)
        _system.unlock(one.fileno())
        _system.lock(two.fileno(), wait=True)
        with pytest.raises(BlockingIOError):
            _system.lock(one.fileno())


def test_one_process_at_a_time_is_in_a_locked_folder(tmp_path):
    code = (
        "import sys, pathlib; from parl import _system; print('begun', flush=True)\n"
        "with _system.locked_folder(pathlib.Path(sys.argv[1])): print('inside', flush=True)"
    )
    with _system.locked_folder(tmp_path):
        other = subprocess.Popen([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, text=True)
        assert other.stdout.readline() == "begun\n"
        with pytest.raises(subprocess.TimeoutExpired):
            other.wait(0.5)
    assert other.communicate()[0] == "inside\n"


def test_a_process_exists_until_it_has_ended():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert _system.process_exists(child.pid) and _system.process_exists(os.getpid())
    child.communicate(b"\n")
    assert not _system.process_exists(child.pid)


def test_the_machine_has_memory_and_cores():
    assert 1 << 28 < _system.machine_bytes() < 1 << 50
    assert 1 <= _system.usable_cores() <= os.cpu_count()
