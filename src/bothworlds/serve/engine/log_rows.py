"""What goes in and out: the log of a surface as rows, logs of others, and click models to start from."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from ..model import (
    ALL_ELIGIBLE,
    LOSS_UNIT,
    NAME_LENGTH,
    Adjustment,
    Cell,
    Eligibility,
    Event,
    Increments,
    Invalid,
    Item,
    Surface,
    checked_name,
    imported_id,
    parse_event_id,
    rfc3339,
)
from ..stores.base import Store
from .learner import eligibility_of
from .surface_rules import middle

__all__ = ["rows_of", "take_rows", "warm_start_of"]

LEAST = 1e-7  # the smallest probability that is learned from
MOST_ROUNDS = 100_000_000
LAST = 253_370_764_800_000  # milliseconds from 1970 to 9999


def rows_of(surface: Surface, store: Store) -> Iterator[dict[str, Any]]:
    """One row for every slot of every settled event.

    The first row of an event at which some items could not be shown lists them as ``absent``, or the others as
    ``eligible``, if these are fewer.
    """
    for event in store.settled(surface.id):
        eligibility = event.eligibility
        if max(event.items + eligibility.absent + eligibility.present) >= len(surface.items):
            # Another process has added some.
            surface = next(known for known in store.surfaces() if known.id == surface.id)
        shared = {
            "event": event.id.hex(),
            "timestamp": rfc3339(event.created_at),
            "surface": surface.name,
            "segment": event.segment,
            "arm": event.arm,
            "policy_id": event.policy_id,
        }
        listed = {
            column: [surface.items[item].name for item in items]
            for column, items in (("absent", eligibility.absent), ("eligible", eligibility.present))
            if items
        }
        for slot, (item, p) in enumerate(zip(event.items, event.p)):
            yield {
                **shared,
                "position": slot,
                "item": surface.items[item].name,
                "click": event.clicks >> slot & 1,
                "propensity": p,
                "pinned": bool(event.pinned >> slot & 1),
                "learn": bool(event.learn >> slot & 1),
                **(listed if slot == 0 else {}),
            }


class Refused(ValueError):
    """Rows that make no event."""


def take_rows(surface: Surface, rows: Iterable[Mapping[str, Any]], store: Store, now: int) -> dict[str, Any]:
    """Learn from rows, those of an event one after the other; counts what was taken and why others were not."""
    refused: Counter[str] = Counter()
    made = 0
    index = {item.name: item.index for item in surface.items}
    admitted: dict[str, bool] = {}

    def events() -> Iterator[Event]:
        nonlocal made
        base = None
        for _, group in groupby(rows, key=lambda row: row.get("event") if isinstance(row, Mapping) else None):
            page = list(group)
            base = _base_of(page) if base is None else base
            try:
                event = _event_of(surface, index, page, base, now)
                if event.segment not in admitted:
                    limit = surface.settings.max_segments
                    admitted[event.segment] = store.admit_segment(surface.id, event.segment, limit)
                if not admitted[event.segment]:
                    raise Refused("there are more segments than max_segments")
            except Refused as error:
                refused[str(error)] += 1
                continue
            made += 1
            yield event

    taken = store.import_events(events())
    return {"taken": taken, "known": made - taken, "refused": sum(refused.values()), "reasons": dict(refused)}


def _base_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """Whether positions count from 0 or from 1, by the first page."""
    return int(isinstance(rows[0], Mapping) and _whole(rows[0].get("position")) == 1)


def _event_of(
    surface: Surface, index: Mapping[str, int], rows: Sequence[Mapping[str, Any]], base: int, now: int
) -> Event:
    first = rows[0] if isinstance(rows[0], Mapping) else {}
    name = first.get("event")
    if not isinstance(name, (str, int)) or name == "":
        raise Refused("a row without the name of its event")
    if [_whole(row.get("position")) for row in rows] != [*range(base, base + len(rows))] or len(rows) > 50:
        raise Refused(f"positions of an event must be {base}, {base + 1}, {base + 2}, ... in this order")
    items = _items_of(index, rows)
    arm = first.get("arm", "learner")
    if arm not in ("learner", "holdout"):
        raise Refused("an arm other than learner and holdout")
    pinned = [bool(row.get("pinned", False)) for row in rows]
    learned = [arm == "learner" and bool(row.get("learn", not pin)) for row, pin in zip(rows, pinned)]
    p = tuple(_probability(row.get("propensity"), learn) for row, learn in zip(rows, learned))
    clicks = _clicks_of(rows)
    segment = _name(first.get("segment") or "", "segment")
    policy_id = _name(str(first.get("policy_id") or "import")[:NAME_LENGTH], "policy_id")
    at = _time(first.get("timestamp"), now)
    return Event(
        id=_id_of(surface, str(name)),
        surface_id=surface.id,
        segment=segment,
        arm=arm,
        policy_id=policy_id,
        created_at=at,
        expires_at=at,
        late_until=at,
        items=items,
        p=p,
        learn=_mask(learned),
        clicks=_mask(clicks),
        pinned=_mask(pinned),
        eligibility=_eligibility_of(surface, first, {item for item, learn in zip(items, learned) if learn}),
        settled_at=at,
        settled_by="import",
    )


def _items_of(index: Mapping[str, int], rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    items = tuple(index.get(str(row.get("item")), -1) for row in rows)
    if -1 in items:
        raise Refused("an item that the surface does not have")
    if len(set(items)) < len(items):
        raise Refused("an item twice on one page")
    return items


def _eligibility_of(surface: Surface, row: Mapping[str, Any], learned: Set[int]) -> Eligibility:
    """Which items of this surface could not be shown, as far as the first row of an event says so."""
    absent, eligible = _names_in(row, "absent"), _names_in(row, "eligible")
    if not learned or not (absent or eligible):
        return ALL_ELIGIBLE

    def could_be_shown(item: Item) -> bool:
        return item.index in learned or (item.name in eligible if eligible else item.name not in absent)

    return eligibility_of(surface, [item for item in surface.items if could_be_shown(item)])


def _names_in(row: Mapping[str, Any], column: str) -> frozenset[str]:
    names = row.get(column)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise Refused(f"a value of {column!r} that is not a list of items")
    return frozenset(names or ())


def _clicks_of(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    clicks = [_whole(row.get("click")) for row in rows]
    if not {*clicks} <= {0, 1}:
        raise Refused("a click other than 0 and 1")
    return clicks


def _name(value: Any, what: str) -> str:
    try:
        return checked_name(value, what, f"/{what}", empty=True)
    except Invalid as error:
        raise Refused(f"a {what} that is not a name") from error


def _mask(slots: Iterable[int]) -> int:
    return sum(1 << slot for slot, there in enumerate(slots) if there)


def _id_of(surface: Surface, name: str) -> bytes:
    return parse_event_id(name) or imported_id(surface.id, name)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (bool, int)) or (isinstance(value, float) and value.is_integer()) else -1


def _probability(value: Any, learn: bool) -> float:
    if not learn and value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not LEAST <= value <= 1.0:
        raise Refused(f"a propensity that is none from {LEAST:g} to 1")
    return float(value)


def _time(value: Any, now: int) -> int:
    if value is None:
        return now
    try:
        moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        at = round(moment.timestamp() * 1000)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise Refused("a timestamp that is no ISO time") from error
    if not 0 <= at < LAST:
        raise Refused("a timestamp that is not in the years 1970 to 9998")
    return at


def warm_start_of(
    surface: Surface, model: Mapping[str, Any], rounds: int, segment: str, now: int, actor: str
) -> Adjustment:
    """What so many rounds would have added, had visitors clicked as a fitted model says.

    Each round costs a pair its probability of no click, 1 - attraction * examination. An item that the model does not
    know gets the median of those it does.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MOST_ROUNDS:
        raise Invalid(f"rounds must be a whole number from 1 to {MOST_ROUNDS}; got {rounds!r}", "/rounds")
    examination = _numbers(model.get("examination"), "examination")
    slots = surface.settings.slots
    if len(examination) < slots or any(beta is None for beta in examination[:slots]):
        raise Invalid(f"the model must know the examination of {slots} positions", "/model/examination")
    names, attractions = model.get("item", model.get("items")), _numbers(model.get("attraction"), "attraction")
    if not isinstance(names, (list, tuple)) or len(names) != len(attractions):
        raise Invalid("the model must have one attraction for every item", "/model/attraction")
    known = {str(name): alpha for name, alpha in zip(names, attractions) if alpha is not None}
    attraction = {item.index: known[item.name] for item in surface.items if item.name in known}
    if not attraction:
        raise Invalid("the model knows none of the surface's items", "/model/item")
    cells = []
    for slot in range(slots):
        loss = {i: round(rounds * LOSS_UNIT * (1.0 - alpha * (examination[slot] or 0.0))) for i, alpha in attraction.items()}
        typical = middle(loss.values())
        cells += [Cell(item.index, slot, loss=loss.get(item.index, typical)) for item in surface.items]
    increments = Increments(surface_id=surface.id, segment=segment, rounds=rounds, cells=tuple(sorted(cells)))
    return Adjustment(increments=increments, at=now, actor=actor, reason="warm start from a click model")


def _numbers(values: Any, name: str) -> list[float | None]:
    """Probabilities, None where one is not known."""
    if not isinstance(values, (list, tuple)):
        raise Invalid(f"the model has no {name}", f"/model/{name}")
    for value in values:
        if value is not None and (
            isinstance(value, bool) or not isinstance(value, (int, float)) or not 0.0 <= value <= 1.0
        ):
            raise Invalid(f"{name} must be numbers from 0 to 1; got {str(value)[:40]!r}", f"/model/{name}")
    return [None if value is None or math.isnan(value) else float(value) for value in values]
