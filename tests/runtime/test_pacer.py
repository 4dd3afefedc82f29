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
@settings(max_examples=200, deadline=None)
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


def test_learning_begins_at_learning_starts_and_collection_ends_at_the_limit():
    pacer = Pacer(2.0, 8, 4, 100, 1_000)
    assert not pacer.may_learn(99, 0)
    assert pacer.may_learn(100, 0)
    assert pacer.may_collect(96, 0)
    assert pacer.may_collect(999, 10**6)
    assert not pacer.may_collect(1_000, 10**6)


def test_due_and_measured():
    pacer = Pacer(2.0, 8, 4, 100, 1_000)
    # 2 * (steps - 100) >= 8 * (updates + 1)
    assert not pacer.due(103, 0)
    assert pacer.due(104, 0)
    assert not pacer.due(104, 1)
    assert pacer.measured(200, 20) == pytest.approx(20 * 8 / 100)
    assert np.isnan(pacer.measured(100, 0))


def test_a_band_too_narrow_is_refused():
    with pytest.raises(ValueError, match=r"1\.5 is below 2"):
        Pacer(2.0, 8, 4, 100, 1_000, slack=1.5)
