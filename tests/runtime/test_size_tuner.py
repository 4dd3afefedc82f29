"""The tuner keeps a change that raises the rate by more than noise, and tries every size in its bounds."""

from parl.runtime.on_policy.size_tuner import SizeTuner


def test_a_change_stays_if_the_rate_rises():
    tuner = SizeTuner({"actors": 1}, {"actors": 2}, seed=0)
    assert tuner.sizes == {"actors": 1}
    assert tuner.record_rate(100.0) and tuner.sizes == {"actors": 2}
    assert tuner.record_rate(103.0) and tuner.sizes == {"actors": 1}, "3 % more is noise"
    assert tuner.record_rate(100.0) and tuner.sizes == {"actors": 2}
    assert not tuner.record_rate(103.1) and tuner.sizes == {"actors": 2}
    # The next change is compared with the newest rate of the sizes that are kept.
    assert tuner.record_rate(200.0) and tuner.sizes == {"actors": 1}
    assert tuner.record_rate(150.0) and tuner.sizes == {"actors": 2}


def test_with_one_possible_size_nothing_changes():
    tuner = SizeTuner({"actors": 1}, {"actors": 1}, seed=0)
    assert not any(tuner.record_rate(rate) for rate in (1.0, 2.0, 4.0, 8.0))
    assert tuner.sizes == {"actors": 1}


def test_every_neighboring_size_is_tried():
    tuner, tried = SizeTuner({"a": 2, "b": 1}, {"a": 3, "b": 3}, seed=3), set()
    for _ in range(60):
        tuner.record_rate(1.0)
        if tuner.sizes != {"a": 2, "b": 1}:
            tried.add(tuple(tuner.sizes.values()))
        tuner.record_rate(1.0)
        assert tuner.sizes == {"a": 2, "b": 1}
    assert tried == {(1, 1), (3, 1), (2, 2)}


def test_the_dictionary_of_the_caller_is_not_changed():
    sizes = {"actors": 1}
    tuner = SizeTuner(sizes, {"actors": 3}, seed=0)
    tuner.record_rate(1.0)
    assert sizes == {"actors": 1} != tuner.sizes


def test_the_tuner_finds_the_best_sizes_and_keeps_them():
    """The rate is highest at 4 actors and 1 rollout; the rate of the sizes that are kept never falls."""
    tuner = SizeTuner({"actors": 1, "rollouts": 3}, {"actors": 6, "rollouts": 4}, seed=0)

    def rate(sizes):
        return 100.0 - 10 * abs(sizes["actors"] - 4) - 5 * (sizes["rollouts"] - 1)

    kept = []
    for _ in range(120):
        kept.append(rate(tuner._best_sizes))
        tuner.record_rate(rate(tuner.sizes))
        assert 1 <= tuner.sizes["actors"] <= 6 and 1 <= tuner.sizes["rollouts"] <= 4
    assert kept == sorted(kept) and tuner._best_sizes == {"actors": 4, "rollouts": 1}
