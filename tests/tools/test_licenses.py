"""`tools/licenses.py` takes one license of each linked package, and refuses packages without one."""

import importlib.util
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def licenses():
    spec = importlib.util.spec_from_file_location("licenses", ROOT / "tools" / "licenses.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(folder, name, **files):
    path = folder / name
    path.mkdir()
    for file, text in files.items():
        (path / file.replace("_", "-")).write_text(text)
    return {"name": name, "version": "1.0.0", "license": "X", "manifest_path": str(path / "Cargo.toml")}


def test_a_package_that_offers_mit_is_used_under_mit(licenses, tmp_path):
    package(tmp_path, "a", LICENSE_APACHE="Apache", LICENSE_MIT="  MIT\n  text\n", README="no")
    assert licenses.license_text(tmp_path / "a") == "MIT\ntext"
    package(tmp_path, "b", COPYING="first", LICENSE="second")
    assert licenses.license_text(tmp_path / "b") == "first\n\nsecond"


def test_a_license_stands_once_for_all_packages_that_have_it(licenses, tmp_path):
    packages = [
        package(tmp_path, name, LICENSE=text) for name, text in [("a", "one"), ("b", "two"), ("c", "one")]
    ]
    text = licenses.collect(packages)
    assert "a 1.0.0, c 1.0.0\n\none\n" in text
    assert text.count("\none\n") == text.count("\ntwo\n") == 1


def test_a_package_without_a_license_file_is_refused(licenses, tmp_path, monkeypatch):
    packages = [package(tmp_path, "a", README="no"), package(tmp_path, "b", LICENSE="two")]
    with pytest.raises(ValueError, match=r"a 1\.0\.0 has no license file"):
        licenses.collect(packages)
    monkeypatch.setattr(licenses, "SAME_AS", {"a": "b"})
    assert "a 1.0.0, b 1.0.0\n\ntwo" in licenses.collect(packages)


def test_a_file_that_is_not_current_is_reported(licenses, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(licenses, "OUTPUT", tmp_path / "THIRD_PARTY_LICENSES")
    monkeypatch.setattr(licenses, "linked", lambda: [])
    assert licenses.main(["--check"]) == 1
    assert "make licenses" in capsys.readouterr().err
    assert licenses.main([]) == 0
    assert licenses.main(["--check"]) == 0


def test_wheels_contain_the_file(licenses):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "THIRD_PARTY_LICENSES" in project["license-files"]
    assert "\nnumpy 0." in licenses.OUTPUT.read_text()
