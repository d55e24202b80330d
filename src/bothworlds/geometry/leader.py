"""The regularised leader: the point of the ranking polytope with the least past loss plus regulariser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ..checks import whole
from ..core import cores
from ..kernels import Floats, Ints
from .certified_solve import Solutions, make_solutions, solve_certified
from .dual import make_workspace
from .item_rows import MANY_ITEMS
from .polytope import as_matrix, as_rate
from .regularizers import named

LEAST_CHUNK = 64  # problems that a thread takes at a time; fewer cost more to hand out than to solve
CHUNKS = 8  # chunks per thread, since some problems take longer than others


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


@dataclass(frozen=True, slots=True)
class Leaders:
    """The solutions of a batch of leader problems, with their certificates; index it for the Leader of one problem.

    ``marginals`` (problems, n_items, n_positions), ``lam`` (problems, n_positions), ``mu`` (problems, n_items), ``gap``
    (problems,) and ``iterations`` (problems,) are as in :class:`Leader`.
    """

    marginals: Floats = field(repr=False)
    lam: Floats = field(repr=False)
    mu: Floats = field(repr=False)
    gap: Floats = field(repr=False)
    iterations: Ints = field(repr=False)

    def __len__(self) -> int:
        return len(self.gap)

    def __getitem__(self, k: int) -> Leader:
        return Leader(self.marginals[k], self.lam[k], self.mu[k], float(self.gap[k]), int(self.iterations[k]))

    def __iter__(self) -> Iterator[Leader]:
        return (self[k] for k in range(len(self)))


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

    Raises ValueError for invalid input, and ConvergenceError if the tolerance cannot be reached.

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
    rates, reg, tol = as_rate(rate, "rate", (n, m)), named(regularizer), _as_tolerance(tol)
    first, row, copies = distinct_rows(losses, rates)
    found, work = make_solutions(1, len(first), m), make_workspace(len(first), m, copies)
    if warm is not None:
        check_warm(warm, (n, m))
        found.lam[0], found.mu[0] = warm.lam, np.maximum(warm.mu, 0.0)[first]
    stacked, order = (rates[first] if rates.ndim else rates)[None], np.arange(len(first))
    solve_certified(reg, losses[first][None], stacked, tol, warm is not None, 0, 1, order, work, found)
    _require_convergence(found, 0, "", losses, rates, tol)
    return Leader(found.marginals[0][row], found.lam[0], found.mu[0][row], float(found.gap[0]), int(found.steps[0]))


def leaders(
    losses: ArrayLike,
    rates: ArrayLike,
    *,
    regularizer: str = "tsallis",
    tol: float = 1e-9,
    jobs: int | None = None,
) -> Leaders:
    """Compute the leaders of many problems of one shape, in parallel over cores.

    Each result is that of :func:`leader` for the problem alone, whatever the number of threads.

    ``losses`` are (problems, n_items, n_positions). ``rates`` are one number, one for every problem, (problems,), or
    one for every pair, (problems, n_items, n_positions). ``jobs`` is the number of threads, one for each core if not
    given. The rest is as for :func:`leader`; a ConvergenceError names the first problem that it is about.

    The path of the leader as the rate grows, from uniform marginals to the best list:

    >>> import numpy as np
    >>> from bothworlds.geometry import leader
    >>> loss = np.array([[0.0, 3.0], [2.0, 1.0], [5.0, 5.0]])
    >>> path = leaders([loss] * 4, [1e-3, 0.1, 1.0, 100.0])
    >>> path.marginals[:, 0, 0].round(3)
    array([0.335, 0.515, 0.952, 1.   ])
    >>> bool(path.gap.max() < 1e-9), path[2].iterations == leader(loss, 1.0).iterations
    (True, True)
    """
    stacked = as_matrix(losses, "losses", stacked=True)
    b, n, m = stacked.shape
    given, reg, tol = as_rate(rates, "rates", (b,), (b, n, m)), named(regularizer), _as_tolerance(tol)
    each_rate = given if given.ndim else np.full(b, given)
    found, workers = make_solutions(b, n, m), cores() if jobs is None else whole(jobs, "jobs", 1)
    chunk = max(LEAST_CHUNK, math.ceil(b / (CHUNKS * workers)))

    def solve_from(start: int) -> None:
        stop, work = min(start + chunk, b), make_workspace(n, m)
        solve_certified(reg, stacked, each_rate, tol, False, start, stop, np.arange(n), work, found)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(solve_from, range(0, b, chunk)))
    for k in np.flatnonzero(~(found.violation <= tol))[:1].tolist():
        _require_convergence(found, k, f"problem {k}: ", stacked[k], each_rate[k], tol)
    return Leaders(found.marginals, found.lam, found.mu, found.gap, found.steps)


def distinct_rows(loss: Floats, rate: Floats) -> tuple[Ints, Ints, Floats]:
    """Return the first item of each distinct row of losses and rates, the row of each item, the items of each row.

    Rows are compared if there are many items; if most of them differ, every item gets a row of its own.
    """
    n = len(loss)
    alone = (np.arange(n), np.arange(n), np.ones(n))
    if n < MANY_ITEMS:
        return alone
    both = np.hstack([loss, rate]) if rate.ndim else loss
    keys = both @ np.random.default_rng(0).random(both.shape[1])  # equal rows have equal keys, up to rounding
    _, first, row, copies = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    if 2 * len(first) > n or not (both == both[first[row]]).all():
        return alone
    return first, row, copies.astype(np.float64)


def _require_convergence(found: Solutions, k: int, name: str, loss: Floats, rate: Floats, tol: float) -> None:
    """Raise ConvergenceError unless the k-th problem of a stack was solved."""
    if not found.violation[k] <= tol:
        raise ConvergenceError(
            f"{name}no leader to tol = {tol:g} after {found.steps[k]} Newton steps and {found.sweeps[k]} sweeps: the "
            f"optimality conditions are violated by {found.violation[k]:.3g} (loss from {loss.min():.3g} to "
            f"{loss.max():.3g}, rate from {np.min(rate):.3g} to {np.max(rate):.3g})"
        )


def _as_tolerance(tol: float) -> float:
    """Return the tolerance, at least 1e-13, since less is lost in rounding; raises ValueError if not positive."""
    if not tol > 0.0:
        raise ValueError(f"tol must be positive; got {tol!r}")
    return max(tol, 1e-13)


def check_warm(warm: Leader, shape: tuple[int, int]) -> None:
    """Raise ValueError unless a starting point is the result for a problem of this shape."""
    if not isinstance(warm, Leader):
        raise ValueError(f"warm must be a Leader, the result of an earlier call; got {warm!r}")
    if warm.marginals.shape != shape:
        raise ValueError(f"warm must have the shape of loss, {shape}; got {warm.marginals.shape}")
    if not (np.isfinite(warm.lam).all() and np.isfinite(warm.mu).all()):
        raise ValueError(f"warm must have finite multipliers; got lam = {warm.lam}, mu = {warm.mu}")
