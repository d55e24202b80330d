"""The inputs of a report: the requested range, how long events are kept, and the engine's state as plain data.

The reports do not import the engine. It passes counters and probabilities, and the reports compute from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...kernels import Floats, Ints
from ...labels import MAX_VALUES
from ...policies.marginals import entropy_of
from ..model import Surface, SurfaceSettings, rfc3339
from ..schemas import FeedbackEnds, RetentionView

MINUTE = 60_000  # milliseconds
HOUR, DAY = 60 * MINUTE, 1440 * MINUTE
MAX_BUCKETS = 120  # of a series
# By so much the clock may be set back without a token of a deleted event being accepted again.
RETENTION_MARGIN = HOUR


class LearnedState(NamedTuple):
    """What was counted, and the policy that is served; on a surface with arms, of the first one.

    ``shown`` and ``clicked`` are (items of the surface, slots), and those of all arms. ``rates`` and ``marginals`` are
    (``items``, slots that no item is pinned to).
    """

    rounds: int
    shown: Ints | Floats
    clicked: Ints | Floats  # sums of rewards, where these are counted
    items: tuple[str, ...]  # the eligible ones
    rates: Floats  # of clicks, of the eligible items at the slots that are not pinned
    marginals: Floats
    policy_id: str
    made_at: int  # when the policy was solved
    other_rounds: int = 0  # of the other arms
    context: Mapping[str, str] = {}  # of the visitor that ``marginals`` are for

    @property
    def entropy(self) -> float:
        """How undecided the lists are, in nats per slot."""
        return entropy_of(self.marginals)


class ReportRequest(NamedTuple):
    """Which report is requested, and what is known of the surface: of ``segment`` (None: all), from ``since``."""

    surface: Surface
    learned: LearnedState | None  # None: not known
    segment: str | None
    since: int
    until: int
    now: int
    duplicates: int = 0  # pieces of repeated feedback since the process started
    warnings: Sequence[str] = ()
    outstanding: int = 0  # pages that are not settled yet
    settled: int = 0  # events ever
    feedback: FeedbackEnds | None = None
    changes: Sequence[int] = ()  # when changes of visitors were detected


def bucket_length(request: ReportRequest) -> int:
    """Return the length of a bucket of the series in milliseconds: whole minutes, about ``MAX_BUCKETS`` buckets."""
    return max(MINUTE, (request.until - request.since) // MAX_BUCKETS // MINUTE * MINUTE)


def segment_alpha(segment: str | None) -> float:
    """Return the factor of the error of a comparison: one for all segments together, divided if one is chosen.

    Whoever may choose among many segments finds a difference in one of them by chance.
    """
    return 1.0 if segment is None else 1.0 / MAX_VALUES


# How long events are kept


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


def retention_view(settings: SurfaceSettings, deleted: Any, settled: int) -> RetentionView:
    """Return how long events are kept, how many were deleted, and until when events were deleted by their age.

    ``settled`` events have ever been in the log.
    """
    until = deleted.until if deleted.until >= 0 else None
    left = max(0, settled - deleted.events)
    return {"days": settings.retention_days, "deleted": deleted.events, "until": until, "events": left}


def missing_events_warning(view: RetentionView, since: int) -> list[str]:
    """Return a warning if the range of a report starts before events that were deleted.

    >>> missing_events_warning({"days": 90, "deleted": 3, "until": 1_700_000_000_000}, 1_800_000_000_000)
    []
    """
    if view["until"] is None or since > view["until"]:
        return []
    return [f"events until {rfc3339(view['until'])} were deleted: click rates of items are those of later events"]
