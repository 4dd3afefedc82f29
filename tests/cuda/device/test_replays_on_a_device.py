"""Replays and trees with `device="cuda"`: results equal those of the CPU; streams, CUDA graphs, errors."""

from pathlib import Path
from typing import Any

import fake_driver
import numpy as np
import pytest
import torch

import parl
from parl import cuda
from parl.errors import CudaUnavailableError
from tickets import same_tickets

FIELDS = {"obs": ((5,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}


def rows(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    return {
        "obs": rng.normal(size=(4, 5)).astype(np.float32),
        "reward": np.full(4, number, np.float32),
        "terminated": rng.random(4) < 0.2,
    }


def pair(**options: Any) -> tuple[Any, Any]:
    given = {"num_envs": 4, "n_step": 2, "alpha": 1.0, "seed": 3, **options}
    cpu = parl.PrioritizedReplay(60, FIELDS, fan_out=32, **given)
    gpu = parl.PrioritizedReplay(60, FIELDS, device="cuda", **given)
    same_tickets(cpu, gpu)
    return cpu, gpu


def same(cpu: Any, gpu: Any, **options: Any) -> Any:
    """Samples from both and compares. Returns the device's batch."""
    expected, found = cpu.sample(9, **options), gpu.sample(9, **options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        here = found[name].cpu().numpy().view(value.dtype)
        np.testing.assert_allclose(here, value, rtol=2e-7, err_msg=name)
    return found


def test_batches_and_files_equal_those_of_the_cpu(tmp_path: Path) -> None:
    cpu, gpu = pair()
    for number in range(20):
        cpu.add(**rows(number))
        gpu.add(**rows(number))
    for mode in ("stratified", "systematic", "largest"):
        found = same(cpu, gpu, mode=mode)
        assert cpu.update_priorities(found.tickets.cpu().numpy().view(np.uint64), np.arange(9.0)) == 0
        assert int(gpu.update_priorities(found.tickets, torch.arange(9.0))) == 0
    gpu.verify()
    assert gpu.total_priority == cpu.total_priority
    gpu.save(tmp_path / "replay")
    again = parl.PrioritizedReplay.load(tmp_path / "replay", device="cuda")
    same(cpu, again)
    assert int(again.evict(5)) == 5
    assert again.sampleable == cpu.sampleable - 5
    for mode in ("uniform", "without_replacement"):
        assert (again.sample(9, mode=mode).weights > 0).all()
    assert (again.sample(9, uniform=0.3, newest=0.3).weights > 0).all()
    again.check()


def test_a_step_of_a_loop_is_captured_and_replayed() -> None:
    """Adding, sampling and updating priorities in one graph equals the same calls one by one."""
    cpu, gpu = pair()
    place = cuda.torch_device(0)
    given = {name: torch.from_numpy(value).to(place) for name, value in rows(0).items()}
    for number in range(6):
        cpu.add(**rows(number))
        gpu.add(**{name: torch.from_numpy(value).to(place) for name, value in rows(number).items()})
    errors = torch.arange(1.0, 10.0, device=place)
    beta = torch.tensor(0.4, dtype=torch.float64, device=place)
    graph = fake_driver.Graph()

    def step() -> Any:
        gpu.add(**given)
        batch = gpu.sample(9, beta=beta)
        gpu.update_priorities(batch.tickets, errors)
        return batch

    batch = graph.capture(step)
    for number in range(6, 14):
        for name, value in rows(number).items():
            given[name].copy_(torch.from_numpy(value))
        beta.fill_(0.1 * number)
        graph.replay()
        cpu.add(**rows(number))
        expected = cpu.sample(9, beta=0.1 * number)
        cpu.update_priorities(expected.tickets, np.arange(1.0, 10.0))
        for name in ("obs", "next_obs", "reward", "discount", "indices", "weights"):
            np.testing.assert_allclose(batch[name].cpu().numpy(), expected[name], rtol=2e-7)
    gpu.check()
    gpu.verify()
    assert gpu.counters == {**cpu.counters, "restarts": 0}
    assert gpu.total_priority == cpu.total_priority


def sequences(device: str, **options: Any) -> Any:
    fields = {**FIELDS, "state": ((2,), "float32")}
    given = {"length": 4, "overlap": 2, "burn_in": 1, "num_envs": 4, "alpha": 1.0, "seed": 3}
    return parl.SequenceReplay(60, fields, device=device, **given, **options)


def with_state(number: int) -> dict[str, Any]:
    return {**rows(number), "state": np.full((4, 2), number, np.float32)}


def test_sequences_equal_those_of_the_cpu(tmp_path: Path) -> None:
    cpu, gpu = sequences("cpu", fan_out=32), sequences("cuda")
    same_tickets(cpu, gpu)
    for number in range(24):
        cpu.add(**with_state(number))
        gpu.add(**with_state(number))
    for mode in ("stratified", "independent", "largest"):
        count = {"largest": 3}.get(mode, 9)
        expected, found = cpu.sample(count, mode=mode), gpu.sample(count, mode=mode)
        for name, value in expected.items():
            here = found[name].cpu().numpy().view(value.dtype)
            np.testing.assert_allclose(here, value, rtol=2e-7, err_msg=name)
        errors = np.arange(4.0 * count).reshape(4, count)
        assert cpu.update_priorities(expected.tickets, errors, expected.mask) == 0
        there = torch.from_numpy(errors).to(gpu.device)
        assert int(gpu.update_priorities(found.tickets, there, found.mask)) == 0
    assert gpu.total_priority == pytest.approx(cpu.total_priority, rel=1e-6)
    gpu.save(tmp_path / "replay")
    again = parl.SequenceReplay.load(tmp_path / "replay", device="cuda")
    assert again.sample(3).mask.shape == (4, 3)
    with pytest.raises(ValueError, match="this replay is not a CudaReplay; use SequenceReplay"):
        parl.PrioritizedReplay.load(tmp_path / "replay", device="cuda")
    gpu.check()
    gpu.verify()


def goals(device: str, strategy: Any, **options: Any) -> Any:
    goal = ((2,), "float32")
    fields = {
        "obs": {"achieved_goal": goal, "desired_goal": goal},
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
    }
    hindsight = parl.Hindsight(lambda achieved, desired, info: -abs(achieved - desired).sum(1), strategy)
    given: dict[str, Any] = {"num_envs": 4, "alpha": 1.0, "seed": 3, "hindsight": hindsight}
    return parl.PrioritizedReplay(60, fields, device=device, **given, **options)


def with_goals(number: int) -> dict[str, Any]:
    step = np.arange(8, dtype=np.float32).reshape(4, 2) + 8 * number
    return {**rows(number), "obs": {"achieved_goal": step, "desired_goal": step * 0 - 1}}


@pytest.mark.parametrize("strategy", ["future", "final", "episode"])
def test_relabeled_goals_equal_those_of_the_cpu(strategy: str) -> None:
    cpu, gpu = goals("cpu", strategy, fan_out=32), goals("cuda", strategy)
    for number in range(20):
        cpu.add(**with_goals(number))
        gpu.add(**with_goals(number))
    for mode in ("stratified", "independent", "systematic", "largest"):
        expected, found = cpu.sample(9, mode=mode), gpu.sample(9, mode=mode)
        assert expected.relabelled.any()
        for name in ("relabelled", "reward", "discount", "indices"):
            np.testing.assert_array_equal(found[name].cpu().numpy(), expected[name], name)
        for when in ("obs", "next_obs"):
            for name, value in expected[when].items():
                np.testing.assert_array_equal(found[when][name].cpu().numpy(), value, name)
    gpu.check()


def test_sequences_and_goals_are_captured_and_replayed() -> None:
    errors = torch.arange(36.0).reshape(4, 9)
    for pair, row in (
        ((sequences("cpu", fan_out=32), sequences("cuda")), with_state),
        ((goals("cpu", "future", fan_out=32), goals("cuda", "future")), with_goals),
    ):
        cpu, gpu = pair
        for number in range(12):
            cpu.add(**row(number))
            gpu.add(**row(number))
        errors = errors.to(gpu.device)
        graph = fake_driver.Graph()

        def step(gpu: Any = gpu) -> Any:
            batch = gpu.sample(9)
            if "mask" in batch:
                gpu.update_priorities(batch.tickets, batch.weights)
            return batch

        batch = graph.capture(step)
        for _ in range(4):
            graph.replay()
            expected = cpu.sample(9)
            if "mask" in expected:
                cpu.update_priorities(expected.tickets, expected.weights)
            for name in ("indices", "weights", "discount", *(["obs", "state"] if "mask" in expected else [])):
                np.testing.assert_allclose(batch[name].cpu().numpy(), expected[name], rtol=2e-7)
        gpu.check()


def test_replay_calls_do_not_synchronize(needs_fake_driver: None) -> None:
    _, gpu = pair()
    tree = parl.SumTree(100, device="cuda")
    before = fake_driver.figure("synchronizations"), fake_driver.figure("copies")
    for number in range(3):
        gpu.add(**rows(number))
    for options in ({}, {"mode": "uniform"}, {"mode": "largest"}, {"uniform": 0.5}):
        batch = gpu.sample(4, **options)
    gpu.update_priorities(batch.tickets, torch.ones(4))
    gpu.evict(1)
    gpu.end_episodes([1])
    tree.update(torch.arange(9), torch.ones(9))
    tree.sample(5)
    runs, achieved = sequences("cuda"), goals("cuda", "episode")
    for number in range(9):
        runs.add(**with_state(number))
        achieved.add(**with_goals(number))
    batch = runs.sample(5)
    runs.update_priorities(batch.tickets, torch.ones((4, 5)), batch.mask)
    achieved.sample(5)
    assert (fake_driver.figure("synchronizations"), fake_driver.figure("copies")) == before
    gpu.check()


def test_work_goes_to_the_current_stream(needs_fake_driver: None) -> None:
    tree = parl.SumTree(100, device="cuda")
    library, context = fake_driver.library(), fake_driver.ctypes.c_void_p()
    assert library is not None
    assert library.cuDevicePrimaryCtxRetain(fake_driver.ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    fake_driver.set_figure("lazy", 1)
    fake_driver.Stream.handle = 0x57
    # torch frees device memory in stream order. The fake driver's tensors are host memory: kept alive here.
    keeping = fake_driver.KeepTensorsAlive()
    try:
        with keeping:
            tree.update(torch.arange(9), torch.ones(9))
        # The stream has not been synchronized yet, so it has done no work.
        assert tree.total == 0
        assert library.cuStreamSynchronize(fake_driver.ctypes.c_void_p(0x57)) == 0
        assert tree.total == 9
    finally:
        library.cuStreamSynchronize(fake_driver.ctypes.c_void_p(0x57))
        fake_driver.Stream.handle = 0
        library.cuCtxPopCurrent_v2(fake_driver.ctypes.byref(context))
        library.cuDevicePrimaryCtxRelease_v2(0)
    assert len(keeping.kept) > 0


def test_each_device_has_its_own_kernels(needs_fake_driver: None) -> None:
    fake_driver.set_figure("devices", 4)
    # Device 3, because other tests make other devices fail, and a failed device stays so.
    first, second = (parl.SumTree(40, device=device, seed=1) for device in ("cuda", "cuda:3"))
    for tree in (first, second):
        tree.update([3, 5], [1.0, 2.0])
    assert first._cuda.program is not second._cuda.program
    assert [leaf.tolist() for leaf in first.sample(5)] == [leaf.tolist() for leaf in second.sample(5)]


@pytest.mark.parametrize("kind", ["tree", "replay"])
def test_a_missing_device_raises_an_error(kind: str, needs_fake_driver: None) -> None:
    with pytest.raises(CudaUnavailableError, match="there is no CUDA device 5: the driver shows 1"):
        if kind == "tree":
            parl.SumTree(10, device="cuda:5")
        else:
            parl.UniformReplay(10, FIELDS, device="cuda:5")
    assert parl.SumTree(10, device="cuda").total == 0
