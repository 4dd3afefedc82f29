"""Arguments of :class:`parl.AtariVectorEnv`, checked: each error names the value and the bound."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import error
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from parl import cuda
from parl.errors import AtariError, ConfigError

INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
_UINT32_MAX = 2**32 - 1
_MOST_FRAMESKIP = 10_000
_MOST_NOOPS = 100_000
# Of an environment, apart from observations: the state of its generator of sticky actions alone.
_ENV_BYTES = 2500
# Rows and columns of a native picture; some games show more rows.
_NATIVE_SIZE = (210, 160)


class FrameskipError(AtariError, error.Error):
    """A frameskip that no environment can have: a ValueError, and the error that ale-py raises for it."""


class FrameskipTypeError(TypeError, error.Error):
    """A frameskip that is no number: a TypeError, and the error that ale-py raises for it."""


def check_device(device: str) -> None:
    """Raises unless ``device`` names a place where environments can be."""
    if device != "cpu":
        try:
            cuda.ordinal(device)
        except ConfigError as error:
            raise AtariError(str(error)) from None


def clip(value: bool | str) -> str:
    """The core's name of a reward clip."""
    return value if isinstance(value, str) else "clamp" if value else "none"


def whole(name: str, value: Any, low: int, high: int) -> int:
    """``value`` as an int of ``low..high``."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, expected a whole number") from None
    if not low <= number <= high:
        raise AtariError(f"{name} is {number}, expected {low} to {high}")
    return number


def noop_max(value: Any) -> int:
    """The bound of idle frames; none of them below 0, as in ale-py."""
    return max(whole("noop_max", value, -INT32_MAX - 1, _MOST_NOOPS), 0)


def choice(name: str, value: Any) -> int | None:
    """A mode or a difficulty; whether the game has it the core knows."""
    return None if value is None else whole(name, value, 0, _UINT32_MAX)


def frameskip(value: Any) -> tuple[int, int]:
    """Lowest and highest number of frames per step; equal where it is fixed."""
    if isinstance(value, tuple):
        if len(value) != 2:
            raise FrameskipError(f"frameskip is {value!r}, expected a whole number or (low, high)")
        low, high = _frames(value[0]), _frames(value[1])
        if high <= low:
            raise FrameskipError(f"frameskip is {low}..{high}, expected a low below the high")
        return low, high
    frames = _frames(value)
    return frames, frames


def _frames(value: Any) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise FrameskipTypeError(f"frameskip is {value!r}, expected a whole number") from None
    if not 1 <= number <= _MOST_FRAMESKIP:
        raise FrameskipError(f"frameskip is {number}, expected 1 to {_MOST_FRAMESKIP}")
    return number


def plane_bytes(obs_type: str, size: tuple[int, int] | None) -> int:
    """Bytes of one picture of a stack, at least."""
    if obs_type == "ram":
        return 128
    rows, columns = size or _NATIVE_SIZE
    return rows * columns * (3 if obs_type == "rgb" else 1)


def check_memory(num_envs: int, obs_bytes: int) -> None:
    """Refuses environments that need more memory than the machine has, before any is made.

    Args:
        num_envs: N.
        obs_bytes: of one observation; 0 where observations are not on the host.

    Raises:
        MemoryError: names the memory needed and the memory there is.
    """
    # Each environment keeps its observation, and the caller gets a copy.
    needed = num_envs * (_ENV_BYTES + 2 * obs_bytes)
    try:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return
    if needed > there > 0:
        raise MemoryError(
            f"num_envs is {num_envs}: the environments need {needed:,} bytes of memory, "
            f"this machine has {there:,}"
        )


def probability(value: float) -> float:
    """A number of 0 to 1."""
    number = float(value)
    if not 0.0 <= number <= 1.0:
        raise AtariError(f"repeat_action_probability is {number}, expected 0 to 1")
    return number


def autoreset_mode(mode: AutoresetMode | str) -> AutoresetMode:
    """Gymnasium's mode, from itself or its name."""
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = [m.value for m in AutoresetMode]
        raise AtariError(f"autoreset_mode is {mode!r}, expected an AutoresetMode or one of {known}") from None


def reset_mask(options: Mapping[str, Any] | None, num_envs: int) -> NDArray[np.bool_] | None:
    """The (N,) bool array of ``options``, None without one."""
    mask = None if options is None else options.get("reset_mask")
    if mask is None:
        return None
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_:
        raise TypeError(f"reset_mask is {getattr(mask, 'dtype', type(mask).__name__)}, expected a bool array")
    if mask.shape != (num_envs,):
        raise AtariError(f"reset_mask has shape {mask.shape}, expected ({num_envs},)")
    return mask


def seeds(
    seed: Any, mask: NDArray[np.bool_] | None, num_envs: int, largest: int = INT32_MAX
) -> list[int] | None:
    """One seed per environment, -1 for those that keep their generators; None without ``seed``.

    Args:
        seed: a whole number, to which the environment's number is added, or an integer array.
        mask: the environments that are reset.
        num_envs: N.
        largest: largest seed that the generators take.
    """
    if seed is None:
        return None
    chosen = list(range(num_envs)) if mask is None else np.nonzero(mask)[0].tolist()
    if isinstance(seed, (bool, str, bytes)):
        raise TypeError(f"seed is {seed!r}, expected a whole number or an array of them")
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
        raise AtariError(f"seed reaches {highest}, expected at most {largest}")
    seeds = [-1] * num_envs
    for i, value in zip(chosen, values, strict=True):
        seeds[i] = max(value, -1)
    return seeds


def byte_array(name: str, value: Any) -> NDArray[np.uint8]:
    """``value`` as a contiguous uint8 array."""
    array = np.ascontiguousarray(value)
    if array.dtype != np.uint8:
        raise TypeError(f"{name} has dtype {array.dtype}, expected uint8")
    return array


def affinity(offset: Any) -> int | None:
    """The first core for threads, None where the system places them."""
    number = operator.index(offset)
    return None if number < 0 else whole("thread_affinity_offset", number, 0, INT32_MAX)
