"""bothworlds ranks items and learns from clicks, whether users are steady, seasonal or hostile.

>>> import bothworlds
>>> ranker = bothworlds.Ranker(["news", "sport", "weather", "music"], slots=2, seed=1)
>>> shown = ranker.rank()
>>> ranker.feedback(shown.id, clicked=[shown.items[0]])

Everything is loaded on first use, so importing the package is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .moved_modules import install as _install_moved_modules

if TYPE_CHECKING:
    from . import arena, clicks, core, geometry, policies, testing, theory, worlds
    from .arena import Result, play
    from .arena.compete import compete
    from .core import Decision
    from .policies import policy
    from .ranker import Ranker
    from .worlds import world

__version__ = "0.1.0"

__all__ = [
    "Decision",
    "Ranker",
    "Result",
    "arena",
    "clicks",
    "compete",
    "core",
    "geometry",
    "play",
    "policies",
    "policy",
    "testing",
    "theory",
    "world",
    "worlds",
]

_HOME = {
    "Decision": "core",
    "Ranker": "ranker",
    "Result": "arena",
    "compete": "arena",
    "play": "arena",
    "policy": "policies",
    "world": "worlds",
}


_install_moved_modules()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bothworlds' has no attribute {name!r}")
    room = import_module(f".{_HOME.get(name, name)}", __name__)
    value = getattr(room, name) if name in _HOME else room
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
