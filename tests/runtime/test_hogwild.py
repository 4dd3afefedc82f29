"""The hogwild topology: all workers change the shared weights; measured lag; saving and resuming."""

import contextlib
import time

import pytest
import torch
from rollout_setup import rollout_setup, run_until

from parl.algos.a3c import A3C, Config
from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.runtime import checkpoint
from parl.runtime.on_policy.hogwild import HogwildLoop
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.train import resume, train
from saved_learners import learner_in


def setup(**options):
    return rollout_setup(A3C, Config(rollout_steps=5, hidden=(16,)), num_envs=4, **options)


@pytest.mark.parametrize("processes", [True, False])
def test_all_workers_change_the_weights(processes):
    with contextlib.closing(HogwildLoop(setup(processes=processes))) as loop:
        before = loop.learner.weights.clone()
        for steps in range(1_500, 50_000, 500):
            report = run_until(loop, steps).report()
            if report["policy_lag_max"] >= 1:  # the workers overlap; on a busy machine they may take turns
                break
        assert not torch.equal(loop.learner.weights, before)
        # The other worker may make several updates while this one is not scheduled.
        assert 0 <= report["policy_lag"] <= report["policy_lag_max"] >= 1
        assert "entropy" in report
        assert (loop._counters.actor[:, 0] > 0).all()  # both collected
        # The shared count may lose a few steps. Both grow meanwhile; a worker adds to the shared one first.
        updates, count = loop.updates, int(loop._parameters.count)
        loop._refresh()
        assert updates * 0.9 <= count <= loop.updates + 2
        episodes = loop.take_episodes()
        assert len(episodes) > 10 and loop.rewards_and_episodes()[0] > 1_000


def test_one_worker_is_enough():
    with contextlib.closing(HogwildLoop(setup(actors=1, processes=False))) as loop:
        run_until(loop, 100)
        assert loop.updates >= 5


def test_a_step_on_shared_weights_equals_that_of_a_learner_alone():
    """With one worker, the shared weights end with the same values as those of a learner alone."""
    parts = setup(actors=1)
    alone = run_until(SyncRolloutLoop(parts), 200)
    shared = SyncRolloutLoop(parts)
    tensors = [torch.zeros_like(alone.learner.weights) for _ in range(3)]
    count = torch.zeros(1, dtype=torch.int64)
    shared.learner.share(*tensors, count, True)
    run_until(shared, 200)
    assert torch.equal(alone.learner.weights, shared.learner.weights) and int(count) == alone.updates > 5
    assert torch.equal(tensors[0], shared.learner.weights) and tensors[2].any()


def test_a_saved_run_resumes(tmp_path):
    with contextlib.closing(HogwildLoop(setup(total_steps=500))) as loop:
        run_until(loop, 500)
        loop.save(tmp_path)
        saved, steps, updates = loop.learner.weights.clone(), loop.env_steps, loop.updates
        assert loop.env_steps == steps < 600  # the workers wait at the end of the run
    with contextlib.closing(HogwildLoop(setup(total_steps=steps), checkpoint.read(tmp_path))) as resumed:
        assert torch.equal(resumed.learner.weights, saved)
        assert (resumed.env_steps, resumed.updates) == (steps, updates)
        assert resumed.learner.state_dict()["square"].any()


def test_a_checkpoint_has_the_weights_that_were_evaluated(tmp_path):
    """The workers go on while the driver evaluates the weights."""
    with contextlib.closing(HogwildLoop(setup(processes=False))) as loop:
        run_until(loop, 300)
        evaluated, steps, updates = loop.learner.weights.clone(), loop.env_steps, loop.updates
        end = time.monotonic() + 60
        while loop._counters.env_steps < steps + 200:
            assert time.monotonic() < end
            time.sleep(0.01)
        loop.save(tmp_path)
    saved = checkpoint.read(tmp_path)
    assert torch.equal(learner_in(tmp_path)["weights"], evaluated)
    assert (saved.counters["env_steps"], saved.counters["updates"]) == (steps, updates)


def test_a3c_runs_by_name_and_resumes(tmp_path):
    options = {"actors": 2, "hidden": (16,), "evaluation_episodes": 1, "quiet": True, "runs": str(tmp_path)}
    first = train("a3c", env="CartPole-v1", total_steps=800, **options)
    again = resume(first.path, total_steps=1_600)
    assert again.env_steps >= 1_600 and again.updates > first.updates
    assert any("policy_lag_max" in record for record in read_metrics(again.path))
    assert RunDirectory.open(again.path).config["a3c"]["optimizer"] == "rmsprop"


def test_settings_that_need_one_learner_are_refused():
    with pytest.raises(ConfigError, match="a3c: window = 16 needs consecutive rollouts"):
        Config(window=16)
    with pytest.raises(ConfigError, match="a3c: normalize_observations"):
        Config(normalize_observations=True)
