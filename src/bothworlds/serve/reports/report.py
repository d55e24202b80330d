"""What is told of a surface: learner against holdout, items, learning, and whether visitors have changed.

Pages come from the store's history, which is kept as events settle; counts of items from the counters; weighted click
rates from the latest events, a bounded number. No request scans the log.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ..engine.served_surface import ServedSegment, ServedSurface
from ..engine.surface_rules import exposure_problem
from ..model import Surface
from ..stores.base import Store
from .exploration_cost import cost_of, is_settled
from .item_rates import MINUTE, Asked, Rates, step_of
from .recent_window import DAY, HOUR, Recency, Window, recent_of, window_of
from .uplift import change_of, of_segment, summed, told_of, total_of, uplift_of

__all__ = ["DAY", "headline_of", "items_of", "report_of", "shift_of"]

SNAPSHOTS = 12  # of the marginals over time
LONG_RUN = 7 * DAY


def report_of(store: Store, asked: Asked, rates: Rates, results: Mapping[tuple[int, str], int]) -> Any:
    """The whole report."""
    display, surface = asked.display, asked.display.surface
    rows = of_segment(store.history(surface.id, asked.since, asked.until, step_of(asked)), asked.segment)
    learner, holdout = (total_of(rows, arm) for arm in ("learner", "holdout"))
    held_out = surface.settings.holdout > 0.0 or holdout.pages > 0
    shown = busiest(display) if asked.segment is None else asked.segment
    shelf = display.segments.get(shown)
    window = _recent_window(store, display, asked.segment, asked.until, held_out)
    return {
        "surface": surface.name,
        "segment": asked.segment,
        "since": asked.since,
        "until": asked.until,
        "headline": told_of(learner),
        "holdout": told_of(holdout) if held_out else None,
        "uplift": uplift_of(learner, holdout) if held_out else None,
        "recent": recent_of(window, held_out),
        "items": items_of(store, asked, rates),
        "series": [
            {"at": at, "arm": arm, "pages": total.pages, "clicks": total.clicks}
            for (at, arm), total in sorted(summed(rows, "at", "arm").items())
        ],
        "marginals": {**_marginals(shelf, surface), "segment": shown},
        "marginals_history": _marginals_over_time(store, asked, shown, shelf),
        "learning": _learning(asked, shelf, rows, results, window),
        "shift": shift_of(store, asked),
        "warnings": _warnings(surface),
        "segments": sorted(display.segments),
    }


def headline_of(store: Store, display: ServedSurface, now: int) -> Any:
    """What fits on one line about the last day, and about the recent window."""
    surface = display.surface
    rows = store.history(surface.id, now - DAY, now + MINUTE, DAY)
    learner, holdout = (total_of(rows, arm) for arm in ("learner", "holdout"))
    told = told_of(learner)
    held_out = surface.settings.holdout > 0.0 or holdout.pages > 0
    window = _recent_window(store, display, None, now, held_out)
    return {
        "pages": told["pages"],
        "clicks_per_page": told["clicks_per_page"],
        "uplift": uplift_of(learner, holdout) if held_out else None,
        "recent": recent_of(window, held_out),
        **_progress(_shelves_of(display, None), window),
    }


def _recent_window(store: Store, display: ServedSurface, segment: str | None, until: int, held_out: bool) -> Window:
    rounds = _rounds_of(_shelves_of(display, segment))
    return window_of(store, Recency(display.surface.id, segment, until, rounds, held_out))


def _shelves_of(display: ServedSurface, segment: str | None) -> list[ServedSegment]:
    return [shelf for name, shelf in list(display.segments.items()) if segment is None or name == segment]


def _rounds_of(shelves: Sequence[ServedSegment]) -> int:
    return sum(shelf.counters.rounds for shelf in shelves)


def _progress(shelves: Sequence[ServedSegment], window: Window) -> dict[str, Any]:
    rounds, cost = _rounds_of(shelves), cost_of(shelves)
    return {"rounds": rounds, "exploration": cost, "settled": is_settled(rounds, window.learner.pages, cost)}


def shift_of(store: Store, asked: Asked) -> dict[str, Any]:
    """Whether visitors click as they used to: the last hour against the week before it, by pages of the learner."""
    surface = asked.display.surface
    week = of_segment(store.history(surface.id, asked.now - LONG_RUN, asked.now - HOUR, HOUR), asked.segment)
    hour = of_segment(store.history(surface.id, asked.now - HOUR, asked.now + MINUTE, MINUTE), asked.segment)
    return change_of(total_of(hour, "learner"), total_of(week, "learner"))


def items_of(store: Store, asked: Asked, rates: Rates) -> list[dict[str, Any]]:
    """How every item does: shown and clicked in all, its click rate weighted so that slots and luck do not matter."""
    display, surface = asked.display, asked.display.surface
    n = len(surface.items)
    shown, clicked = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for shelf in _shelves_of(display, asked.segment):
        shown += shelf.counters.shown.sum(axis=1)
        clicked += shelf.counters.clicked.sum(axis=1)
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
        for item, (rate, low, high) in zip(surface.items, rates.of(store, asked))
        if item.state != "removed"
    ]


def busiest(display: ServedSurface) -> str:
    """The segment that most was learned of: what to show first to whoever asks about all of them."""
    shelves = sorted(display.segments.items())  # of equals, the one without a name
    return max(shelves, key=lambda named: named[1].counters.rounds, default=("", None))[0]


def _marginals(shelf: ServedSegment | None, surface: Surface) -> dict[str, Any]:
    if shelf is None:
        return {"items": [], "slots": surface.settings.slots, "x": []}
    policy = shelf.unconstrained.learner
    names = [item.name for item in policy.eligible]
    return {"items": names, "slots": len(policy.free), "x": policy.marginals.tolist()}


def _marginals_over_time(store: Store, asked: Asked, segment: str, shelf: ServedSegment | None) -> list[dict[str, Any]]:
    if shelf is None:
        return []
    kept = store.policies(asked.display.surface.id, segment, asked.since, SNAPSHOTS)
    told = []
    for at, _, body in kept:
        was = msgspec.msgpack.decode(body)
        row = dict(zip(was["items"], was["x"]))
        told.append({"at": at, "x": [row.get(item.name) for item in shelf.unconstrained.learner.eligible]})
    return told


def _learning(
    asked: Asked,
    shelf: ServedSegment | None,
    rows: Sequence[Mapping[str, Any]],
    results: Mapping[tuple[int, str], int],
    window: Window,
) -> dict[str, Any]:
    policy, surface_id = (shelf.unconstrained.learner if shelf else None), asked.display.surface.id
    return {
        "entropy": policy.entropy if policy else None,
        "entropy_start": math.log(len(policy.eligible)) if policy and policy.eligible else None,
        "policy_id": policy.id if policy else "",
        "policy_age_seconds": max(0.0, (asked.now - shelf.made_at) / 1000.0) if shelf else None,
        **_progress(_shelves_of(asked.display, asked.segment), window),
        "outstanding": sum(row["events"] - row["settled"] for row in rows),
        "late": sum(row["late"] for row in rows),
        "duplicates": results.get((surface_id, "duplicate"), 0),
    }


def _warnings(surface: Surface) -> list[str]:
    settings = surface.settings
    said = []
    if reason := exposure_problem(surface):
        said.append(f"{reason}; lists are uniform now, and nothing learned is used")
    if settings.holdout == 0.0:
        said.append("without a holdout nobody can tell how much is gained; 0.05 is a good start")
    return said
