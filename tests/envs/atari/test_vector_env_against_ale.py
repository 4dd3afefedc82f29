"""`parl.AtariVectorEnv` returns the same bytes as `ale_py.AtariVectorEnv` 0.12.1."""

from __future__ import annotations

import zlib

import ale_py
import numpy as np
import pytest
from compare_envs import compare_with_ale

import parl

# Long and short games, joystick and paddle, PAL, tall pictures, rows never drawn, frames that stay open.
GAMES = (
    "pong", "breakout", "seaquest", "montezuma_revenge", "air_raid", "journey_escape", "pooyan", "berzerk",
    "double_dunk", "tic_tac_toe_3d",
)  # fmt: skip
# Games that a random agent ends, and the number of steps within which it does.
SHORT = {"breakout": 350, "seaquest": 420, "journey_escape": 770}
OPTIONS = (
    {"autoreset_mode": "SameStep"},
    {"repeat_action_probability": 0.25},
    {"episodic_life": True},
    {"episodic_life": True, "autoreset_mode": "SameStep", "repeat_action_probability": 0.25},
    {"life_loss_info": True},
    {"max_num_frames_per_episode": 103},
    {"max_num_frames_per_episode": 101, "frameskip": 3},
    {"max_num_frames_per_episode": 50, "autoreset_mode": "SameStep"},
    {"grayscale": False},
    {"grayscale": False, "img_height": 210, "img_width": 160, "episodic_life": True},
    {"img_height": 64, "img_width": 64},
    {"img_height": 300, "img_width": 161, "stack_num": 1},
    {"img_height": 37, "img_width": 53, "stack_num": 7},
    {"maxpool": False, "episodic_life": True},
    {"frameskip": 1, "episodic_life": True},
    {"frameskip": 2, "episodic_life": True},
    {"noop_max": 0},
    {"noop_max": 2, "use_fire_reset": False},
    {"full_action_space": True, "reward_clipping": False},
    {"continuous": True},
    {"continuous": True, "continuous_action_threshold": 0.2, "repeat_action_probability": 0.5},
)


def all_games() -> list[str]:
    from parl.atari import games

    return [game.id for game in games() if game.players == 1]


@pytest.mark.parametrize("game", GAMES)
def test_games_of_all_kinds_equal_ale_py(game: str) -> None:
    """Every run has a reset: longer games are truncated. All games: `test_every_game_equals_ale_py`."""
    cut = {} if game in SHORT else {"max_num_frames_per_episode": 1_200}
    ends = compare_with_ale(game, num_envs=1, steps=SHORT.get(game, 340), **cut)
    assert ends > 0


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options_equal_ale_py(options: dict[str, object]) -> None:
    """One environment where that suffices, because ale-py takes 0.3 s to start each."""
    several = {"autoreset_mode", "repeat_action_probability", "continuous", "img_height"} & options.keys()
    ends = compare_with_ale("breakout", num_envs=2 if several else 1, steps=250, **options)
    assert ends > 0 or "frameskip" in options


@pytest.mark.parametrize("options", OPTIONS[::8], ids=str)
@pytest.mark.parametrize("game", ["journey_escape", "air_raid", "tic_tac_toe_3d"])
def test_options_of_games_with_unusual_pictures_equal_ale_py(game: str, options: dict[str, object]) -> None:
    compare_with_ale(game, num_envs=1, steps=120, **options)


@pytest.mark.slow
@pytest.mark.parametrize("game", all_games())
def test_every_game_equals_ale_py(game: str) -> None:
    """2,000 steps with the defaults, and 1,000 with each of two options, other ones for each game."""
    compare_with_ale(game, steps=2000, max_num_frames_per_episode=6_000)
    turn = all_games().index(game)
    for options in (OPTIONS[turn % len(OPTIONS)], OPTIONS[(turn // 2 + 11) % len(OPTIONS)]):
        # ale-py shifts continuous actions in these games, or hangs (docs/atari-vector.md).
        if game not in ("lost_luggage", "skiing") or "continuous" not in options:
            compare_with_ale(game, num_envs=1, steps=1000, **options)


def test_every_option_is_used_by_a_game() -> None:
    turns = range(len(all_games()))
    seen = {i % len(OPTIONS) for i in turns} | {(i // 2 + 11) % len(OPTIONS) for i in turns}
    assert len(seen) == len(OPTIONS)


def test_the_first_steps_equal_ale_py() -> None:
    names = all_games()
    assert len(names) == 104
    for game in names[::14]:
        compare_with_ale(game, num_envs=1, steps=30)


def test_snapshot_boots_equal_seeded_resets() -> None:
    theirs = ale_py.AtariVectorEnv("assault", 2, repeat_action_probability=0.25)
    ours = parl.AtariVectorEnv("assault", 2, repeat_action_probability=0.25, boot="snapshot")
    for seed in (3, 4, 3):
        a, infos_a = theirs.reset(seed=seed)
        b, infos_b = ours.reset(seed=seed)
        for t in range(60):
            np.testing.assert_array_equal(b, a)
            np.testing.assert_array_equal(infos_b["frame_number"], infos_a["frame_number"])
            (a, r_a, *_, infos_a), (b, r_b, *_, infos_b) = (
                e.step(np.array([t % 7, 2])) for e in (theirs, ours)
            )
            np.testing.assert_array_equal(r_b, r_a)
    _, infos = ours.reset()
    np.testing.assert_array_equal(infos["frame_number"], infos["episode_frame_number"])


def test_recorded_checksums_of_ale_py() -> None:
    """Checksums of ale_py 0.12.1 on Linux, x86-64; they hold on every platform."""
    envs = parl.AtariVectorEnv("pong", 1)
    obs, infos = envs.reset(seed=0)
    found = [zlib.crc32(obs[0].tobytes())]
    assert infos["frame_number"].tolist() == [16]
    points = []
    for t in range(165):
        obs, rewards, *_ = envs.step(np.array([(2, 3)[t] if t < 2 else 0]))
        if t < 8:
            found.append(zlib.crc32(obs[0].tobytes()))
        if rewards[0]:
            points.append((t, int(rewards[0])))
    assert found == [
        629928516, 2719622269, 1438061677, 663267939, 1187183416, 2317506229, 3613384342, 1815446149,
        2387005400,
    ]  # fmt: skip
    assert points == [(59, -1), (94, -1), (129, -1), (164, -1)]


def test_seeds_and_reset_masks_equal_ale_py() -> None:
    theirs, ours = ale_py.AtariVectorEnv("pong", 4), parl.AtariVectorEnv("pong", 4)
    for seed in (5, np.array([7, 1, 3, 0]), None, None, -1):
        _, a = theirs.reset(seed=seed)
        _, b = ours.reset(seed=seed)
        if not (isinstance(seed, int) and seed == -1):
            np.testing.assert_array_equal(b["frame_number"], a["frame_number"])
    theirs.reset(seed=0)
    ours.reset(seed=0)
    mask = np.array([False, True, False, True])
    obs_a, a = theirs.reset(seed=20, options={"reset_mask": mask})
    obs_b, b = ours.reset(seed=20, options={"reset_mask": mask})
    np.testing.assert_array_equal(b["frame_number"], a["frame_number"])
    assert b["frame_number"][1] == 17
    np.testing.assert_array_equal(obs_b, obs_a)
