"""`obs_type="objects"`: fields agree with pictures, lives and scores; results are those of the memory."""

import pickle
import tomllib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import parl
from parl.atari import Console, ObjectField, object_games, objects
from parl.envs.atari.objects import TensorFieldReader
from parl.errors import AtariError

cv2 = pytest.importorskip("cv2")
SEEN = tomllib.loads(Path(__file__).with_name("object_pictures.toml").read_text())
# A quarter of the games, and the only one with a flag, are compared in the quick tests.
QUICK = {*list(object_games())[::4], "pong"}
FIELDS = [
    pytest.param(game, field.name, marks=[] if game in QUICK else pytest.mark.slow(minutes=1))
    for game in object_games()
    for field in objects(game)
]
# Frames of which pictures are kept, and all frames: scores and lives change seldom.
FRAMES, ALL_FRAMES, EVERY = 4_500, 15_000, 5
# Share of the frames in which an object is seen, and of them at the wrong times.
LEAST, MOST_BY_CHANCE = 0.8, 0.6


@lru_cache(maxsize=1)
def played(game):
    """Memory, pictures, lives, gains and losses of points in every fifth frame of random play."""
    console, rng = Console(game, seed=1), np.random.default_rng(1)
    console.reset()
    memory, pictures, figures = [], [], []
    gains = losses = left = 0
    for frame in range(1, ALL_FRAMES + 1):
        if left == 0:
            action, left = int(rng.choice(console.minimal_actions)), int(rng.integers(1, 14))
        left -= 1
        points = console.act(action)
        gains, losses = gains + max(points, 0), losses + max(-points, 0)
        if console.game_over:
            console.reset()
            gains = losses = 0
        if frame % EVERY == 0:
            memory.append(console.ram.copy())
            if frame <= FRAMES:
                pictures.append(console.screen.copy())
            figures.append((console.lives, gains, losses))
    return np.array(memory), np.array(pictures), np.array(figures).T


def distances(pictures, seen, axis, values):
    """Distance in pixels of `values` to the nearest group of pixels of the color; NaN without any."""
    first, last = seen.get("rows", (0, pictures.shape[1] - 1))
    shown = np.isin(pictures[:, first : last + 1], seen["color"])
    shown &= shown.mean(0) <= 0.9  # The scenery.
    found = np.full(len(pictures), np.nan)
    for i, pixels in enumerate(shown):
        if not pixels.any():
            continue
        # Pixels with gaps of up to two between them are one object.
        near = cv2.dilate(pixels.astype(np.uint8), np.ones((3, 3), np.uint8))
        boxes = cv2.connectedComponentsWithStats(near)[2][1:]
        place = 0 if axis == "x" else 1
        centers = boxes[:, place] + (boxes[:, place + 2] - 1) / 2 + (0 if axis == "x" else first)
        found[i] = np.abs(centers - values[i]).min()
    return found


def test_at_least_twenty_games_have_verified_fields():
    assert len(object_games()) >= 20
    assert {game: list(fields) for game, fields in SEEN.items()} == {
        game: [field.name for field in objects(game)] for game in object_games()
    }
    assert {field.type for game in object_games() for field in objects(game)} == {"x", "y", "counter", "flag"}
    for game in object_games():
        assert any(field.type in "xy" for field in objects(game)), game


@pytest.mark.parametrize(("game", "name"), FIELDS)
def test_fields_agree_with_the_picture_the_lives_or_the_score(game, name):
    field = next(field for field in objects(game) if field.name == name)
    seen = SEEN[game][name]
    memory, pictures, (lives, gains, losses) = played(game)
    values = field.read(memory).astype(np.int64)
    if field.type != "counter":
        values = values[: len(pictures)]
    if field.type in ("x", "y"):
        tolerance = seen.get("tolerance", 3)
        found = distances(pictures, seen, field.type, values)
        visible = ~np.isnan(found)
        assert visible.sum() >= 40
        share = (found[visible] <= tolerance).mean()
        order = np.random.default_rng(0).permutation(len(values))
        by_chance = (distances(pictures, seen, field.type, values[order])[visible] <= tolerance).mean()
        assert share >= LEAST, (share, np.nanmedian(found))
        assert by_chance <= MOST_BY_CHANCE, by_chance
    elif field.type == "flag":
        first, last = seen["rows"]
        shown = np.isin(pictures[:, first : last + 1], seen["color"]).any((1, 2))
        assert (values[shown] == 1).mean() >= 0.95
        assert (values[~shown] == 0).mean() >= 0.95
    else:
        total = {"lives": lives, "gains": gains, "losses": losses}[seen["counts"]]
        total = total // seen.get("unit", 1) % seen.get("modulus", 100 if field.decimal else 256)
        assert len(set(total.tolist())) > 1
        # Some games draw a score a few frames before or after it changes.
        assert (values == total).mean() >= 0.95


def expected(memory, game="breakout"):
    fields = np.stack([field.read(memory) for field in objects(game)], axis=-1)
    return fields * memory.any(
        -1, keepdims=True
    )  # Padding is zero, although a byte of 0 can be another value.


def pair(**options):
    given = {"num_envs": 3, "stack_num": 2, **options}
    return (parl.AtariVectorEnv("breakout", obs_type=kind, **given) for kind in ("ram", "objects"))


@pytest.mark.parametrize(
    "options",
    [
        {"autoreset_mode": "SameStep", "max_num_frames_per_episode": 24, "frameskip": (2, 6)},
        {"stack_num": None, "output": "torch", "repeat_action_probability": 0.25},
        {"batch_size": 2, "ordered": True, "num_threads": 1},
    ],
)
def test_observations_are_the_fields_of_the_memory(options):
    plain, named = pair(**options)
    assert named.object_names == tuple(field.name for field in objects("breakout"))
    shape = (5,) if "stack_num" in options else (2, 5)
    assert named.single_observation_space.shape == shape
    left, right = plain.reset(seed=4)[0], named.reset(seed=4)[0]
    out = None if "output" in options else np.zeros((named.batch_size, *shape), np.uint8)
    ends = 0
    for step in range(20):
        np.testing.assert_array_equal(expected(np.asarray(left)), np.asarray(right))
        action = np.full(named.batch_size, step % 4)
        left, *_, info = plain.step(action)
        right, *_, other = named.step(action, out=out)
        assert out is None or right is out
        assert info["env_id"].tolist() == other["env_id"].tolist()
        if "_final_obs" in info:
            ended = info["_final_obs"]
            ends += ended.sum()
            np.testing.assert_array_equal(expected(info["final_obs"][ended]), other["final_obs"][ended])
            assert not other["final_obs"][~ended].any()
    assert ends or "autoreset_mode" not in options
    assert np.asarray(right).any()
    plain.close()
    named.close()


@pytest.mark.parametrize("game", ["boxing", "freeway"])
def test_older_observations_of_a_stack_are_zero_after_a_reset(game):
    """As a replay pads stacks; in these games fields of a byte of 0 are not 0."""
    options = {"num_threads": 1, "noop_max": 0, "use_fire_reset": False, "autoreset_mode": "SameStep"}
    envs = parl.AtariVectorEnv(
        game, 2, obs_type="objects", stack_num=4, max_num_steps_per_episode=3, **options
    )
    assert envs.frame_stack == (4, "zero")
    seen = [envs.reset(seed=0)[0]]
    for _ in range(3):
        obs, *_, info = envs.step(np.zeros(2, np.int64))
        seen.append(obs)
    for age, stack in enumerate([*seen[:3], info["final_obs"], seen[3]]):
        begun = age % 4 + 1
        assert not stack[:, : 4 - begun].any()
        assert stack[:, 4 - begun :].any(-1).all()


def test_fields_on_a_device_are_those_on_the_cpu():
    torch = pytest.importorskip("torch")
    memory = np.random.default_rng(0).integers(256, size=(3, 4, 128)).astype(np.uint8)
    memory[1, :2] = 0
    reader = TensorFieldReader(objects("boxing"), torch.device("cpu"))
    found = reader.read(torch.from_numpy(memory))
    assert found.dtype == torch.uint8
    np.testing.assert_array_equal(found.numpy(), expected(memory, "boxing"))


def test_masks_states_branches_and_copies():
    plain, named = pair(num_threads=1)
    mask = {"reset_mask": np.array([False, True, True])}
    for envs in (plain, named):
        envs.reset(seed=1)
        envs.step(np.ones(3, np.int64))
    left, right = plain.reset(seed=7, options=mask)[0], named.reset(seed=7, options=mask)[0]
    np.testing.assert_array_equal(expected(left), right)
    np.testing.assert_array_equal(plain.get_state(), named.get_state())
    actions = np.tile(np.arange(4)[:, None], (3, 1, 5))
    one, other = plain.branch(plain.get_state(), actions), named.branch(named.get_state(), actions)
    np.testing.assert_array_equal(expected(one.observations), other.observations)
    np.testing.assert_array_equal(one.states, other.states)
    assert named.branch(named.get_state(), actions, observe=False).states is not None
    copy = pickle.loads(pickle.dumps(named))
    np.testing.assert_array_equal(copy.step(np.zeros(3, int))[0], named.step(np.zeros(3, int))[0])


def test_a_dataset_is_replayed_as_objects(tmp_path):
    dataset = parl.datasets.record("breakout", tmp_path / "b.parl", steps=40, num_envs=1, seed=0)
    rows = zip(dataset.replay(obs_type="ram"), dataset.replay(obs_type="objects"), strict=True)
    for memory, fields in rows:
        for name in ("observation", "next_observation"):
            np.testing.assert_array_equal(expected(memory[name]), fields[name])


def test_a_field_applies_its_mask_scale_and_offset():
    ram = np.zeros((2, 128), np.uint8)
    ram[:, 5] = 0x47, 0xF2
    assert ObjectField("a", "counter", 5, decimal=True).read(ram).tolist() == [47, 152]
    assert ObjectField("a", "counter", 5, mask=0xF0).read(ram).tolist() == [4, 15]
    assert ObjectField("a", "flag", 5, mask=0x80).read(ram).tolist() == [0, 1]
    assert ObjectField("a", "x", 5, scale=-1, offset=100).read(ram).tolist() == [29, 0]
    assert ObjectField("a", "x", 5, scale=2).read(ram[0]) == 142


def test_errors_name_the_value_and_what_is_expected():
    with pytest.raises(AtariError, match=r"'adventure' has no table of objects, only these have: .*pong"):
        objects("adventure")
    with pytest.raises(AtariError, match="'adventure' has no table"):
        parl.AtariVectorEnv("adventure", obs_type="objects")
    with pytest.raises(AtariError, match="no game 'pongg'"):
        objects("pongg")
    with pytest.raises(AtariError, match=r'obs_type is "object", expected one of gray, .*objects'):
        parl.AtariVectorEnv("pong", 1, obs_type="object")
    with pytest.raises(AtariError, match='"objects" with 2 games, expected one'):
        parl.AtariVectorEnv(["pong", "breakout"], 2, obs_type="objects")
    envs = parl.AtariVectorEnv("pong")
    with pytest.raises(AtariError, match='obs_type is None, expected "objects"'):
        _ = envs.object_names
    envs = parl.AtariVectorEnv("pong", obs_type="objects")
    envs.reset()
    with pytest.raises(AtariError, match=r"out is uint8 of shape \(1, 4, 128\), expected .* \(1, 4, 7\)"):
        envs.step(np.zeros(1, int), out=np.zeros((1, 4, 128), np.uint8))
    with pytest.raises(TypeError, match="ram has dtype int64, expected uint8"):
        objects("pong")[0].read(np.zeros(128, np.int64))
    with pytest.raises(AtariError, match=r"ram has shape \(127,\), expected \(..., 128\)"):
        objects("pong")[0].read(np.zeros(127, np.uint8))
