"""`benches/gpu/run.sh` on machines with other packages: what it imports, and what it says is missing."""

import importlib.util
import os
import shutil
import subprocess
import venv
import zipfile
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benches" / "gpu" / "run.sh"
# Stands in for a measurement: prints where each package was found.
PROBE = "import numpy, gymnasium, torch, parl\nfor m in (numpy, gymnasium, torch, parl): print(m.__file__)\n"


@pytest.fixture
def machine(tmp_path):
    """A Python environment with torch only, a folder of wheels with the rest, and the script with a probe."""
    venv.create(tmp_path / "machine", with_pip=False)
    (site,) = (tmp_path / "machine").glob("lib/python*/site-packages")
    (site / "torch.py").write_text("")
    (tmp_path / "wheels").mkdir()
    for name in ("numpy", "gymnasium", "parl"):
        with zipfile.ZipFile(tmp_path / "wheels" / f"{name}-1-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}/__init__.py", "")
            wheel.writestr(f"{name}/__main__.py", "print('the doctor')")
    (tmp_path / "benches" / "gpu").mkdir(parents=True)
    shutil.copy(SCRIPT, tmp_path / "benches" / "gpu")
    (tmp_path / "benches" / "gpu" / "exactness.py").write_text(PROBE)
    (tmp_path / "tmp").mkdir()
    return tmp_path


def run(machine, *arguments, **variables):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHON": str(machine / "machine" / "bin" / "python"), "TMPDIR": str(machine / "tmp")}
    environment |= variables
    command = ["sh", str(machine / "benches" / "gpu" / "run.sh"), *(arguments or ["exactness"])]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100)


def test_packages_of_wheels_are_added_to_those_of_the_machine(machine):
    ended = run(machine, PARL_WHEELS=str(machine / "wheels"))
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("the doctor\n")
    found = [Path(line) for line in ended.stdout.splitlines()[1:]]
    place = machine / "tmp" / "parl-gpu-packages"
    assert [path.is_relative_to(place) for path in found] == [True, True, False, True]
    assert found[2].is_relative_to(machine / "machine")


def test_another_wheel_replaces_the_packages(machine):
    wheels = str(machine / "wheels")
    assert run(machine, PARL_WHEELS=wheels).returncode == 0
    with zipfile.ZipFile(machine / "wheels" / "parl-1-py3-none-any.whl", "a") as wheel:
        wheel.writestr("parl/newer.py", "")
    assert run(machine, PARL_WHEELS=wheels).returncode == 0
    assert (machine / "tmp" / "parl-gpu-packages" / "parl" / "newer.py").exists()


def test_a_missing_package_is_named(machine):
    (machine / "wheels" / "gymnasium-1-py3-none-any.whl").unlink()
    for variables in ({"PARL_WHEELS": str(machine / "wheels")}, {}):
        ended = run(machine, **variables)
        assert ended.returncode == 2
        missing = "gymnasium" if variables else "numpy"
        assert f"cannot import {missing}; PARL_WHEELS=<folder>" in ended.stderr


@pytest.fixture
def tools(machine):
    """Scripts and tools that print their names and arguments; variables for calls of `run.sh`."""
    folder, tools = machine / "benches" / "gpu", machine / "tools"
    for name in ("exactness", "speed"):
        (folder / f"{name}.py").write_text(f"import sys; print('{name}', *sys.argv[1:])")
    tools.mkdir()
    for name in ("compute-sanitizer", "ncu", "nvidia-smi"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} $2\n")
        (tools / name).chmod(0o755)
    wheels, path = str(machine / "wheels"), f"{tools}:{os.environ['PATH']}"
    return {"PARL_WHEELS": wheels, "PATH": path, "PARL_COMMIT": "abc"}


def test_the_first_part_compares_before_it_measures_and_continues_in_a_second_call(machine, tools):
    contact = "exactness --mixed --envs 32 --steps 50 --seconds 60 --out "
    every = "exactness --mixed --envs 32 --steps 1000 --seconds "
    rates = "speed --sections grid compile --grid 32768 --seconds "
    rest = "speed --sections grid settings sizes start memory --games breakout "
    rest += "--grid 256 1024 4096 65536 131072 "
    checks = [f"compute-sanitizer {name}" for name in ("memcheck", "racecheck", "synccheck")]
    once = ["contact", "all-games", "ncu-breakout", "ncu-seaquest"]
    once += [f"sanitizer-{name}" for name in ("memcheck", "racecheck", "synccheck")]
    passed = [f"{name} has passed before" for name in once]
    for expected in (
        [contact, rates, every, "ncu parl_step", "ncu parl_step", *checks, rest],
        [passed[0], rates, *passed[1:], rest],
    ):
        ended = run(machine, "first", "--out", str(machine / "out"), **tools)
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()[1:]
        assert len(lines) == len(expected), ended.stdout
        for line, start in zip(lines, expected, strict=True):
            assert line.startswith(start)
    other = run(machine, "first", **tools).stdout.splitlines()
    assert other[1].endswith("--games pong breakout maze_craze solaris")


def test_the_first_part_ends_if_a_few_steps_differ(machine, tools):
    (machine / "benches" / "gpu" / "exactness.py").write_text("print('differs'); raise SystemExit(1)")
    ended = run(machine, "first", "--out", str(machine / "out"), **tools)
    assert ended.returncode == 1
    assert ended.stdout.splitlines()[1:] == ["differs"]


def test_variants_are_compiled_first_and_measured_one_by_one(machine, tools):
    with zipfile.ZipFile(machine / "wheels" / "parl-1-py3-none-any.whl", "a") as wheel:
        wheel.writestr("parl/cuda.py", "def prepare(device): print(f'compiled for {device};', end='')")
    measures = "import os, sys\nnames = ('PARL_NVRTC_OPTIONS', 'PARL_CUDA_LANES')\n"
    measures += "print(*(os.environ.get(name, '-') for name in names), sys.argv[-1])"
    (machine / "benches" / "gpu" / "speed.py").write_text(measures)
    ended = run(machine, "variants", "--envs", "7", **tools)
    assert ended.returncode == 0, ended.stderr
    options = ["-DSYNC_PHASES=0", "-DSYNC_PHASES=2", "-DSYNC_PHASES=3", "-DSYNC_PHASES=1", "-DPARL_LOOPS=1"]
    expected = [f"{one} - 7" for one in options] + [f"- {lanes} 7" for lanes in (4, 8, 16, 32)]
    expected[0] = "compiled for cuda;" * len(options) + expected[0]
    assert ended.stdout.splitlines()[1:] == expected


def test_training_that_was_cut_off_goes_on_in_the_next_call(machine, tools):
    # `parl train` writes a checkpoint and is cut off, with the status of `timeout`; other commands end.
    parl = """
import pathlib, sys
print(*sys.argv[1:3])
if sys.argv[1] == "train":
    run = pathlib.Path(sys.argv[sys.argv.index("--runs") + 1], sys.argv[-1])
    (run / "checkpoints" / "100").mkdir(parents=True)
    raise SystemExit(124)
"""
    with zipfile.ZipFile(machine / "wheels" / "parl-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("parl/__init__.py", "")
        wheel.writestr("parl/__main__.py", parl)
    (out := machine / "out").mkdir()

    def calls():
        ended = run(machine, "learn", "--out", str(out), **tools)
        return ended.returncode, [
            line for line in ended.stdout.splitlines() if line[:5] in ("train", "resum")
        ]

    trained = ["train ppo", "train pqn"] * 2
    names = [f"pong-{algorithm}-{sticky}" for sticky in (0.25, 0.0) for algorithm in ("ppo", "pqn")]
    assert calls() == (3, trained)
    assert calls() == (0, [f"resume {out / name}-abc" for name in names])
    # What has ended does not run again, and another commit starts anew.
    assert calls() == (0, [])
    tools["PARL_COMMIT"] = "abd"
    assert calls() == (3, trained)


def test_a_profile_is_summed_up():
    spec = importlib.util.spec_from_file_location("stalls", SCRIPT.with_name("stalls.py"))
    stalls = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stalls)
    names = ["# Samples", "Instructions Executed", "L2 Theoretical Sectors Global", "stall_wait"]
    names += ["stall_no_inst", "stall_no_inst (Not Issued)"]
    # Sixteen instructions, of which the first and the last are hot: two lines of eight instructions.
    counts = [(2, 84, 10**6, 1, 1, 1)] + [(0, 1, 0, 0, 0, 0)] * 14 + [(6, 84, 0, 0, 6, 6)]
    rows = [dict(zip(names, map(str, row), strict=True)) for row in counts]
    assert stalls.summary(rows, warps=4) == [
        "46 instructions of a warp, 8 samples",
        f"{'no_inst':20}  87.5%",
        f"{'wait':20}  12.5%",
        "hot code: 0 KiB in 0 KiB of cache lines",
        "1 million sectors of global memory",
    ]
    rows = rows * 64
    assert stalls.summary(rows, warps=4)[-2] == "hot code: 2 KiB in 16 KiB of cache lines"


def test_an_unknown_part_is_named(machine):
    ended = run(machine, "frist")
    assert (
        ended.returncode == 2
        and "unknown part frist, expected first, variants, learn, cores," in ended.stderr
    )
