"""What the replacements of CUDA graphs refuse, as a real capture does."""

import pytest
import torch

from captures import CaptureError, refusing

DEVICE = torch.device("cpu")  # stands for a CUDA device: named explicitly

REFUSED = {
    "tensor from a number": lambda x: torch.tensor(0.1, device=DEVICE),
    "tensor from a list": lambda x: torch.as_tensor([1, 2], device=DEVICE),
    "tensor of the host moved": lambda x: torch.tensor([1.0, 2.0]).to(x.device),
    "tensor of the host copied": lambda x: x.copy_(torch.zeros(4)),
    "random numbers of the host": lambda x: torch.randperm(4).to(x.device),
    "host and device mixed": lambda x: x + torch.arange(4),
    "index of the host": lambda x: x[torch.tensor([0, 1])],
    "item": lambda x: x.sum().item(),
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "bool": lambda x: bool((x > 0).all()),
    "condition": lambda x: 1 if (x > 0).any() else 2,
    "list": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "to cpu": lambda x: x.to("cpu"),
    "numpy": lambda x: x.numpy(),
    "equal": lambda x: torch.equal(x, x),
    "nonzero": lambda x: x.nonzero(),
    "where with one argument": lambda x: torch.where(x > 0),
    "mask": lambda x: x[x > 0],
    "mask written": lambda x: x.__setitem__(x > 0, x[:1].expand(2)),
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "bincount": lambda x: torch.bincount(x.long()),
    "repeat_interleave": lambda x: x.repeat_interleave(x.long()),
    "seed": lambda x: torch.manual_seed(0),
    "synchronize": lambda x: torch.cuda.synchronize(),
}
ALLOWED = {
    "filled": lambda x: torch.full((), 0.1, device=DEVICE),
    "numbers": lambda x: torch.where(x > 0, 0.0, 0.5) * 2 + 1,
    "converted": lambda x: x.to(torch.float64).to(x.device),
    "tensor of the host": lambda x: torch.ones(4, dtype=torch.bool).flatten().all().item(),
    "rows of the host": lambda x: torch.ones(4, dtype=torch.bool).nonzero(),
    "scalar of the host": lambda x: x * torch.tensor(2.0),
    "mask filled": lambda x: x.__setitem__(x > 0, 0.0),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "index": lambda x: x[torch.arange(2, device=DEVICE)],
    "sorted": lambda x: x.sort().values.cumsum(0),
}


def example():
    return torch.tensor([-1.0, 0.0, 1.0, 2.0])


@pytest.mark.parametrize("name", REFUSED)
def test_work_that_needs_the_host_is_refused(name):
    x = example()
    with pytest.raises(CaptureError), refusing():
        REFUSED[name](x.abs() if name in ("bincount", "repeat_interleave") else x)
    # Nothing is refused afterwards.
    assert torch.as_tensor([1.0], device=DEVICE).item() == 1.0


@pytest.mark.parametrize("name", ALLOWED)
def test_work_on_the_device_is_allowed(name):
    expected, x = ALLOWED[name](example()), example()
    with refusing():
        found = ALLOWED[name](x)
    assert found is expected is None or torch.equal(torch.as_tensor(found), torch.as_tensor(expected))


def test_a_backward_pass_is_looked_at():
    class ReadsGradient(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x * 2

        @staticmethod
        def backward(context, gradient):
            return gradient * gradient.sum().item()

    x = example().requires_grad_()
    with pytest.raises(CaptureError), refusing():
        ReadsGradient.apply(x).sum().backward()


def test_generators_must_be_registered():
    known, other = torch.Generator(DEVICE), torch.Generator(DEVICE)
    with refusing([known]):
        torch.rand(3, generator=known, device=DEVICE)
        with pytest.raises(CaptureError, match="the generator of rand is not registered"):
            torch.rand(3, generator=other, device=DEVICE)
