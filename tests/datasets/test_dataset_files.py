"""Files: damaged, cut off, unfinished, merged and split ones."""

import pickle
import shutil
import signal
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from parl import datasets
from parl.datasets.actions import decode_actions, encode_actions
from parl.datasets.format import PART_SUFFIX
from parl.errors import ConfigError, DatasetError


def read_all(path):
    """Opens a dataset and reads every episode, without playing it."""
    dataset = datasets.load(path)
    return [dataset.read(number) for number in range(dataset.num_episodes)]


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.parl"
    return datasets.record("pong", path, 60, num_envs=2)


def test_index_and_records_agree(breakout):
    assert breakout.num_steps == len(breakout) == 2_000
    assert breakout.num_episodes == len(breakout.episodes) > 8
    assert [episode.end for episode in breakout.episodes[-3:]] == ["cut"] * 3
    assert {episode.end for episode in breakout.episodes[:-3]} == {"terminated"}
    assert len({breakout.read(number).seed for number in range(breakout.num_episodes)}) == len(
        breakout.episodes
    )
    for episode in breakout.episodes:
        actions = breakout.actions(episode.number)
        assert actions.dtype == np.uint8 and len(actions) == episode.steps
    assert "breakout, " in repr(breakout) and "2,000 steps" in repr(breakout)


def test_the_same_seed_gives_the_same_file(tmp_path):
    def recorded(name, **options):
        return datasets.record("pong", tmp_path / name, 300, num_envs=2, **options).path.read_bytes()

    first = recorded("a", seed=5, num_threads=1)
    assert recorded("b", seed=5, num_threads=2) == first != recorded("c", seed=6)


def test_every_flipped_byte_is_an_error(small, tmp_path):
    data, path = small.path.read_bytes(), tmp_path / "flipped.parl"
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 1 << place % 8]) + data[place + 1 :])
        with pytest.raises(DatasetError, match=r"flipped\.parl"):
            read_all(path)
    path.write_bytes(data)
    assert len(read_all(path)) == 2


def test_every_cut_is_an_error(small, tmp_path):
    data, path = small.path.read_bytes(), tmp_path / "short.parl"
    for length in range(0, len(data), 2):
        path.write_bytes(data[:length])
        with pytest.raises(DatasetError, match=r"short\.parl"):
            read_all(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(DatasetError, match=r"short\.parl"):
        read_all(path)


def test_random_bytes_are_errors(tmp_path):
    rng = np.random.default_rng(0)
    path = tmp_path / "random.parl"
    for _ in range(200):
        path.write_bytes(b"parl-act" * int(rng.integers(2)) + rng.bytes(int(rng.integers(200))))
        with pytest.raises(DatasetError, match=r"random\.parl"):
            datasets.load(path)


def test_wrong_records_with_right_checksums_are_errors(small, tmp_path):
    """Every byte of a record changed, with a new checksum: an error, or another episode."""
    data, path = small.path.read_bytes(), tmp_path / "wrong.parl"
    position = int(small._index["position"][0])
    length = struct.unpack_from("<I", data, position)[0]
    seen = {"error": 0, "read": 0}
    for place in range(position + 8, position + 8 + length):
        changed = bytearray(data)
        changed[place] ^= 0x81
        record = bytes(changed[position + 8 : position + 8 + length])
        struct.pack_into("<I", changed, position + 4, zlib.crc32(changed[position : position + 4] + record))
        path.write_bytes(changed)
        try:
            read_all(path)
        except DatasetError as error:
            assert "wrong.parl" in str(error)
            seen["error"] += 1
        else:
            seen["read"] += 1
    assert seen["error"] > 8 and seen["read"] > 8


def test_an_index_of_other_episodes_is_an_error(breakout, tmp_path):
    """The positions of two episodes exchanged, with a new checksum."""
    data, path = bytearray(breakout.path.read_bytes()), tmp_path / "other.parl"
    at = struct.unpack("<Q", data[-28:-20])[0]
    lengths = breakout._index["steps"]
    assert lengths[0] != lengths[1]
    data[at : at + 8], data[at + 17 : at + 25] = data[at + 17 : at + 25], data[at : at + 8]
    struct.pack_into("<I", data, len(data) - 12, zlib.crc32(data[at:-12]))
    path.write_bytes(data)
    with pytest.raises(DatasetError, match=r"other\.parl is damaged: .* episode 0 is not that of the index"):
        read_all(path)
    data[at + 12] = 7
    struct.pack_into("<I", data, len(data) - 12, zlib.crc32(data[at:-12]))
    path.write_bytes(data)
    with pytest.raises(DatasetError, match="an end of an episode that does not exist"):
        datasets.load(path)


def test_a_newer_version_and_missing_files_are_errors(small, tmp_path):
    data = bytearray(small.path.read_bytes())
    struct.pack_into("<I", data, 8, 3)
    (tmp_path / "newer").write_bytes(data)
    with pytest.raises(DatasetError, match=r"newer has format version 3, this parl reads up to 2"):
        datasets.load(tmp_path / "newer")
    with pytest.raises(FileNotFoundError):
        datasets.load(tmp_path / "nothing")


def test_a_file_of_version_1_is_read_and_replayed(tmp_path):
    """The file was written by the first version of the format; a new recording has the same episodes."""
    old = datasets.load(Path(__file__).with_name("breakout-version-1.parl"))
    assert (old.num_steps, old.game, old.env_options["life_loss"]) == (300, "breakout", "reports")
    assert old.verify() == 300
    about = old.header["recorded"]
    new = datasets.record("breakout", tmp_path / "new", 300, seed=7, num_envs=2, **old.env_options)
    own = {name: new.header[name] for name in ("parl", "interval", "states")}
    assert new.header == old.header | own and about["seed"] == 7
    assert (old.version, new.version) == (1, 2)
    # A part of it is a file of this version.
    (part,) = datasets.split(old.path, [tmp_path / "part"], [1])
    assert part.version == 2 and part.verify() == 300
    for number in range(2):
        expected = old.read(number)
        for found in (new.read(number), part.read(number)):
            assert (found.seed, found.end, found.hashes) == (expected.seed, expected.end, expected.hashes)
            np.testing.assert_array_equal(found.actions, expected.actions)
    assert len(old.state_at(0, 70)) == len(new.state_at(0, 70))
    np.testing.assert_array_equal(old.state_at(0, 70), new.state_at(0, 70))


def test_existing_files_are_kept(small, tmp_path):
    path = tmp_path / "one"
    path.write_text("kept")
    with pytest.raises(FileExistsError, match="one exists already"):
        datasets.record("pong", path, 10, num_envs=1)
    assert path.read_text() == "kept"
    datasets.record("pong", path, 10, num_envs=1, overwrite=True)
    assert datasets.load(path).num_steps == 10
    assert [file.name for file in tmp_path.iterdir()] == ["one"]


KILLED = """
import os, signal, sys
import numpy as np
from parl import datasets

calls = []
def policy(observation):
    calls.append(1)
    if len(calls) == 250:
        os.kill(os.getpid(), signal.SIGKILL)
    return np.arange(2) + len(calls) % 3

datasets.record("breakout", sys.argv[1], 10_000, policy=policy, num_envs=2, max_num_steps_per_episode=60)
"""


def test_a_killed_recording_loses_only_the_episodes_that_ran(tmp_path):
    path = tmp_path / "killed.parl"
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], capture_output=True, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    part = path.with_name(path.name + PART_SUFFIX)
    assert part.exists() and not path.exists()
    with pytest.raises(DatasetError, match=r"killed\.parl\.part is unfinished"):
        datasets.load(part)
    with pytest.raises(FileExistsError, match=r"killed\.parl\.part exists"):
        datasets.record("breakout", path, 10, num_envs=1)
    found = datasets.recover(part)
    assert found.path == path
    assert [episode.steps for episode in found.episodes] == [60] * 8
    assert found.verify() == 480
    with pytest.raises(FileExistsError, match=r"killed\.parl exists already"):
        datasets.recover(part)


def test_whole_episodes_are_recovered_from_every_cut(small, tmp_path):
    data, part = small.path.read_bytes(), tmp_path / "cut.part"
    ends = [int(position) for position in small._index["position"][1:]] + [
        struct.unpack("<Q", data[-28:-20])[0]
    ]
    for length in range(0, len(data), 3):
        part.write_bytes(data[:length])
        whole = sum(end <= length for end in ends)
        if whole:
            found = datasets.recover(part, tmp_path / "found", overwrite=True)
            assert [found.read(i).seed for i in range(found.num_episodes)] == [
                small.read(i).seed for i in range(whole)
            ]
        else:
            with pytest.raises(DatasetError, match=r"cut\.part"):
                datasets.recover(part, tmp_path / "found", overwrite=True)
    with pytest.raises(ConfigError, match=r"does not end in \.part"):
        datasets.recover(small.path)


def test_a_failed_recording_keeps_its_episodes(tmp_path):
    def policy(observation):
        if len(seen) == 130:
            raise RuntimeError("the policy failed")
        seen.append(1)
        return np.zeros(1, int)

    seen = []
    path = tmp_path / "failed.parl"
    with pytest.raises(RuntimeError, match="the policy failed"):
        datasets.record("pong", path, 500, policy=policy, num_envs=1, max_num_steps_per_episode=50)
    assert datasets.recover(f"{path}.part").num_steps == 100


def test_merge_and_split_keep_episodes(breakout, tmp_path):
    def actions_of(parts):
        return [part.actions(i).tolist() for part in parts for i in range(part.num_episodes)]

    parts = datasets.split(breakout.path, [tmp_path / name for name in "abc"], [2, 1, 1])
    assert actions_of(parts) == actions_of([breakout])
    assert sum(part.num_steps for part in parts) == 2_000
    assert abs(parts[0].num_steps - 1_000) <= 150 and parts[1].num_steps > 300
    merged = datasets.merge([part.path for part in parts], tmp_path / "all")
    assert actions_of([merged]) == actions_of([breakout])
    assert merged.env_options == breakout.env_options and merged.episodes == breakout.episodes
    assert merged.verify() == 2_000


def test_datasets_of_other_settings_are_not_merged(small, breakout, tmp_path):
    with pytest.raises(DatasetError, match=r"small\.parl has game = 'pong', but .* 'breakout'"):
        datasets.merge([breakout.path, small.path], tmp_path / "all")
    other = datasets.record("pong", tmp_path / "other", 10, num_envs=1, noop_max=3)
    with pytest.raises(DatasetError, match=r"other has noop_max = 3, but .* 30"):
        datasets.merge([small.path, other.path], tmp_path / "all")
    with pytest.raises(ConfigError, match="paths is empty"):
        datasets.merge([], tmp_path / "all")
    assert not (tmp_path / "all").exists() and not (tmp_path / "all.part").exists()


@pytest.mark.parametrize(
    ("paths", "shares", "error", "message"),
    [
        (["a"], [1, 2], ConfigError, "1 files and 2 shares"),
        (["a", "b"], [1, 0], ConfigError, "a share is 0"),
        (["a", "b"], [1, float("nan")], ConfigError, "a share is nan"),
        (["a", "b", "c"], [1, 1, 1], DatasetError, "a file would be empty"),
    ],
)
def test_wrong_shares_are_errors(small, tmp_path, paths, shares, error, message):
    with pytest.raises(error, match=message):
        datasets.split(small.path, [tmp_path / name for name in paths], shares)
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_is_not_split_into_itself_or_twice_into_one_file(breakout, tmp_path):
    source = tmp_path / "source"
    shutil.copy(breakout.path, source)
    for paths in (["source", "a"], ["a", "a"], ["a", "./a"]):
        with pytest.raises(ConfigError, match="is named twice"):
            datasets.split(source, [f"{tmp_path}/{name}" for name in paths], [1, 1], overwrite=True)
    assert list(tmp_path.iterdir()) == [source]
    assert source.read_bytes() == breakout.path.read_bytes()


def test_episodes_are_integers(breakout):
    with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
        breakout.replay(episodes=[0.5])


def test_datasets_are_pickled(breakout):
    again = pickle.loads(pickle.dumps(breakout))
    assert again.episodes == breakout.episodes
    np.testing.assert_array_equal(again.actions(2), breakout.actions(2))
    with pytest.raises(IndexError, match=r"episode 99 is outside 0 to "):
        again.read(99)


@pytest.mark.parametrize("num_actions", [1, 2, 3, 4, 6, 18])
@pytest.mark.parametrize("steps", [0, 1, 7, 1000])
def test_actions_are_packed_without_loss(num_actions, steps):
    actions = np.random.default_rng(steps).integers(num_actions, size=steps, dtype=np.uint8)
    for compress in (False, True):
        encoding, data = encode_actions(actions, num_actions, compress)
        assert len(data) <= -(-steps * 5 // 8)
        np.testing.assert_array_equal(decode_actions(encoding, data, steps, num_actions), actions)
        if steps > 1:
            for wrong in (data[:-1], data + b"x"):
                with pytest.raises(ValueError, match="its actions"):
                    decode_actions(encoding, wrong, steps, num_actions)
        if num_actions > 1:
            bits = actions[:, None] >> np.arange((num_actions - 1).bit_length()) & 1
            old = np.packbits(bits.astype(np.uint8), bitorder="little").tobytes()  # of version 1
            np.testing.assert_array_equal(decode_actions(0, old, steps, num_actions), actions)
    encoding, data = encode_actions(np.zeros(500, np.uint8), num_actions, True)
    assert encoding == 1 and len(data) < 20
    with pytest.raises(ValueError, match="the encoding 7"):
        decode_actions(7, data, 500, num_actions)
