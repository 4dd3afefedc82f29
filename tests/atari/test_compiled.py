"""Programs of cartridges are compiled to machine code, unless the user or the system forbids it."""

import json
import os
import platform
import subprocess
import sys

import pytest

COMPILES = sys.platform == "linux" and platform.machine() == "x86_64"
# Plays Breakout; prints by how many the anonymous executable mappings of the process have grown, and a hash.
CHILD = """
import ctypes, hashlib, json, sys
from pathlib import Path
from parl.atari import Console

def executable():
    return sum(line.split()[1] == "r-xp" and len(line.split()) == 5
               for line in Path("/proc/self/maps").read_text().splitlines())

if sys.argv[1] == "forbid" and ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE
    sys.exit("refused")
before = executable()
console = Console("breakout", seed=0)
frames = hashlib.sha256()
for number in range(600):
    console.act(number // 7 % 4)
    frames.update(console.save())
print(json.dumps({"grown": executable() - before, "frames": frames.hexdigest()}))
"""


def play(forbid=False, **variables):
    command = [sys.executable, "-c", CHILD, "forbid" if forbid else "allow"]
    environment = os.environ | {"PARL_COMPILE": ""} | variables
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.stderr.strip() == "refused":
        pytest.skip("this kernel cannot forbid executable memory to a process")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def default():
    return play()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_programs_are_compiled_on_linux_and_x86_64(default):
    assert (default["grown"] > 0) == COMPILES


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_a_variable_turns_compilation_off_without_other_results(default):
    assert play(PARL_COMPILE="0") == {"grown": 0, "frames": default["frames"]}


@pytest.mark.skipif(not COMPILES, reason="compiles nothing")
def test_a_process_without_new_executable_memory_has_the_same_results(default):
    assert play(forbid=True) == {"grown": 0, "frames": default["frames"]}
