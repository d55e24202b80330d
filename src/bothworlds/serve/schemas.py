"""Every request, answer and report of the service, defined once.

HTTP validates requests with these types, the engine returns them, the OpenAPI document is generated from them and the
clients are typed with them. Fields may be added; none is renamed. A value that is not known yet is None, never NaN.

Times that the engine returns are milliseconds (``Milliseconds``); HTTP writes them as RFC 3339, as the OpenAPI
document says. Rates are clicks per page or per show, not percentages.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .model import Arm, Status, Surface, SurfaceSettings, rfc3339

Role = Literal["serve", "ingest", "read", "admin"]  # admin includes all others
MAX_SLOT = 62  # clicks are stored as the bits of a signed 64-bit integer

Name = Annotated[str, Meta(min_length=1, max_length=128, description="1 to 128 printable characters")]
SegmentName = Annotated[str, Meta(max_length=64, description="the value of the label segment; empty if unknown")]
Context = Annotated[dict[str, Any], Meta(description="values of the visitor's labels: texts, booleans or numbers")]
ItemLabels = Annotated[dict[str, Any], Meta(description="values of the item's labels: texts, booleans or numbers")]
Texts = Annotated[dict[str, str], Meta(description="the labels that are learned for; empty texts are unknown values")]
SlotNumber = Annotated[int, Meta(ge=0, le=MAX_SLOT, description="slots are counted from 0")]
VisitorId = Annotated[str, Meta(max_length=256, description="your id of the visitor, who stays in the same arm")]
Version = Annotated[int, Meta(ge=0, description="409 if the surface has another version now")]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="RFC 3339, UTC")]
Milliseconds = Annotated[int, Meta(extra_json_schema={"format": "date-time"}, description="RFC 3339, UTC")]
EventId = Annotated[str, Meta(max_length=64)]
Token = Annotated[str, Meta(max_length=16384)]
Reward = Annotated[float, Meta(ge=0, le=1)]
Objective = Annotated[Literal["clicks", "rewards"], Meta(description="what is counted: clicks, or rewards")]
Propensity = Annotated[float, Meta(gt=0, le=1)]
Matrix = Annotated[list[list[float]], Meta(description="one row per item, one column per slot")]
CountMatrix = Annotated[list[list[int]], Meta(description="one row per item, one column per slot")]


# Rank and feedback


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """An item that this page must show at a slot; the slot is not learned from."""

    slot: SlotNumber
    item: Name


class RankRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One page view; a repeated request_id gets the same list."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    segment: SegmentName = ""
    context: Context = {}
    exclude: list[Name] = []
    pins: list[Pin] = []
    visitor: VisitorId = ""


# gc=False: thousands are kept for repeated requests, in no cycles, and the garbage collector would visit all of them.


class PlacedItem(Struct, frozen=True, gc=False):
    """The item to show at one slot, its propensity, and whether its clicks are learned from."""

    slot: SlotNumber
    item: Name
    p: Propensity
    pinned: bool
    learn: bool


class Ranking(Struct, frozen=True, gc=False, omit_defaults=True):
    """A list of items; feedback on it must carry its event_id and its token."""

    event_id: EventId
    surface: Name
    arm: Arm
    policy_id: str
    expires_at: Time
    token: Token
    slots: tuple[PlacedItem, ...]
    segment: SegmentName
    context: Texts
    unknown_items: Annotated[
        tuple[Name, ...], Meta(description="names in exclude that the surface does not have; absent if there are none")
    ] = ()


class FeedbackEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """Clicks on the slots of one list; ``final`` means that no more clicks will come.

    ``shown`` is whether the visitor could see the list, where that is known. A list that was not shown is not learned
    from.

    A surface whose objective is rewards takes ``rewards`` instead of ``clicks``: a number from 0 to 1 by slot. Of
    several rewards for the same slot, the largest counts.
    """

    event_id: EventId
    token: Token
    clicks: list[SlotNumber] = []
    final: bool = False
    rewards: dict[SlotNumber, Reward] = {}
    shown: bool | None = None


class FeedbackBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Feedback on several lists. An invalid event is rejected alone; the others are accepted."""

    events: list[FeedbackEvent]


class Accepted(Struct, frozen=True, omit_defaults=True):
    """The result of the feedback on one list; a rejection carries a reason."""

    event_id: str
    status: Status
    reason: str = ""


class FeedbackResults(Struct, frozen=True):
    """One result for every event, in the order of the request."""

    results: list[Accepted]


# Surfaces


class Reset(Struct, frozen=True, forbid_unknown_fields=True):
    """A reset of everything that was learned: nothing can be chosen."""


class Promotion(Struct, frozen=True, forbid_unknown_fields=True):
    """The arm whose policy becomes that of the surface; "learner" keeps the surface's own policy and ends all arms."""

    arm: Name
    version: Version | UnsetType = UNSET


class WarmStart(Struct, frozen=True, forbid_unknown_fields=True):
    """A start from the page's own order: nine pages in ten show it at first, and fewer with every round learned from,
    until it is left after ``rounds`` rounds. ``baseline`` must be true.
    """

    rounds: Annotated[int, Meta(ge=1, le=1_000_000)]
    baseline: bool


class ItemRequest(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """An item to add, and its labels; an item that is there keeps its own if they are missing."""

    name: Name
    labels: ItemLabels | UnsetType = UNSET


class ItemChanges(Struct, frozen=True, forbid_unknown_fields=True):
    """The labels of an item; it keeps its own if they are missing."""

    labels: ItemLabels | UnsetType = UNSET


class ItemView(Struct, frozen=True):
    """One item of a surface."""

    name: Name
    state: str
    added_at: Time
    changed_at: Time
    labels: ItemLabels


_SETTINGS = msgspec.structs.fields(SurfaceSettings)
_CHANGES = [(setting.name, setting.type | UnsetType, UNSET) for setting in _SETTINGS]

LearnedAgain = Annotated[int, Meta(ge=0, description="settled events that are learned again because of this change")]

# The settings of a surface are defined once, in ``model.SurfaceSettings``.
SurfaceChanges = msgspec.defstruct(
    "SurfaceChanges",
    [*_CHANGES, ("version", Version | UnsetType, UNSET)],
    forbid_unknown_fields=True,
    namespace={"__doc__": "Settings to change. All other settings and everything learned stay as they are."},
)
SurfaceRequest = msgspec.defstruct(
    "SurfaceRequest",
    [*_CHANGES, ("items", list[Name | ItemRequest] | UnsetType, UNSET), ("version", Version | UnsetType, UNSET)],
    forbid_unknown_fields=True,
    namespace={"__doc__": "A surface to create or to change. Items are added; an item that is not listed stays."},
)
SurfaceView = msgspec.defstruct(
    "Surface",
    [
        ("name", Name),
        ("version", int),
        *((setting.name, setting.type) for setting in _SETTINGS),
        ("items", list[ItemView]),
        ("created_at", Time),
        ("changed_at", Time),
        ("learned_again", LearnedAgain | UnsetType, UNSET),
    ],
    namespace={"__doc__": "A surface: its settings and its items."},
)


class Surfaces(Struct, frozen=True):
    """All surfaces."""

    surfaces: list[SurfaceView]  # type: ignore[valid-type]


def view_of(surface: Surface, learned_again: int | UnsetType = UNSET) -> Struct:
    """Returns the ``SurfaceView`` of a surface."""
    return SurfaceView(
        name=surface.name,
        version=surface.version,
        **{setting.name: getattr(surface.settings, setting.name) for setting in _SETTINGS},
        items=[
            ItemView(item.name, item.state, rfc3339(item.added_at), rfc3339(item.changed_at), item.labels)
            for item in surface.items
        ],
        created_at=rfc3339(surface.created_at),
        changed_at=rfc3339(surface.changed_at),
        learned_again=learned_again,
    )


# Events and state


class ShownItem(TypedDict):
    """One slot of a page that was shown; ``late`` means that its click came after the deadline.

    ``reward`` is there if the objective is rewards; ``clicked`` is then a draw with the reward as its probability.
    """

    slot: SlotNumber
    item: Name
    p: Propensity
    learn: bool
    pinned: bool
    clicked: bool
    late: bool
    reward: NotRequired[Reward]


class EventView(TypedDict):
    """One decision and its outcome."""

    event_id: EventId
    surface: Name
    segment: SegmentName
    context: Annotated[dict[str, str], Meta(description="the visitor's labels, without unknown ones")]
    arm: Arm
    policy_id: str
    created_at: Time
    expires_at: Time
    late_until: Time
    slots: list[ShownItem]
    absent: Annotated[list[Name], Meta(description="items that could not be shown at the slots that are learned from")]
    settled: bool
    settled_at: Time | None
    settled_by: Literal["", "final", "deadline", "import", "unconfirmed", "void"]
    shown: NotRequired[Annotated[bool | None, Meta(description="whether the page was shown; null: nobody has said")]]
    number: NotRequired[
        Annotated[int | None, Meta(description="the order in which events are learned; null while open")]
    ]
    learned: NotRequired[bool]
    why: str


class Served(TypedDict):
    """The probability of each of ``items`` at each slot."""

    items: list[Name]
    x: Matrix


class StateView(TypedDict):
    """The counters of an arm, and the probabilities that are served to a visitor with a context.

    Loss is the sum of (1 - click) / p over events that showed the item at the slot, and of 1 - click over events in
    which the item could not be shown. Only differences within a slot matter. If the objective is rewards, loss has
    the reward instead of the click.

    ``changed_at`` is since when visitors click differently, if the policy detects changes and has found one; it
    forgets everything before. If there are more than ``limit`` items, those are returned that are shown with the
    largest probability; ``items_total`` counts all.
    """

    surface: Name
    context: Texts
    items: list[Name]
    items_total: int
    states: list[Literal["active", "paused", "removed"]]
    rounds: int
    loss: Matrix
    shown: CountMatrix
    clicked: Annotated[list[list[int | float]], Meta(description="as shown; sums of rewards if these are counted")]
    marginals: Served
    policy_id: str
    policy_age_seconds: float
    entropy: float
    revision: int
    changed_at: str | None
    baseline_share: NotRequired[
        Annotated[float, Meta(description="share of pages in the page's own order, at the start")]
    ]


class EffectLine(TypedDict, total=False):
    """A pair of labels: the standard deviation of its effects in log-odds of a click, how many pairs of values were
    shown, and how many pages had a known value of the visitors' label.

    Or a pair of values: by how much visitors with one like items with the other more than others do, in log-odds.
    """

    visitor_label: str
    item_label: str
    sd: float
    values: int
    pages: int
    visitor_value: str
    item_value: str
    effect: float
    standard_error: float


class EffectsView(TypedDict):
    """Which pairs of labels matter, or the effects of the values of one pair; the largest first.

    ``all`` stands for all visitors or items, ``item`` for the item itself and ``slot`` for the slot. ``unknown`` counts
    values that are not known, by label, since the process started.
    """

    surface: Name
    arm: Arm
    effects: list[EffectLine]
    unknown: dict[str, int]


# Reports


class Pages(TypedDict):
    """One arm: settled pages, clicks per page and their 95% interval. With rewards, ``clicks_per_page`` is reward."""

    pages: int
    clicks_per_page: float | None
    interval: tuple[float, float] | None


class Uplift(TypedDict):
    """Learner against holdout since ``since``: 0.041 means 4.1% more clicks per page. Reliable only if ``enough``.

    ``low`` and ``high`` are a confidence sequence: they hold at all times at once, however often they are read.
    """

    relative: float | None
    low: float | None
    high: float | None
    enough: bool
    needed_pages: int  # holdout pages that a comparison needs
    since: Milliseconds
    missing: str  # what the arms still need to be compared; empty if nothing


class ArmFeedback(TypedDict):
    """Pages of an arm whose attribution window has ended, and those of them whose final feedback arrived in time."""

    pages: int
    answered: int


class SampleRatio(TypedDict):
    """Whether pages and feedback of all arms come in the proportion of their shares.

    ``evidence`` starts at 1; beyond 1,000 there is an ``alarm``, which stays until the comparison is restarted. While
    it lasts, no uplift is reported. The counts are those since the share was last changed.
    """

    alarm: bool
    evidence: float
    alarm_at: Milliseconds | None
    share: float  # of the holdout
    learner: ArmFeedback  # of the surface's own policy
    holdout: ArmFeedback
    arms: NotRequired[dict[str, ArmFeedback]]  # of the surface's arms, if it has some


class ArmComparison(Uplift):
    """An arm against the arm ``compared_with``, as in ``Uplift``: ``needed_pages`` are pages of the latter."""

    compared_with: Arm


class ArmLine(TypedDict):
    """One policy of a surface that has arms: its share, and its settled pages since the comparison started.

    ``comparison`` is null for the arm that the others are compared with. ``guarded_since`` is since when the guard
    serves the baseline order instead of it.
    """

    name: Arm
    policy: str
    policy_settings: dict[str, Any]
    share: float
    pages: int
    clicks_per_page: float | None
    interval: tuple[float, float] | None
    comparison: ArmComparison | None
    guarded_since: Milliseconds | None


class Guard(TypedDict):
    """Whether the guard serves the baseline order, because the learner was shown to get fewer clicks.

    ``low`` and ``high`` are a confidence sequence for clicks per page of the learner minus those of the holdout, since
    ``compared_since``; null before that. The guard becomes active when ``high`` is below minus ``guard_margin``. On a
    surface with arms, each is guarded by itself; the figures are those of an arm that is guarded or is closest to it.
    """

    enabled: bool
    active: bool
    active_since: Milliseconds | None
    compared_since: Milliseconds | None
    low: float | None
    high: float | None


class RecentWindow(TypedDict):
    """What the surface earns now: both arms in the longest recent window that has at most half of the pages.

    It starts at a time chosen in advance, such as midnight, and has a confidence sequence of its own.
    """

    window_seconds: int
    since: Milliseconds
    until: Milliseconds
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None  # None without a holdout


class Headline(TypedDict):
    """A surface in one line: the last 24 hours and the recent window. Cheap enough for lists of surfaces."""

    pages: int  # of the learner
    clicks_per_page: float | None
    recent: RecentWindow
    sample_ratio: SampleRatio | None
    objective: NotRequired[Objective]
    guard_since: Milliseconds | None  # since when the guard serves the baseline order
    rounds: int  # these four as in ``Learning``
    exploration: float | None
    settled: bool
    unsettled: str


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


class SeriesPoint(TypedDict):
    """Settled pages and clicks, or reward, of one arm in the time bucket that starts at ``at``.

    ``design_effect`` is how many times the variance of the clicks is that of a Poisson count, because pages of one
    visitor are alike: 1 without visitors, null if there are too few of them to tell.
    """

    at: Milliseconds
    arm: Arm
    pages: int
    clicks: int | float
    design_effect: float | None


class Marginals(TypedDict):
    """The probability of each item at each slot now, for a context: ``x[i][j]`` for ``items[i]`` at slot j."""

    items: list[str]
    slots: int
    x: list[list[float]]
    context: Texts


class MarginalsThen(TypedDict):
    """Marginals at an earlier time; a row is null for an item that did not exist yet."""

    at: Milliseconds
    x: list[list[float] | None]


class Learning(TypedDict):
    """The progress of learning. Entropy starts at that of uniform lists (``entropy_start``) and falls.

    ``exploration`` is the estimated share of clicks that exploration costs now, None before a click and 1,000 pages.
    ``settled`` means that this share is small and that enough pages were learned from before the recent window;
    ``unsettled`` says what is missing, and is empty if nothing is.
    """

    entropy: float | None
    entropy_start: float | None
    policy_id: str
    policy_age_seconds: float | None
    rounds: int
    exploration: float | None
    settled: bool
    unsettled: str
    outstanding: int  # pages that are not settled yet
    late: int
    duplicates: int  # since this process started


class Shift(TypedDict):
    """Whether click behaviour has changed: clicks per page in the last one to two hours, and before.

    ``long_run`` is that of the same hours of up to seven days before. ``z`` is null if there are too few data.
    """

    alarm: bool
    recent: float | None
    long_run: float | None
    z: float | None
    note: str


class DetectedChange(TypedDict):
    """A change of visitors that the policy has detected, and since when they click differently."""

    changed_at: Milliseconds
    detected_at: Milliseconds


class FeedbackEnds(TypedDict):
    """How the pages of the last day have ended, since ``since``, and why some of them count for nothing.

    ``pages`` are those that are compared and learned from; ``by_deadline`` of them ended without final feedback. Of the
    others, ``unconfirmed`` pages were never reported as shown, ``void`` ones were reported as not shown, and
    ``not_counted`` ones were too many of one visitor or address.
    """

    since: Milliseconds
    pages: int
    by_deadline: int
    unconfirmed: int
    unconfirmed_with_clicks: int
    void: int
    not_counted: int


class RetentionView(TypedDict):
    """How many days events are kept, null if for ever; how many were deleted, and until when because of their age.

    ``deleted`` includes events that were deleted on request. Counters, and figures per arm, include deleted events.
    ``events`` is how many settled events are left: what a change of policy, its settings or slots learns again.
    """

    days: float | None
    deleted: int
    until: Milliseconds | None
    events: int


class ReportView(TypedDict):
    """How a surface performs: learner against holdout, items, learning, and whether click behaviour has changed.

    It covers visitors with one value of the label ``segment``, or all of them if it is null; what was learned, and the
    shows and clicks of items, are always those of all visitors. ``uplift`` is since the comparison started, ``recent``
    since a time chosen in advance; all other figures are those of the requested range. ``items`` has the 1000 items
    that were shown most, of ``items_total``, and ``marginals`` the 1000 that are most likely to be shown. If
    ``objective`` is rewards, all figures but ``items.clicks`` are about reward instead of clicks.
    """

    surface: Name
    segment: SegmentName | None
    since: Milliseconds
    until: Milliseconds
    headline: Pages
    holdout: Pages | None
    uplift: Uplift | None
    recent: RecentWindow
    sample_ratio: SampleRatio | None  # None without a holdout and without arms
    guard: Guard | None  # None without a holdout
    arms: list[ArmLine]  # empty for a surface without arms
    items: list[ItemLine]
    items_total: int
    series: list[SeriesPoint]
    marginals: Marginals
    marginals_history: list[MarginalsThen]
    learning: Learning
    shift: Shift
    changes: list[DetectedChange]
    warnings: list[str]
    retention: RetentionView
    segments: list[SegmentName]
    objective: NotRequired[Objective]
    feedback: NotRequired[FeedbackEnds]


# Logs


class Imported(Struct, frozen=True):
    """The result of an import: events taken, events stored before, events refused and why."""

    taken: int
    known: int
    refused: int
    reasons: dict[str, int]


class DeletedCount(Struct, frozen=True):
    """How many events were deleted."""

    deleted: int


# Keys and secrets


class KeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to create."""

    roles: Annotated[list[Role], Meta(min_length=1, max_length=4)]
    note: Annotated[str, Meta(max_length=200)] = ""


class NewKey(Struct, frozen=True):
    """A new key, which is returned only once, and the id by which it is listed and revoked."""

    id: str
    key: str


class KeyView(Struct, frozen=True):
    """A key without its secret."""

    id: str
    roles: list[Role]
    note: str
    created_at: Time
    revoked_at: Time | None


class Keys(Struct, frozen=True):
    """All keys, including revoked ones."""

    keys: list[KeyView]


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether tokens signed with old secrets become invalid at once, as required after a leak."""

    forget: bool = False


# Health, errors and the API description


class Health(Struct, frozen=True):
    """Whether the service is ready, and the reasons if it is not."""

    ready: bool
    reasons: list[str] = []


class Alive(Struct, frozen=True):
    """The process is running."""

    alive: bool


class Answer(Struct, frozen=True):
    """This description."""


class FieldError(Struct, frozen=True):
    """The place of an error in the request."""

    pointer: str
    detail: str


class ProblemDetails(Struct, frozen=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []


def json_schemas(types: Sequence[Any], ref_template: str) -> tuple[tuple[dict[str, Any], ...], dict[str, Any]]:
    """Returns the JSON schemas of types and of their components, as HTTP sends them: times are strings."""
    schemas, components = msgspec.json.schema_components(types, ref_template=ref_template)
    return schemas, _with_written_times(components)


def _with_written_times(schema: Any) -> Any:
    if isinstance(schema, dict):
        written = {key: _with_written_times(value) for key, value in schema.items()}
        return {**written, "type": "string"} if written.get("format") == "date-time" else written
    return [_with_written_times(value) for value in schema] if isinstance(schema, list) else schema
