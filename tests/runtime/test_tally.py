"""Episodes added up on a device, beside those of the CPU."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from parl.envs import EpisodeTracker  # noqa: E402
from parl.runtime.on_device import Tally  # noqa: E402


@pytest.mark.parametrize("lives", [False, True], ids=["episodes", "games of several"])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_episodes_are_those_of_the_cpu(autoreset: str, lives: bool) -> None:
    rng = np.random.default_rng(3)
    tracker, tally = EpisodeTracker(5, autoreset), Tally(5, autoreset == "next_step", "cpu")
    expected, rewards, resets, looks = [], 0.0, np.zeros(5, bool), 0
    found: list[tuple[float, int]] = []
    for step in range(200):
        reward = rng.normal(size=5).astype(np.float32)
        # A row that only resets carries no reward and ends nothing.
        reward[resets] = 0
        done = (rng.random(5) < 0.15) & ~resets
        over = done & (rng.random(5) < 0.5) if lives else done
        expected += tracker.step(reward, done, np.zeros(5, bool), over)[1]
        tally.step(torch.from_numpy(reward), torch.from_numpy(done), torch.from_numpy(over))
        rewards += float(reward.sum())
        resets = done if autoreset == "next_step" else resets
        if step % 37 == 36:
            # Saved in between, as a checkpoint does.
            some, reward_sum = tally.take()
            state, tally = tally.state(), Tally(5, autoreset == "next_step", "cpu")
            tally.restore(state)
            found += some
            rewards -= reward_sum
            looks += 1
    some, reward_sum = tally.take()
    found += some
    assert looks == 5
    assert len(found) > (25 if lives else 50)
    assert [length for _, length in found] == [length for _, length in expected]
    np.testing.assert_allclose([value for value, _ in found], [value for value, _ in expected], atol=1e-5)
    assert rewards == pytest.approx(reward_sum, abs=1e-3)
    assert tally.take() == ([], 0.0)


def test_what_has_no_room_is_left_out() -> None:
    tally = Tally(3, False, "cpu", room=4)
    for _ in range(3):
        tally.step(torch.ones(3), torch.ones(3, dtype=torch.bool))
    assert tally.take() == ([(1.0, 1)] * 4, 9.0)
    tally.step(torch.ones(3), torch.tensor([False, True, False]))
    assert tally.take() == ([(1.0, 1)], 3.0)
