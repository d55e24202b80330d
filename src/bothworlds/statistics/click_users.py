r"""Users of a click model: one family for all models.

A user who still reads at rank k, and whose last click above was at rank l (0 if there was none), clicks with

.. math:: q = \alpha_{d_k} \gamma_{k l} + b_k,

goes on after a click with probability :math:`\kappa`, of the item or of the rank, and after a skip with probability g.

=============================  ==================================================================================
model                          what is not 1, and 0 for b
=============================  ==================================================================================
position-based, click rates    alpha; gamma of the rank
trust bias                     alpha; gamma and b of the rank
user browsing                  alpha; gamma
cascade, dcm, sdbn, dbn, ccm   alpha, kappa and g, as in :mod:`bothworlds.statistics.chain`
=============================  ==================================================================================

The pair (k, l) is a *column*, numbered k (k - 1) / 2 + l. Kernels count ranks from 0. Pages are arrays: results
``starts[p]`` to ``starts[p + 1]`` of ``row``, the index of the item, and ``rank`` belong to page p.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..kernels import Floats, Ints, inner_kernel, kernel
from .chain import FAMILIES


class Users(NamedTuple):
    """The parameters of users of R items at m ranks, and a work array."""

    attraction: Floats  # (R,) alpha
    examination: Floats  # (m (m + 1) / 2,) gamma, by column
    offset: Floats  # (m,) b
    continuation: Floats  # kappa: (R,) of items, or (m,) of ranks
    skip: float  # g
    by_rank: bool
    ranks: Ints  # (m,) 0 to m - 1: those of a full list
    work: Floats  # (m + 1,)


def make_users(
    attraction: Floats,
    m: int,
    *,
    examination: Floats | None = None,
    offset: Floats | None = None,
    continuation: Floats | None = None,
    skip: float = 1.0,
    by_rank: bool = False,
) -> Users:
    """Return users of m ranks; by default they examine every rank, and always go on."""
    return Users(
        attraction,
        np.ones(m * (m + 1) // 2) if examination is None else examination,
        np.zeros(m) if offset is None else offset,
        np.ones(attraction.size) if continuation is None else continuation,
        float(skip),
        bool(by_rank),
        np.arange(m),
        np.empty(m + 1),
    )


def users_of(model: str, items: Mapping[str, Floats], shared: Mapping[str, Floats], rows: int, m: int) -> Users:
    """Return the users of a click model with parameters of items (R,) and shared ones, by name."""
    if model in FAMILIES:
        family = FAMILIES[model]
        alpha, kappa, g = family.core(
            np.array([items[name] for name in family.items]), np.concatenate([np.zeros(0), *shared.values()])
        )
        return make_users(alpha, m, continuation=kappa, skip=g, by_rank=family.by_rank)
    if model == "ubm":
        return make_users(items["attraction"], m, examination=shared["examination"])
    of_rank = np.repeat(np.arange(m), np.arange(1, m + 1))
    if model == "trust":
        return make_users(items["attraction"], m, examination=shared["slope"][of_rank], offset=shared["offset"])
    if model == "item-ctr":
        return make_users(items["rate"], m)
    if model == "rank-ctr":
        return make_users(np.ones(rows), m, examination=shared["rate"][of_rank])
    return make_users(items["attraction"], m, examination=shared["examination"][of_rank])


def table_of(users: Users) -> Floats:
    """Return the click probabilities (R, m) of users without a click above."""
    first = users.ranks * (users.ranks + 1) // 2
    return np.clip(users.attraction[:, None] * users.examination[first] + users.offset, 0.0, 1.0)


def ranks_of_column(column: int) -> tuple[int, int]:
    """Return the rank, from 1, and the rank of the last click above of a column.

    >>> [ranks_of_column(column) for column in range(4)]
    [(1, 0), (2, 0), (2, 1), (3, 0)]
    """
    rank = 1
    while rank * (rank + 1) // 2 <= column:
        rank += 1
    return rank, column - rank * (rank - 1) // 2


def columns_of(starts: Ints, rank: Any, click: Any) -> Ints:
    """Return the column of every result; ``rank`` counts from 0.

    >>> columns_of(np.array([0, 3, 5]), np.array([0, 1, 2, 0, 1]), np.array([0, 1, 0, 1, 0])).tolist()
    [0, 1, 5, 0, 2]
    """
    above = np.asarray(rank, np.int64)
    page = np.repeat(np.arange(starts.size - 1), np.diff(starts)) * (int(above.max(initial=0)) + 2)
    # The running maximum over results: a page begins above all of the page before.
    last = np.maximum.accumulate(page + np.where(np.asarray(click) == 1, above + 1, 0))
    before = np.concatenate([[0], last[:-1]])
    return above * (above + 1) // 2 + np.maximum(before - page, 0)


@inner_kernel
def _hit(users: Users, row: int, rank: int, last: int) -> float:
    """The probability of a click, which fits bound up to rounding."""
    q = users.attraction[row] * users.examination[rank * (rank + 1) // 2 + last] + users.offset[rank]
    return min(max(q, 0.0), 1.0)


@inner_kernel
def _going_on(users: Users, row: int, rank: int) -> float:
    return users.continuation[rank if users.by_rank else row]


@kernel
def conditional_probabilities(users: Users, starts: Ints, row: Any, rank: Any, click: Any, p: Floats) -> None:
    r"""Fill in :math:`P(c_k = 1 \mid c_{<k}) = e_k q_k` of every result.

    e is the probability that the user still reads: 1 at first, then :math:`\kappa` after a click, and :math:`g e_k (1 -
    q_k) / (1 - e_k q_k)` after a skip.
    """
    for page in range(starts.size - 1):
        e, last = 1.0, 0
        for k in range(starts[page], starts[page + 1]):
            q = _hit(users, row[k], rank[k], last)
            p[k] = e * q
            if click[k] == 1:
                e, last = _going_on(users, row[k], rank[k]), int(rank[k]) + 1
            else:
                left = 1.0 - e * q
                e = users.skip * (e * (1.0 - q) / left if left > 0.0 else 1.0)


@kernel
def marginal_probabilities(users: Users, starts: Ints, row: Any, rank: Any, p: Floats) -> None:
    """Fill in the probability of a click of every result."""
    for page in range(starts.size - 1):
        _read_first(users)
        for k in range(starts[page], starts[page + 1]):
            p[k] = _read_on(users, row[k], int(rank[k]))


@kernel
def expected_clicks(users: Users, row: Any, rank: Any, start: int, stop: int) -> float:
    """Return the expected number of clicks on one page."""
    _read_first(users)
    total = 0.0
    for k in range(start, stop):
        total += _read_on(users, row[k], int(rank[k]))
    return total


@inner_kernel
def _read_first(users: Users) -> None:
    for last in range(users.work.size):
        users.work[last] = 0.0
    users.work[0] = 1.0


@inner_kernel
def _read_on(users: Users, row: int, rank: int) -> float:
    r"""Return the probability of a click at a rank, :math:`\sum_l u_k(l) q_{kl}`, and move on to the next one.

    ``users.work`` has :math:`u_k(l)`, the probability that the user reads at k and the last click above is at l.
    """
    u, hits = users.work, 0.0
    for last in range(rank + 1):
        if u[last] > 0.0:
            hit = u[last] * _hit(users, row, rank, last)
            hits += hit
            u[last] = (u[last] - hit) * users.skip
    u[rank + 1] = hits * _going_on(users, row, rank)
    return hits


@kernel
def simulate(users: Users, rng: Any, starts: Ints, row: Any, rank: Any, click: Any) -> None:
    """Draw the clicks of every page."""
    for page in range(starts.size - 1):
        draw_clicks(users, rng, row, rank, starts[page], starts[page + 1], click)


@kernel
def draw_clicks(users: Users, rng: Any, row: Any, rank: Any, start: int, stop: int, click: Any) -> None:
    """Draw the clicks of one page, with two uniform numbers for every result, whether they are needed or not."""
    reads, last = True, 0
    for k in range(start, stop):
        attracted, goes_on = rng.random() < _hit(users, row[k], rank[k], last), rng.random()
        click[k] = 1 if reads and attracted else 0
        if click[k] == 1:
            last = int(rank[k]) + 1
            reads = goes_on < _going_on(users, row[k], rank[k])
        else:
            reads = reads and goes_on < users.skip
