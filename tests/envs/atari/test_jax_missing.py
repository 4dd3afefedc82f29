"""`parl.jax` where JAX is not installed."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

CODE = """
import sys
sys.modules["jax"] = None  # Importing it raises ModuleNotFoundError.
import parl
assert "AtariEnv" in parl.jax.__all__
parl.jax.make("pong", 2)
"""


def test_the_error_names_the_extra() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last == "ModuleNotFoundError: parl.jax needs jax: pip install 'parl-rl[jax]'"


def test_parl_imports_without_jax() -> None:
    code = "import sys, parl, parl.jax; assert 'jax' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert importlib.util.find_spec("parl.jax") is not None
