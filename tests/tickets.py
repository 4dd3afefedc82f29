"""Tickets in tests that compare replays call by call."""

from __future__ import annotations

from typing import Any


def ticket_of(replay: Any, slot: int) -> int:
    """The ticket of the first row that was written to a slot."""
    return replay._native.ticket_tag ^ (slot | 1 << 32)


def same_tickets(first: Any, *others: Any) -> None:
    """Gives all replays, on any device, the tag of the first, so that equal rows have equal tickets."""
    tag = first._native.ticket_tag
    for other in others:
        other._native.ticket_tag = tag
        if hasattr(other, "_plan"):
            other._plan.tag = tag >> 32
