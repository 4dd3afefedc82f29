"""Frames for a dollar and dollars to a score, from records and the prices of ``benches/prices.toml``.

    python benches/money.py             # prints the table
    python benches/money.py --record    # writes it to benches/records/DATE-money.csv

Nothing is measured here, and none of the machines was rented: the rates are those of the records, on the
machine that each names. A processor of a rented machine is taken to be as fast as a core of the record's
machine, and a thread to cost the hour's price divided by the machine's processors. A GPU's machine is paid
whole. Frames are emulated frames, skipped ones included.
"""

import argparse
import dataclasses
import tomllib
from pathlib import Path

from record import Record, add_option, digits, read

PRICES = Path(__file__).with_name("prices.toml")
RECORDS = Path(__file__).with_name("records")
# Claim and record of the frames of vector environments on one thread, of one console, and of the GPU.
VECTOR = ("atari-vector-8-1", "2026-11-28-atari-vector")
CONSOLE = ("console", "2026-11-28-console")
GPU = ("gpu-frames", "2026-11-27-gpu-nvidia-h200-2")
PONG = ("pong-memory", "2026-11-28-pong")
CONSOLE_CASE = "gray, 2 of 4, through Python: median of 104 games"


def machines(path=PRICES):
    """The machines of a file of prices.

    Raises:
        ValueError: a machine lacks a field, or its price is not above 0.
    """
    found = tomllib.loads(path.read_text(encoding="utf-8"))["machine"]
    names = {"name", "dollars", "vcpus", "memory_gib", "gpu", "region", "date", "source", "read_in"}
    for machine in found:
        if machine.keys() != names:
            raise ValueError(f"{machine.get('name')}: {sorted(machine.keys() ^ names)} missing or unknown")
        if not machine["dollars"] > 0:
            raise ValueError(f"{machine['name']}: dollars = {machine['dollars']} is not above 0")
    return found


def rows(source, metric, case=None):
    """The rows of a record with a claim and a metric, and a case if one is given."""
    claim, name = source
    found = [
        row
        for row in read(RECORDS / f"{name}.csv")
        if (row.claim, row.metric) == (claim, metric) and case in (None, row.case)
    ]
    if not found:
        raise ValueError(f"{name} has no rows of {claim}, {metric}" + (f", {case}" if case else ""))
    return found


def per_dollar(rate, dollars_per_hour):
    """Frames for a dollar at a number of frames per second."""
    return rate * 3600 / dollars_per_hour


def add(record, case, metric, unit, row, convert, conditions, places=4):
    """Adds a figure computed from the row of a record: its median, and its bounds where it has them.

    ``convert`` is a function of the row's value; a decreasing one exchanges the bounds.
    """
    record.add(
        "money",
        case,
        metric,
        unit,
        convert(float(row.median)),
        library=row.library,
        version=row.version,
        conditions=conditions,
    )
    if row.low:
        low, high = sorted(convert(float(bound)) for bound in (row.low, row.high))
        last = record.rows[-1]
        record.rows[-1] = dataclasses.replace(last, low=digits(low), high=digits(high), spread=row.spread)
    last = record.rows[-1]
    bounds = f" ({last.low} to {last.high})" if last.low else ""
    record.print(f"{case:<52} {row.library:<26} {last.median}{bounds} {unit}; {conditions}")


def conditions_of(machine, source):
    return f"${machine['dollars']:g} an hour on {machine['date']}; {source[1]}"


def frames(record):
    """Frames for a dollar: games in vector environments, one console, and the GPU."""
    million = 1e6
    cpus = [machine for machine in machines() if not machine["gpu"]]
    gpus = [machine for machine in machines() if machine["gpu"]]
    vector = [row for row in rows(VECTOR, "frames per core-second") if row.case in ("pong", "breakout")]
    for machine in cpus:
        thread = machine["dollars"] / machine["vcpus"]
        for row in vector:
            add(
                record,
                f"{row.case}, 8 environments, {machine['name']}",
                "frames per dollar",
                "million frames/$",
                row,
                lambda rate, thread=thread: per_dollar(1_000 * rate, thread) / million,
                conditions_of(machine, VECTOR),
            )
        for row in rows(CONSOLE, "frames per core-second", CONSOLE_CASE):
            add(
                record,
                f"104 games, a console, {machine['name']}",
                "frames per dollar",
                "million frames/$",
                row,
                lambda rate, thread=thread: per_dollar(rate, thread) / million,
                conditions_of(machine, CONSOLE),
            )
    for machine in gpus:
        for case in ("median of 20 games", "pong, 84 x 84", "breakout, 84 x 84"):
            # The last row of a game is that of the newest kernels.
            row = rows(GPU, "frames per second, 32768 environments", case)[-1]
            add(
                record,
                f"{case.removesuffix(', 84 x 84')}, 32,768 environments, {machine['name']}",
                "frames per dollar",
                "million frames/$",
                row,
                lambda rate, machine=machine: per_dollar(rate, machine["dollars"]) / million,
                f"{conditions_of(machine, GPU)}, commit {row.commit}",
            )


def scores(record):
    """Dollars to Pong 18 on a whole machine with two processors."""
    for machine in machines():
        if not machine["gpu"]:
            for row in rows(PONG, "process"):
                add(
                    record,
                    f"Pong from memory to 18, {machine['name']}",
                    "dollars to the score",
                    "$",
                    row,
                    lambda seconds, machine=machine: seconds / 3600 * machine["dollars"],
                    conditions_of(machine, PONG),
                )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_option(parser, "money")
    arguments = parser.parse_args()
    with Record(arguments.record, "Frames for a dollar, dollars to a score") as record:
        frames(record)
        scores(record)


if __name__ == "__main__":
    main()
