"""An engine in memory for tests of HTTP, the dashboard and the client; mypy checks it against ``EngineProtocol``.

It ranks items in the order in which they were added, learns nothing, and reports figures that are made up.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from bothworlds.serve.engine.surface_rules import promote
from bothworlds.serve.engine_protocol import EngineProtocol
from bothworlds.serve.model import (
    LISTED_ITEMS,
    Conflict,
    Invalid,
    Item,
    NotEnough,
    Surface,
    SurfaceSettings,
    Unavailable,
    Unknown,
)
from bothworlds.serve.schemas import (
    Accepted,
    EngineHealth,
    FeedbackEvent,
    Imported,
    PlacedItem,
    Ranking,
    SegmentView,
)

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
        "marginals": {"items": names, "slots": slots, "x": marginals(len(names), slots, 1.6), "segment": ""},
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


def audit(surface_id: int | None, limit: int) -> list[dict[str, Any]]:
    """Return two entries, as ``Store.audit`` would."""
    surface_id = surface_id or 1
    return [
        {"id": 2, "surface_id": surface_id, "at": NOW, "actor": "key 3f", "action": "pause", "detail": "Bar stool"},
        {"id": 1, "surface_id": surface_id, "at": NOW - MINUTE, "actor": "local", "action": "create"},
    ][:limit]


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
        "why": "",
        "policy": None,
    }


def row(event: str = "e1", position: int = 0, click: int = 0) -> dict[str, Any]:
    """Return one row of a log."""
    who = {"event": event, "timestamp": "2026-01-01T00:00:00.000Z", "surface": "home", "segment": "", "arm": "learner"}
    what = {"policy_id": "p1", "position": position, "item": "a", "click": click, "propensity": 0.5}
    return {**who, **what, "pinned": False, "learn": True}


def sign(event_id: str) -> str:
    """Return the only token that the engine accepts for an event."""
    return "t-" + hashlib.sha256(f"secret{event_id}".encode("utf-8", "surrogatepass")).hexdigest()


def check_name(text: str, pointer: str, longest: int) -> None:
    if not 1 <= len(text) <= longest or not text.isprintable():
        raise Invalid(f"names have 1 to {longest} printable characters", pointer)


class FakeEngine:
    """Implements ``EngineProtocol`` with dictionaries.

    ``surfaces`` defaults to one surface, "home". ``changes`` replace fields of its reports. ``unavailable`` makes calls
    raise Unavailable, ``error`` makes them raise that error. ``changed_elsewhere`` are surfaces that another process
    has changed: ``catch_up`` takes them over.
    """

    def __init__(self, surfaces: Iterable[Surface] | None = None, holdout: bool = True, **changes: Any) -> None:
        self._surfaces = {s.name: s for s in (surfaces if surfaces is not None else [surface_of()])}
        self._holdout, self._changes = holdout, changes
        self._segments: list[str] = changes.get("segments", ["", "mobile", "desktop"])
        self.events: dict[str, dict[str, Any]] = {"ab" * 16: event_of("ab" * 16)}
        self.clicks: dict[str, list[int]] = {}
        self.rows: list[dict[str, Any]] = []
        self.asked: list[tuple[str, int | None, int | None, str | None]] = []  # arguments of ``report``
        self.actors: list[str] = []
        self.rotations: list[bool] = []
        self.retention: dict[str, Any] = {"days": None, "deleted": 0, "until": None}
        self.changed_elsewhere: dict[str, Surface] = {}
        self.unavailable, self.unavailable_reason = False, "the store is away"
        self.error: Exception | None = None
        self.started = self.stopped = False

    def _check(self) -> None:
        if self.error is not None:
            raise self.error
        if self.unavailable:
            raise Unavailable(self.unavailable_reason)

    async def start(self) -> None:
        self.started = True

    async def stop(self) -> None:
        self.stopped = True

    def health(self) -> EngineHealth:
        return {
            "ready": not self.unavailable,
            "reasons": [self.unavailable_reason] if self.unavailable else [],
            "commit_lag_ms": 4.0,
            "queue_length": 3,
            "solver_ms": 1.9,
            "open_events": 37,
            "last_error": None,
        }

    def knows(self, surface: str) -> bool:
        return True

    async def catch_up(self) -> None:
        self._surfaces |= self.changed_elsewhere
        self.changed_elsewhere = {}

    async def rank(
        self,
        surface: str,
        request_id: str,
        *,
        segment: str = "",
        exclude: Sequence[str] = (),
        pins: Mapping[int, str] | None = None,
        client: str = "",
        visitor: str = "",
        counted: bool = True,
    ) -> Ranking:
        self._check()
        known = self.surface(surface)
        check_name(request_id, "/request_id", 256)
        event_id = hashlib.blake2b(f"{surface}\0{request_id}".encode(), digest_size=16).hexdigest()
        pins = pins or {}
        free = [it.name for it in known.items if it.state == "active" and it.name not in {*exclude, *pins.values()}]
        count = known.settings.slots
        if len(free) + len(pins) < count or any(slot >= count for slot in pins):
            raise NotEnough(f"{count} slots need {count} items; {len(free) + len(pins)} eligible", "/exclude")
        slots = tuple(
            PlacedItem(k, pins[k], 1.0, True, False) if k in pins else PlacedItem(k, free.pop(0), 0.5, False, True)
            for k in range(count)
        )
        self.events.setdefault(event_id, event_of(event_id, surface, segment))
        return Ranking(event_id, surface, "learner", "p1", NOW, sign(event_id), slots, segment)

    async def feedback(self, events: Sequence[FeedbackEvent]) -> list[Accepted]:
        self._check()
        return [self._result(event) for event in events]

    def _result(self, event: FeedbackEvent) -> Accepted:
        if not hmac.compare_digest(event.token.encode("utf-8", "surrogatepass"), sign(event.event_id).encode()):
            return Accepted(event.event_id, "rejected", "the token is not ours")
        self.clicks.setdefault(event.event_id, []).extend(event.clicks)
        return Accepted(event.event_id, "accepted")

    def surface(self, name: str) -> Surface:
        if name not in self._surfaces:
            raise Unknown(f"there is no surface {name!r}")
        return self._surfaces[name]

    def surfaces(self) -> list[Surface]:
        return list(self._surfaces.values())

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        self._check()
        check_name(name, "", 128)
        created, settings = name not in self._surfaces, {key: body[key] for key in body if key != "items"}
        if created:
            if "slots" not in settings:
                raise Invalid("a new surface needs slots", "/slots")
            self._surfaces[name] = Surface(
                id=1,
                name=name,
                version=0,
                settings=SurfaceSettings(slots=settings["slots"]),
                items=(),
                created_at=NOW,
                changed_at=NOW,
            )
        surface = await self.patch_surface(name, settings, actor=actor, if_version=if_version)
        for item in body.get("items", ()):
            surface = self._with_item(surface, item, "active")
        self._surfaces[name] = surface
        return surface, created

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        self._check()
        self.actors.append(actor)
        surface = self.surface(name)
        if if_version not in (None, surface.version):
            raise Conflict(f"the surface now has version {surface.version}")
        if changes.get("slots", 1) < 1:
            raise Invalid("a surface needs slots", "/slots")
        settings = msgspec.structs.replace(surface.settings, **changes)
        self._surfaces[name] = msgspec.structs.replace(surface, version=surface.version + 1, settings=settings)
        return self._surfaces[name]

    async def restart_comparison(self, surface: str, *, actor: str) -> Surface:
        return await self.patch_surface(surface, {}, actor=actor)

    async def promote(self, surface: str, arm: str, *, actor: str, if_version: int | None = None) -> Surface:
        self._check()
        return promote(self.surface(surface), arm, NOW).surface

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        return self._change_item(surface, item, "active", new=True)

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        return self._change_item(surface, item, "removed")

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        return self._change_item(surface, item, "paused")

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        return self._change_item(surface, item, "active")

    def _change_item(self, surface: str, item: str, state: State, new: bool = False) -> Surface:
        self._check()
        known = self.surface(surface)
        check_name(item, "", 128)
        if not new and item not in {other.name for other in known.items}:
            raise Unknown(f"there is no item {item!r}")
        changed = self._with_item(known, item, state)
        self._surfaces[surface] = msgspec.structs.replace(changed, version=known.version + 1)
        return self._surfaces[surface]

    def _with_item(self, surface: Surface, name: str, state: State) -> Surface:
        check_name(name, "/items", 128)
        others = [item for item in surface.items if item.name != name]
        item = Item(name=name, index=len(others), state=state, added_at=NOW, changed_at=NOW)
        return msgspec.structs.replace(surface, items=(*others, item))

    async def segments(self, surface: str) -> list[SegmentView]:
        self._check()
        self.surface(surface)
        expires_at = NOW + 30 * 24 * 60 * MINUTE
        return [
            {"name": name, "pages": 1234, "clicks": 30, "used_at": NOW, "expires_at": expires_at if name else None}
            for name in self._segments
        ]

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        self._check()
        self.surface(surface)
        if segment not in self._segments:
            raise Unknown(f"there is no segment {segment!r}")

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        self._check()
        self.surface(name)
        del self._surfaces[name]

    async def delete_event(self, event_id: str, *, actor: str) -> None:
        await self.event(event_id)
        del self.events[event_id]

    async def delete_request(self, surface: str, request_id: str, *, actor: str) -> int:
        self._check()
        self.surface(surface)
        return 1

    async def delete_visitor(self, visitor: str, *, actor: str) -> int:
        self._check()
        return 2

    async def retention_of(self, surface: str) -> Any:
        self.surface(surface)
        return self.retention

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        self._check()
        self.surface(surface)

    async def start_from_baseline(self, surface: str, *, rounds: int, segment: str = "", actor: str) -> None:
        self._check()
        self.surface(surface)

    async def rotate_secret(self, *, actor: str, forget: bool = False) -> int:
        self._check()
        self.rotations.append(forget)
        return 2

    async def event(self, event_id: str) -> Any:
        self._check()
        if event_id not in self.events:
            raise Unknown(f"there is no event {event_id!r}")
        return self.events[event_id]

    async def state(self, surface: str, segment: str = "", arm: str = "learner", limit: int = LISTED_ITEMS) -> Any:
        self._check()
        return {
            "surface": self.surface(surface).name,
            "segment": segment,
            "items": ["a"],
            "items_total": 1,
            "states": ["active"],
            "rounds": 0,
            "loss": [[0.0]],
            "shown": [[0]],
            "clicked": [[0]],
            "marginals": {"items": ["a"], "x": [[1.0]]},
            "policy_id": "p1",
            "policy_age_seconds": 0.0,
            "entropy": 0.0,
            "revision": 0,
            "changed_at": None,
        }

    async def report(
        self, surface: str, *, since: int | None = None, until: int | None = None, segment: str | None = None
    ) -> Any:
        self._check()
        self.asked.append((surface, since, until, segment))
        return report_of(self.surface(surface), segment, self._holdout, **self._changes)

    async def headline(self, surface: str) -> Any:
        self._check()
        report = report_of(self.surface(surface), None, self._holdout, **self._changes)
        return {
            "pages": report["headline"]["pages"],
            "clicks_per_page": report["headline"]["clicks_per_page"],
            "uplift": report["uplift"],
            "recent": report["recent"],
            "sample_ratio": report["sample_ratio"],
            "guard_since": report["guard"] and report["guard"]["active_since"],
            "objective": report["objective"],
            **{key: report["learning"][key] for key in ("rounds", "exploration", "settled", "unsettled")},
        }

    def export(self, surface: str) -> Iterator[dict[str, Any]]:
        self._check()
        yield from self.rows

    async def import_rows(self, surface: str, rows: Iterable[Mapping[str, Any]], *, actor: str) -> Imported:
        self._check()
        taken = [dict(one) for one in rows]
        self.rows += taken
        return Imported(taken=len(taken), known=0, refused=0, reasons={})


def as_protocol(engine: FakeEngine) -> EngineProtocol:
    """Return the same engine; mypy fails here if it does not implement the protocol."""
    return engine
