"""States inside episodes, and the size of files."""

import numpy as np
import pytest

from parl import datasets
from parl.datasets.actions import bits_of
from parl.datasets.format import interval_for

CONSOLE = {"obs_type": "ram", "stack_num": None, "reward_clipping": False}


@pytest.mark.parametrize("step", [0, 1, 149, 150, 151, 299, 300])
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
    """Without checkpoints the state is the same, after more steps."""
    steps = []
    from parl.envs import AtariVectorEnv

    original = AtariVectorEnv.step
    monkeypatch.setattr(AtariVectorEnv, "step", lambda *args: steps.append(1) or original(*args))
    quick = long.state_at(1, 310)
    assert len(steps) == 10
    monkeypatch.setattr("parl.datasets.access._loads", lambda *_: False)
    np.testing.assert_array_equal(long.state_at(1, 310), quick)
    assert len(steps) == 320


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
    with pytest.raises(IndexError, match=r"step 351 is outside 0\.\.351"):
        long.state_at(0, 351)
    with pytest.raises(IndexError, match=r"episode 2 is outside 0\.\.2"):
        long.state_at(2, 0)
    long.state_at(1, 350)


@pytest.mark.parametrize("noops", ["after_fire", "numpy"])
def test_checkpoints_are_a_few_hundred_bytes(tmp_path, monkeypatch, noops):
    """The generator of sticky actions, 2,496 bytes, is not among them, however it was seeded."""
    monkeypatch.setattr("parl.datasets.consoles.interval_for", lambda _: 150)
    dataset = datasets.record("pitfall2", tmp_path / "d", 400, num_envs=1, noops=noops)
    sizes = [len(one.data) for one in dataset.read(0).checkpoints]
    assert len(sizes) == 2 and 100 < sizes[1] < sizes[0] < 600


def test_an_episode_that_ends_with_an_interval_has_no_checkpoint_there(tmp_path, monkeypatch):
    monkeypatch.setattr("parl.datasets.consoles.interval_for", lambda _: 40)
    dataset = datasets.record("pong", tmp_path / "d", 200, num_envs=2, max_num_steps_per_episode=40)
    ends = [(episode.steps, episode.end) for episode in dataset.episodes]
    assert ends == [(40, "truncated")] * 4 + [(20, "cut")] * 2
    assert [len(dataset.read(i).checkpoints) for i in range(6)] == [0] * 6
    assert [len(dataset.read(i).hashes) for i in range(6)] == [1] * 6
    assert dataset.verify() == 200


def test_checkpoints_are_as_dense_as_the_size_allows():
    intervals = {count: interval_for(count) for count in (2, 3, 4, 6, 9, 18)}
    assert intervals == {2: 650, 3: 750, 4: 750, 6: 850, 9: 1_050, 18: 1_350}
    for count, interval in intervals.items():
        # An episode of one checkpoint: actions, checkpoint, two hashes, the counts of both.
        assert bits_of(count) / 8 + (490 + 16 + 49 + 10) / (interval + 1) < 1.05


@pytest.mark.parametrize(("game", "most"), [("breakout", 0.85), ("pitfall", 1.05)])
def test_a_step_takes_at_most_a_byte(tmp_path, game, most):
    """Random play in Breakout has the shortest episodes, some 180 steps; Pitfall has all 18 actions."""
    dataset = datasets.record(game, tmp_path / "d", 8_000, num_envs=4)
    assert dataset.size_bytes / dataset.num_steps < most


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
    assert small.size_bytes < 0.7 * plain.size_bytes
    for number in range(plain.num_episodes):
        np.testing.assert_array_equal(small.actions(number), plain.actions(number))
    assert small.verify() == 1_500
