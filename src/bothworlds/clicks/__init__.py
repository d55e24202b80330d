"""Click logs: read them, count them, fit and compare click models, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison import Comparison as Comparison
    from .comparison import compare as compare
    from .counts import Counts as Counts
    from .fitting.fit import fit as fit
    from .generator import generate as generate
    from .log import Log as Log
    from .log import read as read
    from .model.model import ClickModel as ClickModel
    from .model.model import load_model as load_model
    from .model.score import Score as Score
    from .model.score import score as score
    from .offpolicy.evaluation import evaluate as evaluate
    from .offpolicy.obp_fields import from_obp as from_obp
    from .offpolicy.obp_fields import to_obp as to_obp
    from .offpolicy.result import Evaluation as Evaluation
    from .pages import Pages as Pages

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
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'bothworlds.clicks' has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
