"""``parl.train`` can be called like a function and imported from like a module, in either order."""

import subprocess
import sys

import pytest

CALL = """
assert parl.train.OffPolicyRunConfig
assert callable(parl.train) and callable(parl.resume) and callable(parl.evaluate)
try:
    parl.train("dqm")
except parl.errors.ConfigError as error:
    print(error)
"""


@pytest.mark.parametrize(
    "first", ["import parl", "import parl.train, parl", "from parl.train import train; import parl"]
)
def test_train_is_a_function_and_a_module_in_either_order(first):
    done = subprocess.run([sys.executable, "-c", first + CALL], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "no algorithm 'dqm'" in done.stdout
