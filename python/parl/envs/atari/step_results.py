"""Results of a step as the core and the kernels return them, and the entries of ``info`` made of them.

One step of N environments gives ``numbers``, (12, N) or with two players (15, N) int32, and ``flags``, (4, N)
bool, as arrays or as tensors. In :mod:`parl.jax` they are transposed: environments are rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

# Rows of the numbers.
REWARD, RAW_REWARD, LIVES, FRAME, EPISODE_FRAME, ENV_ID = range(6)
# Three rows from `FINAL` on: `FINAL_INFO` at the end of an episode.
FINAL, EPISODE_RETURN, EPISODE_LENGTH, GAME_RETURN = 6, 9, 10, 11
# With two players: the second one's row of each row of the first one.
_SECOND = {REWARD: 12, RAW_REWARD: 13, EPISODE_RETURN: 14}
# Number of rows with one player.
NUMBERS = 12
# Rows of the flags.
TERMINATED, TRUNCATED, ENDED, GAME_OVER = range(4)
FLAGS = 4
# Entries of `info["final_info"]`, in the order of the rows from `FINAL` on.
FINAL_INFO = ("lives", "frame_number", "episode_frame_number")


def all_true(numbers: Any) -> Any:
    """(N,) bool, the mask of the entries that every environment of a step has."""
    return np.ones(numbers.shape[1], np.bool_)


def of_players(numbers: Any, row: int, players: int) -> Any:
    """A row of the numbers, (N,), or with two players those of both, (N, 2)."""
    return numbers[row] if players == 1 else np.stack([numbers[row], numbers[_SECOND[row]]], 1)


def infos_of(numbers: Any, mask: Any, ram: Any, audio: Any = None) -> dict[str, Any]:
    """Entries of ``info`` that every environment has, as arrays or tensors; ``mask`` (N,) is all true."""
    infos: dict[str, Any] = {
        "env_id": numbers[ENV_ID],
        "lives": numbers[LIVES],
        "frame_number": numbers[FRAME],
        "episode_frame_number": numbers[EPISODE_FRAME],
        "_env_id": mask,
        "_lives": mask,
        "_frame_number": mask,
        "_episode_frame_number": mask,
    }
    if ram is not None:
        infos["ram"], infos["_ram"] = ram, mask
    if audio is not None:
        infos["audio"], infos["_audio"] = audio, mask
    return infos


def add_game(infos: dict[str, Any], numbers: Any, flags: Any, any_ended: bool) -> None:
    """Adds whether the whole game has ended, for environments whose episodes can end before their game."""
    infos["game_over"], infos["_game_over"] = flags[GAME_OVER], infos["_env_id"]
    if any_ended:
        infos["game_return"], infos["_game_return"] = numbers[GAME_RETURN], flags[GAME_OVER]


def add_ends(infos: dict[str, Any], returns: Any, numbers: Any, flags: Any, final_obs: Any) -> None:
    """Adds return and length of the episodes that ended, and with ``final_obs`` their final observations.

    Args:
        infos: to add to.
        returns: of the episodes, (N,), or (N, 2) with two players.
        numbers: of the step.
        flags: of the step.
        final_obs: (N, *shape), or None.
    """
    ended = flags[ENDED]
    infos["episode_return"], infos["_episode_return"] = returns, ended
    infos["episode_length"], infos["_episode_length"] = numbers[EPISODE_LENGTH], ended
    if final_obs is not None:
        final: dict[str, Any] = {}
        for i, name in enumerate(FINAL_INFO):
            final[name], final[f"_{name}"] = numbers[FINAL + i], ended
        infos["final_obs"], infos["_final_obs"] = final_obs, ended
        infos["final_info"], infos["_final_info"] = final, ended
