"""`tools/words.py` finds retired words in lines and paths, in the files that the list selects."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

PATH = Path(__file__).parents[2] / "tools" / "words.py"


@pytest.fixture
def words():
    spec = importlib.util.spec_from_file_location("words", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one(words, **fields):
    lines = "\n".join(f"{name} = {json.dumps(value)}" for name, value in ({"use": "new"} | fields).items())
    return words.load(f"[[word]]\n{lines}\n")[0][0]


def test_a_word_is_found_in_a_line_and_in_a_path(words):
    word = one(words, pattern=r"\bold\b")
    assert words.uses(word, "src/a.py", "x\nthe old name\nolder\n") == ["src/a.py:2: 'old'"]
    assert words.uses(word, "src/old.py", "") == ["src/old.py: the file's name has 'old'"]


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({"files": ["docs/*"]}, False),
        ({"files": ["src/*"]}, True),
        ({"except": ["src/deep/*"]}, False),
        ({"except": ["docs/*"]}, True),
    ],
)
def test_a_word_is_searched_in_the_files_of_its_entry(words, fields, found):
    assert bool(words.uses(one(words, pattern="old", **fields), "src/deep/a.py", "old")) is found


@pytest.mark.parametrize(
    "entry", ['pattern = "("\nuse = "x"', 'pattern = "a"', 'pattern = "a"\nuse = "b"\nwhy = "c"']
)
def test_a_wrong_entry_is_refused(words, entry):
    with pytest.raises(ValueError, match=r"expected|regular expression"):
        words.load(f"[[word]]\n{entry}\n")


def test_only_enforced_words_are_errors(words, monkeypatch, tmp_path, capsys):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "a.md").write_text("old and late\n")
    (tmp_path / "b.bin").write_bytes(b"\0old")
    table = tmp_path / "words.toml"
    monkeypatch.setattr(words, "ROOT", tmp_path)
    monkeypatch.setattr(words, "LIST", table)
    monkeypatch.setattr(sys, "argv", ["words.py"])
    entries = 'except = ["words.toml"]\n[[word]]\npattern = "late"\nuse = "soon"\nenforced = false\n'
    table.write_text(entries)
    assert words.main() == 0
    table.write_text(entries + '[[word]]\npattern = "old"\nuse = "new"\n')
    assert words.main() == 1
    assert capsys.readouterr().err == "a.md:1: 'old' is retired, use new\n"
    monkeypatch.setattr(sys, "argv", ["words.py", "--all"])
    assert words.main() == 1
    shown = capsys.readouterr().out
    assert "not yet      1 late  ->  soon" in shown
    assert "enforced     1 old  ->  new" in shown
