"""States of actors as bytes: plain data is restored exactly; damaged and other states are refused."""

import pickle
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch

from parl.envs.snapshot import Snapshot
from parl.errors import RunDirectoryError
from parl.runtime import states


def equal(one, two):
    assert type(one) is type(two)
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for key in one:
            equal(one[key], two[key])
    elif isinstance(one, list | tuple | deque):
        assert len(one) == len(two)
        for a, c in zip(one, two, strict=True):
            equal(a, c)
    elif isinstance(one, np.ndarray):
        assert one.dtype == two.dtype and one.shape == two.shape
        if one.dtype == object:
            equal(one.ravel().tolist(), two.ravel().tolist())
        else:
            np.testing.assert_array_equal(one, two)
    elif isinstance(one, torch.Tensor):
        assert one.dtype == two.dtype and torch.equal(one, two)
    else:
        assert one == two


def test_plain_data_is_restored_exactly():
    tree = {
        "nothing": None,
        "numbers": [1, 2.5, True, -(2**60)],
        "text": "a0",
        3: (1, (2,), "x"),
        ("a", 1): b"\x00\x01bytes",
        "queue": deque([1, (2, 3)], 5),
        "endless": deque([1]),
        "scalar": np.float32(0.5),
        "array": np.arange(6, dtype=np.int16).reshape(2, 3),
        "other": np.zeros((0, 4), bool),
        "objects": np.array([[None, "a"], [2, b"c"]], object),
        "tensor": torch.tensor([[1.0, 2.0]], requires_grad=True).detach(),
    }
    data = states.to_bytes(tree)
    assert not states.is_pickle(data)
    found = states.from_bytes(data)
    equal(found, tree)
    assert found["queue"].maxlen == 5 and found["endless"].maxlen is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (object(), "a object is not plain data"),
        ([{1, 2}], "a set is not plain data"),
        (np.zeros(1, [("a", object)]), r"an array of \[\('a', 'O'\)\] is not plain data"),
    ],
)
def test_other_objects_are_refused(value, said):
    with pytest.raises(TypeError, match=said):
        states.to_bytes(value)


def test_damaged_states_are_refused():
    data = states.to_bytes([1])
    for damaged in (data[:-5], b"", b"nonsense" * 9):
        with pytest.raises(RunDirectoryError, match="the state of an actor is damaged"):
            states.from_bytes(damaged)
    with pytest.raises(ValueError, match="unknown kind 'set'"):
        states._decode({"set": [1]}, {})


def test_a_pickle_is_recognized_by_its_first_byte():
    assert states.is_pickle(pickle.dumps([1], protocol=4))
    assert not states.is_pickle(b"") and not states.is_pickle(b"PK\x80")


class Plain:
    """An environment whose state is plain data."""

    def __init__(self, number=0):
        self.number, self.closed = number, False

    @property
    def unwrapped(self):
        return self

    def close(self):
        self.closed = True


class Keeps:
    """A fake snapshot: the number of an environment."""

    def __init__(self, env, fails=None):
        self._env, self._fails = env, fails

    def take(self):
        if self._fails:
            raise self._fails
        return self._env.number

    def put(self, number):
        if self._fails:
            raise self._fails
        self._env.number = number


def test_an_environment_continues_from_its_state():
    state = states.save(None, Keeps(Plain(7)), {"more": (1, 2)}, pickles=True)
    assert not states.is_pickle(state)
    env = Plain()
    again, rest = states.load(state, env, Keeps(env))
    assert again is env and env.number == 7 and rest == {"more": (1, 2)} and not env.closed


@pytest.mark.parametrize("error", [TypeError("x"), ValueError("x"), KeyError("x"), AttributeError("x")])
def test_a_state_of_another_environment_is_refused(error):
    state = states.save(None, Keeps(Plain(7)), {}, pickles=False)
    with pytest.raises(RunDirectoryError, match=r"does not fit its environment: .*x"):
        states.load(state, Plain(), Keeps(Plain(), error))


def test_other_environments_are_pickled_if_that_is_allowed():
    env = SimpleNamespace(number=3, unwrapped=SimpleNamespace())
    broken = Keeps(env, TypeError("no plain data"))
    with pytest.raises(TypeError, match="no plain data"):
        states.save(env, broken, {}, pickles=False)
    state = states.save(env, broken, {"more": 1}, pickles=True)
    assert states.is_pickle(state)
    old = Plain()
    again, rest = states.load(state, old, Keeps(old))
    assert old.closed and again.number == 3 and rest == {"more": 1}


class Remakes(gymnasium.utils.EzPickle):
    """Its pickle holds only the arguments of its constructor: unpickling makes a new object."""


@pytest.mark.parametrize("inside", [False, True])
def test_environments_whose_pickle_has_no_state_are_not_pickled(inside):
    env = SimpleNamespace(unwrapped=Remakes())
    if inside:
        other = SimpleNamespace(unwrapped=Plain())
        env = SimpleNamespace(unwrapped=SimpleNamespace(envs=[other, env]))
    with pytest.raises(TypeError, match="no plain data"):
        states.save(env, Keeps(env, TypeError("no plain data")), {}, pickles=True)


def test_the_state_of_cartpole_is_plain_data():
    env = gymnasium.make_vec("CartPole-v1", 2)
    env.reset(seed=0)
    state = states.save(env, Snapshot(env), {}, pickles=False)
    assert not states.is_pickle(state)
    env.close()


def test_threads_read_one_after_the_other(monkeypatch):
    """Parsing headers fails in CPython 3.11 if garbage collection lets another thread parse meanwhile."""
    data, load, reading, most = states.to_bytes({"a": np.arange(3)}), np.load, [], []

    class Watched:
        def __init__(self, *args, **kwargs):
            self._file = load(*args, **kwargs)

        def __enter__(self):
            reading.append(self)
            time.sleep(0.01)
            most.append(len(reading))
            return self._file.__enter__()

        def __exit__(self, *error):
            reading.remove(self)
            return self._file.__exit__(*error)

    monkeypatch.setattr(np, "load", Watched)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(states.from_bytes, [data] * 4))
    assert all(tree["a"].tolist() == [0, 1, 2] for tree in found)
    assert most == [1] * 4
