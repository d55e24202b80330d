"""What the service keeps: surfaces and their items, events and what became of them, counters.

All times are whole milliseconds since 1970, in UTC. All that is added up is a whole number, so that sums do not depend
on the order of what is added.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = [
    "EVERYBODY",
    "ONE",
    "RESET",
    "SMALLEST",
    "Adjustment",
    "Arm",
    "Cell",
    "Eligibility",
    "Event",
    "Increments",
    "Item",
    "Report",
    "Segment",
    "Status",
    "Surface",
    "SurfaceSettings",
    "pins_of",
    "weight_of",
]

ONE = 1 << 20  # losses are counted in units of 2^-20
MOST_EVER = 20_000  # items of a surface, removed ones included: their rows of counters stay
RESET = "reset"  # the reason of an adjustment that takes everything away
SMALLEST = 2.0**-32  # a rarer placement is weighted like this one

Arm = Literal["learner", "holdout"]
Status = Literal["accepted", "duplicate", "settled", "late_applied", "expired", "rejected"]


def weight_of(p: float) -> int:
    """What a missing click adds to the loss of a placement made with probability p.

    The floor of a surface keeps p well above 2^-32; below that, the weight grows no more, so that it can be stored.

    >>> weight_of(1.0) == ONE, weight_of(0.25) == 4 * ONE, weight_of(1e-300) == weight_of(2.0**-32)
    (True, True, True)
    """
    return round(ONE / p) if p > SMALLEST else round(ONE / SMALLEST)


class SurfaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a surface ranks; none of it changes what has been learned."""

    slots: int
    policy: str = "ftrl-pbm"
    policy_settings: dict[str, Any] = {}
    floor: float = 0.005  # share of uniform lists in every decision, which bounds what one click can change
    holdout: float = 0.0  # share of requests that get the baseline order
    baseline: tuple[str, ...] = ()  # the page's own order; the order in which items were added, if empty
    minimum_exposure: float = 0.0  # share of pages on which every active item is shown at least
    attribution_seconds: float = 1800.0  # how long clicks count; silence until then means no click
    late_seconds: float = 86400.0  # how long after that a click still counts, by taking back its loss
    max_segments: int = 100  # the default one included; requests that name others are served from the default one
    segment_idle_days: float = 30.0  # how long a segment that nobody uses keeps its place


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a surface; ``index`` is its row in all counters and is never given to another item."""

    name: str
    index: int
    state: Literal["active", "paused", "removed"]
    added_at: int
    changed_at: int


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """A place on a page, with its settings and items; ``version`` grows with every change."""

    id: int
    name: str
    version: int
    settings: SurfaceSettings
    items: tuple[Item, ...]
    created_at: int
    changed_at: int


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a surface's visitors that is learned about separately, with its counters.

    Each of ``loss``, ``shown`` and ``clicked`` maps (item index, slot) to a whole number; cells at 0 may be missing.
    ``revision`` changes whenever a counter does.
    """

    surface_id: int
    name: str
    rounds: int
    revision: int
    loss: dict[tuple[int, int], int]
    shown: dict[tuple[int, int], int]
    clicked: dict[tuple[int, int], int]


class Eligibility(msgspec.Struct, frozen=True, array_like=True):
    """Which items of a surface could not be shown at the slots that an event learns from.

    At most one of the two lists of item indices is filled, whichever is shorter. An item that could not be shown (it
    was excluded, paused, removed, or pinned to another slot) is charged the loss that was observed at the slot: each of
    ``absent`` is charged, or else each of ``present`` credited, which differs by a constant for the whole slot and so
    comes to the same. Both are empty if every item could be shown.
    """

    absent: tuple[int, ...] = ()
    present: tuple[int, ...] = ()


EVERYBODY = Eligibility()


class Event(msgspec.Struct, kw_only=True):
    """One decision, and what became of it. A settled event is never open again."""

    id: bytes  # 16 bytes
    surface_id: int
    segment: str
    arm: Arm
    policy_id: str
    created_at: int
    expires_at: int  # when it settles by itself
    late_until: int  # until when a late click still counts
    items: tuple[int, ...]  # item index of every slot
    p: tuple[float, ...]  # probability of every placement when it was made
    learn: int  # mask of the slots that are learned from
    clicks: int = 0  # mask of clicked slots
    settled_at: int | None = None
    settled_by: Literal["", "final", "deadline", "import"] = ""
    late: int = 0  # mask of clicks that came after it settled
    pinned: int = 0  # mask of the slots whose item was asked for
    eligibility: Eligibility = EVERYBODY


def pins_of(pinned: int | None, arm: Arm, slots: int, learn: int) -> int:
    """The mask of pinned slots; of records from before it was kept, what the learner did not learn from.

    >>> pins_of(None, "learner", 3, 0b110), pins_of(None, "holdout", 3, 0), pins_of(0b100, "holdout", 3, 0)
    (1, 0, 4)
    """
    if pinned is not None:
        return pinned
    return ((1 << slots) - 1) & ~learn if arm == "learner" else 0


class Cell(msgspec.Struct, frozen=True, order=True):
    """What is added to the counters of one item at one slot."""

    item: int
    slot: int
    loss: int = 0
    shown: int = 0
    clicked: int = 0


class Increments(msgspec.Struct, frozen=True, kw_only=True):
    """What is added to a segment: to cells, and the loss observed at slots, which is spread over items."""

    surface_id: int
    segment: str
    rounds: int
    cells: tuple[Cell, ...]
    observed: tuple[tuple[int, int], ...] = ()  # slot, loss
    eligibility: Eligibility = EVERYBODY


class Adjustment(msgspec.Struct, frozen=True, kw_only=True):
    """An increment that no event has made: a median start, a warm start, a reset."""

    increments: Increments
    at: int
    actor: str
    reason: str


class Report(msgspec.Struct, kw_only=True):
    """Feedback on an event, as it is applied: the event as the token tells it, and what is new."""

    event: Event
    clicks: int
    final: bool
