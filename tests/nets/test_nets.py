"""Flat buffers, torsos and heads."""

import pytest
import torch
from torch import nn

from parl.nets import MLP, DuelingHead, NatureCNN, flatten, make_torso


def test_flatten_keeps_the_function_and_shares_memory():
    torch.manual_seed(0)
    module = MLP(3, (8, 5), layer_norm=True)
    x = torch.randn(4, 3)
    before = module(x).detach().clone()
    flat = flatten(module)
    assert torch.equal(module(x), before)
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


def test_flatten_refuses_what_it_cannot_hold():
    with pytest.raises(ValueError, match="no parameters"):
        flatten(nn.ReLU())
    with pytest.raises(ValueError, match=r"float64, not float32"):
        flatten(nn.Linear(2, 2).double())


@pytest.mark.parametrize("layer_norm", [False, True])
def test_torso_follows_the_observation(layer_norm):
    images = make_torso((4, 84, 84), "uint8", (32, 64), layer_norm)
    assert isinstance(images, NatureCNN)
    assert images(torch.full((2, 4, 84, 84), 255, dtype=torch.uint8)).shape == (2, 64)
    vectors = make_torso((3, 2), "float32", (16,), layer_norm)
    assert isinstance(vectors, MLP)
    assert vectors(torch.zeros(5, 3, 2)).shape == (5, 16)
    with pytest.raises(ValueError, match="width"):
        make_torso((3,), "float32", (), layer_norm)


def test_dueling_head_centres_advantages():
    head = DuelingHead(6, 3)
    features = torch.randn(7, 6)
    torch.testing.assert_close(head(features).mean(dim=1, keepdim=True), head.value(features))
