"""Flags, a TOML file, Python, help and a resumed run have the same defaults for an environment."""

import re

import pytest

from parl.cli import main
from parl.errors import ConfigError
from parl.run import RunDirectory, load_toml
from parl.train import resume, settings_for, settings_from, train
from parl.train.saved_runs import open_run

TINY = {"env": "CartPole-v1", "total_steps": 1, "num_envs": 2, "evaluation_episodes": 0, "quiet": True}
FLAGS = ["--env", "CartPole-v1", "--total-steps", "1", "--num-envs", "2", "--evaluation-episodes", "0"]
FLAGS += ["--quiet"]


def test_flags_a_file_python_and_resume_give_the_same_settings(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text("[run]\ntotal_steps = 1\nnum_envs = 2\n")
    ways = {
        "flags": ["train", "ppo", *FLAGS],
        "file": ["train", "ppo", "--config", str(file), *FLAGS[:2], *FLAGS[6:]],
    }
    found = {}
    for way, words in ways.items():
        assert main([*words, "--runs", str(tmp_path), "--name", way]) == 0
        found[way] = load_toml(tmp_path / way / "config.toml")
    run = train("ppo", **TINY, runs=str(tmp_path), name="python")
    found["python"] = RunDirectory.open(run.path).config
    resumed = resume(run.path, total_steps=2)
    found["resumed"] = RunDirectory.open(resumed.path).config
    for table in found.values():
        assert table["ppo"]["gamma"] == 0.98 and table["ppo"]["epochs"] == 20
        table["run"].pop("name")
        assert table == found["flags"]


def test_values_of_a_repeated_option_add_up_and_replace_those_of_a_file(tmp_path, monkeypatch):
    monkeypatch.setattr("parl.train.make_loggers", lambda names: [])
    file = tmp_path / "run.toml"
    file.write_text('[run]\nenv_options = ["frameskip=3"]\nlogger = ["wandb"]\n[ppo]\nhidden = [8]\n')
    words = ["train", "ppo", "--config", str(file), "--env", "parl/Pong-v0", *FLAGS[2:]]
    words += ["--runs", str(tmp_path), "--name", "run", "--env-options", "obs_type=ram", "stack_num=2"]
    words += ["--hidden", "16", "8", "--env_options=frameskip=2", "padding=reset", "--logger", "tensorboard"]
    assert main([*words, "--hidden", "4"]) == 0
    table = load_toml(tmp_path / "run" / "config.toml")
    assert table["run"]["env_options"] == ["obs_type=ram", "stack_num=2", "frameskip=2", "padding=reset"]
    assert (table["ppo"]["hidden"], table["run"]["logger"]) == ([16, 8, 4], ["tensorboard"])


def test_a_file_without_an_environment_and_one_with_it_get_its_defaults():
    table = {"run": {"env": "parl/Pong-v0", "num_envs": 3}, "dqn": {"n_step": 2}}
    run, own = settings_from("dqn", table)
    assert (run.num_envs, run.replay_capacity, own.n_step, own.learning_rate) == (3, 200_000, 2, 6.25e-5)
    run, own = settings_for("dqn", "CartPole-v1", table=table)
    assert (run.env, run.num_envs, run.replay_capacity) == ("CartPole-v1", 3, 50_000)
    assert (own.n_step, own.learning_rate) == (2, 2e-3)
    memory = ["obs_type=ram"]
    assert settings_for("dqn", env_options=memory, table=table)[1].learning_rate == 2e-3


@pytest.mark.parametrize("key", ["run", "dqn"])
def test_a_value_in_place_of_a_table_is_named(key):
    with pytest.raises(ConfigError, match=f"mine.toml: {key} = 3 is not a table"):
        settings_from("dqn", {key: 3}, "mine.toml")


def test_bounds_that_tie_two_settings_are_checked_when_all_are_known():
    # learning_starts alone is above the default replay_capacity.
    table = {"run": {"learning_starts": 60_000}}
    with pytest.raises(ConfigError, match=r"learning_starts = 60000 is outside 0 to 50000"):
        settings_from("dqn", table)
    table["run"]["replay_capacity"] = 70_000
    assert settings_from("dqn", table)[0].learning_starts == 60_000
    run = settings_for("dqn", preset="acrobot", table={"run": {"num_envs": 4}})[0]
    assert (run.env, run.num_envs, run.replay_ratio) == ("Acrobot-v1", 4, 8.0)


@pytest.mark.parametrize(
    ("words", "gamma"),
    [
        ([], "0.98"),
        (["--env", "CartPole-v1"], "0.98"),
        (["--env=Pendulum-v1"], "0.99"),
        (["--preset", "lunarlander", "--env", "CartPole-v1"], "0.999"),
    ],
)
def test_help_shows_the_defaults_that_a_run_gets(words, gamma, capsys):
    assert main(["train", "ppo", *words, "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert f"--gamma FLOAT Discount factor per step, 0..1. (default: {gamma})" in text


def test_help_shows_the_settings_of_the_file(tmp_path, capsys):
    file = tmp_path / "run.toml"
    file.write_text('algorithm = "ppo"\n[run]\nenv = "Pendulum-v1"\n[ppo]\nclip = 0.3\n')
    assert main(["train", "ppo", "--config", str(file), "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "(default: Pendulum-v1)" in text and "1 - clip..1 + clip. (default: 0.3)" in text


def test_a_run_directory_takes_missing_settings_from_its_environment(tmp_path):
    table = {"algorithm": "ppo", "run": {"env": "CartPole-v1", "num_envs": 2}, "ppo": {"clip": 0.3}}
    opened = open_run(RunDirectory.create(tmp_path, "old", table).path, trusted=False)
    assert (opened.algorithm.gamma, opened.algorithm.clip, opened.config.num_envs) == (0.98, 0.3, 2)
