"""Freed memory is kept. Tested in a new process, because the setting cannot be undone."""

import os
import sys

import pytest

import forked

CODE = """
import resource, sys
import torch
from parl.ops.memory import keep_freed_memory

def faults(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def work():
    torch.ones(2**24), torch.ones(2**23)

kept = keep_freed_memory()
rounds = [faults(work) for _ in range(8)]
print(kept, max(rounds), min(rounds))
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs glibc")
@pytest.mark.parametrize("wanted", ["1", "0"])
def test_freed_memory_is_not_cleared_again(tmp_path, wanted):
    (tmp_path / "faults.py").write_text(CODE)
    done = forked.run(["faults.py"], tmp_path, os.environ | {"PARL_KEEP_MEMORY": wanted})
    assert done.returncode == 0, done.stderr
    kept, most, least = done.stdout.split()
    assert kept == str(wanted == "1")
    # Kept pages serve later rounds, unless a small allocation splits the freed memory of some; else the pages
    # are mapped and cleared in every round.
    assert (int(least) < int(most) / 4) == (wanted == "1"), done.stdout
