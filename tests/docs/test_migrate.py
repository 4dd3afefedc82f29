"""The pages of docs/migrate: scripts before and after run, and the names of parl in their tables exist."""

import importlib
import importlib.util
import re
from inspect import signature
from pathlib import Path

import pytest
from page_blocks import BLOCK, COMMANDS

import forked
import parl
from parl.train import ALGORITHMS
from parl.train.options import Options

PAGES = sorted((Path(__file__).parents[2] / "docs" / "migrate").glob("*.md"))
# The module that a page's script *before* imports, if tests run it: CleanRL is not a package, and the tests
# have Ray without RLlib's dependencies.
PEERS = {
    "ale-py": "ale_py",
    "cleanrl": None,
    "cpprb": "cpprb",
    "envpool": "envpool",
    "rllib": None,
    "stable-baselines3": "stable_baselines3",
    "tianshou": "tianshou",
    "torchrl": "torchrl",
}
# Importing these takes longer than all other tests of the pages.
SLOW = {"stable-baselines3", "tianshou", "torchrl"}
# Sizes on a page, and those of the test.
SMALLER = {
    "cleanrl": {"--total-steps 50k": "--total-steps 512 --evaluation-episodes 2"},
    "rllib": {"total_steps=20_000": "total_steps=1_100, evaluation_episodes=2"},
    "stable-baselines3": {
        "learn(50_000)": "learn(256)",
        "total_steps=50_000": "total_steps=256, evaluation_episodes=2",
        "n_eval_episodes=20": "n_eval_episodes=1",
        "(run.path, episodes=20)": "(run.path, episodes=1)",
    },
    "tianshou": {
        "max_epochs=4, epoch_num_steps=5_000": "max_epochs=1, epoch_num_steps=64",
        "test_step_num_episodes=10": "test_step_num_episodes=2",
        "total_steps=20_000, evaluation_every=5_000, evaluation_episodes=10": "total_steps=1_000,"
        " evaluation_every=500, evaluation_episodes=2, learning_starts=500",
    },
}  # fmt: skip


def scripts(page, heading):
    """Returns the Python programs of a section, or of all after it, with the sizes of the test."""
    text = page.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    if heading == "Before":
        text = text.partition("\n## ")[0]
    found = []
    for language, code in BLOCK.findall(text):
        for size, small in SMALLER.get(page.stem, {}).items():
            code = code.replace(size, small)
        found.append(code if language == "python" else f"{COMMANDS}\n_commands({code!r})")
    return found


def run(code, folder):
    body = re.sub(r"^(?=.)", "    ", code, flags=re.M)
    (folder / "script.py").write_text(f"if __name__ == '__main__':\n{body}")
    done = forked.run(["script.py"], folder)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_every_library_has_a_page():
    assert [page.stem for page in PAGES] == sorted(PEERS)
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert all(size in text for size in SMALLER.get(page.stem, {}))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_scripts_after_run(page, tmp_path):
    found = scripts(page, "After")
    assert found
    for code in found:
        run(code, tmp_path)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, id=page.stem, marks=[pytest.mark.slow(minutes=1)] if page.stem in SLOW else [])
        for page in PAGES
        if PEERS[page.stem]
    ],
)
def test_the_script_before_runs(page, tmp_path):
    module = PEERS[page.stem]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    (code,) = scripts(page, "Before")
    assert re.search(rf"\b{module}\b", code)
    run(code, tmp_path)


def names_of_parl(page):
    """Returns the code in the second column of a page's table."""
    rows = re.findall(r"^\|.*\|$", page.read_text(encoding="utf-8").partition("## Before")[0], re.M)[2:]
    return [name for row in rows for name in re.findall(r"`([^`]+)`", row.split("|")[2])]


def is_known(name):
    """Whether a setting, a keyword, a module's or an object's member exists; True for any other code."""
    if dotted := re.match(r"(?:from )?(parl(?:\.\w+)*)(?: import (\w+))?", name):
        path = ".".join(filter(None, dotted.groups()))
        found = parl
        for part in path.split(".")[1:]:
            found = getattr(found, part, None) or importlib.import_module(f"{found.__name__}.{part}")
        return found is not None
    objects = {
        "replay": parl.PrioritizedReplay,
        "envs": parl.AtariVectorEnv,
        "console": parl.atari.Console,
    }
    if member := re.match(r"(replay|envs|console)\.(\w+)", name):
        return hasattr(objects[member[1]], member[2])
    if keyword := re.fullmatch(r"(\w+)(=.*)?", name):
        known = {*Options.__annotations__, *signature(parl.AtariVectorEnv).parameters, "env", "env_id"}
        known |= {*signature(parl.PrioritizedReplay).parameters, *ALGORITHMS, *dir(parl), *dir(parl.atari)}
        return keyword[1] in known
    return True


def test_a_name_that_does_not_exist_is_found():
    names = ["parl.gone", "gone", "replay.gone(1)", "gone=4", "parl.PrioritizedReplay.gone()"]
    for name in names:
        try:
            assert not is_known(name)
        except ModuleNotFoundError:
            pass


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_names_of_parl_exist(page):
    names = names_of_parl(page)
    assert len(names) > 8
    assert [name for name in names if not is_known(name)] == []
