import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A shell's background jobs begin with interrupts switched off, and so would those that the tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
