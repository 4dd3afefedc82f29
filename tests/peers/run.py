"""Runs the tests of other libraries with parl's classes in place of theirs: ``make test-peers``.

If a package on PyPI contains its tests, they are downloaded at run time to ``target/peers``, never into this
repository. For the other libraries, ``rewritten`` has our own tests, which run on the library's classes and
on parl's. None of this is part of ``make test``.

``not_applicable.toml`` lists by name, with a reason each, the tests that do not apply: files that are not
run, and tests that must fail. The command fails on a failure that is not listed, and on a listed test that
passes.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOWNLOADS = HERE.parents[1] / "target" / "peers"


@dataclass(frozen=True)
class Suite:
    """The tests of one library."""

    name: str
    """Name of the library; ``substitute_<name>`` of the plugin replaces its classes."""
    package: str
    """Name of the package on PyPI."""
    tests: tuple[str, ...]
    """Files or folders, below the sdist's root, or for ``installed`` below site-packages."""
    installed: bool = False
    options: tuple[str, ...] = ()


SUITES = (
    Suite("cpprb", "cpprb", ("test",)),
    Suite(
        "stable_baselines3",
        "stable_baselines3",
        ("tests/test_buffers.py", "tests/test_n_step_replay.py", "tests/test_dict_env.py"),
    ),
    # Has no sdist. Its wheel contains benchmarks, which also test the calls of the buffers.
    Suite(
        "torchrl",
        "torchrl",
        ("benchmarks/test_replaybuffer_benchmark.py",),
        installed=True,
        options=("--benchmark-disable", "-k", "TensorDictPrioritizedReplayBuffer"),
    ),
)
# Their packages have no separate tests of the classes that parl replaces; ``rewritten`` has such tests.
REWRITTEN = ("torchrl", "tianshou", "gymnasium", "stable_baselines3", "ale-py", "envpool")


def version(package: str) -> str:
    """The version that is installed, or ``-``."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "-"


def sdist(package: str) -> Path:
    """The root of the source distribution of the installed version, downloaded once."""
    root = DOWNLOADS / f"{package}-{version(package)}"
    if not root.is_dir():
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        wanted = f"{package}=={version(package)}"
        # Tests need no build, so its requirements are not installed.
        command = ["pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:", "--no-build-isolation"]
        subprocess.run([sys.executable, "-m", *command, "--dest", str(DOWNLOADS), wanted], check=True)
        with tarfile.open(DOWNLOADS / f"{root.name}.tar.gz") as archive:
            archive.extractall(DOWNLOADS, filter="data")
    return root


def pytest(name: str, paths: list[str], folder: Path, options: tuple[str, ...] = (), **variables: str) -> int:
    """Runs pytest in ``folder`` with the plugin and its own configuration; returns the exit status."""
    path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = os.environ | {"PYTHONPATH": path, "PARL_PEER": name, **variables}
    environment |= {"NUMBA_DISABLE_JIT": "1", "OMP_NUM_THREADS": "1"}
    command = ["pytest", "-c", str(HERE / "pytest.ini"), "--rootdir", str(folder), "-p", "substitute"]
    command = [sys.executable, "-m", *command, *options, *paths]
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


@dataclass(frozen=True)
class TestResults:
    """Outcomes of tests."""

    ended: dict[str, str]
    """By test name: passed, failed, differs (as listed), skipped, or what is wrong with the list."""
    through: set[str]
    """Names of the tests that created an object of one of parl's classes."""


def run(suite: Suite, quiet: bool) -> TestResults:
    """Runs the tests of one library."""
    if suite.installed:
        distribution = importlib.metadata.distribution(suite.package)
        paths, folder = [str(distribution.locate_file(test)) for test in suite.tests], DOWNLOADS
        folder.mkdir(parents=True, exist_ok=True)
    else:
        root = sdist(suite.package)
        folder = root / suite.tests[0].split("/")[0]
        paths = [str(root / test) for test in suite.tests]
    quietly = ("--tb=no", "--no-header") if quiet else ("--tb=short",)
    if suite.name == "cpprb" and not (folder / "v1").is_dir():
        pytest(suite.name, ["test_save_load.py"], folder, ("--tb=no",), PARL_PEER_STEP="record_cpprb")
    return results(suite.name, paths, folder, (*suite.options, *quietly))


def results(name: str, paths: list[str], folder: Path, options: tuple[str, ...]) -> TestResults:
    """Runs pytest and reads the outcomes that the plugin wrote."""
    file = DOWNLOADS / f"{name}.json"
    file.unlink(missing_ok=True)
    code = pytest(name, paths, folder, options, PARL_PEER_RESULTS=str(file))
    if not file.is_file():
        raise SystemExit(f"{name}: pytest ended with {code} before any test ran")
    found = json.loads(file.read_text())
    return TestResults(found["results"], set(found["through"]))


def on_parl(test: str) -> bool:
    """Returns true if a rewritten test ran on parl's classes, not on the library's."""
    parameters = test.rpartition("[")[2].rstrip("]").split("-")
    return not {"torchrl", "tianshou", "ale_py"} & set(parameters)


def main() -> int:
    """Runs the suites and prints a table. Returns 1 if an unlisted test failed or a listed one passed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("only", nargs="*", help="names of libraries, or `rewritten`; all by default")
    parser.add_argument("--quiet", action="store_true", help="no tracebacks")
    chosen = parser.parse_args()
    rows: list[tuple[str, str, TestResults]] = []
    for suite in SUITES:
        if not chosen.only or suite.name in chosen.only:
            kind = "wheel" if suite.installed else "sdist"
            rows.append((suite.name, f"{version(suite.package)}, tests of {kind}", run(suite, chosen.quiet)))
    if not chosen.only or "rewritten" in chosen.only:
        DOWNLOADS.mkdir(parents=True, exist_ok=True)
        found = results("rewritten", [str(HERE / "rewritten")], HERE / "rewritten", ("--tb=short",))
        versions = ", ".join(f"{name} {version(name)}" for name in REWRITTEN)
        rows.append(("rewritten", f"our own tests: {versions}", found))
    bad = 0
    columns = ("passed", "through parl", "differ", "skipped", "failed")
    print(f"\n{'peer':18}", *(f"{column:>12}" for column in columns), " tests")
    for name, what, found in rows:
        wrong = {test: how for test, how in found.ended.items() if how.startswith(("failed", "listed"))}
        bad += len(wrong)
        passed = {test for test, how in found.ended.items() if how == "passed"}
        through = passed & found.through if name != "rewritten" else {one for one in passed if on_parl(one)}
        differ, skipped = (list(found.ended.values()).count(how) for how in ("differs", "skipped"))
        counts = (len(passed), len(through), differ, skipped, len(wrong))
        print(f"{name:18}", *(f"{count:12}" for count in counts), f" {what}")
        for test, how in sorted(wrong.items()):
            print(f"    {test}: {how}")
    print("tests that differ, files that are not run: names and reasons in tests/peers/not_applicable.toml")
    return min(bad, 1)


if __name__ == "__main__":
    raise SystemExit(main())
