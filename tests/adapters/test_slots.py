"""`Slots`, which hold the priorities of the adapters' buffers."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parl.adapters._slots import Slots

CALLS = st.lists(
    st.tuples(
        st.sampled_from(["write", "write_new", "update", "draw"]),
        st.lists(st.integers(0, 12), min_size=1, max_size=6),
        st.lists(st.floats(0.0, 50.0), min_size=6, max_size=6),
    ),
    max_size=40,
)


@settings(max_examples=60)
@given(CALLS, st.sampled_from([0.0, 0.5, 1.0]))
def test_weights_equal_those_of_a_dictionary(calls, alpha):
    slots, eps = Slots(13, alpha=alpha, epsilon=0.01, seed=0, guard=False), 0.01
    model: dict[int, float] = {}
    largest = 1.0
    for name, indices, priorities in calls:
        where, values = np.array(indices), priorities[: len(indices)]
        if name == "write":
            slots.write(where)
            model |= dict.fromkeys(indices, (largest + eps) ** alpha)
        elif name == "draw":
            if model:
                drawn, weights = slots.draw(20)
                np.testing.assert_allclose(weights, [model[i] for i in drawn], rtol=1e-3, atol=1e-4)
        else:
            (slots.write if name == "write_new" else slots.update)(where, values)
            model |= {i: (p + eps) ** alpha for i, p in zip(indices, values, strict=True)}
            largest = max(largest, *values)
        assert slots.max_priority == largest
        assert slots.smallest == pytest.approx(min(model.values(), default=np.inf))
    np.testing.assert_allclose(slots.weights(np.arange(13)), [model.get(i, 0.0) for i in range(13)])
    slots.tree.verify()


def test_a_late_priority_does_not_reach_the_new_row():
    slots = Slots(4, alpha=1.0, epsilon=0.0, seed=0)
    slots.write(np.arange(4), [1.0, 0.0, 0.0, 0.0])
    drawn, _ = slots.draw(3)
    assert drawn.tolist() == [0, 0, 0]
    slots.write(np.array([0]), 2.0)
    assert slots.update(np.array([0, 1]), [9.0, 5.0]) == 1
    assert slots.weights(np.arange(4)).tolist() == [2.0, 5.0, 0.0, 0.0]
    assert slots.stale == 1
    # The next priority of the slot is one of the new row.
    assert slots.update(np.array([0]), [7.0]) == 0
    assert slots.weights(0) == 7.0


def test_every_batch_that_drew_an_overwritten_row_is_late():
    """Two batches are drawn before the first of them is updated, as by a learner that prepares one ahead."""
    slots, both = Slots(4, alpha=1.0, epsilon=0.0, seed=0), np.arange(4)
    slots.write(both, 1.0)
    for _ in range(2):
        assert set(slots.draw(64)[0]) == {0, 1, 2, 3}
    assert slots.update(both, [3.0] * 4) == 0
    slots.write(np.array([0]), 2.0)
    assert slots.update(both, [9.0] * 4) == 1
    assert slots.weights(both).tolist() == [2.0, 9.0, 9.0, 9.0]
    # No batch that drew the old row is left.
    assert slots.update(np.array([0]), [7.0]) == 0
    assert slots.weights(0) == 7.0


def test_batches_without_an_update_do_not_make_later_ones_late():
    slots, both = Slots(4, alpha=1.0, epsilon=0.0, seed=0), np.arange(4)
    slots.write(both, 1.0)
    for _ in range(5):
        slots.draw(64)
    slots.write(both, 1.0)
    slots.draw(64)
    assert slots.update(both, [3.0] * 4) == 0


def test_priorities_of_empty_slots_are_dropped():
    slots = Slots(4, alpha=1.0, epsilon=0.0, seed=0)
    slots.write(np.arange(2), 1.0)
    assert slots.update(np.array([1, 3]), [2.0, 9.0]) == 1
    assert slots.weights(np.arange(4)).tolist() == [1.0, 2.0, 0.0, 0.0]
    drawn, _ = slots.draw(64)
    slots.clear()
    assert slots.update(drawn, np.ones(64)) == 64
    assert slots.total == 0.0


def test_weights_of_any_size_keep_their_proportions():
    slots = Slots(4, alpha=1.0, epsilon=0.0, seed=0)
    for unit in (1e-5, 1.0, 1e3, 1e9, 1e200):
        slots.write(np.arange(4), np.array([1.0, 2.0, 3.0, 4.0]) * unit)
        counts = np.bincount(slots.draw(20_000)[0], minlength=4) / 20_000
        np.testing.assert_allclose(counts, [0.1, 0.2, 0.3, 0.4], atol=0.005)
        assert slots.total == pytest.approx(10 * unit, rel=0.03)
    # A slot with a far larger priority is practically always sampled.
    slots.clear()
    slots.write(np.arange(3))
    slots.update(np.array([0]), 1e12)
    assert set(slots.draw(100)[0]) == {0}
    copy = pickle.loads(pickle.dumps(slots))
    np.testing.assert_array_equal(slots.draw(10)[0], copy.draw(10)[0])
    assert slots.tree.saturated == 0


def test_bad_input_raises_and_changes_nothing():
    slots = Slots(4, alpha=1.0, epsilon=0.0, seed=0)
    slots.write(np.arange(4), 1.0)
    for values in ([np.nan], [np.inf]):
        with pytest.raises(ValueError, match="not finite"):
            slots.update(np.array([1]), values)
    with pytest.raises(IndexError, match="4"):
        slots.update(np.array([4]), [3.0])
    assert slots.weights(np.arange(4)).tolist() == [1.0] * 4
    assert slots.max_priority == 1.0
    with pytest.raises(ValueError, match="alpha is -1"):
        Slots(4, alpha=-1.0, epsilon=0.0)


def test_an_unpickled_copy_draws_the_same_slots():
    slots = Slots(100, alpha=0.6, epsilon=1e-6)
    slots.write(np.arange(90), np.linspace(0.1, 3, 90))
    slots.draw(7)
    copy = pickle.loads(pickle.dumps(slots))
    for _ in range(3):
        np.testing.assert_array_equal(slots.draw(32)[0], copy.draw(32)[0])
    assert copy.smallest == slots.smallest
    assert copy.max_priority == slots.max_priority
