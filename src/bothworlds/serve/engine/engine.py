"""The engine: ranks, accepts feedback and learns, over a store. It does not know HTTP.

A list is drawn from a policy that is already solved, logged with its propensities, and signed. Feedback is acknowledged
when it is durable. The collaborators: ``writer`` and ``refresher`` are threads, ``surface_admin`` changes surfaces,
``monitor`` watches them, ``learner`` turns counters into policies, ``secret_cache`` signs and reads tokens,
``retention`` and ``event_deletion`` delete events.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..engine_protocol import EngineProtocol
from ..model import (
    ALL_ELIGIBLE,
    BASELINE_ARM,
    LEARNER_ARM,
    LISTED_ITEMS,
    REQUEST_LENGTH,
    Arm,
    Event,
    Invalid,
    Status,
    Surface,
    Unavailable,
    Unknown,
    VerifiedFeedback,
    checked_name,
    event_id_of,
    now_ms,
    parse_event_id,
    seed_of,
)
from ..observability.telemetry import NO_TELEMETRY, Telemetry
from ..reports import report as reports
from ..reports.inputs import DAY, ReportRequest
from ..reports.retention import retention_view
from ..schemas import (
    Accepted,
    EngineHealth,
    EventView,
    FeedbackEvent,
    Headline,
    Imported,
    PlacedItem,
    Ranking,
    ReportView,
    RetentionView,
    SegmentView,
    StateView,
)
from ..stores.base import Store, StoreError
from ..visitors import VISITOR_LENGTH, visitor_draw, visitor_hash
from .event_deletion import EventDeletion
from .learner import counters_of, warm_up
from .log_rows import export_rows, import_rows
from .monitor import SurfaceMonitor
from .refresher import Refresher
from .report_inputs import surface_state
from .retention import Retention
from .reward_feedback import verified_rewards
from .secret_cache import SecretCache
from .segments import SegmentRegistry
from .served_surface import PolicyPair, ServedSurface, constraints_of
from .solver import Solver
from .store_calls import in_thread
from .surface_admin import SurfaceAdmin
from .tokens import InvalidToken
from .views import event_view, state_view
from .writer import Writer

__all__ = ["Engine"]

RECENT_RANKINGS = 20_000  # rankings kept in memory for repeated requests
MAX_EXCLUDED = 1000
OTHER_LIST = "the list of this token was lost, and its request was answered with another list since"
NO_SURFACE = "the surface of this event is not known here; it may have been deleted"
DELETED_EVENT = "this event was deleted"


class Engine(EngineProtocol):
    """Ranks the items of surfaces and learns from feedback.

    ``clock`` returns milliseconds since 1970. ``shared`` means that other processes use the same store: then decisions
    are stored before they are returned, so that a request has the same list everywhere, and changes that other
    processes make are followed. ``telemetry`` gets a span of every batch written and of every refresh.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], int] = now_ms,
        refresh_ms: int = 100,
        refresh_events: int = 100,
        shared: bool = False,
        telemetry: Telemetry = NO_TELEMETRY,
    ) -> None:
        self._store, self._clock, self._shared = store, clock, shared
        self._recent: OrderedDict[bytes, Ranking] = OrderedDict()
        self._ranked = 0  # rankings made in this process
        self.secrets = SecretCache(store, on_forget=self.clear_recent)
        self.refresher = Refresher(
            store,
            clock,
            refresh_ms=refresh_ms,
            refresh_events=refresh_events,
            shared=shared,
            follow=self.secrets.follow,
            expire=self.watch,
            telemetry=telemetry,
        )
        self.writer = Writer(store, clock, self.refresher.notify, telemetry=telemetry)
        self._writers = [self.writer]
        if shared:
            # Requests wait until their decisions are stored. A second thread with a connection of its own, so that they
            # do not wait for feedback, whose transactions are synced to disk.
            self._writers.append(Writer(store, clock, self.refresher.notify, settles=False, telemetry=telemetry))
        self._decision_writer = self._writers[-1]
        self.solver = Solver()
        self._segments = SegmentRegistry(store, self.refresher, clock)
        self._admin = SurfaceAdmin(store, self.refresher, self._segments, clock, shared)
        self._admission = asyncio.Lock()
        self._statuses: Counter[tuple[int, Status]] = Counter()  # (surface id, status) -> pieces of feedback
        self._reports = reports.ReportCache()
        self._monitor = SurfaceMonitor(store, self._reports.history, clock, self._admin.activate_guard)
        self.retention = Retention(
            store, clock, self.secrets, self.refresher.all_surfaces, lambda: self.writer.oldest_decision
        )
        self._deletion = EventDeletion(store, self.writer, self.secrets, clock, self._forget_events)
        self._running = False

    async def start(self) -> None:
        """Reads the store, compiles and solves; ready when it returns. Raises Unavailable if the store fails."""
        try:
            await asyncio.to_thread(self._open)
        except StoreError as error:
            raise Unavailable(f"the store cannot be read: {error}") from error
        for writer in self._writers:
            writer.start()
        self.refresher.start()
        self.retention.start()
        self._running = True

    def _open(self) -> None:
        self.secrets.load()
        self.refresher.load()
        self._store.may_have_event(b"")  # starts to read the ids of stored events, if the store keeps them in memory
        warm_up()

    async def stop(self) -> None:
        """Writes pending decisions and feedback, settles overdue events and stops the threads; the store stays open."""
        if self._running:
            self._running = False
            for writer in self._writers:
                writer.stop()
            self.refresher.stop()
            self.retention.stop()
            self.solver.stop()
            for writer in self._writers:
                await asyncio.to_thread(writer.join)
            await asyncio.to_thread(self.refresher.join)
            await asyncio.to_thread(self.retention.join)

    # Ranking

    async def rank(
        self,
        surface: str,
        request_id: str,
        *,
        segment: str = "",
        exclude: Sequence[str] = (),
        pins: Mapping[int, str] | None = None,
        client: str = "",
        visitor: str = "",
    ) -> Ranking:
        """Returns the list for a request; a repeated request gets the same list.

        A visitor stays in the same arm until the comparison of arms starts again; only a keyed hash of her id is kept.
        A segment that is not admitted is served and logged as the default segment; ``Ranking.segment`` is the one that
        was used. With ``shared`` the decision is stored when this returns, otherwise it is written soon after. Raises
        Unknown, Invalid, NotEnough, Unavailable, and TooMany if ``client``, or all clients together, wait for too many
        policies to be solved.
        """
        if not self._running:
            raise Unavailable("the service is not running")
        if not self.knows(surface):
            await self.catch_up()
        served = self._admin.served(surface)
        if not 0 < len(request_id) <= REQUEST_LENGTH or not request_id.isprintable():
            checked_name(request_id, "request_id", "/request_id", longest=REQUEST_LENGTH)
        event_id = event_id_of(served.surface.id, request_id, self.secrets.draw_key)
        seed = seed_of(event_id, self.secrets.draw_key)
        hashed = self._visitor(visitor) if visitor else None
        while True:
            known = self._recent.get(event_id)
            if known is None and not self._shared:  # a shared store is read when the decision is saved
                known = await self._earlier_ranking(served, event_id)
            if known is not None:
                return known
            arm = self._arm(served, seed, hashed)
            served_segment = served.arms.get(arm, served).segments.get(segment)
            if served_segment is not None and not exclude and not pins:
                policies = served_segment.unconstrained
                break
            recent, ranked = self._recent, self._ranked
            served, segment, arm, policies = await self._policies_for(
                surface, segment, exclude, pins or {}, client, lambda now: self._arm(now, seed, hashed)
            )
            if self._unanswered_since(recent, ranked, event_id):
                break
        event, slots = self._decide(served, segment, arm, policies, event_id, seed, hashed)
        if self._shared:
            stored = await self._decision_writer.save_decision(event)
            if stored is None:  # another process has deleted the surface
                await self.catch_up()
                raise Unknown(f"there is no surface {surface!r}")
            if stored != event:  # the request was repeated, here or in another process, and the other decision won
                served = await self._served_for(stored) or served
                event, slots = stored, _slots_of(served.surface, stored)
        else:
            self.writer.enqueue_decision(event)
        return self._ranking(served, event, slots)

    def _visitor(self, visitor: str) -> bytes:
        """Returns the keyed hash of a visitor's id; raises Invalid."""
        checked_name(visitor, "visitor", "/visitor", longest=VISITOR_LENGTH)
        return visitor_hash(visitor, self.secrets.draw_key)

    def _arm(self, served: ServedSurface, seed: bytes, visitor: bytes | None) -> Arm:
        """Returns the arm of a request: that of its visitor, or without one, the arm that its own seed chooses."""
        draw = int.from_bytes(seed[16:], "little")
        if visitor is not None:
            draw = visitor_draw(served.surface, visitor, self.secrets.draw_key)
        return served.intervals.arm_of(draw)

    def _decide(
        self,
        served: ServedSurface,
        segment: str,
        arm: Arm,
        policies: PolicyPair,
        event_id: bytes,
        seed: bytes,
        visitor: bytes | None,
    ) -> tuple[Event, tuple[PlacedItem, ...]]:
        """Draws the list of an event."""
        now, arm_surface, held_out = self._clock(), served.arms.get(arm, served), arm == BASELINE_ARM
        if (served_segment := arm_surface.segments.get(segment)) is not None:
            served_segment.used_at = now
        learner = policies.learner
        drawn = policies.baseline if held_out else learner.draw(seed)
        event = Event(
            id=event_id,
            surface_id=served.surface.id,
            segment=segment,
            arm=arm,
            policy_id=policies.baseline_id if held_out else learner.id,
            created_at=now,
            expires_at=now + served.attribution_ms,
            late_until=now + served.attribution_ms + served.late_ms,
            items=drawn.items,
            p=drawn.p,
            learn=0 if held_out else learner.learn,
            pinned=learner.pinned,
            eligibility=ALL_ELIGIBLE if held_out else learner.eligibility,
            mixture=() if held_out else drawn.mixture,
            visitor=visitor,
            learner=arm_surface.learner,
            prediction=drawn.prediction,
        )
        return event, drawn.slots

    async def _policies_for(
        self,
        surface: str,
        segment: str,
        exclude: Sequence[str],
        pins: Mapping[int, str],
        client: str,
        choose_arm: Callable[[ServedSurface], Arm],
    ) -> tuple[ServedSurface, str, Arm, PolicyPair]:
        """Returns the policies for a request, with the surface, the segment and the arm that they belong to."""
        if len(exclude) > MAX_EXCLUDED:
            raise Invalid(f"exclude may list {MAX_EXCLUDED} items; got {len(exclude)}", "/exclude")
        while True:
            served = self._admin.served(surface)
            constraints, arm = constraints_of(served, exclude, pins), choose_arm(served)
            arm_surface = served.arms.get(arm, served)
            served_segment = arm_surface.segments.get(segment)
            if served_segment is None:
                segment = await self._admitted_segment(surface, segment)
                continue
            policies = served_segment.cached(constraints)
            if policies is None:
                policies = await self.solver.solve(arm_surface, segment, constraints, client)
            # If the surface was changed meanwhile, it may not allow the same pins and exclusions.
            if policies is not None and self.refresher.surfaces.get(surface) is served:
                return served, segment, arm, policies

    async def _admitted_segment(self, surface: str, segment: str) -> str:
        """Returns the segment that serves a request: the default one if the requested one is not admitted."""
        checked_name(segment, "segment", "/segment", empty=True)
        if self._is_full(surface):
            return ""
        # One at a time: otherwise a flood of new names would call the store for each of them.
        async with self._admission:
            served = self._admin.served(surface)
            if segment in served.segments:
                return segment
            if self._is_full(surface):
                return ""
            limit = served.surface.settings.max_segments
            with suppress(Unavailable):
                if await in_thread(self._store.admit_segment, served.surface.id, segment, limit):
                    self.refresher.add_segment(self._admin.served(surface), segment)
                    return segment
        return ""

    def _is_full(self, surface: str) -> bool:
        served = self._admin.served(surface)
        return len(served.segments) >= served.surface.settings.max_segments

    def _ranking(self, served: ServedSurface, event: Event, slots: tuple[PlacedItem, ...]) -> Ranking:
        # Read before signing: if the secret is forgotten meanwhile, the ranking goes into the discarded dictionary.
        recent = self._recent
        ranking = Ranking(
            event.id.hex(),
            served.surface.name,
            event.arm,
            event.policy_id,
            event.expires_at,
            self.secrets.signer.sign(event),
            slots,
            event.segment,
        )
        recent[event.id] = ranking
        self._ranked += 1
        if len(recent) > RECENT_RANKINGS:
            recent.popitem(last=False)  # of a dict, finding the oldest takes longer and longer
        return ranking

    def clear_recent(self) -> None:
        """Forgets the rankings in memory; repeated requests are answered from the store."""
        self._recent = OrderedDict()

    async def _earlier_ranking(self, served: ServedSurface, event_id: bytes) -> Ranking | None:
        """Returns an earlier ranking of the same request; None if there is none at the time when this returns.

        Every decision is first unwritten and then stored, so that one made before is found, in this order, in one of
        the two. A decision made while the store is being read is in ``_recent``. Raises Unavailable.
        """
        while True:
            event = self.writer.unwritten_decision(event_id)
            if event is None and not self._store.may_have_event(event_id):
                return None
            recent, ranked = self._recent, self._ranked
            if event is None:
                event = (await in_thread(self._store.find_events, (event_id,))).get(event_id)
            if event is not None:
                return self._ranking(served, event, _slots_of(served.surface, event))
            if self._unanswered_since(recent, ranked, event_id):
                return None

    def _unanswered_since(self, recent: Mapping[bytes, Ranking], ranked: int, event_id: bytes) -> bool:
        """Returns whether no ranking of an event was made since ``_recent`` and ``_ranked`` had these values.

        Then all rankings made since are in ``_recent``: it was not replaced, and too few were made to evict any.
        """
        return recent is self._recent and self._ranked - ranked < RECENT_RANKINGS and event_id not in recent

    def knows(self, surface: str) -> bool:
        """Returns whether this process knows a surface of that name."""
        return surface in self.refresher.surfaces

    async def catch_up(self) -> None:
        """Reads changes that other processes made, if the store is shared."""
        await self._admin.catch_up()

    async def _served_for(self, event: Event) -> ServedSurface | None:
        """Returns the surface of an event, read again if another process has just added its items; None if unknown."""
        served = self.refresher.by_id.get(event.surface_id)
        if served is None or max(event.items) >= len(served.surface.items):
            await self.catch_up()
            served = self.refresher.by_id.get(event.surface_id)
        known = served is not None and max(event.items) < len(served.surface.items)
        return served if known else None

    # Feedback

    async def feedback(self, events: Sequence[FeedbackEvent]) -> list[Accepted]:
        """Applies feedback; returns one result per event, in order. Accepted feedback is durable.

        An event with an invalid token is rejected alone. Raises TooMany or Unavailable if nothing could be written.
        """
        verified: list[VerifiedFeedback] = []
        results: list[Accepted] = []
        positions: list[int] = []  # in ``results``, of each of ``verified``
        now = self._clock()
        for k, given in enumerate(events):
            try:
                feedback = await self._verify(given)
            except InvalidToken as error:
                results.append(Accepted(given.event_id, "rejected", str(error)))
                continue
            results.append(Accepted(given.event_id, "expired"))
            if now <= feedback.event.late_until:
                verified.append(feedback)
                positions.append(k)
        if verified:
            statuses = await self.writer.submit_feedback(verified)
            reasons = await self._why_rejected([one.event for one, s in zip(verified, statuses) if s == "rejected"])
            for k, feedback, status in zip(positions, verified, statuses):
                reason = reasons[feedback.event.id] if status == "rejected" else ""
                results[k] = Accepted(events[k].event_id, status, reason)
                self._statuses[feedback.event.surface_id, status] += 1
        return results

    async def _verify(self, given: FeedbackEvent) -> VerifiedFeedback:
        """Returns the feedback with the event of its token; raises InvalidToken."""
        event = await self.secrets.read(given.token)
        if event.id.hex() != given.event_id:
            raise InvalidToken("the token belongs to another event")
        served = await self._served_for(event)
        if served is None:
            raise InvalidToken(NO_SURFACE)
        if served.surface.settings.objective == "rewards" or given.rewards:
            return verified_rewards(served.surface, event, given)
        clicks = 0
        for slot in given.clicks:
            if not 0 <= slot < len(event.items):
                raise InvalidToken(f"there is no slot {slot}; the page has {len(event.items)}")
            clicks |= 1 << slot
        return VerifiedFeedback(event=event, clicks=clicks, final=given.final)

    async def _why_rejected(self, events: Sequence[Event]) -> dict[bytes, str]:
        """Returns why the store has rejected feedback on each of these events, by id; reads the store at most twice."""
        deleted: set[bytes] = set()
        if events:
            with suppress(Unavailable):
                deleted = await in_thread(self._store.deleted_ids, [event.id for event in events])
                await self.catch_up()
        known = self.refresher.by_id
        return {
            event.id: DELETED_EVENT if event.id in deleted else OTHER_LIST if event.surface_id in known else NO_SURFACE
            for event in events
        }

    async def rotate_secret(self, *, actor: str, forget: bool = False) -> int:
        """Signs with a new secret from now on; returns its number. ``forget`` invalidates all earlier tokens."""
        number = await self.secrets.rotate(self._clock(), forget)
        detail = f"number {number}" + ("; all earlier tokens were invalidated" if forget else "")
        await self._admin.write_audit(None, actor, "rotate secret", detail)
        return number

    # Administration of surfaces, by ``SurfaceAdmin``

    def surface(self, name: str) -> Surface:
        """Returns a surface; raises Unknown."""
        return self._admin.surface(name)

    def surfaces(self) -> list[Surface]:
        """Returns all surfaces by name."""
        return self._admin.surfaces()

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        """Creates a surface, or changes the given settings of one and adds new items; returns whether it is new."""
        return await self._admin.put_surface(name, body, actor=actor, if_version=if_version)

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Changes the given settings; all others stay as they are."""
        return await self._admin.patch_surface(name, changes, actor=actor, if_version=if_version)

    async def restart_comparison(self, surface: str, *, actor: str) -> Surface:
        """Starts the comparison of learner and holdout again, with the guard not active; nothing learned is changed."""
        return await self._admin.restart_comparison(surface, actor=actor)

    async def promote(self, surface: str, arm: str, *, actor: str, if_version: int | None = None) -> Surface:
        """Makes the policy of an arm that of the surface, with everything that it has learned; audited.

        Repeating it changes nothing. Raises Unknown if there is no such arm, Conflict if it cannot be promoted.
        """
        return await self._admin.promote(surface, arm, actor=actor, if_version=if_version)

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        """Deletes a surface with everything that belongs to it, except the audit log."""
        await self._admin.delete_surface(name, actor=actor, if_version=if_version)

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Adds an item at the median of the others, or makes a paused or removed one active again."""
        return await self._admin.put_item(surface, item, actor=actor)

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Makes a paused item active again."""
        return await self._admin.resume_item(surface, item, actor=actor)

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Pauses an item."""
        return await self._admin.pause_item(surface, item, actor=actor)

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Removes an item; its counters are kept."""
        return await self._admin.delete_item(surface, item, actor=actor)

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Sets the counters of a segment to zero; of all segments if None."""
        await self._admin.reset(surface, segment=segment, actor=actor)

    async def warm_start(
        self, surface: str, model: Mapping[str, Any], *, rounds: int, segment: str = "", actor: str
    ) -> None:
        """Adds the counters that ``rounds`` rounds would have had if visitors clicked as a fitted model predicts."""
        await self._admin.warm_start(surface, model, rounds=rounds, segment=segment, actor=actor)

    async def start_from_baseline(self, surface: str, *, rounds: int, segment: str = "", actor: str) -> None:
        """Shows the page's own order on most pages of a segment until it has learned from ``rounds`` rounds."""
        await self._admin.start_from_baseline(surface, rounds=rounds, segment=segment, actor=actor)

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        """Deletes a segment with its counters and its log; the default segment can only be reset (Invalid)."""
        await self._admin.delete_segment(surface, segment, actor=actor)
        self.clear_recent()  # clicks on rankings of its events would not be counted
        self._reports.history.forget(self.surface(surface).id)

    def expire_segments(self) -> None:
        """Deletes segments that were not used for a long time. Blocks; called in the refresher thread."""
        for served in list(self.refresher.by_id.values()):
            if not served.fault:
                self._segments.expire(served)

    def watch(self) -> None:
        """Expires segments and checks surfaces. Blocks; called once a minute in the refresher thread."""
        self.expire_segments()
        self._monitor.forget_others(self.refresher.by_id.keys())
        for served in list(self.refresher.by_id.values()):
            self._monitor.check(served.surface)

    # Deletion of events, by ``EventDeletion``

    async def delete_event(self, event_id: str, *, actor: str) -> None:
        """Deletes one event; what was learned from it stays. Raises Unknown."""
        await self._deletion.delete(event_id, actor=actor)

    async def delete_request(self, surface: str, request_id: str, *, actor: str) -> int:
        """Deletes the event of a request, if there is one; returns how many were deleted."""
        return await self._deletion.delete_request(self.surface(surface).id, request_id, actor=actor)

    async def delete_visitor(self, visitor: str, *, actor: str) -> int:
        """Deletes all events of a visitor, on all surfaces; returns how many."""
        return await self._deletion.delete_visitor(visitor, actor=actor)

    async def retention_of(self, surface: str) -> RetentionView:
        """Returns how long events of a surface are kept, and how many were deleted."""
        known = self.surface(surface)
        return retention_view(known.settings, await in_thread(self._store.deleted, known.id))

    def _forget_events(self, ids: Sequence[bytes]) -> None:
        for id in ids:
            self._recent.pop(id, None)

    # Logs

    def export(self, surface: str) -> Iterator[dict[str, Any]]:
        """Yields one row for every slot of every settled event. Blocks while it reads the store."""
        return export_rows(self.surface(surface), self._store)

    async def import_rows(self, surface: str, rows: Iterable[Mapping[str, Any]], *, actor: str) -> Imported:
        """Learns from rows of an export; returns how many events were taken and why others were refused."""
        known = self.surface(surface)
        now = self._clock()
        imported = await in_thread(import_rows, known, rows, self._store, now)
        await in_thread(self.refresher.refresh)
        detail = f"{imported.taken} events taken, {imported.known} known before"
        await self._admin.write_audit(known.id, actor, "import", detail)
        return imported

    # Events, state and reports

    async def event(self, event_id: str) -> EventView:
        """Returns one decision and its outcome; raises Unknown."""
        key = parse_event_id(event_id)
        event = None
        if key is not None:
            unwritten = self.writer.unwritten_decision(key)  # first, because it is written meanwhile
            event = (await in_thread(self._store.find_events, [key])).get(key, unwritten)
        if event is None:
            raise Unknown(f"there is no event {event_id!r}")
        served = await self._served_for(event)
        if served is None:
            raise Unknown(f"the surface of event {event_id!r} is not known here")
        policy = await in_thread(self._store.policy, event.policy_id)
        return event_view(event, served.surface, policy)

    async def state(
        self, surface: str, segment: str = "", arm: str = LEARNER_ARM, limit: int = LISTED_ITEMS
    ) -> StateView:
        """Returns the counters of a segment and the probabilities that are served, of one arm and ``limit`` items.

        The counters include all feedback that was acknowledged before the call.
        """
        if self._shared and segment not in self._admin.served(surface).segments:
            await in_thread(self.refresher.refresh)
        served = self._admin.served(surface)
        if arm != LEARNER_ARM:
            if arm not in served.arms:
                raise Unknown(f"surface {surface!r} has no arm {arm!r}")
            served = served.arms[arm]
        served_segment = served.segments.get(segment)
        if served_segment is None:
            raise Unknown(f"surface {surface!r} has no segment {segment!r}")
        counters, key = served_segment.counters, served.counter_key(segment)
        newer = await in_thread(self._store.segments, served.surface.id, counters.revision)
        counters = next((counters_of(one, served.surface) for one in newer if one.name == key), counters)
        return await in_thread(state_view, served.surface, segment, served_segment, counters, self._clock(), limit)

    async def segments(self, surface: str) -> list[SegmentView]:
        """Returns all segments of a surface by name, the default one first."""
        if self._shared:
            await in_thread(self.refresher.refresh)
        return await in_thread(self._segments.views, self._admin.served(surface))

    async def report(
        self, surface: str, *, since: int | None = None, until: int | None = None, segment: str | None = None
    ) -> ReportView:
        """Returns the report on a time range; the last day by default, all segments together if ``segment`` is None."""
        display = self._admin.served(surface)
        if segment is not None and segment not in display.segments:
            raise Unknown(f"surface {surface!r} has no segment {segment!r}")
        now = self._clock()
        since, until = since if since is not None else now - DAY, until or now
        if since >= until:
            raise Invalid("since must be before until", "/since")
        report = await in_thread(self._make_report, display, segment, since, until, now)
        report["warnings"] += self._warnings()
        return report

    def _make_report(self, display: ServedSurface, segment: str | None, since: int, until: int, now: int) -> ReportView:
        state = surface_state(display, segment, self._statuses[display.surface.id, "duplicate"])
        return reports.surface_report(self._store, ReportRequest(state, segment, since, until, now), self._reports)

    async def headline(self, surface: str) -> Headline:
        """Returns pages, clicks per page and uplift of the last day and of the recent window; reads no events."""
        display, now = self._admin.served(surface), self._clock()
        return await in_thread(lambda: reports.headline(self._store, surface_state(display), now, self._reports))

    # Health

    def health(self) -> EngineHealth:
        """Returns whether the engine is ready, and its measurements. Does not use the store."""
        writers, refresher = self._writers, self.refresher
        reasons = self._warnings()
        if not self._running:
            reasons.append("the engine is not running")
        return {
            "ready": self._running and all(one.is_healthy for one in writers),
            "reasons": reasons,
            "commit_lag_ms": max(one.commit_ms for one in writers),
            "queue_length": sum(one.queue_length for one in writers),
            "solver_ms": refresher.solver_ms,
            "last_error": self._write_error() or refresher.last_error,
            "open_events": self.writer.open_events,
            "changes_detected": refresher.changes.count,
            "leader_takeovers": refresher.comparison.takeovers,
            "leaders_alone": self._leaders_alone(),
            "policy_age_seconds": self._policy_age(),
            "sample_ratio_alarms": len(self._monitor.mismatches),
            "events_deleted": self.retention.count + self._deletion.count,
            "guarded_surfaces": sum(bool(s.surface.guarded) for s in list(self.refresher.by_id.values())),
            "arms": sum(len(s.surface.settings.arms) for s in list(self.refresher.by_id.values())),
            "arms_ahead": len(self._monitor.arms_ahead),
            "arms_behind": len(self._monitor.arms_behind),
        }

    def _warnings(self) -> list[str]:
        warnings = []
        if self._running and not all(writer.is_alive() for writer in self._writers):
            warnings.append("the writer thread has ended; restart the service")
        if self._running and not self.refresher.is_alive():
            warnings.append("the refresher thread, which updates policies, has ended; restart the service")
        if seconds := max(writer.hanging_seconds for writer in self._writers):
            warnings.append(f"the store has not answered for {seconds:.0f} seconds")
        if (error := self._write_error()) is not None:
            warnings.append(f"the store cannot be written: {error}")
        if self.refresher.last_error is not None:
            warnings.append(f"policies are not updated: {self.refresher.last_error}")
        broken = [one for one in list(self.refresher.by_id.values()) if one.fault]
        warnings += [f"surface {one.surface.name!r} cannot be served: {one.fault}" for one in broken[:3]]
        if self.retention.last_error is not None:
            warnings.append(f"old events are not deleted: {self.retention.last_error}")
        if self.refresher.near_overflow:
            names = ", ".join(sorted(self.refresher.near_overflow)[:3])
            warnings.append(f"the losses of {names} are near the largest possible integer; reset these surfaces")
        return warnings

    def _write_error(self) -> str | None:
        return next((writer.last_error for writer in self._writers if writer.last_error is not None), None)

    def _leaders_alone(self) -> int:
        served = [one for surface in list(self.refresher.by_id.values()) for one in surface.learners]
        return sum(segment.counters.wake > 0 for one in served for segment in list(one.segments.values()))

    def _policy_age(self) -> float:
        made = [segment.made_at for s in self.refresher.by_id.values() for segment in list(s.segments.values())]
        return max(0.0, (self._clock() - max(made)) / 1000.0) if made else 0.0


def _slots_of(surface: Surface, event: Event) -> tuple[PlacedItem, ...]:
    """Returns the slots of a stored decision."""
    return tuple(
        PlacedItem(slot, surface.items[item].name, p, bool(event.pinned >> slot & 1), bool(event.learn >> slot & 1))
        for slot, (item, p) in enumerate(zip(event.items, event.p))
    )
