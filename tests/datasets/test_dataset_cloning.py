"""Behavior cloning from datasets."""

import numpy as np
import pytest

import parl
from parl import datasets
from parl.cli import main
from parl.datasets.learning import view_of
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError, DatasetError
from parl.run import RunDirectory
from parl.runtime.on_policy import dataset_rows
from parl.runtime.on_policy.rollout import RolloutBuffer

OPTIONS = {"obs_type": "ram", "stack_num": 2}


@pytest.fixture(scope="module")
def taught(tmp_path_factory):
    """A dataset in which the action follows from the memory: RIGHT where byte 51 is above 120, else LEFT."""

    def policy(observation):
        return np.where(observation[:, -1, 51] > 120, 2, 3)

    path = tmp_path_factory.mktemp("taught") / "pong.parl"
    return datasets.record(
        "pong", path, 1_200, policy=policy, num_envs=4, repeat_action_probability=0.25, **OPTIONS
    )


def rows_of(actor, spec, steps=4, envs=8):
    """The rows of one rollout."""
    buffer = RolloutBuffer(spec, steps, envs)
    counts = actor.collect(buffer, 0)
    assert counts.transitions == steps * envs
    return [
        (obs.tobytes(), int(action))
        for obs, action in zip(
            buffer.obs[:-1].reshape(-1, *spec.observation_shape), buffer.action.reshape(-1), strict=True
        )
    ]


@pytest.mark.parametrize("limit", [1 << 30, 300 * 256], ids=["in memory", "replayed"])
def test_every_step_is_read_once_before_any_is_repeated(taught, monkeypatch, limit):
    monkeypatch.setattr(dataset_rows, "MEMORY_BYTES", limit)
    maker = EnvMaker("parl/Pong-v0", OPTIONS)
    probe = maker(1)
    spec = spec_of(probe)
    probe.close()
    expected = sorted(
        (rows["observation"][i].tobytes(), int(rows["action"][i]))
        for rows in taught.replay()
        for i in range(len(rows["action"]))
    )

    def first(seed):
        actor = dataset_rows.make_dataset_actor(str(taught.path), maker, spec, None, seed)
        assert isinstance(actor, dataset_rows.DatasetActor) == (limit < 1 << 30)
        seen = rows_of(actor, spec)
        for _ in range(1, 1_200 // 32):
            seen += rows_of(actor, spec)
        actor.close()
        return seen

    seen = first(0)
    assert first(0) == seen != first(1)
    known = set(expected)
    assert set(seen) <= known
    # In order of the episodes, rows would begin with those of step 0.
    assert seen[:32] != expected[:32]
    if limit == 1 << 30:
        counts = {}
        for row in expected:
            counts[row] = counts.get(row, 0) + 1
        assert all(seen.count(row) <= counts[row] for row in set(seen))


def test_a_run_learns_the_actions(taught, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = [
        "--learning-rate",
        "0.003",
        "--total-steps",
        "40k",
        "--evaluation-episodes",
        "0",
        "--schedule",
        "deterministic",
        "--quiet",
    ]
    assert main(["train", "bc", "--dataset", str(taught.path), "--normalize-observations", *words]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    config = RunDirectory.open(run).config["run"]
    assert config["env"] == "parl/Pong-v0" and config["dataset"] == str(taught.path)
    assert set(config["env_options"]) == {"obs_type=ram", "stack_num=2", "repeat_action_probability=0.25"}
    policy = parl.load(run, "last")
    hits = [policy.predict(rows["observation"])[0] == rows["action"] for rows in taught.replay()]
    assert np.concatenate(hits).mean() > 0.95


def test_a_run_from_python_chooses_other_observations(taught, tmp_path):
    run = parl.train(
        "bc",
        dataset=str(taught.path),
        env_options={"obs_type": "ram", "stack_num": 3},
        total_steps=64,
        num_envs=2,
        evaluation_episodes=0,
        runs=str(tmp_path),
        quiet=True,
    )
    options = RunDirectory.open(run.path).config["run"]["env_options"]
    assert set(options) == {"obs_type=ram", "stack_num=3", "repeat_action_probability=0.25"}
    assert parl.load(run.path, "last").spec.observation_shape == (3, 128)


@pytest.mark.parametrize(
    ("env", "options", "message"),
    [
        ("CartPole-v1", {}, "is a dataset of pong, but CartPole-v1 is not one of parl's Atari games"),
        ("parl/Breakout-v0", {}, "is a dataset of pong, but parl/Breakout-v0 plays breakout"),
        ("parl/Pong-v0", {"frameskip": 3}, "recorded with frameskip = 4, but parl/Pong-v0 has 3"),
        ("parl/Pong-v0", {"full_action_space": True}, "has 6 actions, but parl/Pong-v0 has 18: set full_"),
    ],
)
def test_other_environments_are_errors(taught, env, options, message):
    with pytest.raises(ConfigError, match=message):
        view_of(taught, EnvMaker(env, options))


def test_wrapped_environments_are_errors(taught):
    with pytest.raises(ConfigError, match="parl/Pong-v0 with wrappers is not one of"):
        view_of(taught, EnvMaker("parl/Pong-v0", {}, (lambda env: env,)))


def test_wrong_datasets_are_errors(taught, tmp_path):
    (tmp_path / "no.parl").write_bytes(b"nothing")
    with pytest.raises(DatasetError, match=r"no\.parl is not a dataset"):
        parl.train("bc", dataset=str(tmp_path / "no.parl"), runs=str(tmp_path))
    with pytest.raises(ConfigError, match="CartPole-v1 is not one of parl's Atari games"):
        parl.train("bc", env="CartPole-v1", dataset=str(taught.path), runs=str(tmp_path), quiet=True)
    with pytest.raises(ConfigError, match="give one of them"):
        parl.train("bc", dataset=str(taught.path), data=("x.npz",), runs=str(tmp_path))
    with pytest.raises(ConfigError, match="dataset"):
        parl.train("ppo", dataset=str(taught.path), runs=str(tmp_path))
