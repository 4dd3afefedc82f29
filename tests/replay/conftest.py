import sys
from pathlib import Path

# The naive model lies beside the tests.
sys.path.insert(0, str(Path(__file__).parent))
