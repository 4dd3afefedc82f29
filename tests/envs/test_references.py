"""Tests for parl.references, whose results depend on the version of Python."""

import numpy as np
import torch

from parl.references import is_unshared


def test_an_object_is_unshared_until_something_else_refers_to_it():
    for kept, key in (([np.zeros(3)], 0), ({"obs": np.zeros(3)}, "obs")):
        assert is_unshared(kept, key)
        for refer in (lambda array: array, lambda array: array[1:], torch.from_numpy, lambda array: [array]):
            other = refer(kept[key])
            assert not is_unshared(kept, key), other
            del other
            assert is_unshared(kept, key)


def test_each_object_of_a_container_counts_alone():
    kept = {"obs": np.zeros(3), "reward": np.zeros(1)}
    held = kept["obs"]
    assert [is_unshared(kept, name) for name in kept] == [False, True]
    assert held.sum() == 0
