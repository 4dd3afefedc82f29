"""The pages of docs/reference have every public name, and the settings of every algorithm."""

import importlib
import pydoc
import re
from pathlib import Path
from types import ModuleType

import pytest

import parl
from parl.train.registry import ALGORITHMS, module_of, topology_of

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
DIRECTIVE = re.compile(r"^\.\. auto(\w+):: ([\w.]+)", re.M)
MODULES = ["parl", "parl.replay", "parl.train", "parl.atari", "parl.datasets", "parl.errors", "parl.jax"]
# Its modules are documented as a whole; importing them imports other libraries, which takes seconds.
ADAPTERS = "adapters.md"


def documented(text):
    """Returns the objects that the directives of a page document."""
    found = []
    for kind, name in DIRECTIVE.findall(text):
        place = pydoc.locate(name)
        assert place is not None, f"{name} does not exist"
        found += vars(place).values() if kind == "module" else [place]
    return found


@pytest.fixture(scope="module")
def objects():
    pages = [page for page in REFERENCE.glob("*.md") if page.name != ADAPTERS]
    found = documented("\n".join(page.read_text(encoding="utf-8") for page in pages))
    return [*found, parl.train.train]  # which `parl.train` shows


def test_the_objects_of_a_page_are_found():
    text = ".. autoclass:: parl.SumTree\n   :members:\n.. automodule:: parl.errors\n"
    found = documented(text)
    assert parl.SumTree in found and parl.errors.ConfigError in found
    with pytest.raises(AssertionError, match=r"parl\.gone"):
        documented(".. autoclass:: parl.gone")


@pytest.mark.parametrize("name", MODULES)
def test_public_names_are_documented(name, objects):
    module = importlib.import_module(name)
    public = getattr(module, "__all__", [key for key in vars(module) if key[0].isupper()])
    assert public
    missing = []
    for key in public:
        value = getattr(module, key)
        is_module = isinstance(value, ModuleType) and not callable(value)
        if not is_module and key != "__version__" and not any(value is one for one in objects):
            missing.append(key)
    assert missing == []


def test_settings_of_every_algorithm_are_documented(objects):
    wanted = [module_of(name).Config for name in ALGORITHMS] + [
        topology_of(name).config for name in ALGORITHMS
    ]
    assert [kind for kind in wanted if kind not in objects] == []
