import os
import sys
from pathlib import Path

import pytest

# The naive model lies beside the tests.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def name(request):
    """A name for shared memory that is free, and free again afterwards."""
    found = f"parl-test-{os.getpid()}-{abs(hash(request.node.nodeid)) % 10**8}"
    yield found
    left = f"/dev/shm/{found}"
    if os.path.exists(left):
        os.unlink(left)
        pytest.fail(f"{left} was left behind")
