"""parl's replay with the interfaces of other libraries, one module per library.

``parl.adapters.sb3`` (Stable-Baselines3), ``parl.adapters.torchrl``, ``parl.adapters.tianshou`` and
``parl.adapters.cpprb``. A module and its library are imported on first use. The libraries are not
dependencies of parl, and ``parl.adapters.cpprb`` does not need ``cpprb``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from parl.lazy import importer

if TYPE_CHECKING:
    from parl.adapters import cpprb as cpprb
    from parl.adapters import sb3 as sb3
    from parl.adapters import tianshou as tianshou
    from parl.adapters import torchrl as torchrl

__all__ = ["cpprb", "sb3", "tianshou", "torchrl"]

if not TYPE_CHECKING:  # Type checkers report names that do not exist.
    __getattr__ = importer("parl.adapters", {name: f"parl.adapters.{name}" for name in __all__})


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
