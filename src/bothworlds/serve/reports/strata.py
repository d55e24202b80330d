"""Strata: the times in which the shares of learner and holdout did not change, and the pages of both arms in each.

When the share of the holdout changes, pages before and after it must not be added up: an arm that has more of its pages
at a time with many clicks would seem better than it is. Pages are counted per minute, so the minute of a change, in
which both shares were in use, belongs to no stratum.

Pages with visitors are also counted by buckets of visitors, per hour. The rates of a stratum are those of its own
pages; their variance is that per page of all hours that the stratum touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from typing import NamedTuple

from ..model import BASELINE_ARM, LOSS_UNIT, SUMS_KEPT_MS, Arm, Surface
from ..stores import Store
from .inputs import HOUR, MINUTE
from .uplift import ArmPair, PageTotals, segment_rows, sum_rows
from .visitor_buckets import VisitorTotals, visitor_totals

ArmTotals = dict[Arm, PageTotals]  # of every arm that has pages
Shares = dict[Arm, float]  # of the holdout and of the surface's arms; its own policy has the rest

FOLLOW_MS = 10_000  # until all processes use a new share
FROZEN_FOR = 600_000  # milliseconds for which sums over the past are used again


class Stratum(NamedTuple):
    """A time in which the shares of the arms did not change; both ends are whole minutes."""

    since: int
    until: int
    shares: Shares


def strata_between(surface: Surface, since: int, until: int) -> list[Stratum]:
    """Return the strata of a surface in a range of time, from the start of its comparison on."""
    ends = [at for at, _ in surface.earlier_shares]
    starts = [_minute(surface.created_at), *(_minute(at + FOLLOW_MS + MINUTE - 1) for at in ends)]
    shares = [*(shares for _, shares in surface.earlier_shares), surface.compared_shares]
    if surface.comparison_restarted_at is not None:  # the minute of the restart belongs to no comparison
        since = max(since, surface.comparison_restarted_at + MINUTE - 1)
    strata = (
        Stratum(max(start, _minute(since)), min(end, until), of_arms)
        for start, end, of_arms in zip(starts, [*map(_minute, ends), until], shares)
    )
    return [stratum for stratum in strata if stratum.since < stratum.until]


def range_totals(
    store: Store, surface_id: int, segment: str | None, since: int, until: int, kept_since: int = 0
) -> ArmTotals:
    """Return the settled pages of every arm in a range of time; raises StoreError.

    Before ``kept_since`` there may be no sums by visitors: their variance per page is that of the later hours.
    """
    totals = _totals(store, surface_id, segment, since, until)
    first, last = _hour(max(since, kept_since)), _hour(until + HOUR - 1)
    if last <= first:
        last = first + SUMS_KEPT_MS
    sums = store.visitor_sums(surface_id, segment, first, last)
    if not sums:
        return totals
    hourly = _totals(store, surface_id, segment, first, last)
    return {
        arm: total._replace(by_visitor=_by_visitor(sums.get(arm, {}), hourly.get(arm, total)))
        for arm, total in totals.items()
    }


def _totals(store: Store, surface_id: int, segment: str | None, since: int, until: int) -> ArmTotals:
    rows = segment_rows(store.history(surface_id, since, until, until - since + MINUTE), segment)
    return {arm: total for (arm,), total in sum_rows(rows, "arm").items()}


def _by_visitor(sums: Mapping[int, tuple[int, float, float]], total: PageTotals) -> VisitorTotals:
    """Return the pages of an arm by visitors; those that no bucket has are without a visitor."""
    unit = 1.0 / LOSS_UNIT if total.reward_rows else 1
    sums = {bucket: (pages, unit * clicks, unit * squares) for bucket, (pages, clicks, squares) in sums.items()}
    pages, clicks, squares = (sum(column) for column in zip((0, 0, 0), *sums.values()))
    return visitor_totals(sums, total.pages - pages, total.clicks - clicks, total.squares - squares)


def pair_of(totals: ArmTotals, one: Arm | None = None, other: Arm = BASELINE_ARM) -> ArmPair:
    """Return the pages of two arms; the first is all learned pages together if it is None."""
    learned = (total for arm, total in totals.items() if arm != BASELINE_ARM)
    first = sum_of(learned) if one is None else totals.get(one, PageTotals())
    return first, totals.get(other, PageTotals())


def arm_totals(store: Store, surface: Surface, segment: str | None, since: int, until: int) -> list[ArmTotals]:
    """Return the pages of every arm in every stratum of a range of time; raises StoreError."""
    strata = strata_between(surface, since, until)
    return [range_totals(store, surface.id, segment, stratum.since, stratum.until) for stratum in strata]


class ArmHistory:
    """The pages of both arms by stratum, with caches, so that open dashboards do not read the whole history again.

    Any thread may call it. Two threads that miss a cache at the same time both read the store. All methods raise
    StoreError.
    """

    def __init__(self) -> None:
        self._past: dict[tuple[int, str | None, int, int], tuple[int, ArmTotals]] = {}  # with the time of reading

    def arms_since_start(
        self, store: Store, surface: Surface, segment: str | None, until: int, now: int
    ) -> list[ArmTotals]:
        """Return the pages of every arm in every stratum since their comparison started.

        Pages that can no longer get a click are read again after ``FROZEN_FOR`` only.
        """
        settings = surface.settings
        open_ms = round(1000 * (settings.attribution_seconds + settings.late_seconds)) + FROZEN_FOR
        frozen = (now - open_ms) // HOUR * HOUR
        self._past = {key: kept for key, kept in list(self._past.items()) if 0 <= now - kept[0] < FROZEN_FOR}
        found = []
        for stratum in strata_between(surface, surface.compared_since, until):
            middle = min(stratum.until, max(frozen, stratum.since))
            parts = []
            if stratum.since < middle:
                key = surface.id, segment, stratum.since, middle
                kept = self._past.get(key)
                if kept is None:
                    kept = self._past[key] = now, range_totals(store, surface.id, segment, stratum.since, middle)
                parts.append(kept[1])
            if middle < stratum.until:
                parts.append(range_totals(store, surface.id, segment, middle, stratum.until))
            arms = dict.fromkeys(arm for part in parts for arm in part)
            found.append({arm: sum_of(part[arm] for part in parts if arm in part) for arm in arms})
        return found


def sum_of(totals: Iterable[PageTotals]) -> PageTotals:
    """Return the sum of totals.

    >>> sum_of([PageTotals(3, 2, 2), PageTotals(1, 1, 1)])
    PageTotals(pages=4, clicks=3, squares=3, by_visitor=None, reward_rows=0)
    """
    known = list(totals)
    pages, clicks, squares = (sum(column) for column in zip((0, 0, 0), *(total[:3] for total in known)))
    rewarded = sum(total.reward_rows for total in known)
    if all(total.by_visitor is None for total in known):
        return PageTotals(pages, clicks, squares, reward_rows=rewarded)
    return PageTotals(pages, clicks, squares, reduce(VisitorTotals.plus, map(_visitors_of, known)), rewarded)


def _visitors_of(total: PageTotals) -> VisitorTotals:
    """Return the totals by visitors; without them, every page is one without a visitor."""
    return total.by_visitor or visitor_totals({}, total.pages, total.clicks, total.squares)


def _minute(at: int) -> int:
    return at - at % MINUTE


def _hour(at: int) -> int:
    return at - at % HOUR
