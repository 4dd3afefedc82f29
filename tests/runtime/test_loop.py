"""Counters, rates, checkpoints and warnings that all loops share."""

import json
import math
from types import SimpleNamespace

import pytest
import torch

from parl.errors import RunDirectoryError
from parl.runtime import checkpoint, loop
from parl.runtime.checkpoint import Checkpoint
from parl.runtime.env_actor import Counts
from parl.runtime.loop import LocalLoop, state_or_reason, state_or_warn


class Learner:
    def __init__(self):
        self.weights = torch.ones(2)

    def state_dict(self):
        return {"weights": self.weights}

    def load_state_dict(self, state):
        self.weights = state["weights"]


class Base(LocalLoop):
    def _iterate(self, seconds):
        raise NotImplementedError


def test_counts_add_up():
    base = Base(Learner(), 10**9, None)
    assert (base.env_steps, base.updates, base.rewards_and_episodes()) == (0, 0, (0.0, 0))
    base.count(Counts(10, [(1.0, 2), (3.0, 4)], 2.5))
    base.count(Counts(5, [(5.0, 6)], 1.5))
    base.count(Counts(0, [], 0.0))
    assert base.env_steps == 15 and base.rewards_and_episodes() == (4.0, 3)
    assert base.take_episodes() == [(1.0, 2), (3.0, 4), (5.0, 6)] and base.take_episodes() == []
    base.count(Counts(1, [(7.0, 8)], 1.0))
    assert base.rewards_and_episodes() == (5.0, 4) and base.take_episodes() == [(7.0, 8)]


def test_rates_cover_the_time_since_the_last_call(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(loop, "time", SimpleNamespace(monotonic=lambda: now[0]))
    base = Base(Learner(), 10**9, None)
    for _ in range(2):
        now[0] += 4.0
        base.count(Counts(100, [], 0.0))
        base._updates += 10
        assert base.rates() == (4.0, {"env_steps_per_s": 25.0, "updates_per_s": 2.5})
    elapsed, rates = base.rates()
    assert elapsed == 1e-9 and rates == {"env_steps_per_s": 0.0, "updates_per_s": 0.0}


def test_a_resumed_loop_continues_from_the_saved_counters(tmp_path):
    learner = Learner()
    learner.weights = torch.tensor([3.0, 4.0])
    base = Base(learner, 10**9, None)
    base.count(Counts(30, [], 0.0))
    base._updates = 7
    base._write(tmp_path, [b"PK state", None])
    record = json.loads((tmp_path / "counters.json").read_text())
    assert record == {
        "format": checkpoint.FORMAT,
        "env_steps": 30,
        "updates": 7,
        "resumes": 0,
        "actors_saved": [True, False],
    }
    other = Base(Learner(), 10**9, checkpoint.read(tmp_path))
    assert (other.env_steps, other.updates, other._resumes) == (30, 7, 1)
    assert torch.equal(other.learner.weights, learner.weights)
    assert other.rates()[1] == {"env_steps_per_s": 0.0, "updates_per_s": 0.0}
    saved = checkpoint.read(tmp_path)
    assert checkpoint.actor_state(saved, 0) == b"PK state"
    assert checkpoint.actor_state(saved, 1) is None and checkpoint.actor_state(None, 0) is None
    assert not saved.trusted and checkpoint.read(tmp_path, trusted=True).trusted


def test_names_of_the_files_of_a_checkpoint(tmp_path):
    replay = SimpleNamespace(save=lambda path: path.write_text("rows"))
    checkpoint.write(tmp_path, Learner(), replay, [b"PK", b"\x80pickle"], {"env_steps": 1})
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "actor-0.npz",
        "actor-1.pkl",
        "counters.json",
        "learner.pt",
        "replay.bin",
    ]
    text = (tmp_path / "counters.json").read_text()
    assert text.startswith('{\n  "format": 2,\n') and text.endswith("}\n")


def test_a_checkpoint_that_cannot_be_read_is_refused(tmp_path):
    path = tmp_path / "counters.json"
    with pytest.raises(RunDirectoryError, match=r"counters\.json cannot be read"):
        checkpoint.read(tmp_path)
    for text, said in (("{", "cannot be read"), ('{"format": 1}', "is of format 1, not 2"), ("{}", "None")):
        path.write_text(text)
        with pytest.raises(RunDirectoryError, match=said):
            checkpoint.read(tmp_path)
    path.write_text('{"format": 2}')
    saved = checkpoint.read(tmp_path)
    with pytest.raises(RunDirectoryError, match=r"learner\.pt does not fit"):
        checkpoint.load_learner(saved, Learner())
    torch.save({"other": torch.ones(1)}, tmp_path / "learner.pt")
    with pytest.raises(RunDirectoryError, match=r"learner\.pt does not fit"):
        checkpoint.load_learner(Checkpoint(tmp_path, {}), Learner())


def test_an_environment_that_cannot_be_saved_gives_a_warning():
    def fails():
        raise TypeError("a socket is not plain data")

    reason = state_or_reason(SimpleNamespace(save=fails))
    assert reason == "TypeError: a socket is not plain data"
    assert state_or_reason(SimpleNamespace(save=lambda: b"x")) == b"x"
    assert state_or_warn("actor 0", b"x") == b"x" and state_or_warn("actor 0", None) is None
    said = r"actor 2's environment cannot be saved \(TypeError: .*\): a resumed run starts new episodes"
    with pytest.warns(UserWarning, match=said + "$"):
        assert state_or_warn("actor 2", reason) is None
    with pytest.warns(UserWarning, match=said + " and will not repeat the same numbers$"):
        assert state_or_warn("actor 2", reason, exact=True) is None


def test_an_interrupt_is_remembered():
    base = Base(Learner(), 10**9, None)
    assert not base._interrupted
    base.interrupt()
    assert base._interrupted and math.isfinite(base._rewards)
