"""Surfaces, events and feedback for tests of stores."""

from __future__ import annotations

import random
from typing import Any

from bothworlds.serve.events import Event, Feedback, Listed
from bothworlds.serve.model import ArmSettings, Item, Surface, SurfaceSettings
from bothworlds.serve.stores import Store

ITEMS, SLOTS = 5, 3
NOON = 1_700_000_040_000  # a whole minute
WINDOW, LATE = 1_000, 10_000
LIMIT = 400


def a_surface(name: str = "home", *, id: int = 0, version: int = 1) -> Surface:
    items = tuple(Item(name=f"i{k}", index=k, state="active", added_at=NOON, changed_at=NOON) for k in range(ITEMS))
    settings = SurfaceSettings(slots=SLOTS, arms=(ArmSettings(name="new", share=0.3),))
    return Surface(
        id=id, name=name, version=version, settings=settings, items=items, created_at=NOON, changed_at=NOON,
        arm_learners={"new": 1}, n_learners=2,
    )  # fmt: skip


def started(store: Store, *names: str) -> Store:
    """A store with surfaces, each with a learner 2k - 1 of its own policy and 2k of an arm."""
    for name in names or ("home",):
        store.save_surface(a_surface(name), [])
    return store


def an_event(number: int, surface_id: int = 1, **changes: Any) -> Event:
    """An event that its number fixes completely: with the second learner, and of the segment "phone", if it is odd."""
    chance = random.Random(number)
    held_out = number % 7 == 0
    listed = Listed(
        tuple(chance.sample(range(ITEMS), SLOTS)),
        tuple(chance.uniform(0.01, 1.0) for _ in range(SLOTS)),
        0 if held_out else chance.randrange(1, 1 << SLOTS),
        pinned=number % 5,
        absent=(3,) if number % 4 else (),
        note=() if number % 3 else (chance.uniform(-9, 9), 0.5),
        policy_id=f"policy:{number % 3}",
    )
    fields: dict[str, Any] = {
        "id": number.to_bytes(16, "big"),
        "surface_id": surface_id,
        "learner_id": 2 * surface_id - 1 + number % 2,
        "context": {"segment": "phone", "device": f"d{number % 3}"} if number % 2 else {},
        "arm": "holdout" if held_out else "learner",
        "created_at": NOON + number,
        "expires_at": NOON + number + WINDOW,
        "late_until": NOON + number + WINDOW + LATE,
        "n": ITEMS,
        "listed": listed,
    }
    return Event(**(fields | changes))


def feedback_on(number: int, clicks: int = 0, *, final: bool = True, **changes: Any) -> Feedback:
    """Feedback with the token of ``an_event(number)``; ``shown`` and ``rewards`` are of the feedback."""
    reported = {name: changes.pop(name) for name in ("shown", "rewards") if name in changes}
    return Feedback(event=an_event(number, **changes), clicks=clicks, final=final, **reported)


def settle(
    store: Store, now: int = NOON + 1, *, limit: int = LIMIT, mode: Any = "final", early: bool = True
) -> list[Event]:
    """Settle what is ripe on all surfaces, as the only holder of the lease."""
    lease = store.acquire("me", 60.0)
    assert lease is not None
    surface_ids = [surface.id for surface in store.surfaces()]
    return store.settle(lease, now, dict.fromkeys(surface_ids, early), dict.fromkeys(surface_ids, mode), limit)
