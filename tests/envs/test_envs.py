"""Tests of `EnvMaker`, `spec_of` and `EpisodeTracker`."""

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parl.envs import EnvMaker, EpisodeTracker, spec_of, usable_cores
from parl.errors import ConfigError


def test_an_id_uses_its_own_vector_environment():
    env = EnvMaker("CartPole-v1")(3)
    assert type(env).__name__ == "CartPoleVectorEnv"
    spec = spec_of(env)
    assert (spec.observation_shape, spec.observation_dtype, spec.num_actions) == ((4,), "float32", 2)
    assert spec.autoreset == "next_step"


def test_an_id_without_one_is_vectorized_and_float64_becomes_float32():
    env = EnvMaker("MountainCar-v0", {"vectorization_mode": "sync"})(2)
    assert isinstance(env, SyncVectorEnv)
    assert spec_of(env).observation_dtype == "float32"


def test_float16_becomes_float32_too():
    """A replay has float16 embeddings in place of images; observations must not look like them."""

    class Half(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float16)
        action_space = gymnasium.spaces.Discrete(2)

    assert spec_of(EnvMaker(Half)(2)).observation_dtype == "float32"


def test_functions_may_make_single_or_vector_environments():
    single = EnvMaker(lambda: gymnasium.make("CartPole-v1"))(2)
    assert single.num_envs == 2
    vector = EnvMaker(
        lambda n: SyncVectorEnv(
            [lambda: gymnasium.make("CartPole-v1")] * n, autoreset_mode=AutoresetMode.SAME_STEP
        )
    )(2)
    assert spec_of(vector).autoreset == "same_step"
    with pytest.raises(ConfigError, match="expected a VectorEnv of"):
        EnvMaker(lambda n: None)(2)
    env = gymnasium.make("CartPole-v1")
    with pytest.raises(ConfigError, match="returned the same environment twice: make a new one"):
        EnvMaker(lambda: gymnasium.wrappers.TimeLimit(env, 9))(2)


def test_an_environment_that_does_not_say_when_it_resets_is_warned_of():
    """As Gymnasium's wrappers do; environments for its versions before 1.0 reset in the step of the end."""
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode="sync")
    del env.metadata["autoreset_mode"]
    with pytest.warns(UserWarning, match=r"has no metadata\['autoreset_mode'\]: taken for NEXT_STEP"):
        assert spec_of(env).autoreset == "next_step"


def test_a_maker_can_be_pickled():
    import pickle

    copy = pickle.loads(pickle.dumps(EnvMaker(lambda: gymnasium.make("CartPole-v1"))))
    assert copy(1).num_envs == 1


def test_bad_environments_are_named():
    with pytest.raises(ConfigError, match="NoSuchGame"):
        EnvMaker("NoSuchGame-v0")(1)
    with pytest.raises(ConfigError, match="Box"):
        spec_of(gymnasium.make_vec("FrozenLake-v1", num_envs=1))


@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
def test_the_tracker_equals_a_loop_over_environments(autoreset):
    mode = AutoresetMode.NEXT_STEP if autoreset == "next_step" else AutoresetMode.SAME_STEP
    env = SyncVectorEnv(
        [lambda: gymnasium.make("CartPole-v1", max_episode_steps=30)] * 4, autoreset_mode=mode
    )
    tracker = EpisodeTracker(4, autoreset)
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    expected, got, total, expected_total = [], [], 0, 0
    open_episode = [(0.0, 0)] * 4
    resetting = [False] * 4
    for _ in range(300):
        _, reward, terminated, truncated, _ = env.step(rng.integers(0, 2, 4))
        transitions, finished = tracker.step(reward, terminated, truncated)
        total += transitions
        got += finished
        for i in range(4):
            if resetting[i]:
                resetting[i] = False
                continue
            expected_total += 1
            open_episode[i] = (open_episode[i][0] + reward[i], open_episode[i][1] + 1)
            if terminated[i] or truncated[i]:
                expected.append(open_episode[i])
                open_episode[i] = (0.0, 0)
                resetting[i] = autoreset == "next_step"
    assert len(expected) > 20
    assert got == expected
    assert total == expected_total


def test_actors_divide_the_threads_of_atari_environments():
    """Cores are those that the process may use. A given `num_threads` and other environments stay."""
    maker = EnvMaker("parl/Pong-v0", {"obs_type": "ram"})
    cores = usable_cores()
    for actors in (1, 2, 4 * cores):
        env = maker.for_actors(actors)(64)
        assert env.num_threads == max(1, cores // actors)
        env.close()
    assert "num_threads" not in maker.options
    assert EnvMaker("parl/Pong-v0", {"device": "cpu"}).for_actors(4 * cores).options["num_threads"] == 1
    on_device = ("parl/Pong-v0", {"device": "cuda"})
    for name, options in (("parl/Pong-v0", {"num_threads": 3}), on_device, ("CartPole-v1", {})):
        assert EnvMaker(name, options).for_actors(4).options == options
