"""An engine that has learned something, without learning: what the pages are tested on."""

from __future__ import annotations

import math
import random

from bothworlds.serve.model import Item, Surface, SurfaceSettings, Unknown

NOW = 1_700_000_000_000
MINUTE = 60_000
NAMES = ["Oak desk", "Reading lamp", "Linen sofa", "Wool rug", "Wall shelf", "Bar stool", "Side table", "Plant pot"]


def surface_of(names=NAMES, slots=4, name="home", states=None):
    states = states or {}
    items = tuple(
        Item(name=item, index=i, state=states.get(item, "active"), added_at=NOW - 10**9, changed_at=NOW - 10**9)
        for i, item in enumerate(names)
    )
    settings = SurfaceSettings(slots=slots, holdout=0.1)
    return Surface(id=1, name=name, version=1, settings=settings, items=items, created_at=NOW, changed_at=NOW)


def marginals(n, slots, sharpness):
    """Doubly stochastic enough to look like the real thing: item i prefers slot i."""
    rows = [[math.exp(-sharpness * abs(i - j)) for j in range(slots)] for i in range(n)]
    totals = [sum(row[j] for row in rows) for j in range(slots)]
    return [[value / total for value, total in zip(row, totals)] for row in rows]


def item_line(name, i, shows, state="active"):
    rate = 0.3 / (1 + i)
    half = 1.0 / math.sqrt(shows + 1)
    return {
        "name": name,
        "state": state,
        "shows": shows,
        "clicks": int(shows * rate),
        "rate": rate,
        "low": max(0.0, rate - half),
        "high": rate + half,
        "share": 1 / (i + 2),
        "age_seconds": 86400.0 * (i + 1),
    }


def series_of(minutes=90, holdout=True, seed=1):
    chance, points = random.Random(seed), []
    for step in range(minutes):
        at = NOW - (minutes - step) * MINUTE
        for arm, pages, rate in (("learner", 900, 0.55 + 0.25 * step / minutes), ("holdout", 100, 0.56)):
            if arm == "learner" or holdout:
                clicks = round(chance.gauss(pages * rate, math.sqrt(pages * rate)))
                points.append({"at": at, "arm": arm, "pages": pages, "clicks": clicks})
    return points


def report_of(surface, segment=None, holdout=True, **changes):
    names, slots = [item.name for item in surface.items], surface.settings.slots
    states = {item.name: item.state for item in surface.items}
    uplift = {"relative": 0.205, "low": 0.17, "high": 0.24, "enough": True, "needed_pages": 2000}
    report = {
        "surface": surface.name,
        "segment": segment,
        "since": NOW - 90 * MINUTE,
        "until": NOW,
        "headline": {"pages": 81000, "clicks_per_page": 0.675, "interval": (0.669, 0.681)},
        "holdout": {"pages": 9000, "clicks_per_page": 0.56, "interval": (0.545, 0.576)} if holdout else None,
        "uplift": uplift if holdout else None,
        "items": [item_line(name, i, 90000 // (i + 1), states[name]) for i, name in enumerate(names)],
        "series": series_of(holdout=holdout),
        "marginals": {"items": names, "slots": slots, "x": marginals(len(names), slots, 1.6)},
        "marginals_history": [
            {"at": NOW - (30 - k) * 3 * MINUTE, "x": marginals(len(names), slots, 1.6 * k / 30)} for k in range(30)
        ],
        "learning": {
            "entropy": 2.9,
            "entropy_start": 8.1,
            "policy_id": "6b1f0c9a2e4d",
            "policy_age_seconds": 0.4,
            "rounds": 810_000,
            "exploration": 0.013,
            "settled": True,
            "outstanding": 37,
            "late": 12,
            "duplicates": 240,
        },
        "shift": {"alarm": False, "recent": 0.79, "long_run": 0.68, "z": 1.2, "note": ""},
        "warnings": [],
        "segments": ["", "mobile", "desktop"],
    }
    report |= changes
    window = {key: report[key] for key in ("until", "headline", "holdout", "uplift")}
    return {"recent": {"window_seconds": 3600, "since": NOW - 60 * MINUTE, **window}} | report


def audit(surface_id, limit):
    """What ``Store.audit`` tells."""
    surface_id = surface_id or 1
    return [
        {"id": 2, "surface_id": surface_id, "at": NOW, "actor": "key 3f", "action": "pause", "detail": "Bar stool"},
        {"id": 1, "surface_id": surface_id, "at": NOW - MINUTE, "actor": "local", "action": "create"},
    ][:limit]


class FakeEngine:
    """Answers as ``Engine`` would; ``changes`` replace parts of its reports."""

    def __init__(self, surfaces=None, holdout=True, **changes):
        self._surfaces = {s.name: s for s in (surfaces if surfaces is not None else [surface_of()])}
        self._holdout, self._changes, self.asked = holdout, changes, []

    def surfaces(self):
        return list(self._surfaces.values())

    def surface(self, name):
        if name not in self._surfaces:
            raise Unknown(f"there is no surface {name!r}")
        return self._surfaces[name]

    async def report(self, surface, *, since, until, segment=None):
        self.asked.append((surface, since, until, segment))
        return report_of(self.surface(surface), segment, self._holdout, **self._changes)

    async def headline(self, surface):
        whole = report_of(self.surface(surface), None, self._holdout, **self._changes)
        told, learning = whole["headline"], whole["learning"]
        return {
            "pages": told["pages"],
            "clicks_per_page": told["clicks_per_page"],
            "uplift": whole["uplift"],
            "recent": whole["recent"],
            **{key: learning[key] for key in ("rounds", "exploration", "settled")},
        }

    async def segments(self, surface):
        self.surface(surface)
        names = self._changes.get("segments", ["", "mobile", "desktop"])
        seen = {"pages": 1234, "clicks": 30, "used_at": NOW}
        return [{"name": name, **seen, "expires_at": NOW + 30 * 24 * 60 * MINUTE if name else None} for name in names]

    async def event(self, event_id):
        if event_id != "ab" * 16:
            raise Unknown(f"there is no event {event_id!r}")
        slots = [
            {"slot": 0, "item": "Oak desk", "p": 0.41, "pinned": False, "learn": True, "clicked": True, "late": True},
            {"slot": 1, "item": "Wool rug", "p": 1.0, "pinned": True, "learn": False, "clicked": False},
        ]
        return {
            "event_id": event_id,
            "surface": "home",
            "segment": "mobile",
            "arm": "learner",
            "policy_id": "6b1f",
            "created_at": NOW,
            "settled_at": NOW + 4000,
            "settled_by": "final",
            "slots": slots,
        }

    def health(self):
        return {
            "ready": True,
            "reasons": [],
            "commit_lag_ms": 3.1,
            "queue_length": 0,
            "solver_ms": 1.9,
            "open_events": 37,
            "last_error": None,
        }
