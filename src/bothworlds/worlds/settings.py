"""Validation of numeric settings: each function returns the number, or raises ValueError that names the setting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def whole(value: Any, name: str, least: int) -> int:
    """Return a whole number of at least ``least`` as an int; a float without a fraction is accepted.

    >>> whole(1e6, "rounds", 1)
    1000000
    >>> whole(0, "rounds", 1)
    Traceback (most recent call last):
    ...
    ValueError: rounds must be a whole number of at least 1; got 0
    """
    good = _is_number(value) and math.isfinite(value) and value == int(value)
    if not good or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def number(value: Any, name: str, low: float, high: float) -> float:
    """Return a number from ``low`` to ``high`` as a float.

    >>> number(2, "share", 0, 1)
    Traceback (most recent call last):
    ...
    ValueError: share must be a number from 0 to 1; got 2
    """
    if not _is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}")
    return float(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
