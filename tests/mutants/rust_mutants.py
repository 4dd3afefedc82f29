"""Mutants of Rust modules: cargo-mutants lists them; cargo's and Python's tests run in a copy of the tree.

cargo-mutants itself runs only cargo's tests, but most tests of the replay are in Python.
"""

from __future__ import annotations

import argparse
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from typing import Any

from python_mutants import MEMORY_BYTES, Measured, Server
from records import Mutant, Outcome, keyed, nth_of_its_text

ROOT = pathlib.Path(__file__).parents[2]
WORK = ROOT / "target" / "mutants"
TREE = WORK / "tree"
# For each part: the package, the files, the tests of cargo, and the Python tests of the extension.
PARTS: dict[str, dict[str, Any]] = {
    "sumtree": {
        "package": "sumtree",
        "files": "crates/sumtree/src/**/*.rs",
        "cargo": ["--package", "sumtree", "--lib", "--test", "props", "--test", "paths", "--test", "draws"],
        "python": ["tests/bindings", "tests/replay"],
    },
    "games": {
        "package": "cule",
        "files": "crates/cule/src/games/**/*.rs",
    },
}
# Time limits of one build and of one set of tests, in seconds.
BUILD_S = 1200.0
TESTS_S = 600.0
# Compiles fast, since each mutant needs a compilation.
PROFILE = {
    "inherits": '"dev"',
    "debug": "false",
    "incremental": "true",
    "opt-level": "1",
    'package."*".opt-level': "2",
    "build-override.opt-level": "0",
}


@functools.cache
def _list_mutants(part: str) -> list[dict[str, Any]]:
    """Returns every mutant that cargo-mutants lists for a part."""
    wanted = PARTS[part]
    command = ["cargo", "mutants", "--list", "--json", "--package", wanted["package"]]
    command += ["--file", wanted["files"]]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return json.loads(listed)


def _included_mutants(part: str, exclude: frozenset[str]) -> list[dict[str, Any]]:
    return [mutant for mutant in _list_mutants(part) if mutant["file"] not in exclude]


def population(part: str, exclude: frozenset[str]) -> str:
    """Says how many mutants a part has."""
    return f"{len(_included_mutants(part, exclude))} mutants"


def draw(part: str, seed: int, exclude: frozenset[str]) -> Iterator[Mutant]:
    """Yields mutants in a random order that depends only on the seed."""

    kept = _included_mutants(part, exclude)
    files = {mutant["file"] for mutant in kept}
    texts = {file: (ROOT / file).read_text().splitlines(keepends=True) for file in files}

    def nth(mutant: dict[str, Any]) -> int:
        return nth_of_its_text(texts[mutant["file"]], mutant["span"]["start"]["line"] - 1)

    def order(mutant: dict[str, Any]) -> str:
        # Without line numbers, so that changes elsewhere do not change the sample.
        name, column = mutant["name"].split(": ", 1)[-1], mutant["span"]["start"]["column"]
        text = keyed(nth(mutant), seed, mutant["file"], name, column)
        return hashlib.sha256(text.encode()).hexdigest()

    for one in sorted(kept, key=order):
        lines = texts[one["file"]]
        start, end = one["span"]["start"], one["span"]["end"]
        first, last = start["line"] - 1, end["line"] - 1
        head, tail = lines[first][: start["column"] - 1], lines[last][end["column"] - 1 :]
        changed = head + one["replacement"] + tail
        source = "".join([*lines[:first], changed, *lines[last + 1 :]])
        before = " ".join(line.strip() for line in lines[first : last + 1])
        number, name = nth(one), one["name"].split(": ", 1)[-1]
        key = keyed(number, one["file"], name, before, start["column"])
        after = " ".join(changed.split())
        yield Mutant(key, part, one["file"], start["line"], number, one["genre"], before, after, source)


def _quick_tests(measured: Measured, folders: list[str]) -> list[str]:
    """Returns the tests in these folders that take up to a second, quickest first."""
    durations = measured.durations
    inside = [test for test in durations if test.startswith(tuple(folders)) and durations[test] <= 1.0]
    return sorted(inside, key=lambda test: durations[test])


class Runner:
    """Runs the tests of mutants in a copy of the tree, which is built once."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._environment = os.environ | {"CARGO_TARGET_DIR": str(WORK / "cargo")}
        self._lock = (WORK / "tree.lock").open("w")  # two runs would change one tree
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._copy()
        self._measured = Measured(arguments.python)
        self._server = Server(arguments.python, TREE / "python", TREE)
        self._checked = False

    @staticmethod
    def _copy() -> None:
        """Updates the copy. Unchanged files keep their modification time, so that cargo builds little."""
        listed = subprocess.check_output(["git", "ls-files", "-z"], cwd=ROOT, text=True)
        for name in filter(None, listed.split("\0")):
            source, target = ROOT / name, TREE / name
            if not source.exists():
                continue
            if not target.exists() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)

    def _cargo(self, command: str, words: list[str], limit_s: float) -> tuple[str, str]:
        """Runs cargo; returns ``passed``, ``failed`` or ``timeout``, and the end of its output."""
        settings = [f"--config=profile.mutants.{key}={value}" for key, value in PROFILE.items()]
        arguments = ["cargo", command, "--quiet", "--profile", "mutants", *settings, *words]
        log = WORK / "cargo.log"
        with log.open("w") as out:
            running = subprocess.Popen(
                arguments, cwd=TREE, env=self._environment, stdout=out, stderr=out, start_new_session=True
            )
            try:
                status = running.wait(limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(running.pid, 9)
                running.wait()
                return "timeout", ""
        return ("passed" if status == 0 else "failed"), log.read_text(errors="replace")[-2000:]

    def run(self, mutant: Mutant) -> Outcome:
        """Runs the tests of one mutant."""
        if not self._checked:
            outcome, note = self._run(mutant)
            if outcome != "survived":
                raise RuntimeError(f"the tests of {mutant.part} fail without a mutant: {note}")
            self._checked = True
        began = time.monotonic()
        path = TREE / mutant.file
        path.write_text(mutant.source)
        try:
            outcome, note = self._run(mutant)
        finally:
            path.write_text((ROOT / mutant.file).read_text())
        return Outcome(outcome, note, time.monotonic() - began)

    def _run(self, mutant: Mutant) -> tuple[str, str]:
        part = PARTS[mutant.part]
        # Most tests of the replay are in Python.
        kinds = ["python", "cargo"] if "/replay/" in mutant.file else ["cargo", "python"]
        for kind in kinds:
            outcome, note = getattr(self, f"_with_{kind}")(part)
            if outcome != "survived":
                return outcome, note
        return "survived", "the tests of cargo and of Python passed"

    @staticmethod
    def _unbuilt(built: str, said: str) -> tuple[str, str]:
        if built == "timeout":
            raise TimeoutError(f"no build within {BUILD_S:.0f} s: the machine is too busy for mutants")
        return "unviable", said[-300:]

    def _with_cargo(self, part: dict[str, Any]) -> tuple[str, str]:
        built, said = self._cargo("test", ["--no-run", *part["cargo"]], BUILD_S)
        if built != "passed":
            return self._unbuilt(built, said)
        ended, said = self._cargo("test", part["cargo"], TESTS_S)
        if ended == "passed":
            return "survived", ""
        failed = [line for line in said.splitlines() if line.startswith(("    ", "test ")) and "::" in line]
        return ("timeout" if ended == "timeout" else "killed"), "cargo test: " + " ".join(failed[:3])[:200]

    def _with_python(self, part: dict[str, Any]) -> tuple[str, str]:
        words = ["--package", "bindings", "--features", "pyo3/extension-module"]
        built, said = self._cargo("build", words, BUILD_S)
        if built != "passed":
            return self._unbuilt(built, said)
        library = TREE / "python" / "parl" / "_native.abi3.so"
        library.unlink(missing_ok=True)
        shutil.copyfile(WORK / "cargo" / "mutants" / "lib_native.so", library)
        job = {
            "tests": _quick_tests(self._measured, part["python"]),
            "timeout_s": TESTS_S,
            "memory_bytes": MEMORY_BYTES,
        }
        answer = self._server.run(job)
        return answer["outcome"], answer["by"]

    def close(self) -> None:
        """Ends the process that runs tests."""
        self._server.close()
