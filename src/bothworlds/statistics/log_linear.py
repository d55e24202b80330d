r"""The log-linear fit: click probabilities that are products of an effect of a row and effects of shared columns.

A row is an item of a query; a column is a level of a shared factor, such as a position or a window of time. A context
x has one level of every factor, and :math:`u_{ix} = a_i + \sum_f b_{f, x_f}`. The log-likelihood of C clicks and F
missing clicks is concave:

.. math::

    \max_{a, b} \sum_{ix} C_{ix} u_{ix} + F_{ix} \log\left(1 - e^{u_{ix}}\right).

F is at least 1e-6, also where a row was never shown, so that every probability is at most 1.

Rows are eliminated. Given b, the best :math:`a_i` is the root of a concave function; b moves by Newton's method with
the Schur complement of the rows, whose null space is what no counts determine. The problem with one factor is that of
``rank_one``, whose solver is for networks of pairs and cannot have a second factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array
from scipy.special import xlog1py, xlogy

from ..kernels import Floats, Ints, inner_kernel, kernel
from .rank_one.likelihood import EDGE, chances

MAX_STEPS = 200
TOLERANCE = 1e-16  # of the gain that a Newton step predicts, in nats
FURTHEST = 4.0  # that a step moves columns apart
ENOUGH = 1e-6  # predicted gain, in nats, of a fit that has converged though its steps became too small
ROUNDING = 1e-13  # rounding error of a log-likelihood, relative to it
RANK = 1e-9  # smaller eigenvalues of a matrix with diagonal 1 count as zero
CURVATURE = 1e-13  # the same for second derivatives, which differ by many orders of magnitude

Mask = NDArray[np.bool_]


class _Cells(NamedTuple):
    """Cells whose row and columns all have clicks, sorted by row; the others have probability 0."""

    starts: Ints  # (R + 1,)
    context: Ints  # (K,)
    clicked: Floats  # (K,)
    missed: Floats  # (K,)
    codes: Ints  # (X, c) the columns of every context
    work: Floats  # (2, X) clicks and missing clicks of one row in every context
    edge: float = EDGE  # least number of missing clicks: keeps probabilities below 1

    @property
    def row(self) -> Ints:
        return np.repeat(np.arange(self.starts.size - 1), np.diff(self.starts))


class _Derivatives(NamedTuple):
    """Second derivatives at the best rows for given columns, and first ones of columns."""

    weight: Floats  # (R,) minus the second derivative of every row
    centre: Floats  # (R, S) how far the best row falls when a column rises
    pull: Floats  # (S,)
    schur: Floats  # (S, S) minus the second derivatives of columns once rows are eliminated


@dataclass(frozen=True, eq=False)
class LogLinear:
    """A fit to K cells of R rows and S columns: the levels of all factors, one factor after the other.

    Effects are logarithms: minus infinity for a row or a column that was never clicked, NaN where the cells do not say.
    The largest effect of each factor is 0. Methods take ``row`` (T,) and ``columns`` (T, c) as :func:`fit` does.
    """

    row_effect: Floats  # (R,)
    column_effect: Floats  # (S,)
    first: Ints  # (c + 1,) the first column of every factor
    log_likelihood: float  # of the counts, without the prior
    steps: int
    converged: bool
    gain: float  # that a further step predicts, in nats
    null: Floats  # (S, d) an orthonormal basis of the moves of columns that moves of rows undo in all cells
    covariance: Floats  # (S, S) of column effects, but for moves in ``null``
    _cells: _Cells
    _tied: _Cells  # those cells whose row and columns have clicks without the prior
    _second: _Derivatives
    _index: tuple[Ints, Ints, Ints]  # (R,) the place of a row in _cells, or -1; (K,) their order; (R,) place in _tied
    _given: tuple[Ints, Ints, Mask]  # (K,) row and (K, c) columns of the cells, and which were shown
    _zero: tuple[Mask, Mask]  # rows and columns without clicks that were shown with one that has clicks

    @property
    def identified(self) -> bool:
        """Whether columns are determined up to one factor each, those without clicks included."""
        return self.null.shape[1] == self.first.size - 1 and not np.isnan(self.column_effect).any()

    def predict(self, row: ArrayLike, columns: ArrayLike) -> Floats:
        """Return the click probabilities (T,); NaN for rows and columns that were never shown."""
        i, code = self._codes(row, columns)
        u = np.column_stack([self.row_effect[i], self.column_effect[code]])
        return np.where((u == -np.inf).any(axis=1), 0.0, np.exp(u.sum(axis=1)))

    def determined(self, row: ArrayLike, columns: ArrayLike) -> Mask:
        r"""Return which probabilities the cells determine (T,).

        A cell that was shown is determined, and one whose row or column is sure to have probability 0. Any other one is
        if its design row is in the row space of the cells: :math:`d - \bar d_i` is orthogonal to the null space, for
        its columns d and their mean over the cells of the row.
        """
        i, code = self._codes(row, columns)
        of_row, seen = self._given[0], self._given[2]
        key, known = self._key(i, code), self._key(of_row[seen], self._given[1][seen] + self.first[:-1])
        zero = self._zero[0][i] | self._zero[1][code].any(axis=1)
        place = self._index[2][i]
        live = (place >= 0) & np.isfinite(self.column_effect[code]).all(axis=1)
        if not self._tied.starts[-1]:
            return np.isin(key, known) | zero
        apart = self.null[code].sum(axis=1) - _row_means(self._tied, self.null)[place]
        return np.isin(key, known) | zero | (live & (np.abs(apart) < 1e-6).all(axis=1))

    def variance(self, row: ArrayLike, columns: ArrayLike, *, shared: bool = False) -> Floats:
        """Return the variances of log probabilities (T,); NaN for those that are 0 or not determined.

        With ``shared``, only the part that is due to columns, which further impressions of the row do not make smaller.
        """
        i, code = self._codes(row, columns)
        live = self._live(i, code) & self.determined(row, columns)
        parts = self.variances_of_sums(row, columns, live.astype(np.float64), np.arange(i.size), i.size)
        if shared and live.any():
            parts = parts - 1.0 / self._second.weight[self._index[0][i]]
        return np.where(live, parts, np.nan)

    def variances_of_sums(
        self, row: ArrayLike, columns: ArrayLike, slope: ArrayLike, group: Ints, groups: int
    ) -> Floats:
        """Return the variances of functions of the probabilities (groups,), each with the gradient of its group.

        ``slope`` (T,) has derivatives with respect to logs of probabilities, which must be determined.
        """
        i, code = self._codes(row, columns)
        used = self._live(i, code)
        place, code, own = self._index[0][i][used], code[used], group[used]
        g = np.asarray(slope, np.float64)[used]
        of_columns = np.zeros((groups, self.column_effect.size))
        for f in range(code.shape[1]):
            np.add.at(of_columns, (own, code[:, f]), g)
        key, cell = np.unique(own * self._second.weight.size + place, return_inverse=True)
        of_rows, (owner, place) = np.bincount(cell, g), np.divmod(key, max(self._second.weight.size, 1))
        np.subtract.at(of_columns, owner, of_rows[:, None] * self._second.centre[place])
        alone = np.bincount(owner, of_rows**2 / self._second.weight[place], groups)
        return np.asarray(alone + np.einsum("gs,st,gt->g", of_columns, self.covariance, of_columns, optimize=True))

    def _live(self, i: Ints, code: Ints) -> Mask:
        return np.asarray((self._index[0][i] >= 0) & np.isfinite(self.column_effect[code]).all(axis=1))

    def influence(self, row: ArrayLike, columns: ArrayLike, slope: ArrayLike) -> Floats:
        r"""Return what one impression of every cell of the fit adds to a function of the probabilities (2, K).

        ``slope`` (T,) has the derivatives of the function with respect to the logs of these probabilities; they must be
        determined. The first row is for impressions without a click, the second for those with one. Summed over the
        impressions of a page it is the page's influence, and the variance of the function is the sum of squares over
        pages; summed over all, without a prior, it is 0.

        With the gradient g of the function and minus the Hessian H, a cell has :math:`y = d^\top H^{-1} g`, and an
        impression :math:`y (c - p) / (1 - p)`.
        """
        i, code = self._codes(row, columns)
        place, g = self._index[0][i], np.asarray(slope, np.float64)
        used = self._live(i, code)
        of_rows = np.bincount(place[used], g[used], self._second.weight.size)
        of_columns = np.bincount(code[used].ravel(), np.repeat(g[used], code.shape[1]), self.column_effect.size)
        of_columns = of_columns - np.einsum("rs,r->s", self._second.centre, of_rows)
        of_columns -= self.null @ (self.null.T @ of_columns)
        y_columns = self.covariance @ of_columns
        y_rows = of_rows / self._second.weight - np.einsum("rs,s->r", self._second.centre, y_columns)
        c = self._cells
        y = y_rows[c.row] + y_columns[c.codes].sum(axis=1)[c.context]
        p = self.predict(self._given[0], self._given[1])[self._index[1]]
        result = np.zeros((2, self._given[0].size))
        result[:, self._index[1]] = -y * p / np.maximum(1.0 - p, EDGE), y
        return result

    def _codes(self, row: ArrayLike, columns: ArrayLike) -> tuple[Ints, Ints]:
        i, levels = np.asarray(row, np.int64), np.asarray(columns, np.int64)
        return i, levels + self.first[:-1]

    def _key(self, row: Ints, code: Ints) -> Ints:
        key = row.copy()
        for f, size in enumerate(np.diff(self.first).tolist()):
            key = key * size + code[:, f] - self.first[f]
        return key


def fit(
    row: ArrayLike,
    columns: ArrayLike,
    shown: ArrayLike,
    clicked: ArrayLike,
    *,
    prior: float = 0.0,
    rows: int | None = None,
    levels: Sequence[int] | None = None,
) -> LogLinear:
    """Return the maximum-likelihood fit of K cells.

    Parameters
    ----------
    row, columns
        (K,) and (K, c): the row of every cell and its level of every factor, from 0.
    shown, clicked
        (K,) impressions and clicks.
    prior
        Impressions to add to every cell that was shown, clicked at the mean rate. They determine nothing: what is
        known of cells that were not shown follows from clicks.
    rows, levels
        The numbers of rows, and of levels of every factor; by default those that occur.

    Examples
    --------
    Three of four cells determine the fourth:

    >>> found = fit([0, 0, 1], [[0], [1], [0]], [1000, 1000, 1000], [800, 400, 200])
    >>> found.predict([1], [[1]]).round(6).tolist(), found.determined([1], [[1]]).tolist()
    ([0.1], [True])

    References
    ----------
    Wacholder: Binomial regression in GLIM, American Journal of Epidemiology 123, 1986 (the link).
    """
    i, level = np.asarray(row, np.int64), np.asarray(columns, np.int64)
    n, c = np.asarray(shown, np.float64), np.asarray(clicked, np.float64)
    if not ((c >= 0.0).all() and (c <= n).all()):
        raise ValueError("there must be no more clicks than impressions, and no negative ones")
    sizes = np.asarray(levels if levels is not None else level.max(axis=0, initial=-1) + 1, np.int64)
    first = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    code, R = level + first[:-1], int(i.max(initial=-1)) + 1 if rows is None else rows
    S, seen = int(first[-1]), n > 0.0
    extra = prior * seen * (c.sum() / max(n.sum(), 1.0))
    clicks, misses = c + extra, n - c + prior * seen - extra
    live = np.bincount(i, clicks, R) > EDGE, _by_column(code, clicks, S) > EDGE
    inside, place, cells = _sorted_cells(i, code, clicks, misses, live, seen)
    clicked = np.bincount(i, c, R) > EDGE, _by_column(code, c, S) > EDGE
    tied = (inside, place, cells) if not prior else _sorted_cells(i, code, clicks, misses, clicked, seen)
    with np.errstate(divide="ignore"):
        start = np.log((_by_column(code, clicks, S) + 0.5) / (_by_column(code, n, S) + 1.0))
    a, b, second, inverse, steps, converged, gain = _fitted(cells, _top_zero(start, first, live[1])[0], first)
    b, tops = _top_zero(b, first, live[1])
    # A column without clicks is sure to have probability 0 if a row with clicks was shown there, and likewise a row.
    dead = seen & (clicked[0][i].astype(int) + clicked[1][code].sum(axis=1) == len(first) - 1)
    zero = np.zeros(R, bool), np.zeros(S, bool)
    zero[0][i[dead]] = True
    zero[1][code[dead].ravel()] = True
    zero = zero[0] & ~clicked[0], zero[1] & ~clicked[1]
    row_effect, column_effect = np.full(R, np.nan), np.where(live[1], b, np.where(zero[1], -np.inf, np.nan))
    row_effect[i[seen]] = -np.inf
    row_effect[live[0]] = np.minimum(a + tops.sum(), 0.0) if first.size == 2 else a + tops.sum()
    null = _null_space(tied[2], clicked[1])
    found = LogLinear(
        row_effect, column_effect, first, np.nan, steps, converged, gain, null, inverse,
        cells, tied[2], second, (place, inside, tied[1]), (i, code - first[:-1], seen), zero,
    )  # fmt: skip
    p = np.where(seen, found.predict(i, code - first[:-1]), 0.0)
    object.__setattr__(found, "log_likelihood", float((xlogy(c, p) + xlog1py(n - c, -np.minimum(p, 1.0))).sum()))
    return found


def _sorted_cells(
    i: Ints, code: Ints, clicked: Floats, missed: Floats, live: tuple[Mask, Mask], seen: Mask
) -> tuple[Ints, Ints, _Cells]:
    """The cells whose row and columns are live, sorted by row; their order; the place of every row among live ones."""
    inside = np.flatnonzero(seen & live[0][i] & live[1][code].all(axis=1))
    inside = inside[np.argsort(i[inside], kind="stable")]
    place = np.where(live[0], np.cumsum(live[0]) - 1, -1)
    contexts, context = np.unique(code[inside], axis=0, return_inverse=True)
    starts = np.searchsorted(place[i[inside]], np.arange(int(live[0].sum()) + 1)).astype(np.int64)
    work = np.tile([[0.0], [EDGE]], len(contexts))
    contexts = np.ascontiguousarray(contexts)
    return inside, place, _Cells(starts, context.ravel(), clicked[inside], missed[inside], contexts, work)


def _by_column(code: Ints, values: Floats, columns: int) -> Floats:
    return np.bincount(code.ravel(), np.repeat(values, code.shape[1]), columns).astype(np.float64)


def _top_zero(b: Floats, first: Ints, live: Mask) -> tuple[Floats, Floats]:
    """Columns with the largest live effect of every factor at 0, and what was subtracted (c,)."""
    tops = np.array([b[low:high][live[low:high]].max(initial=-np.inf) for low, high in pairwise(first.tolist())])
    tops[tops == -np.inf] = 0.0
    return b - np.repeat(tops, np.diff(first)), tops


def _fitted(cells: _Cells, b: Floats, first: Ints) -> tuple[Floats, Floats, _Derivatives, Floats, int, bool, float]:
    """Return what ``_newton`` does; if that does not converge, approach the limit in steps.

    A row that was always clicked at two columns bounds the larger of them: the likelihood then has a kink where they
    are equal, which is as sharp as ``edge`` is small.
    """
    a, b, second, inverse, steps, converged, gain = _newton(cells, b, first)
    if not converged:
        for edge in (1e5 * EDGE, 1e4 * EDGE, 1e3 * EDGE, 100.0 * EDGE, 10.0 * EDGE, EDGE):
            cells.work[1] = edge
            a, b, second, inverse, more, converged, gain = _newton(cells._replace(edge=edge), b, first)
            steps += more
    return a, b, second, inverse, steps, converged, gain


def _newton(cells: _Cells, b: Floats, first: Ints) -> tuple[Floats, Floats, _Derivatives, Floats, int, bool, float]:
    """Return rows, columns, derivatives, the inverse of the Schur complement; steps, convergence, predicted gain."""
    a = np.full(cells.starts.size - 1, -2.0)
    x = b[cells.codes].sum(axis=1)
    value, step, last = best_rows(*cells, x, a), 0, False
    while True:
        second = _derive(cells, x, a, first)
        inverse = _inverse(second.schur, first)
        direction = inverse @ second.pull
        gain = float(second.pull @ direction)
        if gain <= TOLERANCE or last or step == MAX_STEPS:
            return a, b, second, inverse, step, gain <= ENOUGH or last, gain
        # The value does not show what the last step gains.
        last = gain <= ROUNDING * abs(value)
        size = min(1.0, FURTHEST / max(float(np.ptp(direction)), FURTHEST))
        rise, shift = direction[cells.codes].sum(axis=1), np.einsum("rs,s->r", second.centre, direction)
        while True:
            rows = a - size * shift
            reached = best_rows(*cells, x + size * rise, rows)
            if last or reached >= value + 1e-4 * size * gain - ROUNDING * abs(value) or size < 1e-12:
                break
            size *= 0.5
        a, b, x, value, step = rows, b + size * direction, x + size * rise, reached, step + 1


def _derive(cells: _Cells, x: Floats, a: Floats, first: Ints) -> _Derivatives:
    S = int(first[-1])
    result = _Derivatives(np.zeros(a.size), np.zeros((a.size, S)), np.zeros(S), np.zeros((S, S)))
    eliminate_rows(*cells, x, a, *result)
    matrix = result.schur + result.schur.T
    # The columns of a factor rise together at no cost: the diagonal is minus the sum of the others.
    for low, high in pairwise(first.tolist()):
        block = matrix[low:high, low:high]
        np.fill_diagonal(block, -block.sum(axis=1))
    return result._replace(schur=matrix)


def _inverse(schur: Floats, first: Ints) -> Floats:
    """A generalised inverse, in which the columns of a factor do not rise together."""
    if not schur.size:
        return schur
    diagonal = schur.diagonal()
    scale = np.where(diagonal > 0.0, 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0)), 0.0)
    together = np.zeros((len(schur), first.size - 1))
    for f, (low, high) in enumerate(pairwise(first.tolist())):
        together[low:high, f] = np.divide(1.0, scale[low:high], out=np.zeros(high - low), where=scale[low:high] > 0.0)
        together[:, f] /= max(float(np.linalg.norm(together[:, f])), 1e-300)
    matrix = schur * scale[:, None] * scale
    matrix -= together @ (together.T @ matrix)
    matrix -= (matrix @ together) @ together.T
    values, vectors = np.linalg.eigh(0.5 * (matrix + matrix.T))
    kept = vectors[:, values > CURVATURE] * scale[:, None]
    return (kept / values[values > CURVATURE]) @ kept.T


def _row_means(cells: _Cells, of_columns: Floats) -> Floats:
    """(R, d) the means over the cells of every row of (S, d) values of columns.

    Cells that were clicked every time only bound a probability, and count only in a row that has no others.
    """
    row, curved = cells.row, (cells.missed > EDGE).astype(np.float64)
    rows = cells.starts.size - 1
    use = np.where(np.bincount(row, curved, rows)[row] > 0.0, curved, 1.0)
    mean = csr_array((use, (row, cells.context)), shape=(rows, len(cells.codes)))
    return (mean @ of_columns[cells.codes].sum(axis=1)) / np.maximum(np.bincount(row, use, rows), 1.0)[:, None]


def _null_space(cells: _Cells, live: Mask) -> Floats:
    """(S, d) the null space of the Schur complement in which every cell with missing clicks has weight 1."""
    curved = cells.missed > EDGE
    columns, size = np.flatnonzero(live), int(curved.sum())
    each = cells.codes[cells.context[curved]]
    design = csr_array(
        (np.ones(each.size), (np.repeat(np.arange(size), each.shape[1]), each.ravel())), shape=(size, live.size)
    )
    row = cells.row[curved]
    by_row = csr_array((np.ones(size), (row, np.arange(size))), shape=(cells.starts.size - 1, size)) @ design
    number = np.maximum(np.bincount(row, minlength=cells.starts.size - 1), 1)
    schur = (design.T @ design - by_row.T @ (by_row * (1.0 / number)[:, None])).toarray()[np.ix_(columns, columns)]
    scale = 1.0 / np.sqrt(np.maximum(schur.diagonal(), RANK))
    values, vectors = np.linalg.eigh(schur * scale[:, None] * scale)
    null = np.zeros((live.size, int((values < RANK).sum())))
    null[columns] = np.linalg.qr(vectors[:, values < RANK] * scale[:, None])[0]
    return null


@inner_kernel
def _load(starts: Ints, context: Ints, clicked: Floats, missed: Floats, work: Floats, edge: float, i: int) -> None:
    for k in range(starts[i], starts[i + 1]):
        work[0, context[k]] = clicked[k]
        work[1, context[k]] = max(missed[k], edge)


@inner_kernel
def _unload(starts: Ints, context: Ints, work: Floats, edge: float, i: int) -> None:
    for k in range(starts[i], starts[i + 1]):
        work[0, context[k]] = 0.0
        work[1, context[k]] = edge


@kernel
def best_rows(
    starts: Ints, context: Ints, clicked: Floats, missed: Floats, codes: Ints, work: Floats, edge: float,
    x: Floats, a: Floats,
) -> float:  # fmt: skip
    """Maximise over every row, given the sums x of the columns of contexts; return the maximum.

    The derivative is concave and falls, so its tangent has a root at or above the one sought: from there on Newton's
    steps go down to it. A step towards the limit goes 99% of the way at most.
    """
    top, total = -np.inf, 0.0
    for k in range(x.size):
        top = max(top, x[k])
    for i in range(a.size):
        _load(starts, context, clicked, missed, work, edge, i)
        a[i] = min(a[i], -top - 1e-3)
        for _ in range(100):
            gain, weight = 0.0, 0.0
            for k in range(x.size):
                p, miss = chances(a[i] + x[k])
                odds = p / miss
                gain += work[0, k] - work[1, k] * odds
                weight += work[1, k] * odds / miss
            room = -(a[i] + top)
            step = min(gain / weight, 0.99 * room)
            a[i] += step
            if abs(step) <= max(1e-11 * room, 2e-15 * (1.0 + abs(a[i]))):
                break
        for k in range(x.size):
            total += work[0, k] * (a[i] + x[k]) + work[1, k] * np.log(chances(a[i] + x[k])[1])
        _unload(starts, context, work, edge, i)
    return total


@kernel
def eliminate_rows(
    starts: Ints, context: Ints, clicked: Floats, missed: Floats, codes: Ints, work: Floats, edge: float,
    x: Floats, a: Floats, weight: Floats, centre: Floats, pull: Floats, schur: Floats,
) -> None:  # fmt: skip
    """Fill in derivatives; of the Schur complement the lower triangle, without the diagonal blocks' diagonal."""
    factors = codes.shape[1]
    for i in range(a.size):
        _load(starts, context, clicked, missed, work, edge, i)
        gain, total = 0.0, 0.0
        for k in range(x.size):
            p, miss = chances(a[i] + x[k])
            odds = p / miss
            g, w = work[0, k] - work[1, k] * odds, work[1, k] * odds / miss
            gain, total = gain + g, total + w
            for f in range(factors):
                s = codes[k, f]
                pull[s] += g
                centre[i, s] += w
                for e in range(f):
                    schur[s, codes[k, e]] += w
        weight[i] = total
        for s in range(centre.shape[1]):
            share = centre[i, s] / total
            if share > 0.0:
                pull[s] -= share * gain
                for t in range(s):
                    schur[s, t] -= share * centre[i, t]
        for s in range(centre.shape[1]):
            centre[i, s] /= total
        _unload(starts, context, work, edge, i)
