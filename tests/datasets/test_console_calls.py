"""`EpisodeVectorEnv`, the environments of datasets: steps with resets, whole episodes, cores."""

import numpy as np
import pytest

from parl.datasets.environments import EpisodeVectorEnv
from parl.errors import AtariError


def made(count=3, **options):
    given = {"autoreset_mode": "Disabled", "ram_info": True, "repeat_action_probability": 0.25, **options}
    return EpisodeVectorEnv("breakout", count, **given)


def test_a_step_with_resets_equals_a_step_and_a_reset():
    one, two = made(), made()
    for envs in (one, two):
        envs.reset(seed=np.array([5, 6, 7]))
    for _ in range(3):
        one.step(np.array([1, 2, 3]))
        two.step_and_reset([0, 1, 2], np.array([1, 2, 3]), None)
    before, reward, _, _, infos = one.step(np.array([3, 2, 0]))
    after, _ = one.reset(seed=np.array([9]), options={"reset_mask": np.array([False, True, False])})
    obs, last, numbers, _, ram = two.step_and_reset([0, 1, 2], np.array([3, 2, 0]), [-1, 9, -1])
    np.testing.assert_array_equal(obs, after)
    np.testing.assert_array_equal(last, before)
    np.testing.assert_array_equal(numbers[0], reward)
    np.testing.assert_array_equal(ram, infos["ram"])
    assert not np.array_equal(obs[1], last[1])
    np.testing.assert_array_equal(one.get_state(), two.get_state())


def test_environments_that_are_left_out_do_nothing():
    one, two = made(), made()
    for envs in (one, two):
        envs.reset(seed=np.array([5, 6, 7]))
    expected, *_ = one.step(np.array([1, 1, 1]))
    states = two.get_state()
    obs, same, numbers, *_ = two.step_and_reset([0, 2], np.array([1, 1]), None)
    assert obs is same and numbers[5].tolist() == [0, 2]
    np.testing.assert_array_equal(obs, expected[[0, 2]])
    np.testing.assert_array_equal(two.get_state()[1], states[1])


def test_play_stops_at_the_end_of_an_episode():
    one, two = made(1, max_num_steps_per_episode=20), made(1, max_num_steps_per_episode=20)
    actions = np.random.default_rng(0).integers(4, size=30).astype(np.uint8)
    for envs in (one, two):
        envs.reset(seed=3)
    assert one.play(0, actions[:7]) == (7, False)
    assert one.play(0, actions[7:]) == (13, True)
    for action in actions[:20]:
        two.step(np.array([action], np.int64))
    np.testing.assert_array_equal(one.get_state(), two.get_state())
    with pytest.raises(AtariError, match="environment 0 has ended"):
        one.play(0, actions)


def test_a_core_goes_on_as_its_environment():
    memory = {"obs_type": "ram", "stack_num": None}
    one, two = made(2, **memory), made(2, **memory)
    one.reset(seed=4)
    for _ in range(40):
        one.step(np.array([1, 2]))
    core, words = one.get_core(1)
    assert len(core) < 1_000 and len(words) == 2_496
    two.set_core(0, core, words)
    for action in (0, 1, 2, 3, 2):
        one.step(np.array([action, action]))
        two.play(0, np.array([action]))
        np.testing.assert_array_equal(one.get_state()[1], two.get_state(np.array([True, False]))[0])


def test_wrong_calls_are_errors():
    envs = made(obs_type="ram", stack_num=None)
    with pytest.raises(AtariError, match="environment 1 has not been reset"):
        envs.play(1, np.array([0]))
    envs.reset(seed=0)
    zeros = np.zeros(2, np.int64)
    for numbers, message in (([0, 3], "3 does not exist"), ([1, 0], "0 is not above the one before it")):
        with pytest.raises(AtariError, match=message):
            envs.step_and_reset(numbers, zeros, None)
    with pytest.raises(ValueError, match="action 9 of row 0 is outside 0"):
        envs.step_and_reset([0, 1], zeros + 9, None)
    for call in (lambda: envs.play(3, zeros), lambda: envs.get_core(3)):
        with pytest.raises(AtariError, match="environment 3 does not exist"):
            call()
    core, words = envs.get_core(0)
    with pytest.raises(AtariError, match="bytes are not a core"):
        envs.set_core(0, core[:-1], words)
    with pytest.raises(AtariError, match="not the words of a generator"):
        envs.set_core(0, core, words[:-4])
    with pytest.raises(AtariError, match="shows pictures or a stack"):
        made().set_core(0, core, words)
