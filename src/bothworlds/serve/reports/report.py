"""The report on a surface: learner against holdout, items, learning, and whether visitors have changed.

Pages come from the store's history, which is updated as events settle; counts of items from the counters; weighted
click rates from a bounded number of the latest events. No report scans the whole log. The calls block on the store:
the engine makes them in a worker thread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from ...policies.marginals import most_shown_rows
from ..model import (
    LISTED_ITEMS,
    Surface,
    sums_kept_since,
)
from ..schemas import (
    Headline,
    Learning,
    Marginals,
    MarginalsThen,
    RecentWindow,
    ReportView,
    SampleRatio,
    SeriesPoint,
    Shift,
    Uplift,
)
from ..stores import Store
from .arm_comparison import arm_lines
from .exploration_cost import exploration_cost, why_unsettled
from .guard import guard_view
from .inputs import (
    DAY,
    HOUR,
    MINUTE,
    LearnedState,
    ReportRequest,
    bucket_length,
    missing_events_warning,
    retention_view,
    segment_alpha,
)
from .item_rates import ItemLinesCache
from .recent_window import WindowTotals, recent_window, window_start, window_summary
from .sample_ratio import read_ratio, sample_ratio_view
from .strata import ArmHistory, ArmTotals, pair_of, range_totals, sum_of
from .uplift import (
    SHIFT_ALPHA,
    WHOLE_ALPHA,
    PageTotals,
    arm_summary,
    design_effect,
    segment_rows,
    shift_between,
    spent,
    sum_rows,
    untrusted,
    uplift_of,
)

SNAPSHOTS = 12  # of the marginals over time
NOT_USED = "it was not requested since the service was started"
LONG_RUN = 7  # days that recent pages are compared with


class ReportCache:
    """What reports on the same surface share: lines of items, and pages of both arms."""

    def __init__(self) -> None:
        self.items, self.history = ItemLinesCache(), ArmHistory()


class _Progress(TypedDict):
    rounds: int
    exploration: float | None
    settled: bool
    unsettled: str


def surface_report(store: Store, request: ReportRequest, cache: ReportCache) -> ReportView:
    """Return the whole report; raises StoreError if the store cannot be read."""
    surface = request.surface
    history = store.history(surface.id, request.since, request.until, bucket_length(request))
    rows = segment_rows(history, request.segment)
    kept = sums_kept_since(surface, request.now)
    arms = range_totals(store, surface.id, request.segment, request.since, request.until, kept)
    learner, holdout = pair_of(arms)
    has_holdout = surface.settings.holdout > 0.0 or holdout.pages > 0
    rounds = _rounds(request.learned)
    window = recent_window(store, surface, request.segment, request.until, rounds)
    ratio = _ratio(store, surface, has_holdout)
    strata = cache.history.arms_since_start(store, surface, request.segment, request.until, request.now)
    # Since the comparison started, whatever range is requested: one sequence, one error.
    pairs, alpha = [pair_of(totals) for totals in strata], WHOLE_ALPHA * segment_alpha(request.segment)
    uplift = uplift_of(pairs, alpha, surface.compared_since) if has_holdout else None
    items = cache.items.lines(store, request)
    most = sorted(range(len(items)), key=lambda k: -items[k]["shows"])[:LISTED_ITEMS]
    retention = retention_view(surface.settings, store.deleted(surface.id), request.settled)
    return {
        "surface": surface.name,
        "segment": request.segment,
        "since": request.since,
        "until": request.until,
        "headline": arm_summary(learner),
        "holdout": arm_summary(holdout) if has_holdout else None,
        "uplift": _trusted(uplift, ratio),
        "recent": _recent(window, ratio, has_holdout),
        "sample_ratio": ratio,
        "arms": arm_lines(surface, strata, request.segment, ratio is None or not ratio["alarm"]),
        "guard": guard_view(store, surface, request.until) if has_holdout else None,
        "items": [items[k] for k in sorted(most)],
        "items_total": len(items),
        "series": _series(rows, arms, surface),
        "marginals": _marginals(request.learned, surface),
        "marginals_history": _marginals_history(store, request, request.learned),
        "learning": _learning(request, rows, window),
        "shift": shift(store, request),
        "changes": [
            {"changed_at": at, "detected_at": at} for at in request.changes if request.since <= at < request.until
        ],
        "warnings": [*request.warnings, *missing_events_warning(retention, request.since)],
        "retention": retention,
        "segments": sorted({row["segment"] for row in history}),
        "objective": surface.settings.objective,
        **({} if request.feedback is None else {"feedback": request.feedback}),  # type: ignore[typeddict-item]
    }


def headline(store: Store, surface: Surface, learned: LearnedState | None, now: int) -> Headline:
    """Return the figures of the last day and of the recent window, without reading events; raises StoreError.

    It may not be known what was learned.
    """
    learner, holdout = pair_of(range_totals(store, surface.id, None, now - DAY, now + MINUTE))
    has_holdout = surface.settings.holdout > 0.0 or holdout.pages > 0
    window = recent_window(store, surface, None, now, _rounds(learned))
    ratio = _ratio(store, surface, has_holdout)
    return {
        "pages": learner.pages,
        "clicks_per_page": learner.rate if learner.pages else None,
        "recent": _recent(window, ratio, has_holdout),
        "sample_ratio": ratio,
        "guard_since": surface.all_guarded_since,
        "objective": surface.settings.objective,
        **_progress(surface, learned, window),
    }


def _trusted(uplift: Uplift | None, ratio: SampleRatio | None) -> Uplift | None:
    """Return the uplift without its figures if pages or feedback of an arm are missing."""
    return untrusted(uplift) if uplift is not None and ratio is not None and ratio["alarm"] else uplift


def _ratio(store: Store, surface: Surface, has_holdout: bool) -> SampleRatio | None:
    compared = has_holdout or surface.settings.arms
    return sample_ratio_view(read_ratio(store, surface)[0]) if compared else None


def _recent(window: WindowTotals, ratio: SampleRatio | None, has_holdout: bool) -> RecentWindow:
    summary = window_summary(window, has_holdout)
    return {**summary, "uplift": _trusted(summary["uplift"], ratio)}


def _rounds(learned: LearnedState | None) -> int:
    return 0 if learned is None else learned.rounds + learned.other_rounds


def _progress(surface: Surface, learned: LearnedState | None, window: WindowTotals) -> _Progress:
    """Return the progress of learning; with labels, what exploration costs is not known: every context has a list."""
    if learned is None:
        return {"rounds": 0, "exploration": None, "settled": False, "unsettled": NOT_USED}
    rounds, is_labelled = _rounds(learned), bool(surface.labels or surface.item_labels)
    cost = None if is_labelled else exploration_cost(learned)
    unsettled = why_unsettled(rounds, window.learner.pages, cost, cost_is_known=not is_labelled)
    return {"rounds": rounds, "exploration": cost, "settled": not unsettled, "unsettled": unsettled}


def _series(rows: Sequence[Mapping[str, Any]], arms: ArmTotals, surface: Surface) -> list[SeriesPoint]:
    """Return the pages of every arm over time, with the design effect of its visitors in the whole range.

    A visitor comes at most as often in a part of the range as in all of it, so that bands are rather too wide.
    """
    effects = {arm: design_effect(total) for arm, total in arms.items()}
    return [
        {
            "at": max(at, surface.created_at // MINUTE * MINUTE),
            "arm": arm,
            "pages": total.pages,
            "clicks": total.clicks,
            "design_effect": effects.get(arm, 1.0),
        }
        for (at, arm), total in sorted(sum_rows(rows, "at", "arm").items())
    ]


def shift(store: Store, request: ReportRequest) -> Shift:
    """Return whether visitors click as before: the learner's pages since the last hour but one, against those of the
    same hours of the days before, so that the time of day makes no difference.

    Each hour starts a new sequence, and the error is divided between all hours since the surface was created. Where
    pages have visitors, the visitor is the unit.
    """
    surface, now = request.surface, request.now
    start = window_start(HOUR, now)

    def pages(days: int) -> PageTotals:
        since, until = start - days * DAY, now + MINUTE - days * DAY
        return pair_of(range_totals(store, surface.id, request.segment, since, until))[0]

    before = [pages(days) for days in range(1, LONG_RUN + 1) if start - days * DAY >= surface.created_at]
    number = (start - window_start(HOUR, surface.created_at)) // HOUR + 1
    alpha = spent(SHIFT_ALPHA, max(1, number)) * segment_alpha(request.segment)
    return shift_between(pages(0), sum_of(before), alpha)


def _marginals(learned: LearnedState | None, surface: Surface) -> Marginals:
    if learned is None:
        return {"items": [], "slots": surface.settings.slots, "x": [], "context": {}}
    rows = most_shown_rows(learned.marginals, LISTED_ITEMS)
    x, context = learned.marginals[rows], {name: learned.context.get(name, "") for name in surface.labels}
    return {"items": [learned.items[row] for row in rows], "slots": x.shape[1], "x": x.tolist(), "context": context}


def _marginals_history(store: Store, request: ReportRequest, learned: LearnedState | None) -> list[MarginalsThen]:
    """Return earlier marginals for a visitor without a context: others are not stored."""
    if learned is None or learned.context:
        return []
    history: list[MarginalsThen] = []
    names = [learned.items[row] for row in most_shown_rows(learned.marginals, LISTED_ITEMS)]
    number = request.surface.learner_of(request.surface.first_arm)
    for at, _, encoded in store.policies(request.surface.id, number, request.since, SNAPSHOTS):
        policy = msgspec.msgpack.decode(encoded)
        row_of = dict(zip(policy["items"], policy["x"]))
        history.append({"at": at, "x": [row_of.get(item) for item in names]})
    return history


def _learning(request: ReportRequest, rows: Sequence[Mapping[str, Any]], window: WindowTotals) -> Learning:
    learned = request.learned
    return {
        "entropy": learned.entropy if learned else None,
        "entropy_start": math.log(len(learned.items)) if learned and learned.items else None,
        "policy_id": learned.policy_id if learned else "",
        "policy_age_seconds": max(0.0, (request.now - learned.made_at) / 1000.0) if learned else None,
        **_progress(request.surface, learned, window),
        "outstanding": request.outstanding,
        "late": sum(row["late"] for row in rows),
        "duplicates": request.duplicates,
    }
