"""The order of settlement: whether final pages of a surface settle as they come, or wait for their deadline.

Pages with a click report at once, pages without one when they are left, or never. Learned in that order, pages whose
end was lost come late and without clicks, and when traffic stops they come alone. To a policy that detects changes it
looks as if visitors clicked no more: it forgets what it has learned. Learned at their deadlines, pages are in the order
in which they were shown. That costs the delay, and so it is done only where ends are lost, or where only clicks are
sent.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

DAY = 86_400.0  # seconds
LOST = 0.05  # share of the pages that end at their deadline up to which others settle as they come,
MOST_LOST = 10.0  # if there are at most so many until a deadline, on average: alone, they must not look like a change
FEW = 20  # pages from which nothing is concluded

FeedbackMode = Literal["final", "clicks"]


class Endings(NamedTuple):
    """How pages were settled that were created in a range of time, as ``Store.endings`` returns it."""

    confirmed: int
    by_deadline: int  # of those
    unconfirmed: int
    unconfirmed_with_clicks: int  # of those


def as_they_come(
    feedback: FeedbackMode, past: tuple[int, int, int, int], attribution_seconds: float, day: float = DAY
) -> bool:
    """Returns whether final pages settle before their deadline: not where only clicks are sent, or ends are lost.

    ``past`` are the endings of the pages of the last day whose deadline has passed; of younger ones, only those that
    have ended are known. Where there are few, final pages settle as they come.

    >>> as_they_come("final", (1000, 50, 0, 0), 600.0), as_they_come("final", (1000, 51, 0, 0), 600.0)
    (True, False)
    >>> as_they_come("final", (100_000, 1500, 0, 0), 600.0), as_they_come("clicks", (1000, 0, 0, 0), 600.0)
    (False, False)
    """
    confirmed, by_deadline, _, _ = past
    if feedback == "clicks":
        return False
    few = by_deadline * attribution_seconds / day <= MOST_LOST
    return confirmed < FEW or (few and by_deadline <= LOST * confirmed)


def feedback_notice(feedback: FeedbackMode, endings: tuple[int, int, int, int]) -> str:
    """Returns what the dashboard says of the feedback of the last day; empty if nothing is wrong.

    >>> feedback_notice("final", (1000, 20, 30, 2))
    ''
    >>> feedback_notice("final", (1000, 300, 0, 0))
    '30% of the confirmed pages ended without final feedback: pages are learned at their deadline'
    """
    confirmed, by_deadline, unconfirmed, with_clicks = endings
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
