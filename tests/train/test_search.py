"""``parl.tune``: trials, pruning, studies that processes share and continue, and the best settings."""

import itertools
import multiprocessing
import os
import signal
import warnings
from pathlib import Path

import gymnasium
import matplotlib
import numpy as np
import optuna
import pytest
import torch
from gymnasium.envs.classic_control import CartPoleEnv
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState
from scripted_runs import scripted

import forked
import parl
from parl.algos.ppo import PPOLearner
from parl.cli import main
from parl.errors import ConfigError, NonFiniteError
from parl.run import load_toml
from parl.run.metrics import read_metrics
from parl.train import ALGORITHMS, search, settings_for
from parl.train.registry import module_of, topology_of
from parl.train.search_spaces import SPACES

RUN = {
    "schedule": "deterministic",
    "num_envs": 4,
    "total_steps": 300,
    "evaluation_episodes": 2,
    "rollout_steps": 16,
    "hidden": (4,),
    "quiet": True,
}
SPACE = {
    "learning_rate": FloatDistribution(1e-4, 1e-2, log=True),
    "gamma": CategoricalDistribution((0.9, 0.99)),
    "epochs": optuna.distributions.IntDistribution(1, 3),
}


def tune(folder, **options):
    return parl.tune("ppo", **({"study": folder / "study.db", "trials": 3, "space": SPACE} | RUN | options))


def trials_of(found):
    return [(trial.params, trial.state, trial.value) for trial in found.study.trials]


def test_the_best_settings_train(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    found = tune(tmp_path, env="CartPole-v1")
    trials = found.study.trials
    assert len(trials) == 3 and {trial.state for trial in trials} == {TrialState.COMPLETE}
    assert len({trial.params["learning_rate"] for trial in trials}) == 3
    assert found.study.best_value == max(trial.value for trial in trials)
    assert found.best == {**RUN, **found.study.best_params}
    for trial in trials:
        settings = load_toml(f"{trial.user_attrs['run']}/config.toml")
        assert trial.params.items() <= settings["ppo"].items()
        assert settings["run"]["seed"] == trial.number and settings["ppo"]["hidden"] == [4]
    assert not list((tmp_path / "study").glob("*/checkpoints"))
    written = load_toml(found.config)
    assert written["run"] == {
        "env": "CartPole-v1",
        "schedule": "deterministic",
        "num_envs": 4,
        "total_steps": 300,
        "evaluation_episodes": 2,
    }
    assert written["ppo"] == {"rollout_steps": 16, "hidden": [4], **found.study.best_params}
    assert main(["train", "ppo", "--config", str(found.config), "--quiet", "--name", "again"]) == 0
    again = load_toml("runs/again/config.toml")
    assert found.study.best_params.items() <= again["ppo"].items()
    assert parl.train("ppo", env="CartPole-v1", **found.best, runs="runs").env_steps >= 300


def test_a_seed_gives_the_same_trials_in_one_call_or_in_two(tmp_path):
    whole = tune(tmp_path / "whole", trials=5, startup_trials=2)
    tune(tmp_path / "parts", trials=3, startup_trials=2)
    parts = tune(tmp_path / "parts", trials=5, startup_trials=2)
    assert trials_of(whole) == trials_of(parts)
    assert len(trials_of(tune(tmp_path / "parts", trials=4, startup_trials=2))) == 5
    other = tune(tmp_path / "other", trials=1, seed=1)
    assert trials_of(other)[0] != trials_of(whole)[0]


def test_an_interrupted_trial_is_repeated(tmp_path, monkeypatch):
    options = {"trials": 5, "startup_trials": 2}
    whole = tune(tmp_path / "whole", **options)
    train, calls = search.train, itertools.count()

    def interrupted(*arguments, **options):
        if next(calls) in (1, 5):
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(search, "train", interrupted)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            tune(tmp_path / "parts", **options)
    parts = tune(tmp_path / "parts", **options)
    ended = [trial for trial in parts.study.trials if trial.state != TrialState.FAIL]
    assert len(ended) == len(parts.study.trials) - 2
    assert [(trial.params, trial.state, trial.value) for trial in ended] == trials_of(whole)


def test_a_trial_below_the_median_is_pruned(tmp_path):
    # The first trial has two evaluations with a return of 5; the second one falls below their median at once.
    env = scripted(5.0, 5.0, 1.0)
    found = tune(tmp_path, env=env, trials=2, startup_trials=1, evaluations=3, evaluation_episodes=3)
    first, second = found.study.trials
    assert (first.state, first.value) == (TrialState.COMPLETE, 5.0)
    assert first.intermediate_values == {1: 5.0, 3: 5.0}  # the last one is at the end of the run
    assert (second.state, second.intermediate_values) == (TrialState.PRUNED, {1: 1.0})
    with pytest.raises(ConfigError, match="env = 'Scripted'"):
        settings_for("ppo", table=load_toml(found.config))


def test_trials_are_compared_after_about_as_many_steps(tmp_path):
    space = {"rollout_steps": CategoricalDistribution((16, 128))}
    options = RUN | {"total_steps": 2_048, "evaluation_episodes": 1}
    del options["rollout_steps"]
    options |= {"study": tmp_path / "study.db", "space": space, "startup_trials": 9, "env": "CartPole-v1"}
    found = parl.tune("ppo", trials=6, evaluations=8, **options)
    assert len({trial.params["rollout_steps"] for trial in found.study.trials}) == 2
    for trial in found.study.trials:
        records = read_metrics(Path(trial.user_attrs["run"]))
        steps = [record["env_steps"] for record in records if "evaluation_return" in record]
        assert set(trial.intermediate_values) == {round(at / 256) for at in steps}


def test_a_pruner_can_be_given(tmp_path):
    pruner = optuna.pruners.ThresholdPruner(upper=1.0)
    with pytest.raises(ConfigError, match="none of 2 trials was completed"):
        tune(tmp_path, trials=2, pruner=pruner)


SHARED = """
import os, pathlib, sys, time
import parl
from optuna.distributions import FloatDistribution

folder = pathlib.Path(sys.argv[1])

class OtherProcess:
    # Waits in its first trial until the other process has one too.
    def on_start(self, run):
        (folder / f"started-{os.getpid()}").touch()
        end = time.monotonic() + 100
        while len(list(folder.glob("started-*"))) < 2:
            assert time.monotonic() < end
            time.sleep(0.01)

from parl.train import search
train = search.train

def train_together(*arguments, callbacks, **options):
    return train(*arguments, callbacks=[*callbacks, OtherProcess()], **options)

search.train = train_together
space = {"learning_rate": FloatDistribution(1e-4, 1e-2, log=True)}
found = parl.tune("ppo", study=folder / "study.db", trials=4, space=space, total_steps=200, num_envs=4,
                  rollout_steps=16, hidden=(4,), evaluation_episodes=1, startup_trials=99, quiet=True)
print(len(found.study.trials))
"""


def test_processes_share_a_study(tmp_path):
    (tmp_path / "script.py").write_text(SHARED)
    programs = [forked.Program([tmp_path / "script.py", tmp_path], tmp_path) for _ in range(2)]
    outputs = [program.communicate(timeout=200) for program in programs]
    assert [program.returncode for program in programs] == [0, 0], outputs
    assert max(int(out) for out, _ in outputs) in (4, 5), "a second process adds at most one trial"
    study = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path / 'study.db'}")
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE}
    assert len({trial.params["learning_rate"] for trial in study.trials}) == len(study.trials)
    assert len(list(tmp_path.glob("started-*"))) == 2


def test_settings_that_cannot_run_are_pruned_with_the_reason(tmp_path):
    space = {"max_gradient_norm": CategoricalDistribution((-1.0,))}
    with pytest.raises(ConfigError, match=r"none of 2 trials was completed; .*max_gradient_norm"):
        tune(tmp_path, trials=2, space=space)


def limited(env):
    return gymnasium.wrappers.TimeLimit(env, 50)


def test_the_best_settings_have_the_options_of_the_environment(tmp_path):
    given = {"env_options": {"render_mode": None}, "wrappers": [limited], "preset": "acrobot"}
    found = tune(tmp_path, env=CartPoleEnv, trials=1, **given)
    run = load_toml(found.config)["run"]
    assert (run["env_options"], run["wrappers"]) == (["render_mode=None"], ["limited"])
    assert run["env"] == load_toml(f"{found.study.trials[0].user_attrs['run']}/config.toml")["run"]["env"]


def torso(space):
    made = torch.nn.Linear(space.shape[0], 4)
    made.out_features = 4
    return made


def test_the_best_settings_name_a_network_of_ones_own_by_its_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {key: value for key, value in RUN.items() if key != "hidden"}
    options |= {"env": "CartPole-v1", "trials": 1, "space": SPACE}
    named = parl.tune("ppo", study=tmp_path / "named.db", torso=torso, **options)
    assert load_toml(named.config)["ppo"]["torso"] == f"{__name__}:torso"
    assert main(["train", "ppo", "--config", str(named.config), "--quiet"]) == 0
    free = parl.tune("ppo", study=tmp_path / "free.db", torso=lambda space: torso(space), **options)
    assert "torso" not in load_toml(free.config)["ppo"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"learning_rat": 0.1}, "learning_rat"),
        ({"space": {"learning_rat": FloatDistribution(0, 1)}}, "learning_rat"),
        ({"space": {"seed": IntDistribution(0, 9)}}, "space has 'seed', .*tune sets it in each trial"),
        ({"space": {"env": CategoricalDistribution(("CartPole-v1",))}}, "space has 'env'"),
        ({"trials": 0}, "trials = 0 is not an integer"),
        ({"evaluations": 0}, "evaluations = 0 is not an integer"),
        ({"startup_trials": -1}, "startup_trials = -1 is not an integer"),
        ({"evaluation_episodes": 0}, "evaluation_episodes = 0"),
        ({"study": "named"}, "study = 'named' ends in '', expected for example .db"),
        ({"study": "best.toml"}, "study = 'best.toml' ends in '.toml'"),
    ],
)
def test_wrong_arguments_are_errors_before_the_study(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        tune(tmp_path, **options)
    assert not list(tmp_path.iterdir())


def test_another_space_in_the_same_study_is_an_error(tmp_path):
    tune(tmp_path, trials=1)
    with pytest.raises(ConfigError, match="started with another search space: gamma"):
        tune(tmp_path, trials=2, space=SPACE | {"gamma": CategoricalDistribution((0.5, 0.6))})


def test_a_study_is_continued_only_with_the_same_settings_in_all_trials(tmp_path):
    tune(tmp_path, trials=1)
    for options, message in (
        ({"total_steps": 400, "evaluation_every": 60}, "started with total_steps = 300, not 400"),
        ({"hidden": (8,)}, r"started with hidden = \[4\], not \[8\]"),
        ({"env_options": {"sutton_barto_reward": True}}, "started with env_options"),
        (
            {"space": SPACE | {"clip": FloatDistribution(0.1, 0.2)}},
            "clip = 0.2 in all trials, which is sampled",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            tune(tmp_path, trials=2, **options)
    assert len(tune(tmp_path, trials=2, gamma=0.9, seed=7, logger=[]).study.trials) == 2


def test_choices_of_hidden_are_texts(tmp_path):
    for choice in ((8, 8), "8,8"):
        with pytest.warns(UserWarning) if choice == (8, 8) else warnings.catch_warnings():
            space = {"hidden": CategoricalDistribution((choice,))}
        with pytest.raises(ConfigError, match=r"hidden has the choice .*8.*8.*expected text"):
            tune_hidden(tmp_path, space)
    found = tune_hidden(tmp_path, {"hidden": CategoricalDistribution((8,))})
    assert found.best["hidden"] == (8,)


def tune_hidden(folder, space):
    options = {name: value for name, value in RUN.items() if name != "hidden"}
    return parl.tune("ppo", study=folder / "study.db", trials=1, space=space, **options)


def test_an_interrupt_ends_the_search_and_leaves_no_checkpoint(tmp_path, monkeypatch):
    train = search.train

    class Interrupts:
        def on_evaluation(self, evaluation):
            signal.raise_signal(signal.SIGINT)

    def interrupted(*arguments, callbacks, **options):
        return train(*arguments, callbacks=[*callbacks, Interrupts()], **options)

    monkeypatch.setattr(search, "train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune(tmp_path)
    assert (tmp_path / "study" / "trial-0" / "metrics.jsonl").exists()
    assert not list(tmp_path.glob("study/*/checkpoints"))
    monkeypatch.undo()
    assert [trial.state for trial in tune(tmp_path, trials=1).study.trials] == [
        TrialState.FAIL,
        TrialState.COMPLETE,
    ]


def test_a_trial_that_diverges_leaves_no_checkpoint(tmp_path, monkeypatch):
    updates = itertools.count()

    def check(self):
        if next(updates) == 3:
            raise NonFiniteError("loss is nan")

    monkeypatch.setattr(PPOLearner, "_check_finite", check)
    with pytest.raises(ConfigError, match=r"none of 1 trials was completed; .*loss is nan"):
        tune(tmp_path, trials=1, evaluation_every=64)
    assert (tmp_path / "study" / "trial-0" / "metrics.jsonl").exists()
    assert not list(tmp_path.glob("study/*/checkpoints"))


def test_a_trial_of_a_killed_process_is_repeated(tmp_path, monkeypatch):
    options = {"trials": 3, "startup_trials": 2}
    whole = tune(tmp_path / "whole", **options)
    tune(tmp_path / "parts", trials=1, startup_trials=2)

    def kill(folder):
        search.train = lambda *arguments, **options: os.kill(os.getpid(), signal.SIGKILL)
        tune(folder, **options)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork while there are threads
        killed = multiprocessing.get_context("fork").Process(target=kill, args=(tmp_path / "parts",))
        killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    parts = tune(tmp_path / "parts", **options)
    assert [trial.state for trial in parts.study.trials].count(TrialState.FAIL) == 1
    ended = [trial for trial in parts.study.trials if trial.state != TrialState.FAIL]
    assert [(trial.params, trial.state, trial.value) for trial in ended] == trials_of(whole)


def test_settings_without_effect_are_not_sampled(tmp_path, monkeypatch):
    class SampledError(Exception):
        pass

    def caught(*_, **options):
        raise SampledError(options)

    monkeypatch.setattr(search, "train", caught)
    for target_tau, sampled in ((0.0, True), (0.01, False)):
        with pytest.raises(SampledError) as found:
            parl.tune("dqn", study=tmp_path / f"{target_tau}.db", target_tau=target_tau, quiet=True)
        (options,) = found.value.args
        assert ("target_period" in options) is sampled
        assert isinstance(options["hidden"], tuple) and options["evaluation_every"] == 100_000


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_algorithm_has_a_space_of_settings_that_it_has(name):
    fields = module_of(name).Config.__dataclass_fields__ | topology_of(name).config.__dataclass_fields__
    assert SPACES[name].keys() <= fields.keys()
    generator = np.random.default_rng(0)
    for _ in range(20):
        values = search._keywords(
            {
                key: kind.choices[generator.integers(len(kind.choices))]
                if isinstance(kind, CategoricalDistribution)
                else kind.low + (kind.high - kind.low) * generator.random()
                for key, kind in SPACES[name].items()
            }
        )
        for config in (module_of(name).Config, topology_of(name).config):
            own = {key: value for key, value in values.items() if key in config.__dataclass_fields__}
            config(**own)


def test_the_command_searches_only_what_is_not_given(tmp_path, capsys):
    study = tmp_path / "cart.db"
    words = ["tune", "ppo", "--env", "CartPole-v1", "--trials", "2", "--study", str(study), "--plot"]
    words += ["--total-steps", "300", "--num-envs", "4", "--gamma", "0.99", "--hidden", "4", "--epochs", "1"]
    words += ["--evaluation-episodes", "2", "--evaluations", "1", "--rollout-steps", "16", "--quiet"]
    before = matplotlib.get_backend()
    matplotlib.use("svg")
    assert main(words) == 0
    assert matplotlib.get_backend() == "svg"
    matplotlib.use(before)
    out = capsys.readouterr().out
    assert "best of 2 trials: trial " in out and "  learning_rate = " in out and "gamma" not in out
    config = load_toml(tmp_path / "cart.toml")
    assert config["ppo"]["gamma"] == 0.99 and config["ppo"]["hidden"] == [4]
    assert config["run"]["total_steps"] == 300 and "quiet" not in config["run"]
    files = sorted(path.name for path in (tmp_path / "cart").glob("*.png"))
    assert files == ["history.png", "importance.png", "slice.png"]
    for file in files:
        assert str(tmp_path / "cart" / file) in out
    assert main(["tune", "nothing"]) == 2
    assert main(["tune"]) == 2
