"""Datasets for learning from recorded actions: which observations an environment's policy needs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from parl.atari.catalogue import find_id
from parl.datasets.dataset import Dataset, load
from parl.datasets.dqn_replay import ENVIRONMENT, DQNReplay, read_dqn_replay
from parl.datasets.options import CHOSEN
from parl.envs.atari.presets import preset_settings
from parl.envs.atari.registration import env_id
from parl.envs.atari.variations import plain
from parl.errors import ConfigError

if TYPE_CHECKING:
    from parl.envs import EnvMaker


def open_dataset(path: str | Path) -> Dataset | DQNReplay:
    """Opens a dataset, or the logged replay of DQN in a folder."""
    return read_dqn_replay(path) if Path(path).is_dir() else load(path)


def environment_of(dataset: Dataset | DQNReplay) -> tuple[str, dict[str, Any]]:
    """Gymnasium id, and options other than the defaults, of the environments of a recording.

    Raises:
        ConfigError: the game of a logged replay is unknown.
    """
    if isinstance(dataset, DQNReplay):
        if dataset.game is None:
            raise ConfigError(f"{dataset.path} does not say its game: give env, such as parl/Pong-v0")
        return env_id(dataset.game), dict(ENVIRONMENT)
    defaults = {**preset_settings("ale"), "life_loss": "plain"}
    changed = {name: value for name, value in dataset.env_options.items() if value != defaults[name]}
    return env_id(dataset.game), changed


def view_of(dataset: Dataset | DQNReplay, maker: EnvMaker) -> dict[str, Any]:
    """Options of a replay that shows what the environments of ``maker`` show.

    Raises:
        ConfigError: the environment is another game, or has other actions or another frame skip.
    """
    path, game = dataset.path, dataset.game or "a game"
    if not maker.is_atari or maker.wrappers:
        wrapped = " with wrappers" if maker.wrappers else ""
        raise ConfigError(
            f"{path} is a dataset of {game}, but {maker.name}{wrapped} is not one of parl's Atari games"
        )
    if find_id(maker.name) != game and dataset.game is not None:
        raise ConfigError(f"{path} is a dataset of {game}, but {maker.name} plays {find_id(maker.name)}")
    probe: Any = maker(1)
    try:
        settings, actions = probe.unwrapped.settings, list(probe.unwrapped.action_codes)
        shape = probe.single_observation_space.shape
    finally:
        probe.close()
    if isinstance(dataset, DQNReplay):
        return _view_of_log(dataset, maker.name, settings, shape)
    recorded = dataset.env_options["frameskip"]
    if settings["frameskip"] != plain("frameskip", recorded):
        raise ConfigError(
            f"{path} was recorded with frameskip = {recorded}, but {maker.name} has {settings['frameskip']}"
        )
    if actions != dataset.header["actions"]:
        raise ConfigError(
            f"{path} has {dataset.num_actions} actions, but {maker.name} has {len(actions)}: set "
            f"full_action_space = {dataset.env_options['full_action_space']}"
        )
    return {name: settings[name] for name in CHOSEN}


def _view_of_log(
    log: DQNReplay, name: str, settings: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Any]:
    """Options of :meth:`DQNReplay.replay` for an environment that shows the same pictures."""
    stack = settings["stack_num"]
    expected = (84, 84) if stack is None else (stack, 84, 84)
    if shape != expected or settings["obs_type"] == "index" or settings["frameskip"] != 4:
        raise ConfigError(
            f"{log.path} has gray pictures of 84 x 84 every 4 frames, but {name} has observations of shape "
            f"{shape} every {settings['frameskip']} frames"
        )
    if settings["full_action_space"]:
        raise ConfigError(
            f"{log.path} has the actions of its game: full_action_space of {name} must be False"
        )
    return {"stack_num": stack}
