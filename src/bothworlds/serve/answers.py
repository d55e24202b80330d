"""What is told over HTTP of events, and of what has been learned: the description of the API is made of it.

Fields may be added, none is renamed. What cannot be said yet is null. Times are written out, other than in
``report_types``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from .model import Arm
from .reports.report_types import ItemLine, Learning, Marginals, Pages, Shift, Uplift
from .schemas import EventId, Name, SegmentName, SlotNumber, Time

__all__ = ["Alive", "EventView", "Imported", "ReportView", "StateView"]

Matrix = Annotated[list[list[float]], Meta(description="a row for every item, a column for every slot")]
Counts = Annotated[list[list[int]], Meta(description="a row for every item, a column for every slot")]


class ShownItem(Struct, frozen=True):
    """One slot of a page that was shown, and whether it was clicked; ``late`` if that came after settling."""

    slot: SlotNumber
    item: Name
    p: Annotated[float, Meta(gt=0, le=1)]
    learn: bool
    pinned: bool
    clicked: bool
    late: bool


class EventView(Struct, frozen=True):
    """One decision: what was shown and why, and what became of it."""

    event_id: EventId
    surface: Name
    segment: SegmentName
    arm: Arm
    policy_id: str
    created_at: Time
    expires_at: Time
    late_until: Time
    slots: list[ShownItem]
    absent: Annotated[list[Name], Meta(description="items that could not be shown at the slots that are learned from")]
    settled: bool
    settled_at: Time | None
    settled_by: Literal["", "final", "deadline", "import"]
    why: str
    policy: Annotated[dict[str, Any] | None, Meta(description="the policy that it was drawn from, where it was kept")]


class Served(Struct, frozen=True):
    """How likely each of ``items`` is at each slot."""

    items: list[Name]
    x: Matrix


class StateView(Struct, frozen=True):
    """What has been learned of a segment, and what is served.

    Loss is the sum of (1 - click) / p over events in which the item was shown at the slot, and of 1 - click over those
    in which it could not be shown; only differences within a slot matter.
    """

    surface: Name
    segment: SegmentName
    items: list[Name]
    states: list[Literal["active", "paused", "removed"]]
    rounds: int
    loss: Matrix
    shown: Counts
    clicked: Counts
    marginals: Served
    policy_id: str
    policy_age_seconds: float
    entropy: float
    revision: int


class SeriesPoint(Struct, frozen=True):
    """Settled pages and clicks of one arm in the stretch of time that starts at ``at``."""

    at: Time
    arm: Arm
    pages: int
    clicks: int


class MarginalsThen(Struct, frozen=True):
    """Marginals as they were; a row is null for an item that was not there yet."""

    at: Time
    x: list[list[float] | None]


class RecentWindow(Struct, frozen=True):
    """What the surface earns now: both arms in the longest recent window that has at most half of the pages."""

    window_seconds: int
    since: Time
    until: Time
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None


class ReportView(Struct, frozen=True):
    """How a surface does: learner against holdout, items, learning, and whether visitors have changed."""

    surface: Name
    segment: SegmentName | None
    since: Time
    until: Time
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None
    recent: RecentWindow
    items: list[ItemLine]
    series: list[SeriesPoint]
    marginals: Marginals
    marginals_history: list[MarginalsThen]
    learning: Learning
    shift: Shift
    warnings: list[str]
    segments: list[SegmentName]


class Imported(Struct, frozen=True):
    """How many events of a log were taken, how many were known before, and why others were refused."""

    taken: int
    known: int
    refused: int
    reasons: dict[str, int]


class Alive(Struct, frozen=True):
    """That the process lives."""

    alive: bool
