"""Runs `system_tests.json` on the console: processor, bus, RIOT, reset and bank switching, seen through RAM.

Every image is run under the rules of Seaquest, as the expected values were made.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TRACE = os.environ.get("CULE_TRACE", "target/release/examples/trace")


def image(test: dict[str, Any]) -> bytes:
    """The cartridge image of a test."""
    data = bytearray([test["fill"]]) * test["size"]
    for offset, text in test["segments"]:
        part = bytes.fromhex(text)
        data[offset : offset + len(part)] = part
    return bytes(data)


def steps(script: list[list[Any]]) -> tuple[bytes, int]:
    """The script in the form of `trace`, and how many of its frames count: a reset needs one before it."""
    out = bytearray()
    pending = 0
    for kind, *arguments in script:
        if kind == "reset":
            pending = 1
        elif kind == "difficulty":
            pending = 16 + arguments[0]
        else:
            action, count = (0, arguments[0]) if kind == "noop" else arguments
            for _ in range(count):
                out += bytes([action, pending])
                pending = 0
    return bytes(out), pending


def run(test: dict[str, Any], folder: Path) -> str | None:
    """What is wrong, or None."""
    rom, script = folder / "seaquest.bin", folder / "script"
    rom.write_bytes(image(test))
    frames, pending = steps(test["script"])
    if pending:
        # A reset at the end: line 1 of the output is the state after a reset of a console just loaded.
        frames = b""
    script.write_bytes(frames)
    names = {"random_seed": "seed", "system_random_seed": "system_seed"}
    settings = [f"{names[k]}={v}" for k, v in test["settings"].items() if k in names]
    command = [TRACE, str(rom), "seaquest", "ram=1", "first=0", *settings, str(script)]
    if pending == 1:
        command.remove("first=0")
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode:
        return process.stderr.strip()[-300:]
    line = process.stdout.splitlines()[-1].split()
    ram = bytes.fromhex(line[5])
    wrong = []
    if [int(line[4]), int(line[3])] != test["frames"]:
        wrong.append(f"frames {line[4]}/{line[3]}, expected {test['frames']}")
    for start, text in test["expect"]:
        at = int(start, 16) - 0x80
        want = bytes.fromhex(text)
        if ram[at : at + len(want)] != want:
            wrong.append(f"${start}: got {ram[at : at + len(want)].hex()}, expected {want.hex()}")
    return "; ".join(wrong) or None


def main() -> int:
    """Runs all tests; 1 if any fails."""
    tests = json.loads(Path(__file__).with_name("system_tests.json").read_text())["tests"]
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for test in tests:
            wrong = run(test, Path(folder))
            if wrong:
                failures += 1
                print(test["id"], test["title"], wrong)
    print(f"{len(tests)} tests, {failures} failed")
    return min(failures, 1)


if __name__ == "__main__":
    sys.exit(main())
