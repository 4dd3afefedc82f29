"""Recording: policies, options, wrong input."""

import numpy as np
import pytest

import parl
from parl import datasets
from parl.atari import Action, Console
from parl.atari.recording import Recorder
from parl.envs import EnvMaker, spec_of
from parl.envs.recorded import read_play
from parl.errors import AtariError, ConfigError, DatasetError


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"game": "pung"}, AtariError, "no game 'pung'.*pong"),
        ({"steps": 0}, AtariError, "steps is 0, expected 1"),
        ({"steps": 1.5}, TypeError, "steps is 1.5, expected an int"),
        ({"num_envs": 0}, AtariError, "num_envs is 0, expected 1"),
        ({"seed": -1}, AtariError, "seed is -1, expected 0"),
        ({"policy": 3}, ConfigError, "policy is 3, expected None, a function"),
        ({"policy": "no/such/run"}, (ValueError, FileNotFoundError), "no/such/run"),
        ({"policy": lambda obs: np.zeros(7, int)}, ConfigError, r"shape \(7,\) for 2 observations"),
        ({"policy": lambda obs: np.zeros(2)}, ConfigError, r"returned float64 of shape \(2,\)"),
        ({"policy": lambda obs: np.full(2, 6)}, ConfigError, "actions 6 to 6, expected 0 to 5"),
        ({"continuous": True}, ConfigError, "continuous is True: a dataset holds one discrete action"),
        ({"device": "cuda"}, ConfigError, "device is 'cuda'"),
        ({"autoreset_mode": "NextStep"}, ConfigError, "recordings and replays set it themselves"),
        ({"batch_size": 1}, ConfigError, "batch_size is 1"),
        ({"stack": 4}, ConfigError, "there is no option 'stack'"),
        ({"noop_max": 10**6}, AtariError, "noop_max is 1000000"),
        ({"preset": "moon"}, ConfigError, "preset is 'moon'"),
    ],
)
def test_wrong_input_is_an_error(tmp_path, options, error, message):
    with pytest.raises(error, match=message):
        datasets.record(**({"game": "pong", "path": tmp_path / "d", "steps": 10, "num_envs": 2} | options))
    assert not (tmp_path / "d").exists()


def test_the_header_says_how(tmp_path):
    dataset = datasets.record(
        "ALE/Pong-v5", tmp_path / "deep" / "d", 10, num_envs=1, frameskip=(2, 5), noop_max=0
    )
    assert dataset.game == "pong"
    assert dataset.env_options["frameskip"] == (2, 5) and dataset.env_options["stack_num"] == 4
    recorded = {"steps": 10, "seed": 0, "num_envs": 1, "policy": "random"}
    assert dataset.header["recorded"] == recorded
    envs = parl.AtariVectorEnv(dataset.game, 2, **dataset.env_options)
    assert envs.settings["noop_max"] == 0
    envs.close()


def test_random_actions_are_uniform(tmp_path):
    dataset = datasets.record("pong", tmp_path / "d", 3_000, num_envs=3, seed=4)
    actions = np.concatenate([dataset.actions(number) for number in range(dataset.num_episodes)])
    counts = np.bincount(actions, minlength=6)
    assert len(counts) == 6 and (abs(counts - 500) < 100).all()


class Predicts:
    """The interface of a policy of a run, with a state that counts the steps of each episode."""

    def __init__(self):
        self.starts = []

    def predict(self, observation, *, state=None, episode_start=None):
        assert observation.shape[1:] == (2, 128)
        self.starts.append(episode_start)
        if state is None:
            state = np.zeros(len(observation), int)
        elif episode_start is not None:
            state = np.where(episode_start, 0, state)
        return state % 6, state + 1


def test_a_policy_with_a_state_starts_anew_with_each_episode(tmp_path):
    policy = Predicts()
    dataset = datasets.record(
        "pong",
        tmp_path / "d",
        200,
        policy=policy,
        num_envs=2,
        obs_type="ram",
        stack_num=2,
        max_num_steps_per_episode=40,
    )
    assert [episode.steps for episode in dataset.episodes] == [40] * 4 + [20] * 2
    for number in range(6):
        actions = dataset.actions(number)
        assert actions.tolist() == [step % 6 for step in range(len(actions))]
    assert policy.starts[0] is None and policy.starts[40].all() and not policy.starts[41].any()


def test_a_policy_that_saw_another_game_is_noticed(tmp_path, monkeypatch):
    from parl.datasets import recording

    original = recording.view_options
    monkeypatch.setattr(recording, "view_options", lambda *args: original(*args) | {"noop_max": 1})
    with pytest.raises(DatasetError, match="two environments with the same actions differ"):
        datasets.record("pong", tmp_path / "d", 50, num_envs=2, policy=lambda obs: np.zeros(len(obs), int))


def test_progress_is_reported(tmp_path):
    seen = []
    datasets.record("pong", tmp_path / "d", 10, num_envs=4, progress=lambda *counts: seen.append(counts))
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_play_becomes_a_dataset(tmp_path):
    console = Console("breakout", seed=0)
    recorder = Recorder(console)
    for frame in range(4 * 300):
        if console.game_over:
            console.reset()
            recorder.restart()
        console.act(recorder.action([Action.FIRE, Action.LEFT, Action.UPRIGHT][frame // 60 % 3]))
    recorder.write(tmp_path / "play.npz")
    with np.load(tmp_path / "play.npz") as file:
        actions, starts = file["actions"], file["starts"]
    dataset = datasets.from_play(tmp_path / "play.npz", tmp_path / "d", stack_num=2)
    assert dataset.num_steps == len(actions) == 300
    assert [episode.steps for episode in dataset.episodes] == np.diff([*starts, 300]).tolist()
    assert np.array_equal(np.concatenate([dataset.actions(i) for i in range(len(starts))]), actions)
    assert dataset.verify() == 300
    # Without the starts of later games these recordings go on after the end of one.
    assert len(starts) > 1
    columns = dict(np.load(tmp_path / "play.npz"))
    np.savez(tmp_path / "long.npz", **columns | {"starts": starts[:1]})
    maker = EnvMaker("parl/Breakout-v0", {"obs_type": "ram", "stack_num": None})
    with pytest.raises(ConfigError, match=rf"a game ends with step {starts[1] - 1}, but no other one starts"):
        read_play([tmp_path / "long.npz"], maker, spec_of(maker(1)))
    np.savez(tmp_path / "wrong.npz", **columns | {"actions": np.full(300, 9)})
    for _ in range(2):  # Nothing of the first attempts is left, which would refuse the second ones.
        with pytest.raises(DatasetError, match=rf"ends with step {starts[1] - 1}, but it has 300 steps"):
            datasets.from_play(tmp_path / "long.npz", tmp_path / "e")
        with pytest.raises(DatasetError, match="episode 0 has the action 9, expected 0 to 3"):
            datasets.from_play(tmp_path / "wrong.npz", tmp_path / "e")


def write_array(path, content):
    np.save(path.with_suffix(".npy"), np.zeros(3))
    path.with_suffix(".npy").rename(path)


def write_cut(path, content):
    np.savez(path, **content)
    path.write_bytes(path.read_bytes()[:-30])


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda path, content: path.write_bytes(b"no file of numpy"), "is not an .npz file of arrays"),
        (lambda path, content: path.write_bytes(b""), "is not an .npz file of arrays"),
        (write_array, "is not an .npz file of arrays"),
        (write_cut, "is not an .npz file of arrays"),
        (lambda path, content: np.savez(path, game="pong", actions=content["actions"]), "no array 'mode'"),
        (lambda path, content: np.savez(path, **content | {"starts": np.array([2])}), "starts begins with"),
        (lambda path, content: np.savez(path, **content | {"actions": np.ones(3)}), "actions is float64"),
    ],
)
def test_files_that_are_no_recording_are_named(write, message, tmp_path):
    path, maker = tmp_path / "play.npz", EnvMaker("parl/Pong-v0", {"obs_type": "ram", "stack_num": None})
    numbers = {"mode": 0, "difficulty": 0, "frameskip": 4}
    write(path, {"game": "pong", **numbers, "actions": np.zeros(3, np.uint8), "starts": np.array([0])})
    with pytest.raises(DatasetError, match=message):
        datasets.from_play(path, tmp_path / "d")
    with pytest.raises(ConfigError, match=message):
        read_play([path], maker, spec_of(maker(1)))


@pytest.mark.parametrize("preset", ["ale", "envpool", "gymnasium", "machado", "nature"])
def test_play_is_the_same_with_the_observations_of_every_preset(tmp_path, preset):
    console = Console("breakout", seed=0)
    recorder = Recorder(console)
    memories = []
    for frame in range(4 * 120):
        if frame % 4 == 0:
            memories.append(console.read_ram())
        console.act(recorder.action([Action.FIRE, Action.LEFT, Action.UPRIGHT][frame // 60 % 3]))
    recorder.write(tmp_path / "play.npz")
    dataset = datasets.from_play(tmp_path / "play.npz", tmp_path / "d", preset=preset)
    rows = list(dataset.replay(obs_type="ram", stack_num=None))
    np.testing.assert_array_equal(np.concatenate([row["observation"] for row in rows]), memories)


def test_play_is_not_made_a_dataset_of_another_game(tmp_path):
    recorder = Recorder(Console("breakout"))
    for _ in range(8):
        recorder.action(Action.FIRE)
    recorder.write(tmp_path / "play.npz")
    for name, value in {
        "full_action_space": True,
        "repeat_action_probability": 0.25,
        "noop_max": 30,
        "frameskip": 2,
        "modifications": "one_life",
        "hold": {0x39: 5},
    }.items():
        with pytest.raises(ConfigError, match=f"{name} is .*, but play is recorded with"):
            datasets.from_play(tmp_path / "play.npz", tmp_path / "d", **{name: value})
    assert not (tmp_path / "d").exists()


def test_play_of_a_game_without_difficulty_0_becomes_a_dataset(tmp_path):
    console = Console("backgammon")
    recorder = Recorder(console)
    for _ in range(40):
        console.act(recorder.action(Action.RIGHT))
    recorder.write(tmp_path / "play.npz")
    dataset = datasets.from_play(tmp_path / "play.npz", tmp_path / "d")
    rows = list(dataset.replay(obs_type="ram", stack_num=None))
    np.testing.assert_array_equal(rows[-1]["next_observation"][0], console.ram)


def test_numbers_and_dtypes_of_numpy_among_the_options(tmp_path):
    path = tmp_path / "pong.parl"
    options = {"obs_type": "ram", "img_height": np.int64(84), "reward_dtype": np.float32}
    datasets.record("pong", path, 10, num_envs=1, **options)
    assert datasets.Dataset(path).num_steps >= 10
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
    assert parl.AtariVectorEnv("pong", 1, reward_dtype=np.float32).settings["reward_dtype"] == "float32"
