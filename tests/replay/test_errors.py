"""Bad input raises an error of the right class, with value and bound, and changes nothing."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from model import fields

import parl

ROW = {"obs": [0.0], "action": [0], "reward": [0.0], "terminated": [False], "truncated": [False]}
X = {"x": ((), "int64")}


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"capacity": 0}, ValueError, r"capacity is 0, expected 1 to"),
        ({"capacity": -1}, ValueError, "capacity is -1, expected"),
        ({"capacity": 2**40}, ValueError, "capacity is 1099511627776, expected"),
        ({"capacity": 2.5}, TypeError, r"capacity is 2\.5, expected an integer"),
        ({"capacity": True}, TypeError, "capacity is True, expected an integer"),
        ({"seed": 1.5}, TypeError, r"seed is 1\.5, expected an integer"),
        ({"seed": 2**64}, ValueError, r"seed is 18446744073709551616, expected 0 to 2\*\*64 - 1"),
        ({"frame_stack": (2,)}, TypeError, r"frame_stack is \(2,\), expected an integer"),
        ({"fields": 3}, ValueError, "fields is 3, expected a mapping"),
        ({"fields": {"env_id": ((), "int64")}}, ValueError, "'env_id', which is an argument of add"),
        ({"n_step": 0}, ValueError, r"n_step is 0, expected 1 to 1024"),
        (
            {"capacity": 3, "n_step": 3},
            ValueError,
            r"capacity is 3, expected at least 4, the rows of one n-step window",
        ),
        ({"gamma": 1.5}, ValueError, r"gamma is 1.5, expected 0 to 1"),
        ({"gamma": float("nan")}, ValueError, "gamma is NaN, expected"),
        ({"alpha": -0.1}, ValueError, "alpha is -0.1, expected"),
        ({"epsilon": float("inf")}, ValueError, "epsilon is inf, expected"),
        ({"fan_out": 7}, ValueError, "fan_out is 7, expected 4, 8, 16, 32 or 64"),
        ({"num_envs": 0}, ValueError, "num_envs is 0, expected"),
        (
            {"autoreset": "never"},
            ValueError,
            'autoreset is "never", expected next_step, same_step or disabled',
        ),
        ({"weight_norm": "mean"}, ValueError, 'weight_norm is "mean", expected batch or global'),
        ({"shared": "a/b"}, ValueError, 'shared memory name "a/b"'),
        ({"fields": {}}, ValueError, "number of fields is 0, expected"),
        (
            {"fields": {**fields(), "weights": ((), "f4")}},
            ValueError,
            '"weights" has a name that is reserved',
        ),
        ({"fields": {"x": ((), "O")}}, ValueError, "'x' has dtype object"),
        ({"fields": {"x": ((), "V0")}}, ValueError, "expected a dtype of fixed size without objects"),
        (
            {"fields": {"terminated": ((), "bool")}},
            ValueError,
            '"reward" is missing, and terminated needs it',
        ),
        ({"fields": {"reward": ((), "f4")}, "n_step": 2}, ValueError, '"terminated" is missing, and n_step'),
        ({"fields": {**fields(), "reward": ((), "int64")}}, ValueError, '"reward" must be one <f4 or <f8'),
        ({"fields": {**fields(), "truncated": ((2,), "bool")}}, ValueError, '"truncated" must be one |b1'),
        (
            {"fields": {**fields(), "next_obs": ((3,), "f4")}},
            ValueError,
            '"next_obs" has other bytes per row than obs',
        ),
        (
            {"capacity": 2**31, "fields": {"x": ((2**30,), "f8")}},
            MemoryError,
            r"cannot allocate \d+ bytes of memory",
        ),
    ],
)
def test_bad_settings_raise(options, error, text):
    with pytest.raises(error, match=text):
        parl.PrioritizedReplay(options.pop("capacity", 100), options.pop("fields", fields()), **options)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"obs": [[0.0]]}, ValueError, r"obs has shape \(1, 1\), expected \(1,\)"),
        ({"reward": [0.0, 1.0]}, ValueError, r"reward has shape \(2,\), expected \(1,\)"),
        (
            {"obs": 0.0},
            ValueError,
            r"obs has shape \(\), expected \(1,\): the leading dimension, one entry per row, is missing",
        ),
        (
            {"obs": [0.0, 1.0], "action": 0},
            ValueError,
            r"action has shape \(\), expected \(2,\): the leading dimension, one entry per row, is missing",
        ),
        ({"action": np.zeros(1)}, ValueError, "action has dtype float64, which cannot be cast to int64"),
        ({"action": [2**70]}, ValueError, "action"),
        ({"terminated": [2]}, ValueError, "terminated"),
        ({"obs": ["a"]}, ValueError, "obs has dtype <U1"),
        ({"extra": [1]}, ValueError, "fields do not match: unknown extra"),
        ({"env_id": [5]}, IndexError, r"environment 5 at position 0 is outside 0 to 1"),
        ({"env_id": [-1]}, IndexError, r"environment -1 at position 0 is outside 0 to 1"),
        ({"env_id": [0, 1]}, ValueError, "env_id has 2 entries, expected 1"),
        ({"env_id": [0.5]}, TypeError, "env_id has dtype float64, expected an integer type"),
        ({"priorities": [float("nan")]}, ValueError, "priority NaN at position 0 is not finite"),
        ({"priorities": [float("-inf")]}, ValueError, "priority -inf at position 0"),
        ({"priorities": [1.0, 2.0]}, ValueError, "priorities has 2 entries, expected 1"),
        ({"reward": [float("nan")]}, ValueError, "reward NaN at position 0 is not finite"),
        ({"reward": np.array([np.inf], np.float32)}, ValueError, "reward inf at position 0 is not finite"),
        ({"reward": [float("-inf")]}, ValueError, "reward -inf at position 0 is not finite"),
    ],
)
def test_bad_rows_raise_and_are_not_added(change, error, text):
    buffer = parl.PrioritizedReplay(10, fields(), num_envs=2)
    with pytest.raises(error, match=text):
        buffer.add(**{**ROW, **change})
    assert len(buffer) == 0


@pytest.mark.parametrize("name", ["obs", "terminated", "env_id", "priorities", "final_obs"])
def test_masked_entries_are_refused(name):
    """The values below the mask were stored."""
    replay = parl.PrioritizedReplay(10, fields(), num_envs=2, autoreset="same_step")
    rows = {key: np.asarray(value, fields().get(key, ((), None))[1]) for key, value in ROW.items()}
    rows |= {"env_id": np.array([1]), "priorities": np.array([2.0]), "final_obs": rows["obs"]}
    with pytest.raises(ValueError, match=f"{name} has masked entries, expected an array without a mask"):
        replay.add(**{**rows, name: np.ma.masked_array(rows[name], [True])})
    assert len(replay) == 0
    tickets = replay.add(**{**rows, name: np.ma.masked_array(rows[name], [False])})
    with pytest.raises(ValueError, match="priorities has masked entries"):
        replay.update_priorities(tickets, np.ma.masked_array([3.0], [True]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(
    ("kind", "reward"),
    [
        (parl.PrioritizedReplay, ((), "float64")),
        (parl.UniformReplay, ((), "float32")),
        (parl.UniformReplay, ((2,), "float32")),  # one reward for each of two players
    ],
)
def test_one_reward_that_is_not_finite_is_refused_with_its_row(kind, reward, bad):
    replay = kind(10, {"x": ((), "int64"), "reward": reward})
    rewards = np.zeros((4, *reward[0]), reward[1])
    rewards[2] = bad
    with pytest.raises(parl.errors.NonFiniteError, match=r"reward (NaN|inf|-inf) at position 2 is not"):
        replay.add(x=np.arange(4), reward=rewards)
    assert len(replay) == 0
    replay.add(x=np.arange(4), reward=np.where(np.isfinite(rewards), rewards, 1).astype(reward[1]))
    assert len(replay) == 4


def test_an_array_without_its_leading_axis_raises():
    buffer = parl.PrioritizedReplay(10, {"obs": ((3,), "f4"), "x": ((), "f4")})
    for x in ([1.0, 2.0, 3.0], [[1.0]]):
        with pytest.raises(
            ValueError, match=r"obs has shape \(3,\), expected .*the leading dimension.*is missing"
        ):
            buffer.add(obs=np.zeros(3), x=x)
    with pytest.raises(ValueError, match=r"obs has shape \(2,\), expected \(n, 3\)"):
        buffer.add(obs=np.zeros(2), x=1.0)
    assert len(buffer) == 0


def test_missing_fields_and_too_many_rows_raise():
    buffer = parl.PrioritizedReplay(10, fields(), num_envs=2)
    with pytest.raises(ValueError, match="fields do not match: missing action, truncated"):
        buffer.add(obs=[0.0], reward=[0.0], terminated=[False])
    with pytest.raises(IndexError, match=r"environment 2 at position 2 is outside 0 to 1"):
        buffer.add(**{name: value * 3 for name, value in ROW.items()})
    assert buffer.add(**{name: np.zeros(0, dtype) for (name, (_, dtype)) in fields().items()}).shape == (0,)


def test_final_observations_are_refused_where_the_next_row_holds_them():
    buffer = parl.PrioritizedReplay(10, fields(), num_envs=2, autoreset="next_step")
    ends = {name: value * 2 for name, value in ROW.items()} | {"truncated": [False, True]}
    text = r'final_obs is given, but with autoreset "next_step" the next row holds the final observation'
    for final in ([None, 4.0], np.array([None, np.float32(4)], dtype=object), np.zeros(2, np.float32)):
        with pytest.raises(ValueError, match=text):
            buffer.add(**ends, final_obs=final)
    assert len(buffer) == 0
    for final in (None, [None, None]):
        buffer.add(**ends, final_obs=final)
    assert len(buffer) == 4


def test_truncation_needs_its_final_observation():
    buffer = parl.PrioritizedReplay(10, fields(), num_envs=2, autoreset="same_step")
    ends = {name: value * 2 for name, value in ROW.items()} | {"truncated": [False, True]}
    text = r'row 1 \(environment 1\) is truncated: with autoreset "same_step" its final observation is needed'
    with pytest.raises(ValueError, match=text):
        buffer.add(**ends)
    with pytest.raises(ValueError, match=text):
        buffer.add(**ends, final_obs=[1.0, None])
    with pytest.raises(ValueError, match=r"final_obs has shape \(3,\), expected \(2,\)"):
        buffer.add(**ends, final_obs=np.zeros(3, np.float32))
    with pytest.raises(ValueError, match=r"final_obs\[1\] has shape \(2,\), expected \(\)"):
        buffer.add(**ends, final_obs=[None, [1.0, 2.0]])
    assert len(buffer) == 0
    # An object array, as gymnasium gives it, with None where nothing ended.
    final = np.array([None, np.float32(4)], dtype=object)
    buffer.add(**ends, final_obs=final)
    assert buffer.sample(1).next_obs[0] == 4


def test_bad_calls_of_sample_and_update_priorities_raise():
    buffer = parl.PrioritizedReplay(10, X)
    with pytest.raises(parl.errors.NotSampleableError, match="nothing to sample: the replay is empty"):
        buffer.sample(1)
    ticket = buffer.add(x=[1])
    with pytest.raises(ValueError, match='mode is "best", expected stratified'):
        buffer.sample(1, mode="best")
    with pytest.raises(ValueError, match=r"rank is 3, expected 0 to 2"):
        buffer.sample(1, mode="split", rank=3, learners=3)
    out = buffer.empty_batch(1)
    for beta, shown in ((-1, "-1"), (float("nan"), "NaN"), (float("inf"), "inf")):
        for options in ({}, {"out": out}, {"mode": "uniform"}):
            with pytest.raises(ValueError, match=rf"beta is {shown}, expected a finite number of at least 0"):
                buffer.sample(1, beta=beta, **options)
    with pytest.raises(ValueError, match="batch_size is -1, expected"):
        buffer.sample(-1)
    for size in (1.5, True, None, "3"):
        with pytest.raises(TypeError, match=f"batch_size is {size!r}, expected an integer"):
            buffer.sample(size)
    with pytest.raises(IndexError, match=r"ticket 0x1000000ff at position 1 names slot 255, outside 0 to 11"):
        buffer.update_priorities(np.array([ticket[0], 0x1000000FF], np.uint64), [1.0, 2.0])
    with pytest.raises(ValueError, match="priority NaN at position 0"):
        buffer.update_priorities(ticket, [np.nan])
    with pytest.raises(ValueError, match="priorities has 2 entries, expected 1"):
        buffer.update_priorities(ticket, [1.0, 2.0])
    with pytest.raises(TypeError, match="tickets has dtype float64"):
        buffer.update_priorities([0.5], [1.0])
    assert len(buffer.sample(0).x) == 0


def test_tickets_of_rows_that_were_never_written_are_refused():
    buffer, other = (parl.PrioritizedReplay(10, X) for _ in range(2))
    for i in range(30):
        other.add(x=[i])
    ticket = buffer.add(x=[1])
    theirs = other.sample(3).tickets
    with pytest.raises(IndexError, match="at position 1 was not issued by this replay"):
        buffer.update_priorities(np.array([ticket[0], *theirs]), [2.0, 1.0, 1.0, 1.0])
    assert (buffer.total_priority, buffer.stale_updates) == (pytest.approx(2**0.6, rel=1e-4), 3)
    # Slot numbers are not tickets.
    with pytest.raises(IndexError, match="ticket 0x0 at position 0 was not issued by this replay"):
        buffer.update_priorities(buffer.sample(1).indices.astype(np.uint64), [1.0])
    # Neither are slots with a generation, or tickets with one bit changed.
    for number in (1 << 32, *(int(ticket[0]) ^ 1 << bit for bit in (33, 61, 62, 63))):
        with pytest.raises(IndexError, match=f"ticket {number:#x} at position 0 was not issued by this"):
            buffer.update_priorities(np.array([number], np.uint64), [1.0])
    # Tickets of overwritten rows are stale, not wrong.
    for i in range(30):
        buffer.add(x=[i])
    assert buffer.update_priorities(ticket, [1.0]) == 1


def test_tickets_of_an_identical_replay_are_refused():
    """Both replays have the same settings, seed and rows, so slots and generations are equal."""
    buffer, other = (parl.PrioritizedReplay(10, X, seed=1, alpha=1.0, epsilon=0.0) for _ in range(2))
    for i in range(3000):
        for replay in (buffer, other):
            ticket = replay.add(x=[i])
        if i % 100 > 9:
            continue
        with pytest.raises(IndexError, match=f"ticket {ticket[0]:#x} at position 0 was not issued by this"):
            buffer.update_priorities(ticket, [0.5])
        assert other.update_priorities(ticket, [1.0]) == 0
    assert buffer.total_priority == other.total_priority == 10
    assert (buffer.stale_updates, other.stale_updates) == (300, 0)


def test_tickets_are_valid_in_every_handle_of_a_replay_and_after_loading(tmp_path):
    with parl.PrioritizedReplay(10, X, shared="parl-test-tickets", alpha=1.0, epsilon=0.0) as replay:
        first = replay.add(x=[1])
        with parl.PrioritizedReplay.attach("parl-test-tickets") as other:
            second = other.add(x=[2])
            assert other.update_priorities(first, [5.0]) == replay.update_priorities(second, [6.0]) == 0
        replay.save(tmp_path / "saved")
    for capacity, stale, total in ((None, 0, 7), (20, 2, 11)):
        loaded = parl.PrioritizedReplay.load(tmp_path / "saved", capacity=capacity)
        assert loaded.update_priorities(np.concatenate([first, second]), [3.0, 4.0]) == stale
        assert loaded.total_priority == total
    ticket = None
    for _ in range(3):
        with parl.PrioritizedReplay(10, X, path=tmp_path / "mapped", alpha=1.0, epsilon=0.0) as mapped:
            ticket = mapped.add(x=[1]) if ticket is None else ticket
            assert mapped.update_priorities(ticket, [2.0]) == 0


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda r: r.evict(2**33), parl.errors.NotSampleableError, "8589934592 distinct .* only 10 have"),
        (lambda r: r.evict(2**62), parl.errors.NotSampleableError, "distinct leaves asked for"),
        (lambda r: r.evict(11), parl.errors.NotSampleableError, "11 distinct leaves asked for, but only 10"),
        (lambda r: r.sample(11, mode="largest"), parl.errors.NotSampleableError, "11 distinct"),
        (lambda r: r.sample(13, mode="without_replacement"), parl.errors.NotSampleableError, "13 distinct"),
        (lambda r: r.sample(2**40), ValueError, r"batch_size is 1099511627776, expected 0 to 2\*\*40 - 1"),
        (lambda r: r.sample(2**62), ValueError, "batch_size is 4611686018427387904, expected"),
        (lambda r: r.empty_batch(2**62), ValueError, "batch_size is 4611686018427387904, expected"),
        (lambda r: r.sample(2**40 - 1), MemoryError, "1099511627775"),
        (lambda r: r.evict(-1), ValueError, "rows is -1, expected"),
        (lambda r: r.sample(1, mode="split", rank=-1), ValueError, r"rank is -1, expected 0 to 4294967295"),
        (lambda r: r.sample(1, mode="split", learners=2**32), ValueError, "learners is 4294967296, expected"),
    ],
)
def test_impossible_sizes_raise(call, error, text):
    replay = parl.PrioritizedReplay(10, X)
    replay.add(x=np.arange(10))
    with pytest.raises(error, match=text):
        call(replay)
    assert replay.sampleable == 10


def test_a_field_of_too_many_bytes_raises():
    with pytest.raises(ValueError, match=r"'x' has \d+ bytes per row, more than 2\*\*40"):
        parl.PrioritizedReplay(10, {"x": ((2**40, 2**40), "f8")})


@pytest.mark.parametrize("name", ["env_id", "priorities"])
def test_conversions_run_before_columns_are_read(name):
    """The conversion of one argument shrinks another one, whose freed memory must not be read."""

    class Shrinks:
        def __array__(self, dtype=None, copy=None):
            column.resize(0, refcheck=False)
            return np.zeros(4, np.int64)

    for spec, rows in (
        (X, {}),
        ({**X, "y": ((), "int64")}, {"y": [1, 2, 3, 4]}),
    ):  # Without and with a list to convert.
        replay = parl.PrioritizedReplay(10, spec)
        column = np.arange(4)
        with pytest.raises(ValueError, match=r"has 4 entries, expected 0|has 0 bytes, expected 32"):
            replay.add(x=column, **rows, **{name: Shrinks()})
        assert len(replay) == 0


def test_all_errors_are_parl_errors_or_built_in_ones():
    assert issubclass(parl.errors.NotSampleableError, (ValueError, parl.ParlError))
    for error in vars(parl.errors).values():
        if isinstance(error, type) and issubclass(error, Exception):
            assert issubclass(error, parl.ParlError)


def test_private_replays_cannot_be_pickled():
    with pytest.raises(TypeError, match="make it with shared"):
        pickle.dumps(parl.PrioritizedReplay(10, X))


def test_calls_on_a_closed_replay_raise():
    buffer = parl.PrioritizedReplay(10, X)
    buffer.add(x=[1])
    buffer.close()
    buffer.close()
    for use in (
        lambda: buffer.add(x=[1]),
        lambda: buffer.sample(1),
        lambda: buffer.update_priorities([1], [1.0]),
    ):
        with pytest.raises(parl.errors.ReplayClosedError, match="this replay is closed"):
            use()
