"""Records, ids and errors of the service: the vocabulary that the engine, the stores and HTTP share.

All times are whole milliseconds since 1970, in UTC.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Literal

import msgspec

from ..labels import MAX_LABELS, LabelError

LISTED_ITEMS = 1000  # of a larger surface, in a report, a stored policy and, unless more are requested, its state
LOSS_UNIT = 1 << 20  # losses are counted in units of 2^-20
MAX_ITEMS_EVER = 50_000  # items of a surface, including removed ones, whose counters are kept
DRAW_KEY = "draw key"  # the fact with the key of event ids, draws and checkpoints; it is never rotated
NAME_LENGTH, REQUEST_LENGTH, VISITOR_LENGTH = 128, 256, 256  # characters
BUCKETS = 200  # visitors are counted in so many buckets; the variance of a rate is that between buckets
SUMS_KEPT_MS = 8 * 86_400_000  # reports compare the last hours with the week before, also across comparisons
EVENT_ID = re.compile(r"[0-9a-f]{32}")

Arm = str  # the name of an arm: "holdout", "learner", or one of the surface's ``arms``
BASELINE_ARM, LEARNER_ARM = "holdout", "learner"  # gets the baseline order; is served by the surface's own policy
NO_SHARE = 1e-9  # a share below this is 0: shares are sums of floats
FeedbackMode = Literal["final", "clicks"]  # what pages send: of every page its end, or clicks only
SEGMENT = "segment"  # the label by which totals are kept; on every surface, whether it is declared or not
Declared = dict[str, list[str | float] | None]  # labels, as in ``bothworlds.labels``
LabelValue = str | float | bool
Status = Literal["accepted", "duplicate", "settled", "late_applied", "expired", "rejected"]


# Records


class ArmSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A policy that is compared with others on the same surface; it learns from its own pages."""

    name: str
    policy: str = "all-weather"
    policy_settings: dict[str, Any] = {}
    share: float  # of requests


class SurfaceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a surface ranks. Changing a setting never changes what has been learned."""

    slots: int
    objective: Literal["clicks", "rewards"] = "clicks"  # what feedback reports; cannot be changed
    feedback: FeedbackMode = "final"  # what pages send
    policy: str = "all-weather"
    policy_settings: dict[str, Any] = {}
    floor: float = 0.005  # share of uniform lists in every decision; bounds the weight of a single click
    holdout: float = 0.0  # share of requests that get the baseline order
    arms: tuple[ArmSettings, ...] = ()  # policies that are compared; ``policy`` gets what they and the holdout leave
    baseline: tuple[str, ...] = ()  # the page's own order; if empty, the order in which items were added
    baseline_rounds: int = 0  # a new surface starts from the page's own order, and leaves it in this many rounds
    guard: bool = True  # serve the baseline order if the learner is shown to be worse
    guard_after: int = 2000  # pages of the learner before the guard starts to compare
    guard_margin: float = 0.0  # clicks per page by which the learner may be worse
    minimum_exposure: float = 0.0  # minimum share of pages that show each active item
    attribution_seconds: float = 600.0  # how long clicks are accepted; after that, a slot without a click is a loss
    late_seconds: float = 86400.0  # how long after that a click is still accepted, by subtracting its loss
    labels: list[str] | Declared | None = None  # of visitors; None: the first request with a segment declares "segment"
    item_labels: list[str] | Declared = {}
    retention_days: float | None = None  # events that are older are deleted; None: no event is


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One item of a surface; ``index`` is its row in all counters and is never reused for another item."""

    name: str
    index: int
    state: Literal["active", "paused", "removed"]
    added_at: int
    changed_at: int
    labels: dict[str, LabelValue] = {}


class Surface(msgspec.Struct, frozen=True, kw_only=True):
    """A place on a page, with its settings and items; ``version`` increases by 1 with every change."""

    id: int
    name: str
    version: int
    settings: SurfaceSettings
    items: tuple[Item, ...]
    created_at: int
    changed_at: int
    comparison_restarted_at: int | None = None
    earlier_shares: tuple[tuple[int, dict[Arm, float]], ...] = ()  # in this comparison; until when, and the shares
    guarded: dict[Arm, int] = {}  # since when the guard serves the baseline order instead of these arms
    learner: int = 0  # the number of the learner whose counters ``policy`` uses
    arm_learners: dict[str, int] = {}  # that of every arm, including arms of earlier comparisons
    n_learners: int = 1  # numbers given so far
    promoted: str = ""  # the arm that was promoted last

    @property
    def compared_since(self) -> int:
        """When the comparison of learner and holdout started."""
        return self.created_at if self.comparison_restarted_at is None else self.comparison_restarted_at

    @property
    def asked_shares(self) -> dict[Arm, float]:
        """The share of requests of every arm that has one, as configured: the holdout, the arms, the surface's own."""
        settings = self.settings
        rest = 1.0 - settings.holdout - sum(arm.share for arm in settings.arms)
        shares = {BASELINE_ARM: settings.holdout} | {arm.name: arm.share for arm in settings.arms}
        return {arm: share for arm, share in (shares | {LEARNER_ARM: rest}).items() if share > NO_SHARE}

    @property
    def shares(self) -> dict[Arm, float]:
        """The share of requests that every arm gets: the guard takes all but the exploration share from an arm."""
        shares = self.asked_shares
        taken = {arm: shares[arm] * (1.0 - self.settings.floor) for arm in self.guarded if arm in shares}
        if not taken:
            return shares
        kept = {arm: share - taken.get(arm, 0.0) for arm, share in shares.items()}
        learned = [share for arm, share in kept.items() if arm != BASELINE_ARM]
        return {BASELINE_ARM: 1.0 - sum(learned)} | {arm: s for arm, s in kept.items() if arm != BASELINE_ARM}

    @property
    def all_guarded_since(self) -> int | None:
        """Since when the guard serves the baseline order instead of all policies; None if one of them is served."""
        learned = [arm for arm in self.asked_shares if arm != BASELINE_ARM]
        return max(self.guarded[arm] for arm in learned) if self.guarded.keys() >= set(learned) else None

    @property
    def compared_shares(self) -> dict[Arm, float]:
        """The share of requests of the holdout and of each of the surface's arms; its own policy gets the rest."""
        return {BASELINE_ARM: 0.0} | {arm: share for arm, share in self.shares.items() if arm != LEARNER_ARM}

    @property
    def first_arm(self) -> Arm:
        """The arm that the others are compared with: the surface's own policy, or the first arm if it has no share."""
        return self.settings.arms[0].name if LEARNER_ARM not in self.asked_shares else LEARNER_ARM

    @property
    def policies(self) -> dict[int, tuple[str, dict[str, Any]]]:
        """The policies of the surface and of its arms, each with its settings, by the number of the learner."""
        own = {self.learner: (self.settings.policy, self.settings.policy_settings)}
        return own | {self.arm_learners[arm.name]: (arm.policy, arm.policy_settings) for arm in self.settings.arms}

    @property
    def labels(self) -> Declared:
        """The labels of visitors that are learned."""
        return self.settings.labels or {}  # type: ignore[return-value]  # stored as a dictionary

    @property
    def item_labels(self) -> Declared:
        """The labels of items that are learned."""
        return self.settings.item_labels  # type: ignore[return-value]

    @property
    def known_labels(self) -> Declared:
        """The labels of visitors that requests may have; a segment that is not declared is only reported."""
        own = self.labels
        return own if SEGMENT in own or len(own) == MAX_LABELS else {**own, SEGMENT: None}

    def learner_of(self, arm: Arm) -> int:
        """Returns the number of the learner of an arm; that of the surface's own policy if there is no such arm."""
        return self.arm_learners[arm] if any(one.name == arm for one in self.settings.arms) else self.learner


def learned_again(before: Surface, after: Surface) -> set[int]:
    """Returns the numbers of the learners that another policy, other settings of it, slots or labels replace.

    They learn what is left of the log again.
    """
    new = after.policies
    same = before.settings.slots == after.settings.slots and _learned_labels(before) == _learned_labels(after, before)
    return {k for k, policy in before.policies.items() if k in new and not (same and new[k] == policy)}


def _learned_labels(surface: Surface, before: Surface | None = None) -> Any:
    """Returns what states depend on: the declarations, in their order, and the labels of the items there were."""
    items = surface.items[: len((before or surface).items)]
    declared = surface.item_labels
    values = [{name: item.labels[name] for name in item.labels if name in declared} for item in items]
    return [*surface.labels.items()], [*declared.items()], values


# Ids, names and times


def now_ms() -> int:
    """Returns the current time in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def rfc3339(ms: int) -> str:
    """Formats a time in milliseconds as RFC 3339 in UTC.

    >>> rfc3339(1_700_000_000_123)
    '2023-11-14T22:13:20.123Z'
    """
    seconds, rest = divmod(ms, 1000)
    return f"{_iso_seconds(seconds)}.{rest:03d}Z"


@lru_cache(maxsize=1024)
def _iso_seconds(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")[:-6]


def event_id_of(surface_id: int, request_id: str, key: bytes) -> bytes:
    """Returns the 16-byte event id of a request: a keyed hash, so that a repeated request has the same id.

    >>> event_id_of(1, "r1", b"key") == event_id_of(1, "r1", b"key") != event_id_of(2, "r1", b"key")
    True
    """
    return blake2b(b"%d\x00%b" % (surface_id, request_id.encode()), digest_size=16, key=key).digest()


def visitor_hash(visitor: str, key: bytes) -> bytes:
    """Returns the 16 bytes that stand for a visitor, the same on all surfaces; without the key they tell nothing.

    >>> visitor_hash("v1", b"key") == visitor_hash("v1", b"key") != visitor_hash("v1", b"other key")
    True
    """
    return blake2b(visitor.encode(), digest_size=16, key=key, person=b"visitor").digest()


def sums_kept_since(surface: Surface, now: int) -> int:
    """Returns from when on the sums by buckets of visitors are kept: those of the comparison, and of the last week."""
    return min(now - SUMS_KEPT_MS, surface.compared_since)


def visitor_draw(surface: Surface, visitor: bytes, key: bytes) -> int:
    """Returns the number that chooses the arm of a visitor, given by their hash, in the current comparison."""
    comparison = surface.comparison_restarted_at or 0
    content = b"%d\x00%d\x00%b" % (surface.id, comparison, visitor)
    return int.from_bytes(blake2b(content, digest_size=8, key=key, person=b"arm").digest(), "little")


def bucket_of(visitor: bytes) -> int:
    """Returns the bucket of a visitor, given by their hash; it does not depend on their arm."""
    return int.from_bytes(visitor[:8], "little") % BUCKETS


def imported_id(surface_id: int, name: str) -> bytes:
    """Returns the id under which a surface stores an imported event that has this name in its own log."""
    return blake2b(f"{surface_id}\x00{name}".encode(), digest_size=16, person=b"import").digest()


def parse_event_id(text: str) -> bytes | None:
    """Returns the bytes of an event id in hexadecimal, or None if the text is not an event id."""
    return bytes.fromhex(text) if EVENT_ID.fullmatch(text) else None


def checked_name(name: object, what: str, pointer: str, *, longest: int = NAME_LENGTH, empty: bool = False) -> str:
    """Returns the name if it has 1 to ``longest`` printable characters (0 if ``empty``); raises Invalid otherwise.

    >>> checked_name("home page", "surface", "/name")
    'home page'
    >>> checked_name("a\\nb", "item", "/items/0")
    Traceback (most recent call last):
    ...
    bothworlds.serve.model.Invalid: item must be 1 to 128 printable characters; got 'a\\nb'
    """
    if isinstance(name, str) and len(name) <= longest and name.isprintable() and (name or empty):
        return name
    got = repr(name)
    raise Invalid(
        f"{what} must be {0 if empty else 1} to {longest} printable characters; got {got if len(got) < 60 else '...'}",
        pointer,
    )


def label_fault(error: LabelError, field: str) -> Invalid:
    """Returns the error of a request for a label that is not allowed, which points to it in a field of the body."""
    path = "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in error.path)
    return Invalid(str(error), f"/{field}{path}")


# Errors


class ServiceError(Exception):
    """A request that cannot be served; ``errors`` point to the invalid parts of the request.

    ``title`` names the kind of error where it is more specific than the class.
    """

    title: str | None = None

    def __init__(self, detail: str, errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)


class Unknown(ServiceError):
    """The surface, item or event does not exist (404)."""


class Invalid(ServiceError):
    """The request is not valid (422)."""

    def __init__(self, detail: str, pointer: str = "", errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(detail, errors or ([{"pointer": pointer, "detail": detail}] if pointer else ()))


class NotEnough(Invalid):
    """Fewer items are eligible than there are slots (422)."""

    title = "Not enough eligible items"


class Conflict(ServiceError):
    """The surface was changed since the caller read it (409)."""


class StateConflict(Conflict):
    """The surface, item or arm is in a state that does not allow the change, whoever changed it last (409)."""

    title = "Not possible now"


class TooMany(ServiceError):
    """A limit is reached (422), or the service is overloaded (429)."""


class Unavailable(ServiceError):
    """The store cannot be written now; nothing was acknowledged, and the request can be retried (503)."""


class BrokenSurface(Unavailable):
    """The stored surface cannot be served; nothing is lost, and it is served when its settings are changed (503)."""

    title = "The surface cannot be served"
