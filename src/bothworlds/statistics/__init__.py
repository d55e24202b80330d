"""Statistics that policies and the log tools share: confidence bounds, and the rank-one fit to counts."""

from .kl import kl, kl_lower, kl_upper

__all__ = ["kl", "kl_lower", "kl_upper"]
