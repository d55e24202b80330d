"""Changing surfaces while they are served: one change at a time, written down, and in force when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from . import exchange, surfaces
from .engine_types import Conflict, Unavailable, Unknown
from .ids import checked_name
from .records import Surface
from .refreshing import Refresher
from .shelves import Display
from .stores.base import Store, StoreError, VersionConflict
from .surfaces import Change, Medians

__all__ = ["Administration"]

T = TypeVar("T")


class Administration:
    """The half of the engine that changes surfaces."""

    _store: Store
    _refresher: Refresher
    _clock: Callable[[], int]

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
        async with self._one_at_a_time:
            known = self._refresher.displays.get(name)
            if known is None:
                if if_version:
                    raise Conflict(f"there is no version {if_version} of surface {name!r}: it does not exist")
                return await self._apply(surfaces.created(name, body, self._clock()), actor), True
            surface = self._expected(name, if_version)

            def change() -> Change:
                since = {
                    item.name: self._absence(surface, item.index) for item in surface.items if item.state != "active"
                }
                return surfaces.updated(surface, body, self._medians(surface), since, self._clock(), actor)

            return await self._apply(await self._in_thread(change), actor), False

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Change settings; those that are not named stay."""
        async with self._one_at_a_time:
            surface = self._expected(name, if_version)
            return await self._apply(surfaces.with_settings(surface, changes, self._clock()), actor)

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Add an item at the median of the others, or bring back one that was paused or removed."""
        async with self._one_at_a_time:
            return await self._put_item(self.surface(surface), item, actor)

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Show a paused item again; it catches up with what the median has grown by."""
        async with self._one_at_a_time:
            known = self.surface(surface)
            state = next((one.state for one in known.items if one.name == item), None)
            if state is None:
                raise Unknown(f"surface {surface!r} has no item {item!r}")
            if state == "removed":
                raise Conflict(f"item {item!r} was removed; put it again")
            return await self._put_item(known, item, actor)

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Stop showing an item for a while."""
        return await self._send_away(surface, item, surfaces.paused, actor)

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Stop showing an item; what is known of it is kept in case it comes back."""
        return await self._send_away(surface, item, surfaces.removed, actor)

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Forget what was learned of a segment, or of all if None."""
        async with self._one_at_a_time:
            known = self.surface(surface)
            if segment is not None and segment not in self._display(surface).shelves:
                raise Unknown(f"surface {surface!r} has no segment {segment!r}")
            all_of_it = await self._in_thread(self._store.segments, known.id)
            chosen = [one for one in all_of_it if segment is None or one.name == segment]
            back = surfaces.reset(known, chosen, self._clock(), actor)
            entry = self._entry(known.id, actor, "reset", "all segments" if segment is None else f"segment {segment!r}")
            await self._in_thread(self._store.adjust, back, [entry])
            for item in known.items:
                if item.state != "active":
                    await self._in_thread(self._forget_absence, known, item.index, {one.name for one in chosen})
            await self._in_thread(self._refresher.install, known)

    async def warm_start(
        self, surface: str, model: Mapping[str, Any], *, rounds: int, segment: str = "", actor: str
    ) -> None:
        """Start from a fitted click model, as if so many rounds had been spent on learning it."""
        async with self._one_at_a_time:
            known = self.surface(surface)
            checked_name(segment, "segment", "/segment", empty=True)
            start = exchange.warm_start_of(known, model, rounds, segment, self._clock(), actor)
            entry = self._entry(known.id, actor, "warm start", f"{rounds} rounds, segment {segment!r}")
            await self._in_thread(self._store.adjust, [start], [entry])
            await self._in_thread(self._refresher.install, known)

    # How

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

    async def _put_item(self, surface: Surface, item: str, actor: str) -> Surface:
        def change() -> Change:
            index = next((one.index for one in surface.items if one.name == item), None)
            since = None if index is None else self._absence(surface, index)
            return surfaces.put_back(surface, item, self._medians(surface), since, self._clock(), actor)

        return await self._apply(await self._in_thread(change), actor)

    async def _send_away(
        self, name: str, item: str, away: Callable[[Surface, str, int], Change], actor: str
    ) -> Surface:
        async with self._one_at_a_time:
            surface = self.surface(name)
            change = away(surface, item, self._clock())
            present = next(one for one in surface.items if one.name == item)
            if present.state == "active":
                await self._in_thread(self._note_absence, change.surface, present.index)
            return await self._apply(change, actor)

    async def _apply(self, change: Change, actor: str) -> Surface:
        """Store a change and serve by it."""
        if not change.action:
            return change.surface

        def apply() -> Surface:
            entry = self._entry(change.surface.id or None, actor, change.action, change.detail)
            saved = self._store.save_surface(change.surface, change.adjustments, [entry])
            self._refresher.install(saved)
            return saved

        return await self._in_thread(apply)

    async def _note(self, surface_id: int | None, actor: str, action: str, detail: str) -> None:
        await self._in_thread(self._store.write_audit, [self._entry(surface_id, actor, action, detail)])

    def _entry(self, surface_id: int | None, actor: str, action: str, detail: str) -> dict[str, Any]:
        return {"at": self._clock(), "actor": actor, "action": action, "detail": detail, "surface_id": surface_id}

    async def _in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        try:
            return await asyncio.to_thread(call, *arguments)
        except VersionConflict as error:
            raise Conflict("somebody else has changed the surface meanwhile; read it again") from error
        except StoreError as error:
            raise Unavailable(f"the store does not answer now: {error}") from error

    # The medians when an item went away, so that it can catch up when it comes back

    def _medians(self, surface: Surface) -> Medians:
        return surfaces.medians_of(surface, self._store.segments(surface.id))

    def _note_absence(self, surface: Surface, index: int) -> None:
        self._store.put(_absence_key(surface, index), msgspec.msgpack.encode(self._medians(surface)))

    def _absence(self, surface: Surface, index: int) -> Medians:
        kept = self._store.get(_absence_key(surface, index))
        return {} if kept is None else msgspec.msgpack.decode(kept, type=Medians)

    def _forget_absence(self, surface: Surface, index: int, segments: set[str]) -> None:
        medians = self._absence(surface, index)
        left = {name: slots for name, slots in medians.items() if name not in segments}
        self._store.put(_absence_key(surface, index), msgspec.msgpack.encode(left))


def _absence_key(surface: Surface, index: int) -> str:
    return f"medians without {surface.id}/{index}"
