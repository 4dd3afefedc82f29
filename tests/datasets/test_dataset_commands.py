"""`parl record-dataset` and `parl dataset`."""

import json

import pytest

from parl import datasets
from parl.cli import main
from parl.errors import ConfigError


@pytest.fixture
def called(capsys):
    """Runs a command; returns its exit status, output and errors."""

    def call(*words):
        status = main([str(word) for word in words])
        return status, *capsys.readouterr()

    return call


def test_record_and_verify(called, tmp_path):
    path = tmp_path / "pong.parl"
    options = ("--env-options", "repeat_action_probability=0.25", "noop_max=3")
    status, out, err = called(
        "record-dataset", "pong", "-o", path, "--steps", "1k", "--num-envs", 3, "--seed", 4, *options
    )
    assert (status, err) == (0, "")
    dataset = datasets.load(path)
    assert (
        out == f"{path}: {dataset.num_episodes} episodes, 1,000 steps of pong, {dataset.size_bytes:,} bytes\n"
    )
    assert dataset.env_options["noop_max"] == 3 and dataset.header["recorded"]["seed"] == 4
    same = datasets.record("pong", tmp_path / "b", 1_000, seed=4, num_envs=3, **dataset.env_options)
    assert [same.actions(i).tolist() for i in range(3)] == [dataset.actions(i).tolist() for i in range(3)]
    status, out, _ = called("dataset", "verify", path, tmp_path / "b", "--batch-size", 2)
    assert status == 0
    assert out == "".join(
        f"{file}: 3 episodes, 1,000 steps are as they were recorded\n" for file in (path, tmp_path / "b")
    )
    status, _, err = called("record-dataset", "pong", "-o", path)
    assert status == 1 and err == f"parl: {path} exists already: choose another name, or overwrite it\n"


def test_info_prints_counts_and_settings_of_a_dataset(breakout, called):
    status, out, _ = called("dataset", "info", breakout.path, "--episodes")
    assert status == 0
    rows = dict(line.split(None, 1) for line in out.splitlines())
    assert rows["game"] == "breakout" and rows["steps"] == "2,000" and rows["cut"] == "3"
    assert rows["repeat_action_probability"] == "0.250"
    assert f"{breakout.num_episodes - 1} " in out.splitlines()[-1] and out.endswith("cut\n")
    about = json.loads(called("dataset", "info", breakout.path, "--json", "--episodes")[1])
    assert about["episodes"] == breakout.num_episodes == len(about["episode_rows"])
    assert about["bytes_per_step"] == breakout.size_bytes / 2_000
    ended = [episode.episode_return for episode in breakout.episodes if episode.end != "cut"]
    assert about["mean_return"] == pytest.approx(sum(ended) / len(ended))


def test_split_merge_recover(breakout, called, tmp_path):
    first, second, merged = (tmp_path / name for name in ("first", "second", "merged"))
    status, out, err = called(
        "dataset", "split", breakout.path, "--out", first, second, "--shares", 0.75, 0.25
    )
    assert status == 0, err
    parts = [datasets.load(first), datasets.load(second)]
    assert out.splitlines()[0] == f"{first}: {parts[0].num_episodes} episodes, {parts[0].num_steps:,} steps"
    status, out, err = called("dataset", "merge", first, second, "-o", merged)
    assert (status, err) == (0, "") and "2,000 steps" in out
    assert datasets.load(merged).episodes == breakout.episodes
    part = tmp_path / "killed.parl.part"
    part.write_bytes(breakout.path.read_bytes()[:-300])
    status, out, err = called("dataset", "recover", part)
    assert (status, err) == (0, "") and datasets.load(tmp_path / "killed.parl").num_episodes > 3


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["dataset"], 2, "parl dataset takes info, verify, merge, split, recover, got ''"),
        (["dataset", "check"], 2, "parl dataset takes info"),
        (["dataset", "verify"], 2, "parl dataset verify: "),
        (["dataset", "info", "nowhere"], 1, "nowhere: No such file or directory"),
        (["dataset", "info", "d", "--episode"], 2, "no option --episode: did you mean --episodes?"),
        (["record-dataset", "pung", "-o", "d"], 1, "there is no game 'pung'"),
        (["record-dataset", "pong", "-o", "d", "--steps", "0"], 1, "steps is 0, expected 1 to"),
        (["record-dataset", "pong", "-o", "d", "--env-options", "noops"], 1, "'noops' is not of the form"),
        (["record-dataset", "x.npz", "-o", "d", "--steps", "3"], 2, "--steps has no effect on x.npz"),
    ],
    ids=str,
)
def test_wrong_input_is_one_message(called, tmp_path, monkeypatch, words, status, message):
    monkeypatch.chdir(tmp_path)
    found, out, err = called(*words)
    assert (found, out) == (status, "") and message in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_is_one_message(breakout, called, tmp_path):
    data = bytearray(breakout.path.read_bytes())
    data[len(data) // 2] ^= 4
    (tmp_path / "bad").write_bytes(data)
    status, _, err = called("dataset", "verify", tmp_path / "bad")
    assert status == 1 and err.startswith(f"parl: {tmp_path / 'bad'} is damaged") and err.count("\n") == 1


def test_an_interrupted_recording_says_how_to_keep_its_episodes(called, tmp_path, monkeypatch):
    from parl.datasets.consoles import LoggedConsoles

    step, calls = LoggedConsoles.step, []

    def interrupted(*words):
        if len(calls) == 95:
            raise KeyboardInterrupt
        calls.append(1)
        return step(*words)

    monkeypatch.setattr(LoggedConsoles, "step", interrupted)
    path = tmp_path / "d"
    options = ("--env-options", "max_num_steps_per_episode=40", "--num-envs", 2)
    status, _, err = called("record-dataset", "pong", "-o", path, *options)
    command = f"parl dataset recover {path}.part"
    assert status == 130 and err == f"parl: interrupted; {command} keeps the episodes that have ended\n"
    status, out, _ = called(*command.split()[1:])
    assert (status, out) == (0, f"{path}: 4 episodes, 160 steps\n")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run of PPO on Pong's memory."""
    import parl

    return parl.train(
        "ppo",
        env="parl/Pong-v0",
        env_options={"obs_type": "ram", "stack_num": 2, "noop_max": 5},
        runs=str(tmp_path_factory.mktemp("runs")),
        num_envs=2,
        total_steps=64,
        rollout_steps=16,
        minibatch_size=16,
        evaluation_episodes=0,
        quiet=True,
    ).path


def test_the_policy_of_a_run_is_recorded(run, called, tmp_path):
    import parl

    status, out, err = called(
        "record-dataset", run, "-o", tmp_path / "d", "--steps", 150, "--num-envs", 2, "--checkpoint", "last"
    )
    assert (status, err) == (0, "") and "150 steps of pong" in out
    dataset = datasets.load(tmp_path / "d")
    assert dataset.env_options["obs_type"] == "ram" and dataset.env_options["noop_max"] == 5
    assert dataset.header["recorded"]["policy"] == str(run)
    policy = parl.load(run, "last")
    for rows in dataset.replay():
        assert policy.predict(rows["observation"])[0].tolist() == rows["action"].tolist()
    (checkpoint,) = (run / "checkpoints").glob("step-*")
    status, out, _ = called("record-dataset", checkpoint, "-o", tmp_path / "e", "--steps", 20)
    assert status == 0 and "20 steps of pong" in out
    same = datasets.record("pong", tmp_path / "same", 150, policy=run, num_envs=2)
    assert same.num_steps == 150
    with pytest.raises(ConfigError, match=r"policy is of parl/Pong-v0, expected one of parl's .* breakout"):
        datasets.record("breakout", tmp_path / "other", 150, policy=policy)
