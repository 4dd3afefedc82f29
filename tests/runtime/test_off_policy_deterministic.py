"""The deterministic schedule: runs repeat and resume bit for bit, and keep the replay ratio."""

import gymnasium
import numpy as np
import pytest
import torch

from parl.runtime import checkpoint
from parl.runtime.off_policy.deterministic import DeterministicOffPolicyLoop


def run(setup, steps, saved=None):
    loop = DeterministicOffPolicyLoop(setup, saved)
    loop.advance(steps, 0.0)
    return loop


@pytest.mark.parametrize(("actors", "learners"), [(1, 1), (2, 2), (3, 1)])
def test_same_seed_same_bits(make_setup, actors, learners):
    setup = make_setup(actors=actors, learners=learners, num_envs=6)
    one, two = run(setup, 1_500), run(setup, 1_500)
    assert one.updates == two.updates > 100
    assert torch.equal(one.learner.weights, two.learner.weights)
    assert one.take_episodes() == two.take_episodes()
    other = run(make_setup(actors=actors, learners=learners, num_envs=6, seed=1), 1_500)
    assert not torch.equal(one.learner.weights, other.learner.weights)


@pytest.mark.parametrize("in_threads", [1, 2])
def test_results_do_not_depend_on_threads_and_generators_of_the_caller(make_setup, in_threads):
    setup = make_setup(actors=2)
    torch.set_num_threads(in_threads)
    np.random.seed(in_threads)
    torch.manual_seed(in_threads)
    weights = run(setup, 800).learner.weights
    torch.set_num_threads(1)
    assert torch.equal(weights, run(setup, 800).learner.weights)


@pytest.mark.parametrize(("save_at", "layer_norm"), [(60, True), (700, True), (1_100, False)])
def test_a_resumed_run_repeats_the_uninterrupted_one(make_setup, tmp_path, save_at, layer_norm):
    """Saved before learning starts or after, then continued to step 2,000."""
    setup = make_setup(actors=2, epsilon_steps=1_000, layer_norm=layer_norm)
    whole = run(setup, save_at)
    whole.save(tmp_path)
    saved = whole.learner.weights.clone()
    whole.take_episodes()
    whole.advance(2_000, 0.0)

    resumed = DeterministicOffPolicyLoop(setup, checkpoint.read(tmp_path))
    assert torch.equal(resumed.learner.weights, saved)
    resumed.advance(2_000, 0.0)
    assert resumed.updates == whole.updates
    assert resumed.env_steps == whole.env_steps
    assert torch.equal(resumed.learner.weights, whole.learner.weights)
    assert resumed.take_episodes() == whole.take_episodes()


def test_the_replay_ratio_is_kept(make_setup):
    loop = run(make_setup(ratio=2.0, batch_size=16), 2_000)
    # 16 * updates <= 2 * (steps - 100), less than one update below.
    assert 0 <= 2 * (loop.env_steps - 100) - 16 * loop.updates < 16
    assert loop.report()["replay_ratio"] == pytest.approx(2.0, rel=0.01)


def test_a_run_ends_at_its_limit_and_at_an_interrupt(make_setup):
    loop = run(make_setup(total_steps=500), 10_000)
    assert 500 <= loop.env_steps < 504
    other = DeterministicOffPolicyLoop(make_setup())
    other.interrupt()
    other.advance(10_000, 0.0)
    assert other.env_steps == 0


class Unpicklable(gymnasium.Wrapper):
    def __init__(self, env):
        super().__init__(env)
        self.native = iter([])  # is not plain data

    def __reduce__(self):
        raise TypeError("this environment is bolted to the floor")


def test_an_environment_that_cannot_be_saved_starts_new_episodes(make_setup, tmp_path):
    setup = make_setup(env=lambda: Unpicklable(gymnasium.make("CartPole-v1")), actors=2)
    loop = run(setup, 500)
    with pytest.warns(UserWarning, match="bolted to the floor"):
        loop.save(tmp_path)
    fresh, resumed = (DeterministicOffPolicyLoop(setup, saved) for saved in (None, checkpoint.read(tmp_path)))
    for first, second in zip(fresh._actors, resumed._actors, strict=True):
        assert not np.isin(second._obs, first._obs).any(), "its episodes are not those of the first start"
        assert first.policy.state_dict()["rng"] != second.policy.state_dict()["rng"]
    resumed.advance(1_000, 0.0)
    # No n-step return spans the interruption: each is a sum of 1 to 3 rewards of 1.
    batch = resumed._replay.sample(5_000)
    sums = {1.0, 1.99, 2.9701}
    assert {round(float(r), 4) for r in batch.reward} <= sums
    assert np.abs(batch.next_obs - batch.obs).max() < 1.5
