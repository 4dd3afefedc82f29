"""Learners derived from parl's minimize the loss of their class, also while its numbers change."""

import pytest
import torch
from batches import discrete_batch
from rollouts import SPEC, no_averaging, rollout, with_and_without_replay

from parl.algos.dqn import Config as DQNConfig
from parl.algos.dqn import DQNLearner
from parl.algos.ppo import Config as PPOConfig
from parl.algos.ppo import PPOLearner


class WithFallingPenalty:
    """Adds the squared weights times a Python number that falls to 0 within ten updates."""

    factor = 0.01

    def penalty(self, network):
        self.factor = max(0.0, self.factor - 0.001)
        return self.factor * sum(one.square().sum() for one in network.parameters())


class OwnPPO(WithFallingPenalty, PPOLearner):
    def loss(self, *arguments):
        total, figures = super().loss(*arguments)
        return total + self.penalty(self.network), figures


class OwnDQN(WithFallingPenalty, DQNLearner):
    def loss(self, batch):
        total, *others = super().loss(batch)
        return total + self.penalty(self.online), *others


def trained_ppo(kind):
    learner = kind(PPOConfig(epochs=2, minibatch_size=8, hidden=(5, 4)), SPEC, 0, "cpu")
    for seed in range(4):
        learner.learn(rollout(seed=seed), 0.0, no_averaging)
    return learner


def trained_dqn(kind):
    learner = kind(DQNConfig(hidden=(6, 5)), SPEC, 0, "cpu")
    for seed in range(20):
        learner.compute(discrete_batch(seed)[1])
        learner.step()
    return learner


@pytest.mark.parametrize(
    ("train", "parls", "own"), [(trained_ppo, PPOLearner, OwnPPO), (trained_dqn, DQNLearner, OwnDQN)]
)
def test_a_number_that_falls_has_the_effect_that_it_has_in_torch(monkeypatch, train, parls, own):
    assert train(parls)._update.replays
    found, by_torch = [train(own) for _ in with_and_without_replay(monkeypatch)]
    assert found.factor == 0
    torch.testing.assert_close(found.weights, by_torch.weights, rtol=0, atol=0)


def test_a_class_can_say_that_its_updates_may_be_replayed():
    class Replayed(PPOLearner):
        replays_updates = True

    assert trained_ppo(Replayed)._update.replays
