"""Reasons for which a device is not available, as a driver reports them; the process can go on."""

import os
import subprocess
import sys

import fake_driver
import pytest

import parl
from parl import _native, cuda
from parl.errors import CudaUnavailableError
from parl.run import doctor

pytestmark = pytest.mark.usefixtures("needs_fake_driver")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("devices", 0, "there is no CUDA device 0: the driver shows 0"),
        ("version", 11080, r"the driver is too old: it supports CUDA 11\.8, expected 12\.0 or newer"),
        ("architecture", 70, r"is too old: compute capability 7\.0, expected 7\.5 or newer"),
        ("architecture", 60, r"is too old: compute capability 6\.0"),
        (
            "memory",
            200_000,
            r"out of memory on CUDA device 0: \d+ bytes were asked for, \d+ of 200000 are free",
        ),
    ],
)
def test_unsupported_devices_raise_an_error_with_the_reason(name: str, value: int, message: str) -> None:
    before = fake_driver.figure("used"), fake_driver.figure(name)
    fake_driver.set_figure(name, value)
    with pytest.raises(CudaUnavailableError, match=message):
        parl.AtariVectorEnv("pong", 2, device="cuda")
    fake_driver.set_figure(name, before[1])
    assert fake_driver.figure("used") == before[0]
    envs = parl.AtariVectorEnv("pong", 2, device="cuda")
    envs.reset()
    envs.close()


def test_memory_for_stacks_is_counted_and_named_if_it_is_missing() -> None:
    threads, stack = 2 * 2048, 1 << 20
    before = {name: fake_driver.figure(name) for name in ("stack", "memory")}
    with_small = parl.AtariVectorEnv("pong", 2, device="cuda")
    assert with_small.stack_bytes == threads * before["stack"]
    fake_driver.set_figure("stack", stack)
    envs = parl.AtariVectorEnv("pong", 2, device="cuda")
    assert envs.stack_bytes == threads * stack
    assert envs.device_bytes - with_small.device_bytes == threads * (stack - before["stack"])
    fake_driver.set_figure("memory", fake_driver.figure("used") + 1000)
    reason = (
        f"out of memory on CUDA device 0: the first launch of parl_reset reserves a stack of {stack} bytes"
    )
    with pytest.raises(CudaUnavailableError, match=reason + " for every thread .*, 1000 of"):
        envs.reset()
    fake_driver.set_figure("memory", before["memory"])
    fake_driver.set_figure("stack", before["stack"])
    envs.reset()
    envs.close()
    with_small.close()


@pytest.mark.parametrize(
    ("error", "name"), [(100, "CUDA_ERROR_NO_DEVICE"), pytest.param(999, "error 999", marks=pytest.mark.slow)]
)
def test_a_driver_that_fails_to_initialize_is_reported(error: int, name: str) -> None:
    code = "import parl; parl.AtariVectorEnv('pong', device='cuda')"
    environment = {**os.environ, "PARL_FAKE_DRIVER": f"init={error}"}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert f"CudaUnavailableError: the CUDA driver (libcuda.so.1) does not start: {name}" in run.stderr


def test_a_missing_nvrtc_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARL_NVRTC", "/nowhere/libnvrtc.so.13")
    with pytest.raises(CudaUnavailableError, match=r"no NVRTC.*tried /nowhere/libnvrtc\.so\.13"):
        parl.AtariVectorEnv("pong", device="cuda")


def test_cuda_report_lists_the_devices() -> None:
    fake_driver.set_figure("devices", 2)
    lines = dict(_native.cuda_report([]))
    assert lines["CUDA driver"] == "for CUDA 13.0"
    assert lines["CUDA device 1"] == "the processor, as device 1, compute capability 9.0, 64 GiB"
    assert lines["NVRTC"].startswith("13.0 in ")


def test_environments_use_kernels_compiled_before() -> None:
    """Environments use the kernels that were compiled ahead."""
    target, _, files = cuda.prepare("cuda")
    assert target == "sm_90"
    assert {name for name, _, _ in files} == {name for name, _ in doctor.compile_kernels("cuda")[:-1]}
    assert all(cached for _, _, cached in cuda.prepare("cuda")[2])
    cuda.prefetch().join(timeout=100)
    envs = parl.AtariVectorEnv("pong", device="cuda")
    assert all(group.core.from_cache for group in envs._native.all)
    envs.close()
    with pytest.raises(ValueError, match='expected "cpu", "cuda" or'):
        cuda.prepare("gpu")
