"""What several policies and the log tools share: confidence bounds, counts, samplers, fits from counts."""

from .kl import kl, kl_lower, kl_upper

__all__ = ["kl", "kl_lower", "kl_upper"]
