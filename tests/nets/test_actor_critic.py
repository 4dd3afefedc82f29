"""Towers equal separate networks; statistics include all rows; policy and value share a CNN for images."""

import numpy as np
import pytest
import torch

from parl.nets import flatten
from parl.nets.actor_critic import ActorCritic, Towers
from parl.nets.normalizer import Flattener, RunningMoments


def make(shape=(5,), dtype="float32", shared=False, normalize=False, log_std=None, hidden=(8, 6)):
    torch.manual_seed(0)
    return ActorCritic(shape, dtype, 3, hidden, shared, "tanh", normalize, log_std)


def test_towers_equal_separate_networks():
    torch.manual_seed(0)
    towers = Towers(5, (8, 6), 2, "tanh")
    x = torch.randn(7, 5)
    got = towers(x)
    assert got.shape == (2, 7, 6)
    for i in range(2):
        first = slice(8 * i, 8 * i + 8)
        y = torch.tanh(x @ towers.first[first].T + towers.first_bias[first])
        y = torch.tanh(y @ towers.weights[0][i] + towers.biases[0][i])
        torch.testing.assert_close(got[i], y)


@pytest.mark.parametrize("shared", [False, True])
def test_policy_and_value_share_weights_only_in_a_shared_tower(shared):
    network = make(shared=shared)
    policy, value = network(torch.randn(4, 5))
    assert policy.shape == (4, 3) and value.shape == (4,)
    network.zero_grad()
    network(torch.randn(4, 5))[1].sum().backward()
    touched = network.towers.first.grad.abs().sum(dim=1) > 0
    # The value's gradient reaches the policy's tower only if the towers are shared.
    assert touched[:8].any() == shared and touched[-8:].any()


def test_statistics_are_part_of_the_weights_and_get_no_gradient():
    network = make(normalize=True)
    flat = flatten(network)
    rows = torch.randn(100, 5) * torch.tensor([1.0, 10.0, 0.1, 5.0, 0.0]) + 3
    moments = RunningMoments(5)
    moments.add(rows[:30])
    moments.add(rows[30:])
    np.testing.assert_allclose(moments.mean, rows.double().mean(0), rtol=1e-9)
    np.testing.assert_allclose(
        moments.square / 100, rows.double().var(0, correction=0), rtol=1e-6, atol=1e-12
    )
    inverse = moments.inverse_std(1e-4)
    assert inverse[4] == 1.0  # the column is constant
    assert moments.inverse_std(5.0)[1] == inverse[1] and moments.inverse_std(5.0)[2] == 0.2
    np.testing.assert_allclose(inverse[:4], 1 / rows[:, :4].std(0, correction=0), rtol=1e-4)
    tiny = RunningMoments(2)
    tiny.add(torch.tensor([[0.1, 1e-5], [0.1, -1e-5], [0.1, 1e-5]]))
    assert tiny.inverse_std(1e-4).tolist() == [1.0, 1e4]
    assert tiny.inverse_std(1e-4, 1e-4).tolist() == [1.0, 1.0]
    network.flattener.normalizer.mean.copy_(moments.mean)
    network.flattener.normalizer.inverse_std.copy_(inverse)
    other = make(normalize=True)
    flatten(other, gradients=False).weights.copy_(flat.weights)
    torch.testing.assert_close(other(rows)[0], network(rows)[0])
    flat.gradients.zero_()
    network(rows)[0].sum().backward()
    assert (flat.gradients != 0).any()
    assert network.flattener.normalizer.mean.grad.abs().sum() == 0


def test_bytes_are_scaled_and_images_convolved():
    network = make(shape=(2, 4), dtype="uint8")
    raw = torch.randint(0, 256, (3, 2, 4), dtype=torch.uint8)
    torch.testing.assert_close(network.flattener.raw(raw), raw.reshape(3, 8) / 255)
    image = make(shape=(4, 84, 84), dtype="uint8", hidden=(32,))
    assert not hasattr(image, "flattener")
    policy, value = image(torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8))
    assert policy.shape == (2, 3) and value.shape == (2,)


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [("int8", -128, 127), ("int16", -(2**15), 2**15 - 1), ("uint16", 0, 2**16 - 1), ("bool", 0, 1)],
)
def test_frame_deltas_of_integers_do_not_overflow(dtype, low, high):
    """Only those of bytes wrap around."""
    flattener = Flattener((3, 1), dtype, normalize=False, frame_deltas=True)
    observations = np.array([[[low], [high], [low]]], dtype)
    np.testing.assert_array_equal(flattener.vectors(observations), [[low, high - low, low - high]])


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_frame_deltas_replace_older_observations(dtype):
    stack = np.array([[[1, 250, 7], [4, 3, 7], [3, 5, 9]]], dtype)
    flattener = Flattener((3, 3), dtype, normalize=False, frame_deltas=True)
    # Bytes wrap around: 3 - 250 is 9 modulo 256.
    wrapped = 9 if dtype == "uint8" else -247
    expected = np.array([[3, 5, 9, 3, wrapped, 0, -1, 2, 2]]) / (255 if dtype == "uint8" else 1)
    np.testing.assert_allclose(flattener(torch.from_numpy(stack)), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="frame_deltas needs stacked vectors"):
        Flattener((9,), dtype, normalize=False, frame_deltas=True)


def test_an_empty_hidden_raises():
    with pytest.raises(ValueError, match="hidden"):
        make(hidden=())


def test_vectors_are_normalized_alike_by_numpy_and_torch():
    flattener = Flattener((2, 3), "float32", True)
    normalizer = flattener.normalizer
    normalizer.mean.copy_(torch.linspace(-2, 2, 6))
    normalizer.inverse_std.copy_(torch.linspace(0.1, 30, 6))
    observations = np.random.default_rng(0).standard_normal((9, 2, 3)).astype(np.float32)
    observations[3, 1, 1] = np.nan
    before = observations.copy()
    found = flattener.vectors(observations)
    np.testing.assert_array_equal(found, flattener(torch.from_numpy(before)).numpy(), strict=True)
    np.testing.assert_array_equal(observations, before)
    assert np.nanmax(found) == 5 and np.isnan(found).sum() == 1
