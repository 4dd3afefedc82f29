"""The simulator of `examples/in_situ.py`: a program in Rust that writes into a replay of this process."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import parl
from parl.algos import td3
from parl.envs import EnvMaker, spec_of

pytestmark = pytest.mark.skipif(
    shutil.which("cargo") is None, reason="cargo is not installed, which compiles the simulator"
)
sys.path.append(str(Path(__file__).parents[2] / "examples"))
import in_situ  # noqa: E402

STEPS = 250
OWN = in_situ.FIELDS


@pytest.fixture(scope="module")
def program():
    return in_situ.build()


@pytest.fixture
def replay():
    made = shared(OWN)
    yield made
    made.close()


def shared(fields, **options):
    name = f"parl-test-in-situ-{os.getpid()}"
    options = {"num_envs": in_situ.ENVS, "autoreset": "next_step", "n_step": 1, "alpha": 0.0} | options
    return parl.PrioritizedReplay(4_000, fields, shared=name, gamma=0.98, **options)


def actor_and_policy(scale=3.0):
    algorithm = td3.TD3(td3.Config(hidden=(64, 64)), spec_of(EnvMaker("Pendulum-v1")(1)))
    learner, policy = algorithm.make_learner(3, "cpu"), algorithm.make_policy(0, 1, 1, 0)
    learner.weights.mul_(scale)  # with a larger scale torques differ more between states
    policy.weights.copy_(learner.weights)
    return learner.networks.actor, policy


def test_transitions_are_those_of_gymnasium(program, replay):
    actor, policy = actor_and_policy()
    simulator = in_situ.Simulator(replay, seed=1)
    simulator.send(actor, STEPS, noise=0.0)
    simulator.wait(STEPS * in_situ.ENVS)
    simulator.close()
    # Of each pendulum 200 steps and the final observation, then 49 steps, of which the last has no next row.
    assert replay.sampleable == in_situ.ENVS * (200 + 48)
    batch = replay.sample(600)
    np.testing.assert_allclose(policy.act_greedily(batch.obs), batch.action, atol=1e-4)
    assert np.ptp(batch.action) > 2.0 and np.ptp(batch.obs[:, 2]) > 4.0
    assert (batch.discount == np.float32(0.98)).all()  # also where an episode was truncated
    env = gymnasium.make("Pendulum-v1")
    env.reset(seed=0)
    for obs, action, reward, following in zip(
        batch.obs, batch.action, batch.reward, batch.next_obs, strict=True
    ):
        env.unwrapped.state = np.array([np.arctan2(obs[1], obs[0]), obs[2]])
        env.unwrapped.last_u = None
        seen, expected, *_ = env.unwrapped.step(action)
        np.testing.assert_allclose(following, seen, atol=2e-4)
        # The angle jumps from pi to -pi at the bottom.
        np.testing.assert_allclose(reward, expected, atol=2e-3)


@pytest.mark.parametrize("noise", [-1.0, 0.5])
def test_noise_is_normal_and_random_torques_are_uniform(program, replay, noise):
    actor, policy = actor_and_policy(scale=1.0)
    simulator = in_situ.Simulator(replay, seed=1)
    simulator.send(actor, STEPS, noise)
    simulator.wait(STEPS * in_situ.ENVS)
    simulator.close()
    batch = replay.sample(2_000)
    if noise < 0:
        counts, _ = np.histogram(batch.action, 4, (-2.0, 2.0))
        assert counts.sum() == 2_000 and counts.min() > 400
    else:
        difference = batch.action - policy.act_greedily(batch.obs)
        assert abs(difference.std() - noise) < 0.05 and abs(difference.mean()) < 0.05


def test_what_the_simulator_cannot_use_is_named(program):
    def fails(name, *options, data=b""):
        done = subprocess.run([program, name, *options], input=data, capture_output=True, timeout=60)
        assert done.returncode == 1
        return done.stderr.decode()

    assert "parl-none" in fails("parl-none")
    other = shared(OWN | {"obs": ((2,), "float32")})
    assert 'the replay has the fields [("obs", "<f4", 8)' in fails(other.shared)
    other.close()
    other = shared(OWN, autoreset="disabled")
    assert "autoreset = disabled, expected next_step" in fails(other.shared)
    other.close()
    own = shared(OWN)
    assert "a message of 17932 bytes is not complete" in fails(own.shared, data=b"half")
    assert "--hidden 2000 is outside 1..=1024" in fails(own.shared, "--hidden", "2000")
    assert "unknown option --speed" in fails(own.shared, "--speed", "1")
    assert "pendulum NAME" in fails(own.shared, "--seed")
    own.close()


def test_a_simulator_that_ends_is_reported(program, replay, capfd):
    simulator = in_situ.Simulator(replay, seed=0)
    simulator.process.stdin.write(b"half")
    simulator.process.stdin.close()
    with pytest.raises(SystemExit, match="the simulator has ended with status 1"):
        simulator.wait(1)
    assert "a message of 17932 bytes is not complete" in capfd.readouterr().err
