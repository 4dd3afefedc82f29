"""Networks begin with the random numbers of a seed, and leave torch's generators as they were."""

import pytest
import torch

from parl.nets.seeding import seeded


def test_numbers_are_those_of_the_seed_and_the_generator_is_restored():
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with seeded(3, "cpu"):
        assert torch.equal(torch.rand(4), expected)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_generators_of_gpus_are_seeded_for_gpus_alone(monkeypatch, device):
    seeds = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)
    with seeded(3, device):
        pass
    assert seeds == ([3] if device == "cuda" else [])
