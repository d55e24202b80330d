"""Click logs: read them, count them, fit the position-based model, evaluate policies on them."""

from .tally import Counts

__all__ = ["Counts"]
