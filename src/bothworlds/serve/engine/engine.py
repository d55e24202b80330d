"""The engine: ranks, accepts feedback and learns, over a store. It does not know HTTP.

A list that was drawn before is popped, signed and handed to the recorder, which writes it soon. Feedback is
acknowledged when it is durable. Settled events are learned in the order of their numbers by the policy's own ``learn``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from ..events import Event, Feedback
from ..model import (
    BASELINE_ARM,
    REQUEST_LENGTH,
    SEGMENT,
    VISITOR_LENGTH,
    Arm,
    Invalid,
    Status,
    Unavailable,
    checked_name,
    event_id_of,
    now_ms,
    rfc3339,
    visitor_draw,
    visitor_hash,
)
from ..outcomes import slot_rewards
from ..schemas import Accepted, FeedbackEvent, Ranking
from ..stores import Store, StoreError
from .administration import Administration
from .housekeeping import Housekeeping
from .learning import Learning
from .lists import Lists
from .lists import warm_up as warm_up_lists
from .log import Log
from .recorder import Recorder
from .served import NOBODY, UNCONSTRAINED, Constraints, Registry, Served, ServedLearner, Visitor
from .served import warm_up as warm_up_policies
from .solver import Solver
from .states import States
from .store_calls import Lookup, in_thread, unavailable
from .tokens import InvalidToken, SecretCache
from .views import Reports

MAX_EXCLUDED = 1000
STALE_MS = 1000  # for so long, lists for a context may be of the state before the present one
OTHER_LIST = "the list of this token was lost, and its request was answered with another list since"
NO_SURFACE = "the surface of this event is not known here; it may have been deleted"
DELETED_EVENT = "this event was deleted"


class _Page(NamedTuple):
    """What a request asks for; ``visitor`` is a keyed hash."""

    event_id: bytes
    surface: str
    context: Mapping[str, Any]
    exclude: Sequence[str]
    pins: Mapping[int, str]
    client: str
    visitor: bytes | None
    counted: bool


def _context(segment: str, context: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Returns the labels of a request, with its segment; raises Invalid if it has two."""
    given = context or {}
    if not segment:
        return given
    if given.get(SEGMENT, segment) != segment:
        raise Invalid(f"segment is {segment!r}, but context has the segment {given[SEGMENT]!r}", "/context/segment")
    return {**given, SEGMENT: segment}


class Engine:
    """Ranks the items of surfaces and learns from feedback.

    ``clock`` returns milliseconds since 1970. ``shared`` means that other processes use the same store: changes that
    they make are followed, and repeated requests are looked up in threads.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], int] = now_ms,
        refresh_ms: int = 100,
        refresh_events: int = 100,
        shared: bool = False,
    ) -> None:
        self._store, self._clock, self._shared = store, clock, shared or store.shared
        self._waiting: dict[bytes, asyncio.Future[None]] = {}  # requests that wait for something, by event id
        self._lookup = Lookup(store)
        self._statuses: Counter[tuple[int, Status]] = Counter()  # (surface id, status) -> pieces of feedback
        self.secrets = SecretCache(store)
        self.states = States(store)
        self.registry = Registry(store, self.states, clock, shared=self._shared)
        self.solver = Solver(clock)
        self.learning = Learning(store, self.registry, clock)
        self.recorder = Recorder(
            store,
            self.learning,
            clock,
            refresh_ms=refresh_ms,
            refresh_events=refresh_events,
            follow=self._follow,
        )
        self.reports = Reports(store, self.registry, self.recorder, clock, self.duplicates, self._warnings)
        self.administration = Administration(store, self.registry, self.secrets, clock)
        self.log = Log(store, self.registry, self.recorder, clock, self.secrets)
        history = self.reports.cache.history
        self.housekeeping = Housekeeping(store, self.registry, self.learning, self.administration, clock, history)
        self._running = False

    async def start(self) -> None:
        """Reads the store and compiles; ready when it returns. Raises Unavailable if the store fails."""
        try:
            await asyncio.to_thread(self._open)
        except StoreError as error:
            raise Unavailable(f"the store cannot be read: {error}") from error
        self.recorder.start()
        self.housekeeping.start()
        self._running = True

    def _open(self) -> None:
        self.secrets.load()
        self.learning.open()
        self.registry.refresh()
        warm_up_lists()
        warm_up_policies()

    def _follow(self) -> None:
        """Follows what other processes changed; called in the thread of the recorder."""
        if self._shared:
            self.secrets.follow()
            self.registry.refresh()

    async def stop(self) -> None:
        """Writes what is pending, settles what is due and stops the threads; the store stays open."""
        if self._running:
            self._running = False
            self.housekeeping.stop()
            await asyncio.to_thread(self.housekeeping.join)  # it saves snapshots while the recorder has the lease
            self.recorder.stop()
            self.solver.stop()
            await asyncio.to_thread(self.recorder.join)

    # Ranking

    async def rank(
        self,
        surface: str,
        request_id: str,
        *,
        segment: str = "",
        context: Mapping[str, Any] | None = None,
        exclude: Sequence[str] = (),
        pins: Mapping[int, str] | None = None,
        client: str = "",
        visitor: str = "",
        counted: bool = True,
    ) -> Ranking:
        """Returns the list for a request; a repeated request gets the same list.

        The decision is stored soon after. If this process is killed before, a repeated request may get another list:
        the one that is stored first is valid, and feedback on the other is rejected.

        A visitor stays in the same arm until arms are compared anew; only a keyed hash of their id is kept.
        ``context`` are the visitor's labels, and ``segment`` is the label of that name; ``Ranking.context`` is what is
        learned for. A page that is not ``counted`` is neither learned from nor compared. Raises Unknown, Invalid,
        NotEnough, Unavailable, and TooMany if ``client``, or all clients together, wait for too many lists.
        """
        if not self._running:
            raise Unavailable("the service is not running")
        served = self.registry.surfaces.get(surface)
        if served is None:
            await self.registry.catch_up()
            served = self.registry.served(surface)
        if not 0 < len(request_id) <= REQUEST_LENGTH or not request_id.isprintable():
            checked_name(request_id, "request_id", "/request_id", longest=REQUEST_LENGTH)
        hashed = None
        if visitor:
            checked_name(visitor, "visitor", "/visitor", longest=VISITOR_LENGTH)
            hashed = visitor_hash(visitor, self.secrets.draw_key)
        event_id = event_id_of(served.surface.id, request_id, self.secrets.draw_key)
        given = _context(segment, context)
        page = _Page(event_id, surface, given, exclude, pins or {}, client, hashed, counted)
        if not self._shared and page.event_id not in self._waiting:
            known = self._earlier_ranking(page.event_id)
            if known is not None:
                return known
            if not exclude and not pins and not (SEGMENT in given and served.may_declare_segment):
                arm = self._arm(served, page)
                one, known_as = served.learner(arm), served.visitor(given) if given else NOBODY
                constraints = Constraints(context=known_as.learned) if known_as.learned else UNCONSTRAINED
                lists = one.lists  # another thread may replace them
                if lists is not None and constraints != UNCONSTRAINED:
                    lists = self._cached(served, one, constraints)
                if lists is not None or arm == BASELINE_ARM or one.fault or served.fault:
                    return self._decide(served, one, arm, lists, constraints, known_as, page)
        return await self._rank_later(page)

    async def _rank_later(self, page: _Page) -> Ranking:
        """Returns the list of a request that has to wait: for the store, a segment, or lists.

        Of several requests with the same id, one makes the decision, and the others wait for it.
        """
        while (other := self._waiting.get(page.event_id)) is not None:
            await asyncio.shield(other)
        mine = self._waiting[page.event_id] = asyncio.get_running_loop().create_future()
        try:
            known = await self._looked_up(page.event_id) if self._shared else self._earlier_ranking(page.event_id)
            if known is not None:
                return known
            return self._decide(*await self._prepare(page), page)
        finally:
            del self._waiting[page.event_id]
            mine.set_result(None)

    async def _prepare(self, page: _Page) -> tuple[Served, ServedLearner, Arm, Lists | None, Constraints, Visitor]:
        """Returns what a request is decided with; lists are None where the page's own order is shown."""
        if len(page.exclude) > MAX_EXCLUDED:
            raise Invalid(f"exclude may list {MAX_EXCLUDED} items; got {len(page.exclude)}", "/exclude")
        while True:
            served = self.registry.served(page.surface)
            visitor = served.visitor(page.context)
            if SEGMENT in visitor.labels and served.may_declare_segment:
                await self.administration.declare_segment(page.surface)
                continue
            constraints = served.constraints(page.exclude, page.pins, visitor.learned)
            arm = self._arm(served, page)
            one = served.learner(arm)
            lists = one.lists
            if arm == BASELINE_ARM or served.fault or (lists is None and one.fault):
                lists = None
            elif lists is None:
                await self.solver.publish(served, one)
                continue
            elif constraints != UNCONSTRAINED and (lists := self._cached(served, one, constraints)) is None:
                lists = await self.solver.solve(served, one, constraints, page.client)
            # If the surface was changed meanwhile, it may not allow the same pins and exclusions.
            if self.registry.surfaces.get(page.surface) is served:
                return served, one, arm, lists, constraints, visitor

    def _cached(self, served: Served, one: ServedLearner, constraints: Constraints) -> Lists | None:
        """Returns cached lists with constraints, also outdated ones while new ones are made, unless they are stale."""
        lists = served.cached(one, constraints)
        if lists is None or not served.is_outdated(one, constraints, lists):
            return lists
        newest = one.lists
        if constraints.is_whole and (newest is None or newest.source.made_at - lists.source.made_at > STALE_MS):
            return None
        self.solver.renew(served, one, constraints)
        return lists

    def _arm(self, served: Served, page: _Page) -> Arm:
        """Returns the arm of a request: that of its visitor, or without one, the arm that its own id chooses."""
        if page.visitor is None:
            return served.arm_of(int.from_bytes(page.event_id[:8], "little"))
        return served.arm_of(visitor_draw(served.surface, page.visitor, self.secrets.draw_key))

    def _decide(
        self,
        served: Served,
        one: ServedLearner,
        arm: Arm,
        lists: Lists | None,
        constraints: Constraints,
        visitor: Visitor,
        page: _Page,
    ) -> Ranking:
        """Makes the decision of a page and hands it to the recorder."""
        listed = served.baseline(constraints) if lists is None or arm == BASELINE_ARM else lists.next()
        now = one.used_at = self._clock()
        expires_at = now + served.attribution_ms
        if visitor.unknown:
            served.unknown.update(visitor.unknown)
        event = Event(
            id=page.event_id,
            surface_id=served.surface.id,
            learner_id=one.learner.id,
            arm=arm,
            created_at=now,
            expires_at=expires_at,
            late_until=expires_at + served.late_ms,
            n=served.shape.n_items,
            listed=listed,
            context=visitor.labels,
            visitor=page.visitor,
            counted=page.counted,
        )
        self.recorder.enqueue(event)
        return self._ranking(served, event)

    def _ranking(self, served: Served, event: Event) -> Ranking:
        listed = event.listed
        return Ranking(
            event.id.hex(),
            served.surface.name,
            event.arm,
            listed.policy_id,
            rfc3339(event.expires_at),
            self.secrets.signer.sign(event),
            served.placed(listed),
            event.segment,
            {name: event.context.get(name, "") for name in served.surface.labels},
        )

    # Earlier rankings

    def _earlier_ranking(self, event_id: bytes) -> Ranking | None:
        """Returns the ranking of a request that was answered before, from a store that answers in microseconds.

        A decision is first unwritten and then stored, so that it is found in this order. Raises Unavailable.
        """
        event = self.recorder.unwritten(event_id)
        if event is None:
            try:
                event = self._store.find_events((event_id,)).get(event_id)
            except StoreError as error:
                raise unavailable(error) from error
        return self._ranking_of(event)

    def _ranking_of(self, event: Event | None) -> Ranking | None:
        """Returns the ranking of a stored decision; None if there is none."""
        served = None if event is None else self.registry.by_id.get(event.surface_id)
        if event is None or served is None or event.n > served.shape.n_items:
            return None
        return self._ranking(served, event)

    async def _looked_up(self, event_id: bytes) -> Ranking | None:
        """Returns the ranking of a request that was answered before, in any process. Raises Unavailable."""
        event = self.recorder.unwritten(event_id) or await self._lookup.find(event_id)
        if event is not None:
            await self._served_for(event)
        return self._ranking_of(event)

    async def _served_for(self, event: Event) -> Served | None:
        """Returns the surface of an event, read again if another process has just added its items; None if unknown."""
        served = self.registry.by_id.get(event.surface_id)
        if served is None or event.n > served.shape.n_items:
            await self.registry.catch_up()
            served = self.registry.by_id.get(event.surface_id)
        return served if served is not None and event.n <= served.shape.n_items else None

    # Feedback

    async def feedback(self, events: Sequence[FeedbackEvent]) -> list[Accepted]:
        """Applies feedback; returns one result per event, in order. Accepted feedback is durable.

        An event with an invalid token is rejected alone. Raises TooMany or Unavailable if nothing could be written.
        """
        verified: list[Feedback] = []
        invalid: dict[int, Accepted] = {}  # by place
        for place, given in enumerate(events):
            try:
                verified.append(await self._verify(given))
            except InvalidToken as error:
                invalid[place] = Accepted(given.event_id, "rejected", str(error))
        statuses = await self.recorder.submit(verified) if verified else []
        rejected = [one.event for one, status in zip(verified, statuses) if status == "rejected"]
        reasons = await self._why_rejected(rejected) if rejected else {}
        written = []
        for feedback, status in zip(verified, statuses):
            self._statuses[feedback.event.surface_id, status] += 1
            reason = reasons[feedback.event.id] if status == "rejected" else ""
            written.append(Accepted(feedback.event.id.hex(), status, reason))
        left = iter(written)
        return [invalid.get(place) or next(left) for place in range(len(events))]

    async def _verify(self, given: FeedbackEvent) -> Feedback:
        """Returns the feedback with the event of its token; raises InvalidToken."""
        event = await self.secrets.read(given.token)
        if event.id.hex() != given.event_id:
            raise InvalidToken("the token belongs to another event")
        served = await self._served_for(event)
        if served is None:
            raise InvalidToken(NO_SURFACE)
        slots, name = len(event.listed.items), served.surface.name
        if served.surface.settings.objective == "rewards":
            if given.clicks:
                raise InvalidToken(f"surface {name!r} counts rewards: send rewards instead of clicks")
            try:
                rewards = slot_rewards(given.rewards, slots) if given.rewards else ()
            except ValueError as error:
                raise InvalidToken(str(error)) from error
            return Feedback(event=event, rewards=rewards, shown=given.shown, final=given.final)
        if given.rewards:
            raise InvalidToken(f"surface {name!r} counts clicks: send clicks instead of rewards")
        clicks = 0
        for slot in given.clicks:
            if not 0 <= slot < slots:
                raise InvalidToken(f"there is no slot {slot}; the page has {slots}")
            clicks |= 1 << slot
        return Feedback(event=event, clicks=clicks, shown=given.shown, final=given.final)

    async def _why_rejected(self, events: Sequence[Event]) -> dict[bytes, str]:
        """Returns why the store has rejected feedback on each of these events, by id; reads the store at most twice."""
        deleted: set[bytes] = set()
        with suppress(Unavailable):
            deleted = await in_thread(self._store.deleted_ids, [event.id for event in events])
            await self.registry.catch_up()
        known = self.registry.by_id
        return {
            event.id: DELETED_EVENT if event.id in deleted else OTHER_LIST if event.surface_id in known else NO_SURFACE
            for event in events
        }

    def duplicates(self, surface_id: int) -> int:
        """Returns how many pieces of feedback on a surface reported nothing new, since the start of this process."""
        return self._statuses[surface_id, "duplicate"]

    # Health

    def health(self) -> dict[str, Any]:
        """Returns whether the engine is ready, and its measurements. Does not use the store."""
        recorder, reasons = self.recorder, self._warnings()
        return {
            "ready": self._running and recorder.is_healthy,
            "reasons": reasons if self._running else [*reasons, "the engine is not running"],
            "commit_lag_ms": recorder.commit_ms,
            "queue_length": recorder.queue_length,
            "solver_ms": recorder.refresh_ms,
            "last_error": recorder.last_error or recorder.learning_error,
            "open_events": self.learning.open_events,
            "policy_age_seconds": self._policy_age(),
            "sample_ratio_alarms": len(self.housekeeping.mismatches),
            "guarded_surfaces": sum(bool(surface.guarded) for surface in self.registry.all_surfaces()),
            "arms": sum(len(surface.settings.arms) for surface in self.registry.all_surfaces()),
            "unknown_label_values": sum(served.unknown.total() for served in list(self.registry.by_id.values())),
        }

    def _warnings(self) -> list[str]:
        recorder, warnings = self.recorder, []
        if self._running and not recorder.is_alive():
            warnings.append("the recorder thread, which writes and learns, has ended; restart the service")
        if seconds := recorder.hanging_seconds:
            warnings.append(f"the store has not answered for {seconds:.0f} seconds")
        if recorder.last_error is not None:
            warnings.append(f"the store cannot be written: {recorder.last_error}")
        if recorder.learning_error is not None:
            warnings.append(f"policies are not updated: {recorder.learning_error}")
        if self.housekeeping.last_error is not None:
            warnings.append(f"housekeeping fails: {self.housekeeping.last_error}")
        faults = [(served.surface.name, served.why) for served in list(self.registry.by_id.values()) if served.why]
        return warnings + [f"surface {name!r} shows the page's own order: {fault}" for name, fault in faults[:3]]

    def _policy_age(self) -> float:
        """Returns how many seconds ago the newest lists were made."""
        learners = [one for served in list(self.registry.by_id.values()) for one in list(served.by_learner_id.values())]
        made = [lists.source.made_at for one in learners if (lists := one.lists) is not None]
        return max(0.0, (self._clock() - max(made)) / 1000.0) if made else 0.0
