"""Snapshots hold environments as plain data; another environment continues from one with the same results."""

import dataclasses
import enum
import math
import pickle
import random
from collections import OrderedDict, deque
from typing import NamedTuple

import gymnasium
import numpy as np
import pytest
import torch

from parl.envs import EnvMaker
from parl.envs.snapshot import Snapshot, SnapshotError
from parl.errors import RunDirectoryError
from parl.runtime.states import from_bytes, is_pickle, to_bytes


class Mood(enum.Enum):
    CALM = 1
    WILD = 2


class Walk(gymnasium.Env):
    """Has attributes of all types that a snapshot supports."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float64)
    action_space = gymnasium.spaces.Discrete(3)

    def __init__(self):
        self.track = deque(maxlen=4)
        self.named = OrderedDict(a=[1, (2, {3})], b={"x": None, 4: "text"})
        self.mood = Mood.CALM
        self.old = random.Random(5)
        self.legacy = np.random.RandomState(6)
        self.board = np.zeros((4, 3))
        self.row = self.board[1]
        self.same = self.named["a"]
        self.tensor = torch.zeros(2)
        self.mixed = np.array([1, "two", None], object)
        count = 0

        def counted():
            nonlocal count
            count += 1
            return count

        self.counted = counted

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.board[:] = self.np_random.normal(size=(4, 3))
        return self.row.copy(), {}

    def step(self, action):
        self.mood = Mood.WILD if self.old.random() < 0.5 else Mood.CALM
        self.track.append(int(action))
        self.same[0] += sum(self.track)
        self.board += self.np_random.normal(size=(4, 3)) + self.legacy.normal()
        self.tensor += 1
        self.mixed[0] += 1
        self.row[:] += self.named["a"][0] + self.mood.value + self.counted() + self.mixed[0]
        return self.row.copy(), float(self.tensor.sum()), False, self.np_random.random() < 0.1, {}


ENVS = [
    EnvMaker("CartPole-v1"),
    EnvMaker("Acrobot-v1"),
    EnvMaker("Pendulum-v1"),
    EnvMaker("MountainCarContinuous-v0"),
    EnvMaker("FrozenLake-v1"),
    EnvMaker("Taxi-v4" if "Taxi-v4" in gymnasium.registry else "Taxi-v3"),
    EnvMaker("Blackjack-v1"),
    EnvMaker("parl/Breakout-v0", {"obs_type": "ram", "repeat_action_probability": 0.25}),
    EnvMaker("parl/Pong-v0", {"preset": "nature"}),
    EnvMaker(Walk),
    EnvMaker(lambda: gymnasium.make("parl/Breakout-v0")),
]


def steps(env, actions):
    found = []
    for action in actions:
        obs, *rest, _ = env.step(action)
        parts = obs if isinstance(obs, tuple) else (obs,)
        found += [np.array(part) for part in (*parts, *rest)]
    return found


def partial_sum(left):
    return lambda right: left + right


def partial_difference(left):
    return lambda right: left - right


class Made(Walk):
    """Keeps the generator from which it took something, as vector environments of Gymnasium 1.1 do."""

    def __init__(self, left=0):
        super().__init__()
        self.source = (one for one in range(1 + left))
        next(self.source)
        if not left:
            assert next(self.source, None) is None


def test_a_generator_is_constant_at_its_end_only():
    env, other = Made(), Made()
    env.reset(seed=1)
    other.reset(seed=2)
    Snapshot(other).put(Snapshot(env).take())
    assert np.array_equal(env.row, other.row)
    with pytest.raises(SnapshotError, match=r"env.source: a builtins.generator is not plain data"):
        Snapshot(Made(left=1)).take()


@pytest.mark.parametrize("maker", ENVS, ids=lambda maker: maker.name)
def test_another_environment_continues_from_a_snapshot(maker):
    env, other = maker(4), maker(4)
    env.reset(seed=1)
    other.reset(seed=2)
    env.action_space.seed(3)
    actions = [env.action_space.sample() for _ in range(150)]
    snapshots = Snapshot(env), Snapshot(other)
    steps(other, actions[:7])
    steps(env, actions[:50])
    state = to_bytes(snapshots[0].take())
    expected = steps(env, actions[50:])
    snapshots[1].put(from_bytes(state))
    for one, wanted in zip(steps(other, actions[50:]), expected, strict=True):
        np.testing.assert_array_equal(one, wanted)
    np.testing.assert_array_equal(other.action_space.sample(), env.action_space.sample())


@dataclasses.dataclass
class Card:
    value: int


class Deck(gymnasium.Env):
    """Creates objects that a new environment does not have."""

    observation_space = gymnasium.spaces.Discrete(9)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.cards = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.cards.clear()
        return 0, {}

    def step(self, action):
        self.cards.append(Card(len(self.cards)))
        return 0, 0.0, False, False, {}


class Place(NamedTuple):
    row: int
    cells: list[int]


class Cell(NamedTuple):
    row: int
    column: int


class Meters(float):
    pass


class Count(int):
    pass


class Keys(enum.Flag):
    UP = enum.auto()
    FIRE = enum.auto()


class Holder:
    """Something of an environment that changes after its first reset."""

    def __init__(self, value):
        self.value = value

    def walk(self):
        pass

    def stand(self):
        pass


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (Place(1, [2]), Place(3, [4, 5])),
        (Meters(1.5), Meters(-0.5)),
        (Count(1), Count(7)),
        (Keys.UP, Keys.UP | Keys.FIRE),
        (Keys.UP | Keys.FIRE, Keys(0)),
        (range(3), range(2, 9, 2)),
        (slice(1), slice(2, None, 3)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_of_other_types_than_pythons_own_are_kept(first, later):
    one, other = Holder(first), Holder(first)
    snapshots = Snapshot(one), Snapshot(other)
    one.value = later
    snapshots[1].put(from_bytes(to_bytes(snapshots[0].take())))
    assert type(other.value) is type(later) and other.value == later


@pytest.mark.parametrize(
    ("first", "later"),
    [
        ({Mood.CALM}, {Mood.CALM}),
        ({Mood.CALM}, set(Mood)),
        (frozenset({Keys.UP}), frozenset({Keys.UP | Keys.FIRE})),
        ({Mood.CALM: 1}, {list(Mood)[-1]: 1, Mood.CALM: 2}),
        ({(1, Mood.CALM)}, {(2, Mood.CALM)}),
        ({Cell(1, 2)}, {Cell(1, 2), Cell(3, 4)}),
        ({Cell(1, 2): 0}, {Cell(5, 5): 1, Cell(1, 2): 2}),
        ({int, math.sin}, {int, math.sin}),
    ],
    ids=["member", "members", "flag", "key", "tuple", "named tuples", "named keys", "constants"],
)
def test_members_of_sets_and_keys_are_kept(first, later):
    """Their places do not say which ones of another environment they are."""
    one, other = Holder(first), Holder(first)
    snapshots = Snapshot(one), Snapshot(other)
    one.value = later
    snapshots[1].put(from_bytes(to_bytes(snapshots[0].take())))
    assert other.value == later and type(other.value) is type(later)


def up():
    pass


def down():
    pass


def with_defaults(first, second):
    def added(x=first, *, y=second):
        return x + y

    return added


@pytest.mark.parametrize(
    ("first", "later"),
    [
        (up, down),
        (lambda: 1, lambda: 2),
        *[(with_defaults(1, 2), with_defaults(*other)) for other in ((3, 2), (1, 3))],
        (int, float),
        (math.sin, math.cos),
        (Holder(0).walk, Holder(0).stand),
        (np.add, np.multiply),
        (math, np),
        (partial_sum(1), partial_difference(1)),
    ],
    ids=[
        "function",
        "lambda",
        "default",
        "keyword",
        "class",
        "builtin",
        "method",
        "ufunc",
        "module",
        "closure",
    ],
)
def test_functions_that_change_are_not_taken_for_constants(first, later):
    """Their environment is pickled instead."""
    one = Holder(first)
    snapshot = Snapshot(one)
    snapshot.take()
    one.value = later
    with pytest.raises(SnapshotError, match=r"env\.value is .* than after its first reset"):
        snapshot.take()


def test_functions_that_differ_are_not_restored():
    one, other = Holder(up), Holder(down)
    with pytest.raises(SnapshotError, match=r"env\.value is .*\.down, the snapshot has .*\.up"):
        Snapshot(other).put(Snapshot(one).take())
    Snapshot(Holder(up)).put(Snapshot(one).take())


@pytest.mark.parametrize(
    "seed", [3, np.int64(3), [1, 2**70], np.arange(3), None, np.random.SeedSequence(4, spawn_key=(1,))]
)
def test_generators_spawn_the_same_generators(seed):
    one, other = Holder(np.random.default_rng(seed)), Holder(np.random.default_rng(9))
    snapshots = Snapshot(one), Snapshot(other)
    one.value.spawn(2)
    snapshots[1].put(from_bytes(to_bytes(snapshots[0].take())))
    expected = [generator.random() for generator in one.value.spawn(2)]
    assert [generator.random() for generator in other.value.spawn(2)] == expected


class Counter:
    def __init__(self):
        self.count = 0

    def next(self):
        self.count += 1
        return self.count


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: np.random.default_rng(seed).random,
        lambda seed: random.Random(seed).random,
        lambda seed: np.random.RandomState(seed).normal,
        lambda seed: Counter().next,
    ],
    ids=["generator", "random", "legacy", "object"],
)
def test_a_bound_method_continues_with_the_state_of_its_object(make):
    one, other = Holder(make(1)), Holder(make(2))
    snapshots = Snapshot(one), Snapshot(other)
    one.value()
    snapshots[1].put(from_bytes(to_bytes(snapshots[0].take())))
    assert [other.value() for _ in range(3)] == [one.value() for _ in range(3)]


def test_a_method_of_a_generator_stays_that_of_the_environments_generator():
    one, other = Made(), Made()
    for seed, env in enumerate((one, other)):
        env.reset(seed=seed)
        env.draw = env.np_random.random
    snapshots = Snapshot(one), Snapshot(other)
    snapshots[1].put(from_bytes(to_bytes(snapshots[0].take())))
    for draws in ("np_random", "draw", "np_random"):
        first, second = (env.draw() if draws == "draw" else env.np_random.random() for env in (one, other))
        assert first == second


def test_a_method_of_an_object_that_is_not_plain_data_is_named():
    with pytest.raises(SnapshotError, match=r"env\.value\.__self__: a .*PCG64 is not plain data"):
        Snapshot(Holder(np.random.PCG64(1).random_raw)).take()


def test_values_with_attributes_of_their_own_are_not_plain_data():
    length = Meters(1.5)
    length.unit = "m"
    with pytest.raises(SnapshotError, match=r"env\.value: a .*Meters is not plain data"):
        Snapshot(Holder(length)).take()


def handle_without_module():
    """An object like those of SWIG, which Box2D has: its class has no module."""
    names = {"__builtins__": __builtins__}  # a class gets its module's name from these
    exec("handle = type('Handle', (bytes,), {})()", names)
    assert not hasattr(type(names["handle"]), "__module__")
    return names["handle"]


def test_attributes_that_are_not_plain_data_are_named():
    env = Deck()
    env.reset()
    snapshot = Snapshot(env)
    env.step(0)
    with pytest.raises(SnapshotError, match=r"env\.cards\[0\] is a .*Card that the environment creates"):
        snapshot.take()
    env.native = iter([])
    with pytest.raises(SnapshotError, match=r"env\.native: a builtins.list_iterator is not plain data"):
        Snapshot(env).take()
    env.native = handle_without_module()
    with pytest.raises(SnapshotError, match=r"env\.native: a Handle is not plain data"):
        Snapshot(env).take()
    with pytest.raises(TypeError, match="a Card is not plain data"):
        to_bytes([Card(1)])


class Evil:
    def __reduce__(self):
        return exec, ("raise SystemExit('code of the file ran')",)


def test_loading_a_state_runs_no_code_and_creates_no_object():
    assert is_pickle(pickle.dumps(Evil())) and not is_pickle(to_bytes({}))
    hidden = to_bytes([np.zeros(3)])
    objects = np.empty(1, object)
    objects[0] = Evil()
    with pytest.raises(RunDirectoryError, match="state of an actor is damaged"):
        from_bytes(hidden.replace(np.zeros(3).tobytes(), objects.dumps()[:24]))
    cart = EnvMaker("CartPole-v1")(2)
    cart.reset(seed=1)
    nodes = Snapshot(cart).take()
    kind = nodes[0][1]
    for node, message in [
        (["object", "os.system", []], r"env is a parl.*, the snapshot has a os\.system"),
        (["object", kind, [["spec", (1,)]]], "the snapshot has a builtins.function"),
        (["generator", "__init__", {}], "unknown kind"),
        (["writer", 1], "unknown kind 'writer'"),
        ([], "not in the snapshot"),
    ]:
        with pytest.raises(SnapshotError, match=message):
            Snapshot(cart).put([node, ["fixed", "builtins.function"]])
