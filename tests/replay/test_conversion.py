"""Conversion of a replay: the same rows, priorities, tickets, windows and samples, in another form."""

import threading

import numpy as np
import pytest

import parl
from parl.errors import NotSampleableError, ReplayClosedError
from parl.replay.conversion import Conversion

ENVS, PIXELS = 3, 300


def fields(pixels):
    return {
        "obs": ((pixels,), "uint8"),
        "action": ((), "int64"),
        "reward": ((), "float32"),
        "terminated": ((), "bool"),
        "truncated": ((), "bool"),
    }


def code(stacks):
    """One number per stack, in which each of its bytes counts; (n, 2) float32, the second is its length."""
    flat = stacks.reshape(len(stacks), -1).astype(np.float64)
    weights = 1.001 ** np.arange(flat.shape[1])
    return np.stack([flat @ weights, np.full(len(flat), flat.shape[1])], axis=1).astype(np.float32)


class Stream:
    """Steps of some environments, the same for the same seed."""

    def __init__(self, autoreset, seed=0):
        self._rng, self._autoreset = np.random.default_rng(seed), autoreset

    def step(self, envs=ENVS):
        rng = self._rng
        ended, cut = rng.random(envs) < 0.1, rng.random(envs) < 0.1
        rows = {
            "obs": rng.integers(0, 255, (envs, PIXELS), np.uint8),
            "action": rng.integers(0, 9, envs),
            "reward": rng.random(envs, np.float32),
            "terminated": ended,
            "truncated": cut & ~ended,
        }
        if self._autoreset == "same_step":
            rows["final_obs"] = rng.integers(0, 255, (envs, PIXELS), np.uint8)
        return rows


def make(stack, autoreset="next_step", **options):
    # More environments than add rows: final observations must not push out the frames of the oldest rows.
    given = {"num_envs": 3 * ENVS, "n_step": 3, "alpha": 0.7, "seed": 4, "frame_stack": stack}
    return parl.PrioritizedReplay(100, fields(PIXELS), autoreset=autoreset, **(given | options))


def samples(replay, count=20):
    return [replay.sample(16, beta=0.5) for _ in range(count)]


@pytest.mark.parametrize(("compression", "steps"), [("none", 2), ("none", 9), ("lz4", 40), ("none", 75)])
@pytest.mark.parametrize("autoreset", ["next_step", "same_step"])
@pytest.mark.parametrize("stack", [1, 3])
def test_a_converted_replay_goes_on_as_the_original_does(stack, autoreset, steps, compression):
    first = make(stack, autoreset, compression=compression)
    stream = Stream(autoreset)
    tickets = [first.add(**stream.step()) for _ in range(steps)]
    if first.sampleable:
        batch = first.sample(8)
        first.update_priorities(batch.tickets, np.arange(8))
    conversion = Conversion(first, "obs", (2,), "float32", code, rows=7)
    while conversion.step():
        pass
    second = conversion.finish()
    second.verify()
    assert second.sampleable == first.sampleable and len(second) == len(first)
    assert second.total_priority == first.total_priority and second.rng_state == first.rng_state
    for step in range(30):
        old, new = (replay if replay.sampleable else None for replay in (first, second))
        if old is not None:
            for a, b in zip(samples(old, 3), samples(new, 3), strict=True):
                for name in ("obs", "next_obs"):
                    np.testing.assert_array_equal(code(a[name]), b[name])
                for name in ("action", "reward", "terminated", "discount", "indices", "weights", "tickets"):
                    np.testing.assert_array_equal(a[name], b[name])
        for replay in (first, second):
            stale = replay.update_priorities(tickets[-1], np.full(ENVS, 0.1 * step))
            assert not stale
        # Observations of new rows are converted where they come from, here from the original's stacks.
        rows = stream.step()
        tickets.append(first.add(**rows))
        stacks = Conversion(first, "obs", (2,), "float32", code)
        held: dict[int, np.ndarray] = {}
        while count := stacks._native.read(stacks._stacks, stacks._numbers):
            held |= dict(zip(stacks._numbers[:count].tolist(), code(stacks._stacks[:count]), strict=True))
        added = first.counters["added"]
        finals = int(rows["truncated"].sum()) if autoreset == "same_step" else 0
        own = {"obs": np.stack([held[added - finals - ENVS + i] for i in range(ENVS)])}
        if autoreset == "same_step":
            own["final_obs"] = np.zeros((ENVS, 2), np.float32)
            places = np.flatnonzero(rows["truncated"])
            for k, place in enumerate(places):
                own["final_obs"][place] = held[added - finals + k]
        np.testing.assert_array_equal(second.add(**(rows | own)), tickets[-1])


def test_a_converted_replay_is_saved_and_loaded(tmp_path):
    first, stream = make(4), Stream("next_step")
    for _ in range(60):
        first.add(**stream.step())
    second = Conversion(first, "obs", (2,), "float32", code).finish()
    second.save(tmp_path / "replay")
    third = parl.PrioritizedReplay.load(tmp_path / "replay")
    for a, b in zip(samples(second), samples(third), strict=True):
        np.testing.assert_array_equal(a.obs, b.obs)
        np.testing.assert_array_equal(a.tickets, b.tickets)
    smaller = parl.PrioritizedReplay.load(tmp_path / "replay", capacity=8)
    assert len(smaller) == 8


def test_rows_added_and_priorities_set_by_other_threads_are_converted_too():
    first = make(4, n_step=1)
    stream = Stream("next_step")
    for _ in range(20):
        first.add(**stream.step())

    def write():
        for _ in range(500):
            first.add(**stream.step())

    writer = threading.Thread(target=write)
    writer.start()
    conversion = Conversion(first, "obs", (2,), "float32", code, rows=5)
    while writer.is_alive():
        conversion.step()
    writer.join()
    second = conversion.finish()
    assert second.sampleable == first.sampleable > 60
    for a, b in zip(samples(first), samples(second), strict=True):
        np.testing.assert_array_equal(code(a.obs), b.obs)
        np.testing.assert_array_equal(code(a.next_obs), b.next_obs)


def test_rows_that_were_not_converted_cannot_be_sampled():
    first, stream = make(1), Stream("next_step")
    for _ in range(20):
        first.add(**stream.step())
    conversion = Conversion(first, "obs", (2,), "float32", code)
    with pytest.raises(NotSampleableError):
        parl.PrioritizedReplay._from_native(conversion._native.finish(), None).sample(4)
    with pytest.raises(ReplayClosedError):
        conversion.step()


def test_replays_in_shared_memory_and_unknown_fields_are_refused():
    with (
        make(1, shared="parl-test-conversion") as replay,
        pytest.raises(ValueError, match=r"memory is shared, expected private, to convert a replay"),
    ):
        Conversion(replay, "obs", (2,), "float32", code)
    with make(1) as replay:
        with pytest.raises(ValueError, match='field "pictures" is not a field of the replay'):
            Conversion(replay, "pictures", (2,), "float32", code)
        conversion = Conversion(replay, "obs", (2,), "float32", code)
        with pytest.raises(IndexError):
            conversion._native.write(np.array([7], np.uint64), np.zeros((1, 2), np.float32))
        with pytest.raises(ValueError, match='field "obs" has 4 bytes, expected 8'):
            conversion._native.write(np.array([7], np.uint64), np.zeros((1, 1), np.float32))


def test_a_converted_replay_keeps_its_class_and_its_hindsight():
    goals = {"achieved_goal": ((1,), "float32"), "desired_goal": ((1,), "float32")}
    spec = {**fields(PIXELS), "obs": {"image": ((PIXELS,), "uint8"), **goals}}
    hindsight = parl.Hindsight(lambda achieved, desired, info: np.full(len(achieved), 3.0), k=1e9)
    replay = parl.UniformReplay(50, spec, num_envs=1, hindsight=hindsight)
    for i in range(20):
        obs = {"image": np.full(PIXELS, i, np.uint8), "achieved_goal": [float(i)], "desired_goal": [99.0]}
        replay.add(obs=obs, action=i, reward=0.0, terminated=False, truncated=False)
    converted = Conversion(replay, "obs/image", (2,), "float32", code).finish()
    assert type(converted) is parl.UniformReplay
    batch, expected = converted.sample(16), replay.sample(16)
    assert (batch.reward == 3.0).all() and batch.relabelled.all()
    np.testing.assert_array_equal(batch.obs.desired_goal, expected.obs.desired_goal)
    np.testing.assert_array_equal(batch.obs.image, code(expected.obs.image))
