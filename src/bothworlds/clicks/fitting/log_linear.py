r"""Fitting the position-based and the user browsing model: log click probabilities are sums of two effects.

With :math:`a = \log \alpha` of (query, item) and :math:`b = \log \beta` of columns, which are positions or pairs of a
position and the last click above, the log-likelihood :math:`\sum S (a_i + b_j) + F \log(1 - e^{a_i + b_j})` of clicks S
and missing clicks F is concave, and only products are determined. In every component of rows and columns that have
clicks and were shown together, one column has examination 1: the largest of positions; of pairs the first with clicks,
since the largest of several estimates would be too large, and with it all attraction.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import xlog1py, xlogy

from ...kernels import Floats, Ints
from ...statistics import log_linear
from ...statistics.rank_one.fit import fit_newton
from ..counts import Counts
from ..model.model import ClickModel, Estimates, Z, without_intervals
from ..pages import Pages
from .design import Design, design_of_counts, design_of_pages, fitted_model, last_clicks_of
from .em import fit_em
from .intervals import DROP
from .options import Options
from .warnings import browsing_warnings, curve_warnings

LIMIT = -1e-4  # log attraction above this is at its upper limit
Mask = NDArray[np.bool_]


class Curves(NamedTuple):
    """Logs of attraction (R,) and examination (S,), -inf for 0 and NaN where they are unknown; their variances."""

    a: Floats
    b: Floats
    variance: tuple[Floats, Floats]
    components: tuple[Ints, Ints]  # of rows and columns, -1 without
    identified: bool
    apart: Mask  # (S,) columns that only cells clicked every time connect with the one of examination 1
    log_likelihood: float
    steps: int
    converged: bool
    gain: float


def fit_position_based(counts: Counts, name: str, options: Options) -> ClickModel:
    """Return the fit of the position-based model, with one examination curve for all queries."""
    design = design_of_counts(counts)
    smooth = smoothed(design, options.prior)
    curves = _curves(smooth, design, _ordered_levels(smooth) if options.ordered else None, first=False)
    if options.method == "em":
        curves = _by_em(smooth, design, curves, options.iterations)
    model = _model(design, counts, name, curves, options)
    return replace(model, warnings=curve_warnings(model, design.level_counts()[0], curves.apart))


def fit_browsing(pages: Pages, name: str, options: Options) -> ClickModel:
    """Return the fit of the user browsing model."""
    design = design_of_pages(pages, [last_clicks_of(pages)])
    curves = _curves(smoothed(design, options.prior), design, None, first=True)
    model = _model(design, pages, name, curves, options)
    return replace(model, warnings=browsing_warnings(model, design.level_counts()[0], curves.apart))


def smoothed(design: Design, prior: float) -> Design:
    """Return the design with ``prior`` more impressions of every cell that was shown, clicked at the log's mean rate.

    >>> design = design_of_counts(Counts.from_tables([[9, 9], [2, 0]], [[6, 3], [1, 0]]))
    >>> smoothed(design, 2.0).shown.tolist(), smoothed(design, 2.0).clicked.tolist()
    ([11.0, 11.0, 4.0], [7.0, 4.0, 2.0])
    """
    extra = prior * (design.shown > 0.0)
    rate = design.clicked.sum() / design.shown.sum()
    return design._replace(shown=design.shown + extra, clicked=design.clicked + rate * extra)


def _model(design: Design, log: Counts | Pages, name: str, curves: Curves, options: Options) -> ClickModel:
    attraction, examination = _estimates(design, curves, options.intervals and options.method == "newton")
    rows, columns = curves.components
    return fitted_model(
        design,
        log,
        name,
        options.prior,
        item_parameters={"attraction": attraction},
        shared_parameters={"examination": examination},
        labels={"examination": tuple(map(str, design.labels[0]))},
        log_likelihood=curves.log_likelihood,
        method=options.method,
        iterations=curves.steps,
        converged=curves.converged,
        gain=curves.gain,
        identified=curves.identified,
        components={"items": rows, "columns": columns},
    )


def _curves(smooth: Design, design: Design, levels: Ints | None, first: bool) -> Curves:
    """The maximum for the smoothed design, with one examination for columns of the same level."""
    tie = np.arange(len(design.labels[0])) if levels is None else levels
    row, column, size = smooth.row, smooth.columns[:, 0], int(tie[-1]) + 1
    cells, cell = np.unique(row * size + tie[column], return_inverse=True)
    tied = cells // size, (cells % size)[:, None]
    shown, clicked = (np.bincount(cell, part, cells.size).astype(np.float64) for part in (smooth.shown, smooth.clicked))
    found = log_linear.fit(*tied, shown, clicked, rows=len(smooth.items), levels=[size])
    live = np.isfinite(found.row_effect), np.isfinite(found.column_effect)
    components = components_of(*tied, shown, live)
    anchor = _anchors(components[1], found.column_effect, first)
    of_rows, of_columns = (np.where(part >= 0, anchor[part], -1) for part in components)
    a, b = found.row_effect.copy(), found.column_effect.copy()
    a[live[0]] = np.minimum(a[live[0]] + found.column_effect[of_rows[live[0]]], 0.0)
    b[live[1]] -= found.column_effect[of_columns[live[1]]]
    a[(components[0] < 0) & ~np.isneginf(a)], b[components[1] < 0] = np.nan, np.nan
    variance = np.full(a.size, np.nan), np.full(size, np.nan)
    variance[0][live[0]] = found.variance(np.flatnonzero(live[0]), of_rows[live[0], None])
    apart = np.zeros(size, bool)
    if live[1].any():
        contrast = np.eye(size)[live[1]] - np.eye(size)[of_columns[live[1]]]
        apart[live[1]] = np.abs(contrast @ found.null).max(axis=1, initial=0.0) > 1e-6
        of_live = np.einsum("is,st,it->i", contrast, found.covariance, contrast)
        variance[1][live[1]] = np.where(apart[live[1]], np.nan, np.maximum(of_live, 0.0))
    lost = (np.bincount(tied[1][:, 0], shown, size) > 0.0) & (components[1] < 0)
    return Curves(
        a, b[tie], (variance[0], variance[1][tie]), (components[0], components[1][tie]),
        bool(found.null.shape[1] == 1 and not lost.any()), apart[tie], _likelihood(design, a, b[tie]),
        found.steps, found.converged, found.gain,
    )  # fmt: skip


def _likelihood(design: Design, a: Floats, b: Floats) -> float:
    """The log-likelihood of the design's own counts, whatever its prior."""
    with np.errstate(invalid="ignore"):
        p = np.nan_to_num(np.exp(np.minimum(a[design.row] + b[design.columns[:, 0]], 0.0)))
    return float((xlogy(design.clicked, p) + xlog1py(design.shown - design.clicked, -p)).sum())


def components_of(row: Ints, columns: Ints, shown: Floats, live: tuple[Mask, Mask]) -> tuple[Ints, Ints]:
    """Return the component of every row and every column, numbered by their first columns, -1 without one.

    A row or column without clicks has probability 0 at the maximum, on any scale, so it links nothing; it joins the
    component of one with clicks that it was shown with.
    """
    k, sizes, seen = columns[:, 0], (live[0].size, live[1].size), shown > 0.0
    linked = seen & live[0][row] & live[1][k]
    ends, whole = (row[linked], sizes[0] + k[linked]), sum(sizes)
    graph = coo_array((np.ones(ends[0].size, np.int8), ends), shape=(whole, whole))
    label = connected_components(graph, directed=False)[1].astype(np.int64)
    order = list(dict.fromkeys(label[sizes[0] :][live[1]].tolist()))
    number = np.full(int(label.max(initial=0)) + 1, -1)
    number[order] = np.arange(len(order))
    parts = number[label[: sizes[0]]], number[label[sizes[0] :]]
    for part, mine in zip(parts, live):
        part[~mine] = -1
    for part, other, index, partner, sure in ((*parts, row, k, live[1]), (*parts[::-1], k, row, live[0])):
        known = seen & sure[partner] & (part[index] < 0)
        np.maximum.at(part, index[known], other[partner[known]])
    return parts


def _anchors(component: Ints, effect: Floats, first: bool) -> Ints:
    """The column of examination 1 of every component: the one of the largest effect, or the first with clicks."""
    live = np.flatnonzero((component >= 0) & np.isfinite(effect))
    if not first:
        live = live[np.argsort(-effect[live], kind="stable")]
    anchor = np.full(int(component.max(initial=-1)) + 2, -1)  # the last for those without a component
    anchor[component[live[::-1]]] = live[::-1]
    return anchor


def _ordered_levels(design: Design) -> Ints:
    """(S,) levels of positions at the maximum under the constraint that examination does not rise: its flat parts.

    The constrained maximum is that of the problem in which the positions of a level have one examination.
    """
    tables = np.zeros((2, len(design.items), len(design.labels[0])))
    tables[:, design.row, design.columns[:, 0]] = design.shown, design.clicked
    beta = np.nan_to_num(fit_newton(*tables, ordered=True).examination, nan=-1.0)
    return np.concatenate([[0], np.cumsum(np.abs(np.diff(beta)) > 1e-9 * np.abs(beta[:-1]))]).astype(np.int64)


def _by_em(smooth: Design, design: Design, exact: Curves, iterations: int | None) -> Curves:
    """The same by expectation-maximisation: other values, and no variances."""
    sizes = len(design.items), len(design.labels[0])
    found = fit_em(smooth.row, smooth.columns[:, 0], smooth.shown, smooth.clicked, sizes, iterations)
    with np.errstate(divide="ignore"):
        a, b = np.log(found.alpha), np.log(found.beta)
    anchor = _anchors(exact.components[1], b, first=False)
    rows, columns = exact.components
    a, b = np.minimum(a + np.append(b, 0.0)[anchor[rows]], 0.0), b - np.append(b, 0.0)[anchor[columns]]
    a, b = np.where(np.isnan(exact.a), np.nan, a), np.where(np.isnan(exact.b), np.nan, b)
    unknown = np.full(a.size, np.nan), np.full(b.size, np.nan)
    value = _likelihood(design, a, b)
    return exact._replace(
        a=a, b=b, variance=unknown, log_likelihood=value, steps=found.passes, converged=found.converged, gain=np.nan
    )


def _estimates(design: Design, curves: Curves, intervals: bool) -> tuple[Estimates, Estimates]:
    """Values with intervals of the delta method: logs are nearly normal. At 0 and 1, intervals are one-sided.

    There the limit is where the likelihood is a twentieth of its maximum.
    """
    alpha, beta = np.exp(curves.a), np.exp(curves.b)
    if not intervals:
        return without_intervals(alpha), without_intervals(beta)
    row, column = design.row, design.columns[:, 0]
    parts = []
    for value, variance in zip((alpha, beta), curves.variance):
        error = np.sqrt(variance)
        with np.errstate(over="ignore"):
            parts.append(Estimates(value, value * error, value * np.exp(-Z * error), value * np.exp(Z * error)))
    items, positions = parts
    np.minimum(items.high, 1.0, out=items.high)
    exposed = (
        np.bincount(row, design.shown * np.nan_to_num(beta)[column], alpha.size),
        np.bincount(column, design.shown * np.nan_to_num(alpha)[row], beta.size),
    )
    for one, exposure in zip(parts, exposed):
        never = one.value == 0.0
        with np.errstate(divide="ignore"):
            one.error[never], one.low[never], one.high[never] = np.nan, 0.0, np.minimum(DROP / exposure[never], 1.0)
    full = curves.a > LIMIT
    items.error[full], items.high[full] = np.nan, 1.0
    items.low[full] = _lower_limits(design, np.nan_to_num(beta), full)[full]
    return items, positions


def _lower_limits(design: Design, beta: Floats, full: Mask) -> Floats:
    """(R,) the attraction at which the likelihood of an item is a twentieth of that at 1, by bisection of its log."""
    own = full[design.row]
    row, weight = design.row[own], beta[design.columns[own, 0]]
    clicked, missed = design.clicked[own], (design.shown - design.clicked)[own]

    def likelihood(a: Floats) -> Any:
        miss = np.log1p(-np.minimum(np.exp(a[row]) * weight, 1.0 - 1e-6))
        return np.bincount(row, clicked * a[row] + missed * miss, full.size)

    low, high = np.full(full.size, -20.0), np.full(full.size, -1e-6)
    best = likelihood(high)
    for _ in range(50):
        middle = 0.5 * (low + high)
        below = likelihood(middle) < best - DROP
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    return np.exp(high)
