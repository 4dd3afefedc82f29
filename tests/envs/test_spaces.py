"""Conversion of spaces: what algorithms see, what environments get, masks, and what is refused."""

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import (
    Box,
    Dict,
    Discrete,
    Graph,
    MultiBinary,
    MultiDiscrete,
    OneOf,
    Sequence,
    Text,
    Tuple,
)
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import parl
from parl.envs import EnvMaker, Observer, Rows, spec_of
from parl.envs.spaces import masks_in
from parl.errors import ConfigError

TWO = Discrete(2)


class Fixed(gymnasium.Env):
    """Shows ``seen``, keeps the actions it gets, and ends an episode after two steps."""

    def __init__(self, observation=TWO, seen=0, action=TWO, masks=None):
        self.observation_space, self.action_space = observation, action
        self._seen, self._masks = seen, masks
        self.got = []

    def _info(self):
        return {} if self._masks is None else {"action_mask": self._masks[self._step]}

    def reset(self, *, seed=None, options=None):
        self._step = 0
        return self._seen, self._info()

    def step(self, action):
        # Gymnasium passes elements of shape () as scalars of NumPy, of which Box warns.
        given = np.asarray(action) if isinstance(self.action_space, Box) else action
        assert self.action_space.contains(given), action
        self.got.append(action)
        self._step += 1
        return self._seen, 0.0, self._step == 2, False, self._info()


IMAGE = np.full((1, 36, 36), 9, np.uint8)


@pytest.mark.parametrize(
    ("space", "seen", "expected"),
    [
        (Discrete(3), 1, [0, 1, 0]),
        (Discrete(3, start=7), 9, [0, 0, 1]),
        (MultiDiscrete([2, 3]), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (MultiDiscrete([[2], [3]], start=[[5], [-1]]), np.array([[6], [1]]), [0, 1, 0, 0, 1]),
        (MultiBinary((2, 2)), np.array([[1, 0], [0, 1]], np.int8), [1, 0, 0, 1]),
        (
            Tuple((Discrete(2), Box(-1, 1, (1, 2)))),
            (1, np.array([[0.5, -0.5]], np.float32)),
            [0, 1, 0.5, -0.5],
        ),
        (Tuple((Tuple((Discrete(2),)), MultiBinary(1))), ((0,), np.array([1], np.int8)), [1, 0, 1]),
        (Box(-1, 1, ()), np.array(0.5, np.float32), [0.5]),
    ],
)
def test_observations_become_vectors(space, seen, expected):
    maker = EnvMaker(lambda: Fixed(space, seen))
    env = maker(2)
    spec = spec_of(env)
    found = Observer(spec)(env.reset(seed=0)[0])
    assert (spec.observation_shape, spec.observation_dtype) == ((len(expected),), "float32")
    np.testing.assert_array_equal(found, np.array([expected] * 2, np.float32))
    assert env.observation_space.contains(env.step(np.zeros(2, int))[0])


@pytest.mark.parametrize(
    ("space", "seen"),
    [
        (Discrete(3), 3),
        (Discrete(4), -1),
        (Discrete(3, start=7), 6),
        (MultiDiscrete([2, 3]), np.array([2, 0])),
    ],
)
def test_integers_outside_of_their_space_are_refused(space, seen):
    """They became other categories."""
    with pytest.raises(ConfigError, match=r"observation \[.*\] is not in the environment's "):
        EnvMaker(lambda: Fixed(space, seen))(2).reset(seed=0)


def test_values_that_the_dtype_does_not_hold_are_refused():
    space = Box(0, 255, (2,), np.uint8)
    observe = Observer(spec_of(EnvMaker(lambda: Fixed(space, np.zeros(2, np.uint8)))(1)))
    assert (
        observe([[0.0, 255.0]]).tolist() == [[0, 255]]
        and observe(np.array([[True, False]])).dtype == np.uint8
    )
    for wrong in (0.5, 256, -1, np.nan):
        with pytest.raises(ConfigError, match=r"observations have the value .*, which uint8 does not hold"):
            observe([[1, wrong]])


def test_parts_of_dictionaries_and_tuples_with_images():
    space = Dict({"b": Tuple((Discrete(2), Box(0, 255, (1, 36, 36), np.uint8))), "a": MultiBinary(1)})
    env = EnvMaker(lambda: Fixed(space, {"b": (1, IMAGE), "a": np.array([1], np.int8)}))(1)
    found = Observer(spec_of(env))(env.reset(seed=0)[0])
    assert set(found) == {"a", "b.0", "b.1"}
    np.testing.assert_array_equal(found["b.0"], [[0, 1]])
    np.testing.assert_array_equal(found["b.1"], IMAGE[None])


def test_spaces_of_boxes_are_left_as_they_are():
    """CartPole and parl's games keep their own vector environment, without a wrapper."""
    assert type(EnvMaker("CartPole-v1")(2)).__name__ == "CartPoleVectorEnv"
    assert isinstance(EnvMaker("Pendulum-v1")(2), SyncVectorEnv)


@pytest.mark.parametrize(
    ("space", "action", "branches", "got"),
    [
        (Discrete(3, start=5), 2, (), 7),
        (MultiDiscrete([2, 3]), [1, 2], (2, 3), [1, 2]),
        (MultiDiscrete([[2], [3]], start=[[4], [5]]), [1, 2], (2, 3), [[5], [7]]),
        (MultiBinary((2, 1)), [1, 0], (2, 2), [[1], [0]]),
        (Tuple((Discrete(2, start=1), MultiBinary(2))), [1, 0, 1], (2, 2, 2), (2, [0, 1])),
        (Dict({"a": Discrete(2), "b": Tuple((Discrete(4),))}), [1, 3], (2, 4), {"a": 1, "b": (3,)}),
    ],
)
def test_actions_reach_the_environment_in_its_own_space(space, action, branches, got):
    env = EnvMaker(lambda: Fixed(action=space))(2)
    spec = spec_of(env)
    env.reset(seed=0)
    env.step(np.array([action] * 2))
    assert spec.action_branches == branches and spec.num_actions == (None if branches else 3)
    plain = [one for one in env.unwrapped.envs[1].got]
    assert str(gymnasium.spaces.utils.flatten(space, plain[0])) == str(
        gymnasium.spaces.utils.flatten(space, _like(space, got))
    )
    env.step(env.action_space.sample())


@pytest.mark.parametrize(
    ("space", "action", "got"),
    [
        (Box(-2, 2, ()), [1.5], 1.5),
        (Box(-2, 2, (2,), np.int32), [-1.6, 0.4], [-2, 0]),
        (Box(0, 255, (1,), np.uint8), [300], [255]),
        (Box(-0.1, 0.1, (1,), np.float64), [np.float32(0.1)], [0.1]),  # float32(0.1) is above 0.1
    ],
)
def test_boxes_of_actions_reach_the_environment_in_their_own_shape_and_dtype(space, action, got):
    env = EnvMaker(lambda: Fixed(action=space))(2)
    spec = spec_of(env)
    assert spec.action_shape == env.single_action_space.shape == np.shape(action)
    env.reset(seed=0)
    env.step(np.array([action] * 2, np.float32))
    found = env.unwrapped.envs[1].got[0]
    assert found.dtype == space.dtype
    np.testing.assert_array_equal(found, got)
    env.step(env.action_space.sample())


@pytest.mark.parametrize("name", ["dqn", "ppo", "sac"])
def test_a_number_as_observation(name, tmp_path):
    env = functools.partial(Fixed, Box(-1, 1, ()), np.array(0.5, np.float32))
    run = parl.train(
        name,
        env=env,
        total_steps=200,
        evaluation_episodes=1,
        quiet=True,
        schedule="deterministic",
        runs=str(tmp_path),
        **({"learning_starts": 100} if name != "ppo" else {}),
    )
    assert run.evaluation_return == 0


def _like(space, value):
    """The value as an element of ``space``."""
    if isinstance(space, Dict):
        return {key: _like(part, value[key]) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(_like(part, one) for part, one in zip(space.spaces, value, strict=True))
    return np.asarray(value, space.dtype)


NODE = Graph(Box(0, 1, (2,)), None)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Text(5), r"observation space is Text\(1, 5"),
        (NODE, "observation space is Graph"),
        (Sequence(Discrete(2)), "observation space is Sequence"),
        (Dict({"a": Tuple((Text(3),))}), r"observation part a\.0 is Text.*TransformObservation"),
    ],
)
def test_observations_that_no_algorithm_takes_are_named(space, message):
    with pytest.raises(ConfigError, match=message):
        EnvMaker(lambda: Fixed(space))(1)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (Text(5), r"action space is Text.*TransformAction"),
        (Tuple((Discrete(2), Box(0, 1, (1,)))), r"action space Tuple.* has the part Box"),
        (OneOf((Discrete(2), Discrete(3))), "action space is OneOf"),
    ],
)
def test_actions_that_no_algorithm_takes_are_named(space, message):
    with pytest.raises(ConfigError, match=message):
        EnvMaker(lambda: Fixed(action=space))(1)


MASKS = [np.array(one, np.int8) for one in ([1, 0, 1], [0, 1, 0], [0, 0, 0])]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
@pytest.mark.parametrize("seen", ["vector", "image", "dict"])
def test_masks_are_a_part_of_the_observation(mode, seen):
    """With the state they belong to, also that of an episode's last observation, whose mask is empty."""
    space, value = {
        "vector": (Discrete(2), 1),
        "image": (Box(0, 255, (1, 36, 36), np.uint8), IMAGE),
        "dict": (Dict({"x": Discrete(2), "z": Box(0, 1, (2,))}), {"x": 1, "z": np.zeros(2, np.float32)}),
    }[seen]

    def vector(num_envs):
        make = lambda: Fixed(space, value, Discrete(3), MASKS)  # noqa: E731
        return SyncVectorEnv([make] * num_envs, autoreset_mode=mode)

    maker = EnvMaker(vector)
    maker.find_masks()
    env = maker(2)
    spec, plain = spec_of(env), spec_of(EnvMaker(vector)(2))
    assert spec.mask_size == 3 and spec.without_mask == plain
    observe = Observer(spec)
    found = observe(env.reset(seed=0)[0])
    np.testing.assert_array_equal(found["action_mask"], [[1, 0, 1]] * 2)
    expected = [[0, 1, 0], [1, 1, 1], [1, 0, 1]]
    for number in range(3 if mode == AutoresetMode.NEXT_STEP else 2):
        obs, _, terminated, truncated, info = env.step(np.zeros(2, int))
        found = observe(obs)
        needed = (terminated | truncated) & (mode == AutoresetMode.SAME_STEP)
        last = observe.final(found, info, needed)["action_mask"]
        np.testing.assert_array_equal(last, [expected[number]] * 2)
    np.testing.assert_array_equal(found["action_mask"], [[1, 0, 1]] * 2)
    assert Rows(spec)(obs).shape == (2, *spec.flat_row[0])


def test_masks_of_several_choices_and_of_some_environments():
    def given(**info):
        return masks_in(info, 2, (2, 3)).tolist()

    own, no = [1, 0, 0, 1, 1], [1] * 5
    assert given() == [no, no]
    assert given(action_mask=np.array([own, own]), _action_mask=np.array([True, False])) == [own, no]
    assert given(action_mask=np.array([[0, 0, 0, 1, 0], own])) == [[1, 1, 0, 1, 0], own]
    parts = np.empty(2, object)
    parts[:] = [(np.array([1, 0]), np.array([0, 1, 1])), None]
    assert given(action_mask=parts, _action_mask=np.array([True, False])) == [own, no]
    with pytest.raises(ConfigError, match=r"has shape \(3,\), expected \(5,\)"):
        given(action_mask=np.ones((2, 3)))
    # A mask to add to logits, and the numbers of valid actions.
    for wrong in ([0, -np.inf, -np.inf, 0, 0], [0, 1, 2, 3, 4]):
        with pytest.raises(ConfigError, match=r"\[0.*\], expected 1 for valid actions and 0 for others"):
            given(action_mask=np.array([wrong, wrong]))


def test_an_environment_without_masks_is_left_alone():
    maker = EnvMaker("CartPole-v1")
    maker.find_masks()
    assert not maker.masks
