"""Finds the first frame in which two ways of running a game differ, and shows it.

usage: first_difference.py SIDE SIDE GAME [frames=N] [script=minimal|all] [sticky=P] [mode=M] [difficulty=D]
                           [reset_every=N] [detour_every=N] [--rom FILE] [--poke SIDE:FRAME:INDEX:VALUE]
                           [--out FOLDER]

SIDE: ale (ale-py), parl (the Python package), threaded (the fast CPU), plain (the plain interpreter), undrawn
(the fast CPU without pictures) or half (the fast CPU with two pictures in four frames). The last four run the
example `trace`, built by `cargo build --release -p cule --example trace`; CULE_TRACE gives another path. GAME
and the settings may be copied from a line that `games.py` prints for a run that differs.

Both emulators run once, and their traces are compared by bisection. Then both run again up to the first frame
that differs, and FOLDER (difference/ by default) gets `first.png`, `second.png`, `both.png` (both pictures
and their difference), `first.txt` and `second.txt` (the registers, where they are known) and `report.txt`,
which is also printed. `--poke` writes a byte of RAM on one emulator after a frame, to test this script.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import emulators
import games
import numpy as np
import pictures
from numpy.typing import NDArray

TRACE = os.environ.get(
    "CULE_TRACE", os.path.join(os.environ.get("CARGO_TARGET_DIR", "target"), "release/examples/trace")
)
TRACE_VARIANTS = {"threaded": [], "plain": ["way=plain"], "undrawn": ["draw=none"], "half": ["draw=2"]}
SHOWN_LINES = 100


class Trace(NamedTuple):
    """Checksums of a run of one emulator, one entry per frame."""

    links: list[int]
    """Chained CRC-32 of reward, lives, game over, frame numbers and RAM."""
    screens: list[int | None]
    """CRC-32 of the picture, None for a frame without one."""


class View(NamedTuple):
    """An emulator after a frame: numbers, RAM, picture and registers."""

    frame: emulators.Frame | None
    ram: NDArray[np.uint8]
    screen: NDArray[np.uint8]
    rgb: NDArray[np.uint8]
    registers: str


class Play(NamedTuple):
    """Cartridge, actions and resets of a run."""

    setup: emulators.Setup
    actions: bytes
    resets: frozenset[int]
    """Frames after which the game is reset."""
    detours: frozenset[int]
    """Frames after which parl's console is saved, and another one loads the state and continues."""


Poke = tuple[int, int, int] | None


def plan(run: games.Run, rom: Path | None) -> Play:
    """Plays the run on parl's console to find its resets."""
    setup = run.setup()
    if rom:
        setup = setup._replace(rom=rom)
    actions = run.actions()
    ours = emulators.Parl(setup)
    ours.reset()
    resets, detours = set(), set()
    for t, action in enumerate(actions):
        ours.act(action)
        if ours.console.terminated or (run.reset_every and (t + 1) % run.reset_every == 0):
            resets.add(t)
            ours.reset()
        elif run.detour_every and (t + 1) % run.detour_every == 0:
            detours.add(t)
    return Play(setup, actions, frozenset(resets), frozenset(detours))


def in_process(
    emulator: emulators.Emulator, play: Play, poke: Poke, each: Callable[[emulators.Frame], None], last: int
) -> None:
    """Plays up to frame ``last``, and calls ``each`` with every frame."""
    emulator.reset()
    for t, action in enumerate(play.actions[: last + 1]):
        reward = emulator.act(action)
        if poke and poke[0] == t:
            emulator.poke(poke[1], poke[2])
        each(emulator.frame(reward))
        if t == last:
            return
        if t in play.resets:
            emulator.reset()
        elif t in play.detours and isinstance(emulator, emulators.Parl):
            emulator.detour(play.actions[t - 40 : t])


def run_trace(way: str, play: Play, poke: Poke, last: int, *more: str) -> list[list[str]]:
    """Runs `trace` up to frame ``last``; returns the words of its output, one list per frame."""
    script = bytearray()
    for t, action in enumerate(play.actions[: last + 1]):
        script += bytes([action, 1 if t - 1 in play.resets else 0])
    setup = play.setup
    with tempfile.NamedTemporaryFile() as file:
        file.write(script)
        file.flush()
        settings = [f"seed={setup.seed}", f"sticky={setup.sticky}", *TRACE_VARIANTS[way], *more]
        chosen = {"mode": setup.mode, "difficulty": setup.difficulty}
        settings += [f"{name}={value}" for name, value in chosen.items() if value is not None]
        settings += [f"poke={':'.join(map(str, poke))}"] if poke else []
        command = [TRACE, str(setup.rom), str(setup.rules), *settings, file.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr.strip()[-500:]}")
    # The first two lines are those after loading and after the reset.
    return [line.split() for line in done.stdout.splitlines()[2:]]


def new(name: str, setup: emulators.Setup) -> emulators.Emulator:
    """Returns an emulator that runs in this process."""
    return emulators.Ale(setup) if name == "ale" else emulators.Parl(setup)


def trace(name: str, play: Play, poke: Poke) -> Trace:
    """Plays the whole run and returns its trace."""
    links: list[int] = []
    screens: list[int | None] = []
    if name in TRACE_VARIANTS:
        for t, line in enumerate(run_trace(name, play, poke, len(play.actions) - 1)):
            drawn = name != "undrawn" and (name != "half" or t % 4 >= 2)
            links.append(zlib.crc32(" ".join(line[:6]).encode(), links[-1] if links else 0))
            screens.append(int(line[6], 16) if drawn else None)
        return Trace(links, screens)

    def each(frame: emulators.Frame) -> None:
        words = [*map(int, frame.head()), f"{zlib.crc32(frame.ram):08x}"]
        links.append(zlib.crc32(" ".join(map(str, words)).encode(), links[-1] if links else 0))
        screens.append(zlib.crc32(frame.screen))

    in_process(new(name, play.setup), play, poke, each, len(play.actions) - 1)
    return Trace(links, screens)


def bisect(one: list[int], two: list[int]) -> int | None:
    """Returns the first index at which two chains differ, or None."""
    if one[-1] == two[-1]:
        return None
    low, high = 0, len(one) - 1
    while low < high:
        middle = (low + high) // 2
        if one[middle] == two[middle]:
            low = middle + 1
        else:
            high = middle
    return low


def first(one: Trace, two: Trace) -> int | None:
    """Returns the first frame that differs in numbers, RAM or a picture of both emulators, or None."""
    pairs = zip(one.screens, two.screens, strict=True)
    both = [t for t, (a, b) in enumerate(pairs) if a is not None and b is not None]
    chains = []
    for emulator in (one, two):
        chain = [0]
        for i in both:
            chain.append(zlib.crc32(struct.pack("<I", emulator.screens[i] or 0), chain[-1]))
        chains.append(chain)
    state, picture = bisect(one.links, two.links), bisect(*chains)
    found = [t for t in (state, None if picture is None else both[picture - 1]) if t is not None]
    return min(found, default=None)


def view(name: str, play: Play, poke: Poke, last: int) -> View:
    """Plays up to frame ``last`` and returns the emulator after it."""
    with tempfile.TemporaryDirectory() as folder:
        if name in TRACE_VARIANTS:
            line = run_trace(name, play, poke, last, f"dump={folder}/at", "ram=1")[-1]
            screen = np.frombuffer(Path(folder, "at.screen").read_bytes(), np.uint8).reshape(-1, 160)
            ram = np.frombuffer(bytes.fromhex(line[5]), np.uint8)
            numbers = [int(word) for word in line[:5]]
            frame = emulators.Frame(*numbers[:2], bool(numbers[2]), *numbers[3:], ram, screen)
            rgb = np.frombuffer(Path(folder, "at.rgb").read_bytes(), np.uint8).reshape(-1, 160, 3)
            return View(frame, ram, screen, rgb, compact(Path(folder, "at.txt").read_text()))
        seen: list[emulators.Frame] = []
        emulator = new(name, play.setup)
        in_process(emulator, play, poke, lambda frame: seen.__setitem__(slice(None), [frame]), last)
        registers = ""
        if isinstance(emulator, emulators.Parl):
            state = Path(folder, "state")
            state.write_bytes(emulator.console.save(generator=True))
            registers = saved_registers(play.setup, state)
            rgb = emulator.console.read_screen_rgb(None)
        else:
            rgb = emulator.interface.getScreenRGB()
        frame = seen[-1]
        return View(frame, frame.ram.copy(), frame.screen.copy(), rgb, registers)


def compact(registers: str) -> str:
    """Writes each list of a register dump on one line."""
    return re.sub(r"\[\s[^\[\]]*\]", lambda found: " ".join(found[0].split()), registers)


def saved_registers(setup: emulators.Setup, state: Path) -> str:
    """Returns the registers that `trace` prints for a saved state."""
    command = [TRACE, str(setup.rom), str(setup.rules), f"state={state}"]
    if not Path(TRACE).exists():
        return f"no registers: {TRACE} does not exist; build the example `trace` of cule\n"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return compact(done.stdout) if done.returncode == 0 else f"{' '.join(command)}: {done.stderr}"


def show(folder: Path, one: View, two: View) -> None:
    """Writes pictures and registers."""
    folder.mkdir(parents=True, exist_ok=True)
    height = min(len(one.rgb), len(two.rgb))
    rgb = [emulator.rgb[:height] for emulator in (one, two)]
    unequal = (one.screen[:height] != two.screen[:height])[..., None]
    # Equal pixels are dark gray, different ones red.
    dim = (rgb[0].mean(axis=-1, keepdims=True) / 4).astype(np.uint8).repeat(3, axis=-1)
    difference = np.where(unequal, np.array([255, 40, 40], np.uint8), dim)
    gap = np.full((height, 4, 3), 128, np.uint8)
    pictures.write(folder / "first.png", rgb[0], 2)
    pictures.write(folder / "second.png", rgb[1], 2)
    pictures.write(folder / "both.png", np.concatenate([rgb[0], gap, rgb[1], gap, difference], axis=1), 2)
    (folder / "first.txt").write_text(one.registers)
    (folder / "second.txt").write_text(two.registers)


def report(names: list[str], frame: int, one: View, two: View) -> str:
    """Describes the differences."""
    lines = [f"frame {frame}: {names[0]} and {names[1]}: {one.frame.difference(two.frame)}"]
    for i in np.flatnonzero(one.ram != two.ram):
        lines.append(f"  RAM ${0x80 + i:02X}: {one.ram[i]:02X} {two.ram[i]:02X}")
    if one.screen.shape == two.screen.shape:
        places = np.argwhere(one.screen != two.screen)
        lines.append(f"  {len(places)} pixels differ")
        for row, column in places[:8]:
            indices = f"{one.screen[row, column]:02X} {two.screen[row, column]:02X}"
            lines.append(f"  row {row}, column {column}: {indices}")
    texts = [emulator.registers.splitlines() for emulator in (one, two)]
    if all(texts):
        changes = list(difflib.unified_diff(*texts, *names, lineterm="", n=2))
        lines += ["registers that differ:" if changes else "no register differs", *changes[:SHOWN_LINES]]
    elif any(texts):
        known = names[0] if texts[0] else names[1]
        lines += [f"registers of {known}:", *(texts[0] or texts[1])[:SHOWN_LINES]]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Compares the two emulators; returns 1 if they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs=2, choices=["ale", "parl", *TRACE_VARIANTS])
    parser.add_argument("run", nargs="+", metavar="GAME [NAME=VALUE]")
    parser.add_argument("--rom", type=Path)
    parser.add_argument("--poke")
    parser.add_argument("--out", type=Path, default=Path("difference"))
    options = parser.parse_args(arguments)
    words = options.run
    if not any(word.startswith("frames=") for word in words):
        words.append("frames=1000")
    play = plan(games.Run.parse(words), options.rom)
    pokes: list[Poke] = [None, None]
    if options.poke:
        name, *numbers = options.poke.split(":")
        at, index, value = map(int, numbers)
        pokes[options.names.index(name)] = (at, index, value)
    pairs = list(zip(options.names, pokes, strict=True))
    frame = first(*(trace(name, play, poke) for name, poke in pairs))
    if frame is None:
        print(f"{' and '.join(options.names)}: {len(play.actions)} frames, no difference")
        return 0
    one, two = (view(name, play, poke, frame) for name, poke in pairs)
    show(options.out, one, two)
    text = report(options.names, frame, one, two)
    (options.out / "report.txt").write_text(text + "\n")
    print(text)
    return 1


if __name__ == "__main__":
    sys.exit(main())
