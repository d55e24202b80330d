"""An engine and a store in memory, as simple as they can be: what HTTP is tested on."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from bothworlds.serve.model import Conflict, Invalid, Item, NotEnough, Surface, SurfaceSettings, Unavailable, Unknown
from bothworlds.serve.schemas import Accepted, PlacedItem, Ranking

NOW = 1_700_000_000_000

# Answers of the documented shape, with as little in them as can be.
SLOT = {"slot": 0, "item": "a", "p": 0.5, "learn": True, "pinned": False, "clicked": False, "late": False}
EVENT = {
    "segment": "", "arm": "learner", "policy_id": "p1", "created_at": NOW, "expires_at": "2023-11-14T22:13:20.000Z",
    "late_until": NOW, "slots": [SLOT], "settled": False, "settled_at": None, "settled_by": "", "why": "",
    "policy": None,
}  # fmt: skip
STATE = {
    "items": ["a"], "states": ["active"], "rounds": 0, "loss": [[0.0]], "shown": [[0]], "clicked": [[0]],
    "marginals": {"items": ["a"], "x": [[1.0]]}, "policy_id": "p1", "policy_age_seconds": 0.0, "entropy": 0.0,
    "revision": 0,
}  # fmt: skip
REPORT = {
    "headline": {"pages": 0, "clicks_per_page": None, "interval": None}, "holdout": None, "uplift": None, "items": [],
    "series": [{"at": NOW, "arm": "learner", "pages": 0, "clicks": 0}], "marginals_history": [{"at": NOW, "x": [None]}],
    "marginals": {"items": [], "slots": 1, "x": [], "segment": ""}, "warnings": [], "segments": [""],
    "learning": {"entropy": None, "entropy_start": None, "policy_id": "", "policy_age_seconds": None, "rounds": 0,
                 "exploration": None, "settled": False, "outstanding": 0, "late": 0, "duplicates": 0},
    "shift": {"alarm": False, "recent": None, "long_run": None, "z": None, "note": ""},
    "recent": {"window_seconds": 60, "since": NOW, "until": NOW, "holdout": None, "uplift": None,
               "headline": {"pages": 0, "clicks_per_page": None, "interval": None}},
}  # fmt: skip


class FakeStore:
    """Facts, keys and audit; ``away`` makes it fail."""

    def __init__(self):
        self.facts, self.kept, self.audited, self.away = {}, {}, [], False

    def close(self):
        pass

    def get(self, key):
        return self.facts.get(key)

    def put(self, key, value, *, only_if_absent=False):
        if only_if_absent:
            return self.facts.setdefault(key, value)
        self.facts[key] = value
        return value

    def keys(self):
        if self.away:
            from bothworlds.serve.stores.base import StoreError

            raise StoreError("the disk is full")
        return list(self.kept.values())

    def save_key(self, key):
        self.kept[key["id"]] = key

    def write_audit(self, entries):
        self.audited.extend(entries)


class FakeEngine:
    """Ranks items in the order in which they were added, and believes every token it has signed."""

    def __init__(self):
        self.kept, self.events, self.rows, self.actors = {}, {}, [], []
        self.rotations, self.elsewhere = [], {}
        self.away, self.started, self.stopped, self.fault = False, False, False, None
        self.reason = "the store is away"

    async def start(self):
        self.started = True

    def knows(self, surface):
        return True

    async def catch_up(self):
        """Take over what another process has done, once."""
        self.kept |= self.elsewhere
        self.elsewhere = {}

    async def stop(self):
        self.stopped = True

    def check(self):
        if self.fault is not None:
            raise self.fault
        if self.away:
            raise Unavailable("the store is away")

    async def rank(self, surface, request_id, *, segment="", exclude=(), pins=None, client=""):
        self.check()
        found = self.surface(surface)
        named(request_id, "/request_id", 256)
        event_id = hashlib.blake2b(f"{surface}\0{request_id}".encode(), digest_size=16).hexdigest()
        pins = pins or {}
        free = [it.name for it in found.items if it.state == "active" and it.name not in {*exclude, *pins.values()}]
        if len(free) + len(pins) < found.settings.slots or any(slot >= found.settings.slots for slot in pins):
            count = found.settings.slots
            raise NotEnough(f"{count} slots need {count} items; {len(free) + len(pins)} eligible", "/exclude")
        slots = [
            PlacedItem(k, pins[k], 1.0, True, False) if k in pins else PlacedItem(k, free.pop(0), 0.5, False, True)
            for k in range(found.settings.slots)
        ]
        self.events.setdefault(event_id, {**EVENT, "event_id": event_id, "surface": surface, "clicks": []})
        return Ranking(event_id, surface, "learner", "p1", NOW, sign(event_id), slots, segment)

    async def feedback(self, events):
        self.check()
        return [self._judge(event) for event in events]

    def _judge(self, event):
        if not hmac.compare_digest(event.token.encode("utf-8", "surrogatepass"), sign(event.event_id).encode()):
            return Accepted(event.event_id, "rejected", "the token is not ours")
        self.events[event.event_id]["clicks"] += event.clicks
        return Accepted(event.event_id, "accepted")

    async def event(self, event_id):
        self.check()
        if event_id not in self.events:
            raise Unknown("there is no such event")
        return self.events[event_id]

    def surface(self, name):
        if name not in self.kept:
            raise Unknown(f"there is no surface {name!r}")
        return self.kept[name]

    def surfaces(self):
        return list(self.kept.values())

    async def put_surface(self, name, body, *, actor, if_version=None):
        self.check()
        named(name, "", 128)
        created, items = name not in self.kept, body.pop("items", [])
        if created:
            if "slots" not in body:
                raise Invalid("a new surface needs slots", "/slots")
            settings = SurfaceSettings(slots=body["slots"])
            self.kept[name] = Surface(
                id=1, name=name, version=0, settings=settings, items=(), created_at=NOW, changed_at=NOW
            )
        surface = await self.patch_surface(name, body, actor=actor, if_version=if_version)
        for item in items:
            surface = self._with_item(surface, item, "active")
        self.kept[name] = surface
        return surface, created

    async def patch_surface(self, name, changes, *, actor, if_version=None):
        self.check()
        self.actors.append(actor)
        surface = self.surface(name)
        if if_version not in (None, surface.version):
            raise Conflict(f"the surface has version {surface.version} by now")
        if changes.get("slots", 1) < 1:
            raise Invalid("a surface needs slots", "/slots")
        settings = msgspec.structs.replace(surface.settings, **changes)
        self.kept[name] = msgspec.structs.replace(surface, version=surface.version + 1, settings=settings)
        return self.kept[name]

    async def put_item(self, surface, item, *, actor):
        return self._changed(surface, item, "active", new=True)

    async def delete_item(self, surface, item, *, actor):
        return self._changed(surface, item, "removed")

    async def pause_item(self, surface, item, *, actor):
        return self._changed(surface, item, "paused")

    async def resume_item(self, surface, item, *, actor):
        return self._changed(surface, item, "active")

    def _changed(self, surface, item, state, new=False):
        self.check()
        found = self.surface(surface)
        named(item, "", 128)
        if not new and item not in {known.name for known in found.items}:
            raise Unknown(f"there is no item {item!r}")
        changed = self._with_item(found, item, state)
        self.kept[surface] = msgspec.structs.replace(changed, version=found.version + 1)
        return self.kept[surface]

    def _with_item(self, surface, name, state):
        named(name, "/items", 128)
        others = [item for item in surface.items if item.name != name]
        item = Item(name=name, index=len(others), state=state, added_at=NOW, changed_at=NOW)
        return msgspec.structs.replace(surface, items=(*others, item))

    async def reset(self, surface, *, segment, actor):
        self.check()
        self.surface(surface)

    async def segments(self, surface):
        self.check()
        self.surface(surface)
        seen = {"pages": 3, "clicks": 1, "used_at": NOW, "expires_at": NOW}
        return [{"name": "", **seen, "used_at": None, "expires_at": None}, {"name": "a", **seen}]

    async def delete_segment(self, surface, segment, *, actor):
        self.check()
        self.surface(surface)
        if segment != "a":
            raise Unknown(f"there is no segment {segment!r}")

    async def warm_start(self, surface, model, *, rounds, segment="", actor):
        self.check()
        self.surface(surface)
        if "attraction" not in model:
            raise Invalid("the model has no attraction", "/model")

    async def rotate_secret(self, *, actor, forget=False):
        self.check()
        self.rotations.append(forget)
        return 2

    async def import_rows(self, surface, rows, *, actor):
        self.check()
        taken = list(rows)
        self.rows += taken
        return {"taken": len(taken), "known": 0, "refused": 0, "reasons": {}}

    def export(self, surface):
        self.check()
        yield from self.rows

    async def state(self, surface, segment=""):
        self.check()
        return {**STATE, "surface": self.surface(surface).name, "segment": segment}

    async def report(self, surface, *, since, until, segment=None):
        self.check()
        named = {"surface": self.surface(surface).name, "segment": segment}
        return {**REPORT, **named, "since": since or 0, "until": until or NOW}

    def health(self):
        reasons = [self.reason] if self.away else []
        return {"ready": not self.away, "reasons": reasons, "queue_length": 3, "commit_lag_ms": 4.0, "open_events": 2}


def sign(event_id):
    return "t-" + hashlib.sha256(f"secret{event_id}".encode("utf-8", "surrogatepass")).hexdigest()


def named(text, pointer, most):
    if not 1 <= len(text) <= most or not text.isprintable():
        raise Invalid(f"names have 1 to {most} printable characters", pointer)


def row(event="e1", position=0, click=0):
    """One row of a log."""
    who = {"event": event, "timestamp": "2026-01-01T00:00:00.000Z", "surface": "home", "segment": "", "arm": "learner"}
    what = {"policy_id": "p1", "position": position, "item": "a", "click": click, "propensity": 0.5}
    return {**who, **what, "pinned": False, "learn": True}
