"""Runs that learn from rollouts, as users start them: settings for the environment, keywords, resuming."""

import imageio_ffmpeg
import numpy as np
import pytest
import torch

from parl.cli import main
from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.train import evaluate, record, resume, settings_for, train
from parl.train.config import keywords
from saved_learners import weights_of

SMALL = {
    "env": "CartPole-v1",
    "num_envs": 4,
    "rollout_steps": 16,
    "minibatch_size": 32,
    "epochs": 2,
    "anneal": False,
    "anneal_clip": False,
    "hidden": (16,),
    "evaluation_episodes": 5,
    "quiet": True,
    "schedule": "deterministic",
}


def test_a_run_writes_its_metrics_and_resumes_exactly(tmp_path):
    whole = train("ppo", **SMALL, total_steps="3k", runs=str(tmp_path), name="whole")
    half = train("ppo", **SMALL, total_steps="1500", runs=str(tmp_path), name="half")
    assert half.stopped == "total_steps" and 1_500 <= half.env_steps < 1_564
    records = read_metrics(half.path)
    assert records[-1]["evaluation_return"] == half.evaluation_return
    last = [record for record in records if "collecting" in record][-1]
    assert {"kl", "entropy", "value_loss", "policy_loss"} <= last.keys()
    resumed = resume(half.path, total_steps="3k")
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert torch.equal(weights_of(half.path), weights_of(whole.path))
    one, two = (evaluate(half.path, episodes=5, seed=5) for _ in range(2))
    np.testing.assert_array_equal(one, two)


def test_keywords_reach_the_environment(tmp_path):
    options = SMALL | {"env": "parl/Pong-v0", "env_options": {"obs_type": "ram", "stack_num": 2}}
    options |= {"evaluation_episodes": 1, "evaluation_env_options": ("max_num_frames_per_episode=40",)}
    run = train("ppo", **options, total_steps=100, runs=str(tmp_path))
    table = RunDirectory.open(run.path).config
    assert table["run"]["env_options"] == ["obs_type=ram", "stack_num=2"]
    # 2 x 128 bytes into the 16 units of each of the two towers.
    assert len(weights_of(run.path)) == 256 * 32 + 32 + 16 * 6 + 6 + 16 + 1
    # Evaluations end after 10 steps of 4 frames, too early for a point.
    np.testing.assert_array_equal(evaluate(run.path, episodes=2), 0.0)
    assert record(run.path, tmp_path / "videos" / "pong.png") == 0.0
    assert (tmp_path / "videos" / "pong.png").read_bytes().startswith(b"\x89PNG")
    assert record(run.path, tmp_path / "videos" / "pong.mp4") == 0.0
    # 11 pictures of four frames: one after the reset, ten after steps.
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(tmp_path / "videos" / "pong.mp4")
    assert frames == 11 and abs(seconds - 11 / 15) < 0.1
    assert b"mp4a" in (tmp_path / "videos" / "pong.mp4").read_bytes()


def test_presets_name_the_environment_and_options_override_them(tmp_path):
    config, own = settings_for("ppo", preset="atari-ram")
    assert config.env == "parl/Pong-v0" and config.num_envs == 64 and own.hidden == (128, 128)
    options = {"num_envs": 2, "rollout_steps": 8, "evaluation_episodes": 0, "quiet": True}
    run = train("ppo", preset="atari-ram", **options, total_steps=40, runs=str(tmp_path))
    table = RunDirectory.open(run.path).config
    assert table["run"]["num_envs"] == 2 and table["ppo"]["hidden"] == [128, 128]


def test_keywords_are_python_values_or_text():
    assert keywords(["a=1", "b=ram", "c=False", "d=(2, 5)"]) == {"a": 1, "b": "ram", "c": False, "d": (2, 5)}
    assert keywords(["a=true", "b=FALSE", "c='false'", "d='x y=2'"]) == dict(
        a=True, b=False, c="false", d="x y=2"
    )
    with pytest.raises(ConfigError, match="'ram' is not of the form name=value"):
        keywords(["ram"])
    with pytest.raises(ConfigError, match="'a=b c=2' holds several options, expected one in each word"):
        keywords(["a=b c=2"])


def test_settings_depend_on_the_environment(tmp_path, capsys):
    pixels, own = settings_for("ppo", "parl/Breakout-v0")
    assert pixels.env == "parl/Breakout-v0" and own.hidden == (512,)
    memory, own = settings_for("ppo", "parl/Breakout-v0", ["obs_type=ram"])
    assert memory.env_options == ("obs_type=ram",) and own.hidden == (64, 64)
    with pytest.raises(ConfigError, match="no preset 'best'"):
        settings_for("ppo", preset="best")
    words = ["--env", "Pendulum-v1", "--total-steps", "600", "--evaluation-episodes", "1", "--quiet"]
    assert main(["train", "ppo", *words, "--runs", str(tmp_path)]) == 0
    assert "transitions" in capsys.readouterr().out
    assert RunDirectory.open(tmp_path / "ppo-Pendulum-v1-0").config["ppo"]["normalize_observations"]
    with pytest.raises(ConfigError, match="threads = 0"):
        train("ppo", **SMALL, threads=0)
