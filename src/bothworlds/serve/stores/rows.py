"""Serialisation of records as table rows: one row per event, with its placements in one compact value."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, TypeVar

import msgspec

from ..eligibility_format import PackedEligibility, pack, unpack
from ..model import (
    ALL_ELIGIBLE,
    Adjustment,
    Cell,
    Event,
    EventPrediction,
    Increments,
    RemovedBlock,
    pinned_mask,
)

__all__ = [
    "ADJUSTMENT_COLUMNS",
    "EVENT_COLUMNS",
    "Row",
    "adjustment_of",
    "batches",
    "encoded_rewards",
    "event_of",
    "row_of",
    "row_of_adjustment",
]

Row = Sequence[Any]
T = TypeVar("T")

EVENT_COLUMNS = (
    "id, surface_id, segment, arm, policy_id, created_at, expires_at, late_until, placements, learn, clicks, "
    "settled_at, settled_by, late, pinned, eligibility, mixture, "
    "visitor, learner, rewards, prediction"
)
ADJUSTMENT_COLUMNS = "surface_id, segment, at, actor, reason, rounds, cells, removed, settled"

_encode = msgspec.msgpack.Encoder().encode
_placements = msgspec.msgpack.Decoder(tuple[tuple[int, ...], tuple[float, ...]]).decode
_eligibility = msgspec.msgpack.Decoder(PackedEligibility).decode
_mixture = msgspec.msgpack.Decoder(tuple[float, ...]).decode
_rewards = msgspec.msgpack.Decoder(tuple[int, ...]).decode
_prediction = msgspec.msgpack.Decoder(EventPrediction).decode
_settled = msgspec.msgpack.Decoder(tuple[tuple[int, int], ...]).decode
_removed = msgspec.msgpack.Decoder(tuple[RemovedBlock, ...]).decode
_cells = msgspec.msgpack.Decoder(list[tuple[int, int, int, int, int]]).decode


def row_of(event: Event) -> tuple[Any, ...]:
    """Returns the values of an event in the order of ``EVENT_COLUMNS``."""
    return (
        event.id,
        event.surface_id,
        event.segment,
        event.arm,
        event.policy_id,
        event.created_at,
        event.expires_at,
        event.late_until,
        _encode((event.items, event.p)),
        event.learn,
        event.clicks,
        event.settled_at,
        event.settled_by,
        event.late,
        event.pinned,
        None if event.eligibility == ALL_ELIGIBLE else _encode(pack(event.eligibility)),
        _encode(event.mixture) if event.mixture else None,
        event.visitor,
        event.learner,
        encoded_rewards(event),
        None if event.prediction is None else _encode(event.prediction),
    )


def encoded_rewards(event: Event) -> bytes | None:
    """Returns the value of the column ``rewards``."""
    return _encode(event.rewards) if event.rewards else None


def event_of(row: Row) -> Event:
    """Returns the event of a row.

    >>> from bothworlds.serve.model import Eligibility
    >>> event = Event(id=b"1", surface_id=1, segment="", arm="learner", policy_id="", created_at=0, expires_at=1,
    ...     late_until=2, items=(4, 7), p=(0.1, 1 / 3), learn=0b11,
    ...     eligibility=Eligibility(absent=(2, 300)))
    >>> event_of(row_of(event)) == event
    True
    """
    items, p = _placements(row[8])
    return Event(
        id=row[0],
        surface_id=row[1],
        segment=row[2],
        arm=row[3],
        policy_id=row[4],
        created_at=row[5],
        expires_at=row[6],
        late_until=row[7],
        items=items,
        p=p,
        learn=row[9],
        clicks=row[10],
        settled_at=row[11],
        settled_by=row[12],
        late=row[13],
        pinned=pinned_mask(row[14], row[3], len(items), row[9]),
        eligibility=ALL_ELIGIBLE if row[15] is None else unpack(_eligibility(row[15])),
        mixture=() if row[16] is None else _mixture(row[16]),
        visitor=row[17],
        learner=row[18] or 0,
        rewards=() if row[19] is None else _rewards(row[19]),
        prediction=None if row[20] is None else _prediction(row[20]),
    )


def row_of_adjustment(adjustment: Adjustment) -> tuple[Any, ...]:
    """Returns the values of an adjustment in the order of ``ADJUSTMENT_COLUMNS``."""
    added = adjustment.increments
    cells = _encode([(cell.item, cell.slot, cell.loss, cell.shown, cell.clicked) for cell in added.cells])
    removed = _encode(adjustment.removed) if adjustment.removed else None
    return (
        added.surface_id,
        added.segment,
        adjustment.at,
        adjustment.actor,
        adjustment.reason,
        added.rounds,
        cells,
        removed,
        _encode(adjustment.settled) if adjustment.settled else None,
    )


def adjustment_of(row: Row) -> Adjustment:
    """Returns the adjustment of a row."""
    surface_id, segment, at, actor, reason, rounds, cells, removed, settled = row
    added = tuple(Cell(*cell) for cell in _cells(cells))
    increments = Increments(surface_id=surface_id, segment=segment, rounds=rounds, cells=added)
    blocks = () if removed is None else _removed(removed)
    counted = () if settled is None else _settled(settled)
    return Adjustment(increments=increments, at=at, actor=actor, reason=reason, removed=blocks, settled=counted)


def batches(values: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields lists of at most ``size`` elements.

    >>> list(batches("abcde", 2))
    [['a', 'b'], ['c', 'd'], ['e']]
    """
    stream = iter(values)
    while batch := list(islice(stream, size)):
        yield batch
