"""Presets: published preprocessing of Atari games as keywords of :class:`parl.AtariVectorEnv`."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from parl.errors import ConfigError

_NATURE: dict[str, Any] = {
    "noops": "before_fire",
    "padding": "reset",
    "reward_clipping": "sign",
    "life_loss": "continues",
    "show_last_frame": True,
}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # The defaults of ale_py.AtariVectorEnv.
        "ale": {},
        # gymnasium.make("ALE/...-v5", frameskip=1), AtariPreprocessing, FrameStackObservation, SyncVectorEnv.
        "gymnasium": {
            "repeat_action_probability": 0.25,
            "noops": "numpy",
            "use_fire_reset": False,
            "padding": "reset",
            "reward_clipping": False,
            "reward_dtype": "float64",
            "limit_counts": "console",
            "allow_terminated_and_truncated": True,
        },
        # envpool.make_gymnasium("...-v5"): episodes end after 27,000 steps, rewards are not clipped.
        "envpool": {
            "noops": "before_fire",
            "padding": "reset",
            "reward_clipping": False,
            "reward_dtype": "float32",
            "max_num_frames_per_episode": None,
            "max_num_steps_per_episode": 27_000,
            "show_last_frame": True,
        },
        # gymnasium.make("...NoFrameskip-v4"): single native frames, for wrappers.
        "raw": {
            "frameskip": 1,
            "stack_num": None,
            "img_height": None,
            "img_width": None,
            "grayscale": False,
            "maxpool": False,
            "noops": "numpy",
            "noop_max": 0,
            "use_fire_reset": False,
            "reward_clipping": False,
            "limit_counts": "console",
            "allow_terminated_and_truncated": True,
            "show_last_frame": True,
        },
        # Mnih et al. (2015), "Human-level control through deep reinforcement learning", as in training.
        "nature": _NATURE,
        # Machado et al. (2018), "Revisiting the Arcade Learning Environment".
        "machado": {
            "repeat_action_probability": 0.25,
            "full_action_space": True,
            "noop_max": 0,
            "noops": "numpy",
            "use_fire_reset": False,
            "padding": "reset",
            "reward_clipping": False,
        },
    }
)
"""Preset -> the keywords that differ from the defaults of :class:`parl.AtariVectorEnv`."""


def preset_options(preset: str) -> dict[str, Any]:
    """Keywords of a preset that differ from the defaults.

    Raises:
        ConfigError: there is no such preset; the message lists all.
    """
    try:
        return dict(PRESETS[preset])
    except KeyError:
        raise ConfigError(f"preset is {preset!r}, expected one of {sorted(PRESETS)}") from None


def preset_settings(preset: str) -> dict[str, Any]:
    """Every keyword of :class:`parl.AtariVectorEnv` except ``num_envs``, with its value in the preset.

    Raises:
        ConfigError: there is no such preset.
    """
    import inspect

    from parl.envs.atari.vector import AtariVectorEnv

    changed = preset_options(preset)
    parameters = inspect.signature(AtariVectorEnv).parameters.values()
    plain = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY} | changed
    return {name: getattr(value, "value", value) for name, value in plain.items()}


def preset_table() -> list[tuple[str, ...]]:
    """Table of all presets: a row of names, then one row for each keyword in which they differ."""
    settings = {name: preset_settings(name) for name in PRESETS}
    keywords = {key for options in PRESETS.values() for key in options}
    rows = [
        (key, *(str(settings[name][key]) for name in PRESETS)) for key in settings["ale"] if key in keywords
    ]
    return [("", *PRESETS), *rows]
