"""Steps two vector environments that must return the same numbers."""

import numpy as np


def step_both(ours, theirs, action, step):
    """Steps both, asserts equal results and returns them; messages name ``step``, the number of the step."""
    one, two = ours.step(action), theirs.step(action)
    for mine, other in zip(one[:4], two[:4], strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=f"step {step}", strict=True)
    assert one[4] == two[4] == {}
    return one
