"""The async schedule with real workers: ratio, lag, saving, failures."""

import contextlib
import dataclasses
import math
import os
import signal
import threading

import gymnasium
import numpy as np
import pytest
import torch

from parl.algos.dqn import DQN
from parl.errors import WorkerError
from parl.runtime import checkpoint
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.worker_loop import CommandedLoop

KINDS = [
    pytest.param({"processes": True}, id="processes"),
    pytest.param({"processes": False}, id="threads"),
    pytest.param({"processes": True, "learners": 2}, id="two-learners"),
    pytest.param({"processes": False, "learners": 2}, id="threads-two-learners"),
    pytest.param({"processes": False, "learners": 2, "learner_threads": True}, id="threads-alone"),
    pytest.param({"processes": True, "learners": 2, "learner_threads": True}, id="learner-threads"),
]


def segments():
    return {name for name in os.listdir("/dev/shm") if name.startswith(f"parl-{os.getpid()}-")}


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_from_start_to_end(make_setup, kind):
    setup = make_setup(actors=2, total_steps=2_000, **kind)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        assert not segments(), "the name is removed when all processes have attached"
        first = loop.learner.weights.clone()
        for steps in (700, 1_400, 2_000):
            loop.advance(steps, seconds=math.inf)
            distance = abs(loop.updates * 32 - 4.0 * (loop.env_steps - 100))
            # The actors continue meanwhile: at most one vector step each beyond the band.
            assert distance <= setup.pacer.band + 4.0 * setup.num_envs
        report = loop.report()
        assert report["replay_ratio"] == pytest.approx(4.0, rel=0.1)
        assert report["policy_lag"] >= 0.0
        assert 0.0 <= report["actors_wait"] <= 1.0
        assert loop.updates > 200
        assert not torch.equal(first, loop.learner.weights)
        assert loop._shared_weights.version == loop.updates + 1
        episodes = loop.take_episodes()
        assert sum(length for _, length in episodes) <= loop.env_steps
        assert all(value == length for value, length in episodes)
        assert len(episodes) > 20
        loop._replay.verify()
    loop.close()
    assert not segments()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith(("actor", "learner"))]


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_saved_midway_and_resumed(make_setup, tmp_path, kind):
    setup = make_setup(actors=2, **kind)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        loop.advance(1_000, seconds=math.inf)
        rows = len(loop._replay)
        loop.save(tmp_path)
        weights, updates = loop.learner.weights.clone(), loop.updates
        loop.advance(loop.env_steps + 500, seconds=math.inf)
        assert loop.updates > updates, "the run goes on after a checkpoint"
    saved = checkpoint.read(tmp_path)
    assert saved.counters["updates"] == updates
    with contextlib.closing(AsyncOffPolicyLoop(setup, saved)) as resumed:
        assert resumed.updates == updates
        assert len(resumed._replay) >= rows
        assert resumed.env_steps >= 1_000
        resumed.advance(resumed.env_steps + 500, seconds=math.inf)
        assert resumed.updates > updates
        assert not torch.equal(weights, resumed.learner.weights)
        assert resumed.report()["replay_ratio"] == pytest.approx(4.0, rel=0.15)


@pytest.mark.parametrize("threads", [False, True])
def test_two_learners_step_together(make_setup, tmp_path, threads):
    """A checkpoint is taken after the same update of both."""
    setup = make_setup(learners=2, learner_threads=threads)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        loop.advance(1_500, seconds=math.inf)
        loop.save(tmp_path)
        learners = loop._counters.learner[:, 0]
        assert learners[0] == learners[1] == loop.updates


class Falls(gymnasium.Wrapper):
    """CartPole that raises at its 200th step."""

    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 200:
            raise ValueError("the cart left the rails")
        return super().step(action)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failing_actor_ends_the_run_with_its_traceback(make_setup, kind):
    setup = make_setup(env=lambda: Falls(gymnasium.make("CartPole-v1")), actors=2, **kind)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        with pytest.raises(WorkerError, match=r"(?s)actor \d failed:.*the cart left the rails"):
            loop.advance(10**9, seconds=math.inf)
    assert not segments()


class FailingDQN(DQN):
    """DQN whose learners fail at their 20th update, except the one of the driver."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.driver = os.getpid()  # an attribute of the class would be set anew in a process of a forkserver

    def make_learner(self, seed, device):
        learner = super().make_learner(seed, device)
        compute, calls = learner.compute, []

        def fail_once(batch):
            calls.append(1)
            drives = threading.current_thread() is threading.main_thread() and os.getpid() == self.driver
            if len(calls) == 20 and not drives:
                raise ArithmeticError("a gradient too far")
            return compute(batch)

        learner.compute = fail_once
        return learner


@pytest.mark.parametrize("threads", [False, True])
def test_a_failing_learner_ends_the_run_with_its_traceback(make_setup, threads):
    setup = make_setup(actors=1, learners=2, learner_threads=threads)
    setup = dataclasses.replace(setup, algorithm=FailingDQN(setup.algorithm.config, setup.spec))
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        with pytest.raises(WorkerError, match=r"(?s)learner 1 failed:.*a gradient too far"):
            loop.advance(10**9, seconds=math.inf)
    assert not segments()


def test_an_actor_that_ends_when_told_to_is_no_failure(make_setup, monkeypatch):
    """Else the learners would be killed, and processes of torchrun would not be told of the end."""
    stop = CommandedLoop._stop_workers

    def stop_and_wait(loop, workers):
        stop(loop, workers)
        for actor in loop._actors:
            actor.runner.join()

    monkeypatch.setattr(CommandedLoop, "_stop_workers", stop_and_wait)
    with contextlib.closing(AsyncOffPolicyLoop(make_setup(actors=1, learners=2))) as loop:
        loop.advance(500, seconds=math.inf)
        learner = next(worker.runner for worker in loop._workers.workers if worker.name == "learner 1")
    assert learner.exitcode == 0


@pytest.mark.parametrize("victim", ["actor", "learner"])
def test_a_killed_worker_ends_the_run(make_setup, victim):
    with contextlib.closing(AsyncOffPolicyLoop(make_setup(actors=2, learners=2))) as loop:
        loop.advance(500, seconds=math.inf)
        worker = next(w for w in loop._workers.workers if w.name.startswith(victim))
        pids = [w.runner.pid for w in loop._workers.workers]
        os.kill(worker.runner.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=rf"{victim} \d was killed by signal 9"):
            loop.advance(10**9, seconds=math.inf)
    assert not segments()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_an_environment_that_cannot_be_made_fails_at_the_start(make_setup):
    made = []

    def env():
        made.append(1)
        if len(made) > 3:
            raise RuntimeError("no such display")
        return gymnasium.make("CartPole-v1")

    setup = make_setup(env=env, actors=1)
    with pytest.raises(WorkerError, match="no such display"):
        AsyncOffPolicyLoop(setup)
    assert not segments()


def test_environments_with_same_step_autoreset(make_setup):
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    def env(count):
        make = lambda: gymnasium.make("CartPole-v1", max_episode_steps=12)  # noqa: E731
        return SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)

    setup = make_setup(env=env, processes=False)
    with contextlib.closing(AsyncOffPolicyLoop(setup)) as loop:
        loop.advance(1_000, seconds=math.inf)
        batch = loop._replay.sample(4_000)
        assert batch.truncated.any()
        # Next observations are final ones, not those after a reset: the pole never jumps.
        assert np.abs(batch.next_obs - batch.obs).max() < 1.5
