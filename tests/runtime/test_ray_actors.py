"""Actors over Ray, on a real cluster of two nodes on this machine: rows, weights, failures, checkpoints."""

import contextlib
import dataclasses
import multiprocessing
import os
import signal
import sys
import time
from pathlib import Path

import cloudpickle
import gymnasium
import numpy as np
import pytest
import torch
from ray_nodes import add_node, await_processors

from parl.errors import ConfigError, NonFiniteError, WorkerError
from parl.run import read_metrics
from parl.runtime import checkpoint
from parl.runtime import shared_counters as b
from parl.runtime.distributed.ray_actors import RayActorHandle, RowBuffer
from parl.runtime.distributed.ray_cluster import RayCluster, WeightsRef, connect
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.weights import SharedWeights
from parl.train import train

pytestmark = pytest.mark.filterwarnings("ignore:::ray")


@pytest.fixture(scope="module", autouse=True)
def _pickled_by_value():
    """The nodes can import parl, but not this file."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Fragile(gymnasium.Wrapper):
    """CartPole that writes the name of its node. One environment raises an error, one kills its process."""

    def __init__(self, folder):
        super().__init__(gymnasium.make("CartPole-v1"))
        self._folder = Path(folder)
        self._steps = 0

    def _first(self, name):
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def step(self, action):
        import ray

        self._steps += 1
        if self._steps == 1:
            (self._folder / f"node-{ray.get_runtime_context().get_node_id()}").touch()
        if self._steps == 60 and self._first("raised"):
            raise ValueError("the cart left the rails")
        if self._steps == 90 and self._first("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


def on_ray(setup, steps=8):
    pacer = dataclasses.replace(setup.pacer, num_envs=setup.num_envs * steps)
    return dataclasses.replace(setup, processes=False, pacer=pacer, remote=RayCluster(None, steps))


def run(loop, steps):
    end = time.monotonic() + 600
    while loop.env_steps < steps and time.monotonic() < end:
        loop.advance(steps, seconds=5.0)
    assert loop.env_steps >= steps


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_actors_on_two_nodes_collect_and_are_replaced_after_failures(cluster, make_setup, tmp_path):
    setup = on_ray(make_setup(env=lambda: Fragile(str(tmp_path)), actors=2, num_envs=4, total_steps=6_000))
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        first = loop.learner.weights.clone()
        while loop.report()["actor_failures"] < 2:
            run(loop, loop.env_steps + 50)
        collected = loop._counters.actor[:, b.STEPS]
        before = collected.copy()
        while (collected == before).any():  # an actor is not replaced yet
            run(loop, loop.env_steps + 50)
        loop.save(tmp_path)
        run(loop, 6_000)
        report = loop.report()
        assert report["actor_failures"] == 2
        assert len(list(tmp_path.glob("node-*"))) == 2, "one actor on each node"
        assert abs(loop.updates * 32 - 4.0 * (loop.env_steps - 100)) <= setup.pacer.band + 4.0 * 4 * 8
        assert loop.env_steps < 6_000 + 4 * 8, "at most one request of each actor above the limit"
        assert not torch.equal(first, loop.learner.weights)
        assert report["policy_lag"] > 0
        episodes, (rewards, ended) = loop.take_episodes(), loop.rewards_and_episodes()
        assert len(episodes) == ended > 20
        assert sum(value for value, _ in episodes) <= rewards == pytest.approx(loop.env_steps, abs=1)
        # No n-step return spans a failure: each is a sum of 1 to 3 rewards of 1.
        loop._replay.verify()
        batch = loop._replay.sample(5_000)
        assert {round(float(r), 4) for r in batch.reward} <= {1.0, 1.99, 2.9701}
        assert np.abs(batch.next_obs - batch.obs).max() < 1.5
    saved = checkpoint.read(tmp_path)
    assert saved.counters["actors_saved"] == [True, True]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_loses_a_node_and_gets_another(cluster, make_setup, tmp_path):
    """The actor of the lost node waits for a processor; meanwhile the others collect and are saved."""
    node = add_node(cluster)
    await_processors(3)
    loop = AsyncOffPolicyLoop(on_ray(make_setup(actors=3, num_envs=6)))
    collected = loop._counters.actor[:, b.STEPS]
    try:
        run(loop, 500)
        cluster.remove_node(node)
        await_processors(2)
        run(loop, loop.env_steps + 1_000)
        assert loop.report()["actor_failures"] == 1
        assert sorted(loop._counters.actor[:, b.FAILURES]) == [0, 0, 1]
        lost = int(loop._counters.actor[:, b.FAILURES].argmax())
        before = collected.copy()
        loop.save(tmp_path)
        run(loop, loop.env_steps + 500)
        gained = collected - before
        assert gained[lost] == 0
        assert gained.sum() >= 500
        saved = checkpoint.read(tmp_path).counters["actors_saved"]
        assert saved == [actor != lost for actor in range(3)]
        node = add_node(cluster)
        while collected[lost] == before[lost]:
            run(loop, loop.env_steps + 100)
        assert loop.report()["actor_failures"] == 1
    finally:
        loop.close()
        cluster.remove_node(node)


def collect_here(actor, requests, steps):
    """As the requests of a Ray actor, with an actor that writes into the replay itself."""
    for _ in range(requests):
        transitions = 0
        for _ in range(steps):
            transitions += actor.step(transitions).transitions


def collect_far(handle, replay, requests, steps):
    """Sends requests one after the other and writes the results; returns their number."""
    for _ in range(requests):
        handle.send_request(0, steps)
        while (result := handle.result(10.0)) is None:
            if not handle.in_flight:
                return
        handle.write(result, replay)


def assert_same_rows(far, near):
    """Both replays hold the same rows in the same slots with the same priorities."""
    assert len(far) == len(near) and far.sampleable == near.sampleable > 0
    batches = [replay.sample(2_000) for replay in (far, near)]
    for name in ("obs", "action", "reward", "next_obs", "weights", "indices"):
        np.testing.assert_array_equal(*(batch[name] for batch in batches))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_priorities_of_ray_actors_reach_their_rows_also_late_and_after_a_failure(cluster, make_setup):
    """An actor knows the TD error of a row n steps later, often with the next result or after a failure."""
    setup = make_setup(actors=1, num_envs=2, initial_priority="td", prioritized=True, alpha=1.0)
    setup = on_ray(dataclasses.replace(setup, replay_capacity=400), steps=7)
    learner = setup.make_learner()
    shared = SharedWeights(multiprocessing.get_context(), len(learner.weights))
    shared.publish(learner.weights)
    far, near = setup.make_replay(None), setup.make_replay(None)
    handle = RayActorHandle(setup, 0, 0, None, WeightsRef(shared))
    actor = setup.make_actor(0, near, 0)
    actor.policy.weights.copy_(learner.weights)
    collect_far(handle, far, 20, 7)
    collect_here(actor, 20, 7)
    assert_same_rows(far, near)
    # Rows that were drawn before more are written: of some the slot has been used again since.
    drawn = [replay.sample(300)["tickets"].copy() for replay in (far, near)]
    collect_far(handle, far, 10, 7)
    collect_here(actor, 10, 7)
    stored = [
        replay.update_priorities(tickets, np.full(300, 9.0))
        for replay, tickets in zip((far, near), drawn, strict=True)
    ]
    assert stored[0] == stored[1] and 0 < far.stale_updates == near.stale_updates < 300
    assert_same_rows(far, near)
    # The rows of a killed actor keep their priorities; numbers of rows of the next one count from 0 again.
    os.kill(handle.process()[1], signal.SIGKILL)
    collect_far(handle, far, 1, 7)
    assert handle.failures == 1
    far.end_episodes(handle.env_id)
    near.end_episodes(handle.env_id)
    collect_far(handle, far, 20, 7)
    actor = setup.make_actor(0, near, 1_000)
    actor.policy.weights.copy_(learner.weights)
    collect_here(actor, 20, 7)
    assert_same_rows(far, near)
    handle.close()


@pytest.mark.slow
def test_train_with_ray_actors(cluster, tmp_path):
    options = {"engine": "ray", "ray_address": cluster.address, "actors": 2, "num_envs": 4, "quiet": True}
    path = train(
        "dqn", "CartPole-v1", runs=str(tmp_path), total_steps=2_000, checkpoint_every=500, **options
    ).path
    last = [record for record in read_metrics(path) if "actor_failures" in record][-1]
    assert last["actor_failures"] == 0
    assert last["env_steps"] >= 2_000


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_an_actor_that_always_fails_ends_the_run(cluster, make_setup):
    def broken():
        raise ValueError("no such track")

    setup = dataclasses.replace(on_ray(make_setup()), maker=type(make_setup().maker)(broken))
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        with pytest.raises(WorkerError, match=r"(?s)failed 3 times in a row.*no such track"):
            loop.advance(1_000, seconds=500.0)


@pytest.mark.slow
def test_more_actors_than_processors_are_refused(cluster):
    with pytest.raises(ConfigError, match="actors = 5 is above the 2 processors"):
        connect(RayCluster(None, 8), 5)


def test_a_non_finite_error_ends_the_run_at_once():
    """It is not replaced: a new actor would have the same environment."""
    from ray.exceptions import RayTaskError

    cause = NonFiniteError("environment 3 returned reward nan at step 20")
    with pytest.raises(NonFiniteError, match=r"^environment 3 returned reward nan at step 20$"):
        object.__new__(RayActorHandle)._replace(RayTaskError("collect", "Traceback", cause))


def test_ray_is_refused_in_the_deterministic_schedule():
    with pytest.raises(ConfigError, match="deterministic"):
        train("dqn", "CartPole-v1", engine="ray", schedule="deterministic")


def test_a_row_buffer_copies_its_rows():
    """Environments may write into the same array in each step."""
    recorder, obs = RowBuffer(), np.zeros((2, 3))
    for step in range(3):
        obs[:] = step
        recorder.add(obs={"a": obs}, env_id=np.arange(2))
    rows = recorder.take()
    assert rows["obs"]["a"][:, 0].tolist() == [0, 0, 1, 1, 2, 2]
    assert rows["env_id"].tolist() == [0, 1] * 3
