"""Trust in the pickles of a run, because loading a pickle runs the code in it.

Runs of a registered environment contain no pickles. A run of a user's function stores the function, and
states of its environments that are not plain data, as pickles. They are loaded only if the caller declares
the run as trusted, or if this process wrote them or has loaded them from a trusted run.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from parl.errors import UntrustedRunError

_written: set[bytes] = set()  # or loaded


def remember(pickled: bytes) -> None:
    """Records that this process wrote or loaded ``pickled``, so that :func:`check` accepts it."""
    _written.add(hashlib.sha256(pickled).digest())


def check(pickled: bytes, path: Path, trust: bool) -> None:
    """Checks that a pickle may be loaded.

    Args:
        pickled: content of the pickle.
        path: path of its file, for the message.
        trust: whether the caller trusts the run.

    Raises:
        UntrustedRunError: the run is not trusted and this process neither wrote nor loaded the pickle.
    """
    if trust:
        remember(pickled)
    if hashlib.sha256(pickled).digest() in _written:
        return
    raise UntrustedRunError(
        f"{path} is a pickle: loading it runs the code in it. Open only runs you trust, with --trust on the "
        "command line or trust=True in Python"
    )


def dump(value: Any) -> bytes:
    """Pickles ``value`` for a run that this process writes."""
    import cloudpickle

    pickled = cloudpickle.dumps(value)
    remember(pickled)
    return pickled


def load(path: Path, trust: bool) -> Any:
    """Loads the pickle at ``path`` after :func:`check`."""
    import cloudpickle

    pickled = path.read_bytes()
    check(pickled, path, trust)
    return cloudpickle.loads(pickled)
