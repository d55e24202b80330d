"""The log of a surface as rows: export of settled events, and import of rows in the same layout."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import UTC, datetime
from itertools import groupby
from typing import Any

from ..model import (
    ALL_ELIGIBLE,
    BASELINE_ARM,
    LEARNER_ARM,
    LOSS_UNIT,
    NAME_LENGTH,
    Arm,
    Eligibility,
    Event,
    Invalid,
    Item,
    Surface,
    checked_name,
    imported_id,
    parse_event_id,
    rfc3339,
)
from ..rewards import Rewards, fixed_point, reward_clicks
from ..schemas import Imported
from ..stores.base import Store
from .learner import eligibility_of

__all__ = ["export_rows", "import_rows"]

MIN_IMPORTED_PROPENSITY = 1e-7  # the smallest propensity that is learned from
MAX_SLOTS = 50
MAX_TIME = 253_370_764_800_000  # milliseconds from 1970 to 9999


def export_rows(surface: Surface, store: Store) -> Iterator[dict[str, Any]]:
    """Yields one row for every slot of every settled event; reads the store while it is iterated. Raises StoreError.

    If some items could not be shown, the first row of the event lists them as ``absent``, or the other items as
    ``eligible`` if these are fewer. If the surface counts rewards, rows have a ``reward``, and ``click`` is the click
    that was drawn with it. ``own`` is whether the surface's own policy has learned from the event, whatever its arm:
    the arm may have been promoted since.
    """
    rewarded = surface.settings.objective == "rewards"
    for event in store.settled(surface.id):
        eligibility = event.eligibility
        if max(event.items + eligibility.absent + eligibility.present) >= len(surface.items):
            # Another process has added items.
            surface = next(known for known in store.surfaces() if known.id == surface.id)
        shared = {
            "event": event.id.hex(),
            "timestamp": rfc3339(event.created_at),
            "surface": surface.name,
            "segment": event.segment,
            "arm": event.arm,
            "own": bool(event.learn) and event.learner == surface.learner,
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
                "position": slot + 1,  # as in other click logs
                "item": surface.items[item].name,
                "click": event.clicks >> slot & 1,
                **({"reward": event.rewards[slot] / LOSS_UNIT if event.rewards else 0.0} if rewarded else {}),
                "propensity": p,
                "pinned": bool(event.pinned >> slot & 1),
                "learn": bool(event.learn >> slot & 1),
                **(listed if slot == 0 else {}),
            }


class InvalidRows(ValueError):
    """Rows that do not describe an event; the message is the reason in the result of an import."""


def import_rows(surface: Surface, rows: Iterable[Mapping[str, Any]], store: Store, now: int) -> Imported:
    """Learns from rows, in which those of one event follow each other; returns what was taken and refused and why.

    Blocks. Everything that was taken is durable when it returns. Raises StoreError.
    """
    refused: Counter[str] = Counter()
    made = 0
    index = {item.name: item.index for item in surface.items}
    admitted: dict[str, bool] = {}
    deleted_until = store.deleted(surface.id).until

    def events() -> Iterator[Event]:
        nonlocal made
        base = None
        for _, group in groupby(rows, key=lambda row: row.get("event") if isinstance(row, Mapping) else None):
            page = list(group)
            base = _base_of(page) if base is None else base
            try:
                event = _event_of(surface, index, page, base, now)
                if event.created_at <= deleted_until:  # it may be one of them, and would be counted twice
                    raise InvalidRows("an event that is as old as events that were deleted")
                if event.segment not in admitted:
                    limit = surface.settings.max_segments
                    admitted[event.segment] = store.admit_segment(surface.id, event.segment, limit)
                if not admitted[event.segment]:
                    raise InvalidRows("there are more segments than max_segments")
            except InvalidRows as error:
                refused[str(error)] += 1
                continue
            made += 1
            yield event

    taken = store.import_events(events())
    return Imported(taken=taken, known=made - taken, refused=sum(refused.values()), reasons=dict(refused))


def _base_of(rows: Sequence[Mapping[str, Any]]) -> int:
    """Returns whether positions are counted from 0 or from 1, judging by the first page."""
    return int(isinstance(rows[0], Mapping) and _whole(rows[0].get("position")) == 1)


def _event_of(
    surface: Surface, index: Mapping[str, int], rows: Sequence[Mapping[str, Any]], base: int, now: int
) -> Event:
    first = rows[0] if isinstance(rows[0], Mapping) else {}
    name = first.get("event")
    if not isinstance(name, (str, int)) or name == "":
        raise InvalidRows("a row without an event id")
    if [_whole(row.get("position")) for row in rows] != [*range(base, base + len(rows))] or len(rows) > MAX_SLOTS:
        raise InvalidRows(f"positions of an event must be {base}, {base + 1}, {base + 2}, ... in this order")
    items = _items_of(index, rows)
    pinned = [bool(row.get("pinned", False)) for row in rows]
    held_out = first.get("arm") == BASELINE_ARM
    learned = [not held_out and bool(row.get("learn", not pin)) for row, pin in zip(rows, pinned)]
    arm = _arm_of(surface, first, any(learned))
    p = tuple(_probability(row.get("propensity"), learn) for row, learn in zip(rows, learned))
    rewards = _rewards_of(rows, surface.settings.objective)
    event_id = _id_of(surface, str(name))
    clicks = reward_clicks(event_id, rewards) if rewards else _mask(_clicks_of(rows))
    segment = _name(first.get("segment") or "", "segment")
    policy_id = _name(str(first.get("policy_id") or "import")[:NAME_LENGTH], "policy_id")
    at = _time(first.get("timestamp"), now)
    return Event(
        id=event_id,
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
        clicks=clicks,
        rewards=rewards,
        pinned=_mask(pinned),
        eligibility=_eligibility_of(surface, first, {item for item, learn in zip(items, learned) if learn}),
        settled_at=at,
        settled_by="import",
        learner=surface.learner_of(arm),
    )


def _arm_of(surface: Surface, row: Mapping[str, Any], learned: bool) -> Arm:
    """Returns the arm that a page is counted for; ``learned`` is whether it has slots that are learned from."""
    arm, own = row.get("arm") or LEARNER_ARM, row.get("own")
    if learned and own is True and arm != BASELINE_ARM:
        return LEARNER_ARM
    if arm not in (LEARNER_ARM, BASELINE_ARM, *(one.name for one in surface.settings.arms)):
        raise InvalidRows("an arm that the surface does not have")
    if learned and own is False and arm == LEARNER_ARM:
        raise InvalidRows("a page of a policy that another one has replaced")
    return str(arm)


def _items_of(index: Mapping[str, int], rows: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
    items = tuple(index.get(str(row.get("item")), -1) for row in rows)
    if -1 in items:
        raise InvalidRows("an item that the surface does not have")
    if len(set(items)) < len(items):
        raise InvalidRows("an item that is twice on one page")
    return items


def _eligibility_of(surface: Surface, row: Mapping[str, Any], learned: Set[int]) -> Eligibility:
    """Returns which items could not be shown, according to the first row of an event."""
    absent, eligible = _names_in(row, "absent"), _names_in(row, "eligible")
    if not learned or not (absent or eligible):
        return ALL_ELIGIBLE

    def could_be_shown(item: Item) -> bool:
        return item.index in learned or (item.name in eligible if eligible else item.name not in absent)

    return eligibility_of(surface, [item for item in surface.items if could_be_shown(item)])


def _names_in(row: Mapping[str, Any], column: str) -> frozenset[str]:
    names = row.get(column)
    if names is not None and not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise InvalidRows(f"a value of {column!r} that is not a list of items")
    return frozenset(names or ())


def _clicks_of(rows: Sequence[Mapping[str, Any]]) -> list[int]:
    clicks = [_whole(row.get("click")) for row in rows]
    if not {*clicks} <= {0, 1}:
        raise InvalidRows("a click other than 0 and 1")
    return clicks


def _rewards_of(rows: Sequence[Mapping[str, Any]], objective: str) -> Rewards:
    """Returns the rewards of a page in fixed point; empty if the surface counts clicks."""
    given = [row.get("reward") for row in rows]
    if objective == "clicks":
        if given != [None] * len(given):
            raise InvalidRows("a reward, but the surface counts clicks")
        return ()
    try:
        return tuple(fixed_point(value) for value in given)
    except ValueError as error:
        raise InvalidRows("a reward that is not a number from 0 to 1, on a surface that counts rewards") from error


def _name(value: Any, what: str) -> str:
    try:
        return checked_name(value, what, f"/{what}", empty=True)
    except Invalid as error:
        raise InvalidRows(f"a {what} that is not a name") from error


def _mask(slots: Iterable[int]) -> int:
    return sum(1 << slot for slot, there in enumerate(slots) if there)


def _id_of(surface: Surface, name: str) -> bytes:
    return parse_event_id(name) or imported_id(surface.id, name)


def _whole(value: Any) -> int:
    return int(value) if isinstance(value, (bool, int)) or (isinstance(value, float) and value.is_integer()) else -1


def _probability(value: Any, learn: bool) -> float:
    if not learn and value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not MIN_IMPORTED_PROPENSITY <= value <= 1.0:
        raise InvalidRows(f"a propensity that is not a number from {MIN_IMPORTED_PROPENSITY:g} to 1")
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
        raise InvalidRows("a timestamp that is not an ISO 8601 time") from error
    if not 0 <= at < MAX_TIME:
        raise InvalidRows("a timestamp outside the years 1970 to 9998")
    return at
