"""Seeds for training and evaluation have separate ranges and are the same in every version."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parl.runtime.seeds import actor_seeds, evaluation_seed, training_seed

DRAWS = st.integers(0, 2**32 - 1)
EPISODES = 2**22


@given(DRAWS)
def test_training_seeds_are_in_their_range(draw):
    assert 2**24 <= training_seed(draw)
    assert training_seed(draw) + 2**20 <= 2**31


@pytest.mark.parametrize(
    ("half", "seed"),
    [
        (0, 2**24),
        (2**24 - 1, 2**25 - 1),
        (2**24, 2**24),
        (2**24 + 1, 2**24 + 1),
        (2**31 - 2**20 - 1, 2**31 - 2**20 - 1),
        (2**31 - 2**20, 2**31 - 2**21),
        (2**31 - 1, 2**31 - 2**20 - 1),
    ],
)
def test_a_draw_is_halved_and_moved_into_the_range(half, seed):
    assert training_seed(2 * half) == training_seed(2 * half + 1) == seed


@given(DRAWS, st.integers(0, 2**40), st.integers(1, 2**20))
def test_evaluation_seeds_are_in_their_range(seed, played, episodes):
    first = evaluation_seed(seed, played, episodes)
    assert 2**23 <= first and first + episodes <= 2**24


@given(DRAWS, st.integers(1, 2**20))
def test_seeds_of_evaluations_continue_those_of_the_last_one(seed, episodes):
    start = evaluation_seed(seed, 0, episodes)
    assert start < 2**23 + EPISODES, "in the lower half"
    assert evaluation_seed(seed, 17, episodes) == start + 17
    last = EPISODES - episodes - 1
    assert evaluation_seed(seed, last, episodes) == start + last
    assert evaluation_seed(seed, last + 1, episodes) == start


def test_seeds_do_not_change_between_versions():
    """With other seeds, a resumed run would play other episodes."""
    assert evaluation_seed(0, 0, 10) == 2**23 + 615_690
    assert evaluation_seed(3, 5, 10) == 2**23 + 1_122_027
    assert [actor_seeds(0, index) for index in (0, 1)] == [
        (2_968_811_710, 1_838_574_579),
        (3_964_924_996, 679_461_430),
    ]
    words = np.random.SeedSequence([5, 2]).generate_state(2)
    assert actor_seeds(5, 2) == (int(words[0]), training_seed(int(words[1])))
