"""Adds the lines that the scripts of this folder write on a machine with a GPU to the records.

    python benches/gpu/to_record.py FILE.jsonl ... [--commit COMMIT] [--name NAME]

Each file begins with the machine and its settings. `--commit` names the commit of the measured tree if the
file does not: on that machine there may be no repository.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from record import FOLDER, Row, digits, read, save

SCRIPTS = re.compile(r"\d{4}-\d{2}-\d{2}-gpu-(?P<script>(?:replay-)?[a-z]+)-.*\.jsonl")
KINDS = {"frames": "84 x 84", "frames, ram": "RAM", "frames, graph": "84 x 84, graph"}
# Options that are part of the command of a row.
SHOWN = ("sections", "games", "grid")
BARS = {32_768: 5e5, 4096: 2.5e6, 1024: 8e5, 256: 2e5}


def row(facts: dict[str, Any], claim: str, case: str, metric: str, unit: str, **columns: str) -> Row:
    """A row with the machine, the commit and the command of a file."""
    options = facts["arguments"]
    given = [f"--{name} {' '.join(map(str, options[name]))}" for name in SHOWN if options.get(name)]
    given += ["--mixed"] if options["mixed"] else []
    command = " ".join([f"python benches/gpu/{facts['script'].replace('-', '_')}.py", *given])
    words = f"CUDA driver {facts['driver, clock, power'].split(',')[0]}, NVRTC {facts['NVRTC'].split()[0]}"
    words += "".join(f", {name}={value}" for name, value in facts.get("variables", {}).items())
    columns = {"library": "parl", "machine": f"{facts['device']}, {facts['cores']} cores", **columns}
    return Row(
        claim=claim,
        case=case,
        metric=metric,
        unit=unit,
        commit=facts["commit"],
        command=command,
        **{"conditions": words, **columns},
    )


def rate(facts: dict[str, Any], line: dict[str, Any], case: str) -> Row:
    """Frames per second: the median of the runs, and their range."""
    low, high = min(line["all"]), max(line["all"])
    bar = BARS.get(line["envs"]) if line["what"] in ("frames", "frames, graph") else None
    small = line["envs"] < 32_768 and line.get("game") != "breakout"
    return row(
        facts,
        "gpu-frames",
        case,
        f"frames per second, {line['envs']} environments",
        "frames/s",
        median=digits(line["frames_per_second"]),
        low=digits(low),
        high=digits(high),
        spread="range",
        rounds=str(len(line["all"])),
        bar="" if bar is None or small else f">= {bar:.0f}",
    )


def replay_row(facts: dict[str, Any], line: dict[str, Any]) -> Row:
    """Microseconds of a call of the replay or the tree: the median of the runs, and their range."""
    call = line["what"].removeprefix("torchrl ")
    count = line["batch"] if "batch" in line else line["rows"]
    return row(
        facts,
        "gpu-replay",
        f"{call}, {count} rows",
        "time of a graph's launch" if line.get("how") == "graph" else "time of a call",
        "us",
        library="parl" if call == line["what"] else "TorchRL",
        median=digits(line["median_us"]),
        low=digits(line["least_us"]),
        high=digits(line["most_us"]),
        spread="range",
    )


def bandwidth_row(facts: dict[str, Any], line: dict[str, Any]) -> Row:
    """The share of the memory's bandwidth that gathering stacks of frames reaches."""
    case, share = f"stacks, {line['batch']} rows", digits(line["share"])
    return row(facts, "gpu-replay", case, "share of the memory's bandwidth", "1", median=share)


def cores_rows(facts: dict[str, Any], line: dict[str, Any]) -> list[Row]:
    """The rate with a number of threads, and its ratio to that of one thread."""
    case = ", ".join(
        [line["what"], *([line["game"]] if "game" in line else []), f"{line['threads']} threads"]
    )
    threads = {"threads": str(line["threads"])}
    return [
        row(
            facts,
            "gpu-cores",
            case,
            line["unit"],
            line["unit"].replace(" per second", "/s"),
            median=digits(line["median"]),
            low=digits(line["low"]),
            high=digits(line["high"]),
            spread="range",
            **threads,
        ),
        row(
            facts,
            "gpu-cores",
            case,
            "wall-clock speed ratio",
            "x",
            peer="parl with 1 thread",
            median=digits(line["speedup"]),
            **threads,
        ),
    ]


def rows_of(facts: dict[str, Any], lines: list[dict[str, Any]]) -> list[Row]:
    """The rows for the lines of a file."""
    found = []
    for line in lines:
        what = line["what"]
        if what in KINDS:
            found.append(rate(facts, line, f"{line['game']}, {KINDS[what]}"))
        elif what == "frames, other settings":
            found.append(rate(facts, line, f"breakout, {line['run']}"))
        elif what == "median of the twenty":
            metric = f"frames per second, {line['envs']} environments"
            values = {"median": digits(line["frames_per_second"]), "bar": ">= 2000000"}
            found.append(
                row(facts, "gpu-frames", f"median of {line['games']} games", metric, "frames/s", **values)
            )
        elif what == "compile":
            values = {
                "median": digits(line["seconds"]),
                "bar": "<= 20" if line["when"] == "first use" else "<= 0.3",
            }
            found.append(row(facts, "gpu-start", f"compiling, {line['when']}", "wall clock", "s", **values))
        elif what == "start":
            values = {"median": digits(line["seconds"])}
            found.append(row(facts, "gpu-start", f"{line['envs']} environments", "wall clock", "s", **values))
        elif what in ("exactness", "cut off") and line["steps"] > 0:
            values = {
                "median": str(int(line["difference"] is None)),
                "steps": str(line["steps"]),
                "bar": ">= 1",
            }
            found.append(row(facts, "gpu-exactness", line["run"], "equal to the CPU", "1 or 0", **values))
        elif what == "replay exactness":
            values = {"median": str(int(line["difference"] is None)), "bar": ">= 1"}
            found.append(
                row(facts, "gpu-replay-exactness", line["run"], "equal to the CPU", "1 or 0", **values)
            )
        elif "median_us" in line:
            found.append(replay_row(facts, line))
        elif what == "stacks, bandwidth":
            found.append(bandwidth_row(facts, line))
        elif facts["script"] == "cores":
            found += cores_rows(facts, line)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--commit")
    parser.add_argument("--name", help="name of the record, instead of the date and the device")
    given = parser.parse_args()
    for path in given.files:
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        named = SCRIPTS.fullmatch(path.name)
        if named is None or lines[0]["what"] != "machine":
            parser.error(f"{path} is not a file of a script of this folder")
        facts = {**lines[0], "script": named["script"]}
        facts["commit"] = given.commit or facts["commit"]
        name = given.name or f"{facts['date']}-gpu-{'-'.join(facts['device'].lower().split())}"
        record = FOLDER / f"{name}.csv"
        rows = rows_of(facts, lines[1:])
        save(record, [*(read(record) if record.exists() else []), *rows])
        print(f"{len(rows)} rows added to {record}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
