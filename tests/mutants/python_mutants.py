"""Mutants of Python modules: where cosmic-ray's operators apply, and the tests that run those lines."""

from __future__ import annotations

import argparse
import ast
import functools
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names
from coverage import CoverageData
from coverage.exceptions import DataError
from drop_keyword import DropKeyword
from records import Mutant, Outcome, keyed, nth_of_its_text

ROOT = pathlib.Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "parl"
WORK = ROOT / "target" / "mutants"
PARTS = ("ops", "replay", "algos", "runtime")
# The folders of tests that may run for a mutant. Slow tests are left out.
FOLDERS = ("ops", "nets", "replay", "algos", "runtime", "train", "envs", "bindings")
TESTS = tuple(f"tests/{name}" for name in FOLDERS)
# Longest time of the tests of a mutant together; the longest tests are left out.
BUDGET_S = 20.0
MEMORY_BYTES = 8 << 30

# Replacements of one kind by another, such as a float's + by <<, fail at once and test nothing.
_GROUPS = (
    {"Add", "Sub", "Mul", "Div", "FloorDiv", "Mod", "Pow"},
    {"RShift", "LShift", "BitOr", "BitAnd", "BitXor"},
    {"Eq", "NotEq", "Lt", "LtE", "Gt", "GtE"},
    {"Is", "IsNot"},
    {"In", "NotIn"},
)
_COVERAGE_SETTINGS = """\
[run]
source = {package}
parallel = true
patch = subprocess, _exit
concurrency = multiprocessing, thread
context = ${{PARL_COVERAGE_CONTEXT}}
data_file = {data}
disable_warnings = no-data-collected, module-not-imported, module-not-measured
"""


@functools.cache
def _operators() -> dict[str, Any]:
    found: dict[str, Any] = {"DropKeyword": DropKeyword()}
    for name in operator_names():
        kind, *pair = name.removeprefix("core/").split("_")
        replaces = kind in ("ReplaceBinaryOperator", "ReplaceComparisonOperator")
        if replaces and not any(set(pair) <= group for group in _GROUPS):
            continue
        operator = get_operator(name)
        if not operator.arguments():
            found[name.removeprefix("core/")] = operator()
    return found


def _left_out(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Returns the code that only type checkers read: annotations, protocols, and imports for them."""
    nodes: list[ast.AST | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            nodes.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            nodes.append(node.annotation)
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes.append(node)
        elif isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(base) for base in node.bases):
            nodes.append(node)
    return [
        ((node.lineno, node.col_offset), (node.end_lineno or node.lineno, node.end_col_offset or 0))
        for node in nodes
        if isinstance(node, ast.expr | ast.stmt)
    ]


def _sites(path: pathlib.Path) -> dict[tuple[Any, ...], list[tuple[str, int]]]:
    """Returns the places of a module that can be changed, each with its changes as (operator, occurrence)."""
    source = path.read_text()
    tree = get_ast(source)
    left_out = _left_out(source)
    nodes = list(ast_nodes(tree))
    found: dict[tuple[Any, ...], list[tuple[str, int]]] = defaultdict(list)
    for name, operator in _operators().items():
        positions = (position for node in nodes for position in operator.mutation_positions(node))
        for occurrence, (start, end) in enumerate(positions):
            if any(first <= start < last for first, last in left_out):
                continue
            site = (path.relative_to(ROOT).as_posix(), start, end, name.split("_")[0])
            found[site].append((name, occurrence))
    return found


def population(part: str, exclude: frozenset[str]) -> str:
    """Says how many places and changes a part has."""
    sites = _all_sites(part, exclude)
    return f"{len(sites)} places with {sum(len(changes) for _, changes in sites)} changes"


@functools.cache
def _all_sites(part: str, exclude: frozenset[str]) -> list[tuple[tuple[Any, ...], list[tuple[str, int]]]]:
    sites: list[tuple[tuple[Any, ...], list[tuple[str, int]]]] = []
    for path in sorted((PACKAGE / part).rglob("*.py")):
        if path.relative_to(ROOT).as_posix() not in exclude:
            sites += sorted(_sites(path).items(), key=lambda item: (item[0][1], item[0][3]))
    return sites


def draw(part: str, seed: int, exclude: frozenset[str]) -> Iterator[Mutant]:
    """Yields mutants in a random order that depends only on the seed: a place, then one of its changes."""
    texts = {path: (ROOT / path).read_text() for path in {site[0] for site, _ in _all_sites(part, exclude)}}
    lines = {path: text.splitlines() for path, text in texts.items()}

    def order(item: tuple[tuple[Any, ...], Any]) -> str:
        # By the text of the line, so that changes elsewhere do not change the sample.
        file, start, _, kind = item[0]
        nth = nth_of_its_text(lines[file], start[0] - 1)
        text = keyed(nth, seed, file, kind, lines[file][start[0] - 1].strip(), start[1])
        return hashlib.sha256(text.encode()).hexdigest()

    for site, changes in sorted(_all_sites(part, exclude), key=order):
        file, start, _, _ = site
        name, occurrence = random.Random(order((site, changes))).choice(changes)
        source = texts[file]
        changed = mutate_code(source, _operators()[name], occurrence)
        if changed is None or changed == source:
            continue
        pairs = enumerate(zip(source.splitlines(), changed.splitlines(), strict=False))
        index, before, after = next((n, a.strip(), b.strip()) for n, (a, b) in pairs if a != b)
        nth = nth_of_its_text(lines[file], index)
        key = keyed(nth, file, name, before, after)
        yield Mutant(key, part, file, start[0], nth, name, before, after, changed)


class Server:
    """The process that runs tests, see ``server.py``.

    Args:
        python: the interpreter.
        tree: the folder that holds the package under test.
        root: the folder that holds ``tests``.
    """

    def __init__(self, python: str, tree: pathlib.Path, root: pathlib.Path) -> None:
        environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [python, str(pathlib.Path(__file__).with_name("server.py"))]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=root
        )

    def run(self, job: dict[str, Any]) -> dict[str, str]:
        """Sends a job and returns its answer."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def measure(python: str, tests: Sequence[str]) -> None:
    """Runs tests once, and keeps in ``tests.json`` which of them run which line and how long they take."""
    folder = WORK / "coverage"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "settings").write_text(_COVERAGE_SETTINGS.format(package=PACKAGE, data=folder / "data"))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(PACKAGE.parent), str(pathlib.Path(__file__).parent)]),
        "PARL_COVERAGE_CONTEXT": "",
        "PARL_COVERAGE_SETTINGS": str(folder / "settings"),
        "PARL_DURATIONS": str(folder / "durations.json"),
    }
    command = [python, "-m", "coverage", "run", f"--rcfile={folder / 'settings'}", "-m", "pytest"]
    command += ["-p", "coverage_plugin", "-p", "no:cacheprovider", "-q", "-m", "not slow", *tests]
    print("measuring which tests run which lines; this runs the tests once", flush=True)
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    path = WORK / "tests.json"
    table = json.loads(path.read_text()) if path.exists() else {"durations": {}, "files": {}}
    durations = json.loads((folder / "durations.json").read_text())
    table["durations"] |= durations
    for lines in table["files"].values():
        for line, known in lines.items():
            lines[line] = [test for test in known if test not in durations]
    for path_of_data in sorted(folder.glob("data*")):
        data = CoverageData(str(path_of_data))
        try:
            data.read()
        except DataError as error:  # a process that was killed leaves an incomplete file
            print(f"left out {path_of_data.name}: {error}")
            continue
        for measured in data.measured_files():
            lines = table["files"].setdefault(pathlib.Path(measured).relative_to(ROOT).as_posix(), {})
            for line, contexts in data.contexts_by_lineno(measured).items():
                known = lines.setdefault(str(line), [])
                known += [test for test in contexts if test not in known]
    path.write_text(json.dumps(table))


class Measured:
    """Results of ``measure`` for tests that still exist: a removed test would fail with any mutant.

    Attributes:
        durations: seconds by test.
        files: the tests that run a line, by file and line.
    """

    def __init__(self, python: str) -> None:
        path = WORK / "tests.json"
        if not path.exists():
            measure(python, TESTS)
        command = [python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not slow"]
        environment = os.environ | {"PYTHONPATH": str(PACKAGE.parent)}
        listed = subprocess.run(
            [*command, *TESTS], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        present = set(listed.stdout.splitlines())
        table = json.loads(path.read_text())
        self.durations: dict[str, float] = {
            test: seconds for test, seconds in table["durations"].items() if test in present
        }
        self.files: dict[str, dict[str, list[str]]] = table["files"]
        if unmeasured := len([test for test in present if "::" in test and test not in self.durations]):
            print(f"{unmeasured} tests run for no mutant until they are measured: use --measure", flush=True)


class Runner:
    """Runs the tests of mutants in a copy of the package."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._python = arguments.python
        self._tree = WORK / f"python-{os.getpid()}"
        shutil.rmtree(self._tree, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(PACKAGE, self._tree / "parl", ignore=ignore)
        for library in PACKAGE.glob("*.so"):
            (self._tree / "parl" / library.name).symlink_to(library)
        self._measured = Measured(arguments.python)
        self._server = Server(arguments.python, self._tree, ROOT)

    def tests(self, mutant: Mutant) -> tuple[list[str], int]:
        """Returns the tests that run a mutant's line, quickest first, and how many the budget leaves out."""
        durations, files = self._measured.durations, self._measured.files
        lines = files.get(mutant.file, {})
        stem = f"_{pathlib.Path(mutant.file).stem}"
        first, last, inside = _statement((ROOT / mutant.file).read_text(), mutant.line)
        found = {test for line in range(first, last + 1) for test in lines.get(str(line), ())}
        if not inside or not found - {""}:
            # A line run on import, or in a process without a context, counts for every test of the module.
            found = {test for tests in lines.values() for test in tests}
        if not found - {""}:
            folder = f"{pathlib.Path(mutant.file).parent}/"
            near = [name for name in files if name.startswith(folder)]
            found = {test for name in near for tests in files[name].values() for test in tests}
        mirrors = {test for test in durations if stem in test.split("::")[0]}
        found |= mirrors
        known = sorted((durations[t], t) for t in found if durations.get(t, float("inf")) < BUDGET_S)
        chosen: list[str] = []
        total = 0.0
        # Tests in a file named after the module come first.
        for seconds, test in sorted(known, key=lambda pair: (pair[1] not in mirrors, pair)):
            if total + seconds <= BUDGET_S:
                chosen.append(test)
                total += seconds
        return sorted(chosen, key=lambda test: durations[test]), len(known) - len(chosen)

    def run(self, mutant: Mutant) -> Outcome:
        """Runs the tests of one mutant."""
        tests, more = self.tests(mutant)
        if not tests:
            return Outcome("survived", "no test runs this line", 0.0)
        path = self._tree / pathlib.Path(mutant.file).relative_to("python")
        expected = sum(self._measured.durations[test] for test in tests)
        began = time.monotonic()
        original = path.read_text()
        path.write_text(mutant.source)
        try:
            job = {"tests": tests, "timeout_s": 2 * expected + 20, "memory_bytes": MEMORY_BYTES}
            answer = self._server.run(job)
        finally:
            path.write_text(original)
        note = answer["by"] or f"{len(tests)} tests passed" + (f", {more} left out for time" if more else "")
        return Outcome(answer["outcome"], note, time.monotonic() - began)

    def close(self) -> None:
        """Ends the process that runs tests."""
        self._server.close()


def _statement(source: str, line: int) -> tuple[int, int, bool]:
    """Returns the lines of the innermost statement or block head, and whether it is in a function."""
    best: tuple[int, int] = (line, line)
    inside = False
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.stmt):
            continue
        body = getattr(node, "body", None)
        end = node.end_lineno or node.lineno
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and body:
            inside |= body[0].lineno <= line <= end
        last = max(node.lineno, body[0].lineno - 1) if body else end
        if (node.lineno <= line <= last and last - node.lineno <= best[1] - best[0]) or best == (line, line):
            if node.lineno <= line <= last:
                best = (node.lineno, last)
    return (*best, inside)
