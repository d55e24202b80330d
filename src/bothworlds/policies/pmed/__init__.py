"""The policy PMED, and the geometry that only PMED uses."""

from .policy import Pmed

__all__ = ["Pmed"]
