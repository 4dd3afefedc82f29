"""Arguments of :class:`parl.AtariVectorEnv`, checked: each error names the value and the bound."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from parl import cuda
from parl.errors import AtariError, ConfigError

INT32_MAX = 2**31 - 1


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


def seeds(seed: Any, mask: NDArray[np.bool_] | None, num_envs: int) -> list[int] | None:
    """One seed per environment, -1 for those that keep their generators; None without ``seed``."""
    if seed is None:
        return None
    chosen = list(range(num_envs)) if mask is None else np.nonzero(mask)[0].tolist()
    if isinstance(seed, (bool, str, bytes)):
        raise TypeError(f"seed is {seed!r}, expected a whole number or an array of them")
    array = np.asarray(seed)
    if array.dtype.kind not in "iu":
        raise TypeError(f"seed has dtype {array.dtype}, expected integers")
    if array.ndim == 0:
        values = [int(array) + i for i in range(len(chosen))]
    elif array.shape == (len(chosen),):
        values = [int(value) for value in array]
    else:
        raise AtariError(f"seed has shape {array.shape}, expected ({len(chosen)},)")
    largest = max(values, default=0)
    if largest > INT32_MAX:
        raise AtariError(f"seed reaches {largest}, expected at most {INT32_MAX}")
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
