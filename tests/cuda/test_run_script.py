"""`benches/gpu/run.sh` on machines with other packages: what it imports, and what it says is missing."""

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


def test_the_first_part_compares_before_it_measures_and_continues_in_a_second_call(machine):
    folder, tools = machine / "benches" / "gpu", machine / "tools"
    for name in ("exactness", "speed"):
        (folder / f"{name}.py").write_text(f"import sys; print('{name}', *sys.argv[1:])")
    tools.mkdir()
    for name in ("compute-sanitizer", "ncu", "nvidia-smi"):
        (tools / name).write_text(f"#!/bin/sh\necho {name} $2\n")
        (tools / name).chmod(0o755)
    variables = {"PARL_WHEELS": str(machine / "wheels"), "PATH": f"{tools}:{os.environ['PATH']}"}
    variables |= {"PARL_COMMIT": "abc"}
    for call in range(2):
        ended = run(machine, "first", "--out", str(machine / "out"), **variables)
        assert ended.returncode == 0, ended.stderr
        lines = ended.stdout.splitlines()[1:]
        assert lines[0].startswith("exactness --mixed --envs 32 --steps 1000 --seconds ")
        assert lines[-1].startswith("speed --grid 256 1024 4096 32768 65536 131072 ")
        names = ["compute-sanitizer memcheck", "compute-sanitizer racecheck", "compute-sanitizer synccheck"]
        passed = [f"sanitizer-{name.split()[1]} has passed before" for name in names]
        assert lines[1:-1] == ([*names, "ncu parl_step"] if call == 0 else [*passed, "ncu has passed before"])


def test_an_unknown_part_is_named(machine):
    ended = run(machine, "frist")
    assert (
        ended.returncode == 2 and "unknown part frist, expected first, learn, cores, tests," in ended.stderr
    )
