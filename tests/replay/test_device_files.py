"""Files of device replays load on the CPU and vice versa; the loaded replays continue identically."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from device_cases import CASES, GOALS, SEQUENCES, Case, Rows, assert_same, host, tensors  # noqa: E402
from host_replay import HostReplay, HostSequenceReplay, in_memory  # noqa: E402

import parl  # noqa: E402
from parl.errors import ReplayFileError  # noqa: E402
from parl.replay.conversion import Conversion  # noqa: E402


def filled_pair(case: Case, calls: int, seed: int = 3) -> tuple[Any, Any, Rows]:
    cpu, mine = case.pair(seed, "cuda", in_memory)
    rows = Rows(case, seed)
    compare_calls(cpu, mine, rows, calls)
    return cpu, mine, rows


def compare_calls(cpu: Any, mine: Any, rows: Rows, calls: int) -> int:
    """Compares the same calls on both replays. Returns the number of batches sampled."""
    drawn = 0
    rng = np.random.default_rng(calls)
    for _ in range(calls):
        more = rows.take()
        tickets = cpu.add(**more)
        np.testing.assert_array_equal(host(mine.add(**tensors(more))).view(np.uint64), tickets)
        found = assert_same(cpu, mine, 33, "stratified", True)
        if found is None:
            continue
        drawn += 1
        errors = rng.normal(size=33).astype(np.float32)
        assert int(mine.update_priorities(found.tickets, errors)) == cpu.update_priorities(
            host(found.tickets).view(np.uint64), errors
        )
    return drawn


def figures(replay: Any) -> dict[str, Any]:
    return {
        "rows": len(replay),
        "sampleable": replay.sampleable,
        "total": replay.total_priority,
        "largest": replay.max_priority,
        "counters": replay.counters,
        "rng": replay.rng_state,
        "sizes": replay.histogram().tolist(),
    }


SOME = [CASES[2], CASES[4], CASES[6], CASES[7], CASES[10], SEQUENCES[1], SEQUENCES[2], GOALS[0], GOALS[2]]


@pytest.mark.parametrize("calls", [1, 45])
@pytest.mark.parametrize("case", SOME, ids=str)
def test_cpu_and_device_load_each_others_files(case: Case, calls: int, tmp_path: Path):
    cpu, mine, rows = filled_pair(case, calls)
    cpu.save(tmp_path / "cpu")
    mine.save(tmp_path / "device")
    assert sorted(os.listdir(tmp_path)) == ["cpu", "device"]
    relabels = {"hindsight": case.hindsight()}
    here = type(cpu).load(tmp_path / "device", **relabels)
    there = type(mine).load(tmp_path / "cpu", device="cuda", **relabels)
    assert (type(there), there.settings) == (type(mine), here.settings)
    assert figures(here) == figures(cpu) == figures(there) == figures(mine)
    here.verify()
    there.verify()
    # Incomplete windows, links, stacks and generators are saved too: all four replays continue identically.
    number, state = rows.number, rows.rng.bit_generator.state
    assert compare_calls(cpu, mine, rows, 12) >= 6
    rows.number, rows.rng.bit_generator.state = number, state
    assert compare_calls(here, there, rows, 12) >= 6
    assert figures(here) == figures(cpu) == figures(there) == figures(mine)
    there.check()


@pytest.mark.parametrize("capacity", [20, 400])
def test_loading_with_another_capacity_keeps_the_newest_rows(capacity: int, tmp_path: Path):
    cpu, mine, rows = filled_pair(Case(n_step=2, frame_stack=2), 50)
    mine.save(tmp_path / "replay")
    here = parl.PrioritizedReplay.load(tmp_path / "replay", capacity=capacity)
    there = HostReplay.load(tmp_path / "replay", capacity=capacity)
    assert there.capacity == capacity
    assert len(there) == len(here) == min(capacity, len(cpu))
    assert figures(there) == figures(here)
    assert compare_calls(here, there, rows, 8) == 8


def test_weights_of_another_fan_out_are_limited_to_the_largest_weight(tmp_path: Path):
    """Weights have up to 28 bits in small nodes and up to 27 in nodes of 32 children."""
    cpu = parl.PrioritizedReplay(9, {"x": ((), "int64")}, fan_out=4, alpha=1.0)
    cpu.add(x=np.arange(3), priorities=np.array([1.0, 3000.0, 2.0]))
    cpu.save(tmp_path / "replay")
    there = HostReplay.load(tmp_path / "replay")
    assert there.settings["fan_out"] == 32
    assert there.saturated == 1
    assert there.total_priority == pytest.approx(3 + 2**11, abs=1e-3)
    there.verify()


def test_files_hold_nested_and_empty_fields(tmp_path: Path):
    fields = {"obs": {"image": ((2,), "uint8"), "nothing": ((0,), "float32")}, "action": ((), "int64")}
    there = HostReplay(20, fields, device="cuda")
    image = torch.arange(6, dtype=torch.uint8).reshape(3, 2)
    there.add(obs={"image": image, "nothing": torch.zeros((3, 0))}, action=torch.arange(3))
    there.save(tmp_path / "replay")
    for kind in (HostReplay, parl.PrioritizedReplay):
        batch = kind.load(tmp_path / "replay").sample(8, as_torch=True)
        assert (batch.obs.image[:, 0] == 2 * batch.action).all()


def test_files_with_contents_that_a_device_does_not_support_raise(tmp_path: Path):
    path = tmp_path / "replay"
    fields = {"obs": ((400,), "uint8"), "reward": ((), "float32"), "terminated": ((), "bool")}
    hindsight = GOALS[0].hindsight()
    stacked = parl.PrioritizedReplay(20, fields, frame_stack=3, num_envs=4)
    converted = Conversion(stacked, "obs", (2,), "float32", lambda rows: rows[:, 0, :2]).finish()
    for made, kind, text in (
        (converted, HostReplay, "has 8 extra rows, since it was converted from stacks of frames"),
        (parl.SequenceReplay(20, fields, length=2), HostReplay, "not a HostReplay; use SequenceReplay"),
        (
            parl.UniformReplay(20, fields),
            HostSequenceReplay,
            "not a HostSequenceReplay; use PrioritizedReplay",
        ),
        (parl.PrioritizedReplay(20, fields, compression="lz4"), HostReplay, "has compression 'lz4'"),
        (
            parl.PrioritizedReplay(20, GOALS[0].fields(), hindsight=hindsight),
            HostReplay,
            "this replay relabels goals: pass hindsight",
        ),
    ):
        made.save(path)
        with pytest.raises(ValueError, match=text):
            kind.load(path)
    with pytest.raises(ValueError, match=r"was made with hindsight .*'future'.*, not .*'episode'"):
        HostReplay.load(path, hindsight=GOALS[2].hindsight())
    path.write_bytes(b"nothing of the sort" * 9)
    with pytest.raises(ReplayFileError):
        HostReplay.load(path)
    with pytest.raises(FileNotFoundError):
        HostReplay.load(tmp_path / "none")
    with pytest.raises(ValueError, match='shared memory needs device="cpu"'):
        HostReplay.load(path, shared="name")


def test_a_failed_save_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from parl.replay.cuda import files

    mine = HostReplay(20, {"x": ((), "int64")}, device="cuda")
    mine.add(x=torch.arange(3))

    def short(*_: Any) -> Any:
        yield np.zeros(3, np.uint64)

    monkeypatch.setattr(files, "_parts", short)
    with pytest.raises(ReplayFileError, match=r"its parts have \d+ bytes, expected \d+"):
        mine.save(tmp_path / "replay")
    assert os.listdir(tmp_path) == []
