"""Replays give what the environments gave: observations, rewards, flags, in any order and number at once."""

import itertools

import numpy as np
import pytest

import parl
from parl import datasets
from parl.datasets import hashes
from parl.errors import AtariError, ConfigError, DatasetError

FIELDS = ("observation", "action", "reward", "next_observation", "terminated", "truncated")
VIEWS = {
    "gray": {},
    "small RGB": {"grayscale": False, "img_height": 20, "img_width": 30, "stack_num": 2},
    "channels first": {"obs_type": "rgb", "channel_order": "first", "img_height": 24, "img_width": 24},
    "native": {"img_height": None, "img_width": None, "stack_num": None, "maxpool": False},
    "index": {"obs_type": "index", "stack_num": 1},
    "memory": {"obs_type": "ram", "stack_num": 3, "padding": "reset"},
    "points": {"obs_type": "ram", "reward_clipping": False, "reward_dtype": "float32"},
}


def by_episode(dataset, **options):
    """(episode, step) -> the values of a replay's row."""
    found = {}
    for rows in dataset.replay(**options):
        assert len({len(column) for column in rows.values()}) == 1
        for i, place in enumerate(zip(rows["episode"].tolist(), rows["step"].tolist(), strict=True)):
            assert place not in found
            found[place] = [rows[name][i].copy() for name in FIELDS]
    return found


def played(dataset, number, **options):
    """The same values of one episode from a plain environment, which its seed and actions drive."""
    settings = dataset.env_options | options
    episode = dataset.read(number)
    env = parl.AtariVectorEnv(dataset.game, 1, **settings, autoreset_mode="Disabled", num_threads=1)
    obs, _ = env.reset(seed=np.array([episode.seed]))
    found = {}
    for step, action in enumerate(episode.actions.tolist()):
        after, reward, terminated, truncated, infos = env.step(np.array([action]))
        row = [obs[0], action, reward[0], after[0], terminated[0], truncated[0]]
        found[number, step] = [np.copy(value) for value in row]
        obs = after
        over = infos["game_over"][0] if "game_over" in infos else terminated[0] or truncated[0]
        if (terminated[0] or truncated[0]) and not over and env.life_loss == "continues":
            obs, _ = env.reset(seed=np.array([-1]), options={"reset_mask": np.array([True])})
    env.close()
    if dataset.episodes[number].end == "cut" and not found[number, step][4]:
        found[number, step][5] = np.array(True)
    return found


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for place, row in expected.items():
        for name, value, wanted in zip(FIELDS, found[place], row, strict=True):
            assert value.dtype == wanted.dtype or name == "action"
            np.testing.assert_array_equal(value, wanted, err_msg=f"{name} of {place}")


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_a_replay_is_what_the_environment_gives(breakout, view):
    expected = {}
    for number in (0, 3, breakout.num_episodes - 1):
        expected |= played(breakout, number, **view)
    found = by_episode(breakout, episodes=[3, breakout.num_episodes - 1, 0], batch_size=2, **view)
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("pong", {}),
        ("seaquest", {"preset": "gymnasium"}),
        ("space_invaders", {"preset": "machado"}),
        ("ms_pacman", {"preset": "envpool", "max_num_steps_per_episode": 70}),
        ("asteroids", {"frameskip": (2, 5), "max_num_frames_per_episode": 300}),
        ("berzerk", {"mode": 2, "repeat_action_probability": 0.25}),
        ("adventure", {"mode": 2, "difficulty": 1, "repeat_action_probability": 0.5}),
        ("breakout", {"preset": "nature"}),
        ("breakout", {"life_loss": "ends"}),
        ("breakout", {"life_loss_info": True, "repeat_action_probability": 0.25}),
        ("qbert", {"life_loss": "any", "noop_max": 3}),
    ],
    ids=str,
)
def test_games_of_all_settings_are_replayed_as_they_were_played(game, options, tmp_path):
    small = {"img_height": 12, "img_width": 16, "stack_num": 2, "num_threads": 1}
    dataset = datasets.record(game, tmp_path / "d", 500, seed=9, num_envs=3, **options, **small)
    assert dataset.num_steps == 500 == sum(episode.steps for episode in dataset.episodes)
    expected = {}
    for number in range(dataset.num_episodes):
        expected |= played(dataset, number)
    assert_same(by_episode(dataset), expected)
    assert dataset.verify() == 500
    returns = np.zeros(dataset.num_episodes)
    for rows in dataset.replay(obs_type="ram", reward_clipping=False):
        np.add.at(returns, rows["episode"], rows["reward"])
    assert returns.tolist() == [episode.episode_return for episode in dataset.episodes]


@pytest.mark.parametrize(
    ("game", "options"),
    [
        ("pong", {"max_num_steps_per_episode": 150, "repeat_action_probability": 0.25}),
        ("breakout", {"preset": "nature"}),
        ("breakout", {"life_loss": "reports", "full_action_space": True}),
        ("breakout", {"life_loss": "ends", "noops": "numpy"}),
    ],
    ids=str,
)
def test_a_policy_saw_the_observations_of_the_replay(game, options, tmp_path):
    seen = []
    rng = np.random.default_rng(0)

    def policy(observation):
        seen.append(observation[0].copy())
        return rng.integers(4, size=1)

    dataset = datasets.record(game, tmp_path / "d", 400, policy=policy, num_envs=1, stack_num=2, **options)
    replayed = list(dataset.replay(batch_size=1))
    ends = sum(bool(rows["terminated"][0] | rows["truncated"][0]) for rows in replayed)
    assert len(seen) == 400 and ends > 2
    np.testing.assert_array_equal([rows["observation"][0] for rows in replayed], seen)


def test_rows_do_not_depend_on_batch_size_threads_and_order(breakout):
    view = {"img_height": 10, "img_width": 10}
    first = by_episode(breakout, batch_size=1, **view)
    assert len(first) == breakout.num_steps
    assert_same(by_episode(breakout, batch_size=500, num_threads=2, **view), first)
    order = np.random.default_rng(0).permutation(breakout.num_episodes)
    assert_same(by_episode(breakout, batch_size=5, episodes=order, verify=False, **view), first)


def test_a_lost_life_ends_or_does_not(breakout):
    ends = {
        life: np.concatenate([rows["terminated"] for rows in breakout.replay(obs_type="ram", life_loss=life)])
        for life in ("plain", "reports")
    }
    games = sum(episode.end == "terminated" for episode in breakout.episodes)
    assert ends["plain"].sum() == games and ends["reports"].sum() >= 5 * games


def test_rows_hold_equal_arrays_until_they_are_dropped(breakout):
    kept = list(itertools.islice(breakout.replay(batch_size=4, img_height=8, img_width=8), 40))
    copies = [{name: column.copy() for name, column in rows.items()} for rows in kept]
    again = itertools.islice(breakout.replay(batch_size=4, img_height=8, img_width=8), 40)
    for rows, copy, other in zip(kept, copies, again, strict=True):
        for name in rows:
            np.testing.assert_array_equal(rows[name], copy[name])
            np.testing.assert_array_equal(rows[name], other[name])


def test_all_episodes_begin_when_there_are_fewer_rows_than_environments(breakout):
    counts = [len(rows["step"]) for rows in breakout.replay(batch_size=4, obs_type="ram")]
    assert counts[0] == 4 and counts[-1] < 4 and sum(counts) == breakout.num_steps


def _with_other(dataset, path, change):
    """A copy of a dataset whose first episode is changed, with right checksums."""
    from parl.datasets.format import Writer

    writer = Writer(path, dataset.header)
    for number in range(dataset.num_episodes):
        episode = dataset.read(number)
        if number == 0:
            change(episode)
        writer.add(episode)
    return datasets.load(writer.finish())


def test_another_action_is_noticed(breakout, tmp_path):
    def change(episode):
        episode.actions = episode.actions.copy()
        episode.actions[20] = (episode.actions[20] + 2) % 4

    other = _with_other(breakout, tmp_path / "other", change)
    for replay in (other.verify, lambda: list(other.replay(img_height=8, img_width=8))):
        with pytest.raises(DatasetError, match=rf"{other.path}: the replay of episode 0 "):
            replay()


@pytest.mark.parametrize("field", ["seed", "hashes", "actions", "end"])
def test_other_records_are_noticed(breakout, tmp_path, field):
    def change(episode):
        value = getattr(episode, field)
        new = {"seed": lambda: value + 1, "hashes": lambda: [value[0] ^ 1], "actions": lambda: value[:-1]}
        setattr(episode, field, new[field]() if field in new else 0)
        if field == "end":
            episode.actions = episode.actions[:-1]

    other = _with_other(breakout, tmp_path / "other", change)
    with pytest.raises(DatasetError, match="episode 0"):
        other.verify()


def test_episodes_that_end_elsewhere_are_noticed_without_hashes(breakout, tmp_path):
    def longer(episode):
        episode.actions = np.concatenate([episode.actions, episode.actions[:5]])

    def shorter(episode):
        episode.actions = episode.actions[:-5]

    steps = breakout.episodes[0].steps
    for change, message in (
        (longer, f"episode 0 ends after {steps} steps, it was recorded with {steps + 5}"),
        (shorter, f"episode 0 goes on after step {steps - 5}, with which it ended"),
    ):
        other = _with_other(breakout, tmp_path / change.__name__, change)
        with pytest.raises(DatasetError, match=message):
            list(other.replay(verify=False, obs_type="ram"))


def test_the_hash_is_over_memory_lives_frame_and_reward_of_all_steps():
    rng = np.random.default_rng(0)

    def infos():
        return {
            "ram": rng.integers(256, size=(2, 128), dtype=np.uint8),
            "lives": np.array([3, 5], np.int32),
            "frames": np.array([4, 90_000], np.int32),
            "reward": np.array([-7, 1000], np.int32),
        }

    first, second = infos(), infos()

    def hash_of(*steps):
        found = np.zeros(2, np.uint64)
        for step in steps:
            found = hashes.updated(found, **step)
        return found.tolist()

    base = hash_of(first, second)
    assert hash_of(second, first) != base
    for name, column in first.items():
        for place in (0, column[0].size - 1):
            other = column.copy()
            other.reshape(2, -1)[:, place] += 1
            found = hash_of(first | {name: other}, second)
            assert found[0] != base[0] and found[1] != base[1]


def test_a_wrong_checkpoint_is_noticed(long, tmp_path):
    def change(episode):
        episode.checkpoints = long.read(1).checkpoints

    other = _with_other(long, tmp_path / "other", change)
    with pytest.raises(DatasetError, match="checkpoint of episode 0 at step 125"):
        other.verify()
    assert long.verify() == 700


def test_another_rom_is_refused(breakout, tmp_path):
    from parl.datasets.format import Writer

    for name, value, message in (("rom_md5", "0" * 32, "ROM"), ("actions", [0, 1, 3, 2], "actions")):
        writer = Writer(tmp_path / name, breakout.header | {name: value})
        writer.add(breakout.read(0))
        with pytest.raises(DatasetError, match=message):
            list(datasets.load(writer.finish()).replay())


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"frameskip": 2}, ConfigError, "frameskip is 2, but .* recorded with 4"),
        ({"repeat_action_probability": 0.0}, ConfigError, r"0.0, but .* recorded with 0.25"),
        ({"life_loss": "continues"}, ConfigError, "'plain' and 'reports'"),
        ({"autoreset_mode": "Disabled"}, ConfigError, "no option 'autoreset_mode'"),
        ({"img_hight": 3}, ConfigError, "no option 'img_hight'"),
        ({"batch_size": 0}, AtariError, "batch_size is 0, expected 1"),
        ({"batch_size": 1.5}, TypeError, "batch_size is 1.5"),
        ({"episodes": [99]}, IndexError, r"episode 99 is outside 0 to "),
        ({"img_height": 0}, ValueError, "img_height is 0"),
    ],
    ids=str,
)
def test_wrong_options_are_errors(breakout, options, error, message):
    with pytest.raises(error, match=message):
        list(breakout.replay(**options))


def test_settings_of_the_recording_may_be_repeated(breakout):
    rows = next(breakout.replay(frameskip=4, repeat_action_probability=0.25, obs_type="ram"))
    assert rows["observation"].shape == (breakout.num_episodes, 4, 128)
