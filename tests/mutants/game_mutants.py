"""Mutants of the games' rules, tested on random RAM and on RAM that ``record_ram.py`` recorded.

``crates/cule/tests/rules.rs`` compares the rules with recorded numbers for random RAM. The comparisons with
ale-py in ``tests/atari/exactness`` read reward, lives and game over of each frame, so a mutant that changes
none of these in a recorded play survives a comparison of that play. This module compiles only the rules
(``rules.rs``) and runs them on both kinds of RAM, which takes seconds per mutant instead of minutes.
"""

from __future__ import annotations

import argparse
import pathlib
import shutil
import subprocess
import time

from python_mutants import ROOT, WORK
from records import Mutant, Outcome
from rust_mutants import draw, population

__all__ = ["Runner", "draw", "population"]

# Frames of each play that are compared. `make test` plays 300 of each game and 3,000 of sixteen.
FRAMES = 6_000
TIMEOUT_S = 120.0
MANIFEST = """\
[package]
name = "rules"
version = "0.0.0"
edition = "2024"
[dependencies]
bytemuck = { version = "1.25", features = ["derive", "extern_crate_alloc", "min_const_generics"] }
[profile.dev]
opt-level = 1
debug = false
[workspace]
"""


class Runner:
    """Compiles the rules with each mutant, and compares their results."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._crate, self._plays = WORK / "rules", WORK / "plays"
        here = pathlib.Path(__file__).parent
        subprocess.run(
            [arguments.python, here / "record_ram.py", self._plays, str(FRAMES)], cwd=ROOT, check=True
        )
        shutil.rmtree(self._crate / "src", ignore_errors=True)
        shutil.copytree(ROOT / "crates" / "cule" / "src" / "games", self._crate / "src" / "games")
        shutil.copytree(ROOT / "crates" / "cule" / "tests" / "drawn", self._crate / "src" / "drawn")
        shutil.copyfile(here / "rules.rs", self._crate / "src" / "main.rs")
        (self._crate / "Cargo.toml").write_text(MANIFEST)
        built, said = self._build()
        if not built:
            raise RuntimeError(f"the rules do not compile: {said}")
        self._expected = self._output()
        if len(self._expected.splitlines()) < 200:
            raise RuntimeError(
                f"only {len(self._expected.splitlines())} lines for the plays in {self._plays}"
            )

    def _build(self) -> tuple[bool, str]:
        done = subprocess.run(["cargo", "build", "--quiet"], cwd=self._crate, capture_output=True, text=True)
        return done.returncode == 0, done.stderr[-500:]

    def _output(self) -> str:
        program = pathlib.Path(self._target()) / "debug" / "rules"
        words = [str(program), str(self._plays), str(FRAMES)]
        return subprocess.run(words, capture_output=True, text=True, check=True, timeout=TIMEOUT_S).stdout

    def _target(self) -> pathlib.Path:
        listed = ["cargo", "metadata", "--format-version", "1", "--no-deps"]
        found = subprocess.check_output(listed, cwd=self._crate, text=True)
        return pathlib.Path(found.split('"target_directory":"')[1].split('"')[0])

    def run(self, mutant: Mutant) -> Outcome:
        """Runs a mutant, which is killed if the rewards, lives or end of some game differ."""
        began = time.monotonic()
        path = self._crate / "src" / pathlib.Path(mutant.file).relative_to("crates/cule/src")
        original = path.read_text()
        path.write_text(mutant.source)
        try:
            outcome, note = self._compare()
        finally:
            path.write_text(original)
        return Outcome(outcome, note, time.monotonic() - began)

    def _compare(self) -> tuple[str, str]:
        built, said = self._build()
        if not built:
            return "unviable", said
        try:
            found = self._output()
        except subprocess.CalledProcessError as error:
            return "killed", error.stderr[-200:]
        except subprocess.TimeoutExpired:
            return "timeout", ""
        pairs = zip(found.splitlines(), self._expected.splitlines(), strict=True)
        others = [line.rsplit(" ", 1)[0] for line, expected in pairs if line != expected]
        if not others:
            return "survived", f"no difference for random RAM and in {FRAMES} frames of each game"
        return "killed", f"{len(others)} differ: {'; '.join(others[:3])}"

    def close(self) -> None:
        """Does nothing: no process is left running."""
