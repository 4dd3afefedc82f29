"""`make test`: its table of times, the seconds of each test, and the slow tests that fit a time budget."""

import importlib.util
import json
import subprocess
import sys
import types
from pathlib import Path

import pytest

from times import Budget

PATH = Path(__file__).parents[2] / "tools" / "run_tests.py"


@pytest.fixture
def run_tests(tmp_path, monkeypatch):
    spec = importlib.util.spec_from_file_location("run_tests", PATH)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "TIMES", tmp_path / "times.json")
    return module


def test_tests_are_summed_by_folder_and_the_slowest_come_first(run_tests):
    tests = {f"tests/ops/test_a.py::test[{i}]": (1.0, 2.0) for i in range(12)}
    tests["tests/algos/test_b.py::test"] = (40.0, 50.0)
    folders, slowest = (
        [line.split() for line in text.splitlines()] for text in run_tests.folders_and_slowest(tests)
    )
    assert folders[1:] == [["tests/algos", "40.0", "50.0"], ["tests/ops", "12.0", "24.0"]]
    assert len(slowest) == 1 + 10
    assert slowest[1] == ["tests/algos/test_b.py::test", "40.0", "50.0"]


def test_steps_run_in_order_and_a_failure_is_the_exit_status(run_tests, tmp_path, capfd):
    times = json.dumps({"tests/ops/test_a.py::test": [1.0, 2.0]})
    lines = ["setup test-rust:", "\t@echo ran $@", "test-py:", f"\t@echo '{times}' > times.json; exit 3", ""]
    (tmp_path / "Makefile").write_text("\n".join(lines))
    assert run_tests.main(["setup", "test-py", "test-rust"]) == 2  # make's exit status
    out = capfd.readouterr().out
    assert out.index("ran setup") < out.index("ran test-rust") < out.index("tests/ops")
    assert "test-py (failed)" in out
    assert run_tests.main(["build", "setup"]) == 2
    assert "ran setup" not in capfd.readouterr().out, "nothing runs without a build"


def test_steps_joined_by_a_comma_run_at_the_same_time(run_tests, tmp_path, capfd):
    """Each of the two waits for a file that the other writes."""
    wait = "until test -e {}; do sleep 0.01; done; echo ran $@"
    lines = ["test-rust:", f"\t@touch rust; {wait.format('py')}; exit 1"]
    lines += ["test-py:", f"\t@touch py; {wait.format('rust')}"]
    (tmp_path / "Makefile").write_text("\n".join([*lines, ""]))
    assert run_tests.main(["test-rust,test-py"]) == 2
    out = capfd.readouterr().out
    assert out.index("ran test-py") < out.index("ran test-rust") < out.index("test-rust (failed)")


def test_seconds_of_each_test_are_written(tmp_path):
    (tmp_path / "test_one.py").write_text("def test_one():\n    sum(range(3_000_000))\n")
    code = "import sys, pytest; from pathlib import Path; from times import Times;"
    code += "sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', '-c', '/dev/null', 'test_one.py'],"
    code += " plugins=[Times(Path('times.json'))]))"
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    [(name, (processor, wall))] = json.loads((tmp_path / "times.json").read_text()).items()
    assert name == "test_one.py::test_one"
    assert processor > 0 and wall > 0


def test_a_budget_skips_tests_that_would_end_too_late():
    def item_of(*minutes):
        return types.SimpleNamespace(
            iter_markers=lambda name: [pytest.mark.slow(**kwargs).mark for kwargs in minutes]
        )

    budget = Budget(5.0, "")
    budget.pytest_runtest_setup(item_of({}))
    budget.pytest_runtest_setup(item_of({"minutes": 4}))
    with pytest.raises(pytest.skip.Exception, match="up to 10 min"):
        budget.pytest_runtest_setup(item_of({}, {"minutes": 10}))
    items = list(range(5))
    Budget(5.0, "7").pytest_collection_modifyitems(items)
    assert items == [2, 3, 4, 0, 1]
