"""Runs as users start them: settings, resuming, failing, interrupting, evaluating."""

import functools
import json
import math
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

import forked
from parl import cli, pickles
from parl.errors import ConfigError, ReplayFileError, RunDirectoryError, UntrustedRunError, WorkerError
from parl.run import RunDirectory, read_metrics
from parl.runtime.checkpoint import actor_state, read
from parl.runtime.evaluate import Evaluator
from parl.train import OffPolicyRunConfig, default_settings, evaluate, resume, settings_from, train
from saved_learners import weights_of

SMALL = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "batch_size": 32,
    "replay_ratio": 4.0,
    "learning_starts": 100,
    "replay_capacity": 4_000,
    "hidden": (16,),
    "n_step": 3,
    "evaluation_episodes": 5,
    "quiet": True,
}
DETERMINISTIC = SMALL | {"schedule": "deterministic", "actors": 2, "learners": 2}


def test_a_run_writes_its_metrics_and_settings(tmp_path):
    run = train("dqn", **DETERMINISTIC, total_steps="1k", runs=str(tmp_path), evaluation_every=400, seed=3)
    assert run.path == tmp_path / "dqn-CartPole-v1-3"
    assert run.stopped == "total_steps"
    assert 1_000 <= run.env_steps < 1_008
    records = read_metrics(run.path)
    assert sum("evaluation_return" in record for record in records) == 3
    last = [record for record in records if "replay_ratio" in record][-1]
    assert last["replay_ratio"] == pytest.approx(4.0, rel=0.05)
    assert last["updates"] == run.updates > 100
    assert last["episode_return"] > 5
    assert RunDirectory.open(run.path).config["run"]["learners"] == 2
    assert RunDirectory.open(run.path).config["dqn"]["hidden"] == [16]


def test_evaluation_is_repeatable_and_takes_fresh_seeds(tmp_path):
    run = train("dqn", **DETERMINISTIC, total_steps=600, runs=str(tmp_path))
    one, two, other = (evaluate(run.path, episodes=20, seed=seed) for seed in (5, 5, 6))
    assert one.shape == (20,)
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)
    with pytest.raises(ConfigError, match="newest"):
        evaluate(run.path, checkpoint="newest")


def test_threads_of_torch_are_those_of_before(tmp_path):
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        run = train("dqn", **DETERMINISTIC, total_steps=200, runs=str(tmp_path))
        assert torch.get_num_threads() == 2
        resume(run.path, total_steps=400)
        assert torch.get_num_threads() == 2
        evaluate(run.path, episodes=1)
        assert torch.get_num_threads() == 2
        with pytest.raises(ConfigError):
            train("dqn", **DETERMINISTIC, total_steps=-1, runs=str(tmp_path))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_an_evaluation_without_episodes_is_refused(tmp_path):
    for wrong, message in (
        ({"episodes": 0}, "episodes = 0 is not an integer of at least 1"),
        ({"episodes": math.nan}, "episodes = nan is not an integer of at least 1"),
        ({"seed": -1}, "seed = -1 is not an integer of at least 0"),
        ({"seed": 1.5}, "seed = 1.5 is not an integer of at least 0"),
    ):
        with pytest.raises(ConfigError, match=message):
            evaluate(tmp_path, **wrong)


def test_an_evaluation_names_the_weights_that_played(tmp_path, monkeypatch, capsys):
    """A run in progress writes a checkpoint while ``parl eval`` plays."""
    run = train("dqn", **DETERMINISTIC, total_steps=600, runs=str(tmp_path))
    play = Evaluator.play

    def plays_slowly(self, episodes, seed, goal=None):
        monkeypatch.undo()
        resume(run.path, total_steps=900)
        return play(self, episodes, seed, goal)

    monkeypatch.setattr(Evaluator, "play", plays_slowly)
    assert cli.main(["eval", str(run.path), "--episodes", "3", "--checkpoint", "last"]) == 0
    (stored,) = (run.path / "evaluations.jsonl").read_text().splitlines()
    for said in (capsys.readouterr().out, json.loads(stored)["protocol"]):
        assert f"weights after {run.env_steps} steps" in said


def test_stopped_at_a_checkpoint_and_resumed_equals_the_uninterrupted_run(tmp_path):
    whole = train("dqn", **DETERMINISTIC, total_steps=1_600, runs=str(tmp_path), name="whole")
    half = train("dqn", **DETERMINISTIC, total_steps=800, runs=str(tmp_path), name="half")
    assert not torch.equal(weights_of(half.path), weights_of(whole.path))
    resumed = resume(half.path, total_steps=1_600)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert torch.equal(weights_of(half.path), weights_of(whole.path))
    again = train("dqn", **DETERMINISTIC, total_steps=1_600, runs=str(tmp_path), name="again")
    assert torch.equal(weights_of(again.path), weights_of(whole.path))


def test_learning_waits_until_a_window_is_complete(tmp_path):
    options = DETERMINISTIC | {"learning_starts": 0, "n_step": 10, "num_envs": 8}
    run = train("dqn", **options, total_steps=200, runs=str(tmp_path))
    # 4 * (steps - 8 * 11) / 32
    assert run.updates == 4 * (run.env_steps - 88) // 32


def test_a_run_without_checkpoint_starts_over(tmp_path):
    run = train("dqn", **DETERMINISTIC, total_steps=600, runs=str(tmp_path))
    expected, records = weights_of(run.path), read_metrics(run.path)
    for file in sorted((run.path / "checkpoints").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.warns(UserWarning, match="no checkpoint yet: it starts again at step 0") as warned:
        resume(run.path)
    assert [one.filename for one in warned] == [__file__]
    assert torch.equal(weights_of(run.path), expected)
    again = [record for record in read_metrics(run.path) if "resumed" not in record]
    assert [record["env_steps"] for record in again] == [record["env_steps"] for record in records]


@pytest.mark.parametrize(
    "name", ["learner.pt", "policy.safetensors", "counters.json", "replay.bin", "../../config.toml"]
)
def test_a_damaged_checkpoint_is_named(tmp_path, name):
    run = train("dqn", **DETERMINISTIC, total_steps=300, runs=str(tmp_path))
    path = RunDirectory.open(run.path).checkpoints.last() / name
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises((RunDirectoryError, ReplayFileError), match=f"{path.name}.* is damaged"):
        resume(run.path, total_steps=600)
    if name not in ("replay.bin", "learner.pt"):  # which an evaluation does not read
        with pytest.raises(RunDirectoryError, match=f"{path.name} is damaged"):
            evaluate(run.path, 1)


def test_a_missing_checkpoint_is_an_error(tmp_path):
    run = train("dqn", **DETERMINISTIC, total_steps=300, runs=str(tmp_path))
    folder = RunDirectory.open(run.path).checkpoints.last()
    shutil.rmtree(folder)
    for work in (resume, evaluate):
        with pytest.raises(RunDirectoryError, match=f"names {folder.name} as the .* no such folder"):
            work(run.path)


class Cards(gymnasium.Wrapper):
    """Its state holds objects that a new environment does not have, so it is not plain data."""

    def step(self, action):
        self.drawn = [*getattr(self, "drawn", []), Cards]
        return super().step(action)


def _never(*_):
    raise AssertionError("a pickle was loaded")


@pytest.mark.parametrize(
    ("algorithm", "options"),
    [
        ("dqn", DETERMINISTIC | {"prefetch": 2, "priority_delay": 2, "initial_priority": "td"}),
        (
            "ppo",
            {
                "env": "CartPole-v1",
                "num_envs": 2,
                "rollout_steps": 16,
                "evaluation_episodes": 1,
                "quiet": True,
            },
        ),
    ],
)
def test_runs_of_registered_environments_hold_no_pickle(tmp_path, monkeypatch, algorithm, options):
    run = train(algorithm, **options, total_steps=300, runs=str(tmp_path), name="half")
    assert not list(run.path.rglob("*.pkl"))
    assert list(run.path.rglob("actor-0.npz"))
    monkeypatch.setattr(pickle, "loads", _never)
    monkeypatch.setattr(pickles, "_written", set())
    assert resume(run.path, total_steps=600).env_steps >= 600


def test_pickles_are_loaded_from_trusted_runs_only(tmp_path, monkeypatch, capsys):
    env = lambda: Cards(gymnasium.make("CartPole-v1"))  # noqa: E731
    options = DETERMINISTIC | {"env": env, "actors": 1, "runs": str(tmp_path)}
    run = train("dqn", **options, total_steps=300, name="run")
    whole = train("dqn", **options, total_steps=600, name="whole")
    last = RunDirectory.open(run.path).checkpoints.last()
    assert (run.path / "env.pkl").exists() and (last / "actor-0.pkl").exists()
    assert len(evaluate(run.path, 1)) == 1, "this process wrote it"
    monkeypatch.setattr(pickles, "_written", set())
    for work in (resume, evaluate):
        with pytest.raises(UntrustedRunError, match=r"env\.pkl is a pickle.*runs you trust, with --trust"):
            work(run.path)
    with pytest.raises(UntrustedRunError, match=r"actor-0\.pkl is a pickle"):
        actor_state(read(last), 0)
    assert cli.main(["eval", str(run.path), "--episodes", "1"]) == 1
    assert cli.main(["eval", str(run.path), "--episodes", "1", "--trust"]) == 0
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    for answer, code in [("", 1), ("y", 0)]:
        monkeypatch.setattr(pickles, "_written", set())  # those of the last line were loaded
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert cli.main(["eval", str(run.path), "--episodes", "1"]) == code
    assert "only runs you trust" in capsys.readouterr().err
    resume(run.path, total_steps=600, trust=True)
    assert torch.equal(weights_of(run.path), weights_of(whole.path))


def test_two_processes_do_not_train_in_one_directory(tmp_path):
    run = train("dqn", **DETERMINISTIC, total_steps=300, runs=str(tmp_path))
    with RunDirectory.open(run.path).lock():
        with pytest.raises(RunDirectoryError, match=f"in use: process {os.getpid()} trains in it"):
            resume(run.path, total_steps=600)
        assert len(evaluate(run.path, 1)) == 1
    assert resume(run.path, total_steps=600).env_steps >= 600


def test_auto_prints_its_reason_if_verbose(tmp_path, capsys):
    run = train("dqn", **(SMALL | {"quiet": False}), verbose=True, total_steps=400, runs=str(tmp_path))
    said = capsys.readouterr().err
    assert "actor" in said and "bound" in said
    directory = RunDirectory.open(run.path)
    assert directory.config["run"]["actors"] >= 1
    assert {"actors", "learners", "threads"} == {*directory.about["auto"]}


def test_a_run_begins_with_one_sentence(tmp_path, capsys):
    options = {"total_steps": 64, "evaluation_episodes": 0, "hidden": (8,), "runs": str(tmp_path)}
    run = train("dqn", **options, num_envs=8, actors=2, learners=1, learning_starts=10**4)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "dqn on CartPole-v1: 8 environments, 2 actors, 1 learner, on the CPU"
    assert all(line.startswith("return ") for line in lines[1:]) and not any("nan" in line for line in lines)
    resume(run.path, total_steps=128)
    assert capsys.readouterr().err.startswith(f"{lines[0]}, from step {run.env_steps}\n")
    train("ppo", **options, num_envs=1)
    assert capsys.readouterr().err.startswith("ppo on CartPole-v1: 1 environment, on the CPU\n")
    train("es", **options, num_envs=4, actors=1)
    assert capsys.readouterr().err.startswith("es on CartPole-v1: 4 members, 1 actor, on the CPU\n")


@pytest.mark.parametrize(
    ("algorithm", "setting", "meant"),
    [
        ("ppo", "total_timesteps", "total_steps"),
        ("ppo", "lr", "learning_rate"),
        ("ppo", "n_steps", "rollout_steps"),
        ("ppo", "batch_size", "minibatch_size"),
        ("ppo", "learnin_rate", "learning_rate"),
        ("dqn", "n_steps", "n_step"),
        ("dqn", "buffer_size", "replay_capacity"),
        ("sac", "ent_coef", "temperature"),
    ],
)
def test_a_setting_of_another_name_is_suggested(algorithm, setting, meant):
    with pytest.raises(ConfigError, match=f"no setting '{setting}' \\(did you mean '{meant}'\\?\\)"):
        train(algorithm, **{setting: 1})


class Falls(gymnasium.Wrapper):
    steps = 0

    def step(self, action):
        self.steps += 1
        if self.steps == 150:
            raise ValueError("the cart left the rails")
        return super().step(action)


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_a_failing_environment_ends_the_run_and_leaves_it_resumable(tmp_path, kind):
    options = SMALL | {"env": lambda: Falls(gymnasium.make("CartPole-v1")), "actor_kind": kind}
    with pytest.raises(WorkerError, match="the cart left the rails"):
        train("dqn", **options, actors=2, learners=1, total_steps="1M", runs=str(tmp_path), name="fails")
    # Learner and replay are saved; the environments start anew and fail again in the same way.
    first = _counters(tmp_path / "fails")
    assert first["env_steps"] > 0 and not any(first["actors_saved"])
    with pytest.raises(WorkerError, match="the cart left the rails"):
        resume(tmp_path / "fails")
    second = _counters(tmp_path / "fails")
    assert second["env_steps"] > first["env_steps"] and second["resumes"] == 1


def test_an_environment_that_fails_in_the_training_process_leaves_the_run_resumable(tmp_path, capfd):
    options = {"env": lambda: Falls(gymnasium.make("CartPole-v1")), "runs": str(tmp_path), "name": "fails"}
    options |= {"num_envs": 4, "rollout_steps": 40, "evaluation_episodes": 0}
    with pytest.raises(ValueError, match="the cart left the rails"):
        train("a2c", **options, total_steps=10_000)
    first = _counters(tmp_path / "fails")
    # Three rollouts were whole; the environments start anew and fail again in the same way.
    assert first["env_steps"] > 400 and (first["updates"], first["actors_saved"]) == (3, [False])
    assert "saved in" in capfd.readouterr().err
    with pytest.raises(ValueError, match="the cart left the rails"):
        resume(tmp_path / "fails")
    second = _counters(tmp_path / "fails")
    assert (second["updates"], second["resumes"]) == (6, 1)


def test_an_environment_that_fails_in_an_evaluation_leaves_the_state_of_the_run(tmp_path):
    options = {"env": lambda: Falls(gymnasium.make("CartPole-v1")), "runs": str(tmp_path), "name": "fails"}
    options |= {"num_envs": 4, "rollout_steps": 40, "evaluation_every": 300, "evaluation_episodes": 1_000}
    with pytest.raises(ValueError, match="the cart left the rails"):
        train("a2c", **options, total_steps=10_000)
    counters = _counters(tmp_path / "fails")
    assert counters["env_steps"] >= 300 and counters["actors_saved"] == [True]


def test_a_deterministic_run_with_a_replay_keeps_its_last_checkpoint(tmp_path, capfd):
    options = SMALL | {"env": lambda: Falls(gymnasium.make("CartPole-v1")), "checkpoint_every": 400}
    options |= {"schedule": "deterministic", "runs": str(tmp_path), "name": "fails", "quiet": False}
    with pytest.raises(ValueError, match="the cart left the rails"):
        train("dqn", **options, total_steps=10_000)
    assert _counters(tmp_path / "fails")["env_steps"] in range(400, 404)
    assert "a deterministic run goes on from its last checkpoint" in capfd.readouterr().err


def _counters(path):
    folder = RunDirectory.open(path).checkpoints.last()
    return json.loads((folder / "counters.json").read_text())


def test_a_worker_that_imports_the_script_of_its_parent_does_not_train(tmp_path, monkeypatch):
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    for start in (lambda: train("dqn", "CartPole-v1", runs=str(tmp_path)), lambda: resume(tmp_path)):
        with pytest.raises(WorkerError, match='below `if __name__ == "__main__":`'):
            start()
    assert not list(tmp_path.iterdir())


def test_settings_are_checked(tmp_path):
    with pytest.raises(ConfigError, match="learning_rate"):
        train("dqn", env="CartPole-v1", learning_rat=1.0, runs=str(tmp_path))
    with pytest.raises(ConfigError, match="no algorithm 'dqm'"):
        train("dqm")
    with pytest.raises(ConfigError, match="batch_size = 32 is no multiple of learners = 3"):
        train("dqn", **SMALL, learners=3)
    with pytest.raises(ConfigError, match="actors = 9 is above num_envs = 4"):
        train("dqn", **SMALL, actors=9)
    with pytest.raises(ConfigError, match="replay_ratio"):
        OffPolicyRunConfig(replay_ratio=float("nan"))
    with pytest.raises(ConfigError, match="schedule"):
        OffPolicyRunConfig(schedule="loose")
    assert not any(tmp_path.iterdir())


def test_the_settings_of_an_environment_are_left_as_they_are(tmp_path):
    """Runs keep all but the number of environments, which is that of a probe."""
    own = {"num_envs": 3, "length": 0.5}

    def carts(num_envs, settings=own):
        made = gymnasium.make_vec("CartPole-v1", num_envs=num_envs, vectorization_mode="sync")
        made.settings = settings
        return made

    options = SMALL | {"schedule": "deterministic", "total_steps": 8, "evaluation_episodes": 1}
    options |= {"runs": str(tmp_path)}
    run = train("dqn", **options | {"env": carts})
    assert own == {"num_envs": 3, "length": 0.5}
    assert RunDirectory.open(run.path).about["environment"] == {"length": 0.5}
    run = train("dqn", **options | {"env": functools.partial(carts, settings=7)})
    assert "environment" not in RunDirectory.open(run.path).about


def test_settings_are_read_from_a_file():
    config, algorithm = default_settings("dqn")
    table = {"run": {"total_steps": "2.5M", "stop_at_return": 475}, "dqn": {"hidden": [7], "gamma": 1}}
    config, algorithm = settings_from("dqn", table, "x.toml")
    assert config.total_steps == 2_500_000
    assert config.stop_at_return == 475.0
    assert algorithm.hidden == (7,)
    with pytest.raises(ConfigError, match=r"x\.toml \[dqn\].*gama.*gamma"):
        settings_from("dqn", {"dqn": {"gama": 1}}, "x.toml")
    with pytest.raises(ConfigError, match="'sac'"):
        settings_from("dqn", {"algorithm": "sac"}, "x.toml")


SCRIPT = """
import sys
from parl.train import train

if __name__ == "__main__":
    try:
        run = train(
            "dqn", env="CartPole-v1", total_steps="100M", actors=2, learners=2, num_envs=4, batch_size=32,
            learning_starts=100, replay_capacity=4000, hidden=(16,), n_step=3, runs=sys.argv[1], name="long",
            log_every_s=0.1, checkpoint_every=600, quiet=True, schedule=sys.argv[2],
        )
        print(run.stopped)
    except KeyboardInterrupt as error:
        print("KeyboardInterrupt:", error.run.stopped, error.run.path.name)
"""


def children(pid):
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat") as file:
                    if int(file.read().rsplit(")", 1)[1].split()[1]) == pid:
                        found.append(int(entry))
            except (FileNotFoundError, ProcessLookupError):
                pass
    return found


def start(tmp_path, schedule="async"):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "temporary").mkdir()
    environment = os.environ | {"TMPDIR": str(tmp_path / "temporary")}
    process = forked.Program([script, tmp_path / "runs", schedule], tmp_path, environment, whole_exit=True)
    index = tmp_path / "runs" / "long" / "checkpoints" / "index.json"
    deadline = time.monotonic() + 120
    while not index.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return process, children(process.pid)


def wait_for_end(pids, within_s=120.0):
    deadline = time.monotonic() + within_s
    while any(os.path.exists(f"/proc/{pid}") for pid in pids):
        assert time.monotonic() < deadline, "processes still run"
        time.sleep(0.02)


def segments(pid):
    return [name for name in os.listdir("/dev/shm") if name.startswith(f"parl-{pid}-")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("schedule", ["async", "deterministic"])
def test_interrupted_runs_save_and_exit_clean(tmp_path, number, schedule):
    if number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip("the tests run under nohup")
    process, workers = start(tmp_path, schedule)
    assert len(workers) == (3 if schedule == "async" else 0)
    os.killpg(process.pid, number)  # as a terminal, timeout(1) and managers of services and clusters do
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    assert out.strip() == "KeyboardInterrupt: interrupted long"
    wait_for_end(workers)
    assert not segments(process.pid)
    path = tmp_path / "runs" / "long"
    counters = json.loads((RunDirectory.open(path).checkpoints.last() / "counters.json").read_text())
    # Async actors continue between the last record and the checkpoint.
    assert counters["env_steps"] >= read_metrics(path)[-1]["env_steps"] > 600


def start_hanging(algorithm, folder):
    """Starts a run and waits until its environment hangs."""
    script = os.path.join(os.path.dirname(__file__), "train_hanging_env.py")
    process = forked.Program([script, algorithm, folder, "400"], folder)
    deadline = time.monotonic() + 120
    while not (folder / "hangs").exists():
        assert process.poll() is None and time.monotonic() < deadline, process.communicate()
        time.sleep(0.05)
    return process


@pytest.mark.parametrize(
    "algorithm", ["dqn", *(pytest.param(name, marks=pytest.mark.slow) for name in ("impala", "a3c", "es"))]
)
def test_an_interrupt_does_not_wait_for_an_environment_that_hangs(tmp_path, algorithm):
    process = start_hanging(algorithm, tmp_path)
    os.killpg(process.pid, signal.SIGINT)
    # The environment would hang for an hour.
    out, err = process.communicate(timeout=200)
    assert (process.returncode, out.strip()) == (0, "interrupted"), err
    assert RunDirectory.open(tmp_path / "run").checkpoints.verified("last")


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("ppo", "an iteration of the training or a callback did not end within 6 s; nothing is saved"),
        ("evaluation", "the evaluation was aborted"),
    ],
)
def test_an_interrupt_ends_a_run_whose_main_process_hangs(tmp_path, where, message):
    """If a training step hangs, nothing can be saved; if an evaluation hangs, everything is saved."""
    process = start_hanging(where, tmp_path)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert message in out + err
    if where == "evaluation":
        assert process.returncode == 0 and out.strip().endswith("interrupted")
        assert RunDirectory.open(tmp_path / "run").checkpoints.verified("last")
    else:
        assert process.returncode == -signal.SIGINT and "there is no earlier checkpoint" in out + err


@pytest.fixture
def disk():
    """A folder that is not in /dev/shm, where temporary ones may be."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


def test_without_shared_memory_processes_share_files(disk):
    """Runs in a mount namespace whose /dev/shm is read-only."""
    script = disk / "script.py"
    total = SCRIPT.replace('"100M"', "600").replace("print(run.stopped)", "print(run.env_steps)")
    script.write_text(textwrap.dedent(total))
    alone = ["unshare", "--mount", *([] if os.getuid() == 0 else ["--map-root-user"]), "sh", "-c"]
    mount = "mount -t tmpfs -o ro none /dev/shm"
    if subprocess.run([*alone, mount], capture_output=True).returncode:
        pytest.skip("this machine does not allow mount namespaces")
    (disk / "temporary").mkdir()
    done = subprocess.run(
        [*alone, f"{mount} && exec {sys.executable} {script} {disk / 'runs'} async"],
        env=os.environ | {"TMPDIR": str(disk / "temporary")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 600
    assert done.stderr.count("/dev/shm is missing or not writable") == 1
    assert not list((disk / "temporary").glob("parl-*"))


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_killed_worker_ends_the_run_with_a_status(tmp_path, which):
    process, workers = start(tmp_path)
    os.kill(sorted(workers)[which], signal.SIGKILL)
    _, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert "was killed by signal 9 (SIGKILL)" in err
    wait_for_end(workers)
    assert not segments(process.pid)
    # The checkpoint is complete: the run can be resumed.
    path = tmp_path / "runs" / "long"
    steps = json.loads((RunDirectory.open(path).checkpoints.last() / "counters.json").read_text())[
        "env_steps"
    ]
    assert resume(path, total_steps=steps + 500).env_steps >= steps + 500


def test_workers_of_a_killed_driver_end(tmp_path):
    process, workers = start(tmp_path)
    process.kill()
    process.communicate(timeout=200)
    wait_for_end(workers)
    assert not segments(process.pid)
    assert not list((tmp_path / "temporary").glob("parl-*"))
