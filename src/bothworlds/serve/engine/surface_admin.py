"""Changes of surfaces while they are served: one at a time, audited, and in force when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ...geometry.leader import ConvergenceError
from ..model import (
    BASELINE_ARM,
    Adjustment,
    BrokenSurface,
    Conflict,
    Invalid,
    Segment,
    StateConflict,
    Surface,
    TooMany,
    Unknown,
    checked_name,
    counter_key,
    segment_words,
    split_counter_key,
)
from ..stores.base import Store, VersionConflict
from . import surface_rules
from .promotion import promote
from .refresher import Refresher
from .segments import SegmentRegistry
from .served_surface import ServedSurface
from .store_calls import ConcurrentChange, in_thread
from .surface_rules import Change
from .warm_start import warm_start_of

__all__ = ["SurfaceAdmin"]

T = TypeVar("T")
GUARD_ACTOR = "guard"  # the actor in the audit log that activates the guard
ATTEMPTS = 5  # at a change while other processes change the same surface


class SurfaceAdmin:
    """Creates, changes and resets surfaces, their items and segments.

    All methods are called in the thread of the event loop; they use the store in worker threads. When a coroutine
    returns, its change is durable, in the audit log, and served by this process. Coroutines raise the errors of
    ``EngineProtocol``.
    """

    def __init__(
        self,
        store: Store,
        refresher: Refresher,
        segments: SegmentRegistry,
        clock: Callable[[], int],
        shared: bool,
    ) -> None:
        self._store, self._refresher, self._segments = store, refresher, segments
        self._clock, self._shared = clock, shared
        self._change_lock = asyncio.Lock()

    # Reading

    def served(self, name: str) -> ServedSurface:
        """Returns the served state of a surface; raises Unknown or BrokenSurface."""
        served = self._known(name)
        if served.fault:
            raise BrokenSurface(f"surface {name!r} cannot be served until its settings are changed: {served.fault}")
        return served

    def surface(self, name: str) -> Surface:
        """Returns a surface; raises Unknown."""
        return self._known(name).surface

    def _known(self, name: str) -> ServedSurface:
        served = self._refresher.surfaces.get(name)
        if served is None:
            raise Unknown(f"there is no surface {name!r}")
        return served

    def surfaces(self) -> list[Surface]:
        """Returns all surfaces by name."""
        return [served.surface for _, served in sorted(self._refresher.surfaces.items())]

    async def catch_up(self) -> None:
        """Reads changes that other processes made, before a surface is called unknown or is changed."""
        if self._shared:
            await in_thread(self._refresher.read_changes)

    # Surfaces and items

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        """Creates a surface, or changes the given settings of one and adds new items; returns whether it is new."""
        created = False

        def change() -> Change:
            nonlocal created
            created = name not in self._refresher.surfaces
            if created:
                if if_version:
                    raise Conflict(f"there is no version {if_version} of surface {name!r}: it does not exist")
                return surface_rules.create_surface(name, body, self._clock())
            surface = self._at_version(name, if_version)
            medians = surface_rules.medians_of(surface, self._store.segments(surface.id))
            return surface_rules.update_surface(surface, body, medians, self._clock(), actor)

        saved = await self._change(change, actor, if_version)
        return saved, created

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Changes the given settings; all others stay as they are."""

        def change() -> Change:
            return surface_rules.change_settings(self._at_version(name, if_version), changes, self._clock())

        return await self._change(change, actor, if_version)

    async def restart_comparison(self, surface: str, *, actor: str) -> Surface:
        """Starts the comparison of all arms again, with the guard not active."""
        return await self._change(lambda: surface_rules.restart_comparison(self.surface(surface), self._clock()), actor)

    async def promote(self, surface: str, arm: str, *, actor: str, if_version: int | None = None) -> Surface:
        """Makes the policy of an arm that of the surface, with everything that it has learned."""
        return await self._change(
            lambda: promote(self._at_version(surface, if_version), arm, self._clock()), actor, if_version
        )

    def activate_guard(self, surface: Surface, arm: str) -> bool:
        """Serves the baseline order instead of an arm from now on.

        Blocks; called in the refresher thread. Raises StoreError. Returns False, with nothing done, if the surface was
        changed meanwhile: the guard is checked every minute.
        """
        try:
            self._apply(lambda: surface_rules.activate_guard(surface, self._clock(), arm), GUARD_ACTOR)
        except VersionConflict:
            return False
        return True

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Adds an item at the median of the others, or makes a paused or removed one active again."""
        return await self._change(lambda: self._activate_item(self.surface(surface), item, actor), actor)

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Makes a paused item active again, with the counters that it has."""

        def change() -> Change:
            known = self.surface(surface)
            state = next((one.state for one in known.items if one.name == item), None)
            if state is None:
                raise Unknown(f"surface {surface!r} has no item {item!r}")
            if state == "removed":
                raise StateConflict(f"item {item!r} was removed; add it again")
            return self._activate_item(known, item, actor)

        return await self._change(change, actor)

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Pauses an item."""
        return await self._change(lambda: surface_rules.pause_item(self.surface(surface), item, self._clock()), actor)

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Removes an item; its counters are kept in case it comes back."""
        return await self._change(lambda: surface_rules.remove_item(self.surface(surface), item, self._clock()), actor)

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        """Deletes a surface with everything that belongs to it, except the audit log."""

        def delete() -> None:
            surface = self._at_version(name, if_version)

            def entries(events: int) -> list[dict[str, Any]]:
                return [self._entry(surface.id, actor, "delete surface", f'"{name}": {events} events deleted')]

            self._store.delete_surface(surface, entries)
            self._refresher.remove(surface.id)

        await self._retried(delete, if_version)

    # Counters and segments

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Sets the counters of a segment to zero; of all segments if None."""
        async with self._change_lock:
            await self.catch_up()
            known = self.surface(surface)
            if segment is not None and segment not in self.served(surface).segments:
                raise Unknown(f"surface {surface!r} has no segment {segment!r}")
            detail = "all segments" if segment is None else segment_words(segment)

            def make(segments: list[Segment]) -> tuple[Adjustment, ...]:
                chosen = [one for one in segments if segment in (None, split_counter_key(one.name)[0])]
                return surface_rules.reset_adjustments(known, chosen, self._clock(), actor)

            await in_thread(self._store.adjust_by, known.id, make, [self._entry(known.id, actor, "reset", detail)])
            await in_thread(self._refresher.install, known)

    async def warm_start(
        self, surface: str, model: Mapping[str, Any], *, rounds: int, segment: str = "", actor: str
    ) -> None:
        """Adds the counters that ``rounds`` rounds would have had if visitors clicked as a fitted model predicts."""
        async with self._change_lock:
            await self.catch_up()
            known = self.surface(surface)
            checked_name(segment, "segment", "/segment", empty=True)
            start = warm_start_of(known, model, rounds, segment, self._clock(), actor)
            await in_thread(self._admit, known, segment)
            entry = self._entry(known.id, actor, "warm start", f"{rounds} rounds, {segment_words(segment)}")
            starts = [_of_counters(start, one.counter_key(segment)) for one in self.served(surface).learners]
            await in_thread(self._store.adjust, starts, [entry])
            await in_thread(self._refresher.refresh)

    async def start_from_baseline(self, surface: str, *, rounds: int, segment: str = "", actor: str) -> None:
        """Shows the page's own order on most pages of a segment until it has learned from ``rounds`` rounds."""

        def change() -> Change:
            known = self.surface(surface)
            checked_name(segment, "segment", "/segment", empty=True)
            learned = {one.name: one.rounds for one in self._store.segments(known.id)}
            arms = [arm for arm in known.asked_shares if arm != BASELINE_ARM]
            least = min(learned.get(counter_key(segment, known.learner_of(arm)), 0) for arm in arms)
            started = surface_rules.start_from_baseline(known, segment, rounds, least, self._clock())
            self._admit(known, segment)
            return started

        await self._change(change, actor)

    def _admit(self, surface: Surface, segment: str) -> None:
        limit = surface.settings.max_segments
        if not self._store.admit_segment(surface.id, segment, limit):
            raise TooMany(f"surface {surface.name!r} already has {limit} segments, its max_segments; delete one first")

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        """Deletes a segment with its counters and its log; the default segment can only be reset (Invalid)."""
        if segment == "":
            raise Invalid("the default segment cannot be deleted; reset it instead", "/segment")
        async with self._change_lock:
            await self.catch_up()
            known = self.surface(surface)
            if not await in_thread(self._segments.delete, known, segment, actor):
                raise Unknown(f"surface {surface!r} has no segment {segment!r}")
        if segment in known.baseline_starts:  # a segment that is given this name later starts from nothing
            now = self._clock()
            await self._change(lambda: surface_rules.without_baseline_start(self.surface(surface), segment, now), actor)

    # Audit log

    async def write_audit(self, surface_id: int | None, actor: str, action: str, detail: str) -> None:
        """Appends an entry to the audit log."""
        await in_thread(self._store.write_audit, [self._entry(surface_id, actor, action, detail)])

    def _entry(self, surface_id: int | None, actor: str, action: str, detail: str) -> dict[str, Any]:
        return {"at": self._clock(), "actor": actor, "action": action, "detail": detail, "surface_id": surface_id}

    def _at_version(self, name: str, version: int | None) -> Surface:
        surface = self.surface(name)
        if version is not None and version != surface.version:
            raise Conflict(f"surface {name!r} is at version {surface.version}, not {version}; read it again")
        return surface

    def _activate_item(self, surface: Surface, item: str, actor: str) -> Change:
        medians = surface_rules.medians_of(surface, self._store.segments(surface.id))
        return surface_rules.activate_item(surface, item, medians, self._clock(), actor)

    async def _change(self, change: Callable[[], Change], actor: str, if_version: int | None = None) -> Surface:
        """Computes, stores and serves a change; retries if another process changed the surface at the same time."""
        return await self._retried(lambda: self._apply(change, actor), if_version)

    async def _retried(self, call: Callable[[], T], if_version: int | None) -> T:
        async with self._change_lock:
            for attempt in range(1, ATTEMPTS + 1):
                await self.catch_up()
                try:
                    return await in_thread(call)
                except ConcurrentChange:
                    if if_version is not None or attempt == ATTEMPTS or not self._shared:
                        raise
        raise AssertionError

    def _apply(self, change: Callable[[], Change], actor: str) -> Surface:
        made = change()
        if not made.action:
            return made.surface
        entry = self._entry(made.surface.id or None, actor, made.action, made.detail)
        if made.holdout is not None:  # reports compare the arms separately before and after
            entry["holdout"] = made.holdout
        if made.arms is not None:
            entry["arms"] = made.arms
        self._check(made.surface)
        saved = self._store.save_surface(made.surface, made.adjustments, [entry])
        self._refresher.install(saved)
        return saved

    def _check(self, changed: Surface) -> None:
        """Raises Invalid if a policy of a changed surface cannot be solved: it would be stored and never served."""
        served = self._refresher.by_id.get(changed.id)
        if served and (served.surface.settings, served.surface.items) == (changed.settings, changed.items):
            return
        try:
            self._refresher.check(changed)
        except (ArithmeticError, ConvergenceError, ValueError) as error:
            detail = f"the policy cannot be computed after this change, and nothing was changed: {error}"
            raise Invalid(detail, "/policy_settings") from error


def _of_counters(adjustment: Adjustment, key: str) -> Adjustment:
    """Returns the adjustment for the counters with this key."""
    return msgspec.structs.replace(adjustment, increments=msgspec.structs.replace(adjustment.increments, segment=key))
