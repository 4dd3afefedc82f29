"""Demonstrations read from files: observations and the actions taken on them, for behavior cloning.

A file is a NumPy ``.npz`` of one of two kinds. It holds ``observations`` (M, *shape) and ``actions`` (M,
...), or the actions that ``parl play --record`` wrote; the environment then repeats them to obtain the
observations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from parl._native import all_finite, game_rows
from parl.atari.recording import check_play, read_arrays, settings_of
from parl.envs.make import EnvMaker
from parl.envs.observations import as_dtype
from parl.errors import ConfigError, NonFiniteError
from parl.types import Array, EnvSpec

# Settings with which the recorded actions repeat the player's games, each from its start to its end.
_AS_PLAYED: dict[str, Any] = {
    "noop_max": 0,
    "noops": "after_fire",
    "use_fire_reset": False,
    "repeat_action_probability": 0.0,
    "life_loss": "plain",
    "max_num_frames_per_episode": None,
    "max_num_steps_per_episode": 0,
}
_CHANGES = ("patches", "ram", "hold", "modifications")


def read_play(files: Sequence[str | Path], maker: EnvMaker, spec: EnvSpec) -> tuple[Array, Array]:
    """Reads the demonstrations of all files.

    Args:
        files: paths of the files.
        maker: makes the environments of the run.
        spec: description of these environments.

    Returns:
        Observations (M, *observation_shape) and actions (M, *action_shape), files in the order given.

    Raises:
        FileNotFoundError: a file does not exist.
        ConfigError: a file is not of the two kinds, is for another environment, or is empty.
        NonFiniteError: an observation or an action is NaN or infinite.
    """
    parts = [_read(Path(path), maker, spec) for path in files]
    if not parts:
        raise ConfigError("data is empty, expected at least one file: --data play.npz")
    return np.concatenate([obs for obs, _ in parts]), np.concatenate([action for _, action in parts])


def _read(path: Path, maker: EnvMaker, spec: EnvSpec) -> tuple[Array, Array]:
    try:
        columns = read_arrays(path)
        if "game" in columns:
            check_play(columns)
    except ValueError as error:
        raise ConfigError(f"{path} is not an .npz file of recorded play: {error}") from error
    if "game" in columns:
        obs, action = _replay(path, columns, maker)
    elif {"observations", "actions"} <= columns.keys():
        obs, action = columns["observations"], columns["actions"]
    else:
        raise ConfigError(
            f"{path} holds {sorted(columns)}, expected observations and actions, or a file of parl play "
            "--record"
        )
    if len(obs) != len(action) or len(obs) == 0:
        raise ConfigError(
            f"{path} holds {len(obs)} observations and {len(action)} actions, expected as many of both, at "
            "least 1"
        )
    if obs.shape[1:] != spec.observation_shape or action.shape[1:] != spec.action_shape:
        raise ConfigError(
            f"{path} holds observations of shape {obs.shape[1:]} and actions of shape {action.shape[1:]}; "
            f"{maker.name} has shapes {spec.observation_shape} and {spec.action_shape}"
        )
    for what, rows in (("observation", obs), ("action", action)):
        if not all_finite(rows):
            row, *index = np.argwhere(~np.isfinite(rows))[0].tolist()
            where = f" (index {tuple(index)})" if index else ""
            raise NonFiniteError(f"{path} holds {what} {rows[row, *index]}{where} in row {row}")
    if spec.num_actions and not 0 <= int(action.min()) <= int(action.max()) < spec.num_actions:
        raise ConfigError(
            f"{path} holds actions {int(action.min())} to {int(action.max())}, "
            f"{maker.name} has 0 to {spec.num_actions - 1}"
        )
    obs = _converted(path, "observation", obs, spec.observation_dtype)
    return obs, _converted(path, "action", action, spec.action_dtype)


def _converted(path: Path, what: str, rows: Array, dtype: str) -> Array:
    """``rows`` as ``dtype``.

    Raises:
        ConfigError: ``dtype`` is one of integers and does not have a value, such as that of scaled pixels.
    """
    if np.dtype(dtype).kind not in "iub":
        return rows.astype(dtype, copy=False)
    found, changed = as_dtype(rows, np.dtype(dtype))
    if changed is not None:
        raise ConfigError(f"{path} holds the {what} {rows[changed]} in row {changed[0]}, which is no {dtype}")
    return found


def _replay(path: Path, columns: Mapping[str, Array], maker: EnvMaker) -> tuple[Array, Array]:
    """Repeats recorded actions in a deterministic environment; observations before each, and the actions.

    The actions are those of the environment, whose numbers can differ from the recorded ones.
    """
    if not maker.is_atari:
        raise ConfigError(
            f"{path} is a recording of {columns['game']}, but {maker.name} is not one of parl's Atari games"
        )
    env: Any = maker.with_options(maker.options | _AS_PLAYED | settings_of(columns))(1)
    try:
        settings, codes = env.unwrapped.settings, env.unwrapped.action_codes
        game = settings["game"]
        if game != str(columns["game"]):
            raise ConfigError(f"{path} is a recording of {columns['game']}, but {maker.name} plays {game}")
        if changes := [name for name in _CHANGES if settings[name]]:
            raise ConfigError(
                f"{path} is a recording of {game} without changes, but {maker.name} has {', '.join(changes)}"
            )
        actions = _actions_of(path, game, columns["actions"], codes)
        starts = set(columns["starts"].tolist())
        seen: list[Array] = []
        obs, over = np.zeros(0), False
        for step, action in enumerate(actions):
            if step in starts:
                obs, _ = env.reset(seed=0)
            elif over:
                raise ConfigError(
                    f"{path}: a game ends with step {step - 1}, but no other one starts with step {step}"
                )
            seen.append(np.array(obs[0]))
            obs, _, terminated, truncated, _ = env.step(np.array([action]))
            over = bool(terminated[0] or truncated[0])
        return np.stack(seen) if seen else np.zeros((0,)), actions
    finally:
        env.close()


def _actions_of(path: Path, game: str, recorded: Array, codes: Sequence[int]) -> Array:
    """Recorded numbers of the game's minimal actions as numbers of the actions with these codes."""
    minimal = next(row.minimal_actions for row in game_rows() if row.id == game)
    if recorded.size and int(recorded.max()) >= len(minimal):
        raise ConfigError(
            f"{path} holds the action {int(recorded.max())}, {game} has 0 to {len(minimal) - 1}"
        )
    numbers = np.array([list(codes).index(code) for code in minimal], np.int64)
    return numbers[recorded.astype(np.int64)]
