"""Import paths of earlier releases: importing a module that has moved returns the module at its new path.

The import emits a DeprecationWarning that names the new path. To move a documented module, add a line to ``MOVED``.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType

__all__ = ["MOVED", "install"]

MOVED = {
    "bothworlds.policies.settings": "bothworlds.policies.parts.settings",
    "bothworlds.statistics.blocks": "bothworlds.policies.parts.blocks",
    "bothworlds.statistics.chance": "bothworlds.policies.parts.random_stream",
    "bothworlds.statistics.counts": "bothworlds.policies.parts.counts",
    "bothworlds.statistics.duels": "bothworlds.policies.parts.duels",
    "bothworlds.statistics.epochs": "bothworlds.policies.parts.epochs",
    "bothworlds.statistics.posterior": "bothworlds.policies.parts.posterior",
    "bothworlds.statistics.samplers": "bothworlds.policies.parts.samplers",
}


class _MovedModules(MetaPathFinder, Loader):
    """Finds the old paths, and loads the module at the new path in their place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        old = module.__name__
        warnings.warn(f"{old} has moved to {MOVED[old]}", DeprecationWarning, stacklevel=2)
        # The import system returns what it finds in sys.modules after this call.
        sys.modules[old] = import_module(MOVED[old])


def install() -> None:
    """Make the old paths importable; does nothing if they are already."""
    if not any(isinstance(finder, _MovedModules) for finder in sys.meta_path):
        sys.meta_path.append(_MovedModules())
