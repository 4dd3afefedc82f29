"""Environments of a device in groups of ``batch_size``: each has launches and a stream of its own."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parl import _native, cuda
from parl.errors import AtariError, CudaUnavailableError

# Fewer environments than this are not worth measuring how they play fastest.
CALIBRATES_FROM = 1024
# Entropies of groups must not meet those of the environments within a group, which the core spreads.
_SPREAD = 0xD1B54A32D192ED03
_BITS = 2**64
# How games are played, whatever was measured: a form, and for the grouped one its window, "grouped:4".
FORM_VARIABLE = "PARL_CUDA_FORM"
# The window where none is named: the best fixed one over twenty games.
_WINDOW = 4


class Group:
    """Environments ``first`` to ``first + size``: one core, and the stream it works on.

    Args:
        core: `parl._native.CudaAtariBatch`.
        first: number of its first environment.
        side: a stream of its own; None for torch's current one.
    """

    def __init__(self, core: Any, first: int, side: cuda.SideStream | None) -> None:
        self.core, self.first, self.side = core, first, side
        self.size: int = core.num_envs

    def stream(self, device: Any) -> int:
        """The driver's handle of the stream that its launches go to."""
        return cuda.current_stream(device) if self.side is None else self.side.address

    def begin(self, *tensors: Any) -> None:
        """Its next launches follow what torch's current stream has been given, and use these tensors."""
        if self.side is not None:
            self.side.begin(*(tensor for tensor in tensors if tensor is not None))

    def end(self) -> None:
        """Up to here :meth:`join` lets wait."""
        if self.side is not None:
            self.side.end()

    def join(self) -> None:
        """Torch's current stream waits for it; the host does not."""
        if self.side is not None:
            self.side.join()


class Groups:
    """All environments of a device, with what the core of a CPU batch has for them together.

    Args:
        config: as `parl._native.CudaAtariBatch` takes it, of all environments.
        ordinal: number of the device.

    Raises:
        AtariError: ``batch_size`` does not divide the number of environments; ``PARL_CUDA_FORM`` is no form.
    """

    def __init__(self, config: dict[str, Any], ordinal: int) -> None:
        assignment, size = config["assignment"], config["batch_size"]
        if len(assignment) % size:
            raise AtariError(
                f"batch_size is {size}: on a CUDA device it is the size of groups, and "
                f"must divide num_envs, {len(assignment)}"
            )
        folders = cuda.nvrtc_folders()
        forced = os.environ.get(FORM_VARIABLE)
        wanted = form_of(forced) if forced else None
        cores: list[Any] = []
        # The driver and the devices are looked at before torch, whose reasons say less.
        for number, first in enumerate(range(0, len(assignment), size)):
            own = {
                **config,
                "assignment": assignment[first : first + size],
                "entropy": (config["entropy"] + number * _SPREAD) % _BITS,
            }
            core = _made(own, ordinal, folders)
            if wanted is not None:
                core.choose([wanted], 0)
            elif number == 0 and _is_worth_measuring(core, config["games"], size):
                # Its environments have run then: others take their place, and find what was measured.
                core.calibrate(0)
                core.close()
                core = _made(own, ordinal, folders)
            cores.append(core)
        self.device = cuda.torch_device(ordinal)
        apart = len(cores) > 1
        self.all = [
            Group(core, number * size, cuda.SideStream(self.device) if apart else None)
            for number, core in enumerate(cores)
        ]
        self._games: list[str] = config["games"]
        self.actions: list[int] = cores[0].actions
        self.obs_shape: list[int] = cores[0].obs_shape
        self.device_bytes: int = sum(core.device_bytes for core in cores)
        # Those at work, in the order of their steps, with what they write to; and the one whose turn it is.
        self.sent: deque[tuple[Group, Any]] = deque()
        self.turn: Group | None = None

    @property
    def calibrated(self) -> bool:
        """How the games are played was known when the groups were made."""
        return all(group.core.calibrated for group in self.all)

    def calibrate(self) -> list[tuple[str, int, float]]:
        """Measures, by the first group, how the game is played fastest, and keeps that."""
        if len(self._games) != 1:
            raise AtariError(f"{len(self._games)} games are played: calibrate environments of one game")
        group = self.all[0]
        group.begin()
        found: list[tuple[str, int, float]] = group.core.calibrate(group.stream(self.device))
        return found

    def choose(self, choices: list[tuple[str, int]]) -> None:
        """Plays the games so from now on: form and window of each, or of all."""
        if len(choices) not in (1, len(self._games)):
            raise AtariError(
                f"{len(choices)} forms for {len(self._games)} games, expected one, or one per game"
            )
        for group in self.all:
            group.begin()
            group.core.choose(choices, group.stream(self.device))
            group.end()
            group.join()

    def forms(self) -> dict[str, str]:
        """How each game is played, as :func:`form_of` reads it."""
        return {game: form_text(form, window) for game, form, window in self.all[0].core.choices()}

    def idle(self) -> None:
        """Raises if a step has been sent and not received."""
        if self.sent:
            raise AtariError(f"environment {self.sent[0][0].first} is still at work: call recv first")

    def of(self, envs: Sequence[int]) -> Group:
        """The group of exactly these environments, in any order."""
        for group in self.all:
            if sorted(envs) == list(range(group.first, group.first + group.size)):
                return group
        size = self.all[0].size
        raise AtariError(
            f"env_id is {list(envs)}: on a CUDA device environments go in groups of batch_size, 0..{size}, "
            f"{size}..{2 * size} and so on, each of them once"
        )

    def parts(self, envs: Sequence[int]) -> list[tuple[Group, list[int], list[int]]]:
        """Groups with their share of these environments: places in ``envs``, numbers within the group."""
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
        """Waits for all, and raises what went wrong."""
        for group in self.all:
            group.begin()
            _told(lambda group=group: group.core.check(group.stream(self.device)), group)

    def get_state(self, envs: list[int]) -> NDArray[np.uint8]:
        """One row per environment."""
        rows: list[tuple[list[int], NDArray[np.uint8]]] = []
        for group, places, mine in self.parts(envs):
            group.begin()
            stream = group.stream(self.device)
            rows.append((places, _told(lambda g=group, m=mine, s=stream: g.core.get_state(m, s), group)))
        if len(rows) == 1:
            return rows[0][1]
        states = np.zeros((len(envs), max((part.shape[1] for _, part in rows), default=0)), np.uint8)
        for places, part in rows:
            states[places, : part.shape[1]] = part
        return states

    def set_state(self, states: NDArray[np.uint8], envs: list[int]) -> None:
        """One row per environment, or one for all."""
        for group, places, mine in self.parts(envs):
            group.begin()
            own = states if len(states) != len(envs) or len(places) == len(envs) else states[places]
            stream = group.stream(self.device)
            _told(lambda g=group, o=own, m=mine, s=stream: g.core.set_state(o, m, s), group)
            group.end()
            group.join()

    def pictures(self) -> tuple[NDArray[np.uint8], ...]:
        """Native pictures of all environments."""
        found: list[NDArray[np.uint8]] = []
        for group in self.all:
            group.begin()
            stream = group.stream(self.device)
            found += _told(lambda g=group, s=stream: g.core.pictures(list(range(g.size)), s), group)
        return tuple(found)

    def close(self) -> None:
        """Frees all."""
        for group in self.all:
            group.core.close()


def _made(config: dict[str, Any], ordinal: int, folders: list[str]) -> Any:
    try:
        return _native.CudaAtariBatch(config, ordinal, folders)
    except CudaUnavailableError as error:
        if "out of memory" not in str(error) or not cuda.give_back_memory(ordinal):
            raise
    return _native.CudaAtariBatch(config, ordinal, folders)


def form_of(text: str) -> tuple[str, int]:
    """Form and window of ``"grouped:4"``, ``"grouped"``, ``"predicated"`` or ``"plain"``.

    Raises:
        AtariError: the text has not that shape. Whether there is such a form the core says.
    """
    form, colon, window = text.partition(":")
    if colon and not (window.isascii() and window.isdigit() and int(window) < _BITS >> 32):
        raise AtariError(f"form is {text!r}, expected grouped:<window>, grouped, predicated or plain")
    return form, int(window) if colon else _WINDOW if form == "grouped" else 0


def form_text(form: str, window: int) -> str:
    """What :func:`form_of` reads."""
    return f"{form}:{window}" if form == "grouped" else form


def _is_worth_measuring(core: Any, games: list[str], size: int) -> bool:
    wanted = os.environ.get("PARL_CUDA_CALIBRATE") != "0"
    return wanted and not core.calibrated and len(games) == 1 and size >= CALIBRATES_FROM


def _told(work: Any, group: Group) -> Any:
    """What `work` gives; its errors count environments from the group's first."""
    try:
        return work()
    except ValueError as error:
        if group.first == 0:
            raise
        raise type(error)(f"of the environments from {group.first} on: {error}") from error
