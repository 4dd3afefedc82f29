"""Policies with an LSTM: unrolling equals torch's LSTM; acting and learning use the same memory."""

import dataclasses
import itertools

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rollouts import SPEC, no_averaging
from rollouts import rollout as random_rollout

from parl.algos import a2c, impala, ppo
from parl.algos.bc import Config as BCConfig
from parl.algos.common.actor_critic import log_prob_and_entropy
from parl.algos.ga3c import Config as GA3CConfig
from parl.envs import spec_of
from parl.errors import ConfigError
from parl.nets.recurrent import RecurrentActorCritic
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer, concatenate
from parl.types import RecurrentPolicy


def test_unrolling_equals_torchs_lstm_episode_by_episode():
    torch.manual_seed(0)
    network = RecurrentActorCritic((5,), "float32", 3, (8,), 6, "tanh", False)
    obs = torch.randn(9, 2, 5)
    starts = torch.zeros(9, 2, dtype=torch.bool)
    starts[0, 1] = starts[4, 0] = starts[5, 0] = starts[7, 1] = True
    memory = torch.randn(2, 2, 6)
    parameters, value, memories = network.unroll(obs, starts, memory)
    reference = torch.nn.LSTM(8, 6)
    reference.load_state_dict({f"{name}_l0": tensor for name, tensor in network.cell.state_dict().items()})
    for env, borders in ((0, [0, 4, 5, 9]), (1, [0, 7, 9])):
        for first, end in itertools.pairwise(borders):
            begins = bool(starts[first, env])
            state = None if begins else tuple(part[env].view(1, 1, 6) for part in memory)
            features = network.features(obs[first:end, env]).unsqueeze(1)
            h, (last, cell) = reference(features, state)
            torch.testing.assert_close(parameters[first:end, env], network.policy(h[:, 0]))
            torch.testing.assert_close(value[first:end, env], network.value(h[:, 0]).squeeze(1))
            torch.testing.assert_close(memories[end - 1, :, env], torch.cat([last[0], cell[0]]))


class Short(gymnasium.Env):
    """Random observations; each episode is terminated or truncated after three to five steps."""

    observation_space = Box(-9.0, 9.0, (3,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._left = int(self.np_random.integers(3, 6))
        return self._show(), {}

    def _show(self):
        return self.np_random.normal(size=3).astype(np.float32)

    def step(self, action):
        self._left -= 1
        over = self._left == 0
        terminated = over and self.np_random.random() < 0.5
        return self._show(), 1.0, bool(terminated), bool(over and not terminated), {}


def collected(mode, module, kind, rounds=3, seed=0):
    """Collects consecutive rollouts. Returns the learner whose weights were used, and the rollouts."""
    env = SyncVectorEnv([Short] * 3, autoreset_mode=mode)
    spec = spec_of(env)
    config = module.Config(rollout_steps=7, hidden=(8,), lstm=5)
    algorithm = kind(config, spec)
    learner = algorithm.make_learner(seed, "cpu")
    policy = algorithm.make_policy(0, 1, 3, seed)
    assert isinstance(policy, RecurrentPolicy)
    policy.weights.copy_(learner.weights)
    actor = RolloutActor(env, spec, policy, seed)
    found = []
    for _ in range(rounds):
        buffer = RolloutBuffer(spec, 7, 3, None, 5)
        actor.collect(buffer, 0)
        found.append(buffer.tensors())
    actor.close()
    return learner, found


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_learning_uses_the_memory_of_acting(mode):
    """With equal weights, probabilities are equal in every rollout, before and after episode ends."""
    learner, rollouts = collected(mode, a2c, a2c.A2C)
    assert any(rollout.ended[:-1].any() for rollout in rollouts)
    for rollout in rollouts:
        parameters, _ = learner.outputs(rollout)
        log_prob, _ = log_prob_and_entropy(
            learner.network, parameters[:-1].flatten(0, 1), rollout.action.flatten()
        )
        valid = rollout.valid.flatten()
        torch.testing.assert_close(log_prob[valid], rollout.log_prob.flatten()[valid])


def test_values_of_final_observations_use_the_memory_of_the_episode():
    learner, rollouts = collected(AutoresetMode.SAME_STEP, a2c, a2c.A2C, rounds=6)
    rollout = next(part for part in rollouts if len(part.final_obs) and int(part.final_at[0, 0]) > 0)
    with torch.no_grad():
        _, following = learner.values(rollout)
        t, n = rollout.final_at[0].tolist()
        # The episode as one sequence: the steps up to t, then the final observation.
        obs = torch.cat([rollout.obs[: t + 1, n], rollout.final_obs[:1]]).unsqueeze(1)
        starts = torch.cat([rollout.starts[: t + 1, n], torch.tensor([False])]).unsqueeze(1)
        _, value, _ = learner.network.unroll(obs, starts, rollout.memory[:, n : n + 1])
    torch.testing.assert_close(following[t, n], value[-1, 0])


@pytest.mark.parametrize(("module", "kind"), [(a2c, a2c.A2C), (ppo, ppo.PPO), (impala, impala.IMPALA)])
def test_an_update_changes_almost_every_weight(module, kind):
    learner, rollouts = collected(AutoresetMode.NEXT_STEP, module, kind)
    before = learner.weights.clone()
    assert learner.learn(concatenate(rollouts[:2]), 0.0, no_averaging) >= 1
    # All but a few biases get gradients.
    assert (learner.weights != before).float().mean() > 0.95


def test_ppo_minibatches_consist_of_whole_environments():
    """With one minibatch, the loss is that of all rows, in any order of the environments."""
    learner, rollouts = collected(AutoresetMode.NEXT_STEP, ppo, ppo.PPO)
    config = dataclasses.replace(learner.config, epochs=1, minibatch_size=1_000, target_kl=0.0)
    learner.config = config
    assert learner.learn(rollouts[0], 0.0, no_averaging) == 1
    assert learner.metrics()["kl"] == pytest.approx(0.0, abs=1e-6)
    learner.config = dataclasses.replace(config, minibatch_size=7)
    assert learner.learn(rollouts[1], 0.0, no_averaging) == 3


def test_ppo_leaves_out_environments_that_only_reset():
    """A rollout of one step, of which two environments reset."""
    learner = ppo.PPO(ppo.Config(lstm=4, epochs=2, minibatch_size=1), SPEC).make_learner(0, "cpu")
    none = torch.zeros(1, 3, dtype=torch.bool)
    more = {"starts": torch.zeros(2, 3, dtype=torch.bool), "memory": torch.zeros(2, 3, 4)}
    data = dataclasses.replace(random_rollout(1, 3, seed=1), valid=none.clone(), **more)
    assert learner.learn(data, 0.0, no_averaging) == 0
    data.valid[0, 1] = True
    assert learner.learn(data, 0.0, no_averaging) == 2
    assert learner.weights.isfinite().all()


def test_settings_that_exclude_lstm_are_refused():
    for make, text in (
        (lambda: a2c.Config(lstm=4, window=64), "lstm = 4 needs window = 0"),
        (lambda: GA3CConfig(lstm=4), "ga3c: lstm = 4 needs actors with networks"),
        (lambda: BCConfig(lstm=4), "bc: lstm = 4 needs steps in a row"),
    ):
        with pytest.raises(ConfigError, match=text):
            make()
