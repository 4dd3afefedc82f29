"""Presets return the same as the libraries that they reproduce."""

from __future__ import annotations

import ale_py
import gymnasium
import numpy as np
import pytest
from compare_envs import FIGURES, compare_vector_envs

import parl
from parl.envs.atari.presets import PRESETS
from parl.envs.atari.registration import env_name
from parl.errors import ConfigError


def slow_games(*games: str) -> list[object]:
    return [pytest.param(game, marks=pytest.mark.slow(minutes=1)) for game in games]


@pytest.mark.parametrize("life_loss", [False, True])
@pytest.mark.parametrize("game", ["breakout", *slow_games("seaquest", "qbert")])
def test_gymnasium_preset_equals_gymnasium(game: str, life_loss: bool) -> None:
    pytest.importorskip("cv2")
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation

    gymnasium.register_envs(ale_py)

    def make() -> gymnasium.Env:
        env = gymnasium.make(f"ALE/{env_name(game)}-v5", frameskip=1)
        return FrameStackObservation(AtariPreprocessing(env, terminal_on_life_loss=life_loss), 4)

    theirs = gymnasium.vector.SyncVectorEnv([make] * 2)
    options = {"life_loss": "any"} if life_loss else {}
    ours = parl.make_vec(game, 2, preset="gymnasium", **options)
    steps = 200 if life_loss else 390
    ends = compare_vector_envs(theirs, ours, seed=3, steps=steps, reset_seed=3, figures=FIGURES)
    assert ends > 0


@pytest.mark.parametrize(
    ("theirs", "mine"),
    [
        ({}, {}),
        ({"episodic_life": True}, {"life_loss": "continues"}),
        ({"repeat_action_probability": 0.25}, {"repeat_action_probability": 0.25}),
        ({"max_episode_steps": 50}, {"max_num_steps_per_episode": 50}),
        (
            {"episodic_life": True, "max_episode_steps": 40},
            {"life_loss": "continues", "max_num_steps_per_episode": 40},
        ),
        (
            {"gray_scale": False, "reward_clip": True},
            {"obs_type": "rgb", "channel_order": "first", "reward_clipping": "sign"},
        ),
    ],
    ids=str,
)
@pytest.mark.parametrize("game", ["breakout", *slow_games("qbert", "space_invaders")])
def test_envpool_preset_equals_envpool(game: str, theirs: dict[str, object], mine: dict[str, object]) -> None:
    envpool = pytest.importorskip("envpool", reason="EnvPool has no wheel for this Python")
    model = envpool.make_gymnasium(f"{env_name(game)}-v5", num_envs=2, num_threads=1, seed=5, **theirs)
    ours = parl.make_vec(game, 2, preset="envpool", **mine)
    # An episode ends within these steps, except under two of the options in space_invaders.
    steps = {"breakout": 180, "qbert": 320, "space_invaders": 350}[game]
    if "max_episode_steps" in theirs:
        steps = 120
    compare_vector_envs(model, ours, seed=5, steps=steps, reset_seed=None, figures=("lives",))


@pytest.mark.parametrize(("game", "steps"), [("breakout", 320), ("space_invaders", 530)])
def test_game_over_equals_envpools(game: str, steps: int) -> None:
    """EnvPool's ``info["terminated"]`` is true if the game is over, where a lost life ends an episode.

    Two games end within the steps.
    """
    envpool = pytest.importorskip("envpool", reason="EnvPool has no wheel for this Python")
    model = envpool.make_gymnasium(
        f"{env_name(game)}-v5", num_envs=2, num_threads=1, seed=5, episodic_life=True
    )
    ours = parl.make_vec(game, 2, preset="envpool", life_loss="continues")
    model.reset()
    ours.reset(seed=5)
    rng = np.random.default_rng(0)
    points, lives, games = np.zeros(2), 0, 0
    for _ in range(steps):
        actions = rng.integers(0, ours.single_action_space.n, 2).astype(np.int32)
        _, _, terminated, _, theirs = model.step(actions)
        _, reward, _, _, infos = ours.step(actions)
        over = infos["game_over"]
        np.testing.assert_array_equal(over, theirs["terminated"])
        points += reward
        lives += int((terminated & ~over).sum())
        games += int(over.sum())
        if over.any():
            np.testing.assert_array_equal(infos["game_return"][over], points[over])
            np.testing.assert_array_equal(infos["_game_return"], over)
            points[over] = 0
    assert lives > games > 1


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_every_preset_steps(preset: str) -> None:
    envs = parl.make_vec("breakout", 2, preset=preset)
    obs, _ = envs.reset(seed=0)
    assert obs.shape == ((2, 210, 160, 3) if preset == "raw" else (2, 4, 84, 84))
    for _ in range(20):
        obs, reward, *_ = envs.step(envs.action_space.sample())
    assert reward.shape == (2,)


def test_an_unknown_preset_is_refused() -> None:
    with pytest.raises(ConfigError, match="expected one of"):
        parl.make_vec("breakout", preset="atari")
