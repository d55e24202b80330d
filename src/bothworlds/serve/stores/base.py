"""What a store promises: what it has acknowledged is kept, and every event is counted once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from ..model import Adjustment, Event, Report, Segment, Status, Surface

__all__ = ["Store", "StoreError", "Unstorable", "VersionConflict"]


class StoreError(Exception):
    """The store cannot do it now (disk full, read-only, database away); what was acknowledged is safe."""


class Unstorable(ValueError):
    """A value that the database cannot hold: the fault of whoever sent it."""


class VersionConflict(Exception):
    """Somebody else has changed the surface since it was read."""


class Store(Protocol):
    """Blocking calls, safe from several threads; each writing call is one transaction, durable when it returns.

    Exceptions: ``remember`` and ``save_policy`` survive kill -9 but are not synced to disk (a token holds the decision,
    a policy can be computed again), and ``import_events`` writes 1000 events per transaction.
    A call that raises StoreError may be repeated: events are counted once. After ``adjust`` look into the audit log
    before repeating it, since the connection may have broken just after the commit.

    The engine calls ``report`` and ``remember`` from one writer thread with whole batches (group commit), the rest from
    wherever it likes. Several processes may share a PostgreSQL store, and one process a SQLite file.
    """

    def close(self) -> None: ...

    # Small facts: secrets, settings of the service. Values are bytes; None if absent.
    def get(self, key: str) -> bytes | None: ...
    # What is there afterwards; with `expected`, only if that is what was there.
    def put(self, key: str, value: bytes, *, only_if_absent: bool = False, expected: bytes | None = None) -> bytes: ...

    # Surfaces. `save_surface` fails with VersionConflict unless surface.version is one more than what is stored.
    def surfaces(self) -> list[Surface]: ...
    def save_surface(
        self, surface: Surface, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]
    ) -> Surface: ...  # inserts if id == 0, and gives its id to adjustments and audit; item indices are the caller's
    def revision(self) -> int: ...  # grows with every change of a surface or a segment, by any process; cheap

    # Counters
    def segments(self, surface_id: int, since: int = -1) -> list[Segment]: ...  # those with revision > since
    def adjust(self, adjustments: Sequence[Adjustment], audit: Sequence[dict[str, Any]]) -> None: ...
    # `adjust` by what is made of the counters as they are, with nobody counting in between; resets are not dated before
    # anything that they take away.
    def adjust_by(
        self,
        surface_id: int,
        make: Callable[[list[Segment]], Sequence[Adjustment]],
        audit: Sequence[dict[str, Any]],
    ) -> None: ...

    # Segments. Each but the default one ("") takes a place from when it is admitted, or first counted in, until it is
    # deleted. `admit_segment` is False if `limit` segments, the default one included, are there already; like
    # `remember`, it is not synced to disk.
    def segment_names(self, surface_id: int) -> set[str]: ...
    def admit_segment(self, surface_id: int, segment: str, limit: int) -> bool: ...
    # Takes back all that was counted in segments, by the adjustments that `make` returns for them together with audit
    # entries, and frees their places. Segments that are not there, or not at the revision given for them (None: any),
    # are left alone. Returns the names of those deleted.
    def delete_segments(
        self,
        surface_id: int,
        revisions: Mapping[str, int | None],
        make: Callable[[list[Segment]], tuple[Sequence[Adjustment], Sequence[dict[str, Any]]]],
    ) -> set[str]: ...

    # Events
    def remember(self, events: Sequence[Event]) -> list[Event]: ...  # insert those absent; as stored, in order
    def find(self, ids: Sequence[bytes]) -> dict[bytes, Event]: ...
    # settling.reported, exactly once each; `rejected` where the surface is not there
    def report(self, reports: Sequence[Report], now: int) -> list[Status]: ...
    def settle_overdue(self, now: int, limit: int) -> int: ...  # settling.silent for open events; how many
    # Settles open events of a segment that were decided until `now`, without waiting for their deadline; how many
    def settle_segment(self, surface_id: int, segment: str, now: int, limit: int) -> int: ...
    def settled(self, surface_id: int | None = None) -> Iterator[Event]: ...  # streaming, for export and verify
    def events(self, surface_id: int, since: int, until: int) -> Iterator[Event]: ...  # by created_at, open ones too
    def adjustments(self) -> Iterator[Adjustment]: ...
    def import_events(self, events: Iterable[Event]) -> int: ...  # settled ones; counted unless already there
    def open_events(self) -> int: ...

    # Keys (by their "id"), audit (newest first, entries get an "id", "surface_id" finds them), history to show
    def keys(self) -> list[dict[str, Any]]: ...
    def save_key(self, key: dict[str, Any]) -> None: ...
    def audit(self, surface_id: int | None, limit: int, before: int | None = None) -> list[dict[str, Any]]: ...
    def write_audit(self, entries: Sequence[dict[str, Any]]) -> None: ...
    # Per time bucket (at, by created_at), segment and arm: events, and of those that are settled: settled, shows,
    # clicks, clicked (events with any click), squares (sum of squared clicks per event), late (clicks).
    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]: ...
    def save_policy(self, policy_id: str, surface_id: int, segment: str, at: int, body: bytes) -> None: ...
    def policy(self, policy_id: str) -> bytes | None: ...
    # Oldest first, spread evenly if there are more than `limit`. Of a segment the last 200 are kept, before them one a
    # minute for an hour, one an hour for a month, and then one a day; thinned once a minute.
    def policies(self, surface_id: int, segment: str, since: int, limit: int) -> list[tuple[int, str, bytes]]: ...
