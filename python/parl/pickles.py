"""When pickles of a run are loaded: loading one runs the code that is in it, so a run must be trusted first.

Runs of a registered environment hold no pickles. A run of a user's function keeps the function, and states of
its environments that are not plain data, as pickles. They are loaded where the caller says that the run is
trusted, and without that where this very process wrote them.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from parl.errors import UntrustedRunError

_written: set[bytes] = set()


def remember(pickled: bytes) -> None:
    """Notes that this process wrote ``pickled``."""
    _written.add(hashlib.sha256(pickled).digest())


def check(pickled: bytes, path: Path, trust: bool) -> None:
    """Refuses a pickle that is neither trusted nor this process's own.

    Raises:
        UntrustedRunError: it is not; the message names the file and says what to do.
    """
    if trust or hashlib.sha256(pickled).digest() in _written:
        return
    raise UntrustedRunError(
        f"{path} is a pickle: loading it runs the code in it. Open only runs you trust, with --trust on the "
        "command line or trust=True in Python"
    )
