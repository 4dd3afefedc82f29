"""The command ``parl``: settings, files, exit statuses.

Some tests start a process or a fork; the others call :func:`main` in this one.
"""

import contextlib
import dataclasses
import errno
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest

import forked
from parl import cli
from parl.cli import _COMMANDS, main
from parl.cli.runs import summarize
from parl.cli.settings import GROUPS
from parl.run.config import _NAMES_ELSEWHERE, suggestion
from parl.train import ALGORITHMS, Run, algorithm_names
from parl.train.registry import module_of, topology_of

QUICK = [
    "--total-steps", "3k", "--num-envs", "8", "--learning-starts", "500", "--evaluation-episodes", "5",
]  # fmt: skip


def called(*arguments):
    """Runs the command in this process: returns the exit status and the output."""
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
    words = ["-m", "parl", "train", "dqn", "--actors", "2", "--learners", "2", *QUICK]
    done = forked.run(words, folder)
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


def test_eval_goes_on_where_scores_cannot_be_stored(trained, tmp_path):
    copied = [shutil.copytree(trained[0], tmp_path / name) for name in ("one", "two")]
    (copied[0] / "evaluations.jsonl").unlink(missing_ok=True)
    (copied[0] / "evaluations.jsonl").mkdir()
    done = called("eval", *copied, "--episodes", 1)
    assert done.returncode == 0 and done.stdout.count("1 greedy episodes") == 2
    assert "the scores are not stored: " in done.stderr and "evaluations.jsonl" in done.stderr
    assert (copied[1] / "evaluations.jsonl").is_file()


def test_eval_plot_and_resume_use_the_run(trained):
    run, _ = trained
    scores = called("eval", run, "--episodes", 7, "--seed", 5)
    assert scores.returncode == 0, scores.stderr
    assert scores.stdout.startswith("7 greedy episodes, best checkpoint, seed 5: mean ")
    assert "interquartile mean " in scores.stdout
    assert "protocol: dqn on CartPole-v1, greedy" in scores.stdout
    saved = json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])
    assert len(saved["returns"]) == saved["episodes"] == 7
    table = called("eval", run, run, "--episodes", 2, "--verbose").stdout
    assert table.count("2 greedy episodes, best checkpoint") == 2 and "protocol:" not in table
    assert re.search(r"^algorithm +dqn$", table, re.M) and re.search(r"^episodes +2 whole", table, re.M)
    folder = max((run / "checkpoints").glob("step-*"))
    named = called("eval", folder, "--episodes", 1)
    assert named.stdout.startswith(f"1 greedy episodes, {folder.name} checkpoint, ")
    assert json.loads((run / "evaluations.jsonl").read_text().splitlines()[-1])["checkpoint"] == folder.name
    listed = called("runs", run.parent)
    assert re.search(
        r"^dqn-CartPole-v1-0 +dqn +CartPole-v1 +[\d.]+ +3,[\d]+ +0:00:\d\d +ended$", listed.stdout, re.M
    )
    (found,) = json.loads(called("runs", run.parent, "--json", "--sort", "score").stdout)
    assert (found["algorithm"], found["state"], found["seed"]) == ("dqn", "ended", 0)
    compared = called("compare", run, "--plot", run / "plots" / "compared.svg").stdout
    assert re.search(r"^CartPole-v1 +dqn +1 +[\d.]+ +- ", compared, re.M)
    assert (run / "plots" / "compared.svg").read_text().startswith("<?xml")
    page = called("report", run, "-o", run / "page.html")
    assert page.stdout == f"{run / 'page.html'}\n" and "</html>" in (run / "page.html").read_text()
    video = called("record", run, "-o", run / "videos" / "cart.gif", "--seed", 3)
    assert video.returncode == 0, video.stderr
    assert "cart.gif: one episode, return " in video.stdout
    assert (run / "videos" / "cart.gif").read_bytes().startswith(b"GIF8")
    assert called("record", folder, "-o", run / "videos" / "last.png").returncode == 0
    assert "is not a run directory" in called("record", run.parent, "-o", run / "videos" / "no.png").stderr
    picture = called("plot", run)
    assert picture.returncode == 0, picture.stderr
    assert (run / "plots" / "learning-curve.png").read_bytes().startswith(b"\x89PNG")
    finished = called("resume", run)
    assert finished.returncode == 0, finished.stderr
    assert "ended by total_steps" in finished.stdout


@pytest.mark.parametrize(("stopped", "status"), [("total_steps", 0), ("interrupted", 130)])
def test_a_curve_that_cannot_be_drawn_leaves_the_exit_status(trained, tmp_path, stopped, status, capsys):
    run = shutil.copytree(trained[0], tmp_path / "run")
    shutil.rmtree(run / "plots", ignore_errors=True)
    (run / "plots").write_text("a file where the folder of plots would be")
    assert summarize(Run(run, 3_000, 40, 1.0, None, stopped)) == status
    out, err = capsys.readouterr()
    assert out.startswith(f"{run}: 3,000 transitions") and "learning curve" not in out
    assert err.startswith("no learning curve: ") and "plots" in err


def test_resume_changes_the_number_of_evaluated_episodes(trained, tmp_path):
    run = shutil.copytree(trained[0], tmp_path / "run")
    done = called("resume", run, "--total-steps", 3_500, "--evaluation-episodes", 2)
    assert done.returncode == 0, done.stderr
    scores = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["evaluation_episodes"] for row in scores if "evaluation_episodes" in row][-1] == 2


def test_help_shows_units_and_defaults():
    text = called("train", "dqn", "--help").stdout
    assert "--replay-ratio" in text and "--learning-rate" in text and "default: 0.99" in text
    assert all(option in text for option in ("--config", "--preset", "--callback", "--watch", "--import"))
    assert called("--help").returncode == 0
    nothing = called()
    assert (nothing.returncode, nothing.stdout) == (2, "") and nothing.stderr == called("--help").stdout
    assert "dqn" in called("train", "--help").stdout
    version = subprocess.run([sys.executable, "-m", "parl", "--version"], capture_output=True, text=True)
    assert version.stdout.startswith("parl 0.")


def test_help_lists_every_algorithm_without_importing_what_trains():
    code = (
        "import sys; from parl.cli import main; main(['--help']); "
        "sys.exit(bool({'torch', 'gymnasium'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, "torch or Gymnasium was imported"
    listed = done.stdout.partition("algorithms: ")[2].partition("\n")[0].split(", ")
    assert listed == algorithm_names()


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


def test_names_of_other_libraries_lead_to_settings_that_exist():
    known = {
        field.name for name in ALGORITHMS for kind in kinds_of(name) for field in dataclasses.fields(kind)
    }
    for name, meant in _NAMES_ELSEWHERE.items():
        assert meant and set(meant.split()) <= known, name
        assert suggestion(name, set(meant.split())) == meant.split()[0]


def kinds_of(name):
    """The dataclasses of the settings of an algorithm and its runs."""
    return topology_of(name).config, module_of(name).Config


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["trian"], 2, "no command 'trian'"),
        (["train"], 2, "takes the name of an algorithm first, one of a2c, a3c, "),
        (["train", "dqm"], 2, "no algorithm 'dqm' (did you mean 'dqn'?); there are: a2c, a3c, "),
        (["train", "dqn", "--gama", "0.9"], 2, "--gamma"),
        (["train", "dqn", "--gamma", "1.5"], 2, "gamma = 1.5 is outside 0 to 1"),
        (["train", "dqn", "--total-steps", "ten"], 2, "ten"),
        (["train", "dqn", "--config", "missing.toml"], 1, "missing.toml"),
        (["train", "dqn", "--env", "CartPole-v99"], 1, "CartPole-v99"),
        (["eval", "nowhere"], 1, "no run directory at nowhere"),
        (["resume", "nowhere"], 1, "no run directory at nowhere"),
        (["plot", "nowhere"], 1, "nowhere"),
        (["train", "dqn", "--env"], 2, "'--env'"),
        (
            ["train", "dqn", "--total-timesteps", "9"],
            2,
            "no option --total-timesteps: did you mean --total-steps?",
        ),
        (["train", "dqn", "--lr", "1"], 2, "did you mean --learning-rate?"),
        (["train", "dqn", "--buffer-size=9"], 2, "did you mean --replay-capacity?"),
        (["train", "dqn", "--n-envs", "9"], 2, "did you mean --num-envs?"),
        (["train", "ppo", "--n-steps", "9"], 2, "did you mean --rollout-steps?"),
        (["train", "dqn", "--n-steps", "9"], 2, "did you mean --n-step?"),
        (["train", "dqn", "--no-prioritised"], 2, "did you mean --prioritized?"),
        (["train", "dqn", "stray"], 2, "'stray' is one argument too many"),
        (["train", "dqn", "--config", "."], 1, ".: Is a directory"),
        (["train", "dqn", "--config", "/proc/self/exe"], 1, "/proc/self/exe is not valid TOML"),
        (["train", "dqn", "--device", "cuda:77"], 1, "device = 'cuda:77'"),
        (["train", "dqn", "--env-options", "wind=1"], 1, "unexpected keyword argument 'wind'"),
        (["eval"], 2, "parl eval needs at least one run directory"),
        (["eval", "nowhere", "--episode", "3"], 2, "did you mean --episodes?"),
        (["resume"], 2, "Missing: RUN"),
        (["record", "pong"], 2, "--out PATH"),
        (["record", "pong", "-o", "x.png", "--trust"], 2, "--trust has no effect on pong"),
        (["bench"], 2, "parl bench takes atari or tradeoff"),
        (["bench", "atari", "--seconds", "0"], 2, "seconds is 0.0, expected more than 0"),
        (["eval", ".", "--episodes", "0"], 2, "--episodes is 0, expected at least 1"),
        (["eval", ".", "--seed", "-5"], 2, "--seed is -5, expected at least 0"),
        (["eval", ".", "--checkpoint", "first"], 2, "invalid choice 'first'"),
        (["train", "dqn", "--replay-capacity", "100G"], 2, "replay_capacity = 100000000000 is outside"),
        (["runs", "nowhere"], 1, "there is no folder nowhere"),
        (["runs", "--sort", "age"], 2, "invalid choice 'age'"),
        (["compare"], 2, "parl compare needs at least one run directory"),
        (["compare", "nowhere"], 1, "no run directory at nowhere"),
        (["report", "."], 1, "is not a run directory"),
        (["tune", "ppo", "--trials", "0"], 2, "--trials is 0, expected at least 1"),
        (["train", "dqn", "--preset", "nope"], 1, "nope"),
        (["doctor", "who"], 2, "'who'"),
        (["doctor", "--env", "nope"], 1, "nope"),
        (["doctor", "--sweep", "--compile"], 2, "exclude each other"),
    ],
)
def test_wrong_usage_gives_a_message_without_a_traceback(arguments, status, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = called(*arguments)
    assert done.returncode == status, done.stdout + done.stderr
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--traceback", "PARL_TRACEBACK"])
def test_a_traceback_is_printed_on_request(option, monkeypatch):
    if option.startswith("--"):
        done = called("eval", "nowhere", option)
    else:
        monkeypatch.setenv(option, "1")
        done = called("eval", "nowhere")
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and done.stderr.endswith("parl: no run directory at nowhere\n")


@pytest.mark.parametrize("command", [*_COMMANDS, "bench atari", "bench tradeoff", "train ppo"])
def test_every_command_has_help(command):
    done = called(*command.split(), "--help")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"usage: parl {command}") and not done.stderr


def test_help_shows_the_defaults_for_the_environment():
    for env, rate in (("CartPole-v1", "0.001"), ("Pendulum-v1", "0.0003")):
        text = " ".join(called("train", "ppo", "--env", env, "--help").stdout.replace("│", " ").split())
        assert f"(default: {env})" in text
        assert f"Initial learning rate. (default: {rate})" in text


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "imageio.v2", None)
    for name in [name for name in sys.modules if name.startswith("parl.cli.games")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tyro", None)
    done = called("games")
    assert done.returncode == 1 and "pip install 'parl-rl[train]'" in done.stderr


def test_doctor_needs_numpy_alone():
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('tyro', 'torch', 'gymnasium', 'rich'))); "
        "from parl.cli import main; sys.exit(main(['doctor']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_of_an_environment_is_named(monkeypatch):
    import gymnasium

    def make(**_):
        raise gymnasium.error.DependencyNotInstalled('Box2D is not installed: pip install "gymnasium[box2d]"')

    monkeypatch.setitem(gymnasium.registry, "Lost-v0", gymnasium.envs.registration.EnvSpec("Lost-v0", make))
    done = called("train", "dqn", "--env", "Lost-v0")
    assert done.returncode == 1
    needed = "needs packages that are not installed: pip install 'parl-rl[box2d]'"
    assert done.stderr == f"parl: env = 'Lost-v0' {needed}\n"


def test_ctrl_c_in_another_command_ends_it_with_a_message(monkeypatch):
    def interrupt():
        raise KeyboardInterrupt

    monkeypatch.setattr("parl.run.doctor.report", interrupt)
    done = called("doctor")
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "parl: interrupted\n")


def test_an_error_of_the_program_keeps_its_traceback(monkeypatch):
    monkeypatch.setattr("parl.run.doctor.report", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        main(["doctor"])


@pytest.mark.parametrize(("number", "status"), [(errno.EIO, 130), (errno.EPIPE, 0), (errno.ENOSPC, 1)])
def test_a_closed_terminal_is_an_interrupt(number, status, monkeypatch):
    """After SIGHUP the run is saved, and its last lines cannot be printed."""

    def run(words):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(cli, "_run", run)
    monkeypatch.setattr(cli, "close_broken_streams", lambda: number != errno.ENOSPC)
    assert main([]) == status


@pytest.mark.parametrize("command", ["train ppo --help", "doctor"])
def test_a_closed_pipe_is_no_error(command):
    words = f"{sys.executable} -m parl {command} | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_ctrl_c_saves_the_run_and_sets_the_exit_status(tmp_path, quiet):
    words = "-m parl train ppo --total-steps 100M --checkpoint-every-s 0.1".split()
    process = forked.Program([*words, *quiet], tmp_path)
    run = tmp_path / "runs" / "ppo-CartPole-v1-0"
    while not (run / "checkpoints" / "index.json").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "ended by interrupted" in out and "Traceback" not in err
    if not quiet:
        assert "interrupted; saved in runs/ppo-CartPole-v1-0, parl resume goes on from there" in err
    listed = json.loads(called("runs", tmp_path / "runs", "--json").stdout)
    assert [one["state"] for one in listed] == ["interrupted"]


def test_wrong_usage_sets_the_exit_status_of_the_process(tmp_path):
    done = forked.run(["-m", "parl", "train", "dqn", "--gamma", "1.5"], tmp_path)
    assert done.returncode == 2
    assert "gamma = 1.5 is outside 0 to 1" in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_key_in_a_file_names_the_nearest_valid_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text('algorithm = "dqn"\n[dqn]\nlearning_rat = 0.1\n')
    done = called("train", "dqn", "--config", "run.toml")
    assert done.returncode == 1
    assert "learning_rat" in done.stderr and "did you mean 'learning_rate'?" in done.stderr


@pytest.mark.parametrize(("given", "found"), [(None, "passive"), ("active", "active")])
def test_idle_threads_of_torch_do_not_spin_unless_asked_for(monkeypatch, given, found):
    environment = {} if given is None else {"OMP_WAIT_POLICY": given}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert main(["--version"]) == 0
    assert environment.get("OMP_WAIT_POLICY") == given, "too late: torch has read it"
    monkeypatch.delitem(sys.modules, "torch")
    assert main(["--version"]) == 0
    assert environment["OMP_WAIT_POLICY"] == found
