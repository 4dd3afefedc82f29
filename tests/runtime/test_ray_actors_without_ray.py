"""The driver's side of Ray actors, with a fake Ray that answers when the test says so."""

import dataclasses
import multiprocessing
import random
import signal
import socket
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fake_ray import Call, RayError
from fakes import ScriptedCounters

from parl.errors import ConfigError, NonFiniteError, WorkerError
from parl.runtime import shared_counters as b
from parl.runtime.distributed import ray_actors, ray_cluster
from parl.runtime.distributed.group import Group
from parl.runtime.distributed.ray_actors import (
    RayActor,
    RayActorHandle,
    RolloutResult,
    RowBuffer,
    run_ray_actor,
)
from parl.runtime.distributed.ray_cluster import RayCluster, WeightsRef, cluster_cpus, connect, disconnect
from parl.runtime.env_actor import Counts
from parl.runtime.off_policy.pacer import Pacer
from parl.runtime.seeds import seeded_modules
from parl.runtime.shared_counters import SharedCounters
from parl.runtime.weights import SharedWeights

CONTEXT = multiprocessing.get_context()


@pytest.fixture
def ray(fake_ray):
    return fake_ray


def test_a_cluster_is_joined_once_and_left_if_joined_here(ray):
    assert connect(RayCluster("there", 4), 2) is True
    assert ray.init_options == [{"address": "there", "include_dashboard": False, "log_to_driver": False}]
    assert connect(RayCluster("there", 4), 2) is False and len(ray.init_options) == 1
    assert connect(RayCluster(ray.address, 4), 2) is False
    with pytest.warns(UserWarning, match=f"'192.0.2.2:6379' has no effect: .* cluster at {ray.address}"):
        assert connect(RayCluster("192.0.2.2:6379", 4), 2) is False
    with pytest.raises(ConfigError, match="actors = 3 is above the 2 processors"):
        connect(RayCluster("there", 4), 3)
    with pytest.raises(ConfigError, match="actors = 4 is above the 2 processors"):
        connect(RayCluster("there", 4), 2, processes=2)
    assert ray.joined, "a connection made before this call is kept"
    assert cluster_cpus(RayCluster("there", 4)) == 2 and ray.joined
    disconnect()
    assert not ray.joined
    assert cluster_cpus(RayCluster("there", 4)) == 2 and not ray.joined
    with pytest.raises(ConfigError, match="actors = 3 is above"):
        connect(RayCluster("there", 4), 3)
    assert not ray.joined
    ray.processors = 0
    assert cluster_cpus(RayCluster(None, 4)) == 0
    with pytest.raises(ConfigError, match="actors = 1 is above the 0 processors"):
        connect(RayCluster(None, 4), 1)
    ray.breaks = True
    with pytest.raises(ConfigError, match="no Ray cluster answers at 'there': no answer"):
        connect(RayCluster("there", 4), 0)


def test_without_an_address_no_cluster_of_another_process_is_joined(ray, monkeypatch):
    """Ray would join the cluster that any process of this machine started last."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    for variable, address in ((None, "local"), ("", "local"), ("there", "there")):
        if variable is not None:
            monkeypatch.setenv("RAY_ADDRESS", variable)
        assert cluster_cpus(RayCluster(None)) == 2
        assert ray.init_options.pop()["address"] == address
    assert cluster_cpus(RayCluster("here")) == 2
    assert ray.init_options.pop()["address"] == "here"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "192.0.2.1"])
def test_an_address_at_which_nothing_listens_is_refused_at_once(ray, monkeypatch, host):
    def connect_to(address, timeout):
        asked.append(address)
        raise ConnectionRefusedError("refused")

    asked = []
    monkeypatch.setattr(socket, "create_connection", connect_to)
    with pytest.raises(ConfigError, match=f"no Ray cluster answers at '{host}:6379': refused"):
        connect(RayCluster(f"{host}:6379"), 1)
    assert asked == [("192.0.2.1", 6379)] and not ray.init_options


def test_addresses_without_host_and_port_are_left_to_ray(ray, monkeypatch):
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: pytest.fail("connected"))
    for address in ("auto", "ray://192.0.2.1:10001"):
        assert cluster_cpus(RayCluster(address)) == 2
        assert ray.init_options.pop()["address"] == address


def test_a_run_that_receives_sigterm_is_still_saved(ray, monkeypatch):
    """Ray replaces the handler of SIGTERM by one that ends the process."""
    before = signal.getsignal(signal.SIGTERM)
    init = ray.init
    monkeypatch.setattr(
        sys.modules["ray"], "init", lambda **options: (init(**options), signal.signal(signal.SIGTERM, print))
    )
    try:
        assert connect(RayCluster("there", 4), 2)
        assert signal.getsignal(signal.SIGTERM) is before
    finally:
        signal.signal(signal.SIGTERM, before)


def test_weights_are_put_once_per_version(ray):
    snapshot = SharedWeights(CONTEXT, 2)
    published = WeightsRef(snapshot)
    snapshot.publish(torch.tensor([1.0, 2.0]))
    assert published.newest() == published.newest() == ("reference 1", 1)
    assert published.version == 1
    snapshot.publish(torch.tensor([3.0, 4.0]))
    assert published.version == 2
    assert published.newest() == ("reference 2", 2)
    assert [put.tolist() for put in ray.puts] == [[1.0, 2.0], [3.0, 4.0]]


def make_handle(ray, make_setup, generation=0, state=None, actor_priorities=False, index=1):
    setup = make_setup(actors=2, num_envs=5)
    algorithm = SimpleNamespace(actor_priorities=actor_priorities)
    setup = dataclasses.replace(setup, algorithm=algorithm, remote=RayCluster(None, 3))
    snapshot = SharedWeights(CONTEXT, 2)
    snapshot.publish(torch.zeros(2))
    return RayActorHandle(setup, index, generation, state, WeightsRef(snapshot))


def test_an_actor_waits_until_it_is_placed(ray, make_setup):
    handle = make_handle(ray, make_setup, generation=2, state=b"state")
    assert handle.env_id.tolist() == [2, 3, 4]
    assert ray.options == [{"num_cpus": 1, "max_restarts": 0, "scheduling_strategy": "SPREAD"}]
    assert ray.made == [(RayActor, (handle._setup, 1, 2, b"state"))]
    assert not handle.is_placed(0.5) and ray.waits == [0.5]
    assert handle.save() == b"state" and ray.waits == [0.5, 0.0], "the state that it will start with"
    ray.answer("process", ("node", 1))
    assert handle.is_placed(0.5) and handle.is_placed(0.5) and len(ray.waits) == 3
    handle._ray_actor.save = SimpleNamespace(remote=lambda: Call("save", ()))
    assert handle.save() is None


def test_an_actor_that_waits_for_a_processor_for_too_long_is_logged_at_each_start(
    ray, make_setup, monkeypatch, caplog
):
    handle = make_handle(ray, make_setup)
    ray.calls.clear()
    handle.start()
    said = ["actor 1 waits for a free processor of the Ray cluster, or its environments take long to make"]

    def logged():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    assert not handle.is_placed(0.0) and logged() == []
    monkeypatch.setattr(ray_cluster, "_PLACEMENT_S", -1.0)
    assert [handle.is_placed(0.0) for _ in range(3)] == [False] * 3 and logged() == said
    handle.start()
    assert not handle.is_placed(0.0) and logged() == said
    ray.calls.clear()
    handle.start()
    ray.answer("process", ("node", 1))
    assert handle.is_placed(0.0) and logged() == []


def test_up_to_two_requests_are_in_flight(ray, make_setup):
    handle = make_handle(ray, make_setup)
    assert (
        handle.in_flight == 0 and handle.may_send_request() and handle.result(0.1) is None and not ray.waits
    )
    handle.send_request(40, 3)
    assert handle.in_flight == 9 and handle.may_send_request()
    handle.send_request(49, 2)
    assert handle.in_flight == 15 and not handle.may_send_request()
    assert [call.args for call in ray.named("collect")] == [
        ("reference 1", 1, 40, 3),
        ("reference 1", 1, 49, 2),
    ]
    assert handle.result(0.25) is None and ray.waits == [0.25] and handle.in_flight == 15
    ray.answer("collect", "rows")
    assert handle.result(0.25) == "rows" and handle.in_flight == 6 and handle.may_send_request()


def test_a_failed_actor_is_replaced_until_it_fails_3_times_in_a_row(ray, make_setup):
    handle = make_handle(ray, make_setup, generation=1, state=b"state")
    for failures in (1, 2):
        handle.send_request(0, 3)
        handle.send_request(0, 3)
        ray.answer("collect", RayError("gone"))
        assert handle.result(0.1) is None
        assert handle.failures == failures == len(ray.killed) and handle.in_flight == 0
        assert ray.made[-1][1][1:] == (1, 1 + 1_000 * failures, None)
        ray.calls.clear()
    handle.send_request(0, 3)
    ray.answer("collect", "rows")
    assert handle.result(0.1) == "rows", "an answer resets the count of failures"
    for _ in range(2):
        ray.calls.clear()
        handle.send_request(0, 3)
        ray.answer("collect", RayError("gone"))
        assert handle.result(0.1) is None
    assert handle.failures == 4
    ray.calls.clear()
    handle.send_request(0, 3)
    ray.answer("collect", RayError("gone"))
    with pytest.raises(WorkerError, match="actor 1 failed 3 times in a row:\ngone"):
        handle.result(0.1)


def test_a_non_finite_error_ends_the_run_and_other_errors_replace_the_actor(ray, make_setup):
    handle = make_handle(ray, make_setup)
    error = RayError("task")
    error.cause = NonFiniteError("a reward is NaN")
    ray.answer("process", error)
    with pytest.raises(NonFiniteError, match="a reward is NaN"):
        handle.is_placed(0.1)
    handle = make_handle(ray, make_setup)
    ray.calls.clear()
    handle._state = b"state"
    handle.start()
    ray.answer("process", RayError("no memory"))
    assert not handle.is_placed(0.1) and handle.failures == 1 and handle._state is None


class Replay:
    """A fake replay that keeps its rows; tickets count from 1,000."""

    def __init__(self):
        self.rows, self.priorities, self.ended, self._next = [], [], [], 1_000

    def add(self, **rows):
        self.rows.append(rows)
        count = len(rows["env_id"])
        self._next += count
        return np.arange(self._next - count, self._next, dtype=np.uint64)

    def update_priorities(self, tickets, priorities):
        self.priorities.append((tickets.tolist(), priorities.tolist()))

    def end_episodes(self, env_id):
        self.ended.append(env_id.tolist())


def answer(rows=3, priorities=None, version=1, transitions=None, finished=(), reward=0.5):
    columns = {"env_id": np.arange(rows), "reward": np.ones(rows)}
    count = rows if transitions is None else transitions
    return RolloutResult(columns, Counts(count, list(finished), reward), version, priorities)


def test_priorities_reach_the_tickets_of_their_rows(ray, make_setup, monkeypatch):
    monkeypatch.setattr(ray_actors, "_TICKETS_MAX", 4)
    handle, replay = make_handle(ray, make_setup, actor_priorities=True), Replay()
    handle.write(answer(), replay)
    assert not replay.priorities
    # Rows are numbered over all answers: 0..2, then 3..5. The tickets of the last four are kept.
    handle.write(answer(priorities=(np.array([0, 2, 4]), np.array([0.5, 1.5, 2.5]))), replay)
    assert replay.priorities == [([1_000, 1_002, 1_004], [0.5, 1.5, 2.5])]
    handle.write(answer(rows=1, priorities=(np.array([1, 2, 6]), np.array([1.0, 2.0, 3.0]))), replay)
    assert replay.priorities[1] == ([1_002, 1_006], [2.0, 3.0])
    assert handle._tickets.tolist() == [1_003, 1_004, 1_005, 1_006] and handle._first_ticket == 3
    plain = make_handle(ray, make_setup)
    plain.write(answer(priorities=(np.array([0]), np.array([0.5]))), replay)
    assert len(replay.priorities) == 2 and len(replay.rows) == 4


def test_a_row_buffer_numbers_rows_in_place_of_tickets():
    recorder = RowBuffer()
    assert recorder.take_priorities() is None
    obs = np.zeros((2, 1))
    assert recorder.add(obs={"a": obs}, env_id=np.arange(2)).tolist() == [0, 1]
    obs += 1
    assert recorder.add(obs={"a": obs}, env_id=np.arange(2)).tolist() == [2, 3]
    recorder.update_priorities([0, 1], [0.5, 1.5])
    recorder.update_priorities([3], [2.5])
    numbers, priorities = recorder.take_priorities()
    assert numbers.tolist() == [0, 1, 3] and priorities.tolist() == [0.5, 1.5, 2.5]
    assert recorder.take_priorities() is None
    rows = recorder.take()
    assert rows["obs"]["a"].ravel().tolist() == [0.0, 0.0, 1.0, 1.0]
    assert rows["env_id"].tolist() == [0, 1, 0, 1]
    assert recorder.add(obs=obs, env_id=np.arange(2)).tolist() == [4, 5]
    assert len(recorder.take()["obs"]) == 2


def test_a_ray_actor_seeds_the_modules_from_which_environments_may_draw(make_setup):
    drawn = []
    with seeded_modules(0):
        for index, resumes in ((0, 0), (1, 0), (0, 1), (0, 0)):
            RayActor(make_setup(actors=2, num_envs=4), index, resumes, None)
            drawn.append((random.random(), np.random.random()))
    assert drawn[3] == drawn[0] and len({value for pair in drawn[:3] for value in pair}) == 6


def test_a_ray_actor_steps_and_returns_rows(make_setup):
    host = RayActor(make_setup(actors=2, num_envs=5), 1, 0, None)
    weights = host._actor.policy.weights.clone() + 1
    told, step = [], host._actor.step
    host._actor.step = lambda env_steps: told.append(env_steps) or step(env_steps)
    first = host.collect(weights.numpy(), 7, 100, 4)
    assert told == [100, 103, 106, 109] and first.counts.transitions == 12 and first.version == 7
    assert len(first.rows["env_id"]) == 12 and first.rows["env_id"][:3].tolist() == [2, 3, 4]
    assert first.counts.reward == 12.0 and first.priorities is None
    assert torch.equal(host._actor.policy.weights, weights)
    second = host.collect(weights.numpy(), 8, 112, 40)
    assert second.counts.reward == second.counts.transitions and second.counts.finished
    assert 100 < second.counts.transitions < 120, "rows that only reset are not transitions"
    state = host.save()
    again = RayActor(make_setup(actors=2, num_envs=5), 1, 0, state)
    one, two = (each.collect(weights.numpy(), 9, 200, 5) for each in (host, again))
    np.testing.assert_array_equal(one.rows["obs"], two.rows["obs"])

    told.clear()
    grouped = dataclasses.replace(make_setup(actors=2, num_envs=5), group=Group(0, 2, 0))
    host = RayActor(grouped, 1, 0, None)
    step = host._actor.step
    host._actor.step = lambda env_steps: told.append(env_steps) or step(env_steps)
    host.collect(weights.numpy(), 7, 100, 3)
    assert told == [200, 206, 212], "steps of both processes of torchrun"

    def refuses():
        raise ValueError("not me")

    host._actor.save = refuses
    assert host.save() == "ValueError: not me"


def test_a_thread_sends_requests_writes_rows_and_counts(ray, make_setup, monkeypatch):
    """Each pass of the loop reads the command up to three times."""
    pacer = Pacer(2.0, 8, 5, 100, 1_000)
    setup = make_setup(actors=2, num_envs=5)
    setup = dataclasses.replace(
        setup, pacer=pacer, remote=RayCluster(None, 4), algorithm=SimpleNamespace(actor_priorities=False)
    )
    snapshot = SharedWeights(CONTEXT, 2)
    snapshot.publish(torch.zeros(2))
    published, replay, counters = WeightsRef(snapshot), Replay(), SharedCounters(CONTEXT, 2, 1)
    ours, theirs = multiprocessing.Pipe()
    row = counters.actor[1]
    ray.joined = True

    def after(action, command):
        def look():
            action()
            return command

        return look

    def answered(**options):
        def act():
            ray.answer("collect", answer(12, **options))
            snapshot.publish(torch.zeros(2))

        return act

    def ask_for_state():
        ours.send("state")

    run, stop = [b.RUN] * 3, [b.STOP]
    commands = [
        b.RUN,
        b.RUN,  # not placed yet
        after(lambda: ray.answer("process", ("node", 1)), b.RUN),
        b.RUN,
        b.RUN,  # sends a request
        *run,  # sends another request
        after(answered(transitions=11, finished=[(3.0, 3)]), b.RUN),
        b.RUN,
        b.RUN,  # receives
        after(lambda: ray.answer("collect", RayError("gone")), b.PARK),
        b.PARK,
        b.PARK,  # receives the failure before it parks
        after(ask_for_state, b.PARK),
        b.PARK,  # parked: sends its state
        *stop,
    ]
    run_ray_actor(theirs, setup, 1, ScriptedCounters(counters, *commands), published, replay, 0, b"state")
    assert ours.recv() == ("ready", None)
    assert ours.recv() == ("part", ("state", None)), "a replaced actor has no state yet"
    asked = ray.named("collect")
    # The second request counts the 12 transitions that the first may bring.
    assert [call.args[1:] for call in asked] == [(1, 0, 4), (1, 12, 4)]
    assert row[b.STEPS] == 11 and row[b.VECTOR_STEPS] == 4 and row[b.LAG_SUM] == 4
    assert counters.rewards.tolist() == [0.0, 0.5] and counters.take_episodes() == [(3.0, 3)]
    assert row[b.FAILURES] == 1 and replay.ended == [[2, 3, 4]] and row[b.IN_FLIGHT] == 0
    assert len(ray.killed) == 2 and ray.waits == [0.1, 0.1, 0.1, 0.1, 0.0]


@pytest.mark.parametrize("processes", [1, 3])
@pytest.mark.parametrize(("collected", "steps"), [(940, 4), (981, 4), (984, 4), (986, 3), (999, 1)])
def test_requests_do_not_exceed_the_steps_left(ray, make_setup, collected, steps, processes):
    pacer = Pacer(2.0, 8, 5, 100, 1_000)
    setup = make_setup(actors=2, num_envs=5)
    group = None if processes == 1 else Group(0, processes, 0)
    setup = dataclasses.replace(setup, pacer=pacer, remote=RayCluster(None, 4), group=group)
    snapshot = SharedWeights(CONTEXT, 2)
    counters = SharedCounters(CONTEXT, 2, 1)
    counters.actor[0, b.STEPS] = collected
    counters.learner[0, b.UPDATES] = 10**6
    _, theirs = multiprocessing.Pipe()
    replay = Replay()
    answer_call = ray.answer

    def begin():
        answer_call("process", ("node", 1))
        return b.RUN

    commands = [begin, b.RUN, b.RUN, b.STOP]
    run_ray_actor(
        theirs, setup, 0, ScriptedCounters(counters, *commands), WeightsRef(snapshot), replay, 1, None
    )
    # RayActor.collect turns the steps of this process into those of all processes of torchrun.
    assert [call.args[2:] for call in ray.named("collect")] == [(collected, steps)]
    assert replay.ended == [[0, 1]], "a resumed actor without a state ends its episodes"
    assert not ray.killed, "the cluster is already disconnected"


def test_a_thread_waits_for_the_learners(ray, make_setup, monkeypatch):
    slept = []
    monkeypatch.setattr(ray_actors.time, "sleep", slept.append)
    ticks = iter(range(0, 10**9, 250))
    monkeypatch.setattr(ray_actors.time, "perf_counter_ns", lambda: next(ticks))
    setup = make_setup(actors=2, num_envs=5)
    pacer = Pacer(2.0, 8, 5, 100, 1_000)
    setup = dataclasses.replace(setup, pacer=pacer, remote=RayCluster(None, 4))
    counters = SharedCounters(CONTEXT, 2, 1)
    counters.actor[0, b.STEPS] = 500
    _, theirs = multiprocessing.Pipe()

    def begin():
        ray.answer("process", ("node", 1))
        return b.RUN

    commands = [begin, b.RUN, b.RUN, b.RUN, b.RUN, b.RUN, b.STOP]
    run_ray_actor(
        theirs,
        setup,
        1,
        ScriptedCounters(counters, *commands),
        WeightsRef(SharedWeights(CONTEXT, 2)),
        Replay(),
        1,
        b"state",
    )
    assert slept == [5e-4, 5e-4] and counters.actor[1, b.ACTOR_WAIT_NS] == 500
    assert not ray.named("collect")
