"""PPO's loss against numpy; early stopping by target_kl; schedules; checks of settings."""

import numpy as np
import pytest
import torch
from rollouts import BOX, SPEC, no_averaging, rollout, with_and_without_replay

from parl.algos.ppo import PPO, Config, default_config
from parl.errors import ConfigError
from parl.types import EnvSpec

pytestmark = pytest.mark.usefixtures("one_thread")


def minibatch(spec, rows=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    action = (
        torch.randint(4, (rows,), generator=generator)
        if spec.num_actions
        else torch.randn(rows, 2, generator=generator)
    )
    obs, old, advantage, value = (
        torch.randn(rows, *shape, generator=generator) for shape in ((3,), (), (), ())
    )
    return obs, action, old * 0.3 - (1.4 if spec.num_actions else 2.5), advantage, value


def outputs(learner, obs):
    with torch.no_grad():
        return [x.numpy().astype(np.float64) for x in learner.network(obs)]


@pytest.mark.parametrize(
    "options", [{}, {"value_clip": 0.1}, {"normalize_advantages": False, "value_clip": 0.3}]
)
@pytest.mark.parametrize("spec", [SPEC, BOX], ids=["discrete", "continuous"])
def test_loss_against_numpy(spec, options):
    config = Config(entropy_coefficient=0.02, value_coefficient=0.7, initial_log_std=-0.3, **options)
    learner = PPO(config, spec).make_learner(1, "cpu")
    obs, action, old, advantage, old_value = batch = minibatch(spec)
    loss, figures = learner.loss(*batch, torch.tensor(0.2))
    parameters, value = outputs(learner, obs)
    if spec.num_actions:
        p = np.exp(parameters) / np.exp(parameters).sum(1, keepdims=True)
        log_prob = np.log(p[np.arange(len(p)), action.numpy()])
        entropy = -(p * np.log(p)).sum(1)
    else:
        std = np.exp(-0.3)
        z = (action.numpy() - parameters) / std
        log_prob = (-0.5 * z**2 - np.log(std) - 0.5 * np.log(2 * np.pi)).sum(1)
        entropy = np.full(len(z), 2 * (0.5 + 0.5 * np.log(2 * np.pi) + np.log(std)))
    a, v, old = advantage.numpy(), old_value.numpy(), old.numpy()
    target = a + v
    if config.normalize_advantages:
        a = (a - a.mean()) / (a.std(ddof=1) + 1e-8)
    r = np.exp(log_prob - old)
    assert ((r < 0.8) | (r > 1.2)).any() and ((r > 0.8) & (r < 1.2)).any()
    policy_loss = -np.minimum(r * a, np.clip(r, 0.8, 1.2) * a).mean()
    error = (value - target) ** 2
    if config.value_clip:
        moved = v + np.clip(value - v, -config.value_clip, config.value_clip)
        error = np.maximum(error, (moved - target) ** 2)
    expected = policy_loss + 0.7 * 0.5 * error.mean() - 0.02 * entropy.mean()
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert figures["kl"].item() == pytest.approx((r - 1 - np.log(r)).mean(), rel=1e-4)


def test_every_valid_row_is_used_once_per_epoch():
    learner = PPO(Config(epochs=3, minibatch_size=8), SPEC).make_learner(0, "cpu")
    seen = []
    differentiate = learner.differentiate
    learner.differentiate = lambda obs, *rest: (seen.append(obs), differentiate(obs, *rest))
    data = rollout()
    updates = learner.learn(data, 0.0, no_averaging)
    valid = data.obs[:-1][data.valid]
    per_epoch = round(len(valid) / 8)
    assert updates == len(seen) == 3 * per_epoch
    for epoch in range(3):
        rows = torch.cat(seen[epoch * per_epoch : (epoch + 1) * per_epoch])
        assert sorted(map(tuple, rows.tolist())) == sorted(map(tuple, valid.tolist()))


@pytest.mark.parametrize("size", [1, 2])
def test_minibatches_are_not_empty_where_many_rows_are_not_valid(size):
    learner = PPO(Config(epochs=1, minibatch_size=size), SPEC).make_learner(0, "cpu")
    data = rollout(4, 2)
    data.valid[:] = torch.tensor([[True, False], [False, False], [True, True], [False, False]])
    assert learner.learn(data, 0.0, no_averaging) == min(3, 8 // size)
    assert learner.weights.isfinite().all()


@pytest.mark.parametrize("target_kl", [0.0, 0.1])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_one_of_several_learners_with_few_valid_rows_makes_all_steps(rows, target_kl):
    """The others wait for it: it repeats rows, or has gradients of 0."""
    config = Config(epochs=1, minibatch_size=4, target_kl=target_kl)
    learner = PPO(config, SPEC).make_learner(0, "cpu")
    learner.learners = 2
    before, data = learner.weights.clone(), rollout(4, 4)
    data.valid[:] = False
    data.valid.view(-1)[:rows] = True
    assert learner.learn(data, 0.0, no_averaging) == 8
    assert learner.weights.isfinite().all() and torch.equal(learner.weights, before) == (rows == 0)


def test_target_kl_ends_the_epochs_early():
    options = {"epochs": 50, "minibatch_size": 8, "learning_rate": 0.05}
    free = PPO(Config(**options), SPEC).make_learner(0, "cpu").learn(rollout(), 0.0, no_averaging)
    held = (
        PPO(Config(**options, target_kl=0.01), SPEC)
        .make_learner(0, "cpu")
        .learn(rollout(), 0.0, no_averaging)
    )
    assert 0 < held < free


def test_the_learning_rate_decreases_to_zero():
    learner = PPO(Config(), SPEC).make_learner(0, "cpu")
    assert learner.learning_rate(0.25) == pytest.approx(0.75e-3)
    before = learner.weights.clone()
    learner.learn(rollout(), 1.0, no_averaging)
    assert torch.equal(learner.weights, before)


def test_the_clip_range_decreases_to_zero(monkeypatch):
    """After three quarters of the run it is a quarter of its first value."""
    options = {"epochs": 6, "learning_rate": 0.02, "anneal": False}
    settings = ({"clip": 0.4, "anneal_clip": True}, {"clip": 0.1}, {"clip": 0.4})
    for _ in with_and_without_replay(monkeypatch):
        learners = [PPO(Config(**options, **more), SPEC).make_learner(0, "cpu") for more in settings]
        for learner in learners:
            learner.learn(rollout(), 0.75, no_averaging)
        falling, quarter, whole = (learner.weights for learner in learners)
        assert torch.equal(falling, quarter) and not torch.equal(falling, whole)


def test_the_first_rollout_of_a_normalized_run_only_sets_statistics():
    learner = PPO(Config(normalize_observations=True), SPEC).make_learner(0, "cpu")
    data = rollout()
    assert learner.learn(data, 0.0, no_averaging) == 0
    torch.testing.assert_close(
        learner.network.flattener.normalizer.mean.data, data.obs[:-1].flatten(0, 1).mean(0)
    )
    assert learner.learn(data, 0.0, no_averaging) > 0


def test_a_restored_learner_continues_identically():
    one, two = (PPO(Config(), SPEC).make_learner(seed, "cpu") for seed in (0, 1))
    one.learn(rollout(), 0.0, no_averaging)
    two.load_state_dict(one.state_dict())
    for learner in (one, two):
        learner.learn(rollout(seed=1), 0.5, no_averaging)
    assert torch.equal(one.weights, two.weights)


def test_bad_settings_raise():
    for options in ({"clip": -0.1}, {"epochs": 0}, {"gamma": 1.5}, {"activation": "gelu"}, {"hidden": ()}):
        with pytest.raises(ConfigError, match=next(iter(options))):
            Config(**options)
    image = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
    assert default_config(image).hidden == (512,)
    assert default_config(BOX).normalize_observations


@pytest.mark.parametrize(
    "options",
    [
        {"minibatch_size": 7},
        {"value_clip": 0.2, "entropy_coefficient": 0.01, "normalize_advantages": False},
        {"target_kl": 1e-4, "learning_rate": 0.1},
        {"normalize_observations": True, "activation": "relu", "shared_layers": True},
    ],
    ids=["parts", "clipped", "kl", "normalized"],
)
@pytest.mark.parametrize("spec", [SPEC, BOX], ids=["discrete", "continuous"])
def test_replayed_updates_equal_torchs(monkeypatch, options, spec):
    """Two rollouts, several epochs, replayed and by torch: as many updates, weights equal up to rounding."""
    found = []
    for _ in with_and_without_replay(monkeypatch):
        learner = PPO(Config(hidden=(8, 6), epochs=3, **options), spec).make_learner(0, "cpu")
        steps = [learner.learn(rollout(8, 4, seed, 1, spec), 0.3, no_averaging) for seed in (0, 2)]
        found.append((steps, learner.weights.clone(), learner.metrics()))
    assert found[0][0] == found[1][0] and sum(found[0][0]) > 0
    torch.testing.assert_close(found[0][1], found[1][1], rtol=1e-3, atol=2e-5)
    assert found[0][2].keys() == found[1][2].keys()
