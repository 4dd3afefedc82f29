"""Container, conda recipe and project file agree on versions."""

import json
import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
RUST = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]


def spaced(requirement):
    """Returns a requirement as conda writes it: a space before the version."""
    return re.sub(r"(?<=\w)(?=[<>=])", " ", requirement, count=1)


def test_the_recipe_has_the_requirements_of_the_project():
    lines = re.findall(r"^    - (.*)$", (ROOT / "conda" / "recipe.yaml").read_text(), re.M)
    python = PROJECT["project"]["requires-python"]
    run = [*PROJECT["project"]["dependencies"], f"python{python}", *PROJECT["build-system"]["requires"]]
    assert {spaced(requirement) for requirement in run} <= set(lines)
    assert f"python {python.removeprefix('>=')}.*" in lines
    assert set(PROJECT["project"]["license-files"]) <= set(lines)


def test_the_container_has_the_oldest_supported_rust():
    assert re.findall(r"^FROM rust:([\d.]+)-", (ROOT / "Dockerfile").read_text(), re.M) == [RUST]


def test_the_development_container_is_a_stage_of_the_container():
    build = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text())["build"]
    dockerfile = (ROOT / ".devcontainer" / build["dockerfile"]).resolve()
    assert dockerfile == ROOT / "Dockerfile"
    assert f" AS {build['target']}\n" in dockerfile.read_text()


def test_one_program_has_the_name_of_the_distribution():
    assert PROJECT["project"]["name"] in PROJECT["project"]["scripts"]
