"""A mutation that cosmic-ray lacks: a call loses one of its keyword arguments, so a setting is ignored."""

from __future__ import annotations

from typing import Any

from cosmic_ray.operators.operator import Example, Operator

# `strict` of `zip` checks what always holds. `device` makes a difference only on a CUDA device.
LEFT_OUT = ("strict", "device")


class DropKeyword(Operator):
    """Removes ``name=value`` from a call."""

    def mutation_positions(self, node: Any) -> Any:
        """Yields the positions of keyword arguments in calls."""
        in_call = node.type == "argument" and node.parent.type in ("arglist", "trailer")
        if not in_call or node.children[1] != "=":
            return
        if node.children[0].value not in LEFT_OUT:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """Returns the call without the argument."""
        # An empty starred dict replaces the argument, so that the commas stay valid.
        prefix = node.get_first_leaf().prefix
        first = node.children[0]
        first.value = f"{prefix}**{{}}".strip()
        first.prefix = prefix
        node.children = [first]
        return node

    @classmethod
    def examples(cls) -> Any:
        """Returns an example, as cosmic-ray requires."""
        return (Example("f(x, rate=1)", "f(x, **{})"),)
