"""Chains of dense layers are found in a user's modules, and only those."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from parl.nets.fused.chain import run_and_find_chain


class Functional(nn.Module):
    """Layers outside of ``nn.Sequential``; what follows each is a function."""

    def __init__(self, after=F.relu, last=None):
        super().__init__()
        self.one, self.two = nn.Linear(6, 5), nn.Linear(5, 4)
        self.after, self.last = after, last or after

    def forward(self, x):
        return self.last(self.two(self.after(self.one(x.flatten(1)))))


def frozen():
    module = Functional()
    module.one.weight.requires_grad_(False)
    return module


def hooked():
    module = Functional()
    module.two.register_forward_hook(lambda *_: None)
    return module


def normalized(epsilon=1e-5):
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.LayerNorm(5, eps=epsilon), nn.Tanh())


class WithoutGradients(Functional):
    """The first layer is computed without gradients."""

    def forward(self, x):
        with torch.no_grad():
            x = torch.relu(self.one(x.flatten(1)))
        return torch.relu(self.two(x))


class SharedLayer(Functional):
    """The second layer is applied twice."""

    def __init__(self):
        super().__init__()
        self.two = nn.Linear(5, 5)

    def forward(self, x):
        x = torch.relu(self.one(x.flatten(1)))
        return torch.relu(self.two(torch.relu(self.two(x))))


@pytest.mark.parametrize(
    ("module", "widths", "activation", "has_last"),
    [
        (Functional(), [5, 4], "relu", False),
        (Functional(torch.tanh), [5, 4], "tanh", False),
        (Functional(last=lambda x: x), [5], "relu", True),
        (normalized(), [5], "tanh", False),
        (nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(inplace=True)), [5], "relu", False),
    ],
)
def test_a_chain_is_found(module, widths, activation, has_last):
    result, chain = run_and_find_chain(module, torch.ones(2, 3, 2))
    assert torch.equal(result, module(torch.ones(2, 3, 2)))
    assert [len(one.bias) for one in chain.hidden] == widths
    assert (chain.activation, chain.last is not None) == (activation, has_last)


@pytest.mark.parametrize(
    "module",
    [
        Functional(torch.sigmoid),
        Functional(F.relu, torch.tanh),
        Functional(last=lambda x: 2 * torch.relu(x)),
        Functional(after=lambda x: torch.relu(x) + x),
        Functional(after=lambda x: torch.relu(x).detach()),
        frozen(),
        hooked(),
        WithoutGradients(),
        SharedLayer(),
        normalized(1e-3),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5, bias=False), nn.ReLU()),
        nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Flatten()),
        nn.Sequential(nn.Flatten(), nn.Linear(6, 5)),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)), nn.ReLU()),
    ],
)
def test_other_modules_are_no_chain(module):
    assert run_and_find_chain(module, torch.ones(2, 3, 2))[1] is None
