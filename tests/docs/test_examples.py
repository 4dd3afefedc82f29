"""The Python blocks of the README and of docs/ run, and so do the files in examples/."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import forked

ROOT = Path(__file__).parents[2]
CUDA = ROOT / "tests" / "cuda" / "device"
# Pages that other tests run: test_tutorials.py, test_migrate.py.
READ_AS_A_WHOLE = {"getting-started", "tutorials", "migrate"}
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if not READ_AS_A_WHOLE & {page.stem, page.parent.name}
]
# Sizes on a page, and those of the test, which checks that the block runs, not that it learns.
SHORTER = {
    "README.md:0": {"total_steps=20_000": "total_steps=2_000, evaluation_episodes=5"},
    "environments.md:0": {"total_steps=20_000": "total_steps=4_000, evaluation_episodes=5"},
    "tune.md:0": {"trials=3, total_steps=2_000": "trials=2, total_steps=600"},
}


def shorter(block, code):
    """Returns the code of a block with the sizes of the test."""
    for size, small in SHORTER.get(block, {}).items():
        assert size in code, f"{block} does not have {size!r}"
        code = code.replace(size, small)
    return code


NEEDS_JAX = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: `make test-jax` installs it"
)
BLOCKS = [
    pytest.param(
        shorter(f"{page.name}:{number}", code),
        id=f"{page.name}:{number}",
        marks=[NEEDS_JAX] if "import jax" in code else [],
    )
    for page in PAGES
    for number, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.M | re.S))
]
CUDA_BLOCKS = [block for block in BLOCKS if "CudaUnavailableError" in block.values[0]]
# The device of the fake driver is the CPU: fewer environments, rows and steps than on the pages.
SMALLER = {
    "4096": "4",
    "8192": "8",
    "range(100)": "range(3)",
    "100_000": "1_000",
    "num_envs=64": "num_envs=4",
    "(64,": "(4,",
    "zeros(64": "zeros(4",
    "256": "16",
}
NEEDS_CARGO = pytest.mark.skipif(
    shutil.which("cargo") is None, reason="cargo is not installed, which compiles the example's simulator"
)
MARKS = {"jax_ppo.py": [NEEDS_JAX], "in_situ.py": [NEEDS_CARGO]}
SCRIPTS = [
    pytest.param(script, id=script.name, marks=MARKS.get(script.name, []))
    for script in sorted((ROOT / "examples").glob("*.py"))
]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# Replaces a notebook's display; asserts that the files shown exist.
DISPLAY = """
from pathlib import Path

def Image(path, **_):
    assert Path(path).stat().st_size > 1_000, path
    return path

Video = Image

def display(shown):
    print("shown", shown)
"""


def _run(arguments, folder, environment=None):
    """Runs a script in a fork, or with ``environment`` in a new process; returns standard output."""
    if environment is None:
        done = forked.run(arguments, folder, os.environ | {"PARL_EXAMPLE_QUICK": "1"})
    else:
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder,
            env=environment | {"PARL_EXAMPLE_QUICK": "1"},
            capture_output=True,
            text=True,
            timeout=240,
        )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_there_are_examples():
    assert len(BLOCKS) >= 2
    assert len(SCRIPTS) >= 1
    assert len(NOTEBOOKS) >= 1
    assert len(CUDA_BLOCKS) >= 3


@pytest.mark.parametrize("code", BLOCKS)
def test_block_runs(code, tmp_path):
    """A block runs to its end, or stops early if it needs a CUDA device, see :func:`test_cuda_blocks_run`."""
    (tmp_path / "block.py").write_text(code + "\nprint('the end')\n")
    out = _run(["block.py"], tmp_path)
    assert out.endswith("the end\n") or "raise SystemExit" in code


@pytest.mark.timeout(1200)  # The kernels are compiled once, which takes about 50 s.
def test_cuda_blocks_run(tmp_path, monkeypatch):
    """The blocks run to their ends, in one process, on the fake driver (`tests/cuda/fake_driver`)."""
    monkeypatch.syspath_prepend(str(CUDA))
    import fake_driver

    blocks = []
    for block in CUDA_BLOCKS:
        (code,), name = block.values, f"{block.id.replace(':', '-')}.py"
        for large, small in SMALLER.items():
            code = code.replace(large, small)
        (tmp_path / name).write_text(code + f"\nprint('the end of {name}')\n")
        blocks.append(name)
    each = f"import runpy\nfor name in {blocks}:\n    runpy.run_path(name, run_name='__main__')\n"
    out = _run([str(CUDA / "run_on_fake_driver.py"), "-c", each], tmp_path, fake_driver.build())
    assert re.findall(r"the end of (\S+)", out) == blocks


@pytest.mark.parametrize("script", SCRIPTS)
def test_script_runs(script, tmp_path):
    _run([str(script)], tmp_path)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda notebook: notebook.name)
def test_notebook_runs(notebook, tmp_path):
    """The cells run in order in one namespace, without lines that begin with %."""
    cells = json.loads(notebook.read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "the notebook has outputs; clear them"
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    lines = [line for cell in code for line in [*cell.splitlines(), ""] if not line.startswith("%")]
    (tmp_path / "IPython").mkdir()
    (tmp_path / "IPython" / "__init__.py").write_text("version_info = (9, 0)\n")  # matplotlib reads it
    (tmp_path / "IPython" / "display.py").write_text(DISPLAY)
    (tmp_path / "notebook.py").write_text("\n".join(lines))
    _run(["notebook.py"], tmp_path)
    assert list(tmp_path.glob("runs/*/videos/*.mp4"))
