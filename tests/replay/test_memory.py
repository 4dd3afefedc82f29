"""Bytes per row."""

from __future__ import annotations

import pytest
from model import fields

import parl


@pytest.mark.parametrize(
    ("spec", "row_bytes"),
    [
        (fields(), 4 + 8 + 4 + 1 + 1),
        ({**fields(), "obs": ((8,), "float32")}, 32 + 8 + 4 + 1 + 1),
        ({**fields(), "obs": ((84, 84), "uint8")}, 84 * 84 + 8 + 4 + 1 + 1),
    ],
)
def test_a_row_costs_its_fields_and_sixteen_bytes(spec, row_bytes):
    buffer = parl.PrioritizedReplay(100_000, spec)
    assert buffer.nbytes / 100_000 <= 1.05 * (row_bytes + 16)
