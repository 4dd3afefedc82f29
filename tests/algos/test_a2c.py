"""A2C's loss against numpy; windows and environment groups; two learners on halves against one."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from rollouts import BOX, SPEC, no_averaging, numpy_of, rollout, successors, with_and_without_replay

from parl.algos import a2c, ppo, pqn
from parl.algos.a2c import A2C, Config, concatenate_rollouts, env_group
from parl.errors import ConfigError
from parl.nets.fused import Update

pytestmark = pytest.mark.usefixtures("one_thread")


def outputs(learner, obs):
    with torch.no_grad():
        parameters, value = learner.network(obs.flatten(0, 1))
    p = torch.softmax(parameters.double(), 1).view(*obs.shape[:2], -1).numpy()
    return p, value.view(obs.shape[:2]).double().numpy()


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
@pytest.mark.parametrize("normalize", [False, True])
def test_loss_against_numpy(advantage, normalize):
    config = Config(
        advantage=advantage,
        normalize_advantages=normalize,
        gamma=0.9,
        gae_lambda=0.8,
        entropy_coefficient=0.03,
        value_coefficient=0.4,
        c_max=0.95,
    )
    learner = A2C(config, SPEC).make_learner(1, "cpu")
    data = rollout(steps=12, envs=6, final=2)
    data.log_prob.add_(0.3 * torch.randn(12, 6, generator=torch.Generator().manual_seed(5)))
    loss = learner.loss(data)[0].item()

    p, value = outputs(learner, data.obs)
    _, final_value = outputs(learner, data.final_obs[None])
    rows = numpy_of(data)
    following = successors(data, value, final_value[0])
    t, n = np.indices(data.action.shape)
    log_prob = np.log(p[t, n, data.action.numpy()])
    ratio = np.exp(log_prob - data.log_prob.numpy()) if advantage == "vtrace" else np.ones_like(log_prob)
    alive = 0.9 * ~rows["terminated"]
    delta = rows["reward"] + alive * following - value[:-1]
    excess = np.zeros((13, 6))
    for step in reversed(range(12)):
        rho = np.minimum(ratio[step], 1.0)
        c = 0.8 * (np.minimum(ratio[step], 0.95) if advantage == "vtrace" else 1.0)
        excess[step] = rho * delta[step] + 0.9 * c * ~rows["ended"][step] * excess[step + 1]
    target = value[:-1] + excess[:-1]
    if advantage == "gae":
        a = excess[:-1]
    else:
        after = following.copy()
        after[:-1] = np.where(rows["ended"][:-1], following[:-1], target[1:])
        a = np.minimum(ratio, 1.0) * (rows["reward"] + alive * after - value[:-1])
    valid = rows["valid"]
    a = a[valid]
    if normalize:
        a = (a - a.mean()) / (a.std(ddof=1) + 1e-8)
    entropy = -(p[:-1] * np.log(p[:-1])).sum(-1)[valid].mean()
    expected = -(log_prob[valid] * a).mean() - 0.03 * entropy
    expected += 0.4 * 0.5 * ((value[:-1] - target)[valid] ** 2).mean()
    assert loss == pytest.approx(expected, rel=1e-5)


def test_updates_use_the_newest_window_of_alternating_groups():
    config = Config(rollout_steps=4, window=12, env_groups=2, advantage="vtrace")
    learner = A2C(config, SPEC).make_learner(0, "cpu")
    seen = []
    loss = learner.loss
    learner.loss = lambda data, *more: (seen.append(data), loss(data, *more))[1]
    learner._update = Update(learner.make_gradients, learner.gradients, replay=False)
    parts = [rollout(steps=4, seed=seed) for seed in range(5)]
    assert [learner.learn(part, 0.0, no_averaging) for part in parts] == [0, 0, 1, 1, 1]
    for update, data in enumerate(seen):
        envs = slice(2, 4) if update % 2 else slice(0, 2)
        whole = torch.cat([part.reward for part in parts[update : update + 3]])
        assert torch.equal(data.reward, whole[:, envs])
        assert data.obs.shape == (13, 2, 3)
        assert torch.equal(data.obs[-1], parts[update + 2].obs[-1, envs])


def test_final_observations_keep_their_rows_when_rollouts_are_joined_and_split():
    one, two = rollout(steps=20, final=3), rollout(steps=20, seed=1, final=2)
    both = concatenate_rollouts([one, two])
    shifted = [[t + 20, n] for t, n in two.final_at.tolist()]
    assert both.final_at.tolist() == one.final_at.tolist() + shifted
    half = env_group(both, 1, 2)
    expected = [[t, n - 2] for t, n in both.final_at.tolist() if n >= 2]
    assert half.final_at.tolist() == expected and len(half.final_obs) == len(expected)


def test_two_learners_with_half_the_environments_update_like_one_with_all():
    """If both halves have as many rows, the mean of their gradients is the gradient of the whole."""
    config = Config(normalize_advantages=False, learning_rate=0.01)
    data = rollout(envs=6)
    data.valid.fill_(True)
    whole = A2C(config, SPEC).make_learner(0, "cpu")
    whole.learn(data, 0.0, no_averaging)
    halves = [A2C(config, SPEC).make_learner(0, "cpu") for _ in range(2)]
    for index, half in enumerate(halves):
        half.gradients.zero_()
        half.loss(env_group(data, index, 2))[0].backward()
    mean = (halves[0].gradients + halves[1].gradients) / 2
    halves[0].learn(env_group(data, 0, 2), 0.0, lambda gradients: gradients.copy_(mean))
    torch.testing.assert_close(halves[0].weights, whole.weights, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("module", [a2c, ppo, pqn])
def test_steps_in_which_all_environments_reset_are_not_learned_from(module):
    """With ``rollout_steps=1`` such a step is a whole rollout, say of one environment."""
    own = {} if module is a2c else {"minibatch_size": 4, "epochs": 2}
    kind = {a2c: a2c.A2C, ppo: ppo.PPO, pqn: pqn.PQN}[module]
    learner = kind(module.Config(rollout_steps=1, **own), SPEC).make_learner(0, "cpu")
    data = rollout(1, 3, seed=1)
    resets = replace(data, valid=torch.zeros(1, 3, dtype=torch.bool))
    assert learner.learn(data, 0.0, no_averaging) > 0
    before = learner.weights.clone()
    assert learner.learn(resets, 0.0, no_averaging) == 0
    assert torch.equal(learner.weights, before)
    assert learner.learn(rollout(1, 3, seed=1), 0.0, no_averaging) > 0
    assert learner.weights.isfinite().all()


def test_a_learner_whose_environments_all_reset_adds_no_gradient_to_those_of_others():
    learner = A2C(Config(rollout_steps=1), SPEC).make_learner(0, "cpu")
    learner.learners = 2
    gradients = []
    resets = replace(rollout(1, 3, seed=1), valid=torch.zeros(1, 3, dtype=torch.bool))
    assert learner.learn(resets, 0.0, lambda one: gradients.append(one.clone())) == 1
    assert not gradients[0].any()


def test_the_state_dict_contains_the_window():
    config = Config(rollout_steps=4, window=8, env_groups=2, optimizer="rmsprop")
    one, two = (A2C(config, SPEC).make_learner(seed, "cpu") for seed in (0, 1))
    for seed in range(3):
        one.learn(rollout(steps=4, seed=seed), 0.0, no_averaging)
    two.load_state_dict(one.state_dict())
    for learner in (one, two):
        learner.learn(rollout(steps=4, seed=9), 0.5, no_averaging)
    assert torch.equal(one.weights, two.weights)


def test_a_window_is_loaded_to_the_device_of_the_learner():
    """States come from the CPU. The device is one without data, which every machine has."""
    config = Config(rollout_steps=4, window=8)
    one, two = (A2C(config, SPEC).make_learner(seed, "cpu") for seed in (0, 1))
    one.learn(rollout(steps=4, seed=0), 0.0, no_averaging)
    two.device = torch.device("meta")
    two.load_state_dict(one.state_dict())
    columns = vars(two._window[0])
    assert columns.pop("valid").device.type == "cpu"
    assert {column.device.type for column in columns.values() if column is not None} == {"meta"}


def test_bad_settings_raise():
    with pytest.raises(ConfigError, match="window = 6 is no multiple of rollout_steps = 4"):
        Config(rollout_steps=4, window=6)
    with pytest.raises(ConfigError, match="advantage = 'retrace'"):
        Config(advantage="retrace")
    with pytest.raises(ConfigError, match=r"window = 12 is below env_groups \* rollout_steps = 16"):
        A2C(Config(rollout_steps=4, window=12, env_groups=4), SPEC)
    learner = A2C(Config(rollout_steps=4, window=36, env_groups=9), SPEC).make_learner(0, "cpu")
    for _ in range(8):
        learner.learn(rollout(), 0.0, no_averaging)
    with pytest.raises(ConfigError, match="env_groups = 9 is above num_envs = 4"):
        learner.learn(rollout(), 0.0, no_averaging)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"advantage": "vtrace", "normalize_advantages": False, "entropy_coefficient": 0.02},
        {"normalize_observations": True, "activation": "relu", "shared_layers": True},
        {"rollout_steps": 8, "window": 16, "env_groups": 2, "optimizer": "rmsprop"},
    ],
    ids=["gae", "vtrace", "normalized", "windows"],
)
@pytest.mark.parametrize("spec", [SPEC, BOX], ids=["discrete", "continuous"])
def test_replayed_updates_equal_torchs(monkeypatch, options, spec):
    """Learns from rollouts with invalid rows, replayed and by torch: weights are equal up to rounding."""
    found = []
    for _ in with_and_without_replay(monkeypatch):
        learner = A2C(Config(hidden=(8, 6), learning_rate=1e-2, **options), spec).make_learner(0, "cpu")
        before = learner.weights.clone()
        for seed in (0, 2, 3):
            learner.learn(rollout(8, 4, seed, 1, spec), 0.3, no_averaging)
        assert not torch.equal(before, learner.weights)
        found.append((learner.weights.clone(), learner.metrics()))
    torch.testing.assert_close(found[0][0], found[1][0], rtol=1e-3, atol=2e-5)
    assert found[0][1].keys() == found[1][1].keys()
    for name, value in found[0][1].items():
        assert value == pytest.approx(found[1][1][name], rel=1e-3, abs=1e-4), name


@pytest.mark.parametrize("spec", [SPEC, BOX], ids=["discrete", "continuous"])
def test_policies_sample_from_the_distribution_of_the_network(spec):
    """Compares frequencies or moments of many actions, and the log-probability of each."""
    policy = A2C(Config(hidden=(8,), initial_log_std=-0.7), spec).make_policy(0, 1, 20_000, seed=3)
    observations = np.tile(np.array([[0.5, -1.0, 2.0]], np.float32), (20_000, 1))
    policy.weights.add_(0.3 * torch.randn(policy.weights.shape, generator=torch.Generator().manual_seed(0)))
    parameters = torch.from_numpy(policy._network.act(observations[:1]).copy())
    action, log_prob = policy.sample(observations, 0)
    action = torch.from_numpy(np.asarray(action))
    if spec.num_actions:
        expected = parameters.log_softmax(dim=1)[0]
        frequencies = torch.bincount(action, minlength=4) / len(action)
        torch.testing.assert_close(frequencies, expected.exp(), rtol=0, atol=0.015)
        expected = expected[action]
    else:
        normal = torch.distributions.Normal(parameters, policy._network.log_std.detach().exp())
        torch.testing.assert_close(action.mean(dim=0), normal.mean[0], rtol=0, atol=0.02)
        torch.testing.assert_close(action.std(dim=0), normal.stddev[0], rtol=0.03, atol=0)
        expected = normal.log_prob(action).sum(dim=1)
    torch.testing.assert_close(torch.from_numpy(log_prob), expected, rtol=1e-4, atol=1e-4)


def test_an_epsilon_of_0_is_refused():
    """Weights without a gradient would become NaN."""
    with pytest.raises(ConfigError, match=r"optimizer_epsilon = 0\.0 is not above 0"):
        Config(optimizer_epsilon=0.0)


def test_actions_outside_of_training_are_clipped_to_the_bounds_as_in_training():
    """Actors clip actions before each step; evaluations and ``predict`` take those of the policy."""
    bounded = replace(BOX, action_low=(-0.1, -np.inf), action_high=(0.2, 0.3))
    policy = A2C(Config(hidden=(8,)), bounded).make_policy(0, 1, 500, seed=3)
    policy.weights.add_(torch.randn(policy.weights.shape, generator=torch.Generator().manual_seed(0)))
    observations = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    mean = policy._network.act(observations)
    low, high = np.array(bounded.action_low, np.float32), np.array(bounded.action_high, np.float32)
    expected = np.clip(mean, low, high)
    assert 0.1 < (expected != mean).mean() < 0.9
    np.testing.assert_array_equal(policy.act_greedily(observations), expected)
    exported = policy.greedy(policy.network, torch.from_numpy(observations))[0].detach()
    np.testing.assert_allclose(exported.numpy(), expected, rtol=1e-5, atol=1e-6)
    explored = policy.act(observations, 0)
    assert ((explored >= low) & (explored <= high)).all()
    # The log-probabilities of rollouts are those of actions that are not clipped.
    assert (policy.sample(observations, 0)[0] > high).any()


@pytest.mark.parametrize(("module", "own"), [(a2c, {}), (ppo, {"minibatch_size": 1, "epochs": 1})])
def test_the_policy_learns_from_one_row_at_a_time(module, own):
    kind = {a2c: a2c.A2C, ppo: ppo.PPO}[module]
    config = module.Config(rollout_steps=1, normalize_advantages=True, **own)
    learner = kind(config, SPEC).make_learner(0, "cpu")
    before = learner.network.policy.weight.detach().clone()
    for seed in range(3):
        learner.learn(rollout(1, 1, seed), 0.0, no_averaging)
    assert (learner.network.policy.weight != before).all()
