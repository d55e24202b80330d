"""The pages of an evaluation: their traffic, the clicks that they had, and variances by page or by query."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...kernels import Floats, Ints
from ..counts import Counts
from ..log import Log, read
from ..pages import Pages, different_keys

WINDOWS = ("auto", "day", "week", None)
FEWEST_WINDOWS = 3  # that windows="auto" asks for
FEWEST_CLUSTERS = 30  # of (query, window) in a log without pages; with fewer, impressions count as independent
Mask = NDArray[np.bool_]
Terms = Iterable[tuple[Ints, Floats]]  # counts of pages, and what each page adds to an estimate


class Placements(NamedTuple):
    """Items on pages, with weights: what an estimate, or the prediction for some pages, is a sum over."""

    group: Ints  # (T,) the sum that a placement belongs to
    page: Ints  # (T,) the list that it is part of
    query: Ints
    item: Ints  # -1 for an item that the log never shows
    position: Ints
    window: Ints
    weight: Floats

    def take(self, some: Mask) -> Placements:
        """Return some of them."""
        return Placements(*(part[some] for part in self))  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class LoggedPages:
    """The different pages of a log, or single results of one without pages, and how often each occurred.

    A result of a log without pages stands for as many as its query has pages, which is the number of impressions of its
    most frequent position, for every impression of its own position.
    """

    pages: Pages
    has_pages: bool
    cluster: str = "page"

    @cached_property
    def page(self) -> Ints:
        """(K,) the page of every result."""
        return self.pages.of_page()

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Numbers of queries, items, positions and windows."""
        p = self.pages
        return len(p.queries), len(p.items), len(p.positions), max(len(p.windows), 1)

    @cached_property
    def place(self) -> Ints:
        """(K,) query and position as one number."""
        return self.pages.query[self.page] * self.shape[2] + self.pages.position

    @cached_property
    def n_cells(self) -> int:
        """The number of different (query, item, position) that were shown."""
        q, n, m, _ = self.shape
        return int(different_keys(self.place * n + self.pages.item, q * n * m)[0].size)

    @cached_property
    def shown(self) -> Floats:
        """(Q * m,) impressions of every query and position."""
        return np.bincount(self.place, self.pages.count[self.page], self.shape[0] * self.shape[2]).astype(np.float64)

    @cached_property
    def of_query(self) -> Floats:
        """(Q,) the number of pages of every query."""
        if self.has_pages:
            return np.bincount(self.pages.query, self.pages.count, self.shape[0]).astype(np.float64)
        return np.asarray(self.shown.reshape(-1, self.shape[2]).max(axis=1))

    @property
    def total(self) -> float:
        """The number of pages."""
        return float(self.of_query.sum())

    @cached_property
    def scale(self) -> Floats:
        """(Q * m,) how many results each of its results stands for."""
        if self.has_pages:
            return np.ones_like(self.shown)
        pages = np.repeat(self.of_query, self.shape[2])
        return np.divide(pages, self.shown, out=np.zeros_like(pages), where=self.shown > 0.0)

    @cached_property
    def window(self) -> Ints:
        """(P,) the window of every page; 0 without windows."""
        return np.zeros(len(self.pages), np.int64) if self.pages.window is None else self.pages.window

    def halves(self, seed: int) -> tuple[Ints, Ints]:
        """Return the counts of pages in two random halves."""
        one = np.random.default_rng([seed, 0x5A1F]).binomial(self.pages.count, 0.5)
        return one, self.pages.count - one

    def traffic(self, count: Ints) -> tuple[Ints, Ints, Floats]:
        """Return (query, position) as one number, window, and share of pages, for all that these pages show."""
        q, _, m, w = self.shape
        key, cell = different_keys(self.place * w + self.window[self.page], q * m * w)
        number = np.bincount(cell, count[self.page], key.size) * self.scale[key // w]
        return key // w, key % w, number / self.total

    @cached_property
    def clicked(self) -> Floats:
        """(Q * m,) clicks of every query and position."""
        weight = self.pages.count[self.page] * self.pages.click
        return np.bincount(self.place, weight, self.shown.size).astype(np.float64)

    def clicks_of_queries(self, places: Mask) -> Floats:
        """(Q,) what every query adds to clicks per page, at some (query, position)."""
        return (self.clicked * self.scale * places).reshape(-1, self.shape[2]).sum(axis=1) / self.total

    def click_terms(self, places: Mask | None = None, pooled: bool = False) -> Floats:
        """(P,) what every page adds to clicks per page at some places, minus the mean of its query and position.

        ``pooled`` takes the mean of the position over all queries, as weighted estimates do.
        """
        if places is not None and not places.any():
            return np.zeros(len(self.pages))
        m, shown, clicked = self.shape[2], self.shown, self.clicked
        position = np.arange(shown.size) % m
        of_all = np.bincount(position, clicked * self.scale, m) / np.maximum(
            np.bincount(position, shown * self.scale, m), 1.0
        )
        alone = (shown < 2.0) | pooled  # the mean of one impression is itself
        mean = np.where(alone, of_all[position], clicked / np.maximum(shown, 1.0))
        factor = np.where(alone, 1.0, np.sqrt(shown / np.maximum(shown - 1.0, 1.0))) * self.scale / self.total
        factor = factor if places is None else factor * places
        return self.by_page(factor[self.place] * (self.pages.click - mean[self.place]))

    def by_page(self, terms: Floats) -> Floats:
        """(P,) the sums of terms of results over every page."""
        return np.bincount(self.page, terms, len(self.pages)).astype(np.float64)

    @cached_property
    def clusters(self) -> Ints | None:
        """(P,) the cluster of every page; None if pages are independent."""
        if self.cluster == "query":
            return self.pages.query
        found = different_keys(self.pages.query * self.shape[3] + self.window, self.shape[0] * self.shape[3])
        return found[1] if not self.has_pages and found[0].size >= FEWEST_CLUSTERS else None

    def error(self, terms: Terms, of_query: Floats | None = None) -> float:
        """Return the standard error of an estimate that pages add terms to.

        With clusters of queries, ``of_query`` (Q,) has how far the estimate of each query is from that of all, times
        its share of the pages: queries are then a sample of queries.
        """
        clusters = self.clusters
        if clusters is None:
            pages = max(float(sum(count.sum() for count, _ in terms)), 2.0)
            return float(np.sqrt(sum(float(count @ term**2) for count, term in terms) * pages / (pages - 1.0)))
        size = int(clusters.max()) + 1
        sums = np.zeros(size) if self.cluster != "query" or of_query is None else of_query.copy()
        for count, term in terms:
            sums += np.bincount(clusters, count * term, size)
        return float(np.sqrt((sums**2).sum() * size / (size - 1))) if size > 1 else np.nan


def logged_pages(
    log: Any, windows: Any, since: Any, cluster: str, progress: bool | None
) -> tuple[LoggedPages, tuple[str, ...]]:
    """Return the pages of a log, a path, a table, pages or counts, by window of time; and the columns of its query."""
    if windows not in WINDOWS:
        raise ValueError(f"windows must be 'auto', 'day', 'week' or None; got {windows!r}")
    if cluster not in ("page", "query"):
        raise ValueError(f"cluster must be 'page' or 'query'; got {cluster!r}")
    if isinstance(log, Pages | Counts):
        if since is not None or windows in ("day", "week"):
            raise ValueError("counts have no times; give the log itself")
        return LoggedPages(log if isinstance(log, Pages) else _as_pages(log), isinstance(log, Pages), cluster), ()
    opened = log if isinstance(log, Log) else read(log, progress=progress)
    if since is not None:
        opened = opened.since(since)
    window = windows
    if windows == "auto":
        enough = (one for one in ("week", "day") if opened.has_times and opened.n_windows(one) >= FEWEST_WINDOWS)
        window = next(enough, None)
    pages = opened.pages(window, propensities=opened.has_propensities)
    return LoggedPages(pages, opened.has_pages, cluster), opened.query_columns


def _as_pages(counts: Counts) -> Pages:
    """Counts as pages of one result, with and without a click."""
    number = np.concatenate([counts.clicked, counts.shown - counts.clicked])
    query, item, position = (np.tile(part, 2) for part in (counts.query, counts.item, counts.position))
    return Pages(
        items=counts.items,
        queries=counts.queries,
        positions=counts.positions,
        query=query,
        starts=np.arange(number.size + 1),
        item=item.astype(np.int32),
        position=position.astype(np.int16),
        click=np.repeat(np.array([1, 0], np.uint8), len(counts)),
        count=number,
        origin=counts.origin,
        notes=counts.notes,
        windows=counts.windows,
        window=None if counts.window is None else np.tile(counts.window, 2),
    ).with_counts(number)
