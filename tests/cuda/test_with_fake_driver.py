"""Runs `tests/cuda/device` without a CUDA device, with the fake driver, whose device is the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).with_name("device")


@pytest.mark.parametrize(
    "which",
    ["not slow", pytest.param("slow", marks=[pytest.mark.slow(minutes=12), pytest.mark.timeout(3600)])],
)
@pytest.mark.timeout(1200)  # Includes compiling the kernels once, about 50 s.
def test_the_host_code_runs(which: str) -> None:
    sys.path.insert(0, str(TESTS))
    try:
        import fake_driver
    finally:
        sys.path.remove(str(TESTS))
    environment = fake_driver.build()
    options = ["-q", "-p", "no:cacheprovider", "--timeout", "900", "-m", which]
    command = [sys.executable, "-m", "pytest", str(TESTS), *options]
    run = subprocess.run(
        command, env=environment, cwd=TESTS.parents[2], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    counts = dict(reversed(pair.split()) for pair in re.findall(r"\d+ (?:passed|skipped)", run.stdout))
    assert int(counts["passed"]) > 10, run.stdout
    assert "skipped" not in counts or "ALE_ROMS_DIR" not in os.environ, run.stdout
