"""Packages that parl needs for some of its functions, and the extras that install them."""

from __future__ import annotations

# Top-level module -> extra of parl.
_EXTRAS = {
    "torch": "train",
    "gymnasium": "train",
    "cloudpickle": "train",
    "rich": "train",
    "safetensors": "train",
    "tomli_w": "train",
    "tyro": "train",
    "ale_py": "atari",
    "ray": "dist",
    "matplotlib": "plot",
    "imageio": "video",
    "PIL": "video",  # imageio installs it
    "minari": "minari",
    "jax": "jax",
    "pettingzoo": "pettingzoo",
}


def install_command(error: ImportError) -> str | None:
    """The command that installs the module that could not be imported; None if no extra of parl does."""
    extra = _EXTRAS.get((error.name or "").partition(".")[0])
    return None if extra is None else f"pip install 'parl-rl[{extra}]'"
