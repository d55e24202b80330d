"""Fitting the user browsing model: the rank-one fit with (rank, rank of the last click above) in place of positions."""

from __future__ import annotations

import numpy as np

from ...kernels import Floats
from ...statistics.browsing import columns_of, ranks_of_column
from ..counts import Counts
from ..model.click_model import ClickModel, Estimates
from ..model.model import Model
from ..model.uncertainty import Spread
from ..pages import different_keys
from .optimiser import Settings
from .page_rows import PageRows
from .rank_one_fit import fit_rank_one


def column_counts(rows: PageRows) -> Counts:
    """Return impressions and clicks per (query, item, column), with the numbers of columns as positions."""
    pages = rows.pages
    n, m = len(pages.items), len(pages.positions)
    columns = m * (m + 1) // 2
    column = np.empty(rows.row.size, np.int64)
    columns_of(pages.starts, pages.position, pages.click, column)
    page = pages.of_page()
    keys = (pages.query[page] * n + pages.item) * columns + column
    cells, place = different_keys(keys, len(pages.queries) * n * columns)
    weight = pages.count[page]
    shown, clicked = (np.bincount(place, part, cells.size) for part in (weight, weight * pages.click))
    codes = cells // (n * columns), cells // columns % n, cells % columns
    numbers = shown.astype(np.int64), clicked.astype(np.int64)
    return Counts(pages.items, pages.queries, tuple(range(columns)), *codes, *numbers, pages.origin, pages.pages)


def fit_browsing(rows: PageRows, prior: float, intervals: bool) -> ClickModel:
    """Return the maximum-likelihood fit of the user browsing model.

    The problem is concave, and all products are at most 1. In every component the first column with clicks has
    examination 1, usually that of the first position: the largest of several estimates would be too large, and with it
    all attraction. A column that was never seen, or that only had items without clicks and no clicks, has no
    examination.
    """
    settings = Settings(prior=float(prior), first_anchor=True)
    fitted = fit_rank_one(column_counts(rows), settings, "delta" if intervals else None)
    of_items, of_columns = _anchor_examination(fitted)
    positions = rows.pages.positions
    ranks = [ranks_of_column(column) for column in range(fitted.examination.size)]
    labels = tuple(f"{positions[k - 1]} after {positions[last - 1] if last else 'none'}" for k, last in ranks)
    return ClickModel(
        model="ubm",
        items=fitted.items,
        queries=fitted.queries,
        positions=positions,
        item_parameters={"attraction": _times(of_items, fitted.attraction, fitted.item_spread)},
        shared_parameters={"examination": _times(1.0 / of_columns, fitted.examination, fitted.position_spread)},
        labels={"examination": labels},
        item_counts=fitted.item_counts,
        log_likelihood=fitted.log_likelihood,
        pages=rows.pages.pages,
        method="newton",
        prior=float(prior),
        iterations=fitted.iterations,
        converged=fitted.converged,
        gain=0.0 if fitted.converged else float("nan"),
        identified=fitted.identified,
        warnings=_warnings(fitted, labels),
        origin=rows.pages.origin,
        components={"items": fitted.components.items, "columns": fitted.components.positions},
    )


def _anchor_examination(fitted: Model) -> tuple[Floats, Floats]:
    """(n,) and (columns,) the fitted examination of the first column with clicks in the component of each."""
    at = np.ones(fitted.examination.size + 1)  # the last for those without a component
    with_clicks = np.flatnonzero((fitted.components.positions >= 0) & (fitted.examination > 0.0))[::-1]
    at[fitted.components.positions[with_clicks]] = fitted.examination[with_clicks]
    return at[fitted.components.items], at[fitted.components.positions]


def _times(factor: Floats, values: Floats, spread: Spread) -> Estimates:
    return Estimates(factor * values, Spread(*(factor * part for part in spread)))


def _warnings(fitted: Model, labels: tuple[str, ...]) -> tuple[str, ...]:
    sentences = []
    if not fitted.converged:
        sentences.append(f"Newton's method did not converge in {fitted.iterations} steps.")
    seen = fitted.position_counts[0] > 0
    unseen = [label for label, here in zip(labels, seen) if not here]
    lost = [label for label, here, part in zip(labels, seen, fitted.components.positions) if here and part < 0]
    groups = int(fitted.components.positions.max(initial=-1)) + 1
    if unseen:
        sentences.append(f"{len(unseen)} of {len(labels)} columns, such as {unseen[0]}, were never seen.")
    if lost:
        sentences.append(
            f"Not identified: the columns {', '.join(lost[:5])}{', ...' if len(lost) > 5 else ''} had no clicks and no "
            "items that have clicks elsewhere."
        )
    if groups > 1:
        sentences.append(
            f"Not identified: there are {groups} groups of items and columns that were never shown together; values of "
            "different groups cannot be compared."
        )
    elif not fitted.identified and not lost:
        sentences.append("Not identified: some columns are connected only by items that were clicked every time.")
    return tuple(sentences)
