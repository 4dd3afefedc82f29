"""The chosen numbers of actors and learners against an exhaustive search, and rates of a real run."""

import itertools

import numpy as np
import pytest

from parl.runtime.autotune import Rates, choose, expected, measure


def random_rates(rng):
    numbers = range(1, int(rng.integers(2, 7)))
    step, update = rng.uniform(1e-5, 1e-2, 2)
    return Rates(
        {n: step * (0.3 + 0.7 / n) for n in numbers},
        {m: update * (0.2 + 0.8 / m) for m in numbers},
        {m: 0.0 if m == 1 else rng.uniform(1e-5, 1e-3) for m in numbers},
    )


@pytest.mark.parametrize("seed", range(50))
def test_no_other_numbers_are_faster(seed):
    rng = np.random.default_rng(seed)
    rates, cores, sampled = random_rates(rng), int(rng.integers(1, 9)), float(rng.uniform(1, 200))
    split = choose(rates, 32, sampled, cores)
    grid = {
        (n, m): min(
            32 / rates.vector_step_s[n],
            sampled / (rates.update_s[m] + rates.average_s[m]),
            cores
            / (n * rates.vector_step_s[n] / 32 + m * (rates.update_s[m] + rates.average_s[m]) / sampled),
        )
        for n, m in itertools.product(rates.vector_step_s, rates.update_s)
    }
    assert grid[split.actors, split.learners] >= 0.98 * max(grid.values())
    fewer = [pair for pair, rate in grid.items() if sum(pair) < split.actors + split.learners]
    assert all(grid[pair] < 0.98 * max(grid.values()) for pair in fewer)


def test_slow_environments_get_actors_and_slow_updates_learners():
    cheap = {1: 1e-4, 2: 0.5e-4, 3: 0.34e-4, 4: 0.25e-4}
    costly = {1: 4e-2, 2: 2e-2, 3: 1.34e-2, 4: 1e-2}
    no_cost = dict.fromkeys(cheap, 0.0)
    assert choose(Rates(costly, cheap, no_cost), 32, 32, 5).actors == 4
    assert choose(Rates(cheap, costly, no_cost), 32, 32, 5).learners == 4
    split = choose(Rates(cheap, cheap, {1: 0.0, 2: 1e-3, 3: 1e-3, 4: 1e-3}), 32, 32, 8)
    assert split.learners == 1
    assert "averaging" in split.reason


def test_a_number_that_the_caller_fixed_is_kept():
    rates = Rates({2: 1e-4}, {1: 1e-4, 2: 0.5e-4}, {1: 0.0, 2: 0.0})
    assert choose(rates, 32, 32.0, 4, actors=2).actors == 2
    assert expected(rates, 2, 1, 32, 32.0, 1) <= expected(rates, 2, 1, 32, 32.0, 4)


def test_measured_rates_of_a_real_run(make_setup):
    rates = measure(make_setup(num_envs=8), [1, 2], [1, 2], seconds=0.02)
    assert set(rates.vector_step_s) == set(rates.update_s) == {1, 2}
    assert rates.average_s[1] == 0.0
    for seconds in (*rates.vector_step_s.values(), *rates.update_s.values(), rates.average_s[2]):
        assert 1e-6 < seconds < 1.0
