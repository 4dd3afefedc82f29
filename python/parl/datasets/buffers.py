"""The steps of a dataset as rows of a replay buffer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from parl.datasets.atari_head import AtariHead
    from parl.datasets.dataset import Dataset
    from parl.datasets.dqn_replay import DQNReplay


def fill(
    dataset: Dataset | DQNReplay | AtariHead, replay: Any, steps: int | None, options: Mapping[str, Any]
) -> int:
    """See :meth:`parl.datasets.Dataset.fill`."""
    added = 0
    used = np.zeros(0, np.int64)
    for rows in dataset.replay(**options):
        if steps is not None and added + len(rows["step"]) > steps:
            rows = {name: column[: steps - added] for name, column in rows.items()}
        add_rows(replay, rows)
        added += len(rows["step"])
        used = np.union1d(used, rows["env_id"])
        if added == steps:
            break
    if len(used):
        replay.end_episodes(used)
    return added


def add_rows(replay: Any, rows: Mapping[str, Any]) -> None:
    """Adds the rows of one step of a replay of a dataset to a replay buffer."""
    next_step = replay.settings["autoreset"] == "next_step"
    columns = {name: rows[name] for name in ("action", "reward", "terminated", "truncated")}
    finals = {}
    cut = rows["truncated"] & ~rows["terminated"]
    if cut.any() and not next_step:
        finals = {"final_obs": rows["next_observation"]}
    replay.add(env_id=rows["env_id"], obs=rows["observation"], **columns, **finals)
    ended = rows["terminated"] | rows["truncated"]
    if next_step and ended.any():
        # The row after the last of an episode holds its final observation.
        ends = {name: np.zeros_like(column[ended]) for name, column in columns.items()}
        replay.add(env_id=rows["env_id"][ended], obs=rows["next_observation"][ended], **ends)
