"""Non-finite weights are not saved and replace no checkpoint; a non-finite score is never the best.

The state of a learner can be loaded on a machine with other devices.
"""

import math
import resource
from collections import OrderedDict

import numpy as np
import pytest
import torch

from children import in_child
from parl.errors import NonFiniteError
from parl.run import RunDirectory
from parl.runtime import checkpoint
from saved_learners import weights_of


class Learner:
    def __init__(self):
        self.weights = torch.ones(4)

    def state_dict(self):
        return {"weights": self.weights, "mean": torch.zeros(4), "updates": 0}

    def load_state_dict(self, state):
        self.weights.copy_(state["weights"])


def save(run, learner, step, score):
    with run.checkpoints.write(step, score) as folder:
        checkpoint.write(folder, learner, None, [], {"env_steps": step})


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_weights_that_are_not_finite_replace_no_checkpoint(tmp_path, bad):
    run, learner = RunDirectory.create(tmp_path, "run", {}), Learner()
    save(run, learner, 10, 5.0)
    learner.weights[2] = bad
    with pytest.raises(NonFiniteError, match="the learner cannot be saved: weights holds 1 of 4"):
        save(run, learner, 20, 5.0)
    assert [run.checkpoints.last().name, run.checkpoints.best().name] == ["step-000000000010"] * 2
    assert weights_of(run.path).tolist() == [1.0] * 4
    assert sorted(place.name for place in run.checkpoints.path.iterdir()) == [
        "index.json",
        "step-000000000010",
    ]


@pytest.mark.parametrize("size", [0, 1, 500, "all but the last byte"])
def test_a_full_disk_is_an_error_of_the_system(tmp_path, size):
    checkpoint.write(tmp_path, Learner(), None, [], {})
    if not isinstance(size, int):
        size = (tmp_path / "learner.pt").stat().st_size - 1

    def write():
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        with pytest.raises(OSError, match="File too large"):
            checkpoint.write(tmp_path, Learner(), None, [], {})

    assert in_child(write, seconds=60) == 0


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ([1.0, math.nan], 0),
        ([math.nan, 1.0], 1),
        ([1.0, math.nan, 1.0], 2),
        ([1.0, math.inf], 0),
        ([-math.inf, -5.0], 1),
        ([2.0, 1.0], 0),
        ([1.0, 1.0], 1),
        ([np.float64(1.0), np.float64(3.0), None], 1),
    ],
)
def test_a_score_that_is_not_finite_is_never_the_best(tmp_path, scores, best):
    run, learner = RunDirectory.create(tmp_path, "run", {}), Learner()
    for step, score in enumerate(scores):
        save(run, learner, step, score)
    assert run.checkpoints.best().name == f"step-{best:012d}"


def test_a_learner_of_a_device_that_this_machine_does_not_have_is_loaded(tmp_path, monkeypatch):
    """As where ``torchrun`` goes on with one GPU on each of two machines in place of two GPUs on one."""
    run, learner = RunDirectory.create(tmp_path, "run", {}), Learner()
    learner.weights[2] = 7.0
    with monkeypatch.context() as changed:
        changed.setattr(torch.serialization, "location_tag", lambda storage: "cuda:63")
        save(run, learner, 10, None)
    resumed = Learner()
    checkpoint.load_learner(checkpoint.read(run.checkpoints.last()), resumed)
    assert resumed.weights.tolist() == [1.0, 1.0, 7.0, 1.0]


class DeviceTensor(torch.Tensor):
    """Stands for a tensor on a CUDA device."""

    def cpu(self):
        return self.as_subclass(torch.Tensor)


def test_the_state_of_a_learner_is_moved_to_the_cpu():
    far = torch.arange(3.0).as_subclass(DeviceTensor)
    state = {"weights": far, "layers": OrderedDict(bias=far), "window": [{"obs": far}, (far, None)], "n": 3}
    found = checkpoint.on_cpu(state)
    tensors = (found["weights"], found["layers"]["bias"], found["window"][0]["obs"], found["window"][1][0])
    assert all(type(one) is torch.Tensor and one.tolist() == [0.0, 1.0, 2.0] for one in tensors)
    assert found["n"] == 3 and found["window"][1][1] is None and type(found["window"][1]) is tuple
