"""Distributions, noisy layers and Munchausen targets of DQN against an independent numpy version."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from batches import DISCRETE, discrete_batch

from parl.algos import rainbow
from parl.algos.common.q_network import QNetwork
from parl.algos.dqn import DQN, Config, DQNLearner
from parl.errors import ConfigError
from parl.types import EnvSpec

SMALL = {"hidden": (6,), "layer_norm": False}
ROWS = np.arange(32)


def learner_with_distinct_target(**options):
    learner = DQNLearner(Config(**SMALL, **options), DISCRETE, seed=3, device="cpu")
    torch.manual_seed(5)
    learner._target_weights.add_(torch.randn_like(learner._target_weights), alpha=0.1)
    return learner


def forward(module, config, x, fractions=None):
    """The network in numpy, with parameters looked up by name. Returns (B, A, M)."""
    p = {name: value.detach().numpy().astype(np.float64) for name, value in module.named_parameters()}
    p |= {name: value.numpy().astype(np.float64) for name, value in module.named_buffers()}

    def linear(name, x):
        y = x @ p[name + ".weight"].T + p[name + ".bias"]
        if config.noisy and name.startswith("head"):
            sigma = p[name + ".weight_sigma"] * np.outer(p[name + ".noise_out"], p[name + ".noise_in"])
            y = y + x @ sigma.T + p[name + ".bias_sigma"] * p[name + ".noise_out"]
        return y

    def stream(name, x):
        if not config.dueling_hidden:
            return linear(name, x)
        return linear(name + ".2", np.maximum(linear(name + ".0", x), 0))

    def head(x):
        if not config.dueling:
            return linear("head.values", x).reshape(len(x), 4, -1)
        value, advantage = stream("head.value", x), stream("head.advantage", x).reshape(len(x), 4, -1)
        return value[:, None] + advantage - advantage.mean(1, keepdims=True)

    x = np.maximum(linear("torso.layers.0", np.asarray(x, np.float64)), 0)
    if config.distribution != "iqn":
        return head(x)
    if fractions is None:
        fractions = np.tile((np.arange(config.policy_quantiles) + 0.5) / config.policy_quantiles, (len(x), 1))
    out = np.zeros((len(x), 4, fractions.shape[1]))
    for j in range(fractions.shape[1]):
        cosines = np.cos(np.pi * np.arange(config.cosines) * fractions[:, j : j + 1])
        out[:, :, j] = head(x * np.maximum(linear("embedding.dense", cosines), 0))[:, :, 0]
    return out


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("dueling_hidden", [None, 0, 7])
@pytest.mark.parametrize("noisy", [False, True])
def test_distributions_of_c51_are_narrow_at_the_start(noisy, dueling_hidden):
    options = {} if dueling_hidden is None else {"dueling": True, "dueling_hidden": dueling_hidden}
    config = Config(distribution="c51", noisy=noisy, **options)
    network = QNetwork(config, DISCRETE)
    _, batch = discrete_batch(0)
    with torch.no_grad():
        found = network(batch.obs).softmax(dim=2)
        mean = network.mean(network(batch.obs))
    deviation = (found * (network.support - mean.unsqueeze(2)) ** 2).sum(dim=2).sqrt()
    assert mean.abs().max() < 0.4 and deviation.max() < 1.0  # equal probabilities: 5.9


@pytest.mark.parametrize("dueling_hidden", [None, 0, 7])
@pytest.mark.parametrize("noisy", [False, True])
@pytest.mark.parametrize(("double", "spacing"), [(False, "equal"), (True, "equal"), (True, "sqrt")])
def test_c51_against_numpy(double, spacing, noisy, dueling_hidden):
    options = {} if dueling_hidden is None else {"dueling": True, "dueling_hidden": dueling_hidden}
    learner = learner_with_distinct_target(
        distribution="c51",
        atoms=9,
        value_min=-1.0,
        value_max=2.0,
        atom_spacing=spacing,
        double=double,
        noisy=noisy,
        **options,
    )
    config = learner._config
    arrays, batch = discrete_batch(0)
    priorities = learner.compute(batch)  # draws the noise, which the networks keep afterwards
    z = np.linspace(-1, 2, 9) if spacing == "equal" else np.linspace(-1, np.sqrt(2), 9)
    if spacing == "sqrt":
        z = np.sign(z) * z**2
    next_p = softmax(forward(learner.target, config, arrays["next_obs"]), 2)
    chooser = softmax(forward(learner.online, config, arrays["next_obs"]), 2) if double else next_p
    next_p = next_p[ROWS, (chooser @ z).argmax(1)]
    target = np.zeros((32, 9))
    for b in range(32):
        for j in range(9):
            shifted = 0.1 * arrays["reward"][b] + arrays["discount"][b] * z[j]
            shifted = min(max(shifted, -1.0), 2.0)
            for i in range(9):  # a triangle around each atom, from its lower to its upper neighbor
                weight = np.interp(shifted, z, np.arange(9) == i)
                target[b, i] += next_p[b, j] * weight
    np.testing.assert_allclose(target.sum(1), 1.0)
    p = softmax(forward(learner.online, config, arrays["obs"])[ROWS, arrays["action"]], 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        divergence = np.where(target > 0, target * np.log(target / p), 0.0).sum(1)
    np.testing.assert_allclose(priorities, divergence + config.priority_epsilon, rtol=2e-4, atol=2e-5)
    assert learner.metrics()["loss"] == pytest.approx((arrays["weights"] * divergence).mean(), rel=2e-4)
    assert learner.metrics()["q_mean"] == pytest.approx((p @ z).mean(), rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("munchausen", [0.0, 0.9])
@pytest.mark.parametrize("kind", ["qr", "iqn"])
def test_quantiles_against_numpy(kind, munchausen):
    learner = learner_with_distinct_target(
        distribution=kind,
        quantiles=5,
        policy_quantiles=6,
        cosines=8,
        huber_delta=0.7,
        munchausen=munchausen,
        munchausen_temperature=0.1,
        dueling=True,
    )
    config = learner._config
    arrays, batch = discrete_batch(1)
    state = learner.generator.get_state()
    now, later = learner.fractions(batch)
    learner.generator.set_state(state)
    if kind == "qr":
        tau, at_next = np.tile((np.arange(5) + 0.5) / 5, (32, 1)), None
    else:
        tau, at_next = now.numpy().astype(np.float64), later.numpy().astype(np.float64)
        assert tau.shape == at_next.shape == (32, 5)
        assert (tau != at_next).all()
    values = forward(learner.target, config, arrays["next_obs"], at_next)
    reward = 0.1 * arrays["reward"]
    if munchausen:
        soft = softmax(values.mean(2) / 0.1, 1)
        following = (soft[:, :, None] * (values - 0.1 * np.log(soft)[:, :, None])).sum(1)
        here = softmax(forward(learner.target, config, arrays["obs"]).mean(2) / 0.1, 1)
        reward = reward + 0.9 * np.maximum(0.1 * np.log(here[ROWS, arrays["action"]]), -1.0)
    else:
        best = forward(learner.online, config, arrays["next_obs"]).mean(2).argmax(1)
        following = values[ROWS, best]
    y = reward[:, None] + arrays["discount"][:, None] * following
    theta = forward(learner.online, config, arrays["obs"], tau if kind == "iqn" else None)
    theta = theta[ROWS, arrays["action"]]
    loss = np.zeros(32)
    for i in range(5):
        for j in range(y.shape[1]):
            u = y[:, j] - theta[:, i]
            huber = np.where(np.abs(u) <= 0.7, 0.5 * u**2, 0.7 * (np.abs(u) - 0.35))
            loss += np.abs(tau[:, i] - (u < 0)) * huber / 0.7 / y.shape[1]
    priorities = learner.compute(batch)
    error = np.abs(y.mean(1) - theta.mean(1))
    np.testing.assert_allclose(priorities, error + config.priority_epsilon, rtol=2e-4, atol=2e-5)
    assert learner.metrics()["loss"] == pytest.approx((arrays["weights"] * loss).mean(), rel=2e-4)


def test_munchausen_target_without_distribution():
    learner = learner_with_distinct_target(munchausen=0.9, munchausen_clip=-0.02, reward_scale=1.0)
    arrays, batch = discrete_batch(2)
    q = forward(learner.target, learner._config, arrays["obs"])[:, :, 0]
    log_policy = 0.03 * np.log(softmax(q / 0.03, 1))
    bonus = np.maximum(log_policy[ROWS, arrays["action"]], -0.02)
    assert (bonus == -0.02).any() and (bonus > -0.02).any()  # some rows are clipped, some are not
    later = forward(learner.target, learner._config, arrays["next_obs"])[:, :, 0]
    policy = softmax(later / 0.03, 1)
    soft = (policy * (later - 0.03 * np.log(policy))).sum(1)
    y = arrays["reward"] + 0.9 * bonus + arrays["discount"] * soft
    np.testing.assert_allclose(learner.targets(batch)[:, 0].numpy(), y, rtol=1e-4, atol=1e-5)


OPTIONS = [
    {"distribution": "c51", "value_min": -2.0, "value_max": 2.0},
    {"distribution": "qr", "quantiles": 8},
    {"distribution": "iqn", "quantiles": 8},
    {"noisy": True},
    {"distribution": "iqn", "quantiles": 8, "munchausen": 0.9, "noisy": True, "dueling": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(map(str, options.values())))
def test_gradients_match_the_loss_and_restored_learners_continue_identically(options):
    config = Config(**SMALL, **options)
    one, other = (DQNLearner(config, DISCRETE, seed, "cpu") for seed in (0, 99))
    for seed in range(3):
        one.compute(discrete_batch(seed)[1])
        one.step()
    other.load_state_dict(one.state_dict())
    for seed in range(3, 6):
        for learner in (one, other):
            learner.compute(discrete_batch(seed)[1])
            learner.step()
    assert torch.equal(one.weights, other.weights)
    assert torch.isfinite(one.weights).all()
    # The slope of the loss along the gradient, with noise, fractions and targets fixed.
    _, batch = discrete_batch(7)
    state = one.generator.get_state()

    def loss():
        one.generator.set_state(state)
        one.compute(batch)
        return one.metrics()["loss"]

    loss()
    direction = one.gradients / torch.linalg.vector_norm(one.gradients)
    slope = torch.dot(one.gradients, direction).item()
    fixed = {}
    targets = one.targets
    one.targets = lambda batch, fractions=None: fixed.setdefault(0, targets(batch, fractions))
    losses = []
    for sign in (1, -1):
        one.weights.add_(direction, alpha=sign * 1e-3)
        losses.append(loss())
        one.weights.add_(direction, alpha=-sign * 1e-3)
    assert (losses[0] - losses[1]) / 2e-3 == pytest.approx(slope, rel=0.02)


def test_noisy_policies_explore_with_noise_and_evaluate_without():
    algorithm = DQN(Config(hidden=(16,), noisy=True, noisy_sigma=3.0, epsilon_last=0.0), DISCRETE)
    policy = algorithm.make_policy(0, 1, 8, seed=0)
    policy.weights.copy_(algorithm.make_learner(0, "cpu").weights)
    observations = np.random.default_rng(0).normal(size=(200, 3)).astype(np.float32)
    greedy = policy.act_greedily(observations)
    state = policy.state_dict()
    exploring = policy.act(observations, 10**9)
    assert not np.array_equal(exploring, greedy)
    np.testing.assert_array_equal(policy.act_greedily(observations), greedy)
    policy.load_state_dict(state)
    np.testing.assert_array_equal(policy.act(observations, 10**9), exploring)


@pytest.mark.parametrize("distribution", ["c51", "qr", "iqn"])
def test_policies_act_by_the_mean_of_the_distribution(distribution):
    algorithm = DQN(Config(**SMALL, distribution=distribution, quantiles=7, policy_quantiles=5), DISCRETE)
    learner, policy = algorithm.make_learner(4, "cpu"), algorithm.make_policy(0, 1, 8, seed=0)
    policy.weights.copy_(learner.weights)
    observations = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    out = forward(learner.online, learner._config, observations)
    q = softmax(out, 2) @ np.linspace(-10, 10, 51) if distribution == "c51" else out.mean(2)
    np.testing.assert_array_equal(policy.act_greedily(observations), q.argmax(1))


def test_rainbow_is_a_preset():
    config = rainbow.Config()
    assert (config.distribution, config.noisy, config.dueling, config.double) == ("c51", True, True, True)
    images = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
    policy = rainbow.Rainbow(rainbow.default_config(images), images).make_policy(0, 1, 2, 0)
    # The convolutions of the Nature network, then two streams of 512 on 3,136 features; noisy layers have
    # two parameters for each weight and bias.
    streams = 2 * (3136 * 512 + 512) + 512 * 51 + 51 + 512 * 6 * 51 + 6 * 51
    assert len(policy.weights) == 8224 + 32832 + 36928 + 2 * streams
    assert policy.act(np.zeros((2, 4, 84, 84), np.uint8), 0).shape == (2,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"distribution": "c52"}, "c52"),
        ({"images": "vgg"}, "vgg"),
        ({"distribution": "c51", "munchausen": 0.9}, "munchausen"),
        ({"distribution": "qr", "huber_delta": math.inf}, "huber_delta"),
        ({"value_min": 3.0, "value_max": 3.0}, "value_min"),
        ({"dueling_hidden": 5}, "dueling"),
        ({"munchausen_temperature": 0.0}, "munchausen_temperature"),
        ({"quantiles": 0}, "quantiles"),
    ],
)
def test_incompatible_settings_raise(options, message):
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(Config(), **options)


@pytest.mark.parametrize("kind", ["none", "c51", "qr"])
def test_the_conservative_term_against_numpy(kind):
    """CQL(H), Kumar et al. (2020), equation 4, over the mean values of a distribution."""
    options = {"distribution": kind, "atoms": 9, "quantiles": 5, "double": True}
    plain = learner_with_distinct_target(**options)
    conservative = learner_with_distinct_target(**options, cql_alpha=0.7)
    config = conservative._config
    arrays, batch = discrete_batch(0)
    priorities = plain.compute(batch)
    np.testing.assert_array_equal(conservative.compute(batch), priorities)
    outputs = forward(conservative.online, config, arrays["obs"])
    q = softmax(outputs, 2) @ np.linspace(-10, 10, 9) if kind == "c51" else outputs.mean(2)
    term = np.log(np.exp(q).sum(1)) - q[ROWS, arrays["action"]]
    added = conservative.metrics()["loss"] - plain.metrics()["loss"]
    assert added == pytest.approx(0.7 * (arrays["weights"] * term).mean(), rel=1e-3)
    # Its gradient raises the values of the actions in the batch over those of the others.
    before = (np.log(softmax(q, 1))[ROWS, arrays["action"]] * arrays["weights"]).sum()
    conservative.weights.sub_(conservative.gradients - plain.gradients, alpha=1e-3)
    outputs = forward(conservative.online, config, arrays["obs"])
    q = softmax(outputs, 2) @ np.linspace(-10, 10, 9) if kind == "c51" else outputs.mean(2)
    assert (np.log(softmax(q, 1))[ROWS, arrays["action"]] * arrays["weights"]).sum() > before


def test_the_conservative_term_is_replayed_without_torch():
    """A small network's update with the term runs as a recording (see `parl.nets.fused`)."""
    learner = DQNLearner(Config(**SMALL, cql_alpha=0.5), DISCRETE, seed=3, device="cpu")
    for number in range(4):
        learner.compute(discrete_batch(number)[1])
    assert learner._update.replays


def test_a_negative_weight_of_the_conservative_term_is_an_error():
    with pytest.raises(ConfigError, match="cql_alpha"):
        Config(cql_alpha=-0.1)
