"""Replayed updates equal torch's; updates that cannot be replayed run by torch, with one warning."""

import copy
import threading

import numpy as np
import pytest
import torch
from torch import nn

from parl.nets import MLP, Ensemble, flatten
from parl.nets.actor_critic import ActorCritic
from parl.nets.fused import Update, record
from parl.nets.fused.layers import head
from parl.ops.policies import normalized


class Learner:
    """A small network, a separate parameter, and a loss function."""

    def __init__(self, loss, kind="relu", replay=True):
        torch.manual_seed(0)
        if kind == "ensemble":
            self.net = Ensemble(2, 3, (8, 6), 4)
            parts = [self.net]
        elif kind == "towers":
            self.net = ActorCritic((3,), "float32", 4, (8, 6), False, "tanh", False)
            parts = [self.net]
        else:
            parts = [MLP(3, (8, 6), kind == "norm"), nn.Linear(6, 4)]
            self.net = None
        self.scale = nn.Parameter(torch.tensor([0.5, -0.3, 0.1, 0.2]))
        module = nn.ModuleList(parts)
        module.register_parameter("scale", self.scale)
        flat = flatten(module)
        self.weights, self.gradients = flat.weights, flat.gradients
        if self.net is None:
            dense = parts[0].with_heads([head(0, parts[1])])
            self.net = lambda x: dense.outputs(x)[0]
        self.loss, self.number, self.drawn = loss, 1.0, torch.tensor([1, 0])
        self.update = Update(self.run, self.gradients, replay)

    def q(self, x):
        found = self.net(x)
        if isinstance(found, tuple):
            return found[0] + found[1].unsqueeze(1)
        return found.amin(dim=0) if found.dim() == 3 else found

    def run(self, x, action, target):
        self.gradients.zero_()
        figures = self.loss(self, x, action, target)
        figures["loss"].backward()
        return {name: value.detach() for name, value in figures.items()}


def batch(seed, rows=12):
    generator = torch.Generator().manual_seed(seed)
    action = torch.randint(4, (rows,), generator=generator)
    return torch.randn(rows, 3, generator=generator), action, torch.randn(rows, generator=generator)


def squares(self, x, action, target):
    chosen = self.q(x).gather(1, action.unsqueeze(1)).squeeze(1)
    return {"loss": (chosen - target).square().mean() + 0.1 * self.scale.square().sum(), "chosen": chosen}


def policy(self, x, action, target):
    log_p = self.q(x).log_softmax(dim=1)
    ratio = (log_p.gather(1, action.unsqueeze(1)).squeeze(1) + 1.4).exp()
    advantage = (target - target.mean()) / (target.std() + 1e-8)
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    entropy = -(log_p.exp() * log_p).sum(dim=1)
    return {"loss": -gain - 0.01 * entropy.mean() + (self.scale.exp() * target[:4]).sum(), "entropy": entropy}


def twice(self, x, action, target):
    """Two passes with gradients, the second on the output of the first, and one pass without."""
    first = self.q(x)
    second = self.q(torch.tanh(first[:, :3]))
    with torch.no_grad():
        best = self.q(x + 1).argmax(dim=1, keepdim=True)
    error = nn.functional.huber_loss(second.gather(1, best).squeeze(1), target, reduction="none")
    return {"loss": (error * nn.functional.softplus(first[:, 0])).mean()}


def unusual(self, x, action, target):
    """Operations without a translation to numpy, which are called through torch."""
    q = self.q(x)
    return {"loss": torch.erf(q).cumsum(dim=1).mean() + torch.lgamma(q.square() + 1).mean()}


def scan(self, x, action, target):
    """A recurrence over rows, whose recording holds for one number of rows only."""
    total, rows = torch.zeros(4), []
    for row in self.q(x).unbind(0):
        total = torch.addcmul(row, total, self.scale)
        rows.append(total)
    chosen = torch.where(action.unsqueeze(1) > 1, torch.stack(rows), 0.0)
    return {"loss": chosen.square().mean(), "last": rows[-1]}


@pytest.mark.parametrize("kind", ["relu", "norm", "towers", "ensemble"])
@pytest.mark.parametrize("loss", [squares, policy, twice, unusual, scan])
def test_replayed_updates_equal_torchs(loss, kind):
    learner, by_torch = Learner(loss, kind), Learner(loss, kind, replay=False)
    for seed in range(12):
        rows = 12 if seed % 3 else 9 + seed
        found, expected = (one.update(*batch(seed, rows)) for one in (learner, by_torch))
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(learner.gradients, by_torch.gradients, rtol=1e-4, atol=1e-5)
        for one in (learner, by_torch):
            one.weights.add_(one.gradients, alpha=-0.1)
    assert learner.update.replays and not by_torch.update.replays


def test_a_single_row_has_a_recording_of_its_own():
    """Advantages of several rows are normalized, a single one is not."""

    def loss(self, x, action, target):
        return {"loss": (self.q(x).amax(dim=1) * normalized(target)).mean()}

    learner, by_torch = Learner(loss), Learner(loss, replay=False)
    for rows in (5, 1, 4, 1, 2, 1):
        found, expected = (one.update(*batch(rows, rows)) for one in (learner, by_torch))
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        torch.testing.assert_close(learner.gradients, by_torch.gradients, rtol=1e-4, atol=1e-5)
    assert learner.update.replays


def test_a_recurrence_over_one_row_is_replayed():
    """An operation then returns a list of one tensor."""
    learner, by_torch = Learner(scan), Learner(scan, replay=False)
    for seed in range(4):
        found, expected = (one.update(*batch(seed, 1)) for one in (learner, by_torch))
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        torch.testing.assert_close(learner.gradients, by_torch.gradients, rtol=1e-4, atol=1e-5)
    assert learner.update.replays


def test_one_recording_serves_any_number_of_rows():
    learner = Learner(squares)
    for rows in range(5, 30):
        learner.update(*batch(rows, rows))
    assert [program.general for _, program, _ in learner.update._programs] == [True]
    calls = []
    learner.update._function = lambda *tensors: calls.append(1)
    learner.update._programs[0][2][0] = 100
    learner.update(*batch(0, 20))
    assert not calls  # torch was not called


def test_equal_batches_give_equal_bits_from_the_first_call():
    one = Learner(policy, "towers")
    first = [one.update(*batch(seed)) and one.gradients.clone() for seed in range(7)]
    again = [one.update(*batch(seed)) and one.gradients.clone() for seed in range(7)]
    for before, after in zip(first, again, strict=True):
        assert torch.equal(before, after)


def draws_random_numbers(self, x, action, target):
    return {"loss": (self.q(x) + torch.rand(len(x), 1)).square().mean()}


def branches_on_a_number(self, x, action, target):
    found = self.q(x).square().mean()
    return {"loss": found if target.sum() > 0 else 2 * found}


def changes_memory(self, x, action, target):
    self.drawn.add_(1)
    return {"loss": self.q(x).square().mean()}


def changes_under_a_view(self, x, action, target):
    q = self.q(x) + 1.0
    part = q[:, :2]
    q.detach().mul_(2.0)
    return {"loss": q.mean() + part.mean()}


def too_many_operations(self, x, action, target):
    q = self.q(x)
    for _ in range(record.MAX_LINES):
        q = q + 1
    return {"loss": q.mean()}


@pytest.mark.parametrize(
    ("loss", "reason"),
    [
        (draws_random_numbers, "draws random numbers"),
        (branches_on_a_number, "Python reads a number"),
        (changes_memory, "changes memory in place"),
        (too_many_operations, "operations"),
    ],
)
def test_updates_that_cannot_be_replayed_run_by_torch_with_one_warning(loss, reason):
    learner, by_torch = Learner(loss), Learner(loss, replay=False)
    torch.manual_seed(3)
    with pytest.warns(RuntimeWarning, match=f"Learner.run are run by torch's autograd.*{reason}"):
        found = learner.update(*batch(0))
    torch.manual_seed(3)
    expected = by_torch.update(*batch(0))
    assert found["loss"] == expected["loss"] and not learner.update.replays
    for seed in range(3):  # no further warning, which would be an error
        learner.update(*batch(seed))


def test_updates_that_change_memory_under_a_view_are_not_replayed():
    learner, by_torch = Learner(changes_under_a_view), Learner(changes_under_a_view, replay=False)
    with pytest.warns(RuntimeWarning, match="changes memory in place"):
        found = learner.update(*batch(0))
    assert found["loss"] == by_torch.update(*batch(0))["loss"]


def scaled_by_number(self, x, action, target):
    return {"loss": self.number * self.q(x).square().mean()}


def indexed_by_drawn(self, x, action, target):
    return {"loss": self.q(x)[:, self.drawn].square().mean()}


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_changed_number_is_detected_by_the_comparison(calls):
    learner = Learner(scaled_by_number)
    for seed in range(calls):
        learner.update(*batch(seed))
    learner.number = 2.0
    with pytest.warns(RuntimeWarning, match="loss differs from torch's at call"):
        found = [learner.update(*batch(9))["loss"] for _ in range(8)]
    expected = Learner(scaled_by_number, replay=False).update(*batch(9))["loss"]
    assert found[-1] == 2 * expected


def test_a_replaced_tensor_is_detected():
    learner = Learner(indexed_by_drawn)
    learner.update(*batch(0))
    learner.drawn = torch.tensor([3, 2])
    with pytest.warns(RuntimeWarning, match="differs from torch's"):
        learner.update(*batch(0))


def test_a_wrong_line_is_replaced_by_torchs_operation(monkeypatch):
    monkeypatch.setitem(record._ELEMENTWISE, "aten.exp.default", "np.exp({0}) + 1e-3")
    learner, by_torch = Learner(policy), Learner(policy, replay=False)
    found, expected = (one.update(*batch(0)) for one in (learner, by_torch))
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)
    assert learner.update.replays and "1e-3" not in learner.update._programs[0][1].source


def test_networks_that_are_not_fused_run_by_torch_without_a_warning():
    net = nn.Linear(3, 1)
    flat = flatten(net)

    def run(x):
        flat.gradients.zero_()
        loss = net(x).square().mean()
        loss.backward()
        return {"loss": loss}

    update = Update(run, flat.gradients)
    assert update(torch.ones(2, 3))["loss"].shape == () and not update.replays


def test_errors_of_a_loss_are_raised_as_they_are():
    def wrong(self, x, action, target):
        return {"loss": self.q(x) @ target}

    with pytest.raises(RuntimeError, match="size mismatch"):
        Learner(wrong).update(*batch(0))


def test_nan_in_a_batch_gives_nan_in_the_loss():
    learner = Learner(squares)
    for seed in range(5):
        learner.update(*batch(seed))
    x, action, target = batch(5)
    target[0] = np.nan
    assert np.isnan(learner.update(x, action, target)["loss"]) and learner.update.replays


def test_the_hook_observes_the_backward_pass_and_ends_with_it():
    """Checks the behavior of torch's private module that the recording needs."""
    seen = []

    def each(func, args, kwargs):
        seen.append(str(func))
        return func(*args, **kwargs)

    x = torch.ones(3, requires_grad=True)
    record.observe(lambda: x.exp().sum().backward(), each)
    assert seen[0] == "aten.exp.default" and "aten.expand.default" in seen and "aten.mul.Tensor" in seen
    count = len(seen)
    x.exp()
    assert len(seen) == count

    def refuse(func, args, kwargs):
        raise record.NotReplayableError("no")

    with pytest.raises(record.NotReplayableError):
        record.observe(lambda: torch.ones(2), refuse)


def test_threads_record_independently():
    learners = [Learner(squares, "ensemble"), Learner(policy, "towers")]
    threads = [
        threading.Thread(target=lambda one=one: [one.update(*batch(seed)) for seed in range(20)])
        for one in learners
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, loss, kind in zip(learners, (squares, policy), ("ensemble", "towers"), strict=True):
        by_torch = Learner(loss, kind, replay=False)
        by_torch.update(*batch(19))
        torch.testing.assert_close(one.gradients, by_torch.gradients, rtol=1e-4, atol=1e-6)
        assert one.update.replays


def test_unfinished_passes_do_not_affect_each_other():
    learner = Learner(squares)
    twin = copy.deepcopy([p.detach() for p in (learner.weights,)])[0]
    one, two = torch.randn(5, 3), torch.randn(5, 3)
    first, second = learner.q(one).square().sum(), learner.q(two).square().sum()
    first.backward()
    second.backward()
    both = learner.gradients.clone()
    learner.gradients.zero_()
    for x in (two, one):
        learner.q(x).square().sum().backward()
    torch.testing.assert_close(learner.gradients, both)
    assert torch.equal(learner.weights, twin)
