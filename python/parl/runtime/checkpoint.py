"""Checkpoints: the state of a run in a folder, with learner, counters, actors and replay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from parl import pickles
from parl.errors import RunDirectoryError
from parl.runtime import states
from parl.types import Learned

FORMAT = 2


@dataclass(frozen=True)
class Checkpoint:
    """An opened checkpoint.

    Attributes:
        folder: its folder.
        counters: ``env_steps``, ``updates`` and so on.
        trusted: whether pickles in it may be loaded.
    """

    folder: Path
    counters: Mapping[str, Any]
    trusted: bool = False


def _actor_file(index: int, pickled: bool) -> str:
    return f"actor-{index}.{'pkl' if pickled else 'npz'}"


def write(
    folder: Path,
    learner: Learned,
    replay: Any,
    actors: Sequence[bytes | None],
    counters: Mapping[str, Any],
) -> None:
    """Writes the parts of a checkpoint; ``replay`` and the states of actors that cannot be saved are None.

    Raises:
        NonFiniteError: the learner holds a number that is NaN or infinite; nothing is written.
        OSError: a file cannot be written, for example because the disk is full.
    """
    import torch

    from parl.ops.finite import check_state

    state = learner.state_dict()
    check_state(state, "the learner cannot be saved")
    with (folder / "learner.pt").open("wb") as file:
        writer: Any = _Writer(file)
        torch.save(state, writer)
        if writer.error is not None:
            raise writer.error
    if replay is not None:
        replay.save(folder / "replay.bin")
    for index, actor in enumerate(actors):
        if actor is None:
            continue
        if states.is_pickle(actor):
            pickles.remember(actor)
        (folder / _actor_file(index, states.is_pickle(actor))).write_bytes(actor)
    record = {"format": FORMAT, **counters, "actors_saved": [state is not None for state in actors]}
    (folder / "counters.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


class _Writer:
    """A file for ``torch.save``, which hides the cause of a failed write: keeps the first error."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes ``data`` unless a write has failed before; returns its size in bytes."""
        if self.error is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.error = error
        return len(data)

    def flush(self) -> None:
        """Does nothing: closing the file writes the rest."""


def read(folder: Path, trusted: bool = False) -> Checkpoint:
    """Opens a checkpoint.

    Args:
        folder: folder of the checkpoint.
        trusted: whether pickles in it may be loaded.

    Raises:
        RunDirectoryError: a part is missing, damaged or of another version.
    """
    try:
        counters = json.loads((folder / "counters.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RunDirectoryError(f"{folder / 'counters.json'} cannot be read: {error}") from error
    if counters.get("format") != FORMAT:
        raise RunDirectoryError(
            f"{folder / 'counters.json'} is of format {counters.get('format')!r}, not {FORMAT}"
        )
    return Checkpoint(folder, counters, trusted)


def on_cpu(state: Any) -> Any:
    """Returns the ``state_dict`` of a learner with its tensors on the CPU, which every process has."""
    import torch

    if isinstance(state, torch.Tensor):
        return state.cpu()
    if isinstance(state, Mapping):
        return {name: on_cpu(value) for name, value in state.items()}
    if type(state) is list:
        return [on_cpu(value) for value in state]
    return tuple(on_cpu(value) for value in state) if type(state) is tuple else state


def load_learner(saved: Checkpoint, learner: Learned) -> None:
    """Loads the saved state into ``learner``, whose device may be another one than before.

    Raises:
        RunDirectoryError: the state is missing or does not fit the learner.
    """
    import torch

    try:
        state = torch.load(saved.folder / "learner.pt", weights_only=True, map_location="cpu")
        learner.load_state_dict(state)
    except Exception as error:  # any error of torch.load or of an algorithm
        raise RunDirectoryError(f"{saved.folder / 'learner.pt'} does not fit: {error}") from error


def actor_state(saved: Checkpoint | None, index: int) -> bytes | None:
    """Returns the saved state of actor ``index``, or None if there is none.

    Raises:
        UntrustedRunError: it is a pickle and the run is not trusted.
    """
    if saved is None:
        return None
    for pickled in (False, True):
        path = saved.folder / _actor_file(index, pickled)
        if path.exists():
            state = path.read_bytes()
            # The content decides, not the name of the file.
            if states.is_pickle(state):
                pickles.check(state, path, saved.trusted)
            return state
    return None
