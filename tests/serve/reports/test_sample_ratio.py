"""Sample ratio mismatch: lost feedback of one arm is found, and honest pages raise no alarm."""

from __future__ import annotations

import asyncio
import logging
from contextlib import contextmanager

import msgspec
import numpy as np
import pytest

from bothworlds.serve.dashboard import text
from bothworlds.serve.model import Surface, SurfaceSettings
from bothworlds.serve.observability.metrics import Metrics
from bothworlds.serve.reports import sample_ratio
from bothworlds.serve.reports.inputs import MINUTE
from bothworlds.serve.reports.sample_ratio import RatioRecord, mismatch_evidence, period_length, updated_ratio
from bothworlds.statistics.sample_ratio import ALARM, log_evidence
from tests.serve.running import answer, refreshed, with_engine, written

HALF_HOUR = 30 * MINUTE


async def visits(engine, clock, rng, numbers, feedback):
    """Pages, one a second, whose visitors click on half of the lists; ``feedback`` decides what the page sends."""
    for number in numbers:
        ranked = await engine.rank("home", f"v{number}")
        clicks = [0] if rng.random() < 0.5 else []
        if feedback(ranked.arm, clicks):
            await answer(engine, ranked, clicks)
        clock.at += 1000


async def settle(engine, store, clock):
    await written(engine)
    clock.at += HALF_HOUR + 2 * MINUTE
    await refreshed(engine)
    await asyncio.to_thread(engine.housekeeping.look)


@contextmanager
def logged():
    """The lines that the service logs."""
    lines, handler = [], logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    logging.getLogger("bothworlds").addHandler(handler)
    yield lines
    logging.getLogger("bothworlds").removeHandler(handler)


def shown(report, headline):
    return [verdict.sentence for verdict in (text.surface_verdict(report), text.headline_verdict(headline))]


@pytest.mark.slow
@with_engine(holdout=0.3)
async def test_a_page_that_loses_the_feedback_of_one_arm_raises_an_alarm_instead_of_an_uplift(engine, store, clock):
    rng = np.random.default_rng(1)
    await visits(engine, clock, rng, range(250), lambda arm, clicks: True)
    await settle(engine, store, clock)
    report = await engine.reports.report("home")
    assert not report["sample_ratio"]["alarm"]
    assert report["uplift"]["enough"]
    assert engine.health()["sample_ratio_alarms"] == 0

    # From now on the page sends the feedback of one list in ten of the holdout.
    with logged() as lines:
        await visits(engine, clock, rng, range(250, 850), lambda arm, clicks: arm == "learner" or rng.random() < 0.1)
        await settle(engine, store, clock)
        await asyncio.to_thread(engine.housekeeping.look)
    assert len([line for line in lines if "sample ratio mismatch on surface 'home'" in line]) == 1
    report, headline = await engine.reports.report("home"), await engine.reports.headline("home")
    ratio = report["sample_ratio"]
    assert ratio["alarm"]
    assert ratio["evidence"] > 1000
    assert ratio["alarm_at"] == clock.at
    assert ratio["holdout"]["answered"] < ratio["holdout"]["pages"] / 2
    assert ratio["learner"]["answered"] == ratio["learner"]["pages"]
    for uplift in (report["uplift"], report["recent"]["uplift"], headline["recent"]["uplift"]):
        assert (uplift["enough"], uplift["relative"], uplift["low"], uplift["high"]) == (False, None, None, None)
    assert all("cannot be trusted" in sentence for sentence in shown(report, headline))
    assert text.comparisons(report) == []
    metrics = Metrics()
    metrics.set_health(engine.health())
    assert b"bothworlds_sample_ratio_alarms 1.0" in metrics.exposition()

    # The alarm stays when feedback comes again, until a person restarts the comparison.
    await visits(engine, clock, rng, range(850, 950), lambda arm, clicks: True)
    await settle(engine, store, clock)
    assert (await engine.reports.report("home"))["sample_ratio"]["alarm"]
    await engine.administration.restart_comparison("home", actor="ann")
    await visits(engine, clock, rng, range(950, 1250), lambda arm, clicks: True)
    await settle(engine, store, clock)
    report = await engine.reports.report("home")
    assert not report["sample_ratio"]["alarm"]
    assert report["uplift"]["enough"]
    assert sum(report["sample_ratio"][arm]["pages"] for arm in ("learner", "holdout")) <= 300
    assert engine.health()["sample_ratio_alarms"] == 0
    assert store.audit(None, 1)[0]["action"] == "restart comparison"


@pytest.mark.slow
@with_engine(holdout=0.3)
async def test_pages_are_counted_once_in_their_stratum_and_after_their_window(engine, store, clock):
    rng = np.random.default_rng(1)
    await visits(engine, clock, rng, range(120), lambda arm, clicks: True)
    await asyncio.to_thread(engine.housekeeping.look)
    counts = (await engine.reports.report("home"))["sample_ratio"]
    assert counts["learner"]["pages"] == counts["holdout"]["pages"] == 0  # more feedback may come
    await settle(engine, store, clock)
    await settle(engine, store, clock)
    counts = (await engine.reports.report("home"))["sample_ratio"]
    assert counts["learner"]["pages"] + counts["holdout"]["pages"] == 120
    await engine.administration.patch_surface("home", {"holdout": 0.9}, actor="test")
    clock.at += 2 * MINUTE
    await visits(engine, clock, rng, range(120, 720), lambda arm, clicks: True)
    await settle(engine, store, clock)
    counts = (await engine.reports.report("home"))["sample_ratio"]
    assert counts["share"] == 0.9
    assert not counts["alarm"]
    assert counts["holdout"]["pages"] > 500


# A thousand surfaces

LOOKS, STEP = 60, 300
SHARE = 0.1


def counted(rng, clicked, answered):
    """Counts of a surface after every look: lists, and those with final feedback, of learner and holdout.

    ``clicked`` has the share of pages with a click of each arm, ``answered`` the chance of final feedback on a page
    without and with a click.
    """
    held = rng.binomial(STEP, SHARE, LOOKS)
    arms = []
    for pages, rate in zip((STEP - held, held), clicked):
        clicks = rng.binomial(pages, rate)
        final = rng.binomial(pages - clicks, answered[0]) + rng.binomial(clicks, answered[1])
        arms.append(np.stack([pages, final], axis=1).cumsum(axis=0).tolist())
    return zip(*arms)


def record_of(learner, holdout, **changes):
    counts = {"learner": tuple(learner), "holdout": tuple(holdout)}
    return RatioRecord(started=0, until=0, shares={"holdout": SHARE}, counts=counts, **changes)


def as_reported(learner, holdout):
    return mismatch_evidence(record_of(learner, holdout)) > ALARM


def by_feedback_alone(learner, holdout):  # the broken twin: takes fewer clicks for lost feedback
    return log_evidence((holdout[1], learner[1]), (SHARE, 1.0 - SHARE)) > ALARM


def alarms(rng, test, surfaces, clicked, answered):
    return sum(any(test(*arms) for arms in counted(rng, clicked, answered)) for _ in range(surfaces))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answered", "clicked"),
    [
        ((0.98, 0.98), (0.3, 0.3)),  # A/A: feedback is lost by chance
        ((0.98, 0.995), (0.5, 0.3)),  # a real difference, and clicks are lost more rarely
        ((0.0, 1.0), (0.5, 0.3)),  # the page sends feedback after clicks only
        ((0.5, 1.0), (0.5, 0.3)),  # half of the pages do
    ],
    ids=["A/A", "difference", "feedback after clicks only", "feedback after clicks on half of the pages"],
)
def test_honest_pages_raise_no_alarm_on_a_thousand_surfaces(rng, answered, clicked):
    assert alarms(rng, as_reported, 250, clicked, answered) <= 1  # 1/1000 by theory


def test_a_test_of_feedback_alone_takes_fewer_clicks_for_lost_feedback(rng):
    assert alarms(rng, by_feedback_alone, 20, (0.5, 0.3), (0.0, 1.0)) == 20
    assert alarms(rng, as_reported, 20, (0.5, 0.3), (0.0, 1.0)) == 0


# Visitors who come again after their events were deleted

DAY = 24 * 60 * MINUTE
GAP = 3 * DAY // 2  # between two visits of one visitor
RETAINING = SurfaceSettings(slots=1, holdout=0.5, retention_days=1, attribution_seconds=60, late_seconds=0)


class LoyalVisitors:
    """The events of visitors who come every ``GAP``, of which a store has those of the last day.

    Of the visitors in the holdout, a share ``lost`` never get a list.
    """

    def __init__(self, rng, lost=0.0):
        self.now, self.held = 0, rng.random(2000) < 0.5
        gone = self.held & (rng.random(2000) < lost)
        self.first = np.where(gone, np.inf, rng.uniform(0, GAP, 2000))

    def visitor_sums(self, surface_id, segment, since, until):
        return {"learner": {0: (1, 0, 0)}}

    def feedback_counts(self, surface_id, since, until, started):
        visits = np.maximum(np.ceil((since - self.first) / GAP), 0)
        at = np.where(np.isfinite(self.first), self.first + GAP * np.nan_to_num(visits, neginf=0.0), np.inf)
        known = np.maximum(started, self.now - DAY)
        counted = (at < until) & ((visits <= 0) | (at - GAP < known))
        return {
            arm: (int(pages.sum()),) * 2
            for arm, pages in (("holdout", counted & self.held), ("learner", counted & ~self.held))
        }


def record_after(visitors, days):
    surface = Surface(id=1, name="", version=1, settings=RETAINING, items=(), created_at=0, changed_at=0)
    record = RatioRecord(started=0, until=0, shares={"holdout": 0.5})
    for _ in range(days):
        visitors.now += DAY
        record = updated_ratio(visitors, surface, record, visitors.now)
    return record


def is_alarmed(visitors, days):
    return record_after(visitors, days).alarm_at is not None


@pytest.mark.slow
def test_visitors_who_come_again_after_retention_raise_no_alarm(rng, monkeypatch):
    assert sum(is_alarmed(LoyalVisitors(rng), 60) for _ in range(100)) <= 1
    assert all(is_alarmed(LoyalVisitors(rng, lost=0.5), 60) for _ in range(20))
    # The broken twin counts a visitor whenever her earlier events are gone.
    monkeypatch.setattr(sample_ratio, "period_length", lambda settings: None)
    assert sum(is_alarmed(LoyalVisitors(rng), 60) for _ in range(20)) >= 5


def test_a_period_ends_only_where_there_are_visitors(rng):
    with_visitors, without = LoyalVisitors(rng), LoyalVisitors(rng)
    without.visitor_sums = lambda *arguments: {}
    records = [record_after(visitors, 20) for visitors in (with_visitors, without)]
    assert records[0].period >= 20
    assert records[1].period == 1
    pages = [sum(counts[0] for counts in record.counts.values()) for record in records]
    assert pages[0] < 2000 < 10_000 < pages[1]


def test_periods_are_shorter_than_retention_and_evidence_is_divided_between_them():
    assert period_length(msgspec.structs.replace(RETAINING, retention_days=None)) is None
    assert DAY - 15 * MINUTE <= period_length(RETAINING) < DAY - MINUTE
    long = msgspec.structs.replace(RETAINING, attribution_seconds=30 * 86400.0)  # events are kept for longer
    assert period_length(long) > 0
    record = record_of((9000, 8900), (700, 690))
    share = mismatch_evidence(msgspec.structs.replace(record, period=3)) - mismatch_evidence(record)
    assert np.exp(share) == pytest.approx(1 / 12)


def test_evidence_of_lost_feedback_and_of_lost_pages_is_found():
    def evidence(learner=(9000, 8900), holdout=(1000, 990), **changes):
        return mismatch_evidence(record_of(learner, holdout, **changes))

    assert evidence() < 0.0
    assert evidence(holdout=(1000, 500)) > ALARM
    assert evidence(learner=(9000, 4500)) > ALARM
    assert evidence(holdout=(700, 690)) > ALARM
    assert evidence(pages_before=20.0) > ALARM  # evidence of earlier shares is added
