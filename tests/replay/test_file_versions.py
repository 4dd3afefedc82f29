"""Files of version 1 of the format can still be loaded."""

from __future__ import annotations

import pathlib

import numpy as np

import parl

FIRST = pathlib.Path(__file__).parent / "version-1.replay"
"""Two environments, ten steps, n_step 2, gamma 0.5, capacity 12; row 13 ended an episode.

Row r, numbered in order, holds obs r, r + 1/4, r + 1/2, action r, reward r; its priority is step + 1 + env.
Written by the parl of that time.
"""


def test_a_file_of_version_1_is_loaded_and_extended(tmp_path):
    replay = parl.PrioritizedReplay.load(FIRST)
    assert (replay.capacity, len(replay)) == (12, 12)
    batch = replay.sample(64, beta=1.0)
    # The newest 12 rows are 8 to 19; the windows of the last two of each environment are incomplete.
    assert set(batch.action.tolist()) <= set(range(8, 16))
    np.testing.assert_array_equal(batch.obs, batch.action[:, None] + np.array([0, 0.25, 0.5], np.float32))
    ended = np.isin(batch.action, [13])
    next_reward = np.where(ended, 0, 0.5 * (batch.action + 2))
    np.testing.assert_allclose(batch.reward, batch.action + next_reward)
    np.testing.assert_array_equal(batch.terminated, np.isin(batch.action, [11, 13]))
    assert replay.update_priorities(batch.tickets, np.ones(64)) in (0, None)
    rows = np.arange(20, 22)
    replay.add(
        obs=np.repeat(rows[:, None], 3, 1).astype(np.float32),
        action=rows,
        reward=rows.astype(np.float32),
        terminated=np.zeros(2, bool),
        truncated=np.zeros(2, bool),
    )
    assert set(replay.sample(256).action.tolist()) <= set(range(10, 18))
    replay.verify()
    replay.save(tmp_path / "new")
    assert len(parl.PrioritizedReplay.load(tmp_path / "new")) == 12
