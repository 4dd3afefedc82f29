"""Datasets of modified games: what their headers record, and that replays play it."""

import hashlib

import pytest

from parl import datasets
from parl.atari import games
from parl.errors import AtariError, ConfigError

CHANGES = {
    "mode": 4,
    "difficulty": 1,
    "patches": {0xF7AB: 0x90},
    "ram": {"0xB9": 2},
    "modifications": ("infinite_lives", "other_colors"),
}


def test_a_modified_game_is_recorded_and_replayed(tmp_path):
    dataset = datasets.record("breakout", tmp_path / "d", 2_500, num_envs=2, **CHANGES)
    options = dataset.env_options
    assert (options["mode"], options["difficulty"]) == (4, 1)
    assert options["hold"] == {"0x39": 5} and options["ram"] == {"0x39": 2}
    assert options["patches"]["0xF7AB"] == 0x90 and options["patches"]["0xF7AA"] == 0x1A
    assert dataset.header["recorded"]["modifications"] == ["infinite_lives", "other_colors"]
    image = bytearray(next(game.path for game in games() if game.id == "breakout").read_bytes())
    assert hashlib.md5(image).hexdigest() == dataset.header["rom_md5"]
    for address, value in options["patches"].items():
        image[int(address, 0) & 0x7FF] = value
    assert hashlib.md5(image).hexdigest() == dataset.header["patched_md5"]
    dataset.verify()
    # Without the modification, such an episode ends after a few hundred steps.
    assert [(one.end, one.steps) for one in dataset.episodes] == 2 * [("cut", 1_250)]


def test_another_variation_is_refused(tmp_path):
    dataset = datasets.record("breakout", tmp_path / "d", 100, num_envs=1, hold={57: 5})
    next(iter(dataset.replay(batch_size=1, hold={"0xB9": 5})))
    for options in ({"hold": None}, {"hold": {57: 4}}, {"mode": 4}, {"patches": {0xF7AB: 1}}):
        with pytest.raises(ConfigError, match=r"the episodes were recorded with"):
            next(iter(dataset.replay(batch_size=1, **options)))


@pytest.mark.parametrize(
    "name", ["mode", "difficulty", "repeat_action_probability", "frameskip", "modifications"]
)
def test_a_value_per_environment_is_refused(tmp_path, name):
    value = ["infinite_lives", None] if name == "modifications" else [0, 1]
    with pytest.raises(ConfigError, match=f"{name} is .*: all episodes of a dataset have one value"):
        datasets.record("breakout", tmp_path / "d", 10, num_envs=2, **{name: value})
    assert not (tmp_path / "d").exists()


def test_an_unknown_modification_is_refused(tmp_path):
    with pytest.raises(AtariError, match="'heavy_ball' is not one of breakout's modifications"):
        datasets.record("breakout", tmp_path / "d", 10, modifications="heavy_ball")
