"""The examples accept the commands with which the documentation and their own docstrings start them."""

import ast
import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

import forked

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A script and the rest of its command, which goes on in a line that begins with an optional part.
COMMAND = re.compile(r"\bpython examples/(\w+\.py)((?:[^\n`]|\n +(?=\[))*)")
# Runs a script with each of the given lists of arguments until it has parsed them. The parser of `jax_ppo.py`
# needs no JAX.
PARSE = """
import argparse
import importlib.util
import json
import runpy
import sys
from pathlib import Path
from unittest.mock import MagicMock

import tyro

def ends_after(parse):
    def call(*arguments, **options):
        parse(*arguments, **options)
        sys.exit("parsed")

    return call

argparse.ArgumentParser.parse_args = ends_after(argparse.ArgumentParser.parse_args)
tyro.cli = ends_after(tyro.cli)
if importlib.util.find_spec("jax") is None:
    sys.modules.update(dict.fromkeys(["jax", "jax.numpy", "parl.jax"], MagicMock()))
script, *commands = sys.argv[1:]
sys.path.insert(0, str(Path(script).parent))
for words in map(json.loads, commands):
    sys.argv = [script, *words]
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        if end.code != "parsed":
            raise
"""


def commands(text):
    """Returns script and arguments of each command, with its optional parts, once for each alternative."""
    found = []
    for script, rest in COMMAND.findall(text.replace("\\\n", " ")):
        rest = re.sub(r"\[([^\]]*)\]", lambda part: re.sub(r"\s*\|\s*", "|", part[1]), rest)
        words = [word.removesuffix("|...").split("|") for word in shlex.split(rest, comments=True)]
        found += [(script, list(one)) for one in itertools.product(*words)]
    return found


WRITTEN = [command for page in PAGES for command in commands(page.read_text(encoding="utf-8"))]
WRITTEN += [
    command
    for example in EXAMPLES
    for command in commands(ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or "")
]
# Other examples take their arguments as they are.
PARSED = [
    example for example in EXAMPLES if re.search(r"parse_args\(|tyro\.cli\(", example.read_text("utf-8"))
]


def parsed(example, arguments, folder):
    """Lets an example parse lists of arguments; returns its exit status and output."""
    (folder / "parse.py").write_text(PARSE)
    return forked.run(["parse.py", str(example), *map(json.dumps, arguments)], folder)


def test_optional_parts_alternatives_and_comments_are_understood():
    text = (
        "`python examples/a.py` is\n    python examples/b.py [one | two] [--by 3]\n        [--to x|y|...]\n"
    )
    text += "python examples/c.py --by 4   # it's [one] `d`\nthen"
    assert commands(text) == [
        ("a.py", []),
        *(("b.py", [name, "--by", "3", "--to", to]) for name in ("one", "two") for to in ("x", "y")),
        ("c.py", ["--by", "4"]),
    ]


def test_examples_with_options_have_commands():
    assert len(PARSED) >= 8
    assert {example.name for example in PARSED} <= {script for script, _ in WRITTEN}
    assert {script for script, _ in WRITTEN} <= {example.name for example in EXAMPLES}


@pytest.mark.parametrize("example", PARSED, ids=lambda example: example.name)
def test_an_example_accepts_its_commands(example, tmp_path):
    done = parsed(example, [words for script, words in WRITTEN if script == example.name], tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("cleanrl_dqn.py", ["--total-timesteps", "10M"]),
        ("go_explore.py", ["freeway"]),
        ("jax_ppo.py", ["--total-steps", "10M"]),
        ("mcts.py", ["--playouts", "5"]),
        ("self_play.py", ["pong", "--every", "250k"]),
    ],
)
def test_arguments_that_an_example_does_not_accept_are_found(script, words, tmp_path):
    done = parsed(ROOT / "examples" / script, [[], words], tmp_path)
    assert done.returncode == 2 and words[-1] in done.stderr, done.stderr
