"""Mutation tests: changes the code at random places, one at a time, and counts how often a test fails.

``make mutants`` calls this. Parts: ``ops``, ``replay``, ``algos`` and ``runtime`` of the Python package, with
the operators of cosmic-ray; ``sumtree`` and ``games`` in Rust, with cargo-mutants. Since a full run takes
days, it draws ``--sample`` mutants by ``--seed``: in Python a place that can be changed, then one of its
changes; in Rust one of cargo-mutants' list. It prints the share that the tests kill, with its 95 % Wilson
interval, and each survivor.

A mutant of a Python module runs against the tests that run its line, the quickest first. One run of the tests
under coverage finds these tests (``--measure`` repeats it, for all or some tests).
A mutant of ``sumtree`` runs against its tests in cargo and in Python; one of ``games`` against plays recorded
from ale-py, see ``game_mutants.py``.

Outcomes are kept in ``target/mutants``: an interrupted run can continue, and ``--again`` repeats mutants that
no test killed, after tests were added. ``accepted.toml`` lists survivors that do not show a gap in the tests,
with reasons: they count as survivors in the first figure and are left out of the second. The exit status is 1
if less than ``--goal`` of the second is killed.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import time

from records import Accepted, Outcome, State, wilson

ROOT = pathlib.Path(__file__).parents[2]
PYTHON_PARTS = ("ops", "replay", "algos", "runtime")
RUST_PARTS = ("sumtree", "games")


def percentage(killed: int, total: int) -> str:
    """Formats a share with its interval."""
    low, high = wilson(killed, total)
    return f"{killed} of {total} killed, {killed / max(total, 1):.1%} (95 % {low:.1%} to {high:.1%})"


def main() -> int:
    """Runs one part after the other."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("parts", nargs="*", metavar="part", help=", ".join(PYTHON_PARTS + RUST_PARTS))
    parser.add_argument("--sample", type=int, default=100, help="mutants of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=60.0, help="start no mutant after so many minutes")
    parser.add_argument("--goal", type=float, default=0.9, help="share that must be killed")
    parser.add_argument("--only", default="", help="only files whose path contains this")
    parser.add_argument("--again", action="store_true", help="repeat mutants that no test killed")
    parser.add_argument("--measure", nargs="*", metavar="TESTS", help="measure all or these tests, and stop")
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the Python tests")
    arguments = parser.parse_args()
    parts = arguments.parts or [*PYTHON_PARTS, *RUST_PARTS]
    if unknown := set(parts) - {*PYTHON_PARTS, *RUST_PARTS}:
        parser.error(f"no part is called {', '.join(sorted(unknown))}")
    if arguments.measure is not None:
        import python_mutants

        python_mutants.measure(arguments.python, arguments.measure or python_mutants.TESTS)
        return 0
    accepted = Accepted(pathlib.Path(__file__).with_name("accepted.toml"))
    deadline = time.monotonic() + 60 * arguments.minutes
    below = []
    for part in parts:
        if run_part(part, arguments, accepted, deadline) < arguments.goal:
            below.append(part)
    if below:
        print(f"less than {arguments.goal:.0%} killed: {', '.join(below)}", file=sys.stderr)
    return 1 if below else 0


def run_part(part: str, arguments: argparse.Namespace, accepted: Accepted, deadline: float) -> float:
    """Runs the sample of one part and prints survivors; returns the share killed, without accepted ones."""
    if part in PYTHON_PARTS:
        import python_mutants as kind
    elif part == "games":
        import game_mutants as kind
    else:
        import rust_mutants as kind
    state = State(ROOT / "target" / "mutants" / f"{part}.jsonl")
    excluded = frozenset(accepted.excluded)
    size = kind.population(part, excluded)
    print(f"{part}: {size}; sample of {arguments.sample}, seed {arguments.seed}", flush=True)
    sample = []
    for mutant in kind.draw(part, arguments.seed, excluded):
        if len(sample) == arguments.sample:
            break
        if arguments.only in mutant.file:
            sample.append(mutant)
    runner = None
    try:
        for number, mutant in enumerate(sample):
            known = state.outcomes.get(mutant.key)
            reason = accepted.reason(mutant)
            again = arguments.again and not reason and known and known.outcome != "killed"
            if (known and not again) or time.monotonic() > deadline:
                continue
            runner = runner or kind.Runner(arguments)
            outcome: Outcome = runner.run(mutant)
            state.add(mutant.key, outcome)
            print(
                f"{number + 1}/{len(sample)} {outcome.outcome} {outcome.seconds:.0f} s "
                f"{mutant.file}:{mutant.line} {mutant.operator}: {outcome.note}",
                flush=True,
            )
    finally:
        if runner:
            runner.close()
    return report(part, [(m, state.outcomes[m.key]) for m in sample if m.key in state.outcomes], accepted)


def report(part: str, ran: list, accepted: Accepted) -> float:
    """Prints the survivors and the figures of one part."""
    ran = [(mutant, outcome) for mutant, outcome in ran if outcome.outcome != "unviable"]
    survivors = [(mutant, outcome) for mutant, outcome in ran if outcome.outcome == "survived"]
    listed = []
    for mutant, outcome in sorted(survivors, key=lambda pair: (pair[0].file, pair[0].line)):
        reason = accepted.reason(mutant)
        if reason:
            listed.append(mutant)
        print(f"\n{mutant.describe()}\n  {'accepted: ' + reason if reason else 'SURVIVED: ' + outcome.note}")
    killed = len(ran) - len(survivors)
    timeouts = sum(outcome.outcome == "timeout" for _, outcome in ran)
    print(f"\n{part}: {percentage(killed, len(ran))}, {timeouts} of them by the time limit")
    rest = len(ran) - len(listed)
    print(f"{part}: without {len(listed)} accepted survivors {percentage(killed, rest)}\n", flush=True)
    return killed / max(rest, 1)


if __name__ == "__main__":
    sys.exit(main())
