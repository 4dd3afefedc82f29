"""Logged replays of DQN, in files that these tests write in the published layout."""

import gzip

import numpy as np
import pytest

import parl
from parl import datasets
from parl.datasets import dqn_replay
from parl.datasets.learning import environment_of, open_dataset
from parl.errors import ConfigError, DatasetError

STEPS = 60


@pytest.fixture(scope="module")
def played():
    """Three short games of Breakout: pictures, actions, clipped rewards, ends; the last game is open."""
    envs = parl.AtariVectorEnv(
        "breakout", 1, stack_num=None, noop_max=0, use_fire_reset=False, autoreset_mode="Disabled"
    )
    rng = np.random.default_rng(0)
    games = []
    for seed in range(3):
        obs, _ = envs.reset(seed=np.array([seed]))
        game = []
        for step in range(STEPS):
            action = rng.integers(4, size=1)
            following, reward, *_ = envs.step(action)
            game.append((obs[0].copy(), int(action[0]), float(reward[0]), seed < 2 and step == STEPS - 1))
            obs = following
        games.append(game)
    envs.close()
    return games


def rows_of(games, blank=3):
    """The rows of a log: each game after blank ones."""
    nothing = (np.zeros((84, 84), np.uint8), 0, 0.0, False)
    return [row for game in games for row in [nothing] * blank + game]


def write(folder, number, rows):
    folder.mkdir(parents=True, exist_ok=True)
    kinds = {"observation": "uint8", "action": "int32", "reward": "float32", "terminal": "uint8"}
    for place, (name, kind) in enumerate(kinds.items()):
        with gzip.open(folder / f"$store$_{name}_ckpt.{number}.gz", "wb", 1) as file:
            np.save(file, np.array([row[place] for row in rows], kind))


@pytest.fixture(scope="module")
def log(played, tmp_path_factory):
    """Two files; the second one goes on in the middle of the second game, and has an unused end."""
    folder = tmp_path_factory.mktemp("log") / "Breakout" / "1" / "replay_logs"
    rows = rows_of(played)
    cut = 3 + STEPS + 3 + 20
    write(folder, 0, rows[:cut])
    write(folder, 1, rows[cut:] + rows_of([[]]) * 5)
    return datasets.read_dqn_replay(folder)


def expected_steps(game, stack, begin=0):
    """The transitions of a game, stacks padded with zeros, of those from ``begin`` on with a next picture."""
    pictures = [np.zeros((84, 84), np.uint8)] * (stack - 1) + [row[0] for row in game]
    found = []
    for i, (_, action, reward, ended) in enumerate(game):
        if i < begin or (i + 1 == len(game) and not ended):
            continue
        obs = np.stack(pictures[i : i + stack])
        following = obs if ended else np.stack(pictures[i + 1 : i + 1 + stack])
        found.append((obs.tobytes(), action, reward, following.tobytes(), ended))
    return found


def steps_of(batches):
    return [
        (
            rows["observation"][i].tobytes(),
            int(rows["action"][i]),
            float(rows["reward"][i]),
            rows["next_observation"][i].tobytes(),
            bool(rows["terminated"][i]),
        )
        for rows in batches
        for i in range(len(rows["step"]))
    ]


@pytest.mark.parametrize("block", [7, 64, 8_192])
@pytest.mark.parametrize("pieces", [1, 5])
def test_the_steps_are_those_that_were_logged(log, played, monkeypatch, block, pieces):
    monkeypatch.setattr(dqn_replay, "_BLOCK", block)
    first, second, third = played
    for stack in (1, 4):
        expected = expected_steps(first, stack) + expected_steps(second[:20], stack)
        # The second file has no pictures before its first one, without which there are no stacks.
        rest = [(row[0].tobytes(), row) for row in second[20:]]
        assert len(rest) == STEPS - 20
        expected += expected_steps(second, stack, 20 + stack - 1) + expected_steps(third, stack)
        found = steps_of(log.replay(stack_num=stack, batch_size=pieces))
        assert len(found) == len(expected)
        assert sorted(found) == sorted(expected)
        if pieces == 1:
            assert found == expected


def test_rows_have_the_names_and_shapes_of_replays_of_datasets(log, breakout):
    rows = next(log.replay(batch_size=4))
    other = next(breakout.replay(batch_size=4))
    assert rows.keys() == other.keys()
    for name, column in other.items():
        assert rows[name].shape == (4, *column.shape[1:]), name
        assert rows[name].dtype == column.dtype or name == "reward"
    assert next(log.replay(batch_size=2, stack_num=None))["observation"].shape == (2, 84, 84)


def test_a_replay_buffer_gets_the_transitions(log, played):
    fields = {"obs": ((84, 84), "uint8"), "action": ((), "int64"), "reward": ((), "float32"),
              "terminated": ((), "bool"), "truncated": ((), "bool")}  # fmt: skip
    replay = parl.UniformReplay(
        1_000, fields, frame_stack=4, num_envs=3, autoreset="disabled", gamma=0.5, n_step=1
    )
    count = log.fill(replay, batch_size=3, checkpoints=[0])
    assert count == replay.sampleable == STEPS + 19
    known = {step[:2] for step in expected_steps(played[0], 4) + expected_steps(played[1][:20], 4)}
    batch = replay.sample(300)
    # At the start of a piece the buffer has no earlier pictures.
    newest = {(obs[-84 * 84 :], action) for obs, action in known}
    assert {(obs[-1].tobytes(), int(a)) for obs, a in zip(batch.obs, batch.action, strict=True)} <= newest


def test_dqn_learns_from_a_log(log, tmp_path):
    run = parl.train(
        "dqn",
        dataset=str(log.path),
        total_steps=64,
        batch_size=16,
        num_envs=2,
        hidden=(16,),
        evaluation_episodes=0,
        runs=str(tmp_path),
        quiet=True,
    )
    assert run.updates == 4
    assert parl.load(run.path, "last").env_maker.name == "parl/Breakout-v0"
    with pytest.raises(ConfigError, match="logged replays of DQN are for dqn and rainbow"):
        parl.train("bc", dataset=str(log.path), runs=str(tmp_path), quiet=True)
    with pytest.raises(ConfigError, match=r"gray pictures of 84 x 84 every 4 frames, but .* 128"):
        parl.train(
            "dqn", dataset=str(log.path), env_options={"obs_type": "ram"}, runs=str(tmp_path), quiet=True
        )


def test_the_game_is_that_of_the_folder(log, tmp_path):
    assert log.game == "breakout" and log.checkpoints == (0, 1)
    assert environment_of(log)[1]["repeat_action_probability"] == 0.25
    write(tmp_path / "x", 3, rows_of([]) or [(np.zeros((84, 84), np.uint8), 0, 0.0, False)])
    unknown = open_dataset(tmp_path / "x")
    assert unknown.game is None and unknown.num_steps == 1 and list(unknown.replay()) == []
    with pytest.raises(ConfigError, match="does not say its game"):
        environment_of(unknown)
    assert datasets.read_dqn_replay(tmp_path / "x", game="pong").game == "pong"


def test_missing_and_damaged_files_are_errors(log, played, tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing is not a folder"):
        datasets.read_dqn_replay(tmp_path / "nothing")
    with pytest.raises(DatasetError, match="has no files"):
        datasets.read_dqn_replay(tmp_path)
    with pytest.raises(DatasetError, match=r"has no checkpoint 7, only \[0, 1\]"):
        log.replay(checkpoints=[7])
    with pytest.raises(ValueError, match="batch_size is 0"):
        log.replay(batch_size=0)
    folder = tmp_path / "pong"
    write(folder, 0, rows_of(played[:1]))
    reward = folder / "$store$_reward_ckpt.0.gz"
    data = reward.read_bytes()
    for wrong in (b"", data[:20], data[:-9], b"x" + data[1:]):
        reward.write_bytes(wrong)
        with pytest.raises(DatasetError, match=r"reward_ckpt\.0\.gz is damaged"):
            list(datasets.read_dqn_replay(folder).replay())
    with gzip.open(reward, "wb") as file:
        np.save(file, np.zeros(5, np.float32))
    with pytest.raises(DatasetError, match="the files of checkpoint 0 have 63 observations"):
        list(datasets.read_dqn_replay(folder).replay())
    reward.unlink()
    with pytest.raises(DatasetError, match=r"has no file \$store\$_reward_ckpt\.0\.gz"):
        datasets.read_dqn_replay(folder)
