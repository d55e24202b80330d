"""Click logs: read them, count them, fit the position-based model, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .tally import Counts

if TYPE_CHECKING:
    from .evaluation import compare, evaluate
    from .offpolicy.interchange import MemoryLog, from_obp, to_obp
    from .offpolicy.replaying import replay
    from .offpolicy.result import Evaluation

__all__ = ["Counts", "Evaluation", "MemoryLog", "compare", "evaluate", "from_obp", "replay", "to_obp"]

_HOME = {
    "Evaluation": "offpolicy.result",
    "MemoryLog": "offpolicy.interchange",
    "compare": "evaluation",
    "evaluate": "evaluation",
    "from_obp": "offpolicy.interchange",
    "replay": "offpolicy.replaying",
    "to_obp": "offpolicy.interchange",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothworlds.clicks' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value
