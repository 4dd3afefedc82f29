"""Damages replay files at random and checks that each is refused, or can be used without a fault.

``python tests/replay/damage.py --trials 5000`` (``make damage``) creates small files of each kind. Each trial
damages a copy, with a random generator of its own seed, opens it and, if it is accepted, uses it: verify,
every sampling mode, add, update, evict, save, flush. Trials run in child processes, many per child. A trial
that exceeds the time limit is a hang; if a child dies, its trial is a crash. The next child continues with
the trial after it.

Kinds: ``saved`` and ``lz4`` are files of ``save``, with compressed rows in ``lz4``; ``mapped`` are closed
files of ``path=``; ``open`` are copies of files in use, as a killed process leaves them. ``-random`` damages
any bytes; ``-crafted`` changes counts, links, weights and settings, then corrects all checksums.

A file with checksums must not be accepted with changed bytes: every trial of ``saved-random``,
``lz4-random`` and ``mapped-random`` must be refused when it is opened or, for rows of a mapped file, by
``verify``.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import collections
import os
import pathlib
import random
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np

import parl

KINDS = [
    "saved-random",
    "saved-crafted",
    "lz4-random",
    "lz4-crafted",
    "mapped-random",
    "mapped-crafted",
    "open-random",
    "open-crafted",
]
CHECKSUMMED = {"saved-random", "lz4-random", "mapped-random"}
FAULTS = {"panic", "crash", "hang", "other error", "silently accepted"}

STEPS: dict[str, Any] = {
    "obs": ((300,), "uint8"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}
GOALS = {"achieved_goal": ((2,), "float32"), "desired_goal": ((2,), "float32"), "x": ((300,), "uint8")}
MODES = ("stratified", "independent", "systematic", "without_replacement", "uniform", "largest")
MASK = 2**64 - 1
PRIME = 0x9E3779B185EBCA87
HEAD_WORDS = 6
# Files are in memory, because each save and flush would wait for a disk.
MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None


def reward(achieved: Any, desired: Any, info: Any) -> Any:
    return np.zeros(len(achieved), np.float32)


HINDSIGHT = parl.Hindsight(reward, strategy="episode", k=4)
# Class name, options, number of calls of ``add``.
SAMPLES: dict[str, tuple[str, dict[str, Any], int]] = {
    "rows": (
        "PrioritizedReplay",
        {"fields": {"x": ((300,), "uint8"), "y": ((), "float64")}, "capacity": 200},
        450,
    ),
    "steps": ("PrioritizedReplay", {"fields": STEPS, "n_step": 3, "num_envs": 4}, 40),
    "few": ("PrioritizedReplay", {"fields": STEPS, "n_step": 2, "num_envs": 4}, 4),
    "stacks": (
        "PrioritizedReplay",
        {"fields": STEPS, "frame_stack": 3, "num_envs": 2, "autoreset": "same_step"},
        60,
    ),
    "sequences": ("SequenceReplay", {"fields": STEPS, "length": 4, "overlap": 2, "num_envs": 3}, 50),
    "goals": (
        "PrioritizedReplay",
        {"fields": {**STEPS, "obs": GOALS}, "num_envs": 2, "hindsight": HINDSIGHT},
        60,
    ),
}


def add(replay: Any, name: str, rng: np.random.Generator) -> Any:
    """One row per environment."""
    if name == "rows":
        return replay.add(x=rng.integers(0, 4, (1, 300), np.uint8), y=rng.random(1))
    n = replay.settings["num_envs"]
    obs: Any = rng.integers(0, 4, (n, 300), np.uint8)
    if name == "goals":
        obs = {
            "achieved_goal": rng.random((n, 2), np.float32),
            "desired_goal": np.ones((n, 2), np.float32),
            "x": obs,
        }
    ends = {"terminated": rng.random(n) < 0.1, "truncated": rng.random(n) < 0.1}
    finals = {"final_obs": obs} if name == "stacks" else {}
    return replay.add(
        obs=obs, action=rng.integers(0, 9, n), reward=rng.random(n, np.float32), **ends, **finals
    )


def make_samples(folder: pathlib.Path) -> None:
    """Creates a file of every kind for each replay of ``SAMPLES``."""
    for name, (kind, options, rows) in SAMPLES.items():
        for how in ("saved", "lz4", "mapped"):
            place: dict[str, Any] = {"compression": "lz4"} if how == "lz4" else {}
            if how == "mapped":
                place = {"path": folder / f"mapped-{name}"}
            options = {"capacity": 40, "seed": 3, **options}
            replay = getattr(parl, kind)(**options, **place)
            rng = np.random.default_rng(1)
            for number in range(rows):
                tickets = add(replay, name, rng)
                if number % 3 == 0:
                    replay.update_priorities(tickets, rng.random(len(tickets)))
                if how == "mapped" and number == rows * 2 // 3:
                    replay.flush()
            if how == "mapped":
                shutil.copy(folder / f"mapped-{name}", folder / f"open-{name}")
            else:
                replay.save(folder / f"{how}-{name}")
            replay.close()


def checksum(data: bytes) -> int:
    """The core's checksum (``crates/sumtree/src/replay/checksum.rs``)."""
    lanes = [i * PRIME & MASK for i in (1, 2, 3, 4)]
    padded = data + bytes(32 - len(data) % 32)
    words = np.frombuffer(padded, "<u8").reshape(-1, 4).T.tolist()
    for i, column in enumerate(words):
        for word in column:
            lane = (lanes[i] ^ word) * PRIME & MASK
            lanes[i] = (lane << 31 | lane >> 33) & MASK
    total = len(data)
    for lane in lanes:
        total = (total ^ lane ^ lane >> 29) * PRIME & MASK
        total = (total << 27 | total >> 37) & MASK
    return total


def text_sum(text: bytes) -> int:
    """The core's checksum of settings in a mapped file."""
    total = 0xCBF29CE484222325
    for byte in text:
        total = (total ^ byte) * 0x100000001B3 & MASK
    return total


def word(data: bytearray, at: int) -> int:
    return int.from_bytes(data[8 * at : 8 * at + 8], "little")


def set_word(data: bytearray, at: int, value: int) -> None:
    data[8 * at : 8 * at + 8] = (value & MASK).to_bytes(8, "little")


def likely_invalid(rng: random.Random, old: int, bits: int) -> int:
    """A number that is likely to be out of bounds: an edge case, one near ``old``, or a random one."""
    edges = [0, 1, 2, 3, 7, 40, 41, 42, 64, 2**16, 2**28, 2**30, 2**31 - 1, 2**31, 2**32 - 1]
    edges += [2**32, 2**33, 2**40, 2**56, 2**62, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1]
    near = [old + 1, old - 1, old + 2, old * 2, old ^ 1 << rng.randrange(bits), old ^ 2, old ^ 3]
    return rng.choice([*edges, *near, rng.getrandbits(bits)]) & ((1 << bits) - 1)


def damage(data: bytearray, rng: random.Random) -> bytearray:
    """Changes bytes at random places."""
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        length = min(rng.choice([1, 4, 8, 16, 64, 512, 4096]), len(data))
        at = rng.randrange(len(data) - length + 1)
        match rng.randrange(8):
            case 0 | 1 | 2:
                data[at] ^= 1 << rng.randrange(8)
            case 3:
                data[at : at + length] = rng.randbytes(length)
            case 4:
                data[at : at + length] = bytes([rng.choice([0, 255])]) * length
            case 5:
                at = at // 8
                set_word(data, min(at, len(data) // 8 - 1), likely_invalid(rng, word(data, at), 64))
            case 6:
                other = rng.randrange(len(data) - length + 1)
                data[at : at + length] = data[other : other + length]
            case _:
                data = data[:at] if rng.random() < 0.7 else data + rng.randbytes(length)
                if len(data) < 64:
                    return data
    return data


def change_text(text: bytes, rng: random.Random) -> bytes:
    """Replaces a number or a word of the settings."""
    lines = text.split(b"\n")
    at = rng.randrange(len(lines))
    parts = lines[at].replace(b"\t", b" ").split(b" ")
    where = rng.randrange(len(parts))
    values = [
        b"0",
        b"1",
        b"2",
        b"39",
        b"41",
        b"64",
        b"1000000",
        b"-1",
        b"4294967296",
        b"18446744073709551615",
    ]
    values += [
        b"|O",
        b"<f4",
        b"[('a', '|O')]",
        b"next_obs",
        b"obs",
        b"9221120237041090560",
        b"",
        b"\xff",
        b"40,2",
    ]
    new = lines[at].replace(parts[where], rng.choice(values), 1)
    lines[at] = new
    return b"\n".join(lines)


def craft(kind: str, data: bytearray, rng: random.Random, columns: int) -> bytearray:
    """Changes counts, links, weights or settings, not the last ``columns`` bytes; corrects the checksums."""
    saved = not kind.startswith(("mapped", "open"))
    head = 8 * HEAD_WORDS if saved else 128
    length = word(data, 2 if saved else 1)
    text = bytes(data[head : head + length])
    if rng.random() < 0.2:
        text = change_text(text, rng)
    room = length if saved else -(-length // 64) * 64
    new_room = len(text) if saved else -(-len(text) // 64) * 64
    rest = bytearray(data[head + room :])
    structure = max(len(rest) - columns, 8)
    for _ in range(rng.choice([1, 1, 2, 4])):
        at = rng.randrange(structure if rng.random() < 0.95 else len(rest) - 8)
        if saved and rng.random() < 0.4:
            at = rng.randrange(8 * 37)  # The words of the ring and the counters.
        if rng.random() < 0.5:
            at = at // 8 * 8
            old = int.from_bytes(rest[at : at + 8], "little")
            rest[at : at + 8] = likely_invalid(rng, old, 64).to_bytes(8, "little")
        else:
            at = at // 4 * 4
            old = int.from_bytes(rest[at : at + 4], "little")
            rest[at : at + 4] = likely_invalid(rng, old, 32).to_bytes(4, "little")
    made = bytearray(data[:head]) + text + bytes(new_room - len(text)) + rest
    if saved:
        if rng.random() < 0.1:
            set_word(made, rng.choice([1, 3]), likely_invalid(rng, word(made, 3), 64))
        set_word(made, 2, len(text))
        set_word(made, 4, len(made))
        set_word(made, 5, checksum(text + made[:40]))
        made[-8:] = checksum(bytes(made[:-8])).to_bytes(8, "little")
        return made
    if rng.random() < 0.1:
        set_word(made, rng.randrange(1, 8), likely_invalid(rng, word(made, 3), 64))
    set_word(made, 1, len(text))
    set_word(made, 2, text_sum(text))
    set_word(made, 3, len(made))
    magic = bytes(made[:8])
    set_word(made, 8, checksum(magic + made[8:32] + made[32:48]))
    if kind.startswith("mapped"):
        seal_again(made, columns)
    return made


def seal_again(made: bytearray, columns: int) -> None:
    """Corrects the seal of a mapped file, a checksum of everything but the rows."""
    set_word(made, 9, 0)
    parts, start = [], 0
    for at, length in column_spans(len(made), columns):
        parts.append(bytes(made[start:at]))
        start = at + length
    parts.append(bytes(made[start:]))
    set_word(made, 9, checksum(b"".join(parts)))


_SPANS: list[int] = []


def column_spans(total: int, columns: int) -> Iterator[tuple[int, int]]:
    """Offset and length of the rows of each field, at the end of the file, aligned to cache lines."""
    at = total - columns
    for length in _SPANS:
        yield at, length
        at += -(-length // 64) * 64


def outcome_of(kind: str, name: str, path: pathlib.Path, folder: pathlib.Path) -> str:
    """Opens one file and uses it; returns the outcome."""
    cls, options, _ = SAMPLES[name]
    hindsight = options.get("hindsight")
    opens = getattr(parl, cls).load if kind.startswith(("saved", "lz4")) else getattr(parl, cls).open
    try:
        replay = opens(path, **({"hindsight": hindsight} if hindsight else {}))
    except parl.errors.ReplayFileError:
        return "refused"
    except MemoryError:
        return "refused: out of memory"
    except ValueError as error:
        if type(error) is ValueError and ("this replay" in str(error) or "hindsight" in str(error)):
            return "refused: of another class"
        raise
    verified = "accepted"
    try:
        replay.verify()
    except parl.ParlError:
        verified = "refused by verify"
    use(replay, name, folder)
    return verified


def use(replay: Any, name: str, folder: pathlib.Path) -> None:
    """Calls every operation of a replay; parl's own errors are accepted."""
    rng = np.random.default_rng(0)

    def attempt(call: Any, *arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except (parl.ParlError, MemoryError):
            return None
        except ValueError as error:
            if call is add and "fields do not match" in str(error):
                return None  # The damaged settings name fields that the rows here do not have.
            raise

    for mode in MODES:
        batch = attempt(replay.sample, 8, mode=mode)
        if batch is not None:
            attempt(replay.update_priorities, batch.tickets, rng.random(8))
    attempt(replay.sample, 8, uniform=0.3, newest=0.3)
    for _ in range(12):
        attempt(add, replay, name, rng)
    attempt(replay.sample, 16)
    attempt(replay.evict, 2)
    attempt(replay.end_episodes, [0])
    for _ in range(25):
        attempt(add, replay, name, rng)
    attempt(replay.sample, 16)
    attempt(replay.verify)
    len(replay), replay.sampleable, replay.counters, replay.histogram(), replay.total_priority, repr(replay)
    attempt(replay.save, folder / "again")
    if replay.path is not None:
        attempt(replay.flush)
    replay.close()


def trial(kind: str, seed: int, samples: pathlib.Path, folder: pathlib.Path) -> str:
    """Damages one file and uses it; returns the outcome."""
    rng = random.Random(f"{kind} {seed}")
    name = rng.choice(list(SAMPLES))
    whole = (samples / f"{kind.split('-')[0]}-{name}").read_bytes()
    path = folder / "file"
    path.unlink(missing_ok=True)
    data = bytearray(whole)
    while data == whole:
        data = (
            damage(data, rng)
            if kind.endswith("random")
            else craft(kind, data, rng, rows_of(name, whole, kind))
        )
    path.write_bytes(data)
    try:
        found = outcome_of(kind, name, path, folder)
    except Exception as error:
        return f"other error: {name}: {type(error).__name__}: {error}"
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return f"panic: {name}: {error}"
    if found == "accepted" and kind in CHECKSUMMED:
        return f"silently accepted: {name}"
    return found


def rows_of(name: str, whole: bytes, kind: str) -> int:
    """Number of bytes of the rows at the end of a file."""
    _, options, _ = SAMPLES[name]
    flat: dict[str, Any] = {}
    for field, spec in options["fields"].items():
        flat |= spec if isinstance(spec, dict) else {field: spec}
    widths = [int(np.prod(shape, dtype=int)) * np.dtype(dtype).itemsize for shape, dtype in flat.values()]
    if not kind.startswith(("mapped", "open")):
        used = int.from_bytes(whole[24:32], "little")
        return 8 + (used * sum(widths) if kind.startswith("saved") else used * 40)
    slots = {"rows": 201 + 2 * 3, "stacks": 40 + 2 * 2 + 2}.get(name, 42)
    _SPANS[:] = [width * slots for width in widths]
    return sum(-(-length // 64) * 64 for length in _SPANS)


def child(kind: str, start: int, end: int, samples: pathlib.Path) -> None:
    """Runs the trials ``start..end`` and prints a line before and after each."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        for seed in range(start, end):
            print(f"begin {seed}", flush=True)
            print(f"{seed} {trial(kind, seed, samples, pathlib.Path(folder))}".replace("\n", " "), flush=True)


def run(
    kind: str, trials: int, samples: pathlib.Path, seed: int = 0, limit_s: float = 20.0
) -> dict[str, int]:
    """Runs ``trials`` trials in child processes; prints faults and returns the count of each outcome."""
    counts: collections.Counter[str] = collections.Counter()
    first, end = seed, seed + trials
    while first < end:
        command = [sys.executable, __file__, "--child", kind, str(first), str(end), str(samples)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        under_way, is_over, buffer = first, False, b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not is_over:
                if not selector.select(limit_s):
                    process.send_signal(signal.SIGKILL)
                    counts["hang"] += 1
                    print(f"{kind} {under_way}: hang", flush=True)
                    under_way += 1
                    break
                part = os.read(process.stdout.fileno(), 1 << 16)
                is_over = not part
                *lines, buffer = (buffer + part).split(b"\n")
                for line in lines:
                    at, _, found = line.decode().partition(" ")
                    if at == "begin":
                        under_way = int(found)
                        continue
                    outcome = found.split(":")[0] if found.split(":")[0] in FAULTS else found
                    counts[outcome] += 1
                    under_way = int(at) + 1
                    if outcome in FAULTS:
                        print(f"{kind} {at}: {found}", flush=True)
        process.wait()
        if is_over and under_way < end:
            assert process.stderr is not None
            message = process.stderr.read().decode()[-500:]
            counts["crash"] += 1
            print(f"{kind} {under_way}: crash, exit status {process.returncode}: {message}", flush=True)
            under_way += 1
        process.stdout.close()
        first = under_way
    return dict(counts)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(KINDS), help="kinds of damage, comma-separated")
    parser.add_argument("--trials", type=int, default=5000, help="number of trials of each kind")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first trial")
    parser.add_argument("--limit-s", type=float, default=20.0, help="time limit of a trial in seconds")
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        kind, start, end, samples = arguments.child
        child(kind, int(start), int(end), pathlib.Path(samples))
        return 0
    faults = 0
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        samples = pathlib.Path(folder)
        make_samples(samples)
        for kind in arguments.kinds.split(","):
            counts = run(kind, arguments.trials, samples, arguments.seed, arguments.limit_s)
            faults += sum(counts.get(fault, 0) for fault in FAULTS)
            found = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
            print(f"{kind}: {sum(counts.values())} trials: {found}", flush=True)
    print(f"faults: {faults}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
