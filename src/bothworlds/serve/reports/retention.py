"""What a report says about deleted events: how long events are kept, and how many are missing."""

from __future__ import annotations

from ..model import SurfaceSettings, rfc3339
from ..schemas import RetentionView
from ..stores.base import DeletedEvents

__all__ = ["missing_events_warning", "retention_view"]


def retention_view(settings: SurfaceSettings, deleted: DeletedEvents) -> RetentionView:
    """Return how long events are kept, how many were deleted, and until when events were deleted by their age."""
    until = deleted.until if deleted.until >= 0 else None
    return {"days": settings.retention_days, "deleted": deleted.events, "until": until}


def missing_events_warning(view: RetentionView, since: int) -> list[str]:
    """Return a warning if the range of a report starts before events that were deleted.

    >>> missing_events_warning({"days": 90, "deleted": 3, "until": 1_700_000_000_000}, 1_800_000_000_000)
    []
    """
    if view["until"] is None or since > view["until"]:
        return []
    return [f"events until {rfc3339(view['until'])} were deleted: click rates of items are those of later events"]
