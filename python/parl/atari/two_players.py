"""Games for two players as environments of PettingZoo (extra ``pettingzoo``)."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from parl.extras import install_command

if TYPE_CHECKING:
    from pettingzoo import AECEnv, ParallelEnv


def parallel_env(game: str, *, max_cycles: int = 100_000, **options: Any) -> ParallelEnv[str, Any, int]:
    """A game for two players with PettingZoo's parallel API: both act in every step.

    The agents are ``"first_0"`` and ``"second_0"``. Both see the same observation and have the same actions.
    By default it is a color image of the native size, a step is one frame, all actions of the console are
    available, and neither actions, rewards nor starts are changed, as in PettingZoo's own Atari environments.
    ``state()`` returns the memory of the console, (128,) uint8. ``reset(seed=s)`` seeds the console as
    ``AtariVectorEnv.reset`` does.

    Args:
        game: one of :func:`two_player_games`.
        max_cycles: steps after which an episode is truncated.
        **options: keywords of :class:`parl.AtariVectorEnv`, such as ``mode``, ``obs_type``, ``frameskip``,
            ``full_action_space``, ``repeat_action_probability`` and ``render_mode`` (``"rgb_array"`` or
            ``"human"``), except those that concern several environments.

    Raises:
        AtariError: (a ValueError) the game has no rules for two players, or an option is out of its bounds.
        TypeError: there is no such option.
        ModuleNotFoundError: PettingZoo is not installed; the message has the command.

    Examples:
        >>> import parl
        >>> env = parl.atari.parallel_env("pong", obs_type="ram")
        >>> observations, infos = env.reset(seed=0)
        >>> {agent: obs.shape for agent, obs in observations.items()}
        {'first_0': (128,), 'second_0': (128,)}
    """
    return _environments("parallel_env").ParallelAtariEnv(game, max_cycles, options)


def aec_env(game: str, *, max_cycles: int = 100_000, **options: Any) -> AECEnv[str, Any, int | None]:
    """The environment of :func:`parallel_env` with PettingZoo's AEC API: the agents act in turn.

    The console runs after the second agent's action. Arguments and errors are those of :func:`parallel_env`.
    """
    return _environments("aec_env").in_turn(game, max_cycles, options)


def _environments(name: str) -> Any:
    # By name: vector environments are made of consoles, and this package knows nothing of them.
    try:
        return importlib.import_module("parl.envs.atari.two_players")
    except ModuleNotFoundError as error:
        if command := install_command(error):
            reason = f"parl.atari.{name} needs {error.name}: {command}"
            raise ModuleNotFoundError(reason, name=error.name) from error
        raise
