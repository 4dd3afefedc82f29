"""Fields of rows: every dtype, nested and empty fields, and a discount per row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from model import NaiveReplay, fields

import parl
from tickets import same_tickets

DTYPES = [
    *"?bBhHiIlLqQefdgFDG",
    "S5",
    "U3",
    "V7",
    ">f4",
    ">i8",
    "M8[ns]",
    "m8[D]",
    [("x", "<f4"), ("y", "u1", (3,)), ("z", [("w", ">i2")])],
    np.dtype((np.float32, (2, 2))),
    np.dtype({"names": ["a"], "formats": ["u1"], "offsets": [3], "itemsize": 8}),
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (2,), (3, 1), (0,), (2, 0, 5)])
def test_every_dtype_and_shape_is_stored_unchanged(tmp_path, dtype, shape):
    dtype = np.dtype(dtype)
    buffer = parl.UniformReplay(20, {"x": (shape, dtype), "row": ((), "i8")})
    base, inner = dtype.subdtype or (dtype, ())
    size = (10, *shape, *inner)
    raw = np.random.default_rng(0).integers(0, 2, (10 * base.itemsize * int(np.prod(size[1:])),), np.uint8)
    values = np.frombuffer(raw.tobytes(), base).reshape(size)
    buffer.add(x=values, row=np.arange(10))
    buffer.save(tmp_path / "replay.bin")
    for replay in (buffer, parl.UniformReplay.load(tmp_path / "replay.bin")):
        batch = replay.sample(10, mode="systematic")
        assert batch.x.shape == size and batch.x.dtype == base
        # Compared as bytes, since different bytes can be equal as numbers. Padding bytes are not compared.
        for part in base.names or [...]:
            assert batch.x[part].tobytes() == values[batch.row][part].tobytes()


def test_bfloat16_tensors_are_rows_and_priorities():
    torch = pytest.importorskip("torch")
    replay = parl.PrioritizedReplay(4, {"x": ((), "float32")}, alpha=1.0)
    values = torch.tensor([0.5, 2.0, 3.0], dtype=torch.bfloat16)
    tickets = replay.add(x=values)
    replay.update_priorities(tickets, values)
    batch = replay.sample(3, mode="without_replacement")
    assert sorted(batch.x.tolist()) == values.tolist()
    assert replay.total_priority == pytest.approx(5.5, abs=1e-3)


@pytest.mark.parametrize("spec", [(84, 84), ("float32", ()), (("x",), "float32")])
def test_a_field_that_is_no_shape_and_dtype_is_named(spec):
    with pytest.raises(ValueError, match=r"field 'obs' is .*, expected \(shape, dtype\)"):
        parl.PrioritizedReplay(4, {"obs": spec})


@pytest.mark.parametrize(
    ("dtype", "fits", "lost"),
    [
        ("int8", np.array([-128, 127]), np.array([0, 300])),
        ("uint8", np.array([0, 255], np.uint64), np.array([0, 256], np.uint64)),
        (">i2", np.array([-5, 5], np.int32), np.array([0, 2**20], np.int32)),
        ("U3", np.array(["", "abc"], "U9"), np.array(["", "abcd"])),
        ("S2", np.array([b"a", b"ab"], "S5"), np.array([b"a", b"abc"])),
        ("int64", np.array([0, 2**63 - 1], np.uint64), np.array([0, 2**63], np.uint64)),
    ],
)
def test_values_that_do_not_fit_a_narrower_dtype_are_refused(dtype, fits, lost):
    buffer = parl.UniformReplay(10, {"x": ((), dtype)})
    with pytest.raises(ValueError, match=f"x holds a value that {np.dtype(dtype)} cannot represent"):
        buffer.add(x=lost)
    assert len(buffer) == 0
    buffer.add(x=fits)
    assert buffer.sample(2, mode="systematic").x.tolist() == fits.tolist()


def test_structured_values_with_other_or_reordered_names_are_refused():
    """NumPy casts them by position."""
    inner = [("a", "f4"), ("b", "f4")]
    buffer = parl.UniformReplay(10, {"s": ((), [("x", "f4"), ("y", inner)])})
    values = np.array([(1, (2, 3))], [("x", "f8"), ("y", inner)])
    for bad in ([("y", inner), ("x", "f4")], [("x", "f4"), ("y", inner[::-1])], [("x", "f4"), ("z", inner)]):
        with pytest.raises(ValueError, match=r"s has dtype .*, which cannot be cast to"):
            buffer.add(s=np.zeros(1, bad))
    buffer.add(s=values)
    assert buffer.sample(1).s.tolist() == [(1, (2, 3))]


def test_columns_may_have_any_memory_layout(monkeypatch):
    values = np.arange(24, dtype=np.float32).reshape(6, 4)
    columns = [values, np.asfortranarray(values), values[::-1], np.repeat(values, 2, axis=1)[:, ::2]]
    buffer = parl.UniformReplay(24, {"x": ((4,), "f4")})
    monkeypatch.setattr(buffer, "_arguments", None)  # raises if Python has to convert a column
    for column in columns:
        buffer.add(x=column)
    batch = buffer.sample(24, mode="systematic")
    np.testing.assert_array_equal(batch.x[np.argsort(batch.indices)], np.concatenate(columns))


@pytest.mark.parametrize("dtype", ["O", "S0", "V0", [("x", "O")]], ids=str)
def test_dtypes_without_a_fixed_size_are_refused(dtype):
    with pytest.raises(
        ValueError, match=r"field 'x' has dtype .*, expected a dtype of fixed size without objects"
    ):
        parl.UniformReplay(10, {"x": ((), dtype)})


NESTED = {
    "obs": {"image": ((2, 2), "uint8"), "body": {"speed": (3, "float32"), "mass": ((), "float64")}},
    "action": {"arm": ((), "int64"), "legs": (2, "float32")},
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}


def nested_obs(numbers) -> dict:
    n = np.asarray(numbers)
    return {
        "image": np.broadcast_to(n[:, None, None], (len(n), 2, 2)).astype(np.uint8),
        "body": {"speed": np.repeat(n[:, None], 3, 1).astype(np.float32), "mass": n / 2},
    }


def nested_step(first: int, count: int, **extra) -> dict:
    n = np.arange(first, first + count)
    return {
        "obs": nested_obs(n),
        "action": {"arm": n, "legs": np.stack([n, -n], 1).astype(np.float32)},
        "reward": n.astype(np.float32),
        "terminated": np.zeros(count, bool),
        "truncated": np.zeros(count, bool),
        **extra,
    }


def check_nested(batch) -> None:
    n = batch.action.arm
    for obs, number in ((batch.obs, n), (batch["next_obs"], n + 2)):
        expected = nested_obs(number)
        np.testing.assert_array_equal(obs.image, expected["image"])
        np.testing.assert_array_equal(obs.body.speed, expected["body"]["speed"])
        np.testing.assert_array_equal(obs["body"]["mass"], expected["body"]["mass"])
    np.testing.assert_array_equal(batch.action.legs[:, 1], -n)


def test_nested_fields_are_added_and_returned_nested():
    buffer = parl.PrioritizedReplay(50, NESTED, num_envs=2, autoreset="disabled")
    for step in range(6):
        buffer.add(**nested_step(2 * step, 2))
    batch = buffer.sample(30)
    check_nested(batch)
    assert list(batch) == [*NESTED, "next_obs", "discount", "indices", "weights", "tickets"]
    assert repr(batch).startswith("Batch(obs: Batch(image: (30, 2, 2) uint8, body: Batch(speed: ")
    again = buffer.sample(30, out=batch)
    assert again.obs.body.speed is batch.obs.body.speed
    check_nested(again)
    torch = pytest.importorskip("torch")
    tensors = buffer.sample(4, as_torch=True)
    assert isinstance(tensors.obs.body.speed, torch.Tensor)
    assert buffer.sample(4, as_torch=True, out=tensors).obs.image is tensors.obs.image


def test_nested_final_observations():
    ends = {"truncated": np.array([False, True])}
    whole = nested_obs([70, 80])
    per_row = [None, {"image": whole["image"][1], "body": {k: v[1] for k, v in whole["body"].items()}}]
    for final in (whole, per_row, np.array(per_row, object)):
        buffer = parl.PrioritizedReplay(50, NESTED, num_envs=2, autoreset="same_step")
        buffer.add(**nested_step(0, 2, **ends), final_obs=final)
        batch = buffer.sample(1)
        assert batch.action.arm[0] == 1
        assert batch.next_obs.body.mass[0] == 40 and (batch.next_obs.image == 80).all()
    buffer = parl.PrioritizedReplay(50, NESTED, num_envs=2, autoreset="same_step")
    with pytest.raises(ValueError, match=r"row 1 \(environment 1\) is truncated"):
        buffer.add(**nested_step(0, 2, **ends))
    with pytest.raises(ValueError, match=r"final_obs\[1\]: fields do not match: missing final_obs/body/mass"):
        buffer.add(**nested_step(0, 2, **ends), final_obs=[None, {"image": 0}])


def test_errors_of_nested_fields_name_the_whole_path():
    buffer = parl.PrioritizedReplay(50, NESTED, num_envs=2)
    row = nested_step(0, 2)
    row["obs"]["body"] = {"speed": np.zeros((2, 4), np.float32), "mass": np.zeros(2)}
    with pytest.raises(ValueError, match=r"obs/body/speed has shape \(2, 4\), expected \(2, 3\)"):
        buffer.add(**row)
    row["obs"]["body"] = {"mass": np.zeros(2), "weight": 1}
    with pytest.raises(ValueError, match="missing obs/body/speed; unknown obs/body/weight"):
        buffer.add(**row)
    with pytest.raises(ValueError, match="field name is 'a/b'"):
        parl.UniformReplay(10, {"a/b": ((), "i8")})
    assert len(buffer) == 0


def test_fields_may_be_gymnasium_spaces():
    gym = pytest.importorskip("gymnasium")
    space = gym.spaces.Dict({"a": gym.spaces.Box(0, 1, (3,), np.float32), "b": gym.spaces.Discrete(4)})
    buffer = parl.UniformReplay(10, {"obs": space, "shape": {"shape": (2,), "dtype": "u1"}})
    batch = buffer.empty_batch(2)
    assert batch.obs.a.shape == (2, 3) and batch.obs.b.dtype == np.int64 and batch["shape"].shape == (2, 2)


@pytest.mark.parametrize("wrong", [(4,), "float32", 4, None])
def test_a_field_without_shape_or_dtype_is_named(wrong):
    with pytest.raises(
        ValueError, match=r"field 'obs' is .*, expected \(shape, dtype\) or a gymnasium space"
    ):
        parl.PrioritizedReplay(4, {"obs": wrong})


@pytest.mark.parametrize("kind", ["Text", "Tuple"])
def test_a_space_without_arrays_is_named(kind):
    gym = pytest.importorskip("gymnasium")
    space = gym.spaces.Text(3) if kind == "Text" else gym.spaces.Tuple([gym.spaces.Discrete(2)])
    with pytest.raises(ValueError, match=f"field 'a/b' is {kind}.*, expected a space of arrays"):
        parl.PrioritizedReplay(4, {"a": {"b": space}})


@settings(max_examples=40)
@given(data=st.data())
def test_any_nesting_of_fields_is_stored(data):
    leaf = st.tuples(
        hnp.array_shapes(min_dims=0, max_dims=3, max_side=3), st.sampled_from(["u1", "f4", "i8", "S3"])
    )
    name = st.text("abcxyz", min_size=1, max_size=3)
    inner = st.recursive(leaf, lambda t: st.dictionaries(name, t, min_size=1, max_size=3))
    tree = st.dictionaries(name, inner, min_size=1, max_size=4)
    spec = data.draw(tree)
    buffer = parl.UniformReplay(8, spec)

    def values(node, path):
        if isinstance(node, dict):
            return {k: values(v, (*path, k)) for k, v in node.items()}
        shape, dtype = node
        seed = sum(map(ord, "".join(path)))
        return (np.arange(5).reshape(5, *[1] * len(shape)) + np.full(shape, seed % 50)).astype(dtype)

    def check(node, given, got, rows):
        for k, v in node.items():
            if isinstance(v, dict):
                check(v, given[k], got[k], rows)
            else:
                assert got[k].dtype == v[1]
                np.testing.assert_array_equal(got[k], given[k][rows])

    given = values(spec, ())
    buffer.add(**given)
    batch = buffer.sample(5, mode="without_replacement")
    check(spec, given, batch, batch.indices)


@settings(max_examples=80)
@given(
    steps=st.lists(
        st.tuples(
            st.integers(0, 2),
            st.sampled_from([0.0, 0.25, 0.5, 1.0]),
            st.sampled_from(["go on", "go on", "go on", "terminated", "truncated"]),
        ),
        min_size=1,
        max_size=60,
    ),
    n_step=st.integers(1, 4),
    dtype=st.sampled_from(["float32", "float64"]),
)
def test_discounts_of_rows_multiply(steps, n_step, dtype):
    """Compares reward and discount of each window with a loop over its steps."""
    spec = {**fields(), "discount": ((), dtype)}
    buffer = parl.PrioritizedReplay(100, spec, n_step=n_step, gamma=0.5, num_envs=3, autoreset="next_step")
    naive = NaiveReplay(100, n_step, 0.5, "next_step", explicit_next=False)
    discounts = {}
    for number, (env, discount, end) in enumerate(steps):
        row = naive.add(env, number, float(number % 7), end == "terminated", end == "truncated", 0.0)
        discounts[row.number] = discount
        buffer.add(
            obs=[number],
            action=[number],
            reward=[row.reward],
            terminated=[row.terminated],
            truncated=[row.truncated],
            discount=[discount],
            env_id=[env],
        )
    expected = naive.transitions(0)
    assert buffer.sampleable == len(expected)
    if not expected:
        return
    batch = buffer.sample(len(expected), mode="systematic")
    assert sorted(batch.action) == sorted(expected)
    for j, number in enumerate(batch.action):
        rows = next(rows for rows in naive.envs.values() if any(row.number == number for row in rows))
        i = next(i for i, row in enumerate(rows) if row.number == number)
        total, factor = 0.0, 1.0
        for row in rows[i : i + n_step]:
            total += factor * row.reward
            factor *= 0.5 * discounts[row.number]
            if row.terminated or row.truncated:
                break
        assert batch.reward[j] == pytest.approx(total, abs=1e-5)
        assert batch.discount[j] == pytest.approx(0.0 if batch.terminated[j] else factor, abs=1e-6)


@pytest.mark.parametrize("bad", [-0.1, 1.5, float("nan")])
def test_discounts_are_checked(bad):
    buffer = parl.PrioritizedReplay(10, {**fields(), "discount": ((), "float32")}, num_envs=2)
    row = {
        "obs": [0, 0],
        "action": [0, 0],
        "reward": [0, 0],
        "terminated": [False] * 2,
        "truncated": [False] * 2,
    }
    with pytest.raises(ValueError, match=r"discount .* at position 1 is outside 0 to 1"):
        buffer.add(**row, discount=[1.0, bad])
    assert len(buffer) == 0
    with pytest.raises(ValueError, match='"terminated" is missing, and discount needs it'):
        parl.UniformReplay(10, {"discount": ((), "f4")})


ONE = {"obs": np.arange(3.0, dtype=np.float32), "action": 2, "reward": 0.5, "terminated": False}
ONE_FIELDS = {"obs": ((3,), "f4"), "action": ((), "i8"), "reward": ((), "f4"), "terminated": ((), "?")}


@pytest.mark.parametrize(
    ("row", "specs", "settings"),
    [
        (ONE, ONE_FIELDS, {}),
        ({**ONE, "obs": [0.0, 1.0, 2.0]}, ONE_FIELDS, {}),
        ({**ONE, "obs": np.arange(6.0, dtype=np.float32).reshape(2, 3)}, ONE_FIELDS, {"frame_stack": 2}),
        (ONE, ONE_FIELDS, {"frame_stack": 2}),
        (
            {"obs": {"a": np.zeros(2), "b": 1.5}, "x": [[1, 2]]},
            {"obs": {"a": ((2,), "f8"), "b": ((), "f8")}, "x": ((1, 2), "i4")},
            {},
        ),
        ({"reward": 1.0}, {"reward": ((), "f8")}, {}),
    ],
    ids=["arrays", "lists", "stack", "frame", "nested", "scalar"],
)
def test_a_single_row_may_come_without_its_leading_axis(row, specs, settings):
    def leading(value):
        return (
            {k: leading(v) for k, v in value.items()} if isinstance(value, dict) else np.asarray(value)[None]
        )

    rows = []
    buffers = [parl.PrioritizedReplay(10, specs, num_envs=4, **settings) for _ in range(2)]
    same_tickets(*buffers)
    for buffer, one in zip(buffers, (row, leading(row)), strict=True):
        for _ in range(2):
            tickets = buffer.add(env_id=3 if one is row else [3], priorities=[2.0], **one)
            assert tickets.shape == (1,)
        assert len(buffer) == 2
        rows.append(buffer.sample(4))
    np.testing.assert_equal(*rows)


def test_a_single_row_and_its_final_observation_without_the_leading_axis():
    for is_bare in (True, False):
        buffer = parl.PrioritizedReplay(
            10, {**ONE_FIELDS, "truncated": ((), "?")}, num_envs=1, autoreset="same_step"
        )
        row = {**ONE, "truncated": True, "final_obs": np.full(3, 9.0, np.float32)}
        if not is_bare:
            row = {name: np.asarray(value)[None] for name, value in row.items()}
        buffer.add(priorities=1.0 if is_bare else [1.0], **row)
        batch = buffer.sample(1)
        assert (batch.obs.tolist(), batch.next_obs.tolist()) == ([[0.0, 1.0, 2.0]], [[9.0] * 3])
