"""Tests of `Console`: actions, RAM, pictures, settings, ROMs, saved states, copies, threads and errors."""

import copy
import pickle
import shutil
import struct
import sys
import threading
import time
import zlib

import numpy as np
import pytest
from ale_py import roms
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parl.atari import Action, Console, games
from parl.atari.actions import action_number
from parl.errors import AtariError, ParlError

PONG, BREAKOUT = (roms.get_rom_path(game) for game in ("pong", "breakout"))


def checksum_of(console):
    """Returns a checksum of everything observable."""
    state = (console.lives, console.game_over, console.frame_number, console.episode_frame_number)
    return zlib.crc32(repr(state).encode() + console.ram.tobytes() + console.screen.tobytes())


def play(console, frames, seed=0):
    random = np.random.default_rng(seed)
    return [(console.act(int(action)), checksum_of(console)) for action in random.integers(18, size=frames)]


@pytest.fixture
def breakout():
    return Console("breakout", seed=1)


# ---------------------------------------------------------------- actions


def test_an_action_may_be_a_name_a_number_or_a_member():
    one, two, three = (Console("breakout", seed=1) for _ in range(3))
    for name in ("FIRE", "right", "NoOp", "LEFTFIRE"):
        one.act(name)
        two.act(Action[name.upper()])
        three.act(np.int64(Action[name.upper()].value))
        assert checksum_of(one) == checksum_of(two) == checksum_of(three)
    assert one.minimal_actions == (Action.NOOP, Action.FIRE, Action.RIGHT, Action.LEFT)
    assert one.legal_actions == tuple(Action)
    assert len(Console("skiing").legal_actions) == 9


@given(st.integers())
def test_numbers_that_are_not_actions_are_refused(number):
    if 0 <= number < 18:
        assert action_number(number) == number
    else:
        with pytest.raises(AtariError, match=rf"action {number} is outside 0 to 17"):
            action_number(number)


@given(st.text())
def test_names_that_are_not_actions_are_refused(name):
    if name.upper() in Action.__members__:
        assert action_number(name) == Action[name.upper()]
    else:
        with pytest.raises(AtariError, match="expected one of NOOP, FIRE"):
            action_number(name)


@pytest.mark.parametrize("action", [None, 1.0, b"FIRE", [1]])
def test_actions_of_other_types_are_refused(breakout, action):
    with pytest.raises(TypeError, match="expected an int or a name"):
        breakout.act(action)


@pytest.mark.parametrize("strength", [float("nan"), float("inf"), -float("inf")])
def test_strengths_that_are_not_finite_are_refused(breakout, strength):
    with pytest.raises(ValueError, match=r"strength is .*expected a finite number"):
        breakout.act("LEFT", strength=strength)
    with pytest.raises(ValueError, match="strength_b"):
        breakout.act("LEFT", "LEFT", strength_b=strength)


def test_a_huge_strength_turns_a_paddle_to_its_end(breakout):
    other = breakout.clone()
    breakout.act("RIGHT", strength=1e30)
    other.act("RIGHT", strength=40.0)
    assert checksum_of(breakout) == checksum_of(other)


# Joust starts with one player.
@pytest.mark.parametrize(
    ("game", "moving"), [("combat", 2), ("joust", 1), ("maze_craze", 2), ("warlords", 2)]
)
def test_two_player_games_take_actions_of_both_players(game, moving):
    console = Console(game, seed=0)
    assert console.players == 2 and console.modes == (0,)
    assert (console.lives, console.game_over) == (0, False)
    alone, first, second = console.clone(), console.clone(), console.clone()
    for step in range(120):
        action = (Action.UP, Action.RIGHTFIRE, Action.LEFT, Action.UPRIGHT)[step // 30]
        assert alone.act(Action.NOOP) == first.act(action) == second.act(Action.NOOP, action) == 0
    assert len({alone.ram.tobytes(), first.ram.tobytes(), second.ram.tobytes()}) == 1 + moving


def test_the_second_player_of_a_one_player_game_can_act():
    alone = Console("pong", seed=0)
    beside = alone.clone()
    for _ in range(60):
        alone.act("NOOP")
        beside.act("NOOP", "RIGHT")
    assert alone.players == 1
    assert not np.array_equal(alone.ram, beside.ram)


# ---------------------------------------------------------------- RAM and pictures


def test_ram_is_a_read_only_copy(breakout):
    ram = breakout.ram
    assert (ram.shape, ram.dtype, ram.flags.writeable) == ((128,), np.uint8, False)
    before = ram.copy()
    breakout.write_ram(3, 200)
    assert breakout.ram[3] == 200 and np.array_equal(ram, before)


@given(st.integers(), st.integers())
def test_ram_is_written_within_its_bounds(index, value):
    console = _shared_console()
    if 0 <= index < 128 and 0 <= value < 256:
        console.write_ram(index, value)
        assert console.ram[index] == value
    elif not 0 <= value < 256:
        with pytest.raises(ValueError, match=f"value is {value}"):
            console.write_ram(index, value)
    else:
        with pytest.raises(IndexError, match=f"RAM index {index} is outside"):
            console.write_ram(index, value)


_CONSOLES = {}


def _shared_console():
    return _CONSOLES.setdefault("pong", Console("pong", seed=0))


def test_reads_fill_given_arrays(breakout):
    breakout.act("FIRE")
    shape = breakout.screen_shape
    assert shape == (210, 160)
    for read, expected in (
        (breakout.read_ram, breakout.ram),
        (breakout.read_screen, breakout.screen),
        (breakout.read_screen_rgb, breakout.screen_rgb),
        (breakout.read_screen_gray, breakout.screen_gray),
    ):
        out = np.empty(expected.shape, np.uint8)
        assert read(out) is out and read(out=out) is out
        assert np.array_equal(out, expected) and np.array_equal(read(), expected)
        with pytest.raises(ValueError, match=r"out has shape \[3\], expected"):
            read(np.empty(3, np.uint8))
        with pytest.raises(ValueError, match="uint8"):
            read(np.empty(expected.shape, np.int16))
        with pytest.raises(ValueError, match="C-contiguous"):
            read(np.empty((*expected.shape, 2), np.uint8)[..., 0])
        with pytest.raises(TypeError, match="expected an array"):
            read([0] * expected.size)
        frozen = np.empty(expected.shape, np.uint8)
        frozen.flags.writeable = False
        with pytest.raises(ValueError, match="writable"):
            read(frozen)
    assert breakout.screen_rgb.shape == (*shape, 3)
    assert breakout.screen_rgb.any() and breakout.screen_rgb.flags.writeable


@pytest.mark.parametrize(
    ("game", "height", "fps"), [("pong", 210, 60.0), ("adventure", 250, 50.0), ("pooyan", 220, 60.0)]
)
def test_screen_and_frame_rate_of_television_standards(game, height, fps):
    console = Console(game)
    assert (console.screen_shape, console.frames_per_second) == ((height, 160), fps)


GAMES = [game.id for game in games() if game.found]


def always_drawn(console):
    """Returns a copy that draws every frame at once."""
    other = console.clone()
    other._native.draw_every_frame()
    return other


@pytest.mark.parametrize("game", GAMES)
def test_a_picture_does_not_depend_on_which_frames_were_read(game):
    random = np.random.default_rng(zlib.crc32(game.encode()))
    lazy = Console(game, seed=3, frame_skip=int(random.integers(1, 4)))
    drawn = always_drawn(lazy)
    assert np.array_equal(lazy.screen, drawn.screen)
    state = lazy.save()
    # Pictures are read at random, then in a pattern, which the console predicts, then seldom.
    for act in range(240):
        action = int(random.integers(18))
        assert lazy.act(action) == drawn.act(action)
        event = random.random()
        if event < 0.01:
            lazy.reset()
            drawn.reset()
        elif event < 0.02:
            lazy.load(state)
            drawn.load(state)
        elif event < 0.03:
            lazy = lazy.clone()
        elif event < 0.04:
            state = lazy.save()
            assert state == drawn.save()
        reads = random.random() < 0.3 if act < 80 else act % 4 < 2 if act < 160 else act % 23 == 0
        if reads:
            read = ("read_screen", "read_screen_gray", "read_screen_rgb")[act % 3]
            assert np.array_equal(getattr(lazy, read)(), getattr(drawn, read)()), (act, read)
    assert np.array_equal(lazy.ram, drawn.ram)


# ---------------------------------------------------------------- modes and settings


def test_a_mode_applies_at_the_next_reset_and_a_difficulty_at_once(breakout):
    assert breakout.mode == 0 and breakout.difficulty == 0
    breakout.set_mode(8)
    breakout.set_difficulty(1)
    before = breakout.ram[0x32]
    breakout.act("NOOP")
    assert breakout.ram[0x32] == before != 8
    breakout.reset()
    assert breakout.ram[0x32] == 8 and (breakout.mode, breakout.difficulty) == (8, 1)
    assert checksum_of(Console("breakout", mode=8, difficulty=1)) != checksum_of(Console("breakout"))


@given(st.integers())
def test_unknown_modes_and_difficulties_are_refused(number):
    console = _shared_console()
    for names, choose in (("modes", console.set_mode), ("difficulties", console.set_difficulty)):
        if number not in getattr(console, names):
            with pytest.raises(AtariError, match=str(number)):
                choose(number)


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("seed", -1, "seed is -1"),
        ("seed", 2**32, "seed is 4294967296"),
        ("system_seed", -1, "system_seed is -1"),
        ("frame_skip", 0, "frame_skip is 0"),
        ("frame_skip", -4, "frame_skip is -4"),
        ("frame_skip", 10**9, "frame_skip is 1000000000"),
        ("repeat_action_probability", 1.5, r"repeat_action_probability is 1\.5"),
        ("repeat_action_probability", -0.1, "repeat_action_probability is -0"),
        ("repeat_action_probability", float("nan"), "repeat_action_probability is NaN"),
        ("max_num_frames_per_episode", -1, "max_num_frames_per_episode is -1"),
        ("max_num_frames_per_episode", 2**31, "max_num_frames_per_episode is 2147483648"),
        ("mode", 3, r"mode 3 is not one of breakout's modes \[0, 4, 8"),
        ("mode", -1, "mode is -1"),
        ("difficulty", 2, r"difficulty 2 is not one of breakout's difficulties \[0, 1\]"),
        ("rules", "brekout", "did you mean breakout"),
    ],
)
def test_settings_out_of_bounds_are_named(name, value, error):
    with pytest.raises(AtariError, match=error) as caught:
        Console("breakout", **{name: value})
    assert isinstance(caught.value, ParlError) and isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    ("name", "value"), [("seed", 1.5), ("frame_skip", "4"), ("mode", "1"), ("sound", "no")]
)
def test_settings_of_other_types_are_refused(name, value):
    with pytest.raises(TypeError, match=name):
        Console("breakout", **{name: value})


def test_sticky_actions_depend_on_the_seed():
    traces = [play(Console("breakout", seed=seed, repeat_action_probability=0.5), 60) for seed in (3, 3, 4)]
    assert traces[0] == traces[1] != traces[2]
    assert Console("breakout").seed != Console("breakout").seed


# ---------------------------------------------------------------- ROMs


@pytest.fixture
def no_roms(monkeypatch, tmp_path):
    """Hides ale-py, and makes an empty folder the only one with ROMs; returns the folder."""
    for name in ("ALE_ROMS_DIR", "ALE_ROM_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PARL_ROMS_DIR", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    return tmp_path


def test_the_error_for_a_missing_rom_names_the_folders_and_ale_py(no_roms):
    with pytest.raises(FileNotFoundError, match="pip install ale-py") as caught:
        Console("pong")
    assert str(no_roms / "pong.bin") in str(caught.value)
    with pytest.raises(FileNotFoundError, match="did you mean breakout"):
        Console("brekout")
    with pytest.raises(FileNotFoundError, match=r"no/such\.bin"):
        Console("no/such.bin")


def test_rom_folders_are_searched_in_order(no_roms, monkeypatch, tmp_path_factory):
    other = tmp_path_factory.mktemp("other")
    monkeypatch.setenv("ALE_ROMS_DIR", str(other))
    shutil.copy(PONG, other / "pong.bin")
    assert Console("pong")._rom.path == str(other / "pong.bin")
    shutil.copy(PONG, no_roms / "pong.a26")
    assert Console("Pong")._rom.path == str(no_roms / "pong.a26")
    assert Console(other / "pong.bin").game == "pong"


def test_a_wrong_rom_under_a_games_name_is_refused(tmp_path):
    path = tmp_path / "breakout.bin"
    shutil.copy(PONG, path)
    with pytest.raises(AtariError, match=r"named `breakout` has md5 60e0ea3c.* expected f34f08e5"):
        Console(path)
    # The contents are Pong's.
    assert Console(path, allow_unknown=True).game == "pong"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    console = Console(path, allow_unknown=True)
    assert (console.game, console.name, console.modes) == (None, "breakout.bin", (0,))
    assert console.act("FIRE") == 0


def test_an_unknown_rom_runs_with_given_rules(tmp_path):
    path = tmp_path / "my_breakout.bin"
    shutil.copy(BREAKOUT, path)
    assert Console(path).game == "breakout"
    with open(path, "r+b") as file:
        # The last byte before the vectors: never read.
        file.seek(0x7F9)
        file.write(b"\x00")
    with pytest.raises(AtariError, match="not a known game"):
        Console(path)
    hacked = Console(path, rules="Breakout", seed=1)
    assert (hacked.game, hacked.lives) == ("breakout", 5)
    assert play(hacked, 100) == play(Console("breakout", seed=1), 100)
    assert Console(path, allow_unknown=True).lives == 0


def test_a_rom_that_never_reaches_its_mode_is_refused(tmp_path):
    with pytest.raises(AtariError, match="mode 0 of breakout was not reached within"):
        Console(PONG, rules="breakout")


@pytest.mark.parametrize("size", [0, 1, 2047, 4097, 100_000, 600_000])
def test_files_of_invalid_size_are_refused(tmp_path, size):
    path = tmp_path / "game.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(AtariError, match=str(size)):
        Console(path, allow_unknown=True)


def test_a_folder_or_a_number_as_rom_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        Console(tmp_path)
    with pytest.raises(TypeError):
        Console(5)


@settings(max_examples=25)
@given(st.sampled_from([2048, 4096, 8192, 10240, 12288, 16384, 32768]), st.integers(0, 2**32 - 1))
@example(4096, 58163)
def test_random_bytes_run_or_are_refused(tmp_path_factory, size, seed):
    path = tmp_path_factory.mktemp("rom") / "random.bin"
    path.write_bytes(np.random.default_rng(seed).bytes(size))
    console = Console(path, allow_unknown=True, seed=0)
    for frame in range(5):
        assert console.act(frame % 18, (frame + 9) % 18) == 0
    console.reset()
    assert console.frame_number == 5 and console.screen_rgb.shape == (*console.screen_shape, 3)
    state = console.save()

    # Without the picture: a state does not contain it, and these programs do not draw all of its rows.
    def ram_of_three_frames():
        return [(console.act(action), console.frame_number, console.ram.tobytes()) for action in (2, 5, 11)]

    before = ram_of_three_frames()
    console.load(state)
    assert ram_of_three_frames() == before


# ---------------------------------------------------------------- saved states


@pytest.mark.parametrize("game", ["breakout", "elevator_action", "pitfall2", "montezuma_revenge"])
def test_a_loaded_state_continues_as_before(game):
    console = Console(game, seed=5, repeat_action_probability=0.25)
    play(console, 50, seed=1)
    state = console.save()
    assert console.save() == state
    after = play(console, 60, seed=2)
    for other in (console, Console(game, seed=99, repeat_action_probability=0.25)):
        other.load(state)
        assert other.save() == state
        # The picture stays the old one until a frame has been drawn; everything else is equal at once.
        assert other.frame_number == 50
        assert play(other, 60, seed=2)[2:] == after[2:]


def test_loading_a_state_without_generator_keeps_the_current_one():
    console = Console("breakout", seed=5, repeat_action_probability=0.5)
    with_it, without = console.save(), console.save(generator=False)
    assert len(without) < len(with_it)
    first = play(console, 40)
    console.load(without)
    second = play(console, 40)
    console.load(with_it)
    assert play(console, 40)[1:] == first[1:] != second[1:]


def test_a_state_does_not_contain_settings():
    short = Console("pong", seed=0, max_num_frames_per_episode=5)
    play(short, 5)
    assert short.truncated and short.game_over and not short.terminated
    long = Console("pong", seed=0)
    long.load(short.save())
    assert not long.truncated
    long.act(0)
    assert long.episode_frame_number == 6


@settings(max_examples=60)
@given(st.data())
def test_damaged_states_are_refused_or_harmless(data):
    console = _shared_console()
    state = bytearray(console.save())
    kind = data.draw(st.sampled_from(["cut", "longer", "flip", "empty"]))
    if kind == "flip":
        for _ in range(4):
            state[data.draw(st.integers(0, len(state) - 1))] ^= data.draw(st.integers(1, 255))
        good = console.save()
        try:
            console.load(bytes(state))
            console.act("FIRE")
            console.read_screen_rgb()
        except AtariError:
            pass
        console.load(good)
    else:
        state = {"cut": state[: data.draw(st.integers(0, len(state) - 1))], "longer": state + b"x"}.get(
            kind, b""
        )
        with pytest.raises(AtariError, match="not a saved state of this console"):
            console.load(bytes(state))


# Game, ROM segments after its start, and segments that its cartridge cannot map.
IMPOSSIBLE_SEGMENTS = [
    ("solaris", [12, 13, 14, 15] * 2, [15] * 8),
    ("asteroids", [4, 5, 6, 7] * 2, [1, 2, 3, 4] * 2),
    ("pong", [0, 1] * 4, [1] * 8),
    ("montezuma_revenge", [0, 1, 2, 7] * 2, [0, 1, 2, 6] * 2),
    ("robotank", [4, 5, 6, 7, 0, 1, 2, 3], [0, 1, 2, 3] * 2),
]


@pytest.mark.parametrize(("game", "segments", "wrong"), IMPOSSIBLE_SEGMENTS)
def test_a_state_with_segments_that_the_cartridge_cannot_map_is_refused(game, segments, wrong):
    console = Console(game, seed=0)
    state, layout = console.save(), struct.Struct("<8H")
    assert state.count(layout.pack(*segments)) == 1
    with pytest.raises(AtariError, match=r"segments .* do not fit this cartridge"):
        console.load(state.replace(layout.pack(*segments), layout.pack(*wrong)))


def test_a_state_with_a_huge_count_of_draws_is_refused(breakout):
    state = bytearray(breakout.save())
    # 132 draws: 129 at power-on, one at each of three resets.
    (draws,) = (at for at in range(24, 560, 4) if int.from_bytes(state[at : at + 4], "little") == 132)
    for count, fits in ((2**32 - 1, False), (2**28 + 1, False), (2**28, True)):
        state[draws : draws + 4] = count.to_bytes(4, "little")
        if fits:
            breakout.load(bytes(state))
            started = time.thread_time()
            breakout.reset()
            assert time.thread_time() - started < 5
        else:
            with pytest.raises(AtariError, match=f"{count} draws of the core generator, expected at most"):
                breakout.load(bytes(state))


def test_states_of_another_game_are_refused(breakout):
    with pytest.raises(AtariError, match="not a saved state of this console"):
        breakout.load(Console("pong").save())
    with pytest.raises(TypeError):
        breakout.load("text")


@pytest.mark.parametrize("make", [Console.clone, copy.copy, copy.deepcopy])
def test_copies_behave_the_same_and_share_no_state(make):
    console = Console("breakout", seed=2, repeat_action_probability=0.25)
    play(console, 30)
    other = make(console)
    assert checksum_of(other) == checksum_of(console)
    expected = play(console, 40, seed=3)
    assert play(other, 40, seed=3) == expected
    other.reset()
    assert checksum_of(other) != checksum_of(console)


def test_a_copy_without_the_generator_draws_other_sticky_actions():
    console = Console("breakout", seed=2, repeat_action_probability=0.5)
    play(console, 30)
    other = console.clone(generator=False)
    assert checksum_of(other) == checksum_of(console) and other.seed != console.seed
    expected = play(console.clone(), 60, seed=3)
    assert play(other.clone(), 60, seed=3) == play(other, 60, seed=3) != expected
    assert play(console, 60, seed=3) == expected


def test_a_pickle_contains_rom_settings_and_state(monkeypatch, no_roms):
    monkeypatch.undo()
    console = Console("breakout", seed=2, repeat_action_probability=0.25, frame_skip=2, mode=4)
    play(console, 30)
    data = pickle.dumps(console)
    # Unpickling does not search for a ROM.
    monkeypatch.setattr("parl.atari.console._find_rom", None)
    other = pickle.loads(data)
    assert repr(other) == repr(console) and other.mode == 4 and other.frame_skip == 2
    assert np.array_equal(other.ram, console.ram)
    assert play(other, 40)[1:] == play(console, 40)[1:]


def test_a_clone_keeps_its_subclass():
    class Mine(Console):
        extra = 1

    console = Mine("pong", seed=0)
    assert type(console.clone()) is Mine
    assert "pong" in repr(console)


class Labeled(Console):
    """A console with attributes of its own."""

    def __init__(self, game, labels):
        super().__init__(game, seed=0)
        self.labels = labels


def pickled(console):
    return pickle.loads(pickle.dumps(console))


@pytest.mark.parametrize("make", [Console.clone, copy.copy, copy.deepcopy, pickled])
def test_copies_keep_the_attributes_of_a_subclass(make):
    console = Labeled("pong", ["left"])
    other = make(console)
    assert other.labels == ["left"] and other.act(0) == console.act(0)
    assert (other.labels is console.labels) == (make in (Console.clone, copy.copy))
    assert other.frame_number == console.frame_number == Console("pong").frame_number + 1


# ---------------------------------------------------------------- threads


def test_consoles_in_several_threads_are_independent():
    expected = [play(Console(game, seed=1), 60) for game in ("pong", "breakout", "seaquest", "qbert")]
    traces = [None] * 4

    def work(number, game):
        traces[number] = play(Console(game, seed=1), 60)

    threads = [
        threading.Thread(target=work, args=(number, game))
        for number, game in enumerate(("pong", "breakout", "seaquest", "qbert"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert traces == expected


def test_several_threads_can_use_one_console(breakout):
    errors = []
    state = breakout.save()

    def act():
        for number in range(100):
            breakout.act(number % 4)

    def look():
        try:
            for _ in range(60):
                assert breakout.screen_rgb.shape == (210, 160, 3)
                assert len(breakout.save()) == len(state)
                breakout.clone().act("FIRE")
                assert breakout.ram.shape == (128,)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=target) for target in (act, act, act, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and breakout.frame_number == 300


def test_other_threads_run_while_a_console_runs():
    console = Console("pong", frame_skip=1000)
    started, counted = threading.Event(), [0]

    def work():
        started.set()
        for _ in range(30):
            console.act("NOOP")
            console.reset()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(5.0)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        started.wait()
        # If a call held the interpreter lock, nothing would be counted before its end.
        while thread.is_alive():
            counted[0] += 1
            time.sleep(0.001)
    finally:
        sys.setswitchinterval(interval)
    thread.join()
    assert counted[0] > 5 and console.frame_number == 30_000
