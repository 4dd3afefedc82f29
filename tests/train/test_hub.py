"""Folders for the Hugging Face Hub; upload and download are replaced by copies of a local folder."""

import json
import shutil
import sys

import gymnasium
import huggingface_hub
import numpy as np
import pytest
import torch
from trained_policies import train_small

import parl
from parl.cli import main
from parl.errors import ConfigError, UntrustedRunError
from parl.run import load_toml

FILES = {"README.md", "config.toml", "counters.json", "policy.safetensors", "run.json"}


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A folder in place of the Hub, with a folder for each repository."""
    folder = tmp_path / "hub"

    class Api:
        def __init__(self, token=None):
            self.token = token

        def create_repo(self, repo_id, *, private, exist_ok):
            assert exist_ok and self.token == "secret" and private
            (folder / repo_id).mkdir(parents=True)

        def upload_folder(self, *, repo_id, folder_path, commit_message):
            shutil.copytree(folder_path, folder / repo_id, dirs_exist_ok=True)
            return f"https://hub/{repo_id}/{commit_message}"

    def download(repo_id, *, revision, allow_patterns):
        assert revision in (None, "v1")
        there = tmp_path / "downloaded"
        there.mkdir()
        for name in allow_patterns:
            shutil.copyfile(folder / repo_id / name, there / name)
        return str(there)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    return folder


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_a_folder_for_the_hub_can_be_loaded(tmp_path, name):
    run = train_small(tmp_path, name)
    (run.path / "videos").mkdir()
    (run.path / "videos" / "one.mp4").write_bytes(b"video")
    policy = parl.load(run.path)
    folder = policy.save_for_hub(tmp_path / "saved")
    assert {path.name for path in folder.iterdir()} == FILES | {"learning-curve.png", "replay.mp4"}
    again = parl.load(folder)
    assert torch.equal(again.acting.weights, policy.acting.weights)
    assert again.config.algorithm == policy.config.algorithm and again.env_steps == policy.env_steps
    assert again.config.run.seed == 3 and again.config.run.runs == "runs"
    envs = again.env_maker(2)
    obs, _ = envs.reset(seed=0)
    np.testing.assert_array_equal(again.predict(obs)[0], policy.predict(obs)[0])
    everything = b"".join(path.read_bytes() for path in folder.iterdir())
    assert str(tmp_path).encode() not in everything
    third = parl.load(again.save_for_hub(tmp_path / "third"))
    assert torch.equal(third.acting.weights, policy.acting.weights)
    assert (tmp_path / "third" / "replay.mp4").read_bytes() == b"video"
    with pytest.raises(ConfigError, match=r"has no learner\.pt: name a run"):
        parl.train(name, env="CartPole-v1", init_from=folder, runs=str(tmp_path), total_steps=1)


def test_the_model_card_has_settings_and_score(tmp_path):
    run = train_small(tmp_path, "ppo")
    card = (parl.load(run.path).save_for_hub(tmp_path / "saved") / "README.md").read_text()
    _, head, text = card.split("---\n", 2)
    data = {key: json.loads(value) for key, value in (line.split(": ", 1) for line in head.splitlines())}
    assert data["library_name"] == "parl" and {"ppo", "CartPole-v1", "reinforcement-learning"} <= {
        *data["tags"]
    }
    (metric,) = data["model-index"][0]["results"][0]["metrics"]
    assert metric["value"].startswith(f"{run.evaluation_return:.2f} +/- ")
    (result,) = huggingface_hub.ModelCard(card).data.eval_results
    assert (result.dataset_name, result.metric_type) == ("CartPole-v1", "mean_reward")
    assert "Protocol: ppo on CartPole-v1, greedy, 1 whole undiscounted episodes" in text
    assert "parl.load('saved')" in text and "![Learning curve](learning-curve.png)" in text
    assert load_toml(tmp_path / "saved" / "config.toml")["ppo"]["hidden"] == [2] and "hidden = [" in text


def test_a_dataset_is_named_without_its_folder(tmp_path):
    (tmp_path / "private").mkdir()
    dataset = parl.datasets.record("pong", tmp_path / "private" / "pong.parl", 300, num_envs=2)
    options = {"env_options": {"obs_type": "ram"}, "hidden": (2,), "num_envs": 2, "batch_size": 8}
    options |= {"replay_capacity": 1_000, "total_steps": 16, "evaluation_episodes": 0, "quiet": True}
    run = parl.train("dqn", dataset=dataset.path, runs=str(tmp_path), **options)
    folder = parl.load(run.path).save_for_hub(tmp_path / "saved")
    assert load_toml(folder / "config.toml")["run"]["dataset"] == "pong.parl"
    assert not any(b"private" in file.read_bytes() for file in folder.iterdir())
    assert parl.load(folder).env_steps == run.env_steps
    bc = parl.train(
        "bc",
        dataset=dataset.path,
        runs=str(tmp_path),
        env_options={"obs_type": "ram"},
        num_envs=2,
        rollout_steps=8,
        hidden=(2,),
        total_steps=16,
        evaluation_episodes=0,
        quiet=True,
    )
    folder = parl.load(bc.path).save_for_hub(tmp_path / "cloned")
    assert parl.load(folder).config.run.dataset == "pong.parl"


def test_changed_weights_are_saved(tmp_path):
    policy = parl.load(train_small(tmp_path, "dqn").path)
    with torch.no_grad():
        policy.network.head.values.bias.fill_(5.0)
    again = parl.load(policy.save_for_hub(tmp_path / "saved"))
    assert again.network.head.values.bias.tolist() == [5.0, 5.0]


def test_a_folder_that_is_written_again_keeps_no_picture_of_another_policy(tmp_path):
    run, short = train_small(tmp_path, "ppo"), train_small(tmp_path, "ppo")
    (run.path / "videos").mkdir()
    (run.path / "videos" / "one.mp4").write_bytes(b"video")
    (short.path / "metrics.jsonl").unlink()
    folder = parl.load(run.path).save_for_hub(tmp_path / "saved")
    parl.load(folder).save_for_hub(folder)  # in place
    assert {"learning-curve.png", "replay.mp4"} < {path.name for path in folder.iterdir()}
    parl.load(short.path).save_for_hub(folder)
    assert {path.name for path in folder.iterdir()} == FILES
    assert "Video" not in (folder / "README.md").read_text()


def test_the_folder_can_be_a_repository_but_not_a_run(tmp_path):
    run = train_small(tmp_path, "dqn").path
    (tmp_path / "clone" / ".git").mkdir(parents=True)
    parl.load(parl.load(run).save_for_hub(tmp_path / "clone"))
    with pytest.raises(ConfigError, match=r"is a run directory, which would be overwritten"):
        parl.load(run).save_for_hub(run)
    parl.load(run)


def test_a_folder_for_the_hub_is_reported_but_not_resumed(tmp_path, capsys):
    folder = parl.load(train_small(tmp_path, "ppo").path).save_for_hub(tmp_path / "saved")
    assert main(["resume", str(folder)]) == 1
    assert "saved was written by save_for_hub" in capsys.readouterr().err
    assert main(["report", str(folder)]) == 0
    assert {path.name for path in folder.iterdir()} == FILES | {"learning-curve.png", "report.html"}


def test_a_pickled_environment_is_left_out(tmp_path):
    path = train_small(tmp_path, "dqn", env=lambda: gymnasium.make("CartPole-v1")).path
    policy = parl.load(path)
    folder = policy.save_for_hub(tmp_path / "saved")
    assert "env.pkl" not in {path.name for path in folder.iterdir()}
    again = parl.load(folder)
    assert again.predict(np.zeros(4))[0] == policy.predict(np.zeros(4))[0]
    with pytest.raises(ConfigError, match="environment <lambda> is a function and not part of"):
        again.env_maker(1)
    assert parl.load(folder, env="CartPole-v1").env_maker(1).num_envs == 1
    shutil.copyfile(path / "env.pkl", folder / "env.pkl")
    with pytest.raises((UntrustedRunError, ConfigError, ValueError), match=r"env\.pkl"):
        parl.load(folder)


def test_a_pickled_network_cannot_be_saved(tmp_path):
    def torso(space):
        return torch.nn.Linear(4, 8)

    policy = parl.load(train_small(tmp_path, "dqn", torso=torso, hidden=(64, 64)).path)
    with pytest.raises(ConfigError, match="torso is a function without an import path"):
        policy.save_for_hub(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_upload_and_download(tmp_path, hub):
    policy = parl.load(train_small(tmp_path, "sac").path)
    address = policy.push_to_hub("user/pendulum", private=True, token="secret", commit_message="First")
    assert address == "https://hub/user/pendulum/First"
    card = (hub / "user" / "pendulum" / "README.md").read_text()
    assert "parl.load('hf://user/pendulum')" in card
    again = parl.load("hf://user/pendulum@v1")
    assert torch.equal(again.acting.weights, policy.acting.weights)
    with pytest.raises(ConfigError, match="is not of the form hf://user/repository"):
        parl.load("hf://pendulum")


def test_a_policy_on_the_hub_is_evaluated_and_recorded(tmp_path, hub, capsys):
    policy = parl.load(train_small(tmp_path, "ppo").path)
    policy.save_for_hub(hub / "user" / "cartpole")
    assert main(["eval", "hf://user/cartpole", "--episodes", "2"]) == 0
    assert "2 greedy episodes" in capsys.readouterr().out
    assert not (tmp_path / "downloaded" / "evaluations.jsonl").exists()
    shutil.rmtree(tmp_path / "downloaded")
    assert main(["record", "hf://user/cartpole", "--out", str(tmp_path / "last.png")]) == 0
    assert (tmp_path / "last.png").is_file()


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"pip install 'parl-rl\[hub\]'"):
        parl.load("hf://user/pendulum")
