"""bothworlds ranks items and learns from clicks, whether users are steady, seasonal or hostile.

>>> import bothworlds
>>> ranker = bothworlds.Ranker(["news", "sport", "weather", "music"], slots=2, seed=1)
>>> shown = ranker.rank()
>>> ranker.feedback(shown.id, clicked=[shown.items[0]])

Sub-packages and names are imported on first use, so importing the package is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import (
        arena,
        clicks,
        core,
        experiments,
        geometry,
        policies,
        ranker,
        serve,
        statistics,
        testing,
        theory,
        worlds,
    )
    from .arena.play import compete, play
    from .arena.result import Result
    from .clicks import evaluate, fit, read
    from .core import Decision
    from .policies import policy
    from .ranker import Ranker
    from .serve.client import Client
    from .worlds import world

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Decision",
    "Ranker",
    "Result",
    "arena",
    "clicks",
    "compete",
    "core",
    "evaluate",
    "experiments",
    "fit",
    "geometry",
    "play",
    "policies",
    "policy",
    "ranker",
    "read",
    "serve",
    "statistics",
    "testing",
    "theory",
    "world",
    "worlds",
]

# The module that defines each name; the other names in __all__ are modules themselves.
_MODULE_OF = {
    "Client": "serve.client",
    "Decision": "core",
    "Ranker": "ranker",
    "Result": "arena",
    "compete": "arena",
    "evaluate": "clicks",
    "fit": "clicks",
    "play": "arena",
    "policy": "policies",
    "read": "clicks",
    "world": "worlds",
}
# Reachable like the others, but not part of __all__: a star import must not require an optional library.
_OPTIONAL = ("gym",)


def __getattr__(name: str) -> Any:
    """Import a public name on first use; raises AttributeError for any other name."""
    if name not in __all__ and name not in _OPTIONAL:
        raise AttributeError(f"module 'bothworlds' has no attribute {name!r}")
    module = import_module(f".{_MODULE_OF.get(name, name)}", __name__)
    value = getattr(module, name) if name in _MODULE_OF else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
