"""Gradients of the losses that are one operation, against torch's own of what they say they compute."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from parl._native import dense_huber
from parl.errors import NonFiniteError
from parl.ops.adam import limit_norm, limited_adam_step
from parl.ops.judged import Categories, Gaussians
from parl.ops.losses import (
    clipped_gradients,
    clipped_loss,
    policy_gradient_loss,
    policy_gradients,
    weighted_huber,
)
from parl.ops.policies import categorical, gaussian, normalized


def columns(seed, rows, count):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, generator=generator) for _ in range(count)]


def close(found, expected):
    """Whether all pairs are equal, as far as float32 can be."""
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(one, other, rtol=1.3e-6, atol=1e-5) for one, other in pairs)


def with_gradients(loss, wanted):
    """The loss, and three times its gradients."""
    gradients = torch.autograd.grad(3.0 * loss, wanted, allow_unused=True, retain_graph=True)
    return [loss, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients, strict=True))]


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 30),
    value_clip=st.sampled_from([0.0, 0.3]),
    entropy_coefficient=st.sampled_from([0.0, 0.1]),
)
def test_clipped_loss(seed, rows, value_clip, entropy_coefficient):
    given_ = columns(seed, rows, 7)
    log_prob, entropy, value = (one.requires_grad_() for one in given_[:3])
    old_log_prob, old_value, advantage, target = given_[3:]
    found = clipped_loss(*given_, 0.2, value_clip, 0.7, entropy_coefficient)
    ratio = (log_prob - old_log_prob).exp()
    policy = -torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    error = (value - target).square()
    if value_clip:
        moved = old_value + (value - old_value).clamp(-value_clip, value_clip)
        error = torch.maximum(error, (moved - target).square())
    expected = policy + 0.7 * 0.5 * error.mean() - entropy_coefficient * entropy.mean()
    wanted = (log_prob, value, entropy)
    assert close(with_gradients(found.total, wanted), with_gradients(expected, wanted))
    torch.testing.assert_close(found.policy, policy.detach())
    torch.testing.assert_close(found.value, 0.5 * error.mean().detach())
    torch.testing.assert_close(found.kl, (ratio - 1 - ratio.log()).mean().detach(), rtol=1e-4, atol=1e-5)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), rows=st.integers(1, 30), coefficient=st.sampled_from([0.0, 0.1]))
def test_policy_gradient_loss(seed, rows, coefficient):
    log_prob, entropy, value, advantage, target = columns(seed, rows, 5)
    wanted = [one.requires_grad_() for one in (log_prob, value, entropy)]
    found = policy_gradient_loss(log_prob, entropy, value, advantage, target, 0.7, coefficient)
    policy = -(log_prob * advantage).mean()
    error = 0.5 * (value - target).square().mean()
    expected = policy + 0.7 * error - coefficient * entropy.mean()
    assert close(with_gradients(found.total, wanted), with_gradients(expected, wanted))
    torch.testing.assert_close(found.entropy, entropy.mean().detach())


@pytest.mark.parametrize("part", ["chosen", "entropy", "both"])
def test_categorical(part):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(9, 4, generator=generator, requires_grad=True)
    action = torch.randint(4, (9,), generator=generator)
    factors = columns(1, 9, 2)
    chosen, entropy = categorical(logits, action)
    log_p = torch.log_softmax(logits, dim=1)
    pairs = ((chosen, log_p[torch.arange(9), action]), (entropy, -(log_p.exp() * log_p).sum(dim=1)))
    found, expected = (
        sum(
            (pair[side] * factor).sum()
            for pair, factor, name in zip(pairs, factors, ("chosen", "entropy"), strict=True)
            if part in (name, "both")
        )
        for side in range(2)
    )
    assert close(with_gradients(found, (logits,)), with_gradients(expected, (logits,)))


@pytest.mark.parametrize("delta", [0.5, float("inf")])
def test_weighted_huber(delta):
    prediction, target, weights = columns(2, 40, 3)
    prediction.requires_grad_()
    error = prediction - target
    each = 0.5 * error.square()
    if delta < 9:
        each = torch.where(error.abs() <= delta, each, delta * (error.abs() - 0.5 * delta))
    found, expected = weighted_huber(prediction, target, weights, delta), (each * weights).mean()
    assert close(with_gradients(found, (prediction,)), with_gradients(expected, (prediction,)))
    # The extension's, of three actions of which one was taken.
    rows = len(prediction)
    actions, values = torch.arange(rows) % 3, torch.zeros(rows, 3)
    values[range(rows), actions] = prediction.detach()
    error, of_values = np.empty(rows, np.float32), np.empty((rows, 3), np.float32)
    arrays = (one.numpy() for one in (values, actions, target, weights))
    loss = dense_huber(*arrays, delta, error, of_values)
    np.testing.assert_array_equal(error, (target - prediction).detach().numpy())
    assert np.count_nonzero(of_values) == np.count_nonzero(error * weights.numpy())
    found = torch.tensor(loss, dtype=torch.float32), torch.from_numpy(3 * of_values[range(rows), actions])
    assert close(found, with_gradients(expected, (prediction,)))


def loss_of(name, x):
    """One of the losses with a gradient of their own, as a function of (4, 3) float32."""
    action, column = torch.tensor([0, 2, 1, 1]), x[:, 0]
    one = torch.ones(4)
    if name == "weighted_huber":
        return weighted_huber(column, one, one, 1.0)
    if name == "clipped_loss":
        return clipped_loss(column, column, column, one, one, one, one, 0.2, 0.3, 0.5, 0.1).total
    if name == "policy_gradient_loss":
        return policy_gradient_loss(column, column, column, one, one, 0.5, 0.1).total
    return sum(part.sum() for part in categorical(x, action))


@pytest.mark.parametrize("name", ["weighted_huber", "clipped_loss", "policy_gradient_loss", "categorical"])
def test_second_derivatives_are_refused(name):
    """Gradients computed with the loss have no derivative. Zeros in its place would be silently wrong."""
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    (gradient,) = torch.autograd.grad(loss_of(name, x).square(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.square().sum().backward()


def test_long_gradients_are_cut_and_short_ones_kept():
    gradients = torch.tensor([3.0, 4.0])
    limit_norm(gradients, 6.0)
    assert gradients.tolist() == [3.0, 4.0]
    limit_norm(gradients, 1.0)
    torch.testing.assert_close(gradients, torch.tensor([0.6, 0.8]), rtol=1e-5, atol=0)


# The last one is finite, its square is not.
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
@pytest.mark.parametrize("of_extension", [False, True])
def test_gradients_that_are_not_finite_are_refused_and_change_no_weight(bad, of_extension):
    weights, gradients = torch.ones(4), torch.tensor([0.0, 0.0, bad, 0.0])
    others = torch.zeros(4), torch.zeros(4)
    with pytest.raises(NonFiniteError, match=r"the gradient has norm (nan|NaN|inf)$"):
        if of_extension:
            limited_adam_step(weights, gradients, *others, 0, torch.zeros(()), 0.1, 1e-8, 1.0)
        else:
            limit_norm(gradients, 1.0)
    assert weights.tolist() == [1.0] * 4


def test_advantages_have_mean_zero_and_deviation_one():
    advantage = columns(3, 20, 1)[0] * 5 + 2
    found = normalized(advantage)
    torch.testing.assert_close(found, (advantage - advantage.mean()) / (advantage.std() + 1e-8))
    assert normalized(advantage[:1]).tolist() == [0.0]


def judged_and_not(continuous, rows=64):
    """Leaves of torch, log-probabilities and entropies from them, and the same judged with numpy."""
    generator = torch.Generator().manual_seed(1)
    outputs = torch.randn(rows, 3, generator=generator, requires_grad=True)
    if not continuous:
        action = torch.randint(3, (rows,), generator=generator)
        judged = Categories(outputs.detach().numpy(), action.numpy())
        return [outputs], [], categorical(outputs, action), judged
    action = torch.randn(rows, 3, generator=generator)
    log_std = torch.tensor([0.1, -0.4, 0.2], requires_grad=True)
    of_log_std = np.full(3, np.nan, np.float32)
    judged = Gaussians(outputs.detach().numpy(), log_std.detach().numpy(), of_log_std, action.numpy())
    return [outputs, log_std], [of_log_std], gaussian(outputs, log_std, action), judged


def same(arrays, leaves):
    for array, leaf in zip(arrays, leaves, strict=True):
        torch.testing.assert_close(torch.from_numpy(array), leaf.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("value_clip", [0.0, 0.3])
@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.02])
def test_clipped_gradients_are_those_of_the_loss(continuous, value_clip, entropy_coefficient):
    leaves, others, (log_prob, entropy), judged = judged_and_not(continuous)
    torch.testing.assert_close(torch.from_numpy(judged.log_prob), log_prob.detach())
    value, *rest = columns(2, 64, 5)
    value.requires_grad_()
    rest[0] = log_prob.detach() + 0.3 * rest[0]
    numbers = (0.2, value_clip, 0.7, entropy_coefficient)
    found = clipped_loss(log_prob, entropy, value, *rest, *numbers)
    found.total.backward()
    arrays = [column.numpy() for column in (value.detach(), *rest)]
    of_outputs, of_value, figures = clipped_gradients(judged, *arrays, *numbers)
    same([of_outputs, *others, of_value], [*leaves, value])
    for name, figure in (("policy_loss", found.policy), ("value_loss", found.value), ("kl", found.kl)):
        assert figures[name] == pytest.approx(float(figure), rel=1e-4, abs=1e-6)
    assert figures["entropy"] == pytest.approx(float(found.entropy), rel=1e-5)


@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("coefficient", [0.0, 0.1])
def test_policy_gradients_are_those_of_the_loss(continuous, coefficient):
    leaves, others, (log_prob, entropy), judged = judged_and_not(continuous)
    value, advantage, target = columns(2, 64, 3)
    value.requires_grad_()
    found = policy_gradient_loss(log_prob, entropy, value, advantage, target, 0.7, coefficient)
    found.total.backward()
    arrays = [column.detach().numpy() for column in (value, advantage, target)]
    of_outputs, of_value, figures = policy_gradients(judged, *arrays, 0.7, coefficient)
    same([of_outputs, *others, of_value], [*leaves, value])
    for name, figure in (("policy_loss", found.policy), ("value_loss", found.value)):
        assert figures[name] == pytest.approx(float(figure), rel=1e-4, abs=1e-6)
    assert figures["entropy"] == pytest.approx(float(found.entropy), rel=1e-5)
