"""ES and GA: members from seeds, gradients against numpy, selection, batched networks."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from parl.algos import es, ga
from parl.algos.common.population import DeterministicPolicy, WeightLayout, noise
from parl.errors import ConfigError
from parl.types import EnvSpec

SPEC = EnvSpec((3,), "float32", (), "int64", 4, "next_step")
BOX = EnvSpec((2, 3), "uint8", (2,), "float32", None, "next_step")


@pytest.mark.parametrize("hidden", [(5, 4), (100, 100)], ids=["numpy", "torch"])
@pytest.mark.parametrize("spec", [SPEC, BOX], ids=["discrete", "continuous"])
def test_batched_networks_equal_single_networks(spec, hidden):
    config = es.Config(hidden=hidden)
    shape = WeightLayout(config, spec)
    weights = torch.stack([shape.initial_weights(seed) + 0.3 * noise(seed, shape.size) for seed in range(6)])
    rng = np.random.default_rng(0)
    obs = (rng.random((6, *spec.observation_shape)) * 200).astype(spec.observation_dtype)
    got = DeterministicPolicy(config, spec).assemble(weights).act(obs)
    alone = DeterministicPolicy(config, spec)
    for i in range(6):
        x = obs[i].reshape(-1).astype(np.float64) / (255 if spec.observation_dtype == "uint8" else 1)
        rest = weights[i].double().numpy()
        for layer, (above, below) in enumerate(zip(shape.widths, shape.widths[1:], strict=False)):
            matrix, bias, rest = np.split(rest, [above * below, above * below + below])
            x = x @ matrix.reshape(above, below) + bias
            x = np.tanh(x) if layer < 2 else x
        alone.weights.copy_(weights[i])
        expected = x.argmax() if spec.num_actions else x
        np.testing.assert_allclose(got[i], expected, atol=1e-5)
        np.testing.assert_allclose(alone.act_greedily(obs[i : i + 1])[0], expected, atol=1e-5)


@pytest.mark.parametrize("hidden", [(3,), (32, 32), (100, 100)], ids=["narrow", "numpy", "torch"])
def test_actions_do_not_depend_on_the_other_networks_of_a_batch(hidden):
    """Bit for bit, since member batches and ended episodes change which networks act together."""
    config = es.Config(hidden=hidden)
    shape = WeightLayout(config, BOX)
    weights = torch.randn(33, shape.size, generator=torch.Generator().manual_seed(0))
    obs = np.random.default_rng(0).integers(0, 256, (33, *BOX.observation_shape), np.uint8)
    networks = DeterministicPolicy(config, BOX).assemble(weights)
    whole = networks.act(obs)
    assert whole.shape == (33, 2)
    for rows in (np.arange(33), np.array([0, 7, 8, 32]), np.array([19])):
        np.testing.assert_array_equal(networks.select(rows).act(obs[rows]), whole[rows], strict=True)
        part = DeterministicPolicy(config, BOX).assemble(weights[torch.from_numpy(rows)])
        np.testing.assert_array_equal(part.act(obs[rows]), whole[rows], strict=True)
    twice = networks.select(np.array([3, 9, 30])).select(np.array([2, 0]))
    np.testing.assert_array_equal(twice.act(obs[[30, 3]]), whole[[30, 3]])


def test_actions_outside_of_training_are_clipped_to_the_bounds_as_in_training():
    """Generations clip actions before each step; evaluations and ``predict`` take those of the policy."""
    bounded = replace(BOX, action_low=(-0.1, -np.inf), action_high=(0.2, 0.3))
    policy = DeterministicPolicy(es.Config(hidden=(8,)), bounded)
    policy.weights.copy_(torch.randn(policy.weights.shape, generator=torch.Generator().manual_seed(0)))
    observations = np.random.default_rng(0).integers(0, 256, (100, *BOX.observation_shape), np.uint8)
    (outputs,) = DeterministicPolicy(es.Config(hidden=(8,)), BOX).greedy(
        policy.network, torch.from_numpy(observations)
    )
    expected = np.clip(outputs.numpy(), [-0.1, -np.inf], [0.2, 0.3]).astype(np.float32)
    assert 0.1 < (expected != outputs.numpy()).mean() < 0.9
    found = policy.greedy(policy.network, torch.from_numpy(observations))[0].numpy()
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(policy.act_greedily(observations), expected, rtol=1e-5, atol=1e-6)


PICTURE = EnvSpec((2, 40, 44), "uint8", (), "int64", 3, "next_step")
LAST = EnvSpec((40, 44, 2), "uint8", (), "int64", 3, "next_step")


@pytest.mark.parametrize("spec", [PICTURE, LAST], ids=["first", "last"])
def test_images_go_through_the_convolutions_of_the_nature_cnn(spec):
    """Compares with torch's modules of equal weights; members act the same alone and in a batch."""
    config = es.Config(hidden=(6,))
    shape = WeightLayout(config, spec)
    # 40 x 44 becomes 9 x 10, then 3 x 4, then 1 x 2 of 64 channels.
    assert shape.image_shape == (2, 40, 44) and shape.widths == (128, 6, 3)
    weights = torch.stack([shape.initial_weights(seed) + 0.1 * noise(seed, shape.size) for seed in range(5)])
    obs = np.random.default_rng(0).integers(0, 256, (5, *spec.observation_shape), np.uint8)
    networks = DeterministicPolicy(config, spec).assemble(weights)
    seen = networks._to_inputs(obs)
    assert seen.shape == (5, 1, 128) and (seen > 0).any() and len(np.unique(networks.act(obs))) > 1
    alone = DeterministicPolicy(config, spec)
    for i in range(5):
        convolutions = [torch.nn.Conv2d(*one) for one in ((2, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))]
        layers = shape.layers(weights[i : i + 1])
        for convolution, (matrix, bias) in zip(convolutions, layers, strict=False):
            convolution.weight.data = matrix[0].T.reshape(convolution.weight.shape)
            convolution.bias.data = bias[0, 0]
        picture = torch.from_numpy(
            obs[i : i + 1] if spec is PICTURE else obs[i : i + 1].transpose(0, 3, 1, 2)
        )
        with torch.no_grad():
            x = picture / 255
            for convolution in convolutions:
                x = convolution(x).relu()
            np.testing.assert_allclose(seen[i, 0], x.flatten(), rtol=1e-4, atol=1e-5)
            x = (x.flatten(1) @ layers[3][0][0] + layers[3][1][0]).tanh()
            expected = int((x @ layers[4][0][0] + layers[4][1][0]).argmax())
        alone.weights.copy_(weights[i])
        assert networks.act(obs)[i] == expected == alone.act_greedily(obs[i : i + 1])[0]
    kept = np.array([1, 4])
    np.testing.assert_array_equal(networks.select(kept)._to_inputs(obs[kept]), seen[kept], strict=True)


def test_images_can_be_flattened_for_dense_layers():
    assert WeightLayout(es.Config(images="mlp"), PICTURE).widths[0] == 2 * 40 * 44
    small = EnvSpec((1, 20, 20), "uint8", (), "int64", 3, "next_step")
    for algorithm, module in ((es.ES, es), (ga.GA, ga)):
        with pytest.raises(
            ConfigError, match=r"\(1, 20, 20\) are below 36 x 36, too small for images = 'nature'"
        ):
            algorithm(module.Config(), small)
        assert algorithm(module.Config(images="mlp"), small).make_learner(0, "cpu").weights.numel() > 400


def test_noise_is_normal_and_determined_by_its_seed():
    assert torch.equal(noise(5, 100), noise(5, 100))
    assert not torch.equal(noise(5, 100), noise(6, 100))
    drawn = noise(2**61, 100_000)
    # Standard errors are 0.003 and 0.002.
    assert abs(drawn.mean()) < 0.015 and abs(drawn.std() - 1) < 0.01


def test_ranks_are_centered_and_equal_returns_share_one():
    assert es.centered_ranks(np.array([3.0, -1.0, 10.0])).tolist() == [0.0, -0.5, 0.5]
    # The two 5s share ranks 1 and 2 of 0..3.
    np.testing.assert_allclose(es.centered_ranks(np.array([5.0, 0.0, 5.0, 9.0])), [0, -0.5, 0, 0.5])
    np.testing.assert_allclose(es.centered_ranks(np.full(7, 2.0)), 0)


@pytest.mark.parametrize("size", [8, 7])
def test_es_gradient_against_numpy(size):
    config = es.Config(hidden=(5,), sigma=0.3)
    learner = es.ES(config, SPEC).make_learner(0, "cpu")
    members = learner.ask(size)
    assert [sign for _, sign in members] == [1, -1, 1, -1, 1, -1, 1, -1][:size]
    weights = es.ESDecoder(config).decode(learner.weights, members).numpy()
    pairs = weights[: size // 2 * 2].reshape(-1, 2, weights.shape[1])
    np.testing.assert_allclose(pairs.mean(1), np.tile(learner.weights, (size // 2, 1)), atol=1e-6)
    returns = np.random.default_rng(1).normal(size=size)
    ranks = np.argsort(np.argsort(returns)) / (size - 1) - 0.5
    directions = (weights - learner.weights.numpy()) / 0.3
    expected = -(ranks[:, None] * directions).sum(0) / (size * 0.3)
    np.testing.assert_allclose(learner.gradient(members, returns), expected, rtol=1e-3, atol=1e-4)


def test_es_maximizes_a_quadratic_function():
    learner = es.ES(es.Config(hidden=(2,), learning_rate=0.1), SPEC).make_learner(0, "cpu")
    decoder = es.ESDecoder(es.Config(hidden=(2,)))
    goal = torch.linspace(-1, 1, len(learner.weights))
    start = (learner.weights - goal).norm()
    for _ in range(150):
        members = learner.ask(32)
        returns = -(decoder.decode(learner.weights, members) - goal).square().sum(1).numpy()
        learner.tell(members, returns)
    assert (learner.weights - goal).norm() < 0.3 * start


def test_ga_chains_are_sums_of_mutations():
    config = ga.Config(hidden=(5,), sigma=0.2)
    chain = (11, 12, 13, 14)
    expected = WeightLayout(config, SPEC).initial_weights(11) + 0.2 * sum(
        noise(s, WeightLayout(config, SPEC).size) for s in chain[1:]
    )
    torch.testing.assert_close(ga.GADecoder(config, SPEC).weights(chain), expected)
    # Also when a part of the chain was decoded before.
    decoder = ga.GADecoder(config, SPEC)
    decoder.weights(chain[:2])
    assert torch.equal(decoder.weights(chain), ga.GADecoder(config, SPEC).weights(chain))


def test_ga_keeps_the_best_and_mutates_them():
    learner = ga.GA(ga.Config(hidden=(5,), parents=3, elites=1), SPEC).make_learner(0, "cpu")
    first = learner.ask(10)
    assert len(set(first)) == 10 and all(len(member) == 1 for member in first)
    returns = np.array([0, 1, 5, 2, 9, 3, 9, 0, 0, 0.0])
    learner.tell(first, returns)
    torch.testing.assert_close(learner.weights, ga.GADecoder(learner._config, SPEC).weights(first[4]))
    second = learner.ask(10)
    assert second[0] == first[4]
    parents = {first[4], first[6], first[2]}
    assert all(member[:-1] in parents and len(member) == 2 for member in second[1:])
    assert learner.metrics()["return_best"] == 9


@pytest.mark.parametrize("kind", [es.ES, ga.GA])
def test_a_restored_learner_continues_identically(kind):
    config = {es.ES: es.Config, ga.GA: ga.Config}[kind](hidden=(5,))
    one, two = (kind(config, SPEC).make_learner(seed, "cpu") for seed in (0, 1))
    returns = np.arange(12.0)
    one.tell(one.ask(12), returns)
    two.load_state_dict(one.state_dict())
    members = one.ask(12), two.ask(12)
    assert members[0] == members[1]
    for learner in (one, two):
        learner.tell(members[0], returns)
    assert torch.equal(one.weights, two.weights)


def test_bad_settings_raise():
    with pytest.raises(ConfigError, match="sigma = 0"):
        es.Config(sigma=0.0)
    with pytest.raises(ConfigError, match="elites = 3 is above parents = 2"):
        ga.Config(parents=2, elites=3)
    with pytest.raises(ConfigError, match="hidden"):
        ga.Config(hidden=(0,))


@pytest.mark.parametrize("size", [5, 6])
def test_es_asks_for_both_signs_of_each_seed(size):
    learner = es.ES(es.Config(), SPEC).make_learner(0, "cpu")
    first, second = learner.ask(size), learner.ask(size)
    for members in (first, second):
        assert [sign for _, sign in members] == [1, -1, 1, -1, 1, -1][:size]
        assert [seed for seed, _ in members[::2]][: size // 2] == [seed for seed, _ in members[1::2]]
    # No more seeds are drawn than needed: one call for as many seeds gives the same ones.
    pairs = (size + 1) // 2
    again = es.ES(es.Config(), SPEC).make_learner(0, "cpu").ask(4 * pairs)
    assert [seed for seed, _ in again[::2]] == [seed for seed, _ in (*first[::2], *second[::2])]


def test_initial_weights_have_the_standard_deviation_of_their_layer():
    shape = WeightLayout(es.Config(hidden=(64, 64)), EnvSpec((100,), "float32", (), "int64", 50, "next_step"))
    weights = shape.initial_weights(3)
    for index, (matrix, bias) in enumerate(shape.layers(weights.unsqueeze(0))):
        expected = (0.1 if index == 2 else 1.0) / np.sqrt(matrix.shape[1])
        assert matrix.std().item() == pytest.approx(expected, rel=0.05)
        assert not bias.any()
