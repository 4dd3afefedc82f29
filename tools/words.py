"""Finds retired words in names, settings, messages and pages: part of ``make lint``.

    python tools/words.py          # fails if a retired word is used
    python tools/words.py --all    # counts the uses of every word of the list, enforced or not

``tools/words.toml`` lists the words and their replacements, ``docs/glossary.md`` the project's own terms.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tools" / "words.toml"
FIELDS = {"pattern", "use", "files", "except", "enforced"}


def load(text: str) -> tuple[list[dict], list[str]]:
    """Parses a list: its words, and the patterns of files that are not searched.

    Raises:
        ValueError: an entry has an unknown field, lacks one, or its pattern is not a regular expression.
    """
    table = tomllib.loads(text)
    words = table["word"]
    for word in words:
        if not {"pattern", "use"} <= word.keys() <= FIELDS:
            raise ValueError(f"{word}: expected the fields pattern and use, others only of {sorted(FIELDS)}")
        try:
            word["regex"] = re.compile(word["pattern"])
        except re.error as error:
            raise ValueError(f"{word['pattern']!r} is not a regular expression: {error}") from None
    return words, table.get("except", [])


def matches(name: str, globs: list[str]) -> bool:
    """Whether a path matches one of the patterns; ``*`` also matches slashes."""
    return any(fnmatch.fnmatch(name, glob) for glob in globs)


def uses(word: dict, name: str, text: str) -> list[str]:
    """Uses of a word in the path or the lines of a file, as ``path:line: ...``."""
    if not matches(name, word.get("files", ["*"])) or matches(name, word.get("except", [])):
        return []
    regex = word["regex"]
    found = [f"{name}: the file's name has {hit[0]!r}" for hit in [regex.search(name)] if hit]
    if regex.search(text):
        for number, line in enumerate(text.splitlines(), 1):
            if hit := regex.search(line):
                found.append(f"{name}:{number}: {hit[0]!r}")
    return found


def tracked() -> dict[str, str]:
    """Texts of the repository's files by path, untracked files included."""
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\0")  # fmt: skip
    files = {}
    for name in filter(None, names):
        path = ROOT / name
        if not path.is_file() or path.is_symlink():
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            files[name] = data.decode("utf-8", errors="replace")
    return files


def main() -> int:
    """Reports uses on standard error; returns 1 if an enforced word is used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help="count every word, enforced or not")
    parser.add_argument(
        "--show", metavar="PATTERN", help="list the uses of words whose pattern contains this"
    )
    arguments = parser.parse_args()
    words, left_out = load(LIST.read_text(encoding="utf-8"))
    files = {name: text for name, text in tracked().items() if not matches(name, left_out)}
    bad = False
    for word in words:
        if arguments.show and arguments.show not in word["pattern"]:
            continue
        enforced = word.get("enforced", True)
        if not (enforced or arguments.all or arguments.show):
            continue
        found = [use for name, text in files.items() for use in uses(word, name, text)]
        if arguments.all:
            state = "enforced" if enforced else "not yet "
            print(f"{state} {len(found):5} {word['pattern']}  ->  {word['use']}")
        elif found:
            print("\n".join(f"{use} is retired, use {word['use']}" for use in found), file=sys.stderr)
        bad = bad or (enforced and bool(found))
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
