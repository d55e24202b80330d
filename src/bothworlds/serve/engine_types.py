"""What the engine takes and gives, and how it refuses: the agreement between it and whoever calls it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from .model import Status

__all__ = [
    "Conflict",
    "Feedback",
    "Invalid",
    "NotEnough",
    "Ranked",
    "Result",
    "ServiceError",
    "Slot",
    "TooMany",
    "Unavailable",
    "Unknown",
]


@dataclass(frozen=True, slots=True)
class Slot:
    """One slot of a page: the item in it, how likely that was, and whether its clicks are learned from."""

    slot: int
    item: str
    p: float
    pinned: bool = False
    learn: bool = True


@dataclass(slots=True)
class Ranked:
    """What to show, and the token that must come back with the clicks."""

    event_id: str
    surface: str
    arm: str
    policy_id: str
    expires_at: int  # milliseconds
    token: str
    slots: list[Slot] = field(default_factory=list)
    segment: str = ""  # that the list was drawn for


@dataclass(slots=True)
class Feedback:
    """Clicks on the slots of an event; ``final`` if there will be no more."""

    event_id: str
    token: str
    clicks: list[int] = field(default_factory=list)
    final: bool = False


@dataclass(slots=True)
class Result:
    """What became of one piece of feedback, and why if it was rejected."""

    event_id: str
    status: Status
    reason: str = ""


class ServiceError(Exception):
    """A refusal that says what is wrong; ``errors`` point to the parts of the request that are at fault.

    ``title`` names the kind of refusal, where it is more special than its class.
    """

    title: str | None = None

    def __init__(self, detail: str, errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)


class Unknown(ServiceError):
    """There is no such surface, item or event (404)."""


class Invalid(ServiceError):
    """The request makes no sense (422)."""

    def __init__(self, detail: str, pointer: str = "", errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(detail, errors or ([{"pointer": pointer, "detail": detail}] if pointer else ()))


class NotEnough(Invalid):
    """Fewer items may be shown than there are slots (422)."""

    title = "Not enough eligible items"


class Conflict(ServiceError):
    """Somebody else has changed it meanwhile (409)."""


class TooMany(ServiceError):
    """A limit is reached (422), or there is more to do than can be done (429)."""


class Unavailable(ServiceError):
    """The store cannot be written to now; nothing was acknowledged, try again (503)."""
