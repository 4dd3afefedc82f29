"""Numbers that are not finite are found and named."""

import math

import numpy as np
import pytest
import torch

from parl.errors import NonFiniteError
from parl.ops.finite import check_state

BAD = [math.nan, math.inf, -math.inf]


def state(**changed):
    weights = torch.ones(3, 4)
    found = {
        "weights": weights,
        "updates": 3,
        "rng": {"state": 2**100, "name": "PCG64"},
        "generator": torch.full((8,), 255, dtype=torch.uint8),
        "moments": {"mean": np.zeros(3), "count": 5.0},
        "parents": [[1, 2], [3]],
    }
    return found | changed


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            lambda bad: {"weights": torch.tensor([[1.0, 2.0], [bad, bad]])},
            "the learner: weights holds 2 of 4 numbers that are not finite, the first is {bad} at 2",
        ),
        (lambda bad: {"moments": {"mean": np.array([0.0, bad])}}, "moments.mean holds 1 of 2 .* at 1"),
        (lambda bad: {"moments": {"count": bad}}, "moments.count is {bad}"),
        (lambda bad: {"parts": [torch.zeros(2), torch.tensor(bad)]}, r"parts\[1\] holds 1 of 1"),
        (lambda bad: {"weights": torch.tensor([bad], dtype=torch.bfloat16)}, "weights holds 1 of 1"),
    ],
)
def test_one_number_that_is_not_finite_is_named(changed, message, bad):
    check_state(state(), "the learner")
    with pytest.raises(NonFiniteError, match=message.format(bad=bad)):
        check_state(state(**changed(bad)), "the learner")
