"""Runs that start from another run's weights, and runs that are longer than planned."""

import json

import numpy as np
import pytest
import torch
from tiny_runs import config_of, run_of, spec_for
from trained_policies import IDS, RUN, VARIANTS, train_small

import parl
from parl import cli
from parl.algos.common.on_policy import OnPolicyLearner
from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.run.listing import list_runs
from parl.runtime.setup import RunSetup, SavedLearner
from parl.train.registry import make_algorithm
from saved_learners import learner_of


def state_of(path):
    return learner_of(path, "best")


@pytest.fixture
def started(monkeypatch):
    """The states of the learners with which runs start."""
    states = []
    make = RunSetup.make_learner

    def recording(self):
        learner = make(self)
        states.append(learner.state_dict())
        return learner

    monkeypatch.setattr(RunSetup, "make_learner", recording)
    return states


def assert_equal(one, other):
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key, value in one.items():
            assert_equal(value, other[key])
    elif isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    else:
        assert one == other


@pytest.mark.parametrize(("name", "own"), VARIANTS, ids=IDS)
def test_a_run_starts_from_the_weights_of_another(tmp_path, started, name, own):
    path = train_small(tmp_path, name, **own).path
    before = state_of(path)
    fresh = started[0]
    assert not torch.equal(fresh["weights"], before["weights"])
    started.clear()
    env = parl.load(path).env_maker.name
    settings = {key: value for key, value in own.items() if key != "env"}
    data = {"data": tuple(map(str, tmp_path.glob("*.npz")))} if name == "bc" else {}
    config = run_of(name, runs=str(tmp_path), init_from=str(path), **RUN, **data)
    run = parl.train(name, env=env, run_config=config, algorithm_config=config_of(name, **settings))
    assert RunDirectory.open(run.path).config["run"]["init_from"] == str(path)
    for state in started:
        for key in {"weights", "moments", "parents"} & state.keys():
            assert_equal(state[key], before[key])
        if "target_weights" in state:
            source = "weights" if name in ("dqn", "rainbow") else "target_weights"
            assert torch.equal(state["target_weights"], before[source])
        if "mean" in state:
            assert not state["mean"].any() and not state["square"].any()
    assert started


def test_the_scale_of_rewards_is_taken_too(tmp_path, started):
    path = train_small(tmp_path, "ppo", normalize_rewards=True).path
    started.clear()
    config = run_of("ppo", runs=str(tmp_path), init_from=str(path), **RUN)
    own = config_of("ppo", normalize_rewards=True)
    parl.train("ppo", env="CartPole-v1", run_config=config, algorithm_config=own)
    before, (after,) = state_of(path)["rewards"], [state["rewards"] for state in started]
    assert after["count"] == before["count"] > 0 and torch.equal(after["square"], before["square"])
    assert not len(after["returns"])


def test_a_run_starts_from_one_of_another_device():
    made = make_algorithm("dqn", config_of("dqn"), spec_for("CartPole-v1"))
    other, learner = made.make_learner(1, "cpu"), made.make_learner(2, "cpu")
    of_cuda = torch.zeros(16, dtype=torch.uint8)
    SavedLearner(made, other.state_dict() | {"generator": of_cuda}).start(learner)
    assert torch.equal(learner.weights, other.weights)


@pytest.mark.parametrize(("name", "run"), [("dqn", {"learners": 2}), ("a3c", {})])
def test_learners_of_other_processes_start_from_them_too(tmp_path, name, run):
    path = train_small(tmp_path, name).path
    options = RUN | run | {"schedule": "async", "evaluation_episodes": 0}
    config = run_of(name, runs=str(tmp_path), init_from=str(path), **options)
    still = config_of(name, learning_rate=0.0)
    second = parl.train(name, env="CartPole-v1", run_config=config, algorithm_config=still)
    assert second.updates and torch.equal(
        parl.load(path).acting.weights, parl.load(second.path).acting.weights
    )


def test_a_source_that_does_not_fit_is_refused(tmp_path):
    small = dict(env="CartPole-v1", total_steps=64, num_envs=2, runs=str(tmp_path), quiet=True)
    ppo = parl.train("ppo", **small, hidden=(8, 8), rollout_steps=8, evaluation_episodes=0).path
    folders = sorted(tmp_path.iterdir())
    with pytest.raises(ConfigError, match=r"init_from = .* is a run of ppo, not of a2c"):
        parl.train("a2c", **small, init_from=ppo)
    said = r"init_from = .* does not fit: parameter towers\.first is of shape \(16, 4\)"
    with pytest.raises(ConfigError, match=said + r", expected to be of shape \(8, 4\)"):
        parl.train("ppo", **small, hidden=(4, 4), init_from=ppo)
    with pytest.raises(ConfigError, match=r"parameter flattener\.normalizer\.mean is missing, expected"):
        parl.train("ppo", **small, hidden=(8, 8), normalize_observations=True, init_from=ppo)
    with pytest.raises(ConfigError, match=r"parameter towers\.first is of shape \(16, 4\), .* \(16, 6\)"):
        parl.train("ppo", **small | {"env": "Acrobot-v1"}, hidden=(8, 8), init_from=ppo)
    with pytest.raises(FileNotFoundError):
        parl.train("ppo", **small, init_from=tmp_path / "none")
    assert sorted(tmp_path.iterdir()) == folders
    c51 = dict(hidden=(8,), distribution="c51", evaluation_episodes=0, learning_starts=32)
    dqn = parl.train("dqn", **small, **c51, value_max=10.0).path
    said = r"init_from = .*: the atoms have .*'value_max': 20\.0.*, in that run .*'value_max': 10\.0"
    with pytest.raises(ConfigError, match=said):
        parl.train("dqn", **small, **c51, value_max=20.0, init_from=dqn)
    ga = train_small(tmp_path, "ga").path
    with pytest.raises(ConfigError, match=r"init_from = .*: sigma = 0\.5 is not"):
        parl.train("ga", **small, hidden=(2,), sigma=0.5, init_from=ga)


def test_the_command_line_starts_from_a_checkpoint(tmp_path, capsys):
    path = train_small(tmp_path, "a2c").path
    folder = RunDirectory.open(path).checkpoints.best()
    words = "--env CartPole-v1 --hidden 2 --rollout-steps 8 --num-envs 4 --total-steps 0.1k --learning-rate 0"
    words += f" --schedule deterministic --evaluation-episodes 0 --runs {tmp_path} --name second --quiet"
    assert cli.main(["train", "a2c", *words.split(), "--init-from", str(folder)]) == 0
    first, second = parl.load(path), parl.load(tmp_path / "second")
    assert torch.equal(first.acting.weights, second.acting.weights)
    assert second.config.run.init_from == str(folder)
    assert cli.main(["train", "ppo", "--init-from", str(folder), "--runs", str(tmp_path)]) == 1
    assert "is a run of a2c, not of ppo" in capsys.readouterr().err


def test_a_run_without_checkpoint_starts_from_the_source_again(tmp_path, started):
    path = train_small(tmp_path, "dqn").path
    second = run_of("dqn", runs=str(tmp_path), init_from=str(path), **RUN)
    run = parl.train("dqn", env="CartPole-v1", run_config=second, algorithm_config=config_of("dqn"))
    result = state_of(run.path)
    for file in sorted((run.path / "checkpoints").rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    with pytest.warns(UserWarning, match="starts again at step 0"):
        parl.resume(run.path)
    assert torch.equal(state_of(run.path)["weights"], result["weights"])


def test_a_run_that_reached_its_goal_continues_to_a_later_end(tmp_path):
    options = RUN | {"evaluation_every": 50, "stop_at_return": 1.0}
    config = run_of("dqn", runs=str(tmp_path), **options)
    run = parl.train("dqn", env="CartPole-v1", run_config=config, algorithm_config=config_of("dqn"))
    assert run.stopped == "stop_at_return" and run.env_steps < 120
    assert parl.resume(run.path).stopped == "stop_at_return"
    assert parl.resume(run.path, total_steps=300, stop_at_return=2.0).env_steps == run.env_steps
    longer = parl.resume(run.path, total_steps=300)
    assert longer.stopped == "total_steps" and longer.env_steps >= 300


class StopsAtCheckpoint(parl.Callback):
    """Ends the run after its first checkpoint."""

    def on_checkpoint(self, checkpoint):
        return False


def test_an_extended_run_that_was_stopped_continues_to_its_later_end(tmp_path):
    run = train_small(tmp_path, "dqn")
    assert list_runs(tmp_path)[0].state == "ended"
    stopped = parl.resume(run.path, total_steps=900, checkpoint_every=200, callbacks=[StopsAtCheckpoint()])
    assert run.env_steps < stopped.env_steps < 900
    assert list_runs(tmp_path)[0].state == "interrupted"
    again = parl.resume(run.path)
    assert again.stopped == "total_steps" and again.env_steps >= 900
    assert list_runs(tmp_path)[0].state == "ended"


@pytest.mark.parametrize("name", ["ppo", "dqn", "es"])
def test_an_ended_run_continues_to_a_later_end(tmp_path, monkeypatch, name, capsys):
    rates = []
    rate = OnPolicyLearner.learning_rate
    monkeypatch.setattr(
        OnPolicyLearner,
        "learning_rate",
        lambda self, progress: rates.append(rate(self, progress)) or rates[-1],
    )
    run = train_small(tmp_path, name)
    first, updates = run.env_steps, len(rates)
    assert cli.main(["resume", str(run.path), "--total-steps", "0.8k"]) == 0
    assert "ended by total_steps" in capsys.readouterr().out
    last = json.loads((RunDirectory.open(run.path).checkpoints.last() / "counters.json").read_text())
    assert last["env_steps"] >= 800 > first and last["updates"] > run.updates
    assert sum("evaluation_return" in one for one in read_metrics(run.path)) == 2
    if name == "ppo":
        # The rate falls linearly over the new length: it was near 0 at the first end.
        highest = config_of("ppo").learning_rate
        before, after = np.array(rates[:updates]) / highest, np.array(rates[updates:]) / highest
        assert before[-1] < 0.3 and after[0] == pytest.approx(1 - first / 800, abs=0.05)
        assert (np.diff(after) <= 0).all() and after[-1] < 0.1
