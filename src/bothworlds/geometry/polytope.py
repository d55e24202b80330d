"""Validation of arguments: finite matrices (items, positions), rates, and points of the polytope."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray


def as_matrix(value: ArrayLike, name: str, *, stacked: bool = False) -> NDArray[np.float64]:
    """Return a finite contiguous array (n_items, n_positions), or a stack of these; raises ValueError that names it.

    Requires 1 <= n_positions <= n_items.
    """
    kind, axes = ("a stack of matrices", "three dimensions, problems") if stacked else ("a matrix", "two dimensions,")
    try:
        given = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be {kind} of numbers; got {value!r}") from error
    if given.ndim != 2 + stacked:
        raise ValueError(f"{name} must have {axes}, items by positions; got shape {given.shape}")
    n, m = given.shape[-2:]
    if not 1 <= m <= n:
        raise ValueError(f"{name} must have at least one position and as many items; got shape {given.shape}")
    finite = np.isfinite(given)
    if not finite.all():
        *problem, i, j = at = tuple(np.argwhere(~finite)[0].tolist())
        where = f" in problem {problem[0]}" if stacked else ""
        raise ValueError(f"{name} must be finite; got {given[at]}{where} at item {i}, position {j}")
    return np.ascontiguousarray(given)


def as_rate(value: ArrayLike, name: str, *shapes: tuple[int, ...]) -> NDArray[np.float64]:
    """Return positive rates of one of these shapes, or a single one as an array without dimensions.

    Raises ValueError that names ``name``.
    """
    try:
        given = np.asarray(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be a number or an array of numbers; got {value!r}") from error
    if given.shape not in ((), *shapes):
        expected = " or ".join(map(str, shapes))
        raise ValueError(f"{name} must be a number or have shape {expected}; got shape {given.shape}")
    bad = given[~((given > 0.0) & np.isfinite(given))]
    if bad.size:
        raise ValueError(f"{name} must be positive and finite; got {bad.flat[0]}")
    return given


def as_marginals(value: ArrayLike, name: str = "marginals", tol: float = 1e-9) -> NDArray[np.float64]:
    """Return a point of the polytope; raises ValueError if a constraint is violated by more than ``tol``."""
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
