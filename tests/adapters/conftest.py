import os
import tempfile

# Numba compiles Tianshou's trees for ten seconds or more in each process; Python is enough for a few rows.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

import pytest


@pytest.fixture(autouse=True)
def use_one_thread(one_thread):
    pass


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Stable-Baselines3 makes a folder for the log of each training, which it does not remove."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
