"""Small programs that test one property each against ale-py's results: 149 for the TIA, 111 for the rest."""

import json
from pathlib import Path

import numpy as np
import pytest

from parl import _native

HERE = Path(__file__).parent
TIA = json.loads((HERE / "tia_tests.json").read_text())["tests"]
SYSTEM = json.loads((HERE / "system_tests.json").read_text())["tests"]
SYSTEM_SEED = 4753849


def _console(image, rules, seed=1, system_seed=SYSTEM_SEED):
    return _native.Console(
        _native.Rom(image, "test.bin"),
        rules=rules,
        seed=seed,
        system_seed=system_seed,
        frame_skip=1,
        repeat_action_probability=0.0,
        max_num_frames_per_episode=0,
        truncate_on_life_loss=False,
    )


def _act(console, action):
    console.act(action)


def _runs(row):
    """Returns (first, last, value) of each run of equal neighbors."""
    ends = [*(np.flatnonzero(np.diff(row.astype(int))) + 1).tolist(), len(row)]
    starts = [0, *ends[:-1]]
    return [[start, end - 1, int(row[start])] for start, end in zip(starts, ends, strict=True)]


def _check(expectation, frames):
    """Asserts one expectation. ``frames`` holds (screen, RAM, gray); most kinds use the last."""
    screen, ram, gray = frames[-1]
    kind, *rest = expectation
    match kind, *rest:
        case "row", row, runs:
            assert _runs(screen[row]) == runs, f"row {row}"
        case "px", row, column, value:
            assert screen[row, column] == value, f"row {row}, column {column}"
        case "nz", row, column:
            assert screen[row, column] != 0, f"row {row}, column {column}"
        case "ram", index, value:
            assert ram[index] == value, f"RAM ${0x80 + index:02X}"
        case "height", height:
            assert len(screen) == height
        case "gray", row, column, value:
            assert gray[row, column] == value
        case "delta", row, column, change:
            before, after = (int(frame[0][row, column]) & 0xFE for frame in frames[-2:])
            assert (after - before) % 256 == change
        case "ram16delta", index, changes:
            before, after = (int(frame[1][index : index + 2].view("<u2")[0]) for frame in frames[-2:])
            assert (after - before) % 65536 in changes
        case "phase", value, expectations:
            at_phase = [frame for frame in frames[4:] if frame[1][0] & 3 == value]
            assert at_phase
            for frame in at_phase:
                for inner in expectations:
                    _check(inner, [frame])
        case _:
            raise AssertionError(f"no such expectation: {expectation}")


@pytest.mark.parametrize("test", TIA, ids=[test["id"] for test in TIA])
def test_a_tia_program_has_the_pictures_and_memory_of_ale_py(test):
    code = bytes.fromhex(test["code"])
    console = _console(code + bytes(4092 - len(code)) + bytes([0, 0xF0, 0, 0xF0]), "koolaid")
    frames = []
    for action in test["actions"]:
        _act(console, action)
        frames.append((console.read_screen(None), console.read_ram(None), console.read_screen_gray(None)))
    for expectation in test["expect"]:
        _check(expectation, frames)


@pytest.mark.parametrize("test", SYSTEM, ids=[test["id"] for test in SYSTEM])
def test_a_program_has_the_results_of_ale_py(test):
    image = bytearray([test["fill"]]) * test["size"]
    for offset, text in test["segments"]:
        image[offset : offset + len(text) // 2] = bytes.fromhex(text)
    settings = test["settings"]
    console = _console(
        bytes(image),
        "seaquest",
        settings.get("random_seed", 1),
        settings.get("system_random_seed", SYSTEM_SEED),
    )
    for kind, *arguments in test["script"]:
        match kind, *arguments:
            case "noop", count:
                for _ in range(count):
                    _act(console, 0)
            case "act", action, count:
                for _ in range(count):
                    _act(console, action)
            case ("reset",):
                console.reset()
            case "difficulty", difficulty:
                console.set_difficulty(difficulty)
            case _:
                raise AssertionError(f"no such step: {kind}")
    assert [console.episode_frame_number, console.frame_number] == test["frames"]
    ram = console.read_ram(None).tobytes()
    for start, text in test["expect"]:
        at = int(start, 16) - 0x80
        assert ram[at : at + len(text) // 2].hex() == text, f"RAM from ${start}"


def test_no_program_is_missing():
    assert (len(TIA), len(SYSTEM)) == (149, 111)
