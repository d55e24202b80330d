"""Click logs: read them, count them, fit the position-based model, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .counts import Counts
    from .fitting.fit import fit
    from .generator import generate
    from .log import Log, read
    from .model.file import load_model
    from .model.model import Model, Models
    from .offpolicy.evaluation import compare, evaluate
    from .offpolicy.obp_fields import from_obp, to_obp
    from .offpolicy.replay import replay
    from .offpolicy.result import Evaluation
    from .reading.count import counts

__all__ = [
    "Counts",
    "Evaluation",
    "Log",
    "Model",
    "Models",
    "compare",
    "counts",
    "evaluate",
    "fit",
    "from_obp",
    "generate",
    "load_model",
    "read",
    "replay",
    "to_obp",
]

_HOME = {
    "Counts": "tally",
    "Evaluation": "offpolicy.result",
    "Log": "log",
    "Model": "model",
    "Models": "model",
    "compare": "evaluation",
    "counts": "counting",
    "evaluate": "evaluation",
    "fit": "fitting",
    "from_obp": "offpolicy.interchange",
    "generate": "generating",
    "load_model": "storage",
    "read": "log",
    "replay": "offpolicy.replaying",
    "to_obp": "offpolicy.interchange",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bothworlds.clicks' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
