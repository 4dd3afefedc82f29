"""Datasets for learning from recorded actions: which observations an environment's policy needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from parl.atari.catalogue import find_id
from parl.datasets.options import CHOSEN
from parl.envs.atari.presets import preset_settings
from parl.envs.atari.registration import env_id
from parl.errors import ConfigError

if TYPE_CHECKING:
    from parl.datasets.dataset import Dataset
    from parl.envs import EnvMaker


def environment_of(dataset: Dataset) -> tuple[str, dict[str, Any]]:
    """Gymnasium id, and options other than the defaults, of the environments of a recording."""
    defaults = {**preset_settings("ale"), "life_loss": "plain"}
    changed = {name: value for name, value in dataset.env_options.items() if value != defaults[name]}
    return env_id(dataset.game), changed


def view_of(dataset: Dataset, maker: EnvMaker) -> dict[str, Any]:
    """Options of a replay that shows what the environments of ``maker`` show.

    Raises:
        ConfigError: the environment is another game, or has other actions or another frame skip.
    """
    path, game = dataset.path, dataset.game
    if not isinstance(maker.env, str) or not maker.env.startswith("parl/") or maker.wrappers:
        wrapped = " with wrappers" if maker.wrappers else ""
        raise ConfigError(
            f"{path} is a dataset of {game}, but {maker.name}{wrapped} is not one of parl's Atari games"
        )
    if find_id(maker.env) != game:
        raise ConfigError(f"{path} is a dataset of {game}, but {maker.name} plays {find_id(maker.env)}")
    probe: Any = maker(1)
    try:
        settings, actions = probe.unwrapped.settings, list(probe.unwrapped.action_codes)
    finally:
        probe.close()
    recorded = dataset.env_options["frameskip"]
    if settings["frameskip"] != recorded:
        raise ConfigError(
            f"{path} was recorded with frameskip = {recorded}, but {maker.name} has {settings['frameskip']}"
        )
    if actions != dataset.header["actions"]:
        raise ConfigError(
            f"{path} has {dataset.num_actions} actions, but {maker.name} has {len(actions)}: set "
            f"full_action_space = {dataset.env_options['full_action_space']}"
        )
    return {name: settings[name] for name in CHOSEN}
