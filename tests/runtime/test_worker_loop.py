"""How long the driver waits for the states of its actors, with fake connections."""

from types import SimpleNamespace

import pytest

from parl.errors import WorkerError
from parl.runtime import workers
from parl.runtime.worker_loop import WorkerLoop
from parl.runtime.workers import Worker


class Driver(WorkerLoop):
    def __init__(self, *connections):
        self._actors = [Worker(f"actor {index}", None, each) for index, each in enumerate(connections)]
        self._interrupted = False

    def _iterate(self, seconds):
        raise NotImplementedError

    def _stop_workers(self, workers):
        raise NotImplementedError


class Rollouts:
    """Connection to an actor that finishes two rollouts before it answers; each poll of it takes a minute."""

    def __init__(self, clock, minutes):
        self._clock, self._minutes = clock, minutes
        self._messages = [("rollout", 0), ("rollout", 1), ("state", b"PK")]

    def send(self, message):
        assert message == "state"

    def poll(self, seconds):
        self._clock.now += 60.0
        self._minutes -= 1
        return self._minutes <= 0

    def recv(self):
        return "part", self._messages.pop(0)


@pytest.fixture
def clock(monkeypatch):
    made = SimpleNamespace(now=0.0)
    monkeypatch.setattr(workers, "time", SimpleNamespace(monotonic=lambda: made.now))
    return made


def test_a_checkpoint_waits_for_actors_whose_rollouts_take_minutes(clock):
    loop, others = Driver(Rollouts(clock, 5), Rollouts(clock, 8)), []
    assert loop._ask_for_states(lambda index, value: others.append((index, value))) == [b"PK"] * 2
    assert others == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_a_checkpoint_of_an_interrupted_run_does_not(clock):
    loop = Driver(Rollouts(clock, 5))
    loop._interrupted = True
    with pytest.warns(UserWarning, match="actor 0 did not answer within 3 s of the interrupt"):
        assert loop._actor_states() == [None]


def test_an_actor_that_is_killed_while_a_checkpoint_waits_for_it_is_noticed_at_once(clock):
    def recv():
        raise EOFError

    connection = Rollouts(clock, 1)
    connection.recv = recv
    loop = Driver(connection)
    loop._actors[0].runner = SimpleNamespace(exitcode=-9, join=lambda seconds: None)
    with pytest.raises(WorkerError, match=r"actor 0 was killed by signal 9 \(SIGKILL\)"):
        loop._actor_states()
    assert clock.now == 60.0
