"""A mutation that cosmic-ray lacks: a call loses one of its keyword arguments, so a setting is ignored."""

from __future__ import annotations

from typing import Any

from cosmic_ray.operators.operator import Example, Operator

# `zip(..., strict=True)` checks what is so by construction. Where a tensor lies shows on a CUDA device alone.
LEFT_OUT = ("strict", "device")


class DropKeyword(Operator):
    """Removes ``name=value`` from a call."""

    def mutation_positions(self, node: Any) -> Any:
        """Where a keyword argument stands among the arguments of a call."""
        in_call = node.type == "argument" and node.parent.type in ("arglist", "trailer")
        if not in_call or node.children[1] != "=":
            return
        if node.children[0].value not in LEFT_OUT:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        """The call without it."""
        # An empty starred dict stands where the argument stood, so that commas need no care.
        prefix = node.get_first_leaf().prefix
        first = node.children[0]
        first.value = f"{prefix}**{{}}".strip()
        first.prefix = prefix
        node.children = [first]
        return node

    @classmethod
    def examples(cls) -> Any:
        """As cosmic-ray describes operators."""
        return (Example("f(x, rate=1)", "f(x, **{})"),)
