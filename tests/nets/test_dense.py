"""Hand-written derivatives of dense layers against torch's autograd."""

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from parl.nets import MLP, flatten
from parl.nets.actor_critic import ActorCritic
from parl.nets.fused import NumpyMLP, RustMLP
from parl.nets.fused.layers import head


def gradients_of(module):
    return torch.cat([p.grad.reshape(-1) for p in module.parameters()])


def twins(seed, hidden, shared, activation):
    """A flattened network, an equal network of torch's modules, and the flat buffers of the first."""
    torch.manual_seed(seed)
    network = ActorCritic((3,), "float32", 4, hidden, shared, activation, False)
    plain = copy.deepcopy(network)
    return network, plain, flatten(network)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 9),
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    shared=st.booleans(),
    activation=st.sampled_from(["tanh", "relu"]),
    wanted=st.sampled_from(["both", "policy", "value"]),
)
def test_policy_and_value_and_their_gradients(seed, rows, hidden, shared, activation, wanted):
    network, plain, flat = twins(seed, hidden, shared, activation)
    assert network._dense is not None and plain._dense is None
    for _ in range(2):  # the second time with reused memory
        x = torch.randn(rows, 3, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        flat.gradients.zero_()
        plain.zero_grad()
        for net, rows_of in ((network, x), (plain, other)):
            policy, value = net(rows_of)
            loss = (policy**3).sum() * (wanted != "value") + (value**3).sum() * (wanted != "policy")
            loss.backward()
        for parameter in plain.parameters():
            parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(flat.gradients, gradients_of(plain), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(x.grad, other.grad, rtol=1e-4, atol=1e-5)
        policy, value = plain(other)
        torch.testing.assert_close(network.policy_of(x.detach()), policy.detach())
        torch.testing.assert_close(network.value_of(x.detach()), value.detach())
        np.testing.assert_allclose(
            network.act(x.detach().numpy()), policy.detach().numpy(), rtol=1e-4, atol=1e-5
        )


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 9),
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    shared=st.booleans(),
    activation=st.sampled_from(["tanh", "relu"]),
    parts=st.integers(0, 3),
)
def test_passes_by_numpy_and_by_torch_have_equal_gradients(seed, rows, hidden, shared, activation, parts):
    """By numpy, with the rows in one or several parts, and by torch's operations (``parts`` 0)."""
    rows *= max(1, parts)
    network, plain, flat = twins(seed, hidden, shared, activation)
    dense = network._dense
    dense.rust, dense.numpy = None, NumpyMLP(dense)
    dense.numpy.num_parts = lambda rows: parts
    for _ in range(2):
        x = torch.randn(rows, 3, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        flat.gradients.fill_(0.5)
        plain.zero_grad()
        for net, given_rows in ((network, x), (plain, other)):
            policy, value = net(given_rows)
            ((policy**3).sum() + (value**3).sum()).backward()
        torch.testing.assert_close(flat.gradients - 0.5, gradients_of(plain), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(x.grad, other.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("inputs", "hidden", "parts"),
    [
        # 64 rows of 64 x 64 are 2^18 products; 65 = 5 * 13 and the prime 67 have no 2 to 4 equal parts.
        (3, (64, 64), {1: 1, 64: 1, 65: 0, 256: 4, 96: 2, 67: 0, 2_048: 32}),
        # A row is 2^17 products: a part could hold at most two rows, so there are no parts.
        (256, (512,), {1: 1, 2: 1, 4: 0, 32: 0, 512: 0}),
    ],
)
def test_rows_are_split_so_that_no_matrix_product_is_large(inputs, hidden, parts):
    network = ActorCritic((inputs,), "float32", 4, hidden, False, "tanh", False)
    flatten(network)
    assert {rows: network._dense.numpy.num_parts(rows) for rows in parts} == parts


def test_every_product_is_split_into_the_parts():
    """Outputs and gradients of weights of two parts are those of each part by itself, to the bit."""
    network = ActorCritic((3,), "float32", 51, (96,), False, "tanh", False)
    flat, dense = flatten(network), network._dense.numpy
    rng = np.random.default_rng(0)
    x = rng.standard_normal((250, 3), dtype=np.float32)
    wanted = [rng.standard_normal(shape, dtype=np.float32) for shape in ((250, 51), (250,))]

    def passes(rows, parts):
        flat.gradients.zero_()
        outputs, backward = dense.run(x[rows], parts)
        given = [one[rows].reshape(out.shape) for one, out in zip(wanted, outputs, strict=True)]
        inputs = backward(given, (True, True))
        weights = [one for name, one in network.named_parameters() if "weight" in name]
        return [*outputs, *inputs], [one.grad.numpy().copy() for one in weights]

    both, gradients = passes(slice(0, 250), 2)
    first, second = passes(slice(0, 125), 1), passes(slice(125, 250), 1)
    for one, *halves in zip(both, first[0], second[0], strict=True):
        np.testing.assert_array_equal(one, np.concatenate(halves))
    for one, *halves in zip(gradients, first[1], second[1], strict=True):
        np.testing.assert_array_equal(one, sum(halves))


@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize("headed", [False, True])
def test_layers_with_and_without_normalization_and_head(layer_norm, headed):
    torch.manual_seed(0)
    network = nn.ModuleList([MLP(5, (8, 6), layer_norm), nn.Linear(6, 2)])
    plain = copy.deepcopy(network)
    flat = flatten(network)
    dense = network[0].with_heads([head(0, network[1])])
    for again in range(2):
        x = torch.randn(7, 5, requires_grad=True)
        other = x.detach().clone().requires_grad_()
        flat.gradients.zero_()
        plain.zero_grad()
        found = dense.outputs(x)[0] if headed else network[1](network[0](x))
        expected = plain[1](plain[0](other))
        torch.testing.assert_close(found, expected)
        (found**3).sum().backward()
        (expected**3).sum().backward()
        torch.testing.assert_close(flat.gradients, gradients_of(plain), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(x.grad, other.grad, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(
            dense.act(x.detach().numpy(), 0), expected.detach().numpy(), rtol=1e-4, atol=1e-5
        )
        assert again or flat.gradients.any()


@settings(max_examples=25)
@given(
    seed=st.integers(0, 2**20),
    rows=st.integers(1, 9),
    inputs=st.integers(1, 4),
    hidden=st.lists(st.integers(1, 7), min_size=1, max_size=3),
    outputs=st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_networks_in_the_extension_equal_torchs(seed, rows, inputs, hidden, outputs):
    torch.manual_seed(seed)
    linears = [nn.Linear(hidden[-1], width) for width in outputs]
    network = nn.ModuleList([MLP(inputs, hidden, False), *linears])
    plain = copy.deepcopy(network)
    flat = flatten(network)
    dense = network[0].with_heads([head(0, one, scalar=one.out_features == 1) for one in linears])
    assert isinstance(dense.rust, RustMLP)
    for _ in range(2):  # the second time with reused memory
        # x is not contiguous.
        x, other = torch.randn(inputs, rows).T.requires_grad_(), torch.randn(rows, inputs)
        again = x.detach().clone().requires_grad_()
        flat.gradients.fill_(0.5)
        plain.zero_grad()
        found, features = dense.outputs(x), plain[0](again)
        expected = [one(features) for one in plain[1:]]
        dense.outputs(other)  # between a forward pass and its backward pass
        with torch.no_grad():
            without = dense.outputs(x)
        for one, two, wanted in zip(found, without, expected, strict=True):
            torch.testing.assert_close(one, wanted.view(one.shape), rtol=1e-4, atol=1e-5)
            assert torch.equal(one, two)
        sum((one**3).sum() for one in found).backward()
        sum((one**3).sum() for one in expected).backward()
        torch.testing.assert_close(flat.gradients - 0.5, gradients_of(plain), rtol=1e-3, atol=1e-5)
        torch.testing.assert_close(x.grad, again.grad, rtol=1e-3, atol=1e-5)


def test_the_extension_takes_batches_that_are_small_enough_for_one_thread():
    network = MLP(4, (256, 256), False)
    last = nn.Linear(256, 2)
    flatten(nn.ModuleList([network, last]))
    rust = network.with_heads([head(0, last)]).rust
    # A row is 4 * 256 + 256 * 256 + 256 * 2 = 67,072 products; 2^24 are a little more than 250 rows.
    assert rust.accepts(64) and rust.accepts(250) and not rust.accepts(251)


def test_which_networks_run_in_the_extension():
    def suits(network, heads):
        flatten(network)
        return network.with_heads(heads).rust is not None

    assert suits(MLP(3, (4,), False), [head(0, nn.Linear(4, 2))])
    assert not suits(MLP(3, (4,), True), [head(0, nn.Linear(4, 2))])
    assert not suits(MLP(3, (4,), False), [])
    network = ActorCritic((3,), "float32", 4, (8,), False, "tanh", False)
    flatten(network)
    assert network._dense.rust is None


def test_acting_uses_new_weights_and_large_batches_run_by_torch():
    torch.manual_seed(0)
    network = ActorCritic((3,), "float32", 4, (8,), False, "tanh", False)
    flat = flatten(network, gradients=False)
    x = torch.randn(2, 3)
    before = network.act(x.numpy())
    flat.weights.mul_(1.5)
    after = network.act(x.numpy())
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after, network(x)[0].numpy(), rtol=1e-5, atol=1e-6)
    many = np.zeros((2**17 // 24 + 1, 3), np.float32)
    assert network._dense.act(many, 0) is None
    assert network.act(many).shape == (len(many), 4)


def test_copies_have_weights_of_their_own():
    network = ActorCritic((3,), "float32", 4, (8,), False, "tanh", False)
    flat = flatten(network)
    for twin in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert twin._dense is None
        before = twin.policy_of(torch.ones(1, 3))
        flat.weights.mul_(2.0)
        assert torch.equal(twin.policy_of(torch.ones(1, 3)), before)


def test_a_second_backward_pass_raises():
    network = MLP(3, (4,), False)
    flatten(network)
    out = network(torch.ones(1, 3)).sum()
    out.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="second backward"):
        out.backward()


def test_autocast_and_second_derivatives_are_left_to_torch():
    torch.manual_seed(0)
    network = MLP(3, (4,), False)
    flatten(network)
    x = torch.randn(2, 3, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        assert network(x).dtype == torch.bfloat16
    (g,) = torch.autograd.grad(network(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        g.sum().backward()
