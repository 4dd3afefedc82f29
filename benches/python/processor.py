"""The 6507 alone: parl's interpreter beside that of an earlier study, on the study's eight games.

usage: processor.py FOLDER [--games a,b,...] [--rounds N] [--variant tpskip] [--with-chip] [--record]

FOLDER holds the study's generators (``gen*.py``, ``src/main.rs``); a copy is built in the target folder
without its run-time compiler. Not part of CI, because the study does not belong to parl.

Both programs run under ``perf record`` (processor time, not wall time), in turns. The study has no video
chip: it appends writes to a list and has no collisions. parl is therefore built with ``--cfg
processor_alone``, which does the same. For parl, the samples in the interpreter count (``fast_cpu``,
``machine::cpu``, timer, cartridge), but not those of the video chip: the effects of writes and the beam. For
the study, all samples in its interpreter count, the list included. Times are per instruction of the 6507,
skipped ones included, since the two play different actions. Bar: at most 1.2, mean of the games.
``--with-chip`` measures the build that plays games: the chip's samples are excluded, but not its effects on
caches and branch prediction.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

from ale_py import roms

from atari_console import EIGHT, ROOT, with_spread
from record import Record, add_option

TARGET = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
ROMS = pathlib.Path(roms.get_rom_path("pong")).parent
HERTZ = 20_000
FRAMES, STUDY_FRAMES, STUDY_REPEATS = 20_000, 1500, 12
BAR = 1.2
# Modules and functions of the video chip in the fast interpreter, which are excluded.
VIDEO = "stores|tia|masks|pixels|watch|cells|strobe|latches|Context::(advance_tia|read_tia|pull_tia)"
OURS = re.compile(rf"\b(fast_cpu::(?!{VIDEO})|machine::(cpu|riot|cart|dpc|bus|operations)\b)")
STUDY = re.compile(r"\b(gen::|machine::(io_|intim|dec_))")
# Replaces the study's run-time compiler, which needs five more crates and is not measured.
NO_COMPILER = """
use crate::machine::M;
pub const DBG: bool = false;
pub struct Jit { pub lead: Vec<u8>, pub nblocks: usize, pub nins: usize, pub clif: usize, pub size: usize,
    pub ms: f64, pub compiles: u32, pub total_ms: f64, pub hist: std::collections::HashMap<(u32, u8), u64>,
    pub lookup: Vec<usize> }
impl Jit {
    pub fn new(_: bool) -> Self {
        Self { lead: vec![], nblocks: 0, nins: 0, clif: 0, size: 0, ms: 0.0, compiles: 0, total_ms: 0.0,
            hist: Default::default(), lookup: vec![] }
    }
    pub fn observe(&mut self, _: &mut M) {}
    pub fn compile(&mut self, _: &M) {}
    pub unsafe fn run(&mut self, _: &mut M) {}
    pub unsafe fn run_learn(&mut self, _: &mut M) {}
    pub fn take_wanted(&mut self, _: u32) -> usize { 0 }
}
"""
MANIFEST = """
[package]
name = "dispatch"
version = "0.1.0"
edition = "2021"
[profile.release]
opt-level = 3
debug = 1
panic = "abort"
codegen-units = 1
[workspace]
"""


def build_study(folder: pathlib.Path) -> pathlib.Path:
    """Builds a copy of the study and returns the path of its program."""
    copy = TARGET / "cpu-study"
    if not (copy / "built").is_file():
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("results", "target", "Cargo.lock"))
        # The study's interpreters share one function with the compiler: the loop skip.
        skip = re.search(
            r"^pub extern \"C\" fn poll_skip.*?^}", (copy / "src/jit.rs").read_text(), re.M | re.S
        )
        if skip is None:
            raise SystemExit(f"{folder}/src/jit.rs has no function poll_skip")
        (copy / "src/jit.rs").write_text(f"{NO_COMPILER}\n{skip[0]}\n")
        (copy / "Cargo.toml").write_text(MANIFEST)
        (copy / "synth").mkdir(exist_ok=True)
        for generator in ("gen.py", "gen_t.py 300", "gen_f.py 300", "gen_bp.py 300", "gen_c.py"):
            subprocess.run([sys.executable, *generator.split()], cwd=copy, check=True)
        environment = os.environ | {"CARGO_TARGET_DIR": str(copy / "target")}
        subprocess.run(["cargo", "build", "--quiet", "--release"], cwd=copy, env=environment, check=True)
        (copy / "built").touch()
    return copy / "target/release/dispatch"


def build_ours(with_chip: bool) -> str:
    """Builds the program that plays frames, with or without the video chip, and returns its path."""
    target = TARGET if with_chip else TARGET / "processor-alone"
    environment = os.environ | {"CARGO_TARGET_DIR": str(target)}
    if not with_chip:
        environment["RUSTFLAGS"] = f"{os.environ.get('RUSTFLAGS', '')} --cfg processor_alone".strip()
    build = ["cargo", "build", "--quiet", "--release", "-p", "parl-benches", "--bin", "frames"]
    subprocess.run(build, cwd=ROOT, env=environment, check=True)
    return str(target / "release/frames")


def profile(command: list[str], counted: re.Pattern[str]) -> tuple[float, str]:
    """Seconds of processor time in functions that match ``counted``, and the program's output."""
    with tempfile.TemporaryDirectory() as folder:
        data = f"{folder}/perf.data"
        record = ["perf", "record", "-q", "-e", "cpu-clock", "-F", str(HERTZ), "-o", data, "--", *command]
        environment = os.environ | {"ALE_ROMS_DIR": str(ROMS), "ROMS": str(ROMS)}
        done = subprocess.run(record, env=environment, capture_output=True, text=True, check=True)
        report = ["perf", "report", "-i", data, "--no-children", "--stdio", "-n", "-s", "symbol", "-t", ";"]
        text = subprocess.run(report, capture_output=True, text=True, check=True).stdout
    samples = 0
    for line in text.splitlines():
        fields = line.split(";", 2)
        if len(fields) == 3 and fields[1].strip().isdecimal() and counted.search(fields[2]):
            samples += int(fields[1])
    return samples / HERTZ, done.stdout


def main() -> int:
    """Prints a line per game and the mean; returns 1 if the bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--games", default=",".join(EIGHT))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--variant", default="tpskip", help="the study's interpreter")
    parser.add_argument("--with-chip", action="store_true", help="measure the build that plays games")
    add_option(parser, "processor")
    options = parser.parse_args()
    if shutil.which("perf") is None:
        parser.error("perf is not installed")
    if options.rounds < 2:
        parser.error(f"--rounds {options.rounds}: a spread needs at least 2")
    study = build_study(options.folder)
    frames = build_ours(options.with_chip)
    ratios = []
    record = Record(options.record, "The 6507 alone beside the interpreter of the design study")
    record.print("ns per instruction of the 6507 (us per frame in brackets)")
    for game in options.games.split(","):
        counted = subprocess.run(
            [frames, "instructions", game, "1500"],
            env=os.environ | {"ALE_ROMS_DIR": str(ROMS)},
            capture_output=True,
            text=True,
            check=True,
        )
        our_instructions = float(counted.stdout)
        ours, theirs, study_us = [], [], []
        for _ in range(options.rounds):
            seconds, _ = profile([frames, "count", game, "undrawn", str(FRAMES)], OURS)
            ours.append(seconds / FRAMES / our_instructions * 1e9)
            command = [str(study), game, options.variant, str(STUDY_FRAMES), str(STUDY_REPEATS)]
            seconds, text = profile(command, STUDY)
            found = re.search(rf"{options.variant}\s.* ipf +(\d+)", text)
            assert found, text
            # One more pass than repeats, because the study compares hashes first.
            per_frame = seconds / (STUDY_FRAMES * (STUDY_REPEATS + 1))
            study_us.append(per_frame * 1e6)
            theirs.append(per_frame / float(found[1]) * 1e9)
        ratios.append(statistics.median(a / b for a, b in zip(ours, theirs, strict=True)))
        us = statistics.median(ours) * our_instructions / 1e3
        about = {"rounds": options.rounds, "threads": 1, "spread": "quartiles"}
        for library, values, per_frame_us in (
            ("parl", ours, us),
            ("study", theirs, statistics.median(study_us)),
        ):
            record.add("processor", game, "time per instruction", "ns", values, library=library, **about)
            record.add("processor", game, "time per frame", "us", per_frame_us, library=library, **about)
        record.add("processor", game, "time ratio", "x", ratios[-1], peer="study", **about)
        record.print(
            f"{game:16} parl {with_spread(ours, '')} [{us:.2f}]  study {with_spread(theirs, '')} "
            f"[{statistics.median(study_us):.2f}]  ratio {ratios[-1]:.2f}"
        )
    mean = statistics.mean(ratios)
    record.print(
        f"mean of {len(ratios)} games: {mean:.2f} (bar: at most {BAR}) {'met' if mean <= BAR else 'MISSED'}"
    )
    case = f"mean of {len(ratios)} games"
    record.add(
        "processor", case, "time ratio", "x", mean, peer="study", bar=f"<= {BAR}", rounds=options.rounds
    )
    if options.record:
        print(f"recorded in {record.write()}")
    return int(mean > BAR)


if __name__ == "__main__":
    sys.exit(main())
