"""The arguments of :class:`parl.AtariVectorEnv`, checked, and the configuration of the core made of them."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode

from parl.atari.catalogue import game_id
from parl.atari.flags import flag
from parl.atari.object_table import ObjectField
from parl.atari.roms import rom_folders
from parl.envs.atari import arguments, variations
from parl.envs.atari.arguments import INT32_MAX, INT64_MAX
from parl.envs.atari.objects import fields_of
from parl.envs.atari.variations import Variation
from parl.errors import AtariError

_OBS_TYPES = ("gray", "rgb", "index", "ram", "objects")
RENDER_MODES = ("rgb_array", "rgb_grid", "human")
_FLAGS = (
    "allow_terminated_and_truncated",
    "continuous",
    "episodic_life",
    "full_action_space",
    "grayscale",
    "life_loss_info",
    "maxpool",
    "ordered",
    "ram_info",
    "show_last_frame",
    "sound",
    "use_fire_reset",
)
_CHOICES = {
    "output": ("numpy", "torch"),
    "limit_counts": ("steps", "console"),
    "channel_order": ("last", "first"),
}


@dataclass(frozen=True)
class CoreConfig:
    """The checked arguments of a vector environment.

    Attributes:
        games: ids of the games.
        num_envs, batch_size, players: as the arguments, with N in place of a ``batch_size`` of 0.
        autoreset: when an ended environment is reset.
        obs_type: what observations show, also where ``grayscale`` says it.
        fields: of the memory, which are the observations with obs_type "objects"; else empty.
        variations: (N,) what each environment plays.
        sliding_planes: planes of a sliding buffer, or 0.
        reward_dtype: of the rewards.
        seed_limit: the largest seed.
        values: the configuration of ``parl._native.AtariBatch``.
    """

    games: list[str]
    num_envs: int
    batch_size: int
    players: int
    autoreset: AutoresetMode
    obs_type: str
    fields: tuple[ObjectField, ...]
    variations: tuple[Variation, ...]
    sliding_planes: int
    reward_dtype: np.dtype[Any]
    seed_limit: int
    values: dict[str, Any]


def life_loss(given: Mapping[str, Any]) -> str:
    """Effect of a lost life as a value of ``life_loss``, also where another argument sets it."""
    legacy = "ends" if given["episodic_life"] else "reports" if given["life_loss_info"] else "plain"
    return given["life_loss"] or legacy


def _check_cpu_only(device: str, sound: bool, players: int) -> None:
    if sound and device != "cpu":
        raise AtariError(f'sound is True with device={device!r}, expected device="cpu"')
    if players == 2 and device != "cpu":
        raise AtariError(f'players is 2 with device={device!r}, expected device="cpu"')


def _check_choices(given: Mapping[str, Any]) -> None:
    if given["life_loss"] is not None and not isinstance(given["life_loss"], str):
        raise TypeError(f"life_loss is {given['life_loss']!r}, expected text or None")
    if given["render_mode"] not in (None, *RENDER_MODES):
        raise AtariError(f"render_mode is {given['render_mode']!r}, expected one of {RENDER_MODES} or None")
    for name, (one, other) in _CHOICES.items():
        if given[name] not in (one, other):
            raise AtariError(f'{name} is {given[name]!r}, expected "{one}" or "{other}"')


def core_config(given: Mapping[str, Any]) -> CoreConfig:
    """Checks arguments.

    Args:
        given: all arguments of :class:`parl.AtariVectorEnv` by name.

    Raises:
        TypeError: an argument has another type.
        AtariError: an argument is out of its bounds, or does not fit another one.
        MemoryError: the environments need more memory than there is.
    """
    given = {**given, **{name: flag(name, given[name]) for name in _FLAGS}}
    device, sound = given["device"], given["sound"]
    players = arguments.integer("players", given["players"], 1, 2)
    arguments.check_device(device)
    _check_cpu_only(device, sound, players)
    _check_choices(given)
    stack_num = given["stack_num"]
    stack = 1 if stack_num is None else arguments.integer("stack_num", stack_num, 1, 1024)
    sliding = _sliding_planes(given["sliding_buffer_planes"], stack, device)
    game = given["game"]
    games = [game_id(name) for name in ([game] if isinstance(game, str) else game)]
    if not games:
        raise AtariError("game is an empty sequence, expected at least one game")
    num_envs = arguments.integer("num_envs", given["num_envs"], 1, INT32_MAX)
    batch_size = arguments.integer("batch_size", given["batch_size"], 0, num_envs) or num_envs
    autoreset = arguments.autoreset_mode(given["autoreset_mode"])
    limit = given["max_num_frames_per_episode"]
    limit = arguments.integer(
        "max_num_frames_per_episode", INT32_MAX if limit is None else limit, 1, INT32_MAX
    )
    size = _image_size(given)
    obs_type = given["obs_type"] or ("gray" if given["grayscale"] else "rgb")
    if obs_type not in _OBS_TYPES:
        raise AtariError(f'obs_type is "{obs_type}", expected one of {", ".join(_OBS_TYPES)}')
    plane_bytes = arguments.plane_bytes(obs_type, size)
    arguments.check_memory(num_envs, stack * plane_bytes if device == "cpu" else 0)
    varied = variations.variations_of({**given, "game": games[0] if len(games) == 1 else games}, num_envs)
    first = varied[0]
    if sound and any(one.frameskip != first.frameskip for one in varied):
        raise AtariError("sound is True and frameskip differs between environments, expected one value")
    reward_dtype = arguments.reward_dtype(given["reward_dtype"], given["reward_clipping"])
    fields = fields_of(tuple(dict.fromkeys(games))) if obs_type == "objects" else ()
    if fields and sliding:
        raise AtariError(f'sliding_buffer_planes is {sliding} with obs_type="objects", expected 0')
    values: dict[str, Any] = {
        **variations.config_of(varied),
        "folders": [str(folder) for folder, _ in rom_folders()],
        "num_threads": arguments.integer("num_threads", given["num_threads"], 0, INT32_MAX),
        "thread_affinity_offset": arguments.affinity(given["thread_affinity_offset"]),
        "batch_size": batch_size,
        "ordered": given["ordered"],
        "ram_info": given["ram_info"],
        "sound": sound,
        "entropy": secrets.randbits(64),
        "repeat_action_probability": first.repeat_action_probability,
        "max_num_frames_per_episode": limit if given["limit_counts"] == "steps" else INT32_MAX,
        "max_num_steps_per_episode": arguments.integer(
            "max_num_steps_per_episode", given["max_num_steps_per_episode"], 0, INT32_MAX
        ),
        "console_frame_limit": limit if given["limit_counts"] == "console" else 0,
        "life": life_loss(given),
        "reward_clip": arguments.clip(given["reward_clipping"]),
        "frameskip": first.frameskip,
        "maxpool": given["maxpool"],
        "stack_num": stack,
        "padding": given["padding"],
        "noops": given["noops"],
        "noop_max": arguments.noop_max(given["noop_max"]),
        "use_fire_reset": given["use_fire_reset"],
        "show_last_frame": given["show_last_frame"],
        "both_ends": given["allow_terminated_and_truncated"],
        "boot": given["boot"] or ("exact" if device == "cpu" else "snapshot"),
        "autoreset": autoreset.value,
        "obs_type": "ram" if fields else obs_type,
        "channels_first": given["channel_order"] == "first",
        "size": size,
        "full_action_space": given["full_action_space"],
        "continuous": given["continuous"],
        "continuous_action_threshold": arguments.threshold(given["continuous_action_threshold"]),
        "mode": first.mode,
        "difficulty": first.difficulty,
        "players": players,
    }
    return CoreConfig(
        games=games,
        num_envs=num_envs,
        batch_size=batch_size,
        players=players,
        autoreset=autoreset,
        obs_type=obs_type,
        fields=fields,
        variations=tuple(varied),
        sliding_planes=sliding,
        reward_dtype=reward_dtype,
        seed_limit=INT64_MAX if given["noops"] == "numpy" else INT32_MAX,
        values=values,
    )


def _image_size(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Rows and columns of an image; None for the native size."""
    rows, columns = given["img_height"], given["img_width"]
    if (rows is None) != (columns is None):
        raise AtariError(f"img_height is {rows} and img_width {columns}: give both or neither")
    if rows is None or given["obs_type"] in ("index", "ram", "objects"):
        return None
    return (
        arguments.integer("img_height", rows, 1, 4096),
        arguments.integer("img_width", columns, 1, 4096),
    )


def _sliding_planes(sliding_buffer_planes: Any, stack_num: int, device: str) -> int:
    """``sliding_buffer_planes`` as an int, checked against the stack and the device."""
    planes = arguments.integer("sliding_buffer_planes", sliding_buffer_planes, 0, INT32_MAX)
    if planes == 0:
        return 0
    if not str(device).startswith("cuda"):
        raise AtariError(
            f"sliding_buffer_planes is {planes} with device={device!r}: sliding observations need a CUDA "
            "device"
        )
    if not 2 <= stack_num < planes:
        raise AtariError(
            f"sliding_buffer_planes is {planes} and stack_num {stack_num}, expected stack_num >= 2 and more "
            "planes than that"
        )
    return planes
