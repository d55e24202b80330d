"""A store in memory: the reference for the real stores, and the store of the engine's tests."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
import numpy as np

from bothworlds.serve.checkpoints import SignedCheckpoint
from bothworlds.serve.model import (
    BOUNDARIES,
    RESET,
    Adjustment,
    Event,
    Increments,
    RemovedBlock,
    Segment,
    Status,
    Surface,
    VerifiedFeedback,
    imported_id,
    split_counter_key,
)
from bothworlds.serve.prediction_versions import PredictionVersion, predicted_losses
from bothworlds.serve.rewards import page_squares, redrawn
from bothworlds.serve.settlement import apply_clicks, apply_feedback, increments_of, settle_at_deadline, spread_loss
from bothworlds.serve.stores.base import BlockKey, DeletedEvents, StoreError, VersionConflict, VisitorSums
from bothworlds.serve.time_blocks import TimeBlock, cells_from, encode_cells, folded, second_of
from bothworlds.serve.visitors import bucket_of

F = TypeVar("F", bound=Callable[..., Any])
Counts = dict[tuple[int, int], int]
HOUR = 3_600_000


def safely(method: F) -> F:
    """Serialises calls, and makes them fail while the store is ``broken``."""

    def call(self: FakeStore, *arguments: Any, **named: Any) -> Any:
        with self.lock:
            if self.broken:
                raise StoreError(self.broken)
            return method(self, *arguments, **named)

    return call  # type: ignore[return-value]


def _is_of(key: str, segment: str) -> bool:
    return split_counter_key(key)[0] == segment


class FakeStore:
    """All of ``Store``, with dictionaries. Set ``broken`` to a reason to make every call fail."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.broken = ""
        self.facts: dict[str, bytes] = {}
        self.by_id: dict[int, Surface] = {}
        self.counters: dict[tuple[int, str], Segment] = {}
        self.log: dict[bytes, Event] = {}
        self.made: list[Adjustment] = []
        self.entries: list[dict[str, Any]] = []
        self.api_keys: dict[str, dict[str, Any]] = {}
        self.timed: dict[tuple[int, str], dict[BlockKey, TimeBlock]] = {}
        self.segment_numbers: dict[tuple[int, str], dict[str, int]] = {}
        self.versions: dict[tuple[int, str], list[PredictionVersion]] = {}
        self.saved: list[tuple[str, int, str, int, bytes]] = []
        self.deleted_log: dict[bytes, Event] = {}
        self.purged: dict[tuple[int, str], int] = {}
        self.count = 0
        self.n_surfaces = 0
        self.commits = 0

    def close(self) -> None:
        pass

    @safely
    def get(self, key: str) -> bytes | None:
        return self.facts.get(key)

    @safely
    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        if expected is not None and self.facts.get(key) != expected:
            return self.facts.get(key, b"")
        if not (only_if_absent and key in self.facts):
            self.facts[key] = value
        return self.facts[key]

    @safely
    def surfaces(self) -> list[Surface]:
        return list(self.by_id.values())

    @safely
    def save_surface(
        self, surface: Surface, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]
    ) -> Surface:
        if surface.id == 0:
            if any(other.name == surface.name for other in self.by_id.values()):
                raise VersionConflict(surface.name)
            self.n_surfaces += 1
            surface = msgspec.structs.replace(surface, id=self.n_surfaces)
        elif self.by_id[surface.id].version + 1 != surface.version:
            raise VersionConflict(surface.name)
        self.by_id[surface.id] = surface
        self.count += 1
        self.adjust(adjustments, [{**entry, "surface_id": surface.id} for entry in audit])
        return surface

    @safely
    def revision(self) -> int:
        return self.count

    @safely
    def segments(self, surface_id: int, since: int = -1) -> list[Segment]:
        return [
            msgspec.structs.replace(
                s,
                loss=dict(s.loss),
                shown=dict(s.shown),
                clicked=dict(s.clicked),
                predicted=self._predicted(s),
                settled=dict(s.settled),
            )
            for (owner, _), s in self.counters.items()
            if owner == surface_id and s.revision > since
        ]

    def _predicted(self, segment: Segment) -> Counts:
        known = self.versions.get((segment.surface_id, segment.name), [])
        losses = predicted_losses([(one, segment.settled.get(one.number, 0)) for one in known])
        return {(i, j): int(loss) for (i, j), loss in np.ndenumerate(losses) if loss}

    @safely
    def prediction_version(self, surface_id: int, segment: str) -> PredictionVersion | None:
        return next(reversed(self.versions.get((surface_id, segment), [])), None)

    @safely
    def save_prediction_version(
        self, surface_id: int, segment: str, version: PredictionVersion, *, expected: int | None, unused_before: int
    ) -> bool:
        if surface_id not in self.by_id:
            return False
        known = self.versions.setdefault((surface_id, segment), [])
        if (known[-1].number if known else None) != expected:
            return False
        known.append(version)
        return True

    @safely
    def adjust(self, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]) -> None:
        for adjustment in adjustments:
            self._add(msgspec.structs.replace(adjustment.increments, at=adjustment.at))
            for version, count in adjustment.settled:
                self.counters[where_of(adjustment)].settled[version] += count
            if adjustment.reason == RESET:
                adjustment = self._emptied(adjustment)
            self.made.append(adjustment)
        self.entries += audit

    def _emptied(self, reset: Adjustment) -> Adjustment:
        removed = list(self.timed.pop(where_of(reset), {}).values())[:-1]  # the last one is the reset itself
        self.segment_numbers.pop(where_of(reset), None)
        counters = self.counters[where_of(reset)]
        settled = tuple((version, -count) for version, count in counters.settled.items() if count)
        self.counters[where_of(reset)] = msgspec.structs.replace(counters, settled={})
        kept = [RemovedBlock(one.start, one.until, one.rounds, encode_cells(one.cells), one.mixture) for one in removed]
        return msgspec.structs.replace(reset, removed=tuple(kept), settled=settled)

    @safely
    def adjust_by(
        self,
        surface_id: int,
        make: Callable[[list[Segment]], Sequence[Adjustment]],
        audit: Sequence[dict[str, Any]],
    ) -> None:
        self.adjust(make(self.segments(surface_id)), audit)

    @safely
    def segment_names(self, surface_id: int) -> set[str]:
        return {name for owner, name in self.counters if owner == surface_id}

    @safely
    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool:
        names = {split_counter_key(key)[0] for key in self.segment_names(surface_id)} | {""}
        if segment not in names and len(names) >= limit:
            return False
        if segment not in names:
            self._add(Increments(surface_id=surface_id, segment=segment, rounds=0, cells=()))
        return True

    @safely
    def delete_segments(
        self,
        surface_id: int,
        revisions: Mapping[str, int | None],
        make: Callable[[list[Segment]], tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]],
    ) -> set[str]:
        found = [one for one in self.segments(surface_id) if revisions.get(one.name, -1) in (None, one.revision)]
        if found:
            self.adjust(*make(found))
            self.count += 1
        for one in found:
            del self.counters[surface_id, one.name]
        return {one.name for one in found}

    def _add(self, increments: Increments | None) -> None:
        if increments is None:
            return
        self.count += 1
        key = (increments.surface_id, increments.segment)
        empty = Segment(surface_id=key[0], name=key[1], rounds=0, revision=0, loss={}, shown={}, clicked={})
        self.counters[key] = added(self.counters.get(key, empty), increments, self.count)
        alone = added(empty, increments, 0)
        if alone.rounds or alone.loss:
            second, cells = second_of(increments.at), {k: (alone.loss[k], 0, 0) for k in alone.loss}
            cells |= {k: (alone.loss[k], alone.shown[k], alone.clicked[k]) for k in alone.shown}
            block = TimeBlock(second, second + 1, alone.rounds, cells_from(cells), increments.mixture)
            self.timed.setdefault(key, {})[second, second + 1, self.count] = block

    @safely
    def blocks(
        self, surface_id: int, segment: str, known: Mapping[BlockKey, TimeBlock] | None = None
    ) -> dict[BlockKey, TimeBlock]:
        return dict(self.timed.get((surface_id, segment), {}))

    @safely
    def boundaries(self, surface_id: int, segment: str) -> tuple[int, ...]:
        numbers = self.segment_numbers.get((surface_id, segment), {})
        return (0, *sorted(numbers[name] for name in BOUNDARIES if name in numbers))

    @safely
    def compact(self, surface_id: int, segment: str, now: int, least: int = 0) -> int:
        known = self.timed.get((surface_id, segment), {})
        made = folded(known.values(), second_of(now), self.boundaries(surface_id, segment))
        self.count += 1
        self.timed[surface_id, segment] = {(one.start, one.until, self.count): one for one in made}
        return len(known) - len(made)

    @safely
    def numbers(self, surface_id: int, segment: str) -> dict[str, int]:
        return dict(self.segment_numbers.get((surface_id, segment), {}))

    @safely
    def set_number(
        self,
        surface_id: int,
        segment: str,
        name: str,
        value: int,
        *,
        expected: int | None,
        audit: Sequence[dict[str, Any]] = (),
    ) -> bool:
        numbers = self.segment_numbers.setdefault((surface_id, segment), {})
        ranges = self.timed.get((surface_id, segment), {})
        if numbers.get(name) != expected or any(start < value < until for start, until, _ in ranges):
            return False
        numbers[name] = value
        self.entries += audit
        self._add(Increments(surface_id=surface_id, segment=segment, rounds=0, cells=()))
        return True

    @safely
    def save_events(self, events: Sequence[Event]) -> list[Event | None]:
        self.commits += 1
        return [self._stored(event) for event in events]

    def _stored(self, event: Event) -> Event | None:
        if event.surface_id not in self.by_id:
            return None
        return event if self._status_of_deleted(event) else self.log.setdefault(event.id, event)

    def _status_of_deleted(self, event: Event) -> Status | None:
        if event.id in self.deleted_log:
            return "rejected"
        purged = self.purged.get((event.surface_id, event.segment), -1) >= event.created_at
        return "expired" if purged and event.id not in self.log else None

    def may_have_event(self, id: bytes) -> bool:
        return id in self.log

    @safely
    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        return {key: self.log[key] for key in ids if key in self.log}

    @safely
    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        self.commits += 1
        return [self._apply(given, now) for given in feedback]

    def _apply(self, given: VerifiedFeedback, now: int) -> Status:
        known = self.log.get(given.event.id)
        if given.event.surface_id not in self.by_id:
            return "rejected"
        if (status := self._status_of_deleted(given.event)) is not None:
            return status
        where = (given.event.surface_id, given.event.counter_key)
        resets = [one.at for one in self.made if one.reason == RESET and where_of(one) == where]
        event, increments, status = apply_feedback(known, given, now, max(resets, default=None))
        if known is not None or status != "expired":
            self.log[event.id] = event
            self._add(increments)
        return status

    @safely
    def settle_overdue(self, now: int, limit: int) -> int:
        due = [e for e in self.log.values() if e.settled_at is None and now > e.expires_at][:limit]
        for event in due:
            self.log[event.id], increments = settle_at_deadline(event, now)
            self._add(increments)
        return len(due)

    @safely
    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int:
        due = [
            e for e in self.log.values() if e.settled_at is None and (e.surface_id, e.segment) == (surface_id, segment)
        ]
        for event in due[:limit]:
            after, increments = settle_at_deadline(event, now)
            if after is event:
                after, increments, _ = apply_clicks(event, 0, True, now)
            self.log[event.id] = after
            self._add(increments)
        return len(due[:limit])

    def settled(self, surface_id: int | None = None) -> Iterator[Event]:
        return (e for e in list(self.log.values()) if e.settled_at is not None and surface_id in (None, e.surface_id))

    @safely
    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]:
        found = [e for e in self.log.values() if e.surface_id == surface_id and since <= e.created_at < until]
        return iter(sorted(found, key=lambda event: event.created_at))

    @safely
    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        first: dict[bytes, bytes] = {}  # visitor -> her first event
        every = [e for e in self.events(surface_id, started, until) if e.settled_by != "import"]
        for event in sorted(every, key=lambda event: (event.created_at, event.id)):
            first.setdefault(event.visitor or event.id, event.id)
        found = [e for e in every if e.created_at >= since and first[e.visitor or e.id] == e.id]
        arms = {event.arm for event in found}
        return {
            arm: (sum(e.arm == arm for e in found), sum(e.arm == arm and e.settled_by == "final" for e in found))
            for arm in arms
        }

    def adjustments(self) -> Iterator[Adjustment]:
        return iter(list(self.made))

    @safely
    def import_events(self, events: Iterable[Event]) -> int:
        taken = 0
        for event in events:
            owner = self.log.get(event.id, event).surface_id
            if owner != event.surface_id:
                event = redrawn(msgspec.structs.replace(event, id=imported_id(event.surface_id, event.id.hex())))
            if event.id not in self.log:
                self.log[event.id] = event
                self._add(increments_of(event))
                taken += 1
        return taken

    @safely
    def oldest_open(self, surface_id: int) -> int | None:
        waiting = [e for e in self.log.values() if e.settled_at is None and e.surface_id == surface_id]
        return min((event.created_at for event in waiting), default=None)

    @safely
    def open_events(self) -> int:
        return sum(event.settled_at is None for event in self.log.values())

    # Deletion. There are no checkpoints: the log of deleted events stands in for them.

    @safely
    def delete_events(self, ids: Sequence[bytes], now: int, key: bytes, audit: Callable[..., Any]) -> int:
        found = [self.log.pop(id) for id in ids if id in self.log]
        self.deleted_log |= {event.id: event for event in found}
        self.entries += audit(found) if found else ()
        return len(found)

    @safely
    def delete_old_events(
        self,
        surface_id: int,
        before: int,
        late_before: int,
        limit: int,
        now: int,
        key: bytes,
        audit: Callable[[int], Sequence[dict[str, Any]]],
    ) -> int:
        old = [e for e in self.settled(surface_id) if e.created_at < before and e.late_until < late_before][:limit]
        return self.delete_events([event.id for event in old], now, key, lambda found: audit(len(found)))

    def events_of_visitor(self, visitor: bytes, limit: int) -> list[bytes]:
        return []

    def deleted_ids(self, ids: Sequence[bytes]) -> set[bytes]:
        return {id for id in ids if id in self.deleted_log}

    @safely
    def deleted(self, surface_id: int) -> DeletedEvents:
        return DeletedEvents(sum(event.surface_id == surface_id for event in self.deleted_log.values()))

    def checkpoints(self, surface_id: int | None = None) -> Iterator[SignedCheckpoint]:
        return iter(())

    @safely
    def delete_surface(self, surface: Surface, audit: Callable[..., Any]) -> None:
        if surface.id not in self.by_id or self.by_id[surface.id].version != surface.version:
            raise VersionConflict(surface.name)
        del self.by_id[surface.id]
        self.entries += audit(self._remove(lambda owner, _: owner == surface.id))

    @safely
    def purge_segment(self, surface_id: int, segment: str, now: int, audit: Callable[..., Any]) -> bool:
        found = [one for (id, key), one in self.counters.items() if id == surface_id and _is_of(key, segment)]
        if not found:
            return False
        self.entries += audit(found, self._remove(lambda id, key: id == surface_id and _is_of(key, segment)))
        self.purged[surface_id, segment] = now
        return True

    def _remove(self, chosen: Callable[[int, str], bool]) -> int:
        events = [event.id for event in self.log.values() if chosen(event.surface_id, event.segment)]
        for id in events:
            del self.log[id]
        self.made = [one for one in self.made if not chosen(*where_of(one))]
        for table in (self.counters, self.timed, self.segment_numbers):
            for where in [where for where in table if chosen(*where)]:
                del table[where]  # type: ignore[attr-defined]
        self.count += 1
        return len(events)

    def forget_segments(self, before: int) -> None:
        pass

    def forget_visitor_sums(self, surface_id: int, before: int) -> None:
        pass

    @safely
    def keys(self) -> list[dict[str, Any]]:
        return list(self.api_keys.values())

    @safely
    def save_key(self, key: dict[str, Any]) -> None:
        self.api_keys[key["id"]] = key

    @safely
    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        found = [{**e, "id": k} for k, e in enumerate(self.entries) if surface_id in (None, e.get("surface_id"))]
        return [entry for entry in reversed(found) if before is None or entry["id"] < before][:limit]

    @safely
    def write_audit(self, entries: Sequence[dict[str, Any]]) -> None:
        self.entries += entries

    @safely
    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        sums: dict[tuple[int, str, str], Counter[str]] = {}
        for event in self.events(surface_id, since, until):
            if event.settled_by == "import":
                continue
            total = sums.setdefault((event.created_at - event.created_at % step, event.segment, event.arm), Counter())
            clicks = event.clicks.bit_count()
            total["events"] += 1
            if event.settled_at is not None:
                total.update(settled=1, shows=len(event.items), clicks=clicks, squares=clicks**2, clicked=clicks > 0)
                total["late"] += event.late.bit_count()
                total.update(rewards=sum(event.rewards), reward_squares=page_squares(event.rewards))
        names = ("events", "settled", "shows", "clicks", "clicked", "squares", "late", "rewards", "reward_squares")
        return [
            {"at": at, "segment": segment, "arm": arm, **{name: total[name] for name in names}}
            for (at, segment, arm), total in sorted(sums.items())
        ]

    @safely
    def visitor_sums(self, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
        found: VisitorSums = {}
        for event in self.events(surface_id, -(-since // HOUR) * HOUR, -(-until // HOUR) * HOUR):
            if event.visitor is not None and event.settled_at is not None and segment in (None, event.segment):
                buckets, bucket, clicks = (
                    found.setdefault(event.arm, {}),
                    bucket_of(event.visitor),
                    event.clicks.bit_count(),
                )
                old = buckets.get(bucket, (0, 0, 0))
                buckets[bucket] = (old[0] + 1, old[1] + clicks, old[2] + clicks**2)
        return found

    @safely
    def save_policy(self, policy_id: str, surface_id: int, segment: str, at: int, body: bytes) -> None:
        self.saved.append((policy_id, surface_id, segment, at, body))

    @safely
    def policy(self, policy_id: str) -> bytes | None:
        return next((body for known, *_, body in self.saved if known == policy_id), None)

    @safely
    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]:
        found = [(p[3], p[0], p[4]) for p in self.saved if p[1:3] == (surface_id, segment) and p[3] >= since]
        return found[-limit:]

    def rebuilt(self) -> dict[tuple[int, str], tuple[int, Counts, Counts, Counts]]:
        """The counters as settled events and adjustments say they should be."""
        every = [increments_of(event) for event in self.settled()] + [one.increments for one in self.made]
        found: dict[tuple[int, str], Segment] = {}
        for one in every:
            key = (one.surface_id, one.segment)
            empty = Segment(surface_id=key[0], name=key[1], rounds=0, revision=0, loss={}, shown={}, clicked={})
            found[key] = added(found.get(key, empty), one, 0)
        return {key: plain(segment) for key, segment in found.items()}

    def totals(self) -> dict[tuple[int, str], tuple[int, Counts, Counts, Counts]]:
        """The counters as they are."""
        return {key: plain(segment) for key, segment in self.counters.items()}


def where_of(adjustment: Adjustment) -> tuple[int, str]:
    return adjustment.increments.surface_id, adjustment.increments.segment


def added(segment: Segment, increments: Increments, revision: int) -> Segment:
    loss, shown, clicked = Counter(segment.loss), Counter(segment.shown), Counter(segment.clicked)
    for cell in increments.cells:
        key = (cell.item, cell.slot)
        loss[key] += cell.loss
        shown[key] += cell.shown
        clicked[key] += cell.clicked
    for slot, observed in increments.observed:
        for item, _, charged in spread_loss(increments.eligibility, slot, observed):
            loss[item, slot] += charged
    settled = Counter(segment.settled)
    if increments.version and increments.rounds:
        settled[increments.version] += increments.rounds
    return msgspec.structs.replace(
        segment,
        rounds=segment.rounds + increments.rounds,
        revision=revision,
        loss=dict(loss),
        shown=dict(shown),
        clicked=dict(clicked),
        settled=dict(settled),
    )


def plain(segment: Segment) -> tuple[int, Counts, Counts, Counts]:
    tables = (segment.loss, segment.shown, segment.clicked)
    return segment.rounds, *({key: n for key, n in table.items() if n} for table in tables)  # type: ignore[return-value]
