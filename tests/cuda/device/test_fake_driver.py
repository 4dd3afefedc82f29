"""The fake driver itself: threads of a block exchange values, and the tools of `benches/gpu` run on it."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_driver
import pytest
import torch

FOLDER = Path(__file__).parents[3] / "benches" / "gpu"
SOURCE = """
extern "C" __global__ void speak(int* out, unsigned int count) {
    __shared__ int together[96];
    const unsigned int thread = threadIdx.x, lane = thread % 32;
    int* mine = out + 8 * (blockIdx.x * blockDim.x + thread);
    together[thread] = thread;
    __syncthreads();
    int sum = 0;
    for (unsigned int i = 0; i < blockDim.x; ++i) sum += together[i];
    mine[0] = sum;
    mine[1] = __shfl_sync(0xFFFFFFFFu, thread, 5);
    mine[2] = __shfl_xor_sync(0xFFFFFFFFu, thread, 1);
    mine[3] = __ballot_sync(0xFFFFFFFFu, lane % 3 == 0);
    if (lane < 8) mine[4] = __reduce_add_sync(0xFFu, lane);
    if (lane >= 8) mine[4] = __reduce_max_sync(0xFFFFFF00u, thread);
    __syncwarp();
    if (lane == 31) return;
    mine[5] = __popc(__match_any_sync(0x7FFFFFFFu, lane / 4));
    mine[6] = __shfl_up_sync(0x7FFFFFFFu, lane, 2);
    mine[7] = __shfl_down_sync(0x7FFFFFFFu, lane, 2, 8);
    atomicAdd(out + count, 1);
}
"""


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(FOLDER))
    import device

    yield device
    sys.modules.pop("device")


def test_threads_of_a_block_exchange_values(tools: Any, tmp_path: Path) -> None:
    source = tmp_path / "speak.cu"
    source.write_text(SOURCE)
    import parl.cuda

    place = parl.cuda.torch_device(0)
    major, minor = torch.cuda.get_device_capability(0) if place.type == "cuda" else (9, 0)
    if major < 8:
        pytest.skip("__reduce_add_sync needs compute capability 8.0")
    image = tools.compiled(source, [], 10 * major + minor)
    with fake_driver.current_context():
        speak(tools.Kernels(image, place), place)
    source.write_text("nonsense")
    with pytest.raises(RuntimeError, match=r"compiling speak\.cu"):
        tools.compiled(source, [], 10 * major + minor)


def speak(kernels: Any, place: Any) -> None:
    blocks, threads = 2, 96
    count = 8 * blocks * threads
    out = torch.zeros(count + 1, dtype=torch.int32, device=place)
    kernels.launch("speak", blocks, threads, out, count)
    found = out.cpu()
    assert found[count] == blocks * threads * 31 // 32
    for block in range(blocks):
        for thread in range(threads):
            lane, first = thread % 32, thread - thread % 32
            mine = found[8 * (block * threads + thread) :][:8].tolist()
            votes = sum(1 << i for i in range(0, 32, 3))
            expected = [
                sum(range(threads)),
                first + 5,
                thread ^ 1,
                votes,
                sum(range(8)) if lane < 8 else first + 31,
            ]
            assert mine[:5] == expected, thread
            if lane < 31:
                down = lane + 2 if lane % 8 + 2 < 8 else lane
                # The value of a lane that has ended is undefined.
                same = 4 if lane < 28 else 3
                assert mine[5:7] == [same, lane - 2 if lane >= 2 else lane], thread
                assert lane in (29, 30) or mine[7] == down, thread
    with pytest.raises(RuntimeError, match="cuModuleGetFunction"):
        kernels.launch("unknown", 1, 1)


def test_a_deadlock_of_threads_ends_the_process(tmp_path: Path, needs_fake_driver: None) -> None:
    """A barrier that some lanes never reach is an error on a device too, so it must not pass here."""
    (tmp_path / "never.cu").write_text(
        'extern "C" __global__ void never(int* out) {\n'
        "    if (threadIdx.x < 3) __syncwarp(0xFu); else __syncwarp(0xFFFFFFFFu);\n"
        "    *out = 1;\n}\n"
    )
    code = (
        f"import sys; sys.path[:0] = [{str(FOLDER)!r}, {str(Path(__file__).parent)!r}]\n"
        "import ctypes, pathlib, torch, device, fake_driver\n"
        "fake_driver.patch_torch(); driver = fake_driver.library(); context = ctypes.c_void_p()\n"
        "driver.cuInit(0); driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)\n"
        "driver.cuCtxPushCurrent_v2(context)\n"
        f"image = device.compiled(pathlib.Path({str(tmp_path / 'never.cu')!r}), [], 90)\n"
        "device.Kernels(image, 'cpu').launch('never', 1, 32, torch.zeros(1, dtype=torch.int32))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode != 0
    assert "the threads of a block wait for each other for ever" in run.stderr, run.stderr
