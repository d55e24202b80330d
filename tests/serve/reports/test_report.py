"""The report on a surface: its parts, their intervals, and what it leaves open when there are few data."""

from __future__ import annotations

import json

import numpy as np
import pytest

from bothworlds.serve.model import COMPARED_AGAIN, LEADER_TOOK_OVER, Event, Invalid, Unknown
from bothworlds.serve.reports.inputs import DAY, HOUR, ReportRequest, SegmentState, SurfaceState
from bothworlds.serve.reports.item_rates import weighted_rates
from bothworlds.serve.reports.report import policy_entries, shift, takeovers
from bothworlds.serve.reports.uplift import PageTotals, arm_summary, uplift_of
from tests.serve.fake_engine import NOW, surface_of
from tests.serve.running import ITEMS, answer, refreshed, visit, with_engine

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
        "outstanding",
        "late",
        "duplicates",
    },
    "recent": {"window_seconds", "since", "until", "headline", "holdout", "uplift"},
    "sample_ratio": {"alarm", "evidence", "alarm_at", "share", "learner", "holdout"},
    "shift": {"alarm", "recent", "long_run", "z", "note"},
    "marginals": {"items", "segment", "slots", "x"},
}


def simulated_pages(rng: np.random.Generator, rate: float, pages: int) -> PageTotals:
    clicks = rng.binomial(3, rate / 3, pages)
    return PageTotals(pages, int(clicks.sum()), int((clicks**2).sum()))


@pytest.mark.slow
@with_engine(holdout=0.2)
async def test_a_report_has_all_its_parts_and_is_valid_json(engine, store, clock):
    empty = await engine.report("home")
    assert empty["headline"] == {"pages": 0, "clicks_per_page": None, "interval": None}
    assert empty["uplift"]["relative"] is None
    rng = np.random.default_rng(1)
    for k in range(300):
        ranked = await engine.rank("home", f"v{k}")
        await answer(engine, ranked, [s.slot for s in ranked.slots if rng.random() < (0.8 if s.item == "a" else 0.2)])
        clock.at += 2_000
    open_one = await engine.rank("home", "open")
    await answer(engine, open_one, [0], final=False)
    await refreshed(engine)
    report = await engine.report("home", since=clock.at - 3_600_000, until=clock.at + 1)
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
    pages = {s: (await engine.report("home", until=until, segment=s))["headline"]["pages"] for s in ("x", "y", None)}
    assert pages == {"x": 10, "y": 20, None: 30}
    assert (await engine.report("home", until=until))["holdout"] is None
    assert "without a holdout" in " ".join((await engine.report("home"))["warnings"])
    with pytest.raises(Unknown):
        await engine.report("home", segment="z")
    with pytest.raises(Unknown):
        await engine.report("away")
    with pytest.raises(Invalid):
        await engine.report("home", since=10, until=5)


@with_engine(minimum_exposure=0.5)
async def test_the_report_warns_of_a_minimum_exposure_that_has_become_unreachable(engine, store, clock):
    assert "cannot be reached" not in " ".join((await engine.report("home"))["warnings"])
    await engine.put_item("home", "g", actor="test")
    assert "cannot be reached" in " ".join((await engine.report("home"))["warnings"])
    await engine.patch_surface("home", {"floor": 0.1}, actor="test")


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
                segment="",
                arm="learner",
                policy_id="",
                created_at=0,
                expires_at=0,
                late_until=0,
                items=(int(item),),
                p=(float(x[item]),),
                learn=1,
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


@with_engine()
async def test_the_report_on_all_segments_shows_the_marginals_of_the_busiest_one(engine, store, clock):
    assert (await engine.report("home"))["marginals"]["segment"] == ""
    for k in range(30):
        await visit(engine, f"m{k}", {"a"}, segment="mobile")
    await refreshed(engine)
    report, mobile = await engine.report("home"), await engine.state("home", "mobile")
    assert report["marginals"]["segment"] == "mobile"
    assert report["marginals"]["x"] == mobile["marginals"]["x"]
    assert report["learning"]["policy_id"] == mobile["policy_id"]
    assert (await engine.report("home", segment=""))["marginals"]["segment"] == ""


def test_identical_pages_still_give_an_interval_of_positive_width():
    for pages, most in ((7, 1.0), (1000, 0.01)):
        low, high = arm_summary(PageTotals(pages, pages, pages))["interval"]
        assert low < 1.0 < high < 1.0 + most
    assert uplift_of([(PageTotals(200, 200, 200), PageTotals(200, 200, 200))], 0.05, 0)["low"] < 0.0


class WeekAndHour:
    """A history with these pages in the week before the recent pages, and recently."""

    def __init__(self, week, recent):
        self.week, self.recent = week, recent

    def history(self, surface_id, since, until, step):
        pages = self.week if step > DAY else self.recent
        row = {"at": since, "segment": "", "arm": "learner", "events": pages.pages, "settled": pages.pages}
        return [{**row, "clicks": pages.clicks, "squares": pages.squares}]

    def visitor_sums(self, surface_id, segment, since, until):
        return {}


def test_the_shift_alarm_is_raised_when_clicks_per_page_change_and_not_before(rng):
    request = ReportRequest(SurfaceState(surface_of(), [], {}), None, 0, 1, NOW + 10 * DAY)

    def shifted(rate, pages):
        return shift(WeekAndHour(simulated_pages(rng, 0.5, 20_000), simulated_pages(rng, rate, pages)), request)

    assert not any(shifted(0.5, 1000)["alarm"] for _ in range(200))
    changed = shifted(0.3, 1000)
    assert changed["alarm"]
    assert changed["z"] < -4
    assert "less" in changed["note"]
    assert "not enough" in shifted(0.35, 100)["note"]


@pytest.mark.slow
def test_the_shift_alarm_is_not_raised_however_often_one_looks(rng):
    """A week of looks at 250 pages an hour; the broken twin is a fixed threshold of four standard errors."""
    alarms = {"sequence": 0, "fixed": 0}
    request = ReportRequest(SurfaceState(surface_of(), [], {}), None, 0, 1, NOW)
    for _ in range(30):
        week = simulated_pages(rng, 0.2, 42_000)
        found = dict.fromkeys(alarms, False)
        for hour in range(168):
            at = request._replace(now=NOW + hour * HOUR)
            pages = rng.binomial(3, 0.2 / 3, (20, 25))
            clicks, squares = pages.sum(axis=1).cumsum(), (pages**2).sum(axis=1).cumsum()
            for look in range(7, 20):
                recent = PageTotals(25 * (look + 1), int(clicks[look]), int(squares[look]))
                found["sequence"] |= shift(WeekAndHour(week, recent), at)["alarm"]
                z = (recent.rate - week.rate) / np.sqrt(recent.variance + week.variance)
                found["fixed"] |= bool(abs(z) > 4.0)
        for name in alarms:
            alarms[name] += found[name]
    assert alarms["sequence"] <= 1
    assert alarms["fixed"] >= 2


def audited_takeovers(entries, segment=None, since=0, alone=()):
    """Return the takeovers of a report on these audit entries, oldest first; ``alone``: segments of a leader alone."""

    class Audited:
        def audit(self, surface_id, limit, before=None):
            return entries[::-1]

    nothing = np.zeros((0, 0))
    states = {
        name: SegmentState(0, nothing, nothing, (), nothing, nothing, "", 0, leader_alone=name in alone)
        for name in ("", "mobile")
    }
    request = ReportRequest(SurfaceState(surface_of(), list(states), states), segment, since, 1000, 1000)
    return takeovers(policy_entries(Audited(), request), request)


def test_a_takeover_ends_when_the_learners_of_its_segment_are_compared_again():
    def over(at, segment):
        return {"action": LEADER_TOOK_OVER, "at": at, "segment": segment, "rounds": 10, "until_rounds": 15}

    def again(at, segment):
        return {"action": COMPARED_AGAIN, "at": at, "segment": segment}

    def told(entries, **options):
        found = audited_takeovers(entries, **options)
        return [(one["segment"], one["took_over_at"], one["ended_at"], one["alone"]) for one in found]

    entries = [{"action": "create", "at": 1}, again(90, ""), over(100, ""), over(200, "mobile"), again(300, "mobile")]
    expected = [("", 100, None, True), ("mobile", 200, 300, False)]
    assert told(entries, alone=("",)) == expected
    # Without the segments of the entries, the comparison of one segment would end the takeover of another.
    assert told([one | {"segment": ""} for one in entries], alone=("",)) != expected
    assert told(entries) == [("", 100, None, False), ("mobile", 200, 300, False)]  # a reset, or another policy
    assert told(entries, segment="mobile") == [("mobile", 200, 300, False)]
    assert told(entries, alone=("",), since=301) == [("", 100, None, True)]
    entries += [again(400, ""), over(500, "")]
    assert told(entries, alone=("",), segment="") == [("", 100, 400, False), ("", 500, None, True)]
    entries += [again(600, ""), again(700, "")]  # the second one follows a change of visitors
    assert told(entries, segment="")[-1] == ("", 500, 600, False)
