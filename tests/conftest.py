import gc
import multiprocessing
import subprocess
from pathlib import Path

import hypothesis
import pytest

from parl.runtime.workers import PRELOAD
from times import Budget, Times


def pytest_addoption(parser):
    parser.addoption("--times", type=Path, help="write processor and wall seconds of each test to this file")
    parser.addoption("--minutes", type=float, help="skip slow tests that could end after this time")


def pytest_configure(config):
    # The first test that starts a forkserver decides what the processes of all later tests need not import.
    multiprocessing.set_forkserver_preload(PRELOAD)
    # No result depends on how busy the machine is.
    slow = [hypothesis.HealthCheck.too_slow]
    hypothesis.settings.register_profile("parl", deadline=None, suppress_health_check=slow)
    hypothesis.settings.load_profile("parl")
    path, minutes = config.getoption("--times"), config.getoption("--minutes")
    if path is not None:
        worker = hasattr(config, "workerinput")
        config.pluginmanager.register(Times(None if worker else path))
    if minutes is not None:
        command = ["git", "rev-parse", "HEAD"]
        commit = subprocess.run(command, capture_output=True, text=True, check=False, cwd=config.rootpath)
        config.pluginmanager.register(Budget(minutes, commit.stdout.strip()))


def pytest_collection_finish():
    # A search of all objects for garbage takes longer than most tests.
    gc.set_threshold(10_000, 10, 50)
    gc.freeze()


def pytest_sessionfinish():
    gc.unfreeze()  # some libraries report objects that still exist when the process ends


@pytest.fixture
def one_thread():
    """Small networks are slower with several threads of torch, in particular while other processes run."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def fake_cuda_graph(monkeypatch):
    """Replaces CUDA graphs: captured operations are recorded and replayed on the CPU."""
    import torch

    from fake_cuda_graph import FakeCapture, FakeCudaGraph
    from parl.ops import execution

    monkeypatch.setattr(execution, "run_on_side_stream", lambda work, device: work())
    monkeypatch.setattr(execution, "recording_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeCudaGraph)
    monkeypatch.setattr(torch.cuda, "graph", FakeCapture)
