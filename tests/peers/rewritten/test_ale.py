"""The documented behavior of the environments of ale-py and EnvPool, compared with parl's.

Written from the documentation of their public interfaces, without their sources.
"""

import ale_py
import gymnasium
import numpy as np
import pytest
from ale_py import roms

import parl
from parl.atari import ale as ours

LIBRARIES = pytest.mark.parametrize("library", [ale_py, ours], ids=["ale_py", "parl"])


def interface(library, game="breakout", **settings):
    ale = library.ALEInterface()
    for name, value in {"random_seed": 1, **settings}.items():
        {int: ale.setInt, float: ale.setFloat, bool: ale.setBool}[type(value)](name, value)
    ale.loadROM(roms.get_rom_path(game))
    return ale


@pytest.fixture(autouse=True, scope="module")
def quiet():
    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)


@LIBRARIES
def test_screens_and_memory(library):
    ale = interface(library)
    assert ale.getScreenDims() == (210, 160)
    assert (ale.getScreen().shape, ale.getScreenRGB().shape) == ((210, 160), (210, 160, 3))
    assert ale.getScreenGrayscale().shape == (210, 160)
    assert (ale.getRAMSize(), ale.getRAM().shape, ale.getRAM().dtype) == (128, (128,), np.uint8)
    buffer = np.zeros((210, 160, 3), np.uint8)
    ale.getScreenRGB(buffer)
    np.testing.assert_array_equal(buffer, ale.getScreenRGB())
    ale.setRAM(5, 17)
    assert ale.getRAM()[5] == 17


@LIBRARIES
def test_actions_modes_and_difficulties(library):
    ale = interface(library)
    assert [action.value for action in ale.getMinimalActionSet()] == [0, 1, 3, 4]
    assert len(ale.getLegalActionSet()) == 18
    assert 0 in ale.getAvailableModes()
    assert ale.getAvailableDifficulties() == [0, 1]
    ale.setDifficulty(1)
    ale.reset_game()
    assert ale.lives() == 5


@LIBRARIES
def test_frames_are_counted_and_games_end(library):
    ale = interface(library, max_num_frames_per_episode=50)
    while not ale.game_over():
        ale.act(0)
    assert ale.game_truncated()
    frames = ale.getFrameNumber()
    ale.reset_game()
    assert (ale.getEpisodeFrameNumber(), ale.game_over()) == (0, False)
    assert ale.getFrameNumber() >= frames


@LIBRARIES
@pytest.mark.parametrize("include_rng", [False, True])
def test_states_restore_the_game(library, include_rng):
    ale = interface(library, repeat_action_probability=0.25)
    for i in range(100):
        ale.act(i % 4)
    state = ale.cloneState(include_rng=include_rng)
    screen = ale.getScreen().copy()
    seen = []
    for _ in range(2):
        ale.restoreState(state)
        np.testing.assert_array_equal(ale.getRAM(), ale.getRAM())
        seen.append([ale.act(i % 4) for i in range(200)] + ale.getRAM().tolist())
    assert seen[0] == seen[1] or not include_rng
    ale.restoreState(state)
    assert ale.cloneState(include_rng=include_rng) == state
    assert screen.shape == ale.getScreen().shape


def test_games_are_equal_frame_by_frame():
    pair = [interface(library, frame_skip=4, repeat_action_probability=0.0) for library in (ale_py, ours)]
    random = np.random.default_rng(0)
    for _ in range(300):
        action = int(random.choice([0, 1, 3, 4]))
        assert len({ale.act(action) for ale in pair}) == 1
        np.testing.assert_array_equal(pair[0].getScreenRGB(), pair[1].getScreenRGB())
        if pair[0].game_over():
            [ale.reset_game() for ale in pair]


def test_vector_environments_are_equal():
    pair = [cls("breakout", 2) for cls in (ale_py.AtariVectorEnv, parl.AtariVectorEnv)]
    seen = [[envs.reset(seed=3)[0]] for envs in pair]
    random = np.random.default_rng(0)
    for _ in range(100):
        actions = random.integers(0, 4, 2)
        for envs, found in zip(pair, seen, strict=True):
            found.extend(envs.step(actions)[:4])
    for one, two in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, two)


def test_environments_equal_those_of_envpool():
    envpool = pytest.importorskip("envpool", reason="EnvPool has no wheel for this Python")
    theirs = envpool.make_gymnasium("Breakout-v5", num_envs=2, num_threads=1, seed=5)
    mine = parl.make_vec("breakout", 2, preset="envpool")
    assert theirs.action_space.n == mine.single_action_space.n
    theirs.reset()
    mine.reset(seed=5)
    random = np.random.default_rng(0)
    for _ in range(100):
        actions = random.integers(0, 4, 2)
        one, two = theirs.step(actions), mine.step(actions)
        for given, found in zip(one[1:4], two[1:4], strict=True):
            np.testing.assert_array_equal(given, found)
    theirs.close()


def test_gymnasium_ids_have_the_same_spaces():
    gymnasium.register_envs(ale_py)
    theirs, mine = gymnasium.make("ALE/Pong-v5"), gymnasium.make("parl:parl/Pong-v0")
    assert theirs.action_space == mine.action_space
