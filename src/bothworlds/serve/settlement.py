"""What feedback and silence do to an event: the one place where learning is decided, without any storage.

An event is open until it is settled, by ``final`` feedback or by its deadline, and settling adds its increments once.
Clicks merge by OR into a mask, so that repeated, partial and reordered feedback comes to the same. A click that comes
after settling, within the late window, takes back exactly what its absence had added.

An item that could not be shown is charged the loss observed at every learned slot (the rule for specialists of Freund,
Schapire, Singer and Warmuth, 1997). Without it, such an item would gain nothing while the others pay, and come to look
best. Policies that count shows and clicks are not affected: what was not shown is not counted.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from .model import ONE, Cell, Eligibility, Event, Increments, Report, Status, weight_of

__all__ = ["cells_of", "increments_of", "judged", "observed_losses", "reported", "same_list", "silent", "spread"]


def judged(
    stored: Event | None, report: Report, now: int, reset_at: int | None = None
) -> tuple[Event, Increments | None, Status]:
    """What a report does to an event as it is stored, or as its token tells: ``reported``, but for two cases.

    If the list of the token is not the stored one, the visitor has seen a list whose record was lost, and her clicks
    say nothing about the other: rejected. If all that the event had added was taken away by a reset since, nothing can
    be taken back any more: expired. In both cases nothing changes.
    """
    event = stored or report.event
    if not same_list(event, report.event):
        return event, None, "rejected"
    forgotten = reset_at is not None and event.settled_at is not None and event.settled_at <= reset_at
    if forgotten and report.clicks & ~event.clicks:
        return event, None, "expired"
    return reported(event, report.clicks, report.final, now)


def same_list(one: Event, other: Event) -> bool:
    """Whether two records tell of the same items, shown with the same probabilities for the same purpose."""
    return (one.items, one.p, one.learn, one.arm) == (other.items, other.p, other.learn, other.arm)


def reported(event: Event, clicks: int, final: bool, now: int) -> tuple[Event, Increments | None, Status]:
    """The event after feedback with these clicks, what is added to the counters, and what to tell the sender."""
    new = clicks & ~event.clicks
    if event.settled_at is not None:
        if not new:
            return event, None, "duplicate" if clicks or event.settled_by == "final" else "settled"
        if now > event.late_until:
            return event, None, "expired"
        late = now > event.expires_at
        changed = msgspec.structs.replace(event, clicks=event.clicks | new, late=event.late | (new if late else 0))
        return changed, _difference(event, changed), "late_applied" if late else "accepted"
    if now > event.late_until:
        return event, None, "expired"
    overdue = now > event.expires_at
    changed = msgspec.structs.replace(event, clicks=event.clicks | new, late=event.late | (new if overdue else 0))
    if final or overdue:
        changed.settled_at = now
        changed.settled_by = "deadline" if overdue else "final"
        return changed, increments_of(changed), "late_applied" if overdue and new else "accepted"
    return changed, None, "accepted" if new else "duplicate"


def silent(event: Event, now: int) -> tuple[Event, Increments | None]:
    """The event after its deadline: what was not clicked by now was not clicked."""
    if event.settled_at is not None or now <= event.expires_at:
        return event, None
    changed = msgspec.structs.replace(event, settled_at=now, settled_by="deadline")
    return changed, increments_of(changed)


def increments_of(event: Event) -> Increments:
    """All that a settled event adds to its segment.

    >>> from bothworlds.serve.model import ONE
    >>> event = Event(id=b"", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=1,
    ...     late_until=2, items=(4, 7), p=(0.5, 0.25), learn=0b11, clicks=0b10)
    >>> [(cell.item, cell.slot, cell.loss // ONE, cell.clicked) for cell in increments_of(event).cells]
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
    )


def cells_of(event: Event) -> Iterator[tuple[int, int, int, int, int]]:
    """Item, slot, loss, shows and clicks of every slot that is learned from, as if the event were settled now."""
    learn, clicks = event.learn, event.clicks
    for slot, (item, p) in enumerate(zip(event.items, event.p, strict=True)):
        if learn >> slot & 1:
            if clicks >> slot & 1:
                yield item, slot, 0, 1, 1
            else:
                yield item, slot, weight_of(p), 1, 0


def observed_losses(event: Event) -> Iterator[tuple[int, int]]:
    """Slot and loss of every learned slot without a click, if there are items that could not be shown there."""
    if event.eligibility.absent or event.eligibility.present:
        for slot in range(len(event.items)):
            if event.learn >> slot & 1 and not event.clicks >> slot & 1:
                yield slot, ONE


def spread(eligibility: Eligibility, slot: int, loss: int) -> Iterator[tuple[int, int, int]]:
    """Item, slot and loss of every item whose counter changes because some could not be shown.

    >>> list(spread(Eligibility(absent=(3, 5)), 0, ONE)) == [(3, 0, ONE), (5, 0, ONE)]
    True
    >>> list(spread(Eligibility(present=(1,)), 0, ONE)) == [(1, 0, -ONE)]
    True
    """
    for item in eligibility.absent:
        yield item, slot, loss
    for item in eligibility.present:
        yield item, slot, -loss


def _difference(before: Event, after: Event) -> Increments:
    """What clicks that are new in ``after`` change: each takes back the loss of its slot."""
    new = after.clicks & ~before.clicks
    cells = tuple(
        Cell(item, slot, loss=-loss, clicked=1)
        for item, slot, loss, _, _ in sorted(cells_of(before))
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
    )
