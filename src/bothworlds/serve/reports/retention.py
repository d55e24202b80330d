"""How long events are kept, and what a report says about those that are missing."""

from __future__ import annotations

from typing import Any

from ..model import SurfaceSettings, rfc3339
from ..schemas import RetentionView
from .inputs import DAY, HOUR

# By so much the clock may be set back without a token of a deleted event being accepted again.
RETENTION_MARGIN = HOUR


def shortest_retention(settings: SurfaceSettings) -> int | None:
    """Return for how many milliseconds every event is kept at least; None if no event is deleted because of its age.

    >>> settings = SurfaceSettings(slots=1, retention_days=1, attribution_seconds=1800)
    >>> shortest_retention(settings) == 25.5 * HOUR  # until its late window has ended
    True
    """
    if settings.retention_days is None:
        return None
    window = round(1000 * (settings.attribution_seconds + settings.late_seconds))
    return max(round(DAY * settings.retention_days), window + RETENTION_MARGIN)


def retention_view(settings: SurfaceSettings, deleted: Any, settled: int | None = None) -> RetentionView:
    """Return how long events are kept, how many were deleted, and until when events were deleted by their age.

    ``settled`` events have ever been in the log, if that is known.
    """
    until = deleted.until if deleted.until >= 0 else None
    view: RetentionView = {"days": settings.retention_days, "deleted": deleted.events, "until": until}
    return view if settled is None else {**view, "events": max(0, settled - deleted.events)}


def missing_events_warning(view: RetentionView, since: int) -> list[str]:
    """Return a warning if the range of a report starts before events that were deleted.

    >>> missing_events_warning({"days": 90, "deleted": 3, "until": 1_700_000_000_000}, 1_800_000_000_000)
    []
    """
    if view["until"] is None or since > view["until"]:
        return []
    return [f"events until {rfc3339(view['until'])} were deleted: click rates of items are those of later events"]
