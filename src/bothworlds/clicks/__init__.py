"""Click logs: read them, count them, fit and compare click models, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import Comparison, compare
    from .counts import Counts
    from .fitting.fit import fit
    from .generator import generate
    from .log import Log, read
    from .model.model import ClickModel, load_model
    from .model.score import Score, score
    from .offpolicy.evaluation import evaluate
    from .offpolicy.obp_fields import from_obp, to_obp
    from .offpolicy.result import Evaluation
    from .pages import Pages

__all__ = [
    "ClickModel",
    "Comparison",
    "Counts",
    "Evaluation",
    "Log",
    "Pages",
    "Score",
    "compare",
    "evaluate",
    "fit",
    "from_obp",
    "generate",
    "load_model",
    "read",
    "score",
    "to_obp",
]

# Modules are imported on first use, so that reading a log does not import what evaluation needs.
_MODULES = {
    "ClickModel": "model.model",
    "Comparison": "comparison",
    "Counts": "counts",
    "Evaluation": "offpolicy.result",
    "Log": "log",
    "Pages": "pages",
    "Score": "model.score",
    "compare": "comparison",
    "evaluate": "offpolicy.evaluation",
    "fit": "fitting.fit",
    "from_obp": "offpolicy.obp_fields",
    "generate": "generator",
    "load_model": "model.model",
    "read": "log",
    "score": "model.score",
    "to_obp": "offpolicy.obp_fields",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bothworlds.clicks' has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
