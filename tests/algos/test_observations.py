"""Observations of every kind in DQN, SAC, TD3 and DDPG: dictionaries, images, channels first or last."""

import dataclasses

import numpy as np
import pytest
import torch
from batches import BOX, CAMERA, FOUR, PARTS, make_batch, observations

from parl.algos import ddpg, dqn, sac, td3
from parl.errors import ConfigError
from parl.nets import Encoder, check_observations
from parl.train.registry import make_algorithm
from parl.train.settings import default_settings
from parl.types import EnvSpec

KINDS = [
    pytest.param(dqn.DQN, dqn.Config(hidden=(8,)), FOUR, id="dqn"),
    pytest.param(dqn.DQN, dqn.Config(hidden=(8,), dueling=True, dueling_hidden=4), FOUR, id="dueling"),
    pytest.param(sac.SAC, sac.Config(hidden=(8,)), BOX, id="sac"),
    pytest.param(sac.SAC, sac.Config(hidden=(8,)), FOUR, id="discrete sac"),
    pytest.param(td3.TD3, td3.Config(hidden=(8,), policy_delay=1), BOX, id="td3"),
    pytest.param(ddpg.DDPG, ddpg.Config(hidden=(8,)), BOX, id="ddpg"),
]


def flat(obs):
    return np.concatenate([part.reshape(len(part), -1) for part in obs.values()], axis=1)


@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_a_dictionary_of_vectors_equals_their_concatenation(kind, config, spec):
    """Weights, priorities, gradients and actions are equal bit for bit."""
    parted = dataclasses.replace(spec, observation_shape=(), observation_parts=PARTS)
    rng = np.random.default_rng(0)
    obs, following = observations(PARTS, 16, rng), observations(PARTS, 16, rng)
    whole, apart = kind(config, spec), kind(config, parted)
    learners = whole.make_learner(3, "cpu"), apart.make_learner(3, "cpu")
    assert torch.equal(learners[0].weights, learners[1].weights)
    for _ in range(3):
        one = learners[0].compute(make_batch(spec, flat(obs), flat(following)))
        two = learners[1].compute(make_batch(spec, obs, following))
        np.testing.assert_array_equal(one, two)
        assert torch.equal(learners[0].gradients, learners[1].gradients)
        for learner in learners:
            learner.step()
    policies = whole.make_policy(0, 1, 16, 5), apart.make_policy(0, 1, 16, 5)
    for policy, learner in zip(policies, learners, strict=True):
        policy.weights.copy_(learner.weights)
    for steps in (0, 10**6):
        np.testing.assert_array_equal(policies[0].act(flat(obs), steps), policies[1].act(obs, steps))
    np.testing.assert_array_equal(policies[0].act_greedily(flat(obs)), policies[1].act_greedily(obs))


@pytest.mark.parametrize(("kind", "config", "spec"), KINDS)
def test_images_and_vectors_together(kind, config, spec):
    """The actor and the critics use both parts, and most weights get gradients."""
    spec = dataclasses.replace(spec, observation_shape=(), observation_parts=CAMERA)
    rng = np.random.default_rng(0)
    obs, following = observations(CAMERA, 16, rng), observations(CAMERA, 16, rng)
    algorithm = kind(config, spec)
    learner = algorithm.make_learner(0, "cpu")
    before = learner.weights.clone()
    first = learner.compute(make_batch(spec, obs, following))
    assert np.isfinite(first).all()
    assert (learner.gradients != 0).float().mean() > 0.5
    learner.step()
    assert not torch.equal(before, learner.weights)
    for name in obs:
        other = obs | {name: observations(CAMERA, 16, rng)[name]}
        assert not np.allclose(learner.compute(make_batch(spec, other, following)), first)
    policy = algorithm.make_policy(0, 1, 16, 0)
    policy.weights.copy_(learner.weights)
    assert policy.act(obs, 10**6).shape == ((16,) if spec.num_actions else (16, 2))
    if not spec.num_actions:
        shown = policy.act_greedily(obs)
        for name in obs:
            changed = obs | {name: observations(CAMERA, 16, rng)[name]}
            assert not np.allclose(policy.act_greedily(changed), shown)


@pytest.mark.parametrize("kind", [sac, td3])
def test_the_actors_loss_gives_the_critics_no_gradients(kind):
    """The actor's loss has gradients only for the actor, including its encoder."""
    spec = dataclasses.replace(BOX, observation_shape=(2, 40, 36), observation_dtype="uint8")
    algorithm = (sac.SAC if kind is sac else td3.TD3)(kind.Config(hidden=(8,)), spec)
    learner = algorithm.make_learner(0, "cpu")
    rng = np.random.default_rng(0)
    images = [rng.integers(0, 256, (16, 2, 40, 36), np.uint8) for _ in range(2)]
    batch = make_batch(spec, *images)
    learner._updates = 1  # the delayed actor is updated in this update
    learner.gradients.zero_()
    loss, _ = learner.actor_loss(batch, learner.draws(16).repeat(2, 1, 1)[:2])
    loss.backward()
    assert not learner.gradients[learner._critics].any()
    encoder = [p.grad for p in learner.networks.actor.encoder.parameters()]
    assert encoder and all(bool(grad.any()) for grad in encoder)


def test_channels_may_come_last():
    first = EnvSpec((3, 40, 36), "uint8", (), "int64", 4, "next_step")
    last = dataclasses.replace(first, observation_shape=(40, 36, 3))
    torch.manual_seed(0)
    one = Encoder(first, 8, "nature")
    torch.manual_seed(0)
    other = Encoder(last, 8, "nature")
    images = torch.randint(0, 256, (5, 3, 40, 36), dtype=torch.uint8)
    torch.testing.assert_close(one(images), other(images.permute(0, 2, 3, 1)))


def test_kinds_of_observations_and_unsupported_ones():
    assert BOX.observation_kind == "vector" and not BOX.has_images
    assert dataclasses.replace(BOX, observation_shape=(3, 64, 64), observation_dtype="uint8").has_images
    parted = dataclasses.replace(BOX, observation_shape=(), observation_parts=CAMERA)
    assert parted.observation_kind == "dict" and parted.has_images
    with pytest.raises(ConfigError, match=r"ppo takes observations of kind vector, image; .* of kind dict"):
        check_observations("ppo", parted, ("vector", "image"))
    small = dataclasses.replace(BOX, observation_parts=(("eye", (3, 20, 20), "uint8"),))
    with pytest.raises(ConfigError, match=r"20, 20.* below 36 x 36"):
        check_observations("sac", small)
    check_observations("sac", small, images="impala")
    check_observations("sac", small, images="small")
    tiny = dataclasses.replace(BOX, observation_parts=(("eye", (3, 19, 40), "uint8"),))
    with pytest.raises(ConfigError, match=r"19, 40.* below 20 x 20, too small for images = 'small'"):
        check_observations("sac", tiny, images="small")


@pytest.mark.parametrize("name", ["es", "ga"])
def test_algorithms_without_dictionary_observations_raise(name):
    spec = dataclasses.replace(FOUR, observation_shape=(), observation_parts=PARTS)
    with pytest.raises(ConfigError, match=rf"{name} takes observations of kind vector, image"):
        make_algorithm(name, default_settings(name)[1], spec)
