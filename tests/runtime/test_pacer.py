"""The pacer keeps both sides in its band and never stops both."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parl.runtime.off_policy.pacer import Pacer


@given(
    ratio=st.floats(0.01, 64),
    batch=st.integers(1, 512),
    envs=st.integers(1, 256),
    starts=st.integers(0, 2_000),
    slack=st.floats(2.0, 8.0),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=200)
def test_any_interleaving_stays_in_the_band(ratio, batch, envs, starts, slack, seed):
    pacer = Pacer(ratio, batch, envs, starts, 10**9, slack)
    rng = np.random.default_rng(seed)
    steps = updates = 0
    for _ in range(400):
        collect, learn = pacer.may_collect(steps, updates), pacer.may_learn(steps, updates)
        assert collect or learn
        if collect and (not learn or rng.random() < 0.5):
            steps += envs
        else:
            updates += 1
        collected = steps - starts
        if collected >= 0:
            # Rounding of the sums above is far below one transition.
            assert abs(updates * batch - ratio * collected) <= pacer.band + 1e-6 * (1 + ratio * collected)
        else:
            assert updates == 0


def test_the_band_follows_from_batch_and_vector_step():
    assert Pacer(2.0, 8, 4, 100, 1_000).band == 4.0 * 0.5 * (8 + 2.0 * 4) == 32.0
    assert Pacer(2.0, 8, 4, 100, 1_000, slack=2.0).band == 16.0
    assert Pacer(0.5, 8, 4, 100, 1_000, slack=3.0).band == 15.0


def test_both_sides_may_go_up_to_the_band_from_learning_starts_to_the_limit():
    pacer = Pacer(2.0, 8, 4, 100, 1_000, slack=2.0)
    # 8 (u + 1) <= 2 (steps - 100) + 16
    assert pacer.may_learn(100, 1) and not pacer.may_learn(100, 2)
    assert pacer.may_learn(104, 2) and not pacer.may_learn(103, 2)
    assert not pacer.may_learn(99, 0)
    # 2 (steps + 4 - 100) <= 8 u + 16
    assert pacer.may_collect(104, 0) and not pacer.may_collect(105, 0)
    assert pacer.may_collect(108, 1) and not pacer.may_collect(109, 1)
    assert pacer.may_collect(99, 0), "collection is not limited before learning starts"
    late = Pacer(2.0, 8, 400, 100, 1_000, slack=2.0)
    assert late.may_collect(99, 0) and late.may_collect(100, 0) and not late.may_collect(109, 0)
    assert pacer.may_collect(999, 10**6) and not pacer.may_collect(1_000, 10**6)


def test_due_updates_and_the_measured_ratio():
    pacer = Pacer(2.0, 8, 4, 100, 1_000)
    assert pacer.due(104, 0) and not pacer.due(103, 0)
    assert pacer.due(108, 1) and not pacer.due(107, 1)
    assert not Pacer(2.0, 8, 4, 100, 1_000).due(99, -2)
    assert pacer.measured(104, 3) == 6.0 and pacer.measured(101, 1) == 8.0
    assert np.isnan(pacer.measured(100, 0))


def test_a_slack_below_2_is_refused():
    assert Pacer(2.0, 8, 4, 100, 1_000, slack=2.0).slack == 2.0
    with pytest.raises(ValueError, match=r"slack = 1\.99 is below 2: the two sides could stall each other"):
        Pacer(2.0, 8, 4, 100, 1_000, slack=1.99)
    assert Pacer(2.0, 8, 4, 100, 1_000).slack == 4.0
