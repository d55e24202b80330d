"""Made-up surfaces and figures, and an engine whose reports show them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from bothworlds.serve.engine.engine import Engine
from bothworlds.serve.model import Item, Surface, SurfaceSettings, Unknown
from tests.serve.running import temporary_store

NOW = 1_700_000_000_000
MINUTE = 60_000
NAMES = ["Oak desk", "Reading lamp", "Linen sofa", "Wool rug", "Wall shelf", "Bar stool", "Side table", "Plant pot"]


State = Literal["active", "paused", "removed"]


def surface_of(
    names: Sequence[str] = NAMES, slots: int = 4, name: str = "home", states: Mapping[str, State] | None = None
) -> Surface:
    states = states or {}
    items = tuple(
        Item(name=item, index=i, state=states.get(item, "active"), added_at=NOW - 10**9, changed_at=NOW - 10**9)
        for i, item in enumerate(names)
    )
    settings = SurfaceSettings(slots=slots, holdout=0.1)
    return Surface(id=1, name=name, version=1, settings=settings, items=items, created_at=NOW, changed_at=NOW)


def marginals(n: int, slots: int, sharpness: float) -> list[list[float]]:
    """Doubly stochastic enough to look like the real thing: item i prefers slot i."""
    rows = [[math.exp(-sharpness * abs(i - j)) for j in range(slots)] for i in range(n)]
    totals = [sum(row[j] for row in rows) for j in range(slots)]
    return [[value / total for value, total in zip(row, totals)] for row in rows]


def item_line(name: str, i: int, shows: int, state: str = "active") -> dict[str, Any]:
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


def series_of(minutes: int = 90, holdout: bool = True, seed: int = 1) -> list[dict[str, Any]]:
    generator, points = random.Random(seed), []
    for step in range(minutes):
        at = NOW - (minutes - step) * MINUTE
        for arm, pages, rate in (("learner", 900, 0.55 + 0.25 * step / minutes), ("holdout", 100, 0.56)):
            if arm == "learner" or holdout:
                clicks = round(generator.gauss(pages * rate, math.sqrt(pages * rate)))
                points.append({"at": at, "arm": arm, "pages": pages, "clicks": clicks, "design_effect": 1.0})
    return points


def report_of(surface: Surface, segment: str | None = None, holdout: bool = True, **changes: Any) -> dict[str, Any]:
    """Return a whole report in which ``changes`` replace fields."""
    names, slots = [item.name for item in surface.items], surface.settings.slots
    states = {item.name: item.state for item in surface.items}
    uplift = {"relative": 0.205, "low": 0.17, "high": 0.24, "enough": True, "needed_pages": 2000, "missing": ""}
    report: dict[str, Any] = {
        "surface": surface.name,
        "segment": segment,
        "since": NOW - 90 * MINUTE,
        "until": NOW,
        "headline": {"pages": 81000, "clicks_per_page": 0.675, "interval": (0.669, 0.681)},
        "holdout": {"pages": 9000, "clicks_per_page": 0.56, "interval": (0.545, 0.576)} if holdout else None,
        "uplift": uplift if holdout else None,
        "sample_ratio": {
            "alarm": False,
            "evidence": 0.4,
            "alarm_at": None,
            "share": 0.1,
            "learner": {"pages": 80_000, "answered": 79_000},
            "holdout": {"pages": 8_900, "answered": 8_800},
        }
        if holdout
        else None,
        "guard": {
            "enabled": True,
            "active": False,
            "active_since": None,
            "compared_since": NOW - 10**8,
            "low": 0.02,
            "high": 0.2,
        }
        if holdout
        else None,
        "arms": [],
        "items": [item_line(name, i, 90000 // (i + 1), states[name]) for i, name in enumerate(names)],
        "items_total": len(names),
        "series": series_of(holdout=holdout),
        "marginals": {"items": names, "slots": slots, "x": marginals(len(names), slots, 1.6), "context": {}},
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
            "unsettled": "",
            "outstanding": 37,
            "late": 12,
            "duplicates": 240,
        },
        "shift": {"alarm": False, "recent": 0.79, "long_run": 0.68, "z": 1.2, "note": ""},
        "changes": [],
        "warnings": [],
        "retention": {"days": None, "deleted": 0, "until": None},
        "segments": ["", "mobile", "desktop"],
        "objective": "clicks",
    }
    report |= changes
    report["uplift"] = report["uplift"] and {"since": NOW - 10**9} | report["uplift"]
    window = {key: report[key] for key in ("until", "headline", "holdout", "uplift")}
    return {"recent": {"window_seconds": 3600, "since": NOW - 60 * MINUTE, **window}} | report


AUDIT = [
    {"at": NOW - MINUTE, "actor": "local", "action": "create", "detail": ""},
    {"at": NOW, "actor": "key 3f", "action": "pause", "detail": "Bar stool"},
]


def event_of(event_id: str, surface: str = "home", segment: str = "mobile") -> dict[str, Any]:
    """Return a settled event with a late click and a pinned item."""
    slots = [
        {"slot": 0, "item": "Oak desk", "p": 0.41, "pinned": False, "learn": True, "clicked": True, "late": True},
        {"slot": 1, "item": "Wool rug", "p": 1.0, "pinned": True, "learn": False, "clicked": False, "late": False},
    ]
    return {
        "event_id": event_id,
        "surface": surface,
        "segment": segment,
        "context": {"segment": segment},
        "arm": "learner",
        "policy_id": "6b1f",
        "created_at": NOW,
        "expires_at": NOW + 1_800_000,
        "late_until": NOW + 88_200_000,
        "slots": slots,
        "absent": [],
        "settled": True,
        "settled_at": NOW + 4000,
        "settled_by": "final",
        "why": "drawn with the probabilities p of the learner",
        "policy": None,
    }


def showing(surfaces: Iterable[Surface] | None = None, holdout: bool = True, **changes: Any) -> Engine:
    """Return an engine, not started, with these surfaces ("home" by default) and made-up figures.

    ``changes`` replace fields of its reports, and ``event`` those of its only event. ``asked`` are the arguments with
    which whole reports were requested.
    """
    store = temporary_store()
    for surface in [surface_of()] if surfaces is None else surfaces:
        store.save_surface(msgspec.structs.replace(surface, id=0), AUDIT)
    engine: Any = Engine(store)
    engine.registry.refresh()
    engine.asked = []

    async def report(
        surface: str,
        *,
        since: int | None = None,
        until: int | None = None,
        segment: str | None = None,
        context: Mapping[str, Any] | None = None,
    ) -> Any:
        engine.asked.append((surface, since, until, segment))
        return report_of(engine.registry.surface(surface), segment, holdout, **changes)

    async def headline(surface: str) -> Any:
        shown = report_of(engine.registry.surface(surface), None, holdout, **changes)
        return {
            "pages": shown["headline"]["pages"],
            "clicks_per_page": shown["headline"]["clicks_per_page"],
            "guard_since": shown["guard"] and shown["guard"]["active_since"],
            **{key: shown[key] for key in ("recent", "sample_ratio", "objective")},
            **{key: shown["learning"][key] for key in ("rounds", "exploration", "settled", "unsettled")},
        }

    async def event(event_id: str) -> Any:
        if event_id != "ab" * 16:
            raise Unknown(f"there is no event {event_id!r}")
        return event_of(event_id) | changes.get("event", {})

    engine.reports.report, engine.reports.headline, engine.reports.event = report, headline, event
    engine.health = lambda: {
        "ready": True, "reasons": [], "commit_lag_ms": 4.0, "queue_length": 3, "solver_ms": 1.9, "open_events": 37,
        "last_error": None,
    }  # fmt: skip
    return engine
