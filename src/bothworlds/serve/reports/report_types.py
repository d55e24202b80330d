"""What ``Engine.report`` and ``Engine.health`` say: the agreement between those who count and those who draw.

Times are whole milliseconds since 1970, in UTC. Rates are clicks per page or per show, not percentages. Whatever cannot
be said yet is None, never NaN. Keys may be added, none renamed.
"""

from __future__ import annotations

from typing import Literal, NotRequired, TypedDict

__all__ = [
    "Headline",
    "Health",
    "ItemLine",
    "Learning",
    "Marginals",
    "Pages",
    "Point",
    "Recent",
    "SegmentLine",
    "Shift",
    "Snapshot",
    "SurfaceReport",
    "Uplift",
]

Interval = tuple[float, float]  # 95%, low and high


class Pages(TypedDict):
    """How one arm did: settled pages, clicks per page and their 95% interval."""

    pages: int
    clicks_per_page: float | None
    interval: Interval | None


class SegmentLine(TypedDict):
    """One segment, as ``Engine.segments`` lists it; the default one has an empty name and never expires."""

    name: str
    pages: int  # learned from
    clicks: int
    used_at: int | None
    expires_at: int | None


class Uplift(TypedDict):
    """Learner against holdout: 0.041 means 4.1% more clicks per page. Not to be quoted unless ``enough``."""

    relative: float | None
    low: float | None
    high: float | None
    enough: bool
    needed_pages: int  # pages of the holdout from which the comparison is worth showing


class Recent(TypedDict):
    """What a surface earns now: both arms in the recent window, from ``since`` to ``until``.

    The window is the longest of a fixed set of lengths that has at most half of the pages learned from.
    """

    window_seconds: int  # its length before ``since`` was rounded down to a whole minute
    since: int
    until: int
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None  # None without a holdout


class Headline(TypedDict):
    """What ``Engine.headline`` says of the last 24 hours, and of the recent window: cheap, for lists of surfaces."""

    pages: int  # of the learner
    clicks_per_page: float | None
    uplift: Uplift | None  # None without a holdout
    recent: Recent
    rounds: int  # these three as in ``Learning``
    exploration: float | None
    settled: bool


class ItemLine(TypedDict):
    """One item: how often it was shown and clicked, its weighted click rate per show, its share of all shows."""

    name: str
    state: Literal["active", "paused", "removed"]
    shows: int
    clicks: int
    rate: float | None
    low: float | None
    high: float | None
    share: float | None
    age_seconds: float


class Point(TypedDict):
    """Settled pages and clicks of one arm in the stretch of time that starts at ``at``."""

    at: int
    arm: Literal["learner", "holdout"]
    pages: int
    clicks: int


class Marginals(TypedDict):
    """How likely each item is at each slot now, in one segment: ``x[i][j]`` for ``items[i]`` at slot j of ``slots``."""

    items: list[str]
    slots: int
    x: list[list[float]]
    segment: NotRequired[str]


class Snapshot(TypedDict):
    """Marginals as they were; rows as in ``Marginals.items``, None for an item that was not there yet."""

    at: int
    x: list[list[float] | None]


class Learning(TypedDict):
    """Is it learning? Entropy falls from that of uniform lists (``entropy_start``) as items find their slots.

    ``exploration`` is the share of clicks that exploration is estimated to cost now, None before the first click.
    ``settled`` says that this is little, and that enough pages were learned from before the recent window.
    """

    entropy: float | None
    entropy_start: float | None
    policy_id: str
    policy_age_seconds: float | None
    rounds: int
    exploration: float | None
    settled: bool
    outstanding: int  # pages that wait for clicks or for their deadline
    late: int
    duplicates: int  # since the process that is asked was started


class Shift(TypedDict):
    """Do visitors click as they used to? Clicks per page lately and in the long run."""

    alarm: bool
    recent: float | None
    long_run: float | None
    z: float | None
    note: str


class SurfaceReport(TypedDict):
    """Everything the page of a surface shows about one segment, or about all of them together (None)."""

    surface: str
    segment: str | None
    since: int
    until: int
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None  # over the whole time asked about
    recent: Recent
    items: list[ItemLine]
    series: list[Point]
    marginals: Marginals
    marginals_history: list[Snapshot]
    learning: Learning
    shift: Shift
    warnings: list[str]
    segments: NotRequired[list[str]]  # to choose from


class Health(TypedDict):
    """How the service is doing; what is not measured is absent."""

    ready: bool
    reasons: NotRequired[list[str]]
    rank_p50_ms: NotRequired[float | None]
    rank_p99_ms: NotRequired[float | None]
    commit_lag_ms: NotRequired[float | None]
    queue_length: NotRequired[int]
    solver_ms: NotRequired[float | None]
    open_events: NotRequired[int]
    last_error: NotRequired[str | None]
