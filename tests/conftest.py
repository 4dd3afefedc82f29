import pytest


@pytest.fixture
def taped(monkeypatch):
    """What is recorded as a CUDA graph goes on a tape that is played on the processor."""
    import torch

    from parl.ops import execution
    from tape import Tape, Taping

    monkeypatch.setattr(execution, "beside", lambda work: work())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Tape)
    monkeypatch.setattr(torch.cuda, "graph", Taping)
