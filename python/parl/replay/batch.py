"""The batch that ``sample`` returns: named arrays."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any


class PreparedBatch:
    """Arguments of the native ``sample`` for a batch of ``empty_batch``, so that they are checked only once.

    Attributes:
        arguments: the arrays that the native ``sample`` writes.
        outputs: the list of outputs of the replay that made the batch, compared by identity.
        size: batch size B.
        as_torch: whether the entries are tensors that share the memory of the arrays.
        entries: the entries of the batch when it was made.
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

    def sample(self, beta: float, mode: str, rank: int, learners: int) -> None:
        """Samples into the batch, as the replay's ``sample`` with the batch as ``out``.

        None of the entries of the batch may have been replaced; this is not checked. The arguments are those
        of :meth:`parl.PrioritizedReplay.sample`.
        """
        self._sample(*self.arguments, beta, mode, rank, learners, 0.0, 0.0, self.size)

    def fits(self, batch: Batch, outputs: object, size: int, as_torch: bool) -> bool:
        """Whether the arguments are valid for ``batch``: same replay, size and kind, no entry replaced."""
        is_same = self.outputs is outputs and self.size == size and self.as_torch == as_torch
        return is_same and len(batch) == len(self.entries) and all(map(is_, batch.values(), self.entries))


class Batch(dict[str, Any]):
    """A sampled batch: a dictionary of arrays, also available as attributes.

    ``batch.obs`` is ``batch["obs"]``. Attributes cannot be set, and entries with the name of a method of
    ``dict``, such as ``values``, are no attributes. Nested fields are nested batches. Besides the fields of
    the replay, a batch has ``indices`` (slots), ``weights`` (importance weights) and ``tickets`` (for
    ``update_priorities``); if rows are steps of episodes also ``discount`` and ``next_obs``.
    """

    __slots__ = ("prepared",)

    prepared: PreparedBatch

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (dict(self),)

    def __getattr__(self, name: str) -> Any:
        """The array or nested batch ``name``."""
        try:
            return self[name]
        except KeyError:
            message = f"the batch has no entry {name!r}; its entries are {', '.join(self)}"
            raise AttributeError(message) from None

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "prepared":
            raise AttributeError(f"an entry of a batch is set as batch[{name!r}] = ..., not as an attribute")
        super().__setattr__(name, value)

    def __repr__(self) -> str:
        def one(value: Any) -> str:
            return repr(value) if isinstance(value, Batch) else f"{tuple(value.shape)} {value.dtype}"

        return f"Batch({', '.join(f'{name}: {one(value)}' for name, value in self.items())})"
