r"""Exact sampling of a ranking with given marginals.

The learner depends on the marginals only, so any exact sampler will do; this one is chosen for speed.

1. *Pack.* Rows whose sums together are at most 1 are put into one bin. A bin gets at most one position, and gives it to
   one of its members in proportion to their entries there. At most 2m + 1 bins remain, for any number of items.
2. *Peel.* A *seating* assigns one bin to each position, and the other bins to an additional last column that holds the
   slack of the bins. It can be subtracted from the matrix with the weight g of its smallest entry: with probability g
   it is the result, otherwise the remainder is peeled again, with a seating improved by exchanges. The first seating
   has the largest weight and is computed once for every x; for a policy that has converged its g is near 1, and a draw
   costs O(m).
3. *Round.* The remainder that no simple exchange can peel (one or two per cent of draws) is decided column by column by
   dependent rounding (Gandhi, Khuller, Parthasarathy and Srinivasan, J. ACM 53, 2006). Two bins with mass in a column
   shift mass around a cycle of four entries: theirs in this column and in a later one. The direction is random, with
   odds that preserve every expectation, and at least one of the four entries becomes zero. For two bins without a
   second column in common, a walk finds a longer cycle.

Every step preserves column sums, keeps rows within their limit and is a martingale in each entry. This proves that the
sampler is exact; the tests also run this source in rational arithmetic over all outcomes.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ..kernels import Floats, Ints, inner_kernel, kernel
from .feasible import repair
from .polytope import as_marginals

TINY = 1e-12  # less mass is rounding
PEELS = 8  # seatings tried for every position before the rest is rounded


class DrawWork(NamedTuple):
    """Work arrays of a draw, for k bins and m positions; their contents carry no information to the next one."""

    mass: Floats  # (k, m + 1) the remainder during a draw
    seat: Ints  # (k,) the present seating
    rows: Ints  # (m + 3,) the walk: rows[i] -cols[i]- rows[i+1] ...
    cols: Ints  # (m + 3,)
    row_at: Ints  # (k,) index of a bin in the walk, or -1
    col_at: Ints  # (m + 1,) index of a column in the walk, or -1


class Urn(NamedTuple):
    """The bins and the first seating, made by ``prepare``.

    k bins, n items, m positions; column m is the slack of the bins. If x has fewer than n rows, all remaining items
    share its last one; a bin has an interval of them beside its own list of members.
    """

    n_rows: Ints  # (1,) number of rows of x
    bins: Ints  # (1,) number of bins in use
    packed: Floats  # (k, m + 1) sum of the members of a bin
    head: Ints  # (k,) first member of a bin with a row of its own, or -1
    following: Ints  # (n,) next member of the same bin, or -1
    shared_from: Ints  # (k,) first member of a bin among the items that share a row
    shared: Ints  # (k,) number of such members
    first: Ints  # (k,) the first seating: the column of every bin
    list: Ints  # (m,) the same, as the bin of every column
    weight: Floats  # (1,) of the first seating
    work: DrawWork


def make_urn(n: int, m: int) -> Urn:
    """Allocate an urn for n x m marginals."""
    k = min(n, 2 * m + 1)
    return Urn(
        n_rows=np.zeros(1, np.int64),
        bins=np.zeros(1, np.int64),
        packed=np.zeros((k, m + 1)),
        head=np.full(k, -1),
        following=np.full(n, -1),
        shared_from=np.zeros(k, np.int64),
        shared=np.zeros(k, np.int64),
        first=np.zeros(k, np.int64),
        list=np.zeros(m, np.int64),
        weight=np.zeros(1),
        work=DrawWork(
            mass=np.zeros((k, m + 1)),
            seat=np.zeros(k, np.int64),
            rows=np.zeros(m + 3, np.int64),
            cols=np.zeros(m + 3, np.int64),
            row_at=np.full(k, -1),
            col_at=np.full(m + 1, -1),
        ),
    )


def sample_ranking(marginals: ArrayLike, rng: np.random.Generator) -> Ints:
    """Draw one item for every position, all different, with P(item i at position j) = ``marginals[i, j]``.

    In ``marginals`` (n_items, n_positions), columns sum to 1 and rows to at most 1. Returns items (n_positions,).

    Two items that are never shown together, and one that always is:

    >>> import numpy as np
    >>> x = np.array([[0.5, 0.0], [0.5, 0.0], [0.0, 1.0]])
    >>> rng = np.random.default_rng(7)
    >>> draws = np.array([sample_ranking(x, rng) for _ in range(1000)])
    >>> sorted({tuple(d) for d in draws.tolist()})
    [(0, 2), (1, 2)]
    >>> bool(450 < (draws[:, 0] == 0).sum() < 550)
    True
    """
    given = as_marginals(marginals)
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator; got {rng!r}")
    n, m = given.shape
    x = np.empty_like(given)
    repair(given, np.ones(n), given.sum(axis=1) - 1.0, x, np.empty(m), np.empty(n))
    urn, ranking = make_urn(n, m), np.empty(m, np.int64)
    prepare(x, urn)
    draw(x, rng, urn, ranking)
    return ranking


@kernel
def prepare(x: Floats, urn: Urn) -> None:
    """Pack the rows of x into bins and compute the first seating; required once for every x.

    If x has fewer rows than the urn has items, the items from its last row on share that row.
    """
    m = x.shape[1]
    urn.n_rows[0] = x.shape[0]
    k = pack(x, urn)
    urn.bins[0] = k
    for b in range(k):
        urn.first[b] = m
    for j in range(m):
        best = -1
        for b in range(k):
            if urn.first[b] == m and (best < 0 or urn.packed[b, j] > urn.packed[best, j]):
                best = b
        urn.first[best] = j
    urn.weight[0] = max(0.0, improve_seating(k, urn.packed, urn.first))
    for b in range(k):
        if urn.first[b] < m:
            urn.list[urn.first[b]] = b


@inner_kernel
def pack(x: Floats, urn: Urn) -> int:
    """Put every row into the open bin if it fits; otherwise close the fuller of the two and leave the other open.

    Returns the number of bins. Two bins that do not fit into one hold more than 1 together, so closed bins hold more
    than 1/2 each, and there are at most 2m of them.
    """
    rows, m = x.shape
    packed, head, following = urn.packed, urn.head, urn.following
    bins, bin_open = 0, 0
    for i in range(rows):
        total = 0.0
        for j in range(m):
            total += x[i, j]
        if i == rows - 1 and rows < following.size:
            return pack_shared(x, i, total, bins, bin_open, urn)
        if bins > 0 and total <= packed[bin_open, m] + 0.01 * TINY:
            following[i] = head[bin_open]
            head[bin_open] = i
            for j in range(m):
                packed[bin_open, j] += x[i, j]
            packed[bin_open, m] -= total
        else:
            head[bins] = i
            following[i] = -1
            urn.shared[bins] = 0
            for j in range(m):
                packed[bins, j] = x[i, j]
            packed[bins, m] = 1.0 - total
            if packed[bins, m] > packed[bin_open, m]:
                bin_open = bins
            bins += 1
    return bins


@inner_kernel
def pack_shared(x: Floats, row: int, total: float, bins: int, bin_open: int, urn: Urn) -> int:
    """Put the items from ``row`` on, which share that row with sum ``total``, into bins by the same rule.

    Bins take as many at a time as fit, so the work does not grow with the number of items.
    """
    m, n = x.shape[1], urn.following.size
    packed = urn.packed
    i = row
    while i < n:
        number = 0
        if bins > 0:
            room = packed[bin_open, m] + 0.01 * TINY
            number = n - i if total * (n - i) <= room else int(room / total)
        if number > 0:
            if urn.shared[bin_open] == 0:
                urn.shared_from[bin_open] = i
            urn.shared[bin_open] += number
            for j in range(m):
                packed[bin_open, j] += number * x[row, j]
            packed[bin_open, m] -= number * total
            i += number
        else:
            urn.head[bins] = -1
            urn.shared_from[bins] = i
            urn.shared[bins] = 1
            for j in range(m):
                packed[bins, j] = x[row, j]
            packed[bins, m] = 1.0 - total
            if packed[bins, m] > packed[bin_open, m]:
                bin_open = bins
            bins += 1
            i += 1
    return bins


@inner_kernel
def improve_seating(k: int, mass: Floats, seat: Ints) -> float:
    """Exchange the smallest entry of the seating with the best other seat while that helps; return the smallest."""
    for _ in range(2 * k):
        weak, least = 0, mass[0, seat[0]]
        for b in range(1, k):
            if mass[b, seat[b]] < least:
                weak, least = b, mass[b, seat[b]]
        other, best = -1, least
        for b in range(k):
            v = min(mass[weak, seat[b]], mass[b, seat[weak]])
            if v > best:
                other, best = b, v
        if other < 0:
            return least
        seat[weak], seat[other] = seat[other], seat[weak]
    return least


@kernel
def draw(x: Floats, rng: Any, urn: Urn, ranking: Ints) -> None:
    """Draw a ranking with marginals x, for which the urn was prepared; ``rng`` has a method ``random()``.

    If x has fewer rows than the urn has items, the items from its last row on have the marginals of that row.
    """
    m = ranking.size
    if urn.weight[0] > 1.0 - TINY or bernoulli(rng, urn.weight[0], 1.0 - urn.weight[0]):
        for j in range(m):
            ranking[j] = member(x, urn.list[j], j, rng, urn)
    else:
        draw_remainder(x, rng, urn, ranking)


@inner_kernel
def draw_remainder(x: Floats, rng: np.random.Generator, urn: Urn, ranking: Ints) -> None:
    """Draw from what remains after the first seating: peel further seatings, then round the rest."""
    k, m = urn.bins[0], ranking.size
    mass, seat = urn.work.mass, urn.work.seat
    for b in range(k):
        for c in range(m + 1):
            mass[b, c] = urn.packed[b, c]
        seat[b] = urn.first[b]
    left = subtract_seating(1.0, urn.weight[0], k, mass, seat)
    for _ in range(PEELS * m):
        weight = improve_seating(k, mass, seat)
        if weight <= TINY:
            break
        if weight >= left - TINY or bernoulli(rng, weight, left - weight):
            for b in range(k):
                if seat[b] < m:
                    ranking[seat[b]] = member(x, b, seat[b], rng, urn)
            return
        left = subtract_seating(left, weight, k, mass, seat)
    round_columns(x, rng, urn, ranking)


@inner_kernel
def subtract_seating(left: float, weight: float, k: int, mass: Floats, seat: Ints) -> float:
    """Subtract a seating that was not drawn from the mixture; return the weight that remains."""
    for b in range(k):
        mass[b, seat[b]] -= weight
    return left - weight


@inner_kernel
def round_columns(x: Floats, rng: np.random.Generator, urn: Urn, ranking: Ints) -> None:
    """Choose the item of one column after the other by dependent rounding."""
    m = ranking.size
    mass = urn.work.mass
    for j in range(m):
        winner = 0
        while mass[winner, j] <= TINY and winner + 1 < urn.bins[0]:
            winner += 1
        for b in range(winner + 1, urn.bins[0]):
            if mass[b, j] > TINY:
                winner = round_pair(winner, b, j, rng, urn)
        for c in range(j, m + 1):
            mass[winner, c] = 0.0
        ranking[j] = member(x, winner, j, rng, urn)


@inner_kernel
def bernoulli(rng: np.random.Generator, a: float, b: float) -> bool:
    """Return True with probability a / (a + b)."""
    return rng.random() * (a + b) < a


@inner_kernel
def member(x: Floats, b: int, j: int, rng: np.random.Generator, urn: Urn) -> int:
    """Draw a member of bin b with probabilities proportional to the entries in column j."""
    i, shared = urn.head[b], urn.shared[b]
    if i >= 0 and (urn.following[i] >= 0 or shared > 0):
        left = rng.random() * urn.packed[b, j]
        while i >= 0 and (urn.following[i] >= 0 or shared > 0):
            left -= x[i, j]
            if left < 0.0:
                break
            i = urn.following[i]
    if i < 0:
        return urn.shared_from[b] + min(int(rng.random() * shared), shared - 1)
    return i


@inner_kernel
def round_pair(a: int, b: int, j: int, rng: np.random.Generator, urn: Urn) -> int:
    """Shift mass between bins a and b until one of them has none in column j; return the other."""
    mass = urn.work.mass
    while True:
        c, most = -1, TINY
        for k in range(j + 1, mass.shape[1]):
            common = min(mass[a, k], mass[b, k])
            if common > most:
                c, most = k, common
        if c >= 0:
            gain = min(mass[b, j], mass[a, c])
            loss = min(mass[a, j], mass[b, c])
            if not bernoulli(rng, loss, gain):
                gain = -loss
            mass[a, j] += gain
            mass[b, j] -= gain
            mass[a, c] -= gain
            mass[b, c] += gain
        else:
            shift_around_cycle(a, j, rng, urn)
        if mass[b, j] <= TINY:
            return a
        if mass[a, j] <= TINY:
            return b


@inner_kernel
def shift_around_cycle(a: int, j: int, rng: np.random.Generator, urn: Urn) -> None:
    """Shift mass around the cycle that a walk from bin a through column j ends in."""
    mass, rows, cols = urn.work.mass, urn.work.rows, urn.work.cols
    lo, hi = walk(a, j, urn)
    if lo == hi:
        drop_rounding_error(hi, urn)
        return
    gain, loss = math.inf, math.inf
    for k in range(lo, hi):
        loss = min(loss, mass[rows[k], cols[k]])
        gain = min(gain, mass[rows[k + 1], cols[k]])
    if not bernoulli(rng, loss, gain):
        gain = -loss
    for k in range(lo, hi):
        mass[rows[k], cols[k]] += gain
        mass[rows[k + 1], cols[k]] -= gain


@inner_kernel
def drop_rounding_error(length: int, urn: Urn) -> None:
    """Set the smallest entry on a walk without a cycle to zero: it was left by rounding."""
    mass, rows, cols = urn.work.mass, urn.work.rows, urn.work.cols
    row, col = rows[0], cols[0]
    for k in range(length):
        if mass[rows[k], cols[k]] < mass[row, col]:
            row, col = rows[k], cols[k]
        if k > 0 and mass[rows[k], cols[k - 1]] < mass[row, col]:
            row, col = rows[k], cols[k - 1]
    mass[row, col] = 0.0


@inner_kernel
def walk(row: int, col: int, urn: Urn) -> tuple[int, int]:
    """Follow entries above TINY, column to row to column, until a row or column repeats.

    Returns (lo, hi): the cycle alternates entries (rows[k], cols[k]) and (rows[k+1], cols[k]) for lo <= k < hi, with
    rows[hi] = rows[lo]. Every row and column with such an entry has a second one, since its total is a multiple of that
    of a full row; if rounding hides it, lo = hi.
    """
    rows, cols = urn.work.rows, urn.work.cols
    first, length, lo = col, 0, -1
    rows[0] = row
    urn.work.row_at[row] = 0
    while lo < 0:
        cols[length] = col
        urn.work.col_at[col] = length
        row = other_row(row, col, first, urn)
        length += 1
        rows[length] = row
        if row < 0:
            lo = length
        elif urn.work.row_at[row] >= 0:
            lo = urn.work.row_at[row]
        else:
            urn.work.row_at[row] = length
            col = other_column(row, col, first, urn.work.mass)
            if urn.work.col_at[col] >= 0:
                lo = urn.work.col_at[col] + 1
                cols[length] = col
                length += 1
                rows[length] = rows[lo]
    for k in range(length):
        urn.work.row_at[rows[k]] = -1
    for j in range(first, urn.work.col_at.size):
        urn.work.col_at[j] = -1
    return lo, length


@inner_kernel
def other_row(unlike: int, j: int, first: int, urn: Urn) -> int:
    """Return a row other than ``unlike`` with entries in column j and in another one from ``first`` on; -1 if none."""
    for b in range(urn.bins[0]):
        if b != unlike and urn.work.mass[b, j] > TINY and other_column(b, j, first, urn.work.mass) >= 0:
            return b
    return -1


@inner_kernel
def other_column(row: int, unlike: int, first: int, mass: Floats) -> int:
    """Return a column other than ``unlike``, from ``first`` on, in which the row has an entry; -1 if none."""
    for j in range(mass.shape[1] - 1, first - 1, -1):
        if j != unlike and mass[row, j] > TINY:
            return j
    return -1
