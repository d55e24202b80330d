"""Where pages have visitors, the intervals of a report are those of visitors; those of pages would be too narrow."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from bothworlds.serve.dashboard import svg
from bothworlds.serve.dashboard.text import surface_verdict
from bothworlds.serve.model import LEARNER_ARM
from bothworlds.serve.reports.inputs import DAY, HOUR, MINUTE, ReportRequest
from bothworlds.serve.reports.report import ReportCache, surface_report
from bothworlds.serve.reports.uplift import PageTotals, arm_summary
from bothworlds.serve.stores import DeletedEvents
from tests.serve.running import answer, refreshed, with_engine, written
from tests.serve.samples import surface_of
from tests.serve.sceptical_analyst import START, WeekStore, learned_by, repeated_visitors, unequal_counts

RATE = 3 * 0.2  # clicks per page: three slots, and the mean of the habits


class ReportStore(WeekStore):
    """A simulated week with the other calls of a report; there are no events and no policies."""

    def deleted(self, surface_id):
        return DeletedEvents(0, -1)

    def policies(self, surface_id, number, since, limit):
        return []

    def events(self, surface_id, since, until):
        return iter(())


def report_on(week):
    settings = msgspec.structs.replace(surface_of().settings, holdout=0.3)
    surface = msgspec.structs.replace(surface_of(["a", "b"]), created_at=START, settings=settings)
    store = ReportStore(week)
    store.now = now = START + 7 * DAY - 7 * MINUTE  # within an hour
    request = ReportRequest(surface, learned_by(store), None, START, now, now)
    return store, surface_report(store, request, ReportCache())


def covers(interval):
    return interval[0] <= RATE <= interval[1]


def bands(series, effect=None):
    """Whether the bands of the chart of the learner cover; with other design effects if given."""
    series = [point | ({"design_effect": effect} if effect else {}) for point in series]
    points = svg.merge_points(series, LEARNER_ARM, 20)
    return [covers((point.low, point.high)) for point in points if point.low is not None]


@pytest.mark.parametrize(
    ("counts", "weeks", "least", "by_page"),
    [(lambda rng: np.full(1500, 20), 60, 0.92, 0.8), (lambda rng: unequal_counts(rng, 6000), 100, 0.85, 0.6)],
    ids=["equal", "very unequal"],
)
def test_intervals_of_a_report_cover_where_pages_have_visitors(rng, counts, weeks, least, by_page):
    shown, from_pages, drawn, drawn_from_pages = [], [], [], []
    for _ in range(weeks):
        week = repeated_visitors(rng, by_visitor=True, identified=True, counts=counts(rng), share=0.3)
        store, report = report_on(week)
        for arm, sums in zip(("headline", "holdout"), store.sums(START, store.now).tolist()):
            if report[arm]["interval"] is not None:
                shown.append(covers(report[arm]["interval"]))
                from_pages.append(covers(arm_summary(PageTotals(sums[1], sums[2], sums[4]))["interval"]))
        drawn += bands(report["series"])
        drawn_from_pages += bands(report["series"], 1.0)
    assert len(shown) > 0.4 * weeks
    assert np.mean(shown) > least
    assert np.mean(drawn) > least
    # The broken twins: intervals and bands from pages.
    assert np.mean(from_pages) < by_page
    assert np.mean(drawn_from_pages) < 0.85


@with_engine(holdout=0.3)
async def test_no_page_is_left_out_after_the_comparison_was_restarted_within_the_hour(engine, store, clock):
    """Also pages of the minute that has not ended; and no date is before the comparison."""
    clock.at += DAY - clock.at % DAY + 5 * HOUR + 10 * MINUTE
    for k in range(100):
        await answer(engine, await engine.rank("home", f"before {k}", visitor=f"v{k}"), [0])
    clock.at += MINUTE
    await engine.administration.restart_comparison("home", actor="test")
    restarted = clock.at
    clock.at += 2 * MINUTE
    for k in range(600):
        await answer(engine, await engine.rank("home", f"after {k}", visitor=f"v{k % 300}"), [0] if k % 3 else [])
        clock.at += 100
    await written(engine)
    await refreshed(engine)
    report = await engine.reports.report("home")
    assert report["uplift"]["enough"]
    assert report["uplift"]["missing"] == ""
    recent = report["recent"]
    assert recent["headline"]["pages"] + recent["holdout"]["pages"] == 600
    assert recent["since"] >= report["uplift"]["since"] == restarted
    assert recent["uplift"]["enough"]


@with_engine(holdout=0.3)
async def test_an_arm_with_many_pages_of_few_visitors_is_not_said_to_lack_clicks(engine, store, clock):
    for k in range(300):
        await answer(engine, await engine.rank("home", f"r{k}", visitor=f"v{k % 20}"), [0])
        clock.at += 100
    await written(engine)
    await refreshed(engine)
    report = await engine.reports.report("home")
    assert "equally active visitors, and 30 are needed" in report["uplift"]["missing"]
    assert "clicks" not in report["uplift"]["missing"]
    settled = report | {"learning": report["learning"] | {"settled": True}}
    assert "equally active visitors" in surface_verdict(settled).sentence
    assert (
        min(point["at"] for point in report["series"]) >= engine.registry.surface("home").created_at // MINUTE * MINUTE
    )
