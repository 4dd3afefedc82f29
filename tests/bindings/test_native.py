"""The extension module: every export is typed, public names are lazy, importing is cheap."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import parl
import parl._native


@pytest.mark.slow  # `make lint` runs it too; it takes a minute.
def test_the_stub_matches_the_module(tmp_path):
    command = [sys.executable, "-m", "mypy.stubtest", "parl._native"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_importing_is_cheap_and_loads_numpy_alone():
    code = """
import sys

calls = 0

def count(*event):
    global calls
    calls += 1

def calls_of_import(name):
    global calls
    calls = 0
    sys.setprofile(count)
    __import__(name)
    sys.setprofile(None)
    return calls

of_numpy, before = calls_of_import("numpy"), set(sys.modules)
of_parl = calls_of_import("parl")
packages = {name.partition(".")[0] for name in set(sys.modules) - before} - sys.stdlib_module_names
assert packages - {"numpy"} == {"parl"}, packages
print(of_parl / of_numpy)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert float(run.stdout) < 0.25, "calls of functions, relative to the import of numpy"


def test_replays_need_no_torch():
    code = """
import sys
sys.modules["torch"] = None  # importing it fails
import numpy as np, parl
buffer = parl.PrioritizedReplay(10, {"x": ((), "int64")})
buffer.update_priorities(buffer.add(x=[1, 2]), np.ones(2))
buffer.sample(4)
assert not {"gymnasium", "ale_py"} & set(sys.modules)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ})
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    ("code", "missing", "message"),
    [
        ("make_vec", "gymnasium", "ModuleNotFoundError: parl.make_vec needs gymnasium"),
        ("train('dqn', env='CartPole-v1')", "torch", "parl.errors.ConfigError: dqn needs torch"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(code, missing, message):
    code = f"import sys; sys.modules[{missing!r}] = None; import parl; parl.{code}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 1
    assert run.stderr.splitlines()[-1] == message + ": pip install 'parl-rl[train]'"


def test_public_names_exist():
    assert {"SumTree", "PrioritizedReplay", "UniformReplay", "ParlError"} <= set(dir(parl))
    assert {"load", "record"} <= set(dir(parl.datasets)) and {"sb3", "cpprb"} <= set(dir(parl.adapters))
    assert parl.PrioritizedReplay is parl.replay.PrioritizedReplay
    for name in ("nothing", "Replay"):
        try:
            getattr(parl, name)
        except AttributeError as error:
            assert str(error) == f"module 'parl' has no attribute {name!r}"
        else:
            raise AssertionError(name)


def test_the_first_use_of_an_array_imports_nothing():
    """An import that Ctrl-C interrupts would end in a panic."""
    code = (
        "import builtins, numpy, parl._native\n"
        "def interrupted(*_, **__): raise KeyboardInterrupt\n"
        "builtins.__import__ = interrupted\n"
        "assert parl._native.all_finite(numpy.ones(3, numpy.float32))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
