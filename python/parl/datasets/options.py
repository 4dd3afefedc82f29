"""Settings of a dataset's environments: which ones its actions depend on, and which ones a replay chooses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from parl import _native
from parl.atari.catalogue import game_id
from parl.atari.modifications import parse_patches
from parl.atari.roms import rom_folders
from parl.envs.atari.options import AtariOptions
from parl.envs.atari.presets import preset_options, preset_settings
from parl.envs.atari.variations import KEYS, expanded, is_single, plain
from parl.errors import ConfigError, DatasetError

if TYPE_CHECKING:
    from parl.datasets.environments import EpisodeVectorEnv
    from parl.envs import AtariVectorEnv

FIXED = (
    "frameskip",
    "repeat_action_probability",
    "mode",
    "difficulty",
    "full_action_space",
    "noops",
    "noop_max",
    "use_fire_reset",
    "life_loss",
    "max_num_frames_per_episode",
    "max_num_steps_per_episode",
    "limit_counts",
    "patches",
    "ram",
    "hold",
)
"""Keywords of :class:`parl.AtariVectorEnv` on which the frames of an episode depend: a replay keeps them."""
CHOSEN = (
    "obs_type",
    "img_height",
    "img_width",
    "grayscale",
    "stack_num",
    "channel_order",
    "maxpool",
    "padding",
    "reward_clipping",
    "reward_dtype",
    "allow_terminated_and_truncated",
    "show_last_frame",
)
"""Keywords that a replay may choose: observations, rewards, flags."""
ALIASES = ("episodic_life", "life_loss_info", "modifications")
"""Keywords that ``life_loss``, and ``patches``, ``ram`` and ``hold`` replace."""
_BYTES = ("patches", "ram", "hold")
THREADS = ("num_threads", "thread_affinity_offset")
"""Keywords of recording and replay that have no effect on results."""
# With these a lost life changes `terminated` and nothing else.
_FLAGS_ONLY = ("plain", "reports")
# A console alone: what recordings step, and whose states are checkpoints.
CONSOLE: dict[str, Any] = {"obs_type": "ram", "stack_num": None, "reward_clipping": False}
"""Keywords of environments that show the memory of the console and draw no picture."""


def expand(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with the keywords of a preset in place of ``preset``."""
    given = dict(options)
    return preset_options(given.pop("preset", "ale")) | given


def resolve(game: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Every keyword of :data:`FIXED` and :data:`CHOSEN` with its value, for the header of a dataset.

    Args:
        game: id of the game, of whose ``modifications`` the header has the bytes.
        options: keywords of :func:`parl.make_vec`, ``preset`` included.

    Raises:
        ConfigError: a keyword is unknown or has a value per environment, or an action would not be one number
            of a game.
    """
    given = expand(options)
    known = {*FIXED, *CHOSEN, *ALIASES}
    for name, value in given.items():
        if name in ("continuous", "device"):
            if value in (False, "cpu"):
                continue
            raise ConfigError(
                f"{name} is {value!r}: a dataset holds one discrete action per step of a console on the CPU"
            )
        if name in known:
            continue
        if name in AtariOptions.__annotations__:
            raise ConfigError(f"{name} is {value!r}, but recordings and replays set it themselves")
        raise ConfigError(f"there is no option {name!r}, expected some of {', '.join(sorted(known))}")
    defaults = preset_settings("ale")
    life = "ends" if given.pop("episodic_life", False) else "plain"
    life = "reports" if given.pop("life_loss_info", False) and life == "plain" else life
    given["life_loss"] = given.get("life_loss") or life
    for name in KEYS:
        value: Any = given.get(name)
        if name in ("frameskip", "modifications") and not is_single(name, value) and len(value) == 1:
            # As in settings of environments.
            given[name] = tuple(value[0]) if isinstance(value[0], list) else value[0]
        elif not is_single(name, value):
            raise ConfigError(
                f"{name} is {value!r}: all episodes of a dataset have one value; record a dataset for each"
            )
    names = given.pop("modifications", None)
    if names is not None:
        given |= expanded(game, {key: given.get(key) for key in _BYTES}, names)
    found = {name: given.get(name, defaults[name]) for name in (*FIXED, *CHOSEN)}
    # The header of an unchanged game is that of earlier versions.
    changes = {name: plain(name, found.pop(name)) for name in _BYTES}
    return found | {name: value for name, value in changes.items() if value}


def view_options(recorded: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of the environments of a replay: those recorded, with ``chosen`` in place of some.

    Raises:
        ConfigError: ``chosen`` has an unknown keyword, or one on which the recorded episodes depend.
    """
    view = dict(recorded)
    for name, value in chosen.items():
        if name in ("life_loss", "life_loss_info"):
            life = ("reports" if value else "plain") if name == "life_loss_info" else value
            if life != view["life_loss"] and not {life, view["life_loss"]} <= {*_FLAGS_ONLY}:
                raise ConfigError(
                    f"life_loss is {life!r}, but the episodes were recorded with "
                    f"{recorded['life_loss']!r}: only 'plain' and 'reports' can replace each other"
                )
            view["life_loss"] = life
        elif name in CHOSEN:
            view[name] = value
        elif name in FIXED:
            if plain(name, value) != plain(name, recorded.get(name)):
                raise ConfigError(
                    f"{name} is {value!r}, but the episodes were recorded with {recorded.get(name)!r}: with "
                    "another value the same actions give other episodes"
                )
        else:
            raise ConfigError(
                f"there is no option {name!r} of a replay, expected some of "
                f"{', '.join(sorted((*CHOSEN, 'life_loss')))}"
            )
    if "grayscale" in chosen and "obs_type" not in chosen:
        view["obs_type"] = None
    return view


def console_options(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of environments with the recorded frames that draw no pictures."""
    # Datasets of earlier versions have no changes of ROM and RAM.
    options = {name: recorded[name] for name in FIXED if name in recorded} | CONSOLE
    if options["life_loss"] in _FLAGS_ONLY:
        options["life_loss"] = "plain"
    return options


def make_envs(
    game: str, num_envs: int, options: Mapping[str, Any], threads: Mapping[str, Any] | None = None
) -> EpisodeVectorEnv:
    """Environments that are reset one by one, with ``info["ram"]``."""
    from parl.datasets.environments import EpisodeVectorEnv

    return EpisodeVectorEnv(
        game, num_envs, **options, **(threads or {}), ram_info=True, autoreset_mode="Disabled"
    )


def split_threads(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The keywords of :data:`THREADS` among ``options``, and the other ones."""
    threads = {name: value for name, value in options.items() if name in THREADS}
    return threads, {name: value for name, value in options.items() if name not in THREADS}


def rom_md5(game: str) -> str:
    """The md5 of the ROM that environments of the game would run.

    Raises:
        FileNotFoundError: there is no ROM of the game.
    """
    rom: str = _native.Rom.find(game_id(game), [folder for folder, _ in rom_folders()], False).md5
    return rom


def patched_md5(game: str, patches: Mapping[str, int]) -> str:
    """The md5 of the ROM of a game with ``patches`` of the header of a dataset.

    Raises:
        FileNotFoundError: there is no ROM of the game.
        AtariError: the ROM does not have one of the bytes.
    """
    rom = _native.Rom.find(game_id(game), [folder for folder, _ in rom_folders()], False)
    return rom.patched(parse_patches(patches)).md5


def check_console(path: Any, header: Mapping[str, Any], envs: AtariVectorEnv) -> None:
    """Checks that ROM and actions of ``envs`` are those of the dataset.

    Raises:
        DatasetError: they are others.
    """
    md5 = rom_md5(header["game"])
    if md5 != header["rom_md5"]:
        raise DatasetError(
            f"{path} was recorded with the ROM {header['rom_md5']} of {header['game']}, the one found here "
            f"is {md5}"
        )
    if list(envs.action_codes) != header["actions"]:
        raise DatasetError(
            f"{path} has the actions {header['actions']} of {header['game']}, this parl gives it "
            f"{list(envs.action_codes)}"
        )
