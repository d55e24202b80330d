"""Events: a list that was drawn for one page, its outcome, and the learner that learns from it.

All times are whole milliseconds since 1970, in UTC. A mask has bit k for slot k.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from .model import SEGMENT, Arm

# Why an event is settled. Not learned from: a page that nobody has confirmed to be shown, and one that was not shown.
SettledBy = Literal["", "final", "deadline", "import", "unconfirmed", "void"]


class Listed(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A decision: the list, and everything that learning from it needs; the same in the token, the store and an export.

    Items are indices of the surface. ``absent`` are the items that could not be shown at the learned slots.
    """

    items: tuple[int, ...]  # of every slot
    p: tuple[float, ...]  # of every placement
    learn: int  # mask of the slots that are learned from
    pinned: int = 0  # mask of the slots whose item the request has chosen
    absent: tuple[int, ...] = ()
    note: tuple[float, ...] = ()
    policy_id: str = ""


class Learner(msgspec.Struct, frozen=True, kw_only=True):
    """One state of a policy: that of a surface's own policy, or of an arm."""

    id: int
    surface_id: int
    number: int  # of the arm, as in ``Surface.arm_learners``; 0: the first policy of the surface
    reset_number: int = 0  # events up to this number are not part of the state
    erased_number: int = 0  # the largest number of its events whose content was deleted; a replay starts at or above it


class Event(msgspec.Struct, kw_only=True, gc=False):  # many wait to be written, in no cycles
    """One decision and its outcome. A settled event never becomes open again, and keeps its number."""

    id: bytes  # 16 bytes
    surface_id: int
    learner_id: int
    arm: Arm
    created_at: int
    expires_at: int  # the deadline: when the event settles without final feedback
    late_until: int  # the end of the late window
    n: int  # items of the surface when the list was drawn, including removed ones
    listed: Listed
    context: dict[str, str] = {}  # the visitor's labels; those that are missing are unknown
    visitor: bytes | None = None  # a keyed hash of the visitor's id; None without one
    counted: bool = True  # False: one of too many pages of one visitor or address; neither learned nor compared
    shown: bool | None = None  # whether the page was shown; None: unknown
    clicks: int = 0  # mask of clicked slots; with rewards, of the slots with a reward above 0
    rewards: tuple[int, ...] = ()  # of every slot, in units of 1 / LOSS_UNIT; empty for clicks, and without a reward
    final: bool = False
    late: int = 0  # mask of clicks that came after it was settled; they are reported, not learned
    number: int | None = None  # of the event in the log of the surface, from 1; None while it is open
    settled_at: int | None = None
    settled_by: SettledBy = ""
    deleted: bool = False

    @property
    def segment(self) -> str:
        """The value of the label by which totals are kept."""
        return self.context.get(SEGMENT, "")


class Feedback(msgspec.Struct, kw_only=True, gc=False):
    """Feedback whose token is valid: the event as the token describes it, and what was reported."""

    event: Event
    clicks: int = 0
    rewards: tuple[int, ...] = ()
    shown: bool | None = None
    final: bool = False


class Lease(msgspec.Struct, frozen=True):
    """The right to settle events. ``fence`` grows whenever the owner changes."""

    owner: str
    fence: int
