"""Action masks and several choices: probabilities, gradients, targets, exploration."""

import dataclasses
import itertools

import numpy as np
import pytest
import torch

from parl.algos import a2c, dqn, ppo
from parl.nets import tensors_of
from parl.nets.masks import MaskedRows, mask_logits, without_mask
from parl.ops.batches import TensorBatch
from parl.ops.exploration import epsilon_greedy
from parl.ops.policies import categorical, multi_categorical
from parl.types import MASK, EnvSpec, rows_of

PLAIN = EnvSpec((4,), "float32", (), "int64", 3, "next_step")
SPEC = dataclasses.replace(
    PLAIN,
    observation_shape=(),
    observation_parts=(("observation", (4,), "float32"), (MASK, (3,), "uint8")),
    mask_size=3,
)
PARTS = dataclasses.replace(
    SPEC, observation_parts=(("a", (4,), "float32"), (MASK, (3,), "uint8"), ("b", (2, 1), "float32"))
)
SEVERAL = dataclasses.replace(PLAIN, num_actions=None, action_shape=(2,), action_branches=(2, 3))
BOTH = dataclasses.replace(
    SEVERAL,
    observation_shape=(),
    observation_parts=(("observation", (4,), "float32"), (MASK, (5,), "uint8")),
    mask_size=5,
)


def observations(spec, count, seed=0):
    rng = np.random.default_rng(seed)
    made = {
        name: rng.normal(size=(count, *shape)).astype(np.float32) for name, shape, _ in spec.observation_parts
    }
    mask = rng.integers(0, 2, (count, spec.mask_size)).astype(np.uint8)
    start = 0
    for size in spec.action_branches or (spec.num_actions,):
        mask[np.arange(count), start + rng.integers(size, size=count)] = 1
        start += size
    return made | {MASK: mask}


@pytest.mark.parametrize("spec", [SPEC, PARTS, BOTH])
@pytest.mark.parametrize("dtype", [torch.Tensor, np.ndarray])
def test_rows_are_divided_into_observation_and_mask(spec, dtype):
    seen = observations(spec, 5)
    rows, split = rows_of(seen), MaskedRows(spec)
    if dtype is torch.Tensor:
        plain, mask = (one.numpy() for one in split(torch.from_numpy(rows).view(1, 5, -1)))
        plain, mask = plain[0], mask[0]
    else:
        plain, mask = split.arrays(rows)
    np.testing.assert_array_equal(plain, rows_of(without_mask(seen)))
    np.testing.assert_array_equal(mask, seen[MASK])


@pytest.mark.parametrize("spec", [SPEC, PARTS, BOTH])
@pytest.mark.parametrize(("module", "kind"), [(ppo, ppo.PPO), (a2c, a2c.A2C)])
@pytest.mark.parametrize("options", [{}, {"lstm": 4}])
def test_invalid_actions_have_probability_0_and_no_gradient(spec, module, kind, options):
    algorithm = kind(module.Config(hidden=(8,), **options), spec)
    learner, policy = algorithm.make_learner(0, "cpu"), algorithm.make_policy(0, 1, 9, 0)
    policy.weights.copy_(learner.weights)
    seen = observations(spec, 9)
    seen[MASK][:, -1], seen[MASK][:, -2] = 0, 1  # the last action is never valid
    never = torch.arange(spec.mask_size) == spec.mask_size - 1
    rows = rows_of(seen)
    if options:
        policy.restart(np.ones(9, bool))
        learner.network.restart(torch.ones(9, dtype=torch.bool))
    logits, _ = learner.network(torch.from_numpy(rows))
    probabilities = torch.cat(
        [part.softmax(1) for part in logits.split_with_sizes(list(spec.action_branches) or [3], dim=1)], dim=1
    )
    invalid = torch.from_numpy(seen[MASK] == 0)
    assert invalid.any() and (probabilities[invalid] == 0).all()
    assert ((probabilities > 0) | invalid).all()
    (probabilities * torch.randn_like(probabilities)).sum().backward()
    gradient = learner.network.policy.weight.grad
    assert torch.isfinite(learner.gradients).all() and gradient[~never].any() and not gradient[never].any()
    for draw in range(20):
        if options:
            policy.restart(np.ones(9, bool))
        action = policy.sample(rows, 0)[0] if draw else policy.act_greedily(seen)
        ends = np.cumsum([0, *spec.action_branches])[:-1] if spec.action_branches else np.zeros(1, int)
        assert np.take_along_axis(seen[MASK], action.reshape(9, -1) + ends, axis=1).all()


def test_log_probabilities_of_policy_and_learner_agree_with_masks_and_choices():
    algorithm = ppo.PPO(ppo.Config(hidden=(8,)), BOTH)
    learner, policy = algorithm.make_learner(0, "cpu"), algorithm.make_policy(0, 1, 7, 0)
    policy.weights.copy_(learner.weights)
    rows = rows_of(observations(BOTH, 7))
    action, log_prob = policy.sample(rows, 0)
    from parl.algos.common.actor_critic import evaluate_actions

    found, entropy, _ = evaluate_actions(learner.network, torch.from_numpy(rows), torch.from_numpy(action))
    np.testing.assert_allclose(found.detach(), log_prob, rtol=1e-5, atol=1e-5)
    assert (entropy >= 0).all() and torch.isfinite(entropy).all()


def test_several_choices_equal_one_choice_of_their_product():
    logits = torch.randn(4, 5)
    joint = (logits[:, :2, None].log_softmax(1) + logits[:, 2:].log_softmax(1)[:, None]).flatten(1)
    for index, pair in enumerate(itertools.product(range(2), range(3))):
        action = torch.tensor([pair] * 4)
        found, entropy = multi_categorical(logits, action, (2, 3))
        expected, all_entropy = categorical(joint, torch.full((4,), index))
        torch.testing.assert_close(found, expected)
        torch.testing.assert_close(entropy, all_entropy)


def test_random_actions_are_uniform_over_the_valid_ones():
    mask = np.array([[1, 0, 1, 0], [0, 1, 0, 0], [1, 1, 1, 1]], np.uint8).repeat(2_000, axis=0)
    drawn = epsilon_greedy(np.zeros(6_000, int), 1.0, 4, np.random.default_rng(0), mask)
    shares = [np.bincount(part, minlength=4) / 2_000 for part in np.split(drawn, 3)]
    np.testing.assert_allclose(shares, [[0.5, 0, 0.5, 0], [0, 1, 0, 0], [0.25] * 4], atol=0.04)


@pytest.mark.parametrize(
    "options",
    [
        {"double": False},
        {"double": True},
        {"munchausen": 0.9},
        {"distribution": "qr"},
        {"distribution": "c51"},
    ],
)
def test_targets_use_valid_next_actions_only(options):
    """They equal those of a network without masks whose invalid actions have very low values."""
    config = dqn.Config(hidden=(8,), n_step=1, reward_scale=1.0, dueling=False, **options)
    masked, plain = (dqn.DQN(config, spec).make_learner(0, "cpu") for spec in (SPEC, PLAIN))
    before, after = observations(SPEC, 60, 1), observations(SPEC, 60, 2)
    before[MASK][:], after[MASK][:] = [1, 0, 1], [0, 1, 1]
    rest = (torch.tensor([0, 2] * 30), torch.ones(60), torch.full((60,), 0.9))
    batch = TensorBatch(tensors_of(before), *rest, tensors_of(after), torch.ones(60), tickets=None)
    found = masked.targets(batch)
    for learner in (plain.online, plain.target):
        inner = learner.forward

        def lowered(observations, fractions=None, inner=inner):
            invalid = (torch.from_numpy(before[MASK]), torch.from_numpy(after[MASK]))
            mask = invalid[0] if observations is first else invalid[1]
            values = inner(observations, fractions)
            if options.get("distribution") == "c51":
                lowest = torch.zeros(values.shape[2])
                lowest[0] = 100.0
                return torch.where((mask == 0).unsqueeze(2), lowest, values)
            return torch.where((mask == 0).unsqueeze(2), torch.tensor(-1e8), values)

        learner.forward = lowered
    first = torch.from_numpy(before["observation"])
    same = TensorBatch(first, *rest, torch.from_numpy(after["observation"]), torch.ones(60), tickets=None)
    torch.testing.assert_close(found, plain.targets(same))
    without = TensorBatch(
        tensors_of(before | {MASK: np.ones_like(before[MASK])}),
        *rest,
        tensors_of(after | {MASK: np.ones_like(after[MASK])}),
        torch.ones(60),
        tickets=None,
    )
    assert not torch.allclose(found, masked.targets(without))


@pytest.mark.parametrize("options", [{}, {"noisy": True, "distribution": "iqn"}, {"dueling": True}])
def test_q_policies_choose_valid_actions(options):
    policy = dqn.DQN(dqn.Config(hidden=(8,), initial_priority="td", **options), SPEC).make_policy(0, 1, 50, 0)
    policy.weights.normal_()
    seen = observations(SPEC, 50)
    for steps in (0, 10**6):
        action = policy.act(seen, steps)
        assert seen[MASK][np.arange(50), action].all() and policy.action_values[1].min() > -1e7
    assert seen[MASK][np.arange(50), policy.act_greedily(seen)].all()


def test_masked_logits_are_the_same_in_numpy_and_torch():
    logits, mask = (
        np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32),
        np.eye(3, 4, dtype=np.uint8),
    )
    found = mask_logits(logits, mask)
    np.testing.assert_array_equal(found, mask_logits(torch.from_numpy(logits), torch.from_numpy(mask)))
    assert found.dtype == np.float32
