"""parl's Atari environments in Stable-Baselines3's own algorithms and wrappers."""

import numpy as np
import pytest
from gymnasium import spaces
from stable_baselines3 import PPO
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecMonitor, VecNormalize, is_vecenv_wrapped

import parl
from parl.adapters.sb3 import AtariVecEnv
from parl.envs import AtariEnv
from parl.errors import AtariError

RAM = {"obs_type": "ram", "stack_num": None, "num_threads": 1}


def play_steps(envs, steps, seed=1):
    """Results of ``steps`` random steps."""
    rng = np.random.default_rng(seed)
    return [envs.step(rng.integers(0, envs.action_space.n, envs.num_envs)) for _ in range(steps)]


@pytest.mark.parametrize("options", [{"max_num_steps_per_episode": 7}, {"life_loss": "ends"}], ids=str)
def test_results_equal_those_of_sb3s_vector_of_single_environments(options):
    """Compares with SB3's DummyVecEnv byte for byte; a reset within a step does not reseed."""
    settings = {"preset": "ale", "num_threads": 1, "noop_max": 1, "boot": "snapshot", **options}
    ours = AtariVecEnv("breakout", 2, **settings)
    theirs = DummyVecEnv([lambda: AtariEnv("breakout", **settings)] * 2)
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.seed(3) == theirs.seed(3) == [3, 4]
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    ends = 0
    for mine, other in zip(play_steps(ours, 60), play_steps(theirs, 60), strict=True):
        for a, b in zip(mine[:3], other[:3], strict=True):
            np.testing.assert_array_equal(a, b)
            assert a.dtype == b.dtype
        for info, expected, done in zip(mine[3], other[3], mine[2], strict=True):
            assert info["lives"] == expected["lives"]
            assert info["TimeLimit.truncated"] == expected["TimeLimit.truncated"]
            assert ("terminal_observation" in info) == done
            if done:
                ends += 1
                np.testing.assert_array_equal(info["terminal_observation"], expected["terminal_observation"])
                assert info["TimeLimit.truncated"] == ("max_num_steps_per_episode" in options)
    assert ends > 0
    ours.close()
    ours.close()


def test_videos_have_the_speed_of_the_game_and_infos_without_effect_are_refused():
    assert AtariVecEnv("breakout", 1, num_threads=1).metadata["render_fps"] == 15
    for name in ("ram_info", "sound"):
        with pytest.raises(AtariError, match=f"{name} is True, but infos of AtariVecEnv do not have it"):
            AtariVecEnv("breakout", 1, **{name: True})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"life_loss": "reports"}, 'life_loss is "reports"'),
        ({"preset": "ale", "life_loss_info": True}, 'life_loss is "reports" .life_loss_info.'),
        ({"players": 2}, "players is 2, expected 1"),
    ],
)
def test_what_sb3_has_no_form_for_is_refused(options, message):
    with pytest.raises(AtariError, match=message):
        AtariVecEnv("pong", 1, **RAM, **options)


def test_an_episode_in_the_infos_is_a_whole_game():
    """The default preset ends an episode with each life; returns and lengths are those of the whole game."""
    envs = AtariVecEnv("breakout", 2, num_threads=1)
    envs.seed(0)
    envs.reset()
    points, steps, lives, games = np.zeros(2), np.zeros(2), np.zeros(2), 0
    rng = np.random.default_rng(1)
    for _ in range(700):
        _, rewards, dones, infos = envs.step(rng.integers(0, 4, 2))
        points += rewards
        steps += 1
        for i in np.flatnonzero(dones):
            lives[i] += 1
            if "episode" in infos[i]:
                # Rewards of 1, as bricks of the lower rows give, are not changed by clipping.
                found = infos[i]["episode"]
                assert (found["r"] >= points[i], found["l"], lives[i]) == (True, steps[i], 5)
                assert found["t"] > 0
                points[i] = steps[i] = lives[i] = 0
                games += 1
    assert games > 0


def test_ppo_learns_from_images():
    small = {"features_extractor_kwargs": {"features_dim": 16}}
    settings = {"n_steps": 4, "batch_size": 8, "n_epochs": 1, "seed": 5, "device": "cpu"}
    model = PPO("CnnPolicy", AtariVecEnv("breakout", 2), policy_kwargs=small, **settings)
    before = model.policy.action_net.weight.detach().clone()
    model.learn(16)
    assert model.num_timesteps == 16
    assert not before.equal(model.policy.action_net.weight)


def test_ppo_logs_whole_games_and_evaluates_them():
    envs = AtariVecEnv("pong", 2, max_num_steps_per_episode=10, **RAM)
    model = PPO("MlpPolicy", envs, n_steps=16, batch_size=32, n_epochs=1, device="cpu").learn(64)
    assert [found["l"] for found in model.ep_info_buffer] == [10] * len(model.ep_info_buffer)
    assert len(model.ep_info_buffer) == 6
    returns, lengths = evaluate_policy(model, envs, n_eval_episodes=3, return_episode_rewards=True)
    assert len(returns) == 3 and lengths == [10] * 3


def test_wrappers_of_vectors():
    envs = VecNormalize(AtariVecEnv("pong", 2, max_num_steps_per_episode=5, **RAM), norm_obs=False)
    with pytest.warns(UserWarning, match="`VecMonitor` ones"):
        envs = VecMonitor(envs)
    assert is_vecenv_wrapped(envs, VecMonitor)
    envs.reset()
    *_, infos = play_steps(envs, 5)[-1]
    assert [info["episode"]["l"] for info in infos] == [5, 5]
    envs.close()


def test_attributes_methods_and_wrappers_of_members():
    envs = AtariVecEnv(["pong", "breakout"], 3, render_mode="rgb_array", img_height=84, **{"num_threads": 1})
    assert envs.get_attr("game") == ["pong", "breakout", "pong"]
    assert envs.get_attr("render_mode", 1) == ["rgb_array"]
    assert envs.has_attr("spec") and not envs.has_attr("nonsense")
    with pytest.raises(AttributeError, match="nonsense"):
        envs.get_attr("nonsense")
    envs.set_attr("note", 7, indices=[0, 2])
    assert envs.get_attr("note", [0, 2]) == [7, 7] and not hasattr(envs._sub_envs[1], "note")
    meanings = envs.env_method("get_action_meanings", indices=[0])
    assert meanings[0][:2] == ["NOOP", "FIRE"] and len(meanings[0]) == 18
    envs.seed(1)
    envs.reset()
    state = envs.env_method("get_state", indices=1)[0]
    first = play_steps(envs, 2)[-1][0][1]
    envs.env_method("set_state", state, indices=1)
    np.testing.assert_array_equal(play_steps(envs, 2)[-1][0][1], first)
    assert envs.env_is_wrapped(Monitor) == [True] * 3
    assert envs.env_is_wrapped(VecMonitor, indices=[0]) == [False]
    assert [image.shape for image in envs.get_images()] == [(210, 160, 3)] * 3
    assert envs.render().shape == (2 * 210, 2 * 160, 3)


def test_a_seed_applies_to_one_reset_and_may_have_32_bits():
    envs = AtariVecEnv("breakout", 2, **RAM)
    twin = parl.make_vec("breakout", 2, preset="nature", **RAM)
    envs.seed(2**32 - 1)
    np.testing.assert_array_equal(envs.reset(), twin.reset(seed=np.array([2**31 - 1, 0]))[0])
    np.testing.assert_array_equal(envs.reset(), twin.reset()[0])
    assert all(seed is not None for seed in envs.seed(None))
    envs.reset()
    assert [sorted(info) for info in envs.reset_infos] == [
        ["episode_frame_number", "frame_number", "lives"]
    ] * 2
    assert isinstance(envs.observation_space, spaces.Box)


@pytest.mark.parametrize("name", ["batch_size", "autoreset_mode", "output", "device", "num_envs", "ordered"])
def test_arguments_of_other_interfaces_are_refused(name):
    with pytest.raises(AtariError, match=f"{name} is 1"):
        AtariVecEnv("pong", **{name: 1})


def test_calls_out_of_order_are_refused():
    envs = AtariVecEnv("pong", 1, **RAM)
    envs.reset()
    with pytest.raises(AtariError, match="call step_async first"):
        envs.step_wait()
    envs.set_options({"reset_mask": [True]})
    with pytest.raises(AtariError, match="options are"):
        envs.reset()
