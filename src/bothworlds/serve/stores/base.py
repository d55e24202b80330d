"""The contract of a store: what it acknowledged is kept, and every event is counted exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from ..checkpoints import SignedCheckpoint
from ..model import Adjustment, Event, Segment, Status, Surface, VerifiedFeedback
from ..prediction_versions import PredictionVersion
from ..time_blocks import TimeBlock

__all__ = ["BlockKey", "DeletedEvents", "Store", "StoreError", "Unstorable", "VersionConflict", "VisitorSums"]

VisitorSums = dict[str, dict[int, tuple[int, int, int]]]  # arm -> bucket -> pages, clicks, squares of clicks per page
BlockKey = tuple[int, int, int]  # start, until, revision


class DeletedEvents(msgspec.Struct, frozen=True, array_like=True):
    """How many events of a surface were deleted, and the latest creation time of those that were too old.

    All settled events up to ``until`` were deleted, except those that could still get a click at that time.
    """

    events: int = 0
    until: int = -1


class StoreError(Exception):
    """The operation failed (disk full, read-only, database unreachable); everything acknowledged before is safe."""


class Unstorable(ValueError):
    """The database cannot represent a value of the request."""


class VersionConflict(Exception):
    """The surface was changed since it was read."""


class Store(Protocol):
    """The storage that the engine needs. All calls block and may come from any thread.

    Every call that writes is one transaction, which is durable when the call returns, with these exceptions: data of
    ``save_events``, ``save_policy`` and ``admit_segment`` survives kill -9 but is not synced to disk (a token carries
    the decision, a policy can be computed again); ``import_events`` writes 1000 events per transaction.

    A call that raises StoreError can be retried, because events are counted once. Before retrying ``adjust``, read the
    audit log: the connection may have broken just after the commit.

    The engine calls ``apply_feedback`` and ``save_events`` from its writer thread only, with whole batches (group
    commit), and all other methods from any thread. Several processes can share a PostgreSQL store; a SQLite file
    belongs to one process.
    """

    def close(self) -> None:
        """Closes all connections; every later call raises StoreError."""
        ...

    # Facts: small values of the service such as secrets.

    def get(self, key: str) -> bytes | None:
        """Returns the value of a fact, or None if it is absent."""
        ...

    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes:
        """Writes a fact and returns the value stored afterwards.

        With ``only_if_absent`` an existing value is kept. With ``expected`` the value is written only if the stored one
        equals ``expected`` (compare and swap).
        """
        ...

    # Surfaces and counters

    def surfaces(self) -> list[Surface]:
        """Returns all surfaces in the order of their creation."""
        ...

    def save_surface(
        self, surface: Surface, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]
    ) -> Surface:
        """Inserts a surface (id 0) or updates one, together with adjustments and audit entries; returns it with its id.

        The new id is also written into the adjustments and audit entries. The caller assigns item indices. Raises
        VersionConflict unless ``surface.version`` is one more than the stored version, or if the name exists.
        """
        ...

    def revision(self) -> int:
        """Returns a number that grows with every change of a surface or segment by any process; cheap."""
        ...

    def segments(self, surface_id: int, since: int = -1) -> list[Segment]:
        """Returns the segments of a surface whose revision is greater than ``since``, with their counters."""
        ...

    def adjust(self, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]) -> None:
        """Applies adjustments and writes audit entries."""
        ...

    def adjust_by(
        self,
        surface_id: int,
        make: Callable[[list[Segment]], Sequence[Adjustment]],
        audit: Sequence[dict[str, Any]],
    ) -> None:
        """Applies the adjustments that ``make`` returns for the current segments, while nobody else counts.

        The time of a reset is moved forward if it is earlier than an event whose counts it removes.
        """
        ...

    def segment_names(self, surface_id: int) -> set[str]:
        """Returns the keys of the stored counters of a surface (``model.counter_key``)."""
        ...

    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool:
        """Creates a segment if it does not exist; returns False if there are ``limit`` segments already.

        The default segment "" is always admitted and counts towards the limit.
        """
        ...

    def delete_segments(
        self,
        surface_id: int,
        revisions: Mapping[str, int | None],
        make: Callable[[list[Segment]], tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]],
    ) -> set[str]:
        """Deletes segments and returns the names of those deleted.

        ``make`` returns the adjustments that set their counters to zero, and audit entries. A segment that does not
        exist, or is not at the given revision (None: any), is skipped.
        """
        ...

    def adjustments(self) -> Iterator[Adjustment]:
        """Yields all adjustments in the order in which they were applied."""
        ...

    # Blocks of time and numbers of a segment

    def blocks(
        self, surface_id: int, segment: str, known: Mapping[BlockKey, TimeBlock] | None = None
    ) -> dict[BlockKey, TimeBlock]:
        """Returns the blocks of a segment by key; their sum equals the counters.

        A block with a given key never changes, and those in ``known`` are not read again. Ranges are disjoint, nested
        or equal.
        """
        ...

    def boundaries(self, surface_id: int, segment: str) -> tuple[int, ...]:
        """Returns the seconds at which blocks of a segment are not merged, in order; the first is that of the store."""
        ...

    def compact(self, surface_id: int, segment: str, now: int, least: int = 0) -> int:
        """Merges blocks as far as their age allows at the time ``now`` (in milliseconds); returns the rows saved.

        Changes no sum. Does nothing if fewer than ``least`` rows would be saved, or if another process merges blocks at
        the same time. Not synced to disk.
        """
        ...

    def numbers(self, surface_id: int, segment: str) -> dict[str, int]:
        """Returns the numbers of a segment by name: what was decided once about it and must stay, such as a change."""
        ...

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
        """Writes a number of a segment, with audit entries, if the stored one is as expected (None: there is none).

        Returns whether it was written. A number that is a boundary (``model.BOUNDARIES``) is a second, and is refused
        if a block lies across it. A reset deletes all numbers.
        """
        ...

    # Versions of predicted losses

    def prediction_version(self, surface_id: int, segment: str) -> PredictionVersion | None:
        """Returns the newest version of the predictions of a segment."""
        ...

    def save_prediction_version(
        self, surface_id: int, segment: str, version: PredictionVersion, *, expected: int | None, unused_before: int
    ) -> bool:
        """Writes a version if the newest one has the number ``expected`` (None: there is none); else returns False.

        Also deletes versions of the surface that have no settled events and were replaced before ``unused_before``.
        Returns False if the surface does not exist.
        """
        ...

    # Events

    def save_events(self, events: Sequence[Event]) -> list[Event | None]:
        """Inserts the events that are not stored yet; returns each event as stored, in the order of the arguments.

        An event that was deleted is returned but not stored again. None stands for an event whose surface was deleted.
        """
        ...

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        """Returns the stored events among these ids."""
        ...

    def may_have_event(self, id: bytes) -> bool:
        """Returns False only if no event with this id is stored. Does not block, and raises nothing.

        An id that this process has passed to a method that stores it counts as stored when that method returns.
        """
        ...

    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        """Applies ``settlement.apply_feedback`` to each event and adds its increments exactly once.

        The status is ``rejected`` if the surface does not exist or the event was deleted, ``expired`` if its segment
        was deleted after the event was created.
        """
        ...

    def settle_overdue(self, now: int, limit: int) -> int:
        """Settles up to ``limit`` open events past their deadline; returns how many."""
        ...

    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int:
        """Settles up to ``limit`` open events of a segment created until ``now``, before their deadline as well."""
        ...

    def settled(self, surface_id: int | None = None) -> Iterator[Event]:
        """Yields settled events from one consistent snapshot, for export and verification."""
        ...

    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]:
        """Yields events with ``since <= created_at < until`` by creation time, including open ones."""
        ...

    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        """Returns, for each arm, the events with ``since <= created_at < until``, and those settled by final feedback.

        Of every visitor, only the first event at or after ``started`` is counted: all of them have the same arm.
        Imported events are not counted.
        """
        ...

    def import_events(self, events: Iterable[Event]) -> int:
        """Inserts settled events and counts those that were not stored before; returns how many.

        They are not in the history, nor in the sums by visitors.
        """
        ...

    def oldest_open(self, surface_id: int) -> int | None:
        """Returns when the open event of a surface with the earliest deadline was created; None if none is open."""
        ...

    def open_events(self) -> int:
        """Returns the number of open events."""
        ...

    # Deletion. Counters stay as they are; ``key`` signs the checkpoints that stand in for deleted events.

    def delete_events(
        self,
        ids: Sequence[bytes],
        now: int,
        key: bytes,
        audit: Callable[[Sequence[Event]], Sequence[dict[str, Any]]],
    ) -> int:
        """Deletes the stored events among these ids; returns how many. Each of them is never stored or counted again.

        ``audit`` returns the audit entries for the deleted events, if there are any. An open event is deleted without
        being learned from.
        """
        ...

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
        """Deletes settled events created before ``before`` whose late window ended before ``late_before``.

        Deletes up to ``limit`` of them, the oldest first, and returns how many. ``audit`` returns the audit entries for
        the number of deleted events, if there are any. Forgets the ids of events that ``delete_events`` has deleted,
        where that is as old.
        """
        ...

    def events_of_visitor(self, visitor: bytes, limit: int) -> list[bytes]:
        """Returns the ids of up to ``limit`` stored events with this keyed hash of a visitor."""
        ...

    def deleted_ids(self, ids: Sequence[bytes]) -> set[bytes]:
        """Returns those of these ids that ``delete_events`` has deleted."""
        ...

    def deleted(self, surface_id: int) -> DeletedEvents:
        """Returns how many events of a surface were deleted, and until when."""
        ...

    def checkpoints(self, surface_id: int | None = None) -> Iterator[SignedCheckpoint]:
        """Yields the checkpoints of a surface, or of all."""
        ...

    def delete_surface(self, surface: Surface, audit: Callable[[int], Sequence[dict[str, Any]]]) -> None:
        """Deletes a surface and everything that belongs to it, except the audit log.

        ``audit`` returns the audit entries for the number of deleted events. Raises VersionConflict if the stored
        version is not that of ``surface``.
        """
        ...

    def purge_segment(
        self,
        surface_id: int,
        segment: str,
        now: int,
        audit: Callable[[Sequence[Segment], int], Sequence[dict[str, Any]]],
    ) -> bool:
        """Deletes a segment and everything that belongs to it, except the audit log; False if it does not exist.

        ``audit`` returns the audit entries for the counters of the segment, one for every learner that has some, and
        the number of deleted events. Tokens of its events are not accepted any more.
        """
        ...

    def forget_segments(self, before: int) -> None:
        """Forgets the segments that ``purge_segment`` has deleted before this time; their tokens must have expired."""
        ...

    def forget_visitor_sums(self, surface_id: int, before: int) -> None:
        """Deletes the totals of hours that ended before this time; reports on later hours do not change."""
        ...

    # Keys, audit log, history, policies

    def keys(self) -> list[dict[str, Any]]:
        """Returns all API keys."""
        ...

    def save_key(self, key: dict[str, Any]) -> None:
        """Inserts an API key, or replaces the one with the same ``id``."""
        ...

    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]:
        """Returns audit entries, newest first, each with its ``id``; of all surfaces if ``surface_id`` is None.

        ``before`` continues a listing below this id.
        """
        ...

    def write_audit(self, entries: Sequence[dict[str, Any]]) -> None:
        """Appends audit entries; ``surface_id`` assigns an entry to a surface."""
        ...

    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        """Returns totals per time bucket (``at``, by creation time), segment and arm, without imported events.

        ``events`` counts decisions. The other columns cover settled events: ``settled``, ``shows``, ``clicks``,
        ``clicked`` (events with any click), ``squares`` (sum of squared clicks per event), ``late`` (clicks).
        ``rewards`` and ``reward_squares`` are the sums of rewards, and of squared rewards per event, in units of 2^-20;
        with rewards, clicks are those that were drawn from them. Buckets have ``step`` milliseconds, rounded down to
        whole minutes but at least one.
        """
        ...

    def visitor_sums(self, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
        """Returns totals of settled events with a visitor, of the hours that begin in a range of time.

        Of one segment, or of all of them if it is None. Arms and buckets without such events are left out.
        """
        ...

    def save_policy(self, policy_id: str, surface_id: int, segment: str, at: int, body: bytes) -> None:
        """Stores a policy for the dashboard and for explanations of events.

        Of every segment the last 200 are kept, before them one per minute for an hour, one per hour for a month, and
        then one per day; thinned once a minute.
        """
        ...

    def policy(self, policy_id: str) -> bytes | None:
        """Returns a stored policy, or None."""
        ...

    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]:
        """Returns (at, id, body) of policies since ``since``, oldest first; evenly sampled if more than ``limit``."""
        ...
