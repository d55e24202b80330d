"""Strata: the times in which the shares of learner and holdout did not change, and the pages of both arms in each.

When the share of the holdout changes, pages before and after it must not be added up: an arm that has more of its pages
at a time with many clicks would seem better than it is. The audit log has the changes. Pages are counted per minute, so
the minute of a change, in which both shares were in use, belongs to no stratum.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ..model import Surface
from ..stores.base import Store
from .inputs import MINUTE
from .uplift import ArmPair, PageTotals, arm_total, segment_rows

__all__ = ["ArmHistory", "ShareChange", "Stratum", "share_changes_in", "stratum_totals"]

FOLLOW_MS = 10_000  # until all processes use a new share
AUDIT_PAGE = 500  # entries read at a time
FROZEN_FOR = 600_000  # milliseconds for which sums over the past are used again
CHANGED_SHARE = re.compile(r"(?:^|[;:] )holdout: ([0-9.e+-]+) -> ([0-9.e+-]+)")


class ShareChange(NamedTuple):
    """A change of the share of requests that get the baseline order."""

    at: int
    before: float
    after: float


class Stratum(NamedTuple):
    """A time in which the share of the holdout did not change; both ends are whole minutes."""

    since: int
    until: int
    share: float


def share_changes_in(entries: Iterable[Mapping[str, Any]]) -> list[ShareChange]:
    """Return the changes of the share in entries of the audit log.

    Entries written before the field ``holdout`` was added have the change in their text.

    >>> share_changes_in([{"at": 5, "detail": "floor: 0.01 -> 0.02; holdout: 0.05 -> 0.1"}, {"at": 6}])
    [ShareChange(at=5, before=0.05, after=0.1)]
    """
    changes = []
    for entry in entries:
        if "holdout" in entry:
            changes.append(ShareChange(entry["at"], *map(float, entry["holdout"])))
        elif found := CHANGED_SHARE.search(entry.get("detail", "")):
            changes.append(ShareChange(entry["at"], float(found[1]), float(found[2])))
    return changes


def strata_between(surface: Surface, changes: Sequence[ShareChange], since: int, until: int) -> list[Stratum]:
    """Return the strata of a range of time; ``changes`` are in the order of time."""
    shares = [changes[0].before if changes else surface.share, *(change.after for change in changes)]
    starts = [_minute(surface.created_at), *(_minute(change.at + FOLLOW_MS + MINUTE - 1) for change in changes)]
    ends = [*(_minute(change.at) for change in changes), until]
    if surface.comparison_restarted_at is not None:  # the minute of the restart belongs to no comparison
        since = max(since, surface.comparison_restarted_at + MINUTE - 1)
    strata = (
        Stratum(max(start, _minute(since)), min(end, until), share) for start, end, share in zip(starts, ends, shares)
    )
    return [stratum for stratum in strata if stratum.since < stratum.until]


def stratum_totals(store: Store, surface_id: int, segment: str | None, stratum: Stratum) -> ArmPair:
    """Return the settled pages of learner and holdout in a stratum; raises StoreError."""
    since, until, _ = stratum
    rows = segment_rows(store.history(surface_id, since, until, until - since + MINUTE), segment)
    return arm_total(rows, "learner"), arm_total(rows, "holdout")


class ArmHistory:
    """The pages of both arms by stratum, with caches, so that open dashboards do not read the whole history again.

    Any thread may call it. Two threads that miss a cache at the same time both read the store. All methods raise
    StoreError.
    """

    def __init__(self) -> None:
        self._changes: dict[int, tuple[int, tuple[ShareChange, ...]]] = {}  # with the newest id that was read
        self._past: dict[tuple[int, str | None, Stratum], tuple[int, ArmPair]] = {}  # with the time of reading

    def share_changes(self, store: Store, surface_id: int) -> tuple[ShareChange, ...]:
        """Return all changes of the share of the holdout, in the order of time; reads new audit entries only."""
        newest, known = self._changes.get(surface_id, (-1, ()))
        entries: list[dict[str, Any]] = []
        before: int | None = None
        size = AUDIT_PAGE if newest < 0 else 1  # usually there is no new entry
        while page := store.audit(surface_id, size, before):
            new = [entry for entry in page if entry["id"] > newest]
            entries += new
            if len(new) < len(page) or len(page) < size:
                break
            before, size = page[-1]["id"], AUDIT_PAGE
        if entries:
            known = (*known, *share_changes_in(reversed(entries)))
            self._changes[surface_id] = (entries[0]["id"], known)
        return known

    def forget(self, surface_id: int) -> None:
        """Reads the pages of a surface again: some of them were deleted."""
        self._past = {key: kept for key, kept in list(self._past.items()) if key[0] != surface_id}

    def strata(self, store: Store, surface: Surface, since: int, until: int) -> list[Stratum]:
        """Return the strata of a surface in a range of time."""
        return strata_between(surface, self.share_changes(store, surface.id), since, until)

    def totals(self, store: Store, surface: Surface, segment: str | None, since: int, until: int) -> list[ArmPair]:
        """Return the pages of both arms in every stratum of a range of time."""
        strata = self.strata(store, surface, since, until)
        return [stratum_totals(store, surface.id, segment, stratum) for stratum in strata]

    def since_start(self, store: Store, surface: Surface, segment: str | None, until: int, now: int) -> list[ArmPair]:
        """Return the pages of both arms in every stratum since their comparison started.

        Pages that can no longer get a click are read again after ``FROZEN_FOR`` only.
        """
        settings = surface.settings
        open_ms = round(1000 * (settings.attribution_seconds + settings.late_seconds)) + FROZEN_FOR
        frozen = (now - open_ms) // FROZEN_FOR * FROZEN_FOR
        self._past = {key: kept for key, kept in list(self._past.items()) if 0 <= now - kept[0] < FROZEN_FOR}
        pairs = []
        for stratum in self.strata(store, surface, surface.compared_since, until):
            past = stratum._replace(until=min(stratum.until, max(frozen, stratum.since)))
            rest = stratum._replace(since=past.until)
            parts = [self._past_totals(store, surface.id, segment, past, now)] if past.since < past.until else []
            parts += [stratum_totals(store, surface.id, segment, rest)] if rest.since < rest.until else []
            pairs.append((sum_of(pair[0] for pair in parts), sum_of(pair[1] for pair in parts)))
        return pairs

    def _past_totals(self, store: Store, surface_id: int, segment: str | None, past: Stratum, now: int) -> ArmPair:
        key = (surface_id, segment, past)
        kept = self._past.get(key)
        if kept is None:
            kept = self._past[key] = (now, stratum_totals(store, surface_id, segment, past))
        return kept[1]


def sum_of(totals: Iterable[PageTotals]) -> PageTotals:
    """Return the sum of totals.

    >>> sum_of([PageTotals(3, 2, 2), PageTotals(1, 1, 1)])
    PageTotals(pages=4, clicks=3, squares=3)
    """
    return PageTotals(*(sum(column) for column in zip(PageTotals(), *totals)))


def _minute(at: int) -> int:
    return at - at % MINUTE
