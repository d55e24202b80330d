"""What is told of a surface: learner against holdout, items, learning, and whether visitors have changed.

Pages come from the store's history, which is kept as events settle; counts of items from the counters; weighted click
rates from the latest events, a bounded number. No request scans the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import msgspec
import numpy as np

from .ids import as_time
from .learner import Sums
from .records import ONE, Event, Surface
from .shelves import Display, Shelf
from .stores.base import Store

__all__ = ["DAY", "Asked", "Rates", "headline_of", "report_of", "state_of", "told_of_event"]

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
POINTS = 120  # of a series
SNAPSHOTS = 12  # of the marginals over time
EVENTS = 20_000  # the latest, for weighted click rates
RATES_MS = 10_000  # for which weighted click rates are told again
Z95 = 1.959963984540054
ENOUGH_CLICKS = 100  # of each arm, before they are compared
ALARM_Z = 4.0  # one in 16,000 by chance
ALARM_PAGES = 200  # of the recent hour, at least
LONG_RUN = 7 * DAY


Rate = tuple[float | None, float | None, float | None]  # with the ends of its interval


class Asked(NamedTuple):
    """What a report is about; ``segment`` None for all of them together."""

    display: Display
    segment: str | None
    since: int
    until: int
    now: int
    rates: Rates


class Pages(NamedTuple):
    """Settled pages of an arm, their clicks, and the sum of squares of clicks per page."""

    pages: int = 0
    clicks: int = 0
    squares: int = 0

    @property
    def rate(self) -> float:
        return self.clicks / self.pages if self.pages else 0.0

    @property
    def variance(self) -> float:
        """Of the mean number of clicks per page."""
        if self.pages < 2:
            return math.inf
        spread = (self.squares - self.clicks * self.rate) / (self.pages - 1)
        return max(spread, 0.0) / self.pages


def report_of(store: Store, asked: Asked, results: Mapping[tuple[int, str], int]) -> dict[str, Any]:
    """The whole report."""
    display, surface = asked.display, asked.display.surface
    step = max(MINUTE, (asked.until - asked.since) // POINTS // MINUTE * MINUTE)
    rows = _of_segment(store.history(surface.id, asked.since, asked.until, step), asked.segment)
    learner, holdout = (total_of(rows, arm) for arm in ("learner", "holdout"))
    held_out = surface.settings.holdout > 0.0 or holdout.pages > 0
    shelf = display.shelves.get(asked.segment or "") or next(iter(display.shelves.values()), None)
    return {
        "surface": surface.name,
        "segment": asked.segment,
        "since": asked.since,
        "until": asked.until,
        "headline": told_of(learner),
        "holdout": told_of(holdout) if held_out else None,
        "uplift": uplift_of(learner, holdout) if held_out else None,
        "items": items_of(store, asked),
        "series": [
            {"at": at, "arm": arm, "pages": total.pages, "clicks": total.clicks}
            for (at, arm), total in sorted(_by(rows, "at", "arm").items())
        ],
        "marginals": _marginals(shelf, surface),
        "marginals_history": _marginals_over_time(store, asked, shelf),
        "learning": _learning(store, asked, shelf, rows, results),
        "shift": shift_of(store, asked),
        "warnings": _warnings(surface),
        "segments": sorted(display.shelves),
    }


def headline_of(store: Store, surface: Surface, now: int) -> dict[str, Any]:
    """What fits on one line about the last day."""
    rows = store.history(surface.id, now - DAY, now + MINUTE, DAY)
    learner, holdout = (total_of(rows, arm) for arm in ("learner", "holdout"))
    told = told_of(learner)
    held_out = surface.settings.holdout > 0.0 or holdout.pages > 0
    return {
        "pages": told["pages"],
        "clicks_per_page": told["clicks_per_page"],
        "uplift": uplift_of(learner, holdout) if held_out else None,
    }


def total_of(rows: Iterable[Mapping[str, Any]], arm: str) -> Pages:
    """The pages of an arm."""
    return _by((row for row in rows if row["arm"] == arm), "arm").get((arm,), Pages())


def _by(rows: Iterable[Mapping[str, Any]], *keys: str) -> dict[tuple[Any, ...], Pages]:
    sums: dict[tuple[Any, ...], Pages] = {}
    for row in rows:
        key = tuple(row[name] for name in keys)
        old = sums.get(key, Pages())
        # Without squares, take every clicked page to have one click: the least they can be.
        squares = row.get("squares", row["clicks"])
        sums[key] = Pages(old.pages + row["settled"], old.clicks + row["clicks"], old.squares + squares)
    return sums


def _of_segment(rows: Sequence[dict[str, Any]], segment: str | None) -> list[dict[str, Any]]:
    return [row for row in rows if segment is None or row["segment"] == segment]


def told_of(pages: Pages) -> dict[str, Any]:
    """Clicks per page with a 95% interval, once there are a few pages."""
    half = Z95 * math.sqrt(pages.variance)
    return {
        "pages": pages.pages,
        "clicks_per_page": pages.rate if pages.pages else None,
        "interval": (max(0.0, pages.rate - half), pages.rate + half) if math.isfinite(half) and pages.clicks else None,
    }


def uplift_of(learner: Pages, holdout: Pages) -> dict[str, Any]:
    """By how much the learner is ahead of the holdout, relatively, with a 95% interval.

    The interval is that of the logarithm of the ratio (delta method), which needs some clicks in both arms.

    >>> told = uplift_of(Pages(2000, 1200, 1200), Pages(2000, 1000, 1000))
    >>> round(told["relative"], 3), told["enough"], told["low"] > 0.0
    (0.2, True, True)
    >>> uplift_of(Pages(2000, 1200, 1200), Pages(20, 10, 10))["needed_pages"]
    200
    """
    fewest = min(learner.clicks, holdout.clicks)
    rate = holdout.rate or learner.rate
    needed = math.ceil(ENOUGH_CLICKS / rate) if rate else 1000
    told: dict[str, Any] = {"relative": None, "low": None, "high": None, "enough": False, "needed_pages": needed}
    if not fewest:
        return told
    ratio = learner.rate / holdout.rate
    spread = Z95 * math.sqrt(sum(arm.variance / arm.rate**2 for arm in (learner, holdout)))
    if not math.isfinite(spread):
        return told
    low, high = ratio * math.exp(-min(spread, 50.0)) - 1.0, ratio * math.exp(min(spread, 50.0)) - 1.0
    return {**told, "relative": ratio - 1.0, "low": low, "high": high, "enough": fewest >= ENOUGH_CLICKS}


def shift_of(store: Store, asked: Asked) -> dict[str, Any]:
    """Whether visitors click as they used to: the last hour against the week before it, by pages of the learner."""
    surface = asked.display.surface
    week = _of_segment(store.history(surface.id, asked.now - LONG_RUN, asked.now - HOUR, HOUR), asked.segment)
    hour = _of_segment(store.history(surface.id, asked.now - HOUR, asked.now + MINUTE, MINUTE), asked.segment)
    long_run, recent = total_of(week, "learner"), total_of(hour, "learner")
    told = {
        "alarm": False,
        "recent": recent.rate if recent.pages else None,
        "long_run": long_run.rate if long_run.pages else None,
        "z": None,
        "note": "",
    }
    if min(recent.pages, long_run.pages) < ALARM_PAGES:
        return {**told, "note": f"not enough data: {ALARM_PAGES} pages are needed in the last hour and before"}
    noise = math.sqrt(recent.variance + long_run.variance)
    if noise <= 0.0:
        return {**told, "note": "no noise to compare with"}
    z = (recent.rate - long_run.rate) / noise
    way = "more" if z > 0.0 else "less"
    note = f"visitors click {way} than in the week before" if abs(z) > ALARM_Z else "visitors click as they used to"
    return {**told, "alarm": abs(z) > ALARM_Z, "z": z, "note": f"{note} (alarm beyond {ALARM_Z:g} standard errors)"}


def items_of(store: Store, asked: Asked) -> list[dict[str, Any]]:
    """How every item does: shown and clicked in all, its click rate weighted so that slots and luck do not matter."""
    display, surface = asked.display, asked.display.surface
    shelves = [s for name, s in list(display.shelves.items()) if asked.segment is None or name == asked.segment]
    n = len(surface.items)
    shown, clicked = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for shelf in shelves:
        shown += shelf.sums.shown.sum(axis=1)
        clicked += shelf.sums.clicked.sum(axis=1)
    rates = asked.rates.of(store, asked)
    total = int(shown.sum())
    return [
        {
            "name": item.name,
            "state": item.state,
            "shows": int(shown[item.index]),
            "clicks": int(clicked[item.index]),
            "rate": rate,
            "low": low,
            "high": high,
            "share": int(shown[item.index]) / total if total else None,
            "age_seconds": max(0.0, (asked.now - item.added_at) / 1000.0),
        }
        for item, (rate, low, high) in zip(surface.items, rates)
        if item.state != "removed"
    ]


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
    step = max(MINUTE, (asked.until - asked.since) // POINTS // MINUTE * MINUTE)
    for row in sorted(store.history(surface_id, asked.since, asked.until, step), key=lambda row: -row["at"]):
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


def _marginals(shelf: Shelf | None, surface: Surface) -> dict[str, Any]:
    if shelf is None:
        return {"items": [], "slots": surface.settings.slots, "x": []}
    policy = shelf.plain.learner
    names = [item.name for item in policy.eligible]
    return {"items": names, "slots": len(policy.free), "x": policy.marginals.tolist()}


def _marginals_over_time(store: Store, asked: Asked, shelf: Shelf | None) -> list[dict[str, Any]]:
    if shelf is None:
        return []
    kept = store.policies(asked.display.surface.id, asked.segment or "", asked.since, SNAPSHOTS)
    told = []
    for at, _, body in kept:
        was = msgspec.msgpack.decode(body)
        row = dict(zip(was["items"], was["x"]))
        told.append({"at": at, "x": [row.get(item.name) for item in shelf.plain.learner.eligible]})
    return told


def _learning(
    store: Store,
    asked: Asked,
    shelf: Shelf | None,
    rows: Sequence[Mapping[str, Any]],
    results: Mapping[tuple[int, str], int],
) -> dict[str, Any]:
    policy, surface_id = (shelf.plain.learner if shelf else None), asked.display.surface.id
    shelves = [s for name, s in list(asked.display.shelves.items()) if asked.segment is None or name == asked.segment]
    late = sum(row.get("late", 0) for row in rows)
    return {
        "entropy": policy.entropy if policy else None,
        "entropy_start": math.log(len(policy.eligible)) if policy and policy.eligible else None,
        "policy_id": policy.id if policy else "",
        "policy_age_seconds": max(0.0, (asked.now - shelf.made_at) / 1000.0) if shelf else None,
        "rounds": sum(s.sums.rounds for s in shelves),
        "outstanding": sum(row["events"] - row["settled"] for row in rows),
        "late": late or results.get((surface_id, "late_applied"), 0),
        "duplicates": results.get((surface_id, "duplicate"), 0),
    }


def _warnings(surface: Surface) -> list[str]:
    settings = surface.settings
    active = sum(item.state == "active" for item in surface.items)
    said = []
    if active and settings.minimum_exposure > settings.slots / active:
        most = settings.slots / active
        said.append(
            f"minimum_exposure {settings.minimum_exposure:g} cannot be reached: with {active} items each can be on "
            f"{most:.3g} of the pages; lists are uniform now, and nothing learned is used"
        )
    if settings.holdout == 0.0:
        said.append("without a holdout nobody can tell how much is gained; 0.05 is a good start")
    return said


def state_of(surface: Surface, segment: str, shelf: Shelf, sums: Sums, now: int) -> dict[str, Any]:
    """What has been learned of a segment, and what is served."""
    policy = shelf.plain.learner
    return {
        "surface": surface.name,
        "segment": segment,
        "items": [item.name for item in surface.items],
        "states": [item.state for item in surface.items],
        "rounds": sums.rounds,
        "loss": (sums.loss / ONE).tolist(),
        "shown": sums.shown.tolist(),
        "clicked": sums.clicked.tolist(),
        "marginals": {"items": [item.name for item in policy.eligible], "x": policy.marginals.tolist()},
        "policy_id": policy.id,
        "policy_age_seconds": max(0.0, (now - shelf.made_at) / 1000.0),
        "entropy": policy.entropy,
        "revision": sums.revision,
    }


def told_of_event(event: Event, surface: Surface, policy: bytes | None) -> dict[str, Any]:
    """One decision: what was shown and why, and what became of it."""
    settled = event.settled_at is not None
    return {
        "event_id": event.id.hex(),
        "surface": surface.name,
        "segment": event.segment,
        "arm": event.arm,
        "policy_id": event.policy_id,
        "created_at": as_time(event.created_at),
        "expires_at": as_time(event.expires_at),
        "late_until": as_time(event.late_until),
        "slots": [
            {
                "slot": slot,
                "item": surface.items[item].name,
                "p": p,
                "learn": bool(event.learn >> slot & 1),
                "pinned": bool(event.pinned >> slot & 1),
                "clicked": bool(event.clicks >> slot & 1),
                "late": bool(event.late >> slot & 1),
            }
            for slot, (item, p) in enumerate(zip(event.items, event.p))
        ],
        "settled": settled,
        "settled_at": as_time(event.settled_at) if event.settled_at is not None else None,
        "settled_by": event.settled_by,
        "why": _why(event, policy),
        "policy": msgspec.msgpack.decode(policy) if policy else None,
    }


def _why(event: Event, policy: bytes | None) -> str:
    if event.arm == "holdout":
        return "this visitor was held out and saw the baseline order"
    rounds = f" after {msgspec.msgpack.decode(policy)['rounds']} rounds" if policy else ""
    return f"drawn with the probabilities p of the learner{rounds}; pinned slots were asked for"
