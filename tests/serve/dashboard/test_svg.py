"""Charts show all data, and leave gaps where there are none."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bothworlds.serve.dashboard import svg
from tests.serve.samples import NOW, marginals, series_of

SVG = "{http://www.w3.org/2000/svg}"
any_point = st.builds(
    lambda *fields: dict(zip(("at", "arm", "pages", "clicks", "design_effect"), fields)),
    st.integers(0, 4 * 10**12), st.sampled_from(["learner", "holdout"]), st.integers(0, 10**9), st.integers(0, 10**10),
    st.none() | st.floats(1.0, 1e6),
)  # fmt: skip


@pytest.mark.slow
@given(st.lists(any_point, max_size=80), st.integers(200, 1500))
def test_every_point_is_inside_the_chart(series, width):
    drawn = str(svg.rate_chart(series, width, 200))
    if "<svg" not in drawn:
        assert all(point["pages"] == 0 for point in series)
        return
    for spot in ET.fromstring(drawn).iter(f"{SVG}circle"):
        assert 0 <= float(spot.get("cx")) <= width
        assert 0 <= float(spot.get("cy")) <= 200


def test_merging_keeps_all_pages_and_clicks():
    series = series_of(minutes=90)
    points = svg.merge_points(series, "learner", most=7)
    pages = sum(point["pages"] for point in series if point["arm"] == "learner")
    clicks = sum(point["clicks"] for point in series if point["arm"] == "learner")
    assert len(points) <= 7
    assert sum(point.pages for point in points) == pages
    assert sum(point.pages * point.rate for point in points) == pytest.approx(clicks)


def test_the_band_covers_a_poisson_rate_in_about_95_percent(rng):
    for rate, pages in ((0.3, 50), (0.02, 400), (1.5, 20)):
        clicks = rng.poisson(rate * pages, 4000)
        point = {"at": 0, "arm": "learner", "pages": pages, "design_effect": 1.0}
        points = [svg.merge_points([{**point, "clicks": int(c)}], "learner")[0] for c in clicks]
        covered = sum(point.low <= rate <= point.high for point in points) / len(points)
        assert 0.92 < covered < 0.985


def test_a_band_of_visitors_is_as_much_wider_as_their_design_effect_says():
    def point(effect, clicks=4000):
        series = [{"at": 0, "arm": "learner", "pages": 10_000, "clicks": clicks, "design_effect": effect}]
        return svg.merge_points(series, "learner")[0]

    alone, alike = point(1.0), point(9.0)
    assert (alike.high - alike.low) / (alone.high - alone.low) == pytest.approx(3.0, rel=0.01)
    assert alike.low < alike.rate == alone.rate < alike.high
    unknown = [*series_of(minutes=3, holdout=False), {**series_of(1)[0], "at": 0, "design_effect": None}]
    drawing = ET.fromstring(str(svg.rate_chart(unknown)))
    titles = [spot.find(f"{SVG}title").text for spot in drawing.iter(f"{SVG}circle")]
    assert ["too few visitors for an interval" in title for title in titles] == [True, False, False, False]
    [band] = [polygon.get("points").split() for polygon in drawing.iter(f"{SVG}polygon")]
    assert len(band) == 6


def test_every_point_has_a_tooltip():
    drawing = ET.fromstring(str(svg.rate_chart(series_of())))
    titles = [spot.find(f"{SVG}title").text for spot in drawing.iter(f"{SVG}circle")]
    assert all("clicks per page, 95% interval" in title for title in titles)
    assert drawing.get("aria-label").startswith("Clicks per page over time: learned order from")


@given(st.floats(1e-6, 1e9))
def test_tick_labels_are_exact(value):
    top = svg.round_up(value)
    ticks = svg.ticks(top)
    assert 4 <= len(ticks) <= 6
    assert [float(label.replace(",", "")) for _, label in ticks] == pytest.approx([at for at, _ in ticks], rel=1e-9)
    assert ticks[-1][0] == top >= value * (1 - 1e-6)


def test_names_in_charts_are_escaped():
    now = {"items": ["<b>&\"'"], "slots": 1, "x": [[1.0]]}
    (chart,) = svg.probability_charts(now, [{"at": NOW, "x": [[0.5]]}, {"at": NOW + 1, "x": [[0.7]]}], [0])
    assert "<b>&\"'" in ET.fromstring(str(chart)).find(f".//{SVG}text").text


def test_an_item_that_did_not_exist_yet_leaves_a_gap():
    now = {"items": ["old", "new"], "slots": 1, "x": [[0.5], [0.5]]}
    history = [{"at": NOW, "x": [[1.0]]}, {"at": NOW + 1, "x": [[1.0], None]}, {"at": NOW + 2, "x": [[0.5], [0.5]]}]
    (chart,) = svg.probability_charts(now, history, [0, 1])
    assert len(list(ET.fromstring(str(chart)).iter(f"{SVG}rect"))) == 4


def test_a_long_history_is_thinned_and_the_latest_kept():
    now = {"items": list("abc"), "slots": 2, "x": marginals(3, 2, 1.0)}
    history = [{"at": NOW + 60_000 * k, "x": marginals(3, 2, k / 100)} for k in range(1001)]
    charts = svg.probability_charts(now, history, [0, 1, 2], most=30)
    assert len(charts) == 2
    rects = list(ET.fromstring(str(charts[0])).iter(f"{SVG}rect"))
    assert len(rects) <= 90
    latest = max(float(rect.get("fill-opacity")) for rect in rects)
    assert math.isclose(latest, round(history[-1]["x"][0][0], 3))


def test_a_detected_change_is_a_line_at_its_time():
    series = [{"at": at * 60_000, "arm": "learner", "pages": 10, "clicks": 4, "design_effect": 1.0} for at in range(11)]
    change = {"changed_at": 300_000, "detected_at": 420_000}
    outside = change | {"changed_at": 10**9}
    drawn = str(svg.rate_chart(series, 720, 260, [change, outside]))
    assert drawn.count('class="change"') == 1
    x = svg.Axes(720, 260, 0, 600_000, 1.0).x(300_000)
    assert f'x1="{x}" x2="{x}"' in drawn
    assert "click differently since" in drawn
    assert "1 detected change of visitors" in drawn
    assert "change" not in str(svg.rate_chart(series, 720, 260))
