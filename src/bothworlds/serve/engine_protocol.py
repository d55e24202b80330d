"""The engine as HTTP and the dashboard see it; the fakes of the tests implement the same protocol."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from .model import LEARNER_ARM, LISTED_ITEMS, Surface
from .schemas import (
    Accepted,
    EngineHealth,
    EventView,
    FeedbackEvent,
    Headline,
    Imported,
    Ranking,
    ReportView,
    RetentionView,
    SegmentView,
    StateView,
)


class EngineProtocol(Protocol):
    """Ranks items, accepts feedback, administers surfaces and reports on them.

    All methods are called in the thread of the event loop. Coroutines wait for the store in other threads; methods that
    are not coroutines return at once, except that the iterator of ``export`` reads the store.

    Methods raise subclasses of ``ServiceError``: Unknown (no such surface, item, segment or event), Invalid, Conflict,
    TooMany and Unavailable (the store failed; nothing was acknowledged). When a coroutine that changes something
    returns, the change is durable and in force in this process.
    """

    async def start(self) -> None:
        """Reads the store, compiles and solves; the engine is ready when this returns."""
        ...

    async def stop(self) -> None:
        """Writes pending decisions and feedback, and stops all threads. The store stays open."""
        ...

    # Ranking and feedback

    def knows(self, surface: str) -> bool:
        """Returns whether this process knows a surface of that name."""
        ...

    async def catch_up(self) -> None:
        """Reads changes that other processes made, if the store is shared."""
        ...

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
        counted: bool = True,
    ) -> Ranking:
        """Returns the list for a request; a repeated request gets the same list, and a visitor keeps her arm.

        A page that is not ``counted`` is neither learned from nor compared.
        """
        ...

    async def feedback(self, events: Sequence[FeedbackEvent]) -> list[Accepted]:
        """Applies feedback; returns one result per event, in order. Accepted feedback is durable."""
        ...

    # Administration

    def surface(self, name: str) -> Surface:
        """Returns a surface."""
        ...

    def surfaces(self) -> list[Surface]:
        """Returns all surfaces by name."""
        ...

    async def put_surface(
        self, name: str, body: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> tuple[Surface, bool]:
        """Creates or changes a surface; returns it and whether it was created."""
        ...

    async def patch_surface(
        self, name: str, changes: Mapping[str, Any], *, actor: str, if_version: int | None = None
    ) -> Surface:
        """Changes settings; all others stay as they are."""
        ...

    async def delete_surface(self, name: str, *, actor: str, if_version: int | None = None) -> None:
        """Deletes a surface with everything that belongs to it, except the audit log."""
        ...

    async def restart_comparison(self, surface: str, *, actor: str) -> Surface:
        """Starts the comparison of learner and holdout again, with the guard not active; nothing learned is changed."""
        ...

    async def promote(self, surface: str, arm: str, *, actor: str, if_version: int | None = None) -> Surface:
        """Makes the policy of an arm that of the surface, with everything that it has learned."""
        ...

    async def put_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Adds an item, or makes a paused or removed one active again."""
        ...

    async def delete_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Removes an item; its counters are kept."""
        ...

    async def pause_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Pauses an item."""
        ...

    async def resume_item(self, surface: str, item: str, *, actor: str) -> Surface:
        """Makes a paused item active again."""
        ...

    async def reset(self, surface: str, *, segment: str | None, actor: str) -> None:
        """Sets the counters of a segment to zero; of all segments if None."""
        ...

    async def start_from_baseline(self, surface: str, *, rounds: int, segment: str = "", actor: str) -> None:
        """Shows the page's own order on most pages of a segment until it has learned from ``rounds`` rounds."""
        ...

    async def segments(self, surface: str) -> list[SegmentView]:
        """Returns all segments of a surface by name, the default one first."""
        ...

    async def delete_segment(self, surface: str, segment: str, *, actor: str) -> None:
        """Deletes a segment with its counters and its log."""
        ...

    async def delete_event(self, event_id: str, *, actor: str) -> None:
        """Deletes one event; what was learned from it stays."""
        ...

    async def delete_request(self, surface: str, request_id: str, *, actor: str) -> int:
        """Deletes the event of a request, if there is one; returns how many were deleted."""
        ...

    async def delete_visitor(self, visitor: str, *, actor: str) -> int:
        """Deletes all events of a visitor, on all surfaces; returns how many were deleted."""
        ...

    async def rotate_secret(self, *, actor: str, forget: bool = False) -> int:
        """Signs with a new secret from now on; returns its number. ``forget`` invalidates all earlier tokens."""
        ...

    # Reading and logs

    async def event(self, event_id: str) -> EventView:
        """Returns one decision and its outcome."""
        ...

    async def state(
        self, surface: str, segment: str = "", arm: str = LEARNER_ARM, limit: int = LISTED_ITEMS
    ) -> StateView:
        """Returns the counters of a segment and the probabilities that are served, of one arm and ``limit`` items."""
        ...

    async def report(
        self, surface: str, *, since: int | None = None, until: int | None = None, segment: str | None = None
    ) -> ReportView:
        """Returns the report on a time range in milliseconds; on all segments together if ``segment`` is None."""
        ...

    async def headline(self, surface: str) -> Headline:
        """Returns the report in one line; cheap."""
        ...

    def health(self) -> EngineHealth:
        """Returns whether the engine is ready, and its measurements."""
        ...

    def export(self, surface: str) -> Iterator[dict[str, Any]]:
        """Yields the header of an export, and one row for every slot of every settled event; see ``export_format``.

        Blocks while it reads the store.
        """
        ...

    async def retention_of(self, surface: str) -> RetentionView:
        """Returns how long events of a surface are kept, and how many are missing in its export."""
        ...

    async def import_rows(self, surface: str, rows: Iterable[Mapping[str, Any]], *, actor: str) -> Imported:
        """Learns from rows of an export; returns how many events were taken and why others were refused."""
        ...
