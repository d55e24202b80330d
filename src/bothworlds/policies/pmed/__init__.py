"""PMED, and the geometry that only it uses."""

from .policy import Pmed

__all__ = ["Pmed"]
