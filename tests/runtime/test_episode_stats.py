"""Statistics of episodes on a device against those on the CPU."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from parl.envs import EpisodeTracker  # noqa: E402
from parl.runtime.cuda.episode_stats import EpisodeStats  # noqa: E402


@pytest.mark.parametrize("lives", [False, True], ids=["episodes", "games of several"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_episodes_are_those_of_the_cpu(autoreset: str, lives: bool) -> None:
    rng = np.random.default_rng(3)
    tracker, stats = EpisodeTracker(5, autoreset), EpisodeStats(5, autoreset == "next_step", "cpu")
    expected, rewards, resets, takes = [], 0.0, np.zeros(5, bool), 0
    found: list[tuple[float, int]] = []
    for step in range(200):
        reward = rng.normal(size=5).astype(np.float32)
        # A row that only resets has no reward and ends no episode.
        reward[resets] = 0
        done = (rng.random(5) < 0.15) & ~resets
        over = done & (rng.random(5) < 0.5) if lives else done
        expected += tracker.step(reward, done, np.zeros(5, bool), over)[1]
        stats.step(torch.from_numpy(reward), torch.from_numpy(done), torch.from_numpy(over))
        rewards += float(reward.sum())
        resets = done if autoreset == "next_step" else resets
        if step % 37 == 36:
            # Saves and restores the state, as a checkpoint does.
            some, count, reward_sum = stats.take()
            state, stats = stats.state(), EpisodeStats(5, autoreset == "next_step", "cpu")
            stats.restore(state)
            assert count == len(some)
            found += some
            rewards -= reward_sum
            takes += 1
    some, count, reward_sum = stats.take()
    found += some
    assert takes == 5
    assert len(found) > (25 if lives else 50)
    assert [length for _, length in found] == [length for _, length in expected]
    np.testing.assert_allclose([value for value, _ in found], [value for value, _ in expected], atol=1e-5)
    assert rewards == pytest.approx(reward_sum, abs=1e-3)
    assert stats.take() == ([], 0, 0.0)


def test_episodes_beyond_the_capacity_are_only_counted() -> None:
    stats = EpisodeStats(3, False, "cpu", capacity=4)
    for _ in range(3):
        stats.step(torch.ones(3), torch.ones(3, dtype=torch.bool))
    assert stats.take() == ([(1.0, 1)] * 4, 9, 9.0)
    stats.step(torch.ones(3), torch.tensor([False, True, False]))
    assert stats.take() == ([(1.0, 1)], 1, 3.0)


def test_the_state_is_two_sums_and_two_masks_per_environment() -> None:
    shapes = [(tuple(part.shape), part.dtype) for part in EpisodeStats(3, True, "cpu").state()]
    assert shapes == [((2, 3), torch.float64), ((3,), torch.bool), ((3,), torch.bool)]
