"""``parl watch`` and ``parl train --watch``: episodes of the newest policy in the terminal."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import parl
from parl.cli import import_modules, main
from parl.run import RunDirectory
from parl.train import RunInfo, watch

HALF_BLOCK = "\u2580"
SMALL = {"total_steps": 4_000, "evaluation_every": 1_000, "evaluation_episodes": 2, "seed": 1}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return parl.train(
        "ppo", env="CartPole-v1", quiet=True, runs=str(tmp_path_factory.mktemp("runs")), **SMALL
    )


def in_terminal(words, cwd, until, keys=b"", stop=None):
    """Runs ``parl`` in a terminal; returns its text and status.

    Once ``until`` was printed, types ``keys``, or sends the signal ``stop``.
    """
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(cwd)
        os.execv(sys.executable, [sys.executable, "-m", "parl", *words])
    received, typed, end = b"", False, time.monotonic() + 120
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            part = b""
            with contextlib.suppress(OSError):
                part = os.read(fd, 65536)
            if not part:
                break
            received += part
        if not typed and re.search(until, received.decode(errors="ignore")):
            os.write(fd, keys) if stop is None else os.kill(pid, stop)
            typed = True
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(fd)
    return received.decode(errors="ignore"), os.waitstatus_to_exitcode(status)


def test_a_run_is_shown_until_q_is_pressed(run, tmp_path):
    text, status = in_terminal(["watch", str(run.path), "--fps", "1000"], tmp_path, "episode 2", b"q")
    assert status == 0
    assert text.index("\x1b[?1049h") < text.index(HALF_BLOCK) < text.index("\x1b[?1049l")
    assert f"episode 1, after {run.env_steps:,} transitions" in text


def test_a_view_that_is_ended_restores_the_terminal(run, tmp_path):
    """As `parl train --watch` ends it."""
    text, status = in_terminal(["watch", str(run.path)], tmp_path, HALF_BLOCK, stop=signal.SIGTERM)
    assert status == 0, text[-2000:]
    assert text.rindex(HALF_BLOCK) < text.index("\x1b[?1049l")


def test_a_run_in_progress_is_shown_and_the_terminal_is_restored(tmp_path):
    (tmp_path / "own_pole.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('OwnPole-v0', CartPoleEnv, max_episode_steps=500)\n"
    )
    words = ["train", "ppo", "--import", "own_pole", "--env", "OwnPole-v0", "--watch", "--total-steps", "2G"]
    words += ["--name", "shown"]
    words += ["--evaluation-every", "1k", "--evaluation-episodes", "1"]
    # Ctrl-C ends both programs once a policy was shown.
    text, status = in_terminal(words, tmp_path, r"episode \d+, after", b"\x03")
    assert status == 130
    assert text.index("\x1b[?1049h") < text.index(HALF_BLOCK)
    assert "transitions, " in text.split("\x1b[?1049l")[1]  # the summary of the run
    assert "Traceback" not in text


def test_the_view_imports_the_modules_that_the_command_imported(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(sys, "stdout", sys.stdin)
    started = []
    monkeypatch.setattr(watch.subprocess, "Popen", started.append)
    assert import_modules(["--import", "colorsys", "train"]) == ["train"]
    watch.Watch().on_start(RunInfo("1", tmp_path, "ppo", {}, 0))
    assert started[0][1:6] == ["-m", "parl", "watch", str(tmp_path), "--trust"]
    assert "--import=colorsys" in started[0][6:]


def test_the_view_ends_with_the_run(tmp_path):
    words = ["train", "ppo", "--env", "CartPole-v1", "--watch", "--total-steps", "2k", "--name", "short"]
    text, status = in_terminal([*words, "--evaluation-episodes", "1"], tmp_path, "never")
    assert status == 0
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l")
    assert "ended by total_steps" in text


def test_episodes_are_those_of_the_newest_checkpoint(run):
    scenes = watch.scenes(run.path)
    picture, text, seconds = next(scenes)
    assert picture.dtype == np.uint8 and picture.ndim == 3 and picture.any()
    assert seconds == pytest.approx(1 / 50) and text.startswith(
        f"return 0, episode 1, after {run.env_steps:,} transitions"
    )
    more = parl.resume(run.path, total_steps=5_000, quiet=True)
    texts = []
    while not texts or "episode 1," in texts[-1]:
        texts.append(next(scenes)[1])
    lengths = len(texts) - 1
    assert texts[-2].startswith(f"return {lengths},") and f"after {run.env_steps:,} transitions" in texts[-2]
    assert f"after {more.env_steps:,} transitions" in texts[-1]


def test_a_run_without_a_checkpoint_is_waited_for_while_it_trains(run, tmp_path):
    copy = RunDirectory(shutil.copytree(run.path, tmp_path / "copy"))
    shutil.rmtree(copy.path / "checkpoints")
    with copy.lock():
        picture, text, _ = next(watch.scenes(copy.path))
    assert text == "waiting for the first checkpoint" and not picture.any()
    with pytest.raises(FileNotFoundError, match="there is no checkpoint"):
        next(watch.scenes(copy.path))


def test_fps_sets_the_time_between_pictures(run):
    now, slept, drawn = [0.0], [], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    keys = iter([[], [], ["x"], ["q"]])
    watch.show(
        run.path,
        lambda *shown: drawn.append(shown),
        lambda: next(keys),
        fps=4,
        clock=lambda: now[0],
        sleep=sleep,
    )
    assert len(drawn) == 3 and slept == [0.25] * 3
    assert drawn[0][1].endswith("(q closes the view)")


def test_wrong_usage_is_named(run, tmp_path, capsys):
    assert main(["watch", str(run.path)]) == 1
    assert "parl watch needs a terminal" in capsys.readouterr().err
    assert main(["watch", str(run.path), "--fps", "0"]) == 2
    assert "--fps is 0.0, expected more than 0" in capsys.readouterr().err
    assert main(["train", "ppo", "--env", "CartPole-v1", "--watch", "--runs", str(tmp_path)]) == 1
    assert "--watch needs a terminal" in capsys.readouterr().err
    with pytest.raises(FileNotFoundError):
        next(watch.scenes(tmp_path / "none"))
