"""The ranking service: an engine over a store, its HTTP API and dashboard, and clients.

``Client`` and ``AsyncClient`` need the standard library only; ``Engine`` needs the extra ``service``. All are imported
on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ..extras import install_command

if TYPE_CHECKING:
    from .client.client import AsyncClient, Client
    from .engine.engine import Engine

__all__ = ["AsyncClient", "Client", "Engine"]

_MODULES = {"AsyncClient": ".client.client", "Client": ".client.client", "Engine": ".engine.engine"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        try:
            return getattr(import_module(_MODULES[name], __name__), name)
        except ModuleNotFoundError as error:
            raise ImportError(f"{name} needs {error.name}: {install_command('service')}") from error
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
