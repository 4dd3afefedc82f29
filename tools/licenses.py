"""Collects the licenses of the Rust crates in the extension: ``THIRD_PARTY_LICENSES``, part of each wheel.

    python tools/licenses.py          # writes the file
    python tools/licenses.py --check  # fails if the file is not current: part of ``make lint``

The crates are those that ``cargo tree`` links into ``crates/bindings``, for every target of ``deny.toml``;
macros and build scripts are not among them. A crate that offers MIT is used under MIT.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OUTPUT = ROOT / "THIRD_PARTY_LICENSES"
# Packages without a license file, and a package of the same authors that has their license.
SAME_AS = {"pulp-wasm-simd-flag": "pulp"}
HEAD = """\
The extension module parl._native contains the following Rust packages. parl itself is licensed as
LICENSE-MIT and LICENSE-APACHE say. Rust's standard library, which is also in the module, is
(c) The Rust Project Contributors and licensed as the package libc below (MIT OR Apache-2.0). Modules
that zig links also contain LLVM's libunwind and compiler-rt (Apache-2.0 WITH LLVM-exception).
`make licenses` writes this file.
"""


def cargo(*arguments: str) -> str:
    """Runs cargo in the repository and returns what it prints."""
    return subprocess.run(["cargo", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout


def linked() -> list[dict]:
    """Metadata of the packages from registries that are linked into the extension, ordered by name."""
    targets = tomllib.loads((ROOT / "deny.toml").read_text(encoding="utf-8"))["graph"]["targets"]
    tree = ["tree", "--locked", "--package=bindings", "--edges=normal,no-proc-macro", "--prefix=none"]
    lines = cargo(*tree, "--format={p}", *(f"--target={target}" for target in targets)).splitlines()
    names = {tuple(line.split()[:2]) for line in lines if line}
    packages = json.loads(cargo("metadata", "--locked", "--format-version=1"))["packages"]
    found = [p for p in packages if p["source"] and (p["name"], f"v{p['version']}") in names]
    return sorted(found, key=lambda package: (package["name"], package["version"]))


def license_text(folder: Path) -> str | None:
    """The license of a package: MIT if it has that, otherwise all its license files, or None."""
    files = sorted(path for path in folder.iterdir() if re.match(r"(?i)(un)?licen[sc]e|copying", path.name))
    mit = [path for path in files if "mit" in path.name.lower()]
    texts = [path.read_text(encoding="utf-8").strip() for path in mit or files]
    # Copyright lines and paragraphs stay; their line breaks and indentation do not matter for comparisons.
    return "\n\n".join("\n".join(line.strip() for line in text.splitlines()) for text in texts) or None


def collect(packages: list[dict]) -> str:
    """The file's text: a list of packages, then each license once, with the packages that it holds for.

    Raises:
        ValueError: a package has no license file.
    """
    folders = {package["name"]: Path(package["manifest_path"]).parent for package in packages}
    lines, texts = [], defaultdict(list)
    for package in packages:
        title = f"{package['name']} {package['version']}"
        lines.append(f"{title:32}{package['license']}")
        name = SAME_AS.get(package["name"])
        text = license_text(folders[name] if name else Path(package["manifest_path"]).parent)
        if text is None:
            raise ValueError(f"{title} has no license file: name one in SAME_AS of tools/licenses.py")
        texts[text].append(title)
    rule = "-" * 100
    parts = [f"{rule}\n{', '.join(titles)}\n\n{text}\n" for text, titles in texts.items()]
    return "\n".join([HEAD, *lines, "", *parts])


def main(arguments: list[str]) -> int:
    """Writes or checks the file; returns 1 if it is not current."""
    text = collect(linked())
    if arguments == ["--check"]:
        current = OUTPUT.exists() and OUTPUT.read_text(encoding="utf-8") == text
        if not current:
            print(f"{OUTPUT.name} is not current: run `make licenses`", file=sys.stderr)
        return int(not current)
    OUTPUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
