"""Rules for changes of surfaces, items and arms: pure functions from a surface to its next version.

No change deletes what has been learned. An item keeps its index, and so its row in every state, for ever. A learner has
a number: an arm gets one when its name is first used, and keeps it. A change of a policy, of its settings or of
``slots`` means that the log is learned again (``model.learned_again``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from ... import policies
from ...policies import Policy
from ...policies.pages import has_parts
from ..model import (
    BASELINE_ARM,
    LEARNER_ARM,
    MAX_ITEMS_EVER,
    NO_SHARE,
    Invalid,
    Item,
    StateConflict,
    Surface,
    SurfaceSettings,
    TooMany,
    Unknown,
    checked_name,
    segment_words,
)
from ..validation import decoding_fault

MAX_ITEMS, MAX_SLOTS, MAX_ARMS = 20_000, 50, 8
MAX_BASELINE_ROUNDS = 1_000_000
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
    "max_segments": (1, 10_000),
    "segment_idle_days": (1.0, 3650.0),
    "retention_days": (1.0, 36500.0),
}
KEYS = frozenset(SurfaceSettings.__struct_fields__)
ItemAction = Literal["add", "resume", "pause", "remove"]
ItemState = Literal["active", "paused", "removed"]
STATES: dict[ItemAction, ItemState] = {"add": "active", "resume": "active", "pause": "paused", "remove": "removed"}
VERBS: dict[ItemState, str] = {"active": "resume", "paused": "pause", "removed": "remove"}


class Change(NamedTuple):
    """The next version of a surface and its audit entry; ``action`` is empty if nothing changed.

    ``holdout`` is the share of requests that get the baseline order, before and after the change, and ``arms`` are
    those of the surface's arms, if any share changes.
    """

    surface: Surface
    action: str = ""
    detail: str = ""
    holdout: tuple[float, float] | None = None
    arms: tuple[dict[str, float], dict[str, float]] | None = None


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
    items = tuple(
        Item(name=item, index=k, state="active", added_at=now, changed_at=now)
        for k, item in enumerate(item_names(body.get("items", ())))
    )
    surface = Surface(id=0, name=name, version=1, settings=settings, items=items, created_at=now, changed_at=now)
    surface = _with_learners(_checked(surface))
    _check_exposure(surface)
    return Change(surface, "create surface", f"{len(items)} items, {settings.slots} slots")


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
    changed = _with_parts(surface, _with_learners(_checked(_changed(surface, now, settings=settings))))
    if not _compares_the_same(surface, changed):  # other arms are another comparison
        changed = msgspec.structs.replace(
            changed, comparison_restarted_at=now, guarded_since=None, guarded_arms={}, promoted=""
        )
    if not {"minimum_exposure", "slots"}.isdisjoint(changes):
        _check_exposure(changed)
    return _change(surface, changed, "change settings", "; ".join(changed_keys)[:2000])


def update_surface(surface: Surface, body: Mapping[str, Any], now: int) -> Change:
    """Returns the surface with new or removed items activated and some settings changed, as one version.

    Raises Invalid, TooMany or StateConflict.
    """
    kept = {item.name for item in surface.items if item.state != "removed"}
    names = [name for name in item_names(body.get("items", ())) if name not in kept]
    items, details = _with_state(surface, names, "active", now)
    changed = _checked(_changed(surface, now, items=items)) if names else surface
    settings = change_settings(changed, {key: value for key, value in body.items() if key != "items"}, now)
    _with_parts(surface, settings.surface)
    details += [f"{settings.action}: {settings.detail}"] if settings.action else []
    if not details:
        return Change(surface)
    combined = msgspec.structs.replace(settings.surface, version=surface.version + 1)
    return _change(surface, combined, "change surface", "; ".join(details)[:2000])


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
    return Change(changed, "start from baseline", f"{rounds} rounds, {segment_words(segment)}")


def without_baseline_start(surface: Surface, segment: str, now: int) -> Change:
    """Returns the surface with a segment that starts as its settings say."""
    if segment not in surface.baseline_starts:
        return Change(surface)
    starts = {name: rounds for name, rounds in surface.baseline_starts.items() if name != segment}
    return Change(_changed(surface, now, baseline_starts=starts), "delete segment", f'"{segment}": its baseline start')


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
        comparison_restarted_at=now,
        guarded_since=None,
        guarded_arms={},
    )
    return _change(surface, changed, "promote arm", f"{arm}: {policy} is the policy of the surface")


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


# Items


def change_item(surface: Surface, name: str, action: ItemAction, now: int) -> Change:
    """Returns the surface with an item added, shown again, paused or removed; it keeps its index, and what is known.

    Only "add" takes a name that the surface does not have, or whose item was removed. Raises Unknown, Invalid, TooMany
    or StateConflict.
    """
    known = next((item for item in surface.items if item.name == name), None)
    state = STATES[action]
    if known is not None and known.state == state:
        return Change(surface)
    if action == "add":
        checked_name(name, "item", "/item")
    elif known is None:
        raise Unknown(f"surface {surface.name!r} has no item {name!r}")
    elif known.state == "removed":
        raise StateConflict(f"item {name!r} was removed; add it again first")
    items, details = _with_state(surface, [name], state, now)
    changed = _with_parts(surface, _checked(_changed(surface, now, items=items)))
    return Change(changed, details[0].partition(":")[0], name)


def item_names(items: Any) -> list[str]:
    """Returns the validated names of a list of items; raises Invalid."""
    if not isinstance(items, (list, tuple)):
        raise Invalid(f"items must be a list of names; got {type(items).__name__}", "/items")
    names = [checked_name(item, "item", f"/items/{k}") for k, item in enumerate(items[: MAX_ITEMS + 1])]
    if len(set(names)) < len(names):
        twice = next(name for k, name in enumerate(names) if name in names[:k])
        raise Invalid(f"item {twice!r} is listed twice", "/items")
    return names


def expiry_of(settings: SurfaceSettings, used_at: int, proven: bool) -> int:
    """Returns when a segment expires that was last requested at ``used_at``.

    A ``proven`` one, with a click or a start from the baseline, is kept for ``segment_idle_days``; another one until
    the late window of its last page ends, and for at least an hour.

    >>> settings = SurfaceSettings(slots=1, attribution_seconds=60, late_seconds=0, segment_idle_days=2)
    >>> expiry_of(settings, 0, False) // HOUR, expiry_of(settings, 0, True) // HOUR
    (1, 48)
    """
    window = round(1000 * (settings.attribution_seconds + settings.late_seconds))
    return used_at + max(round(24 * HOUR * settings.segment_idle_days) if proven else HOUR, window)


def exposure_problem(surface: Surface) -> str:
    """Returns why ``minimum_exposure`` cannot be reached; empty if it can."""
    settings, active = surface.settings, sum(item.state == "active" for item in surface.items)
    if settings.minimum_exposure * active <= settings.slots * (1.0 + 1e-9):
        return ""
    return (
        f"minimum_exposure {settings.minimum_exposure:g} cannot be reached: with {active} items and {settings.slots} "
        f"slots each item can be on {settings.slots / active:.3g} of the pages"
    )


def _with_state(
    surface: Surface, names: Sequence[str], state: ItemState, now: int
) -> tuple[tuple[Item, ...], list[str]]:
    """Returns the items with these in a state, new ones at the end, and what was done to each."""
    items = {item.name: item for item in surface.items}
    details = []
    for name in names:
        known = items.get(name)
        if known is not None:
            items[name] = msgspec.structs.replace(known, state=state, changed_at=now)
        else:
            items[name] = Item(name=name, index=len(items), state=state, added_at=now, changed_at=now)
        details.append(f"{'add' if known is None else VERBS[state]} item: {name}")
    return tuple(items.values()), details


# Versions and checks


def _change(before: Surface, after: Surface, action: str, detail: str = "") -> Change:
    """Returns a change with the shares of arms before and after it, if they differ."""
    change = Change(after, action, detail)
    if before.shares == after.shares:
        return change
    arms = (before.arm_shares, after.arm_shares)
    return change._replace(holdout=(before.share, after.share), arms=arms if any(arms) else None)


def _changed(surface: Surface, now: int, **fields: Any) -> Surface:
    return msgspec.structs.replace(surface, version=surface.version + 1, changed_at=now, **fields)


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
    total = settings.holdout + sum(arm.share for arm in settings.arms)
    if settings.arms and total > 1.0 + NO_SHARE:
        raise Invalid(f"holdout and the shares of arms add up to {total:.10g}, which is more than 1", "/arms")
    return surface


def _check_policy(surface: Surface, name: str, policy_settings: Mapping[str, Any], pointer: str = "") -> None:
    """Raises Invalid if a policy does not exist, or cannot be used on a surface with these slots."""
    try:
        policy_of(name, policy_settings, surface.settings.slots)
    except ValueError as error:
        if policy_settings:
            raise Invalid(str(error), f"{pointer}/policy_settings") from error
        raise Invalid(f"{error}; the service can use {', '.join(served_names())}", f"{pointer}/policy") from error


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
