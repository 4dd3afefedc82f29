"""Mode, difficulty, sticky actions, frame skip and changes of ROM and RAM, for each environment by itself."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import ale_py
import numpy as np
import pytest

import parl
from parl.errors import AtariError
from parts import one_of

ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
# One frame per step, as ale-py's console has them.
FRAMES: dict[str, Any] = {
    "obs_type": "index",
    "stack_num": 1,
    "frameskip": 1,
    "noop_max": 0,
    "use_fire_reset": False,
    "reward_clipping": False,
    "full_action_space": True,
    "ram_info": True,
    "autoreset_mode": "Disabled",
}
GAMES = ("breakout", "freeway", "space_invaders", "asteroids", "tennis", "adventure")


def ale_console(
    rom: Path, mode: int, difficulty: int, sticky: float = 0.0, seed: int = 0
) -> ale_py.ALEInterface:
    ale = ale_py.ALEInterface()
    ale.setInt("random_seed", seed)
    ale.setFloat("repeat_action_probability", sticky)
    ale.loadROM(rom)
    ale.setMode(mode)
    ale.setDifficulty(difficulty)
    ale.reset_game()
    return ale


def rom_of(game: str) -> Path:
    return Path(ale_py.roms.get_rom_path(game))


def compare(
    envs: parl.AtariVectorEnv,
    ales: Sequence[ale_py.ALEInterface],
    steps: int,
    seed: int,
    after: Callable[[ale_py.ALEInterface], None] = lambda ale: None,
) -> None:
    """Steps both with the same random actions and compares rewards, memory and screens."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        actions = rng.integers(0, len(envs.action_codes), envs.num_envs)
        obs, rewards, _, _, infos = envs.step(actions)
        for i, ale in enumerate(ales):
            points = 0
            for _ in range(envs.variations[i].frameskip[0]):
                points += ale.act(envs.action_codes[actions[i]])
                after(ale)
            assert points == rewards[i], (i, step)
            np.testing.assert_array_equal(infos["ram"][i], ale.getRAM(), f"environment {i}, step {step}")
            np.testing.assert_array_equal(obs[i, 0], ale.getScreen(), f"environment {i}, step {step}")


@pytest.mark.parametrize("game", one_of(2, GAMES))
def test_modes_and_difficulties_equal_ale_py(game: str) -> None:
    """At construction, and when a running console gets another mode at a reset."""
    known = parl.variations(game)
    pairs = [(mode, one) for mode in (*known.modes[:3], known.modes[-1]) for one in known.difficulties][:6]
    modes, difficulties = zip(*pairs, strict=True)
    envs = parl.AtariVectorEnv(game, len(pairs), mode=modes, difficulty=list(difficulties), **FRAMES)
    envs.reset(seed=np.zeros(len(pairs), np.int64))
    ales = [ale_console(rom_of(game), *pair) for pair in pairs]
    compare(envs, ales, 60, seed=1)
    mask = np.arange(len(pairs)) % 2 == 0
    others = {"mode": modes[::-1], "difficulty": difficulties[::-1]}
    envs.reset(options={**others, "reset_mask": mask})
    for i in np.flatnonzero(mask):
        ales[i].setMode(others["mode"][i])
        ales[i].setDifficulty(others["difficulty"][i])
        ales[i].reset_game()
    compare(envs, ales, 60, seed=2)
    kept = [pairs[-1 - i] if mask[i] else pair for i, pair in enumerate(pairs)]
    assert [(one.mode, one.difficulty) for one in envs.variations] == kept


@pytest.mark.parametrize("frameskip", [1, 3])
@pytest.mark.parametrize("game", ["breakout", "space_invaders", "pitfall"])
def test_ram_equals_ale_py(game: str, frameskip: int) -> None:
    """``ram`` is ``setRAM`` after each reset, ``hold`` is ``setRAM`` after each frame too."""
    rng = np.random.default_rng(5)
    ram, hold = ({int(at): int(rng.integers(256)) for at in rng.choice(128, 3, False)} for _ in range(2))
    envs = parl.AtariVectorEnv(game, 1, ram=ram, hold={**hold, 127: 77}, **{**FRAMES, "frameskip": frameskip})
    mode = parl.variations(game).modes[0]
    ale = ale_console(rom_of(game), mode, 0)

    def set_bytes(ale: ale_py.ALEInterface, pairs: dict[int, int]) -> None:
        for at, value in pairs.items():
            ale.setRAM(at, value)

    for seed in (0, None, None):
        _, infos = envs.reset(seed=seed)
        if seed is None:
            ale.reset_game()
        set_bytes(ale, {**ram, **hold, 127: 77})
        np.testing.assert_array_equal(infos["ram"][0], ale.getRAM())
        compare(envs, [ale], 80, 3, lambda ale: set_bytes(ale, {**hold, 127: 77}))


@pytest.mark.parametrize("game", ["berzerk", "double_dunk"])
def test_a_boot_that_draws_random_numbers_is_that_of_the_unchanged_game(game: str) -> None:
    """Such a boot is run by the environment itself, twice, since it is not known in advance."""
    ram = {index: 0xA5 for index in range(0, 128, 3)}
    envs = parl.AtariVectorEnv(game, 1, ram=ram, repeat_action_probability=0.25, **FRAMES)
    _, infos = envs.reset(seed=7)
    ale = ale_console(rom_of(game), parl.variations(game).modes[0], 0, sticky=0.25, seed=7)
    for index, value in ram.items():
        ale.setRAM(index, value)
    np.testing.assert_array_equal(infos["ram"][0], ale.getRAM())


def test_a_patch_at_a_reset_loads_the_cartridge_anew() -> None:
    envs = parl.AtariVectorEnv("seaquest", 1, **FRAMES)
    envs.reset(seed=0)
    for _ in range(50):
        envs.step(np.ones(1, int))
    obs, infos = envs.reset(options={"patches": {0xF132: 0xB6}})
    expected, facts = parl.AtariVectorEnv("seaquest", 1, patches={0xF132: 0xB6}, **FRAMES).reset(seed=0)
    np.testing.assert_array_equal(obs, expected)
    np.testing.assert_array_equal(infos["ram"], facts["ram"])
    assert infos["frame_number"] == facts["frame_number"]


def test_a_patched_rom_equals_ale_py(tmp_path: Path) -> None:
    """For an unknown ROM, ale-py connects joysticks, with which this game is played."""
    image = bytearray(rom_of("seaquest").read_bytes())
    patches = {0xFCF6: 0x10, "0xF132": 0xB6}
    for address, value in patches.items():
        image[int(str(address), 0) & 0xFFF] = value
    path = tmp_path / "seaquest.bin"
    path.write_bytes(image)
    envs = parl.AtariVectorEnv("seaquest", 2, patches=[patches, None], **FRAMES)
    obs, _ = envs.reset(seed=np.zeros(2, np.int64))
    assert (obs[0] != obs[1]).any()
    ales = [ale_console(path, 0, 0), ale_console(rom_of("seaquest"), 0, 0)]
    compare(envs, ales, 60, seed=1)


# In one batch: everything that can differ.
DIFFERENT: dict[str, list[Any]] = {
    "mode": [0, 4, 8, 0, 24],
    "difficulty": [0, 1, None, 0, 1],
    "repeat_action_probability": [0.0, 0.25, 0.9, 0.25, 0.5],
    "frameskip": [4, (2, 5), 1, 3, 4],
    "patches": [None, None, {0xF07D: 0x10}, None, None],
    "ram": [None, {57: 2}, None, {"0xB9": 1}, None],
    "hold": [None, None, None, None, {0x39: 3}],
    "modifications": [None, None, None, "infinite_lives", ("infinite_lives", "other_colors")],
}


@pytest.mark.parametrize("autoreset", ["NextStep", "SameStep"])
@pytest.mark.parametrize("boot", ["exact", "snapshot"])
def test_each_environment_equals_a_batch_of_its_settings(autoreset: str, boot: str) -> None:
    """Also after episodes have ended and begun anew by themselves."""
    options: dict[str, Any] = {"autoreset_mode": autoreset, "boot": boot, "max_num_frames_per_episode": 150}
    mixed = parl.AtariVectorEnv("breakout", 5, num_threads=2, **DIFFERENT, **options)
    alone = [
        parl.AtariVectorEnv(
            "breakout",
            1,
            **{k: [v[i]] if k == "modifications" else v[i] for k, v in DIFFERENT.items()},
            **options,
        )
        for i in range(5)
    ]
    obs, _ = mixed.reset(seed=3)
    for i, env in enumerate(alone):
        np.testing.assert_array_equal(obs[i], env.reset(seed=3 + i)[0][0])
    rng = np.random.default_rng(0)
    ends = np.zeros(5, int)
    for _ in range(100):
        actions = rng.integers(4, size=5)
        obs, rewards, terminated, truncated, infos = mixed.step(actions)
        ends += terminated | truncated
        for i, env in enumerate(alone):
            own, reward, over, cut, facts = env.step(actions[i : i + 1])
            np.testing.assert_array_equal(obs[i], own[0])
            assert (rewards[i], terminated[i], truncated[i]) == (reward[0], over[0], cut[0])
            assert (infos["lives"][i], infos["frame_number"][i]) == (
                facts["lives"][0],
                facts["frame_number"][0],
            )
    # 100 steps of one frame are fewer than an episode.
    assert (ends > 0).tolist() == [True, True, False, True, True]


def test_new_variations_at_a_reset() -> None:
    """The others play on, in a batch that runs all of them at once and in one that does not."""
    for batch_size in (0, 2):
        envs = parl.AtariVectorEnv("breakout", 4, batch_size=batch_size, ram_info=True)
        envs.reset(seed=0)
        envs.step(np.zeros(batch_size or 4, int))
        before = None if batch_size else envs.get_state()
        options: dict[str, Any] = {"mode": [0, 0, 4, 8], "frameskip": 2, "hold": {57: 5}}
        if not batch_size:
            options["reset_mask"] = np.array([False, False, True, True])
        envs.reset(options=options)
        assert [one.mode for one in envs.variations][2:] == [4, 8]
        assert [one.frameskip for one in envs.variations][2:] == [(2, 2)] * 2
        if before is not None:
            np.testing.assert_array_equal(envs.get_state()[:2], before[:2])
            assert envs.variations[0].frameskip == (4, 4)
        steps = 40
        for _ in range(steps):
            envs.step(np.ones(batch_size or 4, int))
        # Back to one of those before, and to what they were.
        envs.reset(options={"mode": None, "frameskip": 4, "hold": None})
        assert len(set(envs.variations)) == 1


def test_modes_of_a_running_game_and_of_a_new_batch_are_the_same() -> None:
    """With seeds, a change at a reset gives what environments made with the new settings give."""
    changed = parl.AtariVectorEnv("freeway", 3)
    changed.reset(seed=1)
    obs, _ = changed.reset(seed=7, options={"mode": [0, 1, 5], "difficulty": 1, "frameskip": [4, 2, 4]})
    made = parl.AtariVectorEnv("freeway", 3, mode=[0, 1, 5], difficulty=1, frameskip=[4, 2, 4])
    expected, _ = made.reset(seed=7)
    np.testing.assert_array_equal(obs, expected)
    for _ in range(30):
        np.testing.assert_array_equal(changed.step(np.ones(3, int))[0], made.step(np.ones(3, int))[0])


def test_a_reset_that_fails_changes_no_variation() -> None:
    envs = parl.AtariVectorEnv("breakout", 2, obs_type="ram", stack_num=None, num_threads=1)
    envs.reset(seed=0)
    states, variations = envs.get_state(), envs.variations
    damaged = states.copy()
    damaged[1, 60] ^= 1
    for options, out in [
        ({"frameskip": 2, "states": damaged}, None),
        ({"mode": 4, "states": states}, None),
        ({"patches": {0xF07D: 16}, "states": states}, None),
        ({"patches": {0xF07D: 16}, "states": states[:1], "reset_mask": np.array([True, False])}, None),
        ({"mode": 4}, np.zeros((2, 127), np.uint8)),
        ({"mode": 4}, np.zeros((2, 256), np.uint8)[:, ::2]),
    ]:
        with pytest.raises(ValueError, match=r"damaged|mode 4|other changes|out is"):
            envs.reset(options=options, out=out)
        assert envs.variations == variations
        np.testing.assert_array_equal(envs.get_state(), states)
        envs.step(np.zeros(2, np.int64))
        envs.set_state(states)
    envs.reset()
    assert envs.reset(seed=0)[1]["frame_number"].tolist() == _frames("breakout")


def _frames(game: str) -> list[int]:
    """Frame numbers after the first reset of two environments with seed 0."""
    envs = parl.AtariVectorEnv(game, 2, obs_type="ram", num_threads=1)
    return envs.reset(seed=0)[1]["frame_number"].tolist()


def test_states_go_where_they_mean_the_same() -> None:
    envs = parl.AtariVectorEnv(
        "breakout", 5, mode=[0, 4, 0, 0, 0], frameskip=[4, 4, 2, 4, 4], hold=[None, None, None, {57: 5}, None]
    )
    envs.reset(seed=0)
    envs.clone(0, [2, 4])  # Another frame skip: the console is the same.
    with pytest.raises(AtariError, match="it is of mode 0 and difficulty 0, its environment has mode 4"):
        envs.clone(0, 1)
    with pytest.raises(AtariError, match="other changes of ROM or RAM"):
        envs.clone(0, 3)
    with pytest.raises(AtariError, match="other changes of ROM or RAM"):
        envs.clone(3, 0)
    # Sequences of actions run with the settings of the environment of their state.
    one, two = envs.get_state(np.arange(5) == 1), envs.get_state(np.arange(5) == 3)
    for i, state in ((1, one), (3, two)):
        result = envs.branch(state, np.full((1, 1, 5), 1))
        alone = parl.AtariVectorEnv("breakout", 1, mode=[0, 4][i == 1], hold=[None, {57: 5}][i == 3])
        alone.reset(seed=0)
        alone.set_state(state)
        for _ in range(5):
            obs = alone.step(np.ones(1, int))[0]
        np.testing.assert_array_equal(result.observations[0, 0], obs[0])
    with pytest.raises(AtariError, match="differ in frameskip or repeat_action_probability"):
        envs.branch(envs.get_state(np.arange(5) == 0), np.ones((1, 1, 5), int))


def test_copies_keep_what_a_reset_has_changed() -> None:
    envs = parl.AtariVectorEnv("breakout", 2, modifications="infinite_lives")
    envs.reset(seed=0)
    envs.reset(options={"mode": [4, 8], "patches": {0xF07D: 16}, "frameskip": [(2, 4), 3]})
    copies = [pickle.loads(pickle.dumps(envs))]
    state, _ = envs.plain_state()
    restored = parl.AtariVectorEnv("breakout", 2, modifications="infinite_lives")
    json.dumps(state["variations"])
    restored.set_plain_state(state)
    copies.append(restored)
    expected = [envs.step(np.ones(2, int))[0] for _ in range(20)]
    for copy in copies:
        assert copy.variations == envs.variations
        for obs in expected:
            np.testing.assert_array_equal(copy.step(np.ones(2, int))[0], obs)


def test_settings_are_those_at_the_start_although_a_list_changes() -> None:
    games, modes, hold = ["breakout", "pong"], [0, 4], {0x39: 5}
    envs = parl.AtariVectorEnv(games, 2, obs_type="ram", num_threads=1)
    other = parl.AtariVectorEnv("breakout", 2, mode=modes, hold=hold, obs_type="ram", num_threads=1)
    settings = envs.settings, other.settings
    games.append("seaquest")
    modes[0] = 8
    hold[0x39] = 1
    assert settings == (envs.settings, other.settings) and settings[0]["game"] == ["breakout", "pong"]
    envs.reset(seed=0)
    assert deepcopy(envs).games == envs.games
    settings[1]["mode"].append(12)
    assert other.settings["mode"] == [0, 4]


@pytest.mark.parametrize("frameskip", [3, (2, 5), [2, 5], [(2, 5), 3], [(2, 5), (1, 3)]])
def test_frame_skips_in_json_are_the_same(frameskip: Any) -> None:
    """A pair for all environments is not a list of two numbers, one for every other environment each."""
    options: dict[str, Any] = {"obs_type": "ram", "num_threads": 1}
    envs = parl.AtariVectorEnv("pong", 4, frameskip=frameskip, **options)
    kept = json.loads(json.dumps(envs.settings))
    del kept["preset"]
    other = parl.AtariVectorEnv(**kept)
    assert other.variations == envs.variations and other.settings == envs.settings
    other.reset(options={"frameskip": (3, 4)})
    assert other.variations[0].frameskip == (3, 4)


def test_settings_are_data() -> None:
    """Environments made with the settings that JSON has kept are the same."""
    envs = parl.AtariVectorEnv("breakout", 5, **DIFFERENT)
    kept = json.loads(json.dumps(envs.settings))
    assert kept["ram"][3] == {"0x39": 1} and kept["patches"][2] == {"0xF07D": 16}
    again = parl.AtariVectorEnv("breakout", 5, **{name: kept[name] for name in ("hold", "ram", *DIFFERENT)})
    assert again.variations == envs.variations


def test_infinite_lives_never_end_the_game() -> None:
    """Of a thousand lost balls none ends the game; without the modification five do."""
    envs = parl.AtariVectorEnv(
        "breakout", 2, modifications=["infinite_lives", None], max_num_frames_per_episode=20_000
    )
    envs.reset(seed=0)
    over = np.zeros(2, int)
    for step in range(600):
        over += envs.step(np.full(2, step % 2))[2]
    assert over[0] == 0 and over[1] > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": 3}, r"mode 3 is not one of breakout's modes \[0, 4, 8"),
        ({"mode": [0, 5]}, r"mode 5 is not one of breakout's modes \[0, 4, 8"),
        ({"mode": []}, "mode is an empty sequence, expected at least one entry"),
        ({"mode": -1}, "mode is -1, expected 0 to"),
        ({"difficulty": [0, 2]}, r"difficulty 2 is not one of breakout's difficulties \[0, 1\]"),
        ({"repeat_action_probability": [0.0, 1.5]}, "repeat_action_probability is 1.5, expected 0 to 1"),
        ({"frameskip": [4, 0]}, "frameskip is 0, expected 1 to 10000"),
        ({"ram": {128 + 128: 1}}, "ram has the key 256, expected an index 0 to 127 or address 128 to 255"),
        ({"hold": {-1: 1}}, "hold has the key -1"),
        ({"hold": [{5: 1}, {5: 256}]}, "hold has 256 at 5, expected a value of 0 to 255"),
        ({"ram": {1: 5, 129: 6}}, "ram has the keys 1 and 129 for the same byte"),
        ({"hold": {5: 1, "0x85": 1}}, "hold has the keys 5 and '0x85' for the same byte"),
        ({"patches": {0xF123: 5, "0xF123": 6}}, "patches has the keys 61731 and '0xF123' for the same byte"),
        ({"ram": {"x": 1}}, "ram has 'x', expected a number such as 0xF123"),
        ({"patches": {0xF000: -1}}, "patches has -1 at 61440, expected a value of 0 to 255"),
        ({"patches": {0x0123: 1}}, "0x0123 is not a byte of the ROM: .*bit 12"),
        ({"patches": {0x1F000: 1}}, "0x1F000 is not a byte of the ROM"),
        ({"patches": {(0, 0xF000): 1}}, "0:0xF000 is not a byte of the ROM: its cartridge has no banks"),
        ({"modifications": "no_gravity"}, "'no_gravity' is not one of breakout's modifications: inf"),
        ({"frameskip": [4, 2], "sound": True}, "frameskip differs between environments"),
    ],
)  # fmt: skip
def test_wrong_values_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(AtariError, match=message):
        parl.AtariVectorEnv("breakout", 2, **options)
    if "sound" in options:
        return
    envs = parl.AtariVectorEnv("breakout", 2)
    envs.reset(seed=0)
    before = envs.get_state()
    with pytest.raises(AtariError, match="has 0 entries" if options == {"mode": []} else message):
        envs.reset(options=options)
    np.testing.assert_array_equal(envs.get_state(), before)
    envs.step(np.zeros(2, int))


def test_banks_are_named() -> None:
    assert parl.AtariVectorEnv("seaquest", patches={0xF000: 1}).num_envs == 1
    envs = parl.AtariVectorEnv("asteroids", patches={(1, 0xFFF0): 1, "0:0xF800": 2})
    assert envs.settings["patches"] == {"1:0xFFF0": 1, "0:0xF800": 2}
    for patches, message in (
        ({0xF000: 1}, "0xF000 is not a byte of the ROM: its cartridge has 2 banks: give the bank"),
        (
            {(2, 0xF000): 1},
            "2:0xF000 is not a byte of the ROM: its cartridge has 8192 bytes in the banks 0 to 1",
        ),
    ):
        with pytest.raises(AtariError, match=message):
            parl.AtariVectorEnv("asteroids", patches=patches)


def test_wrong_types_are_named() -> None:
    for options, message in (
        ({"mode": ["four"]}, "mode is 'four', expected an int"),
        ({"ram": 5}, "ram is 5, expected a mapping"),
        ({"modifications": [5]}, "not iterable|expected names"),
        ({"patches": {1.5: 1}}, "patches has 1.5, expected an int"),
    ):
        with pytest.raises(TypeError, match=message):
            parl.AtariVectorEnv("breakout", 2, **options)


def test_other_games_at_a_reset() -> None:
    envs = parl.AtariVectorEnv(["breakout", "pong"], 2)
    envs.reset(seed=0)
    obs, _ = envs.reset(seed=5, options={"game": ["seaquest", "pong"]})
    expected, _ = parl.AtariVectorEnv(["seaquest", "pong"], 2).reset(seed=5)
    np.testing.assert_array_equal(obs, expected)
    single = parl.AtariVectorEnv("breakout", 2)
    single.reset(seed=0)
    with pytest.raises(AtariError, match="make environments with these games"):
        single.reset(options={"game": ["breakout", "pong"]})
    single.step(np.zeros(2, int))


def test_name_and_frame_rate_are_those_of_the_games_that_are_played() -> None:
    envs = parl.AtariVectorEnv(["breakout", "seaquest"], 2)
    fps = envs.metadata["render_fps"]
    envs.reset(options={"game": "pong", "frameskip": 2})
    for one in (envs, pickle.loads(pickle.dumps(envs))):
        assert one.games == ["pong"] and repr(one) == "AtariVectorEnv(pong, num_envs=2)"
        assert one.metadata["render_fps"] == 2 * fps
    env = parl.envs.AtariEnv("breakout")
    env.reset(options={"frameskip": 2})
    assert env.metadata["render_fps"] == 2 * fps


def test_a_single_environment_changes_too() -> None:
    env = parl.envs.AtariEnv("breakout")
    env.reset(seed=0)
    obs, _ = env.reset(seed=1, options={"mode": 4, "unknown": 1})
    expected, _ = parl.envs.AtariEnv("breakout", mode=4).reset(seed=1)
    np.testing.assert_array_equal(obs, expected)
