"""Two processes of torchrun learn together, save, and go on."""

import json
import subprocess
import sys

import pytest
import torch

from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.runtime.torchrun import Group
from parl.train import train

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
    "total-frames": "1600",
    "evaluation-episodes": "5",
    "checkpoint-every": "800",
}


def torchrun(*arguments, cwd):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, "-m", "parl", *arguments], cwd=cwd, capture_output=True, text=True, timeout=550
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done


@pytest.mark.timeout(600)
def test_two_processes_learn_as_one_and_resume(tmp_path):
    words = [word for name, value in OPTIONS.items() for word in (f"--{name}", value)]
    torchrun("train", "dqn", *words, "--name", "pair", cwd=tmp_path)
    path = tmp_path / "runs" / "pair"
    run = RunDirectory.open(path)
    assert run.config["run"]["batch_size"] == 32 and len(list((tmp_path / "runs").iterdir())) == 1
    # Both saved at the same border, with the same weights and rows of their own.
    first, other = run.checkpoints.last(), RunDirectory(path / "rank-1").path
    other = other / json.loads((other / "index.json").read_text())["last"]
    learners = [torch.load(folder / "learner.pt", weights_only=True) for folder in (first, other)]
    assert torch.equal(learners[0]["weights"], learners[1]["weights"])
    counters = [json.loads((folder / "counters.json").read_text()) for folder in (first, other)]
    assert counters[0]["updates"] == counters[1]["updates"] > 100
    assert (first / "replay.bin").read_bytes() != (other / "replay.bin").read_bytes()
    records = [record for record in read_metrics(path) if "replay_ratio" in record]
    assert 1_600 <= records[-1]["env_steps"] <= 1_700
    # Each draws 16 of 32 rows an update from its own half of the steps: the ratio is that of the settings.
    assert records[-1]["replay_ratio"] == pytest.approx(4.0, rel=0.15)
    config = (path / "config.toml").read_text().replace("total_frames = 1600", "total_frames = 2400")
    (path / "config.toml").write_text(config)
    torchrun("resume", str(path), cwd=tmp_path)
    now = json.loads((run.checkpoints.last() / "counters.json").read_text())
    assert now["updates"] > counters[0]["updates"]


def test_what_torchrun_cannot_share_is_named(monkeypatch):
    group = Group(0, 2, 0)
    assert group.share("batch_size", 64) == 32 and group.device("cuda") == "cuda:0"
    with pytest.raises(ConfigError, match="batch_size = 33 is no multiple of the 2 processes"):
        group.share("batch_size", 33)
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.setenv(name, "0")
    for name, value in {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="ppo keeps no replay"):
        train("ppo", "CartPole-v1", quiet=True)
