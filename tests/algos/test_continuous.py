"""SAC, TD3 and DDPG: targets, losses, gradients and updates against an independent numpy version."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from batches import DISCRETE, discrete_batch, random_batch
from gymnasium.spaces import Box

from parl.algos import ddpg, sac, td3
from parl.errors import ConfigError
from parl.types import EnvSpec

# Actions in -1..3 and 0..1: center 1 and 0.5, half-width 2 and 0.5.
SPEC = EnvSpec((3,), "float32", (2,), "float32", None, "next_step", (-1.0, 0.0), (3.0, 1.0))
CENTER, HALF = np.array([1.0, 0.5]), np.array([2.0, 0.5])
SMALL = {"hidden": (6, 5)}
SIZE = 24


def make_batch(seed, discrete=False):
    if discrete:
        return discrete_batch(seed, SIZE)
    return random_batch(seed, SIZE, lambda rng: rng.uniform([-1, 0], [3, 1], (SIZE, 2)).astype("f"))


def perturb_targets(learner):
    """Makes the target networks differ from the online ones."""
    torch.manual_seed(5)
    learner._target_weights.add_(torch.randn_like(learner._target_weights), alpha=0.1)
    return learner


def mlp(ensemble, x, member):
    """One member in numpy: dense layers with ReLU between them."""
    x = np.asarray(x, np.float64)
    layers = list(zip(ensemble.weights, ensemble.biases, strict=True))
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight[member].detach().numpy().astype(np.float64) + bias[member].detach().numpy()
        x = np.maximum(x, 0) if number + 1 < len(layers) else x
    return x


def critics(networks, obs, action, count):
    seen = np.concatenate([obs, action], 1)
    return np.stack([mlp(networks.critics.ensemble, seen, e)[:, 0] for e in range(count)])


def sac_actions(networks, obs, noise):
    """SAC's actions and log-densities, by the change of variables with the slope of tanh."""
    out = mlp(networks.actor.layers, obs, 0)
    mean, std = out[:, :2], np.exp(np.clip(out[:, 2:], -20, 2))
    u = mean + std * noise
    normal = np.exp(-0.5 * noise**2) / (std * math.sqrt(2 * math.pi))
    return np.tanh(u), np.log(normal / (1 - np.tanh(u) ** 2)).sum(1)


def next_noise(learner):
    """The random numbers that the next ``compute`` will draw."""
    state = learner.generator.get_state()
    noise = learner.draws(SIZE).numpy().astype(np.float64)
    learner.generator.set_state(state)
    return noise


def check(learner, batch, q, y, arrays, actor_loss):
    error = np.abs(q - y).mean(0)
    priorities = learner.compute(batch)
    np.testing.assert_allclose(priorities, error + learner._settings.priority_epsilon, rtol=1e-3, atol=1e-5)
    figures = learner.metrics()
    critic_loss = 0.5 * ((q - y) ** 2 * arrays["weights"]).mean(1).sum()
    assert figures["critic_loss"] == pytest.approx(critic_loss, rel=1e-3)
    assert figures["actor_loss"] == pytest.approx(actor_loss, rel=1e-3, abs=1e-5)
    assert figures["q_mean"] == pytest.approx(q.mean(), rel=1e-3, abs=1e-5)


EXECUTIONS = pytest.mark.parametrize("execution", ["replayed", "torch"])


def set_execution(execution, learner):
    """Makes the learner replay its updates, or run them by torch."""
    assert all(part.replays for part in learner._replayed_updates)
    for part in learner._replayed_updates:
        part._replays = execution == "replayed"
    return learner


@EXECUTIONS
@pytest.mark.parametrize("count", [1, 2, 3])
def test_sac_against_numpy(count, execution):
    config = sac.Config(**SMALL, critics=count, temperature=0.3, reward_scale=0.5)
    learner = set_execution(execution, perturb_targets(sac.SACLearner(config, SPEC, 0, "cpu")))
    arrays, batch = make_batch(0)
    noise = next_noise(learner)
    action, log_density = sac_actions(learner.networks, arrays["next_obs"], noise[0])
    following = critics(learner.targets, arrays["next_obs"], action, count).min(0) - 0.3 * log_density
    y = 0.5 * arrays["reward"] + arrays["discount"] * following
    unit = (arrays["action"] - CENTER) / HALF
    q = critics(learner.networks, arrays["obs"], unit, count)
    action, log_density = sac_actions(learner.networks, arrays["obs"], noise[1])
    least = critics(learner.networks, arrays["obs"], action, count).min(0)
    check(learner, batch, q, y, arrays, (0.3 * log_density - least).mean())
    assert learner.metrics()["entropy"] == pytest.approx(-log_density.mean(), rel=1e-3)
    # The temperature's gradient: -(mean log pi + H), H = -2.
    place = len(learner.weights)
    assert learner.gradients[place].item() == pytest.approx(-(log_density.mean() - 2.0), rel=1e-3)


def test_discrete_sac_against_numpy():
    config = sac.Config(**SMALL, temperature=0.3, target_entropy=0.7)
    learner = perturb_targets(sac.SACLearner(config, DISCRETE, 0, "cpu"))
    arrays, batch = make_batch(1, discrete=True)

    def log_policy(obs):
        logits = mlp(learner.networks.actor.layers, obs, 0)
        return logits - np.log(np.exp(logits).sum(1, keepdims=True))

    def values(networks, obs):
        return np.stack([mlp(networks.critics.ensemble, obs, e) for e in range(2)])

    log_p = log_policy(arrays["next_obs"])
    q = values(learner.targets, arrays["next_obs"]).min(0)
    y = arrays["reward"] + arrays["discount"] * (np.exp(log_p) * (q - 0.3 * log_p)).sum(1)
    every = values(learner.networks, arrays["obs"])
    log_p = log_policy(arrays["obs"])
    actor_loss = (np.exp(log_p) * (0.3 * log_p - every.min(0))).sum(1).mean()
    check(learner, batch, every[:, np.arange(SIZE), arrays["action"]], y, arrays, actor_loss)
    negative_entropy = (np.exp(log_p) * log_p).sum(1).mean()
    assert learner.gradients[len(learner.weights)].item() == pytest.approx(
        -(negative_entropy + 0.7), rel=1e-3
    )


@EXECUTIONS
@pytest.mark.parametrize("algorithm", [td3, ddpg])
def test_td3_and_ddpg_against_numpy(algorithm, execution):
    options = {"policy_delay": 1, "target_noise": 0.6, "target_noise_clip": 0.5} if algorithm is td3 else {}
    penalty = 0.0 if algorithm is td3 else 0.7
    config = algorithm.Config(**SMALL, **options, preactivation_penalty=penalty)
    learner = set_execution(execution, perturb_targets(td3.TD3Learner(config, SPEC, 0, "cpu")))
    count = {td3: 2, ddpg: 1}[algorithm]
    arrays, batch = make_batch(2)
    noise = next_noise(learner)
    action = np.tanh(mlp(learner.targets.actor.layers, arrays["next_obs"], 0))
    if algorithm is td3:
        assert (np.abs(0.6 * noise[0]) > 0.5).any()  # some noise is clipped
        action = np.clip(action + np.clip(0.6 * noise[0], -0.5, 0.5), -1, 1)
    y = arrays["reward"] + arrays["discount"] * critics(
        learner.targets, arrays["next_obs"], action, count
    ).min(0)
    q = critics(learner.networks, arrays["obs"], (arrays["action"] - CENTER) / HALF, count)
    outputs = mlp(learner.networks.actor.layers, arrays["obs"], 0)
    actor_loss = -critics(learner.networks, arrays["obs"], np.tanh(outputs), 1).mean()
    check(learner, batch, q, y, arrays, actor_loss + penalty * (outputs**2).mean())


def learners():
    yield "sac", lambda seed=0: sac.SACLearner(sac.Config(**SMALL), SPEC, seed, "cpu"), False
    redq = sac.Config(**SMALL, critics=4, target_critics=2, layer_norm=True)
    yield "redq", lambda seed=0: sac.SACLearner(redq, SPEC, seed, "cpu"), False
    yield "discrete", lambda seed=0: sac.SACLearner(sac.Config(**SMALL), DISCRETE, seed, "cpu"), True
    yield "td3", lambda seed=0: td3.TD3Learner(td3.Config(**SMALL), SPEC, seed, "cpu"), False
    rates = td3.Config(**SMALL, critic_learning_rate=3e-3, preactivation_penalty=0.3)
    yield "td3-rates", lambda seed=0: td3.TD3Learner(rates, SPEC, seed, "cpu"), False
    yield "ddpg", lambda seed=0: td3.TD3Learner(ddpg.Config(**SMALL), SPEC, seed, "cpu"), False


ALL = pytest.mark.parametrize(
    ("name", "make", "discrete"), list(learners()), ids=lambda value: str(value)[:9]
)


@ALL
def test_gradient_against_finite_differences(name, make, discrete):
    """Compares with slopes of the critics' loss, at a fixed target, and of the actor's loss."""
    learner = perturb_targets(make())
    learner._updates = 1  # TD3 updates its actor in this update
    _, batch = make_batch(3, discrete)
    noise = learner.draws(SIZE)
    learner.draws = lambda size: noise
    fixed = learner.targets_of(batch, noise[0])
    learner.targets_of = lambda batch, noise: fixed
    learner.compute(batch)
    gradients = learner.gradients.clone()
    critics_at = learner._critics.start
    temperature_at = len(learner.weights)

    def losses():
        learner.compute(batch)
        return learner.metrics()["actor_loss"], learner.metrics()["critic_loss"]

    for index in np.random.default_rng(0).choice(len(gradients), 60, replace=False):
        if temperature_at <= index < critics_at:
            continue
        which = int(index >= critics_at)
        ends = []
        for sign in (1, -1):
            learner._all_weights[index] += sign * 1e-3
            ends.append(losses()[which])
            learner._all_weights[index] -= sign * 1e-3
        slope = (ends[0] - ends[1]) / 2e-3
        assert gradients[index].item() == pytest.approx(slope, rel=0.05, abs=2e-3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: sac.SACLearner(sac.Config(**SMALL, critics=4, target_critics=2), SPEC, 0, "cpu"),
        lambda: sac.SACLearner(sac.Config(hidden=(7,), learn_temperature=False), SPEC, 0, "cpu"),
        lambda: td3.TD3Learner(td3.Config(**SMALL, critics=3), SPEC, 0, "cpu"),
        lambda: td3.TD3Learner(ddpg.Config(hidden=(7, 6, 5)), SPEC, 0, "cpu"),
    ],
)
def test_replayed_gradients_equal_torchs(make):
    replayed, threaded, by_torch = make(), make(), set_execution("torch", make())
    threaded.use_threads(2)
    for learner in (replayed, threaded, by_torch):
        perturb_targets(learner)
        learner._all_weights[: len(learner.weights)] *= (
            4  # so that some standard deviations or actions are at their bounds
        )
        learner.gradients.fill_(math.nan)  # all of them must be overwritten
    for seed in range(5):
        batch = make_batch(seed)[1]
        priorities = [learner.compute(batch) for learner in (replayed, threaded, by_torch)]
        np.testing.assert_array_equal(priorities[0], priorities[1])
        np.testing.assert_allclose(priorities[0], priorities[2], rtol=1e-4)
        assert torch.equal(replayed.gradients, threaded.gradients)
        torch.testing.assert_close(replayed.gradients, by_torch.gradients, rtol=1e-3, atol=1e-5)
        assert replayed.metrics().keys() == by_torch.metrics().keys()
        for name, value in by_torch.metrics().items():
            assert replayed.metrics()[name] == pytest.approx(value, rel=1e-3, abs=1e-5)
        for learner in (replayed, threaded, by_torch):
            learner.step()
            learner._all_weights.copy_(replayed._all_weights)
            learner._target_weights.copy_(replayed._target_weights)
    assert all(part.replays for part in replayed._replayed_updates)


@ALL
def test_restored_learners_continue_bit_for_bit_with_one_or_two_threads(name, make, discrete):
    one, other = make(), make(99)
    for seed in range(3):
        one.compute(make_batch(seed, discrete)[1])
        one.step()
    other.load_state_dict(one.state_dict())
    other.use_threads(2)
    for seed in range(3, 8):
        batch = make_batch(seed, discrete)[1]
        np.testing.assert_array_equal(one.compute(batch), other.compute(batch))
        one.step()
        other.step()
    assert torch.equal(one._all_weights, other._all_weights)
    assert torch.equal(one._target_weights, other._target_weights)
    assert torch.isfinite(one._all_weights).all()


def test_td3_updates_its_actor_and_targets_every_second_time_and_ddpg_always():
    for module, moved in ((td3, [False, True, False, True]), (ddpg, [True] * 4)):
        learner = td3.TD3Learner(module.Config(**SMALL), SPEC, 0, "cpu")
        for expected in moved:
            weights, targets = learner.weights.clone(), learner._target_weights.clone()
            everything = learner._all_weights.clone()
            learner.compute(make_batch(0)[1])
            learner.step()
            assert torch.equal(weights, learner.weights) != expected
            if expected:
                torch.testing.assert_close(learner._target_weights, targets.lerp(learner._all_weights, 0.005))
            else:
                assert torch.equal(targets, learner._target_weights)
            assert not torch.equal(everything[learner._critics], learner._all_weights[learner._critics])


def test_the_temperature_rises_while_the_entropy_is_too_low():
    low, high = (
        sac.SACLearner(sac.Config(**SMALL, target_entropy=value), SPEC, 0, "cpu") for value in (-50.0, 50.0)
    )
    for learner in (low, high):
        learner.compute(make_batch(0)[1])
        learner.step()
    assert low.log_temperature.item() < 0 < high.log_temperature.item()
    fixed = sac.SACLearner(sac.Config(**SMALL, learn_temperature=False, temperature=0.2), SPEC, 0, "cpu")
    fixed.compute(make_batch(0)[1])
    fixed.step()
    assert fixed.log_temperature.exp().item() == pytest.approx(0.2)


@pytest.mark.parametrize(("module", "kind"), [(sac, "SAC"), (td3, "TD3"), (ddpg, "DDPG")])
def test_actions_stay_within_bounds_and_use_the_learners_weights(module, kind):
    config = module.Config(hidden=(6, 5), random_steps=100)
    algorithm = getattr(module, kind)(config, SPEC)
    learner, policy = algorithm.make_learner(4, "cpu"), algorithm.make_policy(0, 1, 8, seed=0)
    policy.weights.copy_(learner.weights)
    obs = np.random.default_rng(0).normal(size=(4000, 3)).astype(np.float32)
    greedy = policy.act_greedily(obs)
    out = mlp(learner.networks.actor.layers, obs, 0)[:, :2]
    np.testing.assert_allclose(greedy, CENTER + HALF * np.tanh(out), rtol=1e-4, atol=1e-5)
    early = policy.act(obs, 0)
    assert early.dtype == greedy.dtype == np.float32
    # Uniform in the box: means 1 and 0.5, standard deviations 4 / sqrt(12) and 1 / sqrt(12).
    np.testing.assert_allclose(early.mean(0), [1.0, 0.5], atol=0.1)
    np.testing.assert_allclose(early.std(0), [1.1547, 0.2887], rtol=0.05)
    state = policy.state_dict()
    late = policy.act(obs, 100)
    for actions in (early, late):
        assert (actions >= [-1, 0]).all() and (actions <= [3, 1]).all()
    if module is not sac:
        inside = np.abs(np.tanh(out)) < 0.5
        noise = ((late - greedy) / HALF)[inside]
        assert noise.std() == pytest.approx(0.1, rel=0.1)
    policy.load_state_dict(state)
    np.testing.assert_array_equal(policy.act(obs, 100), late)


def test_discrete_sac_acts_by_its_probabilities():
    algorithm = sac.SAC(sac.Config(hidden=(6,), random_steps=0), DISCRETE)
    learner, policy = algorithm.make_learner(4, "cpu"), algorithm.make_policy(0, 1, 8, seed=0)
    policy.weights.copy_(learner.weights)
    one = np.random.default_rng(0).normal(size=3).astype(np.float32)
    logits = mlp(learner.networks.actor.layers, one[None], 0)[0]
    p = np.exp(logits) / np.exp(logits).sum()
    actions = policy.act(np.tile(one, (20_000, 1)), 0)
    # The standard deviation of each share is at most 0.0036.
    np.testing.assert_allclose(np.bincount(actions, minlength=4) / 20_000, p, atol=0.018)
    assert (policy.act_greedily(one[None]) == p.argmax()).all()


@pytest.mark.parametrize("module", [sac, td3])
def test_actions_at_the_bounds_are_in_the_action_space(module):
    """The middle plus half the distance of -1..0.7 is the next number above 0.7 in float32."""
    space = Box(np.array([-1, 0.1], np.float32), np.array([0.7, 1], np.float32))
    bounds = {"action_low": tuple(space.low.tolist()), "action_high": tuple(space.high.tolist())}
    spec = dataclasses.replace(SPEC, **bounds)
    kind = sac.SAC if module is sac else td3.TD3
    policy = kind(module.Config(**SMALL | {"random_steps": 0}), spec).make_policy(0, 1, 1, seed=0)
    policy.network.layers.weights[-1].data.zero_()
    one = torch.zeros(1, 3)
    for bias in (20.0, -20.0):
        policy.network.layers.biases[-1].data[..., :2].fill_(bias)
        exported = policy.greedy(policy.network, one)[0].detach().numpy()
        for action in (policy.act(one.numpy(), 0), policy.act_greedily(one.numpy()), exported):
            assert space.contains(action[0])


def test_exploration_spreads_over_actors():
    algorithm = td3.TD3(td3.Config(**SMALL, exploration_noise=0.2, exploration_spread=1.0), SPEC)
    assert [algorithm.make_policy(i, 3, 1, 0)._noise for i in range(3)] == pytest.approx([0.1, 0.2, 0.4])


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"num_actions": 4}, r"this environment's is Discrete\(4\)"),
        ({"action_low": (-math.inf, 0.0)}, "bounds"),
        ({"observation_shape": (4, 84, 20), "observation_dtype": "uint8"}, "below 36 x 36"),
        ({"observation_shape": (2,), "observation_dtype": "complex64"}, "complex64"),
    ],
)
def test_unsupported_spaces_raise(spec, message):
    for kind, config in ((td3.TD3, td3.Config()), (ddpg.DDPG, ddpg.Config()), (sac.SAC, sac.Config())):
        if kind is sac.SAC and "num_actions" in spec:
            continue  # it takes discrete actions
        with pytest.raises(ConfigError, match=message):
            kind(config, dataclasses.replace(SPEC, **spec))


@pytest.mark.parametrize(
    ("module", "field", "value"),
    [
        (sac, "gamma", 1.5),
        (sac, "temperature", 0.0),
        (sac, "target_critics", 3),
        (sac, "hidden", ()),
        (td3, "policy_delay", 0),
        (ddpg, "learning_rate", math.nan),
        (sac, "adam_epsilon", 0.0),
    ],
)
def test_settings_out_of_bounds_raise(module, field, value):
    with pytest.raises(ConfigError, match=field):
        dataclasses.replace(module.Config(), **{field: value})


@pytest.mark.parametrize(("kind", "module"), [(sac.SAC, sac), (td3.TD3, td3), (ddpg.DDPG, ddpg)])
def test_bounds_without_a_finite_distance_are_refused(kind, module):
    """float32's least and largest numbers, as some environments have for "unbounded": they are finite."""
    largest = float(np.finfo(np.float32).max)
    spec = dataclasses.replace(SPEC, action_low=(-largest, -1.0), action_high=(largest, 1.0))
    with pytest.raises(ConfigError, match="needs actions with bounds"):
        kind(module.Config(), spec)
    spec = dataclasses.replace(SPEC, action_low=(1.0, -1.0), action_high=(1.0, 1.0))
    with pytest.raises(ConfigError, match="lower bounds are below the upper ones"):
        kind(module.Config(), spec)


def test_replay_settings_follow_the_options():
    algorithm = td3.TD3(td3.Config(n_step=3, gamma=0.9), SPEC)
    assert algorithm.replay_options() == {"alpha": 0.0, "n_step": 3, "gamma": 0.9}
    algorithm = sac.SAC(sac.Config(prioritized=True, alpha=0.5, beta_steps=10), SPEC)
    assert algorithm.replay_options()["alpha"] == 0.5
    assert [algorithm.replay_beta(step) for step in (0, 5, 10)] == pytest.approx([0.4, 0.7, 1.0])


def test_the_actor_maximizes_the_mean_of_critics_that_are_drawn_for_targets():
    """REDQ, algorithm 1; without drawn critics the smallest value."""
    batch = make_batch(0)[1]
    losses = {}
    for drawn in (0, 2, 4):
        config = sac.Config(**SMALL, critics=4, target_critics=drawn, temperature=1e-9)
        learner = sac.SACLearner(config, SPEC, 0, "cpu")
        noise = learner.draws(len(batch.reward))
        losses[drawn] = learner.actor_loss(batch, noise)[1]["actor_loss"].item()
        with torch.no_grad():
            action, _ = learner._draw(batch.obs, noise[1])
            q = learner.networks.critics(batch.obs, action).squeeze(2)
        expected = q.mean(dim=0) if drawn else q.amin(dim=0)
        assert losses[drawn] == pytest.approx(-expected.mean().item(), rel=1e-4)
    assert losses[2] < losses[0]


def test_a_temperature_that_is_not_learned_stays_that_of_the_settings():
    first = sac.SACLearner(sac.Config(**SMALL), SPEC, 0, "cpu")
    for learned, expected in ((False, 0.05), (True, 1.0)):
        config = sac.Config(**SMALL, temperature=0.05, learn_temperature=learned)
        second = sac.SACLearner(config, SPEC, 1, "cpu")
        second.start_from(first)
        assert second.log_temperature.exp().item() == pytest.approx(expected)
        assert torch.equal(second.weights, first.weights)
