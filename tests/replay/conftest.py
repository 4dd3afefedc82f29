import os
import sys
from pathlib import Path

import pytest

# The helper modules of the tests are in this folder.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def name(request):
    """An unused name for shared memory. The test fails if the segment still exists after it."""
    found = f"parl-test-{os.getpid()}-{abs(hash(request.node.nodeid)) % 10**8}"
    yield found
    left = f"/dev/shm/{found}"
    if os.path.exists(left):
        os.unlink(left)
        pytest.fail(f"{left} still exists after the test")
