"""Surfaces, events and feedback for tests of stores."""

from __future__ import annotations

import random

from bothworlds.serve.model import ALL_ELIGIBLE, Eligibility, Event, Item, Surface, SurfaceSettings, VerifiedFeedback

ITEMS, SLOTS = 5, 3
NOON = 1_700_000_040_000  # a whole minute
WINDOW, LATE = 1_000, 10_000
ELIGIBILITY = (ALL_ELIGIBLE, Eligibility(absent=(3,)), ALL_ELIGIBLE, Eligibility(present=(0, 2)))


def a_surface(name: str = "home", *, id: int = 0, version: int = 1) -> Surface:
    items = tuple(Item(name=f"i{k}", index=k, state="active", added_at=NOON, changed_at=NOON) for k in range(ITEMS))
    settings = SurfaceSettings(slots=SLOTS, policy_settings={"rate": 0.1})
    return Surface(id=id, name=name, version=version, settings=settings, items=items, created_at=NOON, changed_at=NOON)


def an_event(number: int, surface_id: int = 1, **changes: object) -> Event:
    """An event that its number fixes completely."""
    chance = random.Random(number)
    fields: dict[str, object] = {
        "id": number.to_bytes(16, "big"),
        "surface_id": surface_id,
        "segment": ("", "phone")[number % 2],
        "arm": "holdout" if number % 7 == 0 else "learner",
        "policy_id": f"policy{number % 3}",
        "created_at": NOON + number,
        "expires_at": NOON + number + WINDOW,
        "late_until": NOON + number + WINDOW + LATE,
        "items": tuple(chance.sample(range(ITEMS), SLOTS)),
        "p": tuple(chance.uniform(0.01, 1.0) for _ in range(SLOTS)),
        "learn": 0 if number % 7 == 0 else chance.randrange(1, 1 << SLOTS),
        "pinned": number % 5,
        "eligibility": ELIGIBILITY[number % len(ELIGIBILITY)],
        "mixture": () if number % 3 else (chance.uniform(0.02, 1.0), *(chance.uniform(-9, 9) for _ in range(SLOTS))),
    }
    return Event(**(fields | changes))  # type: ignore[arg-type]


def feedback_on(number: int, clicks: int = 0, final: bool = True, surface_id: int = 1) -> VerifiedFeedback:
    return VerifiedFeedback(event=an_event(number, surface_id), clicks=clicks, final=final)
