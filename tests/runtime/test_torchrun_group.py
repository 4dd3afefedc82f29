"""The rank of a process under torchrun and the messages it sends, with a fake `torch.distributed`."""

from datetime import timedelta
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

import parl
from parl.errors import ConfigError, NonFiniteError, RunDirectoryError
from parl.run import RunDirectory
from parl.runtime.distributed import group as groups
from parl.runtime.distributed.group import Group, PeerError
from parl.runtime.distributed.torchrun import (
    END,
    ROLLOUT,
    SAVE,
    RolloutCoordinator,
    TorchrunAllReduce,
    pack_flag,
)
from parl.train.trainer import run_follower_rank

FOUND = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "MASTER_ADDR": "here",
    "MASTER_PORT": "1",
    "LOCAL_WORLD_SIZE": "4",
}


@pytest.fixture
def variables(monkeypatch):
    for name, value in FOUND.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_the_group_is_found_by_environment_variables(variables):
    assert Group.from_environment() == Group(5, 8, 1, 4)
    variables.delenv("LOCAL_WORLD_SIZE")
    assert Group.from_environment() == Group(5, 8, 1, 8)
    variables.setenv("WORLD_SIZE", "2")
    assert Group.from_environment() == Group(5, 2, 1, 2)
    variables.setenv("WORLD_SIZE", "1")
    assert Group.from_environment() is None
    assert Group(0, 2, 0).local_size == 1


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"])
def test_without_one_of_the_variables_there_is_no_group(variables, name):
    variables.delenv(name)
    assert Group.from_environment() is None


def test_settings_are_divided_evenly():
    group = Group(1, 4, 3)
    assert group.share("num_envs", 12) == 3
    with pytest.raises(ConfigError, match="num_envs = 10 is no multiple of the 4 processes of torchrun"):
        group.share("num_envs", 10)
    assert [group.device(wanted) for wanted in ("cuda", "cpu", "cuda:0")] == ["cuda:3", "cpu", "cuda:0"]


def test_processes_that_do_not_see_the_run_directory_are_named(variables, tmp_path):
    message = f"process 5 of torchrun finds no run directory at {tmp_path / 'run'}: all machines must see"
    group = Group.from_environment()
    with pytest.raises(RunDirectoryError, match=message):
        run_follower_rank(RunDirectory(tmp_path / "run"), None, None, SimpleNamespace(group=group), None)
    with pytest.raises(RunDirectoryError, match=message):
        parl.resume(tmp_path / "run")
    variables.setenv("RANK", "0")
    with pytest.raises(FileNotFoundError, match="no run directory at"):
        parl.resume(tmp_path / "run")


def test_processes_connect_once(monkeypatch):
    calls, state = [], {"on": False}

    def begin(backend, timeout):
        calls.append((backend, timeout))
        state["on"] = True

    def end():
        calls.append("end")
        state["on"] = False

    monkeypatch.setattr(dist, "is_initialized", lambda: state["on"])
    monkeypatch.setattr(dist, "init_process_group", begin)
    monkeypatch.setattr(dist, "destroy_process_group", end)
    monkeypatch.setattr(torch.cuda, "set_device", calls.append)
    group = Group(0, 2, 0)
    group.connect("cpu")
    group.connect("cpu")
    group.disconnect()
    group.disconnect()
    group.connect("cuda:1")
    wait = timedelta(hours=2)
    assert calls == [("gloo", wait), "end", "cuda:1", ("nccl", wait)]


class Work:
    def __init__(self, log):
        self._log = log

    def wait(self):
        self._log.append("arrived")


@pytest.fixture
def other(monkeypatch):
    """The other process of two: its part of each sum, and the message that rank 0 sends."""
    said = {"sum": torch.zeros(3), "word": None, "log": [], "counters": {}}

    def all_reduce(buffer, async_op=False):
        said["sent"] = buffer.clone()
        buffer += said["sum"]
        said["log"].append("sent")
        return Work(said["log"]) if async_op else None

    def broadcast(word, src):
        assert src == 0
        said["sent"] = word.clone()
        if said["word"] is not None:
            word.copy_(torch.tensor(said["word"], dtype=word.dtype))

    def broadcast_object_list(box, src):
        assert src == 0 and len(box) == 1
        box[0] = said["word"]

    monkeypatch.setattr(dist, "all_reduce", all_reduce)
    monkeypatch.setattr(dist, "broadcast", broadcast)

    def add_to(group, counter, amount):
        said["counters"][counter] = said["counters"].get(counter, 0) + amount
        return said["counters"][counter]

    monkeypatch.setattr(dist, "broadcast_object_list", broadcast_object_list)
    monkeypatch.setattr(Group, "add_to", add_to)
    return said


def test_gradients_are_averaged_unless_rank_0_sends_a_command(other):
    peers = TorchrunAllReduce(Group(1, 2, 0), "cpu")
    assert peers.request == 0.0
    gradients = torch.tensor([1.0, 2.0])
    other["sum"] = torch.tensor([3.0, 4.0, 0.0])
    assert peers.average(gradients, True, lambda: other["log"].append("meanwhile"))
    assert gradients.tolist() == [2.0, 3.0] and other["log"] == ["sent", "meanwhile", "arrived"]
    for what in (SAVE, END):
        other["sum"] = torch.tensor([0.0, 0.0, what])
        assert not peers.average(gradients, True) and peers.request == what
        assert gradients.tolist() == [2.0, 3.0]
    other["sum"] = torch.tensor([1.0, 1.0, 0.0])
    assert not peers.average(gradients, False) and peers.request == END
    assert other["sent"].tolist() == [0.0, 0.0, END]
    peers.send_request(gradients, SAVE)
    assert peers.request == SAVE and other["sent"].tolist() == [0.0, 0.0, SAVE]
    assert len({0.0, SAVE, END, ROLLOUT}) == 4


def test_a_process_that_does_not_learn_yet_sees_what_rank_0_requests(other):
    other["word"] = "run-7"
    peers, gradients = TorchrunAllReduce(Group(1, 2, 0), "cpu"), torch.ones(2)
    assert not peers.has_request
    other["counters"] = {"requests-run-7": 1, "requests-run-6": 9}
    assert peers.has_request
    other["sum"] = torch.tensor([0.0, 0.0, SAVE])
    peers.receive_request(gradients)
    assert peers.request == SAVE and other["sent"].tolist() == [0.0, 0.0, 0.0] and not peers.has_request
    # One in which it takes part while it learns does not count again.
    other["counters"]["requests-run-7"] = 2
    assert not peers.average(gradients, True) and not peers.has_request
    # Rank 0 counts its own.
    peers.send_request(gradients, SAVE)
    peers.average(gradients, False)
    assert other["counters"]["requests-run-7"] == 4


def test_a_process_receives_what_rank_0_sends(other):
    steps = RolloutCoordinator(Group(1, 2, 0), "cpu")
    steps.send(ROLLOUT, 2**40 + 1)
    assert other["sent"].tolist() == [ROLLOUT, 2.0**40 + 1]
    other["word"] = [SAVE, 2.0**40 + 3]
    assert steps.receive() == (SAVE, 2**40 + 3)
    assert other["sent"].tolist() == [0.0, 0.0]
    assert Group(1, 2, 0).from_rank_zero("mine") == [SAVE, 2.0**40 + 3]


def test_values_of_all_processes_are_averaged(other):
    values = torch.tensor([1.0, 2.0, 3.0])
    other["sum"] = torch.tensor([3.0, 2.0, 1.0])
    RolloutCoordinator(Group(1, 4, 0), "cpu").average(values)
    assert values.tolist() == [1.0, 1.0, 1.0]
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
    RolloutCoordinator(Group(1, 2, 0), "cpu").average(values)
    assert values.tolist() == [2.0, 2.0, 2.0]


def test_processes_wait_up_to_two_hours():
    assert timedelta(hours=2) == groups._TIMEOUT


@pytest.fixture
def store(monkeypatch):
    """The store of the processes, and a connection that is broken."""

    def broken(*arguments, **options):
        raise RuntimeError("connection closed by peer")

    for name in ("all_reduce", "broadcast", "broadcast_object_list"):
        monkeypatch.setattr(dist, name, broken)
    found = dist.HashStore()
    monkeypatch.setattr(dist.distributed_c10d, "_get_default_store", lambda: found)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)
    return found


def fail_in_run(group, error):
    """``group``'s process fails in a run."""
    with pytest.raises(type(error), match=str(error)), group.membership():
        raise error


@pytest.mark.parametrize(
    "communicate",
    [
        lambda group: group.from_rank_zero(1),
        lambda group: RolloutCoordinator(group, "cpu").send(ROLLOUT, 0),
        lambda group: RolloutCoordinator(group, "cpu").average(torch.ones(2)),
    ],
)
def test_the_error_of_a_broken_connection_says_which_process_failed(store, communicate):
    first, second, third = (Group(rank, 3, rank) for rank in range(3))
    with first.membership(), pytest.raises(PeerError, match=r"killed: connection closed by peer$"):
        communicate(first)
    fail_in_run(second, OSError("of an earlier run"))
    why = "^process 2 of torchrun failed: ValueError: the pole broke$"
    with first.membership(), second.membership():
        fail_in_run(third, KeyError("of an earlier run"))
        fail_in_run(third, ValueError("the pole broke"))
        for group in (first, second):
            with pytest.raises(PeerError, match=why):
                communicate(group)
        # One that only lost the connection is no reason.
        fail_in_run(second, PeerError("a process"))


def test_numbers_that_are_not_finite_are_an_error_of_all_processes(store):
    """After such an error the first process saves nothing, as in a run of one process."""
    first, second = Group(0, 2, 0), Group(1, 2, 1)
    with first.membership():
        fail_in_run(second, NonFiniteError("loss is nan"))
        with pytest.raises(NonFiniteError, match="process 1 of torchrun failed: NonFiniteError: loss is nan"):
            first.from_rank_zero(1)


@pytest.mark.parametrize(("kind", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_gradients_are_sent_as_16_bits(other, kind, dtype):
    peers = TorchrunAllReduce(Group(1, 2, 0), "cpu", kind)
    gradients = torch.tensor([60_000.0, 1 + 2**-20])
    other["sum"] = torch.tensor([30_000.0, 2.0, 0.0], dtype=dtype)
    assert peers.average(gradients, True)
    assert other["sent"].dtype == dtype and gradients.dtype == torch.float32
    # Half of each gradient is sent and added to the other's half; the sum of the whole ones overflows fp16.
    torch.testing.assert_close(other["sent"], torch.tensor([30_000.0, 0.5, 0.0], dtype=dtype))
    torch.testing.assert_close(gradients, torch.tensor([60_000.0, 2.5]), rtol=5e-3, atol=0)
    other["sum"] = torch.tensor([0.0, 0.0, SAVE], dtype=dtype)
    assert not peers.average(gradients, True) and peers.request == SAVE
    peers.send_request(gradients, END)
    assert other["sent"].tolist() == [0.0, 0.0, END]


def test_gradients_and_a_flag_share_one_buffer():
    gradients = torch.tensor([1.0, 2.0])
    first = pack_flag(torch.empty(0), gradients, 0.0)
    assert first.tolist() == [1.0, 2.0, 0.0]
    again = pack_flag(first, gradients + 1, 0.0)
    assert again is first and again.tolist() == [2.0, 3.0, 0.0]
    assert pack_flag(first, gradients, 2.0).tolist() == [0.0, 0.0, 2.0]
    assert pack_flag(first, torch.ones(3), 0.0).tolist() == [1.0, 1.0, 1.0, 0.0]
