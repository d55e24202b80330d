"""Changes of surfaces while they are served: one at a time, audited, and in force when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec

from ..model import BASELINE_ARM, SEGMENT, Conflict, Invalid, LabelValue, Surface, learned_again
from ..reports.inputs import retention_view
from ..stores import Store, StoreError, VersionConflict
from . import surface_rules
from .served import Registry
from .store_calls import in_thread
from .surface_rules import Change, ItemAction
from .tokens import SecretCache
from .views import read_counts

T = TypeVar("T")
GUARD_ACTOR, REQUEST_ACTOR = "guard", "request"  # actors in the audit log
ATTEMPTS = 5  # at a change while other processes change the same surface


class Administration:
    """Creates, changes, resets and deletes surfaces, their items and arms.

    Coroutines are called in the thread of the event loop; they use the store in worker threads. When one returns, its
    change is durable, in the audit log, and served by this process. They raise subclasses of ServiceError.
    Methods that are not coroutines block and raise StoreError, unless they only read.
    """

    def __init__(self, store: Store, registry: Registry, secrets: SecretCache, clock: Callable[[], int]) -> None:
        self._store, self._registry, self._secrets, self._clock = store, registry, secrets, clock
        self._change_lock = asyncio.Lock()

    # Surfaces and items

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        """Creates a surface, or changes the given settings of one and adds new items; returns whether it is new."""
        created = False

        def change() -> Change:
            nonlocal created
            created = name not in self._registry.surfaces
            if created:
                if if_version:
                    raise Conflict(f"surface {name!r} does not exist")
                return surface_rules.create_surface(name, body, self._clock())
            return surface_rules.update_surface(self._at_version(name, if_version), body, self._clock())

        return await self._change(change, actor, if_version), created

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Changes the given settings; all others stay as they are.

        Another policy, other settings of it, slots or labels mean that the log is learned again; the lists of before
        are served until that has happened.
        """

        def change() -> Change:
            return surface_rules.change_settings(self._at_version(name, if_version), changes, self._clock())

        return await self._change(change, actor, if_version)

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        """Deletes a surface with everything that belongs to it, except the audit log."""

        def delete() -> None:
            surface = self._at_version(name, if_version)
            self._store.delete_surface(surface, [self._entry(surface.id, actor, "delete surface", name)])
            self._registry.remove(surface.id)

        await self._retried(delete, if_version)

    async def declare_segment(self, name: str) -> None:
        """Declares the label "segment" on a surface without labels, since a request has one."""

        def change() -> Change:
            surface = self._registry.surface(name)
            if surface.settings.labels is not None:
                return Change(surface)
            return surface_rules.change_settings(surface, {"labels": [SEGMENT]}, self._clock())

        await self._change(change, REQUEST_ACTOR)

    async def change_item(
        self,
        surface: str,
        item: str,
        action: ItemAction,
        *,
        labels: Mapping[str, LabelValue] | None = None,
        actor: str,
        if_version: int | None = None,
    ) -> Surface:
        """Adds, resumes, pauses or removes an item; what is known of it is kept in case it comes back.

        An item that is added gets these labels, unless they are None.
        """

        def change() -> Change:
            return surface_rules.change_item(self._at_version(surface, if_version), item, action, self._clock(), labels)

        return await self._change(change, actor, if_version)

    # Arms and the guard

    async def restart_comparison(self, surface: str, *, actor: str, if_version: int | None = None) -> Surface:
        """Starts the comparison of all arms again, with the guard not active."""

        def change() -> Change:
            return surface_rules.restart_comparison(self._at_version(surface, if_version), self._clock())

        return await self._change(change, actor, if_version)

    async def promote(self, surface: str, arm: str, *, actor: str, if_version: int | None = None) -> Surface:
        """Makes the policy of an arm that of the surface, with the learners that it has."""
        return await self._change(
            lambda: surface_rules.promote(self._at_version(surface, if_version), arm, self._clock()), actor, if_version
        )

    def activate_guard(self, surface: Surface, arm: str) -> bool:
        """Serves the baseline order instead of an arm from now on.

        Returns False, with nothing done, if the surface was changed meanwhile: the guard is checked every minute.
        """
        try:
            self._apply(lambda: surface_rules.activate_guard(surface, self._clock(), arm), GUARD_ACTOR)
        except VersionConflict:
            return False
        return True

    async def reset(self, surface: str, *, actor: str) -> None:
        """Forgets what all policies of a surface have learned. Its log stays."""

        def reset() -> None:
            known = self._registry.surface(surface)
            ids = [one.id for one in self._store.learners(known.id)]
            self._store.reset_learners(ids, [self._entry(known.id, actor, "reset", "")])
            self._registry.replace(known)

        await self._retried(reset)

    async def start_from_baseline(self, surface: str, *, rounds: int, actor: str) -> None:
        """Shows the page's own order on most pages until the surface has learned from ``rounds`` rounds."""

        def change() -> Change:
            served = self._registry.served(surface)
            learners = [served.learner(arm) for arm in served.surface.asked_shares if arm != BASELINE_ARM]
            learned = min(read_counts(served, one, self._registry).rounds for one in learners)
            if learned >= rounds:
                detail = f"surface {surface!r} has learned from {learned} rounds already; rounds must be greater"
                raise Invalid(detail, "/rounds")
            return surface_rules.change_settings(served.surface, {"baseline_rounds": rounds}, self._clock())

        await self._change(change, actor)

    # Secrets and the audit log

    async def rotate_secret(self, *, actor: str, forget: bool = False) -> int:
        """Signs with a new secret from now on; returns its number. ``forget`` invalidates all earlier tokens."""
        number = await self._secrets.rotate(self._clock(), forget)
        detail = f"number {number}" + ("; all earlier tokens were invalidated" if forget else "")
        await in_thread(self._store.write_audit, [self._entry(None, actor, "rotate secret", detail)])
        return number

    def _entry(self, surface_id: int | None, actor: str, action: str, detail: str) -> dict[str, Any]:
        return {"at": self._clock(), "actor": actor, "action": action, "detail": detail, "surface_id": surface_id}

    # Changes

    def _at_version(self, name: str, version: int | None) -> Surface:
        surface = self._registry.surface(name)
        if version == 0:
            raise Conflict("the surface exists already")
        if version not in (None, surface.version):
            now = f"the surface now has version {surface.version}"
            raise Conflict(f"{now}; read it again, and send the change for that version")
        return surface

    async def _change(self, change: Callable[[], Change], actor: str, if_version: int | None = None) -> Surface:
        """Computes, stores and serves a change; retries if another process changed the surface at the same time."""
        return await self._retried(lambda: self._apply(change, actor), if_version)

    async def _retried(self, call: Callable[[], T], if_version: int | None = None) -> T:
        async with self._change_lock:
            for attempt in range(1, ATTEMPTS + 1):
                await self._registry.catch_up()
                try:
                    return await in_thread(call)
                except VersionConflict:
                    if if_version is not None or attempt == ATTEMPTS or not self._registry.shared:
                        raise
        raise AssertionError

    def _apply(self, change: Callable[[], Change], actor: str) -> Surface:
        made = change()
        if not made.action:
            return made.surface
        known = self._registry.by_id.get(made.surface.id)
        before = None if known is None else known.surface
        self._check(before, made.surface)
        entry = self._entry(made.surface.id or None, actor, made.action, made.detail)
        if before is not None and learned_again(before, made.surface):
            settled = self._store.last_numbers().get(made.surface.id, 0)
            left = retention_view(made.surface.settings, self._store.deleted(made.surface.id), settled)
            entry["detail"] += f"; {left['events']} events of the log are learned again"
        surface = made.surface
        if before is not None and before.compared_shares != surface.compared_shares:
            earlier = (*surface.earlier_shares, (self._clock(), before.compared_shares))
            surface = msgspec.structs.replace(surface, earlier_shares=earlier)
        saved = self._store.save_surface(surface, [entry])
        self._registry.replace(saved)
        return saved

    def _check(self, before: Surface | None, changed: Surface) -> None:
        """Raises Invalid if a policy of a changed surface cannot be used: it would be stored and never served."""
        if before is not None and (before.settings, before.items) == (changed.settings, changed.items):
            return
        try:
            self._registry.check(changed)
        except StoreError:
            raise
        except Exception as error:  # a policy of another package may raise anything
            detail = f"the policy cannot be computed after this change, and nothing was changed: {error}"
            raise Invalid(detail, "/policy_settings") from error
