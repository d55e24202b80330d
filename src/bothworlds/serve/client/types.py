"""Types of what the clients send and receive; ``schemas`` has the same fields as structs, which need msgspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from ..model import Arm, Status


class FeedbackEvent(TypedDict):
    """Clicks on one list, as ``schemas.FeedbackEvent``; ``final`` if no more clicks will follow.

    On a surface that counts rewards, ``rewards`` from 0 to 1 by slot instead of clicks. ``shown`` is whether the
    visitor could see the list.
    """

    event_id: str
    token: str
    clicks: NotRequired[list[int]]
    final: NotRequired[bool]
    rewards: NotRequired[dict[int, float]]
    shown: NotRequired[bool | None]


class FeedbackResult(TypedDict):
    """The result of one event, as ``schemas.Accepted``; ``reason`` is there if the event was rejected."""

    event_id: str
    status: Status
    reason: NotRequired[str]


class PlacedItem(TypedDict):
    """One slot of a list, as ``schemas.PlacedItem``."""

    slot: int
    item: str
    p: float
    pinned: bool
    learn: bool


class Ranking(TypedDict):
    """The response to a rank request, as ``schemas.Ranking``."""

    event_id: str
    surface: str
    arm: Arm
    policy_id: str
    expires_at: str
    token: str
    slots: list[PlacedItem]
    segment: NotRequired[str]  # absent in responses of services before segments were limited
    unknown_items: NotRequired[list[str]]  # names in exclude that the surface does not have
