"""The contract of a store: what it acknowledged is kept, and every event is counted exactly once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..model import Adjustment, Event, Segment, Status, Surface, VerifiedFeedback
from ..prediction_versions import PredictionVersion
from ..time_blocks import TimeBlock

__all__ = ["BlockKey", "Store", "StoreError", "Unstorable", "VersionConflict"]

BlockKey = tuple[int, int, int]  # start, until, revision


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
        """Returns the names of the stored segments of a surface."""
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

        Also deletes versions of the surface made before ``unused_before`` that have no settled events.
        """
        ...

    # Events

    def save_events(self, events: Sequence[Event]) -> list[Event]:
        """Inserts the events that are not stored yet; returns each event as stored, in the order of the arguments."""
        ...

    def find_events(self, ids: Sequence[bytes]) -> dict[bytes, Event]:
        """Returns the stored events among these ids."""
        ...

    def apply_feedback(self, feedback: Sequence[VerifiedFeedback], now: int) -> list[Status]:
        """Applies ``settlement.apply_feedback`` to each event and adds its increments exactly once.

        The status is ``rejected`` if the surface does not exist.
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

    def feedback_counts(self, surface_id: int, since: int, until: int) -> dict[str, tuple[int, int]]:
        """Returns, for each arm, the events with ``since <= created_at < until``, and those settled by final feedback.

        Imported events are not counted.
        """
        ...

    def import_events(self, events: Iterable[Event]) -> int:
        """Inserts settled events and counts those that were not stored before; returns how many."""
        ...

    def oldest_open(self, surface_id: int) -> int | None:
        """Returns when the open event of a surface with the earliest deadline was created; None if none is open."""
        ...

    def open_events(self) -> int:
        """Returns the number of open events."""
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
        """Returns totals per time bucket (``at``, by creation time), segment and arm.

        ``events`` counts decisions. The other columns cover settled events: ``settled``, ``shows``, ``clicks``,
        ``clicked`` (events with any click), ``squares`` (sum of squared clicks per event), ``late`` (clicks). Buckets
        have ``step`` milliseconds, rounded down to whole minutes but at least one.
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
