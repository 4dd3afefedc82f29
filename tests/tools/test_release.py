"""`make release`: one command sets the version in every file, or refuses it."""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def release(tmp_path, monkeypatch):
    """The script, in a repository with copies of the files that name the version, which is 0.1.0."""
    spec = importlib.util.spec_from_file_location("release", ROOT / "tools" / "release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in module.PLACES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    (tmp_path / module.CHANGES).write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    module.write("0.1.0", "2026-01-01")
    (tmp_path / module.CHANGES).write_text("# Changelog\n\n## [Unreleased]\n\n### Added\n\n- Something.\n")
    module.git("init", "--quiet")
    for key, value in {"user.name": "a", "user.email": "a@example.org", "core.hooksPath": "none"}.items():
        module.git("config", key, value)
    module.git("add", ".")
    module.git("commit", "--quiet", "--message", "First")
    return module


def run(release, monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["release.py", *arguments])
    return release.main()


def test_the_repository_names_one_version():
    command = [sys.executable, ROOT / "tools" / "release.py", "--check"]
    subprocess.run(command, check=True)


@pytest.mark.parametrize("version", ["0.1.0", "0.1.1", "0.2.0", "1.0.0"])
def test_a_release_sets_commits_and_tags_the_version(release, monkeypatch, capsys, version):
    assert run(release, monkeypatch, version) == 0
    assert release.versions() == {name: {version} for name in release.PLACES}
    assert release.git("status", "--porcelain") == ""
    assert release.git("log", "-1", "--format=%s").strip() == f"Release {version}"
    assert release.git("describe", "--exact-match").strip() == f"v{version}"
    assert f"git push --atomic origin HEAD v{version}" in capsys.readouterr().out
    changes = (release.ROOT / release.CHANGES).read_text()
    assert re.search(
        rf"## \[Unreleased\]\n\n## \[{version}\] - \d{{4}}-\d\d-\d\d\n\n### Added\n\n- Some", changes
    )
    citation = (release.ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {version}\ndate-released: \d{{4}}-\d\d-\d\d$", citation, re.M)
    assert citation.count("date-released") == 1
    assert run(release, monkeypatch, "--check", f"v{version}") == 0
    assert run(release, monkeypatch, "--check", "v0.0.9") == 1


def test_only_packages_of_the_workspace_change_in_the_lock_file(release, monkeypatch):
    before = (release.ROOT / "Cargo.lock").read_text().splitlines()
    assert run(release, monkeypatch, "0.2.0") == 0
    after = (release.ROOT / "Cargo.lock").read_text().splitlines()
    changed = [i for i, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
    names = {before[i - 1].split('"')[1] for i in changed}
    manifests = [ROOT / "xtask", ROOT / "benches", *(ROOT / "crates").iterdir()]
    assert names == {
        re.search(r'^name = "(.*)"', (folder / "Cargo.toml").read_text(), re.M)[1] for folder in manifests
    }


@pytest.mark.parametrize(
    "version", ["", "1.0", "v0.2.0", "0.2.0-rc.1", "0.02.0", "0.0.9", "0.3.0", "2.0.0", "0.1.2"]
)
def test_a_wrong_version_is_refused(release, monkeypatch, capsys, version):
    assert run(release, monkeypatch, version) == 1
    assert "version" in capsys.readouterr().err
    assert release.git("log", "--format=%s").split() == ["First"]
    assert release.git("status", "--porcelain") == ""


def test_a_version_is_released_once(release, monkeypatch):
    assert run(release, monkeypatch, "0.1.0") == 0
    assert run(release, monkeypatch, "0.1.0") == 1


@pytest.mark.parametrize("what", ["untracked", "changed"])
def test_changes_that_are_not_committed_are_refused(release, monkeypatch, capsys, what):
    name = "new.txt" if what == "untracked" else "Cargo.toml"
    with (release.ROOT / name).open("a") as file:
        file.write("# more\n")
    assert run(release, monkeypatch, "0.2.0") == 1
    assert "not committed" in capsys.readouterr().err


def test_a_release_without_changes_is_refused(release, monkeypatch, capsys):
    path = release.ROOT / release.CHANGES
    path.write_text("# Changelog\n\n## [Unreleased]\n\n## [0.1.0] - 2026-01-01\n\n- Something.\n")
    release.git("commit", "--quiet", "--all", "--message", "Second")
    assert run(release, monkeypatch, "0.2.0") == 1
    assert "CHANGELOG.md lists no change under [Unreleased]" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["Cargo.lock", "CITATION.cff", "conda/recipe.yaml"])
def test_files_that_name_different_versions_are_reported(release, monkeypatch, capsys, name):
    path = release.ROOT / name
    path.write_text(path.read_text().replace("0.1.0", "0.7.0"))
    assert run(release, monkeypatch, "--check") == 1
    assert name in capsys.readouterr().err
