"""The engine: ranking, feedback and learning over a store, without HTTP."""

from .engine import Engine

__all__ = ["Engine"]
