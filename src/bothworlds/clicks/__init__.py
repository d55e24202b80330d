"""Click logs: read them, count them, fit and compare click models, evaluate policies on them."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .comparison.compare_models import compare_models
    from .comparison.result import Comparison
    from .counts import Counts
    from .fitting.fit import fit
    from .generator import generate
    from .log import Log, read
    from .model.click_model import ClickModel
    from .model.file import load_model
    from .model.model import Model, Models
    from .model.scores import Score, score
    from .offpolicy.evaluation import compare, evaluate
    from .offpolicy.obp_fields import from_obp, to_obp
    from .offpolicy.replay import replay
    from .offpolicy.result import Evaluation
    from .pages import Pages

__all__ = [
    "ClickModel",
    "Comparison",
    "Counts",
    "Evaluation",
    "Log",
    "Model",
    "Models",
    "Pages",
    "Score",
    "compare",
    "compare_models",
    "evaluate",
    "fit",
    "from_obp",
    "generate",
    "load_model",
    "read",
    "replay",
    "score",
    "to_obp",
]

# Modules are imported on first use, so that reading a log does not import what evaluation needs.
_MODULES = {
    "ClickModel": "model.click_model",
    "Comparison": "comparison.result",
    "Counts": "counts",
    "Evaluation": "offpolicy.result",
    "Log": "log",
    "Model": "model.model",
    "Models": "model.model",
    "Pages": "pages",
    "Score": "model.scores",
    "compare": "offpolicy.evaluation",
    "compare_models": "comparison.compare_models",
    "evaluate": "offpolicy.evaluation",
    "fit": "fitting.fit",
    "from_obp": "offpolicy.obp_fields",
    "generate": "generator",
    "load_model": "model.file",
    "read": "log",
    "replay": "offpolicy.replay",
    "score": "model.scores",
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
