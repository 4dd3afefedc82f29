import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, which the processes that tests start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
