"""The click rate of each item per showing, weighted by inverse propensity so that good slots are no advantage.

This is the expensive part of a report, because it reads events: the rates are cached for some seconds, with the counts
that stand beside them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..events import Event
from ..model import LOSS_UNIT
from ..outcomes import is_learned
from ..schemas import ItemLine
from ..stores import Store
from .inputs import ReportRequest, bucket_length
from .uplift import Z95

MAX_EVENTS = 20_000  # the latest ones, that the rates are computed from
CACHE_MS = 10_000
MIN_CLICKS = 5  # a normal interval from fewer clicks would be too narrow


class ItemRate(NamedTuple):
    """A click rate and the ends of its 95% interval; None where there are too few data."""

    rate: float | None = None
    low: float | None = None
    high: float | None = None


class ItemLinesCache:
    """Caches lines of items for ``CACHE_MS``, so that open dashboards do not read the events again and again.

    Any thread may call it. Two threads that miss the cache at the same time both compute the lines.
    """

    def __init__(self) -> None:
        self._cached: dict[Any, tuple[int, list[ItemLine]]] = {}

    def lines(self, store: Store, request: ReportRequest) -> list[ItemLine]:
        """Return lines that are at most ``CACHE_MS`` old; raises StoreError if events are needed and cannot be read."""
        surface = request.surface
        # A range that ends now moves on with every request, and is cached by its length.
        ends = (request.now - request.since,) if request.until == request.now else (request.since, request.until)
        key = (surface.id, surface.version, request.segment, ends)
        fresh = {k: v for k, v in list(self._cached.items()) if 0 <= request.now - v[0] < CACHE_MS}
        if key not in fresh:
            fresh[key] = request.now, item_lines(store, request)
            self._cached = fresh
        return fresh[key][1]


def item_lines(store: Store, request: ReportRequest) -> list[ItemLine]:
    """Return a line for every item that is not removed: shows and clicks of all time, and its weighted click rate."""
    items, learned = request.surface.items, request.learned
    counts = np.zeros((2, len(items), 1)) if learned is None else (learned.shown, learned.clicked)
    shown, clicked = (table.sum(axis=1) for table in counts)
    rates, total = weighted_rates(latest_events(store, request), len(items)), int(shown.sum())
    return [
        {
            "name": item.name,
            "state": item.state,
            "shows": int(shown[item.index]),
            "clicks": round(clicked[item.index]),
            **rate._asdict(),  # type: ignore[typeddict-item]
            "share": int(shown[item.index]) / total if total else None,
            "age_seconds": max(0.0, (request.now - item.added_at) / 1000.0),
        }
        for item, rate in zip(items, rates)
        if item.state != "removed"
    ]


def latest_events(store: Store, request: ReportRequest) -> list[Event]:
    """Return the latest settled events of the requested range and segment, about ``MAX_EVENTS`` at most.

    The history of the store has the number of events per bucket of time, which bounds the range that is read.
    """
    surface_id = request.surface.id
    since, left = request.since, MAX_EVENTS
    history = store.history(surface_id, request.since, request.until, bucket_length(request))
    for row in sorted(history, key=lambda row: -row["at"]):
        left -= row["settled"]
        if left < 0:
            since = max(since, row["at"])
            break
    events = islice(store.events(surface_id, since, request.until), 2 * MAX_EVENTS)
    return [
        event
        for event in events
        if event.settled_at is not None
        and is_learned(event)
        and (request.segment is None or event.segment == request.segment)
    ]


def weighted_rates(events: Sequence[Event], n_items: int) -> list[ItemRate]:
    r"""Return the self-normalised click rate of every item, :math:`\sum c/p \,/ \sum 1/p`, with a 95% interval.

    It estimates how often the item would be clicked if it were shown equally often at every slot. With rewards, c is
    the reward.
    """
    cells = [
        (item, event.rewards[slot] / LOSS_UNIT if event.rewards else event.clicks >> slot & 1, p)
        for event in events
        for slot, (item, p) in enumerate(zip(event.listed.items, event.listed.p))
        if event.listed.learn >> slot & 1 and item < n_items  # another process may have added items since
    ]
    if not cells:
        return [ItemRate()] * n_items
    table = np.array(cells)
    item, click, weight = table[:, 0].astype(np.int64), table[:, 1], 1.0 / table[:, 2]
    total = np.bincount(item, weight, n_items)[:n_items]
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.bincount(item, weight * click, n_items)[:n_items] / total
        noise = np.sqrt(np.bincount(item, (weight * (click - rate[item])) ** 2, n_items)[:n_items]) / total
    clicks = np.bincount(item, click, n_items)
    return [
        ItemRate(float(r), max(0.0, float(r - Z95 * s)), min(1.0, float(r + Z95 * s)))
        if c >= MIN_CLICKS
        else ItemRate(float(r) if t else None)
        for r, s, c, t in zip(rate, noise, clicks, total)
    ]
