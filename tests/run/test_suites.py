"""Scores over suites of games: human-normalized, interquartile mean over runs, missing games."""

import numpy as np
import pytest

from parl.atari.catalogue import games
from parl.cli import main
from parl.errors import ConfigError
from parl.run import RunDirectory
from parl.run.scores import interquartile_mean
from parl.run.suites import REFERENCES, SUITES, SuiteScores, human_normalized
from parl.train import train


def test_references_are_of_games_that_exist():
    known = {game.id for game in games()}
    assert len(REFERENCES) == 57 and set(REFERENCES) <= known
    assert set(SUITES["atari5"]) <= set(REFERENCES) and len(SUITES["atari5"]) == 5
    assert all(human > chance for chance, human in REFERENCES.values())


def test_the_random_score_is_0_and_the_human_score_is_1():
    assert human_normalized("pong", -20.7) == 0 and human_normalized("pong", 14.6) == 1
    np.testing.assert_allclose(human_normalized("breakout", np.array([1.7, 16.1])), [0.0, 0.5])
    with pytest.raises(ConfigError, match="'adventure', which has no human score"):
        human_normalized("adventure", 1.0)


def test_suite_scores_are_those_of_all_runs():
    scores = {"qbert": [163.9, 13455.0], "phoenix": [7242.6, 7242.6]}
    found = SuiteScores.of("atari5", scores)
    assert found.games == pytest.approx({"qbert": 0.5, "phoenix": 1.0})
    assert found.missing == ("battle_zone", "double_dunk", "name_this_game")
    assert found.iqm == pytest.approx(float(interquartile_mean(np.array([0.0, 1, 1, 1]))))
    assert found.median == pytest.approx(0.75)
    # The worst draw has the worse run of qbert twice: 0 0 1 1, with an interquartile mean of 0.5.
    assert found.low == pytest.approx(0.5) and found.high == pytest.approx(1.0)
    with pytest.raises(ConfigError, match="atari5 does not contain pong"):
        SuiteScores.of("atari5", {"pong": [1.0]})
    with pytest.raises(ConfigError, match="suite is 'atari6'"):
        SuiteScores.of("atari6", scores)


def test_runs_are_scored_from_the_command_line(tmp_path, capsys):
    options = {"env_options": {"obs_type": "ram"}, "num_envs": 2, "rollout_steps": 8, "hidden": (8,)}
    limits = ("max_num_frames_per_episode=40",)
    run = train(
        "ppo",
        env="parl/Qbert-v0",
        **options,
        total_steps=32,
        evaluation_episodes=1,
        evaluation_env_options=limits,
        quiet=True,
        runs=str(tmp_path),
    )
    assert main(["eval", "--suite", "atari5", "--episodes", "2", str(run.path)]) == 0
    out = capsys.readouterr().out
    # Ten steps give no points: (0 - 163.9) / (13455 - 163.9).
    assert "qbert                  -0.012 of human, 1 runs" in out
    assert "without a run: battle_zone, double_dunk, name_this_game, phoenix" in out
    checkpoint = RunDirectory.open(run.path).checkpoints.last()
    assert main(["eval", "--suite", "atari5", "--episodes", "2", str(checkpoint)]) == 0
    assert "of human, 1 runs" in capsys.readouterr().out
