"""Checks of the arguments of :class:`parl.AtariVectorEnv`; errors name the value and the bound."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from parl import cuda
from parl._system import machine_bytes
from parl.errors import AtariError, ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_UINT32_MAX = 2**32 - 1
_MAX_FRAMESKIP = 10_000
_MAX_NOOPS = 100_000
# Lower bound of an environment's size without observations: its generator of sticky actions.
_ENV_BYTES = 2500
# Rows and columns of a native image; some games have more rows.
_NATIVE_SIZE = (210, 160)


class FrameskipError(AtariError, error.Error):
    """An invalid frameskip: a ValueError, and also the ``gymnasium.error.Error`` that ale-py raises."""


class FrameskipTypeError(TypeError, error.Error):
    """A frameskip that is not an int: a TypeError, and also the ``gymnasium.error.Error`` of ale-py."""


def check_device(device: str) -> None:
    """Checks a device name.

    Raises:
        AtariError: it is neither ``"cpu"``, ``"cuda"`` nor ``"cuda:<number>"``.
    """
    if device != "cpu":
        try:
            cuda.ordinal(device)
        except ConfigError as error:
            raise AtariError(str(error)) from None


def clip(value: bool | str) -> str:
    """Converts ``reward_clipping`` to the name that the core uses."""
    return value if isinstance(value, str) else "clamp" if value else "none"


def reward_dtype(value: Any, clipping: bool | str) -> np.dtype[Any]:
    """Converts ``reward_dtype`` to a dtype that holds rewards as ``reward_clipping`` leaves them.

    Raises:
        AtariError: it cannot hold negative or large rewards.
    """
    dtype = np.dtype(value)
    # Kind V is that of the floats that JAX adds, such as bfloat16.
    if dtype.kind not in "ifV":
        raise AtariError(f"reward_dtype is {value!r}, expected a signed integer or a float")
    if dtype.kind == "i" and dtype.itemsize < 4 and clip(clipping) == "none":
        raise AtariError(f"reward_dtype is {value!r} without clipping, expected at least 32 bits")
    return dtype


def integer(name: str, value: Any, low: int, high: int) -> int:
    """Checks that ``value`` is an int with ``low <= value <= high`` and returns it.

    Raises:
        TypeError: it is not an int.
        AtariError: it is outside the bounds.
    """
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected an int") from None
    if not low <= number <= high:
        raise AtariError(f"{name} is {number}, expected {low} to {high}")
    return number


def env_numbers(name: str, values: Iterable[Any], num_envs: int) -> list[int]:
    """Checks numbers of environments and returns them.

    Raises:
        TypeError: one is not an int.
        AtariError: one is outside 0..num_envs - 1.
    """
    return [integer(name, value, 0, num_envs - 1) for value in values]


def noop_max(value: Any) -> int:
    """Checks ``noop_max``; negative values count as 0, as in ale-py."""
    return max(integer("noop_max", value, -INT32_MAX - 1, _MAX_NOOPS), 0)


def choice(name: str, value: Any) -> int | None:
    """Checks a mode or a difficulty; the core checks whether the game has it."""
    return None if value is None else integer(name, value, 0, _UINT32_MAX)


def frameskip(value: Any) -> tuple[int, int]:
    """Converts ``frameskip`` to (low, high) frames per step; both are equal if it is fixed.

    In JSON, which has no tuples, the pair of an environment is a list.

    Raises:
        FrameskipError: it is out of its bounds, or not a pair with low < high.
        FrameskipTypeError: it is not an int.
    """
    if isinstance(value, tuple | list):
        if len(value) != 2:
            raise FrameskipError(f"frameskip is {value!r}, expected an int or (low, high)")
        low, high = _frames(value[0]), _frames(value[1])
        if high <= low:
            raise FrameskipError(f"frameskip is ({low}, {high}), expected (low, high) with low < high")
        return low, high
    frames = _frames(value)
    return frames, frames


def _frames(value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise FrameskipTypeError(f"frameskip is {value!r}, expected an int") from None
    if not 1 <= number <= _MAX_FRAMESKIP:
        raise FrameskipError(f"frameskip is {number}, expected 1 to {_MAX_FRAMESKIP}")
    return number


def plane_bytes(obs_type: str, size: tuple[int, int] | None) -> int:
    """Lower bound of the bytes of one image of a stack."""
    if obs_type in ("ram", "objects"):
        return 128
    rows, columns = size or _NATIVE_SIZE
    return rows * columns * (3 if obs_type == "rgb" else 1)


def check_memory(num_envs: int, obs_bytes: int) -> None:
    """Checks, before environments are made, that the machine has the memory that they need.

    Args:
        num_envs: number of environments.
        obs_bytes: bytes of one observation; 0 if observations are not on the host.

    Raises:
        MemoryError: the machine has less memory; the message names both sizes.
    """
    # Each environment keeps its observation, and the caller gets a copy.
    needed = num_envs * (_ENV_BYTES + 2 * obs_bytes)
    available = machine_bytes()
    if available is not None and needed > available:
        raise MemoryError(
            f"num_envs is {num_envs}: the environments need {needed:,} bytes of memory, "
            f"this machine has {available:,}"
        )


def probability(value: float) -> float:
    """Checks ``repeat_action_probability``, a float from 0 to 1."""
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise AtariError(f"repeat_action_probability is {number}, expected 0 to 1")
    return number


def threshold(value: float) -> float:
    """Checks ``continuous_action_threshold``, a finite float."""
    number = float(value)
    if not math.isfinite(number):
        raise AtariError(f"continuous_action_threshold is {number}, expected a finite number")
    return number


def autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Converts Gymnasium's autoreset mode or its name to the mode."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [m.value for m in AutoresetMode]
        raise AtariError(f"autoreset_mode is {mode!r}, expected an AutoresetMode or one of {known}") from None


def reset_mask(options: Mapping[str, Any] | None, num_envs: int) -> NDArray[np.bool_] | None:
    """Checks ``options["reset_mask"]``, (N,) bool; None if there is none."""
    mask = None if options is None else options.get("reset_mask")
    if mask is None:
        return None
    mask = on_host(mask)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"reset_mask is {getattr(mask, 'dtype', type(mask).__name__)}, expected a bool array")
    if mask.shape != (num_envs,):
        raise AtariError(f"reset_mask has shape {mask.shape}, expected ({num_envs},)")
    return mask


def states(
    options: Mapping[str, Any] | None, mask: NDArray[np.bool_] | None, num_envs: int
) -> NDArray[np.uint8] | None:
    """Checks ``options["states"]``, a row for each environment that is reset; None if there are none.

    Raises:
        TypeError: they are not uint8.
        AtariError: there is another number of rows.
    """
    given = None if options is None else options.get("states")
    if given is None:
        return None
    rows = byte_array("states", given)
    count = num_envs if mask is None else int(np.count_nonzero(mask))
    if rows.ndim != 2 or len(rows) != count:
        raise AtariError(f"states have shape {rows.shape}, expected ({count}, bytes): rows of get_state")
    return rows


def seeds(
    seed: Any, mask: NDArray[np.bool_] | None, num_envs: int, largest: int = INT32_MAX
) -> list[int] | None:
    """Seeds of all environments.

    Args:
        seed: an int, to which the position among the environments that are reset is added; an integer array
            with one entry for each of them; or None.
        mask: (N,) bool, the environments that are reset; None for all.
        num_envs: number of environments N.
        largest: largest seed that the generators accept.

    Returns:
        N seeds, -1 for environments that keep the states of their generators; None if ``seed`` is None.

    Raises:
        TypeError: the seed is not an int or an integer array.
        AtariError: a seed is too large, or the array has another length.
    """
    if seed is None:
        return None
    chosen = list(range(num_envs)) if mask is None else np.nonzero(mask)[0].tolist()
    if isinstance(seed, (bool, str, bytes)):
        raise TypeError(f"seed is {seed!r}, expected an int or an integer array")
    array = np.asarray(seed)
    if array.dtype.kind not in "iu":
        if array.ndim == 0 and isinstance(seed, int):
            raise AtariError(f"seed is {seed}, expected at most {largest}")
        raise TypeError(f"seed has dtype {array.dtype}, expected integers")
    if array.ndim == 0:
        values = [int(array) + i for i in range(len(chosen))]
    elif array.shape == (len(chosen),):
        values = [int(value) for value in array]
    else:
        raise AtariError(f"seed has shape {array.shape}, expected ({len(chosen)},)")
    highest = max(values, default=0)
    if highest > largest:
        raise AtariError(f"the largest seed is {highest}, expected at most {largest}")
    seeds = [-1] * num_envs
    for i, value in zip(chosen, values, strict=True):
        seeds[i] = max(value, -1)
    return seeds


def on_host(value: Any) -> Any:
    """``value``, a tensor of torch on any device as a NumPy array."""
    return value.detach().cpu().numpy() if hasattr(value, "detach") else value


def byte_array(name: str, value: Any) -> NDArray[np.uint8]:
    """``value`` as a contiguous uint8 array; TypeError if it has another dtype."""
    array = np.ascontiguousarray(on_host(value))
    if array.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {array.dtype}, expected uint8")
    return array


def affinity(offset: Any) -> int | None:
    """Checks ``thread_affinity_offset``; None if threads are not pinned."""
    number = operator.index(offset)
    return None if number < 0 else integer("thread_affinity_offset", number, 0, INT32_MAX)
