"""Off-policy algorithms that learn from a dataset, without actors."""

import json

import numpy as np
import pytest
import torch

import parl
from parl import datasets
from parl.cli import main
from parl.datasets.learning import view_of
from parl.envs import EnvMaker, spec_of
from parl.errors import ConfigError
from parl.run import RunDirectory, load_toml
from parl.runtime.off_policy.dataset import DatasetSource
from parl.train.registry import make_algorithm, module_of, topology_of
from saved_learners import learner_of, weights_of

MEMORY = {"obs_type": "ram", "stack_num": 2}
RUN = {"evaluation_episodes": 0, "quiet": True, "env_options": MEMORY, "num_envs": 5, "batch_size": 16}


@pytest.fixture(scope="module")
def crossing(tmp_path_factory):
    """Two games of Freeway of a policy that is far from the best one: it goes up in six of ten steps."""
    rng = np.random.default_rng(0)

    def policy(observation):
        count = len(observation)
        return np.where(rng.random(count) < 0.4, 1, rng.integers(3, size=count))

    path = tmp_path_factory.mktemp("crossing") / "freeway.parl"
    return datasets.record("freeway", path, 8_192, policy=policy, num_envs=4, **MEMORY)


def setup_of(dataset, name="dqn", **options):
    maker = EnvMaker("parl/Breakout-v0", {**MEMORY, "repeat_action_probability": 0.25})
    probe = maker(1)
    spec = spec_of(probe)
    probe.close()
    topology = topology_of(name)
    config = topology.config(
        env="parl/Breakout-v0", dataset=str(dataset.path), num_envs=5, threads=1, **options
    )
    own = module_of(name).Config(n_step=3, prioritized=False)
    return topology.setup(make_algorithm(name, own, spec), config, maker, spec)


def test_the_replay_holds_every_step_of_a_dataset_that_fits(breakout):
    setup = setup_of(breakout, replay_capacity=breakout.num_steps)
    source = setup.make_source()
    replay = setup.make_dataset_replay(source)
    source.add(replay, source.capacity)
    assert source.fits and source.added == breakout.num_steps == 2_000
    # Every step, those of cut episodes included.
    assert replay.sampleable == breakout.num_steps
    discounts = {0.99, 0.99**2, 0.99**3, 0.0}
    known = {
        (rows["observation"][i].tobytes(), int(rows["action"][i]))
        for rows in breakout.replay(**MEMORY)
        for i in range(len(rows["step"]))
    }
    batch = replay.sample(4_000)
    seen = {(obs.tobytes(), int(action)) for obs, action in zip(batch.obs, batch.action, strict=True)}
    assert len(seen) > 1_500 and seen <= known
    assert {round(float(one), 6) for one in batch.discount} == {round(one, 6) for one in discounts}
    source.close()


def test_a_large_dataset_streams_through_the_replay(breakout):
    setup = setup_of(breakout, replay_capacity=640, learning_starts=0)
    source = setup.make_source()
    replay = setup.make_dataset_replay(source)
    assert not source.fits
    source.add(replay, source.capacity)
    seen = set()
    for round_number in range(40):
        source.add(replay, source.capacity + 60 * round_number)
        assert 0 <= source.added - source.capacity - 60 * round_number < 5
        assert len(replay) <= 640
        seen |= {obs.tobytes() for obs in replay.sample(200).obs}
    # More steps than the replay holds, in more than one pass.
    assert source.added > 1.4 * breakout.num_steps and len(seen) > 1_000
    source.close()


def test_passes_have_other_orders_and_the_place_is_saved(breakout):
    maker = EnvMaker("parl/Breakout-v0", {**MEMORY, "repeat_action_probability": 0.25})
    view = view_of(breakout, maker)

    class Log:
        """Takes the place of a replay, and keeps which steps were added."""

        def __init__(self):
            self.settings = {"autoreset": "disabled"}
            self.rows = []

        def add(self, env_id, obs, action, **_):
            self.rows += [(int(env), one.tobytes()) for env, one in zip(env_id, obs, strict=True)]

    def source():
        return DatasetSource(breakout, view, 5, 600, 7)

    whole, first, second = Log(), Log(), Log()
    one = source()
    one.add(whole, 5_000)
    one.close()
    assert whole.rows[: len(whole.rows) // 3] != whole.rows[2_000 : 2_000 + len(whole.rows) // 3]
    begun, interrupted, goes_on = source(), source(), source()
    begun.add(first, 2_600)  # in the second pass
    interrupted.load(begun.save())
    goes_on.load(interrupted.save())  # before another row was added
    assert goes_on.added == begun.added == len(first.rows)
    goes_on.add(second, 5_000)
    assert first.rows + second.rows == whole.rows
    for each in (begun, interrupted, goes_on):
        each.close()


@pytest.mark.parametrize(
    "options",
    [
        {"prioritized": True, "cql_alpha": 0.5},
        {"prioritized": True, "replay_capacity": 640, "replay_ratio": 2.0},
        {"prioritized": False, "schedule": "deterministic"},
    ],
    ids=["prioritized", "streamed", "uniform"],
)
def test_a_resumed_run_equals_an_uninterrupted_one(breakout, tmp_path, options):
    half = {"total_steps": 1_600, **RUN, "seed": 3, "runs": str(tmp_path)}
    given = {**half, **options, "dataset": str(breakout.path)}
    begun = parl.train("dqn", **given, name="begun")
    resumed = parl.resume(begun.path, total_steps=3_200)
    whole = parl.train("dqn", **(given | {"total_steps": 3_200}), name="whole")
    assert resumed.env_steps == whole.env_steps == 3_200 and resumed.updates == whole.updates == 200
    found, expected = learner_of(resumed.path), learner_of(whole.path)
    assert torch.equal(found["weights"], expected["weights"])
    assert torch.equal(found["square"], expected["square"])
    other = parl.train("dqn", **(given | {"total_steps": 3_200, "seed": 4}), name="other")
    assert not torch.equal(weights_of(other.path), expected["weights"])


def test_a_run_whose_dataset_cannot_be_read_for_a_while_is_resumed(breakout, tmp_path, monkeypatch):
    options = {**RUN, "seed": 3, "replay_capacity": 640, "replay_ratio": 2.0, "dataset": str(breakout.path)}
    begun = parl.train("dqn", **options, total_steps=800, runs=str(tmp_path))
    with monkeypatch.context() as patch:
        read = DatasetSource.add

        def fail(source, replay, until):
            read(source, replay, until)
            if source.added > 900:
                raise OSError("the disk is away")

        patch.setattr(DatasetSource, "add", fail)
        with pytest.raises(OSError, match="the disk is away"):
            parl.resume(begun.path, total_steps=3_200)
    assert parl.resume(begun.path, total_steps=3_200).env_steps == 3_200


def test_a_run_steps_no_environment_but_those_of_evaluations(breakout, tmp_path, monkeypatch):
    stepped = []
    original = parl.AtariVectorEnv.step
    monkeypatch.setattr(
        parl.AtariVectorEnv,
        "step",
        lambda self, *args: stepped.append(1) or original(self, *args),
    )
    run = parl.train("dqn", dataset=str(breakout.path), total_steps=320, runs=str(tmp_path), **RUN)
    assert run.updates == 20 and not stepped
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    last = [json.loads(line) for line in lines][-1]
    # The replay also has a row for the last observation of each cut episode.
    assert last["dataset_steps"] == breakout.num_steps == last["replay_size"] - 3


def score(run):
    return float(np.mean(parl.evaluate(run.path, episodes=2, checkpoint="last")))


@pytest.mark.slow(minutes=2)
@pytest.mark.parametrize("cql_alpha", [0.0, 0.2])
def test_a_policy_is_better_than_that_of_the_dataset(crossing, tmp_path, cql_alpha):
    """Going up in every step gives about 20 points, the policy of the dataset a few, random actions none."""
    played = max(episode.episode_return for episode in crossing.episodes)
    run = parl.train(
        "dqn",
        dataset=str(crossing.path),
        cql_alpha=cql_alpha,
        reward_scale=1.0,
        total_steps=64_000,
        schedule="deterministic",
        seed=1,
        runs=str(tmp_path),
        **(RUN | {"batch_size": 64}),
    )
    assert score(run) >= max(15, 1.5 * played)


@pytest.mark.parametrize("source", ["--dataset", "--config"])
def test_the_command_trains_with_the_settings_of_the_recording(breakout, tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.toml").write_text(f"[run]\ndataset = '{breakout.path}'\n")
    named = {"--dataset": str(breakout.path), "--config": "run.toml"}[source]
    words = ["--total-steps", "640", "--evaluation-episodes", "0", "--quiet"]
    words += ["--env-options", "obs_type=ram", "stack_num=1"]
    assert main(["train", "rainbow", source, named, *words]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    config = RunDirectory.open(run).config["run"]
    assert config["env"] == "parl/Breakout-v0" and config["dataset"] == str(breakout.path)
    assert set(config["env_options"]) == {"obs_type=ram", "stack_num=1", "repeat_action_probability=0.25"}
    assert main(["train", "dqn", source, named, "--actors", "2", *words]) == 2


def test_a_search_has_the_environment_of_the_dataset_and_no_settings_of_actors(breakout, tmp_path):
    study = tmp_path / "study.db"
    words = ["tune", "dqn", "--dataset", str(breakout.path), "--trials", "1", "--study", str(study)]
    words += ["--env-options", "obs_type=ram", "--total-steps", "64", "--evaluation-episodes", "1"]
    words += ["--evaluation-env-options", "max_num_frames_per_episode=40", "--evaluations", "1", "--quiet"]
    words += ["--hidden", "4", "--batch-size", "16", "--replay-capacity", "2k"]
    assert main(words) == 0
    config = load_toml(study.with_suffix(".toml"))
    assert config["run"]["env"] == "parl/Breakout-v0"
    assert set(config["run"]["env_options"]) == {"obs_type=ram", "repeat_action_probability=0.25"}
    assert "epsilon_last" not in config["dqn"] and "gamma" in config["dqn"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"actors": 2}, "actors = 2 has no effect with dataset = .*, from which one learner learns without"),
        ({"learners": 2}, "learners = 2 has no effect with dataset = "),
        ({"engine": "ray"}, "engine = 'ray' has no effect with dataset = "),
        ({"double_buffer": True}, "double_buffer = True has no effect with dataset = "),
        ({"prefetch": 1}, "prefetch = 1 has no effect with dataset = "),
        ({"learning_starts": 100}, "dqn: learning_starts = 100 has no effect with dataset = .*: no actor"),
        ({"epsilon_last": 0.5}, "dqn: epsilon_last = 0.5 has no effect with dataset = .*: no actor"),
        ({"initial_priority": "td"}, "dqn: initial_priority = 'td' has no effect with dataset = "),
        ({"env": "parl/Pong-v0"}, "is a dataset of breakout, but parl/Pong-v0 plays pong"),
        ({"env": "CartPole-v1", "env_options": {}}, "CartPole-v1 is not one of parl's Atari games"),
        ({"env_options": {**MEMORY, "frameskip": 2}}, "recorded with frameskip = 4, but .* has 2"),
        ({"env_options": {**MEMORY, "full_action_space": True}}, "has 4 actions, but .* has 18: set full_"),
    ],
)
def test_settings_that_do_not_go_with_a_dataset_are_errors(breakout, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        parl.train("dqn", **{**RUN, "dataset": str(breakout.path), "runs": str(tmp_path), **options})


def test_algorithms_of_continuous_actions_refuse_a_dataset(breakout, tmp_path):
    with pytest.raises(ConfigError, match="td3"):
        parl.train("td3", dataset=str(breakout.path), env_options=MEMORY, runs=str(tmp_path), quiet=True)
    with pytest.raises(ConfigError, match="dataset"):
        parl.train("ppo", dataset=str(breakout.path), runs=str(tmp_path), quiet=True)
