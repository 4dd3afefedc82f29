"""What ``sample`` returns: named arrays, all with the batch as first dimension."""

from __future__ import annotations

from typing import Any


class Batch(dict[str, Any]):
    """Named arrays, by attribute and by key: ``batch.obs`` is ``batch["obs"]``.

    Besides the fields of the replay there are ``indices`` (slots), ``weights`` (importance weights),
    ``tickets`` (for ``update_priorities``), and for steps of episodes ``discount`` and ``next_obs``.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        """The array ``name``."""
        try:
            return self[name]
        except KeyError:
            message = f"this batch has no {name!r}; it has {', '.join(self)}"
            raise AttributeError(message) from None

    def __repr__(self) -> str:
        arrays = ", ".join(f"{name}: {tuple(array.shape)} {array.dtype}" for name, array in self.items())
        return f"Batch({arrays})"
