"""Tensor functions against numpy."""

import math

import numpy as np
import pytest
import torch

from parl.ops.adam import FlatAdam, adam_step
from parl.ops.batches import select_rows
from parl.ops.distributions import atom_values, initial_logits, project_categorical
from parl.ops.exploration import epsilon_greedy, sample_softmax
from parl.ops.losses import huber
from parl.ops.returns import bellman_target
from parl.ops.rmsprop import rmsprop_step
from parl.ops.schedules import actor_epsilons, linear


def test_bellman_target_ignores_the_next_value_of_a_terminal_state():
    target = bellman_target(torch.tensor([1.0, 2.0]), torch.tensor([0.9, 0.0]), torch.tensor([10.0, 10.0]))
    # 1 + 0.9 * 10, 2 + 0 * 10
    assert target.tolist() == pytest.approx([10.0, 2.0])


@pytest.mark.parametrize("delta", [0.5, 1.0, math.inf])
def test_huber_against_numpy(delta):
    rng = np.random.default_rng(0)
    prediction, target = rng.normal(size=(2, 50))
    error = np.abs(prediction - target)
    each = 0.5 * error**2
    if delta < math.inf:
        each = np.where(error <= delta, each, delta * (error - 0.5 * delta))
    got = huber(torch.from_numpy(prediction), torch.from_numpy(target), delta)
    np.testing.assert_allclose(got, each)


@pytest.mark.parametrize(
    ("optimizer", "options", "step_of"),
    [
        (torch.optim.Adam, {"eps": 1e-6}, lambda *state: adam_step(*state, 3e-3, 1e-6)),
        (
            torch.optim.RMSprop,
            {"alpha": 0.99, "eps": 1e-5},
            lambda ours, gradients, _, square, __: rmsprop_step(ours, gradients, square, 3e-3, 1e-5),
        ),
    ],
)
def test_steps_equal_torchs(optimizer, options, step_of):
    torch.manual_seed(0)
    ours = torch.randn(40)
    theirs = torch.nn.Parameter(ours.clone())
    reference = optimizer([theirs], lr=3e-3, **options)
    mean, square = torch.zeros(40), torch.zeros(40)
    for step in range(1, 51):
        gradients = torch.randn(40)
        step_of(ours, gradients, mean, square, step)
        theirs.grad = gradients
        reference.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("by_torch", [False, True])
@pytest.mark.parametrize("longest", [0.0, 1.0, 6.0])
def test_flat_adam_equals_torch(by_torch, longest, monkeypatch):
    monkeypatch.setattr("parl.ops.adam._RUST_MAX_SIZE", 0 if by_torch else 40)
    torch.manual_seed(0)
    ours = torch.randn(40)
    theirs = torch.nn.Parameter(ours.clone())
    optimizer = torch.optim.Adam([theirs], lr=3e-3, eps=1e-6)
    gradients, count = torch.zeros(40), torch.zeros(())
    adam = FlatAdam(ours, gradients, torch.zeros(40), torch.zeros(40))
    for steps in range(50):
        gradients.copy_(torch.randn(40))
        theirs.grad = gradients.clone()
        if longest:
            torch.nn.utils.clip_grad_norm_([theirs], longest)
        adam.step(steps, count, 3e-3, 1e-6, longest)
        torch.testing.assert_close(gradients, theirs.grad)
        optimizer.step()
    torch.testing.assert_close(ours, theirs.detach(), rtol=1e-5, atol=1e-6)
    assert count.item() == (50 if by_torch else 0)


def test_linear_decreases_and_then_stays_constant():
    assert [linear(step, 1.0, 0.2, 8) for step in (0, 4, 8, 100)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    assert linear(0, 1.0, 0.2, 0) == 0.2


def test_epsilons_fall_from_actor_to_actor():
    assert actor_epsilons(0.4, 7.0, 1) == [0.4]
    assert actor_epsilons(0.4, 0.0, 3) == pytest.approx([0.4] * 3)
    # 0.4 ** (1 + 7 * i / 2)
    assert actor_epsilons(0.4, 7.0, 3) == pytest.approx([0.4, 0.4**4.5, 0.4**8])


def test_epsilon_greedy_rates_and_generator_use():
    rng = np.random.default_rng(1)
    actions = epsilon_greedy(np.zeros(20_000, np.int64), 0.3, 4, rng)
    # Three of four random actions differ from 0: 20,000 * 0.3 * 0.75 = 4,500, standard deviation 59.
    assert abs(np.count_nonzero(actions) - 4_500) < 6 * 59
    assert not epsilon_greedy(np.zeros(1_000, np.int64), 0.0, 4, rng).any()
    one, other = np.random.default_rng(2), np.random.default_rng(2)
    epsilon_greedy(np.zeros(5, np.int64), 0.0, 4, one)
    epsilon_greedy(np.zeros(5, np.int64), 1.0, 4, other)
    assert one.random() == other.random()


def test_actions_are_drawn_with_the_probabilities_of_the_softmax():
    probabilities = np.array([0.1, 0.2, 0.7], np.float32)
    logits = np.log(np.tile(probabilities, (20_000, 1))) + 3.0
    found = np.bincount(sample_softmax(logits, np.random.default_rng(3)), minlength=3)
    expected = 20_000 * probabilities
    assert (abs(found - expected) < 5 * np.sqrt(expected * (1 - probabilities))).all()


def test_drawing_an_action_does_not_warn_where_an_exponential_number_is_0():
    """Of float32, some are: about one in seven million."""

    class Generator:
        def standard_exponential(self, shape, dtype):
            return np.array([[1.0, 0.0, 1.0]], dtype)

    assert sample_softmax(np.zeros((1, 3), np.float32), Generator()).tolist() == [1]


def test_atoms_of_equal_values_or_square_roots():
    assert torch.allclose(atom_values(-1, 3, 5, "equal"), torch.tensor([-1.0, 0.0, 1.0, 2.0, 3.0]))
    assert torch.allclose(atom_values(-4, 9, 6, "sqrt"), torch.tensor([-4.0, -1.0, 0.0, 1.0, 4.0, 9.0]))
    assert torch.allclose(atom_values(1, 9, 3, "sqrt"), torch.tensor([1.0, 4.0, 9.0]))


def test_initial_logits_are_highest_at_the_atom_nearest_to_zero():
    assert initial_logits(torch.tensor([-2.0, -1.0, 0.1, 1.0, 2.0])).tolist() == [-2, -1, 0, -1, -2]
    assert initial_logits(torch.tensor([1.0, 2.0, 3.0])).tolist() == [0, -1, -2]
    assert initial_logits(torch.tensor([-3.0, -2.0])).tolist() == [-1, 0]


@pytest.mark.parametrize("spacing", ["equal", "sqrt"])
def test_projections_keep_the_mean_within_the_atoms(spacing):
    support = atom_values(-10, 10, 51, spacing)
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(64, 51, generator=generator).softmax(dim=1)
    reward = torch.randn(64, generator=generator)
    discount = torch.full((64,), 0.5)  # no atom leaves the range
    found = project_categorical(support, probabilities, reward, discount)
    assert torch.allclose(found.sum(dim=1), torch.ones(64)) and (found >= 0).all()
    expected = reward + discount * (probabilities @ support)
    assert torch.allclose(found @ support, expected, atol=1e-5)
    # Beyond the range, all is on the last atom.
    outside = project_categorical(support, probabilities, torch.full((64,), 30.0), discount)
    assert torch.allclose(outside[:, -1], torch.ones(64))


def test_a_projected_row_that_is_not_finite_does_not_affect_the_others():
    support = torch.linspace(-10, 10, 51)
    probabilities = torch.full((4, 51), 1 / 51)
    reward = torch.tensor([0.0, float("nan"), float("inf"), 1.0])
    found = project_categorical(support, probabilities, reward, torch.ones(4))
    assert found.isfinite().all(dim=1).tolist() == [True, False, True, True]


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((6, 2, 4), torch.uint8), ((6, 3), torch.uint8), ((6, 0), torch.uint8), ((6, 8), torch.float32)],
)
def test_rows_are_selected_as_words_or_elements(shape, dtype):
    whole = torch.randint(0, 256, shape).to(dtype)
    rows = torch.tensor([4, 0, 4])
    # Also at an address that is not that of a word, and with rows that are apart.
    apart = torch.stack([whole, whole], dim=1)[:, 0]
    bytes_of = torch.cat([torch.zeros(1, dtype=dtype), whole.flatten()])[1:].view(shape)
    for column in (whole, apart, bytes_of):
        found = select_rows(column, rows)
        assert torch.equal(found, whole[rows]) and found.dtype == dtype
