r"""The backtest: predict the clicks of lists that were held out, with fits to the rest of the log.

Blocks are (query, list), or (query, window) where every window has one list per query or rows do not form pages. Each
of five folds is held out in turn. For the clicks per page y of a block, its prediction :math:`\hat y` and
:math:`\bar y`, the mean of the query's other pages (no change):

.. math::

    \varphi = \text{mean} \frac{(\hat y - y)^2}{\text{se}_y^2 + \text{se}_{\hat y}^2}, \qquad
    \text{slope} = \frac{\sum n (y - \bar y)(\hat y - \bar y)}{\sum n (\hat y - \bar y)^2}.

A model that is right has :math:`\varphi` and slope near 1. Intervals are widened by :math:`\sqrt{\varphi}`; the slope
shows a bias that does not average out. The squared error of no change exceeds that of the model by
:math:`\sum n (\hat y - \bar y)^2 (2\,\text{slope} - 1)`: the model is better if the slope is above 1/2,
and the standard error of the slope says how surely.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...extras import import_extra
from ...kernels import Floats, Ints
from ...progress import progress_bar
from ..pages import different_keys
from .click_rates import RateModel
from .logged import LoggedPages, Placements
from .result import Candidate

FOLDS = 5
FEWEST_PAGES = 30  # of a block
FEWEST_BLOCKS = 10


class Blocks(NamedTuple):
    """B blocks with at least 30 pages, in an order that only the log determines."""

    of_page: Ints  # (P,) -1 for pages of smaller lists
    query: Ints  # (B,)
    example: Ints  # (B,) a page of the block
    size: Floats  # (B,) pages
    observed: Floats  # (B,) clicks per page
    variance: Floats  # (B,) sampling variance of `observed`


class Backtest(NamedTuple):
    """Predictions (B,) of every model; NaN where the rest of the log does not determine them."""

    blocks: Blocks
    baseline: Floats  # no change
    predicted: dict[str, Floats]
    variance: dict[str, Floats]
    candidates: tuple[Candidate, ...]

    def of(self, model: str | None) -> Candidate | None:
        """Return what was found about a model; None without enough blocks."""
        return next((one for one in self.candidates if one.model == model), None)

    def table(self, logged: LoggedPages, chosen: str | None) -> Any:
        """Return the Arrow table of the blocks that the chosen model predicts, or else the one that predicts best."""
        best = min(self.candidates, key=lambda one: one.squared_error, default=None)
        found, pages = self.of(chosen) or best, logged.pages
        b, rows, model = self.blocks, np.zeros(0, np.int64), found.model if found else ""
        if found is not None:
            rows = np.flatnonzero(~np.isnan(self.predicted[model] + self.baseline))
        lists = []
        for page in b.example[rows].tolist():
            own = slice(pages.starts[page], pages.starts[page + 1])
            lists.append(" > ".join(pages.items[i] for i in pages.item[own].tolist()) if logged.has_pages else "")
        error = np.sqrt(b.variance + self.variance[model])[rows] if found else np.empty(0)
        columns: dict[str, Any] = {
            "query": [pages.queries[q] for q in b.query[rows].tolist()],
            "list": lists,
            "window": [
                pages.windows[logged.window[page]] if pages.windows else "" for page in b.example[rows].tolist()
            ],
            "pages": b.size[rows],
            "observed": b.observed[rows],
            "predicted": self.predicted[model][rows] if found else np.empty(0),
            "baseline": self.baseline[rows],
            "standard_error": error,
            "model": [model] * rows.size,
        }
        for name in ("slope", "phi", "error", "error_of_no_change"):
            columns[name] = np.full(rows.size, getattr(found, name) if found else np.nan)
        return import_extra("pyarrow").table(columns)


def backtest(
    logged: LoggedPages, models: Sequence[RateModel], seed: int = 0, progress: bool | None = False
) -> Backtest:
    """Hold out blocks in five folds, and predict them by every model and by no change."""
    blocks = find_blocks(logged)
    size = blocks.size.size
    nothing = np.full(size, np.nan)
    empty = {model.name: nothing.copy() for model in models}
    result = Backtest(blocks, nothing.copy(), empty, {name: part.copy() for name, part in empty.items()}, ())
    if size < FEWEST_BLOCKS:
        return result
    fold = np.random.default_rng([seed, 0xB10C]).permutation(size) % FOLDS
    placements = _placements_of(logged, blocks)
    with progress_bar("holding out lists", FOLDS * len(models), progress) as report:
        for f in range(FOLDS):
            held = fold == f
            kept = (blocks.of_page < 0) | ~held[blocks.of_page]
            count = np.where(kept, logged.pages.count, 0)
            result.baseline[held] = _means(logged, count)[blocks.query[held]]
            own = placements.take(held[placements.group])
            for model in models:
                fit = model.fit(count)
                prediction = fit.predict(own)
                predicted = np.bincount(own.group, prediction.clicks, size)
                spread = fit.fitted.variances_of_sums(
                    prediction.row, prediction.columns, prediction.slope, prediction.group, size
                )
                result.predicted[model.name][held] = predicted[held]
                result.variance[model.name][held] = spread[held]
                report(1)
    return result._replace(candidates=_candidates(result))


def find_blocks(logged: LoggedPages) -> Blocks:
    """Return the blocks of a log."""
    pages, (queries, _, m, windows) = logged.pages, logged.shape
    by_window, _ = different_keys(pages.query * windows + logged.window, queries * windows)
    key = pages.query * windows + logged.window
    if logged.has_pages:
        lists = list_codes(logged)
        if windows < 2 or np.unique(np.column_stack([key, lists]), axis=0).shape[0] > by_window.size:
            key = lists
    _, example, block = np.unique(key, return_index=True, return_inverse=True)
    number = np.bincount(block, pages.count).astype(np.float64)
    clicks = np.bincount(block, pages.count * logged.by_page(pages.click.astype(np.float64)))
    squares = np.bincount(block, pages.count * logged.by_page(pages.click.astype(np.float64)) ** 2)
    if logged.has_pages:
        observed, spread = clicks / number, squares - clicks**2 / np.maximum(number, 1.0)
    else:  # positions are independent
        cell = block[logged.page] * m + pages.position
        shown, hit = (
            np.bincount(cell, part, number.size * m).reshape(-1, m)
            for part in (pages.count[logged.page], pages.count[logged.page] * pages.click)
        )
        rate, number = hit / np.maximum(shown, 1.0), shown.max(axis=1)
        observed, spread = rate.sum(axis=1), number * (rate * (1.0 - rate)).sum(axis=1)
    query = pages.query[example]
    changed = np.ones(queries, bool)
    if logged.has_pages:  # a list that a query has always shown predicts nothing about another one
        different = np.unique(np.column_stack([query, lists[example]])[number >= FEWEST_PAGES], axis=0)
        changed = np.bincount(different[:, 0], minlength=queries) > 1
    big = np.flatnonzero((number >= FEWEST_PAGES) & changed[query])
    freedom = np.bincount(query[big], number[big] - 1.0, queries)
    pooled = np.bincount(query[big], spread[big], queries) / np.maximum(freedom, 1.0)
    overall = float(spread[big].sum() / max(freedom.sum(), 1.0))
    pooled = np.where(pooled > 0.0, pooled, overall)
    place = np.full(number.size, -1)
    place[big] = np.arange(big.size)
    of_block = pooled[query[big]] / number[big]
    return Blocks(place[block], query[big], example[big], number[big], observed[big], of_block)


def list_codes(logged: LoggedPages) -> Ints:
    """(P,) a code of the query and list of every page: a hash of 64 bits, whatever its clicks."""
    pages = logged.pages
    mixed = _mixed((pages.position.astype(np.uint64) << np.uint64(32)) + pages.item.astype(np.uint64))
    starts = np.minimum(pages.starts[:-1], max(mixed.size - 1, 0))
    total = np.add.reduceat(mixed, starts) if mixed.size else np.zeros(0, np.uint64)
    return (total ^ _mixed(pages.query.astype(np.uint64) + np.uint64(1 << 63))).view(np.int64)


def _mixed(x: Any) -> Any:
    """A hash of whole numbers (splitmix64)."""
    with np.errstate(over="ignore"):
        x = (x + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _placements_of(logged: LoggedPages, blocks: Blocks) -> Placements:
    """What the blocks showed, as placements weighted by the share of the pages of their block."""
    pages, (_, n, m, windows) = logged.pages, logged.shape
    inside = np.flatnonzero(blocks.of_page[logged.page] >= 0)
    page = logged.page[inside]
    group = blocks.of_page[page]
    key = ((group * n + pages.item[inside]) * m + pages.position[inside]) * windows + logged.window[page]
    keys, cell = np.unique(key, return_inverse=True)
    shown = np.bincount(cell, pages.count[page], keys.size)
    rest, window = np.divmod(keys, windows)
    rest, position = np.divmod(rest, m)
    group, item = np.divmod(rest, n)
    if logged.has_pages:
        base = blocks.size[group]
    else:
        base = np.bincount(group * m + position, shown, blocks.size.size * m)[group * m + position]
    return Placements(group, group, blocks.query[group], item, position, window, shown / base)


def _means(logged: LoggedPages, count: Ints) -> Floats:
    """(Q,) clicks per page of every query on some of the pages; NaN without any."""
    pages, (queries, _, m, _) = logged.pages, logged.shape
    number = count[logged.page]
    clicks = np.bincount(logged.place, number * pages.click, queries * m).reshape(-1, m)
    shown = np.bincount(logged.place, number, queries * m).reshape(-1, m)
    if logged.has_pages:
        total = np.bincount(pages.query, count, queries)
        return np.divide(clicks.sum(axis=1), total, out=np.full(queries, np.nan), where=total > 0)
    rate = np.divide(clicks, shown, out=np.zeros(clicks.shape), where=shown > 0.0).sum(axis=1)
    return np.where(shown.any(axis=1), rate, np.nan)


def _candidates(found: Backtest) -> tuple[Candidate, ...]:
    """Compare models on the blocks that all of them predict; one that predicts less than half of the others is out."""
    b = found.blocks
    known = {name: ~np.isnan(part + found.baseline) for name, part in found.predicted.items()}
    most = max((int(part.sum()) for part in known.values()), default=0)
    models = [name for name, part in known.items() if part.sum() >= max(0.5 * most, FEWEST_BLOCKS)]
    both = np.logical_and.reduce([known[name] for name in models]) if models else np.zeros(0, bool)
    if both.sum() < FEWEST_BLOCKS:
        return ()
    n, y, base, noise = b.size[both], b.observed[both], found.baseline[both], b.variance[both]
    mean = max(float(n @ y / n.sum()), 1e-300)
    squared = {name: (found.predicted[name][both] - y) ** 2 for name in models}
    best = min(models, key=lambda name: float(n @ squared[name]))
    nothing, candidates = (base - y) ** 2, list[Candidate]()
    for name in models:
        predicted, spread = found.predicted[name][both], found.variance[name][both]
        dx, dy = predicted - base, y - base
        slope, slope_error = _slope(n, dx, dy)
        candidates.append(
            Candidate(
                model=name,
                error=float(np.sqrt(max(n @ (squared[name] - noise) / n.sum(), 0.0))) / mean,
                error_of_no_change=float(np.sqrt(max(n @ (nothing - noise) / n.sum(), 0.0))) / mean,
                advantage=(slope - 0.5) / max(slope_error, 1e-300),
                phi=float((squared[name] / (noise + spread)).mean()),
                slope=slope,
                slope_error=slope_error,
                blocks=int(both.sum()),
                squared_error=float(n @ squared[name] / n.sum()),
                behind=_paired(n, squared[name] - squared[best]) if name != best else 0.0,
            )
        )
    return tuple(candidates)


def _slope(n: Floats, dx: Floats, dy: Floats) -> tuple[float, float]:
    """The slope of dy on dx through 0, and its standard error from residuals and leverage of every block (HC3)."""
    total = max(float(n @ dx**2), 1e-300)
    slope, leverage = float((n * dx) @ dy) / total, n * dx**2 / total
    residual = n * dx * (dy - slope * dx) / np.maximum(1.0 - leverage, 1e-3)
    return slope, float(np.sqrt((residual**2).sum())) / total


def _paired(n: Floats, difference: Floats) -> float:
    """A weighted mean difference in its standard errors."""
    mean = float(n @ difference / n.sum())
    error = float(np.sqrt(((n * (difference - mean)) ** 2).sum()) / n.sum())
    return mean / error if error > 0.0 else 0.0
