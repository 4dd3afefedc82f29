"""Groups of ``batch_size`` environments on a CUDA device, each with its own kernels and stream."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl import _native, cuda
from parl.errors import AtariError, CudaUnavailableError

# Odd multiplier that keeps the entropy of a group apart from those that the core derives within a group.
_ENTROPY_STEP = 0xD1B54A32D192ED03
_BITS = 2**64
# Environment variable that sets the form instead of a measurement, such as "grouped:4".
FORM_VARIABLE = "PARL_CUDA_FORM"
# Default window: the best fixed one over twenty games.
_WINDOW = 4


class Group:
    """Environments ``first`` to ``first + size``, their kernels and their stream.

    Args:
        core: a ``parl._native.CudaAtariBatch``.
        first: number of the first environment.
        side: the stream of the group; None for torch's current stream.
    """

    def __init__(self, core: Any, first: int, side: cuda.SideStream | None) -> None:
        self.core, self.first, self.side = core, first, side
        self.size: int = core.num_envs

    def stream(self, device: Any) -> int:
        """Handle of the CUDA stream that the group's kernels are launched on."""
        return cuda.current_stream(device) if self.side is None else self.side.address

    def begin(self, *tensors: Any) -> None:
        """Makes the group's next launches follow the work of torch's current stream.

        Args:
            *tensors: tensors that the launches use, so that torch does not reuse their memory too early.
        """
        if self.side is not None:
            self.side.begin(*(tensor for tensor in tensors if tensor is not None))

    def end(self) -> None:
        """Marks the last launch that :meth:`join` waits for."""
        if self.side is not None:
            self.side.end()

    def join(self) -> None:
        """Makes torch's current stream wait for the group; does not block the host."""
        if self.side is not None:
            self.side.join()


class Groups:
    """All environments on a device, with the methods of the CPU's ``parl._native.AtariBatch``.

    Args:
        config: the settings of all environments, as ``parl._native.CudaAtariBatch`` takes them.
        ordinal: number of the CUDA device.

    Raises:
        AtariError: ``batch_size`` does not divide the number of environments, or ``PARL_CUDA_FORM`` is not a
            form.
    """

    def __init__(self, config: dict[str, Any], ordinal: int) -> None:
        assignment, size = config["assignment"], config["batch_size"]
        if len(assignment) % size:
            raise AtariError(
                f"batch_size is {size} and num_envs {len(assignment)}: on a CUDA device batch_size must "
                "divide num_envs"
            )
        folders = cuda.nvrtc_folders()
        forced = os.environ.get(FORM_VARIABLE)
        wanted = parse_form(forced) if forced else None
        cores: list[Any] = []
        # Opens the device before torch does, because torch's errors give less detail.
        for number, first in enumerate(range(0, len(assignment), size)):
            own = {
                **config,
                "assignment": assignment[first : first + size],
                "entropy": (config["entropy"] + number * _ENTROPY_STEP) % _BITS,
            }
            core = _make_core(own, ordinal, folders)
            if wanted is not None:
                core.choose([wanted], 0)
            cores.append(core)
        self.device = cuda.torch_device(ordinal)
        has_streams = len(cores) > 1
        self.all = [
            Group(core, number * size, cuda.SideStream(self.device) if has_streams else None)
            for number, core in enumerate(cores)
        ]
        self._games: list[str] = config["games"]
        self.actions: list[int] = cores[0].actions
        self.obs_shape: list[int] = cores[0].obs_shape
        self.stack_bytes: int = cores[0].stack_bytes
        self.device_bytes: int = sum(core.device_bytes for core in cores) + self.stack_bytes
        # Groups whose steps have been sent, the oldest first, with the tensors that they write.
        self.sent: deque[tuple[Group, Any]] = deque()
        # The group of the last batch received, which the next `send` acts for.
        self.last_batch: Group | None = None

    @property
    def calibrated(self) -> bool:
        """Whether the forms came from a stored measurement when the groups were made."""
        return all(group.core.calibrated for group in self.all)

    def calibrate(self) -> list[tuple[str, int, float]]:
        """Measures forms and windows with the first group; see :meth:`CudaAtariVectorEnv.calibrate`."""
        if len(self._games) != 1:
            raise AtariError(
                f"the environments play {len(self._games)} games, calibrate needs environments of one game"
            )
        group = self.all[0]
        group.begin()
        found: list[tuple[str, int, float]] = group.core.calibrate(group.stream(self.device))
        # The first group uses the fastest form now.
        self.choose([(form, window) for _, form, window in group.core.choices()])
        return found

    def choose(self, choices: list[tuple[str, int]]) -> None:
        """Sets form and window of each game, or of all games by one entry."""
        if len(choices) not in (1, len(self._games)):
            raise AtariError(
                f"{len(choices)} forms for {len(self._games)} games, expected one form, or one per game"
            )
        for group in self.all:
            group.begin()
            group.core.choose(choices, group.stream(self.device))
            group.end()
            group.join()

    def forms(self) -> dict[str, str]:
        """Form of each game, as :func:`parse_form` reads it."""
        return {game: format_form(form, window) for game, form, window in self.all[0].core.choices()}

    def check_idle(self) -> None:
        """Raises AtariError if a step has been sent and not received."""
        if self.sent:
            raise AtariError(f"environment {self.sent[0][0].first} is still at work: call recv first")

    def of(self, envs: Sequence[int]) -> Group:
        """The group that consists of these environments, given in any order.

        Raises:
            AtariError: they are not all environments of one group.
        """
        for group in self.all:
            if sorted(envs) == list(range(group.first, group.first + group.size)):
                return group
        size = self.all[0].size
        raise AtariError(
            f"env_id is {list(envs)}, expected all environments of one group once: on a CUDA device the "
            f"groups are 0 to {size - 1}, {size} to {2 * size - 1} and so on"
        )

    def split(self, envs: Sequence[int]) -> list[tuple[Group, list[int], list[int]]]:
        """Splits environments by group: the group, their positions in ``envs``, their numbers within it."""
        size = self.all[0].size
        places: list[list[int]] = [[] for _ in self.all]
        for place, env in enumerate(envs):
            places[env // size].append(place)
        return [
            (group, mine, [envs[place] - group.first for place in mine])
            for group, mine in zip(self.all, places, strict=True)
            if mine
        ]

    def check(self) -> None:
        """Synchronizes, and raises an error that occurred on the device since the last check."""
        for group in self.all:
            group.begin()
            _with_offset(lambda group=group: group.core.check(group.stream(self.device)), group)

    def get_state(self, envs: list[int]) -> NDArray[np.uint8]:
        """States of environments, (len(envs), size) uint8; synchronizes."""
        rows: list[tuple[list[int], NDArray[np.uint8]]] = []
        for group, places, mine in self.split(envs):
            group.begin()
            stream = group.stream(self.device)
            state = _with_offset(lambda g=group, m=mine, s=stream: g.core.get_state(m, s), group)
            rows.append((places, state))
        if len(rows) == 1:
            return rows[0][1]
        states = np.zeros((len(envs), max((part.shape[1] for _, part in rows), default=0)), np.uint8)
        for places, part in rows:
            states[places, : part.shape[1]] = part
        return states

    def set_state(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        """Loads states (len(envs), size) uint8, or one row (1, size) into all of ``envs``.

        If a row is refused, the groups that were loaded before get their states back.
        """
        parts = self.split(envs)
        changed: list[tuple[Group, list[int], NDArray[np.uint8]]] = []
        try:
            for group, places, mine in parts:
                own = states if len(states) != len(envs) or len(places) == len(envs) else states[places]
                before = self.get_state([group.first + env for env in mine]) if len(parts) > 1 else own
                self._load(group, own, mine)
                changed.append((group, mine, before))
        except ValueError:
            for group, mine, before in changed:
                self._load(group, before, mine)
            raise

    def _load(self, group: Group, states: NDArray[np.uint8], envs: list[int]) -> None:
        group.begin()
        stream = group.stream(self.device)
        _with_offset(lambda: group.core.set_state(states, envs, stream), group)
        group.end()
        group.join()

    def adopt(self, other: Groups) -> None:
        """Takes over states and forms of ``other``, whose environments play the same games, and closes it."""
        forms = other.forms()
        kept = [
            forms.get(game, format_form(form, window)) for game, form, window in self.all[0].core.choices()
        ]
        self.choose([parse_form(form) for form in kept])
        for group, old in zip(self.all, other.all, strict=True):
            envs = list(range(group.first, group.first + group.size))
            if old.first != group.first or old.size != group.size:
                raise AtariError("the groups of two batches differ")
            self.set_state(other.get_state(envs), envs)
        other.close()

    def assign(self, assignment: list[int]) -> None:
        """Gives environments other entries of ``games`` from their next reset on; synchronizes."""
        for group in self.all:
            group.begin()
            own = assignment[group.first : group.first + group.size]
            stream = group.stream(self.device)
            _with_offset(lambda g=group, o=own, s=stream: g.core.assign(o, s), group)
            group.end()
            group.join()

    def pictures(self) -> tuple[NDArray[np.uint8], ...]:
        """Screens of all environments at the native size, (H, 160, 3) uint8 each; synchronizes."""
        found: list[NDArray[np.uint8]] = []
        for group in self.all:
            group.begin()
            stream = group.stream(self.device)
            found += _with_offset(lambda g=group, s=stream: g.core.pictures(list(range(g.size)), s), group)
        return tuple(found)

    def close(self) -> None:
        """Frees the environments of all groups."""
        for group in self.all:
            group.core.close()


def _make_core(config: dict[str, Any], ordinal: int, folders: list[str]) -> Any:
    """A ``CudaAtariBatch``; if memory does not suffice, tries again after torch has freed its cache."""
    try:
        return _native.CudaAtariBatch(config, ordinal, folders)
    except CudaUnavailableError as error:
        if "out of memory" not in str(error) or not cuda.release_cached_memory(ordinal):
            raise
    return _native.CudaAtariBatch(config, ordinal, folders)


def parse_form(text: str) -> tuple[str, int]:
    """Parses ``"grouped:<window>"``, ``"grouped"`` or ``"plain"`` into form and window.

    Raises:
        AtariError: the window is not a number. The core checks whether form and window exist.
    """
    form, colon, window = text.partition(":")
    if colon and not (window.isascii() and window.isdigit() and int(window) < _BITS >> 32):
        raise AtariError(f"form is {text!r}, expected grouped:<window>, grouped or plain")
    return form, int(window) if colon else _WINDOW if form == "grouped" else 0


def format_form(form: str, window: int) -> str:
    """Formats form and window so that :func:`parse_form` can parse them."""
    return f"{form}:{window}" if form == "grouped" else form


def _with_offset(work: Any, group: Group) -> Any:
    """Calls ``work``; error messages, which number environments within the group, name its first one."""
    try:
        return work()
    except ValueError as error:
        if group.first == 0:
            raise
        raise type(error)(f"in the group that starts at environment {group.first}: {error}") from error
