"""Settlement: how feedback and deadlines change an event, and what a settled event adds to the counters.

This is the only place that decides what is learned; it uses no storage. An event is open until it is settled, by
``final`` feedback or by its deadline. Settling adds its increments once. Clicks are merged into a mask by OR, so that
repeated, partial and reordered feedback gives the same result. A click that comes after settling, within the late
window, subtracts exactly the loss that its absence had added. Rewards are merged by the maximum instead (``rewards``);
the loss of a slot is 1 - reward.

An item that could not be shown is charged the loss observed at every learned slot (the rule for specialists of Freund,
Schapire, Singer and Warmuth, 1997). Without it, such an item would gain nothing while the others pay, and would come to
look best. Policies that count shows and clicks are not affected: an item that was not shown is not counted.

An event with predicted losses adds (1 - click - b') / p for the items that were shown, and counts for the version of
its predictions, which adds b' for all items: see ``prediction_versions``.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from ..policies.mixture import comparison_sums
from ..policies.predictions import UNITS, PagePrediction
from .model import (
    LOSS_UNIT,
    Cell,
    Eligibility,
    Event,
    Increments,
    Status,
    VerifiedFeedback,
    predicted_loss_weight,
)
from .rewards import Rewards, increased_slots, merged_rewards, reward_clicks

__all__ = [
    "apply_clicks",
    "apply_feedback",
    "cells_of",
    "increments_of",
    "mixture_sums",
    "observed_losses",
    "same_list",
    "settle_at_deadline",
    "spread_loss",
    "version_of",
]


def apply_feedback(
    stored: Event | None, feedback: VerifiedFeedback, now: int, reset_at: int | None = None
) -> tuple[Event, Increments | None, Status]:
    """Applies feedback to the stored event, or to the event of the token if none is stored.

    Returns the event after the feedback, its increments (None if there are none) and the status for the sender. It
    does what ``apply_clicks`` does, except in two cases in which nothing changes:

    - The token has another list than the stored event. The visitor saw a list whose record was lost, so that her clicks
      say nothing about the stored one: ``rejected``.
    - The segment was reset after the event had settled (``reset_at``). There is no loss left that a new click could
      subtract: ``expired``.
    """
    event = stored or feedback.event
    if not same_list(event, feedback.event):
        return event, None, "rejected"
    was_reset = reset_at is not None and event.settled_at is not None and event.settled_at <= reset_at
    if was_reset and _merged(event, feedback.clicks, feedback.rewards)[2]:
        return event, None, "expired"
    return apply_clicks(event, feedback.clicks, feedback.final, now, feedback.rewards)


def same_list(one: Event, other: Event) -> bool:
    """Returns whether two events have the same items with the same propensities, learned slots and arm."""
    return (one.items, one.p, one.learn, one.arm) == (other.items, other.p, other.learn, other.arm)


def apply_clicks(
    event: Event, clicks: int, final: bool, now: int, rewards: Rewards = ()
) -> tuple[Event, Increments | None, Status]:
    """Returns the event after these clicks or rewards, its increments (None: none) and the status for the sender."""
    all_clicks, largest, new = _merged(event, clicks, rewards)
    if event.settled_at is not None:
        if not new:
            return event, None, "duplicate" if clicks or rewards or event.settled_by == "final" else "settled"
        if now > event.late_until:
            return event, None, "expired"
        late = now > event.expires_at
        changed = _changed(event, all_clicks, largest, new if late else 0)
        return changed, _late_increments(event, changed), "late_applied" if late else "accepted"
    if now > event.late_until:
        return event, None, "expired"
    overdue = now > event.expires_at
    changed = _changed(event, all_clicks, largest, new if overdue else 0)
    if final or overdue:
        changed.settled_at = now
        changed.settled_by = "deadline" if overdue else "final"
        return changed, increments_of(changed), "late_applied" if overdue and new else "accepted"
    return changed, None, "accepted" if new else "duplicate"


def _merged(event: Event, clicks: int, rewards: Rewards) -> tuple[int, Rewards, int]:
    """Returns all clicks and rewards of an event with these, and the mask of the slots that they change."""
    if not rewards:
        return event.clicks | clicks, event.rewards, clicks & ~event.clicks
    largest = merged_rewards(event.rewards, rewards)
    return reward_clicks(event.id, largest), largest, increased_slots(event.rewards, largest)


def _changed(event: Event, clicks: int, rewards: Rewards, late: int) -> Event:
    return msgspec.structs.replace(event, clicks=clicks, rewards=rewards, late=event.late | late)


def settle_at_deadline(event: Event, now: int) -> tuple[Event, Increments | None]:
    """Returns the settled event and its increments if it is open and past its deadline, else the event and None."""
    if event.settled_at is not None or now <= event.expires_at:
        return event, None
    changed = msgspec.structs.replace(event, settled_at=now, settled_by="deadline")
    return changed, increments_of(changed)


def increments_of(event: Event) -> Increments:
    """Returns everything that a settled event adds to its segment.

    >>> from bothworlds.serve.model import LOSS_UNIT
    >>> event = Event(id=b"", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=1,
    ...     late_until=2, items=(4, 7), p=(0.5, 0.25), learn=0b11, clicks=0b10)
    >>> [(cell.item, cell.slot, cell.loss // LOSS_UNIT, cell.clicked) for cell in increments_of(event).cells]
    [(4, 0, 2, 0), (7, 1, 0, 1)]
    """
    cells = tuple(Cell(*cell) for cell in sorted(cells_of(event)))
    return Increments(
        surface_id=event.surface_id,
        segment=event.counter_key,
        rounds=1 if cells else 0,
        cells=cells,
        observed=tuple(observed_losses(event)),
        eligibility=event.eligibility,
        at=event.created_at,
        mixture=mixture_sums(event),
        version=version_of(event),
    )


def version_of(event: Event) -> int:
    """Returns the version of predictions that an event counts for when it settles; 0 if there is none."""
    return event.prediction.version if event.prediction is not None and event.learn else 0


def cells_of(event: Event) -> Iterator[tuple[int, int, int, int, int]]:
    """Yields item, slot, loss, shows and clicks of every learned slot, as if the event were settled now."""
    learn, clicks = event.learn, event.clicks
    used = None if event.prediction is None else event.prediction.used
    for slot, (item, p) in enumerate(zip(event.items, event.p, strict=True)):
        if learn >> slot & 1:
            loss, predicted = _lost(event, slot), 0 if used is None else used[slot]
            yield item, slot, predicted_loss_weight(p, loss, predicted), 1, clicks >> slot & 1


def _lost(event: Event, slot: int) -> int:
    """Returns the loss observed at a slot, in units of ``LOSS_UNIT``: 1 - reward, or 1 without a click."""
    if event.rewards:
        return LOSS_UNIT - event.rewards[slot]
    return 0 if event.clicks >> slot & 1 else LOSS_UNIT


def observed_losses(event: Event) -> Iterator[tuple[int, int]]:
    """Yields slot and loss of every learned slot with a loss, if some items could not be shown there."""
    if event.eligibility.absent or event.eligibility.present:
        for slot in range(len(event.items)):
            if event.learn >> slot & 1 and (lost := _lost(event, slot)):
                yield slot, lost


def mixture_sums(event: Event) -> tuple[int, int, int]:
    """Returns what an event of two mixed learners adds to their comparison, in units of ``LOSS_UNIT``; else zeros.

    >>> event = Event(id=b"", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=1,
    ...     late_until=2, items=(4, 7), p=(0.5, 0.25), learn=0b11, clicks=0b10, mixture=(0.5, 1.0, -2.0))
    >>> [value / LOSS_UNIT for value in mixture_sums(event)]
    [4.0, 1.5, 1.25]
    """
    predicted = event.prediction
    if not event.learn or not (event.mixture or predicted):
        return 0, 0, 0
    share, *weights = event.mixture or (1.0, *[0.0] * len(event.items))
    learned = [slot for slot in range(len(weights)) if event.learn >> slot & 1]
    placements = [(weights[slot], 1.0 - _lost(event, slot) / LOSS_UNIT) for slot in learned]
    prediction = None
    if predicted is not None:
        used, expected = (
            tuple(values[slot] / UNITS for slot in learned) for values in (predicted.used, predicted.expected)
        )
        prediction = PagePrediction(used, expected, predicted.difference)
    return comparison_sums(share, placements, lambda value: round(LOSS_UNIT * value), prediction)


def spread_loss(eligibility: Eligibility, slot: int, loss: int) -> Iterator[tuple[int, int, int]]:
    """Yields item, slot and loss of every counter that changes because some items could not be shown.

    >>> list(spread_loss(Eligibility(absent=(3, 5)), 0, LOSS_UNIT)) == [(3, 0, LOSS_UNIT), (5, 0, LOSS_UNIT)]
    True
    >>> list(spread_loss(Eligibility(present=(1,)), 0, LOSS_UNIT)) == [(1, 0, -LOSS_UNIT)]
    True
    """
    for item in eligibility.absent:
        yield item, slot, loss
    for item in eligibility.present:
        yield item, slot, -loss


def _late_increments(before: Event, after: Event) -> Increments:
    """Returns the increments of clicks or rewards on a settled event: they subtract loss at their slots.

    Each is the difference of two rounded numbers, so that the sum equals that of an event which settles with them.
    """
    cells = tuple(
        Cell(item, slot, loss=new_loss - loss, clicked=new_click - click)
        for (item, slot, loss, _, click), (_, _, new_loss, _, new_click) in sorted(
            zip(cells_of(before), cells_of(after), strict=True)
        )
        if (new_loss, new_click) != (loss, click)
    )
    left = dict(observed_losses(after))
    observed = tuple(
        (slot, left.get(slot, 0) - loss) for slot, loss in observed_losses(before) if left.get(slot, 0) != loss
    )
    return Increments(
        surface_id=after.surface_id,
        segment=after.counter_key,
        rounds=0,
        cells=cells,
        observed=observed,
        eligibility=after.eligibility,
        at=after.created_at,
        mixture=_difference(mixture_sums(after), mixture_sums(before)),
    )


def _difference(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
