"""Algorithms of a user: `examples/own_algorithm.py`, registration, entry points, commands, resuming."""

import dataclasses
import enum
import importlib
import re
import sys
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from parl import _algorithms, register_algorithm
from parl.algos import dqn, ppo
from parl.algos.common.on_policy import OnPolicyConfig
from parl.cli import main
from parl.errors import ConfigError, WorkerError
from parl.run import RunDirectory, read_metrics
from parl.train import algorithm_names, evaluate, load, record, registry, resume, settings_for, train
from parl.types import Preset
from saved_learners import weights_of

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"env": "CartPole-v1", "num_envs": 4, "rollout_steps": 16, "quiet": True, "evaluation_episodes": 2}
SMALL |= {"schedule": "deterministic"}


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    """Forgets what a test registers and imports."""
    table = dict(registry.ALGORITHMS)
    for module in (registry, _algorithms):
        monkeypatch.setattr(module, "ALGORITHMS", table)
    monkeypatch.setattr(registry, "_REGISTERED", {})
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *(one for one in sys.path if one)])
    registry._entry_points.cache_clear()
    yield
    registry._entry_points.cache_clear()
    for name in ("own_algorithm", "mine"):
        sys.modules.pop(name, None)


@pytest.fixture
def example():
    return importlib.import_module("own_algorithm")


def test_the_example_learns(example, tmp_path):
    options = SMALL | {"num_envs": 8, "rollout_steps": 32, "evaluation_episodes": 20}
    run = train("reinforce", **options, total_steps=40_000, runs=str(tmp_path))
    assert run.evaluation_return > 100


def test_a_registered_algorithm_resumes_exactly_and_is_evaluated_and_recorded(example, tmp_path):
    whole = train("reinforce", **SMALL, total_steps=600, runs=str(tmp_path), name="whole")
    half = train("reinforce", **SMALL, total_steps=300, runs=str(tmp_path), name="half")
    resumed = resume(half.path, total_steps=600)
    assert (resumed.env_steps, resumed.updates) == (whole.env_steps, whole.updates)
    assert torch.equal(weights_of(half.path), weights_of(whole.path))
    assert evaluate(half.path, 3).shape == (3,)
    record(half.path, tmp_path / "episode.gif")
    assert RunDirectory.open(half.path).config["module"] == "own_algorithm"
    settings = half.path / "config.toml"
    assert main(["train", "reinforce", "--config", str(settings), "--name", "again", "--quiet"]) == 0


def test_commands_know_it_once_its_module_is_imported(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "reinforce", "--total-steps", "64"]) == 2
    assert "there is no algorithm 'reinforce'; there are: a2c" in capsys.readouterr().err
    words = ["--num-envs", "2", "--evaluation-episodes", "0", "--quiet", "--total-steps", "64"]
    assert main(["train", "reinforce", *words, "--import", "own_algorithm"]) == 0
    capsys.readouterr()
    assert main(["--help"]) == 0 and main(["train", "--help"]) == 0
    assert capsys.readouterr().out.count("reinforce") == 2
    assert main(["train", "reinforce", "--help"]) == 0
    text = re.sub(r"[\s│]+", " ", capsys.readouterr().out)
    assert "--width INT Width of the hidden layer. (default: 64)" in text
    assert main(["train", "reinforce", "--presets"]) == 0
    assert "no presets" in capsys.readouterr().out

    registry.ALGORITHMS.pop("reinforce"), registry._REGISTERED.clear()
    del sys.modules["own_algorithm"]
    run = "runs/reinforce-CartPole-v1-0"
    for command in ("eval", "resume"):
        assert main([command, run]) == 1
        said = capsys.readouterr().err
        assert "algorithm 'reinforce' is not registered; module own_algorithm registers it" in said
        assert "--import own_algorithm" in said and "own_algorithm" not in sys.modules
    assert main(["resume", run, "--import=own_algorithm"]) == 0
    assert main(["eval", run, "--episodes", "1"]) == 0
    assert main(["eval", run, "--import"]) == 1
    assert "--import needs the name of a module" in capsys.readouterr().err
    assert main(["eval", run, "--import", "own_algorithm", "--import", "no_such_module"]) == 1
    assert "--import: No module named 'no_such_module'" in capsys.readouterr().err


def test_worker_processes_import_the_module_of_the_class(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    source = """
import parl
from own_algorithm import Reinforce

class Mine(Reinforce):
    topology = "async"

parl.register_algorithm("mine", Mine)
"""
    (tmp_path / "mine.py").write_text(source)
    importlib.import_module("mine")
    # Workers are started by a forkserver and unpickle their setup.
    monkeypatch.setattr("parl.runtime.workers._torch_works_in_a_fork", lambda threads: False)
    options = SMALL | {"schedule": "async", "actors": 2, "total_steps": 200}
    assert train("mine", **options, runs=str(tmp_path)).updates > 0


class Mine(dqn.DQN):
    """DQN with a preset and defaults of its own."""

    Config = dqn.Config
    topology = "replay"
    PRESETS: ClassVar = {
        "quick": Preset({"env": "CartPole-v1"}, {"gamma": 0.5}, tuned=False, note="For tests.")
    }

    @staticmethod
    def default_config(spec):
        return dqn.Config(n_step=2, hidden=(spec.num_actions,))

    @staticmethod
    def default_run(spec):
        return {"learning_starts": 40, "num_envs": 2, "batch_size": 8}


def test_defaults_and_presets_of_a_class_are_used(tmp_path):
    register_algorithm("mine", Mine)
    run, own = settings_for("mine", preset="quick")
    assert (run.learning_starts, own.n_step, own.hidden, own.gamma) == (40, 2, (2,), 0.5)
    options = {"total_steps": 100, "schedule": "deterministic", "evaluation_episodes": 0, "quiet": True}
    assert train("mine", preset="quick", **options, runs=str(tmp_path)).updates > 0
    with pytest.raises(ConfigError, match=r"mine: target_period = 3 has no effect with target_tau = 0\.1"):
        train("mine", target_period=3, target_tau=0.1, **options, runs=str(tmp_path))


def variant(**members):
    """A class like :class:`Mine`, but with no base class, with other members; None removes one."""
    kept = {key: value for key, value in vars(dqn.DQN).items() if not key.startswith("__")}
    kept["__init__"] = lambda self, config, spec: None
    found = kept | {"Config": dqn.Config, "topology": "replay"} | members
    return type("Variant", (), {key: value for key, value in found.items() if value is not None})


def config_with(**fields):
    return dataclasses.make_dataclass("Config", [(name, int, value) for name, value in fields.items()])


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("Mine", Mine, "'Mine' is not a name for an algorithm"),
        (3, Mine, "3 is not a name for an algorithm"),
        ("run", Mine, "'run' is not a name for an algorithm.*none of algorithm, module, run"),
        ("dqn", Mine, r"'dqn' exists already: parl\.algos\.dqn:DQN; choose another name"),
        ("mine", 3, "algorithm 'mine' is 3, not a class"),
        ("mine", variant(topology=None), r"Variant has no topology; see parl\.types\.RegisteredAlgorithm"),
        ("mine", variant(Config=None, make_learner=None), "Variant has no Config, make_learner"),
        (
            "mine",
            variant(topology="sync"),
            r"Variant\.topology = 'sync' is not one of replay, rollout, async",
        ),
        ("mine", variant(Config=int), r"Variant\.Config is not a dataclass"),
        ("mine", variant(Config=config_with(seed=0)), r"Variant\.Config has fields that are .* run: seed"),
    ],
)
def test_what_cannot_be_registered_is_refused(name, kind, message):
    with pytest.raises(ConfigError, match=message):
        register_algorithm(name, kind)


def test_a_name_belongs_to_one_class_and_a_class_of_the_same_place_replaces_it():
    register_algorithm("mine", Mine)
    register_algorithm("mine", Mine)
    with pytest.raises(ConfigError, match=r"'mine' exists already: test_registered:Mine"):
        register_algorithm("mine", variant())


@dataclasses.dataclass(frozen=True)
class NamedConfig(dqn.Config):
    algorithm_name: ClassVar[str] = "other"


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (dataclasses.make_dataclass("Config", [], bases=(dqn.Config,), frozen=True), "mine"),
        (dataclasses.make_dataclass("Config", [], bases=(OnPolicyConfig,), frozen=True), "mine"),
        (NamedConfig, "other"),
        (dqn.Config, "dqn"),
    ],
)
def test_errors_of_settings_begin_with_the_registered_name_or_that_of_the_class(config, name):
    register_algorithm("mine", variant(Config=config))
    with pytest.raises(ConfigError, match=f"^{name}: gamma = 2 is outside 0 to 1"):
        config(gamma=2)


def test_a_member_that_the_topology_needs_is_named(tmp_path):
    register_algorithm("mine", variant(topology="rollout"))
    with pytest.raises(ConfigError, match="'mine': Variant has no rollout_steps, memory, shareable"):
        train("mine", env="CartPole-v1", runs=str(tmp_path))


def test_learners_with_statistics_of_their_own_cannot_share_weights(tmp_path):
    register_algorithm("mine", type("Mine", (ppo.PPO,), {"topology": "hogwild", "Config": ppo.Config}))
    options = {"actors": 1, "actor_kind": "thread", "total_steps": 200, "runs": str(tmp_path)}
    own = {"rollout_steps": 16, "hidden": (4,), "evaluation_episodes": 0, "quiet": True}
    with pytest.raises(ConfigError, match="Mine is not shareable with these settings: learners that share"):
        train("mine", env="CartPole-v1", normalize_observations=True, **options, **own)
    assert train("mine", env="CartPole-v1", **options, **own).updates > 0


def test_metrics_of_a_learner_do_not_replace_those_of_the_run(example, tmp_path, monkeypatch):
    monkeypatch.setattr(example.Learner, "metrics", lambda self: {"env_steps": -1.0, "updates": -2.0})
    run = train("reinforce", **SMALL, total_steps=300, runs=str(tmp_path))
    assert all(row["env_steps"] >= 0 and row["updates"] >= 0 for row in read_metrics(run.path))


def test_the_topology_predictor_needs_no_other_methods_than_rollout(example, tmp_path):
    register_algorithm("mine", type("Mine", (example.Reinforce,), {"topology": "predictor"}))
    options = SMALL | {"schedule": "async", "actors": 1, "actor_kind": "thread"}
    run = train("mine", **options, total_steps=300, runs=str(tmp_path))
    assert run.updates > 0 and resume(run.path, total_steps=600).updates > run.updates


@pytest.mark.parametrize("topology", ["rollout", "predictor"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda action, log_prob: (action, log_prob.mean()), r"log-probabilities of shape \(\), .*\(4,\)"),
        (lambda action, log_prob: (action[:1], log_prob), r"actions of shape \(1,\) .*expected \(4,\)"),
        (lambda action, log_prob: (action + 0.6, log_prob), "actions of dtype float64, expected integers"),
    ],
)
def test_wrong_actions_and_log_probabilities_of_a_policy_are_named(
    change, message, topology, example, tmp_path
):
    class Mine(example.Reinforce):
        def make_policy(self, *args):
            policy = super().make_policy(*args)
            sample = policy.sample
            policy.sample = lambda *given: change(*sample(*given))
            return policy

    Mine.topology = topology
    register_algorithm("mine", Mine)
    in_thread = {"schedule": "async", "actors": 1, "actor_kind": "thread"}
    options = SMALL | (in_thread if topology == "predictor" else {})
    with pytest.raises((ConfigError, WorkerError), match=message):
        train("mine", **options, total_steps=300, runs=str(tmp_path))


@pytest.mark.parametrize("topology", ["rollout", "predictor"])
def test_a_learner_that_does_not_count_its_steps_is_named(topology, example, tmp_path, monkeypatch):
    monkeypatch.setattr(example.Learner, "learn", lambda self, rollout, progress, average: None)
    register_algorithm("mine", type("Mine", (example.Reinforce,), {"topology": topology}))
    options = {"schedule": "async", "actors": 1, "actor_kind": "thread"} if topology == "predictor" else {}
    with pytest.raises(ConfigError, match="learn of the learner returned None, expected the number"):
        train("mine", **SMALL | options, total_steps=300, runs=str(tmp_path))


def test_replay_options_that_are_incomplete_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(Mine, "replay_options", lambda self: {"n_step": 3}, raising=False)
    register_algorithm("mine", Mine)
    with pytest.raises(ConfigError, match="replay_options of the algorithm has no alpha, gamma"):
        train("mine", "CartPole-v1", runs=str(tmp_path))


def package(folder, entry_points):
    """Installs a package with a module ``mine`` and entry points."""
    (folder / "mine.py").write_text(
        "import parl\nfrom own_algorithm import Reinforce as Base\n"
        "class Mine(Base):\n    pass\n"
        "parl.register_algorithm('from-module', Mine)\n"
    )
    about = folder / "mine-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in entry_points.items()]
    (about / "entry_points.txt").write_text("\n".join(["[parl.algorithms]", *lines, ""]))
    sys.path.insert(0, str(folder))


def test_entry_points_name_classes_and_modules(tmp_path, capsys):
    package(
        tmp_path, {"from-class": "mine:Mine", "from-module": "mine", "none": "mine:parl", "gone": "mine:No"}
    )
    assert {"from-class", "from-module"} <= set(algorithm_names()) and "mine" not in sys.modules
    for name in ("from-class", "from-module"):
        run = train(name, **SMALL, total_steps=70, runs=str(tmp_path))
        assert evaluate(run.path, 1).shape == (1,)
    with pytest.raises(
        ConfigError, match="'none': mine:parl, an entry point of mine is no class and registers"
    ):
        train("none")
    with pytest.raises(ConfigError, match="'gone': mine:No, an entry point of mine cannot be loaded"):
        train("gone")


def test_an_entry_point_with_the_name_of_another_algorithm_is_an_error(tmp_path):
    package(tmp_path, {"dqn": "mine:Mine", "mine": "mine:Mine"})
    with pytest.raises(ConfigError, match="several algorithms 'dqn': parl's own dqn; mine:Mine, an entry"):
        train("dqn", env="CartPole-v1")
    with pytest.raises(ConfigError, match="'mine' exists already: mine:Mine, an entry point of mine"):
        register_algorithm("mine", Mine)


def test_settings_that_are_none_stay_so_and_those_that_a_file_cannot_hold_are_refused(example, tmp_path):
    class Mode(enum.Enum):
        FAST = 1

    class Chosen(example.Reinforce):
        @dataclasses.dataclass(frozen=True)
        class Config(example.Reinforce.Config):
            limit: float | None = None
            mode: object = "slow"

        @classmethod
        def default_config(cls, spec):
            return cls.Config(limit=0.5)

    register_algorithm("chosen", Chosen)
    options = SMALL | {"total_steps": 64, "runs": str(tmp_path)}
    run = train("chosen", **options, limit=None)
    assert load(run.path).config.algorithm.limit is None
    assert load(train("chosen", **options).path).config.algorithm.limit == 0.5
    with pytest.raises(ConfigError, match=r"chosen: mode = <Mode.FAST: 1> comes back as 'Mode.FAST'"):
        train("chosen", **options, mode=Mode.FAST)
