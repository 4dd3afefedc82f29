"""The setting ``start_states``: games of a run that continue from states of games in progress."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from parl.envs import EpisodeTracker, games_over, points
from parl.envs.atari.variations import KEYS, is_single
from parl.errors import ConfigError
from parl.runtime.distributed.group import Group
from parl.runtime.on_policy.start_states import SavedStates
from parl.runtime.seeds import actor_seeds
from parl.train.config import SELF

if TYPE_CHECKING:
    from pathlib import Path

    from parl.envs import EnvMaker
    from parl.run import RunDirectory
    from parl.train.policy import Policy
    from parl.types import EnvSpec

FILE = "start_states.npz"
"""Name of the file in the run directory with the states of games that the policy of another run played."""

# Games that the policy plays, the steps after which they are ended, and the states of all that are kept.
_GAMES, _STEPS, _STATES = 8, 5_000, 256
# Index of an actor that no run has, for the seed of these games.
_INDEX = 2**31


def check(config: Any, maker: EnvMaker) -> None:
    """Checks that the environments can continue from states.

    Args:
        config: settings of a run after ``resolve_auto``; those without ``start_states`` pass.
        maker: makes its environments.

    Raises:
        ConfigError: they cannot; or an actor has no second environment that could continue from states of
            its first one.
    """
    source = getattr(config, "start_states", None)
    if source is None:
        return
    if not maker.has_threads:
        raise ConfigError(
            f"start_states = {source!r} needs parl's Atari environments on the CPU without wrappers, such as "
            f"parl/Breakout-v0; env = {maker.name!r}, device = {maker.options.get('device', 'cpu')!r}, "
            f"wrappers = {list(maker.wrapper_names)}"
        )
    several = [name for name, value in maker.options.items() if name in KEYS and not is_single(name, value)]
    if several:
        raise ConfigError(
            f"start_states = {source!r}: a state belongs to one variation of the game, but {several[0]} = "
            f"{maker.options[several[0]]!r} differs between environments"
        )
    group = Group.from_environment()
    actors = 1 if config.actors == "auto" else config.actors  # in one process
    actors *= 1 if group is None else group.size
    if source == SELF and config.num_envs // actors < 2:
        raise ConfigError(
            f"start_states = {SELF!r} takes states of an actor's first environment for its others: "
            f"num_envs = {config.num_envs} with actors = {actors} gives an actor only one"
        )


def fields(config: Any, saved: SavedStates | None) -> dict[str, Any]:
    """The fields of a :class:`parl.runtime.on_policy.setup.RolloutSetup` for the settings.

    Args:
        config: settings of the run.
        saved: what :func:`play` returned; None for ``"self"``.
    """
    if getattr(config, "start_states", None) is None:
        return {}
    return {"start_share": config.start_states_share, "start_states": saved}


def read(run: RunDirectory, config: Any) -> SavedStates | None:
    """The states in the directory of a run with the settings ``config``; None if these need none.

    Raises:
        RunDirectoryError: the file is damaged.
    """
    if getattr(config, "start_states", None) in (None, SELF):
        return None
    path: Path = run.path / FILE
    return SavedStates.from_bytes(path.read_bytes(), path)


def play(policy: Policy, maker: EnvMaker, spec: EnvSpec, config: Any) -> SavedStates:
    """States of games that a policy plays as in training, with exploration, at about equal distances.

    Args:
        policy: of another run of the same game.
        maker: makes the environments.
        spec: describes them.
        config: settings of the run that is to start from the states.

    Raises:
        ConfigError: the policy is for another game, or for other observations or actions.
    """
    mine = f"{maker.name}, {spec.spaces}"
    theirs = f"{policy.env_maker.name}, {policy.spec.spaces}"
    if mine != theirs:
        raise ConfigError(
            f"start_states = {config.start_states!r} is of a policy for {theirs}, not for {mine}"
        )
    envs: Any = maker(_GAMES)
    try:
        return _play(policy, envs, spec, actor_seeds(config.seed, _INDEX)[1])
    finally:
        envs.close()


def _play(policy: Policy, envs: Any, spec: EnvSpec, seed: int) -> SavedStates:
    # Game, time, state, points and length. States of the games are taken in turn, each after `every` steps.
    kept: list[tuple[int, int, Any, float, int]] = []
    every, games = 1, np.arange(_GAMES)
    tracker = EpisodeTracker(_GAMES, spec.autoreset)
    playing, inside = np.ones(_GAMES, bool), np.ones(_GAMES, bool)
    starts, state = np.ones(_GAMES, bool), None
    obs, _ = envs.reset(seed=seed)
    for step in range(_STEPS):
        times = step + games
        due = inside & (times % every == 0)
        if due.any():
            game, time, *sums = (column[due].tolist() for column in (games, times, *tracker.in_progress))
            kept += zip(game, time, envs.get_state(due), *sums, strict=True)
            if len(kept) > 2 * _STATES:
                # Each game keeps half of its states, at twice the distance.
                every *= 2
                kept = [one for one in kept if one[1] % every == 0]
        actions, state = policy.predict(obs, deterministic=False, state=state, episode_start=starts)
        obs, reward, terminated, truncated, info = envs.step(actions)
        ended = terminated | truncated
        over = games_over(terminated, ended, info)
        tracker.step(points(reward, info), terminated, truncated, over)
        starts = ended
        playing &= ~over
        # A state whose episode has ended at a lost life is followed by a step without effect.
        inside = playing & ~ended
        if not playing.any():
            break
    kept.sort(key=lambda one: one[:2])
    chosen = np.unique(np.linspace(0, len(kept) - 1, min(len(kept), _STATES)).round().astype(int))
    _, _, rows, returns, lengths = zip(*(kept[index] for index in chosen), strict=True)
    return SavedStates.of(rows, returns, lengths)
