"""The driver's side of rollouts and evaluations over Ray, with a fake Ray; and the Ray actors themselves."""

import dataclasses
import multiprocessing
import random
import sys

import numpy as np
import pytest
import torch
from fake_ray import RayError
from rollout_setup import rollout_setup

from parl.algos.es import ES
from parl.algos.es import Config as ESConfig
from parl.algos.ppo import PPO, Config
from parl.envs import EnvMaker, spec_of
from parl.errors import WorkerError
from parl.runtime import checkpoint, workers
from parl.runtime.distributed import ray_cluster
from parl.runtime.distributed.group import Group
from parl.runtime.distributed.ray_cluster import RayCluster, WeightsRef
from parl.runtime.distributed.ray_population import RayEvaluator, RayPopulationLoop
from parl.runtime.distributed.ray_rollouts import (
    RayAsyncRolloutLoop,
    RayRollout,
    RayRolloutActor,
    RayRolloutHandle,
    RaySyncRolloutLoop,
)
from parl.runtime.env_actor import Counts
from parl.runtime.population import (
    _ALIGNMENT,
    PopulationEvaluator,
    PopulationSetup,
    aligned_rows,
    pack_members,
)
from parl.runtime.seeds import seeded_modules
from parl.runtime.weights import SharedWeights
from parl.runtime.workers import Deadline, WorkerTimeoutError

CONTEXT = multiprocessing.get_context()


def a_minute():
    return Deadline(60.0, lambda: False)


def setup(**options):
    config = Config(rollout_steps=8, hidden=(4,))
    return rollout_setup(PPO, config, **{"processes": False, "remote": RayCluster(None), **options})


def handle(repeats, resumes=0):
    shared = SharedWeights(CONTEXT, 2)
    shared.publish(torch.zeros(2))
    made = RayRolloutHandle(setup(), 1, resumes, WeightsRef(shared), repeats)
    return made, shared


def test_ray_actors_seed_the_modules_from_which_environments_may_draw():
    makers = (
        lambda index: RayRolloutActor(setup(), index, 0, None),
        lambda index: RayRolloutActor(setup(), index, 1, None),
        lambda index: RayEvaluator(population(), index),
    )
    for make in makers:
        drawn = []
        with seeded_modules(0):
            for index in (0, 1, 0):
                make(index)
                drawn.append((random.random(), np.random.random()))
        assert drawn[2] == drawn[0] and not set(drawn[0]) & set(drawn[1])


def rollout(state=None):
    return RayRollout(np.zeros(0, np.uint8), ([], []), Counts(8, [], 1.0), 1, state)


def test_a_ray_actor_collects_what_a_local_actor_does():
    run = setup()
    far, near, buffer = RayRolloutActor(run, 1, 2, None), run.make_actor(1, 2), run.make_buffer(1)
    weights = run.make_learner().weights
    near.policy.weights.copy_(weights)
    kept = run.make_buffer(1)
    for env_steps in (0, 24):
        found = far.collect(weights.numpy(), 5, env_steps, with_state=True)
        counts = near.collect(buffer, env_steps)
        kept.fill(found.content)
        for name in buffer.names():
            np.testing.assert_array_equal(getattr(kept, name), getattr(buffer, name))
        assert found.counts == counts and found.version == 5
    again = RayRolloutActor(run, 1, 2, found.state).collect(weights.numpy(), 5, 48, with_state=False)
    near.collect(buffer, 48)
    np.testing.assert_array_equal(again.content, buffer.content)
    assert again.state is None


def test_a_failed_actor_that_repeats_starts_from_its_latest_state(fake_ray):
    made, shared = handle(repeats=True, resumes=4)
    made.start()
    made.send_request(0, 100)
    assert made.result(0.1) is None and fake_ray.waits == [0.1]
    fake_ray.answer("collect", RayError("gone"))
    assert made.result(0.1) is None and made.failures == 1
    # No rollout is done: it begins as the first actor did, with the same request.
    assert [args[1:] for _, args in fake_ray.made] == [(1, 4, None), (1, 4, None)]
    assert [call.args for call in fake_ray.named("collect")] == [("reference 1", 1, 100, True)] * 2
    fake_ray.answer("collect", rollout(b"state"))
    assert made.result(0.1)[0] == 0 and made.state == b"state"
    shared.publish(torch.ones(2))
    made.send_request(0, 200)
    fake_ray.answer("collect", RayError("gone"))
    assert made.result(0.1) is None
    assert fake_ray.made[-1][1][1:] == (1, 4, b"state")
    assert [call.args for call in fake_ray.named("collect")[-2:]] == [("reference 2", 2, 200, True)] * 2
    # An environment that cannot be saved begins new episodes.
    fake_ray.answer("collect", rollout("TypeError: no"))
    assert made.result(0.1) is not None
    made.send_request(0, 300)
    fake_ray.answer("collect", RayError("gone"))
    assert made.result(0.1) is None
    assert fake_ray.made[-1][1][1:] == (1, 4 + 3_000, None)


def test_a_failed_actor_that_does_not_repeat_gets_both_requests_and_new_episodes(fake_ray):
    made, _ = handle(repeats=False)
    made.load(b"saved")
    made.start()
    assert made.requested_state(made.request_state(), a_minute()) == "actor 1 waits for a free processor"
    for slot in (0, 1):
        made.send_request(slot, 10)
    fake_ray.answer("collect", rollout())
    assert made.result(0.1)[0] == 0
    made.send_request(0, 20)
    fake_ray.answer("collect", RayError("gone"))
    assert made.result(0.1) is None
    assert [args[1:] for _, args in fake_ray.made] == [(1, 0, b"saved"), (1, 1_000, None)]
    assert [call.args[2] for call in fake_ray.named("collect")] == [10, 10, 20, 10, 20]
    for _ in range(2):
        fake_ray.calls[:] = [call for call in fake_ray.calls if not call.is_ready]
        next(call for call in reversed(fake_ray.calls) if call.name == "collect")
        made.oldest_request.is_ready, made.oldest_request.result = True, RayError("gone")
        if made.failures == 2:
            with pytest.raises(WorkerError, match="actor 1 failed 3 times in a row:\ngone"):
                made.result(0.1)
        else:
            assert made.result(0.1) is None


def test_a_replaced_actor_shares_a_processor_after_a_while(fake_ray, monkeypatch):
    made, _ = handle(repeats=True)
    made.start()
    made.send_request(0, 0)
    monkeypatch.setattr(ray_cluster, "_PLACEMENT_S", -1.0)
    made.share_processor()
    assert len(fake_ray.made) == 1, "the first actor waits for its processor"
    fake_ray.answer("collect", RayError("gone"))
    assert made.result(0.1) is None
    for _ in range(2):
        made.share_processor()
    assert [options["num_cpus"] for options in fake_ray.options] == [1, 1, 0]
    assert len(fake_ray.named("collect")) == 3


@pytest.mark.parametrize("topology", ["ppo", "impala", "es"])
def test_a_cluster_without_a_free_processor_is_logged_once_for_each_actor(
    topology, fake_ray, monkeypatch, caplog
):
    """Other programs may use all processors of the cluster."""
    fake_ray.joined = True
    monkeypatch.setattr(workers, "INTERRUPTED_S", 0.05)
    made = {"ppo": RaySyncRolloutLoop, "impala": RayAsyncRolloutLoop, "es": RayPopulationLoop}[topology]
    loop = made(population() if topology == "es" else setup(joins_rollouts=True))
    loop.interrupt()
    for limit, named in ((60.0, []), (-1.0, ["actor 0"] if topology == "ppo" else ["actor 0", "actor 1"])):
        monkeypatch.setattr(ray_cluster, "_PLACEMENT_S", limit)
        for _ in range(3):
            loop._iterate(0.01)
        assert [record.getMessage() for record in caplog.records] == [
            f"{name} waits for a free processor of the Ray cluster, or its environments take long to make"
            for name in named
        ]
    loop.close()


def test_rollouts_are_queued_as_they_arrive(fake_ray):
    fake_ray.joined = True
    run = setup(total_steps=10**6, max_lag=3)
    loop = RayAsyncRolloutLoop(run)
    found = RayRolloutActor(run, 1, 0, None).collect(loop.learner.weights.numpy(), 1, 0, with_state=False)
    requests = fake_ray.named("collect")
    assert [(call.args[1], call.args[3]) for call in requests] == [(1, False)] * 4
    requests[2].is_ready, requests[2].result = True, found
    loop.advance(1, 10.0)
    assert loop.env_steps == found.counts.transitions > 20 and loop.updates > 0
    assert (loop._buffers[1][0].content == found.content).all()
    assert not loop._buffers[0][0].content.any()
    # The learner has learned from it, and asks the same actor for another rollout with the new weights.
    asked = [(call.args[1], call.args[2]) for call in fake_ray.named("collect")[4:]]
    assert asked == [(2, found.counts.transitions)]
    loop.close()
    assert len(fake_ray.killed) == 2 and fake_ray.joined


def test_an_interrupted_run_does_not_wait_for_an_actor_that_hangs(fake_ray, monkeypatch, tmp_path):
    """It is saved as it was after the last update, also if another actor has answered since."""
    fake_ray.joined = True
    monkeypatch.setattr(workers, "INTERRUPTED_S", 0.0)
    loop = RaySyncRolloutLoop(setup(joins_rollouts=True))
    weights = loop.learner.weights.clone()

    def first_answers(calls, **options):
        if calls[0].name == "collect" and calls[0] is fake_ray.named("collect")[0]:
            calls[0].is_ready, calls[0].result = True, rollout(state=b"later")
            loop.interrupt()
        return wait(calls, **options)

    wait = sys.modules["ray"].wait
    monkeypatch.setattr(sys.modules["ray"], "wait", first_answers)
    monkeypatch.setattr(loop._buffers[0], "fill", lambda content: None)
    loop.advance(1_000, 1.0)
    assert loop.updates == loop.env_steps == 0 and torch.equal(loop.learner.weights, weights)
    assert [handle.state for handle in loop._actors] == [None, None]
    loop.save(tmp_path)
    assert checkpoint.read(tmp_path).counters["actors_saved"] == [False, False]
    loop.close()
    assert len(fake_ray.killed) == 2


def test_an_interrupted_run_of_impala_does_not_wait_for_an_actor_that_hangs(fake_ray, monkeypatch, tmp_path):
    fake_ray.joined = True
    monkeypatch.setattr(workers, "INTERRUPTED_S", 0.0)
    loop = RayAsyncRolloutLoop(setup())
    for _ in range(2):
        fake_ray.answer("process", ("node", 1))
    loop.interrupt()
    requested, wait = [], sys.modules["ray"].wait

    def second_answers(calls, **options):
        saves = fake_ray.named("save")
        requested.append(len(saves))
        if len(saves) == 2:
            saves[1].is_ready, saves[1].result = True, b"PK"
        return wait(calls, **options)

    monkeypatch.setattr(sys.modules["ray"], "wait", second_answers)
    with pytest.warns(UserWarning, match="actor 0 did not answer within 0 s of the interrupt"):
        loop.save(tmp_path)
    assert checkpoint.read(tmp_path).counters["actors_saved"] == [False, True]
    assert max(fake_ray.waits) <= workers.SLICE_S
    loop.close()


def test_a_failed_actor_has_no_state_and_is_replaced_once(fake_ray):
    made, _ = handle(repeats=False)
    made.start()
    fake_ray.answer("process", ("node", 1))
    request = made.request_state()
    request.is_ready, request.result = True, RayError("gone")
    assert made.requested_state(request, a_minute()) == "actor 1 failed"
    assert made.failures == 1 and len(fake_ray.made) == 2
    made.close()


def test_an_interrupted_process_of_torchrun_raises_an_error(fake_ray, monkeypatch):
    """The other processes wait for its gradients."""
    fake_ray.joined = True
    monkeypatch.setattr(workers, "INTERRUPTED_S", 0.0)
    loop = RaySyncRolloutLoop(setup(joins_rollouts=True))
    loop._setup = dataclasses.replace(loop._setup, group=Group(1, 2, 1))
    loop.interrupt()
    with pytest.raises(WorkerTimeoutError, match="actor 0 did not answer within 0 s of the interrupt"):
        loop._iterate(1.0)
    loop._setup = dataclasses.replace(loop._setup, group=None)
    loop.close()


def population(**options):
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    made = PopulationSetup(
        algorithm=ES(ESConfig(hidden=(4,)), spec),
        maker=maker,
        spec=spec,
        seed=0,
        num_envs=7,
        total_steps=10**6,
        actors=2,
        member_batches=3,
        remote=RayCluster(None),
    )
    return dataclasses.replace(made, **options)


def test_a_ray_evaluator_evaluates_as_a_local_one():
    run = population()
    learner = run.make_learner()
    members = learner.ask(7)[2:4]
    found = RayEvaluator(run, 1).evaluate(learner.weights.numpy(), 2, pack_members(members), 11)
    weights = torch.empty(2, len(learner.weights))
    expected = PopulationEvaluator(run, 0).play(learner.weights, members, weights, 2, 11)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("size", [1, 7, 16, 33])
def test_rows_are_aligned_as_those_of_a_whole_generation(size):
    for first in range(5):
        rows = aligned_rows(first, 3, size)
        assert rows.shape == (3, size) and rows.is_contiguous()
        assert rows.data_ptr() % _ALIGNMENT == first * size * 4 % _ALIGNMENT
        rows.fill_(1.0)


def test_a_batch_of_a_failed_evaluator_goes_to_another(fake_ray):
    """Batches of 2, 2 and 3 members; the second actor is placed late, the first fails."""
    fake_ray.joined = True
    loop = RayPopulationLoop(population())
    script = iter(
        [
            lambda: fake_ray.answer("process", ("node", 1)),
            lambda: fake_ray.answer("process", ("node", 2)),
            lambda: fake_ray.answer("evaluate", RayError("gone")),
            lambda: fake_ray.answer("evaluate", (np.array([2.0, 3.0]), np.array([2, 3]))),
            lambda: fake_ray.answer("evaluate", (np.array([0.0, 1.0]), np.array([1, 1]))),
            lambda: fake_ray.answer("evaluate", (np.array([4.0, 5.0, 6.0]), np.array([4, 5, 6]))),
        ]
    )
    wait = loop._wait

    def answered(requests, seconds):
        if (loop._unplaced and not requests) or not any(call.is_ready for call in requests):
            next(script)()
        return wait(requests, seconds)

    loop._wait = answered
    told = []
    loop._learner.tell = lambda members, returns, weights: told.append((returns.tolist(), weights))
    loop.advance(1, 10.0)
    firsts = [call.args[1] for call in fake_ray.named("evaluate")]
    assert firsts == [0, 2, 0, 4], "the batch that was lost is sent again before the next one"
    assert told == [([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0], None)]
    assert loop.env_steps == 22 and loop.report()["actor_failures"] == 1
    assert len({call.args[0] for call in fake_ray.named("evaluate")}) == len(fake_ray.puts) == 1
    loop.close()
