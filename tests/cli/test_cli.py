"""The command ``parl``: settings, files, exit statuses.

:func:`parl` starts a process, which imports everything again; the other tests call :func:`main` in this one.
"""

import contextlib
import dataclasses
import io
import json
import re
import subprocess
import sys

import pytest

from parl.cli import main
from parl.cli.settings import GROUPS
from parl.train import ALGORITHMS
from parl.train.registry import module_of, topology_of

QUICK = [
    "--total-steps", "3k", "--num-envs", "8", "--learning-starts", "500", "--evaluation-episodes", "5",
]  # fmt: skip


def parl(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "parl", *map(str, arguments)],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def called(*arguments):
    """As :func:`parl`, in this process: returns the exit status and the output."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:
            status = end.code
    for file in (out, err):
        file.seek(0)
    return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short run with two actors and two learners: its folder and what it printed."""
    folder = tmp_path_factory.mktemp("cli")
    done = parl("train", "dqn", "--actors", 2, "--learners", 2, *QUICK, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "dqn-CartPole-v1-0", done


def test_train_writes_a_run_directory(trained):
    run, done = trained
    assert "ended by total_steps" in done.stdout
    assert "3,0" in done.stderr  # plain progress lines: standard error is not a terminal here
    about = json.loads((run / "run.json").read_text())
    assert about["command"][:3] == ["parl", "train", "dqn"]
    assert (run / "metrics.jsonl").read_text().count("\n") >= 2


def test_resolved_settings_train_again(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run, _ = trained
    done = called("train", "dqn", "--config", run / "config.toml", "--seed", 7)
    assert done.returncode == 0, done.stderr
    again = (tmp_path / "runs" / "dqn-CartPole-v1-7" / "config.toml").read_text()
    assert again == (run / "config.toml").read_text().replace("seed = 0", "seed = 7")


def test_eval_plot_and_resume_use_the_run(trained):
    run, _ = trained
    scores = called("eval", run, "--episodes", 7, "--seed", 5)
    assert scores.returncode == 0, scores.stderr
    assert scores.stdout.startswith("7 greedy episodes, best checkpoint, seed 5: mean ")
    assert "interquartile mean " in scores.stdout
    assert "protocol: dqn on CartPole-v1, greedy" in scores.stdout
    saved = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])
    assert len(saved["returns"]) == saved["episodes"] == 7
    video = called("record", run, "-o", run / "videos" / "cart.gif", "--seed", 3)
    assert video.returncode == 0, video.stderr
    assert "cart.gif: one episode, return " in video.stdout
    assert (run / "videos" / "cart.gif").read_bytes().startswith(b"GIF8")
    picture = called("plot", run)
    assert picture.returncode == 0, picture.stderr
    assert (run / "plots" / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    finished = called("resume", run)
    assert finished.returncode == 0, finished.stderr
    assert "ended by total_steps" in finished.stdout


def test_help_shows_units_and_defaults():
    text = called("train", "dqn", "--help").stdout
    assert "--replay-ratio" in text and "--learning-rate" in text and "default: 0.99" in text
    assert called("--help").returncode == 0
    assert "dqn" in called("train", "--help").stdout
    assert parl("--version").stdout.startswith("parl 0.")


def test_help_has_the_common_settings_first_and_every_setting_once():
    text = called("train", "dqn", "--help").stdout
    headings = [f" {group} options " for group in GROUPS]
    assert [text.index(heading) for heading in headings] == sorted(map(text.index, headings))
    assert text.index("--learning-rate ") < text.index(" algorithm options ") < text.index("--beta ")
    names = [field.name for kind in kinds_of("dqn") for field in dataclasses.fields(kind)]
    for name in names:
        flag = re.escape("--" + name.replace("_", "-"))
        assert len(re.findall(rf"^│ {flag}[ ,]", text, re.MULTILINE)) == 1, name


def test_groups_name_settings_that_exist():
    known = {
        field.name for name in ALGORITHMS for kind in kinds_of(name) for field in dataclasses.fields(kind)
    }
    listed = [name for names in GROUPS.values() for name in names]
    assert set(listed) <= known
    assert len(listed) == len(set(listed))


def kinds_of(name):
    """The dataclasses of the settings of an algorithm and its runs."""
    return topology_of(name).config, module_of(name).Config


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, ""),
        (["trian"], 2, "no command 'trian'"),
        (["train", "dqm"], 1, "no algorithm 'dqm'; there are: a2c, a3c, "),
        (["train", "dqn", "--gama", "0.9"], 2, "--gamma"),
        (["train", "dqn", "--gamma", "1.5"], 2, "gamma = 1.5 is outside 0..1"),
        (["train", "dqn", "--total-steps", "ten"], 2, "ten"),
        (["train", "dqn", "--config", "missing.toml"], 1, "missing.toml"),
        (["train", "dqn", "--env", "CartPole-v99"], 1, "CartPole-v99"),
        (["eval", "nowhere"], 1, "no run directory at nowhere"),
        (["resume", "nowhere"], 1, "no run directory at nowhere"),
        (["plot", "nowhere"], 1, "nowhere"),
        (["doctor", "who"], 1, "'who'"),
    ],
)
def test_wrong_usage_gives_a_message_without_a_traceback(arguments, status, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = called(*arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_usage_sets_the_exit_status_of_the_process(tmp_path):
    done = parl("train", "dqn", "--gamma", "1.5", cwd=tmp_path)
    assert done.returncode == 2
    assert "gamma = 1.5 is outside 0..1" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_key_in_a_file_names_the_nearest_valid_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('algorithm = "dqn"\n[dqn]\nlearning_rat = 0.1\n')
    done = called("train", "dqn", "--config", "run.toml")
    assert done.returncode == 1
    assert "learning_rat" in done.stderr and "did you mean 'learning_rate'?" in done.stderr
