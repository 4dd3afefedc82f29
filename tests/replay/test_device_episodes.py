"""Sequences and hindsight goals of the device replay, where `test_device_replay.py` does not compare them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from device_cases import GOALS, SEQUENCES, Case, Rows, assert_equal, host, tensors  # noqa: E402
from host_replay import HostReplay, in_memory  # noqa: E402

import parl  # noqa: E402


def filled_pair(case: Case, calls: int = 60) -> tuple[Any, Any]:
    cpu, mine = case.pair(3, "cuda", in_memory)
    rows = Rows(case, 3)
    for _ in range(calls):
        more = rows.take()
        cpu.add(**more)
        mine.add(**tensors(more))
    return cpu, mine


@pytest.mark.parametrize("mode", ["largest", "without_replacement", "uniform", "mixture"])
def test_sequences_are_correct_in_every_mode(mode: str):
    """Compares each sequence with the CPU's sequence of the same ticket."""
    cpu, mine = filled_pair(SEQUENCES[2])
    options = {"uniform": 0.4, "newest": 0.2} if mode == "mixture" else {"mode": mode}
    expected, found = cpu.sample(mine.sampleable, mode="largest"), mine.sample(12, **options)
    place = {ticket: i for i, ticket in enumerate(expected.tickets.tolist())}
    for i, ticket in enumerate(found.tickets.tolist()):
        for name in ("obs", "pixel", "action", "reward", "terminated", "discount", "mask"):
            np.testing.assert_array_equal(host(found[name])[:, i], expected[name][:, place[ticket]], name)
        np.testing.assert_array_equal(host(found.state)[i], expected.state[place[ticket]])
    mine.check()


@pytest.mark.parametrize("case", GOALS, ids=lambda case: case.goals)
def test_goals_in_mode_largest_equal_those_of_the_cpu(case: Case):
    cpu, mine = filled_pair(case)
    assert_equal(mine.sample(20, mode="largest"), cpu.sample(20, mode="largest"), exact=True)


def test_every_goal_in_other_modes_was_achieved_later_in_the_episode():
    _, mine = filled_pair(GOALS[0])
    relabelled = 0
    for options in ({"mode": "uniform"}, {"mode": "without_replacement"}, {"newest": 0.5}):
        batch = mine.sample(40, **options)
        wanted, achieved = host(batch.obs.desired_goal), host(batch.next_obs.achieved_goal)
        for i in np.flatnonzero(host(batch.relabelled)):
            # Goals hold row numbers, and the rows of four environments alternate.
            assert wanted[i, 0] >= achieved[i, 0]
            assert (wanted[i, 0] - achieved[i, 0]) % 4 == 0
            relabelled += 1
        left = ~host(batch.relabelled)
        assert (wanted[left] == 1e6).all()
    # About four of five: 96 of 120 rows.
    assert 70 < relabelled < 120


def test_samples_of_an_empty_replay_have_no_steps_and_no_goal():
    sequences = SEQUENCES[2].pair(3, "cuda", in_memory)[1].sample(5)
    assert not sequences.mask.any()
    assert (sequences.weights == 0).all()
    assert (sequences.obs == 0).all()
    assert (sequences.discount == 0).all()
    rows = GOALS[2].pair(3, "cuda", in_memory)[1].sample(5)
    assert not rows.relabelled.any()
    assert (rows.obs.desired_goal == 0).all()


def test_out_tensors_are_filled():
    for case in (SEQUENCES[1], GOALS[1]):
        _, mine = filled_pair(case)
        state, out = mine.rng_state, mine.empty_batch(8)
        expected = mine.sample(8)
        mine.rng_state = state
        batch = mine.sample(8, out=out)
        assert batch.keys() == expected.keys() == out.keys()
        for name in ("reward", "discount", "weights", "tickets"):
            assert batch[name] is out[name]
            assert torch.equal(batch[name], expected[name]), name
        if case.goals:
            assert batch.obs.desired_goal is out.obs.desired_goal
            assert torch.equal(batch.obs.desired_goal, expected.obs.desired_goal)
    with pytest.raises(
        ValueError, match=r"out\['mask'\] is bool of shape \(2,\) on cpu, expected .* \(6, 8\)"
    ):
        filled_pair(SEQUENCES[1], 1)[1].sample(8, out={"mask": torch.zeros(2, dtype=torch.bool)})


def test_sequence_priorities_equal_those_of_the_cpu():
    cpu, mine = SEQUENCES[1].pair(3, "cuda", in_memory)
    errors, mask = np.random.default_rng(0).normal(size=(6, 9)), np.random.default_rng(1).random((6, 9)) < 0.7
    for rows in (errors, errors[2:]):
        for there in (None, mask):
            found = host(mine.sequence_priorities(rows, there))
            np.testing.assert_allclose(found, cpu.sequence_priorities(rows, there), rtol=1e-14)
    # The result has no gradient.
    assert not mine.sequence_priorities(torch.ones((6, 2), requires_grad=True)).requires_grad
    for replay in (cpu, mine):
        with pytest.raises(ValueError, match=r"td_errors has shape \(5, 9\), expected \(6, B\) or \(4, B\)"):
            replay.sequence_priorities(errors[1:])
        with pytest.raises(ValueError, match=r"mask has shape \(4, 9\), expected \(6, 9\)"):
            replay.sequence_priorities(errors, mask[2:])


def test_reward_fn_must_return_one_number_per_row():
    case = GOALS[0]
    wrong = parl.Hindsight(lambda achieved, desired, info: achieved, k=1.0)
    replay = HostReplay(50, case.fields(), device="cuda", num_envs=4, hindsight=wrong)
    rows = Rows(case, 3)
    for _ in range(5):
        replay.add(**tensors({**rows.take(), "priorities": np.ones(4)}))
    with pytest.raises(ValueError, match=r"reward_fn returned shape \(6, 2\), expected \(6,\)"):
        replay.sample(6)
