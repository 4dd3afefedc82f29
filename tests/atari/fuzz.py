"""Generated cartridges on the console and on ale-py: RAM each frame, and the picture where it was drawn.

usage: fuzz.py FIRST COUNT [--bytes] [--frames N] [--jobs N]

Programs write random TIA registers at random cycles; with `--bytes` the cartridge is of random bytes.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import zlib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import ale_py
from against_ale import TRACE


def program(seed: int) -> bytes:
    """A cartridge of 4 KiB that hammers the TIA."""
    r = random.Random(seed)
    code = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A, 0xA9, 0, 0xA2, 0, 0x95, 0, 0xE8, 0xD0, 0xFB])
    loop = 0xF000 + len(code)
    r.random()  # keeps the cartridges of each seed as they were

    # Values: mostly plain bit patterns, so that objects are on and collide.
    def value() -> int:
        return r.choice(
            [
                0,
                0xFF,
                2,
                r.randrange(256),
                r.randrange(256),
                1 << r.randrange(8),
                r.randrange(8),
                0x10 * r.randrange(16),
            ]
        )

    pools = [
        list(range(3, 0x2D)),
        [0x0D, 0x0E, 0x0F, 0x1B, 0x1C, 0x10, 0x11, 0x04, 0x05],
        [0x2A, 0x20, 0x21, 0x22, 0x23, 0x24, 0x12, 0x13, 0x14, 0x2B],
        [0x06, 0x07, 0x08, 0x09, 0x0A, 0x0B, 0x0C],
        [0x1D, 0x1E, 0x1F, 0x25, 0x26, 0x27, 0x28, 0x29, 0x1B, 0x1C],
        [0x10, 0x11, 0x12, 0x13, 0x14, 0x2A],
    ]
    lines = 0
    vsync_every = r.choice([262, 262, 262, 200, 150, 100, 312, 290, 40])

    def emit(*b: int) -> None:
        code.extend(b)

    def vsync() -> None:
        emit(0xA9, 2 | r.choice([0, 0, 0x40]), 0x85, 0)
        for _ in range(r.choice([3, 3, 3, 1, 2])):
            emit(0x85, 2)
        if r.random() < 0.3:
            for _ in range(r.randrange(24)):
                emit(0xEA)
        emit(0xA9, 0, 0x85, 0)
        if r.random() < 0.5:
            emit(0x85, 0x2A)

    vsync()
    while len(code) < 3300:
        k = r.random()
        reg = r.choice(r.choice(pools))
        if k < 0.34:
            emit(0xA9, value(), 0x85, reg)
        elif k < 0.40:
            emit(0x85, reg)
        elif k < 0.44:
            emit(0x8D, reg, r.choice([0, 1, 2, 3, 0x0F]))
        elif k < 0.48:
            emit(0xA2, r.randrange(8), 0x95, max(3, reg - 8))
        elif k < 0.52:
            emit(r.choice([0xE6, 0xC6, 0x06, 0x46]), reg)
        elif k < 0.55:
            emit(0xA2, reg, 0x9A, 0x48, 0xA2, 0xFF, 0x9A)
        elif k < 0.565:
            # JSR with the stack in the chip: two writes at one time.
            at = 0xF000 + len(code) + 6
            emit(0xA2, reg, 0x9A, 0x20, at & 255, at >> 8, 0xA2, 0xFF, 0x9A)
        elif k < 0.68:
            emit(
                0xA5,
                r.randrange(0, 16) | r.choice([0, 0x30]),
                0x45,
                0x80 + r.randrange(48),
                0x85,
                0x80 + r.randrange(48),
            )
        elif k < 0.72:
            emit(0xA9, value() & (0xFD if r.random() < 0.8 else 0xFF), 0x85, 1)
        elif k < 0.86:
            emit(0x85, 2)
            lines += 1
            if r.random() < 0.3:
                emit(0x85, 0x2A)
        elif k < 0.89:
            n = r.randrange(2, 60)
            emit(0xA2, n, 0x85, 2, 0xCA, 0xD0, 0xFB)
            lines += n
        elif k < 0.91:
            n = r.randrange(1, 40)
            emit(0xA0 if r.random() < 0.5 else 0xA2, n)
            emit(0x88 if code[-2] == 0xA0 else 0xCA, r.choice([0xD0, 0x10]), 0xFD)
        elif k < 0.92:
            emit(
                0xA9,
                r.randrange(1, 30),
                0x8D,
                r.choice([0x95, 0x96]),
                2,
                0xAD,
                0x84,
                2,
                r.choice([0xD0, 0x10]),
                0xFB,
            )
        else:
            for _ in range(r.randrange(1, 10)):
                emit(0xEA)
        if lines >= vsync_every:
            lines = 0
            vsync()
    emit(0x4C, loop & 255, loop >> 8)
    rom = bytearray(4096)
    rom[: len(code)] = code
    rom[0xFFC:0x1000] = bytes([0, 0xF0, 0, 0xF0])
    return bytes(rom)


JAMS = {0x02, 0x12, 0x22, 0x32, 0x42, 0x52, 0x62, 0x72, 0x92, 0xB2, 0xD2, 0xF2}


def noise(seed: int) -> bytes:
    """Random bytes, biased towards stores and loads of the low pages."""
    r = random.Random(seed)
    size = r.choice([2048, 4096, 4096, 8192, 16384])
    pool = [x for x in range(256) if x not in JAMS]
    rom = bytearray(
        r.choice(pool)
        if r.random() < 0.6
        else r.choice([0x85, 0xA5, 0x95, 0xB5, 0xE6, 0x86, 0xA9, 0xA2, 0xD0, 0x10, 0x84, 0x02, 0xAD, 0x8D])
        for _ in range(size)
    )
    for i in range(size):
        if rom[i] in JAMS and r.random() < 0.9:
            rom[i] = 0xEA
    for bank in range(max(1, size // 4096)):
        top = min(size, 4096) * (bank + 1)
        rom[top - 6 : top] = bytes([r.randrange(256), 0xF0 | r.randrange(16)] * 3)
    return bytes(rom)


def compare(job: tuple[int, bool, int]) -> str | None:
    """One cartridge; the first difference, or None."""
    seed, any_bytes, frames = job
    rom = noise(seed) if any_bytes else program(seed)
    r = random.Random(seed)
    script = bytearray()
    for t in range(frames):
        script += bytes([r.randrange(18), 1 if t in (9, 17) else 0])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file, steps = folder / "koolaid.bin", folder / "script"
        file.write_bytes(rom)
        steps.write_bytes(script)
        ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
        interface = ale_py.ALEInterface()
        interface.setInt("random_seed", 1)
        interface.setFloat("repeat_action_probability", 0.0)
        interface.loadROM(file)
        want = []
        for action, reset in zip(script[::2], script[1::2], strict=True):
            if reset:
                interface.reset_game()
            interface.act(action)
            ram = zlib.crc32(interface.getRAM().tobytes())
            want.append((f"{ram:08x}", f"{zlib.crc32(interface.getScreen().tobytes()):08x}"))
        for draw in ("all", "2", "none"):
            command = [TRACE, str(file), "koolaid", "seed=1", "first=0", f"draw={draw}", str(steps)]
            process = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
            if process.returncode:
                return f"seed {seed} draw {draw}: {process.stderr.strip()[-300:]}"
            got = [tuple(line.split()[5:]) for line in process.stdout.splitlines()[1:]]
            for t, (a, b) in enumerate(zip(got, want, strict=True)):
                if a[0] != b[0]:
                    return f"seed {seed} draw {draw}: frame {t}: RAM"
                drawn = draw == "all" or (draw == "2" and t % 4 >= 2)
                if drawn and a[1] != b[1]:
                    return f"seed {seed} draw {draw}: frame {t}: screen"
    return None


def main() -> int:
    """Runs the comparison; 1 if anything differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--frames", type=int, default=25)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.count)
    failures = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for difference in pool.map(compare, [(s, options.bytes, options.frames) for s in seeds]):
            if difference:
                failures += 1
                print(difference, flush=True)
    print(f"{len(seeds)} cartridges of {options.frames} frames, three ways each, {failures} differ")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
