"""Compares the results of all calls of parl's `ALEInterface` with those of ale-py's, frame by frame."""

import copy
import pickle

import ale_py
import numpy as np
import pytest
from ale_pair import GAMES, Pair, loaded
from ale_py import roms

from parl.atari import ale as parl_ale
from parl.atari import games as parl_games


def _codes(actions):
    return [action.value for action in actions]


def _play(pair, frames, seed, pictures_every=1):
    random = np.random.default_rng(seed)
    action = 0
    for frame in range(frames):
        if frame % 7 == 0:
            action = int(random.integers(18))
        pair.act(action)
        pair.check(pictures=frame % pictures_every == 0)
        if pair.game_over():
            pair.reset_game()


@pytest.mark.parametrize("game", GAMES)
def test_everything_observable_is_equal_in_every_frame(game):
    both = Pair(game)
    both.check()
    both.getScreenDims()
    both.getRAMSize()
    both.getAvailableModes()
    both.getAvailableDifficulties()
    for name in ("getMinimalActionSet", "getLegalActionSet"):
        theirs, ours = getattr(both.theirs, name)(), getattr(both.ours, name)()
        assert _codes(theirs) == _codes(ours)
        assert [action.name for action in theirs] == [action.name for action in ours]
    both.reset_game()
    both.check()
    _play(both, 300, seed=3)


@pytest.mark.slow
@pytest.mark.parametrize("game", [game.id for game in parl_games() if game.players == 1])
def test_every_game_is_equal_in_every_frame_of_every_tenth_mode(game):
    both = Pair(game)
    modes, difficulties = both.getAvailableModes(), both.getAvailableDifficulties()
    for number, mode in enumerate([modes[0], *modes[-1:0:-10]]):
        both.setMode(mode)
        both.setDifficulty(difficulties[number % len(difficulties)])
        both.reset_game()
        both.check()
        _play(both, 300, seed=number, pictures_every=4)


@pytest.mark.parametrize("game", ["space_invaders", "gravitar", "basic_math", "berzerk"])
def test_modes_and_difficulties_are_equal(game):
    both = Pair(game, repeat_action_probability=0.0)
    modes, difficulties = both.getAvailableModes(), both.getAvailableDifficulties()
    for number, mode in enumerate(modes[:: max(1, len(modes) // 4)]):
        both.setMode(mode)
        both.setDifficulty(difficulties[number % len(difficulties)])
        both.reset_game()
        both.check()
        _play(both, 40, seed=number, pictures_every=8)


def test_sticky_actions_of_a_seed_are_equal():
    traces = set()
    for seed in (0, 5, -5, 2**31 - 1):
        both = Pair("breakout", random_seed=seed, repeat_action_probability=0.5)
        _play(both, 80, seed=1, pictures_every=20)
        traces.add(both.getRAM().tobytes())
    assert len(traces) > 1


def test_adventures_second_mode_depends_on_the_seed():
    both = Pair("adventure", random_seed=11)
    both.setMode(2)
    both.reset_game()
    both.check()


@pytest.mark.parametrize("skip", [0, 3])
def test_frame_skip_and_frame_limit_are_equal(skip):
    both = Pair("freeway", frame_skip=skip, max_num_frames_per_episode=10)
    for _ in range(12):
        both.act(2)
        both.check(pictures=False)
    assert both.game_truncated() and not both.game_over(with_truncation=False)
    assert both.getEpisodeFrameNumber() == 10


def test_rewards_are_clamped_after_the_sum():
    both = Pair("space_invaders", frame_skip=4, reward_min=-1, reward_max=3, repeat_action_probability=0.0)
    assert {both.act(1) for _ in range(200)} == {0, 3}


def test_a_lost_life_truncates_with_truncate_on_loss_of_life():
    both = Pair("breakout", truncate_on_loss_of_life=True, repeat_action_probability=0.0)
    for frame in range(160):
        both.act(1 if frame % 5 == 0 else 0)
        both.check(pictures=False)
    assert both.lives() == 4 and both.game_truncated()


def test_strengths_turn_paddles_equally():
    both = Pair("kaboom", repeat_action_probability=0.3)
    random = np.random.default_rng(0)
    for _ in range(150):
        both.act(int(random.integers(18)), float(random.uniform(-1.5, 1.5)))
        both.check()


# ale-py ends the process when it gets a number above 17 in Skiing.
@pytest.mark.parametrize(
    ("game", "actions"), [("breakout", (18, 35, 40, 99, 2**31)), ("skiing", (1, 12, 10))]
)
def test_numbers_that_are_not_actions_do_nothing(game, actions):
    both = Pair(game, repeat_action_probability=0.0)
    for action in actions:
        both.act(action)
        both.check()


def test_ram_can_be_written():
    both = Pair("pong", repeat_action_probability=0.0)
    both.setRAM(14, 9)
    assert both.getRAM()[14] == 9
    both.act(0)
    both.check()


@pytest.mark.parametrize("include_rng", [False, True])
def test_restored_states_are_equal(include_rng):
    both = Pair("breakout", repeat_action_probability=0.4)
    _play(both, 60, seed=5, pictures_every=20)
    theirs, ours = both.theirs.cloneState(include_rng), both.ours.cloneState(include_rng)
    for name in ("getCurrentMode", "getDifficulty", "getFrameNumber", "getEpisodeFrameNumber"):
        assert getattr(theirs, name)() == getattr(ours, name)()
    for seed in range(2):
        # The action that sticky actions repeat is not in the state: the one before the restore stays.
        _play(both, 37 + seed, seed=seed, pictures_every=40)
        both.theirs.restoreState(theirs)
        both.ours.restoreState(ours)
        both.check()
        both.act(4)
        both.check()


@pytest.mark.parametrize("clips", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda ale: pickle.loads(pickle.dumps(ale))])
def test_a_copy_of_the_interface_has_a_console_of_its_own(duplicate, clips):
    ale = parl_ale.ALEInterface()
    if clips:
        ale.setInt("reward_max", 1)
    ale.loadROM("breakout")
    ale.act(1)
    other = duplicate(ale)
    for _ in range(9):
        other.act(3)
    assert (ale.getFrameNumber(), other.getFrameNumber()) == (1, 10)
    for _ in range(9):
        ale.act(3)
    assert np.array_equal(ale.getRAM(), other.getRAM())
    assert ale.cloneSystemState() == other.cloneSystemState()


def test_restoring_a_state_continues_an_ended_game():
    both = Pair("boxing", max_num_frames_per_episode=20)
    states = both.theirs.cloneSystemState(), both.ours.cloneSystemState()
    _play(both, 20, seed=1, pictures_every=5)
    both.theirs.restoreSystemState(states[0])
    both.ours.restoreSystemState(states[1])
    assert not both.game_over()
    _play(both, 10, seed=2, pictures_every=5)


def test_a_set_mode_is_in_the_state_at_once():
    both = Pair("breakout")
    both.setMode(4)
    both.setDifficulty(1)
    theirs, ours = both.theirs.cloneState(), both.ours.cloneState()
    assert theirs.getCurrentMode() == ours.getCurrentMode() == 4
    assert theirs.getDifficulty() == ours.getDifficulty() == 1


@pytest.mark.parametrize("make", [lambda: ale_py.ALEState, lambda: parl_ale.ALEState])
def test_states_can_be_compared_pickled_and_serialized(make):
    state_class = make()
    kind = ale_py.ALEInterface if state_class is ale_py.ALEState else parl_ale.ALEInterface
    interface = loaded(kind, "pong")
    one, two, with_rng = interface.cloneState(), interface.cloneState(), interface.cloneState(True)
    assert one == two and one.equals(two) and not one == with_rng
    assert with_rng == interface.cloneSystemState()
    assert pickle.loads(pickle.dumps(one)) == one
    assert state_class(one.serialize()) == one
    assert isinstance(one.serialize(), bytes)
    interface.act(0)
    assert not interface.cloneState() == one
    # The action that sticky actions repeat is not in the state: actions in between make no difference.
    interface.act(4)
    interface.restoreState(one)
    assert interface.cloneState() == one and interface.cloneState().serialize() == one.serialize()
    interface.restoreState(with_rng)
    assert interface.cloneState(True) == with_rng
    other = loaded(kind, "pong")
    other.restoreState(state_class(one.serialize()))
    assert np.array_equal(other.getRAM(), loaded(kind, "pong").getRAM())


# Calls whose results, or the types of whose errors, must be equal.
CALLS = [
    *[("getInt", key) for key in ("random_seed", "frame_skip", "reward_max", "paddle_min", "cpu", "none")],
    *[("getFloat", key) for key in ("repeat_action_probability", "frame_skip", "sound", "none")],
    *[("getBool", key) for key in ("truncate_on_loss_of_life", "frame_skip", "random_seed", "none")],
    *[
        ("getString", key)
        for key in ("cpu", "frame_skip", "repeat_action_probability", "color_averaging", "none")
    ],
    ("setInt", "none", 3),
    ("setInt", "repeat_action_probability", 3),
    ("setInt", "frame_skip", 2**40),
    ("setInt", "frame_skip", 2.0),
    ("setInt", "frame_skip", True),
    ("setInt", "random_seed", np.int64(5)),
    ("setFloat", "frame_skip", 3.0),
    ("setFloat", "repeat_action_probability", 0),
    ("setFloat", "repeat_action_probability", np.float32(0.1)),
    ("setFloat", "repeat_action_probability", "much"),
    ("setBool", "truncate_on_loss_of_life", 1),
    ("setBool", "frame_skip", True),
    ("setString", "cpu", "low"),
    ("setString", "frame_skip", "3"),
    *[("act", action) for action in (-1, 1.0, "FIRE", 2**33, True, np.int64(1), None)],
    *[("setMode", mode) for mode in (3, -3, "x", 4)],
    *[("setDifficulty", difficulty) for difficulty in (9, -1, 1)],
    *[("setRAM", index, value) for index, value in ((128, 1), (-1, 1), (1, 256), (1, -1), (127, 255))],
    ("getRAM", np.zeros(128, np.uint8)),
    ("getRAM", np.zeros(127, np.uint8)),
    ("getRAM", np.zeros(128, np.int32)),
    ("getScreen", np.zeros((210, 160), np.uint8)),
    ("getScreen", np.zeros((210, 161), np.uint8)),
    ("getScreen", np.zeros(210 * 160, np.uint8)),
    ("getScreen", np.zeros((210, 160), np.int8)),
    ("getScreenRGB", np.zeros((210, 160), np.uint8)),
    ("getScreenRGB", np.zeros((210, 160, 3), np.uint8, order="F")),
    ("getScreenRGB", np.zeros((210, 160, 3), np.uint8)),
    ("getScreenGrayscale", np.zeros((210, 160), np.uint8)),
    ("getScreenGrayscale", np.zeros((10, 160), np.uint8)),
    ("restoreState", b"abc"),
    ("setLoggerMode", "error"),
    ("loadROM", 5),
]


def _outcome(interface, name, arguments):
    arguments = [value.copy() if isinstance(value, np.ndarray) else value for value in arguments]
    try:
        answer = getattr(interface, name)(*arguments)
    except Exception as error:
        return type(error)
    return answer, [value.tolist() for value in arguments if isinstance(value, np.ndarray)]


@pytest.fixture(scope="module")
def breakouts():
    return loaded(ale_py.ALEInterface, "breakout"), loaded(parl_ale.ALEInterface, "breakout")


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]}-{str(call[1:])[:30]}")
def test_calls_return_or_raise_the_same(breakouts, call):
    theirs, ours = (_outcome(interface, call[0], call[1:]) for interface in breakouts)
    assert theirs == ours


def test_calls_without_a_rom_raise():
    # The other calls crash ale-py.
    for kind, names in (
        (ale_py.ALEInterface, ("lives", "getMinimalActionSet")),
        (parl_ale.ALEInterface, ("lives", "getMinimalActionSet", "reset_game", "getScreen", "cloneState")),
    ):
        for name in names:
            with pytest.raises(RuntimeError, match=r"ROM not set|no ROM is loaded"):
                getattr(kind(), name)()


def test_a_refused_setting_is_named_with_its_value():
    interface = parl_ale.ALEInterface()
    for call, key, value, says in [
        (
            interface.setInt,
            "frame_skipp",
            3,
            "the setting 'frame_skipp' cannot be 3: there is none of this name",
        ),
        (interface.setFloat, "frame_skip", 0.5, "the setting 'frame_skip' cannot be 0.5: it is of type int"),
        (interface.setString, "sound", "on", "the setting 'sound' cannot be 'on': it is of type bool"),
    ]:
        with pytest.raises(RuntimeError) as caught:
            call(key, value)
        assert str(caught.value) == says
    interface.loadROM("pong")
    for call, says in [
        (lambda: interface.setMode(99), "mode 99 is not one of [0, 1]"),
        (lambda: interface.setDifficulty(7), "difficulty 7 is not one of [0, 1, 2, 3]"),
        (lambda: interface.setRAM(128, 0), "RAM index 128 is outside 0 to 127"),
    ]:
        with pytest.raises(RuntimeError) as caught:
            call()
        assert str(caught.value) == says


def test_roms_are_recognized_by_their_hash(tmp_path):
    path = tmp_path / "whatever.rom"
    path.write_bytes(roms.get_rom_path("pong").read_bytes())
    for kind in (ale_py.ALEInterface, parl_ale.ALEInterface):
        assert kind.isSupportedROM(path) == "pong"
        with pytest.raises(RuntimeError, match=r"doesn't exist|all.bin is not a file"):
            kind.isSupportedROM("/nowhere/at/all.bin")
        interface = kind()
        interface.loadROM(path)
        assert interface.getMinimalActionSet()[-1].name == "LEFTFIRE"
    path.write_bytes(bytes(4096))
    assert ale_py.ALEInterface.isSupportedROM(path) is parl_ale.ALEInterface.isSupportedROM(path) is None


def test_settings_apply_from_the_next_load():
    both = Pair("pong", frame_skip=2)
    both.setInt("frame_skip", 5)
    both.act(0)
    assert both.getFrameNumber() == 2
    for interface in (both.theirs, both.ours):
        interface.loadROM(roms.get_rom_path("pong"))
    both.act(0)
    assert both.getFrameNumber() == 5


def test_an_interface_without_a_seed_uses_the_time(monkeypatch):
    monkeypatch.setattr(parl_ale.time, "time", lambda: 1000.5)
    interface = parl_ale.ALEInterface()
    interface.loadROM("pong")
    assert interface._console.seed == 1000


def test_missing_features_raise_not_implemented_error():
    interface = loaded(parl_ale.ALEInterface, "pong")
    for name in ("sound", "color_averaging", "display_screen"):
        interface.setBool(name, False)
        with pytest.raises(NotImplementedError, match=name):
            interface.setBool(name, True)
    with pytest.raises(NotImplementedError, match="paddle_max"):
        interface.setInt("paddle_max", 5)


def test_calls_that_end_or_hang_ale_py_raise(tmp_path):
    interface = parl_ale.ALEInterface()
    with pytest.raises(FileNotFoundError, match=r"missing\.bin"):
        interface.loadROM(tmp_path / "missing.bin")
    interface.setInt("frame_skip", -1)
    with pytest.raises(ValueError, match="frame_skip is -1"):
        interface.loadROM("pong")
    with pytest.raises(ValueError, match="not a serialized ALEState"):
        parl_ale.ALEState(b"abc")
    # Numbers that are not actions do nothing, and the four two-player games run.
    interface.setInt("frame_skip", 1)
    interface.loadROM("combat")
    assert interface.act(2**32 - 1) == 0 and interface.lives() == 0 and not interface.game_over()


def test_a_screen_is_saved_as_png(tmp_path):
    import imageio.v3 as imageio

    pictures = []
    for kind in (ale_py.ALEInterface, parl_ale.ALEInterface):
        interface = loaded(kind, "seaquest")
        interface.saveScreenPNG(str(tmp_path / "screen.png"))
        pictures.append(imageio.imread(tmp_path / "screen.png")[..., :3])
    np.testing.assert_array_equal(*pictures)
    with pytest.raises(OSError):
        interface.saveScreenPNG(str(tmp_path / "no" / "folder.png"))
