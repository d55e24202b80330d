"""Checks of arguments: each function returns the value, or raises ValueError that names the argument."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def whole(value: Any, name: str, least: int) -> int:
    """Return a whole number of at least ``least`` as an int; a float without a fraction is accepted.

    >>> whole(1e6, "rounds", 1)
    1000000
    >>> whole(0, "rounds", 1)
    Traceback (most recent call last):
    ...
    ValueError: rounds must be a whole number of at least 1; got 0
    """
    good = is_number(value) and math.isfinite(value) and value == int(value)
    if not good or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}")
    return int(value)


def number(value: Any, name: str, low: float, high: float) -> float:
    """Return a number from ``low`` to ``high`` as a float."""
    if not is_number(value) or not low <= value <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}; got {value!r}")
    return float(value)


def choice(value: Any, name: str, known: Iterable[str]) -> str:
    """Return one of the known words."""
    words = list(known)
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} must be one of {', '.join(words)}; got {value!r}")
    return value


def item_indices(value: Any, n_items: int) -> NDArray[np.int64]:
    """Return lists of items as an array of indices."""
    indices = np.ascontiguousarray(value, dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= n_items):
        raise ValueError(f"a list must hold items from 0 to {n_items - 1}; got {indices.tolist()}")
    return indices


def probabilities(value: ArrayLike, name: str, ndim: int = 1) -> NDArray[np.float64]:
    """Return a read-only array of probabilities: a list of them, or a matrix."""
    try:
        values = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be numbers; got {value!r}") from error
    if values.ndim != ndim or not values.size:
        raise ValueError(f"{name} must be a {'list' if ndim == 1 else 'matrix'} of probabilities; got {values.shape}")
    bad = values[~((values >= 0.0) & (values <= 1.0))]
    if bad.size:
        raise ValueError(f"{name} must be probabilities from 0 to 1; got {bad.flat[0]}")
    values.setflags(write=False)
    return values


def is_number(value: Any) -> bool:
    """Whether a value is a number, and not a truth value."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
