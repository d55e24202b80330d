"""The regularised leader: the point of the ranking polytope with the least past loss plus regulariser."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Floats
from .dual import Effort, Workspace, make_workspace
from .feasible import certified_gap, repair
from .newton import climb, polish, solve
from .polytope import as_matrix
from .regularizers import named

__all__ = ["ConvergenceError", "Leader", "leader"]

EPS = float(np.finfo(float).eps)
GAP = 1e-10  # largest relative gap at which the result of a warm start is accepted
MAX_RESTARTS = 6  # solves from the last multipliers
POLISH = 2  # Newton steps beyond the tolerance: they are cheap and reduce the gap to rounding


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
    rates = _as_rate(rate, (n, m))
    reg = named(regularizer)
    if not tol > 0.0:
        raise ValueError(f"tol must be positive; got {tol!r}")
    tol = max(tol, 1e-13)
    work = make_workspace(n, m)
    lam, mu = np.zeros(m), np.zeros(n)
    problem = (reg, losses, rates, lam, mu, tol, work)
    if warm is not None:
        lam[:], mu[:] = _start_from(warm, (n, m))
        effort = _consistent(solve(*problem), *problem)
        if effort.violation <= tol:
            result = _finished(effort, *problem)
            scale = np.ptp(losses, axis=0).max() + 1.0 / np.min(rates)
            if result.gap <= m * (GAP * scale + 256.0 * EPS * np.abs(losses).max()):
                return result
    # There is no start, or it is so far away that the multipliers or the certificate are inaccurate.
    effort = _consistent(climb(*problem), *problem)
    if not effort.violation <= tol:
        raise ConvergenceError(
            f"no leader to tol = {tol:g} after {effort.steps} Newton steps and {effort.sweeps} sweeps: the optimality "
            f"conditions are violated by {effort.violation:.3g} (loss from {losses.min():.3g} to {losses.max():.3g}, "
            f"rate from {np.min(rates):.3g} to {np.max(rates):.3g})"
        )
    return _finished(effort, *problem)


def _finished(
    effort: Effort, reg: Any, loss: Floats, rate: Any, lam: Floats, mu: Floats, tol: float, work: Workspace
) -> Leader:
    """Polish the solution, make it feasible and compute its gap."""
    polished = 0
    while polished < POLISH and polish(reg, rate, lam, mu, work):
        polished += 1
    _normalise(lam, mu)
    marginals = np.empty_like(loss)
    repair(work.x, work.row, marginals, np.empty_like(lam), np.empty_like(mu))
    gap = certified_gap(reg, rate, mu, marginals, work) + _rounding(loss, lam, mu, work.z)
    return Leader(marginals, lam.copy(), mu.copy(), float(gap), effort.steps + polished)


def _consistent(
    effort: Effort, reg: Any, loss: Floats, rate: Any, lam: Floats, mu: Floats, tol: float, work: Workspace
) -> Effort:
    """Solve again from the last multipliers until they agree with the solver's z up to rounding.

    After many steps from a distant start, rounding makes the two differ; after a few from a near one it does not.
    """
    for _ in range(MAX_RESTARTS):
        _normalise(lam, mu)
        scale = _scale(loss, lam, mu)
        if not effort.violation <= tol or _drift(loss, lam, mu, work.z) <= 16.0 * EPS * scale:
            return effort
        more = solve(reg, loss, rate, lam, mu, tol, work)
        effort = Effort(effort.steps + more.steps, effort.sweeps + more.sweeps, more.violation)
    return Effort(effort.steps, effort.sweeps, math.inf)


def _normalise(lam: Floats, mu: Floats) -> None:
    """Make the smallest mu 0 if there are as many positions as items: rows and columns then share a free constant."""
    if lam.size == mu.size:
        shift = mu.min()
        mu -= shift
        lam += shift


def _drift(loss: Floats, lam: Floats, mu: Floats, z: Floats) -> float:
    """Return the largest difference between the solver's z and the z of its multipliers."""
    return float(np.abs(z - (loss + lam + mu[:, None])).max())


def _scale(loss: Floats, lam: Floats, mu: Floats) -> float:
    return float(np.abs(loss).max() + np.abs(lam).max() + np.abs(mu).max())


def _rounding(loss: Floats, lam: Floats, mu: Floats, z: Floats) -> float:
    """Return what rounding can add to the gap: the solver's z is that of slightly different losses."""
    return 2.0 * loss.shape[1] * (_drift(loss, lam, mu, z) + 4.0 * EPS * _scale(loss, lam, mu))


def _as_rate(rate: ArrayLike, shape: tuple[int, int]) -> float | Floats:
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
