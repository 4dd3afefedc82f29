import os

# Tianshou compiles its trees for ten seconds and more in each process; as Python they do for a few rows.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small are slower with more threads, most of all beside other work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
