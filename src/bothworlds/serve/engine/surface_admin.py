"""Changing surfaces while they are served: one change at a time, written down, and in force when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..model import Adjustment, Conflict, Invalid, Segment, Surface, TooMany, Unknown, checked_name
from ..stores.base import Store, StoreError, Unstorable, VersionConflict
from . import log_rows, surface_rules
from .refresher import Refresher
from .served_surface import Display
from .surface_rules import Change
from .writer import unavailable

__all__ = ["Administration"]

T = TypeVar("T")
ATTEMPTS = 5  # at a change that other processes are quicker with


class Overtaken(Conflict):
    """Another process has changed the surface between reading and writing."""


class Administration:
    """The half of the engine that changes surfaces."""

    _store: Store
    _refresher: Refresher
    _clock: Callable[[], int]
    _shared: bool

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()

    def surface(self, name: str) -> Surface:
        """The surface of that name."""
        return self._display(name).surface

    def surfaces(self) -> list[Surface]:
        """All surfaces, by name."""
        return [display.surface for _, display in sorted(self._refresher.displays.items())]

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        """Create a surface, or change one: settings that are named are changed, items that are new are added."""
        created = False

        def change() -> Change:
            nonlocal created
            created = name not in self._refresher.displays
            if created:
                if if_version:
                    raise Conflict(f"there is no version {if_version} of surface {name!r}: it does not exist")
                return surface_rules.created(name, body, self._clock())
            surface = self._expected(name, if_version)
            medians = surface_rules.medians_of(surface, self._store.segments(surface.id))
            return surface_rules.updated(surface, body, medians, self._clock(), actor)

        saved = await self._change(change, actor, if_version)
        return saved, created

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Change settings; those that are not named stay."""

        def change() -> Change:
            return surface_rules.with_settings(self._expected(name, if_version), changes, self._clock())

        return await self._change(change, actor, if_version)

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Add an item at the median of the others, or bring back one that was paused or removed."""
        return await self._change(lambda: self._with_item(self.surface(surface), item, actor), actor)

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Show a paused item again, with the counters that it has."""

        def change() -> Change:
            known = self.surface(surface)
            state = next((one.state for one in known.items if one.name == item), None)
            if state is None:
                raise Unknown(f"surface {surface!r} has no item {item!r}")
            if state == "removed":
                raise Conflict(f"item {item!r} was removed; put it again")
            return self._with_item(known, item, actor)

        return await self._change(change, actor)

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Stop showing an item for a while."""
        return await self._change(lambda: surface_rules.paused(self.surface(surface), item, self._clock()), actor)

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Stop showing an item; what is known of it is kept in case it comes back."""
        return await self._change(lambda: surface_rules.removed(self.surface(surface), item, self._clock()), actor)

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Forget what was learned of a segment, or of all if None."""
        async with self._one_at_a_time:
            await self.catch_up()
            known = self.surface(surface)
            if segment is not None and segment not in self._display(surface).shelves:
                raise Unknown(f"surface {surface!r} has no segment {segment!r}")
            entry = self._entry(known.id, actor, "reset", "all segments" if segment is None else f"segment {segment!r}")

            def back(segments: list[Segment]) -> tuple[Adjustment, ...]:
                found = [one for one in segments if segment is None or one.name == segment]
                return surface_rules.reset(known, found, self._clock(), actor)

            await self._in_thread(self._store.adjust_by, known.id, back, [entry])
            await self._in_thread(self._refresher.install, known)

    async def warm_start(
        self, surface: str, model: Mapping[str, Any], *, rounds: int, segment: str = "", actor: str
    ) -> None:
        """Start from a fitted click model, as if so many rounds had been spent on learning it."""
        async with self._one_at_a_time:
            await self.catch_up()
            known = self.surface(surface)
            checked_name(segment, "segment", "/segment", empty=True)
            start = log_rows.warm_start_of(known, model, rounds, segment, self._clock(), actor)
            limit = known.settings.max_segments
            if not await self._in_thread(self._store.admit_segment, known.id, segment, limit):
                raise TooMany(f"surface {surface!r} has {limit} segments already, its max_segments; delete one first")
            entry = self._entry(known.id, actor, "warm start", f"{rounds} rounds, segment {segment!r}")
            await self._in_thread(self._store.adjust, [start], [entry])
            await self._in_thread(self._refresher.refresh)

    # How

    async def catch_up(self) -> None:
        """Look for what other processes have made a moment ago, before it is called unknown or changed."""
        if self._shared:
            await self._in_thread(self._refresher.look_again)

    def _display(self, name: str) -> Display:
        display = self._refresher.displays.get(name)
        if display is None:
            raise Unknown(f"there is no surface {name!r}")
        return display

    def _expected(self, name: str, version: int | None) -> Surface:
        surface = self.surface(name)
        if version is not None and version != surface.version:
            raise Conflict(f"surface {name!r} is at version {surface.version}, not {version}; read it again")
        return surface

    def _with_item(self, surface: Surface, item: str, actor: str) -> Change:
        medians = surface_rules.medians_of(surface, self._store.segments(surface.id))
        return surface_rules.put_back(surface, item, medians, self._clock(), actor)

    async def _change(self, change: Callable[[], Change], actor: str, if_version: int | None = None) -> Surface:
        """Read, change, store, and serve by it; again if another process was quicker."""
        async with self._one_at_a_time:
            for attempt in range(1, ATTEMPTS + 1):
                await self.catch_up()
                try:
                    return await self._in_thread(self._apply, change, actor)
                except Overtaken:
                    if if_version is not None or attempt == ATTEMPTS or not self._shared:
                        raise
        raise AssertionError

    def _apply(self, change: Callable[[], Change], actor: str) -> Surface:
        made = change()
        if not made.action:
            return made.surface
        entry = self._entry(made.surface.id or None, actor, made.action, made.detail)
        saved = self._store.save_surface(made.surface, made.adjustments, [entry])
        self._refresher.install(saved)
        return saved

    async def _note(self, surface_id: int | None, actor: str, action: str, detail: str) -> None:
        await self._in_thread(self._store.write_audit, [self._entry(surface_id, actor, action, detail)])

    def _entry(self, surface_id: int | None, actor: str, action: str, detail: str) -> dict[str, Any]:
        return {"at": self._clock(), "actor": actor, "action": action, "detail": detail, "surface_id": surface_id}

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except VersionConflict as error:
            raise Overtaken("somebody else has changed the surface meanwhile; read it again") from error
        except Unstorable as error:
            raise Invalid("the request holds a value that cannot be stored") from error
        except StoreError as error:
            raise unavailable(error) from error
