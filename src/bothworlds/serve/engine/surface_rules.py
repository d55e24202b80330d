"""Rules for changes of surfaces, items and arms: pure functions from a surface to its next version.

No change deletes what has been learned. An item keeps its index, and so its row in every state, for ever. A learner has
a number: an arm gets one when its name is first used, and keeps it. A change of a policy, of its settings, of
``slots`` or of labels means that the log is learned again (``model.learned_again``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ... import policies
from ...labels import MAX_VALUES, LabelError, LabelTable
from ...policies import Policy
from ...policies.logged_pages import LogLabels
from ...policies.pages import check_learns_labels, has_parts
from ..model import (
    BASELINE_ARM,
    LEARNER_ARM,
    MAX_ITEMS_EVER,
    NO_SHARE,
    Invalid,
    Item,
    LabelValue,
    StateConflict,
    Surface,
    SurfaceSettings,
    TooMany,
    Unknown,
    checked_name,
    label_fault,
)
from ..validation import decoding_fault

MAX_ITEMS, MAX_SLOTS, MAX_ARMS = 20_000, 50, 8
MAX_BASELINE_ROUNDS = 1_000_000
MAX_LABEL_EFFECTS = 1 << 20  # values of labels times items: each takes about 200 bytes of a state
DAY = 86400.0
HOUR = 3_600_000  # milliseconds
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
    "retention_days": (1.0, 36500.0),
}
ItemAction = Literal["add", "resume", "pause", "remove"]
ItemState = Literal["active", "paused", "removed"]
STATES: dict[ItemAction, ItemState] = {"add": "active", "resume": "active", "pause": "paused", "remove": "removed"}
VERBS: dict[ItemState, str] = {"active": "resume", "paused": "pause", "removed": "remove"}


class Change(NamedTuple):
    """The next version of a surface and its audit entry; ``action`` is empty if nothing changed."""

    surface: Surface
    action: str = ""
    detail: str = ""


# Policies


def served_names() -> list[str]:
    """Returns the names of the policies that the service can use: all but those that know the world they play in."""
    return [name for name in policies.names() if "world" not in policies.describe(name).needs]


def policy_of(name: str, settings: Mapping[str, Any], slots: int) -> Policy:
    """Returns a policy for this number of slots; raises ValueError if it does not exist or cannot be used."""
    made = policies.policy(name, **settings)
    if "world" in made.needs:
        raise ValueError(f"{name} knows the world that it plays in, which only a simulation has")
    listed = max(getattr(made, "ranking", None) or (0,)) + 1  # the items of a fixed list must exist
    if listed > MAX_ITEMS_EVER:
        raise ValueError(f"ranking contains item {listed - 1}, but no surface can have that many items")
    n = max(slots + 1, listed)
    made.part(np.arange(n), np.arange(slots)).init(n, slots)
    return made


# Surfaces and settings


def create_surface(name: str, body: Mapping[str, Any], now: int) -> Change:
    """Returns a new surface with its items; raises Invalid or TooMany."""
    checked_name(name, "surface", "/name")
    settings = _settings({key: value for key, value in body.items() if key != "items"})
    given = named_items(body.get("items", ()))
    items = tuple(
        Item(name=name, index=k, state="active", added_at=now, changed_at=now, labels=dict(labels or {}))
        for k, (name, labels) in enumerate(given.items())
    )
    _check_item_labels(settings, given, "items/{}/labels")
    surface = Surface(id=0, name=name, version=1, settings=settings, items=items, created_at=now, changed_at=now)
    surface = _with_learners(_checked(surface))
    _check_exposure(surface)
    return Change(surface, "create surface", f"{len(items)} items, {settings.slots} slots")


def change_settings(surface: Surface, changes: Mapping[str, Any], now: int) -> Change:
    """Returns the surface with some settings changed; raises Invalid."""
    before = msgspec.to_builtins(surface.settings)
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
    changed = _with_parts(surface, _with_learners(_checked(_changed(surface, now, settings=settings))))
    if not _compares_the_same(surface, changed):  # other arms are another comparison
        changed = msgspec.structs.replace(changed, **_new_comparison(now), promoted="")
    if not {"minimum_exposure", "slots"}.isdisjoint(changes):
        _check_exposure(changed)
    return Change(changed, "change settings", "; ".join(changed_keys)[:2000])


def update_surface(surface: Surface, body: Mapping[str, Any], now: int) -> Change:
    """Returns the surface with items activated, and labels of items and some settings changed, as one version.

    Raises Invalid, TooMany or StateConflict.
    """
    kept = {item.name for item in surface.items if item.state != "removed"}
    given = named_items(body.get("items", ()))
    items, details = _with_items(surface, {name: "active" for name in given if name not in kept}, given, now)
    changes = {key: value for key, value in body.items() if key != "items"}
    changed = _changed(surface, now, items=items) if details else surface
    _check_item_labels(_settings({**msgspec.to_builtins(surface.settings), **changes}), given, "items/{}/labels")
    settings = change_settings(changed if "item_labels" in changes else _checked(changed), changes, now)
    _with_parts(surface, settings.surface)
    details += [f"{settings.action}: {settings.detail}"] if settings.action else []
    if not details:
        return Change(surface)
    combined = msgspec.structs.replace(settings.surface, version=surface.version + 1)
    return Change(combined, "change surface", "; ".join(details)[:2000])


def restart_comparison(surface: Surface, now: int) -> Change:
    """Returns the surface with a comparison of all arms that starts now, and the guard not active.

    Nothing that was learned is changed.
    """
    return Change(_changed(surface, now, **_new_comparison(now)), "restart comparison")


# Arms


def promote(surface: Surface, arm: str, now: int) -> Change:
    """Returns the surface with the policy and the learner of an arm, without arms; its comparison starts now.

    Promoting the surface's own policy, "learner", ends the comparison and changes nothing else. Repeating a promotion
    changes nothing. Raises Unknown if there is no such arm, StateConflict for the holdout, which has no policy, and for
    an arm that the guard has replaced.
    """
    settings = surface.settings
    if arm == BASELINE_ARM:
        raise StateConflict("the holdout shows the page's own order and has no policy; raise holdout instead")
    if not settings.arms and arm in (LEARNER_ARM, surface.promoted):
        return Change(surface)
    if arm in surface.guarded:
        raise StateConflict(
            f"arm {arm!r} gets fewer clicks than the page's own order, and the guard has replaced it; restart the "
            "comparison to try it again"
        )
    chosen = next((one for one in settings.arms if one.name == arm), None)
    if chosen is None and arm != LEARNER_ARM:
        raise Unknown(f"surface {surface.name!r} has no arm {arm!r}")
    policy, policy_settings = (
        (settings.policy, settings.policy_settings) if chosen is None else (chosen.policy, chosen.policy_settings)
    )
    changed = _changed(
        surface,
        now,
        settings=msgspec.structs.replace(settings, policy=policy, policy_settings=policy_settings, arms=()),
        learner=surface.learner_of(arm),
        # An arm that is given this name later starts anew: its learner is that of the surface from now on.
        arm_learners={name: number for name, number in surface.arm_learners.items() if name != arm},
        promoted=arm,
        **_new_comparison(now),
    )
    return Change(changed, "promote arm", f"{arm}: {policy} is the policy of the surface")


def activate_guard(surface: Surface, now: int, arm: str = LEARNER_ARM) -> Change:
    """Returns the surface with the baseline order served to all but the exploration share of requests of an arm."""
    if arm in surface.guarded:
        return Change(surface)
    changed = _changed(surface, now, guarded={**surface.guarded, arm: now})
    worse = "the learner" if arm == LEARNER_ARM else f'arm "{arm}"'
    detail = (
        f"the baseline order is served to {changed.shares[BASELINE_ARM]:.4g} of requests: {worse} gets fewer clicks"
    )
    return Change(changed, "activate guard", detail)


# Items


def change_item(
    surface: Surface, name: str, action: ItemAction, now: int, labels: Mapping[str, LabelValue] | None = None
) -> Change:
    """Returns the surface with an item added, shown again, paused or removed; it keeps its index, and what is known.

    Only "add" takes a name that the surface does not have, or whose item was removed. The item gets ``labels``, unless
    they are None. Raises Unknown, Invalid, TooMany or StateConflict.
    """
    known = next((item for item in surface.items if item.name == name), None)
    state = STATES[action]
    if action == "add":
        checked_name(name, "item", "/item")
        if known is not None and known.state == "paused" and labels is not None:
            state = "paused"  # only its labels are changed
    elif known is None:
        raise Unknown(f"surface {surface.name!r} has no item {name!r}")
    elif known.state == "removed" != state:
        raise StateConflict(f"item {name!r} was removed; add it again first")
    items, details = _with_items(surface, {name: state}, {name: labels}, now)
    if not details:
        return Change(surface)
    _check_item_labels(surface.settings, {name: labels}, "labels")
    changed = _with_parts(surface, _checked(_changed(surface, now, items=items)))
    action_done, _, detail = details[0].partition(": ")
    return Change(changed, action_done, detail)


def named_items(items: Any) -> dict[str, dict[str, LabelValue] | None]:
    """Returns the labels of a list of items by name, None where none are given; raises Invalid.

    An item is its name, or a mapping with ``name`` and ``labels``.
    """
    if not isinstance(items, (list, tuple)):
        raise Invalid(f"items must be a list of names; got {type(items).__name__}", "/items")
    found: dict[str, dict[str, LabelValue] | None] = {}
    for k, item in enumerate(items[: MAX_ITEMS + 1]):
        given = item if isinstance(item, Mapping) else {"name": item}
        name = checked_name(given.get("name"), "item", f"/items/{k}")
        if name in found:
            raise Invalid(f"item {name!r} is listed twice", "/items")
        found[name] = given.get("labels")
    return found


def exposure_problem(surface: Surface) -> str:
    """Returns why ``minimum_exposure`` cannot be reached; empty if it can."""
    settings, active = surface.settings, sum(item.state == "active" for item in surface.items)
    if settings.minimum_exposure * active <= settings.slots * (1.0 + 1e-9):
        return ""
    return (
        f"minimum_exposure {settings.minimum_exposure:g} cannot be reached: with {active} items and {settings.slots} "
        f"slots each item can be on {settings.slots / active:.3g} of the pages"
    )


def _with_items(
    surface: Surface,
    states: Mapping[str, ItemState],
    labels: Mapping[str, Mapping[str, LabelValue] | None],
    now: int,
) -> tuple[tuple[Item, ...], list[str]]:
    """Returns the items with these states and labels, new ones at the end, and what was done to each."""
    items, details = {item.name: item for item in surface.items}, []
    for name, state in states.items():
        known = items.get(name)
        if known is None:
            items[name] = Item(name=name, index=len(items), state=state, added_at=now, changed_at=now)
            details.append(f"add item: {name}")
        elif known.state != state:
            items[name] = msgspec.structs.replace(known, state=state, changed_at=now)
            details.append(f"{VERBS[state]} item: {name}")
    for name, given in labels.items():
        if given is not None and given != items[name].labels:
            items[name] = msgspec.structs.replace(items[name], labels=dict(given), changed_at=now)
            details.append(f"change labels: {name} {_json(given)}")
    return tuple(items.values()), details


# Versions and checks


def _changed(surface: Surface, now: int, **fields: Any) -> Surface:
    return msgspec.structs.replace(surface, version=surface.version + 1, changed_at=now, **fields)


def _new_comparison(now: int) -> dict[str, Any]:
    """Returns the fields of a surface whose arms are compared anew from now on."""
    return {"comparison_restarted_at": now, "earlier_shares": (), "guarded": {}}


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _with_learners(surface: Surface) -> Surface:
    """Returns the surface with a learner for every arm; a name that was used before keeps its learner."""
    numbers, count = dict(surface.arm_learners), surface.n_learners
    for arm in surface.settings.arms:
        if arm.name not in numbers:
            numbers[arm.name], count = count, count + 1
    return msgspec.structs.replace(surface, arm_learners=numbers, n_learners=count)


def _compares_the_same(before: Surface, after: Surface) -> bool:
    """Returns whether two versions of a surface have arms with the same names, policies and settings."""
    one, other = (
        [(arm.name, arm.policy, arm.policy_settings) for arm in surface.settings.arms] for surface in (before, after)
    )
    return one == other


def _settings(body: Mapping[str, Any]) -> SurfaceSettings:
    given = dict(body)
    for field in ("labels", "item_labels"):
        if given.get(field) is not None:
            try:
                given[field] = LabelTable(given[field], field).declaration
            except LabelError as error:
                raise label_fault(error, field) from error
    try:
        settings = msgspec.convert(given, SurfaceSettings)
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
    _check_policy(surface, settings.policy, settings.policy_settings)
    if len(settings.arms) > MAX_ARMS:
        raise Invalid(f"a surface has at most {MAX_ARMS} arms; got {len(settings.arms)}", "/arms")
    for k, arm in enumerate(settings.arms):
        checked_name(arm.name, "the name of an arm", f"/arms/{k}/name")
        if arm.name in (BASELINE_ARM, LEARNER_ARM):
            raise Invalid(f"{arm.name!r} is the name of an arm that every surface has", f"/arms/{k}/name")
        if any(other.name == arm.name for other in settings.arms[:k]):
            raise Invalid(f"arm {arm.name!r} is listed twice", f"/arms/{k}/name")
        if not (math.isfinite(arm.share) and NO_SHARE < arm.share <= 1.0):
            raise Invalid(f"the share of an arm must be above 0 and at most 1; got {arm.share!r}", f"/arms/{k}/share")
        _check_policy(surface, arm.policy, arm.policy_settings, f"/arms/{k}")
    if surface.labels or surface.item_labels:
        _check_labels(surface)
    total = settings.holdout + sum(arm.share for arm in settings.arms)
    if settings.arms and total > 1.0 + NO_SHARE:
        raise Invalid(f"holdout and the shares of arms add up to {total:.10g}, which is more than 1", "/arms")
    return surface


def _check_labels(surface: Surface) -> None:
    """Raises Invalid if the labels that items have do not fit the declarations, or if states would be too large."""
    try:
        LogLabels(surface.labels, surface.item_labels, {item.name: item.labels for item in surface.items})
    except LabelError as error:
        raise Invalid(f"the items have other labels: {error}", "/item_labels") from error
    table = LabelTable(surface.labels, "labels")
    sizes = (MAX_VALUES if name in table.known else size for name, size in zip(table.names, table.sizes))
    values = 1 + sum(sizes)
    most = MAX_LABEL_EFFECTS // values
    if len(surface.items) > most:
        raise Invalid(
            f"labels with up to {values} values allow {most} items; there are {len(surface.items)}: declare the values "
            "of labels, which may then be fewer",
            "/labels",
        )


def _check_item_labels(settings: SurfaceSettings, given: Mapping[str, Mapping[str, Any] | None], at: str) -> None:
    """Raises Invalid if labels of items are given that are not declared, or have values that are not allowed.

    ``at`` is where the labels of item number k are in the request, with {} for k.
    """
    table = LabelTable(settings.item_labels, "item_labels")
    for k, (name, labels) in enumerate(given.items()):
        if labels is not None:
            try:
                table.row(labels, f"items.{name}")
            except LabelError as error:
                raise label_fault(error, at.format(k)) from error


def _check_policy(surface: Surface, name: str, policy_settings: Mapping[str, Any], pointer: str = "") -> None:
    """Raises Invalid if a policy does not exist, or cannot be used on a surface with these slots."""
    try:
        made = policy_of(name, policy_settings, surface.settings.slots)
    except ValueError as error:
        if policy_settings:
            raise Invalid(str(error), f"{pointer}/policy_settings") from error
        raise Invalid(f"{error}; the service can use {', '.join(served_names())}", f"{pointer}/policy") from error
    if surface.labels or surface.item_labels:
        try:
            check_learns_labels(made)
        except ValueError as error:
            raise Invalid(str(error), f"{pointer}/policy") from error


def _with_parts(before: Surface, after: Surface) -> Surface:
    """Returns the changed surface; raises StateConflict if a policy of it can only show all items that it began with.

    Such a policy learns from whole pages: its state has no parts, and does not grow.
    """
    if len(before.items) == len(after.items) and all(item.state == "active" for item in after.items):
        return after
    for name, policy_settings in after.policies.values():
        policy = policy_of(name, policy_settings, after.settings.slots)
        if not has_parts(policy):
            detail = f"{policy.label} can only show all items, and the same ones for ever"
            raise StateConflict(f"{detail}; choose another policy first, or create another surface")
    return after


def _check_exposure(surface: Surface) -> None:
    """Raises Invalid if ``minimum_exposure`` cannot be reached; checked only when it or ``slots`` is set."""
    problem = exposure_problem(surface)
    if problem:
        raise Invalid(problem, "/minimum_exposure")
