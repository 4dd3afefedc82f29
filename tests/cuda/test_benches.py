"""`benches/gpu` from end to end, with few and small environments: on the double it is a rehearsal."""

import contextlib
import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import driver
import pytest
import torch

FOLDER = Path(__file__).parents[2] / "benches" / "gpu"


class Graph:
    """torch.cuda.CUDAGraph on the double: what torch itself draws is not captured, the launches are."""

    def __init__(self) -> None:
        self.graph = driver.Graph()

    def replay(self) -> None:
        self.graph.replay()


@contextlib.contextmanager
def captured(graph: Graph) -> Iterator[None]:
    double = graph.graph.double
    assert double is not None
    stream = driver.ctypes.c_void_p(driver.Graph.HANDLE)
    assert double.cuStreamBeginCapture_v2(stream, 0) == 0
    driver.Stream.handle = driver.Graph.HANDLE
    try:
        yield
    finally:
        driver.Stream.handle = 0
        assert double.cuStreamEndCapture(stream, driver.ctypes.byref(graph.graph.graph)) == 0


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scripts, and torch.cuda where the driver is the double."""
    monkeypatch.syspath_prepend(str(FOLDER))
    if driver.library() is not None:

        def properties(device: str) -> Any:
            assert device == "cuda"
            return types.SimpleNamespace(name="The double", multi_processor_count=2, total_memory=1)

        def synchronize(device: Any = None) -> None:
            del device

        monkeypatch.setattr(torch.cuda, "get_device_properties", properties)
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
        monkeypatch.setattr(torch.cuda, "graph", captured)
    import exactness
    import speed

    yield types.SimpleNamespace(exactness=exactness, speed=speed)
    for name in ("common", "exactness", "speed"):
        sys.modules.pop(name)


def lines(folder: Path, name: str) -> list[dict[str, Any]]:
    [path] = folder.glob(f"*-gpu-{name}-quick-*.jsonl")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_exactness(scripts: Any, tmp_path: Path) -> None:
    command = ["--quick", "--games", "pong", "--envs", "2", "--steps", "6", "--out", str(tmp_path)]
    assert scripts.exactness.main(command) == 0
    found = lines(tmp_path, "exactness")
    assert found[0]["what"] == "machine"
    assert {"commit", "device", "CUDA driver", "driver, clock, power"} <= set(found[0])
    assert found[-1] == {"what": "equal", "runs": 9, "equal": 9}
    assert all(line["difference"] is None for line in found[1:-1])


def test_a_difference_is_found(scripts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from parl.envs.atari_cuda import CudaAtariVectorEnv

    step = CudaAtariVectorEnv.step

    def wrong(self: Any, actions: Any, **options: Any) -> Any:
        results = step(self, actions, **options)
        results[0][1, 3, 70, 5] ^= 1
        return results

    monkeypatch.setattr(CudaAtariVectorEnv, "step", wrong)
    found, _ = scripts.exactness.compare(["pong"], 2, 3, "cuda")
    assert found is not None
    assert "before step 1: observation at (1, 3, 70, 5) is " in found


def test_speed(scripts: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripts.speed, "REPEATS", 2)
    # The script sets it; it is put back behind the test.
    monkeypatch.setenv("PARL_CUDA_CALIBRATE", "0")
    options = ["--quick", "--games", "pong", "--envs", "2", "--sizes", "2", "3", "--steps", "2"]
    # Compiling anew takes the double a minute: the disk serves both.
    monkeypatch.setattr(
        scripts.speed, "patch", types.SimpleNamespace(dict=lambda *_: contextlib.nullcontext())
    )
    assert scripts.speed.main([*options, "--out", str(tmp_path)]) == 0
    found = lines(tmp_path, "speed")
    kinds = [line["what"] for line in found]
    assert kinds.count("compile") == 2
    assert kinds.count("start") == kinds.count("frames, graph") == 2
    assert kinds.count("frames") == 3
    assert kinds.count("frames, other settings") == 7
    [forms] = [line for line in found if line["what"] == "forms"]
    assert len(forms["rates"]) == 8
    assert forms["best"] in forms["rates"]
    assert {"states", "median of the twenty", "worst game"} <= set(kinds)
    assert all(line["frames_per_second"] > 0 for line in found if "frames_per_second" in line)
