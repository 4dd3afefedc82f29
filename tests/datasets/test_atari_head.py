"""Demonstrations of Atari-HEAD, in files that these tests write in the published layout."""

import io
import sys
import tarfile

import numpy as np
import pytest
from PIL import Image

import parl
from parl import datasets
from parl.datasets.atari_head import AtariHead
from parl.errors import DatasetError

HEADER = "frame_id,episode_id,score,duration(ms),unclipped_reward,action,gaze_positions"
FIRST, SECOND = "52_RZ_2394668_Aug-10-14-52-42", "198_RZ_3877709_Dec-03-16-56-11"


@pytest.fixture(scope="module")
def played():
    """Pictures of 14 frames of random play, all different, and their actions."""
    console, rng = parl.atari.Console("breakout", seed=0), np.random.default_rng(0)
    console.reset()
    pictures, actions = [], []
    for _ in range(14):
        actions.append(int(rng.choice(console.minimal_actions)))
        for _ in range(5):
            console.act(actions[-1])
        picture = console.screen_rgb.copy()
        picture[0, 0] = len(pictures)
        pictures.append(picture)
    return pictures, actions


def write(folder, trial, rows, pictures, *, packed=True):
    """The text and the pictures of a trial. `rows` are lines of text without the frame's name."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "_".join(trial.split("_")[1:3])
    lines = [HEADER, *(f"{name}_{i + 1},{row}" for i, row in enumerate(rows))]
    (folder / f"{trial}.txt").write_text("\n".join(lines) + "\n")
    files = {f"{name}_{i + 1}.png": png(picture) for i, picture in enumerate(pictures)}
    if not packed:
        (folder / trial).mkdir()
        for file, data in files.items():
            (folder / trial / file).write_bytes(data)
        return
    with tarfile.open(folder / f"{trial}.tar.bz2", "w:bz2") as archive:
        # By name, so that _10 comes before _2.
        for file, data in sorted(files.items()):
            member = tarfile.TarInfo(f"{trial}/{file}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def png(picture):
    file = io.BytesIO()
    Image.fromarray(picture).save(file, "PNG")
    return file.getvalue()


@pytest.fixture
def head(played, tmp_path):
    """Two trials: one of two episodes with 12 rows in an archive, one with 2 rows in a folder."""
    pictures, actions = played
    rows = []
    for i, action in enumerate(actions[:12]):
        episode = "null" if i in (3, 8) else i // 6
        gaze = "null" if i == 2 else f"{i}.5,{i + 1}.25,{i + 2}.5,-3.0"
        rows.append(f"{episode},{'null' if i == 4 else 10 * i},{50 + i},{i % 3},{action},{gaze}")
    folder = tmp_path / "breakout"
    write(folder, SECOND, rows, pictures[:12])
    write(folder, FIRST, ["null,null,null,null,null,null"] * 2, pictures[12:], packed=False)
    (folder / "action_enums.txt").write_text("0 PLAYER_A_NOOP\n")
    return datasets.read_atari_head(folder)


def test_the_steps_are_those_of_the_files(head, played):
    pictures, actions = played
    assert isinstance(head, AtariHead)
    assert (head.trials, head.game, head.num_steps) == ((FIRST, SECOND), "breakout", 14)
    steps = list(head.replay(trials=[SECOND]))
    assert len(steps) == 11
    for i, step in enumerate(steps):
        ended = i == 5
        assert {name: len(column) for name, column in step.items()} == dict.fromkeys(step, 1)
        np.testing.assert_array_equal(step["observation"][0], pictures[i])
        np.testing.assert_array_equal(step["next_observation"][0], pictures[i if ended else i + 1])
        assert step["action"].tolist() == [actions[i]] and step["action"].dtype == np.int64
        assert step["reward"].tolist() == [i % 3] and step["reward"].dtype == np.float32
        assert (bool(step["terminated"][0]), bool(step["truncated"][0])) == (ended, i == 10)
        assert (int(step["episode"][0]), int(step["step"][0])) == (i // 6, i % 6)
        assert int(step["score"][0]) == (-1 if i == 4 else 10 * i)
        assert int(step["duration_ms"][0]) == 50 + i
        expected = [np.nan, np.nan] if i == 2 else [i + 1.5, (i + 1.25 - 3) / 2]
        np.testing.assert_array_equal(step["gaze"][0], np.float32(expected))
    np.testing.assert_array_equal(head.gaze(SECOND)[1], np.float32([[1.5, 2.25], [3.5, -3]]))
    assert head.gaze(SECOND)[2].shape == (0, 2)


def test_stacks_begin_with_zeros_in_each_episode(head, played):
    pictures, _ = played
    steps = list(head.replay(trials=[SECOND], stack_num=3))
    nothing = np.zeros_like(pictures[0])
    for i, expected in ((0, [nothing, nothing, pictures[0]]), (7, [nothing, *pictures[6:8]])):
        np.testing.assert_array_equal(steps[i]["observation"][0], np.stack(expected))
    np.testing.assert_array_equal(steps[5]["next_observation"], steps[5]["observation"])
    np.testing.assert_array_equal(steps[7]["next_observation"][0], np.stack(pictures[6:9]))


def test_trials_are_read_at_the_same_time(head, breakout):
    batches = list(head.replay(batch_size=2))
    assert [rows["env_id"].tolist() for rows in batches] == [[0, 1]] + [[1]] * 10
    first = batches[0]
    assert (first["action"][0], first["reward"][0], first["truncated"].tolist()) == (0, 0, [True, False])
    other = next(breakout.replay(obs_type="rgb", img_height=None, img_width=None, stack_num=None))
    for name, column in other.items():
        assert first[name].shape[1:] == column.shape[1:], name
        assert first[name].dtype == column.dtype or name == "reward"


def test_a_replay_buffer_gets_the_transitions(head):
    fields = {"obs": ((210, 160, 3), "uint8"), "action": ((), "int64"), "reward": ((), "float32"),
              "terminated": ((), "bool"), "truncated": ((), "bool")}  # fmt: skip
    replay = parl.UniformReplay(100, fields, num_envs=2, autoreset="disabled", gamma=0.9, n_step=1)
    assert head.fill(replay, batch_size=2) == replay.sampleable == 12


def test_one_trial_by_its_text_and_a_game_by_name(head):
    one = datasets.read_atari_head(head.path / f"{SECOND}.txt", game="pong")
    assert (one.trials, one.game, one.num_steps) == ((SECOND,), "pong", 12)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("0,0,1,0,18,null", r"line 3: action is 18, expected 0 to 17"),
        ("0,0,1,0,up,null", r"line 3: action is 'up', expected an integer or null"),
        ("0,0,x,0,0,null", r"line 3: duration\(ms\) is 'x', expected"),
        ("0,0,1,0,0,1.0,2.0,3.0", r"line 3: gaze_positions has 3 numbers, expected pairs"),
        ("0,0,1,0,0,1.0,nan", r"line 3: gaze_positions has 'nan', expected a number"),
        ("0,0,1", r"line 3: 4 values, expected at least 7"),
    ],
)
def test_a_damaged_line_is_named(played, tmp_path, line, message):
    write(tmp_path, FIRST, ["0,0,1,0,0,null", line], played[0][:2])
    with pytest.raises(DatasetError, match=rf"{FIRST}\.txt, {message}"):
        next(datasets.read_atari_head(tmp_path).replay())


def test_errors_name_the_file(head, played, tmp_path):
    with pytest.raises(FileNotFoundError, match="gone does not exist"):
        datasets.read_atari_head(tmp_path / "gone")
    with pytest.raises(DatasetError, match="has no text files of trials"):
        datasets.read_atari_head(tmp_path)
    with pytest.raises(DatasetError, match=r"has no trial '7', only \['52_RZ"):
        head.replay(trials=["7"])
    with pytest.raises(ValueError, match="stack_num is 0, expected 1 to 64"):
        head.replay(stack_num=0)
    text, archive = head.path / f"{SECOND}.txt", head.path / f"{SECOND}.tar.bz2"
    archive.write_bytes(archive.read_bytes()[:500])
    with pytest.raises(DatasetError, match=rf"{SECOND}\.tar\.bz2 is damaged"):
        list(head.replay(trials=[SECOND]))
    archive.unlink()
    with pytest.raises(DatasetError, match=rf"{SECOND}\.txt has no pictures: neither {SECOND}\.tar\.bz2 nor"):
        datasets.read_atari_head(head.path)
    text.write_text("a,b\n")
    write(tmp_path / "one", FIRST, ["0,0,1,0,0,null"] * 3, played[0][:2])
    with pytest.raises(DatasetError, match=r"52_RZ.*\.tar\.bz2 has no picture RZ_2394668_3\.png"):
        list(datasets.read_atari_head(tmp_path / "one").replay())
    write(tmp_path / "two", FIRST, ["0,0,1,0,0,null"] * 2, [played[0][0][:100]] * 2)
    with pytest.raises(DatasetError, match=r"RZ_2394668_1\.png has shape \(100, 160, 3\), expected \(210"):
        next(datasets.read_atari_head(tmp_path / "two").replay())
    (tmp_path / "two" / f"{FIRST}.txt").write_text("frame_id,action\n")
    with pytest.raises(DatasetError, match=r"line 1: the columns are \['frame_id', 'action'\], expected"):
        _ = datasets.read_atari_head(tmp_path / "two").num_steps


def test_a_missing_pillow_is_named(head, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(ModuleNotFoundError, match=r"Pillow reads .* pip install 'parl-rl\[video\]'"):
        next(head.replay())
