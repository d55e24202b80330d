"""The report on a surface: its parts, their intervals, and what it leaves open when there are few data."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from bothworlds.serve.events import Event, Listed
from bothworlds.serve.model import Invalid, Unknown
from bothworlds.serve.reports.inputs import DAY, HOUR, MINUTE, ReportRequest
from bothworlds.serve.reports.item_rates import weighted_rates
from bothworlds.serve.reports.recent_window import window_start
from bothworlds.serve.reports.report import shift
from bothworlds.serve.reports.strata import range_totals
from bothworlds.serve.reports.uplift import SHIFT_ALPHA, PageTotals, arm_summary, shift_between, spent, uplift_of
from tests.serve.running import ITEMS, answer, refreshed, visit, with_engine
from tests.serve.samples import surface_of
from tests.serve.sceptical_analyst import START, WEEK, WeekStore, seasonal, simple_week

KEYS = {
    "headline": {"pages", "clicks_per_page", "interval"},
    "learning": {
        "entropy",
        "entropy_start",
        "policy_id",
        "policy_age_seconds",
        "rounds",
        "exploration",
        "settled",
        "unsettled",
        "outstanding",
        "late",
        "duplicates",
    },
    "recent": {"window_seconds", "since", "until", "headline", "holdout", "uplift"},
    "sample_ratio": {"alarm", "evidence", "alarm_at", "share", "learner", "holdout"},
    "shift": {"alarm", "recent", "long_run", "z", "note"},
    "marginals": {"items", "context", "slots", "x"},
}


def simulated_pages(rng: np.random.Generator, rate: float, pages: int) -> PageTotals:
    clicks = rng.binomial(3, rate / 3, pages)
    return PageTotals(pages, int(clicks.sum()), int((clicks**2).sum()))


@with_engine(holdout=0.0)
async def test_the_rate_and_the_counts_of_an_item_are_of_the_same_time(engine, store, clock):
    for likes in (set(), {"b"}):  # at first nobody clicks; then, within the same second, everybody clicks b
        for k in range(40):
            ranked = await engine.rank("home", f"{likes} {k}")
            await answer(engine, ranked, [slot.slot for slot in ranked.slots if slot.item in likes])
        await refreshed(engine)
        lines = (await engine.reports.report("home"))["items"]
        assert [line["clicks"] > 0 for line in lines] == [(line["rate"] or 0.0) > 0.0 for line in lines]
    clock.at += 60_000
    assert [line["name"] for line in (await engine.reports.report("home"))["items"] if line["clicks"]] == ["b"]


@pytest.mark.slow
@with_engine({"refresh_ms": 10**7, "refresh_events": 10**9}, holdout=0.2)  # lists depend on when it refreshes
async def test_a_report_has_all_its_parts_and_is_valid_json(engine, store, clock):
    empty = await engine.reports.report("home")
    assert empty["headline"] == {"pages": 0, "clicks_per_page": None, "interval": None}
    assert empty["uplift"]["relative"] is None
    rng = np.random.default_rng(1)
    for k in range(300):
        ranked = await engine.rank("home", f"v{k}")
        await answer(engine, ranked, [s.slot for s in ranked.slots if rng.random() < (0.8 if s.item == "a" else 0.2)])
        clock.at += 2_000
        if k == 100:
            await refreshed(engine)  # which also stores the policy of that time
    open_one = await engine.rank("home", "open")
    await answer(engine, open_one, [0], final=False)
    await refreshed(engine)
    report = await engine.reports.report("home", since=clock.at - 3_600_000, until=clock.at + 1)
    json.dumps(report, allow_nan=False)
    for part, keys in KEYS.items():
        assert keys == set(report[part])
    arms = store.history(1, 0, clock.at + 1, 10**15)
    assert report["headline"]["pages"] == sum(row["settled"] for row in arms if row["arm"] == "learner")
    assert report["holdout"]["pages"] == sum(row["settled"] for row in arms if row["arm"] == "holdout")
    low, high = report["headline"]["interval"]
    assert low < report["headline"]["clicks_per_page"] < high
    assert sum(point["pages"] for point in report["series"]) == 300
    assert [item["name"] for item in report["items"]] == ITEMS
    best = max(report["items"], key=lambda item: item["rate"] or 0)
    assert best["name"] == "a"
    assert best["low"] < 0.8 < best["high"]
    assert np.isclose(sum(item["share"] for item in report["items"]), 1.0)
    assert report["learning"]["outstanding"] == 1
    assert report["learning"]["entropy"] < report["learning"]["entropy_start"]
    assert len(report["marginals"]["x"]) == 6
    assert len(report["marginals_history"]) > 1
    assert len(report["marginals_history"][0]["x"]) == 6


@with_engine()
async def test_a_report_covers_one_segment_or_all_of_them(engine, store, clock):
    for k in range(30):
        await visit(engine, f"v{k}", {"a"}, segment=["x", "y", "y"][k % 3])
    await refreshed(engine)
    until = clock.at + 1
    pages = {
        s: (await engine.reports.report("home", until=until, segment=s))["headline"]["pages"] for s in ("x", "y", None)
    }
    assert pages == {"x": 10, "y": 20, None: 30}
    assert (await engine.reports.report("home", until=until))["holdout"] is None
    assert "without a holdout" in " ".join((await engine.reports.report("home"))["warnings"])
    assert (await engine.reports.report("home", segment="z"))["headline"]["pages"] == 0
    with pytest.raises(Unknown):
        await engine.reports.report("away")
    with pytest.raises(Invalid):
        await engine.reports.report("home", since=10, until=5)


@with_engine(minimum_exposure=0.5)
async def test_the_report_warns_of_a_minimum_exposure_that_has_become_unreachable(engine, store, clock):
    assert "cannot be reached" not in " ".join((await engine.reports.report("home"))["warnings"])
    await engine.administration.change_item("home", "g", "add", actor="test")
    assert "cannot be reached" in " ".join((await engine.reports.report("home"))["warnings"])
    await engine.administration.patch_surface("home", {"floor": 0.1}, actor="test")


def test_a_few_clicks_are_not_enough_for_an_uplift():
    uplift = uplift_of([(PageTotals(400, 40, 40), PageTotals(100, 9, 9))], 0.05, 7)
    assert not uplift["enough"]
    assert uplift["low"] is None
    assert uplift["needed_pages"] == 334
    assert uplift_of([], 0.05, 7) == {
        "relative": None,
        "low": None,
        "high": None,
        "enough": False,
        "needed_pages": 1000,
        "since": 7,
        "missing": "the learned order has 0 of the 30 clicks needed; the holdout has 0 of the 30 clicks needed",
    }
    assert arm_summary(PageTotals(1, 1, 1))["interval"] is None


def some_events(rng: np.random.Generator, attraction: np.ndarray, x: np.ndarray, count: int) -> list[Event]:
    events = []
    for _ in range(count):
        item = rng.choice(len(attraction), p=x)
        events.append(
            Event(
                id=b"",
                surface_id=1,
                learner_id=1,
                arm="learner",
                created_at=0,
                expires_at=0,
                late_until=0,
                n=len(attraction),
                listed=Listed((int(item),), (float(x[item]),), 1),
                settled_by="final",
                number=1,
                clicks=int(rng.random() < attraction[item]),
            )
        )
    return events


@pytest.mark.slow
def test_intervals_of_weighted_click_rates_cover_the_true_value(rng):
    attraction, covered = np.array([0.5, 0.2, 0.1]), np.zeros(3)
    for _ in range(100):
        x = rng.dirichlet([2, 2, 2]) * 0.7 + 0.1
        rates = weighted_rates(some_events(rng, attraction, x, 400), 4)
        assert rates[3] == (None, None, None)
        for i in range(3):
            _, low, high = rates[i]
            covered[i] += low is None or low <= attraction[i] <= high
    assert (covered > 0.85 * 100).all()


def test_identical_pages_still_give_an_interval_of_positive_width():
    for pages, most in ((7, 1.0), (1000, 0.01)):
        low, high = arm_summary(PageTotals(pages, pages, pages))["interval"]
        assert low < 1.0 < high < 1.0 + most
    assert uplift_of([(PageTotals(200, 200, 200), PageTotals(200, 200, 200))], 0.05, 0)["low"] < 0.0


def alarms(week, every=15, shifted=shift):
    """The minutes of a simulated week in which the report says that visitors have changed."""
    surface = msgspec.structs.replace(surface_of(), created_at=START)
    store, found = WeekStore(week), []
    for minute in range(every, WEEK, every):
        store.now = START + minute * MINUTE
        request = ReportRequest(surface, None, None, 0, 1, store.now)
        if shifted(store, request)["alarm"]:
            found.append(minute)
    return found


def shift_from_the_week(store, request):
    """The broken twin: compares with the week before, whatever the time of day."""
    start = window_start(HOUR, request.now)
    week, recent = (
        range_totals(store, 1, None, *ends).get("learner", PageTotals())
        for ends in ((start - 7 * DAY, start), (start, request.now + MINUTE))
    )
    return shift_between(recent, week, 1e-6)


def test_a_daily_season_is_no_change_of_visitors_and_a_change_is(rng):
    assert not any(alarms(seasonal(rng)) for _ in range(6))
    assert alarms(seasonal(rng), 60, shift_from_the_week)
    changed = 4 * 1440 + 600
    assert changed < alarms(seasonal(rng, changed, 0.8))[0] < changed + 180


def test_nothing_is_said_about_visitors_while_there_is_no_earlier_day(rng):
    minutes = np.arange(WEEK)
    week = simple_week(rng, rate=np.where(minutes < 700, 0.36, 0.1))
    assert not [minute for minute in alarms(week) if minute < 1440]
    store, surface = WeekStore(week), msgspec.structs.replace(surface_of(), created_at=START)
    store.now = START + 20 * HOUR
    said = shift(store, ReportRequest(surface, None, None, 0, 1, store.now))
    assert (said["long_run"], said["z"]) == (None, None)
    assert "same hours of earlier days" in said["note"]


def test_the_shift_alarm_is_raised_when_clicks_per_page_change_and_not_before(rng):
    def shifted(rate, pages):
        return shift_between(simulated_pages(rng, rate, pages), simulated_pages(rng, 0.5, 7 * pages), 1e-5)

    assert not any(shifted(0.5, 1000)["alarm"] for _ in range(200))
    changed = shifted(0.3, 1000)
    assert changed["alarm"]
    assert changed["z"] < -4
    assert "less" in changed["note"]
    assert "not enough" in shifted(0.35, 100)["note"]


@pytest.mark.slow
def test_the_shift_alarm_is_not_raised_however_often_one_looks(rng):
    """A week of looks at 250 pages an hour; the broken twin is a fixed threshold of four standard errors."""
    found = {"sequence": 0, "fixed": 0}
    for _ in range(60):
        alarm = dict.fromkeys(found, False)
        for hour in range(168):
            pages = rng.binomial(3, 0.2 / 3, (8, 20, 25))  # these hours, and those of seven days before
            clicks, squares = pages.sum(axis=2).cumsum(axis=1), (pages**2).sum(axis=2).cumsum(axis=1)
            for look in range(7, 20):
                n = 25 * (look + 1)
                recent = PageTotals(n, int(clicks[0, look]), int(squares[0, look]))
                before = PageTotals(7 * n, int(clicks[1:, look].sum()), int(squares[1:, look].sum()))
                told = shift_between(recent, before, spent(SHIFT_ALPHA, hour + 1))
                alarm["sequence"] |= told["alarm"]
                alarm["fixed"] |= told["z"] is not None and abs(told["z"]) > 4.0
        for name in found:
            found[name] += alarm[name]
    assert found["sequence"] <= 1
    assert found["fixed"] >= 2
