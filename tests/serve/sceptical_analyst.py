"""A sceptical analyst who looks at a surface every five minutes for a week, and writes down everything false.

Visitors are simulated by the minute. Everything that the dashboard says is computed by the service's own code: the
first sentence, both comparisons, the alarm that visitors have changed, the sample ratio and the guard.

    python -m tests.serve.sceptical_analyst --weeks 100
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from math import comb
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec
import numpy as np

from bothworlds.serve.dashboard import text
from bothworlds.serve.engine.housekeeping import Housekeeping
from bothworlds.serve.model import BUCKETS, Surface
from bothworlds.serve.reports.inputs import DAY, HOUR, MINUTE, LearnedState, ReportRequest
from bothworlds.serve.reports.report import ReportCache, headline, shift
from bothworlds.serve.reports.strata import pair_of
from bothworlds.serve.reports.uplift import WHOLE_ALPHA, untrusted, uplift_of
from bothworlds.serve.stores import VisitorSums
from tests.serve.samples import surface_of

START = 1_700_000_000_000 // DAY * DAY + 3 * HOUR + 17 * MINUTE
WEEK = 7 * DAY // MINUTE  # minutes
ARMS = ("learner", "holdout")
COLUMNS = ("events", "settled", "clicks", "clicked", "squares", "answered")


class Week(NamedTuple):
    """Sums per minute and arm (minutes, 2, columns), changes of the share, and the true uplift (None: not known)."""

    minutes: np.ndarray
    changes: tuple[tuple[int, float, float], ...]  # minute, share before, share after
    uplift: float | None
    steady: bool = True  # visitors do not change
    # Of every page, if it has a visitor: minute, arm, bucket, clicks, whether it is her first, and answered.
    pages: np.ndarray | None = None


class WeekStore:
    """The calls of a store that reports and the housekeeping make, over simulated minutes."""

    def __init__(self, week: Week) -> None:
        zero = np.zeros((1, *week.minutes.shape[1:]), np.int64)
        self._sums = np.concatenate([zero, week.minutes.cumsum(axis=0)])
        self._pages = np.zeros((0, 6), np.int64) if week.pages is None else week.pages
        self.now, self.facts = START, dict[str, bytes]()

    def sums(self, since: int, until: int) -> np.ndarray:
        """Return the sums over a range of time, of what has happened until now."""
        first, last = (
            min(max(-(-(at - START) // MINUTE), 0), len(self._sums) - 1) for at in (since, min(until, self.now))
        )
        return self._sums[max(first, last)] - self._sums[first]

    def history(self, surface_id: int, since: int, until: int, step: int) -> list[dict[str, Any]]:
        first, step = since - since % MINUTE, max(MINUTE, step - step % MINUTE)
        buckets = [
            (at, arm, row)
            for at in range(first - first % step, until, step)
            for arm, row in zip(ARMS, self.sums(max(at, first), min(at + step, until)).tolist())
        ]
        named = [{"at": at, "segment": "", "arm": arm, **dict(zip(COLUMNS, row))} for at, arm, row in buckets]
        return [row | {"late": 0} for row in named if row["events"]]

    def visitor_sums(self, surface_id: int, segment: str | None, since: int, until: int) -> VisitorSums:
        pages = self.pages(*(-(-at // HOUR) * HOUR for at in (since, until)))
        sums = [
            np.bincount(pages[:, 1] * BUCKETS + pages[:, 2], pages[:, 3] ** k, 2 * BUCKETS).reshape(2, BUCKETS)
            for k in range(3)
        ]
        table = np.stack(sums, axis=-1).astype(np.int64).tolist()
        found = {arm: {k: tuple(row) for k, row in enumerate(rows) if row[0]} for arm, rows in zip(ARMS, table)}
        return {arm: rows for arm, rows in found.items() if rows}  # type: ignore[misc]

    def pages(self, since: int, until: int) -> np.ndarray:
        """Return the pages with a visitor in a range of time, of those until now."""
        minutes = [(min(at, self.now) - START) // MINUTE for at in (since, until)]
        return self._pages[slice(*np.searchsorted(self._pages[:, 0], minutes))]

    def feedback_counts(self, surface_id: int, since: int, until: int, started: int) -> dict[str, tuple[int, int]]:
        if len(self._pages):
            pages = self.pages(since, until)
            firsts = [pages[(pages[:, 4] == 1) & (pages[:, 1] == arm)] for arm in range(2)]
            return {arm: (len(first), int(first[:, 5].sum())) for arm, first in zip(ARMS, firsts)}
        return {arm: (row[0], row[5]) for arm, row in zip(ARMS, self.sums(since, until).tolist())}

    def get(self, key: str) -> bytes | None:
        return self.facts.get(key)

    def put(self, key: str, value: bytes, *, only_if_absent: bool = False) -> bytes:
        return self.facts.setdefault(key, value) if only_if_absent else self.facts.__setitem__(key, value) or value


def learned_by(store: WeekStore) -> LearnedState:
    """Return the state of a surface whose order has settled as soon as a surface may settle."""
    learner = store.sums(START, store.now)[0]
    table = np.array([[int(learner[2])], [0]])
    return LearnedState(int(learner[1]), table, table, ("a", "b"), *np.full((2, 2, 1), 0.5), "", START)


def false_statements(week: Week, every: int = 5) -> Counter[str]:
    """Return how often something false was said at a look, by kind; and under "found" how often a true difference."""
    share = week.changes[0][1] if week.changes else 0.1
    settings = msgspec.structs.replace(surface_of().settings, holdout=share)
    surface = msgspec.structs.replace(surface_of(), created_at=START, settings=settings)
    store, cache, said = WeekStore(week), ReportCache(), Counter[str]()
    activated: list[Surface] = []
    administration: Any = SimpleNamespace(activate_guard=lambda surface, arm: activated.append(surface) is None)
    given: tuple[Any, ...] = (store, None, None, administration, lambda: store.now, cache.history)
    housekeeping = Housekeeping(*given)  # not started
    shares = [(START + minute * MINUTE, after) for minute, _, after in week.changes]
    for minute in range(every, len(week.minutes), every):
        store.now = START + minute * MINUTE
        while shares and shares[0][0] <= store.now:
            at, after = shares.pop(0)
            surface = msgspec.structs.replace(
                surface,
                settings=msgspec.structs.replace(settings, holdout=after),
                earlier_shares=(*surface.earlier_shares, (at, surface.compared_shares)),
            )
        learned = learned_by(store)
        told = headline(store, surface, learned, store.now)  # type: ignore[arg-type]
        verdict = text.headline_verdict(told)
        strata = cache.history.arms_since_start(store, surface, None, store.now + 1, store.now)  # type: ignore[arg-type]
        whole = uplift_of([pair_of(totals) for totals in strata], WHOLE_ALPHA, surface.compared_since)
        if told["sample_ratio"] and told["sample_ratio"]["alarm"]:
            whole = untrusted(whole)
        for name, uplift in (("from the start", whole), ("recently", told["recent"]["uplift"])):
            if uplift is not None and uplift["enough"] and week.uplift is not None:
                said[f"uplift {name}"] += not uplift["low"] <= week.uplift <= uplift["high"]
                said["found"] += week.uplift * uplift["low"] > 0.0
        said["first sentence"] += verdict.tone != "none" and not (verdict.tone == "good" and (week.uplift or 0.0) > 0.0)
        if minute % 15 == 0:
            request = ReportRequest(surface, learned, None, store.now - DAY, store.now, store.now)
            said["visitors have changed"] += week.steady and shift(store, request)["alarm"]  # type: ignore[arg-type]
        if not activated:
            housekeeping.check(surface)
        said["sample ratio"] += bool(housekeeping.mismatches)
        said["guard"] += bool(activated) and (week.uplift or 0.0) >= 0.0
    return +said


# Weeks


def traffic(pages: float) -> np.ndarray:
    """Return the expected pages of every minute: busy days, quiet nights."""
    return pages * (1.0 + 0.8 * np.sin(2.0 * np.pi * np.arange(WEEK) / 1440.0))


def sums_of(pages: np.ndarray, clicks_per_page: np.ndarray, slots: int, answered: float, rng: Any) -> np.ndarray:
    """Return the columns of one arm, for pages with up to ``slots`` clicks."""
    rate = clicks_per_page / slots
    kinds = np.stack([_binomial_chance(slots, k, rate) for k in range(slots + 1)], axis=-1)
    counts = rng.multinomial(pages, kinds)  # pages with 0, 1, ... clicks
    k = np.arange(slots + 1)
    final = rng.binomial(pages, answered)
    return np.stack([pages, pages, counts @ k, pages - counts[:, 0], counts @ k**2, final], axis=1)


def _binomial_chance(n: int, k: int, p: np.ndarray) -> np.ndarray:
    return comb(n, k) * p**k * (1.0 - p) ** (n - k)


def simple_week(
    rng: Any,
    *,
    uplift: float = 0.0,
    share: Callable[[np.ndarray], np.ndarray] | float = 0.1,
    rate: np.ndarray | float = 0.36,
    changes: tuple[tuple[int, float, float], ...] = (),
    steady: bool = True,
    answered: tuple[float, float] = (0.97, 0.97),
    per_minute: float = 10.0,
) -> Week:
    """Return a week in which pages are independent."""
    minutes = np.arange(WEEK)
    pages = rng.poisson(traffic(per_minute))
    held = rng.binomial(pages, share(minutes) if callable(share) else share)
    rates = np.broadcast_to(rate, WEEK)
    arms = [
        sums_of(count, arm_rates, 3, final, rng)
        for count, arm_rates, final in ((pages - held, rates * (1.0 + uplift), answered[0]), (held, rates, answered[1]))
    ]
    return Week(np.stack(arms, axis=1), changes, uplift, steady)


def same(rng: Any) -> Week:
    """Learner and holdout get the same clicks."""
    return simple_week(rng)


def better(rng: Any) -> Week:
    """The learner gets 15% more clicks."""
    return simple_week(rng, uplift=0.15)


def changed_share(rng: Any) -> Week:
    """The holdout is raised on the third day, when visitors begin to click twice as often; there is no difference."""
    day = 3 * 1440
    rate = np.where(np.arange(WEEK) < day, 0.2, 0.4)
    return simple_week(
        rng,
        share=lambda minutes: np.where(minutes < day, 0.05, 0.5),
        rate=rate,
        changes=((day, 0.05, 0.5),),
        steady=False,
    )


def repeated_visitors(
    rng: Any,
    by_visitor: bool = False,
    identified: bool = False,
    counts: np.ndarray | None = None,
    share: float = 0.1,
) -> Week:
    """Visitors with very different habits see 20 pages each, without an id, so that every page draws its arm anew.

    With ``by_visitor``, all pages of a visitor have the same arm: pages are then not independent units. If they are
    also ``identified``, the service knows which pages belong together. ``counts`` are other numbers of pages.
    """
    counts = np.full(5000, 20) if counts is None else counts
    visitors, pages = len(counts), int(counts.sum())
    who = np.repeat(np.arange(visitors), counts)
    start = rng.integers(0, WEEK - 30, visitors)
    habit = rng.beta(0.3, 1.2, visitors)
    minute = start[who] + rng.integers(0, 30, pages)
    held = rng.random(visitors if by_visitor else pages) < share
    arm = (held[who] if by_visitor else held).astype(int)
    clicks = rng.binomial(3, habit[who])
    answered = rng.random(pages) < 0.97
    columns = [np.ones_like(clicks), np.ones_like(clicks), clicks, clicks > 0, clicks**2, answered]
    cells = 2 * minute + arm
    sums = [np.bincount(cells, column, 2 * WEEK).astype(np.int64).reshape(WEEK, 2) for column in columns]
    bucket = rng.integers(0, BUCKETS, visitors)[who]
    first = np.zeros(pages, bool)
    in_order = np.lexsort((minute, who))
    first[in_order[np.cumsum(counts) - counts]] = True
    known = np.stack([minute, arm, bucket, clicks, first, answered], axis=1)
    known = known[np.argsort(minute, kind="stable")]
    # Without ids, bursts of few visitors cannot be told from visitors who have changed.
    return Week(np.stack(sums, axis=-1), (), 0.0, steady=identified, pages=known if identified else None)


def unequal_counts(rng: Any, visitors: int) -> np.ndarray:
    """Return numbers of pages of very unequal visitors: a Pareto distribution with exponent 1.2, at most 2,000."""
    return np.minimum(np.floor(rng.random(visitors) ** (-1.0 / 1.2)), 2000.0).astype(int)


def unequal_visitors(rng: Any) -> Week:
    """Visitors with ids and very different habits see very different numbers of pages."""
    return repeated_visitors(rng, by_visitor=True, identified=True, counts=unequal_counts(rng, 20_000))


def seasonal(rng: Any, since: int = WEEK, factor: float = 1.0) -> Week:
    """Clicks per page rise and fall by 30% every day; from a minute on, they are multiplied by a factor."""
    minutes = np.arange(WEEK)
    rate = 0.36 * (1.0 + 0.3 * np.sin(2.0 * np.pi * minutes / 1440.0))
    return simple_week(rng, rate=np.where(minutes < since, rate, factor * rate), per_minute=60.0)


def identified_visitors(rng: Any) -> Week:
    """Visitors with very different habits see 20 pages each and have an id, so that they stay in one arm."""
    return repeated_visitors(rng, by_visitor=True, identified=True)


def lost_feedback(rng: Any) -> Week:
    """The page loses a third of the feedback of the holdout: those pages settle without a click."""
    week = simple_week(rng, answered=(0.97, 0.65))
    kept = rng.binomial(week.minutes[:, 1, 2], 0.67)
    week.minutes[:, 1, 2] = week.minutes[:, 1, 4] = kept
    return week._replace(uplift=None)


SCENARIOS: dict[str, Callable[[Any], Week]] = {
    "same": same,
    "better": better,
    "changed share": changed_share,
    "repeated visitors": repeated_visitors,
    "identified visitors": identified_visitors,
    "unequal visitors": unequal_visitors,
    "seasonal": seasonal,
    "lost feedback": lost_feedback,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weeks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scenario", choices=[*SCENARIOS], action="append")
    given = parser.parse_args()
    for name in given.scenario or SCENARIOS:
        weeks = Counter[str]()
        for k in range(given.weeks):
            weeks.update(false_statements(SCENARIOS[name](np.random.default_rng([given.seed, k]))).keys())
        kinds = ", ".join(f"{kind} in {count}" for kind, count in sorted(weeks.items())) or "nothing"
        print(f"{name}: of {given.weeks} weeks, said {kinds}", flush=True)


if __name__ == "__main__":
    main()
