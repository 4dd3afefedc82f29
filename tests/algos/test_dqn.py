"""DQN's targets, loss, priorities and updates against an independent numpy version."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from batches import DISCRETE, discrete_batch

from parl.algos.dqn import DQN, Config, DQNLearner, default_config
from parl.errors import ConfigError
from parl.nets.fused import Update
from parl.types import EnvSpec


def network(weights, config, x):
    """The Q-network in numpy: dense, layer norm, ReLU, and a plain or dueling head, from flat weights."""
    position = 0

    def take(*shape):
        nonlocal position
        size = math.prod(shape)
        position += size
        return weights[position - size : position].reshape(shape)

    width = x.shape[1]
    for hidden in config.hidden:
        matrix, bias = take(hidden, width), take(hidden)
        x = x @ matrix.T + bias
        if config.layer_norm:
            scale, shift = take(hidden), take(hidden)
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * scale + shift
        x = np.maximum(x, 0)
        width = hidden
    if config.dueling:
        value = x @ take(1, width).T + take(1)
        advantage = x @ take(4, width).T + take(4)
        q = value + advantage - advantage.mean(1, keepdims=True)
    else:
        q = x @ take(4, width).T + take(4)
    assert position == len(weights)
    return q


def learner_with_distinct_target(config):
    learner = DQNLearner(config, DISCRETE, seed=3, device="cpu")
    torch.manual_seed(5)
    learner._target_weights.add_(torch.randn_like(learner._target_weights), alpha=0.1)
    return learner


@pytest.mark.parametrize("double", [False, True])
@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("layer_norm", [False, True])
@pytest.mark.parametrize(("delta", "scale"), [(1.0, 1.0), (math.inf, 0.1)])
def test_loss_targets_and_priorities_against_numpy(double, dueling, layer_norm, delta, scale):
    config = Config(
        double=double,
        dueling=dueling,
        layer_norm=layer_norm,
        huber_delta=delta,
        reward_scale=scale,
        hidden=(6, 5),
    )
    learner = learner_with_distinct_target(config)
    arrays, batch = discrete_batch(0)
    online = learner.weights.numpy().astype(np.float64)
    target = learner._target_weights.numpy().astype(np.float64)
    rows = np.arange(32)
    q = network(online, config, arrays["obs"])[rows, arrays["action"]]
    next_target = network(target, config, arrays["next_obs"])
    chooser = network(online, config, arrays["next_obs"]) if double else next_target
    y = scale * arrays["reward"] + arrays["discount"] * next_target[rows, chooser.argmax(1)]
    error = np.abs(y - q)
    each = 0.5 * error**2 if delta == math.inf else np.where(error <= 1, 0.5 * error**2, error - 0.5)

    np.testing.assert_allclose(learner.targets(batch)[:, 0].numpy(), y, rtol=1e-4, atol=1e-5)
    priorities = learner.compute(batch)
    np.testing.assert_allclose(priorities, error + config.priority_epsilon, rtol=1e-4, atol=1e-5)
    assert learner.metrics()["loss"] == pytest.approx((arrays["weights"] * each).mean(), rel=1e-4)


def test_gradient_against_finite_differences():
    config = Config(hidden=(6, 5), dueling=True)
    learner = learner_with_distinct_target(config)
    arrays, batch = discrete_batch(1)
    learner.compute(batch)
    y = learner.targets(batch)[:, 0].numpy().astype(np.float64)

    def loss(weights):
        q = network(weights, config, arrays["obs"])[np.arange(32), arrays["action"]]
        error = np.abs(y - q)
        return (arrays["weights"] * np.where(error <= 1, 0.5 * error**2, error - 0.5)).mean()

    weights = learner.weights.numpy().astype(np.float64)
    for index in np.random.default_rng(0).choice(len(weights), 30, replace=False):
        step = np.zeros_like(weights)
        step[index] = 1e-5
        slope = (loss(weights + step) - loss(weights - step)) / 2e-5
        assert learner.gradients[index].item() == pytest.approx(slope, rel=2e-3, abs=2e-5)


@pytest.mark.parametrize("options", [{}, {"double": False}, {"dueling": True}, {"munchausen": 0.9}])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_replayed_gradients_equal_torchs(options, layer_norm):
    config = Config(hidden=(6, 5), layer_norm=layer_norm, **options)
    learner, by_torch = learner_with_distinct_target(config), learner_with_distinct_target(config)
    by_torch._update = Update(by_torch._write_gradients, by_torch.gradients, replay=False)
    for seed in range(5):
        batch = discrete_batch(seed, size=30 + seed)[1]
        np.testing.assert_allclose(learner.compute(batch), by_torch.compute(batch), rtol=1e-4, atol=1e-6)
        torch.testing.assert_close(learner.gradients, by_torch.gradients, rtol=1e-4, atol=1e-6)
        assert learner.metrics() == pytest.approx(by_torch.metrics(), rel=1e-4, abs=1e-6)
    assert learner._update.replays


def test_long_gradients_are_scaled_down():
    config = Config(hidden=(5,), max_gradient_norm=0.5)
    learner = DQNLearner(config, DISCRETE, 0, "cpu")
    learner.gradients.fill_(1.0)
    learner.step()
    assert torch.linalg.vector_norm(learner.gradients).item() == pytest.approx(0.5, rel=1e-4)


def test_the_target_network_is_copied_or_averaged():
    _, batch = discrete_batch(2)
    copied = DQNLearner(Config(hidden=(5,), target_period=3), DISCRETE, 0, "cpu")
    first = copied.weights.clone()
    for update in range(1, 7):
        copied.compute(batch)
        copied.step()
        fresh = update % 3 == 0
        assert torch.equal(copied._target_weights, copied.weights) == fresh
        if update < 3:
            assert torch.equal(copied._target_weights, first)
    averaged = DQNLearner(Config(hidden=(5,), target_tau=0.25), DISCRETE, 0, "cpu")
    before = averaged._target_weights.clone()
    averaged.compute(batch)
    averaged.step()
    torch.testing.assert_close(averaged._target_weights, 0.75 * before + 0.25 * averaged.weights)


def test_a_restored_learner_continues_bit_for_bit():
    config = Config(hidden=(5,), target_period=2)
    one = DQNLearner(config, DISCRETE, 0, "cpu")
    for seed in range(5):
        one.compute(discrete_batch(seed)[1])
        one.step()
    other = DQNLearner(config, DISCRETE, 99, "cpu")
    other.load_state_dict(one.state_dict())
    for seed in range(5, 10):
        for learner in (one, other):
            learner.compute(discrete_batch(seed)[1])
            learner.step()
    assert torch.equal(one.weights, other.weights)
    assert torch.equal(one._target_weights, other._target_weights)


def test_equal_seeds_give_equal_weights_and_leave_the_global_generator_unchanged():
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, three = (DQNLearner(Config(), DISCRETE, seed, "cpu").weights for seed in (1, 1, 2))
    assert torch.equal(one, two)
    assert not torch.equal(one, three)
    assert torch.equal(torch.rand(1), expected)


def test_policy_acts_greedily_with_the_weights_it_is_given():
    config = Config(hidden=(6,), epsilon_first=1.0, epsilon_last=0.0, epsilon_steps=100)
    algorithm = DQN(config, DISCRETE)
    learner = algorithm.make_learner(4, "cpu")
    policy = algorithm.make_policy(0, 1, 8, seed=0)
    policy.weights.copy_(learner.weights)
    observations = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    greedy = network(learner.weights.numpy().astype(np.float64), config, observations).argmax(1)
    np.testing.assert_array_equal(policy.act_greedily(observations), greedy)
    np.testing.assert_array_equal(policy.act(observations, 100), greedy)
    # Halfway, epsilon is 0.5; 3 of 4 random actions differ: 500 * 0.375 = 187.5, standard deviation 10.8.
    assert abs(np.count_nonzero(policy.act(observations, 50) != greedy) - 187.5) < 6 * 10.8
    state = policy.state_dict()
    again = policy.act(observations, 0)
    policy.load_state_dict(state)
    np.testing.assert_array_equal(policy.act(observations, 0), again)


def test_replay_settings_follow_the_options():
    assert DQN(Config(prioritized=False), DISCRETE).replay_options()["alpha"] == 0.0
    algorithm = DQN(Config(alpha=0.7, n_step=4, gamma=0.9, beta=0.4, beta_steps=10), DISCRETE)
    assert algorithm.replay_options() == {"alpha": 0.7, "n_step": 4, "gamma": 0.9}
    assert [algorithm.replay_beta(step) for step in (0, 5, 10, 99)] == pytest.approx([0.4, 0.7, 1.0, 1.0])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gamma", 1.5),
        ("n_step", 0),
        ("learning_rate", math.nan),
        ("huber_delta", 0.0),
        ("adam_epsilon", 0.0),
        ("hidden", ()),
        ("alpha", -1),
    ],
)
def test_settings_out_of_bounds_raise(field, value):
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(Config(), **{field: value})


def test_continuous_actions_are_refused():
    with pytest.raises(ConfigError, match="discrete"):
        DQN(Config(), dataclasses.replace(DISCRETE, num_actions=None))


def test_images_get_their_own_defaults_and_a_convolutional_network():
    spec = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
    config = default_config(spec)
    assert config.n_step == 3
    policy = DQN(config, spec).make_policy(0, 1, 2, 0)
    # Nature network with a dueling head on 512 features: 8*8*4*32+32 + 4*4*32*64+64 + 3*3*64*64+64
    # + 7*7*64*512+512 + 513 + 6*513
    assert len(policy.weights) == 8224 + 32832 + 36928 + 1606144 + 513 + 3078
    assert policy.act_greedily(np.zeros((2, 4, 84, 84), np.uint8)).shape == (2,)
