"""`AtariEnv` under wrappers of other libraries returns the same bytes as ale-py's environment."""

from __future__ import annotations

import copy
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest

from parl.envs import AtariEnv
from parl.envs.atari.registration import env_name
from parl.errors import AtariError

gymnasium.register_envs(ale_py)
RAW = ("parl:parl/BreakoutNoFrameskip-v0", "BreakoutNoFrameskip-v4")


def pair(game: str, **options: Any) -> tuple[gymnasium.Env, gymnasium.Env]:
    """Returns the NoFrameskip environment of parl and of ale-py."""
    name = f"{env_name(game)}NoFrameskip"
    return gymnasium.make(f"parl:parl/{name}-v0", **options), gymnasium.make(f"{name}-v4", **options)


def assert_alike(ours: Any, theirs: Any, steps: int, seed: int = 7) -> int:
    """Plays both for `steps` steps, with resets; returns the number of episode ends."""
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    np.testing.assert_array_equal(ours.reset(seed=seed)[0], theirs.reset(seed=seed)[0])
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(steps):
        action = int(rng.integers(ours.action_space.n))
        obs, *results, info = ours.step(action)
        expected, *expected_results, expected_info = theirs.step(action)
        np.testing.assert_array_equal(obs, expected)
        assert results == expected_results
        assert info["lives"] == expected_info["lives"]
        if results[1] or results[2]:
            ends += 1
            np.testing.assert_array_equal(ours.reset()[0], theirs.reset()[0])
    return ends


@pytest.mark.parametrize("game", ["breakout", "pong", "air_raid"])
def test_each_frame_equals_ale_pys(game: str) -> None:
    ours, theirs = pair(game)
    assert_alike(ours, theirs, 60)
    for one, other in ((ours.unwrapped, theirs.unwrapped),):
        assert one.get_action_meanings() == other.get_action_meanings()
        assert one.get_keys_to_action() == other.get_keys_to_action()


@pytest.mark.parametrize(
    ("options", "steps"), [({}, 1_500), ({"max_num_frames_per_episode": 40}, 100)], ids=["end", "limit"]
)
def test_the_last_frame_of_an_episode_equals_ale_pys(options: dict[str, int], steps: int) -> None:
    assert assert_alike(*pair("breakout", **options), steps) >= 1


@pytest.mark.parametrize("options", [{"full_action_space": True}, {"full_action_space": False}], ids=str)
def test_action_names_and_keys_equal_ale_pys(options: dict[str, bool]) -> None:
    ours, theirs = (env.unwrapped for env in pair("seaquest", **options))
    assert ours.get_action_meanings() == theirs.get_action_meanings()
    assert ours.get_keys_to_action() == theirs.get_keys_to_action()
    with pytest.raises(AttributeError, match="continuous"):
        AtariEnv("pong", continuous=True).get_keys_to_action()


@pytest.mark.parametrize("options", [{}, {"terminal_on_life_loss": True}, {"grayscale_obs": False}], ids=str)
def test_gymnasium_atari_preprocessing(options: dict[str, bool]) -> None:
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing

    ours, theirs = (AtariPreprocessing(env, **options) for env in pair("breakout"))
    ends = assert_alike(ours, theirs, 60)
    assert bool(ends) == ("terminal_on_life_loss" in options)


def test_stable_baselines_make_atari_env() -> None:
    pytest.importorskip("cv2")
    env_util = pytest.importorskip("stable_baselines3.common.env_util")
    ours, theirs = (env_util.make_atari_env(name, n_envs=2, seed=3) for name in RAW)
    np.testing.assert_array_equal(ours.reset(), theirs.reset())
    rng = np.random.default_rng(0)
    ends = 0
    for _ in range(60):
        actions = rng.integers(0, 4, 2)
        for mine, other in zip(ours.step(actions)[:3], theirs.step(actions)[:3], strict=True):
            np.testing.assert_array_equal(mine, other)
        ends += int(theirs.buf_dones.sum())
    assert ends > 0
    ours.close()
    theirs.close()


def test_cleanrl_chain_of_wrappers() -> None:
    """The wrappers of CleanRL's Atari scripts, from the libraries that CleanRL imports them from."""
    pytest.importorskip("cv2")
    wrappers = pytest.importorskip("stable_baselines3.common.atari_wrappers")

    def chain(env: Any) -> Any:
        env = gymnasium.wrappers.RecordEpisodeStatistics(env)
        env = wrappers.NoopResetEnv(env, noop_max=30)
        env = wrappers.MaxAndSkipEnv(env, skip=4)
        env = wrappers.EpisodicLifeEnv(env)
        env = wrappers.FireResetEnv(env)
        env = wrappers.ClipRewardEnv(env)
        env = gymnasium.wrappers.ResizeObservation(env, (84, 84))
        env = gymnasium.wrappers.GrayscaleObservation(env)
        return gymnasium.wrappers.FrameStackObservation(env, 4)

    ours, theirs = map(chain, pair("breakout"))
    assert assert_alike(ours, theirs, 60) > 0


def test_env_ale_has_ale_pys_methods() -> None:
    ours, theirs = pair("seaquest")
    for env in (ours, theirs):
        env.reset(seed=1)
        for _ in range(5):
            env.step(2)
    mine, other = ours.unwrapped.ale, theirs.unwrapped.ale
    for name in ("lives", "game_over", "game_truncated", "getFrameNumber", "getEpisodeFrameNumber"):
        assert getattr(mine, name)() == getattr(other, name)(), name
    assert mine.getRAMSize() == other.getRAMSize() and mine.getScreenDims() == other.getScreenDims()
    assert [int(a) for a in mine.getMinimalActionSet()] == [a.value for a in other.getMinimalActionSet()]
    for name in ("getRAM", "getScreen", "getScreenGrayscale", "getScreenRGB"):
        expected = getattr(other, name)()
        np.testing.assert_array_equal(getattr(mine, name)(), expected)
        buffer = np.zeros_like(expected)
        getattr(mine, name)(buffer)
        np.testing.assert_array_equal(buffer, expected)
        with pytest.raises(AtariError, match="buffer is uint8 of shape"):
            getattr(mine, name)(buffer[:-1])
    ours.unwrapped.close()
    with pytest.raises(AtariError, match="closed"):
        mine.lives()


def test_a_reset_after_close_makes_the_environment_again() -> None:
    env = AtariEnv("pong", stack_num=None)
    first, _ = env.reset(seed=4)
    assert first.shape == (84, 84)
    env.close()
    env.close()
    with pytest.raises(AtariError, match="closed"):
        env.step(0)
    again, info = env.reset(seed=4)
    np.testing.assert_array_equal(again, first)
    assert info["lives"] == 0
    assert env.step(0)[0].shape == (84, 84)


def test_a_closed_environment_keeps_what_a_reset_has_changed_and_can_be_copied() -> None:
    env = AtariEnv("breakout", obs_type="ram", stack_num=None)
    env.reset(seed=4, options={"mode": 4, "difficulty": 1, "patches": {0xF07D: 16}, "frameskip": 2})
    expected = env.get_state()
    env.close()
    for one in (copy.deepcopy(env), env):
        with pytest.raises(AtariError, match="closed"):
            one.step(0)
        one.reset(seed=4)
        np.testing.assert_array_equal(one.get_state(), expected)
        assert one.metadata["render_fps"] == 30


def test_a_misspelled_option_of_reset_is_refused() -> None:
    with AtariEnv("pong") as env, pytest.raises(AtariError, match="'dificulty': did you mean 'difficulty'"):
        env.reset(options={"dificulty": 1})


@pytest.mark.parametrize("seed", [2**31, 2**32 + 5, 2**40, 2**63 - 1])
def test_large_seeds_give_ale_pys_frames(seed: int) -> None:
    """With sticky actions, since the seed sets their generator."""
    ours, theirs = pair("breakout", repeat_action_probability=0.5)
    assert_alike(ours, theirs, 40, seed=seed)


@pytest.mark.parametrize(
    ("options", "seed", "bound"),
    [
        ({}, 2**31, 2**31 - 1),
        ({"preset": "raw"}, 2**63, 2**63 - 1),
        ({"preset": "raw"}, 2**70, 2**63 - 1),
    ],
    ids=str,
)
def test_seeds_beyond_the_bound_are_refused(options: dict[str, str], seed: int, bound: int) -> None:
    with pytest.raises(AtariError, match=f"seed.* {seed}, expected at most {bound}"):
        AtariEnv("pong", **options).reset(seed=seed)
