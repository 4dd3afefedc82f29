"""Generates cartridges for `fuzz.py`, which runs them on parl's console and on ale-py.

Each function returns the image for a seed; the same seed always gives the same image.
"""

from __future__ import annotations

import random


def tia(seed: int) -> bytes:
    """Returns a 4 KiB program that writes random TIA registers at random cycles."""
    r = random.Random(seed)
    code = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A, 0xA9, 0, 0xA2, 0, 0x95, 0, 0xE8, 0xD0, 0xFB])
    loop = 0xF000 + len(code)
    r.random()  # unused; without this draw, each seed would give another cartridge

    # Mostly simple bit patterns, so that objects are visible and collide.
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
            # JSR with the stack pointer in the TIA: two register writes at the same time.
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
    """Returns random bytes in which loads and stores of the low pages are frequent."""
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


def frame(r: random.Random) -> bytes:
    """Returns instructions that end a frame with VSYNC."""
    out = bytearray([0xA9, 2, 0x85, 0])
    out += bytes([0x85, 2]) * r.choice([1, 3, 3, 3])
    return bytes(out + bytes([0xA9, 0, 0x85, 0]))


def wait(r: random.Random) -> bytes:
    """Returns a loop that waits up to 119 scanlines."""
    return bytes([0xA2, r.randrange(1, 120), 0x85, 2, 0xCA, 0xD0, 0xFB])


# Opcodes by instruction length in bytes, without those that jam, jump, or move the stack pointer far.
LENGTHS = {
    1: "0A 08 18 28 2A 38 48 4A 58 68 6A 78 88 8A 98 A8 AA B8 C8 CA D8 E8 EA F8 1A 3A 5A 7A DA FA BA",
    2: "01 03 04 05 06 07 09 0B 11 13 14 15 16 17 21 23 24 25 26 27 29 2B 31 33 34 35 36 37 41 43 44 45 "
    "46 47 49 4B 51 53 54 55 56 57 61 63 64 65 66 67 69 6B 71 73 74 75 76 77 80 81 82 83 84 85 86 87 "
    "89 8B 91 93 94 95 96 97 A0 A1 A2 A3 A4 A5 A6 A7 A9 AB B1 B3 B4 B5 B6 B7 C0 C1 C2 C3 C4 C5 C6 C7 "
    "C9 CB D1 D3 D4 D5 D6 D7 E0 E1 E2 E3 E4 E5 E6 E7 E9 EB F1 F3 F4 F5 F6 F7",
    3: "0C 0D 0E 0F 19 1B 1C 1D 1E 1F 2C 2D 2E 2F 39 3B 3C 3D 3E 3F 4D 4E 4F 59 5B 5C 5D 5E 5F 6D 6E 6F "
    "79 7B 7C 7D 7E 7F 8C 8D 8E 8F 99 9C 9D 9E 9F AC AD AE AF B9 BB BC BD BE BF CC CD CE CF D9 DB DC "
    "DD DE DF EC ED EE EF F9 FB FC FD FE FF",
}
OPCODES = {length: bytes.fromhex(text) for length, text in LENGTHS.items()}
BRANCHES = bytes.fromhex("10 30 50 70 90 B0 D0 F0")


def high(r: random.Random) -> int:
    """Draws the high byte of an address: mostly of RAM, chip registers and ROM, in all mirrors."""
    return r.choice([0, 0, 1, 2, 2, 3, 4, 0x0F, 0xF0 | r.randrange(16), r.randrange(256)])


def instruction(r: random.Random) -> bytes:
    """Draws an instruction after which execution continues with the next one."""
    length = r.choice([1, 1, 2, 2, 2, 3, 3])
    opcode = r.choice(OPCODES[length])
    if length == 1:
        return bytes([opcode])
    if r.random() < 0.08:
        # A branch over one byte, a NOP.
        return bytes([r.choice(BRANCHES), 1, 0xEA])
    # Zero-page addresses: RAM more often than the TIA, and VSYNC seldom.
    low = r.choice([0x80 | r.randrange(128)] * 3 + [r.randrange(3, 0x40), r.randrange(256)])
    return bytes([opcode, low] + [high(r)] * (length - 2))


def code(seed: int) -> bytes:
    """Returns a 4 KiB program of random instructions of all kinds on RAM, timer, ports, TIA and ROM."""
    r = random.Random(seed)
    rom = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])
    while len(rom) < 3900:
        kind = r.random()
        if kind < 0.03:
            rom += frame(r)
        elif kind < 0.05:
            rom += wait(r)
        elif kind < 0.07:
            # Set the stack pointer to RAM again.
            rom += bytes([0xA2, 0xFF, 0x9A])
        elif kind < 0.09:
            # Start the timer with any prescale.
            rom += bytes([0xA9, r.randrange(256), 0x8D, 0x94 + r.randrange(4), 2])
        elif kind < 0.095:
            # Call a subroutine that only returns.
            rom += bytes([0x20, 0xF8, 0xFF])
        else:
            rom += instruction(r)
    rom += frame(r) + bytes([0x4C, 5, 0xF0])
    image = bytearray(r.randrange(256) for _ in range(4096))
    image[: len(rom)] = rom
    image[0xFF8:] = bytes([0x60, 0x60, *[5, 0xF0] * 3])
    image[0xFFC:0xFFE] = bytes([0, 0xF0])
    return bytes(image)


# Write port and read port of a cartridge's 128 bytes of RAM, and the page with the hotspots.
SUPERCHIP = [range(0x1000, 0x1080), range(0x1080, 0x1100), range(0x1F00, 0x2000)]
# For each scheme: image size in bytes, offset of the code in the window, length of the code, address ranges
# that the code accesses (hotspots, RAM ports, windows), and the signature that identifies the scheme.
SCHEMES: dict[str, tuple[int, int, int, list[range], bytes]] = {
    "2K": (2048, 0, 1900, [range(0x1000, 0x2000)], b""),
    "4K": (4096, 0, 3900, [range(0x1000, 0x2000)], b""),
    "F8": (8192, 0x100, 3600, [range(0x1FF8, 0x1FFA)] * 3 + [range(0x1E80, 0x2000)], b""),
    "F8SC": (8192, 0x100, 3600, [range(0x1FF8, 0x1FFA), *SUPERCHIP], b""),
    "F6": (16384, 0x100, 3600, [range(0x1FF6, 0x1FFA)] * 3 + [range(0x1E80, 0x2000)], b""),
    "F6SC": (16384, 0x100, 3600, [range(0x1FF6, 0x1FFA), *SUPERCHIP], b""),
    "F4": (32768, 0x100, 3600, [range(0x1FF4, 0x1FFC)] * 3 + [range(0x1E80, 0x2000)], b""),
    "F4SC": (32768, 0x100, 3600, [range(0x1FF4, 0x1FFC), *SUPERCHIP], b""),
    "FA": (
        12288,
        0x200,
        3300,
        [range(0x1FF8, 0x1FFB), range(0x1000, 0x1100), range(0x1100, 0x1200), range(0x1F00, 0x2000)],
        b"",
    ),
    "E0": (8192, 0xC00, 900, [range(0x1FE0, 0x1FF8)] * 2 + [range(0x1000, 0x1C00)] * 3, b"\x8d\xe0\x1f"),
    "E7": (
        16384,
        0xA00,
        1400,
        [range(0x1FE0, 0x1FEC)] * 2 + [range(0x1000, 0x1800), range(0x1800, 0x1A00)],
        b"",
    ),
    "FE": (8192, 0, 3900, [range(0x1000, 0x2000), range(0xD000, 0xE000)], b"\x20\x00\xd0\xc6\xc5"),
    "DPC": (
        10495,
        0x100,
        3600,
        [range(0x1000, 0x1040), range(0x1040, 0x1080), range(0x1000, 0x1080), range(0x1FF8, 0x1FFA)],
        b"",
    ),
    "3F": (
        8192,
        0x800,
        1900,
        [range(0x00, 0x40), range(0x1000, 0x1800), range(0x1000, 0x1040)],
        b"\x85\x3f\0" * 2,
    ),
    "3E": (
        8192,
        0x800,
        1900,
        [
            range(0x3E, 0x40),
            range(0x3E, 0x40),
            range(0x00, 0x40),
            range(0x1000, 0x1800),
            range(0x103E, 0x1040),
        ],
        b"\x85\x3e\xa9\0",
    ),
    "UA": (
        8192,
        0x100,
        3600,
        [range(0x220, 0x221), range(0x240, 0x241), range(0x200, 0x280)],
        b"\x8d\x40\x02",
    ),
    "CV": (
        4096,
        0x800,
        1900,
        [range(0x1000, 0x1400), range(0x1400, 0x1800), range(0x1000, 0x1800)],
        b"\x9d\xff\xf3",
    ),
    "MB": (65536, 0x100, 3600, [range(0x1FF0, 0x1FF1)] * 2 + [range(0x1E80, 0x2000)], b""),
}
SUPERCHIP = {"F8SC", "F6SC", "F4SC"}
# Loads, stores and read-modify-write instructions, absolute and indexed.
ACCESS_OPCODES = bytes.fromhex(
    "AD AD AD 8D 8D 8D AE 8E AC 8C 2C 0C CD 4D 6D EE CE 0E 6E BD 9D B9 99 1C 5D 7D FE 1F CF EF"
)


def banks(seed: int) -> bytes:
    """Returns a cartridge of scheme ``seed % len(SCHEMES)``; its code accesses hotspots and cartridge RAM.

    The code stores what it reads in RAM. It is the same in all banks except for constants, so that it
    continues after every switch.
    """
    r = random.Random(seed)
    kinds = list(SCHEMES)
    kind = kinds[seed % len(kinds)]
    size, start, length, places, signature = SCHEMES[kind]
    window = min(size, 4096)
    image = bytearray(r.randrange(256) for _ in range(size))
    if kind == "DPC":
        window = 4096
    if kind == "MB":
        # 64 KiB of random bytes would contain the signatures of 3E and 3F.
        image = image.translate(bytes(range(0x3E)) + bytes(2) + bytes(range(0x40, 256)))
    entry = 0xF000 + start
    text = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])
    loop = entry + len(text)
    constants = []
    while len(text) < length - 80:
        what = r.random()
        if what < 0.05:
            text += frame(r)
        elif what < 0.08:
            text += wait(r)
        elif what < 0.13:
            constants.append(len(text) + 1)
            text += bytes([r.choice([0xA2, 0xA0, 0xA9, 0x49, 0x69]), r.randrange(256)])
        elif what < 0.16:
            text += bytes([0x85, r.randrange(3, 0x2D)])
        elif what < 0.20:
            text += bytes([r.choice([0x45, 0x65, 0x86, 0x84, 0xA6, 0xA4, 0xC6]), 0x80 | r.randrange(120)])
        elif what < 0.22 and kind == "FE":
            # Jump to the next byte, in the same bank or in the other.
            to = start + len(text) + 3
            text += bytes([0x4C, to & 255, r.choice([0xD0, 0xF0]) | to >> 8])
        elif what < 0.22 and kind in ("3F", "3E"):
            text += bytes([0xA9, r.randrange(16), 0x85, r.choice([0x3E, 0x3F])])
        else:
            to = r.choice(r.choice(places))
            top = to >> 8 | r.choice([0, 0x40, 0xE0] if to >= 0x1000 else [0, 0x40])
            if kind == "FE":
                top = to >> 8
            opcode = r.choice(ACCESS_OPCODES)
            text += bytes([opcode, to & 255, top])
            # EOR with a byte of RAM, and store the result in RAM.
            text += bytes([0x45, 0x80 | r.randrange(120), 0x85, 0x80 | r.randrange(120)])
    text += frame(r) + bytes([0x4C, loop & 255, loop >> 8])
    if kind == "E7":
        image[0x3800:0x3A00] = bytes([0x55]) * 512
        image[0x37FF] = 0x54
    banks_of = range(0, size - size % window, window) if kind != "DPC" else range(0, 8192, 4096)
    if kind in ("E0", "E7", "3F", "3E", "CV"):
        # Only the last part of the image is mapped in at all times.
        banks_of = range(size - window, size, window)
    for at in banks_of:
        for place in constants:
            text[place] = r.randrange(256)
        image[at + start : at + start + len(text)] = text
        if kind in SUPERCHIP:
            image[at : at + 0x100] = bytes([r.randrange(256)]) * 0x100
        if start == 0 or kind in SUPERCHIP or kind in ("F8", "F6", "F4", "FA", "DPC", "UA", "MB"):
            image[at + window - 6 : at + window] = bytes([entry & 255, entry >> 8] * 3)
    image[(size if kind != "DPC" else 8192) - 6 :][:6] = bytes(6)
    end = size if kind != "DPC" else 8192
    image[end - 6 : end] = bytes([entry & 255, entry >> 8] * 3)
    if kind == "FE":
        image[0xFFA:0x1000] = bytes([entry & 255, entry >> 8] * 3)
    if signature:
        # After the code, where nothing is executed.
        at = end - 6 - 20
        image[at : at + len(signature)] = signature
    return bytes(image)


def waits(seed: int) -> bytes:
    """Returns a program that does not access the TIA for so long that frames stay open for several steps."""
    r = random.Random(seed)
    text = bytearray([0x78, 0xD8, 0xA2, 0xFF, 0x9A])
    loop = len(text)
    for _ in range(r.randrange(1, 5)):
        text += frame(r)
        for _ in range(r.randrange(1, 12)):
            text += wait(r)
            for _ in range(r.randrange(4)):
                text += bytes(
                    [0xA9, r.randrange(256), 0x85, r.choice([r.randrange(6, 10), r.randrange(3, 0x2D)])]
                )
            if r.random() < 0.3:
                # The inner loop runs 256 rounds of two instructions; a step has 25,000 instructions.
                text += bytes([0xA0, r.randrange(1, 160), 0xA2, 0, 0xCA, 0xD0, 0xFD, 0x88, 0xD0, 0xF8])
                text += bytes([0xE6, 0x80]) + r.choice([b"", bytes([0xA5, r.randrange(16), 0x85, 0x81])])
                text += r.choice([b"", bytes([0xA9, 2 * r.randrange(2), 0x85, 1])])
    image = bytearray(4096)
    image[: len(text)] = text + bytes([0x4C, loop, 0xF0])
    image[0xFFC:] = bytes([0, 0xF0, 0, 0xF0])
    return bytes(image)


KINDS = {"tia": tia, "code": code, "banks": banks, "bytes": noise, "waits": waits}
