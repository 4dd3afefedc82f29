"""States inside episodes, and the size of files."""

import pickle
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parl import datasets
from parl.datasets import checkpoints
from parl.datasets.actions import digit_bytes, digits_of
from parl.errors import DatasetError

CONSOLE = {"obs_type": "ram", "stack_num": None, "reward_clipping": False}


@pytest.mark.parametrize("step", [0, 1, 124, 125, 126, 250, 300])
def test_a_state_goes_on_as_the_episode(long, step):
    states = [long.state_at(number, step) for number in (0, 1)]
    envs = long.make_envs(2, **CONSOLE)
    envs.set_state(np.stack(states))
    expected = {}
    for rows in long.replay(**CONSOLE):
        for i, number in enumerate(rows["episode"].tolist()):
            if step <= rows["step"][i] < step + 50:
                expected[number, int(rows["step"][i])] = rows["next_observation"][i], rows["reward"][i]
    actions = np.stack([long.actions(number)[step : step + 50] for number in (0, 1)])
    assert len(expected) == 2 * actions.shape[1] == 100
    for offset in range(50):
        memory, reward, *_ = envs.step(actions[:, offset])
        for number in (0, 1):
            wanted_memory, wanted_reward = expected[number, step + offset]
            np.testing.assert_array_equal(memory[number], wanted_memory)
            assert reward[number] == wanted_reward


def test_a_state_comes_from_the_checkpoint_before_it(long, monkeypatch):
    """Without checkpoints of this version of states it is the same, after more steps."""
    from parl.datasets.environments import EpisodeVectorEnv

    played = []
    original = EpisodeVectorEnv.play
    monkeypatch.setattr(
        EpisodeVectorEnv,
        "play",
        lambda self, env, actions: played.append(len(actions)) or original(self, env, actions),
    )
    quick = long.state_at(1, 310)
    assert played == [60]
    # A checkpoint has no last frames: the step before the state is always played.
    long.state_at(1, 250)
    assert played == [60, 125]
    monkeypatch.setattr("parl.datasets.access.STATE_VERSION", 1_000)
    np.testing.assert_array_equal(datasets.load(long.path).state_at(1, 310), quick)
    assert played == [60, 125, 310]


def test_states_do_not_depend_on_earlier_ones(long):
    """One console reaches all of them: also after another episode, and in several threads."""
    expected = {
        place: datasets.load(long.path).state_at(*place).tobytes() for place in [(0, 349), (1, 0), (1, 160)]
    }
    places = [*expected, *reversed(expected)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda place: long.state_at(*place).tobytes(), places))
    assert found == [expected[place] for place in places]
    again = pickle.loads(pickle.dumps(long))
    assert again.state_at(1, 160).tobytes() == expected[1, 160]


def test_states_where_lives_are_episodes(tmp_path):
    """With `life_loss="continues"` a game goes on after a lost life, also right before a checkpoint."""
    dataset = datasets.record("tennis", tmp_path / "d", 100, num_envs=1, life_loss="continues", noop_max=3)
    lives = datasets.record("breakout", tmp_path / "b", 600, num_envs=1, life_loss="continues", noop_max=3)
    for one in (dataset, lives):
        ends = {
            (int(rows["episode"][0]), int(rows["step"][0])): bool(rows["terminated"][0])
            for rows in one.replay(batch_size=1, obs_type="ram")
        }
        lost = [place for place, ended in ends.items() if ended and (place[0], place[1] + 1) in ends]
        for number, step in lost[:2] or [(0, 50)]:
            envs = one.make_envs(1, **CONSOLE)
            envs.set_state(one.state_at(number, step + 1)[None])
            seen = [
                rows["next_observation"][0]
                for rows in one.replay(episodes=[number], **CONSOLE)
                if rows["step"][0] > step
            ]
            for action, memory in zip(one.actions(number)[step + 1 :][:20], seen, strict=False):
                np.testing.assert_array_equal(envs.step(np.array([action]))[0][0], memory)
    assert lost


def test_states_outside_are_errors(long):
    with pytest.raises(IndexError, match=r"step 351 is outside 0 to 350"):
        long.state_at(0, 351)
    with pytest.raises(IndexError, match=r"episode 2 is outside 0 to 1"):
        long.state_at(2, 0)
    long.state_at(1, 350)


@pytest.mark.parametrize("noops", ["after_fire", "numpy"])
def test_checkpoints_are_small(tmp_path, noops):
    """The generator of sticky actions, 2,496 bytes, is not among them, however it was seeded."""
    dataset = datasets.record("pitfall2", tmp_path / "d", 1_400, num_envs=1, noops=noops)
    episode = dataset.read(0)
    assert episode.spacing <= 300 and episode.num_checkpoints >= 4
    assert len(episode.checkpoints) / episode.num_checkpoints < 130
    assert dataset.verify() == 1_400


def test_an_episode_that_ends_with_a_spacing_has_no_checkpoint_there(tmp_path, monkeypatch):
    monkeypatch.setattr("parl.datasets.consoles.INTERVAL", 30)
    monkeypatch.setattr("parl.datasets.consoles.SPACING", 5)
    monkeypatch.setattr("parl.datasets.checkpoints.SPACING", 5)
    monkeypatch.setattr("parl.datasets.format._MOST_PER_STEP", 9.0)
    dataset = datasets.record("pong", tmp_path / "d", 200, num_envs=2, max_num_steps_per_episode=75)
    ends = [(episode.steps, episode.end) for episode in dataset.episodes]
    assert ends == [(75, "truncated")] * 2 + [(25, "cut")] * 2
    assert [dataset.read(i).num_checkpoints for i in range(4)] == [2, 2, 0, 0]
    assert [len(dataset.read(i).hashes) for i in range(4)] == [3, 3, 1, 1]
    assert dataset.verify() == 200
    for step in (0, 24, 25, 26, 50, 75):
        assert len(dataset.state_at(0, step))


def rows_of(count, size=700, seed=0):
    """Rows of which each differs from the one before it in a few bytes."""
    rng = np.random.default_rng(seed)
    rows = [rng.integers(256, size=size, dtype=np.uint8)]
    for _ in range(count):
        row = rows[-1].copy()
        row[rng.integers(size, size=30)] = rng.integers(256, size=30)
        rows.append(row)
    return rows[1:], rows[0]


@pytest.mark.parametrize("count", [10, 315, 320, 325, 700])
def test_rows_are_packed_without_loss(count):
    rows, reference = rows_of(count)
    spacing, data = checkpoints.pack(rows, reference, 1e9)
    assert spacing == 125
    kept = rows[4::5]
    found = list(checkpoints.unpack(data, len(kept), reference))
    np.testing.assert_array_equal(np.stack(found), np.stack(kept))
    for number in {0, len(kept) // 2, len(kept) - 1}:
        one = checkpoints.unpack_one(data, len(kept), number, reference)
        np.testing.assert_array_equal(one, kept[number])


def test_there_are_as_many_checkpoints_as_the_budget_allows():
    rows, reference = rows_of(200)
    whole = len(checkpoints.pack(rows, reference, 1e9)[1])
    seen = []
    for share in (1.0, 0.8, 0.6, 0.4, 0.3, 0.02):
        budget = share * whole
        spacing, data = checkpoints.pack(rows, reference, budget)
        assert len(data) <= budget and (spacing == 0) == (not data)
        seen.append(spacing)
    assert seen[0] == 125 and seen[-1] == 0 and len(set(seen)) > 4
    assert seen[:-1] == sorted(seen[:-1]) and all(spacing % 25 == 0 for spacing in seen)
    assert checkpoints.pack(rows[:9], reference, 1e9) == (0, b"")


def test_damaged_checkpoints_are_errors():
    rows, reference = rows_of(500)
    _, data = checkpoints.pack(rows, reference, 1e9)
    checkpoints.check(data, 100)
    for wrong, count in ((data[:-1], 100), (data + b"x", 100), (data, 300), (data, 3), (b"", 1)):
        with pytest.raises(ValueError, match=rf"its {count} checkpoints are \d+ groups that end at byte \d+"):
            checkpoints.check(wrong, count)
    damaged = data[:4] + bytes(20) + data[24:]
    with pytest.raises(ValueError, match="checkpoint"):
        list(checkpoints.unpack(damaged, 100, reference[:-1]))


def test_a_damaged_checkpoint_names_file_and_episode(long, tmp_path):
    from parl.datasets.format import Writer

    writer = Writer(tmp_path / "other", long.header)
    for number in range(2):
        episode = long.read(number)
        episode.checkpoints = struct.pack("<I", 9) + episode.checkpoints[4:13]
        writer.add(episode)
    other = datasets.load(writer.finish())
    for reads in (lambda: other.state_at(1, 200), other.verify):
        with pytest.raises(DatasetError, match=r"other.* episode [01].*checkpoint"):
            reads()


def test_actions_take_little_more_than_their_entropy():
    assert {count: digits_of(count) for count in (1, 2, 3, 4, 6, 9, 18)} == {
        1: 64, 2: 64, 3: 40, 4: 32, 6: 24, 9: 20, 18: 15,
    }  # fmt: skip
    for count in (2, 3, 4, 6, 9, 18):
        assert digit_bytes(100_000, count) * 8 / 100_000 < np.log2(count) + 0.1


@pytest.mark.parametrize("game", ["breakout", "pitfall"])
def test_a_step_takes_at_most_a_byte(tmp_path, game):
    """Random play in Breakout has the shortest episodes, some 180 steps; Pitfall has all 18 actions."""
    dataset = datasets.record(game, tmp_path / "d", 8_000, num_envs=4)
    header = int(dataset._index["position"][0])
    # In a file of 100,000 steps the header is 0.01 bytes a step.
    assert header < 1_100
    assert (dataset.size_bytes - header) / dataset.num_steps < 1.04


def test_repeated_actions_are_compressed(tmp_path):
    plain, small = (
        datasets.record(
            "pong",
            tmp_path / str(compress),
            1_500,
            num_envs=1,
            policy=lambda obs: np.full(1, int(obs[0, 54] > 120)),
            obs_type="ram",
            stack_num=None,
            compress=compress,
        )
        for compress in (False, True)
    )
    saved = plain.size_bytes - small.size_bytes
    assert saved > 0.7 * digit_bytes(1_500, 6)
    for number in range(plain.num_episodes):
        np.testing.assert_array_equal(small.actions(number), plain.actions(number))
    assert small.verify() == 1_500
