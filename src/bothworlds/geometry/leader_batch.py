"""Leaders of many problems of one shape, solved in parallel threads."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from ..core import cores
from ..kernels import Floats, Ints
from .certified_solve import make_solutions, solve_certified
from .dual import make_workspace
from .leader import ConvergenceError, Leader, as_tolerance, no_leader
from .regularizers import named

LEAST_CHUNK = 64  # problems that a thread takes at a time; fewer cost more to hand out than to solve
CHUNKS = 8  # chunks per thread, since some problems take longer than others


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

    Parameters
    ----------
    losses
        (problems, n_items, n_positions) cumulative losses, with n_positions <= n_items.
    rates
        The learning rate: one number, one for every problem, (problems,), or one for every pair of every problem,
        (problems, n_items, n_positions).
    regularizer, tol
        As for :func:`leader`.
    jobs
        The number of threads; one for each core if not given.

    Returns
    -------
    Leaders
        Marginals, multipliers and certificates of all problems.

    Raises
    ------
    ValueError
        For invalid input; the message names the argument and the value.
    ConvergenceError
        If the tolerance cannot be reached for a problem; the message names the first such problem.

    Examples
    --------
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
    stacked = _as_stack(losses)
    b, n, m = stacked.shape
    each_rate = _as_rates(rates, (b, n, m))
    reg, tol = named(regularizer), as_tolerance(tol)
    if jobs is not None and (isinstance(jobs, bool) or not isinstance(jobs, (int, np.integer)) or jobs < 1):
        raise ValueError(f"jobs must be a whole number of at least 1; got {jobs!r}")
    found = make_solutions(b, n, m)

    def solve_from(start: int) -> None:
        stop, work = min(start + chunk, b), make_workspace(n, m)
        solve_certified(reg, stacked, each_rate, tol, False, start, stop, np.arange(n), work, found)

    workers = int(jobs or cores())
    chunk = max(LEAST_CHUNK, math.ceil(b / (CHUNKS * workers)))
    starts = range(0, b, chunk)
    if min(workers, len(starts)) <= 1:
        for start in starts:
            solve_from(start)
    else:
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(solve_from, starts))
    for k in np.flatnonzero(~(found.violation <= tol))[:1].tolist():
        raise ConvergenceError(f"problem {k}: {no_leader(found, k, stacked[k], each_rate[k], tol)}")
    return Leaders(found.marginals, found.lam, found.mu, found.gap, found.steps)


def _as_stack(losses: ArrayLike) -> Floats:
    """Return finite losses (problems, n, m); raises ValueError that names them."""
    try:
        given = np.asarray(losses, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"losses must be a stack of matrices of numbers; got {losses!r}") from error
    if given.ndim != 3:
        raise ValueError(f"losses must have three dimensions, problems by items by positions; got shape {given.shape}")
    n, m = given.shape[1:]
    if not 1 <= m <= n:
        raise ValueError(f"losses must have at least one position and as many items; got shape {given.shape}")
    bad = np.argwhere(~np.isfinite(given))
    if len(bad):
        k, i, j = bad[0]
        raise ValueError(f"losses must be finite; got {given[k, i, j]} in problem {k} at item {i}, position {j}")
    return np.ascontiguousarray(given)


def _as_rates(rates: ArrayLike, shape: tuple[int, int, int]) -> Floats:
    """Return positive rates (problems,) or (problems, n, m); raises ValueError that names them."""
    try:
        value = np.asarray(rates, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"rates must be a number or an array of numbers; got {rates!r}") from error
    if value.shape not in ((), shape[:1], shape):
        raise ValueError(f"rates must be a number or have shape {shape[:1]} or {shape}; got shape {value.shape}")
    bad = value[~((value > 0.0) & np.isfinite(value))]
    if bad.size:
        raise ValueError(f"rates must be positive and finite; got {bad.flat[0]}")
    return np.ascontiguousarray(np.broadcast_to(value, shape[:1]) if value.ndim == 0 else value)
