"""Rows of rollouts with both autoreset modes; runs of the sync loop repeat and resume bit for bit."""

import functools

import pytest
import torch
from counting_env import CountingEnv
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rollout_setup import rollout_setup

from parl.algos.ppo import PPO, Config
from parl.envs import EnvMaker, spec_of
from parl.runtime import checkpoint
from parl.runtime.on_policy.rollout import RolloutActor, RolloutBuffer
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.train.registry import make_algorithm, module_of

pytestmark = pytest.mark.usefixtures("one_thread")


def collected(mode, steps=10):
    """Rows of an environment that terminates after 3 steps and of one that is truncated after 4."""
    makers = [lambda: CountingEnv(3, reward=None), lambda: CountingEnv(4, True, reward=None)]
    env = SyncVectorEnv(makers, autoreset_mode=mode)
    spec = spec_of(env)
    policy = PPO(Config(), spec).make_policy(0, 1, 2, 0)
    actor = RolloutActor(env, spec, policy, 0)
    buffer = RolloutBuffer(spec, steps, 2)
    transitions, finished, _ = actor.collect(buffer, 0)
    return buffer.tensors(), transitions, finished


def test_rows_with_next_step_autoreset():
    rows, transitions, finished = collected(AutoresetMode.NEXT_STEP)
    assert rows.obs[:, 0, 0].tolist() == [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]
    assert rows.obs[:, 1, 0].tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0]
    assert rows.valid[:, 0].tolist() == [True] * 3 + [False] + [True] * 3 + [False] + [True] * 2
    assert rows.valid[:, 1].tolist() == [True] * 4 + [False] + [True] * 4 + [False]
    assert rows.terminated.sum(0).tolist() == [2, 0]
    assert rows.ended.sum(0).tolist() == [2, 2]
    assert transitions == int(rows.valid.sum()) == 16
    assert finished == [(6.0, 3), (10.0, 4), (6.0, 3), (10.0, 4)]
    assert len(rows.final_obs) == 0


def test_rows_with_same_step_autoreset():
    rows, transitions, _ = collected(AutoresetMode.SAME_STEP)
    assert rows.obs[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]
    assert rows.valid.all() and transitions == 20
    # Only truncated rows need a final observation: nothing follows a termination.
    assert rows.final_at.tolist() == [[3, 1], [7, 1]]
    assert rows.final_obs[:, 0].tolist() == [4.0, 4.0]


def test_both_autoreset_modes_give_the_same_advantages():
    """For the valid rows: what is learned does not depend on the autoreset mode."""
    found = {}
    for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP):
        rows, _, _ = collected(mode, steps=40)
        learner = PPO(Config(), spec_of(EnvMaker(lambda: CountingEnv(4, True))(1))).make_learner(0, "cpu")
        value, following = learner.values(rows)
        from parl.ops.advantages import gae

        advantage = gae(rows.reward, value, following, rows.terminated, rows.ended, 0.9, 0.8)
        found[mode] = [advantage[:, n][rows.valid[:, n]][:20] for n in range(2)]
    for one, two in zip(*found.values(), strict=True):
        torch.testing.assert_close(one, two)


def setup(env="CartPole-v1", seed=0, total=100_000, algorithm="ppo", **options):
    sizes = {} if algorithm == "a2c" else {"minibatch_size": 32, "epochs": 2}
    config = module_of(algorithm).Config(**{"rollout_steps": 16, "hidden": (16,), **sizes, **options})
    make = functools.partial(make_algorithm, algorithm)
    return rollout_setup(make, config, env, seed=seed, num_envs=4, total_steps=total, actors=1)


def run(setup, steps, saved=None):
    loop = SyncRolloutLoop(setup, saved)
    loop.advance(steps, 0.0)
    return loop


@pytest.mark.parametrize(
    ("algorithm", "env"),
    [("ppo", "CartPole-v1"), ("ppo", "Pendulum-v1"), ("a2c", "CartPole-v1"), ("pqn", "CartPole-v1")],
)
def test_same_seed_same_bits(algorithm, env):
    options = {"algorithm": algorithm, "normalize_observations": True}
    one, two = (run(setup(env, **options), 2_000) for _ in range(2))
    assert one.updates == two.updates > 20
    assert torch.equal(one.learner.weights, two.learner.weights)
    assert one.take_episodes() == two.take_episodes()
    other = run(setup(env, seed=1, **options), 2_000)
    assert not torch.equal(one.learner.weights, other.learner.weights)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"normalize_observations": True},
        {"algorithm": "a2c", "window": 48, "env_groups": 2, "advantage": "vtrace"},
        {"algorithm": "pqn"},
        {"lstm": 8},
    ],
    ids=["ppo", "ppo-normalized", "a2c-window", "pqn", "ppo-lstm"],
)
def test_a_resumed_run_repeats_the_uninterrupted_one(tmp_path, options):
    parts = setup(**options)
    whole = run(parts, 700)
    whole.save(tmp_path)
    whole.take_episodes()
    whole.advance(2_000, 0.0)
    resumed = SyncRolloutLoop(parts, checkpoint.read(tmp_path))
    resumed.advance(2_000, 0.0)
    assert (resumed.updates, resumed.env_steps) == (whole.updates, whole.env_steps)
    assert torch.equal(resumed.learner.weights, whole.learner.weights)
    assert resumed.take_episodes() == whole.take_episodes()


def test_a_run_ends_at_its_limit_and_at_an_interrupt():
    loop = run(setup(total=300), 10_000)
    assert 300 <= loop.env_steps < 300 + 16 * 4
    report = loop.report()
    assert 0 < report["collecting"] < 1 and 0 < report["learning"] < 1
    other = SyncRolloutLoop(setup())
    other.interrupt()
    other.advance(10_000, 0.0)
    assert other.env_steps == 0
