"""Log-probabilities and entropies against torch's own distributions."""

import torch
from torch.distributions import Categorical, Normal

from parl.ops.policies import categorical, gaussian, normalized


def test_categorical_equals_torchs_distribution():
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(50, 6, generator=generator)
    action = torch.randint(6, (50,), generator=generator)
    log_prob, entropy = categorical(logits, action)
    reference = Categorical(logits=logits)
    torch.testing.assert_close(log_prob, reference.log_prob(action))
    torch.testing.assert_close(entropy, reference.entropy())


def test_gaussian_equals_torchs_distribution():
    generator = torch.Generator().manual_seed(0)
    mean, action = (torch.randn(50, 3, generator=generator) for _ in range(2))
    log_std = torch.tensor([-1.0, 0.0, 0.5])
    log_prob, entropy = gaussian(mean, log_std, action)
    reference = Normal(mean, log_std.exp())
    torch.testing.assert_close(log_prob, reference.log_prob(action).sum(1))
    torch.testing.assert_close(entropy, reference.entropy().sum(1))


def test_normalized_rows_have_mean_zero_and_deviation_one():
    x = normalized(torch.tensor([1.0, 2.0, 3.0, 10.0]))
    torch.testing.assert_close(x.mean(), torch.tensor(0.0))
    torch.testing.assert_close(x.std(), torch.tensor(1.0))
    weighted = torch.tensor([1.0, 99.0, 2.0, 3.0, 10.0, -5.0])
    valid = torch.tensor([1.0, 0.0, 1.0, 1.0, 1.0, 0.0])
    torch.testing.assert_close(normalized(weighted, valid / 4)[valid > 0], x)


def test_a_single_element_has_no_deviation_to_be_normalized_by():
    """Centered it would be 0, and a policy would learn nothing from minibatches of one row."""
    assert normalized(torch.tensor([4.0])).item() == 4.0
    only = normalized(torch.tensor([4.0, 9.0, 2.0]), torch.tensor([0.0, 0.0, 1.0]))
    assert only[2].item() == 2.0 and only.isfinite().all()
