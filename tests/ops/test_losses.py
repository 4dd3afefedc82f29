"""Losses and gradients against their formulas."""

import pytest
import torch

from parl.errors import NonFiniteError
from parl.ops.adam import FlatAdam, limit_norm
from parl.ops.losses import huber
from parl.ops.policies import normalized


def columns(seed, rows, count):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, generator=generator) for _ in range(count)]


def close(found, expected):
    """Returns true if all pairs are equal up to the rounding of float32."""
    pairs = zip(found, expected, strict=True)
    return all(torch.allclose(one, other, rtol=1.3e-6, atol=1e-5) for one, other in pairs)


def with_gradients(loss, wanted):
    """The loss, and three times its gradients."""
    gradients = torch.autograd.grad(3.0 * loss, wanted, allow_unused=True, retain_graph=True)
    return [loss, *(torch.zeros_like(x) if g is None else g for x, g in zip(wanted, gradients, strict=True))]


@pytest.mark.parametrize("delta", [0.5, float("inf")])
def test_huber_and_its_gradient_equal_the_definition(delta):
    prediction, target = columns(2, 40, 2)
    prediction.requires_grad_()
    error = prediction - target
    each = 0.5 * error.square()
    if delta < 9:
        each = torch.where(error.abs() <= delta, each, delta * (error.abs() - 0.5 * delta))
    found = huber(prediction, target, delta)
    torch.testing.assert_close(found, each)
    assert close(with_gradients(found.mean(), (prediction,)), with_gradients(each.mean(), (prediction,)))


def test_long_gradients_are_scaled_down_and_short_ones_kept():
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
            FlatAdam(weights, gradients, *others).step(0, torch.zeros(()), 0.1, 1e-8, 1.0)
        else:
            limit_norm(gradients, 1.0)
    assert weights.tolist() == [1.0] * 4


def test_advantages_have_mean_zero_and_deviation_one():
    advantage = columns(3, 20, 1)[0] * 5 + 2
    found = normalized(advantage)
    torch.testing.assert_close(found, (advantage - advantage.mean()) / (advantage.std() + 1e-8))
    assert torch.equal(normalized(advantage[:1]), advantage[:1])


def test_rows_without_weight_do_not_affect_advantages():
    advantage, valid = columns(3, 20, 1)[0] * 5 + 2, torch.arange(20) % 3 > 0
    found = normalized(advantage, valid / valid.sum())
    torch.testing.assert_close(found[valid], normalized(advantage[valid]))
