"""Rules for changing surfaces and items: pure functions from a surface to what it becomes.

No setting changes what has been learned. Items come and go with their counters: a new one starts at the median of the
others, by an adjustment that is logged; one that was paused or removed has been charged by every event that it was
absent from, and comes back as it is. A row of counters belongs to one item for good.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ... import policies
from ..http.problems import decoding_fault
from ..model import (
    MAX_ITEMS_EVER,
    RESET,
    Adjustment,
    Cell,
    Conflict,
    Increments,
    Invalid,
    Item,
    Segment,
    Surface,
    SurfaceSettings,
    TooMany,
    Unknown,
    checked_name,
)
from .learner import policy_of

__all__ = [
    "Change",
    "Medians",
    "created",
    "item_names",
    "medians_of",
    "middle",
    "paused",
    "put_back",
    "removed",
    "reset",
    "unreachable",
    "updated",
    "with_settings",
]

MOST_ITEMS, MOST_SLOTS = 1000, 50
DAY = 86400.0
LIMITS: dict[str, tuple[float, float]] = {
    "slots": (1, MOST_SLOTS),
    "floor": (0.001, 1.0),  # below, one missing click could outweigh all that is known
    "holdout": (0.0, 0.99),
    "minimum_exposure": (0.0, 1.0),
    "attribution_seconds": (1.0, 30 * DAY),
    "late_seconds": (0.0, 90 * DAY),
    "max_segments": (1, 10_000),
    "segment_idle_days": (1.0, 3650.0),
}
KEYS = frozenset(SurfaceSettings.__struct_fields__)

Medians = dict[str, list[int]]  # of every segment, slot by slot


class Change(NamedTuple):
    """A surface as it is to be, and what comes with it."""

    surface: Surface
    adjustments: tuple[Adjustment, ...] = ()
    action: str = ""
    detail: str = ""


def created(name: str, body: Mapping[str, Any], now: int) -> Change:
    """A new surface with its items."""
    checked_name(name, "surface", "/name")
    settings = _settings({key: value for key, value in body.items() if key != "items"})
    items = tuple(
        Item(name=item, index=k, state="active", added_at=now, changed_at=now)
        for k, item in enumerate(item_names(body.get("items", ())))
    )
    surface = Surface(id=0, name=name, version=1, settings=settings, items=items, created_at=now, changed_at=now)
    _check_exposure(_checked(surface))
    return Change(surface, action="create surface", detail=f"{len(items)} items, {settings.slots} slots")


def with_settings(surface: Surface, changes: Mapping[str, Any], now: int) -> Change:
    """The surface with some settings changed; those that are not named stay."""
    before = msgspec.to_builtins(surface.settings)
    unknown = set(changes) - KEYS
    if unknown:
        raise Invalid(f"no setting is named {sorted(map(str, unknown))[0]!r}", f"/{sorted(map(str, unknown))[0]}")
    settings = _settings({**before, **changes})
    after = msgspec.to_builtins(settings)
    said = [f"{key}: {before[key]!r} -> {after[key]!r}" for key in sorted(after) if after[key] != before[key]]
    if not said:
        return Change(surface)
    changed = _checked(_changed(surface, now, settings=settings))
    if not {"minimum_exposure", "slots"}.isdisjoint(changes):
        _check_exposure(changed)
    return Change(changed, action="change settings", detail="; ".join(said)[:2000])


def updated(surface: Surface, body: Mapping[str, Any], medians: Medians, now: int, actor: str) -> Change:
    """The surface with items added that are new or were removed, and with some settings changed, in one step."""
    steps = []
    changed = surface
    for name in item_names(body.get("items", ())):
        if not any(item.name == name and item.state != "removed" for item in surface.items):
            steps.append(put_back(changed, name, medians, now, actor))
            changed = steps[-1].surface
    steps.append(with_settings(changed, {key: value for key, value in body.items() if key != "items"}, now))
    said = [step for step in steps if step.action]
    if not said:
        return Change(surface)
    whole = msgspec.structs.replace(steps[-1].surface, version=surface.version + 1)
    adjustments = tuple(one for step in said for one in step.adjustments)
    return Change(whole, adjustments, "change surface", "; ".join(f"{s.action}: {s.detail}" for s in said)[:2000])


def put_back(surface: Surface, name: str, medians: Medians, now: int, actor: str) -> Change:
    """The surface with an item active: a new one starts at the median, one that was away is as its counters say."""
    known = _find(surface, name)
    if known is not None and known.state == "active":
        return Change(surface)
    if known is not None:
        items = _replaced(surface, msgspec.structs.replace(known, state="active", changed_at=now))
        return Change(_checked(_changed(surface, now, items=items)), action="resume item", detail=name)
    checked_name(name, "item", "/item")
    item = Item(name=name, index=len(surface.items), state="active", added_at=now, changed_at=now)
    changed = _checked(_changed(surface, now, items=(*surface.items, item)))
    starts = tuple(
        Adjustment(
            increments=_increments(surface, segment, item.index, loss),
            at=now,
            actor=actor,
            reason=f"median start of {name!r}",
        )
        for segment, loss in medians.items()
        if any(loss)
    )
    return Change(changed, starts, "add item", name)


def paused(surface: Surface, name: str, now: int) -> Change:
    """The surface with an item not shown for a while; its counters stay."""
    return _away(surface, name, "paused", now)


def removed(surface: Surface, name: str, now: int) -> Change:
    """The surface with an item taken off; its counters stay, in case it comes back."""
    return _away(surface, name, "removed", now)


def reset(surface: Surface, segments: Iterable[Segment], now: int, actor: str) -> tuple[Adjustment, ...]:
    """What brings the counters of segments back to nothing."""
    return tuple(
        Adjustment(
            increments=Increments(
                surface_id=surface.id,
                segment=segment.name,
                rounds=-segment.rounds,
                cells=tuple(
                    Cell(*key, *(-table.get(key, 0) for table in (segment.loss, segment.shown, segment.clicked)))
                    for key in sorted({*segment.loss, *segment.shown, *segment.clicked})
                ),
            ),
            at=now,
            actor=actor,
            reason=RESET,
        )
        for segment in segments
    )


def middle(values: Iterable[int]) -> int:
    """The median in whole numbers.

    >>> middle([5, 1, 9]), middle([1, 4])
    (5, 2)
    """
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def medians_of(surface: Surface, segments: Iterable[Segment]) -> Medians:
    """The median loss of the active items at every slot, for every segment.

    Slots are all that there can be: counters of slots that are not used now count again when they are.
    """
    active = [item.index for item in surface.items if item.state == "active"]
    slots = range(MOST_SLOTS)
    return {
        segment.name: [middle(segment.loss.get((index, slot), 0) for index in active) for slot in slots]
        for segment in segments
        if active
    }


def _increments(surface: Surface, segment: str, index: int, growth: Sequence[int]) -> Increments:
    cells = tuple(Cell(index, slot, loss=loss) for slot, loss in enumerate(growth) if loss)
    return Increments(surface_id=surface.id, segment=segment, rounds=0, cells=cells)


def _away(surface: Surface, name: str, state: Any, now: int) -> Change:
    known = _find(surface, name)
    if known is None:
        raise Unknown(f"surface {surface.name!r} has no item {name!r}")
    if known.state == state:
        return Change(surface)
    if known.state == "removed":
        raise Conflict(f"item {name!r} was removed; put it again first")
    items = _replaced(surface, msgspec.structs.replace(known, state=state, changed_at=now))
    changed = _checked(_changed(surface, now, items=items))
    return Change(changed, action="pause item" if state == "paused" else "remove item", detail=name)


def _find(surface: Surface, name: str) -> Item | None:
    return next((item for item in surface.items if item.name == name), None)


def _replaced(surface: Surface, item: Item) -> tuple[Item, ...]:
    return tuple(item if other.index == item.index else other for other in surface.items)


def _changed(surface: Surface, now: int, **fields: Any) -> Surface:
    return msgspec.structs.replace(surface, version=surface.version + 1, changed_at=now, **fields)


def item_names(items: Any) -> list[str]:
    """The names of a list of items, or Invalid."""
    if not isinstance(items, (list, tuple)):
        raise Invalid(f"items must be a list of names; got {type(items).__name__}", "/items")
    names = [checked_name(item, "item", f"/items/{k}") for k, item in enumerate(items[: MOST_ITEMS + 1])]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise Invalid(f"item {twice!r} is listed twice", "/items")
    return names


def _settings(body: Mapping[str, Any]) -> SurfaceSettings:
    try:
        settings = msgspec.convert(dict(body), SurfaceSettings)
    except msgspec.ValidationError as error:
        raise Invalid(*decoding_fault(error)) from error
    for key, (low, high) in LIMITS.items():
        value = getattr(settings, key)
        if not (math.isfinite(value) and low <= value <= high):
            raise Invalid(f"{key} must be from {low:.10g} to {high:.10g}; got {value!r}", f"/{key}")
    return settings


def _checked(surface: Surface) -> Surface:
    """The surface, if all holds that must hold of every surface."""
    settings = surface.settings
    active = sum(item.state == "active" for item in surface.items)
    if sum(item.state != "removed" for item in surface.items) > MOST_ITEMS:
        raise TooMany(f"a surface has at most {MOST_ITEMS} items, paused ones included; remove some")
    if len(surface.items) > MAX_ITEMS_EVER:
        raise TooMany(f"a surface has at most {MAX_ITEMS_EVER} items in its life, removed ones included; make a new one")
    if active < settings.slots:
        raise Invalid(f"{settings.slots} slots need {settings.slots} active items; there are {active}", "/items")
    names = {item.name for item in surface.items}
    strange = [name for name in settings.baseline if name not in names]
    if strange or len(set(settings.baseline)) < len(settings.baseline):
        detail = f"{strange[0]!r} is no item of this surface" if strange else "an item is listed twice"
        raise Invalid(f"baseline must list items of the surface; {detail}", "/baseline")
    try:
        policy_of(settings)
    except ValueError as error:
        if settings.policy_settings:
            raise Invalid(str(error), "/policy_settings") from error
        able = ", ".join(name for name in policies.names() if policies.describe(name).additive)
        raise Invalid(f"{error}; the service can use {able}", "/policy") from error
    return surface


def _check_exposure(surface: Surface) -> None:
    """Refuse what cannot be reached when it is asked for; items that come later are not refused because of it."""
    said = unreachable(surface)
    if said:
        raise Invalid(said, "/minimum_exposure")


def unreachable(surface: Surface) -> str:
    """Why not all active items can be on as many pages as asked for; empty if they can."""
    settings, active = surface.settings, sum(item.state == "active" for item in surface.items)
    if settings.minimum_exposure * active <= settings.slots * (1.0 + 1e-9):
        return ""
    return (
        f"minimum_exposure {settings.minimum_exposure:g} cannot be reached: with {active} items and {settings.slots} "
        f"slots each item can be on {settings.slots / active:.3g} of the pages"
    )
