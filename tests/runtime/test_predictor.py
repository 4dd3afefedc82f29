"""The predictor topology: actors without networks, batched predictions, joint updates, tuned sizes."""

import contextlib
import dataclasses

import numpy as np
import pytest
import torch
from rollout_setup import rollout_setup, run_until

from parl.algos.ga3c import GA3C, Config
from parl.errors import ConfigError, WorkerError
from parl.run import RunDirectory, read_metrics
from parl.runtime import checkpoint
from parl.runtime.on_policy.predictor import PredictorLoop
from parl.train import resume, train


def setup(processes=True, predictors=1, rollouts=2, trainers=1, **options):
    sizes = {"predictors": predictors, "rollouts_per_update": rollouts, "trainers": trainers}
    config = Config(rollout_steps=5, hidden=(16,), **options)
    return rollout_setup(GA3C, config, processes=processes, max_lag=100, **sizes)


@pytest.mark.parametrize(("processes", "predictors"), [(True, 1), (False, 2)])
def test_actors_get_predictions_and_the_learner_gets_their_rollouts(processes, predictors):
    with contextlib.closing(PredictorLoop(setup(processes, predictors))) as loop:
        before = loop.learner.weights.clone()
        run_until(loop, 1_000)
        assert not torch.equal(loop.learner.weights, before)
        report = loop.report()
        assert 0 <= report["policy_lag"] <= report["policy_lag_max"]
        assert 2 <= report["predicted_together"] <= 5  # 2 and 3 environments
        assert report["rollouts_now"] == 2 and report["predictors_now"] == predictors
        # Two rollouts of 12.5 transitions on average make an update.
        assert loop.updates == pytest.approx(loop.env_steps / 25, rel=0.25)
        # The rollout holds the predicted log probabilities: so early, no action is less likely than 1e-3.
        buffer = loop._buffers[0][0]
        assert (buffer.log_prob < 0).all() and (np.exp(buffer.log_prob) > 1e-3).all()


def test_a_report_before_the_first_prediction_has_nan(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(PredictorLoop, "_start_missing", lambda self: None)
        loop = PredictorLoop(setup(False, rollouts=1))
    try:
        assert np.isnan(loop.report()["predicted_together"])
        loop._start_missing()
        assert run_until(loop, 50).report()["predicted_together"] >= 2
    finally:
        loop.close()


def test_several_trainers_step_on_the_same_weights():
    with contextlib.closing(PredictorLoop(setup(False, rollouts=1, trainers=2))) as loop:
        at_once, alone, running = [], [], 0
        for learner in (loop._learners[0], loop._learners[1]):
            learn, rate = learner.learn, learner.learning_rate

            def stepping(progress, rate=rate):
                alone.append(loop._update_lock._is_owned())
                return rate(progress)

            def counted(*args, learn=learn):
                nonlocal running
                running += 1
                at_once.append(running)
                try:
                    return learn(*args)
                finally:
                    running -= 1

            learner.learn, learner.learning_rate = counted, stepping
        run_until(loop, 2_000)
        report = loop.report()
        assert len(alone) == loop.updates and all(alone)
        assert max(at_once) == 2 and report["trainers_now"] == 2
        # No step was lost: the optimizer counted each, and all learners have the shared weights.
        assert int(loop._parameters.count) == loop.updates == len(at_once)
        for learner in loop._learners:
            learner.refresh()
            assert torch.equal(learner.weights, loop._parameters.weights)
        assert torch.equal(loop.learner.state_dict()["weights"], loop._parameters.weights)
        assert report["policy_lag_max"] >= 1


def test_an_error_of_a_trainer_ends_the_run():
    with contextlib.closing(PredictorLoop(setup(False, rollouts=1, trainers=2))) as loop:

        def broken(*_):
            raise ZeroDivisionError("of a trainer")

        loop._learners[1].learn = broken
        with pytest.raises(ZeroDivisionError, match="of a trainer"):
            run_until(loop, 2_000)


def test_statistics_of_observations_allow_only_one_trainer():
    with pytest.raises(ConfigError, match="trainers = 2: running statistics"):
        PredictorLoop(setup(False, trainers=2, normalize_observations=True))
    with contextlib.closing(PredictorLoop(setup(False, normalize_observations=True))) as loop:
        run_until(loop, 200)
        assert loop._tuner._highest["trainers"] == 1 and loop.updates > 2
        assert (loop.learner.network.flattener.normalizer.mean != 0).all()


def test_actors_can_be_parked_and_woken():
    with contextlib.closing(PredictorLoop(setup(processes=False))) as loop:
        loop._tuner.sizes["actors"] = 1
        run_until(loop, 300)
        assert {index for index, _ in loop._parked} == {1}
        loop._tuner.sizes["actors"] = 2
        resting, loop._parked = loop._parked, []
        for pair in resting:
            loop._refill(*pair)
        run_until(loop, 600)
        assert not loop._parked


def test_a_saved_run_resumes_and_reports_its_sizes(tmp_path):
    options = {"actors": 2, "hidden": (16,), "evaluation_episodes": 1, "quiet": True, "tune_every_s": 0.2}
    first = train("ga3c", env="CartPole-v1", total_steps=800, runs=str(tmp_path), **options)
    again = resume(first.path, total_steps=1_600)
    assert again.env_steps >= 1_600 and again.updates > first.updates
    assert any("predicted_together" in record for record in read_metrics(again.path))
    saved = checkpoint.read(RunDirectory.open(again.path).checkpoints.last())
    assert saved.counters["actors_saved"] == [True, True]


def test_predictors_of_other_runs_and_of_a_resumed_run_have_other_random_numbers(monkeypatch):
    """Actions are sampled by predictors: equal seeds would give a resumed run its first numbers again."""
    seeds, start = [], PredictorLoop._start_missing
    monkeypatch.setattr(PredictorLoop, "_run_predictor", lambda *_: None)
    monkeypatch.setattr(PredictorLoop, "_start_missing", lambda self: None)
    for seed, resumes in ((0, 0), (1, 0), (0, 1)):
        run = setup(False, predictors=2)
        make, run = run.algorithm.make_policy, dataclasses.replace(run, seed=seed)
        run.algorithm.make_policy = lambda *args, make=make: seeds.append(args[3]) or make(*args)
        with contextlib.closing(PredictorLoop(run)) as loop:
            loop._resumes = resumes
            start(loop)
    assert len(set(seeds)) == len(seeds) == 6


def test_a_predictor_that_fails_ends_the_run():
    """Otherwise its actors would wait forever."""

    class Broken(GA3C):
        def make_policy(self, *args):
            policy = super().make_policy(*args)
            policy.sample = lambda observations, env_steps: observations["none"]
            return policy

    made = setup(processes=False)
    made = dataclasses.replace(made, algorithm=Broken(made.algorithm.config, made.spec))
    with contextlib.closing(PredictorLoop(made)) as loop:
        with pytest.raises(WorkerError, match="a predictor failed: IndexError"):
            for _ in range(100):
                loop.advance(1_000, 0.1)
        actors = [worker.runner for worker in loop._actors]
    assert not any(actor.is_alive() for actor in actors)


def test_actors_that_wait_for_a_prediction_end_with_the_loop():
    loop = PredictorLoop(setup(processes=False))
    actors = [worker.runner for worker in loop._actors]
    loop._stop.set()
    loop._predictors[0].join()
    loop.interrupt()
    loop.close()
    assert not any(actor.is_alive() for actor in actors)
