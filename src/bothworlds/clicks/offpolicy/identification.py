r"""What a log determines of a target: how every placement is known, bounds on the others, and what to log for them.

Items and positions that were shown together form components. Within a component all products of attraction and
examination are determined; between components g and h a factor :math:`e^{u_h - u_g}` is free (attraction times
:math:`e^{-u}`, examination times :math:`e^{u}`). Two constraints bound it: examination does not rise with the position,
and neither attraction nor examination exceeds 1. Both are upper bounds on differences of u, also to an origin, so that
the tightest bounds are lengths of shortest paths (Floyd-Warshall). If the log contradicts falling examination between
components, there is a cycle of negative length, and that constraint is dropped.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.sparse.csgraph import NegativeCycleError, csgraph_from_dense, floyd_warshall

from ...extras import import_extra
from ...kernels import Floats, Ints
from ..fitting.log_linear import components_of
from ..pages import Pages
from .click_rates import FittedRates
from .logged import LoggedPages, Mask, Placements
from .result import Z95

FEWEST_PAGES = 30  # a placement that is tied to the rest by fewer is weakly determined
HOW = np.array(["shown", "examination", "weakly", "open"])
SHOWN, EXAMINATION, WEAKLY, OPEN = range(4)
MOST_NAMED, MOST_LOOKED_AT = 5, 10_000  # open placements
PRECISION = 0.1  # standard error of log examination that further pages should reach


class Identified(NamedTuple):
    """How the placements of a target are known."""

    placements: Placements  # one for every (query, item, position)
    how: Ints  # (T,) index in HOW
    here: Ints  # (T,) impressions at this position
    elsewhere: Ints  # (T,) and at others
    shares: tuple[float, float, float, float]  # of traffic, by HOW
    low: Floats  # (T,) bounds on the click rate of open placements
    high: Floats
    falling: bool  # whether bounds use that examination does not rise


def identify(logged: LoggedPages, placements: Placements, fit: FittedRates) -> Identified:
    """Return how the placements of a target are known; ``fit`` is that of the position-based model."""
    p = _together(logged, placements)
    row = fit.rows(p.query, p.item)
    at, design = np.flatnonzero(row >= 0), fit.design
    shown_of_row = np.bincount(design.row, design.shown, len(design.items))
    cell = fit._cell_of(row[at], p.position[at, None])
    here, elsewhere = np.zeros(row.size, np.int64), np.zeros(row.size, np.int64)
    here[at] = np.where(cell >= 0, design.shown[cell], 0.0)
    elsewhere[at] = shown_of_row[row[at]] - here[at]
    how = np.full(row.size, OPEN)
    sure = at[fit.fitted.determined(row[at], p.position[at, None])]
    how[sure] = EXAMINATION
    how[sure[_weak(fit, row[sure], p.position[sure])]] = WEAKLY
    how[here > 0] = SHOWN
    total = max(float(p.weight.sum()), 1e-300)
    shares = np.bincount(how, p.weight, 4) / total
    low, high, falling = _bounds(fit, row, p.position, how == OPEN)
    return Identified(p, how, here, elsewhere, tuple(shares.tolist()), low, high, falling)


def _together(logged: LoggedPages, p: Placements) -> Placements:
    """Placements added up over windows and groups."""
    _, n, m, _ = logged.shape
    keys, cell = np.unique((p.query * m + p.position) * (n + 1) + p.item + 1, return_inverse=True)
    place, item = np.divmod(keys, n + 1)
    zero, weight = np.zeros(keys.size, np.int64), np.bincount(cell, p.weight, keys.size)
    return Placements(zero, place // m, place // m, item - 1, place % m, zero, weight.astype(np.float64))


def _weak(fit: FittedRates, row: Ints, position: Ints) -> Mask:
    """Whether the examination of a position, relative to those of the item, is worth fewer than 30 shown results."""
    if not row.size:
        return np.zeros(0, bool)
    spread = fit.fitted.variance(row, position[:, None], shared=True)
    p = fit.fitted.predict(row, position[:, None])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((1.0 - p) / (p * np.maximum(spread, 1e-12)) < FEWEST_PAGES)


class _Gauges(NamedTuple):
    a: Floats  # (R,) log attraction and examination up to the gauges of components, NaN if unknown
    b: Floats
    rows: Ints  # components, -1 without one
    columns: Ints
    distance: Floats  # (G + 1, G + 1) upper bounds on u_h - u_g; the last is the origin


def _gauges(fit: FittedRates) -> tuple[_Gauges, bool]:
    design, found = fit.design, fit.fitted
    size, m = len(design.items), len(design.labels[0])
    live = (
        np.bincount(design.row, design.clicked, size) > 0.0,
        np.bincount(design.columns[:, 0], design.clicked, m) > 0.0,
    )
    rows, columns = components_of(design.row, design.columns, design.shown, live)
    a, b = found.row_effect, found.column_effect
    groups = int(columns.max(initial=-1)) + 1
    ceiling = np.full((groups + 1, groups + 1), np.inf)
    np.fill_diagonal(ceiling, 0.0)
    for g in range(groups):  # u_g <= -max b, and u_g >= max a
        ceiling[groups, g] = -np.nanmax(b[(columns == g) & np.isfinite(b)], initial=-np.inf)
        ceiling[g, groups] = -np.nanmax(a[(rows == g) & np.isfinite(a)], initial=-np.inf)
    ordered = ceiling.copy()
    for j in range(m):
        for k in range(j + 1, m):
            g, h = columns[j], columns[k]
            if g >= 0 and h >= 0 and g != h and np.isfinite(b[j]) and np.isfinite(b[k]):
                ordered[g, h] = min(ordered[g, h], b[j] - b[k])  # b_k + u_h <= b_j + u_g
    try:
        return _Gauges(a, b, rows, columns, _shortest(ordered)), True
    except NegativeCycleError:
        return _Gauges(a, b, rows, columns, _shortest(ceiling)), False


def _shortest(lengths: Floats) -> Floats:
    """Lengths of shortest paths; a length of 0 is an edge, which a dense matrix would not have."""
    return np.asarray(floyd_warshall(csgraph_from_dense(lengths, null_value=np.inf)))


def _bounds(fit: FittedRates, row: Ints, position: Ints, is_open: Mask) -> tuple[Floats, Floats, bool]:
    """Bounds on the click rates of open placements, NaN elsewhere."""
    low, high = np.full(row.size, np.nan), np.full(row.size, np.nan)
    if not is_open.any():
        return low, high, True
    (a, b, rows, columns, distance), falling = _gauges(fit)
    origin = len(distance) - 1
    for t in np.flatnonzero(is_open).tolist():
        i, j = int(row[t]), int(position[t])
        g, h = (int(rows[i]) if i >= 0 else -1), int(columns[j])
        top_a = a[i] + distance[g, origin] if g >= 0 and np.isfinite(a[i]) else 0.0  # log attraction at most
        top_b = b[j] + distance[origin, h] if h >= 0 and np.isfinite(b[j]) else 0.0
        if g >= 0 and h >= 0 and np.isfinite(a[i] + b[j]):
            ends = a[i] + b[j] - distance[h, g], a[i] + b[j] + distance[g, h]
        else:
            ends = -np.inf, np.inf
        low[t], high[t] = np.exp(ends[0]), np.exp(min(ends[1], top_a, top_b, 0.0))
    return np.minimum(low, high), high, falling


def bounds_of_value(known: float, error: float, fit: FittedRates, found: Identified) -> tuple[float, float]:
    """Return bounds on the value: that of the known placements, bounds on the others, 1.96 standard errors outside.

    ``known`` and its standard error are those of what the log determines; for the others it is that of attraction.
    """
    part = np.flatnonzero(found.how == OPEN)
    weight, design = found.placements.weight[part], fit.design
    row = fit.rows(found.placements.query[part], found.placements.item[part])
    clicked = np.bincount(design.row, design.clicked, len(design.items))
    ends = []
    for side, end in ((-1.0, found.low[part]), (1.0, found.high[part])):
        of_row = np.bincount(row + 1, weight * end, clicked.size + 1)[1:]  # without unknown items
        spread = float((of_row**2 / np.maximum(clicked, 1.0)).sum())
        ends.append(known + float(weight @ end) + side * Z95 * np.hypot(error, np.sqrt(spread)))
    return max(ends[0], 0.0), ends[1]


def placement_table(logged: LoggedPages, found: Identified, unknown: tuple[str, ...]) -> Any:
    """Return the Arrow table of placements."""
    p, pages = found.placements, logged.pages
    items = [pages.items[i] if i >= 0 else None for i in p.item.tolist()]
    return import_extra("pyarrow").table(
        {
            "query": [pages.queries[q] for q in p.query.tolist()],
            "item": items if len(unknown) != 1 else [unknown[0] if item is None else item for item in items],
            "position": [pages.positions[j] for j in p.position.tolist()],
            "shown_here": found.here,
            "shown_elsewhere": found.elsewhere,
            "how_determined": HOW[found.how].tolist(),
            "pages": p.weight * logged.total,
        }
    )


def what_to_log(logged: LoggedPages, found: Identified, fit: FittedRates, unknown: tuple[str, ...]) -> list[str]:
    """Return sentences: the open placements with most traffic, and which pages would determine them."""
    p, pages = found.placements, logged.pages
    part = np.flatnonzero(found.how == OPEN)
    if not part.size:
        return []
    part = part[np.argsort(-p.weight[part], kind="stable")]
    sentences = [f"The log does not determine {found.shares[OPEN]:.1%} of the placements of the target."]
    if unknown:
        listed = ", ".join(map(repr, unknown[:MOST_NAMED])) + (", ..." if len(unknown) > MOST_NAMED else "")
        sentences.append(f"The log never shows item{'s' * (len(unknown) > 1)} {listed}: show them on some pages.")
    (_, _, rows, columns, _), _ = _gauges(fit)
    row, swaps = fit.rows(p.query, p.item), dict[tuple[int, int], str]()
    starts = np.searchsorted(fit.design.row, np.arange(len(fit.design.items) + 1))
    for t in part[(p.item[part] >= 0) & (row[part] < 0)][:MOST_NAMED].tolist():
        sentences.append(
            f"The log never shows item {_item(pages, p, t)}: show it on at least {FEWEST_PAGES} pages, at any position "
            f"that is tied to position {pages.positions[p.position[t]]}."
        )
    for t in part[row[part] >= 0][:MOST_LOOKED_AT].tolist():
        j, own = int(p.position[t]), fit.design.columns[starts[row[t]] : starts[row[t] + 1], 0]
        tied = np.flatnonzero((columns == rows[row[t]]) & (columns >= 0)) if rows[row[t]] >= 0 else own
        nearest = int(tied[np.argmin(np.abs(tied - j))]) if tied.size else int(own[0])
        pair = (min(nearest, j), max(nearest, j))
        if pair in swaps or nearest == j or len(swaps) == MOST_NAMED:
            continue
        needed = _pages_for_swap(fit, nearest, j)
        share = needed / logged.total
        pages_of = f"about {needed:,} pages ({max(share, 1e-3):.1%} of the traffic)" if share < 1.0 else "all pages"
        only = ", ".join(str(pages.positions[k]) for k in own.tolist())
        swaps[pair] = (
            f"Item {_item(pages, p, t)} was only shown at position {only}, and not tied to position "
            f"{pages.positions[j]}: swap positions {pages.positions[pair[0]]} and {pages.positions[pair[1]]} on "
            f"{pages_of}{', of any query' if len(pages.queries) > 1 else ''}."
        )
    return [*sentences, *swaps.values()]


def _item(pages: Pages, p: Placements, t: int) -> str:
    """An item, with its query if there are several."""
    where = f" of query {pages.queries[p.query[t]]!r}" if len(pages.queries) > 1 else ""
    return f"{pages.items[p.item[t]]!r}{where}"


def _pages_for_swap(fit: FittedRates, j: int, k: int) -> int:
    """Pages on which two positions are swapped, until log examination has a standard error of 0.1."""
    shown, clicked = (np.maximum(part, 1) for part in fit.design.level_counts())
    rate = np.clip(clicked / shown, 1e-3, 0.999)
    return int(np.ceil(((1.0 - rate[j]) / rate[j] + (1.0 - rate[k]) / rate[k]) / PRECISION**2))
