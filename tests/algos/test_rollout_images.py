"""Images in on-policy algorithms: channels first or last, both networks, memory format and precision."""

import dataclasses

import numpy as np
import pytest
import torch
from rollouts import no_averaging

from parl.algos import a2c, bc, impala, ppo, pqn
from parl.errors import ConfigError
from parl.nets.torsos import ImpalaResNet, NatureCNN, SmallCNN
from parl.types import EnvSpec, Rollout

FIRST = EnvSpec((3, 40, 36), "uint8", (), "int64", 4, "next_step")
LAST = dataclasses.replace(FIRST, observation_shape=(40, 36, 3))
KINDS = [
    pytest.param(ppo.PPO, ppo.Config, {"epochs": 1}, id="ppo"),
    pytest.param(a2c.A2C, a2c.Config, {"advantage": "vtrace"}, id="a2c"),
    pytest.param(a2c.A2C, a2c.Config, {"lstm": 4}, id="lstm"),
    pytest.param(impala.IMPALA, impala.Config, {}, id="impala"),
    pytest.param(bc.BC, bc.Config, {}, id="bc"),
    pytest.param(pqn.PQN, pqn.Config, {"epochs": 1}, id="pqn"),
]

pytestmark = pytest.mark.usefixtures("one_thread")


def rollout(spec, memory=0):
    rng = np.random.default_rng(0)
    obs = rng.integers(0, 256, (5, 3, *FIRST.observation_shape), np.uint8)
    if spec is LAST:
        obs = np.moveaxis(obs, 2, -1).copy()
    columns = {"starts": torch.zeros(5, 3, dtype=torch.bool), "memory": torch.zeros(2, 3, memory)}
    return Rollout(
        obs=torch.from_numpy(obs),
        action=torch.from_numpy(rng.integers(0, 4, (4, 3))),
        log_prob=torch.full((4, 3), -float(np.log(4))),
        reward=torch.from_numpy(rng.normal(size=(4, 3)).astype(np.float32)),
        terminated=torch.zeros(4, 3, dtype=torch.bool),
        ended=torch.zeros(4, 3, dtype=torch.bool),
        valid=torch.ones(4, 3, dtype=torch.bool),
        final_obs=torch.from_numpy(obs[0, :0]),
        final_at=torch.zeros(0, 2, dtype=torch.int64),
        **(columns if memory else {}),
    )


def learned(kind, config, spec, **options):
    algorithm = kind(config(**{"hidden": (8,), "rollout_steps": 4, **options}), spec)
    learner = algorithm.make_learner(0, "cpu")
    before = learner.weights.clone()
    assert learner.learn(rollout(spec, algorithm.memory), 0.0, no_averaging) == 1
    assert not torch.equal(before, learner.weights)
    return algorithm, learner


@pytest.mark.parametrize("images", ["nature", "impala", "small"])
@pytest.mark.parametrize(("kind", "config", "options"), KINDS)
def test_channels_may_come_last(kind, config, options, images):
    """The same images in either order give the same weights and actions."""
    found = [learned(kind, config, spec, **options, images=images) for spec in (FIRST, LAST)]
    torch.testing.assert_close(found[0][1].weights, found[1][1].weights, rtol=1e-3, atol=1e-5)
    wanted = {"nature": NatureCNN, "impala": ImpalaResNet, "small": SmallCNN}[images]
    assert any(isinstance(part, wanted) for part in found[1][1].network.modules())
    obs = np.random.default_rng(1).integers(0, 256, (20, *FIRST.observation_shape), np.uint8)
    acted = []
    for (algorithm, learner), seen in zip(found, (obs, np.moveaxis(obs, 1, -1).copy()), strict=True):
        policy = algorithm.make_policy(0, 1, 20, 0)
        policy.weights.copy_(learner.weights)
        if algorithm.memory:
            policy.restart(np.ones(20, bool))
        acted.append(policy.act_greedily(seen))
    assert np.mean(acted[0] == acted[1]) > 0.9


@pytest.mark.parametrize(("kind", "config", "options"), KINDS)
def test_the_channels_last_memory_format_gives_the_same_numbers(kind, config, options):
    seen = []
    plain = learned(kind, config, FIRST, **options)[1]
    made = kind(config(hidden=(8,), rollout_steps=4, channels_last=True, **options), FIRST)
    learner = made.make_learner(0, "cpu")
    layers = [part for part in learner.network.modules() if isinstance(part, torch.nn.Conv2d)]
    layers[1].register_forward_hook(lambda _, inputs, out: seen.append(inputs[0]))
    learner.learn(rollout(FIRST, made.memory), 0.0, no_averaging)
    assert seen and all(x.is_contiguous(memory_format=torch.channels_last) for x in seen)
    assert all(x.dtype == torch.float32 for x in seen)
    torch.testing.assert_close(learner.weights, plain.weights, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(("kind", "config", "options"), KINDS)
def test_bfloat16_is_close_to_float32_but_not_equal(kind, config, options):
    exact, rough = (
        learned(kind, config, FIRST, **options, precision=precision)[1]
        for precision in ("float32", "bfloat16")
    )
    assert not torch.equal(exact.gradients, rough.gradients)
    assert torch.cosine_similarity(exact.gradients, rough.gradients, dim=0) > 0.95
    assert rough.weights.dtype == rough.gradients.dtype == torch.float32
    with pytest.raises(ConfigError, match="precision = 'float16'"):
        config(precision="float16")


def test_last_layers_are_computed_in_float32():
    """In bfloat16 20.00, 20.01, 20.02 and 20.03 are one number, and 100.3 is 100.5."""
    obs = torch.zeros(2, *FIRST.observation_shape, dtype=torch.uint8)
    values = torch.tensor([20.0, 20.01, 20.02, 20.03])
    with torch.no_grad():
        network = pqn.PQN(pqn.Config(hidden=(8,), precision="bfloat16"), FIRST).make_learner(0, "cpu").network
        network.head.weight.zero_()
        network.head.bias.copy_(values)
        torch.testing.assert_close(network(obs)[1], values, rtol=0, atol=1e-5)
        network = ppo.PPO(ppo.Config(hidden=(8,), precision="bfloat16"), FIRST).make_learner(0, "cpu").network
        network.policy.weight.zero_()
        network.policy.bias.copy_(values)
        network.value.weight.zero_()
        network.value.bias.fill_(100.3)
        policy, value = network(obs)
    torch.testing.assert_close(policy[1], values, rtol=0, atol=1e-5)
    torch.testing.assert_close(value, torch.full((2,), 100.3), rtol=0, atol=1e-5)


@pytest.mark.parametrize("spec", [FIRST, LAST], ids=["first", "last"])
@pytest.mark.parametrize(("kind", "config", "options"), [KINDS[0], KINDS[1], *KINDS[3:5]])
def test_normalized_images_have_the_statistics_of_every_16th_step(kind, config, options, spec):
    """The first rollout is for statistics only; the policy gets them with the weights."""
    algorithm = kind(config(hidden=(8,), rollout_steps=18, normalize_observations=True, **options), spec)
    learner, policy = algorithm.make_learner(0, "cpu"), algorithm.make_policy(0, 1, 20, 0)
    data = rollout(spec)
    obs = torch.randint(0, 256, (19, 3, *spec.observation_shape), dtype=torch.uint8)
    columns = ("action", "log_prob", "reward", "terminated", "ended", "valid")
    longer = {name: getattr(data, name).repeat(5, 1)[:18] for name in columns}
    data = dataclasses.replace(data, obs=obs, **longer)
    assert learner.learn(data, 0.0, no_averaging) == 0
    rows = obs[[0, 16]].flatten(0, 1).flatten(1) / 255
    normalizer = learner.network.flattener.normalizer
    torch.testing.assert_close(normalizer.mean.data, rows.mean(0))
    torch.testing.assert_close(1 / normalizer.inverse_std.data, rows.std(0, correction=0).clamp(min=2 / 255))
    assert learner.learn(data, 0.0, no_averaging) > 0
    policy.weights.copy_(learner.weights)
    seen = obs[:, 0]
    logits = learner.network.policy_of(seen).numpy()
    np.testing.assert_array_equal(policy.act_greedily(seen.numpy()), logits.argmax(axis=1))
    without = learner.network.cnn(seen)
    assert not torch.allclose(learner.network.cnn(learner.network.flattener(seen)), without)


def test_images_are_not_normalized_by_pqn_or_with_an_lstm():
    lstm = ppo.Config(normalize_observations=True, lstm=4)
    for make in (
        lambda: ppo.PPO(lstm, FIRST),
        lambda: pqn.PQN(pqn.Config(normalize_observations=True), FIRST),
    ):
        with pytest.raises(
            ConfigError, match=r"normalize_observations = True is for vectors.* \(3, 40, 36\)"
        ):
            make()
