"""Steps of two vector environments that shall give the same numbers."""

import numpy as np


def step_both(ours, theirs, action, step):
    """What ``ours`` gives for step number ``step``, after a look whether it is what ``theirs`` gives."""
    one, two = ours.step(action), theirs.step(action)
    for mine, other in zip(one[:4], two[:4], strict=True):
        np.testing.assert_array_equal(mine, other, err_msg=f"step {step}", strict=True)
    assert one[4] == two[4] == {}
    return one
