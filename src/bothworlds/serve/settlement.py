"""Settlement: how feedback and deadlines change an event, and what a settled event adds to the counters.

This is the only place that decides what is learned; it uses no storage. An event is open until it is settled, by
``final`` feedback or by its deadline. Settling adds its increments once. Clicks are merged into a mask by OR, so that
repeated, partial and reordered feedback gives the same result. A click that comes after settling, within the late
window, subtracts exactly the loss that its absence had added.

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
    loss_weight,
    predicted_loss_weight,
)

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
    if was_reset and feedback.clicks & ~event.clicks:
        return event, None, "expired"
    return apply_clicks(event, feedback.clicks, feedback.final, now)


def same_list(one: Event, other: Event) -> bool:
    """Returns whether two events have the same items with the same propensities, learned slots and arm."""
    return (one.items, one.p, one.learn, one.arm) == (other.items, other.p, other.learn, other.arm)


def apply_clicks(event: Event, clicks: int, final: bool, now: int) -> tuple[Event, Increments | None, Status]:
    """Returns the event after these clicks, its increments (None if there are none) and the status for the sender."""
    new = clicks & ~event.clicks
    if event.settled_at is not None:
        if not new:
            return event, None, "duplicate" if clicks or event.settled_by == "final" else "settled"
        if now > event.late_until:
            return event, None, "expired"
        late = now > event.expires_at
        changed = msgspec.structs.replace(event, clicks=event.clicks | new, late=event.late | (new if late else 0))
        return changed, _late_increments(event, changed), "late_applied" if late else "accepted"
    if now > event.late_until:
        return event, None, "expired"
    overdue = now > event.expires_at
    changed = msgspec.structs.replace(event, clicks=event.clicks | new, late=event.late | (new if overdue else 0))
    if final or overdue:
        changed.settled_at = now
        changed.settled_by = "deadline" if overdue else "final"
        return changed, increments_of(changed), "late_applied" if overdue and new else "accepted"
    return changed, None, "accepted" if new else "duplicate"


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
        segment=event.segment,
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
            if used is not None:
                clicked = clicks >> slot & 1
                yield item, slot, predicted_loss_weight(p, bool(clicked), used[slot]), 1, clicked
            elif clicks >> slot & 1:
                yield item, slot, 0, 1, 1
            else:
                yield item, slot, loss_weight(p), 1, 0


def observed_losses(event: Event) -> Iterator[tuple[int, int]]:
    """Yields slot and loss of every learned slot without a click, if some items could not be shown there."""
    if event.eligibility.absent or event.eligibility.present:
        for slot in range(len(event.items)):
            if event.learn >> slot & 1 and not event.clicks >> slot & 1:
                yield slot, LOSS_UNIT


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
    placements = [(weights[slot], event.clicks >> slot & 1) for slot in learned]
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
    """Returns the increments of clicks on a settled event: each new click subtracts the loss of its slot.

    With a prediction b', that is the difference of two rounded numbers, so that the sum equals that of an event which
    settles with the click.
    """
    new = after.clicks & ~before.clicks
    cells = tuple(
        Cell(item, slot, loss=loss_after - loss, clicked=1)
        for (item, slot, loss, _, _), (_, _, loss_after, _, _) in zip(sorted(cells_of(before)), sorted(cells_of(after)))
        if new >> slot & 1
    )
    observed = tuple((slot, -loss) for slot, loss in observed_losses(before) if new >> slot & 1)
    return Increments(
        surface_id=after.surface_id,
        segment=after.segment,
        rounds=0,
        cells=cells,
        observed=observed,
        eligibility=after.eligibility,
        at=after.created_at,
        mixture=_difference(mixture_sums(after), mixture_sums(before)),
    )


def _difference(one: tuple[int, int, int], other: tuple[int, int, int]) -> tuple[int, int, int]:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]
