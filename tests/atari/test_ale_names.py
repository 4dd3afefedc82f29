"""`docs/ale-names.md` lists every name of ale-py's interface, and parl's interface has them all."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import ale_py
import pytest

from parl.atari import Console
from parl.atari import ale as parl_ale

PAGE = (Path(__file__).parents[2] / "docs" / "ale-names.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.*?) \| (.*?) \|$", PAGE, re.M)


def _public(kind):
    return sorted(name for name in dir(kind) if not name.startswith("_"))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [(ale_py.ALEInterface, parl_ale.ALEInterface), (ale_py.ALEState, parl_ale.ALEState)],
    ids=["ALEInterface", "ALEState"],
)
def test_parls_interface_has_every_name(theirs, ours):
    assert _public(theirs) == _public(ours)


def test_actions_and_logger_modes_are_the_same():
    for name in ("Action", "LoggerMode"):
        theirs, ours = getattr(ale_py, name), getattr(parl_ale, name)
        assert {m.name: m.value for m in theirs} == {m.name: m.value for m in ours}


def test_the_table_lists_every_name():
    named = set(re.findall(r"\w+", " ".join(left for left, _ in ROWS)))
    missing = set(_public(ale_py.ALEInterface)) - named
    assert not missing


def test_names_of_parl_in_the_table_exist():
    names = set(re.findall(r"console\.(\w+)", " ".join(right for _, right in ROWS)))
    assert len(names) > 25
    assert [name for name in sorted(names) if not hasattr(Console, name)] == []
    keywords = set(re.findall(r"Console\(\.\.\., (\w+)=", PAGE))
    assert len(keywords) == 7 and keywords <= set(inspect.signature(Console.__init__).parameters)


def test_importing_the_console_loads_numpy_and_nothing_else():
    code = (
        "import sys, parl\n"
        "import parl.atari, parl.atari.ale\n"
        "heavy = {'torch', 'gymnasium', 'rich', 'tyro', 'imageio', 'pygame', 'ale_py', 'PIL', 'cv2'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
