"""PQN's targets and loss against numpy; exploration; checks of settings."""

import numpy as np
import pytest
import torch
from rollouts import BOX, SPEC, no_averaging, numpy_of, rollout, successors

from parl.algos.pqn import PQN, Config, default_config
from parl.errors import ConfigError
from parl.types import EnvSpec

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("normalize", [False, True])
def test_targets_and_loss_against_numpy(normalize):
    config = Config(
        gamma=0.9, td_lambda=0.7, epochs=1, minibatch_size=10**6, normalize_observations=normalize
    )
    learner = PQN(config, SPEC).make_learner(1, "cpu")
    if normalize:
        assert learner.learn(rollout(seed=7), 0.0, no_averaging) == 0
    data = rollout(steps=12, envs=6, final=2)
    with torch.no_grad():
        q = learner.network(data.obs.flatten(0, 1)).view(13, 6, 4).double().numpy()
        final = learner.network(data.final_obs).double().numpy()
    rows = numpy_of(data)
    following = successors(data, q.max(-1), final.max(-1))
    target = np.zeros((13, 6))
    for t in reversed(range(12)):
        mix = np.where(rows["ended"][t] | (t == 11), 0.0, 0.7)
        ahead = (1 - mix) * following[t] + mix * target[t + 1]
        target[t] = rows["reward"][t] + 0.9 * ~rows["terminated"][t] * ahead
    t, n = np.indices(data.action.shape)
    error = q[t, n, data.action.numpy()] - target[:-1]
    expected = 0.5 * (error[rows["valid"]] ** 2).mean()
    assert learner.learn(data, 0.0, no_averaging) == 1
    assert learner.metrics()["loss"] == pytest.approx(expected, rel=1e-5)


def test_epsilon_decreases_and_other_actions_are_greedy():
    policy = PQN(Config(epsilon_steps=100, epsilon_last=0.0), SPEC).make_policy(0, 1, 500, 0)
    obs = np.random.default_rng(0).normal(size=(500, 3)).astype(np.float32)
    greedy = policy.act_greedily(obs)
    assert np.array_equal(policy.sample(obs, 100)[0], greedy)
    # At first all actions are random: 1 in 4 is the greedy one.
    assert 0.15 < (policy.sample(obs, 0)[0] == greedy).mean() < 0.35


def test_images_console_memory_and_bad_settings():
    image = EnvSpec((4, 84, 84), "uint8", (), "int64", 6, "next_step")
    memory = EnvSpec((2, 128), "uint8", (), "int64", 6, "next_step")
    assert default_config(image).td_lambda == 0.65
    for spec in (image, memory):
        policy = PQN(Config(hidden=(16,)), spec).make_policy(0, 1, 2, 0)
        assert policy.act_greedily(np.zeros((2, *spec.observation_shape), np.uint8)).shape == (2,)
    with pytest.raises(ConfigError, match="pqn needs a discrete action space"):
        PQN(Config(), BOX)
    with pytest.raises(ConfigError, match="td_lambda"):
        Config(td_lambda=1.5)


def test_one_rare_failure_does_not_undo_what_was_learned():
    """Applies gradients with norms as on CartPole: while learning, when solved, and for one failure."""
    learner = PQN(default_config(SPEC), SPEC).make_learner(0, "cpu")
    generator = torch.Generator().manual_seed(0)

    def step(norm):
        direction = torch.randn(learner.weights.shape, generator=generator) if norm < 80 else failure
        learner.gradients.copy_(norm * direction / direction.norm())
        learner.apply(0.5, no_averaging)

    failure = torch.randn(learner.weights.shape, generator=generator)
    for norm in [1.0] * 500 + [0.02] * 500:
        step(norm)
    before = learner.weights.clone()
    for _ in range(16):
        step(80.0)
    assert float((learner.weights - before).norm()) < 0.05 * float(before.norm())
