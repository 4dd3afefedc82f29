"""What ``sample`` returns: named arrays, all with the batch as first dimension."""

from __future__ import annotations

from typing import Any


class Batch(dict[str, Any]):
    """Named arrays, by attribute and by key: ``batch.obs`` is ``batch["obs"]``; nested where the fields are.

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
        def one(value: Any) -> str:
            return repr(value) if isinstance(value, Batch) else f"{tuple(value.shape)} {value.dtype}"

        return f"Batch({', '.join(f'{name}: {one(value)}' for name, value in self.items())})"
