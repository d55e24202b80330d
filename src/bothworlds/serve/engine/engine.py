"""The engine: rank, feedback, learn, over a store. Knows nothing of HTTP.

A decision is drawn from a policy that is ready, logged with its probabilities, and signed; feedback is acknowledged
when it is durable; policies follow the counters. See ``writer`` and ``refreshing`` for the two threads, ``surfaces``
for what may be changed, ``learner`` for how counters become lists.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ..engine_types import Feedback, Invalid, Ranked, Result, Slot, Unavailable, Unknown
from ..ids import REQUEST_LENGTH, checked_name, event_id_of, now_ms, parse_event_id, seed_of
from ..model import EVERYBODY, Event, Report, Surface
from ..reports import report as reports
from ..reports.inputs import DAY, ReportRequest
from ..reports.item_rates import ItemRateCache
from ..reports.report_types import Headline, SegmentLine, SurfaceReport
from ..stores.base import Store, StoreError
from . import log_rows, views
from .learner import rehearse, sums_of
from .refresher import Refresher
from .report_inputs import surface_state
from .segments import SegmentRegistry
from .served_surface import Choice, Display, signature_of
from .solver import Solver
from .surface_admin import Administration
from .tokens import Forged, open_secrets, rotate_secret
from .writer import Writer, unavailable

__all__ = ["Engine"]

RECENT = 20_000  # decisions kept in memory, for requests that are sent twice
MOST_EXCLUDED = 1000
OTHER_LIST = "the list that this token tells of was lost, and the request has been answered with another one since"
SECRETS_SECONDS = 0.1  # between looks for a secret that a token names
FOLLOW_SECONDS = 5.0  # between looks whether another process has rotated secrets


class Engine(Administration):
    """Ranks the items of surfaces, and learns.

    ``clock`` gives milliseconds since 1970. ``shared`` says that other processes use the same store: then decisions are
    stored before they are returned, so that a request has one list everywhere, and changes made elsewhere are followed.
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
        super().__init__()
        self._store, self._clock, self._shared = store, clock, shared
        self._refresher = Refresher(
            store,
            clock,
            refresh_ms=refresh_ms,
            refresh_events=refresh_events,
            shared=shared,
            look=self._follow_secrets,
            expire=self.expire_segments,
        )
        self._segments = SegmentRegistry(store, self._refresher, clock)
        self._solver = Solver()
        self._admitting = asyncio.Lock()
        self._writer = Writer(store, clock, self._refresher.changed)
        self._recent: dict[bytes, Ranked] = {}
        self._results: Counter[tuple[int, str]] = Counter()
        self._rates = ItemRateCache()
        self._running = False
        self._secrets_read = self._secrets_followed = -math.inf
        self._secrets_guard = threading.Lock()  # who has read them first is first to use them
        self._finding: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read what is stored, compile, solve; ready when it returns."""
        try:
            await asyncio.to_thread(self._open)
        except StoreError as error:
            raise Unavailable(f"the store cannot be read: {error}") from error
        self._writer.start()
        self._refresher.start()
        self._running = True

    def _open(self) -> None:
        self._signer, self._draw_key = open_secrets(self._store)
        self._refresher.load()
        rehearse()

    async def stop(self) -> None:
        """Write what waits and settle what is overdue; the store stays open."""
        if self._running:
            self._running = False
            self._writer.stop()
            self._refresher.stop()
            self._solver.stop()
            await asyncio.to_thread(self._writer.join)
            await asyncio.to_thread(self._refresher.join)

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
    ) -> Ranked:
        """The list for a request; the same list if it is asked for again.

        A segment for which there is no place is served, and logged, as the default segment: ``Ranked.segment`` is the
        one that was used. TooMany if ``client``, or all clients together, wait for too many policies to be solved.
        """
        if not self._running:
            raise Unavailable("the service is not running")
        if not self.knows(surface):
            await self.catch_up()
        display = self._display(surface)
        if not 0 < len(request_id) <= REQUEST_LENGTH or not request_id.isprintable():
            checked_name(request_id, "request_id", "/request_id", longest=REQUEST_LENGTH)
        event_id = event_id_of(display.surface.id, request_id, self._draw_key)
        known = self._recent.get(event_id) or self._stored(display, event_id)
        if known is not None:
            return known
        shelf = display.shelves.get(segment)
        if shelf is not None and not exclude and not pins:
            choice = shelf.plain
        else:
            display, segment, choice = await self._chosen(surface, segment, exclude, pins or {}, client)
        event, slots = self._decided(display, segment, choice, event_id)
        if self._shared:
            stored = await self._writer.remembered(event)
            if stored != event:  # another process was first with this request, or it was sent before
                display = await self._display_of(stored) or display
                event, slots = stored, _told(display.surface, stored)
        else:
            self._writer.remember(event)
        return self._ranked(display, event, slots)

    def _decided(self, display: Display, segment: str, choice: Choice, event_id: bytes) -> tuple[Event, list[Slot]]:
        """Draw a list for an event."""
        seed, now = seed_of(event_id, self._draw_key), self._clock()
        if (shelf := display.shelves.get(segment)) is not None:
            shelf.used_at = now
        held_out = display.holdout and int.from_bytes(seed[16:], "little") < display.holdout
        learner = choice.learner
        drawn = choice.baseline if held_out else learner.draw(seed)
        event = Event(
            id=event_id,
            surface_id=display.surface.id,
            segment=segment,
            arm="holdout" if held_out else "learner",
            policy_id=choice.baseline_id if held_out else learner.id,
            created_at=now,
            expires_at=now + display.attribution_ms,
            late_until=now + display.attribution_ms + display.late_ms,
            items=drawn.items,
            p=drawn.p,
            learn=0 if held_out else learner.learn,
            pinned=learner.pinned,
            eligibility=EVERYBODY if held_out else learner.eligibility,
        )
        return event, drawn.slots

    async def _chosen(
        self, surface: str, segment: str, exclude: Sequence[str], pins: Mapping[int, str], client: str
    ) -> tuple[Display, str, Choice]:
        """The policy for a request, with the surface and the segment that it is of."""
        if len(exclude) > MOST_EXCLUDED:
            raise Invalid(f"exclude may list {MOST_EXCLUDED} items; got {len(exclude)}", "/exclude")
        while True:
            display = self._display(surface)
            signature = signature_of(display, exclude, pins)
            shelf = display.shelves.get(segment)
            if shelf is None:
                segment = await self._admitted(surface, segment)
                continue
            choice = shelf.choice(signature)
            if choice is None:
                choice = await self._solver.solve(display, segment, signature, client)
            # A surface that was changed meanwhile may not allow the same pins and exclusions.
            if choice is not None and self._refresher.displays.get(surface) is display:
                return display, segment, choice

    async def _admitted(self, surface: str, segment: str) -> str:
        """The segment that a request is served as: the default one if there is no place for the one it names."""
        checked_name(segment, "segment", "/segment", empty=True)
        if self._is_full(surface):
            return ""
        async with self._admitting:  # one after the other, or a flood would ask the store for each of its names
            display = self._display(surface)
            if segment in display.shelves:
                return segment
            if self._is_full(surface):
                return ""
            place = (display.surface.id, segment, display.surface.settings.max_segments)
            with suppress(Unavailable):
                if await self._in_thread(self._store.admit_segment, *place):
                    self._refresher.shelf(self._display(surface), segment)
                    return segment
        return ""

    def _is_full(self, surface: str) -> bool:
        display = self._display(surface)
        return len(display.shelves) >= display.surface.settings.max_segments

    def _ranked(self, display: Display, event: Event, slots: list[Slot]) -> Ranked:
        recent = self._recent  # before signing: a token of a secret that is forgotten meanwhile is not kept
        token, name = self._signer.sign(event), display.surface.name
        told = (event.id.hex(), name, event.arm, event.policy_id, event.expires_at, token, slots, event.segment)
        ranked = Ranked(*told)
        recent[event.id] = ranked
        if len(recent) > RECENT:
            del recent[next(iter(recent))]
        return ranked

    def _stored(self, display: Display, event_id: bytes) -> Ranked | None:
        """A decision that was made earlier for the same request; a shared store is asked when it is written to."""
        if self._shared:
            return None
        try:
            found = self._store.find((event_id,)).get(event_id)
        except StoreError as error:
            raise unavailable(error) from error
        return None if found is None else self._ranked(display, found, _told(display.surface, found))

    def knows(self, surface: str) -> bool:
        """Whether there is a surface of that name, as far as this process has heard."""
        return surface in self._refresher.displays

    async def _display_of(self, event: Event) -> Display | None:
        """The surface of an event with all of its items, which another process may have added a moment ago."""
        display = self._refresher.by_id.get(event.surface_id)
        if display is None or max(event.items) >= len(display.surface.items):
            await self.catch_up()
            display = self._refresher.by_id.get(event.surface_id)
        known = display is not None and max(event.items) < len(display.surface.items)
        return display if known else None

    # Feedback

    async def feedback(self, events: Sequence[Feedback]) -> list[Result]:
        """What became of each piece of feedback; what was accepted is durable."""
        reports: list[Report] = []
        results: list[Result] = []
        waiting: list[int] = []
        now = self._clock()
        for k, given in enumerate(events):
            try:
                event = await self._opened(given)
                if await self._display_of(event) is None:
                    raise Forged("the surface of this event is not known here")
                report = _report(given, event)
            except Forged as error:
                results.append(Result(given.event_id, "rejected", str(error)))
                continue
            results.append(Result(given.event_id, "expired"))
            if now <= report.event.late_until:
                reports.append(report)
                waiting.append(k)
        if reports:
            statuses = await self._writer.report(reports)
            for k, report, status in zip(waiting, reports, statuses):
                results[k].status = status
                if status == "rejected":
                    results[k].reason = OTHER_LIST
                self._results[report.event.surface_id, status] += 1
        return results

    async def _opened(self, given: Feedback) -> Event:
        """The event that a token tells of."""
        if not self._signer.knows(given.token):
            await self._find_secret()
        event = self._signer.read(given.token)
        if event.id.hex() != given.event_id:
            raise Forged("the token belongs to another event")
        return event

    async def _find_secret(self) -> None:
        """Another process may have made a new secret; anybody may name one that does not exist, so not too often.

        Everybody waits for the same look, which is made in a thread: a store that is slow must not hold up the others.
        """
        if self._finding is None or self._finding.done():
            if time.monotonic() - self._secrets_read <= SECRETS_SECONDS:
                return
            self._finding = asyncio.create_task(self._in_thread(self._read_secrets))
        await asyncio.shield(self._finding)
        self._secrets_read = time.monotonic()

    def _follow_secrets(self) -> None:
        """Another process may have retired the secret that this one signs with."""
        now = time.monotonic()
        if now - self._secrets_followed > FOLLOW_SECONDS:
            self._secrets_followed = now
            self._read_secrets()

    def _read_secrets(self) -> None:
        with self._secrets_guard:
            before = self._signer.numbers
            self._signer, _ = open_secrets(self._store)
            if not before <= self._signer.numbers:
                self._recent = {}  # their tokens are worth nothing now

    async def rotate_secret(self, *, actor: str, forget: bool = False) -> int:
        """Sign with a new secret from now on; tokens of old ones stay valid unless those are to be forgotten."""
        number = await self._in_thread(rotate_secret, self._store, self._clock(), forget)
        await self._in_thread(self._read_secrets)
        detail = f"number {number}" + ("; all tokens that are out were made worthless" if forget else "")
        await self._note(None, actor, "rotate secret", detail)
        return number

    # What is known

    async def event(self, event_id: str) -> dict[str, Any]:
        """One decision: what was shown and why, and what became of it."""
        key = parse_event_id(event_id)
        found = None if key is None else (await self._in_thread(self._store.find, [key])).get(key)
        if found is None and key is not None and (recent := self._recent.get(key)) is not None:
            with suppress(Forged):  # by a secret that has been forgotten this moment
                found = self._signer.read(recent.token)  # about to be written
        if found is None:
            raise Unknown(f"there is no event {event_id!r}")
        display = await self._display_of(found)
        if display is None:
            raise Unknown(f"the surface of event {event_id!r} is not known here")
        kept = await self._in_thread(self._store.policy, found.policy_id)
        return views.told_of_event(found, display.surface, kept)

    def export(self, surface: str) -> Iterator[dict[str, Any]]:
        """One row for every slot of every settled event."""
        return log_rows.rows_of(self.surface(surface), self._store)

    async def import_rows(self, surface: str, rows: Iterable[Mapping[str, Any]], *, actor: str) -> dict[str, Any]:
        """Learn from rows of the export layout; says how many events were taken, and why others were not."""
        known = self.surface(surface)
        now = self._clock()
        taken = await self._in_thread(log_rows.take_rows, known, rows, self._store, now)
        await self._in_thread(self._refresher.refresh)
        await self._note(known.id, actor, "import", f"{taken['taken']} events taken, {taken['known']} known before")
        return taken

    async def state(self, surface: str, segment: str = "") -> dict[str, Any]:
        """What has been learned of a segment, and what is served."""
        if self._shared and segment not in self._display(surface).shelves:
            await self._in_thread(self._refresher.refresh)
        display = self._display(surface)
        shelf = display.shelves.get(segment)
        if shelf is None:
            raise Unknown(f"surface {surface!r} has no segment {segment!r}")
        # The counters as they are now: whoever was told that feedback is kept must find it here at once.
        newer = await self._in_thread(self._store.segments, display.surface.id, shelf.sums.revision)
        sums = next((sums_of(one, display.surface) for one in newer if one.name == segment), shelf.sums)
        return views.state_of(display.surface, segment, shelf, sums, self._clock())

    async def segments(self, surface: str) -> list[SegmentLine]:
        """All segments of a surface: pages learned from, clicks, last use, and when each expires."""
        if self._shared:
            await self._in_thread(self._refresher.refresh)
        return await self._in_thread(self._segments.listed, self._display(surface))

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        """Forget a segment and free its place; the default segment can only be reset."""
        if segment == "":
            raise Invalid("the default segment cannot be deleted; reset it instead", "/segment")
        async with self._one_at_a_time:
            await self.catch_up()
            known = self.surface(surface)
            if not await self._in_thread(self._segments.delete, known, segment, actor):
                raise Unknown(f"surface {surface!r} has no segment {segment!r}")

    def expire_segments(self) -> None:
        """Delete segments that nobody has used for long; called in the refresher's thread."""
        for display in list(self._refresher.by_id.values()):
            self._segments.expire(display)

    async def report(
        self, surface: str, *, since: int | None = None, until: int | None = None, segment: str | None = None
    ) -> SurfaceReport:
        """Return how a surface does: learner against holdout, items, learning, and whether visitors have changed."""
        display = self._display(surface)
        if segment is not None and segment not in display.shelves:
            raise Unknown(f"surface {surface!r} has no segment {segment!r}")
        now = self._clock()
        since, until = since if since is not None else now - DAY, until or now
        if since >= until:
            raise Invalid("since must be before until", "/since")
        report = await self._in_thread(self._make_report, display, segment, since, until, now)
        report["warnings"] += self._complaints()
        return report

    def _make_report(self, display: Display, segment: str | None, since: int, until: int, now: int) -> SurfaceReport:
        state = surface_state(display, segment, self._results[display.surface.id, "duplicate"])
        return reports.surface_report(self._store, ReportRequest(state, segment, since, until, now), self._rates)

    async def headline(self, surface: str) -> Headline:
        """Return pages, clicks per page and uplift of the last day, and the uplift now; reads no events."""
        display, now = self._display(surface), self._clock()
        return await self._in_thread(lambda: reports.headline(self._store, surface_state(display), now))

    def health(self) -> dict[str, Any]:
        """Whether it is ready, and how it is doing."""
        writer, refresher = self._writer, self._refresher
        reasons = self._complaints()
        if not self._running:
            reasons.append("the engine is not running")
        return {
            "ready": self._running and writer.is_alive() and writer.last_error is None and not writer.silence,
            "reasons": reasons,
            "commit_lag_ms": writer.commit_ms,
            "queue_length": writer.queue_length,
            "solver_ms": refresher.solver_ms,
            "last_error": writer.last_error or refresher.last_error,
            "open_events": writer.open_events,
            "policy_age_seconds": self._policy_age(),
        }

    def _complaints(self) -> list[str]:
        said = []
        if self._running and not self._writer.is_alive():
            said.append("the writing thread has ended; start the service again")
        if self._running and not self._refresher.is_alive():
            said.append("the thread that brings policies up to date has ended; start the service again")
        if silence := self._writer.silence:
            said.append(f"the store has not answered for {silence:.0f} seconds")
        if self._writer.last_error is not None:
            said.append(f"the store cannot be written to: {self._writer.last_error}")
        if self._refresher.last_error is not None:
            said.append(f"policies are not brought up to date: {self._refresher.last_error}")
        if self._refresher.full:
            names = ", ".join(sorted(self._refresher.full)[:3])
            said.append(f"the losses of {names} are near the largest number that fits; reset them")
        return said

    def _policy_age(self) -> float:
        made = [shelf.made_at for d in self._refresher.by_id.values() for shelf in list(d.shelves.values())]
        return max(0.0, (self._clock() - max(made)) / 1000.0) if made else 0.0


def _report(given: Feedback, event: Event) -> Report:
    clicks = 0
    for slot in given.clicks:
        if not 0 <= slot < len(event.items):
            raise Forged(f"there is no slot {slot}; the page has {len(event.items)}")
        clicks |= 1 << slot
    return Report(event=event, clicks=clicks, final=given.final)


def _told(surface: Surface, event: Event) -> list[Slot]:
    """What was told of a stored decision."""
    return [
        Slot(slot, surface.items[item].name, p, bool(event.pinned >> slot & 1), bool(event.learn >> slot & 1))
        for slot, (item, p) in enumerate(zip(event.items, event.p))
    ]
