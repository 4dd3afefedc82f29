"""Atari environments with Gymnasium's tools: checkers, ids, videos, windows, settings."""

from __future__ import annotations

import copy
import inspect
import itertools
import json
import pickle
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.utils import env_checker

import parl
import parl.envs
from parl.cli import main
from parl.envs.atari.presets import PRESETS
from parl.errors import ConfigError
from parl.run.directory import RunDirectory


def test_every_keyword_of_ale_py_exists_with_its_default() -> None:
    theirs = inspect.signature(ale_py.AtariVectorEnv.__init__).parameters
    ours = inspect.signature(parl.AtariVectorEnv.__init__).parameters
    assert len(theirs) == 23
    for name, parameter in theirs.items():
        assert ours[name].kind is parameter.kind, name
        if parameter.default is not parameter.empty:
            assert ours[name].default == parameter.default, name


# ---------------------------------------------------------------------- checkers


@pytest.mark.parametrize("render_mode", ["rgb_array", "human"])
def test_check_env_accepts_a_single_environment(render_mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gymnasium.make("parl:parl/Pong-v0", render_mode=render_mode)
    with warnings.catch_warnings():
        # Warnings of the checker itself: the environment was wrapped, and no window was requested.
        warnings.filterwarnings("ignore", ".*(different from the unwrapped|render).*", UserWarning)
        env_checker.check_env(env.unwrapped)
    env.close()


def test_check_env_accepts_a_continuous_environment() -> None:
    env = gymnasium.make("parl:parl/Breakout-v0", continuous=True)
    with warnings.catch_warnings():
        # The action space is that of ale-py; Gymnasium recommends -1 to 1.
        warnings.filterwarnings("ignore", ".*Box action spaces.*", UserWarning)
        env_checker.check_env(env.unwrapped, skip_render_check=True)


@pytest.mark.parametrize("options", [{}, {"continuous": True}, {"obs_type": "ram"}], ids=str)
def test_vector_environments_pass_gymnasiums_checks(options: dict[str, Any]) -> None:
    """Gymnasium has no checker of vector environments: runs those of its checks that accept one."""
    envs = gymnasium.make_vec("parl:parl/Breakout-v0", num_envs=3, **options).unwrapped
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env_checker.check_reset_seed_determinism(envs)
        env_checker.check_reset_options(envs)
        env_checker.check_reset_return_type(envs)
        env_checker.check_space_limit(envs.single_observation_space, "observation")
    calls = [envs.reset(seed=1), *((obs, infos) for obs, *_, infos in _steps(envs, 2)), envs.reset(seed=1)]
    if hasattr(env_checker, "data_shares_objects"):  # since Gymnasium 1.4
        for (obs, infos), (other_obs, other_infos) in itertools.combinations(calls, 2):
            assert not env_checker.data_shares_objects(obs, other_obs)
            assert not env_checker.data_shares_objects(infos, other_infos)
    assert isinstance(envs, gymnasium.vector.VectorEnv)
    assert envs.observation_space == gymnasium.vector.utils.batch_space(envs.single_observation_space, 3)
    assert envs.action_space == gymnasium.vector.utils.batch_space(envs.single_action_space, 3)
    obs, infos = envs.reset(seed=1)
    assert obs in envs.observation_space
    obs, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
    assert obs in envs.observation_space
    assert rewards.shape == terminated.shape == truncated.shape == (3,)
    assert terminated.dtype == truncated.dtype == np.bool_
    np.testing.assert_array_equal(_first_step(envs, 3), _first_step(envs, 3))
    keys = [key for key in infos if not key.startswith("_")]
    assert keys and all(infos[f"_{key}"].shape == (3,) and len(infos[key]) == 3 for key in keys)
    envs.close()


def _steps(envs: Any, count: int) -> Iterator[Any]:
    return (envs.step(envs.action_space.sample()) for _ in range(count))


def _first_step(envs: Any, seed: int) -> np.ndarray:
    envs.reset(seed=seed)
    envs.action_space.seed(seed)
    return envs.step(envs.action_space.sample())[0]


def test_each_environment_of_a_batch_equals_a_single_one() -> None:
    """Environment i of a batch is the single environment with seed s + i."""
    envs = gymnasium.make_vec("parl:parl/Seaquest-v0", num_envs=2, autoreset_mode="Disabled")
    single = gymnasium.make("parl:parl/Seaquest-v0")
    many, _ = envs.reset(seed=5)
    one, info = single.reset(seed=6)
    np.testing.assert_array_equal(many[1], one)
    assert isinstance(info["lives"], int)
    for action in (2, 5, 1, 0, 3):
        many, rewards, *_ = envs.step(np.array([0, action]))
        one, reward, *_ = single.step(action)
        np.testing.assert_array_equal(many[1], one)
        assert rewards[1] == reward


def test_a_single_environment_refuses_vector_options() -> None:
    for options in ({"render_mode": "rgb_grid"}, {"batch_size": 1}, {"autoreset_mode": "Disabled"}):
        with pytest.raises(ValueError, match=next(iter(options))):
            parl.envs.AtariEnv("pong", **options)


def test_a_single_environment_can_be_pickled_and_copied() -> None:
    env = gymnasium.make("parl:parl/Breakout-v0").unwrapped
    env.reset(seed=1)
    for action in (1, 2, 3):
        env.step(action)
    copies = [pickle.loads(pickle.dumps(env)), copy.deepcopy(env)]
    for _ in range(20):
        expected = env.step(3)[0].copy()
        for other in copies:
            np.testing.assert_array_equal(other.step(3)[0], expected)


# ---------------------------------------------------------------------- pictures


def test_rgb_grid_shows_all_environments() -> None:
    envs = parl.AtariVectorEnv(["breakout", "air_raid"], 5, render_mode="rgb_grid")
    envs.reset(seed=0)
    whole = envs.render()
    assert whole.shape == (2 * 250, 3 * 160, 3) and whole.dtype == np.uint8
    separate = parl.AtariVectorEnv(["breakout", "air_raid"], 5, render_mode="rgb_array")
    separate.reset(seed=0)
    for i, picture in enumerate(separate.render()):
        y, x = i // 3 * 250, i % 3 * 160
        np.testing.assert_array_equal(whole[y : y + len(picture), x : x + 160], picture)
    assert not whole[250:, 320:].any()


def test_a_window_shows_all_environments(monkeypatch: pytest.MonkeyPatch) -> None:
    pygame = pytest.importorskip("pygame")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    envs = parl.AtariVectorEnv("breakout", 2, render_mode="human")
    envs.reset(seed=0)
    pictures = parl.AtariVectorEnv("breakout", 2, render_mode="rgb_grid")
    pictures.reset(seed=0)
    for _ in range(3):
        envs.step(np.array([1, 2]))
        pictures.step(np.array([1, 2]))
    assert envs.render() is None
    surface = pygame.display.get_surface()
    assert surface.get_size() == (2 * 320, 2 * 210)
    seen = np.transpose(pygame.surfarray.array3d(surface), (1, 0, 2))
    np.testing.assert_array_equal(seen[::2, ::2], pictures.render())
    envs.close()
    assert not pygame.display.get_init()


@pytest.mark.filterwarnings(
    "ignore:.*Overwriting existing videos.*:UserWarning", "ignore::DeprecationWarning"
)
def test_gymnasium_records_videos(tmp_path: Path) -> None:
    moviepy = pytest.importorskip("moviepy")
    from gymnasium.wrappers import RecordVideo
    from gymnasium.wrappers.vector import RecordVideo as RecordVideos

    one = RecordVideo(
        gymnasium.make("parl:parl/Breakout-v0", render_mode="rgb_array", max_num_frames_per_episode=40),
        str(tmp_path / "one"),
    )
    one.reset(seed=0)
    while not any(one.step(1)[2:4]):
        pass
    one.close()
    many = RecordVideos(
        parl.AtariVectorEnv("breakout", 4, render_mode="rgb_array"),
        str(tmp_path / "many"),
        video_length=5,
        step_trigger=lambda step: step == 0,
    )
    many.reset(seed=0)
    for _ in range(6):
        many.step(np.full(4, 1))
    many.close()
    for folder, shape in (("one", (210, 160, 3)), ("many", (420, 320, 3))):
        (video,) = (tmp_path / folder).glob("*.mp4")
        with moviepy.VideoFileClip(str(video)) as clip:
            frames = list(clip.iter_frames())
        assert len(frames) >= 4 and frames[-1].shape == shape and frames[-1].any()


# ---------------------------------------------------------------------- settings


def test_a_run_directory_keeps_the_settings(tmp_path: Path) -> None:
    envs = parl.make_vec("breakout", 2, preset="envpool", num_threads=np.int64(1), frameskip=(2, 5))
    settings = envs.settings
    assert settings["preset"] == "envpool" and settings["game"] == "breakout"
    assert settings["autoreset_mode"] == "NextStep" and settings["noops"] == "before_fire"
    run = RunDirectory.create(tmp_path, "run", {}, environment=settings)
    kept = json.loads((run.path / "run.json").read_text())["environment"]
    assert kept == settings
    # The kept settings make the same environments again.
    del kept["preset"]
    assert parl.AtariVectorEnv(**kept).settings == {**settings, "preset": None}
    assert parl.AtariVectorEnv(**kept).variations == envs.variations
    assert pickle.loads(pickle.dumps(_reset(envs))).settings == settings


def _reset(envs: Any) -> Any:
    envs.reset(seed=0)
    return envs


def test_doctor_prints_presets(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == list(PRESETS)
    rows = {line.split()[0]: line.split()[1:] for line in lines[1:]}
    assert rows["noops"] == ["after_fire", "numpy", "before_fire", "numpy", "before_fire", "numpy"]
    assert set(rows) == {key for options in PRESETS.values() for key in options}
    for preset in PRESETS:
        assert main(["doctor", "--env", preset]) == 0
        lines = capsys.readouterr().out.splitlines()
        shown = {line.split()[0]: line.split(maxsplit=1)[1] for line in lines}
        made = parl.make_vec("breakout", preset=preset).settings
        assert shown == {key: str(made[key]) for key in shown} and len(shown) > 35
    with pytest.raises(ConfigError, match="preset is 'atari'"):
        from parl.envs.atari.presets import preset_settings

        preset_settings("atari")
