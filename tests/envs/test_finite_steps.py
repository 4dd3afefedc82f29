"""Rewards and observations that are not finite: the message names environment, part, index and step."""

import math

import numpy as np
import pytest

from parl._native import all_finite
from parl.envs import FiniteCheck
from parl.errors import NonFiniteError
from parl.types import EnvSpec

BAD = [math.nan, math.inf, -math.inf]
PARTS = (("image", (2, 2), "uint8"), ("speed", (2,), "float32"), ("wind", (), "float64"))


def check(first_env=10, dtype="float32", parts=()):
    described = EnvSpec((3,), dtype, (), "int64", 2, "next_step", observation_parts=parts)
    return FiniteCheck(described, first_env)


def one_bad(shape, dtype, where, bad):
    rows = np.ones(shape, dtype)
    rows[where] = bad
    return rows


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("shape", [(5,), (5, 3), (2, 5000), (3, 200, 150)])
def test_one_number_that_is_not_finite_is_found(shape, dtype, bad):
    assert all_finite(np.ones(shape, dtype))
    for where in (np.unravel_index(i, shape) for i in (0, math.prod(shape) // 2, -1 % math.prod(shape))):
        rows = one_bad(shape, dtype, where, bad)
        assert not all_finite(rows)
        assert not all_finite(rows.T)
        assert not all_finite(rows.astype(rows.dtype.newbyteorder()))


def test_large_numbers_integers_and_empty_arrays_are_finite():
    assert all_finite(np.full(1000, 3e38, np.float32))
    assert all_finite(np.full(8, 255, np.uint8))
    assert all_finite(np.zeros((0, 3), np.float32))


@pytest.mark.parametrize("bad", BAD)
def test_the_message_names_environment_index_and_step(bad):
    with pytest.raises(NonFiniteError, match=f"^environment 12 returned reward {bad} at step 7$"):
        check().rewards(one_bad(4, "float32", 2, bad), 7)
    rows = one_bad((4, 3), "float32", (3, 1), bad)
    check(dtype="uint8").observations(rows, 7)  # integers are finite: the rows are not read
    with pytest.raises(NonFiniteError, match=rf"^environment 13 returned observation {bad} \(index \(1,\)\)"):
        check().observations(rows, 7)
    with pytest.raises(
        NonFiniteError, match=r"^environment 12 returned final observation .*\(index \(1,\)\)"
    ):
        check().final(2, rows[3], 7)


@pytest.mark.parametrize(("part", "index"), [("speed", r" \(index \(1,\)\)"), ("wind", "")])
def test_the_part_of_a_dictionary_is_named(part, index):
    rows = {name: np.ones((4, *shape), dtype) for name, shape, dtype in PARTS}
    check(parts=PARTS).observations(rows, 7)
    rows[part][3, ...] = [1.0, math.nan] if part == "speed" else math.nan
    message = rf"^environment 13 returned observation '{part}' nan{index} at its first reset$"
    with pytest.raises(NonFiniteError, match=message):
        check(parts=PARTS).observations(rows, "at its first reset")
    last = {name: column[3] for name, column in rows.items()}
    with pytest.raises(NonFiniteError, match=f"^environment 11 returned final observation '{part}' nan"):
        check(parts=PARTS).final(1, last, 7)
