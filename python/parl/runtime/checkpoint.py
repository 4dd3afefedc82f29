"""A run's state in a folder: learner, counters, actors and replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from parl.errors import RunDirectoryError
from parl.runtime.setup import Saved
from parl.types import Learned

FORMAT = 1


def write(
    folder: Path,
    learner: Learned,
    replay: Any,
    actors: Sequence[bytes | None],
    counters: Mapping[str, Any],
) -> None:
    """Writes the parts; ``replay`` may be None, and an actor where an environment cannot be pickled.

    Raises:
        NonFiniteError: the learner holds a number that is NaN or infinite; nothing is written.
    """
    import torch

    from parl.ops.finite import check_state

    state = learner.state_dict()
    check_state(state, "the learner cannot be saved")
    torch.save(state, folder / "learner.pt")
    if replay is not None:
        replay.save(folder / "replay.bin")
    for index, state in enumerate(actors):
        if state is not None:
            (folder / f"actor-{index}.pkl").write_bytes(state)
    record = {"format": FORMAT, **counters, "actors_saved": [state is not None for state in actors]}
    (folder / "counters.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read(folder: Path) -> Saved:
    """Opens a checkpoint.

    Raises:
        RunDirectoryError: a part is missing, damaged or of another version.
    """
    try:
        counters = json.loads((folder / "counters.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{folder} is no complete checkpoint: {error}") from error
    if counters.get("format") != FORMAT:
        raise RunDirectoryError(f"{folder} has checkpoint format {counters.get('format')}, not {FORMAT}")
    return Saved(folder, counters)


def load_learner(saved: Saved, learner: Learned) -> None:
    """Puts the saved state into ``learner``.

    Raises:
        RunDirectoryError: it is missing or does not fit.
    """
    import torch

    try:
        learner.load_state_dict(torch.load(saved.folder / "learner.pt", weights_only=True))
    except Exception as error:  # of torch's reader and of any algorithm, whatever the file holds
        raise RunDirectoryError(f"{saved.folder / 'learner.pt'} does not fit: {error}") from error


def actor_state(saved: Saved | None, index: int) -> bytes | None:
    """The saved state of actor ``index``, None if there is none."""
    if saved is None:
        return None
    path = saved.folder / f"actor-{index}.pkl"
    return path.read_bytes() if path.exists() else None
