import os
import tempfile

# Numba compiles Tianshou's trees for ten seconds or more in each process; Python is enough for a few rows.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small are slower with several threads, in particular while other processes run."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def temporary_folder(tmp_path, monkeypatch):
    """Stable-Baselines3 makes a folder for the log of each training, which it does not remove."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
