"""Validation of arguments: finite matrices (items, positions), and points of the polytope."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_matrix(value: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return a finite contiguous array (n_items, n_positions); raises ValueError that names ``name``.

    Requires 1 <= n_positions <= n_items.
    """
    try:
        given = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a matrix of numbers; got {value!r}") from error
    if given.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, items by positions; got shape {given.shape}")
    matrix = np.ascontiguousarray(given)
    n, m = matrix.shape
    if not 1 <= m <= n:
        raise ValueError(f"{name} must have at least one position and as many items; got shape {matrix.shape}")
    finite = np.isfinite(matrix)
    if not finite.all():
        i, j = np.argwhere(~finite)[0]
        raise ValueError(f"{name} must be finite; got {matrix[i, j]} at item {i}, position {j}")
    return matrix


def as_marginals(value: ArrayLike, name: str = "marginals", tol: float = 1e-9) -> NDArray[np.float64]:
    """Return a point of the polytope; raises ValueError if a constraint is violated by more than ``tol``.

    >>> as_marginals([[0.5, 0.5], [0.5, 0.6]])
    Traceback (most recent call last):
    ...
    ValueError: marginals must sum to 1 over items; position 1 sums to 1.1
    """
    x = as_matrix(value, name)
    if x.min() < -tol:
        item, position = np.unravel_index(x.argmin(), x.shape)
        raise ValueError(f"{name} must not be negative; got {x.min():.12g} at item {item}, position {position}")
    columns, rows = x.sum(axis=0), x.sum(axis=1)
    j = int(np.abs(columns - 1.0).argmax())
    if abs(columns[j] - 1.0) > tol:
        raise ValueError(f"{name} must sum to 1 over items; position {j} sums to {columns[j]:.12g}")
    i = int(rows.argmax())
    if rows[i] > 1.0 + tol:
        raise ValueError(f"{name} must sum to at most 1 over positions; item {i} sums to {rows[i]:.12g}")
    return np.maximum(x, 0.0)
