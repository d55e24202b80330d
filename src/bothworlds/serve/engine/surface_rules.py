"""Rules for changes of surfaces and items: pure functions from a surface to its next version.

No setting changes what has been learned. A new item starts at the median of the others, by a logged adjustment. A
paused or removed item keeps its counters and is charged by every event that it is absent from, so that it can come
back unchanged. A row of counters belongs to one item forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from ..model import (
    LEARNER_ARM,
    MAX_ITEMS_EVER,
    RESET,
    Adjustment,
    Cell,
    Increments,
    Invalid,
    Item,
    Segment,
    StateConflict,
    Surface,
    SurfaceSettings,
    TooMany,
    Unknown,
    checked_name,
    segment_words,
)
from ..validation import decoding_fault
from .arm_rules import check_arms, compares_the_same, with_learners
from .learner import policy_of
from .served_policies import served_names

__all__ = [
    "Change",
    "Medians",
    "activate_guard",
    "activate_item",
    "change_settings",
    "changed_surface",
    "create_surface",
    "exposure_problem",
    "item_names",
    "median",
    "medians_of",
    "pause_item",
    "remove_item",
    "reset_adjustments",
    "restart_comparison",
    "start_from_baseline",
    "update_surface",
]

MAX_ITEMS, MAX_SLOTS = 20_000, 50
MAX_BASELINE_ROUNDS = 1_000_000
DAY = 86400.0
LIMITS: dict[str, tuple[float, float]] = {
    "slots": (1, MAX_SLOTS),
    "floor": (0.001, 1.0),  # below, one missing click could outweigh everything learned
    "holdout": (0.0, 0.99),
    "baseline_rounds": (0, MAX_BASELINE_ROUNDS),
    "guard_after": (1, 1_000_000_000),
    "guard_margin": (0.0, MAX_SLOTS),
    "minimum_exposure": (0.0, 1.0),
    "attribution_seconds": (1.0, 30 * DAY),
    "late_seconds": (0.0, 90 * DAY),
    "max_segments": (1, 10_000),
    "segment_idle_days": (1.0, 3650.0),
    "retention_days": (1.0, 36500.0),
}
KEYS = frozenset(SurfaceSettings.__struct_fields__)

Medians = dict[str, list[int]]  # segment -> median loss per slot


class Change(NamedTuple):
    """The next version of a surface, its adjustments, and its audit entry; ``action`` is empty if nothing changed.

    ``holdout`` is the share of requests that get the baseline order, before and after the change, and ``arms`` are
    those of the surface's arms, if any share changes.
    """

    surface: Surface
    adjustments: tuple[Adjustment, ...] = ()
    action: str = ""
    detail: str = ""
    holdout: tuple[float, float] | None = None
    arms: tuple[dict[str, float], dict[str, float]] | None = None


def create_surface(name: str, body: Mapping[str, Any], now: int) -> Change:
    """Returns a new surface with its items; raises Invalid or TooMany."""
    checked_name(name, "surface", "/name")
    settings = _settings({key: value for key, value in body.items() if key != "items"})
    items = tuple(
        Item(name=item, index=k, state="active", added_at=now, changed_at=now)
        for k, item in enumerate(item_names(body.get("items", ())))
    )
    surface = Surface(id=0, name=name, version=1, settings=settings, items=items, created_at=now, changed_at=now)
    surface = with_learners(_checked(surface))
    _check_exposure(surface)
    return Change(surface, action="create surface", detail=f"{len(items)} items, {settings.slots} slots")


def change_settings(surface: Surface, changes: Mapping[str, Any], now: int) -> Change:
    """Returns the surface with some settings changed; raises Invalid."""
    before = msgspec.to_builtins(surface.settings)
    unknown = set(changes) - KEYS
    if unknown:
        raise Invalid(f"there is no setting {sorted(map(str, unknown))[0]!r}", f"/{sorted(map(str, unknown))[0]}")
    if changes.get("objective", before["objective"]) != before["objective"]:
        detail = "objective cannot be changed: clicks and rewards cannot be added up; create another surface"
        raise Invalid(detail, "/objective")
    settings = _settings({**before, **changes})
    after = msgspec.to_builtins(settings)
    changed_keys = [
        f"{key}: {_json(before[key])} -> {_json(after[key])}" for key in sorted(after) if after[key] != before[key]
    ]
    if not changed_keys:
        return Change(surface)
    changed = with_learners(_checked(_changed(surface, now, settings=settings)))
    if not compares_the_same(surface, changed):  # other arms are another comparison
        changed = msgspec.structs.replace(
            changed, comparison_restarted_at=now, guarded_since=None, guarded_arms={}, promoted=""
        )
    if not {"minimum_exposure", "slots"}.isdisjoint(changes):
        _check_exposure(changed)
    return _change(surface, changed, "change settings", "; ".join(changed_keys)[:2000])


def restart_comparison(surface: Surface, now: int) -> Change:
    """Returns the surface with a comparison of all arms that starts now, and the guard not active.

    Nothing that was learned is changed.
    """
    changed = _changed(surface, now, comparison_restarted_at=now, guarded_since=None, guarded_arms={})
    return _change(surface, changed, "restart comparison")


def start_from_baseline(surface: Surface, segment: str, rounds: int, learned: int, now: int) -> Change:
    """Returns the surface with a segment that leaves the baseline order in ``rounds`` rounds; raises Invalid.

    ``learned`` is the number of rounds that the segment has learned from; with arms, in the arm that has the fewest.
    """
    if isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= MAX_BASELINE_ROUNDS:
        raise Invalid(f"rounds must be an integer from 1 to {MAX_BASELINE_ROUNDS}; got {rounds!r}", "/rounds")
    if learned >= rounds:
        detail = f"segment {segment!r} has learned from {learned} rounds already; rounds must be greater"
        raise Invalid(detail, "/rounds")
    changed = _changed(surface, now, baseline_starts={**surface.baseline_starts, segment: rounds})
    return Change(changed, action="start from baseline", detail=f"{rounds} rounds, {segment_words(segment)}")


def without_baseline_start(surface: Surface, segment: str, now: int) -> Change:
    """Returns the surface with a segment that starts as its settings say."""
    if segment not in surface.baseline_starts:
        return Change(surface)
    starts = {name: rounds for name, rounds in surface.baseline_starts.items() if name != segment}
    changed = _changed(surface, now, baseline_starts=starts)
    return Change(changed, action="delete segment", detail=f'"{segment}": its start from the baseline')


def activate_guard(surface: Surface, now: int, arm: str = LEARNER_ARM) -> Change:
    """Returns the surface with the baseline order served to all but the exploration share of requests of an arm."""
    if arm in surface.guarded:
        return Change(surface)
    if arm == LEARNER_ARM:
        changed = _changed(surface, now, guarded_since=now)
    else:
        changed = _changed(surface, now, guarded_arms={**surface.guarded_arms, arm: now})
    worse = "the learner" if arm == LEARNER_ARM else f'arm "{arm}"'
    detail = f"the baseline order is served to {changed.share:.4g} of requests: {worse} gets fewer clicks"
    return _change(surface, changed, "activate guard", detail)


def changed_surface(before: Surface, after: Surface, now: int, action: str, detail: str) -> Change:
    """Returns a surface with other fields as its next version."""
    return _change(before, _changed(after, now), action, detail)


def update_surface(surface: Surface, body: Mapping[str, Any], medians: Medians, now: int, actor: str) -> Change:
    """Returns the surface with new or removed items activated and some settings changed, as one version.

    Raises Invalid or TooMany.
    """
    kept = {item.name for item in surface.items if item.state != "removed"}
    names = [name for name in item_names(body.get("items", ())) if name not in kept]
    items, adjustments, details = _activated(surface, names, medians, now, actor)
    changed = _checked(_changed(surface, now, items=items)) if names else surface
    settings = change_settings(changed, {key: value for key, value in body.items() if key != "items"}, now)
    details += [f"{settings.action}: {settings.detail}"] if settings.action else []
    if not details:
        return Change(surface)
    combined = msgspec.structs.replace(settings.surface, version=surface.version + 1)
    return _change(surface, combined, "change surface", "; ".join(details)[:2000], adjustments)


def activate_item(surface: Surface, name: str, medians: Medians, now: int, actor: str) -> Change:
    """Returns the surface with an item active; a new one starts at the median, another one keeps its counters.

    Raises Invalid or TooMany.
    """
    known = _find(surface, name)
    if known is not None and known.state == "active":
        return Change(surface)
    items, starts, _ = _activated(surface, [checked_name(name, "item", "/item")], medians, now, actor)
    action = "add item" if known is None else "resume item"
    return Change(_checked(_changed(surface, now, items=items)), starts, action, name)


def _activated(
    surface: Surface, names: Sequence[str], medians: Medians, now: int, actor: str
) -> tuple[tuple[Item, ...], tuple[Adjustment, ...], list[str]]:
    """Returns the items with these active, the adjustments by which new ones start, and what was done to each."""
    items = {item.name: item for item in surface.items}
    starts, details = [], []
    for name in names:
        known = items.get(name)
        if known is not None:
            items[name] = msgspec.structs.replace(known, state="active", changed_at=now)
            details.append(f"resume item: {name}")
            continue
        items[name] = Item(name=name, index=len(items), state="active", added_at=now, changed_at=now)
        details.append(f"add item: {name}")
        starts += [
            Adjustment(
                increments=_increments(surface, segment, items[name].index, loss),
                at=now,
                actor=actor,
                reason=f"median start of {name!r}",
            )
            for segment, loss in medians.items()
            if any(loss)
        ]
    return tuple(items.values()), tuple(starts), details


def pause_item(surface: Surface, name: str, now: int) -> Change:
    """Returns the surface with an item paused; its counters are kept. Raises Unknown, Invalid or StateConflict."""
    return _deactivated(surface, name, "paused", now)


def remove_item(surface: Surface, name: str, now: int) -> Change:
    """Returns the surface with an item removed; its counters are kept. Raises Unknown or Invalid."""
    return _deactivated(surface, name, "removed", now)


def reset_adjustments(surface: Surface, segments: Iterable[Segment], now: int, actor: str) -> tuple[Adjustment, ...]:
    """Returns the adjustments that set the counters of segments to zero."""
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


def median(values: Iterable[int]) -> int:
    """Returns the median, rounded down to an integer.

    >>> median([5, 1, 9]), median([1, 4])
    (5, 2)
    """
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) // 2


def medians_of(surface: Surface, segments: Iterable[Segment]) -> Medians:
    """Returns the median loss of the active items at every slot, for every segment.

    All possible slots are included, because slots that are unused now may be used again.
    """
    active = [item.index for item in surface.items if item.state == "active"]
    return {segment.name: _median_losses(segment, active) for segment in segments if active}


def _median_losses(segment: Segment, active: Sequence[int]) -> list[int]:
    used = {slot for _, slot in (*segment.loss, *segment.predicted)}
    return [
        median(segment.estimated_loss(index, slot) for index in active) if slot in used else 0
        for slot in range(MAX_SLOTS)
    ]


def _increments(surface: Surface, segment: str, index: int, growth: Sequence[int]) -> Increments:
    cells = tuple(Cell(index, slot, loss=loss) for slot, loss in enumerate(growth) if loss)
    return Increments(surface_id=surface.id, segment=segment, rounds=0, cells=cells)


def _deactivated(surface: Surface, name: str, state: Literal["paused", "removed"], now: int) -> Change:
    known = _find(surface, name)
    if known is None:
        raise Unknown(f"surface {surface.name!r} has no item {name!r}")
    if known.state == state:
        return Change(surface)
    if known.state == "removed":
        raise StateConflict(f"item {name!r} was removed; add it again first")
    items = _replaced(surface, msgspec.structs.replace(known, state=state, changed_at=now))
    changed = _checked(_changed(surface, now, items=items))
    return Change(changed, action="pause item" if state == "paused" else "remove item", detail=name)


def _change(
    before: Surface, after: Surface, action: str, detail: str = "", adjustments: tuple[Adjustment, ...] = ()
) -> Change:
    """Returns a change with the shares of arms before and after it, if they differ."""
    change = Change(after, adjustments, action, detail)
    if before.shares == after.shares:
        return change
    arms = (before.arm_shares, after.arm_shares)
    return change._replace(holdout=(before.share, after.share), arms=arms if any(arms) else None)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _find(surface: Surface, name: str) -> Item | None:
    return next((item for item in surface.items if item.name == name), None)


def _replaced(surface: Surface, item: Item) -> tuple[Item, ...]:
    return tuple(item if other.index == item.index else other for other in surface.items)


def _changed(surface: Surface, now: int, **fields: Any) -> Surface:
    return msgspec.structs.replace(surface, version=surface.version + 1, changed_at=now, **fields)


def item_names(items: Any) -> list[str]:
    """Returns the validated names of a list of items; raises Invalid."""
    if not isinstance(items, (list, tuple)):
        raise Invalid(f"items must be a list of names; got {type(items).__name__}", "/items")
    names = [checked_name(item, "item", f"/items/{k}") for k, item in enumerate(items[: MAX_ITEMS + 1])]
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
        if value is not None and not low <= value <= high:
            raise Invalid(f"{key} must be from {low:.10g} to {high:.10g}; got {str(value)[:40]}", f"/{key}")
    return settings


def _checked(surface: Surface) -> Surface:
    """Returns the surface if it is valid; raises Invalid or TooMany."""
    settings = surface.settings
    active = sum(item.state == "active" for item in surface.items)
    if sum(item.state != "removed" for item in surface.items) > MAX_ITEMS:
        raise TooMany(f"a surface has at most {MAX_ITEMS} items, including paused ones; remove some")
    if len(surface.items) > MAX_ITEMS_EVER:
        raise TooMany(f"a surface has at most {MAX_ITEMS_EVER} items, including removed ones; create a new surface")
    if active < settings.slots:
        raise Invalid(f"{settings.slots} slots need {settings.slots} active items; there are {active}", "/items")
    names = {item.name for item in surface.items}
    unknown = [name for name in settings.baseline if name not in names]
    if unknown or len(set(settings.baseline)) < len(settings.baseline):
        detail = f"{unknown[0]!r} is not an item of this surface" if unknown else "an item is listed twice"
        raise Invalid(f"baseline must list items of the surface; {detail}", "/baseline")
    check_arms(surface)
    try:
        policy_of(settings)
    except ValueError as error:
        if settings.policy_settings:
            raise Invalid(str(error), "/policy_settings") from error
        raise Invalid(f"{error}; the service can use {', '.join(served_names())}", "/policy") from error
    return surface


def _check_exposure(surface: Surface) -> None:
    """Raises Invalid if ``minimum_exposure`` cannot be reached; checked only when it or ``slots`` is set."""
    problem = exposure_problem(surface)
    if problem:
        raise Invalid(problem, "/minimum_exposure")


def exposure_problem(surface: Surface) -> str:
    """Returns why ``minimum_exposure`` cannot be reached; empty if it can."""
    settings, active = surface.settings, sum(item.state == "active" for item in surface.items)
    if settings.minimum_exposure * active <= settings.slots * (1.0 + 1e-9):
        return ""
    return (
        f"minimum_exposure {settings.minimum_exposure:g} cannot be reached: with {active} items and {settings.slots} "
        f"slots each item can be on {settings.slots / active:.3g} of the pages"
    )
