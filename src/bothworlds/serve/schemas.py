"""What is said over HTTP: the bodies of requests and answers, from which they are checked and documented."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from .model import Arm, Item, Status, Surface, SurfaceSettings

__all__ = [
    "Accepted",
    "Answer",
    "FeedbackBatch",
    "FeedbackEvent",
    "FeedbackResults",
    "Health",
    "KeyRequest",
    "KeyView",
    "Keys",
    "NewKey",
    "Pin",
    "ProblemDetails",
    "RankRequest",
    "Ranking",
    "Reset",
    "Role",
    "Rotation",
    "SegmentView",
    "Segments",
    "SurfaceChanges",
    "SurfaceView",
    "Surfaces",
    "WarmStart",
    "rfc3339",
    "view_of",
]

Role = Literal["serve", "ingest", "read", "admin"]  # admin may do all that the others may
MAX_SLOT = 62  # clicks are kept as the bits of a signed 64-bit number

Name = Annotated[str, Meta(min_length=1, max_length=128, description="1 to 128 printable characters")]
SegmentName = Annotated[str, Meta(max_length=128, description="a part of the visitors; empty for all of them")]
SlotNumber = Annotated[int, Meta(ge=0, le=MAX_SLOT, description="slots are counted from 0")]
Version = Annotated[int, Meta(ge=0, description="refused with 409 if the surface has another version by now")]
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"}, description="RFC 3339, UTC")]
EventId = Annotated[str, Meta(max_length=64)]
Token = Annotated[str, Meta(max_length=16384)]


def rfc3339(ms: int) -> str:
    """A time in milliseconds as it is written in answers.

    >>> rfc3339(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    seconds, rest = divmod(ms, 1000)
    return f"{_to_the_second(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _to_the_second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")[:-6]


class Pin(Struct, frozen=True, forbid_unknown_fields=True):
    """An item that this page must show at a slot; it is not learned from."""

    slot: SlotNumber
    item: Name


class RankRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """One page view; the same request_id gets the same list again."""

    request_id: Annotated[str, Meta(min_length=1, max_length=256)]
    segment: SegmentName = ""
    exclude: list[Name] = []
    pins: list[Pin] = []


class PlacedItem(Struct, frozen=True):
    """What to show at one slot, and the probability with which it got there."""

    slot: SlotNumber
    item: Name
    p: Annotated[float, Meta(gt=0, le=1)]
    pinned: bool
    learn: bool


class Ranking(Struct, frozen=True):
    """A list of items; feedback on it needs its event_id and its token."""

    event_id: EventId
    surface: Name
    arm: Arm
    policy_id: str
    expires_at: Time
    token: Token
    slots: list[PlacedItem]
    segment: Annotated[str, Meta(description="the segment used: empty if there was no place for the one asked for")]


class FeedbackEvent(Struct, frozen=True, forbid_unknown_fields=True):
    """What happened to one list; ``final`` says that no more clicks will come."""

    event_id: EventId
    token: Token
    clicks: list[SlotNumber] = []
    final: bool = False


class FeedbackBatch(Struct, frozen=True, forbid_unknown_fields=True):
    """Feedback on several lists. An event that makes no sense is rejected alone; the others are taken."""

    events: list[FeedbackEvent]


class Accepted(Struct, frozen=True, omit_defaults=True):
    """What became of the feedback on one list; a rejection says why."""

    event_id: str
    status: Status
    reason: str = ""


class FeedbackResults(Struct, frozen=True):
    """One result for every event, in the order in which they were sent."""

    results: list[Accepted]


class Reset(Struct, frozen=True, forbid_unknown_fields=True):
    """What to forget: one segment, or all of them if none is named."""

    segment: SegmentName | None = None


class SegmentView(Struct, frozen=True):
    """One segment; the default one has an empty name, and never expires."""

    name: SegmentName
    pages: Annotated[int, Meta(description="pages learned from")]
    clicks: int
    used_at: Annotated[Time | None, Meta(description="when it was last asked for or learned from")]
    expires_at: Annotated[Time | None, Meta(description="when it is deleted if nobody uses it until then")]


class Segments(Struct, frozen=True):
    """The segments of a surface, and how many there may be."""

    segments: list[SegmentView]
    max_segments: int


class Rotation(Struct, frozen=True, forbid_unknown_fields=True):
    """Whether tokens of the old secrets become useless at once, as they must if a secret has leaked."""

    forget: bool = False


class WarmStart(Struct, frozen=True, forbid_unknown_fields=True):
    """A fitted click model, as ``bothworlds fit`` writes it, that counts as much as this many rounds."""

    model: dict[str, Any]
    rounds: Annotated[int, Meta(ge=1, le=1_000_000_000)]
    segment: SegmentName = ""


class KeyRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """A key to make."""

    roles: Annotated[list[Role], Meta(min_length=1, max_length=4)]
    note: Annotated[str, Meta(max_length=200)] = ""


class NewKey(Struct, frozen=True):
    """A key, which is told once and never again, and the id by which it is listed and revoked."""

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
    """All keys, revoked ones too."""

    keys: list[KeyView]


class ItemView(Struct, frozen=True):
    """One item of a surface."""

    name: Name
    state: str
    added_at: Time
    changed_at: Time


class Health(Struct, frozen=True):
    """Whether the service can work, and why not."""

    ready: bool
    reasons: list[str] = []


class Answer(Struct, frozen=True):
    """This description."""


class FieldError(Struct, frozen=True):
    """Where in the request something is wrong."""

    pointer: str
    detail: str


class ProblemDetails(Struct, frozen=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: list[FieldError] = []


_SETTINGS = msgspec.structs.fields(SurfaceSettings)
_CHANGES = [(setting.name, setting.type | UnsetType, UNSET) for setting in _SETTINGS]

# The settings of a surface are listed once, in records.
SurfaceChanges = msgspec.defstruct(
    "SurfaceChanges",
    [*_CHANGES, ("version", Version | UnsetType, UNSET)],
    forbid_unknown_fields=True,
    namespace={"__doc__": "Settings to change; all others stay as they are, and so does all that was learned."},
)
SurfaceRequest = msgspec.defstruct(
    "SurfaceRequest",
    [*_CHANGES, ("items", list[Name] | UnsetType, UNSET), ("version", Version | UnsetType, UNSET)],
    forbid_unknown_fields=True,
    namespace={"__doc__": "A surface to create or to change; items are added, and none is removed by leaving it out."},
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
    ],
    namespace={"__doc__": "A surface: its settings and its items."},
)


class Surfaces(Struct, frozen=True):
    """All surfaces."""

    surfaces: list[SurfaceView]  # type: ignore[valid-type]


def view_of(surface: Surface) -> Struct:
    """A surface as it is shown."""
    return SurfaceView(
        name=surface.name,
        version=surface.version,
        **{setting.name: getattr(surface.settings, setting.name) for setting in _SETTINGS},
        items=[_item(item) for item in surface.items],
        created_at=rfc3339(surface.created_at),
        changed_at=rfc3339(surface.changed_at),
    )


def _item(item: Item) -> ItemView:
    return ItemView(item.name, item.state, rfc3339(item.added_at), rfc3339(item.changed_at))
