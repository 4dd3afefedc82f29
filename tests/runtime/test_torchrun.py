"""Two processes of torchrun learn together, save and resume."""

import json
import os
import socket
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import forked
from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.run.listing import listed
from parl.runtime.distributed.group import Group
from parl.train import protocol, resume, train
from saved_learners import learner_in

OPTIONS = {
    "env": "CartPole-v1",
    "num-envs": "4",
    "actors": "2",
    "batch-size": "32",
    "replay-ratio": "4",
    "learning-starts": "200",
    "replay-capacity": "4000",
    "hidden": "16",
    "n-step": "3",
    "total-steps": "1600",
    "evaluation-episodes": "5",
    "checkpoint-every": "800",
}


def torchrun(*arguments, cwd):
    command = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = forked.run([*command, "-m", "parl", *arguments], cwd)
    assert done.returncode == 0, done.stderr[-4000:]
    return done


def pair(*arguments, cwd):
    """As :func:`torchrun`: starts two processes with the variables that it sets, but not torchrun itself."""
    for status, err in ends_of_pair(*arguments, cwd=cwd):
        assert status == 0, err[-4000:]


def ends_of_pair(*arguments, cwd):
    """Exit status and standard error of both processes, see :func:`pair`."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    running = [
        forked.Program(["-m", "parl", *arguments], cwd, os.environ | common | {"RANK": r, "LOCAL_RANK": r})
        for r in "01"
    ]
    errors = [program.communicate(550)[1] for program in running]
    return [(program.returncode, err) for program, err in zip(running, errors, strict=True)]


BROKEN = """
import os, gymnasium

class Broken(gymnasium.Wrapper):
    def step(self, action):
        self.steps = getattr(self, "steps", 0) + 1
        if os.environ["RANK"] == "1" and self.steps == 100:
            raise ValueError("the pole broke")
        return super().step(action)
"""


@pytest.mark.parametrize(
    ("words", "failure"),
    [
        ("ppo --rollout-steps 20", "ValueError: the pole broke"),
        # The first process notices it when it asks for a checkpoint.
        ("dqn --learning-starts 50k --checkpoint-every 300", "WorkerError: actor 0 failed:\n"),
    ],
)
def test_a_process_that_fails_is_named_and_the_first_one_saves(tmp_path, words, failure):
    (tmp_path / "broken_in_torchrun.py").write_text(BROKEN)
    words += " --env CartPole-v1 --import broken_in_torchrun --wrappers broken_in_torchrun:Broken"
    words += " --num-envs 2 --hidden 4 --evaluation-episodes 0 --total-steps 100k --name broken"
    ends = ends_of_pair("train", *words.split(), cwd=tmp_path)
    assert [status for status, _ in ends] == [1, 1]
    assert f"parl: process 1 of torchrun failed: {failure}" in ends[0][1]
    assert "saved in runs/broken, parl resume goes on from there" in ends[0][1]
    assert all("ValueError: the pole broke" in err for _, err in ends)
    assert RunDirectory.open(tmp_path / "runs" / "broken").checkpoints.verified("last")


STOP = """
import os, pathlib

class Stop:
    def on_start(self, run):
        pathlib.Path(f"called-{os.environ['RANK']}").touch()

    def on_record(self, record):
        return False
"""


def test_callbacks_are_called_in_the_first_process_and_end_both(tmp_path):
    (tmp_path / "stop_of_torchrun.py").write_text(STOP)
    options = ["--num-envs", "4", "--rollout-steps", "8", "--hidden", "4", "--evaluation-episodes", "0"]
    words = ["--total-steps", "10M", "--callback", "stop_of_torchrun:Stop", "--name", "stopped"]
    pair("train", "ppo", *options, *words, cwd=tmp_path)
    assert [path.name for path in tmp_path.glob("called-*")] == ["called-0"]
    assert RunDirectory.open(tmp_path / "runs" / "stopped").checkpoints_of(1).verified("last")


@pytest.mark.slow(minutes=1)
@pytest.mark.timeout(600)
def test_two_processes_train_dqn_together_and_resume(tmp_path):
    words = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    done = torchrun("train", "dqn", *words, "--name", "pair", cwd=tmp_path)
    sentence = (
        "dqn on CartPole-v1: 4 environments, 2 processes with 2 actors and 1 learner each, on the CPU\n"
    )
    assert done.stderr.count(sentence) == 1
    path = tmp_path / "runs" / "pair"
    run = RunDirectory.open(path)
    assert run.config["run"]["batch_size"] == 32 and len(list((tmp_path / "runs").iterdir())) == 1
    # Both saved after the same update, with the same weights and different rows.
    first, other = run.checkpoints.last(), RunDirectory(path / "rank-1").path
    other = other / json.loads((other / "index.json").read_text())["last"]["folder"]
    learners = [learner_in(folder) for folder in (first, other)]
    assert torch.equal(learners[0]["weights"], learners[1]["weights"])
    counters = [json.loads((folder / "counters.json").read_text()) for folder in (first, other)]
    assert counters[0]["updates"] == counters[1]["updates"] > 100
    assert (first / "replay.bin").read_bytes() != (other / "replay.bin").read_bytes()
    records = [record for record in read_metrics(path) if "replay_ratio" in record]
    assert 1_600 <= records[-1]["env_steps"] <= 1_700
    # Each draws 16 of the 32 rows per update from its half of the steps: the ratio is that of the settings.
    assert records[-1]["replay_ratio"] == pytest.approx(4.0, rel=0.15)
    pair("resume", str(path), "--total-steps", "2400", cwd=tmp_path)
    now = json.loads((run.checkpoints.last() / "counters.json").read_text())
    assert now["updates"] > counters[0]["updates"]


def test_two_processes_that_send_16_bits_have_equal_weights(tmp_path):
    words = (
        "train dqn --env CartPole-v1 --total-steps 800 --num-envs 4 --actors 2 --hidden 16 --batch-size 32"
    )
    words += " --learning-starts 100 --replay-ratio 4 --evaluation-episodes 0 --name half"
    pair(*words.split(), "--gradient-compression", "bf16", cwd=tmp_path)
    run = RunDirectory.open(tmp_path / "runs" / "half")
    folders = [run.checkpoints.last(), saved_at(run.path / "rank-1")]
    learners = [learner_in(folder) for folder in folders]
    assert torch.equal(learners[0]["weights"], learners[1]["weights"])
    assert learners[0]["updates"] == learners[1]["updates"] > 20


STEPS = """
import pathlib

class Steps:
    def on_start(self, run):
        self.write("start", run)

    def on_checkpoint(self, checkpoint):
        self.write("checkpoint", checkpoint)

    def write(self, name, event):
        pathlib.Path(name).write_text(str(event.env_steps))
"""


def test_a_checkpoint_counts_the_steps_of_all_processes(tmp_path):
    (tmp_path / "steps_of_torchrun.py").write_text(STEPS)
    words = (
        "train dqn --env CartPole-v1 --total-steps 400 --num-envs 4 --actors 2 --hidden 16 --batch-size 32"
    )
    words += " --learning-starts 100 --evaluation-episodes 2 --name pair --callback steps_of_torchrun:Steps"
    pair(*words.split(), cwd=tmp_path)
    path = tmp_path / "runs" / "pair"
    folder = RunDirectory.open(path).checkpoints.last()
    saved = json.loads((folder / "counters.json").read_text())
    assert saved["env_steps"] == 2 * saved["own_env_steps"] == int(folder.name[5:]) >= 400
    assert (tmp_path / "checkpoint").read_text() == str(saved["env_steps"])
    assert f"weights after {saved['env_steps']} steps" in protocol(path)
    assert listed(path).state == "ended"
    pair("resume", str(path), "--total-steps", "600", "--callback", "steps_of_torchrun:Steps", cwd=tmp_path)
    # Actors may have taken steps before the callback is called.
    assert saved["env_steps"] <= int((tmp_path / "start").read_text()) < 600
    now = [
        json.loads((saved_at(each) / "counters.json").read_text())
        for each in (path / "checkpoints", path / "rank-1")
    ]
    assert 600 <= now[0]["env_steps"] < 700
    assert all(one["own_env_steps"] < 350 for one in now)


def test_processes_that_do_not_learn_yet_save_and_end_together(tmp_path):
    words = "train dqn --env CartPole-v1 --total-steps 200 --num-envs 4 --actors 2 --hidden 16 --name short"
    pair(*words.split(), "--learning-starts", "1000", "--evaluation-episodes", "0", cwd=tmp_path)
    run = RunDirectory.open(tmp_path / "runs" / "short")
    for folder in (run.checkpoints.last(), saved_at(run.path / "rank-1")):
        assert json.loads((folder / "counters.json").read_text())["updates"] == 0


def test_compression_without_torchrun_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="gradient_compression = 'fp16' has no effect without torchrun"):
        train("dqn", "CartPole-v1", gradient_compression="fp16", runs=str(tmp_path), quiet=True)


def saved_at(folder):
    return folder / json.loads((folder / "index.json").read_text())["last"]["folder"]


@pytest.mark.timeout(600)
def test_two_processes_train_ppo_together_and_resume(tmp_path):
    """Each process collects rollouts in its own environments; the weights are equal."""
    options = {"num-envs": 6, "rollout-steps": 16, "minibatch-size": 48, "epochs": 2, "hidden": 16}
    options |= {"evaluation-episodes": 3, "checkpoint-every": 800, "total-steps": 2_400}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    words = ["train", "ppo", "--env", "CartPole-v1", "--normalize-rewards", *words]
    pair(*words, "--name", "whole", cwd=tmp_path)
    whole = tmp_path / "runs" / "whole"
    run = RunDirectory.open(whole)
    folders = [run.checkpoints.last(), saved_at(whole / "rank-1")]
    learners = [learner_in(folder) for folder in folders]
    assert torch.equal(learners[0]["weights"], learners[1]["weights"])
    assert (folders[0] / "actor-0.npz").read_bytes() != (folders[1] / "actor-0.npz").read_bytes()
    counters = [json.loads((folder / "counters.json").read_text()) for folder in folders]
    assert counters[0]["updates"] == counters[1]["updates"]
    # Both count the steps of the whole run: up to 96 per rollout, for 2 epochs of 2 minibatches of 48.
    assert 2_400 <= counters[0]["env_steps"] <= 2_496 and 2_400 <= counters[1]["env_steps"] <= 2_496
    assert 100 <= counters[0]["updates"] <= 116 and counters[0]["updates"] % 4 == 0
    pair("resume", str(whole), cwd=tmp_path)
    with pytest.raises(ConfigError, match=r"trained by 2 processes, .*: it cannot go on with 1"):
        resume(whole)


def one_update_per_rollout(path):
    """Both processes saved after the same update, with equal weights and actors of their own."""
    folders = [RunDirectory.open(path).checkpoints.last(), saved_at(path / "rank-1")]
    learners = [learner_in(folder) for folder in folders]
    assert torch.equal(learners[0]["weights"], learners[1]["weights"])
    assert (folders[0] / "actor-0.npz").read_bytes() != (folders[1] / "actor-0.npz").read_bytes()
    counters = [json.loads((folder / "counters.json").read_text()) for folder in folders]
    assert counters[0]["updates"] == counters[1]["updates"]
    return counters[0]


@pytest.mark.timeout(600)
def test_two_processes_train_impala_together_and_resume(tmp_path):
    """The first process starts an update when it has a rollout, and the other joins with its next one."""
    options = {"num-envs": 4, "actors": 2, "rollout-steps": 10, "hidden": 16, "max-lag": 1}
    options |= {"evaluation-episodes": 3, "checkpoint-every": 800, "total-steps": 2_400}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    words = ["train", "impala", "--env", "CartPole-v1", "--normalize-observations", *words]
    pair(*words, "--name", "whole", cwd=tmp_path)
    path = tmp_path / "runs" / "whole"
    counters = one_update_per_rollout(path)
    records = [record for record in read_metrics(path) if "rollouts_left_out" in record]
    # Rollouts have 10 steps of 2 environments in each process; one with a lag above 1 gives no update.
    assert 2_400 <= counters["env_steps"] <= 2_480 and 20 < counters["updates"] <= 80
    assert 0 <= records[-1]["policy_lag"] <= records[-1]["policy_lag_max"]
    pair("resume", str(path), "--total-steps", "3200", cwd=tmp_path)
    assert one_update_per_rollout(path)["updates"] > counters["updates"]


@pytest.mark.timeout(600)
def test_two_processes_learn_from_files_together(tmp_path):
    """Each process reads the rows in an order of its own, half of each minibatch."""
    rng = np.random.default_rng(0)
    np.savez(
        tmp_path / "play.npz",
        observations=rng.normal(size=(500, 4)).astype(np.float32),
        actions=rng.integers(0, 2, 500),
    )
    options = {"data": "play.npz", "num-envs": 4, "rollout-steps": 10, "total-steps": 800, "hidden": 8}
    words = [str(word) for name, value in options.items() for word in (f"--{name}", value)]
    words += ["--evaluation-episodes", "2", "--env", "CartPole-v1", "--name", "files"]
    pair("train", "bc", *words, cwd=tmp_path)
    counters = one_update_per_rollout(tmp_path / "runs" / "files")
    assert counters["env_steps"] == 800 and counters["updates"] >= 20


RESUMED = """
import sys, warnings, torch
import torch.distributed as dist
from pathlib import Path
from parl.algos.ppo import PPO, Config
from parl.envs import EnvMaker, spec_of
from parl.runtime import checkpoint
from parl.runtime.on_policy.setup import RolloutSetup
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.runtime.distributed.group import Group

folder, rank = Path(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
maker = EnvMaker("CartPole-v1")
spec = spec_of(maker(1))
config = Config(rollout_steps=16, hidden=(16,), minibatch_size=32, epochs=2, normalize_observations=True)
setup = RolloutSetup(
    algorithm=PPO(config, spec), maker=maker, spec=spec, seed=0, num_envs=2, total_steps=10_000,
    group=Group(rank, 2, rank),
)

def run(saved, save):
    loop = SyncRolloutLoop(setup, saved)
    if rank:
        loop.run_follower_rank(save)
    else:
        loop.advance(700, 0.0)
        if saved is None:
            loop.save(folder / "0")
            loop.take_episodes()
        loop.advance(2_000, 0.0)
    found = (loop.updates, loop.learner.weights.clone(), loop.take_episodes())
    loop.close()
    return found

first = run(None, lambda write: write(folder / "1"))
again = run(checkpoint.read(folder / str(rank)), None)
assert first[0] == again[0] > 60, (first[0], again[0])
assert torch.equal(first[1], again[1])
assert rank or first[2] == again[2]
torch.save(first[1], folder / f"{rank}.pt")
dist.destroy_process_group()
"""


def test_a_resumed_group_repeats_the_uninterrupted_one(tmp_path):
    script = tmp_path / "resumed.py"
    script.write_text(RESUMED)
    for rank in "01":
        (tmp_path / rank).mkdir()
    for program in [forked.Program([script, tmp_path, rank], tmp_path) for rank in "01"]:
        _, err = program.communicate(200)
        assert program.returncode == 0, err
    weights = [torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in "01"]
    assert torch.equal(*weights)


def test_settings_that_cannot_be_divided_are_refused(monkeypatch):
    group = Group(0, 2, 0)
    assert group.share("batch_size", 64) == 32 and group.device("cuda") == "cuda:0"
    with pytest.raises(ConfigError, match="batch_size = 33 is no multiple of the 2 processes"):
        group.share("batch_size", 33)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"es cannot run under torchrun, only: a2c, bc, .*, impala, ppo"):
        train("es", "CartPole-v1", quiet=True)


@pytest.mark.parametrize(
    ("settings", "freeze_after", "reason"),
    [
        ({"dataset": "games.npz"}, 0, "a run with dataset = 'games.npz' is a single process"),
        ({"actors": 1}, 5_000, "freeze_after = 5000 converts a replay in the memory of one process"),
        (
            {"actors": 1, "device": "cuda"},
            0,
            "a run with a replay and environments on a CUDA device is a single process",
        ),
    ],
)
def test_runs_of_a_single_process_refuse_several(monkeypatch, settings, freeze_after, reason):
    from parl.envs import EnvMaker
    from parl.train.topologies import TOPOLOGIES

    topology = TOPOLOGIES["replay"]
    config = topology.config(schedule="async", learners=1, threads=1, **settings)
    maker = EnvMaker("parl/Pong-v0", {"device": config.device})
    algorithm = SimpleNamespace(freeze_after=freeze_after)
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    assert topology.resolve_auto(algorithm, config, maker, None, print).learners == 1
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=f"{reason}: start the run without torchrun"):
        topology.resolve_auto(algorithm, config, maker, None, print)


@pytest.mark.parametrize(("cores", "num_envs", "actors"), [(2, 8, 2), (8, 8, 6), (8, 4, 4), (64, 256, 32)])
def test_all_processes_choose_the_same_number_of_actors(monkeypatch, cores, num_envs, actors):
    from parl.envs import EnvMaker, spec_of
    from parl.train.registry import make_algorithm, topology_of
    from parl.train.settings import default_settings, replace
    from parl.train.topologies import off_policy

    monkeypatch.setattr(Group, "from_environment", lambda: Group(rank=1, size=2, local_rank=1, local_size=2))
    monkeypatch.setattr(off_policy, "usable_cores", lambda: cores)
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    run, own = default_settings("dqn", spec)
    run = replace(run, {"num_envs": num_envs, "threads": 1}, "dqn")
    said = []
    settled = topology_of("dqn").resolve_auto(make_algorithm("dqn", own, spec), run, maker, spec, said.append)
    assert (settled.actors, settled.learners) == (actors, 1)
    assert f"actors in each process: {actors // 2}" in said[-1]


@pytest.mark.parametrize(
    ("cores", "num_envs", "schedule", "actors"),
    [(2, 8, "async", 2), (8, 16, "async", 8), (8, 4, "async", 4), (8, 16, "deterministic", 2)],
)
def test_processes_of_impala_share_environments_and_actors(monkeypatch, cores, num_envs, schedule, actors):
    from parl.envs import EnvMaker, spec_of
    from parl.train.registry import make_algorithm, topology_of
    from parl.train.settings import default_settings, replace
    from parl.train.topologies import rollouts

    monkeypatch.setattr(Group, "from_environment", lambda: Group(rank=1, size=2, local_rank=1, local_size=2))
    monkeypatch.setattr(rollouts, "usable_cores", lambda: cores)
    maker = EnvMaker("CartPole-v1")
    spec = spec_of(maker(1))
    run, own = default_settings("impala", spec)
    run = replace(run, {"num_envs": num_envs, "schedule": schedule}, "impala")
    made, said = make_algorithm("impala", own, spec), []
    settled = topology_of("impala").resolve_auto(made, run, maker, spec, said.append)
    assert settled.actors == actors
    assert said == [f"actors in each of 2 processes of torchrun: {actors // 2}"]
    setup = topology_of("impala").setup(made, settled, maker, spec)
    assert (setup.num_envs, setup.actors, setup.group.rank) == (num_envs // 2, actors // 2, 1)
    odd = replace(settled, {"num_envs": 9}, "impala")
    with pytest.raises(ConfigError, match="num_envs = 9 is no multiple of the 2 processes of torchrun"):
        topology_of("impala").setup(made, odd, maker, spec)
