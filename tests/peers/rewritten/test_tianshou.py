"""The documented behavior of Tianshou's prioritized buffers, on Tianshou's classes and on parl's.

Our own tests, since Tianshou's packages contain none.
"""

import pickle

import numpy as np
import pytest
import tianshou.data as theirs
from tianshou.data import Batch

from parl.adapters import tianshou as ours

LIBRARIES = pytest.mark.parametrize("library", [theirs, ours], ids=["tianshou", "parl"])


def step(i, done=False):
    fields = {"obs": np.array([i]), "act": i, "rew": float(i), "obs_next": np.array([i + 1])}
    return Batch(**fields, terminated=done, truncated=False, info={})


def single(library, size=8, **settings):
    return library.PrioritizedReplayBuffer(size, **{"alpha": 0.6, "beta": 0.4, **settings})


@LIBRARIES
def test_sampled_rows_are_the_stored_ones(library):
    buffer = single(library)
    for i in range(12):
        buffer.add(step(i, i % 5 == 4))
    assert len(buffer) == 8
    batch, index = buffer.sample(32)
    np.testing.assert_array_equal(batch.obs[:, 0] + 1, batch.obs_next[:, 0])
    np.testing.assert_array_equal(batch.obs, buffer[index].obs)
    assert batch.weight.shape == (32,)


@LIBRARIES
def test_a_row_with_a_large_priority_is_drawn_most(library):
    np.random.seed(0)
    buffer = single(library, alpha=1.0, beta=1.0)
    for i in range(8):
        buffer.add(step(i))
    buffer.update_weight(np.arange(8), np.array([1.0] * 7 + [7.0]))
    index = np.concatenate([buffer.sample_indices(100) for _ in range(20)])
    assert (index == 7).mean() == pytest.approx(0.5, abs=0.05)
    weights = buffer.get_weight(np.arange(8))
    assert weights[7] == pytest.approx(weights[0] / 7, rel=1e-3)


@LIBRARIES
def test_sample_size_0_gives_all_indices_in_order(library):
    buffer = single(library)
    for i in range(5):
        buffer.add(step(i))
    np.testing.assert_array_equal(buffer.sample_indices(0), np.arange(5))


@LIBRARIES
@pytest.mark.parametrize("weight_norm", [True, False])
def test_normalized_weights(library, weight_norm):
    buffer = single(library, weight_norm=weight_norm)
    for i in range(8):
        buffer.add(step(i))
    buffer.update_weight(np.arange(8), np.arange(1.0, 9.0))
    batch, _ = buffer.sample(64)
    assert (batch.weight.max() == pytest.approx(1.0)) or not weight_norm
    buffer.set_beta(0.0)
    assert buffer.sample(8)[0].weight.tolist() == [1.0] * 8


@LIBRARIES
def test_vector_buffers(library):
    buffer = library.PrioritizedVectorReplayBuffer(total_size=20, buffer_num=2, alpha=0.6, beta=0.4)
    for i in range(6):
        rows = Batch.stack([step(i), step(100 + i)])
        buffer.add(rows, buffer_ids=[0, 1])
    assert len(buffer) == 12
    batch, index = buffer.sample(64)
    np.testing.assert_array_equal(index >= 10, batch.obs[:, 0] >= 100)
    buffer.update_weight(index, np.ones(64))


@LIBRARIES
def test_pickles(library):
    buffer = single(library)
    for i in range(8):
        buffer.add(step(i))
    buffer.update_weight(np.arange(8), np.arange(1.0, 9.0))
    copy = pickle.loads(pickle.dumps(buffer))
    np.testing.assert_allclose(copy.get_weight(np.arange(8)), buffer.get_weight(np.arange(8)))
    np.testing.assert_array_equal(copy.obs, buffer.obs)


@LIBRARIES
@pytest.mark.parametrize("settings", [{"alpha": 0.0}, {"beta": -1.0}], ids=str)
def test_bad_settings_are_refused(library, settings):
    with pytest.raises((AssertionError, ValueError)):
        single(library, **settings)
