"""Replays and trees with `device="cuda"`, launched by the driver: beside the CPU, streams, graphs, errors."""

from pathlib import Path
from typing import Any

import driver
import numpy as np
import pytest
import torch

import parl
from parl import cuda
from parl.errors import CudaUnavailableError

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
    return parl.PrioritizedReplay(60, FIELDS, fan_out=32, **given), parl.PrioritizedReplay(
        60, FIELDS, device="cuda", **given
    )


def same(cpu: Any, gpu: Any, **options: Any) -> Any:
    """Draws from both; the device's batch."""
    expected, found = cpu.sample(9, **options), gpu.sample(9, **options)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        here = found[name].cpu().numpy().view(value.dtype)
        np.testing.assert_allclose(here, value, rtol=2e-7, err_msg=name)
    return found


def test_batches_and_files_are_those_of_the_cpu(tmp_path: Path) -> None:
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
    """Add, draw and new priorities as one graph, beside the same calls one by one."""
    cpu, gpu = pair()
    place = cuda.torch_device(0)
    given = {name: torch.from_numpy(value).to(place) for name, value in rows(0).items()}
    for number in range(6):
        cpu.add(**rows(number))
        gpu.add(**{name: torch.from_numpy(value).to(place) for name, value in rows(number).items()})
    errors = torch.arange(1.0, 10.0, device=place)
    beta = torch.tensor(0.4, dtype=torch.float64, device=place)
    graph = driver.Graph()

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


def test_nothing_waits(double: None) -> None:
    _, gpu = pair()
    tree = parl.SumTree(100, device="cuda")
    before = driver.figure("synchronisations"), driver.figure("copies")
    for number in range(3):
        gpu.add(**rows(number))
    for options in ({}, {"mode": "uniform"}, {"mode": "largest"}, {"uniform": 0.5}):
        batch = gpu.sample(4, **options)
    gpu.update_priorities(batch.tickets, torch.ones(4))
    gpu.evict(1)
    gpu.end_episodes([1])
    tree.update(torch.arange(9), torch.ones(9))
    tree.sample(5)
    assert (driver.figure("synchronisations"), driver.figure("copies")) == before
    gpu.check()


def test_work_goes_to_the_current_stream(double: None) -> None:
    tree = parl.SumTree(100, device="cuda")
    library, context = driver.library(), driver.ctypes.c_void_p()
    assert library is not None
    assert library.cuDevicePrimaryCtxRetain(driver.ctypes.byref(context), 0) == 0
    assert library.cuCtxPushCurrent_v2(context) == 0
    driver.put("lazy", 1)
    driver.Stream.handle = 0x57
    # Torch frees memory in the order of the stream; in the process's memory it is kept by hand.
    keeping = driver.Keeping()
    try:
        with keeping:
            tree.update(torch.arange(9), torch.ones(9))
        # Nobody has waited for that stream yet.
        assert tree.total == 0
        assert library.cuStreamSynchronize(driver.ctypes.c_void_p(0x57)) == 0
        assert tree.total == 9
    finally:
        library.cuStreamSynchronize(driver.ctypes.c_void_p(0x57))
        driver.Stream.handle = 0
        library.cuCtxPopCurrent_v2(driver.ctypes.byref(context))
        library.cuDevicePrimaryCtxRelease_v2(0)
    assert len(keeping.kept) > 0


def test_each_device_has_its_own_kernels(double: None) -> None:
    driver.put("devices", 4)
    # Other tests let other devices fail, which stays.
    first, second = (parl.SumTree(40, device=device, seed=1) for device in ("cuda", "cuda:3"))
    for tree in (first, second):
        tree.update([3, 5], [1.0, 2.0])
    assert first._place.program is not second._place.program
    assert [leaf.tolist() for leaf in first.sample(5)] == [leaf.tolist() for leaf in second.sample(5)]


@pytest.mark.parametrize("kind", ["tree", "replay"])
def test_a_device_that_is_not_there_is_a_reason(kind: str, double: None) -> None:
    with pytest.raises(CudaUnavailableError, match="there is no CUDA device 5: the driver shows 1"):
        if kind == "tree":
            parl.SumTree(10, device="cuda:5")
        else:
            parl.UniformReplay(10, FIELDS, device="cuda:5")
    assert parl.SumTree(10, device="cuda").total == 0
