"""Freed memory is kept, in a process of its own: it cannot be undone."""

import os
import subprocess
import sys

import pytest

CODE = """
import resource, sys
import torch
from parl.ops.memory import keep_freed_memory

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def work():
    for _ in range(4):
        torch.ones(2**24), torch.ones(2**23)

kept = keep_freed_memory()
first, second = faults(work), faults(work)
print(kept, first, second)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone")
@pytest.mark.parametrize("wanted", ["1", "0"])
def test_freed_memory_is_not_cleared_again(wanted):
    command = [sys.executable, "-c", CODE]
    done = subprocess.run(
        command, env=os.environ | {"PARL_KEEP_MEMORY": wanted}, capture_output=True, text=True, check=True
    )
    kept, first, second = done.stdout.split()
    assert kept == str(wanted == "1")
    # Pages of the pieces are there from the first time, or come anew every time.
    assert (int(second) < int(first) / 4) == (wanted == "1"), done.stdout
