"""The ensemble's hand-written derivatives against torch's autograd."""

import pytest
import torch

from parl.nets import Ensemble, flatten


def reference(x, weights, biases, layer_norm):
    h = x.expand(len(weights[0]), *x.shape)
    for number, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
        h = torch.stack([one @ w + b for one, w, b in zip(h, weight, bias, strict=True)])
        if number + 1 < len(weights):
            h = torch.relu(torch.layer_norm(h, h.shape[-1:]) if layer_norm else h)
    return h


def test_the_last_layer_is_computed_in_float32_where_others_use_bfloat16():
    """In bfloat16 100.3 is 100.5."""
    ensemble = Ensemble(2, 3, (7,), 1)
    ensemble.use_bf16 = True
    with torch.no_grad():
        ensemble.weights[-1].zero_()
        ensemble.biases[-1].fill_(100.3)
        torch.testing.assert_close(ensemble(torch.randn(9, 3)), torch.full((2, 9, 1), 100.3))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("outputs", [1, 4])
@pytest.mark.parametrize("hidden", [(7,), (8, 5), (6, 5, 4)])
@pytest.mark.parametrize("members", [1, 2, 3])
def test_values_and_gradients_equal_those_of_separate_networks(members, hidden, outputs, layer_norm):
    torch.manual_seed(0)
    ensemble = Ensemble(members, 3, hidden, outputs, layer_norm)
    flat = flatten(ensemble)
    weights = [p.detach().clone().requires_grad_() for p in ensemble.weights]
    biases = [p.detach().clone().requires_grad_() for p in ensemble.biases]
    factor = torch.randn(members, 9, outputs)
    for again in range(2):  # the second time with reused memory
        x = torch.randn(9, 3, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        for parameter in weights + biases:
            parameter.grad = None
        flat.gradients.zero_()
        out, expected = ensemble(x), reference(other, weights, biases, layer_norm)
        torch.testing.assert_close(out, expected)
        (out * factor).sum().backward()
        (expected * factor).sum().backward()
        torch.testing.assert_close(x.grad, other.grad)
        grads = torch.cat([p.grad.reshape(-1) for p in weights + biases])
        torch.testing.assert_close(flat.gradients, grads)
        frozen = x.detach().clone().requires_grad_()
        (ensemble(frozen, frozen=True) * factor).sum().backward()
        torch.testing.assert_close(frozen.grad, other.grad)
        torch.testing.assert_close(flat.gradients, grads)  # no gradient was added
        with torch.no_grad():
            torch.testing.assert_close(ensemble(x, members=1), expected[:1])
        assert again or flat.gradients.any()


def test_gradients_without_a_flat_buffer_and_two_passes_at_once():
    torch.manual_seed(1)
    ensemble = Ensemble(2, 3, (6, 5), 1)
    one, two = torch.randn(4, 3), torch.randn(4, 3)
    first, second = ensemble(one).sum(), ensemble(two).square().sum()
    second.backward()
    first.backward()
    weights = [p.detach().clone().requires_grad_() for p in ensemble.weights]
    biases = [p.detach().clone().requires_grad_() for p in ensemble.biases]
    loss = (
        reference(one, weights, biases, False).sum() + reference(two, weights, biases, False).square().sum()
    )
    loss.backward()
    for ours, theirs in zip(ensemble.parameters(), weights + biases, strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_members_are_initialized_independently_and_like_linear_layers():
    torch.manual_seed(2)
    ensemble = Ensemble(2, 100, (50,), 1)
    assert not torch.equal(ensemble.weights[0][0], ensemble.weights[0][1])
    # Uniform in -0.1..0.1: standard deviation 0.1 / sqrt(3).
    assert ensemble.weights[0].abs().max() <= 0.1
    assert ensemble.weights[0].std().item() == pytest.approx(0.0577, rel=0.03)
