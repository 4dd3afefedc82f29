"""What ``sample`` returns: named arrays, all with the batch as first dimension."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any


class Filled:
    """What a batch of ``empty_batch`` is filled through, found out once.

    Attributes:
        arguments: of the native ``sample``.
        outputs: of the replay that the batch is for, by identity.
        size: B.
        as_torch: its entries are tensors, on the memory of these arrays.
        entries: what it held when it was made.
    """

    __slots__ = ("_sample", "arguments", "as_torch", "entries", "outputs", "size")

    def __init__(
        self,
        sample: Callable[..., None],
        arguments: tuple[Any, ...],
        outputs: object,
        size: int,
        as_torch: bool,
        entries: tuple[Any, ...],
    ) -> None:
        self._sample = sample
        self.arguments, self.outputs, self.size = arguments, outputs, size
        self.as_torch, self.entries = as_torch, entries

    def draw(self, beta: float, mode: str, rank: int, learners: int) -> None:
        """As the replay's ``sample`` with this batch as ``out``, for who replaced none of its entries."""
        self._sample(*self.arguments, beta, mode, rank, learners, 0.0, 0.0, self.size)

    def serves(self, batch: Batch, outputs: object, size: int, as_torch: bool) -> bool:
        """Whether ``batch`` can be filled as it is: of this replay and kind, and with nothing replaced."""
        alike = self.outputs is outputs and self.size == size and self.as_torch == as_torch
        return alike and len(batch) == len(self.entries) and all(map(is_, batch.values(), self.entries))


class Batch(dict[str, Any]):
    """Named arrays, by attribute and by key: ``batch.obs`` is ``batch["obs"]``; nested where the fields are.

    Besides the fields of the replay there are ``indices`` (slots), ``weights`` (importance weights),
    ``tickets`` (for ``update_priorities``), and for steps of episodes ``discount`` and ``next_obs``.
    """

    __slots__ = ("filled",)

    filled: Filled

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (dict(self),)

    def __getattr__(self, name: str) -> Any:
        """The array ``name``."""
        try:
            return self[name]
        except KeyError:
            message = f"this batch has no {name!r}; it has {', '.join(self)}"
            raise AttributeError(message) from None

    def __repr__(self) -> str:
        def one(value: Any) -> str:
            return repr(value) if isinstance(value, Batch) else f"{tuple(value.shape)} {value.dtype}"

        return f"Batch({', '.join(f'{name}: {one(value)}' for name, value in self.items())})"
