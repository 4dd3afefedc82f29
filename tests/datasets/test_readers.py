"""Datasets in torch's loaders, in replay buffers and in Minari."""

import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import parl
from parl import datasets
from parl.errors import ConfigError, DatasetError

SMALL = {"img_height": 8, "img_width": 8, "stack_num": 2}
ABOUT = {"author": "parl", "author_email": "parl@example.org", "code_permalink": "https://example.org"}
FIELDS = {
    "obs": ((2, 8, 8), "uint8"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def places(batches):
    return [
        place
        for rows in batches
        for place in zip(rows["episode"].tolist(), rows["step"].tolist(), strict=True)
    ]


def test_a_loader_gives_tensors_of_the_replay(breakout):
    loader = DataLoader(datasets.TorchDataset(breakout.path, batch_size=4, **SMALL), batch_size=None)
    for rows, expected in zip(loader, breakout.replay(batch_size=4, **SMALL), strict=True):
        assert rows.keys() == expected.keys()
        for name, column in rows.items():
            assert isinstance(column, torch.Tensor)
            np.testing.assert_array_equal(column.numpy(), expected[name])


def test_workers_share_the_episodes(breakout):
    options = {"batch_size": 40, "obs_type": "ram", "episodes": range(4)}
    dataset = datasets.TorchDataset(breakout, shuffle=True, **options)
    loader = DataLoader(dataset, batch_size=None, num_workers=2)
    found = places(loader)
    assert sorted(found) == sorted(places(breakout.replay(**options)))


def test_shuffled_episodes_begin_in_another_order(breakout):
    options = {"batch_size": 1, "obs_type": "ram", "verify": False, "episodes": range(5)}
    dataset = datasets.TorchDataset(breakout, shuffle=True, **options)

    def order():
        seen = dict.fromkeys(rows["episode"].item() for rows in DataLoader(dataset, batch_size=None))
        return list(seen)

    torch.manual_seed(0)
    first, second = order(), order()
    torch.manual_seed(0)
    assert order() == first != second
    assert sorted(first) == list(range(5)) != first


def test_workers_that_stay_shuffle_each_pass_in_another_order(breakout):
    options = {"batch_size": 1, "obs_type": "ram", "verify": False, "episodes": range(5)}
    dataset = datasets.TorchDataset(breakout, shuffle=True, **options)
    torch.manual_seed(0)
    loader = DataLoader(dataset, batch_size=None, num_workers=1, persistent_workers=True)
    orders = [list(dict.fromkeys(rows["episode"].item() for rows in loader)) for _ in range(3)]
    assert len({tuple(order) for order in orders}) == 3
    assert {tuple(sorted(order)) for order in orders} == {tuple(range(5))}


def test_wrong_options_of_a_loader_are_errors_at_once(breakout):
    with pytest.raises(ConfigError, match="frameskip is 2"):
        datasets.TorchDataset(breakout, frameskip=2)


@pytest.mark.parametrize("autoreset", ["next_step", "same_step", "disabled"])
@pytest.mark.parametrize("frame_stack", [1, 2])
def test_a_replay_buffer_samples_the_transitions(breakout, autoreset, frame_stack):
    fields = FIELDS | {"obs": (FIELDS["obs"][0][frame_stack > 1 :], "uint8")}
    replay = parl.UniformReplay(
        4_000, fields, num_envs=5, autoreset=autoreset, frame_stack=frame_stack, gamma=0.5
    )
    assert breakout.fill(replay, batch_size=5, **SMALL) == breakout.num_steps
    assert replay.sampleable == breakout.num_steps
    expected = {}
    for rows in breakout.replay(**SMALL):
        for i in range(len(rows["step"])):
            key = rows["observation"][i].tobytes(), int(rows["action"][i])
            discount = 0.0 if rows["terminated"][i] else 0.5
            value = rows["next_observation"][i].tobytes(), float(rows["reward"][i]), discount
            expected.setdefault(key, set()).add(value)
    batch = replay.sample(600)
    finals = 0
    for i in range(600):
        found = batch.next_obs[i].tobytes(), float(batch.reward[i]), float(batch.discount[i])
        values = expected[batch.obs[i].tobytes(), int(batch.action[i])]
        if found[2] == 0.0:
            finals += 1
            assert found[1:] in {value[1:] for value in values}
        else:
            assert found in values
    assert finals


def test_two_parts_are_not_joined(breakout):
    """The last rows of a part are not followed by the first ones of the next part."""
    replay = parl.UniformReplay(1_000, FIELDS, num_envs=4, autoreset="disabled")
    for _ in range(3):
        breakout.fill(replay, steps=100, batch_size=4, **SMALL)
    assert len(replay) == 300
    known = {
        (rows["observation"][i].tobytes(), int(rows["action"][i]), rows["next_observation"][i].tobytes())
        for rows in breakout.replay(episodes=range(4), **SMALL)
        for i in range(len(rows["step"]))
    }
    batch = replay.sample(500)
    found = {
        (obs.tobytes(), int(action), after.tobytes())
        for obs, action, after in zip(batch.obs, batch.action, batch.next_obs, strict=True)
    }
    assert len(found) > 50 and found <= known


def test_a_part_fills_a_prioritized_replay(breakout):
    replay = parl.PrioritizedReplay(500, FIELDS, num_envs=4, n_step=3, autoreset="same_step")
    assert breakout.fill(replay, steps=203, batch_size=4, **SMALL) == 203
    assert len(replay) == 203
    first = replay.sampleable
    assert breakout.fill(replay, steps=100, batch_size=4, **SMALL) == 100
    assert replay.sampleable > first


@pytest.fixture
def minari(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return pytest.importorskip("minari", reason="the package minari is not installed")


@pytest.mark.filterwarnings("ignore:`eval_env` is set to None", "ignore:env_spec is None")
def test_episodes_written_to_minari_and_read_again_are_equal(breakout, minari, tmp_path):
    made = datasets.to_minari(breakout, "breakout/random-v0", metadata=ABOUT, **SMALL, reward_clipping=False)
    assert made.total_steps == 2_000 and made.total_episodes == breakout.num_episodes
    assert made.observation_space.shape == (2, 8, 8) and made.action_space.n == 4
    for number, episode in enumerate(made.iterate_episodes()):
        rows = list(breakout.replay(episodes=[number], **SMALL, reward_clipping=False))
        assert len(episode.observations) == len(episode.actions) + 1 == len(rows) + 1
        np.testing.assert_array_equal(episode.observations[:-1], [row["observation"][0] for row in rows])
        np.testing.assert_array_equal(episode.observations[-1], rows[-1]["next_observation"][0])
        np.testing.assert_array_equal(episode.rewards, [row["reward"][0] for row in rows])
        np.testing.assert_array_equal(episode.truncations, [row["truncated"][0] for row in rows])
    again = datasets.from_minari("breakout/random-v0", tmp_path / "again.parl")
    assert again.episodes == breakout.episodes and again.verify() == 2_000
    for number in range(again.num_episodes):
        assert again.read(number).seed == breakout.read(number).seed
        assert again.read(number).hashes == breakout.read(number).hashes
    assert again.env_options == breakout.env_options | SMALL | {"reward_clipping": False}


@pytest.mark.filterwarnings("ignore:`eval_env` is set to None", "ignore:env_spec is None")
def test_minari_datasets_that_do_not_replay_are_refused(breakout, minari, tmp_path):
    made = datasets.to_minari(breakout, "breakout/few-v0", episodes=[1, 0], metadata=ABOUT, **SMALL)
    seeds = [breakout.read(1).seed, breakout.read(0).seed]
    right = datasets.from_minari(made, tmp_path / "right", seeds=seeds)
    with pytest.raises(FileExistsError, match="right exists already"):
        datasets.from_minari(made, right.path, seeds=seeds)
    with pytest.raises(DatasetError, match="few-v0"):
        datasets.from_minari(made, right.path, seeds=[seeds[0], seeds[0] + 1], overwrite=True)
    assert datasets.load(right.path).episodes == right.episodes
    assert not list(tmp_path.glob("*unproven*"))
    with pytest.raises(DatasetError, match="few-v0"):
        datasets.from_minari(made, tmp_path / "wrong", seeds=[seeds[0], seeds[0] + 1])
    with pytest.raises(DatasetError, match=r"few-v0.* 2 episodes, but there are 1 seeds"):
        datasets.from_minari(made, tmp_path / "wrong", seeds=[3])
    with pytest.raises(DatasetError, match=r"has observations of shape"):
        datasets.from_minari(made, tmp_path / "wrong", img_height=9)
    assert not (tmp_path / "wrong").exists()
    with pytest.raises(ConfigError, match="episodes is empty"):
        datasets.to_minari(breakout, "breakout/none-v0", episodes=[])


def test_missing_packages_are_named_with_the_command_that_installs_them(monkeypatch, tmp_path):
    dataset = datasets.record("pong", tmp_path / "d", 20, num_envs=1)
    monkeypatch.setitem(sys.modules, "minari", None)
    for attempt in (
        lambda: datasets.to_minari(dataset, "a/b-v0"),
        lambda: datasets.from_minari("a/b-v0", "d"),
    ):
        with pytest.raises(ModuleNotFoundError, match=r"minari.*: pip install 'parl-rl\[minari\]'"):
            attempt()
    monkeypatch.delitem(vars(datasets), "TorchDataset", raising=False)
    monkeypatch.delitem(sys.modules, "parl.datasets.iterable", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"parl.datasets.TorchDataset needs torch: pip install"):
        _ = datasets.TorchDataset
