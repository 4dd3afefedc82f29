"""Flat buffers, torsos and heads."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from parl.nets import (
    MLP,
    ActionHead,
    DuelingHead,
    FractionEmbedding,
    FrameDeltasMLP,
    ImpalaResNet,
    NatureCNN,
    NoisyLinear,
    SmallCNN,
    flatten,
    make_torso,
    resample_noise,
    silence_noise,
)
from parl.nets.normalizer import PixelNormalizer


@pytest.mark.parametrize(
    ("shape", "channels"),
    [
        ((4, 84, 84), 4),
        ((84, 84, 4), 4),
        ((96, 96, 6), 6),  # two pictures side by side
        ((7, 7, 20), 20),  # kinds of objects
        ((20, 7, 7), 20),
        ((210, 160, 9), 9),
        ((9, 210, 160), 9),
        ((3, 40, 36), 3),
        ((40, 36, 3), 3),
        ((8, 8, 8), 8),
    ],
)
def test_channels_are_found_first_or_last(shape, channels):
    torso = make_torso(shape, "uint8", (4,), False, "impala")
    assert torso.convolutions[0].in_channels == channels
    assert torso(torch.zeros(2, *shape, dtype=torch.uint8)).shape == (2, 4)


def test_flatten_keeps_the_function_and_shares_memory():
    torch.manual_seed(0)
    module = MLP(3, (8, 5), layer_norm=True)
    x = torch.randn(4, 3)
    before = module(x).detach().clone()
    flat = flatten(module)
    torch.testing.assert_close(module(x), before)
    assert len(flat.weights) == sum(p.numel() for p in module.parameters())
    module(x).sum().backward()
    expected = torch.cat([p.grad.reshape(-1) for p in module.parameters()])
    assert torch.equal(flat.gradients, expected)
    assert expected.abs().sum() > 0
    flat.weights.zero_()
    assert all(not p.any() for p in module.parameters())


def test_flatten_without_gradients_freezes():
    module = nn.Linear(2, 2)
    assert flatten(module, gradients=False).gradients is None
    assert not any(p.requires_grad for p in module.parameters())


def test_flatten_refuses_modules_without_float32_parameters():
    with pytest.raises(ValueError, match="no parameters"):
        flatten(nn.ReLU())
    with pytest.raises(ValueError, match=r"float64, not float32"):
        flatten(nn.Linear(2, 2).double())


@pytest.mark.parametrize("layer_norm", [False, True])
def test_the_torso_fits_the_observation(layer_norm):
    images = make_torso((4, 84, 84), "uint8", (32, 64), layer_norm)
    assert isinstance(images, NatureCNN)
    assert images(torch.full((2, 4, 84, 84), 255, dtype=torch.uint8)).shape == (2, 64)
    vectors = make_torso((3, 2), "float32", (16,), layer_norm)
    assert isinstance(vectors, MLP)
    assert vectors(torch.zeros(5, 3, 2)).shape == (5, 16)
    with pytest.raises(ValueError, match="width"):
        make_torso((3,), "float32", (), layer_norm)


@pytest.mark.parametrize(
    ("dtype", "expected"), [("uint8", [-1.25, 0.5, 4.0]), ("float32", [251.0, 2.0, 100.0])]
)
def test_differences_of_stacked_vectors_are_scaled_if_they_are_bytes(dtype, expected):
    torso = FrameDeltasMLP(6, (4,), layer_norm=False)
    stacked = torch.tensor([[[0, 250, 28], [251, 252, 128]]]).to(getattr(torch, dtype))
    newest, deltas = torso.vectors(stacked).split(3, dim=1)
    scale = 64 if dtype == "uint8" else 1
    torch.testing.assert_close(newest, stacked[:, -1].float() / scale)
    assert deltas.tolist() == [expected]


def test_dueling_head_centers_advantages():
    head = DuelingHead(6, 3)
    features = torch.randn(7, 6)
    torch.testing.assert_close(head(features).mean(dim=1), head.value(features))


@pytest.mark.parametrize("hidden", [0, 5])
def test_dueling_head_with_several_numbers_per_action(hidden):
    head = DuelingHead(6, 3, 4, hidden)
    features = torch.randn(7, 6)
    out = head(features)
    assert out.shape == (7, 3, 4)
    torch.testing.assert_close(out.mean(dim=1), head.value(features))
    advantage = head.advantage(features).view(7, 3, 4)
    torch.testing.assert_close(out[:, 2] - out[:, 0], advantage[:, 2] - advantage[:, 0])
    assert ActionHead(6, 3, 4)(features).shape == (7, 3, 4)


@pytest.mark.parametrize("make", [DuelingHead, ActionHead, partial(DuelingHead, hidden=5)])
def test_heads_compute_their_last_layer_in_float32_where_others_use_bfloat16(make):
    """Differences between actions remain, though a value near 100 has few digits in bfloat16."""
    torch.manual_seed(0)
    head, x = make(6, 3, 2), torch.randn(50, 6)
    with torch.no_grad():
        head.add_to_bias(torch.full((2,), 100.0))
        expected = head(x)
        with torch.autocast("cpu", torch.bfloat16):
            got, one = head(x), head.of_actions(x, torch.full((50,), 2))
    tolerance = 1e-2 if isinstance(make, partial) else 2e-5  # its hidden layer uses bfloat16
    torch.testing.assert_close(got, expected, rtol=0, atol=tolerance)
    torch.testing.assert_close(one, expected[:, 2], rtol=0, atol=tolerance)


@pytest.mark.parametrize("head", [DuelingHead(6, 3, 4, 5), ActionHead(6, 3, 4), ActionHead(6, 3)])
def test_heads_return_the_numbers_of_one_action(head):
    features, action = torch.randn(7, 6), torch.arange(7) % 3
    out = head(features)
    expected = torch.stack([one[chosen] for one, chosen in zip(out, action, strict=True)])
    assert torch.equal(head.of_actions(features, action), expected)


@pytest.mark.parametrize(
    ("image", "kind"), [("nature", NatureCNN), ("impala", ImpalaResNet), ("small", SmallCNN)]
)
def test_convolutions_by_name_with_and_without_a_dense_layer(image, kind):
    frames = torch.randint(0, 256, (2, 4, 84, 84), dtype=torch.uint8)
    with_dense = make_torso((4, 84, 84), "uint8", (32,), False, image)
    without = make_torso((4, 84, 84), "uint8", (32,), False, image, dense=False)
    assert isinstance(with_dense, kind)
    assert with_dense(frames).shape == (2, 32)
    # Nature: 64 channels of 7 x 7; IMPALA: 32 of 11 x 11 (84 -> 42 -> 21 -> 11); small: 32 of 9 x 9.
    features = {"nature": 3136, "impala": 3872, "small": 2592}[image]
    assert without(frames).shape == (2, without.features) == (2, features)
    with pytest.raises(ValueError, match="vgg"):
        make_torso((4, 84, 84), "uint8", (32,), False, "vgg")


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ((4, 84, 84), "nature"),
        ((1, 36, 36), "nature"),
        ((3, 38, 45), "nature"),
        ((64, 64, 3), "nature"),
        ((4, 44, 45), "small"),
    ],
)
def test_channels_last_gives_the_same_features_and_gradients(shape, image):
    """The first convolution then uses blocks of pixels; rows and columns left over have no effect."""
    torch.manual_seed(0)
    torso = make_torso(shape, "uint8", (32,), False, image)
    inner = next(part for part in torso.modules() if isinstance(part, NatureCNN))
    frames, found = torch.randint(0, 256, (3, *shape), dtype=torch.uint8), []
    for last in (False, True):
        inner.channels_last = last
        torso.zero_grad()
        features = torso(frames)
        features.sin().sum().backward()
        found.append((features.detach(), [weight.grad.clone() for weight in torso.parameters()]))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=1e-5)
    # In bfloat16 bytes are not rounded, so features are closer to those of float32 than with quotients.
    errors = []
    for last in (False, True):
        inner.channels_last = last
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            errors.append((torso(frames).float() - found[0][0]).abs().mean())
    assert 0 < errors[1] < 2 * errors[0] < 0.02


@pytest.mark.parametrize("shape", [(2, 24, 21), (24, 21, 2)])
@pytest.mark.parametrize("channels_last", [False, True])
def test_normalized_pictures_give_the_features_of_floats(shape, channels_last):
    """Each pixel is shifted and scaled by its statistics, then clipped; torsos do not scale floats again."""
    torch.manual_seed(0)
    inputs, torso = PixelNormalizer(shape), make_torso(shape, "uint8", (8,), False, "small")
    inner = next(part for part in torso.modules() if isinstance(part, SmallCNN))
    inner.channels_last = channels_last
    inputs.normalizer.mean.copy_(torch.rand(math.prod(shape)))
    inputs.normalizer.inverse_std.copy_(torch.rand(math.prod(shape)) * 20)
    frames = torch.randint(0, 256, (3, *shape), dtype=torch.uint8)
    mean, inverse = (one.view(shape) for one in (inputs.normalizer.mean, inputs.normalizer.inverse_std))
    expected = ((frames / 255 - mean) * inverse).clamp(-5, 5)
    assert expected.abs().max() == 5
    torch.testing.assert_close(inputs(frames), expected)
    torch.testing.assert_close(torso(frames / 255), torso(frames), rtol=1e-4, atol=1e-5)


def test_impala_has_fifteen_convolutions():
    torso = make_torso((4, 84, 84), "uint8", (256,), False, "impala")
    assert sum(isinstance(layer, nn.Conv2d) for layer in torso.modules()) == 15
    # 3x3 convolutions: 4->16, 4 of 16->16; 16->32, 4 of 32->32; 32->32, 4 more; and the dense layer.
    convolutions = 9 * (4 * 16 + 4 * 256 + 16 * 32 + 4 * 1024 + 5 * 1024) + 5 * 16 + 10 * 32
    assert sum(p.numel() for p in torso.parameters()) == convolutions + 3872 * 256 + 256


def test_noisy_layer_uses_its_noise_or_when_silenced_its_mean():
    torch.manual_seed(0)
    layer = NoisyLinear(5, 4, sigma=0.5)
    x = torch.randn(3, 5)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)
    assert (layer.weight_sigma == 0.5 / 5**0.5).all()
    generator = torch.Generator().manual_seed(1)
    resample_noise(nn.Sequential(layer), generator)
    weight = layer.weight + layer.weight_sigma * torch.outer(layer.noise_out, layer.noise_in)
    bias = layer.bias + layer.bias_sigma * layer.noise_out
    torch.testing.assert_close(layer(x), x @ weight.T + bias)
    assert not torch.equal(layer(x), x @ layer.weight.T + layer.bias)
    again = NoisyLinear(5, 4)
    again.resample(torch.Generator().manual_seed(1))
    assert torch.equal(again.noise_in, layer.noise_in)
    many = torch.randn(64, 5)  # noisy weights are computed for so many rows
    assert torch.allclose(layer(many), torch.cat([layer(part) for part in many.split(8)]), atol=1e-6)
    silence_noise(layer)
    torch.testing.assert_close(layer(x), x @ layer.weight.T + layer.bias)


def test_noise_has_the_variance_of_its_source():
    """f(x) = sign(x) sqrt|x|: mean 0, variance E|x| = sqrt(2 / pi) = 0.798."""
    layer = NoisyLinear(100_000, 1)
    layer.resample(torch.Generator().manual_seed(0))
    # Standard deviation of the mean 0.0028; of the variance sqrt(Var|x| / n) = 0.0019.
    assert abs(layer.noise_in.mean().item()) < 0.015
    assert layer.noise_in.var().item() == pytest.approx(0.7979, abs=0.012)


def test_fraction_embedding_is_relu_of_cosines():
    embedding = FractionEmbedding(3, 2)
    fractions = torch.tensor([[0.0, 0.25]])
    cosines = torch.tensor([[1.0, 1.0, 1.0], [1.0, 0.5**0.5, 0.0]])
    expected = torch.relu(cosines @ embedding.dense.weight.T + embedding.dense.bias)
    torch.testing.assert_close(embedding(fractions)[0], expected)
