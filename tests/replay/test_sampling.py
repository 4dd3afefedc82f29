"""Sampling probabilities, importance weights, sampling modes and priorities."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from draws import chi_square_z, filled

import parl
from tickets import same_tickets, ticket_of


@pytest.mark.parametrize("mode", ["stratified", "independent", "systematic", "split"])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_rows_are_sampled_in_proportion_to_their_priority(mode, alpha):
    priorities = np.random.default_rng(1).exponential(size=50) + 0.05
    buffer = filled(priorities, alpha=alpha, seed=3)
    counts = np.zeros(50)
    for i in range(510):
        options = {"rank": i % 3, "learners": 3} if mode == "split" else {}
        counts += np.bincount(buffer.sample(200, mode=mode, **options).x, minlength=50)
    share = (priorities + 1e-6) ** alpha
    expected = share / share.sum() * counts.sum()
    assert chi_square_z(counts, expected) < 5, "p < 3e-7 if the sampling is correct; the seed is fixed"


def test_stratified_draws_vary_less_than_independent_ones():
    priorities = np.random.default_rng(2).exponential(size=64)
    spread = {}
    for mode in ("independent", "stratified"):
        buffer = filled(priorities)
        counts = [np.bincount(buffer.sample(64, mode=mode).x, minlength=64) for _ in range(500)]
        spread[mode] = np.var(counts, axis=0).sum()
    assert spread["stratified"] < 0.75 * spread["independent"]


def test_without_replacement_draws_distinct_rows():
    buffer = filled(np.random.default_rng(3).exponential(size=40) + 0.01)
    for size in (1, 20, 40):
        assert len(set(buffer.sample(size, mode="without_replacement").x)) == size
    with pytest.raises(parl.errors.NotSampleableError, match="41 distinct leaves asked for"):
        buffer.sample(41, mode="without_replacement")


@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
def test_importance_weights_equal_the_formula(beta):
    priorities = np.random.default_rng(4).exponential(size=1000) + 0.1
    buffer = filled(priorities, alpha=0.7)
    batch = buffer.sample(256, beta=beta)
    share = (priorities + 1e-6) ** 0.7
    probability = share / share.sum()
    weights = (1000 * probability[batch.x]) ** -beta
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=2e-4)
    assert batch.weights.max() == 1 and batch.weights.dtype == np.float32


def test_global_importance_weights_are_scaled_by_the_smallest_priority():
    priorities = np.full(500, 2.0)
    priorities[7] = 0.5
    buffer = filled(priorities, alpha=1.0, epsilon=0.0, weight_norm="global")
    batch = buffer.sample(64, beta=0.5)
    np.testing.assert_allclose(batch.weights[batch.x != 7], 0.5, rtol=1e-6)
    # The smallest priority is raised; the next smallest one sets the scale from now on.
    assert buffer.update_priorities([ticket_of(buffer, 7)], [4.0]) == 0
    batch = buffer.sample(64, beta=0.5)
    np.testing.assert_allclose(batch.weights[batch.x != 7], 1.0, rtol=1e-6)


def test_rows_with_priority_zero_are_never_sampled():
    priorities = np.ones(100)
    priorities[::2] = 0
    buffer = filled(priorities, epsilon=0.0)
    assert (buffer.sample(4096, mode="independent").x % 2 == 1).all()
    buffer.update_priorities(buffer.sample(1).tickets, [-3.0])  # The absolute value counts.
    for row in range(100):
        assert buffer.update_priorities([ticket_of(buffer, row)], [0.0]) == 0
    with pytest.raises(parl.errors.NotSampleableError, match="the 100 that can be sampled have weight 0"):
        buffer.sample(1)


def test_the_last_of_equal_tickets_counts_and_stale_ones_are_counted():
    buffer = parl.PrioritizedReplay(4, {"x": ((), "int64")}, alpha=1.0, epsilon=0.0)
    tickets = buffer.add(x=[0, 1, 2, 3])
    assert buffer.update_priorities(tickets[[0, 1, 0]], np.float32([5, 6, 7])) == 0
    assert buffer.total_priority == 7 + 6 + 1 + 1
    buffer.add(x=[4], priorities=[2])
    assert buffer.update_priorities(tickets, [9.0, 1, 1, 1]) == 1
    assert buffer.stale_updates == 1 and buffer.counters["updated"] == 6
    assert buffer.total_priority == 2 + 1 + 1 + 1


def test_saturated_priorities_are_counted():
    buffer = parl.PrioritizedReplay(4, {"x": ((), "int64")}, alpha=1.0)
    buffer.add(x=[0, 1], priorities=[1e6, 1.0])
    assert buffer.saturated == 1
    assert buffer.total_priority == pytest.approx(4096 + 1, abs=1e-2)


def test_equal_seeds_and_restored_states_give_equal_samples():
    first, second, other = (filled(np.arange(1.0, 101), seed=seed) for seed in (5, 5, 6))
    draws = [first.sample(32).x for _ in range(3)]
    assert all((a == second.sample(32).x).all() for a in draws)
    assert not (draws[0] == other.sample(32).x).all()
    state = first.rng_state
    later = first.sample(32).x
    first.rng_state = state
    assert (later == first.sample(32).x).all()


def test_out_arrays_are_filled_in_place():
    buffer = filled(np.ones(10))
    batch = buffer.sample(8)
    address = batch.x.ctypes.data
    again = buffer.sample(8, out=batch)
    assert again.x.ctypes.data == address and again.tickets is batch.tickets
    with pytest.raises(
        ValueError, match=r"out\['x'\] is int64 of shape \(8,\), expected int64 of shape \(9,\)"
    ):
        buffer.sample(9, out=batch)
    with pytest.raises(ValueError, match="two output arrays share memory"):
        buffer.sample(8, out={**batch, "indices": batch.x})
    batch.x.flags.writeable = False
    with pytest.raises(ValueError, match="not C-contiguous and writable"):
        buffer.sample(8, out=batch)


@pytest.mark.parametrize("mode", ["stratified", "split"])
def test_a_prepared_batch_is_filled_as_by_sample(mode):
    pytest.importorskip("torch")
    one, other = filled(np.arange(1.0, 101)), filled(np.arange(1.0, 101))
    same_tickets(one, other)
    batches = [buffer.empty_batch(8, as_torch=True) for buffer in (one, other)]
    for beta in (0.4, 1.0):
        batches[0].prepared.sample(beta, mode, 0, 1)
        other.sample(8, out=batches[1], as_torch=True, beta=beta, mode=mode)
        for name, value in batches[0].items():
            assert (value == batches[1][name]).all()
        assert len(set(batches[0].weights.tolist())) > 1


def test_torch_batches_share_memory():
    torch = pytest.importorskip("torch")
    buffer = filled(np.ones(10))
    batch = buffer.sample(8, as_torch=True)
    assert isinstance(batch.x, torch.Tensor) and batch.weights.dtype == torch.float32
    again = buffer.sample(8, as_torch=True, out=batch)
    assert again.x.data_ptr() == batch.x.data_ptr()
    errors = torch.ones(8, requires_grad=True) * 2
    assert buffer.update_priorities(batch.tickets, errors) == 0
    assert buffer.add(x=torch.arange(3)).dtype == np.uint64


def test_an_empty_batch_is_filled_and_returned():
    torch = pytest.importorskip("torch")
    rows = {"obs": ((3,), "float32"), "reward": ((), "float32"), "terminated": ((), "bool")}
    made = [parl.PrioritizedReplay(50, rows, num_envs=2, n_step=2, gamma=0.5, seed=3) for _ in range(2)]
    same_tickets(*made)
    rng = np.random.default_rng(0)
    for _ in range(12):
        step = {
            "obs": rng.random((2, 3), np.float32),
            "reward": rng.random(2, np.float32),
            "terminated": rng.random(2) < 0.2,
        }
        for replay in made:
            replay.add(**step)
    for as_torch in (False, True):
        out = made[0].empty_batch(5, as_torch=as_torch)
        for _ in range(3):
            found, fresh = made[0].sample(5, as_torch=as_torch, out=out), made[1].sample(5, as_torch=as_torch)
            assert found is out
            assert list(found) == list(fresh)
            assert isinstance(found.obs, torch.Tensor) == as_torch
            for name, value in fresh.items():
                np.testing.assert_array_equal(np.asarray(found[name]), np.asarray(value), err_msg=name)
    # If an entry of the batch was replaced, the new array is filled.
    out["obs"] = obs = torch.zeros(5, 3)
    again = made[0].sample(5, as_torch=True, out=out)
    assert again is not out
    assert again.obs is obs
    assert obs.abs().sum() > 0
    with pytest.raises(ValueError, match=r"out\['obs'\] is float32 of shape \(5, 3\), expected .* \(6, 3\)"):
        made[0].sample(6, as_torch=True, out=made[0].empty_batch(5, as_torch=True))
    with pytest.raises(ValueError, match="out has 'observation', expected only arrays that a batch"):
        made[0].sample(5, out={"observation": obs.numpy()})
    # Batches of another replay and unpickled batches are accepted as ordinary arrays.
    other = made[1].sample(5, as_torch=True, out=made[0].empty_batch(5, as_torch=True))
    assert list(other) == list(out)
    copied = pickle.loads(pickle.dumps(made[0].empty_batch(5)))
    assert made[0].sample(5, out=copied).obs is copied.obs


def test_batches_are_mappings_with_attributes():
    batch = filled(np.ones(3)).sample(2)
    assert list(batch) == ["x", "indices", "weights", "tickets"]
    assert batch.x is batch["x"]
    with pytest.raises(AttributeError, match="no entry 'obs'; its entries are x, indices, weights, tickets"):
        _ = batch.obs
    with pytest.raises(AttributeError, match=r"is set as batch\['x'\] = \.\.\., not as an attribute"):
        batch.x = batch.x
    assert repr(batch).startswith("Batch(x: (2,) int64")
