"""Registers parl's environments with Gymnasium in either order of import, without importing Gymnasium.

Gymnasium resolves ``parl:parl/Breakout-v0`` by importing parl and looking up the id. Importing a module that
is already loaded runs no code. If Gymnasium is not loaded yet, an import hook therefore registers the
environments as soon as Gymnasium's registry module is imported.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_REGISTRY = "gymnasium.envs.registration"


def register_with_gymnasium() -> None:
    """Registers now if Gymnasium's registry module is loaded, else when it is imported."""
    if _REGISTRY in sys.modules:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _register() -> None:
    from parl.envs.atari.registration import register

    register()


class _Waiting(MetaPathFinder):
    """Import hook that finds Gymnasium's registry module once and lets its loader register environments."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns the registry module's spec with a :class:`_Following` loader; None for other modules."""
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Following(spec.loader)
        return spec


class _Following(Loader):
    """Loads a module with ``loader``, then registers parl's environments."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Calls the method of ``loader``."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Calls the method of ``loader``, then registers the environments."""
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        _register()
