"""`info["audio"]` and `sound_obs`: the sound of the last frames, as of ale-py and of consoles."""

from __future__ import annotations

from typing import Any

import ale_py
import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import parl
from parl.atari import Console
from parl.atari.catalogue import frames_per_second
from parl.envs import AtariEnv
from parl.errors import AtariError

gymnasium.register_envs(ale_py)
PLAIN: dict[str, Any] = {
    "noop_max": 0,
    "noops": "numpy",
    "use_fire_reset": False,
    "obs_type": "ram",
    "repeat_action_probability": 0.0,
}


@pytest.mark.parametrize(("game", "name"), [("breakout", "Breakout"), ("seaquest", "Seaquest")])
@pytest.mark.parametrize("options", [{}, {"obs_type": "ram"}], ids=str)
def test_sound_observations_equal_ale_pys(game: str, name: str, options: dict[str, str]) -> None:
    ours: Any = AtariEnv(game, preset="raw", sound_obs=True, **options)
    theirs: Any = gymnasium.make(f"{name}NoFrameskip-v4", sound_obs=True, **options).unwrapped
    if not options:
        assert ours.observation_space == theirs.observation_space
    rng = np.random.default_rng(0)
    shape = ours.observation_space["image"].shape
    for episode in range(2):
        seed = None if episode else 5
        (obs, _), (expected, _) = ours.reset(seed=seed), theirs.reset(seed=seed)
        for _ in range(150):
            assert list(obs) == list(expected)
            np.testing.assert_array_equal(obs["image"].reshape(expected["image"].shape), expected["image"])
            np.testing.assert_array_equal(obs["sound"], expected["sound"])
            action = int(rng.integers(ours.action_space.n))
            (obs, *_, info), (expected, *_) = ours.step(action), theirs.step(action)
            assert obs["image"].shape == shape and info["audio"].shape == (512,)
    ours.close()


@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_frame_skip_moves_the_sound_on_as_in_ale_py(sticky: float) -> None:
    ours: Any = AtariEnv(
        "space_invaders", preset="raw", frameskip=4, sound_obs=True, repeat_action_probability=sticky
    )
    theirs: Any = gymnasium.make(
        "ALE/SpaceInvaders-v5", frameskip=4, repeat_action_probability=sticky, sound_obs=True
    ).unwrapped
    rng = np.random.default_rng(1)
    ours.reset(seed=3), theirs.reset(seed=3)
    ends = 0
    for _ in range(500):
        action = int(rng.integers(ours.action_space.n))
        obs, _, terminated, _, info = ours.step(action)
        expected, _, ended, *_ = theirs.step(action)
        assert terminated == ended
        np.testing.assert_array_equal(obs["sound"], expected["sound"])
        assert info["audio"].shape == (2048,)
        if ended:
            ends += 1
            if sticky:
                # A step that ends early draws fewer sticky actions than ale-py's.
                break
            np.testing.assert_array_equal(ours.reset()[0]["sound"], theirs.reset()[0]["sound"])
    assert ends > 0
    ours.close()


@pytest.mark.parametrize("options", [{"obs_type": "ram"}, {"obs_type": "gray"}], ids=str)
@pytest.mark.parametrize(
    ("game", "boot"), [("seaquest", "exact"), ("double_dunk", "exact"), ("pong", "snapshot")]
)
def test_each_frame_of_a_step_sounds_as_on_a_console(game: str, boot: str, options: dict[str, Any]) -> None:
    options = {**PLAIN, **options, "boot": boot}
    envs = parl.AtariVectorEnv(game, 2, sound=True, full_action_space=True, **options)
    _, info = envs.reset(seed=0)
    # As the environment: loaded with one reset, then reset.
    console = Console(game, seed=0, sound=True)
    console.reset()
    assert info["audio"].shape == (2, 2048) and info["audio"].dtype == np.uint8
    np.testing.assert_array_equal(info["audio"][:, -512:], [console.audio] * 2)
    for t in range(120):
        action = t // 4 % 18
        *_, info = envs.step(np.full(2, action))
        expected = []
        for _ in range(4):
            console.act(action)
            expected.append(console.audio)
        np.testing.assert_array_equal(info["audio"], [np.concatenate(expected)] * 2)
        assert info["_audio"].all()
    assert info["audio"].min() >= 128
    envs.close()


def test_without_sound_there_is_none() -> None:
    envs = parl.AtariVectorEnv("pong", 2)
    _, info = envs.reset(seed=0)
    assert "audio" not in info and "audio" not in envs.step(np.zeros(2, int))[-1]
    envs.close()


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 2},
        {"num_threads": 3, "ordered": True, "batch_size": 2},
        {"num_threads": 1, "obs_type": "rgb", "img_height": None, "img_width": None},
        {"render_mode": "rgb_array"},
    ],
    ids=str,
)
def test_sound_depends_neither_on_threads_nor_on_pictures(options: dict[str, Any]) -> None:
    def sounds(**options: Any) -> list[bytes]:
        envs = parl.AtariVectorEnv(["seaquest", "berzerk"], 4, sound=True, noop_max=9, **options)
        batch = envs.batch_size
        found: list[list[bytes]] = [[] for _ in range(4)]

        def keep(info: dict[str, Any]) -> None:
            for env, audio in zip(info["env_id"], info["audio"], strict=True):
                found[env].append(audio.tobytes())
            if envs.render_mode is not None:
                envs.render()

        keep(envs.reset(seed=1)[1])
        for _ in range(4 // batch - 1):
            envs.send(np.zeros(batch, int))
            keep(envs.recv()[-1])
        for t in range(60 * 4 // batch):
            keep(envs.step(np.full(batch, t * batch // 4 % 18))[-1])
        envs.close()
        return [b"".join(one[:40]) for one in found]

    if options.get("batch_size"):
        first, second = sounds(**options), sounds(**{**options, "num_threads": 1})
    else:
        first, second = sounds(**options), sounds(obs_type="ram", num_threads=1)
    assert first == second


# The mode selection of Berzerk plays. A reset without no-op frames that shows pictures runs twice.
@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize(("game", "shown"), [("seaquest", "ram"), ("berzerk", "ram"), ("berzerk", "gray")])
def test_sound_goes_on_over_resets(game: str, shown: str, mode: AutoresetMode) -> None:
    options = {**PLAIN, "max_num_frames_per_episode": 40, "frameskip": 4, "autoreset_mode": mode}
    envs = parl.AtariVectorEnv(game, 1, sound=True, full_action_space=True, **{**options, "obs_type": shown})
    envs.reset(seed=0)
    console = Console(game, seed=0, sound=True)
    console.reset()
    ended = False
    for t in range(60):
        resets = ended and mode is AutoresetMode.NEXT_STEP
        *_, terminated, truncated, info = envs.step(np.array([t % 18]))
        ended = bool(terminated[0] or truncated[0])
        if resets:
            console.reset()
        else:
            expected = []
            for _ in range(4):
                console.act(t % 18)
                expected.append(console.audio)
            if ended and mode is AutoresetMode.SAME_STEP:
                console.reset()
            else:
                np.testing.assert_array_equal(info["audio"][0], np.concatenate(expected))
        np.testing.assert_array_equal(info["audio"][0, -512:], console.audio)
    envs.close()


def acted(console: Console, action: int, acts: int) -> Any:
    """Returns the sound of the last four of `acts` acts with an action, or of all if they are fewer."""
    buffers = [np.zeros(0, np.uint8)]
    for _ in range(acts):
        console.act(action)
        buffers.append(console.audio)
    return np.concatenate(buffers[-4:])


@pytest.mark.parametrize("limit", [1000, 5])
def test_no_op_frames_make_sound_even_after_a_limit(limit: int) -> None:
    options = {**PLAIN, "noop_max": 30, "limit_counts": "console", "full_action_space": True}
    # In this game the frames of a boot do not count: the differences are the numbers of no-op frames.
    counted = parl.AtariVectorEnv("robotank", 1, **options)
    numbers = [0, counted.reset(seed=0)[1]["frame_number"][0]]
    numbers += [counted.reset()[1]["frame_number"][0] for _ in range(4)]
    idle = np.diff(numbers)
    assert len(set(idle)) > 1 and idle.max() > 6
    envs = parl.AtariVectorEnv("robotank", 1, sound=True, max_num_frames_per_episode=limit, **options)
    console = Console("robotank", seed=0, sound=True, max_num_frames_per_episode=limit)
    for episode, acts in enumerate(idle):
        audio = envs.reset(seed=None if episode else 0)[1]["audio"][0]
        console.reset()
        expected = acted(console, 0, acts)
        np.testing.assert_array_equal(audio[len(audio) - len(expected) :], expected)
        np.testing.assert_array_equal(envs.step(np.array([2]))[-1]["audio"][0], acted(console, 2, 4))
    counted.close()
    envs.close()


@pytest.mark.parametrize("game", ["asteroids", "seaquest"])
def test_an_episode_that_continues_a_game_continues_its_sound(game: str) -> None:
    # The last step of an episode runs earlier frames again, to show them.
    options = {**PLAIN, "life_loss": "continues", "obs_type": "gray"}
    envs = parl.AtariVectorEnv(game, 1, sound=True, full_action_space=True, **options)
    envs.reset(seed=0)
    console = Console(game, seed=0, sound=True)
    console.reset()
    ended, ends = False, 0
    for t in range(270):
        action = t // 3 % 18
        *_, terminated, _, info = envs.step(np.array([action]))
        if not ended:
            np.testing.assert_array_equal(info["audio"][0], acted(console, action, 4))
        ended = bool(terminated[0])
        ends += ended
        assert not info["game_over"][0]
    assert ends >= 2
    envs.close()


def test_a_range_of_frame_skips_keeps_the_sound_of_the_longest_step() -> None:
    envs = parl.AtariVectorEnv("seaquest", 1, sound=True, **{**PLAIN, "frameskip": (2, 5)})
    _, info = envs.reset(seed=0)
    all_samples = np.zeros(2048, np.uint8)
    lengths = set()
    for _ in range(40):
        before = info["frame_number"][0]
        *_, info = envs.step(np.array([1]))
        frames = info["frame_number"][0] - before
        lengths.add(int(frames))
        new = info["audio"][0, -512 * frames :]
        all_samples = np.concatenate([all_samples, new])
        np.testing.assert_array_equal(info["audio"][0], all_samples[-2048:])
    assert lengths == {2, 3, 4}
    envs.close()


def test_an_environment_that_loads_a_state_goes_on_with_its_own_sound() -> None:
    envs = parl.AtariVectorEnv("robotank", 2, sound=True, full_action_space=True, **PLAIN)
    envs.reset(seed=0)
    consoles = [Console("robotank", seed=0, sound=True) for _ in range(2)]
    for console in consoles:
        console.reset()

    def step(*actions: int) -> Any:
        info = envs.step(np.array(actions))[-1]
        for console, action, audio in zip(consoles, actions, info["audio"], strict=True):
            for frame in range(4):
                console.act(action)
                np.testing.assert_array_equal(audio[512 * frame :][:512], console.audio)
        return info["audio"]

    for t in range(60):
        step(0, 1 + t // 4 % 17)
    envs.clone(0, 1)
    consoles[1].load(consoles[0].save())
    audio = np.stack([step(3, 3) for _ in range(10)])
    assert (audio[:, 0] != audio[:, 1]).any()
    envs.close()


def test_sound_is_not_part_of_a_state() -> None:
    states = []
    for on in (False, True):
        envs = parl.AtariVectorEnv("seaquest", 2, sound=on, **PLAIN)
        envs.reset(seed=0)
        for t in range(20):
            envs.step(np.array([t % 18, 1]))
        states.append(envs.get_state())
        envs.close()
    np.testing.assert_array_equal(*states)


@pytest.mark.parametrize("game", ["pong", "carnival", "pooyan", "adventure", "pacman", "mr_do", "space_war"])
def test_videos_have_the_speed_of_the_console(game: str) -> None:
    """PAL consoles make 50 frames per second."""
    console = Console(game)
    envs = parl.AtariVectorEnv(game, 1, frameskip=2, obs_type="ram", num_threads=1)
    assert envs.metadata["render_fps"] == console.frames_per_second / 2
    env = AtariEnv(game, preset="raw", num_threads=1)
    assert env.metadata["render_fps"] * 512 == console.audio_sample_rate


def test_the_speed_of_every_game_is_known() -> None:
    for game in parl.atari.games():
        if game.found:
            assert frames_per_second(game.id) == Console(game.id).frames_per_second


def test_sound_observations_are_refused_on_a_device() -> None:
    with pytest.raises(AtariError, match="sound is True with device='cuda'"):
        AtariEnv("pong", sound_obs=True, device="cuda")
