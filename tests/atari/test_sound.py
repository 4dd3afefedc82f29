"""The sound of a console equals ale-py's; `sound.py` compares 20 games with 3,000 frames."""

import numpy as np
import pytest
import sound
from ale_pair import Pair, loaded

import parl
from parl.atari import Console
from parl.atari.ale import ALEInterface
from parl.errors import AtariError


@pytest.mark.parametrize("game", ["breakout", "berzerk", "double_dunk", "pitfall2", "surround", "video_cube"])
def test_a_game_sounds_as_in_ale_py(game, monkeypatch):
    monkeypatch.setattr(sound, "RESET_EVERY", 130)
    monkeypatch.setattr(sound, "RESTORE_EVERY", 90)
    monkeypatch.setattr(sound, "SAVED_BEFORE", 40)
    result = sound.play_all(game, 300)
    assert result.wrong is None
    assert result.audible > 20


def test_an_act_after_the_end_of_an_episode_makes_sound_too():
    pair = Pair("seaquest", sound_obs=True, max_num_frames_per_episode=100)
    while not pair.game_over():
        pair.act(1)
        pair.getAudio()
    frames = pair.getFrameNumber()
    buffers = []
    for _ in range(5):
        pair.act(1)
        buffers.append(pair.getAudio().tobytes())
    assert pair.getFrameNumber() == frames
    assert len(set(buffers)) > 1


def test_the_interface_looks_at_the_setting_when_it_loads_a_rom():
    pair = Pair("pong")
    assert pair.getAudioSize() == 512
    for _ in range(3):
        pair.setBool("sound_obs", True)
        pair.act(3)
        assert not pair.getAudio().any()
    buffer = np.ones(512, np.uint8)
    sounding = loaded(ALEInterface, "pong", sound_obs=True)
    assert sounding.getAudio(buffer) is None and not buffer.any()
    sounding.setBool("sound_obs", False)
    sounding.act(3)
    assert sounding.getAudio(buffer) is None
    np.testing.assert_array_equal(buffer, sounding.getAudio())
    assert buffer.min() >= 128


@pytest.mark.parametrize(
    "buffer", [np.zeros(511, np.uint8), np.zeros(512, np.int8), np.zeros(1024, np.uint8)[::2], [0] * 512]
)
def test_the_interface_refuses_what_ale_py_refuses(buffer):
    pair = Pair("pong", sound_obs=True)
    for interface in (pair.theirs, pair.ours):
        with pytest.raises(TypeError):
            interface.getAudio(buffer)


def test_audio_is_an_array_of_the_callers():
    console = Console("seaquest", seed=0, sound=True)
    before = console.audio
    assert (before.shape, before.dtype, before.max()) == ((512,), np.uint8, 0)
    console.act("FIRE")
    first = console.audio
    assert not before.any() and first.min() >= 128
    out = np.empty(512, np.uint8)
    assert console.read_audio(out) is out
    np.testing.assert_array_equal(out, first)
    first[:] = 7
    np.testing.assert_array_equal(console.audio, out)


def test_sound_changes_nothing_else():
    consoles = [Console("berzerk", seed=3, repeat_action_probability=0.25, sound=on) for on in (False, True)]
    for t in range(300):
        silent, sounding = (console.act(t // 7 % 18) for console in consoles)
        assert silent == sounding
        if t % 100 == 50:
            for console in consoles:
                console.reset()
    first, second = consoles
    assert first.save() == second.save()
    np.testing.assert_array_equal(first.screen, second.screen)


def test_drawing_makes_no_difference():
    read, unread = (Console("robotank", seed=0, sound=True) for _ in range(2))
    for t in range(200):
        for console in (read, unread):
            console.act(t // 5 % 18)
        if t % 3 == 0:
            _ = read.screen_rgb
        np.testing.assert_array_equal(read.audio, unread.audio)


def test_a_state_holds_no_sound_and_a_copy_does():
    console = Console("seaquest", seed=0, sound=True)
    for _ in range(60):
        console.act("FIRE")
    state, copy = console.save(), console.clone()
    loud = console.audio
    console.load(state)
    np.testing.assert_array_equal(console.audio, loud)
    np.testing.assert_array_equal(copy.audio, loud)
    for _ in range(20):
        console.act("RIGHT")
        copy.act("RIGHT")
        np.testing.assert_array_equal(copy.audio, console.audio)
    new = Console("seaquest", seed=0, sound=True)
    new.load(state)
    assert not new.audio.any()


def test_a_console_without_sound_says_how_to_get_it():
    console = Console("pong")
    assert not console.sound
    with pytest.raises(AtariError, match="makes no sound: sound is False, make it with sound=True"):
        _ = console.audio
    assert Console("pong", sound=True).sound


def test_devices_make_no_sound():
    with pytest.raises(AtariError, match="sound is True with device='cuda', expected device=\"cpu\""):
        Console("pong", sound=True, device="cuda")
    with pytest.raises(AtariError, match="sound is True with device='cuda:1', expected device=\"cpu\""):
        parl.AtariVectorEnv("pong", sound=True, device="cuda:1")


@pytest.mark.parametrize(("game", "rate"), [("pong", 30_720), ("air_raid", 25_600)])
def test_a_second_has_512_samples_per_frame(game, rate):
    console = Console(game, sound=True)
    assert console.audio_sample_rate == rate == 512 * console.frames_per_second


@pytest.mark.parametrize(
    ("out", "error"),
    [(np.zeros(511, np.uint8), ValueError), (np.zeros(512, np.int8), ValueError), ([0] * 512, TypeError)],
)
def test_a_wrong_buffer_is_an_error(out, error):
    with pytest.raises(error):
        Console("pong", sound=True).read_audio(out)
