"""Sets the version of a release, commits and tags it: ``make release VERSION=1.2.0``.

    python tools/release.py 1.2.0           # in a clean work tree; prints what to push
    python tools/release.py --check         # fails unless all files name the same version
    python tools/release.py --check v1.2.0  # also fails unless this is the version's tag

The version that counts is that of ``Cargo.toml``; the wheel and ``parl.__version__`` have it from there.
"""

from __future__ import annotations

import argparse
import datetime
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Where the version stands: the pattern's first group is the text before it, the second the version.
PLACES = {
    "Cargo.toml": r'^(\[workspace\.package\]\nversion = ")(.*)(?="$)',
    # Packages of this workspace are those without a source.
    "Cargo.lock": r'^(version = ")(.*)(?="\n(?!source))',
    "CITATION.cff": r"^(version: )(.*)",
    "conda/recipe.yaml": r'^(  version: ")(.*)(?="$)',
}
CHANGES = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"


def versions() -> dict[str, set[str]]:
    """The versions that each file names."""
    found = {}
    for name, pattern in PLACES.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        found[name] = {hit[2] for hit in re.finditer(pattern, text, re.M)}
    return found


def current() -> str:
    """The version that all files name.

    Raises:
        ValueError: a file names another version, none or several.
    """
    found = versions()
    [version] = found["Cargo.toml"]
    for name, named in found.items():
        if named != {version}:
            raise ValueError(
                f"Cargo.toml has version {version}, {name} {' and '.join(sorted(named)) or 'none'}"
            )
    return version


def git(*arguments: str) -> str:
    """Runs git in the repository and returns what it prints."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def check_tag(tag: str) -> None:
    """Checks that a tag is that of the current version, and that the changelog describes this version.

    Raises:
        ValueError: it is not.
    """
    version = current()
    if tag != f"v{version}":
        raise ValueError(f"the tag is {tag}, but the version {version}")
    if f"\n## [{version}] - " not in (ROOT / CHANGES).read_text(encoding="utf-8"):
        raise ValueError(f"{CHANGES} has no heading for {version}")


def refusal(version: str) -> str | None:
    """Why this version cannot be released now, or None."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        return f"{version!r} is not a version such as 1.2.0"
    if git("status", "--porcelain"):
        return "there are changes that are not committed"
    before = current()
    tags = git("tag", "--list", "v*").split()
    major, minor, patch = map(int, before.split("."))
    following = [f"{major}.{minor}.{patch + 1}", f"{major}.{minor + 1}.0", f"{major + 1}.0.0"]
    allowed = following if f"v{before}" in tags else [before, *following]
    if version not in allowed or f"v{version}" in tags:
        return f"after {before} the next version is one of {', '.join(allowed)}, not {version}"
    _, _, rest = (ROOT / CHANGES).read_text(encoding="utf-8").partition(UNRELEASED)
    if not re.search(r"^- ", rest.partition("\n## ")[0], re.M):
        return f"{CHANGES} lists no change under {UNRELEASED.strip('# ' + chr(10))}"
    return None


def write(version: str, date: str) -> None:
    """Writes the version into every file, and dates the changes that were unreleased."""
    for name, pattern in PLACES.items():
        path = ROOT / name
        text = re.sub(pattern, rf"\g<1>{version}", path.read_text(encoding="utf-8"), flags=re.M)
        if name == "CITATION.cff":
            text = re.sub(r"^date-released: .*\n", "", text, flags=re.M)
            text = re.sub(r"^version: .*\n", rf"\g<0>date-released: {date}\n", text, flags=re.M)
        path.write_text(text, encoding="utf-8")
    path = ROOT / CHANGES
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace(UNRELEASED, f"{UNRELEASED}\n## [{version}] - {date}\n", 1), encoding="utf-8")


def main() -> int:
    """Releases or checks a version; returns 1 if it must not be released."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="?", help="the new version; with --check a tag")
    parser.add_argument("--check", action="store_true", help="change nothing")
    arguments = parser.parse_args()
    version = arguments.version
    try:
        if arguments.check:
            check_tag(version) if version else current()
            return 0
        reason = refusal(version) if version else "name the new version: make release VERSION=1.2.0"
        if reason:
            raise ValueError(reason)
    except ValueError as error:
        print(f"release.py: {error}", file=sys.stderr)
        return 1
    write(version, datetime.datetime.now(datetime.UTC).date().isoformat())
    git("commit", "--quiet", "--message", f"Release {version}", "--", *PLACES, CHANGES)
    git("tag", "--annotate", f"v{version}", "--message", f"parl {version}")
    print(f"Version {version} is committed and tagged. To publish it:\n")
    print(f"    git push --atomic origin HEAD v{version}\n")
    print(".github/workflows/release.yml then builds it, and publishes it on PyPI with its documentation.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
