"""Sequences, compared with a model that cuts whole episodes into pieces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import parl

FIELDS = {
    "obs": ((2,), "float32"),
    "state": ((3,), "float32"),
    "action": ((), "int64"),
    "reward": ((), "float32"),
    "terminated": ((), "bool"),
    "truncated": ((), "bool"),
}
STEP = st.tuples(st.integers(0, 2), st.sampled_from(["go on"] * 6 + ["terminated", "truncated"]))


def episodes_of(steps, autoreset):
    """Lists episodes: the numbers of the steps, how it ended, the number of its final row, if any."""
    open_: dict[int, list[int]] = {}
    waiting: dict[int, dict] = {}
    done: list[dict] = []
    for number, (env, end) in enumerate(steps):
        if env in waiting:
            waiting.pop(env)["final"] = number
            continue
        rows = open_.setdefault(env, [])
        rows.append(number)
        if end != "go on":
            episode = {"rows": open_.pop(env), "end": end, "final": None}
            done.append(episode)
            if autoreset == "next_step":
                waiting[env] = episode
            elif end == "truncated":
                episode["final"] = -number - 1  # passed with the row
    return done + [{"rows": rows, "end": None, "final": None} for rows in open_.values()]


def sequences_of(episode, length, overlap, burn_in):
    """The steps of each sequence that can be sampled, and the number of the observation after them."""
    rows, found = episode["rows"], []
    for start in range(0, len(rows), length - overlap):
        steps = rows[start : start + length]
        if start + length < len(rows):
            found.append((steps, rows[start + length]))
            continue
        if episode["end"] is None:
            continue  # It continues; the observation after the last step is not known yet.
        if episode["end"] == "truncated" and episode["final"] is None:
            continue
        covered = start > 0 and len(rows) <= start - (length - overlap) + length
        if not covered and len(steps) > burn_in:
            found.append((steps, episode["final"]))
    return found


@settings(max_examples=120)
@given(
    steps=st.lists(STEP, max_size=90),
    length=st.integers(1, 6),
    share=st.integers(0, 5),
    burn_in=st.integers(0, 5),
    autoreset=st.sampled_from(["next_step", "same_step"]),
    frame_stack=st.sampled_from([1, 3]),
    per_call=st.integers(1, 4),
)
def test_sequences_equal_those_of_the_model(steps, length, share, burn_in, autoreset, frame_stack, per_call):
    overlap, burn_in = min(share, length - 1), min(burn_in, length - 1)
    replay = parl.SequenceReplay(
        200, FIELDS, length=length, overlap=overlap, burn_in=burn_in, gamma=0.5, alpha=1.0, num_envs=3,
        autoreset=autoreset, frame_stack=frame_stack,
    )  # fmt: skip
    tickets: dict[int, int] = {}
    for first in range(0, len(steps), per_call):
        rows = steps[first : first + per_call]
        numbers = np.arange(first, first + len(rows))
        final = [
            np.full(2, -n - 1.0) if end == "truncated" else None
            for n, (_, end) in zip(numbers, rows, strict=True)
        ]
        added = replay.add(
            obs=np.repeat(numbers[:, None], 2, 1),
            state=np.repeat(numbers[:, None], 3, 1) + 0.5,
            action=numbers,
            reward=numbers / 2,
            terminated=[end == "terminated" for _, end in rows],
            truncated=[end == "truncated" for _, end in rows],
            env_id=[env for env, _ in rows],
            **({"final_obs": final} if autoreset == "same_step" else {}),
        )
        tickets |= dict(zip(added.tolist(), numbers.tolist(), strict=True))
    expected, frames = {}, {}
    for episode in episodes_of(steps, autoreset):
        for run, after in sequences_of(episode, length, overlap, burn_in):
            expected[run[0]] = (run, after, episode["end"] if run[-1] == episode["rows"][-1] else None)
            frames[run[0]] = episode["rows"]
    assert replay.sampleable == len(expected)
    if not expected:
        return
    batch = replay.sample(len(expected), mode="systematic")
    drawn = [tickets[int(ticket)] for ticket in batch.tickets]
    assert sorted(drawn) == sorted(expected)
    assert batch.obs.shape[:2] == (length + 1, len(expected)) and batch.reward.shape == (
        length,
        len(expected),
    )
    for j, start in enumerate(drawn):
        run, after, end = expected[start]
        n = len(run)
        assert batch.mask[:, j].tolist() == [True] * n + [False] * (length - n)
        assert batch.action[:n, j].tolist() == run and not batch.action[n:, j].any()
        np.testing.assert_array_equal(batch.reward[:n, j], np.array(run, np.float32) / 2)
        np.testing.assert_array_equal(batch.state[j], start + 0.5)
        last = 0.0 if end == "terminated" else 0.5
        assert batch.discount[:, j].tolist() == [0.5] * (n - 1) + [last] + [0.0] * (length - n)
        assert batch.terminated[:n, j].tolist() == [False] * (n - 1) + [end == "terminated"]
        assert batch.truncated[:n, j].tolist() == [False] * (n - 1) + [end == "truncated"]
        shown = [*run, after] if after is not None else run
        earlier = frames[start][: frames[start].index(start)]
        for t, number in enumerate(shown):
            if frame_stack == 1:
                assert batch.obs[t, j, 0] == number
            else:
                seen = [*earlier, *shown[: t + 1]][-3:]
                assert batch.obs[t, j, :, 0].tolist() == [0.0] * (3 - len(seen)) + seen
        assert not batch.obs[n + 1 :, j].any()


def filled(**options) -> parl.SequenceReplay:
    replay = parl.SequenceReplay(100, FIELDS, num_envs=1, autoreset="disabled", **options)
    for i in range(12):
        row = {"obs": np.full((1, 2), i), "state": np.zeros((1, 3)), "action": [i], "reward": [0]}
        replay.add(**row, terminated=[i == 11], truncated=[False])
    return replay


def test_sequence_priorities_mix_the_largest_and_the_mean_error():
    replay = filled(length=4, overlap=2, burn_in=1, eta=0.75, alpha=1.0, epsilon=0.0)
    errors = np.array([[9.0, 9.0], [1.0, -4.0], [2.0, 5.0], [3.0, 8.0]])
    mask = np.array([[1, 1], [1, 1], [1, 1], [1, 0]], bool)
    expected = [0.75 * 3 + 0.25 * 2, 0.75 * 5 + 0.25 * 4.5]
    np.testing.assert_allclose(replay.sequence_priorities(errors, mask), expected)
    np.testing.assert_allclose(replay.sequence_priorities(errors[1:], mask), expected)
    np.testing.assert_allclose(replay.sequence_priorities(errors)[1], 0.75 * 8 + 0.25 * 17 / 3)
    batch = replay.sample(2, mode="without_replacement")
    before = replay.total_priority
    assert replay.update_priorities(batch.tickets, errors, mask) == 0
    assert replay.total_priority == pytest.approx(before - 2 + sum(expected))
    assert replay.update_priorities(batch.tickets, [1.0, 1.0]) == 0
    assert replay.total_priority == pytest.approx(before)
    with pytest.raises(ValueError, match=r"td_errors has shape \(2, 2\), expected \(4, B\) or \(3, B\)"):
        replay.sequence_priorities(errors[:2])
    with pytest.raises(ValueError, match=r"mask has shape \(3, 2\), expected \(4, 2\)"):
        replay.sequence_priorities(errors, mask[1:])
    with pytest.raises(ValueError, match=r"TD errors have shape \(2, 4\), expected \(T, 2\) for 2 tickets"):
        replay.update_priorities(batch.tickets, errors.T, mask.T)
    torch = pytest.importorskip("torch")
    assert replay.update_priorities(batch.tickets, torch.tensor(errors, requires_grad=True), mask) == 0


def test_masked_errors_are_refused():
    """The errors below the mask were part of the priority."""
    replay = filled(length=4)
    batch = replay.sample(2)
    errors = np.ma.masked_array(np.ones((4, 2)), ~batch.mask | (batch.action % 4 == 3))
    with pytest.raises(ValueError, match="td_errors has masked entries, expected an array without a mask"):
        replay.update_priorities(batch.tickets, errors)


def test_files_keep_settings_and_other_classes_refuse_them(tmp_path):
    replay = filled(length=4, overlap=1, burn_in=2, eta=0.6)
    replay.save(tmp_path / "replay.bin")
    loaded = parl.SequenceReplay.load(tmp_path / "replay.bin")
    assert (loaded.length, loaded.overlap, loaded.burn_in, loaded.eta) == (4, 1, 2, 0.6)
    for name, array in replay.sample(16).items():
        np.testing.assert_array_equal(array, loaded.sample(16)[name] if name == "mask" else array)
    with pytest.raises(ValueError, match="is not a PrioritizedReplay; use SequenceReplay"):
        parl.PrioritizedReplay.load(tmp_path / "replay.bin")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"length": 0}, "length is 0, expected 1 to 1024"),
        ({"length": 4, "overlap": 4}, "overlap is 4, expected less than length, 4"),
        ({"length": 4, "burn_in": 4}, r"burn_in is 4, expected 0 to 3, less than the length"),
        ({"length": 4, "eta": 1.5}, r"eta is 1.5, expected 0 to 1"),
    ],
)
def test_bad_sequence_settings_raise(options, text):
    with pytest.raises(ValueError, match=text):
        parl.SequenceReplay(100, FIELDS, **options)


def test_sequences_need_the_terminated_field_and_enough_capacity():
    with pytest.raises(ValueError, match='"terminated" is missing, and a sequence needs it'):
        parl.SequenceReplay(100, {"x": ((), "f4")}, length=4)
    with pytest.raises(ValueError, match=r"capacity is 4, expected at least 5"):
        parl.SequenceReplay(4, FIELDS, length=4)


def test_large_batches_of_sequences_are_gathered_correctly():
    """The batch is large enough to be copied by several threads."""
    spec = {**FIELDS, "obs": ((64, 64), "uint8")}
    replay = parl.SequenceReplay(400, spec, length=20, num_envs=2, autoreset="disabled", frame_stack=2)
    for i in range(150):
        replay.add(
            obs=np.full((2, 64, 64), i, np.uint8),
            state=np.zeros((2, 3)),
            action=[i, i],
            reward=[0, 0],
            terminated=[False] * 2,
            truncated=[False] * 2,
        )
    batch = replay.sample(64)
    clock = batch.action[0] + np.arange(21)[:, None]
    np.testing.assert_array_equal(
        batch.obs[:, :, 1], np.broadcast_to(clock[..., None, None], (21, 64, 64, 64))
    )
    np.testing.assert_array_equal(batch.obs[:, :, 0, 5, 5], np.maximum(clock - 1, 0))


@pytest.mark.parametrize("nested", [False, True])
def test_arrays_of_an_earlier_batch_are_filled(nested):
    fields = {**FIELDS, "obs": {"x": FIELDS["obs"]}} if nested else FIELDS
    replay = parl.SequenceReplay(100, fields, length=4, num_envs=1, autoreset="disabled")
    for i in range(20):
        obs = np.full((1, 2), i, np.float32)
        rest = {"state": np.zeros((1, 3)), "action": [i], "reward": [0.0]}
        replay.add(obs={"x": obs} if nested else obs, **rest, terminated=[False], truncated=[False])
    first = replay.sample(8)
    again = replay.sample(8, out=first)
    assert again.discount is first.discount and again.discount.shape == (4, 8)
    with replay.prefetch(8, reuse=True) as batches:
        assert next(batches).discount.shape == (4, 8)


def test_priorities_and_errors_of_bfloat16_are_taken():
    torch = pytest.importorskip("torch")
    replay = parl.SequenceReplay(100, FIELDS, length=4, num_envs=1, autoreset="disabled")
    for i in range(20):
        rest = {"state": np.zeros((1, 3)), "action": [i], "reward": [0.0]}
        replay.add(obs=np.zeros((1, 2)), **rest, terminated=[False], truncated=[False])
    batch = replay.sample(4, as_torch=True)
    assert replay.update_priorities(batch.tickets, torch.ones(4, 4, dtype=torch.bfloat16), batch.mask) == 0
    assert replay.update_priorities(batch.tickets, torch.ones(4, dtype=torch.bfloat16)) == 0
