"""How often each item is clicked when shown: weighted, so that slots and luck do not matter, and not too often."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from ..engine.served_surface import ServedSurface
from ..model import Event
from ..stores.base import Store
from .uplift import Z95

__all__ = ["MINUTE", "Asked", "Rate", "Rates", "latest", "step_of", "weighted_rates"]

MINUTE = 60_000
POINTS = 120  # of a series
EVENTS = 20_000  # the latest, for weighted click rates
RATES_MS = 10_000  # for which weighted click rates are told again

Rate = tuple[float | None, float | None, float | None]  # with the ends of its interval


class Asked(NamedTuple):
    """What a report is about; ``segment`` None for all of them together."""

    display: ServedSurface
    segment: str | None
    since: int
    until: int
    now: int


def step_of(asked: Asked) -> int:
    """The length of a bucket of time, in whole minutes, such that there are not too many of them."""
    return max(MINUTE, (asked.until - asked.since) // POINTS // MINUTE * MINUTE)


class Rates:
    """Weighted click rates, the dear part of a report: computed once in a while, not for everybody who looks."""

    def __init__(self) -> None:
        self._kept: dict[Any, tuple[int, list[Rate]]] = {}

    def of(self, store: Store, asked: Asked) -> list[Rate]:
        """The rates of all items, at most ``RATES_MS`` old."""
        surface = asked.display.surface
        ends = (asked.now - asked.since,) if asked.until == asked.now else (asked.since, asked.until)
        key = (surface.id, surface.version, asked.segment, ends)
        at, rates = self._kept.get(key, (-RATES_MS, []))
        if not 0 <= asked.now - at < RATES_MS:
            rates = weighted_rates(latest(store, asked), len(surface.items))
            fresh = {k: v for k, v in list(self._kept.items()) if 0 <= asked.now - v[0] < RATES_MS}
            self._kept = {**fresh, key: (asked.now, rates)}
        return rates


def latest(store: Store, asked: Asked) -> list[Event]:
    """The latest settled events of the time asked about, about ``EVENTS`` at most: history says where to begin."""
    surface_id = asked.display.surface.id
    since, left = asked.since, EVENTS
    for row in sorted(store.history(surface_id, asked.since, asked.until, step_of(asked)), key=lambda row: -row["at"]):
        left -= row["events"]
        if left < 0:
            since = max(since, row["at"])
            break
    found = islice(store.events(surface_id, since, asked.until), 2 * EVENTS)
    return [
        event
        for event in found
        if event.settled_at is not None and event.learn and (asked.segment is None or event.segment == asked.segment)
    ]


def weighted_rates(events: Sequence[Event], n: int) -> list[Rate]:
    r"""The self-normalised click rate of every item, :math:`\sum c/p \,/ \sum 1/p`, with a 95% interval.

    It estimates how often the item would be clicked, were it shown at all slots alike.
    """
    cells = [
        (item, event.clicks >> slot & 1, p)
        for event in events
        for slot, (item, p) in enumerate(zip(event.items, event.p))
        if event.learn >> slot & 1 and item < n  # another process may have added some
    ]
    if not cells:
        return [(None, None, None)] * n
    table = np.array(cells)
    item, click, weight = table[:, 0].astype(np.int64), table[:, 1], 1.0 / table[:, 2]
    total = np.bincount(item, weight, n)[:n]
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.bincount(item, weight * click, n)[:n] / total
        noise = np.sqrt(np.bincount(item, (weight * (click - rate[item])) ** 2, n)[:n]) / total
    clicks = np.bincount(item, click, n)
    # A normal interval from a handful of clicks would claim too much.
    return [
        (float(r), max(0.0, float(r - Z95 * s)), min(1.0, float(r + Z95 * s)))
        if c >= 5
        else (float(r) if t else None, None, None)
        for r, s, c, t in zip(rate, noise, clicks, total)
    ]
