"""Invalid files and invalid programs: loading raises an error with the cause, or every frame ends."""

import itertools
import os
import random

import cartridges
import numpy as np
import pytest

from parl.atari import Console
from parl.errors import AtariError

JAMS = [0x02, 0x12, 0x22, 0x32, 0x42, 0x52, 0x62, 0x72, 0x92, 0xB2, 0xD2, 0xF2]


def _console(tmp_path, image, **settings):
    path = tmp_path / "program.bin"
    path.write_bytes(image)
    return Console(path, allow_unknown=True, seed=1, **settings)


def _image(code, size=4096, entry=0xF000):
    """Returns a cartridge with one program; its vectors point to ``entry``."""
    image = bytearray(size)
    image[: len(code)] = code
    image[-6:] = bytes([entry & 255, entry >> 8] * 3)
    return bytes(image)


def _play(console, frames):
    """Plays, and asserts that each frame ends and has a picture.

    :func:`test_a_program_without_a_frame_end_gets_25000_instructions_a_frame` tests the limit.
    """
    for number in range(1, frames + 1):
        console.act(number % 18)
        assert console.episode_frame_number == number
        assert console.screen.shape[1] == 160 and console.screen.shape[0] >= 200


def _sizes():
    """Returns file sizes next to boundaries, and some between."""
    around = [n << shift for n in (1, 3) for shift in range(8, 20)] + [8448, 10240, 10495]
    near = {size + delta for size in around for delta in (-1, 0, 1)}
    return sorted({0, 1, 5, 6, *near, *random.Random(0).sample(range(600_000), 10)})


@pytest.mark.parametrize("kind", ["zeros", "noise"])
def test_a_file_of_any_size_runs_or_the_error_names_its_size(tmp_path, kind):
    generator = np.random.default_rng(3)
    ran = refused = 0
    for size in _sizes():
        image = bytes(size) if kind == "zeros" else generator.bytes(size)
        try:
            console = _console(tmp_path, image)
        except AtariError as error:
            assert str(size) in str(error)
            refused += 1
        else:
            _play(console, 2)
            ran += 1
    assert ran >= 8 and refused >= 40


@pytest.mark.parametrize("scheme", cartridges.SCHEMES)
def test_a_truncated_cartridge_runs_or_is_refused(tmp_path, scheme):
    whole = cartridges.banks(list(cartridges.SCHEMES).index(scheme))
    generator = random.Random(scheme)
    for length in [len(whole) - 1, len(whole) // 2, generator.randrange(len(whole))]:
        try:
            console = _console(tmp_path, whole[:length])
        except AtariError as error:
            assert str(length) in str(error)
        else:
            _play(console, 5)


def test_folders_and_devices_are_refused(tmp_path):
    with pytest.raises(OSError):
        Console(tmp_path, allow_unknown=True)
    for endless in ("/dev/zero", "/dev/urandom"):
        with pytest.raises((AtariError, OSError)):
            Console(endless, allow_unknown=True)


def test_a_pipe_without_a_writer_does_not_hang(tmp_path):
    pipe = tmp_path / "pipe.bin"
    os.mkfifo(pipe)
    with pytest.raises((AtariError, OSError)):
        Console(pipe, allow_unknown=True)


@pytest.mark.parametrize("seed", range(4))
def test_frames_of_random_bytes_end(tmp_path, seed):
    for maker in (cartridges.noise, lambda seed: np.random.default_rng(seed).bytes(4096)):
        console = _console(tmp_path, maker(seed))
        _play(console, 12)
        console.load(console.save())
        console.reset()
        _play(console, 3)


@pytest.mark.parametrize("opcode", JAMS, ids=lambda opcode: f"{opcode:02X}")
def test_a_jammed_processor_stays_jammed_until_the_next_reset(tmp_path, opcode):
    # INC $80; JAM; INC $81. Runs once to detect the format, and once after each reset.
    console = _console(tmp_path, _image([0xE6, 0x80, opcode, 0xE6, 0x81]))
    first = console.ram.copy()
    _play(console, 50)
    assert np.array_equal(console.ram, first)
    console.load(console.save())
    assert [console.act(0) for _ in range(5)] == [0] * 5
    assert np.array_equal(console.ram, first)
    console.reset()
    assert console.ram[0] == first[0] + 1 and console.ram[1] == first[1]


def test_a_program_without_a_frame_end_gets_25000_instructions_a_frame(tmp_path):
    # A loop of INC $80, BNE and JMP; $81 counts rounds / 256.
    code = [0xE6, 0x80, 0xD0, 0x02, 0xE6, 0x81, 0x4C, 0x00, 0xF0]
    console = _console(tmp_path, _image(code))
    before = int(console.ram[0]) + 256 * int(console.ram[1])
    console.act(0)
    rounds = (int(console.ram[0]) + 256 * int(console.ram[1]) - before) % 65536
    # 25,000 instructions: three in each round, and INC $81 once in 256 rounds.
    assert rounds in (8322, 8323)


@pytest.mark.parametrize(
    ("place", "pages"),
    [("TIA", (0x00, 0x01, 0x02)), ("RAM", (0x00, 0x01)), ("RIOT", (0x02, 0x03)), ("cartridge", (0x10, 0xF0))],
)
def test_frames_end_where_code_starts_in_any_chip(tmp_path, place, pages):
    low = {"TIA": range(3, 0x80, 41), "cartridge": range(0, 0x100, 85)}.get(place, range(0x80, 0x100, 37))
    fill = random.Random(place).randbytes(4096)
    for page, at in itertools.product(pages, low):
        image = bytearray(fill)
        image[-6:] = bytes([at, page] * 3)
        _play(_console(tmp_path, bytes(image)), 3)


@pytest.mark.parametrize("target", [0x0000, 0x0080, 0x0280, 0x1FFF])
@pytest.mark.parametrize("jump", [0x4C, 0x20, 0x6C], ids=["JMP", "JSR", "JMP-indirect"])
def test_frames_end_after_jumps_out_of_the_cartridge(tmp_path, jump, target):
    for fill in (0xEA, 0x85):
        # The program fills RAM first: A9 fill; A2 0; 95 80; E8; D0 FB.
        code = [0xA9, fill, 0xA2, 0, 0x95, 0x80, 0xE8, 0xD0, 0xFB, jump, target & 255, target >> 8]
        _play(_console(tmp_path, _image(code)), 3)


def _check_with_rules(tmp_path, image, rules):
    """Asserts that frames run, or that loading raises because the mode of ``rules`` is not reached."""
    try:
        console = _console(tmp_path, image, rules=rules)
    except AtariError as error:
        assert rules in str(error)
    else:
        before = console.frame_number
        for action in range(18):
            console.act(action)
        assert console.frame_number == before + 18


@pytest.mark.parametrize("rules", ["space_invaders", "pitfall2", "double_dunk", "adventure"])
def test_a_jammed_program_ends_with_another_games_rules(tmp_path, rules):
    _check_with_rules(tmp_path, _image([0x02]), rules)


@pytest.mark.parametrize("rules", ["space_invaders", "double_dunk", "adventure"])
def test_loading_a_program_that_ends_no_frame_fails_soon(tmp_path, rules):
    # A loop in RAM, which has no predecoded records: JMP $0080. 10,000 of its frames took nine seconds.
    code = [0xA9, 0x4C, 0x85, 0x80, 0xA9, 0x80, 0x85, 0x81, 0xA9, 0x00, 0x85, 0x82, 0x4C, 0x80, 0x00]
    with pytest.raises(AtariError, match=rf"{rules} was not reached within 1[23]\d frames"):
        _console(tmp_path, _image(code), rules=rules)


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["space_invaders", "pitfall2", "double_dunk", "adventure"])
def test_random_bytes_end_with_another_games_rules(tmp_path, rules):
    for seed in range(2):
        _check_with_rules(tmp_path, cartridges.noise(seed), rules)


@pytest.mark.slow
def test_frames_end_where_code_starts_at_any_address(tmp_path):
    for page, at in itertools.product((0, 1, 2, 3, 0x10, 0xF0), range(256)):
        image = bytearray(random.Random(at).randbytes(4096))
        image[-6:] = bytes([at, page] * 3)
        _play(_console(tmp_path, bytes(image)), 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40, 100))
def test_frames_of_random_programs_of_all_kinds_end(tmp_path, seed):
    for make in cartridges.KINDS.values():
        _play(_console(tmp_path, make(seed)), 60)
