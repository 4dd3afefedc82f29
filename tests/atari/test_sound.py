"""The sound of a console equals ale-py's; `sound.py` compares 20 games with 3,000 frames."""

import importlib.util
import os
import runpy
import subprocess
import sys
import wave
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
import sound
from ale_pair import Pair, loaded

import parl
from parl.atari import Console
from parl.atari.ale import ALEInterface
from parl.atari.pictures import write_frames
from parl.atari.play import loop
from parl.cli import main
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


# ---------------------------------------------------------------- files


def test_the_example_writes_a_wav_file(tmp_path, monkeypatch, capsys):
    path = tmp_path / "seaquest.wav"
    example = Path(__file__).parents[2] / "examples" / "sound.py"
    monkeypatch.setattr(sys, "argv", ["sound.py", "seaquest", "2", str(path)])
    runpy.run_path(str(example), run_name="__main__")
    assert "2 seconds of Seaquest, 30,720 samples" in capsys.readouterr().out
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 1, 30_720)
        samples = np.frombuffer(file.readframes(file.getnframes()), np.uint8)
    assert samples.shape == (2 * 30_720,) and samples.min() == 128 < samples.max()


def decoded(path, rate):
    """Returns the sound track of a file as float64 samples around 0."""
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-loglevel", "error", "-i", str(path), "-ac", "1"]
    command += ["-ar", str(rate), "-f", "f32le", "pipe:1"]
    done = subprocess.run(command, capture_output=True)
    assert done.returncode == 0, done.stderr
    return np.frombuffer(done.stdout, "<f4").astype(np.float64)


def likeness(track, samples):
    """The correlation of a sound track with samples, at the best shift of up to a tenth of a second."""
    length = 1 << 17
    first, second = (one - one.mean() for one in (track, samples.astype(np.float64)))
    product = np.fft.irfft(np.fft.rfft(first, length) * np.fft.rfft(second, length).conj(), length)
    near = np.concatenate([product[:3000], product[-3000:]]).max()
    return near / np.linalg.norm(first) / np.linalg.norm(second)


def test_a_video_of_a_game_has_its_sound(tmp_path):
    path = tmp_path / "seaquest.mp4"
    arguments = ["record", "seaquest", "-o", str(path), "--frames", "120", "--actions", "FIRE*9 RIGHT*9"]
    assert main(arguments) == 0
    console = Console("seaquest", seed=0, sound=True)
    samples = []
    for frame in range(120):
        console.act("FIRE" if frame % 18 < 9 else "RIGHT")
        samples.append(console.audio)
    samples = np.concatenate(samples)
    track = decoded(path, 30_720)
    assert abs(len(track) - len(samples)) < 3000
    assert likeness(track, samples) > 0.9 > likeness(track, np.roll(samples, 30_000))


def test_a_video_that_cannot_be_written_is_an_error(tmp_path):
    frames = [np.zeros((4, 4, 3), np.uint8)] * 3
    with pytest.raises(OSError, match="ffmpeg could not write"):
        write_frames(
            tmp_path / "none" / "x.mp4", frames, fps=60, scale=1, audio=lambda: np.zeros(512, np.uint8)
        )


def test_a_video_of_a_run_gets_the_sound_of_all_its_frames():
    from parl.envs.make import EnvMaker

    env = EnvMaker("parl/Seaquest-v0").with_pictures(sound=True)(1)
    _, info = env.reset(seed=0)
    assert info["audio"].shape == (1, 2048) and env.metadata["render_fps"] * 2048 == 30_720
    env.close()
    for maker in (
        EnvMaker("parl/Seaquest-v0", {"frameskip": (2, 5)}),
        EnvMaker("parl/Seaquest-v0", {"device": "cuda"}),
        EnvMaker("CartPole-v1"),
    ):
        assert "sound" not in maker.with_pictures(sound=True).options
    assert "sound" not in EnvMaker("parl/Seaquest-v0").with_pictures().options


# ---------------------------------------------------------------- playing


class _Keys:
    """A display without keys and without a screen."""

    def poll(self):
        return frozenset(), []

    def show(self, rgb, status):
        pass


def test_playing_passes_the_sound_of_each_frame_on():
    console, heard = Console("seaquest", seed=0, sound=True), []
    expected = console.clone()
    loop(console, _Keys(), fps=1e6, max_frames=40, listen=heard.append)
    assert len(heard) == 40
    for audio in heard:
        expected.act("NOOP")
        np.testing.assert_array_equal(audio, expected.audio)


SPEAKER = """
import numpy as np
from parl.atari.play import _WindowDisplay
window = _WindowDisplay("sound")
speaker = window.speaker(30_720)
if speaker is None:
    print("no device")
else:
    # Half a minute each, so that none of them ends while this runs.
    parts = [np.full(900_000, 128 + i, np.uint8) for i in range(18)]
    channel = speaker._channel
    for part in parts[:2]:
        speaker.play(part)
    assert not channel.get_busy()
    speaker.play(parts[2])
    assert channel.get_busy() and channel.get_queue() is None
    assert channel.get_sound().get_raw() == np.concatenate(parts[:3]).tobytes()
    speaker.play(parts[3])
    assert channel.get_queue().get_raw() == parts[3].tobytes()
    for part in parts[4:]:
        speaker.play(part)
    # The oldest two of 14 frames that wait are left out.
    assert speaker._waiting == np.concatenate(parts[6:]).tobytes()
    print(window._pygame.mixer.get_init())
    speaker.close()
window.close()
"""


@pytest.mark.skipif(importlib.util.find_spec("pygame") is None, reason="pygame is not installed")
@pytest.mark.parametrize(("driver", "out"), [("dummy", "(30720, 8, 1)\n"), ("none", "no device\n")])
def test_a_window_plays_sound_if_there_is_a_device(driver, out):
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": driver}
    done = subprocess.run([sys.executable, "-c", SPEAKER], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, out), done.stderr
