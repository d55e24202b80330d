"""What the engine takes, gives back and raises: the words that HTTP and the pages share with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = [
    "Conflict",
    "Feedback",
    "Invalid",
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
    """One placement of a list: which item, with which probability, and whether it is learned from."""

    slot: int
    item: str
    p: float
    pinned: bool = False
    learn: bool = True


@dataclass(frozen=True, slots=True)
class Ranked:
    """A decision as it is handed out; times are milliseconds."""

    event_id: str
    surface: str
    arm: str
    policy_id: str
    expires_at: int
    token: str
    slots: list[Slot]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a visitor did with a list: the slots that were clicked, and whether that was all."""

    event_id: str
    token: str
    clicks: list[int] = field(default_factory=list)
    final: bool = False


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one piece of feedback."""

    event_id: str
    status: str
    reason: str = ""


class ServiceError(Exception):
    """Something the sender can be told, in a sentence."""

    def __init__(self, detail: str, errors: Sequence[dict[str, str]] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = list(errors)


class Unknown(ServiceError):
    """There is no such surface, item or event."""


class Invalid(ServiceError):
    """What was asked for makes no sense; ``errors`` point to where."""


class Conflict(ServiceError):
    """Somebody else has changed it in the meantime."""


class TooMany(ServiceError):
    """A limit has been reached."""


class Unavailable(ServiceError):
    """The store is away; try again."""
