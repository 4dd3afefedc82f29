"""Settings of the documentation site, which `make docs` builds into `site/` without the network."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from sphinx.ext.napoleon import Config, GoogleDocstring

import parl
import parl.train

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "parl"
project_copyright = "The parl authors"
version = release = parl.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_title = f"parl {version}"
html_show_sphinx = False
toc_object_entries_show_parents = "hide"

# Links to headings, as GitHub names them.
myst_heading_anchors = 4

autodoc_typehints = "none"  # Docstrings give types, shapes and units.
autodoc_member_order = "bysource"
# Other libraries have their own sites; their names are no links here.
_NAMES = "GoalFunction collections pathlib numpy torch jax gymnasium stable_baselines3 torchrl tianshou cpprb"
OTHERS = rf"({'|'.join(_NAMES.split())})\b.*"
nitpick_ignore_regex = [("py:.*", OTHERS)]

NAPOLEON = Config(napoleon_use_rtype=False)
# A literal, or the star of a shape.
SHAPE = re.compile(r"``.*?``|(?<=[ (])\*(?=[a-z])")

# Files outside docs/ that are pages of the site.
OTHER_PAGES = {
    ROOT / "CONTRIBUTING.md": "contributing.md",
    ROOT / "CHANGELOG.md": "changelog.md",
    ROOT / "benches" / "records" / "README.md": "records.md",
}


def _link(folder: Path, page: Path, target: str) -> str:
    """The target on the site of a link from a file in ``folder`` that is read as part of ``page``.

    Files of the repository outside docs/ become downloads.
    """
    if re.match(r"\w+:|#", target):
        return target
    name, sign, anchor = target.partition("#")
    path = (folder / name).resolve()
    if path in OTHER_PAGES:
        return f"/{OTHER_PAGES[path]}{sign}{anchor}"
    if path.is_relative_to(DOCS):
        return f"/{path.relative_to(DOCS)}{sign}{anchor}" if folder != page.parent else target
    return f"path:{os.path.relpath(path, page.parent)}" if path.is_file() else target


def _rewrite_links(text: str, folder: Path, page: Path) -> str:
    return re.sub(r"(?<!`)(\[[^\]]*\]\()([^)\s]+)\)", lambda m: f"{m[1]}{_link(folder, page, m[2])})", text)


def _read(app: Any, name: str, source: list[str]) -> None:
    page = DOCS / f"{name}.md"
    source[0] = _rewrite_links(source[0], page.parent, page)
    if name == "index":
        listed = {"index", *re.findall(r"^[\w/-]+$", source[0], re.M)}
        others = sorted({path.stem for path in DOCS.glob("*.md")} - listed)
        source[0] = source[0].replace("(every page that is not listed elsewhere)", "\n".join(others))
    if name == "decisions/README":
        source[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n0*\n```\n"


def _include(app: Any, path: Path, name: str, source: list[str]) -> None:
    source[0] = _rewrite_links(source[0], (DOCS / path).resolve().parent, DOCS / f"{name}.md")


def _stub(name: str) -> Any:
    """A class of the compiled extension, as its stub describes it."""
    path = Path(parl.__file__).with_name("_native.pyi")
    names = {"__name__": "parl"}
    code = compile(path.read_text(), str(path), "exec", annotations.compiler_flag)
    exec(code, names)
    return names[name]


def _docstring(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Converts a docstring of Google's style.

    Unlike napoleon's extension, the text of an attribute before a colon is not its type, the star of a shape
    is no emphasis, and the module ``parl.train`` is shown as its function.
    """
    if name == "parl.train":
        lines[:] = (parl.train.train.__doc__ or "").replace("\n    ", "\n").splitlines()
    lines[:] = [SHAPE.sub(lambda m: m[0] if m[0][0] == "`" else "\\*", line) for line in lines]
    kind = "function" if what in ("attribute", "data", "property") else what
    lines[:] = GoogleDocstring(lines, NAPOLEON, app, kind, name, obj, options).lines()


def _reference(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Resolves the name of a class or function of parl that is given without its module."""
    if node.get("refdomain") != "py" or "refspecific" in node:
        return None
    node["refspecific"] = True
    domain = env.get_domain("py")
    kind, target = node["reftype"], node["reftarget"]
    return domain.resolve_xref(env, node["refdoc"], app.builder, kind, target, node, content)


def setup(app: Any) -> None:
    """Connects the functions above."""
    parl.SumTree = _stub("SumTree")
    app.connect("source-read", _read)
    app.connect("include-read", _include)
    app.connect("autodoc-process-docstring", _docstring)
    app.connect("missing-reference", _reference)
