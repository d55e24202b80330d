"""The regularised leader: the point of the ranking polytope with the least past loss plus regulariser."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Floats, Ints
from .certified_solve import Solutions, make_solutions, solve_certified
from .dual import make_workspace
from .item_rows import MANY_ITEMS
from .polytope import as_matrix
from .regularizers import named


class ConvergenceError(RuntimeError):
    """The solver did not reach the requested tolerance."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The solution of one leader problem, with its certificate.

    ``marginals`` (n_items, n_positions) is feasible to rounding; ``lam`` (n_positions,) and ``mu`` (n_items,) are the
    multipliers of columns and rows; ``gap`` bounds how far the objective is above its minimum; ``iterations`` counts
    Newton steps.
    """

    marginals: Floats = field(repr=False)
    lam: Floats
    mu: Floats = field(repr=False)
    gap: float
    iterations: int


def leader(
    loss: ArrayLike,
    rate: ArrayLike,
    *,
    regularizer: str = "tsallis",
    tol: float = 1e-9,
    warm: Leader | None = None,
) -> Leader:
    r"""Minimise the regularised loss over all ways to randomise a ranking.

    .. math:: \min_x \; \sum_{ij} L_{ij} x_{ij} + \phi(x_{ij}) / \eta_{ij}
              \quad\text{with}\quad x \ge 0,\ \sum_i x_{ij} = 1,\ \sum_j x_{ij} \le 1

    Parameters
    ----------
    loss
        (n_items, n_positions) cumulative losses L, with n_positions <= n_items.
    rate
        The learning rate: one number, or one for every pair, (n_items, n_positions).
    regularizer
        ``"tsallis"`` (:math:`-\sqrt x`), ``"shannon"`` (:math:`x \log x - x`), ``"log-barrier"`` (:math:`-\log x`),
        ``"hybrid"`` (:math:`-\sqrt x + (1-x) \log(1-x)`) or ``"hybrid-barrier"``
        (:math:`-\log x + (1-x) \log(1-x)`).
    tol
        Largest accepted violation of the optimality conditions; at least 1e-13. The result is usually far more
        accurate.
    warm
        The result of a similar problem of the same shape, used as the starting point.

    Returns
    -------
    Leader
        Marginals that are feasible up to rounding, multipliers, a bound on the error, the number of Newton steps.

    Raises
    ------
    ValueError
        For invalid input; the message names the argument and the value.
    ConvergenceError
        If the tolerance cannot be reached.

    Examples
    --------
    Without losses the leader is uniform:

    >>> import numpy as np
    >>> leader(np.zeros((4, 2)), 0.5).marginals[:, 0]
    array([0.25, 0.25, 0.25, 0.25])

    The item with the smallest loss at a position is the most likely there. A constant added to a column changes
    nothing, since every position has exactly one item:

    >>> loss = np.array([[0.0, 3.0], [2.0, 1.0], [5.0, 5.0]])
    >>> x = leader(loss, 1.0)
    >>> x.marginals.argmax(axis=0)
    array([0, 1])
    >>> y = leader(loss + [100.0, 0.0], 1.0, warm=x)
    >>> bool(np.abs(x.marginals - y.marginals).max() < 1e-9)
    True
    >>> bool(x.gap < 1e-9)
    True
    """
    losses = as_matrix(loss, "loss")
    n, m = losses.shape
    rates = as_rate(rate, (n, m))
    reg, tol = named(regularizer), as_tolerance(tol)
    start = None if warm is None else _start_from(warm, (n, m))
    first, row, copies = distinct_rows(losses, rates)
    k = len(first)
    found = make_solutions(1, k, m)
    if start is not None:
        found.lam[0], found.mu[0] = start[0], start[1][first]
    stacked_rates = np.reshape(
        rates[first] if isinstance(rates, np.ndarray) else rates, (1, k, m) if np.ndim(rates) else 1
    )
    work = make_workspace(k, m, copies)
    solve_certified(reg, losses[first][None], stacked_rates, tol, warm is not None, 0, 1, np.arange(k), work, found)
    if not found.violation[0] <= tol:
        raise ConvergenceError(no_leader(found, 0, losses, rates, tol))
    return Leader(found.marginals[0][row], found.lam[0], found.mu[0][row], float(found.gap[0]), int(found.steps[0]))


def distinct_rows(loss: Floats, rate: float | Floats) -> tuple[Ints, Ints, Floats]:
    """Return the first item of each distinct row of losses and rates, the row of each item, the items of each row.

    Rows are compared if there are many items; if most of them differ, every item gets a row of its own.
    """
    n = len(loss)
    alone = (np.arange(n), np.arange(n), np.ones(n))
    if n < MANY_ITEMS:
        return alone
    both = np.hstack([loss, rate]) if isinstance(rate, np.ndarray) else loss
    keys = both @ np.random.default_rng(0).random(both.shape[1])  # equal rows have equal keys, up to rounding
    _, first, row, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if 2 * len(first) > n or not (both == both[first[row]]).all():
        return alone
    return first, row, copies.astype(np.float64)


def no_leader(found: Solutions, k: int, loss: Floats, rate: float | Floats, tol: float) -> str:
    """Return the message of a ConvergenceError for the k-th problem of a stack."""
    return (
        f"no leader to tol = {tol:g} after {found.steps[k]} Newton steps and {found.sweeps[k]} sweeps: the optimality "
        f"conditions are violated by {found.violation[k]:.3g} (loss from {loss.min():.3g} to {loss.max():.3g}, "
        f"rate from {np.min(rate):.3g} to {np.max(rate):.3g})"
    )


def as_tolerance(tol: float) -> float:
    """Return the tolerance, at least 1e-13, since less is lost in rounding; raises ValueError if not positive."""
    if not tol > 0.0:
        raise ValueError(f"tol must be positive; got {tol!r}")
    return max(tol, 1e-13)


def as_rate(rate: ArrayLike, shape: tuple[int, int]) -> float | Floats:
    """Return a positive rate, or one for every pair; raises ValueError that names it."""
    try:
        value = np.asarray(rate, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rate must be a number or a matrix of numbers; got {rate!r}") from error
    if value.ndim and value.shape != shape:
        raise ValueError(f"rate must be a number or have the shape of loss, {shape}; got shape {value.shape}")
    bad = value[~((value > 0.0) & np.isfinite(value))]
    if bad.size:
        raise ValueError(f"rate must be positive and finite; got {bad.flat[0]}")
    return np.ascontiguousarray(value) if value.ndim else float(value)


def _start_from(warm: Leader, shape: tuple[int, int]) -> tuple[Floats, Floats]:
    if not isinstance(warm, Leader):
        raise ValueError(f"warm must be a Leader, the result of an earlier call; got {warm!r}")
    if warm.marginals.shape != shape:
        raise ValueError(f"warm must have the shape of loss, {shape}; got {warm.marginals.shape}")
    if not (np.isfinite(warm.lam).all() and np.isfinite(warm.mu).all()):
        raise ValueError(f"warm must have finite multipliers; got lam = {warm.lam}, mu = {warm.mu}")
    return warm.lam.copy(), np.maximum(warm.mu, 0.0)
