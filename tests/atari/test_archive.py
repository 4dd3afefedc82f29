"""`StateArchive`: equal states are one, whatever the way to them, and come back as they were."""

import numpy as np
import pytest

import parl
from parl.atari import StateArchive
from parl.errors import AtariError


def stripped(rows):
    return [row.tobytes().rstrip(b"\0") for row in rows]


def ram_envs(game, num_envs=1, **options):
    envs = parl.AtariVectorEnv(game, num_envs, obs_type="ram", stack_num=None, noop_max=0, **options)
    envs.reset(seed=0)
    return envs


def test_the_order_of_actions_does_not_matter_where_the_console_is_the_same():
    envs = ram_envs("ms_pacman", repeat_action_probability=0.25)
    state = envs.get_state()
    # Ms. Pac-Man does not move while the music plays: all actions lead to the same console.
    actions = np.array([[[1, 2], [2, 1], [0, 0], [3, 4]]])
    result = envs.branch(state, actions)
    assert len(np.unique(result.states[0], axis=0)) == 4
    archive = StateArchive()
    assert [part.tolist() for part in archive.add(state)] == [[0], [True]]
    ids, new = archive.add(result.states[0])
    assert ids.tolist() == [1, 1, 1, 1] and new.tolist() == [True, False, False, False]
    assert len(archive) == 2
    assert stripped(archive.get([1, 0])) == stripped([result.states[0, 0], state[0]])
    other = StateArchive(equal="all")
    ids, new = other.add(np.concatenate([result.states[0], state, result.states[0, ::-1]]))
    assert ids.tolist() == [0, 1, 2, 3, 4, 3, 2, 1, 0] and new.tolist() == [True] * 5 + [False] * 4


def test_equal_consoles_continue_alike():
    """A random search in Breakout: states with one number give the same memory, rewards and ends."""
    envs = ram_envs("breakout")
    rng = np.random.default_rng(0)
    archive, states = StateArchive(), envs.get_state()
    found = []
    for _ in range(5):
        result = envs.branch(states, np.tile(np.arange(4)[:, None], (len(states), 1, 1)))
        rows = result.states.reshape(-1, result.states.shape[2])
        ids, new = archive.add(rows)
        found += list(zip(ids.tolist(), rows, strict=True))
        states = rows[new][:24]
    assert len(archive) < len(found)
    actions = rng.integers(4, size=(1, 1, 40))
    futures = {}
    for number, row in found:
        ends = envs.branch(row[None], actions)
        future = ends.observations.tobytes(), ends.raw_rewards.tobytes(), ends.lives.tobytes()
        assert futures.setdefault(number, future) == future
    assert len(set(futures.values())) > 1
    np.testing.assert_array_equal(archive.find(np.stack([row for _, row in found])), [i for i, _ in found])
    assert len(archive) == len(futures)


def test_rows_of_several_lengths_games_and_observations_share_an_archive():
    wide = parl.AtariVectorEnv("tic_tac_toe_3d", 2, obs_type="index", stack_num=1, frameskip=1)
    wide.reset(seed=0)
    small = ram_envs(["pong", "breakout"], 2)
    first, second = small.get_state(), wide.get_state()
    assert first.shape[1] < second.shape[1]
    archive = StateArchive()
    assert archive.add(first)[0].tolist() == [0, 1]
    ids, new = archive.add(second)
    assert ids[0] == 2 and new[0]
    padded = archive.get([0, 1, 2])
    assert padded.shape == (3, second.shape[1])
    assert stripped(padded) == stripped([*first, second[0]])
    small.set_state(padded[:2])
    np.testing.assert_array_equal(small.get_state(), first)
    assert archive.find(padded).tolist() == [0, 1, 2]
    assert archive.nbytes == sum(map(len, stripped(archive.get(range(len(archive))))))
    # The same console with other observations is equal.
    other = parl.AtariVectorEnv("pong", 1, noop_max=0, full_action_space=True)
    other.reset(seed=0)
    assert archive.find(other.get_state()).tolist() == [0]


def test_an_archive_comes_back_from_its_file(tmp_path):
    envs = ram_envs("pong")
    archive = StateArchive("all")
    result = envs.branch(envs.get_state(), np.random.default_rng(0).integers(6, size=(1, 9, 30)))
    archive.add(result.states[0])
    archive.save(tmp_path / "states.npz")
    again = StateArchive.load(tmp_path / "states.npz")
    assert (len(again), again.equal) == (len(archive), "all") == (9, "all")
    np.testing.assert_array_equal(again.get(range(9)), archive.get(range(9)))


def test_a_save_that_fails_leaves_the_older_file(tmp_path, monkeypatch):
    envs = ram_envs("pong")
    archive = StateArchive()
    archive.add(envs.get_state())
    archive.save(tmp_path / "states.npz")

    def full(descriptor):
        raise OSError("no space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="no space left"):
        archive.save(tmp_path / "states.npz")
    assert len(StateArchive.load(tmp_path / "states.npz")) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["states.npz"]


def test_a_file_of_something_else_is_an_error(tmp_path):
    envs = ram_envs("pong")
    archive = StateArchive()
    archive.add(envs.get_state())
    archive.save(tmp_path / "states.npz")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "states.npz").read_bytes()[:-100])
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.save(tmp_path / "array.npy", np.zeros(3))
    (tmp_path / "empty").touch()
    content = bytearray((tmp_path / "states.npz").read_bytes())
    content[80:120] = b"\xff" * 40
    (tmp_path / "damaged.npz").write_bytes(content)
    for name in ("cut.npz", "damaged.npz", "other.npz", "array.npy", "empty"):
        with pytest.raises(AtariError, match=f"{name} is not the file of a StateArchive"):
            StateArchive.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        StateArchive.load(tmp_path / "none")


def test_wrong_arguments_are_named():
    envs = ram_envs("pong", 2)
    states = envs.get_state()
    archive = StateArchive()
    damaged = states.copy()
    damaged[1, 100] ^= 4
    for wrong, error, match in [
        (damaged, ValueError, "row 1 of states: .*checksum"),
        (states[0], ValueError, r"states have shape \(\d+,\), expected \(n, S\)"),
        (states[:, :8], ValueError, "row 0 of states: .*less than a header"),
        (states.astype(np.int64), TypeError, "dtype int64, expected uint8"),
    ]:
        for call in (archive.add, archive.find):
            with pytest.raises(error, match=match):
                call(wrong)
    assert len(archive) == 0 and archive.add(states[:0])[0].shape == (0,)
    archive.add(states[:1])
    for number in (-1, 1):
        with pytest.raises(IndexError, match=rf"state {number} is outside 0 to 0"):
            archive.get([0, number])
    with pytest.raises(ValueError, match="equal is 'some'"):
        StateArchive("some")
