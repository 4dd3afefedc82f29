"""GitHub's workflows run the commands of `.ci/run` with the oldest supported Rust, and pin what they use."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def test_ci_runs_all_checks():
    assert "      - run: .ci/run\n" in (ROOT / ".github" / "workflows" / "ci.yml").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_actions_are_pinned_by_commit_and_name_their_version(path):
    uses = re.findall(r"uses: (.*)", path.read_text())
    assert uses
    assert all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", use) for use in uses)


def test_one_action_has_one_version():
    uses = {use for path in WORKFLOWS for use in re.findall(r"uses: (.*)", path.read_text())}
    assert len({use.split("@")[0] for use in uses}) == len(uses)


def test_wheels_are_built_with_the_oldest_supported_rust():
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    versions = re.findall(
        r'rust-toolchain: "(.*)"', (ROOT / ".github" / "workflows" / "release.yml").read_text()
    )
    assert set(versions) == {rust}


def test_the_targets_that_workflows_make_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    used = set()
    for path in WORKFLOWS:
        text = re.sub(r" *#.*", "", path.read_text())
        used |= {*re.findall(r"make ([a-z-]+)", text), *re.findall(r"\{ target: ([a-z-]+),", text)}
    assert {"test", "docs", "test-lowest", "audit"} <= used <= targets
