"""A run on 64 machines of 64 cores, one of which has 8 GPUs: its first limit, computed from unit costs.

    python benches/scaling.py            # prints the table of docs/scaling.md
    python benches/scaling.py --write    # writes it there

The unit costs are medians of the newest record of ``benches/python/distributed.py``. A limit is the number
of transitions (or members of a population) a second that a part can process if nothing else limits it.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
from record import FOLDER, ROOT, Row, read

PAGE = ROOT / "docs" / "scaling.md"
BEGIN, END = "<!-- table of benches/scaling.py -->", "<!-- end -->"
MACHINES, CORES, GPUS = 64, 64, 8
# Assumptions, which are no measurements: the link of the machine with the GPUs, the length of an episode, and
# transitions per update of each process of torchrun, one on each machine: 20 steps of 32 environments.
LINK_BYTES_PER_S = 100e9 / 8
EPISODE = 1_000
UPDATE = 640
WEIGHTS = "1,700,000"  # of the Nature DQN's network


@dataclass(frozen=True)
class Limit:
    """What one part can process.

    Attributes:
        run: the run.
        part: the part, with its number.
        cost: its unit cost.
        row: the row of the record that the cost is from; None for an assumption.
        per_second: the limit.
    """

    run: str
    part: str
    cost: str
    row: Row | None
    per_second: float


def newest() -> dict[tuple[str, str], Row]:
    """The rows of the newest record by case and metric."""
    name = sorted(FOLDER.glob("*-distributed.csv"))[-1]
    return {(row.case, row.metric): row for row in read(name)}


def limits() -> list[Limit]:
    """The limits of all parts, run by run."""
    rows = newest()
    cores = MACHINES * CORES

    def number(case: str, metric: str) -> tuple[Row, float]:
        row = rows[case, metric]
        return row, float(row.median)

    found: list[Limit] = []
    for run, kind in (("`dqn --engine ray`", "rows"), ("`impala --engine ray`", "rollouts")):
        case = f"{kind} of parl/Pong-v0, 2 nodes"
        row, us = number(case, "actor's time per transition")
        found.append(Limit(run, f"{cores:,} cores of actors", f"{us:,.0f} us", row, cores / us * 1e6))
        row, us = number(case, "driver's time per transition")
        found.append(Limit(run, f"{GPUS} learner processes receive", f"{us:,.1f} us", row, GPUS / us * 1e6))
        row, size = number(case, "bytes per transition")
        about = f"{size:,.0f} bytes; 100 Gbit/s assumed"
        found.append(Limit(run, "network of the learners' machine", about, row, LINK_BYTES_PER_S / size))
    run = "`impala` with torchrun on the CPUs"
    _, act = number("rollouts of parl/Pong-v0, 2 nodes", "actor's time per transition")
    row, learn = number("impala on parl/Pong-v0, cpu", "learner's time per transition")
    both = f"{act:,.0f} us act, {learn:,.0f} us learn"
    found.append(Limit(run, f"{cores:,} cores", both, row, cores / (act + learn) * 1e6))
    row, ms = number(f"{WEIGHTS} gradients, 2 processes", "time to average")
    about = f"{ms:,.1f} ms per update of {UPDATE} transitions per machine"
    found.append(Limit(run, "gradients averaged by gloo", about, row, MACHINES * UPDATE / ms * 1e3))
    run = "`es --engine ray`"
    row, us = number("rows of parl/Pong-v0, 2 nodes", "actor's time per transition")
    about = f"{us:,.0f} us; {EPISODE:,} steps assumed"
    found.append(Limit(run, f"{cores:,} cores of actors", about, row, cores / (us * EPISODE) * 1e6))
    row, ns = number(f"members of {WEIGHTS} weights", "learner's time per weight")
    per_member = float(WEIGHTS.replace(",", "")) * ns * 1e-9
    found.append(
        Limit(run, "one learner draws the noise again", f"{per_member * 1e3:,.1f} ms", row, 1 / per_member)
    )
    return found


def rounded(value: float) -> str:
    """A number with two significant digits."""
    return f"{float(f'{value:.2g}'):,.0f}"


def table() -> str:
    """The table of the page, with the first limit of each run in bold."""
    found = limits()
    lines = [
        "| run | part | unit cost | limit per second | measured by |",
        "|---|---|---|---:|---|",
    ]
    for one in found:
        least = min(other.per_second for other in found if other.run == one.run)
        limit = rounded(one.per_second)
        limit = f"**{limit}**" if one.per_second == least else limit
        command = "" if one.row is None else f"`{one.row.command.removeprefix('python benches/python/')}`"
        lines.append(f"| {one.run} | {one.part} | {one.cost} | {limit} | {command} |")
    return "\n".join(lines)


def updated(page: str) -> str:
    """The text of the page with the table of today."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"write the table into {PAGE.name}")
    if parser.parse_args().write:
        PAGE.write_text(updated(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())


if __name__ == "__main__":
    main()
