"""Registers parl's environments with Gymnasium, whichever of the two is imported first, and loads neither.

Gymnasium reads ``parl:parl/Breakout-v0`` as "import parl, then look the id up", and importing a module that
is already loaded runs nothing. So where Gymnasium is not there yet, a finder waits for its registry.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_REGISTRY = "gymnasium.envs.registration"


def register_with_gymnasium() -> None:
    """Registers now if Gymnasium's registry is loaded, else as soon as it is."""
    if _REGISTRY in sys.modules:
        _register()
    elif not any(isinstance(finder, _Waiting) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Waiting())


def _register() -> None:
    from parl.envs.atari.registration import register

    register()


class _Waiting(MetaPathFinder):
    """Finds Gymnasium's registry as the path does, once, and has it followed by our registration."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The registry's spec with a loader of ours; None for all other modules."""
        if fullname != _REGISTRY:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Following(spec.loader)
        return spec


class _Following(Loader):
    """Loads as ``loader`` does, then registers."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """As ``loader`` does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """As ``loader`` does; then registers."""
        self._loader.exec_module(module)
        spec = module.__spec__
        if spec is not None:
            spec.loader = module.__loader__ = self._loader
        _register()
