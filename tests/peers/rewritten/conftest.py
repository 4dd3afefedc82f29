import pytest
import torch


@pytest.fixture(autouse=True)
def one_thread():
    """Networks this small are slower with more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
