r"""The log-likelihood of pages under a chain model, with its first and second derivatives.

With last click l, a page has the probability

.. math::

    \prod_{k \le l} \alpha_k^{c_k} (1 - \alpha_k)^{1 - c_k} \prod_{k < l} \kappa_k^{c_k} g^{1 - c_k} \; T,
    \qquad T = 1 - \kappa_l + \kappa_l N_{l+1},

where :math:`N_k = (1 - \alpha_k)(1 - g + g N_{k+1})`, with :math:`N_{m+1} = 1`, is the probability of no click from
rank k on if k is examined; a page without clicks has the probability :math:`T = N_1`. The first two products need only
counts, and T only the *tail* of the page: its last click and the items below. Equal tails are counted together, so
that the cost of the likelihood does not grow with the number of pages but with the number of different tails.

In the kernels, F is the probability that a rank of the tail is examined and nothing above it is clicked, if the first
rank of the tail is examined; ``dF``, ``dN``, ``ddN`` are derivatives with respect to g.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from ...kernels import Floats, Ints, kernel
from ..list_counts import (
    ListTable,
    close_list,
    digest_of,
    make_list_table,
    make_room,
    next_value,
    settle,
    without_index,
)


class PageStatistics(NamedTuple):
    """The statistics of pages that a chain model needs. ``kappa`` is indexed by row, or by rank if ``by_rank``."""

    clicks: Floats  # (R,) of every row
    skips: Floats  # (R,) above the last click of a page
    continued: Floats  # clicks above the last click, by index of kappa
    last: Floats  # last clicks, by index of kappa
    ended: Floats  # last clicks with results below them, by index of kappa
    passed: float  # all skips above last clicks
    tails: ListTable  # lists of the index of kappa, or -1, and the rows below
    below: Floats  # (R,) results in tails
    silent: Floats  # (R,) results on pages without clicks
    longest: int
    by_rank: bool


def page_statistics(
    starts: Ints, row: Any, rank: Any, click: Any, count: Ints, rows: int, ranks: int, by_rank: bool
) -> PageStatistics:
    """Return the statistics of pages; results are in the order of ranks, and page p occurred ``count[p]`` times."""
    size = ranks if by_rank else rows
    totals, endings = np.zeros((4, rows)), np.zeros((3, size))
    passed = np.zeros(1)
    table = make_room(make_list_table(), row.size + count.size, count.size, growth=1.0)
    _collect(starts, row, rank, click, count, by_rank, totals, endings, passed, table)
    longest = int(np.diff(starts).max(initial=1))
    continued, last, ended = endings
    return PageStatistics(
        totals[0], totals[1], continued, last, ended, float(passed[0]), without_index(table), totals[2], totals[3],
        longest, by_rank,
    )  # fmt: skip


@kernel
def _collect(
    starts: Ints,
    row: Any,
    rank: Any,
    click: Any,
    count: Ints,
    by_rank: bool,
    totals: Floats,
    endings: Floats,
    passed: Floats,
    table: ListTable,
) -> None:
    for p in range(count.size):
        n = count[p]
        last = starts[p] - 1
        for k in range(starts[p], starts[p + 1]):
            if click[k] == 1:
                last = k
        key = -1
        for k in range(starts[p], last + 1):
            if click[k] == 1:
                key = rank[k] if by_rank else row[k]
                totals[0, row[k]] += n
                endings[0 if k < last else 1, key] += n
            else:
                totals[1, row[k]] += n
                passed[0] += n
        if last + 1 < starts[p + 1]:
            if key >= 0:
                endings[2, key] += n
            at = next_value(table)
            table.values[at] = key
            for k in range(last + 1, starts[p + 1]):
                table.values[at + k - last] = row[k]
                totals[2, row[k]] += n
                if key < 0:
                    totals[3, row[k]] += n
            length = starts[p + 1] - last
            close_list(table, length, n, digest_of(table.values, at, at + length))
    settle(table)


class CoreHessian(NamedTuple):
    """Second derivatives with respect to alpha, kappa and g: an arrow of dense blocks, one for every query.

    The block of query q, at ``offset[q]`` of ``blocks``, has the variables alpha of its rows, and then kappa of its
    rows unless kappa is by rank. The border has g last, and before it kappa of every rank if kappa is by rank.
    """

    blocks: Floats
    offset: Ints  # (Q + 1,)
    alpha_border: Floats  # (R, s)
    kappa_border: Floats  # (R, s)
    corner: Floats  # (s, s)


def core_value(s: PageStatistics, alpha: Floats, kappa: Floats, g: float) -> float:
    """Return the log-likelihood; minus infinity where a page has probability 0."""
    return _direct(s, alpha, kappa, g) + float(_tails_value(s.tails, alpha, kappa, float(g), np.empty(s.longest + 1)))


def core_gradient(s: PageStatistics, alpha: Floats, kappa: Floats, g: float) -> tuple[float, Floats, Floats, float]:
    """Return the log-likelihood and its derivatives with respect to alpha (R,), kappa and g."""
    d_alpha, d_kappa, d_g = np.zeros(alpha.size), np.zeros(kappa.size), np.zeros(1)
    value = _tails_gradient(s.tails, alpha, kappa, float(g), np.empty((2, s.longest + 1)), d_alpha, d_kappa, d_g)
    with np.errstate(divide="ignore"):
        d_alpha += _ratio(s.clicks, alpha) - _ratio(s.skips, 1.0 - alpha)
        d_kappa += _ratio(s.continued, kappa)
        d_g += _ratio(np.array([s.passed]), np.array([g]))
    return _direct(s, alpha, kappa, g) + float(value), d_alpha, d_kappa, float(d_g[0])


def core_hessian(s: PageStatistics, alpha: Floats, kappa: Floats, g: float, firsts: Ints) -> CoreHessian:
    """Return the second derivatives; rows ``firsts[q]`` to ``firsts[q + 1]`` are those of query q."""
    sizes = np.diff(firsts)
    width = sizes * (1 if s.by_rank else 2)
    offset = np.concatenate([[0], np.cumsum(width * width)]).astype(np.int64)
    shared = (kappa.size if s.by_rank else 0) + 1
    result = CoreHessian(
        np.zeros(offset[-1]), offset, np.zeros((alpha.size, shared)), np.zeros((alpha.size, shared)),
        np.zeros((shared, shared)),
    )  # fmt: skip
    of_row = np.repeat(np.arange(sizes.size), sizes)
    place = np.arange(alpha.size) - firsts[of_row]
    _tails_hessian(
        s.tails, alpha, kappa, float(g), s.by_rank, of_row, place, sizes, width, np.empty((8, s.longest + 1)), result
    )
    with np.errstate(divide="ignore"):
        of_alpha = -_ratio(s.clicks, alpha**2) - _ratio(s.skips, (1.0 - alpha) ** 2)
        of_kappa = -_ratio(s.continued, kappa**2)
    where = offset[of_row] + place * (width[of_row] + 1)
    np.add.at(result.blocks, where, of_alpha)
    if s.by_rank:
        result.corner[np.arange(kappa.size), np.arange(kappa.size)] += of_kappa
    else:
        np.add.at(result.blocks, where + sizes[of_row] * (width[of_row] + 1), of_kappa)
    if s.passed:
        result.corner[-1, -1] -= s.passed / g**2
    return result


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Quotients that are 0 where the numerator is."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=numerator > 0.0)


def _direct(s: PageStatistics, alpha: Floats, kappa: Floats, g: float) -> float:
    """The terms that need only counts."""
    total = _log_sum(s.clicks, alpha) + _log_sum(s.skips, 1.0 - alpha) + _log_sum(s.continued, kappa)
    return total + _log_sum(np.array([s.passed]), np.array([g]))


def _log_sum(weight: Floats, probability: Floats) -> float:
    used = weight > 0.0
    with np.errstate(divide="ignore"):
        return float(weight[used] @ np.log(probability[used]))


@kernel
def _tails_value(tails: ListTable, alpha: Floats, kappa: Floats, g: float, N: Floats) -> float:
    total, values = 0.0, tails.values
    for number in range(tails.weights.size):
        first, n = tails.starts[number] + 1, tails.weights[number]
        t, key = tails.starts[number + 1] - first, values[first - 1]
        N[t] = 1.0
        for k in range(t - 1, -1, -1):
            N[k] = (1.0 - alpha[values[first + k]]) * (1.0 - g + g * N[k + 1])
        goes_on = kappa[key] if key >= 0 else 1.0
        T = 1.0 - goes_on + goes_on * N[0]
        total += n * (math.log(T) if T > 0.0 else -math.inf)
    return total


@kernel
def _tails_gradient(
    tails: ListTable,
    alpha: Floats,
    kappa: Floats,
    g: float,
    work: Floats,
    d_alpha: Floats,
    d_kappa: Floats,
    d_g: Floats,
) -> float:
    N, dN = work[0], work[1]
    total, values = 0.0, tails.values
    for number in range(tails.weights.size):
        first, n = tails.starts[number] + 1, tails.weights[number]
        t, key = tails.starts[number + 1] - first, values[first - 1]
        N[t], dN[t] = 1.0, 0.0
        for k in range(t - 1, -1, -1):
            miss = 1.0 - alpha[values[first + k]]
            N[k] = miss * (1.0 - g + g * N[k + 1])
            dN[k] = miss * (N[k + 1] - 1.0 + g * dN[k + 1])
        goes_on = kappa[key] if key >= 0 else 1.0
        T = 1.0 - goes_on + goes_on * N[0]
        total += n * (math.log(T) if T > 0.0 else -math.inf)
        if key >= 0:
            d_kappa[key] += n * (N[0] - 1.0) / T
        d_g[0] += n * goes_on * dN[0] / T
        F = goes_on
        for k in range(t):
            row = values[first + k]
            d_alpha[row] -= n * F * (1.0 - g + g * N[k + 1]) / T
            F *= (1.0 - alpha[row]) * g
    return total


@kernel
def _tails_hessian(
    tails: ListTable,
    alpha: Floats,
    kappa: Floats,
    g: float,
    by_rank: bool,
    of_row: Ints,
    place: Ints,
    sizes: Ints,
    width: Ints,
    work: Floats,
    result: CoreHessian,
) -> None:
    N, dN, ddN, F, dF, M, dM, dT = work[0], work[1], work[2], work[3], work[4], work[5], work[6], work[7]
    blocks, corner = result.blocks, result.corner
    border, border_kappa = result.alpha_border, result.kappa_border
    G = corner.shape[0] - 1  # the place of g in the border
    values = tails.values
    for number in range(tails.weights.size):
        first, n = tails.starts[number] + 1, tails.weights[number]
        t, key = tails.starts[number + 1] - first, values[first - 1]
        N[t], dN[t], ddN[t] = 1.0, 0.0, 0.0
        for k in range(t - 1, -1, -1):
            miss = 1.0 - alpha[values[first + k]]
            M[k], dM[k] = 1.0 - g + g * N[k + 1], N[k + 1] - 1.0 + g * dN[k + 1]
            N[k], dN[k], ddN[k] = miss * M[k], miss * dM[k], miss * (2.0 * dN[k + 1] + g * ddN[k + 1])
        goes_on = kappa[key] if key >= 0 else 1.0
        T = 1.0 - goes_on + goes_on * N[0]
        F[0], dF[0] = 1.0, 0.0
        for k in range(t):
            miss = 1.0 - alpha[values[first + k]]
            F[k + 1], dF[k + 1] = F[k] * miss * g, (dF[k] * g + F[k]) * miss
            dT[k] = -goes_on * F[k] * M[k] / T
        dT_kappa, dT_g = (N[0] - 1.0) / T, goes_on * dN[0] / T
        q = of_row[values[first]]
        w, base = width[q], result.offset[q]
        corner[G, G] += n * (goes_on * ddN[0] / T - dT_g * dT_g)
        for j in range(t):
            row = values[first + j]
            r = place[row]
            blocks[base + r * w + r] -= n * dT[j] * dT[j]
            border[row, G] -= n * (goes_on * (dF[j] * M[j] + F[j] * dM[j]) / T + dT[j] * dT_g)
            between = g
            for k in range(j + 1, t):
                r2 = place[values[first + k]]
                second = n * (goes_on * F[j] * between * M[k] / T - dT[j] * dT[k])
                blocks[base + r * w + r2] += second
                blocks[base + r2 * w + r] += second
                between *= (1.0 - alpha[values[first + k]]) * g
            if key >= 0:
                second = -n * (F[j] * M[j] / T + dT[j] * dT_kappa)
                if by_rank:
                    border[row, key] += second
                else:
                    r2 = sizes[q] + place[key]
                    blocks[base + r * w + r2] += second
                    blocks[base + r2 * w + r] += second
        if key >= 0:
            second_g = n * (dN[0] / T - dT_kappa * dT_g)
            if by_rank:
                corner[key, key] -= n * dT_kappa * dT_kappa
                corner[key, G] += second_g
                corner[G, key] += second_g
            else:
                r2 = sizes[q] + place[key]
                blocks[base + r2 * w + r2] -= n * dT_kappa * dT_kappa
                border_kappa[key, G] += second_g
