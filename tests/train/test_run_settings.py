"""Every setting of a run has its effect, or it is refused.

As in ``test_settings.py``, a setting without a row in the table fails its test. Settings that a topology
passes to its loop have a row for each topology; settings of all runs have a check function.
"""

import dataclasses
import math

import numpy as np
import pytest
import tiny_runs
import torch

from parl.errors import ConfigError
from parl.run import RunDirectory, read_metrics
from parl.runtime.distributed import ray_cluster
from parl.runtime.distributed.ray_cluster import RayCluster
from parl.runtime.off_policy.asynchronous import AsyncOffPolicyLoop
from parl.runtime.off_policy.deterministic import DeterministicOffPolicyLoop
from parl.runtime.on_policy import asynchronous, hogwild, predictor
from parl.runtime.on_policy.sync import SyncRolloutLoop
from parl.train import load, train, trainer
from parl.train.registry import make_algorithm, topology_of
from parl.train.topologies import TOPOLOGIES, off_policy, rollouts

ALGORITHM = {
    "replay": "dqn",
    "rollout": "ppo",
    "data": "bc",
    "hogwild": "a3c",
    "async": "impala",
    "predictor": "ga3c",
    "population": "es",
}


def learning(value, **context):
    """Returns a check: with ``context``, ``value`` changes the result of a tiny deterministic run."""

    def check(topology, setting, folder):
        name = ALGORITHM[topology]
        env = tiny_runs.env_of(name, {})
        data = tiny_runs.write_play(folder, env) if name == "bc" else ()
        base, changed = (
            tiny_runs.learning(name, {}, env, data, **run) for run in (context, {**context, setting: value})
        )
        again = tiny_runs.learning(name, {}, env, data, **context)
        assert base == again
        assert base != changed, f"{setting} = {value} of {name} changes nothing"

    return check


def parts(value, where, expected, **context):
    """Returns a check: with ``context``, ``value`` sets attribute ``where`` of the setup to ``expected``."""

    def check(topology, setting, folder):
        name = ALGORITHM[topology]
        env = tiny_runs.env_of(name, {})
        made = tiny_runs.algorithm_for(name, env, {})
        spec, maker = tiny_runs.spec_for(env), tiny_runs.ENVS[env]
        found = []
        for run in (context, {**context, setting: value}):
            setup = topology_of(name).setup(made, tiny_runs.run_of(name, **run), maker, spec)
            for part in where.split("."):
                setup = getattr(setup, part)
            found.append(setup)
        assert found[1] == expected != found[0]

    return check


def refused(value, match, **context):
    """Returns a check: ``value`` is refused."""

    def check(topology, setting, folder):
        with pytest.raises(ConfigError, match=match):
            tiny_runs.run_of(ALGORITHM[topology], **{**context, setting: value})

    return check


def check_threads(topology, setting, folder):
    """torch uses ``threads`` threads; by default one for small networks and in the deterministic schedule."""
    name = ALGORITHM[topology]
    made, spec = tiny_runs.algorithm_for(name, "CartPole-v1", {}), tiny_runs.spec_for("CartPole-v1")
    before = torch.get_num_threads()
    try:
        for wanted, expected in (("auto", 1), (3, 3)):
            maker = tiny_runs.ENVS["CartPole-v1"]
            config = tiny_runs.run_of(name, threads=wanted)
            if topology == "data":
                config = dataclasses.replace(config, data=tiny_runs.write_play(folder, "CartPole-v1"))
            config = topology_of(name).resolve_auto(made, config, maker, spec, lambda _: None)
            topology_of(name).loop(topology_of(name).setup(made, config, maker, spec), config, None).close()
            assert torch.get_num_threads() == expected
    finally:
        torch.set_num_threads(before)


def check_loop(topology, setting, folder):
    """The deterministic and the async schedule have different loops."""
    seen = []
    loops = {
        "replay": (DeterministicOffPolicyLoop, AsyncOffPolicyLoop),
        "hogwild": (SyncRolloutLoop, hogwild.HogwildLoop),
        "async": (SyncRolloutLoop, asynchronous.AsyncRolloutLoop),
        "predictor": (SyncRolloutLoop, predictor.PredictorLoop),
    }[topology]
    with pytest.MonkeyPatch.context() as patch:
        for kind in loops:
            patch.setattr(kind, "__init__", lambda self, setup, saved: seen.append(type(self)))
        for schedule in ("deterministic", "async"):
            name = ALGORITHM[topology]
            config = tiny_runs.run_of(name, schedule=schedule)
            made, spec = tiny_runs.algorithm_for(name, "CartPole-v1", {}), tiny_runs.spec_for("CartPole-v1")
            setup = topology_of(name).setup(made, config, tiny_runs.ENVS["CartPole-v1"], spec)
            topology_of(name).loop(setup, config, None)
    assert tuple(seen) == loops


def check_threads_of_schedule(topology, setting, folder):
    """Learning from images uses all cores, and one in the deterministic schedule."""
    name = ALGORITHM[topology]
    made = make_algorithm(name, tiny_runs.config_of(name), tiny_runs.PICTURES)
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rollouts, "usable_cores", lambda: 4)
        for schedule in ("deterministic", "async"):
            config = tiny_runs.run_of(name, schedule=schedule)
            maker = tiny_runs.ENVS["CartPole-v1"]
            found.append(
                topology_of(name)
                .resolve_auto(made, config, maker, tiny_runs.PICTURES, lambda _: None)
                .threads
            )
    assert found == [1, 4]


def check_dataset(topology, setting, folder):
    """With a dataset the setup is that of a learner without actors, which reads it."""
    name = ALGORITHM[topology]
    env = tiny_runs.env_of(name, {})
    made, spec, maker = tiny_runs.algorithm_for(name, env, {}), tiny_runs.spec_for(env), tiny_runs.ENVS[env]
    topology = topology_of(name)
    setups = []
    for path in ("", "recorded.parl"):
        run = topology.resolve_auto(made, topology.config(dataset=path), maker, spec, lambda _: None)
        setups.append(topology.setup(made, run, maker, spec))
    assert [getattr(setup, "dataset", None) for setup in setups] == [None, "recorded.parl"]


def check_data(topology, setting, folder):
    """Other files give other weights."""
    one = tiny_runs.write_play(folder, "CartPole-v1")
    content = dict(np.load(one[0]))
    content["actions"] = 1 - content["actions"]
    np.savez(folder / "other.npz", **content)
    assert tiny_runs.learning("bc", {}, "CartPole-v1", one) != tiny_runs.learning(
        "bc", {}, "CartPole-v1", (str(folder / "other.npz"),)
    )


def check_starts(topology, setting, folder):
    """Games of Breakout continue from states of the run; with a larger share more of them do."""
    name = ALGORITHM[topology]
    if setting == "start_states":
        runs: list = [{}, {"start_states": "self"}]
    else:
        runs = [{"start_states": "self", "start_states_share": share} for share in (0.5, 1.0)]
    found = [tiny_runs.learning(name, {}, "breakout", total_steps=256, **run) for run in (*runs, runs[0])]
    assert found[0] == found[2] != found[1]


ON_RAY = {
    "engine": parts("ray", "remote", RayCluster(None), schedule="async"),
    "ray_address": parts("auto", "remote.address", "auto", schedule="async", engine="ray"),
}
OWN = {
    "replay": {
        "seed": learning(4),
        "total_steps": learning(150),
        "num_envs": learning(5),
        "schedule": check_loop,
        "device": parts("cuda", "device", "cuda"),
        "actors": learning(1),
        "learners": learning(2, learners=1),
        "threads": parts(3, "threads", 3),
        "actor_kind": parts("thread", "processes", False, schedule="async"),
        "learner_kind": parts("thread", "learner_threads", True, schedule="async"),
        "replay_ratio": learning(4.0),
        "batch_size": learning(12),
        "replay_capacity": learning(50),
        "learning_starts": learning(60),
        "park_actors": parts(False, "park_actors", False, schedule="async"),
        "double_buffer": learning(True),
        "prefetch": learning(2),
        "priority_delay": learning(2),
        "gradient_compression": parts("fp16", "gradient_compression", "fp16"),
        "engine": parts("ray", "remote", RayCluster(None, 16), schedule="async"),
        "ray_address": parts("auto", "remote.address", "auto", schedule="async", engine="ray"),
        "ray_steps": parts(3, "remote.steps", 3, schedule="async", engine="ray"),
        "dataset": check_dataset,
    },
    "rollout": {
        "seed": learning(4),
        "total_steps": learning(250),
        "num_envs": learning(5),
        "schedule": check_threads_of_schedule,
        "device": parts("cuda", "device", "cuda"),
        "random_starts": learning(20),
        "start_states": check_starts,
        "start_states_share": check_starts,
        "threads": check_threads,
        "actors": learning(2),
        **ON_RAY,
    },
    "population": {
        "seed": learning(4),
        "total_steps": learning(2_000),
        "num_envs": learning(5),
        "schedule": parts("async", "processes", True),
        "device": refused("cuda", "device = 'cuda': members of a population are evaluated on the CPU"),
        "actors": parts(2, "actors", 2, schedule="async"),
        "member_batches": parts(3, "member_batches", 3),
        **ON_RAY,
    },
}
OWN["data"] = OWN["rollout"] | {
    "data": check_data,
    "dataset": parts("recorded.parl", "dataset", "recorded.parl"),
    "random_starts": refused(20, "has no effect when learning from files"),
    "start_states": refused("self", "start_states = 'self' has no effect with data files or a dataset"),
    "start_states_share": refused(1.0, "start_states_share = 1.0 has no effect with start_states = None"),
    "actors": refused(2, "actors = 2 has no effect with data files or a dataset"),
    "engine": refused("ray", "engine = 'ray' has no effect with data files or a dataset"),
    "ray_address": refused("auto", "ray_address = 'auto' has no effect with engine = 'local'"),
}
OWN["hogwild"] = {key: row for key, row in OWN["rollout"].items() if key not in {"threads", *ON_RAY}} | {
    "schedule": check_loop,
    "actors": learning(1),
    "actor_kind": parts("thread", "processes", False, schedule="async"),
}
OWN["async"] = OWN["hogwild"] | ON_RAY | {"max_lag": parts(3, "max_lag", 3, schedule="async")}
OWN["predictor"] = OWN["async"] | {
    "predictors": parts(2, "predictors", 2, schedule="async"),
    "trainers": parts(2, "trainers", 2, schedule="async"),
    "rollouts_per_update": parts(3, "rollouts_per_update", 3, schedule="async"),
    "tune_every_s": parts(0.0, "tune_every_s", 0.0, schedule="async"),
    "engine": refused("ray", "engine = 'ray' has no effect with predictors", schedule="async"),
    "ray_address": refused("auto", "ray_address = 'auto' has no effect with engine = 'local'"),
}


class Trained:
    """Tiny runs of PPO, started as users do."""

    def __init__(self, folder):
        self._folder = folder

    def run(self, **options):
        small = {
            "env": "CartPole-v1",
            "num_envs": 2,
            "total_steps": 200,
            "schedule": "deterministic",
            "quiet": True,
        }
        small |= {"hidden": (2,), "rollout_steps": 16, "epochs": 1, "evaluation_episodes": 0}
        self.last = train("ppo", **(small | {"runs": str(self._folder)} | options))
        return self.last

    def records(self, key, **options):
        return [one[key] for one in read_metrics(self.run(**options).path) if key in one]

    def saves(self, **options):
        """The number of checkpoints that a run saves."""
        with pytest.MonkeyPatch.context() as patch:
            taken, save = [], SyncRolloutLoop.save
            patch.setattr(
                SyncRolloutLoop, "save", lambda self, folder: (taken.append(folder), save(self, folder))
            )
            self.run(**options)
        return len(taken)


def check_env(runs):
    paths = {env: runs.run(env=env).path for env in ("CartPole-v1", "Acrobot-v1")}
    for env, path in paths.items():
        assert env in path.name and RunDirectory.open(path).config["run"]["env"] == env


def check_env_options(runs):
    assert max(runs.records("episode_return")) > 2.0
    assert max(runs.records("episode_return", env_options=("max_episode_steps=2",))) == 2.0


def check_init_from(runs):
    first = runs.run(evaluation_episodes=0).path
    weights = [
        load(runs.run(learning_rate=0.0, **options).path).acting.weights
        for options in ({}, {"init_from": first})
    ]
    assert torch.equal(weights[1], load(first).acting.weights) and not torch.equal(*weights)


def check_wrappers(runs):
    limit = "gymnasium.wrappers:TimeLimit(max_episode_steps=2)"
    assert max(runs.records("episode_return", wrappers=(limit,))) == 2.0


def check_evaluation_env_options(runs):
    options = {"evaluation_episodes": 3, "evaluation_env_options": ("max_episode_steps=2",)}
    assert runs.run(**options).evaluation_return == 2.0
    assert runs.run(evaluation_episodes=3).evaluation_return > 2.0


def check_evaluation_episodes(runs):
    for episodes in (0, 2, 3):
        counts = runs.records("evaluation_episodes", evaluation_episodes=episodes)
        assert counts == [episodes] * bool(episodes)


def check_evaluation_every(runs):
    for every, times in ((0, 1), (100, 2)):
        assert len(runs.records("evaluation_return", evaluation_episodes=1, evaluation_every=every)) == times


def check_stop_at_return(runs):
    options = {"evaluation_episodes": 1, "evaluation_every": 50}
    assert runs.run(**options).stopped == "total_steps"
    assert runs.run(**options, stop_at_return=1.0).stopped == "stop_at_return"


def check_checkpoint_every(runs):
    assert runs.saves() == 1 and runs.saves(checkpoint_every=50) > 2


class Frozen:
    """Replaces the module ``time`` by a clock that stands still."""

    @staticmethod
    def monotonic():
        return 1_000.0


def check_checkpoint_every_s(runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "time", Frozen)
        saves = [runs.saves(schedule="async", checkpoint_every_s=seconds) for seconds in (0.0, 9.0)]
    assert saves[0] > saves[1] == 1


def check_log_every_s(runs):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trainer, "time", Frozen)
        rows = [len(runs.records("updates", schedule="async", log_every_s=seconds)) for seconds in (0.0, 9.0)]
    assert rows[0] > rows[1] == 1


def check_runs(runs):
    assert runs.run().path.parent == runs._folder
    assert runs.run(runs=str(runs._folder / "elsewhere")).path.parent == runs._folder / "elsewhere"


def check_name(runs):
    assert runs.run().path.name.startswith("ppo-CartPole-v1-0") and runs.run(name="mine").path.name == "mine"


def check_logger(runs):
    for names in (("tensorboard",), ()):
        assert (runs.run(logger=names).path / "tensorboard").exists() is bool(names)


def check_quiet(runs):
    for quiet in (True, False):
        runs._capsys.readouterr()
        runs.run(quiet=quiet)
        assert bool(runs._capsys.readouterr().err) is not quiet


def check_verbose(runs):
    for verbose in (True, False):
        runs._capsys.readouterr()
        runs.run(quiet=False, verbose=verbose, evaluation_episodes=1)
        said = runs._capsys.readouterr().err
        assert ("of torch" in said and "protocol: ppo on" in said) is verbose


COMMON = {
    "env": check_env,
    "env_options": check_env_options,
    "init_from": check_init_from,
    "wrappers": check_wrappers,
    "evaluation_env_options": check_evaluation_env_options,
    "evaluation_episodes": check_evaluation_episodes,
    "evaluation_every": check_evaluation_every,
    "stop_at_return": check_stop_at_return,
    "checkpoint_every": check_checkpoint_every,
    "checkpoint_every_s": check_checkpoint_every_s,
    "log_every_s": check_log_every_s,
    "runs": check_runs,
    "name": check_name,
    "logger": check_logger,
    "quiet": check_quiet,
    "verbose": check_verbose,
}
SETTINGS = [
    pytest.param(topology, field.name, id=f"{topology}-{field.name}")
    for topology in TOPOLOGIES
    for field in dataclasses.fields(TOPOLOGIES[topology].config)
    if field.name not in COMMON
]


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(("topology", "setting"), SETTINGS)
def test_a_setting_of_a_topology_has_its_effect(topology, setting, tmp_path):
    row = OWN[topology].get(setting)
    assert row is not None, (
        f"setting {setting} of {TOPOLOGIES[topology].config.__name__} has no row in the table"
    )
    row(topology, setting, tmp_path)


@pytest.mark.parametrize("setting", COMMON)
def test_a_setting_of_all_runs_has_its_effect(setting, tmp_path, capsys):
    runs = Trained(tmp_path)
    runs._capsys = capsys
    COMMON[setting](runs)


def test_rows_are_of_settings_that_exist():
    for topology, rows in OWN.items():
        fields = {field.name for field in dataclasses.fields(TOPOLOGIES[topology].config)}
        assert not rows.keys() - fields and not COMMON.keys() - fields


@pytest.mark.parametrize(
    ("name", "own", "is_refused"),
    [
        ("a3c", {}, True),
        ("ga3c", {}, True),
        ("ga3c", {"normalize_observations": True}, False),  # has one learner
        ("impala", {}, False),
    ],
)
def test_learners_on_a_device_cannot_share_weights(name, own, is_refused):
    made = tiny_runs.algorithm_for(name, "CartPole-v1", own)
    rest = (tiny_runs.ENVS["CartPole-v1"], tiny_runs.spec_for("CartPole-v1"), lambda line: None)
    for schedule in ("async", "deterministic"):
        config = topology_of(name).config(device="cuda", schedule=schedule, actors=2)
        if is_refused and schedule == "async":
            with pytest.raises(
                ConfigError, match="device = 'cuda': learners that share weights keep them in"
            ):
                topology_of(name).resolve_auto(made, config, *rest)
        else:
            assert topology_of(name).resolve_auto(made, config, *rest) == config


def test_a_device_that_does_not_exist_is_refused(tmp_path):
    for name in ("ppo", "dqn", "impala"):
        with pytest.raises(ConfigError, match="device = 'nonsense' is not a torch device"):
            train(name, device="nonsense", runs=str(tmp_path))
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match=r"device = 'cuda:7': .* finds no CUDA device"):
            train("ppo", device="cuda:7", runs=str(tmp_path))
    for device in ("meta", *(() if torch.backends.mps.is_available() else ("mps",))):
        with pytest.raises(ConfigError, match=f"device = '{device}': torch"):
            train("ppo", device=device, runs=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("stop_at_return", math.nan, "stop_at_return = nan is outside -inf to inf"),
        ("stop_at_return", "high", "stop_at_return = 'high': could not convert"),
        ("name", 3, "name = 3: not text"),
        ("init_from", 3, "init_from = 3: not text"),
    ],
)
def test_optional_settings_of_another_type_are_refused(tmp_path, setting, value, message):
    with pytest.raises(ConfigError, match=message):
        train("ppo", runs=str(tmp_path), **{setting: value})
    assert not list(tmp_path.iterdir())


def test_populations_refuse_settings_without_effect():
    with pytest.raises(
        ConfigError, match=r"actors = 2: schedule = 'deterministic' evaluates all members in one"
    ):
        tiny_runs.run_of("ga", actors=2)
    with pytest.raises(ConfigError, match="device = 'nonsense'"):
        tiny_runs.run_of("ga", device="nonsense")


@pytest.mark.parametrize(
    ("name", "setting", "value", "reason"),
    [
        ("ppo", "stop_at_return", 1.0, "evaluation_episodes = 0"),
        ("es", "evaluation_every", 10, "evaluation_episodes = 0"),
        ("dqn", "ray_address", "auto", "engine = 'local'"),
        ("dqn", "ray_steps", 3, "engine = 'local'"),
        ("ppo", "ray_address", "auto", "engine = 'local'"),
        ("es", "ray_address", "auto", "engine = 'local'"),
        ("dqn", "actor_kind", "thread", "schedule = 'deterministic'"),
        ("dqn", "learner_kind", "thread", "schedule = 'deterministic'"),
        ("dqn", "park_actors", False, "schedule = 'deterministic'"),
        ("a3c", "actor_kind", "thread", "schedule = 'deterministic'"),
        ("ppo", "checkpoint_every_s", 60.0, "schedule = 'deterministic'"),
        ("impala", "max_lag", 3, "schedule = 'deterministic'"),
        ("ga3c", "max_lag", 3, "schedule = 'deterministic'"),
        ("ga3c", "predictors", 2, "schedule = 'deterministic'"),
        ("ga3c", "trainers", 2, "schedule = 'deterministic'"),
        ("ga3c", "rollouts_per_update", 3, "schedule = 'deterministic'"),
        ("ga3c", "tune_every_s", 0.0, "schedule = 'deterministic'"),
    ],
)
def test_a_setting_that_has_no_effect_is_refused(name, setting, value, reason):
    options = {"evaluation_episodes": 0} if "episodes" in reason else {}
    with pytest.raises(ConfigError, match=f"{setting} = {value!r} has no effect with {reason}"):
        tiny_runs.run_of(name, **options, **{setting: value})


def test_ray_runs_actors_at_the_same_time_and_of_its_own_kind():
    for name in ("dqn", "impala", "es"):
        with pytest.raises(ConfigError, match="engine = 'ray' needs schedule = 'async'"):
            tiny_runs.run_of(name, engine="ray")
    for name, setting in (("impala", {"actor_kind": "thread"}), ("dqn", {"actor_kind": "thread"})):
        with pytest.raises(ConfigError, match="actor_kind = 'thread' has no effect with engine = 'ray'"):
            tiny_runs.run_of(name, engine="ray", schedule="async", **setting)
    with pytest.raises(ConfigError, match="park_actors = False has no effect with engine = 'ray'"):
        tiny_runs.run_of("dqn", engine="ray", schedule="async", park_actors=False)
    with pytest.raises(ConfigError, match=r"actors = 5 is neither auto nor 1 to num_envs = 4"):
        tiny_runs.run_of("ppo", actors=5)


@pytest.mark.parametrize(
    ("name", "found", "actors"),
    [("ppo", 4, 3), ("ppo", 99, 4), ("impala", 1, 1), ("es", 4, 3), ("es", 99, 6)],
)
def test_ray_gets_an_actor_per_processor_but_the_learners(monkeypatch, name, found, actors):
    monkeypatch.setattr(ray_cluster, "cluster_cpus", lambda cluster: found)
    given = {key: "auto" for key in ("actors", "member_batches") if name == "es" or key == "actors"}
    config = tiny_runs.run_of(name, engine="ray", schedule="async", **given)
    made, spec = tiny_runs.algorithm_for(name, "CartPole-v1", {}), tiny_runs.spec_for("CartPole-v1")
    said = []
    maker = tiny_runs.ENVS["CartPole-v1"]
    settled = topology_of(name).resolve_auto(made, config, maker, spec, said.append)
    assert settled.actors == actors
    assert f"the Ray cluster has {found} processors: {actors} actors, 1 learners here" in said


@pytest.mark.parametrize(("double_buffer", "actors"), [(False, 8), (True, 4)])
def test_ray_gets_actors_for_all_processes_of_torchrun(monkeypatch, double_buffer, actors):
    monkeypatch.setattr(ray_cluster, "cluster_cpus", lambda cluster: 11)
    for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.setenv(name, "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    options = {"engine": "ray", "schedule": "async", "actors": "auto", "learners": "auto", "num_envs": 8}
    config = tiny_runs.run_of("dqn", **options, double_buffer=double_buffer)
    made, spec = tiny_runs.algorithm_for("dqn", "CartPole-v1", {}), tiny_runs.spec_for("CartPole-v1")
    said = []
    settled = topology_of("dqn").resolve_auto(made, config, tiny_runs.ENVS["CartPole-v1"], spec, said.append)
    assert settled.actors == actors
    assert f"the Ray cluster has 11 processors: {actors} actors, 2 learners here" in said


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("threads", 2),
        ("actor_kind", "thread"),
        ("learner_kind", "thread"),
        ("prefetch", 1),
        ("priority_delay", 1),
    ],
)
def test_environments_on_a_device_refuse_settings_of_other_threads(setting, value):
    config = tiny_runs.run_of("dqn", device="cuda", actors=1, schedule="async", **{setting: value})
    with pytest.raises(ConfigError, match=f"{setting} = {value!r}: with environments on a CUDA device"):
        off_policy._resolve_on_device(config, lambda _: None)
