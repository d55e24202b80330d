"""Click logs: read them, count them, fit the position-based model, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counting import counts
    from .generating import generate
    from .log import Log, read
    from .tally import Counts

__all__ = ["Counts", "Log", "counts", "generate", "read"]

_HOME = {"Counts": "tally", "Log": "log", "counts": "counting", "generate": "generating", "read": "log"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothworlds.clicks' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
