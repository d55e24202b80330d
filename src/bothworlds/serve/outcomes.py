"""Outcomes: how feedback changes an event, when and why the event settles, and what is learned from it.

Pure functions; no storage. Clicks are merged by OR and rewards by the maximum, so that repeated, partial and reordered
feedback gives the same outcome. A settled event does not change any more, except that ``late`` takes clicks which come
until ``late_until``: they are reported, but neither learned from nor compared.

Only pages that were seen may be learned from, and whether a page is learned from must not depend on its clicks. So a
surface says what its feedback means:

- ``final``: every page that was seen reports ``shown`` or ``final``, which confirms it. A click alone does not: clicked
  pages would be learned from and others would not. Final pages settle as they come, or at their deadline while too many
  pages end without ``final``. Other confirmed pages settle at their deadline, and unconfirmed ones are not learned.
- ``clicks``: only clicks are sent. Every page settles at its deadline, in the order in which they were shown.

A page that was reported as not shown, and has no click, is void under both.

The order counts. Pages with a click report at once, pages without one when they are left, or never. Learned in that
order, pages whose end was lost come late and without clicks, and when traffic stops they come alone. To a policy that
detects changes it looks as if visitors clicked no more: it forgets what it has learned. Learned at their deadlines,
pages are in the order in which they were shown. That costs the delay, and so it is done only where ends are lost, or
where only clicks are sent.

A reward is stored in the fixed point of losses, in units of 1 / ``LOSS_UNIT``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from ..kernels import Floats
from .events import Event, Feedback, SettledBy
from .model import BASELINE_ARM, LOSS_UNIT, FeedbackMode, Status

AT_ONCE = 0
DAY = 86_400.0  # seconds
LOST = 0.05  # share of the pages that end at their deadline up to which others settle as they come,
MOST_LOST = 10.0  # if there are at most so many until a deadline, on average: alone, they must not look like a change
FEW = 20  # pages from which nothing is concluded

Rewards = tuple[int, ...]  # of every slot, in units of 1 / LOSS_UNIT; empty without rewards


def merged(event: Event, feedback: Feedback, now: int) -> tuple[Event, Status]:
    """Returns the event after this feedback, and the status for the sender. The arguments are not changed.

    - ``rejected``: the event was deleted, or the token has another list than the one that is stored. The visitor saw a
      list whose record was lost, so that their clicks say nothing about the stored one.
    - ``expired``: something new after the late window.
    - ``accepted``: something new on an open event; ``late_applied``: new clicks on a settled one.
    - ``duplicate``, ``settled``: nothing new, or, on a settled event, nothing but ``shown`` or ``final``.
    """
    if event.deleted or not _same_list(event, feedback.event):
        return event, "rejected"
    rewards = merged_rewards(event.rewards, feedback.rewards)
    new = increased_slots(event.rewards, rewards) if feedback.rewards else feedback.clicks & ~event.clicks
    if event.number is not None:
        new &= ~event.late
        if not new:
            reported = feedback.clicks or feedback.rewards or event.settled_by == "final"
            return event, "duplicate" if reported else "settled"
        if now > event.late_until:
            return event, "expired"
        return msgspec.structs.replace(event, late=event.late | new), "late_applied"
    if now > event.late_until:
        return event, "expired"
    clicks, final = event.clicks | new, event.final or feedback.final
    shown = _merged_shown(event.shown, feedback.shown, clicks)
    if (clicks, rewards, shown, final) == (event.clicks, event.rewards, event.shown, event.final):
        return event, "duplicate"
    return msgspec.structs.replace(event, clicks=clicks, rewards=rewards, shown=shown, final=final), "accepted"


def settled_by(event: Event, surface_feedback: FeedbackMode, now: int, as_they_come: bool) -> SettledBy:
    """Returns why an event is settled, or settles now; "" while it is open.

    ``as_they_come`` is whether final pages of the surface may settle before their deadline.
    """
    if event.number is not None:
        return event.settled_by
    if event.shown is False:
        return "void"
    overdue = now > event.expires_at
    if event.final and (overdue or (as_they_come and surface_feedback == "final")):
        return "final"
    if not overdue:
        return ""
    return "deadline" if event.shown or surface_feedback == "clicks" else "unconfirmed"


def due_at(event: Event) -> int:
    """Returns the time after which an open event may settle, if final pages of its surface settle as they come.

    >>> from .events import Listed
    >>> page = Event(id=b"", surface_id=1, learner_id=1, arm="learner", created_at=0, expires_at=600_000,
    ...     late_until=900_000, n=2, listed=Listed((1, 0), (0.5, 0.5), 0b11))
    >>> due_at(page), due_at(msgspec.structs.replace(page, final=True))
    (600000, 0)
    """
    return AT_ONCE if event.final or event.shown is False else event.expires_at


def is_learned(event: Event) -> bool:
    """Returns whether the learner of an event learns from it."""
    learned = event.settled_by in ("final", "deadline", "import") and event.counted
    return learned and event.listed.learn != 0 and event.arm != BASELINE_ARM


def is_compared(event: Event) -> bool:
    """Returns whether an event is a page of its arm, in the history and in comparisons.

    An imported event is not: no arm of the surface was drawn for it.
    """
    return event.settled_by in ("final", "deadline") and event.counted


def rewards_of(event: Event) -> Floats:
    """Returns the reward of every slot, from 0 to 1, shape (slots,), as ``learn_page`` takes them; without late clicks.

    >>> from .events import Listed
    >>> page = Event(id=b"", surface_id=1, learner_id=1, arm="learner", created_at=0, expires_at=1,
    ...     late_until=2, n=2, listed=Listed((1, 0), (0.5, 0.5), 0b11), clicks=0b10)
    >>> rewards_of(page), rewards_of(msgspec.structs.replace(page, clicks=0b11, rewards=(LOSS_UNIT, LOSS_UNIT // 4)))
    (array([0., 1.]), array([1.  , 0.25]))
    """
    if event.rewards:
        return np.array(event.rewards, np.float64) / LOSS_UNIT
    return np.array([event.clicks >> slot & 1 for slot in range(len(event.listed.items))], np.float64)


def _same_list(one: Event, other: Event) -> bool:
    """Returns whether two events have the same items with the same propensities, learned slots and learner."""
    a, b = one.listed, other.listed
    return (a.items, a.p, a.learn, one.arm, one.learner_id) == (b.items, b.p, b.learn, other.arm, other.learner_id)


def _merged_shown(before: bool | None, given: bool | None, clicks: int) -> bool | None:
    """Returns whether a page was shown, whatever the order of reports: ``True`` and clicks outweigh ``False``."""
    if before or given:
        return True
    return False if not clicks and (before is False or given is False) else None


# The order of settlement


class Endings(NamedTuple):
    """How settled pages have ended. ``pages`` are compared; ``by_deadline`` of them ended without final feedback.

    Of the others, ``unconfirmed`` pages were never reported as shown, ``void`` ones were reported as not shown, and
    ``not_counted`` ones were too many of one visitor or address.
    """

    pages: int
    by_deadline: int = 0
    unconfirmed: int = 0
    unconfirmed_with_clicks: int = 0
    void: int = 0
    not_counted: int = 0


def as_they_come(feedback: FeedbackMode, past: Endings, attribution_seconds: float, day: float = DAY) -> bool:
    """Returns whether final pages settle before their deadline: not where only clicks are sent, or ends are lost.

    ``past`` are the endings of the pages of the last day whose deadline has passed; of younger ones, only those that
    have ended are known. Where there are few, final pages settle as they come.

    >>> as_they_come("final", Endings(1000, 50), 600.0), as_they_come("final", Endings(1000, 51), 600.0)
    (True, False)
    >>> as_they_come("final", Endings(100_000, 1500), 600.0), as_they_come("clicks", Endings(1000), 600.0)
    (False, False)
    """
    if feedback == "clicks":
        return False
    few = past.by_deadline * attribution_seconds / day <= MOST_LOST
    return past.pages < FEW or (few and past.by_deadline <= LOST * past.pages)


def feedback_notice(feedback: FeedbackMode, endings: Endings) -> str:
    """Returns what the dashboard says of the feedback of the last day; empty if nothing is wrong.

    >>> feedback_notice("final", Endings(1000, 20, 30, 2))
    ''
    >>> feedback_notice("final", Endings(1000, 300))
    '30% of the confirmed pages ended without final feedback: pages are learned at their deadline'
    """
    confirmed, by_deadline, unconfirmed, with_clicks, *_ = endings
    pages = confirmed + unconfirmed
    if feedback == "clicks" or pages < FEW:
        return ""
    not_learned = f"{unconfirmed:,} of {pages:,} pages are not learned, because no feedback says that they were shown"
    if with_clicks > max(LOST * confirmed, 1):
        return (
            f"{not_learned}; {with_clicks:,} of them have clicks. If the page sends clicks only, set feedback to clicks"
        )
    if unconfirmed > confirmed:
        return not_learned
    if by_deadline > LOST * confirmed:
        share = f"{by_deadline / confirmed:.0%} of the confirmed pages ended without final feedback"
        return f"{share}: pages are learned at their deadline"
    return ""


# Rewards


def fixed_point(value: object) -> int:
    """Returns a reward as a whole number of units; raises ValueError unless it is a number from 0 to 1.

    >>> fixed_point(0.25) == LOSS_UNIT // 4
    True
    >>> fixed_point(float("nan"))
    Traceback (most recent call last):
    ...
    ValueError: a reward must be a number from 0 to 1; got nan
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0:
        raise ValueError(f"a reward must be a number from 0 to 1; got {str(value)[:40]}")
    return round(LOSS_UNIT * value)


def slot_rewards(given: Mapping[int, float], slots: int) -> Rewards:
    """Returns the rewards of all slots from those that were given; raises ValueError for a slot that does not exist.

    >>> slot_rewards({1: 0.5}, 3) == (0, LOSS_UNIT // 2, 0)
    True
    """
    rewards = [0] * slots
    for slot, value in given.items():
        if not 0 <= slot < slots:
            raise ValueError(f"there is no slot {slot}; the page has {slots}")
        rewards[slot] = fixed_point(value)
    return tuple(rewards)


def merged_rewards(one: Rewards, other: Rewards) -> Rewards:
    """Returns the larger reward of every slot.

    >>> merged_rewards((0, 5, 2), (3, 4, 2)), merged_rewards((), (1, 0))
    ((3, 5, 2), (1, 0))
    """
    return tuple(map(max, one, other)) if one and other else one or other


def increased_slots(before: Rewards, after: Rewards) -> int:
    """Returns the mask of the slots whose reward has become larger.

    >>> bin(increased_slots((), (1, 0, 2))), bin(increased_slots((1, 0, 2), (1, 4, 2)))
    ('0b101', '0b10')
    """
    return sum(1 << slot for slot, reward in enumerate(after) if reward > (before[slot] if before else 0))


def page_squares(rewards: Rewards) -> int:
    """Returns the square of the sum of a page's rewards in units of 1 / ``LOSS_UNIT``, rounded up.

    The sum of squares gives a variance, which must not be too small.

    >>> page_squares((LOSS_UNIT, LOSS_UNIT // 2)) * 4 == 9 * LOSS_UNIT, page_squares((1, 0))
    (True, 1)
    """
    return -(-(sum(rewards) ** 2) // LOSS_UNIT)
