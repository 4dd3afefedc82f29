"""Instructions that a warp executes for a step of its environments, without a GPU.

``python benches/gpu/model.py`` compiles the kernels to PTX with NVRTC and runs it on the host
(``benches/rust/gpu_model.rs``): 32 environments of a game make 60 random steps on the CPU, their states are
loaded, and one more step runs as PTX. Observations, figures and states must equal those of the CPU. The table
has the warp instructions of that step (four frames, an observation of 84 x 84), for the best window of the
grouped form, those of them that draw rows of pictures and show planes, the size of the code that a warp
executes more than 20 times in it, if a line of PTX is an instruction of 16 bytes, and the frames per second
of 32,768 environments on an H200 that follow.

The instructions are those of PTX, without moves and arguments in registers; machine code has more address
computations and fewer copies. ``calibration.toml`` relates the two: instructions of earlier kernels, counted
in the same way, whose frames per second a GPU has shown. The product of both would be the same for all games
if nothing but instructions mattered; its quartiles are the error band of the model, which knows nothing about
memory and occupancy.

``--check`` runs four games with the default window and fails if one takes over 3 % more instructions than
recorded in ``model.toml``; ``--accept REASON`` records new numbers. ``--lanes 8`` models warps with eight
environments, ``--functions`` prints the functions of a step, ``--record`` writes a record.

``--choose`` runs all games after 300 random steps, when environments are far from alike, and writes the
window with the fewest instructions of each to ``crates/cule/src/batch/cuda/windows.rs`` (half an hour).

``--resources`` prints what ptxas makes of the step kernel for each architecture: registers, stack, spills,
and bytes of machine code, of the kernel and of its main functions. ptxas is in ``nvidia-cuda-nvcc``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path

from common import TWENTY_GAMES

import parl
from parl.cuda import nvrtc_folders

sys.path.append(str(Path(__file__).parents[1]))
from record import Record, add_option, read

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("model.toml")
CALIBRATION = Path(__file__).with_name("calibration.toml")
WINDOWS = "0,2,4,9"
BEST_WINDOWS = ROOT / "crates" / "cule" / "src" / "batch" / "cuda" / "windows.rs"
CHECKED = ("pong", "breakout", "solaris", "tutankham")
TOLERANCE = 0.03
ARCHITECTURES = (80, 90, 100)
# The functions that take most of a step.
SHOWN_FUNCTIONS = (
    "run_grouped",
    "show",
    "write_tia",
    "catch_up",
    "execute_with_compact",
    "execute",
    "draw",
    "refresh",
)
# Bytes of an instruction of an NVIDIA GPU since Volta.
INSTRUCTION_BYTES = 16
KINDS = ("arithmetic", "control", "local", "shared", "global", "sync", "free")


def nvrtc() -> Path | None:
    """The compiler of the installed packages, or that of ``PARL_NVRTC``."""
    if named := os.environ.get("PARL_NVRTC"):
        return Path(named)
    files = (file for folder in nvrtc_folders() for file in sorted(Path(folder).glob("libnvrtc.so.*")))
    return next((file for file in files if "alt" not in file.name), None)


def run(*arguments: str, keep: str = "") -> Iterator[str]:
    """Builds and runs the program; yields the lines of its output. ``keep``: a folder for the PTX."""
    environment = os.environ | {"PARL_NVRTC": str(nvrtc() or "")} | ({"PARL_KEEP_PTX": keep} if keep else {})
    cargo = [os.environ.get("CARGO", "cargo"), "run", "--quiet", "--release", "-p", "parl-benches"]
    command = [*cargo, "--bin", "gpu_model", "--", *arguments]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            yield line.rstrip("\n")
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: exit status {process.returncode}")


def fields(line: str) -> dict[str, str]:
    """``key=value`` pairs of a line."""
    return dict(pair.split("=", 1) for pair in line.split())


def check(reason: str | None) -> int:
    """Compares four games with the recorded numbers, or records them; returns the exit status."""
    if nvrtc() is None:
        print("GPU INSTRUCTIONS WERE NOT CHECKED: pip install nvidia-cuda-nvrtc", file=sys.stderr)
        return 3
    recorded = tomllib.loads(TABLE.read_text()) if TABLE.exists() else {"instructions": {}}
    now = {}
    for line in run("--games", ",".join(CHECKED)):
        row = fields(line)
        game, before = row["game"], recorded["instructions"].get(row["game"])
        now[game] = int(row["instructions"])
        change = "new" if before is None else f"{now[game] / before - 1:+.1%}"
        print(f"gpu/{game:40} {before or 0:12} {now[game]:12} {change:>8}")
    if reason is not None:
        lines = [
            "# Warp instructions of a step of 32 environments: `benches/gpu/model.py --accept REASON`.",
            f"reason = {json.dumps(reason)}",
            "",
            "[instructions]",
            *(f"{game} = {count}" for game, count in sorted(now.items())),
        ]
        TABLE.write_text("\n".join(lines) + "\n")
        return 0
    known = recorded["instructions"]
    worse = [game for game, count in now.items() if count > known.get(game, 0) * (1 + TOLERANCE)]
    if worse:
        print(f"more instructions than recorded: {', '.join(worse)}", file=sys.stderr)
        print("if this is intended, record it: python benches/gpu/model.py --accept REASON", file=sys.stderr)
    return 1 if worse else 0


def frames_times_instructions() -> tuple[float, float, float]:
    """Frames per second of a GPU times instructions: lower quartile, median, upper quartile of the games."""
    table = tomllib.loads(CALIBRATION.read_text())
    counts = {f"{game}, 84 x 84": count for game, count in table["instructions"].items()}
    products = [
        float(row.median) * counts[row.case]
        for row in read(ROOT / "benches" / "records" / f"{table['record']}.csv")
        if (row.metric, row.commit) == (table["metric"], table["commit"]) and row.case in counts
    ]
    assert len(products) == len(counts), "the record has a row for each game"
    low, middle, high = statistics.quantiles(products, n=4)
    return low, middle, high


def best_of(arguments: list[str]) -> dict[str, dict[str, str]]:
    """For each game the line of the window with the fewest instructions."""
    best: dict[str, dict[str, str]] = {}
    for line in run("--windows", WINDOWS, *arguments):
        if line.startswith(" "):
            print(line)
            continue
        row = fields(line)
        before = best.get(row["game"])
        if before is None or int(row["instructions"]) < int(before["instructions"]):
            best[row["game"]] = row
    return best


def ptxas() -> str | None:
    """The assembler of the installed packages, or that of the path."""
    files = (Path(folder).parent / "bin" / "ptxas" for folder in nvrtc_folders())
    return next((str(file) for file in files if file.is_file()), None) or shutil.which("ptxas")


def code_bytes(cubin: bytes) -> dict[str, int]:
    """Bytes of the sections and functions of machine code, by name. Source: the ELF-64 format."""
    at, size, count = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, at + size * k) for k in range(count)]

    def name(table: int, offset: int) -> str:
        begin = sections[table][4] + offset
        return cubin[begin : cubin.index(0, begin)].decode()

    names = struct.unpack_from("<H", cubin, 0x3E)[0]
    found = {name(names, section[0]): section[5] for section in sections}
    symbols = next(section for section in sections if section[1] == 2)
    for place in range(symbols[4], symbols[4] + symbols[5], 24):
        label, info, _, _, _, length = struct.unpack_from("<IBBHQQ", cubin, place)
        if info & 15 == 2:
            found[name(symbols[6], label)] = length
    return found


def resources() -> int:
    """Prints registers, stack, spills and code of the step kernel; returns the exit status."""
    assembler = ptxas()
    if nvrtc() is None or assembler is None:
        print("no NVRTC or ptxas: pip install nvidia-cuda-nvrtc nvidia-cuda-nvcc", file=sys.stderr)
        return 3
    for architecture in ARCHITECTURES:
        with tempfile.TemporaryDirectory() as folder:
            list(run("--games", "", "--architecture", str(architecture), keep=folder))
            ptx, cubin = Path(folder) / "step.ptx", Path(folder) / "step.cubin"
            ptx.write_bytes(ptx.read_bytes().rstrip(b"\0"))
            command = [assembler, "-v", f"--gpu-name=sm_{architecture}", str(ptx), "-o", str(cubin)]
            log = subprocess.run(command, check=True, capture_output=True, text=True).stderr
            sizes = code_bytes(cubin.read_bytes())
        used = re.search(r"Used (\d+) registers.*?(\d+) bytes cumulative stack", log)
        assert used, log
        code = sizes[".text.parl_step"] / 1024
        figures = f"{used[1]} registers, {used[2]} bytes of stack, {code:.0f} KiB of code"
        print(f"sm_{architecture} parl_step: {figures}")
        pattern = (
            r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)"
        )
        for function, stack, stores, loads in re.findall(pattern, log):
            short = next((name for name in SHOWN_FUNCTIONS if f"{len(name)}{name}E" in function), None)
            if short is not None:
                size = sizes[f"$parl_step${function}"] / 1024
                spills = f"{stack} bytes of stack, {stores} of spill stores, {loads} of spill loads"
                print(f"    {short:22} {size:6.1f} KiB, {spills}")
            elif function == "parl_step":
                print(f"    itself: {stores} bytes of spill stores, {loads} of spill loads")
    return 0


def choose(given: list[str]) -> int:
    """Writes the best window of each game. ``given``: files with output of ``gpu_model`` to use."""
    games = ",".join(game.id for game in parl.atari.games())
    lines = [line for file in given for line in Path(file).read_text().splitlines()]
    if not given:
        lines = list(run("--games", games, "--warm", "300", "--windows", WINDOWS))
    counts: dict[str, dict[int, int]] = {}
    for row in map(fields, (line for line in lines if line.startswith("game="))):
        counts.setdefault(row["game"], {})[int(row["window"])] = int(row["instructions"])
    best = {game: min(windows, key=windows.__getitem__) for game, windows in sorted(counts.items())}
    text = [
        "//! GENERATED by `python benches/gpu/model.py --choose`: the window with which a step of each game",
        "//! takes the fewest instructions.",
        "",
        "/// Windows, and the games for which they are best.",
        "pub(super) const BEST_WINDOWS: &[(u32, &[&str])] = &[",
    ]
    for window in map(int, WINDOWS.split(",")):
        text += [f"    ({window}, &["]
        names = [f'"{game}",' for game, found in best.items() if found == window]
        text += textwrap.wrap(" ".join(names), 100, initial_indent=" " * 8, subsequent_indent=" " * 8)
        text += ["    ]),"]
    BEST_WINDOWS.write_text("\n".join([*text, "];", ""]))
    subprocess.run(["rustfmt", "--edition", "2024", str(BEST_WINDOWS)], check=True)
    return 0


def hot_kib(row: dict[str, str]) -> float:
    """KiB of the code that a warp executes more than 20 times in a step."""
    return int(row["hot"]) * INSTRUCTION_BYTES / 1024


def write_record(name: str, best: dict[str, dict[str, str]], lanes: int) -> None:
    """Writes the figures of all games and their median."""
    conditions = f"PTX of NVRTC run on the host, {lanes} environments of a warp, after 60 random steps"
    metric = f"warp instructions of a step of {lanes} environments"
    with Record(name, "Instructions of the GPU kernels, counted without a GPU", conditions) as record:
        for game, row in best.items():
            count = float(row["instructions"])
            window = f"window {row['window']}"
            bar = "<= 7000000" if lanes == 32 else ""
            record.add("gpu-instructions", game, metric, "instructions", count, conditions=window, bar=bar)
        counts = [float(row["instructions"]) for row in best.values()]
        drawing = [float(row["drawing"]) for row in best.values()]
        median = f"median of {len(counts)} games"
        for case, all_games, most in (
            (median, counts, 2_100_000),
            (f"{median}, drawing rows and showing planes", drawing, 500_000),
        ):
            bar = f"<= {most}" if lanes == 32 else ""
            record.add(
                "gpu-instructions", case, metric, "instructions", all_games, spread="quartiles", bar=bar
            )
        hot = [hot_kib(row) for row in best.values()]
        metric = "code that a warp executes more than 20 times in a step"
        record.add("gpu-instructions", f"most of {len(counts)} games", metric, "KiB", max(hot), bar="<= 128")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", nargs="*", default=list(TWENTY_GAMES))
    parser.add_argument("--lanes", type=int, default=32, help="environments of a warp")
    parser.add_argument("--functions", action="store_true", help="print the functions of each step")
    parser.add_argument("--check", action="store_true", help="compare four games with model.toml")
    parser.add_argument("--accept", metavar="REASON", help="record the numbers of --check")
    add_option(parser, "gpu-model")
    parser.add_argument("--resources", action="store_true", help="print registers, stack, spills and code")
    parser.add_argument("--choose", nargs="*", metavar="FILE", help="write the best window of each game")
    given = parser.parse_args()
    if given.choose is not None:
        return choose(given.choose)
    if given.check or given.accept:
        return check(given.accept)
    if given.resources:
        return resources()
    if nvrtc() is None:
        raise SystemExit("no NVRTC: pip install nvidia-cuda-nvrtc")
    arguments = ["--games", ",".join(given.games), "--envs", str(given.lanes), "--lanes", str(given.lanes)]
    best = best_of([*arguments, *(["--functions"] if given.functions else [])])
    print(
        f"{'game':20} instructions   drawing  hot KiB   turns  lanes window  10^6 frames/s  kinds, thousands"
    )
    low, product, high = frames_times_instructions()
    for game, row in best.items():
        count = int(row["instructions"])
        kinds = " ".join(f"{kind} {int(row[kind]) // 1000}" for kind in KINDS)
        frames = product / count / 1e6
        drawing, others = int(row["drawing"]), f"{row['turns']:>7} {row['lanes']:>6} {row['window']:>6}"
        print(f"{game:20} {count:12,} {drawing:9,} {hot_kib(row):8.1f} {others} {frames:14.2f}  {kinds}")
    counts = [int(row["instructions"]) for row in best.values()]
    middle = statistics.median(counts)
    print(f"median {middle:,.0f} (bar 2,100,000), worst {max(counts):,} (bar 7,000,000)")
    of_drawing = statistics.median(int(row["drawing"]) for row in best.values())
    print(f"drawing rows and showing planes: median {of_drawing:,.0f} (bar 500,000)")
    hot = [hot_kib(row) for row in best.values()]
    middle_kib, most_kib = statistics.median(hot), max(hot)
    print(f"code that runs more than 20 times: median {middle_kib:.1f} KiB, most {most_kib:.1f} (bar 128)")
    modelled, least, most = (number / middle / 1e6 for number in (product, low, high))
    print(f"instructions times frames a second on a GPU: {product:.3g} (quartiles {low:.3g} to {high:.3g})")
    print(
        f"modelled million frames a second of 32,768 environments: {modelled:.1f} "
        f"(quartiles of the model {least:.1f} to {most:.1f})"
    )
    if given.record:
        write_record(given.record, best, given.lanes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
