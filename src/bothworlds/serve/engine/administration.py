"""Changes of surfaces while they are served: one at a time, audited, and in force when the call returns."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ..events import Learner
from ..model import (
    BASELINE_ARM,
    Conflict,
    Invalid,
    Surface,
    TooMany,
    Unknown,
    checked_name,
    learned_again,
    segment_words,
)
from ..reports.inputs import retention_view
from ..stores import StoreError, VersionConflict
from . import surface_rules
from .store_calls import ConcurrentChange, in_thread
from .surface_rules import Change, ItemAction
from .views import read_counts

if TYPE_CHECKING:
    from ..stores import Store
    from .served import Registry
    from .tokens import SecretCache

T = TypeVar("T")
GUARD_ACTOR, EXPIRY_ACTOR = "guard", "expiry"  # actors in the audit log
ATTEMPTS = 5  # at a change while other processes change the same surface


class Administration:
    """Creates, changes, resets and deletes surfaces, their items, arms and segments.

    Coroutines are called in the thread of the event loop; they use the store in worker threads. When one returns, its
    change is durable, in the audit log, and served by this process. They raise subclasses of ServiceError.
    Methods that are not coroutines block and raise StoreError, unless they only read. ``forget`` is called with the id
    of a surface some of whose events were deleted.
    """

    def __init__(
        self,
        store: Store,
        registry: Registry,
        secrets: SecretCache,
        clock: Callable[[], int],
        forget: Callable[[int], None],
    ) -> None:
        self._store, self._registry, self._secrets = store, registry, secrets
        self._clock, self._forget = clock, forget
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
                    raise Conflict(f"there is no version {if_version} of surface {name!r}: it does not exist")
                return surface_rules.create_surface(name, body, self._clock())
            return surface_rules.update_surface(self._at_version(name, if_version), body, self._clock())

        return await self._change(change, actor, if_version), created

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Changes the given settings; all others stay as they are.

        Another policy, other settings of it or other slots mean that the log is learned again; the lists of before are
        served until that has happened.
        """

        def change() -> Change:
            return surface_rules.change_settings(self._at_version(name, if_version), changes, self._clock())

        return await self._change(change, actor, if_version)

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        """Deletes a surface with everything that belongs to it, except the audit log."""

        def delete() -> None:
            surface = self._at_version(name, if_version)

            def entries(events: int) -> list[dict[str, Any]]:
                return [self._entry(surface.id, actor, "delete surface", f'"{name}": {events} events deleted')]

            self._store.delete_surface(surface, entries)
            self._registry.remove(surface.id)

        await self._retried(delete, if_version)

    async def change_item(self, surface: str, item: str, action: ItemAction, *, actor: str) -> Surface:
        """Adds, resumes, pauses or removes an item; what is known of it is kept in case it comes back."""

        def change() -> Change:
            return surface_rules.change_item(self._registry.surface(surface), item, action, self._clock())

        return await self._change(change, actor)

    # Arms and the guard

    async def restart_comparison(self, surface: str, *, actor: str) -> Surface:
        """Starts the comparison of all arms again, with the guard not active."""
        return await self._change(
            lambda: surface_rules.restart_comparison(self._registry.surface(surface), self._clock()), actor
        )

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

    # Learners and segments

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Forgets what a segment has learned; all segments if None. Their log stays."""

        def reset() -> None:
            known = self._registry.surface(surface)
            ids = [one.id for one in self._learners(known, segment)]
            detail = "all segments" if segment is None else segment_words(segment)
            self._store.reset_learners(ids, [self._entry(known.id, actor, "reset", detail)])
            self._registry.replace(known)

        await self._retried(reset)

    async def start_from_baseline(self, surface: str, *, rounds: int, segment: str = "", actor: str) -> None:
        """Shows the page's own order on most pages of a segment until it has learned from ``rounds`` rounds."""

        def change() -> Change:
            served = self._registry.served(surface)
            known = served.surface
            checked_name(segment, "segment", "/segment", empty=True)
            learners = [served.learner(segment, arm) for arm in known.asked_shares if arm != BASELINE_ARM]
            learned = [0 if one is None else read_counts(served, one, self._registry).rounds for one in learners]
            started = surface_rules.start_from_baseline(known, segment, rounds, min(learned), self._clock())
            limit = known.settings.max_segments
            admitted = self._store.admit_learner(known.id, segment, known.learner, limit, self._clock())
            if admitted is None:
                raise TooMany(f"surface {surface!r} already has {limit} segments, its max_segments; delete one first")
            self._registry.add_learner(admitted)
            return started

        await self._change(change, actor)

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        """Deletes a segment with everything of it; the default segment can only be reset (Invalid)."""
        if segment == "":
            raise Invalid("the default segment cannot be deleted; reset it instead", "/segment")

        def delete() -> None:
            known = self._registry.surface(surface)
            ids = [one.id for one in self._learners(known, segment)]
            self._delete_learners(known, ids, actor, "delete segment", f'"{segment}"', totals=True)

        def change() -> Change:  # a segment that is given this name later starts from nothing
            return surface_rules.without_baseline_start(self._registry.surface(surface), segment, self._clock())

        await self._retried(delete)
        await self._change(change, actor)
        self._forget(self._registry.surface(surface).id)

    def expire(self, surface: Surface, segment: str, ids: Collection[int]) -> None:
        """Deletes the learners of a segment that nobody uses, and its events; pages stay counted in reports."""
        self._delete_learners(surface, ids, EXPIRY_ACTOR, "expire segment", f'"{segment}"', totals=False)

    def _learners(self, surface: Surface, segment: str | None) -> list[Learner]:
        """Returns the learners of a segment, also of arms that are not served any more; of all segments if None."""
        found = [one for one in self._store.learners(surface.id) if segment in (None, one.segment)]
        if segment is not None and not found:
            raise Unknown(f"surface {surface.name!r} has no segment {segment!r}")
        return found

    def _delete_learners(
        self, surface: Surface, ids: Collection[int], actor: str, action: str, what: str, *, totals: bool
    ) -> None:
        def entries(events: int) -> list[dict[str, Any]]:
            return [self._entry(surface.id, actor, action, f"{what}: {events} events deleted")]

        self._store.delete_learners(ids, entries, totals=totals)
        self._registry.drop_learners(surface.id, ids)

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
        if version is not None and version != surface.version:
            raise Conflict(f"surface {name!r} is at version {surface.version}, not {version}; read it again")
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
                except ConcurrentChange:
                    if if_version is not None or attempt == ATTEMPTS or not self._registry.shared:
                        raise
        raise AssertionError

    def _apply(self, change: Callable[[], Change], actor: str) -> Surface:
        made = change()
        if not made.action:
            return made.surface
        detail = made.detail
        if (before := self._registry.by_id.get(made.surface.id)) is not None:
            self._check(before.surface, made.surface)
            if learned_again(before.surface, made.surface):
                settled = self._store.last_numbers().get(made.surface.id, 0)
                left = retention_view(made.surface.settings, self._store.deleted(made.surface.id), settled)
                detail += f"; {left['events']} events of the log are learned again"
        else:
            self._check(None, made.surface)
        entry = self._entry(made.surface.id or None, actor, made.action, detail)
        if made.holdout is not None:  # reports compare the arms separately before and after
            entry["holdout"] = made.holdout
        if made.arms is not None:
            entry["arms"] = made.arms
        saved = self._store.save_surface(made.surface, [entry])
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
