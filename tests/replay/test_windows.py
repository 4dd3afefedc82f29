"""N-step windows, episode ends and the wrap-around of the ring, compared with the model in plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model import NaiveReplay, fields

import parl

STEP = st.tuples(
    st.integers(0, 2),  # environment
    st.integers(-3, 3),  # reward
    st.sampled_from(["go on", "go on", "go on", "terminated", "truncated", "both"]),
)


def check_all(
    buffer: parl.PrioritizedReplay, naive: NaiveReplay, numbers: dict[int, int], oldest: int
) -> None:
    """Checks that exactly the transitions of the model can be sampled, with equal contents."""
    expected = naive.transitions(oldest)
    assert buffer.sampleable == len(expected)
    if not expected:
        with pytest.raises(parl.errors.NotSampleableError, match="nothing to sample"):
            buffer.sample(1)
        return
    # With equal priorities, a systematic sample of as many rows as can be sampled has each row once.
    batch = buffer.sample(len(expected), mode="systematic")
    drawn = [numbers[int(ticket)] for ticket in batch.tickets]
    assert sorted(drawn) == sorted(expected)
    for j, number in enumerate(drawn):
        want = expected[number]
        assert batch.action[j] == number
        assert batch.reward[j] == pytest.approx(want.reward, abs=1e-5)
        assert batch.discount[j] == pytest.approx(want.discount, abs=1e-6)
        assert (batch.terminated[j], batch.truncated[j]) == (want.terminated, want.truncated)
        if want.next_obs is not None:
            assert batch.next_obs[j] == want.next_obs
        assert np.isfinite(batch.next_obs[j])


@settings(max_examples=300)
@given(
    steps=st.lists(STEP, max_size=60),
    capacity=st.integers(6, 70),
    n_step=st.integers(1, 4),
    autoreset=st.sampled_from(["next_step", "same_step", "disabled"]),
    explicit_next=st.booleans(),
    per_call=st.integers(1, 5),
)
def test_transitions_equal_those_of_the_model(steps, capacity, n_step, autoreset, explicit_next, per_call):
    gamma = 0.5
    buffer = parl.PrioritizedReplay(
        capacity, fields(explicit_next), n_step=n_step, gamma=gamma, num_envs=3, autoreset=autoreset
    )
    naive = NaiveReplay(capacity, n_step, gamma, autoreset, explicit_next)
    numbers: dict[int, int] = {}
    slots = 0  # a final observation passed with a row takes a slot of its own
    slot_of: dict[int, int] = {}
    for start in range(0, len(steps), per_call):
        rows = steps[start : start + per_call]
        first = naive.slots_taken
        added = [
            naive.add(env, float(10 * (first + i)), float(reward), end in ("terminated", "both"),
                      end in ("truncated", "both"), final=float(10 * (first + i) + 7))
            for i, (env, reward, end) in enumerate(rows)
        ]  # fmt: skip
        extra = {"next_obs": [row.obs + 0.5 for row in added]} if explicit_next else {}
        if autoreset != "next_step" and not explicit_next:
            extra["final_obs"] = [row.final_obs for row in added]
        tickets = buffer.add(
            obs=[row.obs for row in added],
            action=[row.number for row in added],
            reward=[row.reward for row in added],
            terminated=[row.terminated for row in added],
            truncated=[row.truncated for row in added],
            env_id=[env for env, _, _ in rows],
            **extra,
        )
        # A call is split into pieces of half the capacity; the final observations of a piece follow its rows.
        piece = max(capacity // 2, 1)
        for k in range(0, len(added), piece):
            part = added[k : k + piece]
            for row in part:
                slot_of[row.number] = slots
                slots += 1
            slots += sum(row.final_obs is not None for row in part)
        numbers.update({int(ticket): row.number for ticket, row in zip(tickets, added, strict=True)})
        held = [number for number, slot in slot_of.items() if slot >= slots - capacity]
        check_all(buffer, naive, numbers, min(held))
    buffer.verify()


def test_returns_bootstrap_after_truncation_but_not_after_termination():
    buffer = parl.PrioritizedReplay(10, fields(), n_step=3, gamma=0.5, num_envs=1)
    ends = [(0, 0), (0, 1), (0, 0), (0, 0), (1, 0), (0, 0)]
    for i, (terminated, truncated) in enumerate(ends):
        buffer.add(
            obs=[i], action=[i], reward=[1], terminated=[bool(terminated)], truncated=[bool(truncated)]
        )
    batch = buffer.sample(buffer.sampleable, mode="systematic")
    names = ("action", "reward", "discount", "next_obs")
    rows = zip(*(batch[name].tolist() for name in names), strict=True)
    got = {action: rest for action, *rest in rows}
    # Rows 0 and 1: truncated in row 1. Row 2 holds its final observation and is never sampled. Rows 3 and 4:
    # terminated in row 4.
    assert got == {0: [1.5, 0.25, 2.0], 1: [1.0, 0.5, 2.0], 3: [1.5, 0.0, 5.0], 4: [1.0, 0.0, 5.0]}


def test_flags_of_a_step_that_terminates_and_is_truncated_are_both_returned():
    replay = parl.PrioritizedReplay(10, fields(), num_envs=1)
    for i in range(4):
        both = [i == 1]
        replay.add(obs=[i], action=[i], reward=[1], terminated=both, truncated=both)
    batch = replay.sample(replay.sampleable, mode="systematic")
    found = {
        action: flags
        for action, *flags in zip(
            *(batch[n].tolist() for n in ("action", "terminated", "truncated", "discount")), strict=True
        )
    }
    assert found == {0: [False, False, pytest.approx(0.99)], 1: [True, True, 0.0]}


def test_priorities_passed_to_add_take_effect_when_the_window_is_complete():
    buffer = parl.PrioritizedReplay(10, fields(), n_step=2, alpha=1.0, epsilon=0.0, num_envs=1)
    go_on = {"terminated": [False], "truncated": [False]}
    for i in range(2):
        buffer.add(obs=[i], action=[i], reward=[0], priorities=[5.0], **go_on)
    assert buffer.total_priority == 0 and buffer.sampleable == 0
    ticket = buffer.add(obs=[2], action=[2], reward=[0], priorities=[3.0], **go_on)
    assert buffer.total_priority == 5
    # An update of a row takes effect when the window of the row is complete.
    assert buffer.update_priorities(ticket, [7.0]) == 0
    assert buffer.total_priority == 5
    for i in range(3, 5):
        buffer.add(obs=[i], action=[i], reward=[0], **go_on)
    assert buffer.total_priority == 5 + 5 + 7


def test_new_rows_get_the_largest_priority_so_far():
    buffer = parl.PrioritizedReplay(100, {"x": ((), "int64")}, alpha=1.0, epsilon=0.0)
    first = buffer.add(x=[0])
    assert buffer.total_priority == 1
    buffer.update_priorities(first, [4.0])
    buffer.update_priorities(first, [0.5])
    buffer.add(x=[1, 2])
    assert buffer.total_priority == 0.5 + 4 + 4


def test_windows_do_not_cross_end_episodes():
    buffer = parl.PrioritizedReplay(10, fields(), num_envs=2)
    row = {
        "obs": [0, 1],
        "action": [0, 1],
        "reward": [0, 0],
        "terminated": [False] * 2,
        "truncated": [False] * 2,
    }
    buffer.add(**row)
    buffer.end_episodes([1])
    buffer.add(**row)
    assert buffer.sampleable == 1, "only the row of environment 0 has a successor"
    with pytest.raises(IndexError, match=r"environment 2 at position 0 is outside 0 to 1"):
        buffer.end_episodes([2])


@pytest.mark.parametrize("capacity", [1, 2, 63, 64, 100, 1000, 5000])
def test_exactly_the_newest_capacity_rows_are_held(capacity):
    buffer = parl.UniformReplay(capacity, {"x": ((), "int64")})
    total = 0
    for size in [1, capacity // 2 + 1, capacity, 3, 2 * capacity + 1, 1]:
        buffer.add(x=np.arange(total, total + size))
        total += size
        assert len(buffer) == min(total, capacity) == buffer.sampleable
        held = buffer.sample(len(buffer), mode="systematic").x
        assert sorted(held) == list(range(max(total - capacity, 0), total))


def test_several_observations_and_shapes():
    spec = {
        "obs_image": ((2, 3), "uint8"),
        "obs_speed": (2, np.float64),
        "reward": ((), "float64"),
        "terminated": ((), "bool"),
        "note": {"shape": (4,), "dtype": "S5"},
    }
    buffer = parl.PrioritizedReplay(10, spec, num_envs=1)
    for i in range(3):
        buffer.add(
            obs_image=np.full((1, 2, 3), i, np.uint8),
            obs_speed=np.full((1, 2), i / 2),
            reward=[0.1],
            terminated=[False],
            note=np.array([[b"a", b"bc", b"def", b"ghijk"]], "S5"),
        )
    batch = buffer.sample(16)
    assert batch.obs_image.shape == (16, 2, 3) and batch.next_obs_speed.dtype == np.float64
    np.testing.assert_array_equal(batch.next_obs_image, batch.obs_image + 1)
    np.testing.assert_array_equal(batch.next_obs_speed, batch.obs_speed + 0.5)
    assert batch.reward.dtype == np.float64 and (batch.reward == 0.1).all()
    assert batch.note[0, 3] == b"ghijk"
