"""Tests of `parl games`, `parl record` and `parl play`: tables, pictures, keys, terminals, windows."""

import contextlib
import gc
import io
import itertools
import os
import pty
import re
import select
import subprocess
import sys
import time

import imageio.v3 as imageio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parl.atari import Action, Console, game_id, games
from parl.atari.pictures import png_bytes, write_frames
from parl.atari.play import _PLAYER_ONE, action_of, loop, play
from parl.atari.terminal import HOLD_S, Keys, TerminalScreen, fit, resample, screen_of_terminal
from parl.cli import main
from parl.cli.games import table
from parl.errors import AtariError, ConfigError

# ---------------------------------------------------------------- games


def test_games_describes_every_game_as_its_console_does():
    rows = games()
    assert len(rows) == 108 and all(row.found for row in rows)
    assert [row.id for row in rows] == sorted(row.id for row in rows)
    assert len({row.title for row in rows}) == 108
    assert sum(row.players == 2 for row in rows) == 4
    for row in rows:
        console = Console(row.id, seed=0)
        assert console.game == row.id and console.name == row.title and console.md5 == row.md5
        assert console.cartridge == row.cartridge and console.players == row.players
        assert console.minimal_actions == row.actions and console.legal_actions == row.legal_actions
        assert console.modes == row.modes and console.difficulties == row.difficulties
        assert console.mode == row.modes[0] and console.screen_shape == row.screen


def test_games_reports_missing_and_wrong_roms(tmp_path, monkeypatch):
    for name in ("ALE_ROMS_DIR", "ALE_ROM_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARL_ROMS_DIR", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (tmp_path / "pong.bin").write_bytes(bytes(range(256)) * 8)
    by_id = {game.id: game for game in games()}
    assert (by_id["pong"].path, by_id["pong"].found) == (tmp_path / "pong.bin", False)
    assert by_id["qbert"].path is None and not by_id["qbert"].found
    text = table(list(by_id.values()))
    assert re.search(r"^pong .* other md5$", text, re.M) and re.search(r"^qbert .* missing$", text, re.M)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ms_pacman", "ms_pacman"),
        ("MsPacman", "ms_pacman"),
        ("ms-pacman", "ms_pacman"),
        ("ALE/MsPacman-v5", "ms_pacman"),
        ("parl/MsPacman-v0", "ms_pacman"),
        ("MsPacmanNoFrameskip-v4", "ms_pacman"),
        ("TicTacToe3D", "tic_tac_toe_3d"),
        ("ALE/Pitfall2-v5", "pitfall2"),
    ],
)
def test_a_game_is_found_by_each_of_its_names(name, expected):
    assert game_id(name) == expected


def test_gymnasiums_names_are_known():
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    names = [name for name in gymnasium.registry if name.startswith("ALE/")]
    assert len(names) >= 104
    assert all(game_id(name) for name in names)


@pytest.mark.parametrize("name", ["", "brekout", "doom", "ALE/", "-v5"])
def test_unknown_names_are_refused(name):
    with pytest.raises(AtariError, match="there is no game"):
        game_id(name)


def test_games_prints_a_table(capsys):
    assert main(["games"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == "id title cartridge players actions modes difficulties screen rom".split()
    assert lines[-1] == "108 games, 108 ROMs found" and len(lines) == 111
    assert main(["games", "Breakout", "qbert"]) == 0
    text = capsys.readouterr().out
    assert "modes         0, 4, 8" in text and "3 RIGHT, 4 LEFT" in text and "Q*bert" in text
    assert main(["games", "doom"]) == 1
    assert "there is no game 'doom'" in capsys.readouterr().err


# ---------------------------------------------------------------- recording


# imageio's reader of videos leaves its pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("suffix", [".png", ".gif", ".mp4"])
def test_a_recording_shows_the_game(tmp_path, capsys, suffix):
    path = tmp_path / f"breakout{suffix}"
    arguments = ["record", "breakout", "-o", str(path), "--frames", "31", "--actions", "FIRE*2 RIGHT*9"]
    assert main(arguments) == 0
    assert "31 frames of Breakout" in capsys.readouterr().out
    pictures = imageio.imread(path, index=None) if suffix != ".png" else imageio.imread(path)[None]
    gc.collect()
    assert pictures.shape[1:] == (420, 640, 3)
    assert len(pictures) == {".png": 1, ".gif": 16, ".mp4": 31}[suffix]
    console = Console("breakout", seed=0)
    for frame in range(31):
        console.act("FIRE" if frame % 11 < 2 else "RIGHT")
    # Both codecs blur or quantize a little.
    error = np.abs(pictures[-1][::2, ::4].astype(int) - console.screen_rgb).mean()
    assert error == 0 if suffix == ".png" else error < 6


def test_random_play_depends_on_the_seed_alone(tmp_path):
    for name, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        arguments = ["record", "breakout", "-o", str(tmp_path / f"{name}.png"), "--frames", "100"]
        assert main([*arguments, "--seed", seed]) == 0
    a, b, c = ((tmp_path / f"{name}.png").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--frames", "0"], "--frames is 0"),
        (["--scale", "0"], "--scale is 0"),
        (["--scale", "17"], "--scale is 17"),
        (["--actions", "FIRE*0"], "has the count '0'"),
        (["--actions", "JUMP"], "action is 'JUMP', expected one of NOOP"),
        (["--actions", "99"], r"action 99 is outside"),
        (["--actions", " "], "--actions is empty"),
        (["--mode", "3"], "mode 3 is not one of"),
        (["--difficulty", "7"], "difficulty 7 is not one of"),
        (["--seed", "-1"], "seed is -1"),
        (["-o", "file.bmp"], "ends in '.bmp'"),
        (["-o", "no/such/folder/x.png"], "no/such/folder"),
    ],
)
def test_record_refuses_wrong_options(tmp_path, monkeypatch, capsys, options, error):
    monkeypatch.chdir(tmp_path)
    assert main(["record", "breakout", "-o", "x.png", "--frames", "2", *options]) == 1
    assert error in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_without_imageio_only_png_files_are_written(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    frames = [np.zeros((4, 4, 3), np.uint8)]
    assert write_frames(tmp_path / "x.png", frames, fps=60, scale=1) == 1
    with pytest.raises(ConfigError, match=r"pip install 'parl-rl\[video\]'"):
        write_frames(tmp_path / "x.mp4", frames, fps=60, scale=1)
    with pytest.raises(ConfigError, match="frames is empty"):
        write_frames(tmp_path / "y.png", [], fps=60, scale=1)


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_png_files_hold_the_picture(height, width, seed):
    rgb = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    assert np.array_equal(imageio.imread(png_bytes(rgb)), rgb)


# ---------------------------------------------------------------- playing


def test_keys_map_to_actions():
    cases = {"": "NOOP", "up": "UP", "up right": "UPRIGHT", "left right": "NOOP", "up down left": "LEFT"}
    for keys, name in cases.items():
        assert action_of(keys.split(), _PLAYER_ONE) is Action[name]
        fired = "FIRE" if name == "NOOP" else name + "FIRE"
        assert action_of([*keys.split(), " "], _PLAYER_ONE) is Action[fired]


def test_a_terminal_without_key_releases_holds_keys_for_a_moment():
    now = [0.0]
    keys = Keys(lambda: now[0])
    keys.feed(b"\x1b[A \x1bOC")
    assert keys.held() == {"up", " ", "right"} and keys.pressed() == ["up", " ", "right"]
    now[0] = HOLD_S / 2
    keys.feed(b"\x1b[A")
    assert keys.pressed() == []
    now[0] = HOLD_S * 1.1
    assert keys.held() == {"up"}
    now[0] = HOLD_S * 2
    assert keys.held() == frozenset()


def test_a_terminal_with_key_releases_holds_keys_until_then():
    now = [0.0]
    keys = Keys(lambda: now[0])
    keys.feed(b"\x1b[1;1:1A\x1b[32;1:1u\x1b[119;1:2u")
    now[0] = 1000.0
    assert keys.held() == {"up", " ", "w"}
    keys.feed(b"\x1b[1;1:3A\x1b[32;1:3u\x1b[99;5u\x1b[27u")
    assert keys.held() == {"w", "ctrl+c", "escape"}


@given(st.binary(max_size=40), st.lists(st.integers(0, 40)))
def test_keys_do_not_depend_on_how_the_input_is_split(data, cuts):
    whole, pieces = Keys(lambda: 0.0), Keys(lambda: 0.0)
    whole.feed(data)
    edges = [0, *sorted({cut for cut in cuts if 0 < cut < len(data)}), len(data)]
    for start, end in itertools.pairwise(edges):
        pieces.feed(data[start:end])
    assert pieces.pressed() == whole.pressed() and pieces.held() == whole.held()
    if b"\x1b" not in data:
        assert whole.held() == {chr(byte).lower() for byte in data}


def test_an_escape_sequence_may_arrive_in_parts():
    keys = Keys(lambda: 0.0)
    for byte in b"\x1b[1;1:1A":
        keys.feed(bytes([byte]))
    assert keys.held() == {"up"}


def test_a_lone_escape_is_the_escape_key():
    keys = Keys(lambda: 0.0)
    keys.feed(b"\x1b")
    assert keys.pressed() == []
    keys.feed(b"")
    assert keys.pressed() == ["escape"]


@given(st.integers(1, 300), st.integers(1, 100))
def test_pictures_fit_the_terminal(columns, rows):
    width, height = fit(columns, rows)
    assert 2 <= width <= max(2, columns) and 2 <= height <= max(2, 2 * rows) and height % 2 == 0


@given(st.integers(1, 90), st.integers(1, 90))
def test_resampling_keeps_a_flat_picture(height, width):
    picture = np.zeros((30, 20, 3), np.uint8)
    picture[:, :, 0], picture[:, :, 1] = 200, 31
    small = resample(picture, height, width)
    assert small.shape == (height, width, 3) and (small == (200, 31, 0)).all()


def test_resampling_averages():
    picture = np.arange(8, dtype=np.uint8).reshape(2, 4, 1) * 10
    assert resample(picture, 1, 2).tolist() == [[[25], [45]]]
    assert resample(picture, 2, 8)[0, :, 0].tolist() == [0, 0, 10, 10, 20, 20, 30, 30]


@pytest.mark.parametrize("true_color", [False, True])
def test_only_changed_lines_are_written(true_color):
    written = []

    class Out:
        write = staticmethod(written.append)

        def flush(self):
            written.append("|")

    screen = TerminalScreen(Out(), 40, 16, true_color=true_color)
    picture = np.zeros((210, 160, 3), np.uint8)
    screen.draw(picture, "score 0")
    first = "".join(written)
    assert first.count("\u2580") == screen.width * screen.height // 2 and "score 0" in first
    written.clear()
    screen.draw(picture, "score 0")
    assert written == []
    picture[:20] = 255
    screen.draw(picture, "score 1")
    second = "".join(written)
    white = "\x1b[38;2;255;255;255m" if true_color else "\x1b[38;5;231m"
    assert white in second and len(second) < len(first) / 2


class _Script:
    """A display that returns given keys, and stores the pictures that it is given."""

    def __init__(self, keys):
        self.keys = iter(keys)
        self.shown = []
        self.before = frozenset()

    def poll(self):
        held = frozenset(next(self.keys))
        pressed, self.before = sorted(held - self.before), held
        return held, pressed

    def show(self, rgb, status):
        self.shown.append((rgb, status))


def test_playing_pauses_resets_and_quits():
    clock = [0.0]
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        clock[0] += seconds

    console = Console("breakout", seed=0)
    display = _Script([*[{" "}] * 5, {"p"}, set(), {"right"}, {"p"}, {"r"}, {"right"}, {"q"}])
    assert loop(console, display, fps=50.0, clock=lambda: clock[0], sleep=sleep) == 0
    statuses = [status for _, status in display.shown]
    assert len(statuses) == 11 and sum("paused" in status for status in statuses) == 3
    assert console.episode_frame_number == 2
    assert slept and all(abs(seconds - 0.02) < 1e-9 for seconds in slept)
    assert "arrows move" in statuses[0] and "lives 5" in statuses[0]


def test_two_players_share_one_keyboard():
    console = Console("combat", seed=0)
    expected = console.clone()
    display = _Script([{"up", "w", "f"}] * 30)
    loop(console, display, fps=1e6, max_frames=30)
    for _ in range(30):
        expected.act("UP", "UPFIRE")
    assert np.array_equal(console.ram, expected.ram) and "player two" in display.shown[0][1]


def test_play_does_not_catch_up_after_a_delay():
    clock = [0.0]
    slept = []

    class Slow(_Script):
        def show(self, rgb, status):
            clock[0] += 10.0 if len(self.shown) == 2 else 0.0
            super().show(rgb, status)

    display = Slow([set()] * 8)
    loop(
        Console("pong", seed=0),
        display,
        fps=60.0,
        max_frames=8,
        clock=lambda: clock[0],
        sleep=lambda seconds: (slept.append(seconds), clock.__setitem__(0, clock[0] + seconds)),
    )
    assert len(slept) == 6


def test_play_without_terminal_and_window_fails(monkeypatch, capsys):
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SDL_VIDEODRIVER"):
        monkeypatch.delenv(name, raising=False)
    assert main(["play", "pong"]) == 1
    assert "neither a terminal nor a window" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"fps is 0\.0"):
        play(Console("pong"), fps=0.0)
    console = Console("pong")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="a window needs pygame"):
        play(console, where="window")


def test_a_terminal_without_half_blocks_is_an_error(monkeypatch):
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    with pytest.raises(ConfigError, match="the encoding of the terminal is latin-1"):
        screen_of_terminal()


def test_play_draws_in_a_terminal_and_restores_it():
    pid, fd = pty.fork()
    if pid == 0:
        os.environ.pop("DISPLAY", None)
        os.execv(sys.executable, [sys.executable, "-m", "parl", "play", "breakout", "--terminal"])
    received, pressed = b"", False
    end = time.monotonic() + 200
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            with contextlib.suppress(OSError):
                part = os.read(fd, 65536)
                received += part
                if part:
                    continue
            break
        if not pressed and "\u2580".encode() in received:
            os.write(fd, b" \x1b[Cq")
            pressed = True
        elif b"lives" in received and not pressed:
            os.write(fd, b"q")
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    assert os.waitstatus_to_exitcode(status) == 0
    text = received.decode()
    assert text.index("\x1b[?1049h") < text.index("\u2580") < text.index("\x1b[?1049l")
    assert "score" in text.split("\x1b[?1049l")[1]


def test_a_window_shows_the_game():
    environment = {**os.environ, "SDL_VIDEODRIVER": "dummy"}
    done = subprocess.run(
        [sys.executable, "-m", "parl", "play", "pong", "--window", "--frames", "30", "--fps", "1000"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert (done.returncode, done.stdout) == (0, "Pong (Video Olympics): score 0 after 30 frames\n")


def test_a_closed_pipe_is_not_an_error():
    command = f"{sys.executable} -m parl games | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=200)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("id ")
